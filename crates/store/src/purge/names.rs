//! When names were last invalidated, without a list of what has them.
//!
//! The table has a fixed size: the longest unmentioned name of a set makes room for a new one, and from then on everything older
//! than its invalidation is outdated in that set, whatever its names. A table takes 0.6 MiB, from the first name on.

use std::sync::OnceLock;

use parking_lot::Mutex;

/// A name by its hash: of 64 bits that nobody can foretell (SipHash, with a key of the process), so that two of a million in use are the same
/// with a chance of less than one in ten million. Then they are invalidated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name(pub u64);

/// The number of the last invalidation of each name.
#[derive(Debug)]
pub struct NameTable {
    sets: OnceLock<Box<[Mutex<Set>]>>,
    sets_count: usize,
}

pub(super) const SETS: usize = 1 << 12;
const WAYS: usize = 8;

#[derive(Debug, Default)]
struct Set {
    /// The greatest number of a name that made room for another.
    forgotten: u64,
    /// Names with their numbers; 0 is a free place.
    names: [(u64, u64); WAYS],
}

impl Default for NameTable {
    fn default() -> Self {
        Self::with_sets(SETS)
    }
}

impl NameTable {
    /// With room for eight times as many names, and at least one set.
    pub fn with_sets(sets: usize) -> Self {
        Self { sets: OnceLock::new(), sets_count: sets.max(1) }
    }

    /// The number of the name's last invalidation, or a greater one; 0 where there was none.
    pub fn last(&self, name: Name) -> u64 {
        let Some(sets) = self.sets.get() else { return 0 };
        let set = set_of(sets, name).lock();
        set.names.iter().find(|(known, _)| *known == name.0).map_or(set.forgotten, |(_, number)| *number)
    }

    /// Notes an invalidation. Numbers begin at 1.
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
