//! Renaming a key, or moving it to another database, without room for a second copy.

use std::sync::Arc;

use crate::engine::Locked;
use crate::hash::{Database, Key};
use crate::item::{Body, Content, Header, INLINE_BYTES_MAX, Item};
use crate::large::Large;
use crate::packed::Stored;
use crate::queue::Queue;
use crate::segment::SEGMENT_BYTES;
use crate::shard::{OutOfMemory, Shard};
use crate::slot::Slot;

/// A stored entry without its name.
#[derive(Debug)]
struct Record {
    stored: Stored,
    expires_at_ms: Option<u64>,
    header: Header,
    queue: Queue,
}

impl Locked<'_> {
    /// Moves the entry of a key to another key, and overwrites the entry of that key. Returns whether there
    /// was an entry to move. Usage may temporarily exceed the limit, by a bounded amount for longer names.
    /// Afterwards, other keys are evicted to compensate, as far as possible.
    ///
    /// # Errors
    /// If a longer name would exceed that bound. Both keys then stay unchanged.
    ///
    /// # Panics
    /// If a key was not locked, or both are the same key.
    pub fn rename(&mut self, from: &Key<'_>, to: &Key<'_>, now_ms: u64) -> Result<bool, OutOfMemory> {
        assert!((from.database, from.bytes) != (to.database, to.bytes), "a key can't be renamed to itself");
        let Some(record) = self.shard(from).record(from, now_ms) else { return Ok(false) };
        let slack_bytes = self.slack_bytes();
        let more_bytes = to.bytes.len().saturating_sub(from.bytes.len());
        let target = self.shard(to);
        if more_bytes > 0 && !target.budget.could_exceed_by(slack_bytes, more_bytes) {
            return Err(OutOfMemory);
        }
        let (queue, item_bytes) = (record.queue, target.put_anyway(to, record, now_ms)?);
        self.shard(from).remove(from, now_ms);
        // The shard of `from` has the dead bytes, and the shard of `to` the written ones.
        for key in [from, to] {
            self.shard(key).make_up_for_rewritten(queue, item_bytes, now_ms);
        }
        Ok(true)
    }

    /// Returns the maximum number of bytes above the limit for longer names: one segment per shard, which a
    /// shard may have in excess anyway, and a fraction of the limit.
    fn slack_bytes(&self) -> usize {
        self.engine.shards_count() * SEGMENT_BYTES + (self.engine.bytes_max() / SLACK_SHARE) as usize
    }
}

impl Shard {
    fn record(&mut self, key: &Key<'_>, now_ms: u64) -> Option<Record> {
        let (_, slot) = self.find(key, now_ms)?;
        let place = slot.place()?;
        let item = Item::read(self.segments.at(place));
        let stored = match item.body() {
            Body::Inline { value, .. } => Stored::Plain(Arc::new(value.to_vec())),
            Body::Large(number) => self.large[number as usize].stored.clone(),
        };
        let (expires_at_ms, header) = (self.bounded(item.expires_at_ms(), now_ms), item.header);
        Some(Record { stored, expires_at_ms, header, queue: self.queues.queue_of_any(place.segment) })
    }

    /// Stores an entry regardless of room. Returns the length of the new item.
    fn put_anyway(&mut self, key: &Key<'_>, record: Record, now_ms: u64) -> Result<usize, OutOfMemory> {
        let Record { stored, expires_at_ms, header, queue } = record;
        if key.bytes.len() + stored.value_bytes() <= INLINE_BYTES_MAX {
            let value = stored.plain();
            let body = Body::Inline { key: key.bytes, value: &value };
            return self.point_anyway(
                key,
                queue,
                &content(key.database, body, expires_at_ms, header),
                now_ms,
            );
        }
        let large = Large { key: key.bytes.into(), stored };
        self.budget.take_anyway(large.bytes());
        let number = self.add_large(large);
        let content = content(key.database, Body::Large(number), expires_at_ms, header);
        let put = self.point_anyway(key, queue, &content, now_ms);
        if put.is_err() {
            self.drop_large(number);
        }
        put
    }

    fn point_anyway(
        &mut self,
        key: &Key<'_>,
        queue: Queue,
        content: &Content<'_>,
        now_ms: u64,
    ) -> Result<usize, OutOfMemory> {
        let place = self.append_anyway(queue, content)?;
        let old = self.find(key, now_ms);
        self.point(key.hash, old, Slot::new(place));
        self.counts.add(content.header());
        Ok(content.item_bytes())
    }
}

/// Returns the contents of an item that keeps its age and frequency.
fn content<'a>(
    database: Database,
    body: Body<'a>,
    expires_at_ms: Option<u64>,
    header: Header,
) -> Content<'a> {
    Content { database, body, expires_at_ms, used_s: header.used_s(), frequency: header.frequency() }
}

/// Longer names may exceed the limit by the limit divided by this number.
const SLACK_SHARE: u64 = 64;

#[cfg(test)]
mod tests {
    use crate::{Access, Database, Engine, Expiry, Policy, Settings};

    const KEYS: usize = 100_000;
    const RENAMED: usize = 5000;

    /// Fills an engine and renames keys to names that are longer. Returns the number of successes, and of
    /// attempts.
    fn renamed(policy: Policy, shards: u64, value_bytes: usize, longer: usize) -> (usize, usize) {
        let bytes_max = shards << 23;
        let engine = Engine::new(&Settings { bytes_max, policy, seed: 3, threads: 1 });
        let value = vec![b'v'; value_bytes];
        let name = |number: usize| format!("key-{number}");
        let set = |number: &usize| {
            let name = name(*number);
            let key = engine.key(Database::default(), name.as_bytes());
            engine.lock(&key).set(&value, Expiry::Never, 0).is_ok()
        };
        let count = (0..KEYS).take_while(set).count();
        let rename = |number: &usize| {
            let (before, after) =
                (name(*number), format!("{}{}", name(*number).to_uppercase(), "x".repeat(longer)));
            let [from, to] = [&before, &after].map(|name| engine.key(Database::default(), name.as_bytes()));
            let mut locked = engine.lock_all([from, to]);
            let is_there = locked.at(&from).contains(0);
            let done = locked.rename(&from, &to, 0);
            let is_new =
                locked.at(&to).get(Access::Peek, 0).is_some_and(|found| found.value.to_vec() == value);
            let is_old = locked.at(&from).contains(0);
            assert_eq!((is_new, is_old), (done == Ok(true), is_there && done.is_err()));
            drop(locked);
            assert!(
                engine.used_bytes() <= bytes_max + bytes_max / 5,
                "{} of {bytes_max}",
                engine.used_bytes()
            );
            done.is_ok()
        };
        let count = count.min(RENAMED);
        let done = (0..count).filter(rename).count();
        engine.shards().for_each(|shard| shard.check().expect("all is well"));
        (done, count)
    }

    #[test]
    fn a_name_of_the_same_length_needs_no_room() {
        for policy in [Policy::NoEviction, Policy::VolatileLru, Policy::AllKeysS3Fifo] {
            for shards in [1, 2] {
                for value_bytes in [100, 10_000, 100_000] {
                    let (done, count) = renamed(policy, shards, value_bytes, 0);
                    assert_eq!(done, count, "{policy} {shards} {value_bytes}");
                }
            }
        }
    }

    #[test]
    fn longer_names_have_a_limit() {
        let (done, count) = renamed(Policy::NoEviction, 2, 100, 4000);
        assert!(done > 10 && done < count / 2, "{done} of {count}");
    }
}
