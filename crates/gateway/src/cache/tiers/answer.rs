//! What the tier answers to those who want a record.

use std::sync::Arc;

use store::backing::Loaded;

use crate::cache::record::stored::CacheEntry;

/// What lies under a key, and what the tier had to say about it.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) entry: Option<Arc<CacheEntry>>,
    pub(crate) said: Said,
    pub(crate) there: There,
}

/// The record of the tier, as it was read.
#[derive(Clone, Debug)]
pub(crate) enum There {
    Unread,
    Nothing,
    Record(Loaded),
}

/// What the tier has said about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// It had no need to be asked.
    Unasked,
    Failed,
    Nothing,
    /// What memory has is still what lies there.
    Unchanged,
    /// Something lies there that is of no use here.
    Unusable,
    Found,
    /// Others changed it while it was read, time and again.
    Changing,
}

impl Said {
    /// In spans.
    pub(crate) fn word(self) -> &'static str {
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
    pub(crate) const UNASKED: Self = Self { entry: None, said: Said::Unasked, there: There::Unread };
}
