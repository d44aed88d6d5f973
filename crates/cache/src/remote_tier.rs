//! Interface of the tier behind memory, which several processes may share.

use std::sync::Arc;

use store::{Applied, Change, Memory};

use crate::entry::stored::CacheEntry;

/// A function that changes the record under a key. It receives the current record, and is called once, while no other change of the key
/// runs.
pub type Decide<'a> = &'a mut dyn FnMut(Option<&Arc<CacheEntry>>) -> Change<CacheEntry>;

/// The functions of a tier that changes of records need. None of them waits, so none looks up a record in the tier.
pub trait RemoteTier: Send + Sync {
    /// Returns a record that waits to be written to the tier. Memory may have lost it.
    fn pending(&self, key: &[u8]) -> Option<Arc<CacheEntry>>;

    /// Changes the record under a key, in memory and in the tier. `decide` gets a pending record even if memory has lost it.
    fn update(&self, key: &[u8], decide: Decide<'_>) -> Applied;

    /// Changes a record in memory alone. Purges use this, because every reader of the tier applies them itself. So do notes that responses
    /// are not stored, because a note is useful only for a short time, and not to instances with a stored response.
    fn update_in_memory(&self, key: &[u8], decide: Decide<'_>);

    /// Removes the record of a key from the tier, unless this instance knows a record there or has a pending change.
    fn remove_unknown(&self, key: &[u8]);
}

/// A cache without a tier: memory holds all stored responses.
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
