//! State by key, behind several locks.

use std::hash::{BuildHasher, Hash, RandomState};

use parking_lot::Mutex;

/// Values that each have a lock. Each key belongs to one value; there are so many values that workers rarely wait for each other. The hash
/// has a secret, so that keys that share a lock can't be chosen.
pub struct Sharded<T, const PARTS: usize = 64> {
    parts: Box<[Mutex<T>]>,
    hasher: RandomState,
}

impl<T: Default, const PARTS: usize> Default for Sharded<T, PARTS> {
    fn default() -> Self {
        Self { parts: (0..PARTS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }
}

impl<T, const PARTS: usize> Sharded<T, PARTS> {
    pub fn of(&self, key: impl Hash) -> &Mutex<T> {
        &self.parts[self.hasher.hash_one(key) as usize % PARTS]
    }

    pub fn iter(&self) -> impl Iterator<Item = &Mutex<T>> {
        self.parts.iter()
    }
}
