//! The cache of the gateway: stored responses, fetches in progress, and changes to either.

pub(crate) mod epochs;
pub(crate) mod failure;
pub(crate) mod inflight;
pub(crate) mod purged;
pub(crate) mod readers;
pub(crate) mod record;
pub(crate) mod revalidation_backoff;
pub(crate) mod tiers;

use std::sync::{Arc, Weak};
use std::time::Duration;

use caching::groups::Groups;
use caching::invalidation::Target;
use origin::ARRIVING_BYTES_MAX;
use store::backing::{Health, LogCursor, Version, Watcher};
use store::purge::{PurgeId, PurgeRecord};
use store::{Applied, Budget, Change, Memory, MemoryConfig, Place, Segment, Usage, Walk};

use self::epochs::membership::{LookUp, Stamp};
use self::epochs::{Invalidations, PurgeEntry, Purgers, Verdict};
use self::inflight::fill::{CompleteBody, INLINE_BODY_BYTES_MAX};
use self::inflight::table::{FetchTable, Waiter};
use self::record::provenance::KeepInputs;
use self::record::segmented::Segmented;
use self::record::stored::{CacheEntry, StoredHead};
use self::revalidation_backoff::RevalidationBackoff;
use self::tiers::answer::Answer;
use self::tiers::counts::TierCounts;
use self::tiers::fleet::{FleetLog, Posted};
use self::tiers::leases::{HeldLease, WantedLease};
use self::tiers::load::{Asker, Home};
use self::tiers::segments::TierSegments;
use self::tiers::taking::{LeaseWaited, Taking};
use self::tiers::{Left, RemoteTier, StartTier};
use crate::clock::{self, now};
use crate::config::FileUse;

/// Cache of one store, shared by all workers: the one way to look up, publish, invalidate, purge and count.
///
/// A record changes in [`Cache::update`] alone, under its key's turn. [`Cache::fetches`] has the fetches in progress, and
/// [`Cache::is_invalidated`] tells what was invalidated by other than its key.
pub(crate) struct Cache {
    memory: Memory<CacheEntry>,
    /// Tier behind memory, if any.
    pub(crate) tiers: Option<RemoteTier>,
    epochs: Arc<Invalidations>,
    fetches: Arc<FetchTable>,
    backoff: RevalidationBackoff,
}

/// Size from which a body is cheaper to send from a file; see `docs/design/large-bodies.md`.
const FILE_SEGMENT_BYTES_MIN: usize = INLINE_BODY_BYTES_MAX + 1;
/// Records looked at per step when expired ones are removed.
const SWEEP_ENTRIES: usize = 1_000;
const SWEEP_STEP: Duration = Duration::from_millis(20);
const SWEEP_PAUSE: Duration = Duration::from_secs(10);

impl Cache {
    /// Creates an empty cache of this size.
    pub(crate) fn new(memory_bytes_max: u64, files: FileUse, tier: Option<StartTier>) -> Self {
        let memory = memory(memory_bytes_max, files);
        let purgers = if tier.is_some() { Purgers::Several } else { Purgers::This };
        let epochs = Arc::new(Invalidations::new(purgers));
        let tiers = tier.map(|tier| RemoteTier::new(tier, memory.budget(), Arc::clone(&epochs)));
        Self {
            memory,
            tiers,
            epochs,
            fetches: Arc::new(FetchTable::new()),
            backoff: RevalidationBackoff::new(),
        }
    }

    /// Returns the entry under a key, if it is at hand.
    pub(crate) fn look_up(&self, key: &[u8]) -> Option<Arc<CacheEntry>> {
        let entry = self.at_hand(key)?;
        if entry.variants().iter().all(|variant| self.epochs.is_checked(&variant.head)) {
            return Some(entry);
        }
        purged::look_up(self, key, entry)
    }

    fn at_hand(&self, key: &[u8]) -> Option<Arc<CacheEntry>> {
        self.memory.get(key).or_else(|| self.tiers.as_ref()?.known(key))
    }

    /// Whether the tier behind memory may have an entry that memory lacks, or another version of `entry`, which memory has.
    pub(crate) fn may_load(&self, entry: Option<&Arc<CacheEntry>>, key: &[u8]) -> bool {
        self.tiers.as_ref().is_some_and(|tiers| match entry {
            None => tiers.may_have(key),
            Some(entry) => tiers.is_suspect(entry) || tiers.log().is_out_of_touch(),
        })
    }

    /// Whether the origin must be asked about an entry in memory, because another instance may have changed it unnoticed.
    pub(crate) fn needs_verification(&self, entry: &CacheEntry) -> bool {
        self.tiers.as_ref().is_some_and(|tiers| tiers.needs_verification(entry))
    }

    /// Log of the purges by all instances that share the tier behind memory.
    pub(crate) fn fleet_log(&self) -> Option<&FleetLog> {
        self.tiers.as_ref().map(RemoteTier::log)
    }

    /// Notes that all purges of this instance up to this one were read in the log.
    pub(crate) fn own_purges_are_read(&self, upto: Posted) {
        self.epochs.own_are_read(upto);
    }

    /// Notes that the tier behind memory can be asked: tasks that rest because it could not be go on.
    pub(crate) fn tier_answers(&self) {
        self.tiers.iter().for_each(RemoteTier::answers);
    }

    /// Notes that another instance has purged something.
    pub(crate) fn heard_purge(&self) {
        self.tiers.iter().for_each(RemoteTier::heard_purge);
    }

    /// Correction of a response's time of arrival, for its age at that time.
    pub(crate) fn clock_ahead_ms(&self) -> i64 {
        self.tiers.as_ref().map_or(0, |tiers| clock::corrected_by_ms(tiers.clock_ahead_ms()))
    }

    /// Registers `watcher` for notices that the tier behind memory sends unasked.
    pub(crate) fn watch(&self, watcher: Weak<dyn Watcher>) {
        if let Some(tiers) = &self.tiers {
            tiers.watch(watcher);
        }
    }

    /// Takes in a notice of the tier behind memory that records with these names have changed.
    pub(crate) fn suspect(&self, names: &[&[u8]]) {
        if let Some(tiers) = &self.tiers {
            tiers.suspect(&self.memory, names);
        }
    }

    /// Takes in a notice that everything may have changed.
    pub(crate) fn all_suspect(&self) {
        self.tiers.iter().for_each(RemoteTier::all_suspect);
    }

    /// Entry under a key, held by a caller that may change it, since memory may evict it meanwhile. `None` without a tier.
    pub(crate) fn kept_in_use(&self, entry: Option<&Arc<CacheEntry>>) -> Option<Arc<CacheEntry>> {
        self.tiers.as_ref().and(entry).cloned()
    }

    /// Asks the tier behind memory for the entry under a key, to be used by this rule. Look-ups find the entry as long as it is held.
    pub(crate) async fn load(&self, key: &[u8], asker: Asker<'_>) -> Answer {
        match &self.tiers {
            Some(tiers) => tiers.load(self.home(), key, asker).await,
            None => Answer::UNASKED,
        }
    }

    /// Like [`Self::load`], with the entry as it is from now on: a question under way doesn't answer it.
    pub(crate) async fn load_anew(&self, key: &[u8], asker: Asker<'_>) -> Answer {
        match &self.tiers {
            Some(tiers) => tiers.load_anew(self.home(), key, asker).await,
            None => Answer::UNASKED,
        }
    }

    /// Waits a short time until the tier behind memory knows about the changes to a key.
    pub(crate) async fn written(&self, key: &[u8]) {
        if let Some(tiers) = &self.tiers {
            tiers.written(key).await;
        }
    }

    /// Changes the entry under a key as `decide` says, which sees the current entry. No other change happens meanwhile.
    pub(crate) fn update(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<&Arc<CacheEntry>>) -> Change<CacheEntry>,
    ) -> Applied {
        self.update_under((key, None), decide)
    }

    /// Like [`Self::update`], for a response that was fetched under a lease.
    pub(crate) fn update_under(
        &self,
        (key, lease): (&[u8], Option<&Arc<HeldLease>>),
        decide: impl FnOnce(Option<&Arc<CacheEntry>>) -> Change<CacheEntry>,
    ) -> Applied {
        match &self.tiers {
            None => self.memory.update(key, decide),
            Some(tiers) => tiers.update(&self.memory, (key, lease), decide),
        }
    }

    /// Whether there is a tier behind memory.
    pub(crate) fn has_tier(&self) -> bool {
        self.tiers.is_some()
    }

    /// Takes the lease on a key in the tier behind memory.
    pub(crate) async fn take_lease(&self, wanted: WantedLease<'_>) -> Taking {
        match &self.tiers {
            None => Taking::Failed,
            Some(tiers) => tiers.take_lease(wanted).await,
        }
    }

    /// Takes the lease on a key, and looks up the key's entry.
    pub(crate) async fn take_lease_and_look(
        &self,
        wanted: WantedLease<'_>,
        asker: Asker<'_>,
    ) -> (Taking, Option<Answer>) {
        match &self.tiers {
            None => (Taking::Failed, None),
            Some(tiers) => tiers.take_lease_and_look(self.home(), wanted, asker).await,
        }
    }

    /// Waits for another instance's fetch, as long as the record in the tier is the one that was `seen`.
    pub(crate) async fn await_other(
        &self,
        key: &[u8],
        seen: Option<Version>,
        limit: Duration,
    ) -> LeaseWaited {
        match &self.tiers {
            None => LeaseWaited::Failed,
            Some(tiers) => tiers.await_other(key, seen, limit).await,
        }
    }

    /// Destination of entries from the tier.
    pub(crate) fn home(&self) -> Home<'_> {
        Home { memory: &self.memory, epochs: &self.epochs }
    }

    /// Longest wait for another instance's fetch.
    pub(crate) fn lease_wait_max(&self) -> Duration {
        self.tiers.as_ref().map_or(Duration::ZERO, RemoteTier::lease_wait_max)
    }

    /// Changes the entry under a key for a purge that is already noted.
    fn purged(&self, key: &[u8], decide: impl FnOnce(Option<&Arc<CacheEntry>>) -> Change<CacheEntry>) {
        match &self.tiers {
            None => _ = self.memory.update(key, decide),
            Some(tiers) => tiers.purged(&self.memory, key, decide),
        }
    }

    /// Replaces the entry under a key with one that has the same responses and another note; in memory alone.
    pub(crate) fn annotate(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<&Arc<CacheEntry>>) -> Option<Arc<CacheEntry>>,
    ) {
        match &self.tiers {
            None => _ = self.memory.update(key, |current| decide(current).map_or(Change::Keep, Change::Put)),
            Some(tiers) => tiers.annotate(&self.memory, key, decide),
        }
    }

    /// Invalidates the entry under a key and the fetches for it; `change` says what remains of the entry. `spared` is a forward that
    /// may still store its response. Fetches come first: their responses are delivered, but not stored. Returns the number of fetches.
    //= RFC 9111 section 4.4: invalidating stored responses
    pub(crate) fn invalidate(
        &self,
        key: &[u8],
        spared: Option<&Waiter>,
        change: impl FnOnce(&Arc<CacheEntry>) -> Change<CacheEntry>,
    ) -> usize {
        let fetches = self.invalidate_known(key, spared, change);
        self.remove_unknown(key);
        fetches
    }

    /// Like [`Self::invalidate`], for entries known here. Other entries of the tier are judged by their key.
    pub(crate) fn invalidate_known(
        &self,
        key: &[u8],
        spared: Option<&Waiter>,
        change: impl FnOnce(&Arc<CacheEntry>) -> Change<CacheEntry>,
    ) -> usize {
        let fetches = self.fetches.invalidate(key, spared);
        let applied = self.update(key, |current| current.map_or(Change::Keep, change));
        debug_assert!(applied != Applied::Absent);
        fetches
    }

    /// Removes the tier's record under a key, a part of which is out of use, if nothing is known of it here.
    pub(crate) fn remove_unknown(&self, key: &[u8]) {
        if let Some(tiers) = &self.tiers {
            tiers.remove_unknown(key);
        }
    }

    /// Notes a purge, which takes effect when responses are looked up. `keys` are those of a URL; [`Self::invalidate`] changes the
    /// entries under them.
    pub(crate) fn note_purge(&self, record: PurgeRecord, keys: &[&[u8]]) -> Arc<PurgeEntry> {
        self.epochs.purge(record, keys)
    }

    /// Prepares for a reload that may give URLs other keys. Must be called before the reload is in force.
    pub(crate) fn urls_move(&self) {
        self.epochs.urls_move();
    }

    /// Purge that took the entry under a key, if known. Must be called before the look-up, which applies the purge and so hides it.
    pub(crate) fn purge_behind(&self, key: &[u8]) -> Option<Arc<PurgeEntry>> {
        purged::purge_behind(self, key)
    }

    /// Walk over all entries in memory.
    pub(crate) fn walk(&self) -> Walk<'_, CacheEntry> {
        self.memory.walk()
    }

    /// Invalidates the responses of groups.
    pub(crate) fn invalidate_groups(&self, groups: &Groups, target: &Target<'_>, id: Option<PurgeId>) {
        self.epochs.invalidate(groups, target, id);
    }

    /// Whether the stored response under a key was invalidated, by other than its key, since it was found.
    pub(crate) fn is_invalidated(&self, key: &[u8], head: &StoredHead) -> bool {
        self.epochs.judge(key, head) != Verdict::Current
    }

    /// Whether the response answers a request that began with this look-up, and waited for it.
    pub(crate) fn answers(&self, look_up: LookUp, key: &[u8], head: &StoredHead) -> bool {
        self.epochs.answers(look_up, key, head)
    }

    /// Verdict on the stored response under a key.
    pub(crate) fn verdict(&self, key: &[u8], head: &StoredHead) -> Verdict {
        self.epochs.judge(key, head)
    }

    /// Whether the response counts as never stored.
    pub(crate) fn is_removed(&self, key: &[u8], head: &StoredHead) -> bool {
        matches!(self.epochs.judge(key, head), Verdict::Removed(_))
    }

    /// Whether the response that a look-up found may still stand in, stale, for an origin that fails.
    pub(crate) fn may_stand_in(&self, key: &[u8], look_up: LookUp, head: &StoredHead) -> bool {
        matches!(self.epochs.judge(key, head), Verdict::Current | Verdict::Stale(_))
            && !self.is_taken_away(look_up)
    }

    /// Whether the entry that a look-up found was removed since: it must be neither used nor validated.
    pub(crate) fn is_taken_away(&self, look_up: LookUp) -> bool {
        self.epochs.is_taken_away(look_up)
    }

    /// Whether a request with this look-up is older than an invalidation of its URL.
    pub(crate) fn record_overtaken(&self, look_up: LookUp) -> bool {
        self.epochs.record_overtaken(look_up)
    }

    /// Current place in the order of invalidations. Must be taken before an origin is asked, and before a look-up.
    pub(crate) fn stamp(&self) -> Stamp {
        self.epochs.stamp()
    }

    /// Notes that some responses lie under keys that have more than a URL.
    pub(crate) fn watch_keys(&self) {
        self.epochs.watch_keys();
    }

    /// Whether the inputs to the judgement of a response are kept with it.
    pub(crate) fn keeps_inputs(&self) -> KeepInputs {
        if self.tiers.is_some() { KeepInputs::Yes } else { KeepInputs::No }
    }

    pub(crate) fn epochs(&self) -> &Invalidations {
        &self.epochs
    }

    /// Memory, also for segments: these are found by their group alone.
    pub(crate) fn memory(&self) -> &Memory<CacheEntry> {
        &self.memory
    }

    /// Creates the body of a new representation, of which nothing is stored yet.
    pub(crate) fn open_body(&self, complete_bytes: Option<u64>) -> Segmented {
        let group = Arc::new(self.memory.open_group());
        let body = Segmented::new(group, self.segment_bytes_max(), complete_bytes);
        if self.segments().is_some() { body.followed() } else { body }
    }

    /// Keeps a body without a key of its own: the response that it is a form of holds it, and takes it along. `None` if memory doesn't
    /// take all of it.
    pub(crate) fn keep_beside(&self, body: CompleteBody) -> Option<Segmented> {
        let segments = match body {
            CompleteBody::Inline(data) => vec![Segment::copy(self.budget(), Place::Heap, &data).ok()?],
            CompleteBody::Segments(segments) => segments,
        };
        let bytes = segments.iter().map(|segment| segment.len() as u64).sum();
        let group = Arc::new(self.memory.open_group());
        Segmented::new(group, self.segment_bytes_max(), Some(bytes)).filled(&segments)
    }

    /// Segments of the tier, for bodies that outlive memory.
    pub(crate) fn segments(&self) -> Option<&TierSegments> {
        self.tiers.as_ref().map(RemoteTier::segments)
    }

    /// Waits after validations in vain.
    pub(crate) fn backoff(&self) -> &RevalidationBackoff {
        &self.backoff
    }

    /// Fetches in progress.
    pub(crate) fn fetches(&self) -> &Arc<FetchTable> {
        &self.fetches
    }

    /// Budget that counts every live byte.
    pub(crate) fn budget(&self) -> &Arc<Budget> {
        self.memory.budget()
    }

    pub(crate) fn segment_bytes_max(&self) -> usize {
        self.memory.segment_bytes_max()
    }

    pub(crate) fn body_bytes_max(&self) -> u64 {
        self.memory.body_bytes_max(ARRIVING_BYTES_MAX as u64)
    }

    pub(crate) fn usage(&self) -> Usage {
        self.memory.usage()
    }

    /// Writes stored entries to the tier behind memory, for ever.
    pub(crate) async fn write_behind(&self) {
        if let Some(tiers) = &self.tiers {
            tiers.write_behind().await;
        }
    }

    /// Waits at the end of the process until the tier behind memory knows what is stored, no longer than `limit`.
    pub(crate) async fn drain(&self, limit: Duration, store: &str) {
        let Some(tiers) = &self.tiers else { return };
        let waiting = tiers.pending_keys();
        let Left { keys, removals } = tiers.drained(limit).await;
        if keys > 0 {
            tracing::warn!(store, keys, removals, "stopped before all changes reached the shared store");
        } else if waiting > 0 {
            tracing::info!(store, keys = waiting, "the tier behind memory has all that was stored");
        }
        // No purge should wait for this instance.
        if let Err(error) = tiers.log().leave().await {
            tracing::info!(store, %error, "other instances are not told of the end: purges wait for this one for a while");
        }
    }

    /// Counts of the requests to the tier behind memory.
    pub(crate) fn tier_counts(&self) -> Option<TierCounts> {
        // As many bits of the id as a floating-point number holds.
        let number =
            |read: LogCursor| u64::from_be_bytes(*read.id.0.first_chunk().expect("it has 16 bytes")) >> 16;
        let log = self.epochs.log_read().map(number);
        self.tiers.as_ref().map(|tiers| TierCounts { log, ..tiers.counts() })
    }

    /// Health of the tier behind memory.
    pub(crate) fn tier_health(&self) -> Option<Health> {
        self.tiers.as_ref().map(RemoteTier::health)
    }

    /// Removes expired records, a few at a time, for ever.
    pub(crate) async fn sweep(&self) {
        loop {
            tokio::time::sleep(SWEEP_PAUSE).await;
            let mut sweep = self.memory.sweep();
            let now_ms = u64::try_from(now().as_ms()).unwrap_or(0);
            while !sweep.step(now_ms, SWEEP_ENTRIES).end {
                tokio::time::sleep(SWEEP_STEP).await;
            }
        }
    }
}

fn memory(bytes_max: u64, files: FileUse) -> Memory<CacheEntry> {
    let memory = Memory::new(MemoryConfig {
        file_bytes_min: (files == FileUse::LargeBodies).then_some(FILE_SEGMENT_BYTES_MIN),
        ..MemoryConfig::with_bytes_max(bytes_max)
    });
    if let Some(reason) = memory.files_unavailable() {
        tracing::warn!(%reason, "large bodies are sent without sendfile");
    }
    memory
}
