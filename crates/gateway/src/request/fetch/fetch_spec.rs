//! A fetch, as a look-up leaves it.

use std::sync::Arc;

use bytes::Bytes;
use cache::entry::stored::{CacheEntry, Hit, Uncacheable};
use cache::membership::LookUp;
use caching::NotReused;
use origin::RequestBody;

use crate::request::fetch::scope::FetchScope;

/// A fetch to make.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) key: Box<[u8]>,
    /// Distinguishes forwards for different variants of one key, once the nominated fields are known.
    pub(crate) variant: Vec<u8>,
    /// Look-up that the stored responses below come from. While the request waits for others, they may be purged or invalidated, so each
    /// use checks them against this look-up first.
    pub(crate) look_up: LookUp,
    /// Stored response that the request selected, to fall back on.
    pub(crate) stale: Option<Hit>,
    /// Responses that a validation names: the selected one, and others under the key that the origin may turn out to select.
    pub(crate) candidates: Vec<Hit>,
    pub(crate) reason: NotReused,
    pub(crate) sharing: Sharing,
    pub(crate) scope: FetchScope,
    /// Content of the request; only a QUERY has some.
    pub(crate) content: Bytes,
    /// State of the tier look-up for bytes that memory lacks of a stored response.
    pub(crate) tier: TierLookUp,
    /// Record under the key, held so that it stays in use even if memory forgets it: a new response then changes this record instead of
    /// starting a new one.
    pub(crate) in_use: Option<Arc<CacheEntry>>,
}

/// Whether the tier behind memory has been asked for the missing bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TierLookUp {
    Unasked,
    Asked,
}

/// Whether other requests may wait for the same forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    Joined,
    Alone,
    /// Not listed among the forwards: a note says that the answer won't be stored.
    Unlikely(Uncacheable),
}

impl Fetch {
    /// Creates a fetch of the whole, without stored responses to validate or fall back on.
    pub(crate) fn new(key: impl Into<Box<[u8]>>, look_up: LookUp, reason: NotReused) -> Self {
        Self {
            key: key.into(),
            variant: Vec::new(),
            look_up,
            stale: None,
            candidates: Vec::new(),
            reason,
            sharing: Sharing::Joined,
            scope: FetchScope::Whole,
            content: Bytes::new(),
            tier: TierLookUp::Unasked,
            in_use: None,
        }
    }

    /// Copies the fetch for another scope, without the stored responses to validate or fall back on.
    pub(crate) fn with_scope(&self, scope: FetchScope) -> Self {
        Self {
            variant: self.variant.clone(),
            sharing: self.sharing,
            scope,
            content: self.content.clone(),
            tier: self.tier,
            in_use: self.in_use.clone(),
            ..Self::new(&*self.key, self.look_up, self.reason)
        }
    }

    /// Returns the note that the answer won't be stored; `None` if it may well be, or needs more than a verdict.
    pub(crate) fn known_uncacheable(&self) -> Option<Uncacheable> {
        let Sharing::Unlikely(known) = self.sharing else { return None };
        let is_plain = self.stale.is_none() && self.candidates.is_empty();
        (is_plain && matches!(self.scope, FetchScope::Whole)).then_some(known)
    }

    /// Returns the content of the request as a body to send.
    pub(crate) fn body(&self) -> RequestBody {
        RequestBody::from(self.content.clone())
    }
}
