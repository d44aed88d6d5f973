//! Conclusions for later requests with the same key, drawn from a response that was not stored.
//!
//! If responses aren't shared, requests should not wait for each other: a note records this for a while. Any client can
//! cause such a response, with its own cookie or an unusual field, so a note applies as narrowly as possible: not to
//! requests with fewer credentials than the one that caused it, and not if a response is, or recently was, shared.

use crate::{NotStored, RequestFacts, StoredFacts, Timestamp};

/// The requests that a note applies to: each scope includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalScope {
    /// Requests with `Authorization`.
    Authorization,
    /// Requests with credentials of any kind.
    Credentials,
    /// Every request.
    All,
}

impl RefusalScope {
    /// Returns the scope of requests that are likely to get the same result as `request`, whose response was not stored
    /// for this reason. `None` is a reason of the gateway itself.
    pub fn of(request: &RequestFacts, reason: Option<NotStored>) -> Self {
        match reason {
            Some(NotStored::Authorization) => Self::Authorization,
            _ if request.has_credentials => Self::Credentials,
            _ => Self::All,
        }
    }

    /// Returns whether the scope includes `request`.
    pub fn has(self, request: &RequestFacts) -> bool {
        match self {
            Self::Authorization => request.has_authorization,
            Self::Credentials => request.has_credentials,
            Self::All => true,
        }
    }
}

/// Returns whether a stored response overrides every note: it is fresh, or its lifetime ended less than `lately_ms`
/// ago. A resource that is still shared and requested would have been stored again soon after; after this time without
/// that, the note applies.
pub fn was_shared_lately(stored: Option<&StoredFacts>, now: Timestamp, lately_ms: u64) -> bool {
    stored.is_some_and(|stored| stored.staleness_ms(now) < lately_ms)
}
