//! State that all handles of a memory tier share, and the paths into and out of its table.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use super::group::{Groups, SegmentHome};
use super::room::Ballast;
use super::table::{Departed, ENTRY_OVERHEAD_BYTES, EntryKey, Lookup, Table, Value};
use crate::budget::Evictor;
use crate::{Applied, Budget, FilesUnavailable, FillId, Record, Refusal, Segment, SegmentId, SegmentPut};

pub(super) struct Shared<R: Record> {
    pub(super) table: Table<R>,
    pub(super) budget: Arc<Budget>,
    pub(super) hasher: RandomState,
    /// Locks for keys, by the hash of the key: updates of one key run one at a time.
    pub(super) key_locks: Box<[Mutex<()>]>,
    pub(super) groups: Groups,
    pub(super) ballast: Ballast,
    pub(super) counts: Counts,
    pub(super) files_unavailable: Option<FilesUnavailable>,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) entries: AtomicU64,
    pub(super) notes: AtomicU64,
    pub(super) responses: AtomicU64,
    pub(super) segments: AtomicU64,
    pub(super) evictions: AtomicU64,
    pub(super) segment_bytes_evicted: AtomicU64,
    pub(super) expirations: AtomicU64,
    pub(super) admissions_refused: AtomicU64,
}

impl Counts {
    fn entered<R: Record>(&self, value: &Value<R>) {
        for (count, by) in self.of(value) {
            count.fetch_add(by, Relaxed);
        }
    }

    fn left<R: Record>(&self, value: &Value<R>) {
        for (count, by) in self.of(value) {
            count.fetch_sub(by, Relaxed);
        }
    }

    /// Returns the counters that a value changes, and the amount of each change.
    fn of<R: Record>(&self, value: &Value<R>) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let counted = match value {
            Value::Record(record) => {
                let responses = record.responses();
                let kind = if responses == 0 { (&self.notes, 1) } else { (&self.responses, responses) };
                [Some((&self.entries, 1)), Some(kind)]
            }
            Value::Segment(_) => [Some((&self.segments, 1)), None],
            Value::Ballast(_) => [None, None],
        };
        counted.into_iter().flatten()
    }
}

impl<R: Record> Shared<R> {
    pub(super) fn lock_key(&self, lookup: Lookup<'_>) -> MutexGuard<'_, ()> {
        let index = self.hasher.hash_one(lookup) as usize % self.key_locks.len();
        self.key_locks[index].lock()
    }

    /// Returns the limit for one entry: an eighth of a shard, so that a shard always has several entries to choose from.
    pub(super) fn entry_bytes_max(&self) -> u64 {
        self.budget.bytes_max() / self.table.num_shards() as u64 / 8
    }

    pub(super) fn put_record(&self, lookup: Lookup<'_>, record: Arc<R>, lock: MutexGuard<'_, ()>) -> Applied {
        match self.insert(lookup, &Value::Record(record), lock) {
            Ok(()) => Applied::Stored,
            Err((refusal, lock)) => {
                self.counts.admissions_refused.fetch_add(1, Relaxed);
                self.remove(lookup, lock);
                Applied::NotStored(refusal)
            }
        }
    }

    /// Inserts a value under the lock of its key. Returns the lock if the table refuses the value.
    fn insert<'t>(
        &self,
        lookup: Lookup<'_>,
        value: &Value<R>,
        lock: MutexGuard<'t, ()>,
    ) -> Result<(), (Refusal, MutexGuard<'t, ()>)> {
        if let Err(refusal) = self.admit(lookup, value) {
            return Err((refusal, lock));
        }
        let mut departed = Departed::new();
        self.table.insert_with_lifecycle(lookup.to_key(), Value::clone(value), &mut departed);
        drop(lock);
        self.settle_insertion(lookup, value, &departed);
        self.relax_ballast();
        Ok(())
    }

    /// Accounts for a value as stored, before it can be found and evicted.
    fn admit(&self, lookup: Lookup<'_>, value: &Value<R>) -> Result<(), Refusal> {
        let charge = value.charge().expect("records and segments have a charge");
        debug_assert!(charge.is_of(&self.budget), "the charge belongs to another tier's budget");
        let overhead_bytes = lookup.overhead_bytes();
        if overhead_bytes + charge.bytes() as u64 > self.entry_bytes_max() {
            return Err(Refusal::TooLarge);
        }
        self.budget.acquire_stored(overhead_bytes).map_err(|_| Refusal::OverBudget)?;
        charge.enter();
        self.counts.entered(value);
        Ok(())
    }

    /// Accounts for the entries that left during an insertion. The entry that `inserted` replaced doesn't count as evicted, but all others
    /// do; `inserted` itself may be among them.
    fn settle_insertion(&self, lookup: Lookup<'_>, inserted: &Value<R>, departed: &Departed<R>) {
        let evicted =
            departed.iter().filter(|(key, value)| key.lookup() != lookup || value.is_same(inserted));
        evicted.for_each(|(_, value)| self.count_eviction(value));
        departed.iter().for_each(|(key, value)| self.leave(key, value));
    }

    /// Counts an eviction. A response with a hole still counts as stored.
    fn count_eviction(&self, value: &Value<R>) {
        match value {
            Value::Record(record) => self.counts.evictions.fetch_add(record.responses(), Relaxed),
            Value::Segment(segment) => {
                self.counts.segment_bytes_evicted.fetch_add(segment.charge().bytes() as u64, Relaxed)
            }
            Value::Ballast(_) => return,
        };
    }

    /// Accounts for a value that has left the table. It counts as pinned until it is dropped.
    fn leave(&self, key: &EntryKey, value: &Value<R>) {
        let Some(charge) = value.charge() else { return };
        self.counts.left(value);
        self.budget.release_stored(key.lookup().overhead_bytes());
        charge.leave();
    }

    pub(super) fn remove(&self, lookup: Lookup<'_>, lock: MutexGuard<'_, ()>) -> bool {
        let removed = self.table.remove(&lookup);
        drop(lock);
        removed.map(|(key, value)| self.leave(&key, &value)).is_some()
    }

    pub(super) fn remove_if_expired(&self, lookup: Lookup<'_>, now_ms: u64) -> bool {
        let Some((key, value)) = self.table.remove_if(&lookup, |value| is_expired(value, now_ms)) else {
            return false;
        };
        if let Value::Record(record) = &value {
            self.counts.expirations.fetch_add(record.responses(), Relaxed);
        }
        self.leave(&key, &value);
        true
    }

    /// Lowers the ballast if fills and readers hold less than it represents.
    fn relax_ballast(&self) {
        let Ballast { bytes, step_bytes, .. } = &self.ballast;
        if bytes.load(Relaxed) > self.budget.held_bytes() + 3 * step_bytes {
            self.move_ballast(0);
        }
    }

    /// Updates the count of slack: table memory for more entries than there are now.
    pub(super) fn count_slack(&self) {
        let paid_bytes = self.table.len() as u64 * ENTRY_OVERHEAD_BYTES;
        let table_bytes = self.table.memory_used().total() as u64;
        self.budget.set_slack(table_bytes.saturating_sub(paid_bytes));
        if self.budget.live_bytes() > self.budget.bytes_max() {
            self.move_ballast(0);
        }
    }

    fn move_ballast(&self, more_bytes: u64) {
        let departed = {
            let _moving = self.ballast.moving.lock();
            let bytes_max = self.budget.bytes_max();
            let outside = self.budget.held_bytes().saturating_add(more_bytes).min(bytes_max);
            let wanted = outside.next_multiple_of(self.ballast.step_bytes) + self.ballast.step_bytes;
            self.ballast.place(&self.table, wanted.min(bytes_max))
        };
        departed.iter().for_each(|(_, value)| self.count_eviction(value));
        departed.iter().for_each(|(key, value)| self.leave(key, value));
    }
}

impl<R: Record> Evictor for Shared<R> {
    fn make_room(&self, bytes: u64) {
        self.move_ballast(bytes);
    }
}

impl<R: Record> SegmentHome for Shared<R> {
    fn segment(&self, id: SegmentId) -> Option<Segment> {
        match self.table.get(&Lookup::Segment(id))? {
            Value::Segment(segment) => Some(segment),
            Value::Record(_) | Value::Ballast(_) => None,
        }
    }

    fn put_segment(&self, id: SegmentId, segment: Segment) -> SegmentPut {
        let lookup = Lookup::Segment(id);
        let lock = self.lock_key(lookup);
        if self.table.contains_key(&lookup) {
            return SegmentPut::AlreadyThere;
        }
        match self.insert(lookup, &Value::Segment(segment), lock) {
            Ok(()) => SegmentPut::Stored,
            Err((refusal, _)) => {
                self.counts.admissions_refused.fetch_add(1, Relaxed);
                SegmentPut::NotStored(refusal)
            }
        }
    }

    fn remove_segments(&self, fill: FillId, indexes: Range<u32>) -> usize {
        let ids = indexes.map(|index| SegmentId { fill, index });
        ids.filter_map(|id| self.table.remove(&Lookup::Segment(id)))
            .map(|(key, value)| self.leave(&key, &value))
            .count()
    }

    fn groups(&self) -> &Groups {
        &self.groups
    }
}

pub(super) fn is_expired<R: Record>(value: &Value<R>, now_ms: u64) -> bool {
    let Value::Record(record) = value else { return false };
    record.expires_at_ms().is_some_and(|expires_at_ms| expires_at_ms <= now_ms)
}

/// Number of locks for keys: large enough that two cores rarely wait for each other.
pub(super) const KEY_LOCKS: usize = 64;
