//! When a load ends: the same for every kind of load and for its progress.

use std::time::Duration;

/// When a load ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After this many requests, answered or failed.
    Requests(u64),
    Elapsed(Duration),
}
