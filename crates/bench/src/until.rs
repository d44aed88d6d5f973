//! The end of a load, for every kind of load and for its progress.

use std::time::Duration;

/// The condition that ends a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After this many requests, answered or failed.
    Requests(u64),
    Elapsed(Duration),
}

impl Until {
    /// Duration of the load, if it is known in advance.
    pub(crate) fn duration(self) -> Option<Duration> {
        match self {
            Self::Requests(_) => None,
            Self::Elapsed(duration) => Some(duration),
        }
    }
}
