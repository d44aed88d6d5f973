//! The tier behind memory, which may be shared with other processes: what memory lacks is asked for there, and what is stored is
//! written there behind the exchange.
//!
//! Clients wait for it once at most, for what they ask for and memory has not; nobody waits until something is written. What is
//! not written yet is seen all the same: `working.rs`. A tier that fails is a miss.

pub(crate) mod answer;
mod behind;
mod copies;
pub(crate) mod counts;
mod doubt;
pub(crate) mod fleet;
mod freeing;
pub(crate) mod leases;
pub(crate) mod load;
mod names;
mod queue;
mod rest;
pub(crate) mod segments;
pub(crate) mod taking;
mod together;
mod touch;
mod working;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use caching::Timestamp;
use store::backing::{Backing, Health};
use store::{Applied, Budget, Change, FillId, Memory};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::answer::Answer;
use self::copies::Flushes;
use self::counts::{Counts, Event, TierCounts};
use self::doubt::Doubt;
use self::fleet::FleetLog;
use self::leases::{Held, LeaseLimits, Leases};
use self::rest::Rest;
use self::segments::TierSegments;
use self::together::Together;
use self::working::{Claim, Known, Limits, Noted, Pending, Theirs, Working};
use crate::cache::epochs::Epochs;
use crate::cache::record::stored::CacheEntry;
use crate::clock::now;

/// What memory does with records that the tier has too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryUse {
    /// They stay until they are evicted.
    Kept,
    /// None stays longer than it is in use, but notes, which the tier does not get.
    Forgotten,
}

/// What is done with fresh copies that the tier cannot vouch for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coherence {
    /// They are used.
    Available,
    /// They are validated at the origin before each use.
    Strict,
}

/// A tier behind memory. It keeps its own deadlines, as [`store::backing::Guarded`] does.
pub struct StartTier {
    /// The tier.
    pub backing: Arc<dyn Backing>,
    /// What stays in memory of what it has.
    pub memory_use: MemoryUse,
    /// What is done with copies while it is away.
    pub coherence: Coherence,
    /// What the operator calls this instance among those that share the tier; up to 64 bytes.
    pub name: String,
    /// How long copies are relied upon after the last sign of life of the tier.
    pub verification: Duration,
    /// How long leases last, and are waited for.
    pub leases: LeaseLimits,
}

/// See the module.
pub(crate) struct Tiers {
    backing: Arc<dyn Backing>,
    segments: TierSegments,
    memory_use: MemoryUse,
    coherence: Coherence,
    working: Working,
    limits: Limits,
    /// Keys that the tier is being asked for.
    loads: Together<Box<[u8]>, Answer>,
    rest: Rest,
    doubt: Arc<Doubt>,
    /// The last look-up got no answer: who has just waited for one is not to wait for a lease, too.
    is_silent: AtomicBool,
    leases: Arc<Leases>,
    flushes: Flushes,
    log: FleetLog,
    epochs: Arc<Epochs>,
    counts: Arc<Counts>,
    /// Tells that something has been written.
    settled: Notify,
    /// Tells a writer that something is to happen.
    wanted: Notify,
    /// What the tier says was written up to this time is not believed: something that nobody noted has happened since. In
    /// milliseconds since 1970, by the clock of the tier.
    outdated_to_ms: AtomicU64,
}

/// Writes that are under way at the same time: a slow one delays few others.
pub(crate) const TIER_WRITERS: usize = 8;
/// How long a process that ends waits for a tier that takes nothing. One that works takes a write in milliseconds; one that was seen to fail is asked again
/// within a second. A process that is told to stop is not to be held up by a tier that is dead.
const STALL_MAX: Duration = Duration::from_secs(2);
/// How long an operator waits for the tier to know of a purge.
const WRITTEN_WAIT_MAX: Duration = Duration::from_secs(1);
/// Of so many keys at most something waits to be written. Where more comes, all that the tier has is outdated.
const PENDING_KEYS_MAX: usize = 10_000;

impl Tiers {
    pub(crate) fn new(tier: StartTier, budget: &Arc<Budget>, epochs: Arc<Epochs>) -> Self {
        let StartTier { backing, memory_use, coherence, name, verification, leases } = tier;
        let (counts, doubt) = (Arc::new(Counts::default()), Arc::new(Doubt::default()));
        let leases =
            Leases::new(Arc::clone(&backing), Arc::clone(&doubt), Arc::clone(&counts), (leases, &name));
        Self {
            log: FleetLog::new(Arc::clone(&backing), &name, verification),
            segments: TierSegments::new(Arc::clone(&backing), Arc::clone(budget), None, Arc::clone(&counts)),
            backing,
            memory_use,
            coherence,
            epochs,
            working: Working::default(),
            limits: Limits { keys_max: PENDING_KEYS_MAX, bytes_max: pending_bytes_max(budget) },
            loads: Together::default(),
            rest: Rest::default(),
            doubt,
            is_silent: AtomicBool::new(false),
            leases: Arc::new(leases),
            flushes: Flushes::default(),
            counts,
            settled: Notify::new(),
            wanted: Notify::new(),
            outdated_to_ms: AtomicU64::new(0),
        }
    }

    pub(crate) fn segments(&self) -> &TierSegments {
        &self.segments
    }

    /// The purges of all that share the tier.
    pub(crate) fn log(&self) -> &FleetLog {
        &self.log
    }

    /// It can be asked.
    pub(crate) fn answers(&self) {
        self.rest.end();
    }

    /// Somebody else has purged something.
    pub(crate) fn heard_purge(&self) {
        self.counts.add(Event::PurgeHeard);
    }

    /// What lies under a key, as far as that is known without asking.
    pub(crate) fn known(&self, key: &[u8]) -> Option<Arc<CacheEntry>> {
        self.working.entry(key)
    }

    /// Waits until nothing is to happen to a key any more, but not for long.
    pub(crate) async fn written(&self, key: &[u8]) {
        let is_over = async {
            loop {
                let settled = self.settled.notified();
                tokio::pin!(settled);
                settled.as_mut().enable();
                if self.working.pending(key).is_none() {
                    return;
                }
                settled.await;
            }
        };
        // A tier that fails has nobody wait for it: what waits to be written is seen all the same.
        let _ = tokio::time::timeout(WRITTEN_WAIT_MAX, is_over).await;
    }

    /// Waits until the tier knows all that has happened, as long as there is hope, and no longer than `limit`. Removals come first.
    pub(crate) async fn drained(&self, limit: Duration) -> Left {
        let end = Instant::now() + limit;
        self.working.removals_first();
        self.wanted.notify_waiters();
        let mut written = (self.writes(), Instant::now());
        loop {
            let settled = self.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if self.working.pending_keys() == 0 || self.rest.lasts_until(end) {
                break;
            }
            let stalled_at = written.1 + STALL_MAX;
            let _ = tokio::time::timeout_at(stalled_at.min(end), settled).await;
            let (writes, now) = (self.writes(), Instant::now());
            if writes != written.0 {
                written = (writes, now);
            }
            if now >= end || now >= written.1 + STALL_MAX {
                break;
            }
        }
        Left { keys: self.working.pending_keys(), removals: self.working.removals() }
    }

    /// Changes with each write that the tier has taken.
    fn writes(&self) -> u64 {
        self.counts.of(Event::Written) + self.counts.of(Event::Removed) + self.segments.written()
    }

    fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// How many keys the tier does not know the last change of.
    pub(crate) fn pending_keys(&self) -> usize {
        self.working.pending_keys()
    }

    /// Whether the tier is still to be told what has happened to a key.
    #[cfg(test)]
    pub(crate) fn is_pending(&self, key: &[u8]) -> bool {
        self.working.pending(key).is_some()
    }

    /// What was asked of the tier.
    pub(crate) fn counts(&self) -> TierCounts {
        self.counts.read(self.working.pending_keys(), self.log.instances())
    }

    /// How the tier does.
    pub(crate) fn health(&self) -> Health {
        let health = self.backing.health();
        Health { is_verified: health.is_verified && self.log.is_followed(), ..health }
    }

    /// Whether the tier may have something under a key.
    pub(crate) fn may_have(&self, key: &[u8]) -> bool {
        !matches!(self.working.known(key), Known::Nothing)
    }

    /// Changes what lies under a key, in memory and behind it. `decide` sees what waits to be written, whether memory has it or not. Where
    /// it was fetched under a lease, it is written only if nobody else has taken that meanwhile.
    pub(crate) fn update(
        &self,
        memory: &Memory<CacheEntry>,
        (key, lease): (&[u8], Option<&Arc<Held>>),
        decide: impl FnOnce(Option<&Arc<CacheEntry>>) -> Change<CacheEntry>,
    ) -> Applied {
        let mut applied = Applied::Kept;
        self.change(memory, key, |current| {
            let change = decide(current);
            applied = self.note_change((key, lease), current, &change);
            change
        });
        applied
    }

    /// Puts a record under a key that says nothing new of responses: a note of what is not stored. The tier is not to know it, for
    /// it is of use for a short time, and of none to who has something stored.
    pub(crate) fn annotate(
        &self,
        memory: &Memory<CacheEntry>,
        key: &[u8],
        decide: impl FnOnce(Option<&Arc<CacheEntry>>) -> Option<Arc<CacheEntry>>,
    ) {
        self.change(memory, key, |current| {
            let Some(entry) = decide(current) else { return Change::Keep };
            if let Some(current) = current {
                entry.copy().take_over(current.copy());
                self.working.replace(key, current, &entry);
            }
            Change::Put(entry)
        });
    }

    /// Changes what memory has of what the tier has, because a purge says so: whoever reads the tier finds that out by itself, and somebody
    /// may have stored something newer there.
    pub(crate) fn purged(
        &self,
        memory: &Memory<CacheEntry>,
        key: &[u8],
        decide: impl FnOnce(Option<&Arc<CacheEntry>>) -> Change<CacheEntry>,
    ) {
        self.change(memory, key, |current| {
            let change = decide(current);
            match (&change, current) {
                (Change::Put(entry), Some(current)) => {
                    entry.copy().take_over(current.copy());
                    self.working.replace(key, current, entry);
                }
                (Change::Remove, _) => self.working.out_of_use(key),
                (Change::Keep | Change::Put(_), _) => {}
            }
            change
        });
    }

    fn change(
        &self,
        memory: &Memory<CacheEntry>,
        key: &[u8],
        decide: impl FnOnce(Option<&Arc<CacheEntry>>) -> Change<CacheEntry>,
    ) {
        memory.update(key, |current| {
            let current = current.cloned().or_else(|| self.working.entry(key));
            match (self.memory_use, decide(current.as_ref())) {
                // Only a note can be there.
                (MemoryUse::Forgotten, Change::Put(entry)) if !entry.variants().is_empty() => Change::Remove,
                (_, change) => change,
            }
        });
    }

    /// What is under a key is out of use, though nobody here knows what it is: it goes.
    pub(crate) fn remove_unknown(&self, key: &[u8]) {
        if matches!(self.working.known(key), Known::Unknown) {
            self.note(key, Pending::Removed);
        }
    }

    fn note_change(
        &self,
        (key, lease): (&[u8], Option<&Arc<Held>>),
        current: Option<&Arc<CacheEntry>>,
        change: &Change<CacheEntry>,
    ) -> Applied {
        match (change, current) {
            (Change::Keep, _) => Applied::Kept,
            (Change::Put(entry), current) if current.is_some_and(|current| Arc::ptr_eq(current, entry)) => {
                Applied::Stored
            }
            (Change::Put(entry), current) => {
                let dropped = current.map(|current| dropped(current, entry)).unwrap_or_default();
                let theirs = Theirs::Kept { dropped };
                let claim = lease.map(Claim::of);
                self.note(key, Pending::Put { entry: Arc::clone(entry), theirs, claim });
                Applied::Stored
            }
            (Change::Remove, current) => {
                self.note(key, Pending::Removed);
                if current.is_some() { Applied::Removed } else { Applied::Absent }
            }
        }
    }

    fn note(&self, key: &[u8], pending: Pending) {
        match self.working.note(key, pending, self.limits) {
            Noted::Taken => self.wanted.notify_one(),
            Noted::Refused => {
                self.counts.add(Event::Refused);
                self.outdated_to_ms.fetch_max(self.tier_ms(now()), Ordering::AcqRel);
            }
        }
    }

    /// A time of this process by the clock of the tier.
    fn tier_ms(&self, at: Timestamp) -> u64 {
        u64::try_from(at.plus_ms(self.clock_ahead_ms()).as_ms()).unwrap_or(0)
    }
}

/// What the tier was not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) keys: usize,
    pub(crate) removals: usize,
}

/// Little enough that what can't be written leaves room for what arrives.
fn pending_bytes_max(budget: &Budget) -> usize {
    usize::try_from(budget.bytes_max() / 8).unwrap_or(usize::MAX)
}

/// Ids of responses that an update has replaced or removed.
fn dropped(before: &CacheEntry, after: &CacheEntry) -> Vec<FillId> {
    let ids = |entry: &CacheEntry| {
        let inputs = entry.variants().iter().filter_map(|variant| variant.head.inputs());
        inputs.map(|inputs| inputs.id).collect::<Vec<_>>()
    };
    let kept = ids(after);
    ids(before).into_iter().filter(|id| !kept.contains(id)).collect()
}
