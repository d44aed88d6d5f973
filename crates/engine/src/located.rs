//! A key in its locked shard. All access to stored data goes through this type, so that a key can't be looked
//! up in the wrong shard.

use std::ops::DerefMut;

use crate::hash::Key;
use crate::index::Hint;
use crate::large::Edited;
use crate::packed::Stored;
use crate::shard::{Access, Expiry, Found, OutOfMemory, Shard};

/// A key and its locked shard.
#[derive(Debug)]
pub struct Located<'k, S> {
    shard: S,
    key: &'k Key<'k>,
}

impl<'k, S: DerefMut<Target = Shard>> Located<'k, S> {
    /// The shard must be that of the key.
    #[inline(always)]
    pub(crate) fn new(shard: S, key: &'k Key<'k>) -> Self {
        Self { shard, key }
    }

    /// The key.
    #[inline(always)]
    pub fn key(&self) -> &'k Key<'k> {
        self.key
    }

    /// Looks up the key.
    #[inline]
    pub fn get(&mut self, access: Access, now_ms: u64) -> Option<Found<'_>> {
        self.shard.get(self.key, access, now_ms)
    }

    /// The value of a prefetched key, counted as an access. On `None`, call [`Self::get`]: the key is not
    /// where the hint says, or its value is large or has an expiry.
    #[inline(always)]
    pub fn get_seen(&mut self, hint: Hint, now_ms: u64) -> Option<&[u8]> {
        self.shard.get_seen(self.key, hint, now_ms)
    }

    /// Memory of the key, its value and its share of the index. Doesn't count as an access.
    pub fn memory_bytes(&mut self, now_ms: u64) -> Option<usize> {
        self.shard.memory_bytes(self.key, now_ms)
    }

    /// Returns whether the key exists. Doesn't count as an access.
    pub fn contains(&mut self, now_ms: u64) -> bool {
        self.shard.contains(self.key, now_ms)
    }

    /// Sets the value of the key.
    ///
    /// # Errors
    /// If there is no room. The old value is unchanged.
    pub fn set(&mut self, value: &[u8], expiry: Expiry, now_ms: u64) -> Result<(), OutOfMemory> {
        self.shard.set(self.key, value, expiry, now_ms)
    }

    /// Overwrites the value of a prefetched key. On `false`, call [`Self::set`].
    #[inline(always)]
    pub fn overwrite_seen(&mut self, hint: Hint, value: &[u8], now_ms: u64) -> bool {
        self.shard.overwrite_seen(self.key, hint, value, now_ms)
    }

    /// Sets a value prepared by [`Engine::pack`](crate::Engine::pack). A large value isn't copied.
    ///
    /// # Errors
    /// As for [`Self::set`].
    pub fn set_stored(&mut self, value: Stored, expiry: Expiry, now_ms: u64) -> Result<(), OutOfMemory> {
        self.shard.set_stored(self.key, value, expiry, now_ms)
    }

    /// Changes a large value in place, to a length of `value_bytes`, usually without a copy.
    ///
    /// # Errors
    /// As for [`Self::set`].
    pub fn edit(
        &mut self,
        value_bytes: usize,
        edit: impl FnOnce(&mut Vec<u8>),
        now_ms: u64,
    ) -> Result<Edited, OutOfMemory> {
        self.shard.edit(self.key, value_bytes, edit, now_ms)
    }

    /// Makes room for a value of this size before it is computed.
    ///
    /// # Errors
    /// As for [`Self::set`].
    pub fn make_room(&mut self, value_bytes: usize, now_ms: u64) -> Result<(), OutOfMemory> {
        self.shard.make_room(self.key, value_bytes, now_ms)
    }

    /// Changes the expiry of the key, which counts as an access. Returns whether the key exists. Needs no
    /// room.
    ///
    /// # Errors
    /// If the shard has the maximum number of segments: 8 GiB.
    pub fn set_expiry(&mut self, expiry: Expiry, now_ms: u64) -> Result<bool, OutOfMemory> {
        self.shard.set_expiry(self.key, expiry, now_ms)
    }

    /// Removes the key. Returns whether it existed.
    pub fn remove(&mut self, now_ms: u64) -> bool {
        self.shard.remove(self.key, now_ms)
    }
}
