//! A key in its shard, which is locked: the only way to what is stored, so that no key can be looked for in the shard of another.

use std::ops::DerefMut;

use crate::hash::Key;
use crate::index::Hint;
use crate::large::Edited;
use crate::packed::Stored;
use crate::shard::{Access, Expiry, Found, OutOfMemory, Shard};

/// A key, and its shard under its lock.
#[derive(Debug)]
pub struct Located<'k, S> {
    shard: S,
    key: &'k Key<'k>,
}

impl<'k, S: DerefMut<Target = Shard>> Located<'k, S> {
    /// It must be the shard of this key.
    #[inline(always)]
    pub(crate) fn new(shard: S, key: &'k Key<'k>) -> Self {
        Self { shard, key }
    }

    /// The key.
    #[inline(always)]
    pub fn key(&self) -> &'k Key<'k> {
        self.key
    }

    /// What is stored under the key.
    #[inline]
    pub fn get(&mut self, access: Access, now_ms: u64) -> Option<Found<'_>> {
        self.shard.get(self.key, access, now_ms)
    }

    /// The value of a key that was looked at ahead, and uses it. None says nothing: [`Self::get`] is to be asked then, for what is not
    /// where it seemed to be, is large or expires.
    #[inline(always)]
    pub fn get_seen(&mut self, hint: Hint, now_ms: u64) -> Option<&[u8]> {
        self.shard.get_seen(self.key, hint, now_ms)
    }

    /// What the key takes, with its value and its share of the index. Not a use.
    pub fn memory_bytes(&mut self, now_ms: u64) -> Option<usize> {
        self.shard.memory_bytes(self.key, now_ms)
    }

    /// Whether the key is there. Not a use.
    pub fn contains(&mut self, now_ms: u64) -> bool {
        self.shard.contains(self.key, now_ms)
    }

    /// Stores a value under the key, in place of the one that is there.
    ///
    /// # Errors
    /// When there is no room for it. The old value is as it was.
    pub fn set(&mut self, value: &[u8], expiry: Expiry, now_ms: u64) -> Result<(), OutOfMemory> {
        self.shard.set(self.key, value, expiry, now_ms)
    }

    /// Writes a value over that of a key that was looked at ahead. No says nothing: [`Self::set`] is to be asked then.
    #[inline(always)]
    pub fn overwrite_seen(&mut self, hint: Hint, value: &[u8], now_ms: u64) -> bool {
        self.shard.overwrite_seen(self.key, hint, value, now_ms)
    }

    /// Stores a value that is already in memory of its own: a large one without a copy. [`Engine::pack`](crate::Engine::pack) makes it.
    ///
    /// # Errors
    /// As those of [`Self::set`].
    pub fn set_stored(&mut self, value: Stored, expiry: Expiry, now_ms: u64) -> Result<(), OutOfMemory> {
        self.shard.set_stored(self.key, value, expiry, now_ms)
    }

    /// Changes a large value where it lies, which then has so many bytes, without a copy most of the time.
    ///
    /// # Errors
    /// As those of [`Self::set`].
    pub fn edit(
        &mut self,
        value_bytes: usize,
        edit: impl FnOnce(&mut Vec<u8>),
        now_ms: u64,
    ) -> Result<Edited, OutOfMemory> {
        self.shard.edit(self.key, value_bytes, edit, now_ms)
    }

    /// Makes room for a value of so many bytes, before it is put together.
    ///
    /// # Errors
    /// As those of [`Self::set`].
    pub fn make_room(&mut self, value_bytes: usize, now_ms: u64) -> Result<(), OutOfMemory> {
        self.shard.make_room(self.key, value_bytes, now_ms)
    }

    /// Changes when the key expires, and is a use of it; whether there is such a key. Needs no room.
    ///
    /// # Errors
    /// When the shard has as many segments as it can number: 8 GiB.
    pub fn set_expiry(&mut self, expiry: Expiry, now_ms: u64) -> Result<bool, OutOfMemory> {
        self.shard.set_expiry(self.key, expiry, now_ms)
    }

    /// Removes the key; whether there was one.
    pub fn remove(&mut self, now_ms: u64) -> bool {
        self.shard.remove(self.key, now_ms)
    }
}
