//! Answers of the shared tier to look-ups.

use std::sync::Arc;

use cache::entry::stored::CacheEntry;
use store::backing::Loaded;

/// A record that was looked up under a key, and the answer of the tier.
#[derive(Clone, Debug)]
pub struct Answer {
    pub entry: Option<Arc<CacheEntry>>,
    pub said: Said,
    pub remote: RemoteState,
}

/// State of the tier's record when it was last read.
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
    /// The record is the same as the copy in memory.
    Unchanged,
    /// This instance can't use the record.
    Unusable,
    Found,
    /// Other instances changed the record during each attempt to read it.
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
