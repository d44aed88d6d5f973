//! When a load ends: the same for every kind of load and for its progress.

use std::time::Duration;

/// When a load ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After this many requests, answered or failed.
    Requests(u64),
    Elapsed(Duration),
}

impl Until {
    /// How long the load lasts, where that is known before.
    pub(crate) fn duration(self) -> Option<Duration> {
        match self {
            Self::Requests(_) => None,
            Self::Elapsed(duration) => Some(duration),
        }
    }
}
