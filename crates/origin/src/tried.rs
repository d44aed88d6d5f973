//! Which server a request went to, for who writes of it: those who ask and those who write are on different ways.

use std::sync::Arc;

use parking_lot::Mutex;

/// The server that has answered a request, or that was tried last.
#[derive(Debug, Default)]
pub struct Tried(Mutex<Option<Arc<str>>>);

impl Tried {
    /// Its URL, unless none was tried.
    pub fn last(&self) -> Option<Arc<str>> {
        self.0.lock().clone()
    }

    /// The request goes to this server.
    pub(super) fn note(&self, server: &Arc<str>) {
        *self.0.lock() = Some(Arc::clone(server));
    }

    /// The request is to be sent anew, and may go nowhere.
    pub fn forget(&self) {
        *self.0.lock() = None;
    }
}
