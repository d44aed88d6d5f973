//! Faults for tests.

use std::cell::Cell;

/// A rule that is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Copies in memory are used after the tier has reported that their records changed.
    TrustsSuspects,
    /// The beginning of another region's log purges nothing.
    IgnoresBeginnings,
    /// Purges are complete before other regions have applied them.
    WaitsForNoRegion,
}

thread_local! {
    /// The fault of this thread.
    pub static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
}

pub(crate) fn is_planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}
