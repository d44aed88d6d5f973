//! The memory tier: one table of records and segments under one byte limit.

mod group;
mod room;
mod sweep;
mod table;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

pub use self::group::SegmentGroup;
pub use self::sweep::{Sweep, SweepStep};
pub use self::table::ENTRY_OVERHEAD_BYTES;

use self::room::Ballast;
use self::table::{Departed, EntryKey, Lookup, Table, Value};
use crate::budget::LargeInFiles;
use crate::files::Files;
use crate::{
    Applied, Budget, Change, FilesUnavailable, FillId, Record, Refusal, SEGMENT_BYTES_MAX, Segment,
    SegmentId, SegmentPut,
};

/// Limits of the memory tier.
#[derive(Debug, Clone, Copy)]
pub struct MemoryConfig {
    /// Limit on all live bytes: stored, filling and pinned, with keys and tables.
    pub bytes_max: u64,
    /// Share of `bytes_max` that fills in progress and pinned bytes may take; a fill beyond it passes through.
    pub filling_bytes_max: u64,
    /// A guess at the mean weight of an entry. An order of magnitude is enough: it sizes the memory of evicted keys.
    pub entry_bytes_expected: u64,
    /// From how many bytes on a segment goes into a file that the kernel can send from; `None`: all are on the heap.
    pub file_bytes_min: Option<usize>,
}

impl MemoryConfig {
    /// The usual shares: half for fills, entries of 4 KiB. All segments on the heap.
    pub fn with_bytes_max(bytes_max: u64) -> Self {
        let filling_bytes_max = bytes_max / 2;
        Self { bytes_max, filling_bytes_max, entry_bytes_expected: 4 << 10, file_bytes_min: None }
    }
}

/// What the memory tier holds and has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Primary records.
    pub entries: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes reachable through the table, with keys and table memory.
    pub stored_bytes: u64,
    /// Bytes of fills in progress.
    pub filling_bytes: u64,
    /// Bytes that left the table and are still being read.
    pub pinned_bytes: u64,
    /// The limit on the sum of the three.
    pub bytes_max: u64,
    /// Records and segments evicted for space.
    pub evictions: u64,
    /// Records removed because their use had ended.
    pub expirations: u64,
    /// Records and segments that were not taken.
    pub admissions_refused: u64,
    /// Reservations that were refused.
    pub reservations_refused: u64,
    /// Bytes in files, a part of all three classes.
    pub file_bytes: u64,
    /// Segments on the heap because a file could not take them.
    pub files_failed: u64,
}

/// The memory tier. A handle: clones share the same tier.
///
/// Look-ups take a shared lock on a part of the table, and allocate nothing. A replaced record is swapped under the
/// lock, so no reader finds the key empty in between.
pub struct Memory<R: Record> {
    shared: Arc<Shared<R>>,
}

struct Shared<R: Record> {
    table: Table<R>,
    budget: Arc<Budget>,
    hasher: RandomState,
    /// Updates of one key take turns; which turn follows from the key's hash.
    turns: Box<[Mutex<()>]>,
    ballast: Ballast,
    counts: Counts,
    files_unavailable: Option<FilesUnavailable>,
}

#[derive(Default)]
struct Counts {
    entries: AtomicU64,
    segments: AtomicU64,
    evictions: AtomicU64,
    expirations: AtomicU64,
    admissions_refused: AtomicU64,
}

impl<R: Record> Memory<R> {
    /// An empty tier with a budget of its own.
    pub fn new(config: MemoryConfig) -> Self {
        let hasher = RandomState::new();
        let entries_expected = config.bytes_max / config.entry_bytes_expected.max(1);
        let table =
            table::build(config.bytes_max, entries_expected.max(ENTRIES_EXPECTED_MIN), hasher.clone());
        let (files, files_unavailable) = match config.file_bytes_min.map(|bytes| (bytes, Files::open())) {
            None => (None, None),
            Some((bytes_min, Ok(files))) => (Some(LargeInFiles { files, bytes_min }), None),
            Some((_, Err(reason))) => (None, Some(reason)),
        };
        let budget = Budget::new(config.bytes_max, config.filling_bytes_max, files);
        let ballast = Ballast::new(&table, config.bytes_max);
        let turns = (0..TURNS).map(|_| Mutex::new(())).collect();
        let counts = Counts::default();
        let shared = Arc::new(Shared { table, budget, hasher, turns, ballast, counts, files_unavailable });
        let evictor = Arc::downgrade(&shared);
        shared.budget.evict_through(evictor);
        Self { shared }
    }

    /// The budget that records, segments and fills are counted in.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.shared.budget
    }

    /// Why large segments are on the heap although files were wanted for them.
    pub fn files_unavailable(&self) -> Option<&FilesUnavailable> {
        self.shared.files_unavailable.as_ref()
    }

    /// The record under `key`.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<Arc<R>> {
        match self.shared.table.get(&Lookup::Record(key))? {
            Value::Record(record) => Some(record),
            Value::Segment(_) | Value::Ballast(_) => None,
        }
    }

    /// Changes the record under `key` as `decide` says. No other update of the key runs in between; eviction may.
    ///
    /// `decide` must not update this tier: it holds the turn of the key, and other keys share it.
    pub fn update<F>(&self, key: &[u8], decide: F) -> Applied
    where
        F: FnOnce(Option<&Arc<R>>) -> Change<R>,
    {
        let shared = &*self.shared;
        let lookup = Lookup::Record(key);
        let turn = shared.turn(lookup);
        let current = match shared.table.peek(&lookup) {
            Some(Value::Record(record)) => Some(record),
            _ => None,
        };
        match decide(current.as_ref()) {
            Change::Keep => Applied::Kept,
            Change::Put(record) if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &record)) => {
                Applied::Stored
            }
            Change::Put(record) => shared.put_record(lookup, record, turn),
            Change::Remove if shared.remove(lookup, turn) => Applied::Removed,
            Change::Remove => Applied::Absent,
        }
    }

    /// Removes the record under `key`; says whether there was one.
    pub fn remove(&self, key: &[u8]) -> bool {
        let lookup = Lookup::Record(key);
        self.shared.remove(lookup, self.shared.turn(lookup))
    }

    /// Removes the record under `key` if it is of no use any more at `now_ms`.
    pub fn remove_if_expired(&self, key: &[u8], now_ms: u64) -> bool {
        self.shared.remove_if_expired(Lookup::Record(key), now_ms)
    }

    /// The segment with this id; `None` is a hole.
    #[inline]
    pub fn segment(&self, id: SegmentId) -> Option<Segment> {
        self.shared.segment(id)
    }

    /// Stores a segment. The first one under an id stays.
    pub fn put_segment(&self, id: SegmentId, segment: Segment) -> SegmentPut {
        self.shared.put_segment(id, segment)
    }

    /// Removes the segments 0 to `count` of a fill; says how many there were.
    pub fn remove_segments(&self, fill: FillId, count: u32) -> usize {
        self.shared.remove_segments(fill, count)
    }

    /// A place for the segments of a new fill, which go when its last holder drops it.
    pub fn open_group(&self) -> SegmentGroup {
        let home = Arc::downgrade(&self.shared);
        SegmentGroup::new(home)
    }

    /// A walk over all entries that removes expired records in bounded steps.
    pub fn sweep(&self) -> Sweep<'_, R> {
        Sweep::new(&self.shared)
    }

    /// The largest segment that this tier takes: [`SEGMENT_BYTES_MAX`], or less if the tier is small.
    pub fn segment_bytes_max(&self) -> usize {
        let overhead_bytes = Segment::OVERHEAD_BYTES as u64 + ENTRY_OVERHEAD_BYTES;
        let within = self.shared.entry_bytes_max().saturating_sub(overhead_bytes);
        // The lower power of two is a size class of its own, and nothing is lost to rounding.
        within.checked_ilog2().map_or(0, |power| SEGMENT_BYTES_MAX.min(1 << power))
    }

    /// The largest body worth storing: half of the tier, because a larger one evicts itself and all else.
    pub fn body_bytes_max(&self) -> u64 {
        self.shared.budget.bytes_max() / 2
    }

    /// Gauges and counters. Cheap, but the classes are read one by one and may disagree while traffic runs.
    pub fn usage(&self) -> Usage {
        let Shared { budget, counts, .. } = &*self.shared;
        Usage {
            entries: counts.entries.load(Relaxed),
            segments: counts.segments.load(Relaxed),
            stored_bytes: budget.stored_bytes(),
            filling_bytes: budget.filling_bytes(),
            pinned_bytes: budget.pinned_bytes(),
            bytes_max: budget.bytes_max(),
            evictions: counts.evictions.load(Relaxed),
            expirations: counts.expirations.load(Relaxed),
            admissions_refused: counts.admissions_refused.load(Relaxed),
            reservations_refused: budget.refused(),
            file_bytes: budget.file_bytes(),
            files_failed: budget.files_failed(),
        }
    }
}

impl<R: Record> Clone for Memory<R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<R: Record> Shared<R> {
    fn turn(&self, lookup: Lookup<'_>) -> MutexGuard<'_, ()> {
        let turn = self.hasher.hash_one(lookup) as usize % self.turns.len();
        self.turns[turn].lock()
    }

    /// One entry may take an eighth of a shard, so that a shard always chooses among several.
    fn entry_bytes_max(&self) -> u64 {
        self.budget.bytes_max() / self.table.num_shards() as u64 / 8
    }

    fn put_record(&self, lookup: Lookup<'_>, record: Arc<R>, turn: MutexGuard<'_, ()>) -> Applied {
        match self.insert(lookup, &Value::Record(record), turn) {
            Ok(()) => Applied::Stored,
            Err((refusal, turn)) => {
                self.counts.admissions_refused.fetch_add(1, Relaxed);
                self.remove(lookup, turn);
                Applied::NotStored(refusal)
            }
        }
    }

    fn segment(&self, id: SegmentId) -> Option<Segment> {
        match self.table.get(&Lookup::Segment(id))? {
            Value::Segment(segment) => Some(segment),
            Value::Record(_) | Value::Ballast(_) => None,
        }
    }

    fn put_segment(&self, id: SegmentId, segment: Segment) -> SegmentPut {
        let lookup = Lookup::Segment(id);
        let turn = self.turn(lookup);
        if self.table.contains_key(&lookup) {
            return SegmentPut::AlreadyThere;
        }
        match self.insert(lookup, &Value::Segment(segment), turn) {
            Ok(()) => SegmentPut::Stored,
            Err((refusal, _)) => {
                self.counts.admissions_refused.fetch_add(1, Relaxed);
                SegmentPut::NotStored(refusal)
            }
        }
    }

    /// Inserts under the turn of the key, which is given back if the value is refused.
    fn insert<'t>(
        &self,
        lookup: Lookup<'_>,
        value: &Value<R>,
        turn: MutexGuard<'t, ()>,
    ) -> Result<(), (Refusal, MutexGuard<'t, ()>)> {
        if let Err(refusal) = self.admit(lookup, value) {
            return Err((refusal, turn));
        }
        let mut departed = Departed::new();
        self.table.insert_with_lifecycle(lookup.to_key(), Value::clone(value), &mut departed);
        drop(turn);
        self.settle_insertion(lookup, value, &departed);
        self.relax_ballast();
        Ok(())
    }

    /// Accounts a value as stored, before it can be found and evicted.
    fn admit(&self, lookup: Lookup<'_>, value: &Value<R>) -> Result<(), Refusal> {
        let charge = value.charge().expect("records and segments have a charge");
        debug_assert!(charge.is_of(&self.budget), "the charge belongs to another tier's budget");
        let overhead_bytes = lookup.overhead_bytes();
        if overhead_bytes + charge.bytes() as u64 > self.entry_bytes_max() {
            return Err(Refusal::TooLarge);
        }
        self.budget.acquire_stored(overhead_bytes).map_err(|_| Refusal::OverBudget)?;
        charge.enter();
        self.counter(lookup).fetch_add(1, Relaxed);
        Ok(())
    }

    /// The entry that `inserted` replaced has not been evicted, all others have; `inserted` itself may be among them.
    fn settle_insertion(&self, lookup: Lookup<'_>, inserted: &Value<R>, departed: &Departed<R>) {
        let evicted =
            departed.iter().filter(|(key, value)| key.lookup() != lookup || value.is_same(inserted));
        self.counts.evictions.fetch_add(evicted.count() as u64, Relaxed);
        departed.iter().for_each(|(key, value)| self.leave(key, value));
    }

    /// Accounts for a value that is in the table no longer. It counts as pinned until it is dropped.
    fn leave(&self, key: &EntryKey, value: &Value<R>) {
        let Some(charge) = value.charge() else { return };
        self.counter(key.lookup()).fetch_sub(1, Relaxed);
        self.budget.release_stored(key.lookup().overhead_bytes());
        charge.leave();
    }

    fn counter(&self, lookup: Lookup<'_>) -> &AtomicU64 {
        match lookup {
            Lookup::Segment(_) => &self.counts.segments,
            Lookup::Record(_) | Lookup::Ballast(_) => &self.counts.entries,
        }
    }

    fn remove(&self, lookup: Lookup<'_>, turn: MutexGuard<'_, ()>) -> bool {
        let removed = self.table.remove(&lookup);
        drop(turn);
        removed.map(|(key, value)| self.leave(&key, &value)).is_some()
    }

    fn remove_segments(&self, fill: FillId, count: u32) -> usize {
        let ids = (0..count).map(|index| SegmentId { fill, index });
        ids.filter_map(|id| self.table.remove(&Lookup::Segment(id)))
            .map(|(key, value)| self.leave(&key, &value))
            .count()
    }

    fn remove_if_expired(&self, lookup: Lookup<'_>, now_ms: u64) -> bool {
        let Some((key, value)) = self.table.remove_if(&lookup, |value| is_expired(value, now_ms)) else {
            return false;
        };
        self.counts.expirations.fetch_add(1, Relaxed);
        self.leave(&key, &value);
        true
    }
}

fn is_expired<R: Record>(value: &Value<R>, now_ms: u64) -> bool {
    let Value::Record(record) = value else { return false };
    record.expires_at_ms().is_some_and(|expires_at_ms| expires_at_ms <= now_ms)
}

/// Enough that two cores rarely wait for each other's keys.
const TURNS: usize = 64;

/// Below this the memory of evicted keys is too short to tell a scan from a return.
const ENTRIES_EXPECTED_MIN: u64 = 1024;
