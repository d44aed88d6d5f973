//! Keys and values that are too long for a segment: in memory of the allocator.

use crate::packed::Stored;
use crate::shard::Shard;

/// What an item of four bytes in a segment stands for.
#[derive(Debug)]
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

impl Shard {
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

/// Two allocations, the counts and the vector behind the value, an entry in the table.
const OVERHEAD_BYTES: usize = 112;
