//! The server that a request went to, for logs and traces: they are written elsewhere than requests are sent.

use std::sync::Arc;

use parking_lot::Mutex;

/// The server that answered a request, or that was tried last.
#[derive(Debug, Default)]
pub struct Tried(Mutex<Option<Arc<str>>>);

impl Tried {
    /// URL of the server, unless none was tried.
    pub fn last(&self) -> Option<Arc<str>> {
        self.0.lock().clone()
    }

    /// Records that the request goes to this server.
    pub(super) fn note(&self, server: &Arc<str>) {
        *self.0.lock() = Some(Arc::clone(server));
    }

    /// Forgets the server, because the request is to be sent anew, and may go nowhere.
    pub fn forget(&self) {
        *self.0.lock() = None;
    }
}
