//! Setting several keys atomically: all or none.

use crate::engine::{Engine, Locked};
use crate::hash::Key;
use crate::item::{Body, Content, INLINE_BYTES_MAX};
use crate::large::Large;
use crate::policy::Policy;
use crate::queue::Queue;
use crate::segment::SEGMENT_BYTES;
use crate::shard::{Expiry, OutOfMemory, Shard};

/// A key with its new value and expiry.
pub type Entry<'a> = (Key<'a>, &'a [u8], Expiry);

/// Counts the segments that the items of one queue fill.
#[derive(Clone, Copy, Debug)]
struct Packing {
    room_bytes: usize,
    segments: usize,
}

/// Memory that the items of one shard need.
#[derive(Clone, Copy, Debug)]
struct Need {
    small: Packing,
    /// S3-FIFO writes recently evicted keys to the main queue, and any of the keys may be one of these.
    main: Option<Packing>,
    large_bytes: usize,
}

/// Upper bound of an item's overhead.
const ITEM_BYTES_MORE: usize = 64;

impl Packing {
    fn add(&mut self, item_bytes: usize) {
        if item_bytes > self.room_bytes {
            self.segments += 1;
            self.room_bytes = SEGMENT_BYTES;
        }
        self.room_bytes -= item_bytes;
    }
}

impl Need {
    fn add(&mut self, (key, value, _): &Entry<'_>) {
        let is_large = key.bytes.len() + value.len() > INLINE_BYTES_MAX;
        let body = if is_large { Body::Large(0) } else { Body::Inline { key: key.bytes, value } };
        // The key may already have an expiry, so the calculation includes one.
        let content =
            Content { database: key.database, body, expires_at_ms: Some(0), used_s: 0, frequency: 0 };
        self.small.add(content.item_bytes());
        self.main.iter_mut().for_each(|main| main.add(content.item_bytes()));
        if is_large {
            self.large_bytes += Large::bytes_of(key.bytes.len(), value.len());
        }
    }

    fn bytes(self) -> usize {
        let segments = self.small.segments + self.main.map_or(0, |main| main.segments);
        segments * SEGMENT_BYTES + self.large_bytes
    }
}

/// Returns the minimum memory for these entries in an engine with `shards` shards, if all other keys have
/// been evicted.
fn least_bytes(entries: &[Entry<'_>], policy: Policy, shards: usize) -> usize {
    // Each queue already has an open segment, which is empty in the best case.
    let empty = Packing { room_bytes: SEGMENT_BYTES, segments: 0 };
    let main = (policy == Policy::AllKeysS3Fifo).then_some(empty);
    let mut needs = vec![Need { small: empty, main, large_bytes: 0 }; shards];
    entries.iter().for_each(|entry| needs[entry.0.hash.shard(shards)].add(entry));
    needs.into_iter().map(Need::bytes).sum()
}

impl Engine {
    /// Returns whether these entries fit if all other keys are evicted. Entries that don't fit can be refused
    /// without evicting any key.
    #[must_use]
    pub fn could_hold_all(&self, entries: &[Entry<'_>]) -> bool {
        let item_bytes = |(key, value, _): &Entry<'_>| key.bytes.len() + value.len() + ITEM_BYTES_MORE;
        let bytes: usize = entries.iter().map(item_bytes).sum();
        // The factor is two for the two queues, times two for unused space at the ends of segments.
        self.could_free(bytes * 4)
            || self.could_free(least_bytes(entries, self.policy(), self.shards_count()))
    }
}

impl Shard {
    /// Reserves all memory that these entries may need, before the first of them is written.
    fn reserve(&mut self, entries: &[&Entry<'_>], now_ms: u64) -> Result<(), OutOfMemory> {
        self.refuse_above_limit()?;
        let mut search = self.room_search(SEGMENT_BYTES);
        loop {
            // The need is computed in each round, because making room moves items into the open segments.
            let mut need = Need {
                small: self.packing(Queue::Small),
                main: (self.policy == Policy::AllKeysS3Fifo).then(|| self.packing(Queue::Main)),
                large_bytes: 0,
            };
            entries.iter().for_each(|entry| need.add(entry));
            if need.bytes() == 0 || self.take(&search, need.bytes()) {
                self.reserved_bytes = need.bytes();
                self.is_reserved = true;
                return Ok(());
            }
            self.empty_for(&mut search, need.bytes(), now_ms)?;
        }
    }

    fn packing(&mut self, queue: Queue) -> Packing {
        let open = self.queues.of(queue).open;
        let room_bytes = open.map_or(0, |open| SEGMENT_BYTES - self.segments.get(open).used_bytes());
        Packing { room_bytes, segments: 0 }
    }

    fn release(&mut self) {
        self.budget.give_back(std::mem::take(&mut self.reserved_bytes));
        self.is_reserved = false;
    }
}

impl Locked<'_> {
    /// Sets all values, or none.
    ///
    /// # Errors
    /// If there is no room for all of them. Each key then keeps its old value, unless it was evicted.
    ///
    /// # Panics
    /// If a key was not locked.
    pub fn set_all(&mut self, entries: &[Entry<'_>], now_ms: u64) -> Result<(), OutOfMemory> {
        let mut ordered: Vec<&Entry<'_>> = entries.iter().collect();
        // The sort is stable: a key with two values gets the last one.
        ordered.sort_by_key(|(key, ..)| self.number_of(key));
        let is_same =
            |one: &&Entry<'_>, other: &&Entry<'_>| self.number_of(&one.0) == self.number_of(&other.0);
        let groups: Vec<&[&Entry<'_>]> = ordered.chunk_by(is_same).collect();
        let reserved = groups.iter().try_for_each(|group| {
            let (key, ..) = group[0];
            self.shard(key).reserve(group, now_ms)
        });
        let written = reserved.and_then(|()| {
            ordered
                .iter()
                .try_for_each(|(key, value, expiry)| self.shard(key).set(key, value, *expiry, now_ms))
        });
        debug_assert!(written == reserved, "the reserved memory was not enough");
        groups.iter().for_each(|group| self.shard(&group[0].0).release());
        written
    }
}

#[cfg(test)]
mod tests {
    use crate::{Access, Database, Engine, Expiry, Policy, Settings};

    const BYTES_MAX: u64 = 4 << 20;

    fn engine(policy: Policy) -> Engine {
        Engine::new(&Settings { bytes_max: BYTES_MAX, policy, seed: 3, threads: 1 })
    }

    /// Sets `count` values of `value_bytes` atomically. Returns whether all values were set.
    fn set_all(engine: &Engine, count: usize, value_bytes: usize) -> bool {
        let names: Vec<String> = (0..count).map(|number| format!("key-{number}")).collect();
        let value = vec![b'v'; value_bytes];
        let keys: Vec<_> =
            names.iter().map(|name| engine.key(Database::default(), name.as_bytes())).collect();
        // A key that occurs twice gets the last of its values.
        let mut entries: Vec<_> = keys.iter().map(|key| (*key, &b"first"[..], Expiry::Keep)).collect();
        entries.extend(keys.iter().map(|key| (*key, value.as_slice(), Expiry::Keep)));
        let mut locked = engine.lock_all(keys.iter().copied());
        let is_set = locked.set_all(&entries, 0).is_ok();
        for key in &keys {
            let mut located = locked.at(key);
            let found = located.get(Access::Peek, 0);
            if engine.policy() == Policy::NoEviction {
                assert_eq!(found.is_some_and(|found| found.value.to_vec() == value), is_set, "all or none");
            }
        }
        drop(locked);
        engine.shards().for_each(|shard| shard.check().expect("all is well"));
        is_set
    }

    #[test]
    fn all_are_set_or_none() {
        let check = |policy, count, value_bytes, expected| {
            assert_eq!(
                set_all(&engine(policy), count, value_bytes),
                expected,
                "{policy} {count} {value_bytes}"
            );
        };
        for policy in Policy::ALL {
            check(policy, 1, 10, true);
            check(policy, 1000, 1000, true);
            check(policy, 30, 100_000, true);
            check(policy, 5000, 1000, false);
            check(policy, 50, 100_000, false);
        }
    }

    #[test]
    fn nothing_is_evicted_for_what_has_no_room() {
        for policy in Policy::ALL {
            let engine = engine(policy);
            assert!(set_all(&engine, 1000, 1000));
            let refused = |count: usize, value_bytes: usize| {
                let names: Vec<String> = (0..count).map(|number| format!("other-{number}")).collect();
                let value = vec![b'v'; value_bytes];
                let keys = names.iter().map(|name| engine.key(Database::default(), name.as_bytes()));
                let entries: Vec<_> = keys.map(|key| (key, &value[..], Expiry::Never)).collect();
                !engine.could_hold_all(&entries)
            };
            assert!(refused(5000, 1000) && refused(50, 100_000), "{policy}");
            assert!(!refused(1000, 1000) && !refused(30, 100_000), "{policy}");
            // Client buffers take memory that eviction can't free.
            engine.lend(0, 3 << 20);
            assert!(refused(1500, 1000) && !refused(100, 1000), "{policy}");
        }
    }

    #[test]
    fn what_was_not_needed_is_given_back() {
        let engine = engine(Policy::NoEviction);
        let before = engine.used_bytes();
        assert!(!set_all(&engine, 50, 100_000));
        assert_eq!(engine.used_bytes(), before);
        assert!(set_all(&engine, 1000, 1000));
        let once = engine.used_bytes();
        engine.shards().for_each(|mut shard| shard.clear());
        assert!(set_all(&engine, 1000, 1000));
        assert_eq!(engine.used_bytes(), once);
    }
}
