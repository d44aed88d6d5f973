//! State of a server, independent of the connections to it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::checker::Checker;
use super::checks::Checked;
use super::ejection::Standing;
use super::stats::Work;

/// State of a server that survives a reload which changes only the connections to it.
#[derive(Default)]
pub(super) struct Known {
    pub(super) work: Arc<Work>,
    pub(super) standing: Mutex<Standing>,
    pub(super) checked: Mutex<Checked>,
    pub(super) checker: Mutex<Option<Checker>>,
}
