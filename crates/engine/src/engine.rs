//! All shards together: what workers share.

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

/// How an engine begins.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes that index, keys and values may take together.
    pub bytes_max: u64,
    /// What is evicted when they are taken.
    pub policy: Policy,
    /// For hashes and samples. Unknown to clients, or they could choose keys that collide.
    pub seed: u64,
    /// That use it at the same time, most of the time. A single one gets all shards with one lock.
    pub threads: usize,
}

/// A set of keys in shards, each under a lock of its own, or all under one.
#[derive(Debug)]
pub struct Engine {
    /// The shards that have one lock in common. As many as there are shards, or one.
    groups: Box<[Group]>,
    /// A power of two.
    shards: usize,
    seed: u64,
    hasher: Hasher,
    pub(crate) budget: Arc<Budget>,
    losses: Arc<Losses>,
    /// By its place among all.
    policy: AtomicU8,
    /// Counts on: which shard is the next to make room for what was lent.
    gives_next: AtomicUsize,
}

/// What was in an engine, and takes memory until this is dropped, or until a write needs it.
#[derive(Debug)]
pub struct Cleared(Arc<Budget>);

impl Cleared {
    /// Frees a part of it; whether there was one.
    pub fn free_some(&mut self) -> bool {
        self.0.free_cleared()
    }
}

impl Drop for Cleared {
    fn drop(&mut self) {
        while self.free_some() {}
    }
}

/// A lock that shares its cache line with no other.
#[derive(Debug)]
#[repr(align(128))]
struct Group(Mutex<Box<[Shard]>>);

/// A shard under its lock.
pub type Guard<'a> = MappedMutexGuard<'a, Shard>;

/// Shards that are used one after the other, by many calls: a lock is kept until another is needed.
#[derive(Debug)]
pub struct Batch<'a> {
    engine: &'a Engine,
    /// Which bits of the number of a shard are that of its group, and which its place there.
    group_mask: usize,
    place_mask: usize,
    /// The number of the group that is locked; above all numbers: none.
    locked: usize,
    guard: Option<MutexGuard<'a, Box<[Shard]>>>,
}

/// A shard has at least so many segments when memory is full: a tenth of them is the small queue.
const SEGMENTS_PER_SHARD: u64 = 32;
/// With fewer, two threads would want the same too often.
const SHARDS_PER_THREAD: u64 = 16;
/// What a shard has of the memory at most, as far as there may be so many shards. Each fills a segment of its own; but to load a shard from a
/// file and to choose what is evicted takes the longer, the more is in it.
const SHARD_BYTES: u64 = 64 << 20;

impl Engine {
    /// An empty one.
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

    /// A key, to be looked for in its shard.
    #[inline]
    #[must_use]
    pub fn key<'a>(&self, database: Database, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, database, hash: self.hasher.hash(database, bytes) }
    }

    /// Which of the shards a key belongs to.
    #[must_use]
    pub fn shard_number(&self, key: &Key<'_>) -> usize {
        key.hash.shard(self.shards)
    }

    /// A key in its shard, for as long as the guard lives.
    #[inline]
    pub fn lock<'k>(&self, key: &'k Key<'k>) -> Located<'k, Guard<'_>> {
        Located::new(self.shard(self.shard_number(key)), key)
    }

    /// For calls that follow each other at once. While it lives, nothing else of this thread may lock a shard.
    #[must_use]
    pub fn batch(&self) -> Batch<'_> {
        let (groups, shards) = (self.groups.len(), self.shards);
        let place_mask = if groups == 1 { shards - 1 } else { 0 };
        let (group_mask, locked) = (groups - 1, usize::MAX);
        Batch { engine: self, group_mask, place_mask, locked, guard: None }
    }

    /// One shard after the other, each under its lock.
    pub fn shards(&self) -> impl Iterator<Item = Guard<'_>> {
        (0..self.shards).map(|number| self.shard(number))
    }

    /// Those that are not loaded yet too (see [`Engine::restored`]): they know how many keys they will have, and nothing more.
    pub fn shards_as_they_are(&self) -> impl Iterator<Item = Guard<'_>> {
        (0..self.shards).map(|number| self.shard_as_is(number))
    }

    /// Removes all keys of all databases, those that are not loaded yet too. What they took is freed by whoever has what is
    /// given, which can take a second for ten million keys. A write that finds no room meanwhile frees as much of it as it needs.
    #[must_use]
    pub fn clear(&self) -> Cleared {
        self.shards_as_they_are().for_each(|mut shard| {
            let all = shard.take_all();
            self.budget.clear_away(all);
        });
        Cleared(Arc::clone(&self.budget))
    }

    /// Gives up what has expired among so many items, beginning with this shard; where to go on, or `None`: all is done for
    /// now.
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

    /// What makes memory ready before it is needed, on a thread of its own. It ends when the engine is dropped.
    #[must_use]
    pub fn preparer(&self) -> Preparer {
        Preparer::new(Arc::clone(&self.budget.pools.supply))
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards_count(&self) -> usize {
        self.shards
    }

    /// What keys are hashed with.
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

    /// The place of a shard in its group.
    #[inline]
    fn place_in_group(&self, number: usize) -> usize {
        if self.groups.len() == 1 { number } else { 0 }
    }

    /// The shards of several keys at once: nobody sees a state in between.
    pub fn lock_all<'a>(&self, keys: impl IntoIterator<Item = Key<'a>>) -> Locked<'_> {
        let number = |key: Key<'_>| self.group_of(key.hash.shard(self.shards));
        // Where there is one, no key has to be hashed for it.
        let keys = keys.into_iter().take(if self.groups.len() == 1 { 1 } else { usize::MAX });
        let mut numbers: Vec<usize> = keys.map(number).collect();
        // Always in this order, so that two who want the same shards never wait for each other.
        numbers.sort_unstable();
        numbers.dedup();
        let guards = numbers.into_iter().map(|number| (number, self.groups[number].0.lock())).collect();
        Locked { guards, engine: self }
    }

    /// Tries to write, and has other shards than that of `key` make room for it. No guard may be held.
    ///
    /// It ends: after each attempt but the last, shards have given back a segment's worth, or all that they can; if they gave nothing, it was the
    /// last. Where nobody else writes, they have less each time, and so there are no more attempts than segments in all of the memory, also if the
    /// limit was lowered and more is in use. Where others write too, they may take what was given, as often as they like; so attempts are counted,
    /// and who was too late as often as that is refused.
    ///
    /// # Errors
    /// When there is no room, and nothing that may be evicted for it.
    pub fn with_room<T>(
        &self,
        key: &Key<'_>,
        now_ms: u64,
        mut write: impl FnMut() -> Result<T, OutOfMemory>,
    ) -> Result<T, OutOfMemory> {
        // One more for what is left in shards that have less than a segment's worth, and one to find that out.
        let attempts_max = self.bytes_max().max(self.used_bytes()) / SEGMENT_BYTES as u64 + 2;
        for _ in 0..attempts_max {
            match write() {
                Err(OutOfMemory) if self.relieve(key, now_ms) => {}
                done => return done,
            }
        }
        Err(OutOfMemory)
    }

    /// Has shards give back a segment's worth, that of `key` last, which has tried already; whether they gave anything.
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

    /// Has shards without keys give back what they keep: with the next key, each would need it. Whether that was anything.
    fn begin_anew(&self) -> bool {
        // All of them, not only the first that gives something.
        let giving = self.shards_as_they_are().map(|mut shard| shard.begin_anew()).filter(|gave| *gave);
        giving.count() > 0
    }

    /// What is evicted when memory is full.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy::ALL[usize::from(self.policy.load(Relaxed))]
    }

    /// Changes what is evicted. What was counted until now is used as it is, until uses have brought it up to date.
    pub fn set_policy(&self, policy: Policy) {
        self.policy.store(policy as u8, Relaxed);
        self.shards_as_they_are().for_each(|mut shard| shard.policy = policy);
        self.watch_limit();
    }

    /// Changes how long keys live that are written from now on.
    pub fn set_lifetimes(&self, lifetimes: Lifetimes) {
        let lifetimes = Some(lifetimes).filter(|lifetimes| *lifetimes != Lifetimes::default());
        self.shards_as_they_are().for_each(|mut shard| shard.lifetimes = lifetimes);
    }

    /// Bytes that are taken.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.budget.used_bytes()
    }

    /// Bytes that may be taken.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.budget.unstretched_bytes_max()
    }

    /// Bytes that the allocator has got back, all since the begin: of large values that are gone, and of what was lent. It may keep them for a
    /// while.
    #[must_use]
    pub fn freed_bytes(&self) -> u64 {
        self.budget.freed_bytes()
    }

    /// Whether a value of this length has room when all else is evicted.
    #[must_use]
    pub fn could_hold(&self, value_bytes: usize) -> bool {
        self.budget.could_hold(value_bytes)
    }

    /// Whether so many bytes more may be lent, where keys may have to stay: no more is in use than the limit and `beyond_bytes` then.
    #[must_use]
    pub fn could_lend(&self, bytes: usize, beyond_bytes: usize) -> bool {
        !self.policy().keeps_keys() || self.budget.could_exceed_by(beyond_bytes, bytes)
    }

    pub(crate) fn could_free(&self, bytes: usize) -> bool {
        self.budget.could_free(bytes)
    }

    /// Counts memory that is not the engine's own, such as buffers of clients, as taken: what took `before_bytes` takes
    /// `now_bytes` now. Keys make room for it with the next writes, or for [`Engine::make_up`].
    pub fn lend(&self, before_bytes: usize, now_bytes: usize) {
        self.budget.take_anyway(now_bytes);
        self.budget.free(before_bytes);
        self.budget.fix(before_bytes, now_bytes);
    }

    /// Evicts from one shard after the other, until no more is in use than may be; each gives once at most. For who has lent much: what
    /// all have lent until the next write would have to be evicted for that one alone, and would have taken memory beside the keys until
    /// then. No guard may be held.
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

    /// Changes the limit; what is over it is evicted with the next writes. With less than two segments for each shard, which is a sixteenth at most of
    /// what it has begun with, few keys have room; below 2 MiB none.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.budget.set_bytes_max(bytes_max);
        self.watch_limit();
    }

    /// How often a limit was set that is lower than the one before. A limit alone does not tell: it may have been raised and lowered again.
    #[must_use]
    pub fn times_lowered(&self) -> u64 {
        self.budget.times_lowered()
    }

    /// Writes ask for room from now on, also where segments have some: less may be in use now than before.
    fn watch_limit(&self) {
        if self.budget.is_exceeded() {
            self.shards_as_they_are().for_each(|mut shard| shard.is_short = true);
        }
    }

    /// From now on keys that are gone without being removed are collected, or forgotten.
    pub fn collect_removals(&self, removals: Removals) {
        self.losses.collect(removals);
    }

    /// Whether there are any to take: one load.
    #[must_use]
    pub fn has_removed(&self) -> bool {
        self.losses.is_any()
    }

    /// What was collected since the last call, in order. Who collects must take them often: they have no limit.
    #[must_use]
    pub fn take_removed(&self) -> Vec<Removal> {
        self.losses.take()
    }

    /// Values of at least so many bytes that are set from now on are kept compressed, where that makes them smaller. Those that lie in a
    /// segment (16 KiB with their key) never are. `usize::MAX`: none.
    pub fn set_pack_from_bytes(&self, bytes: usize) {
        self.budget.set_pack_from_bytes(bytes);
    }

    /// Makes a value ready to be stored: a large one is packed here, where no lock is held.
    #[must_use]
    pub fn pack(&self, value: Arc<Vec<u8>>) -> Stored {
        if value.len() <= INLINE_BYTES_MAX {
            return Stored::Plain(value);
        }
        Stored::new(value, self.budget.pack_from_bytes())
    }

    /// Whether [`Engine::pack`] may have something to do for so many bytes.
    #[must_use]
    pub fn is_to_be_packed(&self, value_bytes: usize) -> bool {
        value_bytes > INLINE_BYTES_MAX && value_bytes >= self.budget.pack_from_bytes()
    }

    /// What all shards count.
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
    /// Of all shards.
    #[must_use]
    pub fn engine(&self) -> &'a Engine {
        self.engine
    }

    /// The shard of a key.
    #[inline]
    pub fn at<'k>(&mut self, key: &'k Key<'k>) -> Located<'k, &mut Shard> {
        Located::new(loaded(self.shard_as_is(key)), key)
    }

    /// Locks nothing until a shard is needed again. Between two calls others may have changed any of them.
    pub fn release(&mut self) {
        self.guard = None;
        self.locked = usize::MAX;
    }

    /// Tells the processor that this key will be looked for in about a hundred nanoseconds.
    #[inline]
    pub fn prefetch(&mut self, key: &Key<'_>) -> Hint {
        self.shard_as_is(key).prefetch_bucket(key.hash)
    }

    /// The same for what lies where the bucket of the key points to: another hundred nanoseconds later.
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
        // The one that is held is given back before: two who change from one to the other would wait for each other.
        self.guard = None;
        self.guard = Some(self.engine.groups[group].0.lock());
        self.locked = group;
    }
}

/// A power of two.
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

/// A shard whose keys are there.
#[inline]
fn loaded(shard: &mut Shard) -> &mut Shard {
    if shard.pending.is_some() {
        shard.load();
    }
    shard
}

/// Several shards under their locks.
#[derive(Debug)]
pub struct Locked<'a> {
    /// Numbers of groups, and the groups.
    guards: Vec<(usize, MutexGuard<'a, Box<[Shard]>>)>,
    pub(crate) engine: &'a Engine,
}

impl Locked<'_> {
    /// The shard of one of the keys that were locked.
    ///
    /// # Panics
    /// For another key.
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
