//! Keys and values that are too long for a segment, stored on the heap.

use std::sync::Arc;

use crate::hash::Key;
use crate::packed::Stored;
use crate::shard::{Expiry, OutOfMemory, Shard};

/// The heap part of a large item.
#[derive(Clone, Debug)]
pub(crate) struct Large {
    pub(crate) key: Box<[u8]>,
    pub(crate) stored: Stored,
}

impl Large {
    /// Memory of the item, including the overhead of the allocator and the table of large items.
    pub(crate) fn bytes(&self) -> usize {
        Self::bytes_of(self.key.len(), self.stored.bytes())
    }

    pub(crate) fn bytes_of(key_bytes: usize, value_bytes: usize) -> usize {
        allocated_bytes(key_bytes) + allocated_bytes(value_bytes) + OVERHEAD_BYTES
    }
}

/// Result of changing a value in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edited {
    Yes,
    /// The value is small, compressed, being sent, or missing. To change it, set the whole value.
    No,
}

impl Shard {
    /// Changes a large value in place, to a length of `value_bytes`. A growing value gets spare capacity, so
    /// that repeated appends copy it rarely, however long it is.
    pub(crate) fn edit(
        &mut self,
        key: &Key<'_>,
        value_bytes: usize,
        edit: impl FnOnce(&mut Vec<u8>),
        now_ms: u64,
    ) -> Result<Edited, OutOfMemory> {
        if self.lifetimes.is_some() {
            // The limits of lifetimes apply as they do when a value is set.
            self.set_expiry(key, Expiry::Keep, now_ms)?;
        }
        let Some(value) = self.editable(key, now_ms) else { return Ok(Edited::No) };
        if value.capacity() >= value_bytes {
            edit(value);
            return Ok(Edited::Yes);
        }
        let before = Large::bytes_of(key.bytes.len(), value.capacity());
        let (capacity, taken) = self.make_room_to_grow(key, value_bytes, now_ms)?;
        // Making room may have evicted this value.
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

    /// The value, if it is uncompressed and has no other owner.
    fn editable(&mut self, key: &Key<'_>, now_ms: u64) -> Option<&mut Vec<u8>> {
        let number = self.large_number(key, now_ms)?;
        match &mut self.large[number as usize].stored {
            Stored::Plain(value) => Arc::get_mut(value),
            Stored::Packed(_) => None,
        }
    }

    /// Takes memory for a value of this size, with spare capacity if possible. Returns the capacity and the
    /// number of bytes taken.
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

    /// Makes room for a value of this size before it is computed, without taking the memory yet.
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

    /// Stores a large item that the budget has already counted.
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

/// Bytes that jemalloc allocates for a request: there are four size classes between powers of two.
/// (`cache_oblivious:true` would add a page from 16 KiB on, see `.cargo/config.toml`.)
fn allocated_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(16))
}

/// The spare capacity of a growing value is its length divided by this number, up to the allocator's next
/// size class.
const GROWTH_PART: usize = 4;

/// Overhead of a large item: two allocations, the reference counts, the vector of the value, and an entry in
/// the table.
const OVERHEAD_BYTES: usize = 112;
