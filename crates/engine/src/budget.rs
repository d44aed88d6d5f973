//! What all shards together may take.

use std::sync::Arc;

use crate::bucket::BLOCK_BYTES;
use crate::chunks::{CHUNK_BYTES, Chunks, Supply};
use crate::segment::{Commons, SEGMENT_BYTES, SPARES_MAX};
use crate::shard::Shard;
use crate::sync::Mutex;
use crate::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

/// From this limit on, memory comes in huge pages: what may lie idle for it is 3 % then.
const HUGE_FROM_BYTES: u64 = 192 << 20;
/// There is one more chunk ready for so much of the limit: shards that fill up at the same pace need new segments at the same time.
const READY_PER_BYTES: u64 = 512 << 20;
const READY_MAX: u64 = 8;

/// Bytes in use, and how many there may be. What can be refused is asked for first; what can't, such as the growth of an index,
/// is taken, and made up for by eviction.
#[derive(Debug)]
pub(crate) struct Budget {
    used_bytes: AtomicU64,
    bytes_max: AtomicU64,
    /// The limit that was set: the other one is this, and what it is stretched by.
    set_bytes_max: AtomicU64,
    /// By how much, for now. Held while the limit changes, and all that follows from it: two clients and a reload may change it at once.
    stretched_bytes: Mutex<u64>,
    /// How often a limit was set that is lower than the one before.
    lowered: AtomicU64,
    /// Of those in use, what eviction can't give back.
    fixed_bytes: AtomicU64,
    /// Of those in use, what is still to be loaded: nobody else is to have that room.
    expected_bytes: AtomicU64,
    /// What the allocator has got back since the begin.
    freed_bytes: AtomicU64,
    pub(crate) pools: Pools,
    /// Among what is in use: what huge pages may take beside it.
    idle_bytes: AtomicUsize,
    /// Large values from this length on are kept compressed.
    pack_from_bytes: AtomicUsize,
    /// What was removed as a whole and still takes memory. Its lock is taken while shards are locked, and never the other way round.
    cleared: Mutex<Vec<Shard>>,
    has_cleared: AtomicBool,
    /// More is in use than may be, and no shard had anything to give when they were asked last.
    is_stuck: AtomicBool,
}

/// Where the pieces come from.
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

    /// Nothing, and no room.
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

    /// For what is not to count here yet, out of the same memory.
    pub(crate) fn beside(&self, bytes_max: u64) -> Self {
        let budget = Self::of(self.pools.clone());
        budget.set_bytes_max.store(bytes_max, Relaxed);
        budget.derive_bytes_max(0);
        budget.set_pack_from_bytes(self.pack_from_bytes());
        budget
    }

    /// From now on this counts what counted there, in place of what was expected: at once, or it would be room in between, or count twice.
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

    /// Without what is still to be loaded.
    pub(crate) fn loaded_bytes(&self) -> u64 {
        self.used_bytes().saturating_sub(self.expected_bytes.load(Relaxed))
    }

    /// So much will be loaded.
    pub(crate) fn expect(&self, bytes: u64) {
        self.used_bytes.fetch_add(bytes, Relaxed);
        self.expected_bytes.fetch_add(bytes, Relaxed);
    }

    /// It will not be loaded any more.
    pub(crate) fn expect_no_more(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Relaxed);
        self.expected_bytes.fetch_sub(bytes, Relaxed);
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Relaxed)
    }

    /// Changes the limit by so much, until it is unstretched by as much.
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

    /// The limit that was set.
    pub(crate) fn unstretched_bytes_max(&self) -> u64 {
        self.set_bytes_max.load(Relaxed)
    }

    pub(crate) fn set_bytes_max(&self, bytes_max: u64) {
        let stretched_bytes = self.stretched_bytes.lock();
        let is_lower = bytes_max < self.unstretched_bytes_max();
        self.set_bytes_max.store(bytes_max, Relaxed);
        self.derive_bytes_max(*stretched_bytes);
        // Whoever sees that it was lowered sees the limit.
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

    /// Whether so many bytes more would leave no more in use than what may be and the slack.
    pub(crate) fn could_exceed_by(&self, slack_bytes: usize, bytes: usize) -> bool {
        self.used_bytes().saturating_add(bytes as u64) <= self.bytes_max().saturating_add(slack_bytes as u64)
    }

    /// Whether something of this length could have room at all, with a segment for what points to it.
    pub(crate) fn could_hold(&self, bytes: usize) -> bool {
        self.could_free(bytes + SEGMENT_BYTES)
    }

    /// Whether there are so many bytes that are not taken, or that eviction could give back.
    pub(crate) fn could_free(&self, bytes: usize) -> bool {
        let is_enough = || {
            let room = self.bytes_max().checked_sub(self.fixed_bytes.load(Relaxed));
            room.is_some_and(|room| bytes as u64 <= room)
        };
        // Among what eviction can't give back are the indexes of what was cleared.
        is_enough() || self.free_cleared_until(is_enough)
    }

    /// Takes over what nobody can reach any more, to be freed by whoever has time for it, or needs the memory first.
    pub(crate) fn clear_away(&self, shard: Shard) {
        let mut cleared = self.cleared.lock();
        cleared.push(shard);
        self.has_cleared.store(true, Relaxed);
    }

    /// Frees one of the shards that were cleared; whether there was one. Who comes while another one does so waits for him.
    pub(crate) fn free_cleared(&self) -> bool {
        if !self.has_cleared.load(Relaxed) {
            return false;
        }
        let mut cleared = self.cleared.lock();
        // Dropped under the lock: whoever finds none may count on all of their memory.
        let is_freed = cleared.pop().map(drop).is_some();
        self.has_cleared.store(!cleared.is_empty(), Relaxed);
        is_freed
    }

    /// Frees what was cleared until it is enough; whether it was.
    fn free_cleared_until(&self, is_enough: impl Fn() -> bool) -> bool {
        while self.free_cleared() {
            if is_enough() {
                return true;
            }
        }
        // Another one may have freed the last.
        is_enough()
    }

    /// The share of what was taken that eviction can't give back changes.
    pub(crate) fn fix(&self, before_bytes: usize, bytes: usize) {
        self.fixed_bytes.fetch_add(bytes as u64, Relaxed);
        self.fixed_bytes.fetch_sub(before_bytes as u64, Relaxed);
    }

    /// What may be in use, so that there is room for so many bytes.
    pub(crate) fn used_bytes_beside(&self, bytes: usize) -> u64 {
        self.bytes_max().saturating_sub(bytes as u64)
    }

    /// Whether a segment has no room, beside so many bytes that are left for others.
    pub(crate) fn lacks_segment(&self, left_bytes: usize) -> bool {
        self.used_bytes() + (SEGMENT_BYTES + left_bytes) as u64 > self.bytes_max()
    }

    /// Whether there was room for `bytes`, beside so many that are left for others. What was cleared is room.
    pub(crate) fn take_beside(&self, left_bytes: usize, bytes: usize) -> bool {
        let (bytes, bytes_max) = (bytes as u64, self.bytes_max().saturating_sub(left_bytes as u64));
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= bytes_max);
        let is_taken = || self.used_bytes.fetch_update(Relaxed, Relaxed, more).is_ok();
        is_taken() || self.free_cleared_until(is_taken)
    }

    /// Takes it, room or not.
    pub(crate) fn take_anyway(&self, bytes: usize) {
        self.used_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes as u64, Relaxed);
    }

    /// Gives back what was memory of the allocator.
    pub(crate) fn free(&self, bytes: usize) {
        self.give_back(bytes);
        self.freed_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn freed_bytes(&self) -> u64 {
        self.freed_bytes.load(Relaxed)
    }
}

/// Beside the chunks that are ready: what segments and the index have begun with, and emptied segments that are kept. Small pages take
/// no memory before they are used.
fn idle_bytes(ready: usize) -> usize {
    if ready == 0 { 0 } else { (ready + 2) * CHUNK_BYTES + SPARES_MAX * SEGMENT_BYTES }
}
