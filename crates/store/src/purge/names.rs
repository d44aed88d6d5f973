//! The last invalidation of each name, without a list of the responses that have the name.
//!
//! The table has a fixed size: in a full set, the name that was invalidated longest ago makes room for a new one. From then on, the set
//! treats every response older than that invalidation as outdated, whatever its name. A table takes 0.6 MiB, which is allocated when the
//! first name is added.

use std::sync::OnceLock;

use parking_lot::Mutex;

/// A name, as its 64-bit hash, which is unpredictable (SipHash, keyed per process). Among a million names in use, the probability that two
/// share a hash is less than one in ten million; those two are then invalidated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name(pub u64);

/// Number of the last invalidation of each name.
#[derive(Debug)]
pub struct NameTable {
    sets: OnceLock<Box<[Mutex<Set>]>>,
    sets_count: usize,
}

pub(super) const SETS: usize = 1 << 12;
const WAYS: usize = 8;

#[derive(Debug, Default)]
struct Set {
    /// Highest number of the names that made room for others.
    forgotten: u64,
    /// Names with their numbers; 0 marks a free entry.
    names: [(u64, u64); WAYS],
}

impl Default for NameTable {
    fn default() -> Self {
        Self::with_sets(SETS)
    }
}

impl NameTable {
    /// Creates a table of at least one set, with room for eight names in each set.
    pub fn with_sets(sets: usize) -> Self {
        Self { sets: OnceLock::new(), sets_count: sets.max(1) }
    }

    /// Returns the number of the last invalidation of the name, or a higher one; 0 if there was none.
    pub fn last(&self, name: Name) -> u64 {
        let Some(sets) = self.sets.get() else { return 0 };
        let set = set_of(sets, name).lock();
        set.names.iter().find(|(known, _)| *known == name.0).map_or(set.forgotten, |(_, number)| *number)
    }

    /// Records an invalidation. Numbers begin at 1.
    pub fn mark(&self, name: Name, number: u64) {
        let sets = self.sets.get_or_init(|| (0..self.sets_count).map(|_| Mutex::default()).collect());
        let mut set = set_of(sets, name).lock();
        let place = match set.names.iter().position(|(known, _)| *known == name.0) {
            Some(place) => place,
            None => set.make_room(),
        };
        let (known, last) = &mut set.names[place];
        (*known, *last) = (name.0, number.max(*last));
    }
}

fn set_of(sets: &[Mutex<Set>], name: Name) -> &Mutex<Set> {
    &sets[(name.0 >> 32) as usize % sets.len()]
}

impl Set {
    fn make_room(&mut self) -> usize {
        let oldest = (0..WAYS).min_by_key(|place| self.names[*place].1).unwrap_or_default();
        let (_, number) = std::mem::take(&mut self.names[oldest]);
        self.forgotten = self.forgotten.max(number);
        oldest
    }
}
