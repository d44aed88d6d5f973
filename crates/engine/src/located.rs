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
    /// `shard` must be the shard of the key.
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

    /// Returns the value of a prefetched key, and counts this as an access. If the result is `None`, call
    /// [`Self::get`]: the key isn't at the position of the hint, or its value is large or has an expiry.
    #[inline(always)]
    pub fn get_seen(&mut self, hint: Hint, now_ms: u64) -> Option<&[u8]> {
        self.shard.get_seen(self.key, hint, now_ms)
    }

    /// Memory of the key, its value and its share of the index. The call doesn't count as an access of the
    /// key.
    pub fn memory_bytes(&mut self, now_ms: u64) -> Option<usize> {
        self.shard.memory_bytes(self.key, now_ms)
    }

    /// Returns whether the key exists. The call doesn't count as an access of the key.
    pub fn contains(&mut self, now_ms: u64) -> bool {
        self.shard.contains(self.key, now_ms)
    }

    /// Sets the value of the key.
    ///
    /// # Errors
    /// If there is no room. The key keeps its old value.
    pub fn set(&mut self, value: &[u8], expiry: Expiry, now_ms: u64) -> Result<(), OutOfMemory> {
        self.shard.set(self.key, value, expiry, now_ms)
    }

    /// Overwrites the value of a prefetched key. If the result is false, call [`Self::set`].
    #[inline(always)]
    pub fn overwrite_seen(&mut self, hint: Hint, value: &[u8], now_ms: u64) -> bool {
        self.shard.overwrite_seen(self.key, hint, value, now_ms)
    }

    /// Sets a value prepared by [`Engine::pack`](crate::Engine::pack). A large value isn't copied.
    ///
    /// # Errors
    /// Returns the errors of [`Self::set`].
    pub fn set_stored(&mut self, value: Stored, expiry: Expiry, now_ms: u64) -> Result<(), OutOfMemory> {
        self.shard.set_stored(self.key, value, expiry, now_ms)
    }

    /// Changes a large value in place, to a length of `value_bytes`, usually without a copy.
    ///
    /// # Errors
    /// Returns the errors of [`Self::set`].
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
    /// Returns the errors of [`Self::set`].
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

    /// Removes the key. Returns whether the key existed.
    pub fn remove(&mut self, now_ms: u64) -> bool {
        self.shard.remove(self.key, now_ms)
    }
}
