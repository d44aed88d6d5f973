//! The memory budget shared by all shards.

use std::sync::Arc;

use crate::bucket::BLOCK_BYTES;
use crate::chunks::{CHUNK_BYTES, Chunks, Supply};
use crate::segment::{Commons, SEGMENT_BYTES, SPARES_MAX};
use crate::shard::Shard;
use crate::sync::Mutex;
use crate::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

/// Minimum limit for which memory comes in huge pages. At most 3 % of the limit may then be idle.
const HUGE_FROM_BYTES: u64 = 192 << 20;
/// The number of ready chunks is the limit divided by this size. Several chunks are needed because shards
/// that fill up at the same pace need new segments at the same time.
const READY_PER_BYTES: u64 = 512 << 20;
const READY_MAX: u64 = 8;

/// Bytes in use, and their limit. A write that may fail requests its memory first. Other memory, such as the
/// growth of an index, is taken unconditionally, and eviction compensates for it.
#[derive(Debug)]
pub(crate) struct Budget {
    used_bytes: AtomicU64,
    bytes_max: AtomicU64,
    /// The configured limit. `bytes_max` is `set_bytes_max` plus `stretched_bytes`.
    set_bytes_max: AtomicU64,
    /// Temporary increase of the limit. The lock is held while the limit and all values derived from it
    /// change, because several clients and a reload may change the limit concurrently.
    stretched_bytes: Mutex<u64>,
    /// Number of times that the configured limit was lowered.
    lowered: AtomicU64,
    /// The part of `used_bytes` that eviction can't free.
    fixed_bytes: AtomicU64,
    /// The part of `used_bytes` reserved for data still to be loaded, so that nothing else takes the room.
    expected_bytes: AtomicU64,
    /// Bytes returned to the allocator since the start.
    freed_bytes: AtomicU64,
    pub(crate) pools: Pools,
    /// The part of `used_bytes` that idle huge pages may take.
    idle_bytes: AtomicUsize,
    /// Minimum size of large values to compress.
    pack_from_bytes: AtomicUsize,
    /// Cleared shards that still take memory. A thread that holds shards may take this lock, but a thread
    /// that holds this lock may not lock a shard.
    cleared: Mutex<Vec<Shard>>,
    has_cleared: AtomicBool,
    /// Whether usage exceeds the limit, and the last attempt found no memory to free in any shard.
    is_stuck: AtomicBool,
}

/// Sources of memory pieces.
#[derive(Clone, Debug)]
pub(crate) struct Pools {
    pub(crate) supply: Arc<Supply>,
    pub(crate) segments: Arc<Chunks<SEGMENT_BYTES>>,
    pub(crate) blocks: Arc<Chunks<BLOCK_BYTES>>,
    pub(crate) commons: Arc<Commons>,
}

impl Pools {
    fn new(shards: usize) -> Self {
        let supply = Arc::<Supply>::default();
        Self {
            segments: Chunks::new(Arc::clone(&supply)),
            blocks: Chunks::new(Arc::clone(&supply)),
            supply,
            commons: Arc::new(Commons::new(shards)),
        }
    }
}

impl Budget {
    pub(crate) fn new(bytes_max: u64, shards: usize) -> Self {
        let budget = Self::of(Pools::new(shards));
        budget.set_bytes_max(bytes_max);
        budget
    }

    /// A budget of zero bytes.
    fn of(pools: Pools) -> Self {
        Self {
            used_bytes: AtomicU64::new(0),
            bytes_max: AtomicU64::new(0),
            set_bytes_max: AtomicU64::new(0),
            stretched_bytes: Mutex::default(),
            lowered: AtomicU64::new(0),
            fixed_bytes: AtomicU64::new(0),
            expected_bytes: AtomicU64::new(0),
            freed_bytes: AtomicU64::new(0),
            pools,
            idle_bytes: AtomicUsize::new(0),
            pack_from_bytes: AtomicUsize::new(usize::MAX),
            cleared: Mutex::default(),
            has_cleared: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
        }
    }

    /// Creates a separate budget with the same pools, for memory that this budget doesn't count yet.
    pub(crate) fn beside(&self, bytes_max: u64) -> Self {
        let budget = Self::of(self.pools.clone());
        budget.set_bytes_max.store(bytes_max, Relaxed);
        budget.derive_bytes_max(0);
        budget.set_pack_from_bytes(self.pack_from_bytes());
        budget
    }

    /// Counts the bytes of `beside` in this budget, in place of `expected_bytes`. A single atomic operation
    /// does both, so that other threads never see the memory as free or as counted twice.
    pub(crate) fn take_over(&self, beside: &Self, expected_bytes: u64) {
        let used_bytes = beside.used_bytes.swap(0, Relaxed);
        self.used_bytes.fetch_add(used_bytes.wrapping_sub(expected_bytes), Relaxed);
        self.expected_bytes.fetch_sub(expected_bytes, Relaxed);
        self.fixed_bytes.fetch_add(beside.fixed_bytes.swap(0, Relaxed), Relaxed);
        self.freed_bytes.fetch_add(beside.freed_bytes.swap(0, Relaxed), Relaxed);
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Relaxed)
    }

    /// Bytes in use, without those still to be loaded.
    pub(crate) fn loaded_bytes(&self) -> u64 {
        self.used_bytes().saturating_sub(self.expected_bytes.load(Relaxed))
    }

    /// Reserves bytes for data to be loaded.
    pub(crate) fn expect(&self, bytes: u64) {
        self.used_bytes.fetch_add(bytes, Relaxed);
        self.expected_bytes.fetch_add(bytes, Relaxed);
    }

    /// Releases bytes reserved for loading.
    pub(crate) fn expect_no_more(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Relaxed);
        self.expected_bytes.fetch_sub(bytes, Relaxed);
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Relaxed)
    }

    /// Raises the limit temporarily, until [`Self::unstretch`].
    pub(crate) fn stretch(&self, bytes: u64) {
        let mut stretched_bytes = self.stretched_bytes.lock();
        *stretched_bytes += bytes;
        self.derive_bytes_max(*stretched_bytes);
    }

    pub(crate) fn unstretch(&self, bytes: u64) {
        let mut stretched_bytes = self.stretched_bytes.lock();
        *stretched_bytes -= bytes;
        self.derive_bytes_max(*stretched_bytes);
    }

    fn derive_bytes_max(&self, stretched_bytes: u64) {
        self.bytes_max.store(self.unstretched_bytes_max().saturating_add(stretched_bytes), Relaxed);
    }

    /// The configured limit.
    pub(crate) fn unstretched_bytes_max(&self) -> u64 {
        self.set_bytes_max.load(Relaxed)
    }

    pub(crate) fn set_bytes_max(&self, bytes_max: u64) {
        let stretched_bytes = self.stretched_bytes.lock();
        let is_lower = bytes_max < self.unstretched_bytes_max();
        self.set_bytes_max.store(bytes_max, Relaxed);
        self.derive_bytes_max(*stretched_bytes);
        // A thread that sees the new count must also see the new limit.
        self.lowered.fetch_add(u64::from(is_lower), Release);
        let ready = match bytes_max {
            0..HUGE_FROM_BYTES => 0,
            _ => (bytes_max / READY_PER_BYTES).clamp(1, READY_MAX) as usize,
        };
        let now = idle_bytes(ready);
        let before = self.idle_bytes.swap(now, Relaxed);
        self.take_anyway(now);
        self.give_back(before);
        self.fix(before, now);
        self.pools.supply.want_ready(ready);
    }

    pub(crate) fn times_lowered(&self) -> u64 {
        self.lowered.load(Acquire)
    }

    pub(crate) fn pack_from_bytes(&self) -> usize {
        self.pack_from_bytes.load(Relaxed)
    }

    pub(crate) fn set_pack_from_bytes(&self, bytes: usize) {
        self.pack_from_bytes.store(bytes, Relaxed);
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.used_bytes() > self.bytes_max()
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Relaxed)
    }

    pub(crate) fn set_stuck(&self, is_stuck: bool) {
        self.is_stuck.store(is_stuck, Relaxed);
    }

    /// Returns whether usage plus `bytes` is within the limit plus `slack_bytes`.
    pub(crate) fn could_exceed_by(&self, slack_bytes: usize, bytes: usize) -> bool {
        self.used_bytes().saturating_add(bytes as u64) <= self.bytes_max().saturating_add(slack_bytes as u64)
    }

    /// Returns whether a value of this size could fit at all, including a segment for its item.
    pub(crate) fn could_hold(&self, bytes: usize) -> bool {
        self.could_free(bytes + SEGMENT_BYTES)
    }

    /// Returns whether this many bytes are free or could be freed by eviction.
    pub(crate) fn could_free(&self, bytes: usize) -> bool {
        let is_enough = || {
            let room = self.bytes_max().checked_sub(self.fixed_bytes.load(Relaxed));
            room.is_some_and(|room| bytes as u64 <= room)
        };
        // The bytes that eviction can't free include the indexes of cleared shards.
        is_enough() || self.free_cleared_until(is_enough)
    }

    /// Takes a shard that is no longer in use. A thread that is idle or needs memory frees the shard later.
    pub(crate) fn clear_away(&self, shard: Shard) {
        let mut cleared = self.cleared.lock();
        cleared.push(shard);
        self.has_cleared.store(true, Relaxed);
    }

    /// Frees one of the cleared shards; returns whether there was one. If another thread is freeing a shard,
    /// waits for it.
    pub(crate) fn free_cleared(&self) -> bool {
        if !self.has_cleared.load(Relaxed) {
            return false;
        }
        let mut cleared = self.cleared.lock();
        // The shard is dropped under the lock, so that a thread that finds no cleared shard can rely on all
        // of the memory.
        let is_freed = cleared.pop().map(drop).is_some();
        self.has_cleared.store(!cleared.is_empty(), Relaxed);
        is_freed
    }

    /// Frees cleared shards until `is_enough` returns true. Returns its last result.
    fn free_cleared_until(&self, is_enough: impl Fn() -> bool) -> bool {
        while self.free_cleared() {
            if is_enough() {
                return true;
            }
        }
        // Another thread may have freed the last cleared shard.
        is_enough()
    }

    /// Adjusts the number of bytes that eviction can't free.
    pub(crate) fn fix(&self, before_bytes: usize, bytes: usize) {
        self.fixed_bytes.fetch_add(bytes as u64, Relaxed);
        self.fixed_bytes.fetch_sub(before_bytes as u64, Relaxed);
    }

    /// The maximum usage at which `bytes` more fit.
    pub(crate) fn used_bytes_beside(&self, bytes: usize) -> u64 {
        self.bytes_max().saturating_sub(bytes as u64)
    }

    /// Returns whether there is no room for a segment if `left_bytes` have to stay free for other shards.
    pub(crate) fn lacks_segment(&self, left_bytes: usize) -> bool {
        self.used_bytes() + (SEGMENT_BYTES + left_bytes) as u64 > self.bytes_max()
    }

    /// Takes `bytes` if `left_bytes` then stay free for other shards. Returns whether the bytes were taken.
    /// Frees cleared shards if necessary.
    pub(crate) fn take_beside(&self, left_bytes: usize, bytes: usize) -> bool {
        let (bytes, bytes_max) = (bytes as u64, self.bytes_max().saturating_sub(left_bytes as u64));
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= bytes_max);
        let is_taken = || self.used_bytes.fetch_update(Relaxed, Relaxed, more).is_ok();
        is_taken() || self.free_cleared_until(is_taken)
    }

    /// Takes bytes regardless of the limit.
    pub(crate) fn take_anyway(&self, bytes: usize) {
        self.used_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes as u64, Relaxed);
    }

    /// Releases bytes that were allocated on the heap.
    pub(crate) fn free(&self, bytes: usize) {
        self.give_back(bytes);
        self.freed_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn freed_bytes(&self) -> u64 {
        self.freed_bytes.load(Relaxed)
    }
}

/// Returns the size of idle memory: the ready chunks, the partly used chunks of segments and of the index,
/// and spare segments. Without ready chunks all pages are small, and unused ones take no memory.
fn idle_bytes(ready: usize) -> usize {
    if ready == 0 { 0 } else { (ready + 2) * CHUNK_BYTES + SPARES_MAX * SEGMENT_BYTES }
}
