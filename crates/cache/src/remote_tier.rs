//! Interface of the tier behind memory, which several processes may share.

use std::sync::Arc;

use store::{Applied, Change, Memory};

use crate::entry::stored::CacheEntry;

/// Change to the record under a key: it sees the current record and is called once, under the key's turn.
pub type Decide<'a> = &'a mut dyn FnMut(Option<&Arc<CacheEntry>>) -> Change<CacheEntry>;

/// Tier behind memory, as memory's records depend on it. A look-up in the tier is no part of it: nobody waits here.
pub trait RemoteTier: Send + Sync {
    /// Record of a key that memory may have lost and the tier doesn't have yet.
    fn pending(&self, key: &[u8]) -> Option<Arc<CacheEntry>>;

    /// Changes the record under a key, in memory and in the tier. `decide` sees a pending record even if memory has lost it.
    fn update(&self, key: &[u8], decide: Decide<'_>) -> Applied;

    /// Changes a record in memory alone: as a purge demands, which every reader of the tier applies itself, or by a note that responses
    /// are not stored, which is of use for a short time, and of none to an instance that has a stored response.
    fn update_in_memory(&self, key: &[u8], decide: Decide<'_>);

    /// Removes the record of a key from the tier, unless this instance knows a record there or has a pending change.
    fn remove_unknown(&self, key: &[u8]);
}

/// No tier: memory has all that is stored.
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
