//! Handle of the task that checks one server.

use std::sync::Arc;

use tokio::task::AbortHandle;

use crate::settings::OriginConfig;

/// A task that checks a server; aborted on drop.
pub(super) struct Checker {
    /// Configuration of the origin that the checks follow.
    pub(super) config: Arc<OriginConfig>,
    pub(super) task: AbortHandle,
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.task.abort();
    }
}
