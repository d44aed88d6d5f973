//! Interface of the tier behind memory, which several processes may share.

use std::sync::Arc;

use store::{Applied, Change, Memory};

use crate::entry::stored::CacheEntry;

/// Changes the record under a key: receives the current record, and is called once, under the key's turn.
pub type Decide<'a> = &'a mut dyn FnMut(Option<&Arc<CacheEntry>>) -> Change<CacheEntry>;

/// Tier behind memory, as far as changes to memory's records need it. It has no look-ups in the tier, because nothing waits here.
pub trait RemoteTier: Send + Sync {
    /// Returns the record of a key that memory may have lost and the tier doesn't have yet.
    fn pending(&self, key: &[u8]) -> Option<Arc<CacheEntry>>;

    /// Changes the record under a key, in memory and in the tier. `decide` gets a pending record even if memory has lost it.
    fn update(&self, key: &[u8], decide: Decide<'_>) -> Applied;

    /// Changes a record in memory alone: for a purge, which every reader of the tier applies itself, or for a note that responses are not
    /// stored, which is useful only briefly, and not to instances that have a stored response.
    fn update_in_memory(&self, key: &[u8], decide: Decide<'_>);

    /// Removes the record of a key from the tier, unless this instance knows a record there or has a pending change.
    fn remove_unknown(&self, key: &[u8]);
}

/// No tier: memory holds everything that is stored.
pub(crate) struct MemoryAlone(pub(crate) Arc<Memory<CacheEntry>>);

impl RemoteTier for MemoryAlone {
    fn pending(&self, _key: &[u8]) -> Option<Arc<CacheEntry>> {
        None
    }

    fn update(&self, key: &[u8], decide: Decide<'_>) -> Applied {
        self.0.update(key, decide)
    }

    fn update_in_memory(&self, key: &[u8], decide: Decide<'_>) {
        self.0.update(key, decide);
    }

    fn remove_unknown(&self, _key: &[u8]) {}
}
