//! Keys that were evicted not long ago: who comes back was evicted too early.

use crate::hash::Hash;
use crate::reclaim::SMALL_SHARE;

/// With 4, one ghost in eleven is replaced before its time, with 8 one in thirty; 16 give nothing more.
const WAYS: usize = 8;
const TAG_SHIFT: u32 = 12;
/// Steps of age in which as many are added as there is room for.
const STEPS: usize = 64;

/// A table of tags. A tag that is found may be that of another key (one in a few hundred thousand), which costs nothing but a
/// place in the main queue.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    /// Each entry: 20 bits of tag, 12 of age; 0 is none. A set replaces its oldest.
    sets: Vec<[u32; WAYS]>,
    added: usize,
    /// How many were added since a key that is just not forgotten.
    window: usize,
}

impl Ghosts {
    pub(crate) fn bytes(&self) -> usize {
        self.sets.capacity() * size_of::<[u32; WAYS]>()
    }

    /// Remembers a key, with room for about so many.
    pub(crate) fn add(&mut self, hash: Hash, keys: usize) {
        let sets = (keys / WAYS).next_power_of_two();
        if self.sets.len() < sets {
            // What was remembered is forgotten: as seldom as the keys double.
            self.sets = vec![[0; WAYS]; sets];
        }
        // As many as are in the main queue, as S3-FIFO has it. The table has more room than that; what stands there for longer must not
        // count, or keys that come once in a long while take the place of better ones: 1 to 3 % more misses.
        self.window = keys - keys / SMALL_SHARE;
        self.added += 1;
        let age = self.age();
        let set = self.set_of(hash);
        let oldest = set.iter_mut().max_by_key(|entry| entry_age(**entry, age)).expect("a set has ways");
        *oldest = hash.ghost_tag() << TAG_SHIFT | age;
    }

    /// Whether it was remembered; it is forgotten now.
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

    /// 1 to 4095, one more with each step.
    fn age(&self) -> u32 {
        (self.added / self.step() % 0xFFF) as u32 + 1
    }

    /// How many are added in one.
    fn step(&self) -> usize {
        (self.sets.len() * WAYS / STEPS).max(1)
    }
}

/// How long ago it was added; what is empty is the oldest.
fn entry_age(entry: u32, now: u32) -> u32 {
    let age_bits = (1 << TAG_SHIFT) - 1;
    if entry == 0 { u32::MAX } else { now.wrapping_sub(entry & age_bits) & age_bits }
}
