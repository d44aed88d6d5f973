//! What the design asks of the kv server.

use super::{memory, misses, speed, tail, workers};
use crate::plan::Budget;

/// The budgets of a row.
pub(crate) fn of(title: &str) -> Vec<Budget> {
    let parts = [
        speed::budgets(title),
        memory::budgets(title),
        tail::budgets(title),
        workers::budgets(title),
        misses::budgets(title),
    ];
    parts.concat()
}
