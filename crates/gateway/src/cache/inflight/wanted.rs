//! What is to be fetched, as a look-up leaves it.

use std::sync::Arc;

use bytes::Bytes;
use caching::NotReused;
use origin::RequestBody;

use crate::cache::epochs::membership::LookUp;
use crate::cache::inflight::scope::FetchScope;
use crate::cache::record::stored::{CacheEntry, Hit, Uncacheable};

/// What is fetched.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) key: Box<[u8]>,
    /// Distinguishes forwards for different variants of one key, once it is known what they depend on.
    pub(crate) variant: Vec<u8>,
    /// Where all that this has of stored responses comes from. It is kept while others are waited for, and asked: nothing of it
    /// is used without a look whether it was taken away meanwhile.
    pub(crate) look_up: LookUp,
    /// The stored response that the request selected, to fall back on.
    pub(crate) stale: Option<Hit>,
    /// What a validation names: that response, and others under the key that the origin may turn out to select.
    pub(crate) candidates: Vec<Hit>,
    pub(crate) reason: NotReused,
    pub(crate) sharing: Sharing,
    pub(crate) scope: FetchScope,
    /// Of the request: a QUERY has some.
    pub(crate) content: Bytes,
    /// For bytes that memory lacks of a stored response.
    pub(crate) tier: Tier,
    /// What lies under the key, so that it stays in use where memory may forget it: what is stored then changes it, and does not
    /// begin anew.
    pub(crate) in_use: Option<Arc<CacheEntry>>,
}

/// Whether the tier behind memory has been asked for what memory lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    Unasked,
    Asked,
}

/// Whether others may wait for the same forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    Joined,
    Alone,
    /// Not even worth a place among the forwards: a note says that the answer won't be stored.
    Unlikely(Uncacheable),
}

impl Fetch {
    /// The same, but for other bytes.
    pub(crate) fn with_scope(&self, scope: FetchScope) -> Self {
        Self {
            key: self.key.clone(),
            variant: self.variant.clone(),
            look_up: self.look_up,
            stale: None,
            candidates: Vec::new(),
            reason: self.reason,
            sharing: self.sharing,
            scope,
            content: self.content.clone(),
            tier: self.tier,
            in_use: self.in_use.clone(),
        }
    }

    /// The content of the request, to be sent.
    pub(crate) fn body(&self) -> RequestBody {
        RequestBody::from(self.content.clone())
    }
}
