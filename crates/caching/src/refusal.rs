//! Notes about responses that were not stored, for later requests with the same key.
//!
//! If responses can't be shared, requests should not wait for each other. A note records this for a limited time. Any client can cause such
//! a response, with its own cookie or an unusual field, so a note applies as narrowly as possible. It doesn't apply to requests with fewer
//! credentials than the request that caused it, or if a response is shared, or was recently.

use crate::{NotStored, RequestFacts, StoredFacts, Timestamp};

/// The requests that a note applies to. Each scope includes the requests of the previous scopes.
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
    /// for this reason. `None` stands for a reason of the gateway itself.
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

/// Returns whether a stored response overrides every note: it is fresh, or its lifetime ended less than `lately_ms` ago. A shared resource
/// that is still requested is stored again soon. If that hasn't happened within this time, the note applies.
pub fn was_shared_lately(stored: Option<&StoredFacts>, now: Timestamp, lately_ms: u64) -> bool {
    stored.is_some_and(|stored| stored.staleness_ms(now) < lately_ms)
}
