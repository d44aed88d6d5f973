//! What is known of a server, however it is reached.

use std::sync::Arc;

use parking_lot::Mutex;

use super::checker::Checker;
use super::checks::Checked;
use super::ejection::Standing;
use super::stats::Work;

/// It goes on where a reload changes the connections to the server, and nothing of the server.
#[derive(Default)]
pub(super) struct Known {
    pub(super) work: Arc<Work>,
    pub(super) standing: Mutex<Standing>,
    pub(super) checked: Mutex<Checked>,
    pub(super) checker: Mutex<Option<Checker>>,
}
