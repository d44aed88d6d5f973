//! Use of a stored response, and the bytes that it takes.

use caching::{ByteRange, Outcome};
use message::reason::Reason;
use telemetry::CacheResult;

/// Way in which a stored response came to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Fresh,
    /// Fresh, while a validation runs.
    RefreshAhead,
    /// Stale, while a validation runs.
    StaleWhileRevalidate,
    /// Stale, with the reason that allows it.
    Stale(Reason),
    /// After the origin was asked, by this request or another.
    Asked {
        outcome: Outcome,
        result: CacheResult,
    },
    /// After another instance asked the origin.
    FoundElsewhere(Outcome),
}

/// Bytes of a stored response that a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All bytes, for a 200.
    Whole(ByteRange),
    /// One range, for a 206.
    Range(ByteRange),
    /// Several ranges.
    Several,
    /// The length is unknown, or there are no such bytes.
    Unknown,
}

impl Extent {
    /// Bytes of a reply with one part.
    pub(crate) fn bytes(self) -> Option<ByteRange> {
        match self {
            Self::Whole(range) | Self::Range(range) => Some(range),
            Self::Several | Self::Unknown => None,
        }
    }
}
