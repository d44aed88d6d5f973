//! How a stored response is used, and which of its bytes.

use caching::{ByteRange, Outcome};
use telemetry::CacheResult;

use message::reason::Reason;

/// How a stored response came to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Fresh,
    /// Fresh, while a validation runs.
    RefreshAhead,
    /// Stale, while a validation runs.
    StaleWhileRevalidate,
    /// Stale, and why that is allowed.
    Stale(Reason),
    /// After the origin was asked, by this request or another.
    Asked {
        outcome: Outcome,
        result: CacheResult,
    },
    /// After another instance has asked the origin.
    FoundElsewhere(Outcome),
}

/// Which bytes of a stored response a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All bytes, for a 200.
    Whole(ByteRange),
    /// One range, for a 206.
    Range(ByteRange),
    /// Several ranges.
    Several,
    /// Its length is unknown, or it has no such bytes.
    Unknown,
}

impl Extent {
    /// The bytes of a reply with one part.
    pub(crate) fn bytes(self) -> Option<ByteRange> {
        match self {
            Self::Whole(range) | Self::Range(range) => Some(range),
            Self::Several | Self::Unknown => None,
        }
    }
}
