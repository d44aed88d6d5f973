//! Tier behind memory, which several processes may share. The tier is queried after a miss in memory, and stored responses are written to
//! it after the exchange.
//!
//! A client waits for the tier at most once, during a look-up that misses in memory, and never for a write. Look-ups see pending writes
//! (`write_behind.rs`). A failure of the tier counts as a miss.

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
use crate::regions::{Region, StartRegion};
use crate::segments::TierSegments;
use crate::single_flight::SingleFlight;
use crate::tier::behind::Backoff;
use crate::write_behind::{Claim, Covers, KnownRecord, Limits, Noted, Pending, Theirs, WriteBehind};

/// Policy for records in memory that are also in the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryUse {
    /// Keeps records until they are evicted.
    Kept,
    /// Drops records as soon as they are no longer in use. Notes are kept, because they aren't written to the tier.
    Forgotten,
}

/// Policy for fresh copies that can't be verified with the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coherence {
    /// Uses a fresh copy without verification.
    Available,
    /// Validates a fresh copy at the origin before each use.
    Strict,
}

/// Settings of a tier behind memory.
pub struct StartTier {
    /// The tier. The tier has to enforce its own deadlines, as [`store::backing::Guarded`] does.
    pub backing: Arc<dyn Backing>,
    /// Policy for the tier's records in memory.
    pub memory_use: MemoryUse,
    /// Policy for copies while the tier is unreachable.
    pub coherence: Coherence,
    /// Name of this instance among those that share the tier, for operators; at most 64 bytes.
    pub name: String,
    /// Time for which copies are trusted after the last message from the tier.
    pub verification: Duration,
    /// Lifetime of leases, and the maximum wait for one.
    pub leases: LeaseLimits,
    /// Region of the tier, if there are several.
    pub region: Option<StartRegion>,
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
    /// Whether the last look-up got no answer. A request that has just waited for an answer in vain must not wait for a lease as well.
    pub(crate) is_silent: AtomicBool,
    pub(crate) leases: Arc<Leases>,
    /// Number of reports that any record may have changed.
    flushes: AtomicU32,
    /// Purge log of all instances that share the tier.
    pub log: Arc<FleetLog>,
    /// Region of the tier, if there are several.
    pub region: Option<Arc<Region>>,
    pub(crate) invalidations: Arc<Invalidations>,
    pub(crate) counts: Arc<Counts>,
    /// Notified when a pending change is complete.
    pub(crate) settled: Notify,
    /// Wakes a writer for a pending change.
    pub(crate) wanted: Notify,
    /// Records written up to this time are ignored, because a later change had no room among the pending ones. The time is in milliseconds
    /// since 1970, by the tier's clock.
    pub(crate) outdated_to_ms: AtomicU64,
}

/// Number of concurrent writers, so that a slow write delays few others.
pub const TIER_WRITERS: usize = 8;
/// Maximum wait without progress during shutdown. A working tier completes a write in milliseconds, and a failed write is retried within a
/// second; an unreachable tier must not delay the shutdown.
const STALL_MAX: Duration = Duration::from_secs(2);
/// Maximum time that an operator waits until the tier has applied a purge.
const WRITTEN_WAIT_MAX: Duration = Duration::from_secs(1);
/// Maximum number of keys with a pending change. If there are more, all records in the tier count as outdated.
const PENDING_KEYS_MAX: usize = 10_000;

impl Tier {
    /// Opens the tier behind a memory.
    pub fn new(tier: StartTier, memory: Arc<Memory<CacheEntry>>, invalidations: Arc<Invalidations>) -> Self {
        let budget = memory.budget();
        let StartTier { backing, memory_use, coherence, name, verification, leases, region } = tier;
        let (counts, late_writes) = (Arc::new(Counts::default()), Arc::new(LateWriteGuard::default()));
        let leases =
            Leases::new(Arc::clone(&backing), Arc::clone(&late_writes), Arc::clone(&counts), (leases, &name));
        let log = Arc::new(FleetLog::new(Arc::clone(&backing), &name, verification));
        let region = region.map(|region| Region::new(region, Arc::clone(&log), Arc::clone(&invalidations)));
        Self {
            log,
            segments: TierSegments::new(Arc::clone(&backing), Arc::clone(budget), Arc::clone(&counts)),
            region: region.map(Arc::new),
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
        // Look-ups see the pending change, so an operator doesn't have to wait longer for a failing tier.
        let _ = tokio::time::timeout(WRITTEN_WAIT_MAX, is_over).await;
    }

    /// Waits during shutdown until the tier has received all stored responses, no longer than `limit`.
    pub async fn drain(&self, limit: Duration, store: &str) {
        let end = Instant::now() + limit;
        let waiting = self.write_behind.pending_keys();
        // If purges are lost, other instances keep using purged responses, so flushing purges may take the whole time.
        let (Left { keys, removals }, purges) = join(self.drained(limit), self.log.flush(end)).await;
        if purges > 0 {
            tracing::warn!(
                store,
                purges,
                "stopped before all purges reached the shared store: other instances still use the purged responses"
            );
        }
        if keys > 0 {
            tracing::warn!(store, keys, removals, "stopped before all changes reached the shared store");
        } else if waiting > 0 {
            tracing::info!(store, keys = waiting, "write-behind queue flushed");
        }
        if let Some(region) = &self.region {
            region.resign().await;
        }
        // After this, purges by other instances no longer wait for this instance.
        if let Err(error) = self.log.fleet.leave().await {
            tracing::info!(store, %error, "could not sign off from the shared store: purges wait until this instance's record expires");
        }
    }

    /// Waits until the tier has received every pending change, as long as it makes progress and for at most `limit`. Removals go first.
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

    /// Returns the number of writes that the tier has accepted.
    pub(crate) fn writes(&self) -> u64 {
        self.counts.of(Event::Written) + self.counts.of(Event::Removed) + self.segments.written()
    }

    /// Returns whether a change to a key is pending.
    #[cfg(any(test, feature = "test-double"))]
    pub fn is_pending(&self, key: &[u8]) -> bool {
        self.write_behind.pending(key).is_some()
    }

    /// Returns the counts of operations on the tier.
    pub fn counts(&self) -> TierCounts {
        // The number has only as many bits of the id as a floating-point number can represent.
        let number =
            |read: LogCursor| u64::from_be_bytes(*read.id.0.first_chunk().expect("it has 16 bytes")) >> 16;
        let log = self.invalidations.log_read().map(number);
        TierCounts { log, ..self.counts.read(self.write_behind.pending_keys(), self.log.fleet.known()) }
    }

    /// Returns the state of the tier. The state is verified only while this instance also reads the purge log in time.
    pub fn health(&self) -> Health {
        let health = self.backing.health();
        Health { is_verified: health.is_verified && self.log.is_followed(), ..health }
    }

    /// Returns whether the tier may have a record under a key.
    pub fn may_have(&self, key: &[u8]) -> bool {
        !matches!(self.write_behind.known(key), KnownRecord::Nothing)
    }

    /// Changes the record under a key, in memory and in the tier, with a response that was fetched under a lease. The record is written
    /// only if no other instance has taken the lease in the meantime.
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
                // In this mode, memory contains only notes.
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
                // The new record keeps the version and the state of the current copy.
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

/// Changes that did not reach the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    pub keys: usize,
    pub removals: usize,
}

/// Returns an eighth of the budget, so that pending records leave room for new ones.
fn pending_bytes_max(budget: &Budget) -> usize {
    usize::try_from(budget.bytes_max() / 8).unwrap_or(usize::MAX)
}

/// Returns the ids of responses that an update has replaced or removed.
fn dropped(before: &CacheEntry, after: &CacheEntry) -> Vec<FillId> {
    let ids = |entry: &CacheEntry| {
        let inputs = entry.variants().iter().filter_map(|variant| variant.head.inputs());
        inputs.map(|inputs| inputs.id).collect::<Vec<_>>()
    };
    let kept = ids(after);
    ids(before).into_iter().filter(|id| !kept.contains(id)).collect()
}
