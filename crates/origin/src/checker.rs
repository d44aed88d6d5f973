//! The checks of one server, which somebody else makes.

use std::sync::Arc;

use tokio::task::AbortHandle;

use crate::settings::OriginConfig;

/// A task that checks a server; it ends when this is dropped.
pub(super) struct Checker {
    /// How it checks.
    pub(super) config: Arc<OriginConfig>,
    pub(super) task: AbortHandle,
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.task.abort();
    }
}
