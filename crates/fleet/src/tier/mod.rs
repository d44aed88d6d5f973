//! Tier behind memory, which several processes may share: a miss in memory looks up there, and stored responses are written there
//! behind the exchange.
//!
//! Clients wait for the tier at most once, on a look-up that memory misses; nobody waits for a write. Look-ups see pending writes
//! (`write_behind.rs`). A failure of the tier is a miss.

mod behind;
mod copies;
pub mod load;
pub mod taking;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use cache::changed::until;
use cache::entry::stored::CacheEntry;
use cache::invalidation::Invalidations;
use cache::{Decide, RemoteTier};
use futures_util::future::join;
use message::clock::now;
use store::backing::{Backing, Health, LogCursor};
use store::{Applied, Budget, Change, FillId, Memory};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::counts::{Counts, Event, TierCounts};
use crate::late_write_guard::LateWriteGuard;
use crate::leases::{HeldLease, LeaseLimits, Leases};
use crate::purge_log::FleetLog;
use crate::segments::TierSegments;
use crate::single_flight::SingleFlight;
use crate::tier::behind::Backoff;
use crate::write_behind::{Claim, Covers, KnownRecord, Limits, Noted, Pending, Theirs, WriteBehind};

/// Policy for records in memory that the tier has too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryUse {
    /// Keeps records until they are evicted.
    Kept,
    /// Keeps no record longer than it is in use, except notes, which the tier does not get.
    Forgotten,
}

/// Policy for fresh copies that the tier cannot vouch for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coherence {
    /// Uses them.
    Available,
    /// Validates them at the origin before each use.
    Strict,
}

/// Settings of a tier behind memory.
pub struct StartTier {
    /// The tier. Keeps its own deadlines, as [`store::backing::Guarded`] does.
    pub backing: Arc<dyn Backing>,
    /// Policy for its records in memory.
    pub memory_use: MemoryUse,
    /// Policy for copies while the tier is away.
    pub coherence: Coherence,
    /// Name of this instance among those that share the tier, for operators; up to 64 bytes.
    pub name: String,
    /// Time for which copies are trusted after the last sign of life of the tier.
    pub verification: Duration,
    /// Lifetime of leases, and the longest wait for one.
    pub leases: LeaseLimits,
}

/// The tier behind memory, with its pending writes, leases and purge log.
pub struct Tier {
    pub(crate) memory: Arc<Memory<CacheEntry>>,
    pub(crate) backing: Arc<dyn Backing>,
    pub segments: TierSegments,
    pub(crate) memory_use: MemoryUse,
    pub(crate) coherence: Coherence,
    pub(crate) write_behind: WriteBehind,
    pub(crate) limits: Limits,
    /// Look-ups in progress, by key.
    pub(crate) loads: SingleFlight<Box<[u8]>, Answer>,
    pub(crate) backoff: Backoff,
    pub(crate) late_writes: Arc<LateWriteGuard>,
    /// Whether the last look-up got no answer. A request that has just waited for one must not wait for a lease too.
    pub(crate) is_silent: AtomicBool,
    pub(crate) leases: Arc<Leases>,
    /// Number of reports that everything may have changed.
    flushes: AtomicU32,
    /// Purge log of all instances that share the tier.
    pub log: FleetLog,
    pub(crate) invalidations: Arc<Invalidations>,
    pub(crate) counts: Arc<Counts>,
    /// Signals that a write has settled.
    pub(crate) settled: Notify,
    /// Wakes a writer for a pending change.
    pub(crate) wanted: Notify,
    /// Records that were written up to this time are ignored, because a later change could not be noted. Milliseconds since 1970, by
    /// the clock of the tier.
    pub(crate) outdated_to_ms: AtomicU64,
}

/// Concurrent writes: a slow one delays few others.
pub const TIER_WRITERS: usize = 8;
/// Longest wait without progress when the process ends. A tier that works takes a write in milliseconds, and one that failed is tried
/// again within a second; a dead one must not hold up the shutdown.
const STALL_MAX: Duration = Duration::from_secs(2);
/// Longest time that an operator waits until the tier has a purge.
const WRITTEN_WAIT_MAX: Duration = Duration::from_secs(1);
/// Most keys with a pending change. Beyond them, everything that the tier has counts as outdated.
const PENDING_KEYS_MAX: usize = 10_000;

impl Tier {
    /// Opens the tier behind a memory.
    pub fn new(tier: StartTier, memory: Arc<Memory<CacheEntry>>, invalidations: Arc<Invalidations>) -> Self {
        let budget = memory.budget();
        let StartTier { backing, memory_use, coherence, name, verification, leases } = tier;
        let (counts, late_writes) = (Arc::new(Counts::default()), Arc::new(LateWriteGuard::default()));
        let leases =
            Leases::new(Arc::clone(&backing), Arc::clone(&late_writes), Arc::clone(&counts), (leases, &name));
        Self {
            log: FleetLog::new(Arc::clone(&backing), &name, verification),
            segments: TierSegments::new(Arc::clone(&backing), Arc::clone(budget), Arc::clone(&counts)),
            backing,
            memory_use,
            coherence,
            invalidations,
            write_behind: WriteBehind::default(),
            limits: Limits { keys_max: PENDING_KEYS_MAX, bytes_max: pending_bytes_max(budget) },
            loads: SingleFlight::default(),
            backoff: Backoff::default(),
            late_writes,
            is_silent: AtomicBool::new(false),
            leases: Arc::new(leases),
            flushes: AtomicU32::new(0),
            counts,
            settled: Notify::new(),
            wanted: Notify::new(),
            outdated_to_ms: AtomicU64::new(0),
            memory,
        }
    }

    /// Ends the back-off and wakes the writers.
    pub fn answers(&self) {
        self.backoff.end();
    }

    /// Counts a purge by another instance.
    pub fn heard_purge(&self) {
        self.counts.add(Event::PurgeHeard);
    }

    /// Waits until no change to a key is pending, for at most a second.
    pub async fn written(&self, key: &[u8]) {
        let is_over = until(&self.settled, || self.write_behind.pending(key).is_none().then_some(()));
        // Nobody waits longer for a tier that fails: look-ups see the pending change all the same.
        let _ = tokio::time::timeout(WRITTEN_WAIT_MAX, is_over).await;
    }

    /// Waits at the end of the process until the tier knows what is stored, no longer than `limit`.
    pub async fn drain(&self, limit: Duration, store: &str) {
        let end = Instant::now() + limit;
        let waiting = self.write_behind.pending_keys();
        // A purge that is lost leaves stale responses in use, so it gets all of the time.
        let (Left { keys, removals }, purges) = join(self.drained(limit), self.log.flush(end)).await;
        if purges > 0 {
            tracing::warn!(
                store,
                purges,
                "stopped before all purges reached the shared store: other instances go on using what they purge"
            );
        }
        if keys > 0 {
            tracing::warn!(store, keys, removals, "stopped before all changes reached the shared store");
        } else if waiting > 0 {
            tracing::info!(store, keys = waiting, "write-behind queue flushed");
        }
        // No purge should wait for this instance.
        if let Err(error) = self.log.fleet.leave().await {
            tracing::info!(store, %error, "other instances are not told of the end: purges wait for this one for a while");
        }
    }

    /// Waits until the tier has every pending change, while it makes progress and for at most `limit`. Removals come first.
    pub async fn drained(&self, limit: Duration) -> Left {
        let end = Instant::now() + limit;
        self.write_behind.removals_first();
        self.wanted.notify_waiters();
        let mut written = (self.writes(), Instant::now());
        loop {
            let settled = self.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if self.write_behind.pending_keys() == 0 || self.backoff.lasts_until(end) {
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
        Left { keys: self.write_behind.pending_keys(), removals: self.write_behind.removals() }
    }

    /// Number of writes that the tier has taken.
    pub(crate) fn writes(&self) -> u64 {
        self.counts.of(Event::Written) + self.counts.of(Event::Removed) + self.segments.written()
    }

    /// Whether a change to a key is pending.
    #[cfg(any(test, feature = "test-double"))]
    pub fn is_pending(&self, key: &[u8]) -> bool {
        self.write_behind.pending(key).is_some()
    }

    /// Counts of operations on the tier.
    pub fn counts(&self) -> TierCounts {
        // As many bits of the id as a floating-point number holds.
        let number =
            |read: LogCursor| u64::from_be_bytes(*read.id.0.first_chunk().expect("it has 16 bytes")) >> 16;
        let log = self.invalidations.log_read().map(number);
        TierCounts { log, ..self.counts.read(self.write_behind.pending_keys(), self.log.fleet.known()) }
    }

    /// State of the tier. Verified only while its purge log is read in time too.
    pub fn health(&self) -> Health {
        let health = self.backing.health();
        Health { is_verified: health.is_verified && self.log.is_followed(), ..health }
    }

    /// Whether the tier may have a record under a key.
    pub fn may_have(&self, key: &[u8]) -> bool {
        !matches!(self.write_behind.known(key), KnownRecord::Nothing)
    }

    /// Changes the record under a key, in memory and in the tier, with a response that was fetched under a lease: it is written only if
    /// nobody else has taken the lease meanwhile.
    pub fn update_under(
        &self,
        (key, lease): (&[u8], Option<&Arc<HeldLease>>),
        decide: impl FnOnce(Option<&Arc<CacheEntry>>) -> Change<CacheEntry>,
    ) -> Applied {
        let mut applied = Applied::Kept;
        self.change(key, |current| {
            let change = decide(current);
            applied = self.note_change((key, lease), current, &change);
            change
        });
        applied
    }

    fn change(&self, key: &[u8], decide: impl FnOnce(Option<&Arc<CacheEntry>>) -> Change<CacheEntry>) {
        self.memory.update(key, |current| {
            let current = current.cloned().or_else(|| self.write_behind.entry(key));
            match (self.memory_use, decide(current.as_ref())) {
                // Memory holds only notes here.
                (MemoryUse::Forgotten, Change::Put(entry)) if !entry.variants().is_empty() => Change::Remove,
                (_, change) => change,
            }
        });
    }

    pub(crate) fn note_change(
        &self,
        (key, lease): (&[u8], Option<&Arc<HeldLease>>),
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
                let claim = lease.map(|held| Claim { held: Arc::clone(held), covers: Covers::All });
                self.note(key, Pending::Put { entry: Arc::clone(entry), theirs, claim });
                Applied::Stored
            }
            (Change::Remove, current) => {
                self.note(key, Pending::Removed);
                if current.is_some() { Applied::Removed } else { Applied::Absent }
            }
        }
    }

    pub(crate) fn note(&self, key: &[u8], pending: Pending) {
        match self.write_behind.note(key, pending, self.limits) {
            Noted::Taken => self.wanted.notify_one(),
            Noted::Refused => {
                self.counts.add(Event::Refused);
                let tier_ms = u64::try_from(now().plus_ms(self.tier_clock_ahead_ms()).as_ms()).unwrap_or(0);
                self.outdated_to_ms.fetch_max(tier_ms, Ordering::AcqRel);
            }
        }
    }
}

impl RemoteTier for Tier {
    fn pending(&self, key: &[u8]) -> Option<Arc<CacheEntry>> {
        self.write_behind.entry(key)
    }

    fn update(&self, key: &[u8], decide: Decide<'_>) -> Applied {
        self.update_under((key, None), decide)
    }

    fn update_in_memory(&self, key: &[u8], decide: Decide<'_>) {
        self.change(key, |current| {
            let change = decide(current);
            match (&change, current) {
                // The record gets the place of the current one, with what is known of the copy.
                (Change::Put(entry), Some(current)) => {
                    entry.copy.take_over(&current.copy);
                    self.write_behind.replace(key, current, entry);
                }
                (Change::Remove, _) => self.write_behind.out_of_use(key),
                (Change::Keep | Change::Put(_), _) => {}
            }
            change
        });
    }

    fn remove_unknown(&self, key: &[u8]) {
        if matches!(self.write_behind.known(key), KnownRecord::Unknown) {
            self.note(key, Pending::Removed);
        }
    }
}

/// Changes that never reached the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    pub keys: usize,
    pub removals: usize,
}

/// An eighth of the budget, so that pending records leave room for new ones.
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
