//! Iteration over the keys of a database, in steps between which anything may change.
//!
//! When a bucket of the index is split, its keys go to two buckets whose numbers have the same low bits. So a
//! scan increments the highest bit first, as in Redis (an idea of Pieter Noordhuis): either all buckets with
//! the same low bits have been visited or none, regardless of the size of the index. A key that exists during
//! the whole scan is returned at least once. A key may be returned twice if the index shrinks, which happens
//! only when it is cleared.

use std::ops::ControlFlow;

use crate::engine::Engine;
use crate::hash::Database;
use crate::item::{Body, Item};
use crate::shard::Shard;
use crate::slot::Slot;

/// Bounds of a step.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The step ends after this many keys, but always includes all keys of its last bucket.
    pub keys_max: usize,
    /// The step ends after this many buckets, even if they are empty.
    pub buckets_max: usize,
}

/// Number of bits for the shard, which are the lowest bits of a position. The higher bits are the position in
/// the shard.
const SHARD_BITS: u32 = crate::hash::SHARDS_MAX.ilog2();
/// Maximum number of random draws; after that, the search visits all keys in order.
const DRAWS: usize = 64;

impl Engine {
    /// Calls `tell` for keys that have not expired, beginning at a position, and returns the next position. A
    /// scan begins at position 0, and ends when 0 is returned.
    pub fn scan(
        &self,
        database: Database,
        position: u64,
        step: Step,
        now_ms: u64,
        mut tell: impl FnMut(&[u8]),
    ) -> u64 {
        let mut number = (position & ((1 << SHARD_BITS) - 1)) as usize;
        let mut inside = position >> SHARD_BITS;
        let (mut keys, mut buckets) = (0, 0);
        while number < self.shards_count() {
            let shard = self.shard(number);
            loop {
                inside = shard.scan(database, inside, now_ms, |key| {
                    keys += 1;
                    tell(key);
                });
                buckets += 1;
                if inside == 0 {
                    break;
                }
                if keys >= step.keys_max || buckets >= step.buckets_max {
                    return inside << SHARD_BITS | number as u64;
                }
            }
            number += 1;
        }
        0
    }

    /// Returns a random key that has not expired. All keys are about equally likely.
    pub fn random_key(&self, database: Database, now_ms: u64) -> Option<Vec<u8>> {
        // The number of keys is known even for shards that are not loaded yet.
        let of_shard = |number: usize| self.shard_as_is(number).counts().keys[database.number()] as usize;
        let keys: usize = (0..self.shards_count()).map(of_shard).sum();
        if keys == 0 {
            return None;
        }
        let mut at = self.shard_as_is(0).chance.below(keys);
        let drawn = (0..self.shards_count()).find(|number| {
            let keys = of_shard(*number);
            let is_here = at < keys;
            at = at.saturating_sub(keys);
            is_here
        });
        let first = drawn.unwrap_or_default();
        let order = (first..self.shards_count()).chain(0..first);
        order.into_iter().find_map(|number| self.shard(number).random_key(database, now_ms))
    }
}

impl Shard {
    /// Visits the keys of the bucket at a position, and returns the next position, or 0 after the last
    /// bucket.
    fn scan(&self, database: Database, position: u64, now_ms: u64, mut tell: impl FnMut(&[u8])) -> u64 {
        let level = self.index.buckets().ilog2();
        let mask = (1_u64 << level) - 1;
        let home = (position & mask) as usize;
        // If the bucket was split already, its other half is visited, too.
        let homes = [home, home + (1 << level)].into_iter().filter(|home| *home < self.index.buckets());
        for slot in homes.flat_map(|home| self.index.slots_of(home)) {
            if let Some(key) = self.key_of(slot, database, now_ms) {
                tell(key);
            }
        }
        (position | !mask).reverse_bits().wrapping_add(1).reverse_bits()
    }

    fn random_key(&mut self, database: Database, now_ms: u64) -> Option<Vec<u8>> {
        if self.counts().keys[database.number()] == 0 {
            return None;
        }
        let drawn = (0..DRAWS).find_map(|_| {
            let slot = self.random_slot()?;
            self.key_of(slot, database, now_ms).map(<[u8]>::to_vec)
        });
        let begin = self.chance.below(self.index.buckets());
        drawn.or_else(|| self.next_key(begin, database, now_ms))
    }

    /// Returns the first key at or after a bucket.
    fn next_key(&self, begin: usize, database: Database, now_ms: u64) -> Option<Vec<u8>> {
        let homes = (begin..self.index.buckets()).chain(0..begin);
        let mut slots = homes.flat_map(|home| self.index.slots_of(home));
        let found = slots.try_for_each(|slot| match self.key_of(slot, database, now_ms) {
            Some(key) => ControlFlow::Break(key.to_vec()),
            None => ControlFlow::Continue(()),
        });
        found.break_value()
    }

    /// The key of a slot, if it belongs to this database and has not expired.
    fn key_of(&self, slot: Slot, database: Database, now_ms: u64) -> Option<&[u8]> {
        let item = Item::read(self.segments.at(slot.place()?));
        if item.header.database() != database || item.is_expired(now_ms) {
            return None;
        }
        match item.body() {
            Body::Inline { key, .. } => Some(key),
            Body::Large(number) => Some(&self.large[number as usize].key),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::{Expiry, Policy, Settings};

    const STEP: Step = Step { keys_max: 5, buckets_max: 20 };

    fn engine(bytes_max: u64) -> Engine {
        Engine::new(&Settings { bytes_max, policy: Policy::NoEviction, seed: 11, threads: 1 })
    }

    fn add(engine: &Engine, database: Database, name: &str, expiry: Expiry) {
        let key = engine.key(database, name.as_bytes());
        engine.lock(&key).set(b"v", expiry, 0).expect("there is room");
    }

    fn names(range: std::ops::Range<usize>) -> impl Iterator<Item = String> {
        range.map(|number| format!("key-{number}"))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        /// Keys are inserted and removed arbitrarily during the scan.
        #[test]
        fn what_is_there_from_begin_to_end_is_told(
            first in 0..2000_usize,
            more in prop::collection::vec(0..200_usize, 0..20),
            bytes_max in prop_oneof![Just(8_u64 << 20), Just(64 << 20)],
        ) {
            let engine = engine(bytes_max);
            let database = Database::default();
            names(0..first).for_each(|name| add(&engine, database, &name, Expiry::Never));
            let mut told = BTreeSet::new();
            let (mut position, mut steps, mut next) = (0, 0, first);
            loop {
                position = engine.scan(database, position, STEP, 0, |key| {
                    told.insert(String::from_utf8_lossy(key).into_owned());
                });
                if position == 0 {
                    break;
                }
                let added = more.get(steps).copied().unwrap_or_default();
                names(next..next + added).for_each(|name| add(&engine, database, &name, Expiry::Never));
                (next, steps) = (next + added, steps + 1);
                prop_assert!(steps < 10_000);
            }
            prop_assert!(names(0..first).all(|name| told.contains(&name)));
        }
    }

    #[test]
    fn a_walk_at_rest_tells_each_key_once_and_only_those_of_its_database() {
        let engine = engine(64 << 20);
        let [zero, one] = [0, 1].map(|number| Database::new(number).expect("it is below 16"));
        names(0..5000).for_each(|name| add(&engine, zero, &name, Expiry::Never));
        names(0..100).for_each(|name| add(&engine, one, &name, Expiry::Never));
        names(100..200).for_each(|name| add(&engine, one, &name, Expiry::At(10)));
        let walk = |database, now_ms| {
            let (mut keys, mut position) = (Vec::new(), 0);
            loop {
                position = engine.scan(database, position, STEP, now_ms, |key| keys.push(key.to_vec()));
                if position == 0 {
                    return keys;
                }
            }
        };
        assert_eq!([walk(zero, 0).len(), walk(one, 9).len(), walk(one, 10).len()], [5000, 200, 100]);
        let different: BTreeSet<_> = walk(zero, 0).into_iter().collect();
        assert_eq!(different.len(), 5000);
        // A scan also ends if it begins at a position that was never returned.
        engine.scan(zero, u64::MAX, STEP, 0, |_| ());
    }

    #[test]
    fn any_key_may_be_drawn() {
        let engine = engine(64 << 20);
        let [zero, one] = [0, 1].map(|number| Database::new(number).expect("it is below 16"));
        assert_eq!(engine.random_key(zero, 0), None);
        names(0..20).for_each(|name| add(&engine, zero, &name, Expiry::Never));
        names(0..5000).for_each(|name| add(&engine, one, &name, Expiry::At(10)));
        let drawn: BTreeSet<_> = (0..2000).filter_map(|_| engine.random_key(zero, 0)).collect();
        assert_eq!(drawn.len(), 20);
        assert_eq!(engine.random_key(one, 10), None);
    }
}
