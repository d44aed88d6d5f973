//! The memory tier: one table of records and segments within one byte limit.

mod group;
mod room;
mod shared;
mod sweep;
mod table;

use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

pub use self::group::SegmentGroup;
pub use self::sweep::{Sweep, SweepStep, Walk};
pub use self::table::ENTRY_OVERHEAD_BYTES;

use self::group::{Groups, SegmentHome as _};
use self::room::Ballast;
use self::shared::{Counts, KEY_LOCKS, Shared};
use self::table::{Lookup, Value};
use crate::budget::LargeInFiles;
use crate::files::Files;
use crate::{
    Applied, Budget, Change, FilesUnavailable, FillId, Record, SEGMENT_BYTES_MAX, Segment, SegmentId,
    SegmentPut,
};

/// Limits of the memory tier.
#[derive(Debug, Clone, Copy)]
pub struct MemoryConfig {
    /// Limit on all live bytes: stored, filling and pinned, including keys and tables.
    pub bytes_max: u64,
    /// Share of `bytes_max` that fills in progress and pinned bytes may use; a fill beyond it isn't stored.
    pub filling_bytes_max: u64,
    /// Expected mean size of an entry. It determines the number of evicted keys that are remembered, so an order of magnitude is enough.
    pub entry_bytes_expected: u64,
    /// Minimum size of a segment that goes into a file from which the kernel can send; `None` keeps all segments on the heap.
    pub file_bytes_min: Option<usize>,
}

impl MemoryConfig {
    /// Returns a configuration in which fills may use half of `bytes_max`, entries have 4 KiB, and all segments are on the heap.
    pub fn with_bytes_max(bytes_max: u64) -> Self {
        let filling_bytes_max = bytes_max / 2;
        Self { bytes_max, filling_bytes_max, entry_bytes_expected: 4 << 10, file_bytes_min: None }
    }
}

/// Gauges and counters of the memory tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Primary records.
    pub entries: u64,
    /// Primary records without a response, which only hold a note about their key.
    pub notes: u64,
    /// Stored responses in all records.
    pub responses: u64,
    /// Stored segments.
    pub segments: u64,
    /// Bytes reachable through the table, including keys and table memory.
    pub stored_bytes: u64,
    /// Bytes of fills in progress.
    pub filling_bytes: u64,
    /// Bytes that have left the table and are still being read.
    pub pinned_bytes: u64,
    /// Limit on the sum of the three classes.
    pub bytes_max: u64,
    /// Stored responses evicted for space.
    pub evictions: u64,
    /// Bytes of segments evicted for space.
    pub segment_bytes_evicted: u64,
    /// Stored responses removed because they expired.
    pub expirations: u64,
    /// Records and segments that the table refused.
    pub admissions_refused: u64,
    /// Reservations that were refused.
    pub reservations_refused: u64,
    /// Bytes in files, a part of all three classes.
    pub file_bytes: u64,
    /// Segments on the heap because writing them to a file failed.
    pub files_failed: u64,
}

/// The memory tier. Clones share the same tier.
///
/// Look-ups take a shared lock on a part of the table, and don't allocate. A record is replaced under the lock, so no reader finds the key
/// empty in between.
pub struct Memory<R: Record> {
    shared: Arc<Shared<R>>,
}

impl<R: Record> Memory<R> {
    /// Creates an empty tier with its own budget.
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
        let key_locks = (0..KEY_LOCKS).map(|_| Mutex::new(())).collect();
        let counts = Counts::default();
        let groups = Groups::default();
        let shared =
            Arc::new(Shared { table, budget, hasher, key_locks, groups, ballast, counts, files_unavailable });
        let evictor = Arc::downgrade(&shared);
        shared.budget.set_evictor(evictor);
        Self { shared }
    }

    /// Returns the budget against which records, segments and fills count.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.shared.budget
    }

    /// Returns the reason why large segments are on the heap although files are configured.
    pub fn files_unavailable(&self) -> Option<&FilesUnavailable> {
        self.shared.files_unavailable.as_ref()
    }

    /// Returns the record under `key`.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<Arc<R>> {
        match self.shared.table.get(&Lookup::Record(key))? {
            Value::Record(record) => Some(record),
            Value::Segment(_) | Value::Ballast(_) => None,
        }
    }

    /// Changes the record under `key` to the result of `decide`. No other update of the key runs at the same time, but an eviction may.
    ///
    /// `decide` must not update this tier, because it runs under the lock of the key, which other keys share.
    pub fn update<F>(&self, key: &[u8], decide: F) -> Applied
    where
        F: FnOnce(Option<&Arc<R>>) -> Change<R>,
    {
        let shared = &*self.shared;
        let lookup = Lookup::Record(key);
        let lock = shared.lock_key(lookup);
        let current = match shared.table.peek(&lookup) {
            Some(Value::Record(record)) => Some(record),
            _ => None,
        };
        match decide(current.as_ref()) {
            Change::Keep => Applied::Kept,
            Change::Put(record) if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &record)) => {
                Applied::Stored
            }
            Change::Put(record) => shared.put_record(lookup, record, lock),
            Change::Remove if shared.remove(lookup, lock) => Applied::Removed,
            Change::Remove => Applied::Absent,
        }
    }

    /// Removes the record under `key`. Returns `true` if there was one.
    pub fn remove(&self, key: &[u8]) -> bool {
        let lookup = Lookup::Record(key);
        self.shared.remove(lookup, self.shared.lock_key(lookup))
    }

    /// Removes the record under `key` if it has expired at `now_ms`.
    pub fn remove_if_expired(&self, key: &[u8], now_ms: u64) -> bool {
        self.shared.remove_if_expired(Lookup::Record(key), now_ms)
    }

    /// Returns the segment with this id; `None` is a hole.
    #[inline]
    pub fn segment(&self, id: SegmentId) -> Option<Segment> {
        self.shared.segment(id)
    }

    /// Stores a segment. The first segment under an id stays.
    pub fn put_segment(&self, id: SegmentId, segment: Segment) -> SegmentPut {
        self.shared.put_segment(id, segment)
    }

    /// Removes the segments 0 to `count` of a fill. Returns the number of segments removed.
    pub fn remove_segments(&self, fill: FillId, count: u32) -> usize {
        self.shared.remove_segments(fill, 0..count)
    }

    /// Creates the group of a new fill. Its segments are removed when the last holder drops it.
    pub fn open_group(&self) -> SegmentGroup {
        let home = Arc::downgrade(&self.shared);
        SegmentGroup::new(home)
    }

    /// Returns the group of a fill that was read from a record. All callers get the same group for a fill, as long as one of them holds it.
    pub fn group_of(&self, fill: FillId) -> Arc<SegmentGroup> {
        let home = Arc::downgrade(&self.shared);
        self.shared.groups.of(fill, home)
    }

    #[cfg(test)]
    pub(crate) fn listed_groups(&self) -> usize {
        self.shared.groups.count()
    }

    /// Starts a walk over all entries that removes expired records in bounded steps.
    pub fn sweep(&self) -> Sweep<'_, R> {
        Sweep::new(&self.shared)
    }

    /// Starts a walk over all records in bounded steps.
    pub fn walk(&self) -> Walk<'_, R> {
        Walk::new(&self.shared)
    }

    /// Returns the maximum size of a segment in this tier: [`SEGMENT_BYTES_MAX`], or less if the tier is small.
    pub fn segment_bytes_max(&self) -> usize {
        let overhead_bytes = Segment::OVERHEAD_BYTES as u64 + ENTRY_OVERHEAD_BYTES;
        let within = self.shared.entry_bytes_max().saturating_sub(overhead_bytes);
        // The next lower power of two is a size class of its own, so nothing is lost to rounding.
        within.checked_ilog2().map_or(0, |power| SEGMENT_BYTES_MAX.min(1 << power))
    }

    /// Returns the maximum size of a body that is stored when no other fill is in progress: half of the tier, minus the other memory that
    /// its fill needs. A larger body would evict itself and everything else. The other memory is `arriving_bytes`, and the last segment a
    /// second time, in the form in which it arrived.
    pub fn body_bytes_max(&self, arriving_bytes: u64) -> u64 {
        let segment_bytes = self.segment_bytes_max() as u64;
        if segment_bytes == 0 {
            return 0;
        }
        let overhead_bytes = Segment::OVERHEAD_BYTES as u64;
        let half = self.shared.budget.filling_bytes_max().min(self.shared.budget.bytes_max() / 2);
        let room = half.saturating_sub(arriving_bytes);
        let segments = room.saturating_sub(segment_bytes) / (segment_bytes + overhead_bytes);
        let left = room.saturating_sub(segments * (segment_bytes + overhead_bytes) + overhead_bytes);
        // Size classes and pages enlarge the copy by at most a quarter.
        segments * segment_bytes + (left * 4 / 9).min(segment_bytes)
    }

    /// Returns gauges and counters. The call is cheap, but it reads the classes separately, so they may be inconsistent under traffic.
    pub fn usage(&self) -> Usage {
        let Shared { budget, counts, .. } = &*self.shared;
        Usage {
            entries: counts.entries.load(Relaxed),
            notes: counts.notes.load(Relaxed),
            responses: counts.responses.load(Relaxed),
            segments: counts.segments.load(Relaxed),
            stored_bytes: budget.stored_bytes(),
            filling_bytes: budget.filling_bytes(),
            pinned_bytes: budget.pinned_bytes(),
            bytes_max: budget.bytes_max(),
            evictions: counts.evictions.load(Relaxed),
            segment_bytes_evicted: counts.segment_bytes_evicted.load(Relaxed),
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

/// With fewer expected entries, too few evicted keys would be remembered to distinguish a scan from a repeated request.
const ENTRIES_EXPECTED_MIN: u64 = 1024;
