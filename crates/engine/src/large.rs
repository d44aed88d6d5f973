//! Keys and values that are too long for a segment: in memory of the allocator.

use std::sync::Arc;

use crate::hash::Key;
use crate::packed::Stored;
use crate::shard::{Expiry, OutOfMemory, Shard};

/// What an item of four bytes in a segment stands for.
#[derive(Clone, Debug)]
pub(crate) struct Large {
    pub(crate) key: Box<[u8]>,
    pub(crate) stored: Stored,
}

impl Large {
    /// With what the allocator and the table of large items need for it.
    pub(crate) fn bytes(&self) -> usize {
        Self::bytes_of(self.key.len(), self.stored.bytes())
    }

    pub(crate) fn bytes_of(key_bytes: usize, value_bytes: usize) -> usize {
        allocated_bytes(key_bytes) + allocated_bytes(value_bytes) + OVERHEAD_BYTES
    }
}

/// What became of a value that was to be changed where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edited {
    Yes,
    /// It is small, packed or being sent, or there is none: it has to be set anew.
    No,
}

impl Shard {
    /// Changes a large value where it lies, which then has so many bytes. Where it grows, more memory is taken than it needs: a value to which
    /// is appended again and again is copied so seldom that it does not matter how long it is.
    pub(crate) fn edit(
        &mut self,
        key: &Key<'_>,
        value_bytes: usize,
        edit: impl FnOnce(&mut Vec<u8>),
        now_ms: u64,
    ) -> Result<Edited, OutOfMemory> {
        if self.lifetimes.is_some() {
            // As it does where a value is written anew.
            self.set_expiry(key, Expiry::Keep, now_ms)?;
        }
        let Some(value) = self.editable(key, now_ms) else { return Ok(Edited::No) };
        if value.capacity() >= value_bytes {
            edit(value);
            return Ok(Edited::Yes);
        }
        let before = Large::bytes_of(key.bytes.len(), value.capacity());
        let (capacity, taken) = self.make_room_to_grow(key, value_bytes, now_ms)?;
        // It may have been evicted to make room for it.
        let Some(value) = self.editable(key, now_ms) else {
            self.budget.give_back(taken);
            return Ok(Edited::No);
        };
        value.reserve_exact(capacity - value.len());
        edit(value);
        let after = Large::bytes_of(key.bytes.len(), value.capacity());
        self.budget.take_anyway(after);
        self.budget.give_back(taken);
        self.budget.free(before);
        self.segments.take_outside(after);
        self.segments.give_outside(before);
        Ok(Edited::Yes)
    }

    /// As it lies in memory, if nobody else has it.
    fn editable(&mut self, key: &Key<'_>, now_ms: u64) -> Option<&mut Vec<u8>> {
        let number = self.large_number(key, now_ms)?;
        match &mut self.large[number as usize].stored {
            Stored::Plain(value) => Arc::get_mut(value),
            Stored::Packed(_) => None,
        }
    }

    /// Takes room for a value of so many bytes and more, if there is as much: its capacity, and what was taken.
    fn make_room_to_grow(
        &mut self,
        key: &Key<'_>,
        value_bytes: usize,
        now_ms: u64,
    ) -> Result<(usize, usize), OutOfMemory> {
        let room = |capacity: usize| (capacity, Large::bytes_of(key.bytes.len(), capacity));
        let (roomy, exact) = (room(value_bytes + value_bytes / GROWTH_PART), room(value_bytes));
        match self.make_room_for(roomy.1, now_ms) {
            Ok(()) => Ok(roomy),
            Err(OutOfMemory) => self.make_room_for(exact.1, now_ms).map(|()| exact),
        }
    }

    /// Makes room for a value of so many bytes, before it is put together. Nothing is taken yet.
    pub(crate) fn make_room(
        &mut self,
        key: &Key<'_>,
        value_bytes: usize,
        now_ms: u64,
    ) -> Result<(), OutOfMemory> {
        let bytes = Large::bytes_of(key.bytes.len(), value_bytes);
        self.make_room_for(bytes, now_ms)?;
        self.budget.give_back(bytes);
        Ok(())
    }

    /// Keeps it; the budget knows of it already.
    pub(crate) fn add_large(&mut self, large: Large) -> u32 {
        self.segments.take_outside(large.bytes());
        self.large.insert(large) as u32
    }

    pub(crate) fn drop_large(&mut self, number: u32) {
        let large = self.large.remove(number as usize);
        self.segments.give_outside(large.bytes());
        self.budget.free(large.bytes());
    }
}

/// What jemalloc takes for so many bytes: there are four sizes between a power of two and the next. (`cache_oblivious:true` would take a page
/// more from 16 KiB on, see `.cargo/config.toml`.)
fn allocated_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(16))
}

/// A value that grows gets so much more of its length: the next size that the allocator has.
const GROWTH_PART: usize = 4;

/// Two allocations, the counts and the vector behind the value, an entry in the table.
const OVERHEAD_BYTES: usize = 112;
