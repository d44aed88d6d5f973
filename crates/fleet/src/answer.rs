//! Answers of the tier to look-ups.

use std::sync::Arc;

use cache::entry::stored::CacheEntry;
use store::backing::Loaded;

/// Record under a key, and the tier's answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub entry: Option<Arc<CacheEntry>>,
    pub said: Said,
    pub remote: RemoteState,
}

/// Record of the tier, as read.
#[derive(Clone, Debug)]
pub enum RemoteState {
    Unread,
    Nothing,
    Record(Loaded),
}

/// Answer of the tier about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// The tier was not queried.
    Unasked,
    Failed,
    Nothing,
    /// The copy in memory is current.
    Unchanged,
    /// This instance can't use the record.
    Unusable,
    Found,
    /// Other instances kept changing the record while it was read.
    Changing,
}

impl Said {
    /// Returns the name of the answer in spans.
    pub fn word(self) -> &'static str {
        match self {
            Self::Unasked => "unasked",
            Self::Failed => "failed",
            Self::Nothing => "nothing",
            Self::Unchanged => "unchanged",
            Self::Unusable => "unusable",
            Self::Found => "found",
            Self::Changing => "changing",
        }
    }
}

impl Answer {
    pub const UNASKED: Self = Self { entry: None, said: Said::Unasked, remote: RemoteState::Unread };
}
