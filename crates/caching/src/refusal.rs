//! What a response that was not stored tells about the requests that follow for the same key.
//!
//! Where nothing is shared, nobody should wait for anybody: a note says so for a while. Any client may cause such an
//! answer, with a cookie of its own or an odd field, so a note says as little as it can: nothing about requests with
//! less credentials than the one that it comes from, and nothing against a response that is, or was a short while ago, everybody's.

use crate::{NotStored, RequestFacts, StoredFacts, Timestamp};

/// The requests that a note speaks about: each scope holds those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalScope {
    /// Those with `Authorization`.
    Authorization,
    /// Those with credentials of any kind.
    Credentials,
    /// Every request.
    All,
}

impl RefusalScope {
    /// Requests that are likely to meet with the same as `request`, whose response was not stored for this reason.
    /// `None`: for one of the gateway's own.
    pub fn of(request: &RequestFacts, reason: Option<NotStored>) -> Self {
        match reason {
            Some(NotStored::Authorization) => Self::Authorization,
            _ if request.has_credentials => Self::Credentials,
            _ => Self::All,
        }
    }

    /// Whether `request` is one of them.
    pub fn has(self, request: &RequestFacts) -> bool {
        match self {
            Self::Authorization => request.has_authorization,
            Self::Credentials => request.has_credentials,
            Self::All => true,
        }
    }
}

/// Whether a stored response speaks against every note: it is fresh, or its lifetime ended less than `lately_ms` ago. If
/// its resource were still shared and asked for, it would have been stored anew soon after; that it was not, for so long, is the proof.
pub fn was_shared_lately(stored: Option<&StoredFacts>, now: Timestamp, lately_ms: u64) -> bool {
    stored.is_some_and(|stored| stored.staleness_ms(now) < lately_ms)
}
