//! Recently evicted keys: a key that is stored again was evicted too early.

use crate::hash::Hash;
use crate::reclaim::SMALL_SHARE;

/// Entries per set. With 4 entries, one ghost in eleven is replaced too early; with 8, one in thirty. 16
/// entries bring no improvement.
const WAYS: usize = 8;
const TAG_SHIFT: u32 = 12;
/// Number of steps by which the age increases while as many keys are inserted as the table can hold.
const STEPS: usize = 64;

/// A hash table of tags. About one match in a few hundred thousand is for a different key. The only effect is
/// that this key begins in the main queue.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    /// Entries of 20 bits of tag and 12 bits of age; 0 is empty. A set replaces its oldest entry.
    sets: Vec<[u32; WAYS]>,
    added: usize,
    /// Number of later insertions after which a key counts as forgotten.
    window: usize,
}

impl Ghosts {
    pub(crate) fn bytes(&self) -> usize {
        self.sets.capacity() * size_of::<[u32; WAYS]>()
    }

    /// Remembers a key. `keys` is the approximate number of keys in the shard.
    pub(crate) fn add(&mut self, hash: Hash, keys: usize) {
        let sets = (keys / WAYS).next_power_of_two();
        if self.sets.len() < sets {
            // The table loses its contents when it grows, which happens only when the number of keys doubles.
            self.sets = vec![[0; WAYS]; sets];
        }
        // The window is as large as the main queue, as in S3-FIFO. The table has room for more entries, but
        // older ones don't count: otherwise rarely used keys would displace better ones, and misses would
        // increase by 1 to 3 %.
        self.window = keys - keys / SMALL_SHARE;
        self.added += 1;
        let age = self.age();
        let set = self.set_of(hash);
        let oldest = set.iter_mut().max_by_key(|entry| entry_age(**entry, age)).expect("a set has ways");
        *oldest = hash.ghost_tag() << TAG_SHIFT | age;
    }

    /// Removes a key; returns whether it was remembered.
    pub(crate) fn take(&mut self, hash: Hash) -> bool {
        if self.sets.is_empty() {
            return false;
        }
        let (age, oldest) = (self.age(), (self.window / self.step()) as u32);
        let is_it = |entry: &u32| {
            *entry != 0 && *entry >> TAG_SHIFT == hash.ghost_tag() && entry_age(*entry, age) <= oldest
        };
        let entry = self.set_of(hash).iter_mut().find(|entry| is_it(entry));
        entry.map(|entry| *entry = 0).is_some()
    }

    fn set_of(&mut self, hash: Hash) -> &mut [u32; WAYS] {
        let mask = self.sets.len() - 1;
        &mut self.sets[hash.bucket_bits() & mask]
    }

    /// The current age, 1 to 4095, which increases with each step.
    fn age(&self) -> u32 {
        (self.added / self.step() % 0xFFF) as u32 + 1
    }

    /// Number of insertions after which the age increases.
    fn step(&self) -> usize {
        (self.sets.len() * WAYS / STEPS).max(1)
    }
}

/// Age of an entry; an empty entry is older than all others.
fn entry_age(entry: u32, now: u32) -> u32 {
    let age_bits = (1 << TAG_SHIFT) - 1;
    if entry == 0 { u32::MAX } else { now.wrapping_sub(entry & age_bits) & age_bits }
}
