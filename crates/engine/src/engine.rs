//! The engine: all shards, shared by the workers.

use std::sync::Arc;

use crate::budget::Budget;
use crate::chance::Chance;
use crate::chunks::Preparer;
use crate::hash::{Database, Hasher, Hashing, Key, SHARDS_MAX};
use crate::index::Hint;
use crate::item::INLINE_BYTES_MAX;
use crate::located::Located;
use crate::losses::{Losses, Removal, Removals};
use crate::packed::Stored;
use crate::policy::Policy;
use crate::segment::SEGMENT_BYTES;
use crate::shard::{Counts, Lifetimes, OutOfMemory, Shard};
use crate::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use crate::sync::{MappedMutexGuard, Mutex, MutexGuard};

/// Settings of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Memory limit for the index, keys and values in total.
    pub bytes_max: u64,
    /// The eviction policy.
    pub policy: Policy,
    /// Seed for hashes and samples. Keep it secret: a client that knows it could choose colliding keys.
    pub seed: u64,
    /// Number of threads that typically use the engine at the same time. With a single thread, all shards
    /// share a lock.
    pub threads: usize,
}

/// A set of keys in shards, each with its own lock, or all with a common one.
#[derive(Debug)]
pub struct Engine {
    /// Groups of shards that share a lock: one group per shard, or one for all.
    groups: Box<[Group]>,
    /// Number of shards, a power of two.
    shards: usize,
    seed: u64,
    hasher: Hasher,
    pub(crate) budget: Arc<Budget>,
    losses: Arc<Losses>,
    /// Index of the policy in [`Policy::ALL`].
    policy: AtomicU8,
    /// Counter that determines from which shard to evict next to make room for external memory.
    gives_next: AtomicUsize,
}

/// Contents removed from an engine. Dropping this value frees their memory; a write that needs memory may
/// free it earlier.
#[derive(Debug)]
pub struct Cleared(Arc<Budget>);

impl Cleared {
    /// Frees a part of the contents. Returns false if nothing was left to free.
    pub fn free_some(&mut self) -> bool {
        self.0.free_cleared()
    }
}

impl Drop for Cleared {
    fn drop(&mut self) {
        while self.free_some() {}
    }
}

/// A lock on its own cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Group(Mutex<Box<[Shard]>>);

/// A locked shard.
pub type Guard<'a> = MappedMutexGuard<'a, Shard>;

/// A sequence of accesses to shards, which keeps the lock of a shard until the next access to another shard.
#[derive(Debug)]
pub struct Batch<'a> {
    engine: &'a Engine,
    /// Bit masks of a shard number: one for its group, the other for its position in the group.
    group_mask: usize,
    place_mask: usize,
    /// Number of the locked group, or a number out of range if no group is locked.
    locked: usize,
    guard: Option<MutexGuard<'a, Box<[Shard]>>>,
}

/// Minimum number of segments per shard in a full engine. A tenth of them form the small queue.
const SEGMENTS_PER_SHARD: u64 = 32;
/// Minimum number of shards per thread. With fewer shards, threads would contend for locks too often.
const SHARDS_PER_THREAD: u64 = 16;
/// Maximum memory of a shard, unless the engine would then have too many shards. A larger shard takes longer
/// to load from a file and to search for keys to evict, but more shards have more partly filled segments.
const SHARD_BYTES: u64 = 64 << 20;

impl Engine {
    /// Creates an empty engine.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let count = shards_count(settings.bytes_max, settings.threads);
        let mut chance = Chance::new(settings.seed);
        let hasher = Hasher::new(chance.next());
        let budget = Arc::new(Budget::new(settings.bytes_max, count));
        let losses = Arc::new(Losses::default());
        let mut shard = || {
            let (budget, losses) = (Arc::clone(&budget), Arc::clone(&losses));
            Shard::new(settings.policy, hasher.clone(), budget, losses, chance.next())
        };
        let groups = if settings.threads > 1 { count } else { 1 };
        let mut group = || Group(Mutex::new((0..count / groups).map(|_| shard()).collect()));
        let groups = (0..groups).map(|_| group()).collect();
        Self {
            groups,
            shards: count,
            seed: settings.seed,
            hasher,
            budget,
            losses,
            policy: AtomicU8::new(settings.policy as u8),
            gives_next: AtomicUsize::new(0),
        }
    }

    /// Prepares a key for lookups.
    #[inline]
    #[must_use]
    pub fn key<'a>(&self, database: Database, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, database, hash: self.hasher.hash(database, bytes) }
    }

    /// The number of the shard that owns a key.
    #[must_use]
    pub fn shard_number(&self, key: &Key<'_>) -> usize {
        key.hash.shard(self.shards)
    }

    /// Locks the shard of a key, for the lifetime of the guard.
    #[inline]
    pub fn lock<'k>(&self, key: &'k Key<'k>) -> Located<'k, Guard<'_>> {
        Located::new(self.shard(self.shard_number(key)), key)
    }

    /// Begins a sequence of accesses. During its lifetime, this thread must not lock a shard in any other
    /// way.
    #[must_use]
    pub fn batch(&self) -> Batch<'_> {
        let (groups, shards) = (self.groups.len(), self.shards);
        let place_mask = if groups == 1 { shards - 1 } else { 0 };
        let (group_mask, locked) = (groups - 1, usize::MAX);
        Batch { engine: self, group_mask, place_mask, locked, guard: None }
    }

    /// Locks the shards one after the other.
    pub fn shards(&self) -> impl Iterator<Item = Guard<'_>> {
        (0..self.shards).map(|number| self.shard(number))
    }

    /// Locks the shards like [`Engine::shards`], but doesn't load pending shards (see [`Engine::restored`]).
    /// A pending shard only has the number of its keys.
    pub fn shards_as_they_are(&self) -> impl Iterator<Item = Guard<'_>> {
        (0..self.shards).map(|number| self.shard_as_is(number))
    }

    /// Removes all keys of all databases, including those not loaded yet. The returned value frees the
    /// memory, which can take a second for ten million keys. A write that needs memory in the meantime frees
    /// as much as it needs.
    #[must_use]
    pub fn clear(&self) -> Cleared {
        self.shards_as_they_are().for_each(|mut shard| {
            let all = shard.take_all();
            self.budget.clear_away(all);
        });
        Cleared(Arc::clone(&self.budget))
    }

    /// Reads at most `items_max` items, beginning with shard `from_shard`, and removes the expired ones.
    /// Returns the shard at which to continue, or `None` if no shard has more expired keys for now.
    pub fn expire(&self, from_shard: usize, items_max: usize, now_ms: u64) -> Option<usize> {
        let mut left = items_max;
        for number in from_shard..self.shards {
            let items = self.shard_as_is(number).expire(left, now_ms);
            left = left.saturating_sub(items);
            if left == 0 {
                return Some(number);
            }
        }
        None
    }

    /// Returns the task that prepares memory ahead of use, to run on its own thread. The task ends when the
    /// engine is dropped.
    #[must_use]
    pub fn preparer(&self) -> Preparer {
        Preparer::new(Arc::clone(&self.budget.pools.supply))
    }

    /// Number of shards.
    #[must_use]
    pub fn shards_count(&self) -> usize {
        self.shards
    }

    /// The seed of the key hash.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn hashing(&self) -> Hashing {
        self.hasher.hashing()
    }

    pub(crate) fn shard(&self, number: usize) -> Guard<'_> {
        let mut shard = self.shard_as_is(number);
        loaded(&mut shard);
        shard
    }

    pub(crate) fn shard_as_is(&self, number: usize) -> Guard<'_> {
        let group = self.groups[self.group_of(number)].0.lock();
        MutexGuard::map(group, |group| &mut group[self.place_in_group(number)])
    }

    /// The group of a shard.
    #[inline]
    fn group_of(&self, number: usize) -> usize {
        number & (self.groups.len() - 1)
    }

    /// The position of a shard in its group.
    #[inline]
    fn place_in_group(&self, number: usize) -> usize {
        if self.groups.len() == 1 { number } else { 0 }
    }

    /// Locks the shards of several keys at once, so that no other thread sees an intermediate state.
    pub fn lock_all<'a>(&self, keys: impl IntoIterator<Item = Key<'a>>) -> Locked<'_> {
        let number = |key: Key<'_>| self.group_of(key.hash.shard(self.shards));
        // With a single group, no key needs to be hashed.
        let keys = keys.into_iter().take(if self.groups.len() == 1 { 1 } else { usize::MAX });
        let mut numbers: Vec<usize> = keys.map(number).collect();
        // The order is always the same, so that two threads can't deadlock.
        numbers.sort_unstable();
        numbers.dedup();
        let guards = numbers.into_iter().map(|number| (number, self.groups[number].0.lock())).collect();
        Locked { guards, engine: self }
    }

    /// Tries to write. If there is no room, evicts from the other shards, then from the shard of `key`, and
    /// tries again. The caller may not hold a guard.
    ///
    /// The function always returns. After a failed attempt, shards free the size of a segment, or as much as
    /// they can; if they free nothing, there is no further attempt. Without other writers, usage falls with
    /// each attempt, so there are at most as many attempts as segments in memory, even if the limit was
    /// lowered below the usage. Concurrent writers may take the freed memory each time, so the number of
    /// attempts is limited, and the write fails after the last one.
    ///
    /// # Errors
    /// If there is no room, and nothing may be evicted.
    pub fn with_room<T>(
        &self,
        key: &Key<'_>,
        now_ms: u64,
        mut write: impl FnMut() -> Result<T, OutOfMemory>,
    ) -> Result<T, OutOfMemory> {
        // Two more attempts: one for remainders smaller than a segment, and one that finds nothing to free.
        let attempts_max = self.bytes_max().max(self.used_bytes()) / SEGMENT_BYTES as u64 + 2;
        for _ in 0..attempts_max {
            match write() {
                Err(OutOfMemory) if self.relieve(key, now_ms) => {}
                done => return done,
            }
        }
        Err(OutOfMemory)
    }

    /// Frees the size of a segment in other shards, and in the shard of `key` last, because that shard has
    /// already tried. Returns whether any memory was freed.
    fn relieve(&self, key: &Key<'_>, now_ms: u64) -> bool {
        let own = key.hash.shard(self.shards);
        let gave = self.begin_anew();
        let mut left_bytes = SEGMENT_BYTES;
        for step in 1..=self.shards {
            let given_bytes = self.shard_as_is((own + step) % self.shards).give(left_bytes, now_ms);
            left_bytes = left_bytes.saturating_sub(given_bytes);
            if left_bytes == 0 {
                break;
            }
        }
        gave || left_bytes < SEGMENT_BYTES
    }

    /// Makes empty shards free the memory that they retain for their next key. Returns whether any memory was
    /// freed.
    fn begin_anew(&self) -> bool {
        // `count` visits all shards; `any` would stop at the first one that frees memory.
        let giving = self.shards_as_they_are().map(|mut shard| shard.begin_anew()).filter(|gave| *gave);
        giving.count() > 0
    }

    /// The eviction policy.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy::ALL[usize::from(self.policy.load(Relaxed))]
    }

    /// Changes the eviction policy. Keys keep their recorded accesses, in the units of the old policy, until
    /// they are accessed again.
    pub fn set_policy(&self, policy: Policy) {
        self.policy.store(policy as u8, Relaxed);
        self.shards_as_they_are().for_each(|mut shard| shard.policy = policy);
        self.watch_limit();
    }

    /// Changes the lifetimes of keys that are written from now on.
    pub fn set_lifetimes(&self, lifetimes: Lifetimes) {
        let lifetimes = Some(lifetimes).filter(|lifetimes| *lifetimes != Lifetimes::default());
        self.shards_as_they_are().for_each(|mut shard| shard.lifetimes = lifetimes);
    }

    /// Bytes in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.budget.used_bytes()
    }

    /// The configured limit.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.budget.unstretched_bytes_max()
    }

    /// Bytes returned to the allocator since the start, from large values and external memory. The allocator
    /// may retain them for a while.
    #[must_use]
    pub fn freed_bytes(&self) -> u64 {
        self.budget.freed_bytes()
    }

    /// Returns whether a value of this length would fit if everything else were evicted.
    #[must_use]
    pub fn could_hold(&self, value_bytes: usize) -> bool {
        self.budget.could_hold(value_bytes)
    }

    /// Returns whether `bytes` more of external memory stay within the limit plus `beyond_bytes`. The result
    /// is always true if the policy can evict every key.
    #[must_use]
    pub fn could_lend(&self, bytes: usize, beyond_bytes: usize) -> bool {
        !self.policy().keeps_keys() || self.budget.could_exceed_by(beyond_bytes, bytes)
    }

    pub(crate) fn could_free(&self, bytes: usize) -> bool {
        self.budget.could_free(bytes)
    }

    /// Charges external memory, such as client buffers, that grew or shrank from `before_bytes` to
    /// `now_bytes`. The next writes evict keys for this memory, or [`Engine::make_up`] does.
    pub fn lend(&self, before_bytes: usize, now_bytes: usize) {
        self.budget.take_anyway(now_bytes);
        self.budget.free(before_bytes);
        self.budget.fix(before_bytes, now_bytes);
    }

    /// Evicts from one shard after the other, at most once each, until usage is within the limit. Call this
    /// function after charging much external memory: otherwise usage exceeds the limit until the next write,
    /// which then has to evict for all of it. The caller may not hold a guard.
    pub fn make_up(&self, now_ms: u64) {
        while self.budget.is_exceeded() && self.budget.free_cleared() {}
        let mut gave = self.budget.is_exceeded() && self.begin_anew();
        for _ in 0..self.shards {
            if !self.budget.is_exceeded() {
                break;
            }
            let number = self.gives_next.fetch_add(1, Relaxed) % self.shards;
            gave |= self.shard_as_is(number).relieve(self.bytes_max(), now_ms);
        }
        self.budget.set_stuck(!gave && self.budget.is_exceeded());
    }

    /// Changes the limit. The next writes evict usage above the new limit. If the limit is less than two
    /// segments per shard (at most a sixteenth of the initial limit), few keys fit; below 2 MiB, no key fits.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.budget.set_bytes_max(bytes_max);
        self.watch_limit();
    }

    /// Number of times that the limit was lowered. Compare this count instead of the limit, which may have
    /// been raised and lowered again in the meantime.
    #[must_use]
    pub fn times_lowered(&self) -> u64 {
        self.budget.times_lowered()
    }

    /// If usage exceeds the limit, makes writes check the budget even if their segments have room, so that
    /// usage falls.
    fn watch_limit(&self) {
        if self.budget.is_exceeded() {
            self.shards_as_they_are().for_each(|mut shard| shard.is_short = true);
        }
    }

    /// Sets whether expired and evicted keys are recorded.
    pub fn collect_removals(&self, removals: Removals) {
        self.losses.collect(removals);
    }

    /// Returns whether there are recorded removals. This call only loads one atomic value.
    #[must_use]
    pub fn has_removed(&self) -> bool {
        self.losses.is_any()
    }

    /// Takes the removals recorded since the last call, in order. Call this function often, because the
    /// number of recorded removals is unlimited.
    #[must_use]
    pub fn take_removed(&self) -> Vec<Removal> {
        self.losses.take()
    }

    /// Sets the minimum size of values to compress. A value is stored compressed only if it becomes smaller.
    /// Values in a segment (up to 16 KiB with their key) are never compressed. `usize::MAX` disables
    /// compression.
    pub fn set_pack_from_bytes(&self, bytes: usize) {
        self.budget.set_pack_from_bytes(bytes);
    }

    /// Prepares a value to be stored. A large value is compressed in this call, without a lock.
    #[must_use]
    pub fn pack(&self, value: Arc<Vec<u8>>) -> Stored {
        if value.len() <= INLINE_BYTES_MAX {
            return Stored::Plain(value);
        }
        Stored::new(value, self.budget.pack_from_bytes())
    }

    /// Returns whether [`Engine::pack`] may compress a value of this size.
    #[must_use]
    pub fn is_to_be_packed(&self, value_bytes: usize) -> bool {
        value_bytes > INLINE_BYTES_MAX && value_bytes >= self.budget.pack_from_bytes()
    }

    /// Counters summed over all shards.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shards_as_they_are().fold(Counts::default(), |mut sum, shard| {
            let counts = shard.counts();
            sum.expect(&counts.keys, &counts.expiring);
            sum.evicted += counts.evicted;
            sum.expired += counts.expired;
            sum
        })
    }
}

impl<'a> Batch<'a> {
    /// Returns the engine of this batch.
    #[must_use]
    pub fn engine(&self) -> &'a Engine {
        self.engine
    }

    /// Locks the shard of a key.
    #[inline]
    pub fn at<'k>(&mut self, key: &'k Key<'k>) -> Located<'k, &mut Shard> {
        Located::new(loaded(self.shard_as_is(key)), key)
    }

    /// Releases the lock until a shard is needed again. In the meantime, other threads may change any shard.
    pub fn release(&mut self) {
        self.guard = None;
        self.locked = usize::MAX;
    }

    /// Prefetches the bucket of a key that will be looked up in about a hundred nanoseconds.
    #[inline]
    pub fn prefetch(&mut self, key: &Key<'_>) -> Hint {
        self.shard_as_is(key).prefetch_bucket(key.hash)
    }

    /// Prefetches the item to which the bucket of the key points. Call it about a hundred nanoseconds after
    /// [`Self::prefetch`].
    #[inline]
    pub fn prefetch_item(&mut self, key: &Key<'_>, hint: &mut Hint) {
        self.shard_as_is(key).prefetch_item(key.hash, hint);
    }

    #[inline]
    fn shard_as_is(&mut self, key: &Key<'_>) -> &mut Shard {
        let number = key.hash.shard(SHARDS_MAX);
        let group = number & self.group_mask;
        if self.locked != group {
            self.change_to(group);
        }
        let shards = self.guard.as_mut().expect("it was locked just now");
        &mut shards[number & self.place_mask]
    }

    #[cold]
    fn change_to(&mut self, group: usize) {
        // The thread releases its lock first: otherwise two threads that switch in opposite directions would
        // deadlock.
        self.guard = None;
        self.guard = Some(self.engine.groups[group].0.lock());
        self.locked = group;
    }
}

/// Number of shards, a power of two.
fn shards_count(bytes_max: u64, threads: usize) -> usize {
    let wanted = (bytes_max / SHARD_BYTES).max((threads as u64).saturating_mul(SHARDS_PER_THREAD));
    let possible = bytes_max / (SEGMENT_BYTES as u64 * SEGMENTS_PER_SHARD);
    let count = wanted.min(possible).clamp(1, SHARDS_MAX as u64);
    1 << count.ilog2()
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.budget.pools.supply.close();
    }
}

/// Loads the shard if it is pending.
#[inline]
fn loaded(shard: &mut Shard) -> &mut Shard {
    if shard.pending.is_some() {
        shard.load();
    }
    shard
}

/// Several locked shards.
#[derive(Debug)]
pub struct Locked<'a> {
    /// The number and the guard of each locked group.
    guards: Vec<(usize, MutexGuard<'a, Box<[Shard]>>)>,
    pub(crate) engine: &'a Engine,
}

impl Locked<'_> {
    /// The shard of one of the locked keys.
    ///
    /// # Panics
    /// If the key was not locked.
    pub fn at<'k>(&mut self, key: &'k Key<'k>) -> Located<'k, &mut Shard> {
        Located::new(self.shard(key), key)
    }

    pub(crate) fn shard(&mut self, key: &Key<'_>) -> &mut Shard {
        let number = self.number_of(key);
        let group = self.engine.group_of(number);
        let found = self.guards.binary_search_by_key(&group, |(locked, _)| *locked);
        let group = &mut self.guards[found.expect("the shard of this key was locked")].1;
        loaded(&mut group[self.engine.place_in_group(number)])
    }

    pub(crate) fn number_of(&self, key: &Key<'_>) -> usize {
        key.hash.shard(self.engine.shards)
    }
}
