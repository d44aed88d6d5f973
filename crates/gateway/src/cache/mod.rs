//! The cache of the gateway: what is stored, what is being fetched, and what changes either.

pub(crate) mod decide;
pub(crate) mod epochs;
pub(crate) mod failure;
pub(crate) mod findings;
pub(crate) mod inflight;
pub(crate) mod invalidate;
pub(crate) mod key;
pub(crate) mod lookup;
#[cfg(test)]
pub(crate) mod model;
pub(crate) mod probing;
pub(crate) mod publish;
pub(crate) mod purge;
pub(crate) mod purged;
pub(crate) mod readers;
pub(crate) mod record;
pub(crate) mod refresh;
pub(crate) mod revalidation_backoff;
pub(crate) mod serve;
pub(crate) mod stale_if_error;
pub(crate) mod stores;
pub(crate) mod tiers;
pub(crate) mod using;

use std::sync::{Arc, Weak};
use std::time::Duration;

use caching::groups::Groups;
use caching::invalidation::Target;
use origin::ARRIVING_BYTES_MAX;
use store::backing::{Health, LogCursor, Version, Watcher};
use store::purge::{PurgeId, PurgeRecord};
use store::{Applied, Budget, Change, Memory, MemoryConfig, Place, Segment, Usage, Walk};

use self::epochs::membership::{LookUp, Stamp};
use self::epochs::{Epochs, Kept, Purgers, Verdict};
use self::inflight::fill::{CompleteBody, INLINE_BODY_BYTES_MAX};
use self::inflight::table::{FetchTable, Waiter};
use self::record::inputs::KeepInputs;
use self::record::segmented::Segmented;
use self::record::stored::{CacheEntry, StoredHead};
use self::revalidation_backoff::RevalidationBackoff;
use self::tiers::answer::Answer;
use self::tiers::counts::TierCounts;
use self::tiers::fleet::{FleetLog, Posted};
use self::tiers::leases::{Held, Wanted};
use self::tiers::load::{Asker, Home};
use self::tiers::segments::TierSegments;
use self::tiers::taking::{Awaited, Taking};
use self::tiers::{Left, StartTier, Tiers};
use crate::clock::{self, now};
use crate::config::FileUse;

/// What all workers store, fetch and take out of use in one store: the one way to look up, publish, invalidate, purge and count.
///
/// A record changes in [`Cache::update`] alone, under its key's turn; what is on its way is known to [`Cache::fetches`], and what
/// was invalidated by other than its key to [`Cache::is_invalidated`].
pub(crate) struct Cache {
    memory: Memory<CacheEntry>,
    /// What is behind memory, if anything.
    tiers: Option<Tiers>,
    epochs: Arc<Epochs>,
    fetches: Arc<FetchTable>,
    backoff: RevalidationBackoff,
}

/// From here on a body is cheaper to send from a file; see `docs/design/large-bodies.md`.
const FILE_SEGMENT_BYTES_MIN: usize = INLINE_BODY_BYTES_MAX + 1;
/// Records looked at per step when expired ones are removed.
const SWEEP_ENTRIES: usize = 1_000;
const SWEEP_STEP: Duration = Duration::from_millis(20);
const SWEEP_PAUSE: Duration = Duration::from_secs(10);

impl Cache {
    /// An empty one of this size.
    pub(crate) fn new(memory_bytes_max: u64, files: FileUse, tier: Option<StartTier>) -> Self {
        let memory = memory(memory_bytes_max, files);
        let purgers = if tier.is_some() { Purgers::Several } else { Purgers::This };
        let epochs = Arc::new(Epochs::new(purgers));
        let tiers = tier.map(|tier| Tiers::new(tier, memory.budget(), Arc::clone(&epochs)));
        Self {
            memory,
            tiers,
            epochs,
            fetches: Arc::new(FetchTable::new()),
            backoff: RevalidationBackoff::new(),
        }
    }

    /// What lies under a key, as far as nobody has to be asked.
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

    /// Whether the tier behind memory may have what memory has not, or something else than `entry`, which memory has.
    pub(crate) fn may_load(&self, entry: Option<&Arc<CacheEntry>>, key: &[u8]) -> bool {
        self.tiers.as_ref().is_some_and(|tiers| match entry {
            None => tiers.may_have(key),
            Some(entry) => tiers.is_suspect(entry) || tiers.log().is_out_of_touch(),
        })
    }

    /// Whether the origin is to be asked about what memory has, since nobody can say if another instance has changed it.
    pub(crate) fn needs_verification(&self, entry: &CacheEntry) -> bool {
        self.tiers.as_ref().is_some_and(|tiers| tiers.needs_verification(entry))
    }

    /// The purges of all that share the tier behind memory.
    pub(crate) fn fleet_log(&self) -> Option<&FleetLog> {
        self.tiers.as_ref().map(Tiers::log)
    }

    /// All purges of this instance that were posted up to there were read in the log.
    pub(crate) fn own_purges_are_read(&self, upto: Posted) {
        self.epochs.own_are_read(upto);
    }

    /// The tier behind memory can be asked: whoever rests because it could not goes on.
    pub(crate) fn tier_answers(&self) {
        self.tiers.iter().for_each(Tiers::answers);
    }

    /// Another instance has purged something.
    pub(crate) fn heard_purge(&self) {
        self.tiers.iter().for_each(Tiers::heard_purge);
    }

    /// By how much the arrival of a response is corrected, to tell how old it was then.
    pub(crate) fn clock_ahead_ms(&self) -> i64 {
        self.tiers.as_ref().map_or(0, |tiers| clock::corrected_by_ms(tiers.clock_ahead_ms()))
    }

    /// From now on `watcher` is told what the tier behind memory tells unasked.
    pub(crate) fn watch(&self, watcher: Weak<dyn Watcher>) {
        if let Some(tiers) = &self.tiers {
            tiers.watch(watcher);
        }
    }

    /// The tier behind memory says that records with these names have changed.
    pub(crate) fn suspect(&self, names: &[&[u8]]) {
        if let Some(tiers) = &self.tiers {
            tiers.suspect(&self.memory, names);
        }
    }

    /// It says that everything may have changed.
    pub(crate) fn all_suspect(&self) {
        self.tiers.iter().for_each(Tiers::all_suspect);
    }

    /// What lies under a key, to be held by who may change it, where memory may forget it meanwhile.
    pub(crate) fn kept_in_use(&self, entry: Option<&Arc<CacheEntry>>) -> Option<Arc<CacheEntry>> {
        self.tiers.as_ref().and(entry).cloned()
    }

    /// Asks the tier behind memory for what lies under a key, to be used by this rule. What comes is found by look-ups
    /// as long as somebody holds it.
    pub(crate) async fn load(&self, key: &[u8], asker: Asker<'_>) -> Answer {
        match &self.tiers {
            Some(tiers) => tiers.load(self.home(), key, asker).await,
            None => Answer::UNASKED,
        }
    }

    /// The same, as it is from now on.
    pub(crate) async fn load_anew(&self, key: &[u8], asker: Asker<'_>) -> Answer {
        match &self.tiers {
            Some(tiers) => tiers.load_anew(self.home(), key, asker).await,
            None => Answer::UNASKED,
        }
    }

    /// Waits until the tier behind memory knows what has happened to a key, but not for long.
    pub(crate) async fn written(&self, key: &[u8]) {
        if let Some(tiers) = &self.tiers {
            tiers.written(key).await;
        }
    }

    /// Changes what lies under a key as `decide` says, who sees it as it is now: nobody else changes it meanwhile.
    pub(crate) fn update(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<&Arc<CacheEntry>>) -> Change<CacheEntry>,
    ) -> Applied {
        self.update_under((key, None), decide)
    }

    /// The same for what was fetched under a lease.
    pub(crate) fn update_under(
        &self,
        (key, lease): (&[u8], Option<&Arc<Held>>),
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
    pub(crate) async fn take_lease(&self, wanted: Wanted<'_>) -> Taking {
        match &self.tiers {
            None => Taking::Failed,
            Some(tiers) => tiers.take_lease(wanted).await,
        }
    }

    /// The same, and looks what lies there.
    pub(crate) async fn take_lease_and_look(
        &self,
        wanted: Wanted<'_>,
        asker: Asker<'_>,
    ) -> (Taking, Option<Answer>) {
        match &self.tiers {
            None => (Taking::Failed, None),
            Some(tiers) => tiers.take_lease_and_look(self.home(), wanted, asker).await,
        }
    }

    /// Waits for what another instance fetches, as long as the record in the tier is the one that was `seen`.
    pub(crate) async fn await_other(&self, key: &[u8], seen: Option<Version>, limit: Duration) -> Awaited {
        match &self.tiers {
            None => Awaited::Failed,
            Some(tiers) => tiers.await_other(key, seen, limit).await,
        }
    }

    /// Where what comes from the tier is put.
    pub(in crate::cache) fn home(&self) -> Home<'_> {
        Home { memory: &self.memory, epochs: &self.epochs }
    }

    /// The longest wait for what another instance fetches.
    pub(crate) fn lease_wait_max(&self) -> Duration {
        self.tiers.as_ref().map_or(Duration::ZERO, Tiers::lease_wait_max)
    }

    /// Changes what lies under a key as a purge says that is noted already.
    fn purged(&self, key: &[u8], decide: impl FnOnce(Option<&Arc<CacheEntry>>) -> Change<CacheEntry>) {
        match &self.tiers {
            None => _ = self.memory.update(key, decide),
            Some(tiers) => tiers.purged(&self.memory, key, decide),
        }
    }

    /// Puts a record under a key that says of responses what the one there says, and has another note: for memory alone.
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

    /// Takes what lies under a key, or is on its way there, out of use; of the record stays what `change` says. `spared` is
    /// a forward that may still store what it brings. Fetches come first: what they bring is delivered, but not stored. Returns how
    /// many there were.
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

    /// The same of what is known here. What else the tier has is judged by its key.
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

    /// Of what the tier behind memory has under a key, something is out of use; what nobody here knows goes as a whole.
    pub(crate) fn remove_unknown(&self, key: &[u8]) {
        if let Some(tiers) = &self.tiers {
            tiers.remove_unknown(key);
        }
    }

    /// Notes a purge: what it takes is out of use for whoever looks it up. `keys` are those of a URL; what lies under them is
    /// changed by [`Self::invalidate`].
    pub(crate) fn note_purge(&self, record: PurgeRecord, keys: &[&[u8]]) -> Arc<Kept> {
        self.epochs.purge(record, keys)
    }

    /// To be called before a reload is in force that may give URLs other keys.
    pub(crate) fn urls_move(&self) {
        self.epochs.urls_move();
    }

    /// The purge that took what was under a key, as far as anybody knows. Before it is looked up: what is found out is not found
    /// again.
    pub(crate) fn purge_behind(&self, key: &[u8]) -> Option<Arc<Kept>> {
        purged::purge_behind(self, key)
    }

    /// A walk over all that is in memory.
    pub(crate) fn walk(&self) -> Walk<'_, CacheEntry> {
        self.memory.walk()
    }

    /// Takes the responses of groups out of use.
    pub(crate) fn invalidate_groups(&self, groups: &Groups, target: &Target<'_>, id: Option<PurgeId>) {
        self.epochs.invalidate(groups, target, id);
    }

    /// Whether the stored response under a key was taken out of use, by other than its key, since it was found.
    pub(crate) fn is_invalidated(&self, key: &[u8], head: &StoredHead) -> bool {
        self.epochs.judge(key, head) != Verdict::Current
    }

    /// Whether it is good for a request that began with this look-up, and waited for it.
    pub(crate) fn answers(&self, look_up: LookUp, key: &[u8], head: &StoredHead) -> bool {
        self.epochs.answers(look_up, key, head)
    }

    /// What was done to it.
    pub(crate) fn verdict(&self, key: &[u8], head: &StoredHead) -> Verdict {
        self.epochs.judge(key, head)
    }

    /// Whether it is to be as if it had never been stored.
    pub(crate) fn is_removed(&self, key: &[u8], head: &StoredHead) -> bool {
        matches!(self.epochs.judge(key, head), Verdict::Removed(_))
    }

    /// Whether what a look-up found may still stand in, stale, for an origin that fails.
    pub(crate) fn may_stand_in(&self, key: &[u8], look_up: LookUp, head: &StoredHead) -> bool {
        matches!(self.epochs.judge(key, head), Verdict::Current | Verdict::Stale(_))
            && !self.is_taken_away(look_up)
    }

    /// Whether what a look-up found was taken away since: it is not to be used, and not to be validated.
    pub(crate) fn is_taken_away(&self, look_up: LookUp) -> bool {
        self.epochs.is_taken_away(look_up)
    }

    /// Whether what was asked for then is older than an invalidation of its URL.
    pub(crate) fn is_overtaken(&self, look_up: LookUp) -> bool {
        self.epochs.is_overtaken(look_up)
    }

    /// The time by which invalidations are ordered: to be taken before an origin is asked, and before a look-up.
    pub(crate) fn stamp(&self) -> Stamp {
        self.epochs.stamp()
    }

    /// From now on some responses lie under keys that are more than a URL's.
    pub(crate) fn watch_keys(&self) {
        self.epochs.watch_keys();
    }

    /// Whether what a response was judged by is kept with it.
    pub(crate) fn keeps_inputs(&self) -> KeepInputs {
        if self.tiers.is_some() { KeepInputs::Yes } else { KeepInputs::No }
    }

    pub(in crate::cache) fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// Where segments are put: what is stored in them is found by their group alone.
    pub(in crate::cache) fn memory(&self) -> &Memory<CacheEntry> {
        &self.memory
    }

    /// A body of a new representation, of which nothing is stored yet.
    pub(in crate::cache) fn open_body(&self, complete_bytes: Option<u64>) -> Segmented {
        let group = Arc::new(self.memory.open_group());
        let body = Segmented::new(group, self.segment_bytes_max(), complete_bytes);
        if self.segments().is_some() { body.followed() } else { body }
    }

    /// Puts a body that lies under no key of its own: it is held by what it is a form of, and goes with it. `None` where memory does not
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

    /// Where segments go that are to outlive memory.
    pub(crate) fn segments(&self) -> Option<&TierSegments> {
        self.tiers.as_ref().map(Tiers::segments)
    }

    /// The waits after validations in vain.
    pub(crate) fn backoff(&self) -> &RevalidationBackoff {
        &self.backoff
    }

    /// Fetches in progress.
    pub(crate) fn fetches(&self) -> &Arc<FetchTable> {
        &self.fetches
    }

    /// What counts every live byte.
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

    /// Writes what is stored to the tier behind memory, for ever.
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
        // So that no purge waits for this instance.
        if let Err(error) = tiers.log().leave().await {
            tracing::info!(store, %error, "other instances are not told of the end: purges wait for this one for a while");
        }
    }

    /// What was asked of the tier behind memory.
    pub(crate) fn tier_counts(&self) -> Option<TierCounts> {
        // As many bits of the id as a floating-point number takes.
        let number =
            |read: LogCursor| u64::from_be_bytes(*read.id.0.first_chunk().expect("it has 16 bytes")) >> 16;
        let log = self.epochs.log_read().map(number);
        self.tiers.as_ref().map(|tiers| TierCounts { log, ..tiers.counts() })
    }

    /// How the tier behind memory does.
    pub(crate) fn tier_health(&self) -> Option<Health> {
        self.tiers.as_ref().map(Tiers::health)
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
