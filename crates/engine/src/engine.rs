//! All shards together: what workers share.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::budget::Budget;
use crate::chance::Chance;
use crate::hash::{Database, Hasher, Key, SHARDS_MAX};
use crate::losses::{Losses, Removal, Removals};
use crate::policy::Policy;
use crate::segment::SEGMENT_BYTES;
use crate::shard::{Counts, Shard};

/// How an engine begins.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes that index, keys and values may take together.
    pub bytes_max: u64,
    /// What is evicted when they are taken.
    pub policy: Policy,
    /// For hashes and samples. Unknown to clients, or they could choose keys that collide.
    pub seed: u64,
}

/// A set of keys in shards, each under a lock of its own.
#[derive(Debug)]
pub struct Engine {
    shards: Box<[Aligned]>,
    seed: u64,
    hasher: Hasher,
    budget: Arc<Budget>,
    losses: Arc<Losses>,
    policy: Policy,
}

/// A lock that shares its cache line with no other.
#[derive(Debug)]
#[repr(align(128))]
struct Aligned(Mutex<Shard>);

/// A shard has at least so many segments when memory is full: a tenth of them is the small queue.
const SEGMENTS_PER_SHARD: u64 = 32;

impl Engine {
    /// An empty one.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let count = settings.bytes_max / (SEGMENT_BYTES as u64 * SEGMENTS_PER_SHARD);
        let count = usize::try_from(count).unwrap_or(SHARDS_MAX).clamp(1, SHARDS_MAX);
        let count = 1 << count.ilog2();
        let mut chance = Chance::new(settings.seed);
        let hasher = Hasher::new(chance.next());
        let budget = Arc::new(Budget::new(settings.bytes_max));
        let losses = Arc::new(Losses::default());
        let mut shard = || {
            let (budget, losses) = (Arc::clone(&budget), Arc::clone(&losses));
            Shard::new(settings.policy, hasher.clone(), budget, losses, chance.next())
        };
        let shards = (0..count).map(|_| Aligned(Mutex::new(shard()))).collect();
        Self { shards, seed: settings.seed, hasher, budget, losses, policy: settings.policy }
    }

    /// A key, to be looked for in its shard.
    #[inline]
    #[must_use]
    pub fn key<'a>(&self, database: Database, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, database, hash: self.hasher.hash(database, bytes) }
    }

    /// The shard of a key, for as long as the guard lives.
    #[inline]
    pub fn lock(&self, key: &Key<'_>) -> MutexGuard<'_, Shard> {
        self.shard(key.hash.shard(self.shards.len()))
    }

    /// One shard after the other, each under its lock.
    pub fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        (0..self.shards.len()).map(|number| self.shard(number))
    }

    /// Those that are not loaded yet too (see [`Engine::restored`]): they know how many keys they will have, and nothing more.
    pub fn shards_as_they_are(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        (0..self.shards.len()).map(|number| self.shard_as_is(number))
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards_count(&self) -> usize {
        self.shards.len()
    }

    /// What keys are hashed with.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn shard(&self, number: usize) -> MutexGuard<'_, Shard> {
        let mut shard = self.shard_as_is(number);
        if shard.pending.is_some() {
            shard.load();
        }
        shard
    }

    pub(crate) fn shard_as_is(&self, number: usize) -> MutexGuard<'_, Shard> {
        self.shards[number].0.lock()
    }

    pub(crate) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// The shards of several keys at once: nobody sees a state in between.
    pub fn lock_all<'a>(&self, keys: impl IntoIterator<Item = Key<'a>>) -> Locked<'_> {
        let mut numbers: Vec<usize> = keys.into_iter().map(|key| key.hash.shard(self.shards.len())).collect();
        // Always in this order, so that two who want the same shards never wait for each other.
        numbers.sort_unstable();
        numbers.dedup();
        let guards = numbers.into_iter().map(|number| (number, self.shard(number))).collect();
        Locked { guards, shards: self.shards.len() }
    }

    /// Evicts from other shards than that of `key`, which has nothing to evict, about a segment's worth; whether
    /// there was anything. No guard may be held.
    pub fn relieve(&self, key: &Key<'_>, now_ms: u64) -> bool {
        let own = key.hash.shard(self.shards.len());
        let others = (1..self.shards.len()).map(|step| (own + step) % self.shards.len());
        let mut gave = false;
        for other in others {
            gave |= self.shard_as_is(other).relieve(now_ms);
            if gave && !self.budget.is_exceeded() {
                break;
            }
        }
        gave
    }

    /// What is evicted when memory is full.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Bytes that are taken.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.budget.used_bytes()
    }

    /// Bytes that may be taken.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.budget.bytes_max()
    }

    /// Whether a value of this length has room when all else is evicted.
    #[must_use]
    pub fn could_hold(&self, value_bytes: usize) -> bool {
        self.budget.could_hold(value_bytes)
    }

    /// Counts memory that is not the engine's own, such as buffers of clients, as taken: what took `before_bytes` takes
    /// `now_bytes` now. Keys make room for it with the next writes.
    pub fn lend(&self, before_bytes: usize, now_bytes: usize) {
        self.budget.take_anyway(now_bytes);
        self.budget.give_back(before_bytes);
    }

    /// Changes the limit; what is over it is evicted with the next writes.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.budget.set_bytes_max(bytes_max);
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

/// Several shards under their locks.
#[derive(Debug)]
pub struct Locked<'a> {
    guards: Vec<(usize, MutexGuard<'a, Shard>)>,
    shards: usize,
}

impl Locked<'_> {
    /// The shard of one of the keys that were locked.
    ///
    /// # Panics
    /// For another key.
    pub fn shard(&mut self, key: &Key<'_>) -> &mut Shard {
        let number = self.number_of(key);
        let found = self.guards.binary_search_by_key(&number, |(locked, _)| *locked);
        &mut self.guards[found.expect("the shard of this key was locked")].1
    }

    pub(crate) fn number_of(&self, key: &Key<'_>) -> usize {
        key.hash.shard(self.shards)
    }
}
