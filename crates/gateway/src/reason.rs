//! Why something happened to a request: the codes of the policy, and those that the data plane adds.

use caching::{NotReused, NotStored, reason_codes};

reason_codes! {
    /// Codes that the data plane adds to those of the policy.
    pub enum Reason {
        KnownUncacheable = "known-uncacheable", "", "A response for this key could not be stored a short while ago (`uncacheable_for`).";
        Upgrade = "upgrade", "RFC 9110 section 7.8", "The request asks for another protocol, such as WebSocket.";
        RequestContent = "request-content", "RFC 9111 section 4", "The request has content, which takes no part in the cache key.";
        QueryContent = "query-content", "RFC 10008 section 2.7", "The content of the QUERY is larger than what takes part in a cache key (`query_content_bytes_max`).";
        QueryUntyped = "query-untyped", "RFC 10008 section 2", "The QUERY doesn't say in one `Content-Type` what its content is.";
        CollapseGivenUp = "collapse-given-up", "", "Waiting for another request's forward reached its limits.";
        CollapseFailed = "collapse-failed", "RFC 9111 section 4", "The forward that the request waited for, and the one that took its place, ended in a server error.";
        SegmentEvicted = "segment-evicted", "", "A part of the stored body was evicted before it was needed.";
        TooLarge = "object-too-large", "", "The body is larger than `object_bytes_max` or than the store takes.";
        MemoryFull = "memory-full", "", "Fills in progress and readers hold the memory.";
        StoreFull = "store-full", "", "The store did not take the response.";
        Outdated = "outdated", "RFC 9111 section 4", "A purge, an invalidation or a newer response came while this one was on its way.";
        CloseDelimited = "close-delimited", "RFC 9112 section 8", "Only the end of the connection ends the body: whether it is whole, nobody can tell (`close_delimited`).";
        UnknownTransferCoding = "unknown-transfer-coding", "RFC 9112 section 6.3", "The response has a transfer coding that nobody can undo: where it ends is a guess.";
        MaxStale = "max-stale", "RFC 9111 section 5.2.1.2", "The request takes a stale response.";
        StaleWhileRevalidate = "stale-while-revalidate", "RFC 5861 section 3", "Stale, and a validation runs behind.";
        StaleIfError = "stale-if-error", "RFC 5861 section 4", "Stale, because the origin answered with an error.";
    }
}

/// A `detail` of `Cache-Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    Reuse(NotReused),
    Store(NotStored),
    Here(Reason),
    /// The origin failed: an error type of RFC 9209.
    Origin(&'static str),
}

impl Detail {
    /// As it stands in the field.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Reuse(reason) => reason.as_str(),
            Self::Store(reason) => reason.as_str(),
            Self::Here(reason) => reason.as_str(),
            Self::Origin(error_type) => error_type,
        }
    }
}

impl Detail {
    /// What it means, in a sentence.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Reuse(reason) => reason.meaning(),
            Self::Store(reason) => reason.meaning(),
            Self::Here(reason) => reason.meaning(),
            Self::Origin(error_type) => error_type,
        }
    }

    /// The section behind it; empty where none is.
    pub(crate) fn section(self) -> &'static str {
        match self {
            Self::Reuse(reason) => reason.section(),
            Self::Store(reason) => reason.section(),
            Self::Here(reason) => reason.section(),
            Self::Origin(_) => "RFC 9209 section 2.3",
        }
    }
}

impl From<NotReused> for Detail {
    fn from(reason: NotReused) -> Self {
        Self::Reuse(reason)
    }
}

impl From<NotStored> for Detail {
    fn from(reason: NotStored) -> Self {
        Self::Store(reason)
    }
}

impl From<Reason> for Detail {
    fn from(reason: Reason) -> Self {
        Self::Here(reason)
    }
}
