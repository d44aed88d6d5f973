//! The façade of a store's cache.

use std::sync::Arc;
use std::time::Duration;

use message::clock::now;
use origin::ARRIVING_BYTES_MAX;
use store::{Applied, Budget, Change, Memory, MemoryConfig, Placement, Segment};

use crate::collapse::table::{FetchTable, Waiter};
use crate::entry::segmented::Segmented;
use crate::entry::stored::{CacheEntry, StoredHead, StoredResponse};
use crate::fill::{CompleteBody, INLINE_BODY_BYTES_MAX};
use crate::invalidation::{Invalidations, PurgeEntry, Verdict};
use crate::membership::LookUp;
use crate::remote_tier::{MemoryAlone, RemoteTier};
use crate::revalidation_backoff::RevalidationBackoff;
use crate::settings::FileUse;

/// Cache of one store, shared by all workers: the only way to look up, publish, invalidate, purge and count.
///
/// Records change only in [`Cache::update`], one change per key at a time. [`Cache::fetches`] holds the fetches in progress, and
/// [`Cache::is_invalidated`] checks for invalidations that don't select responses by key: groups, tags and prefixes.
pub struct Cache {
    /// Memory for records and segments; segments are found by their group alone.
    pub memory: Arc<Memory<CacheEntry>>,
    tier: Arc<dyn RemoteTier>,
    /// Whether a stored response also keeps the inputs to the decisions about it, because other instances need them.
    pub keeps_inputs: bool,
    pub invalidations: Arc<Invalidations>,
    /// Fetches in progress.
    pub fetches: Arc<FetchTable>,
    /// Pauses after failed background validations.
    pub backoff: RevalidationBackoff,
}

/// Size from which a body is cheaper to send from a file; see `docs/internals/requests.md`.
const FILE_SEGMENT_BYTES_MIN: usize = INLINE_BODY_BYTES_MAX + 1;
/// Number of records checked per step when expired ones are removed.
const SWEEP_ENTRIES: usize = 1_000;
const SWEEP_STEP: Duration = Duration::from_millis(20);
const SWEEP_PAUSE: Duration = Duration::from_secs(10);

impl Cache {
    /// Creates the cache over a memory, with the tier behind it, if any.
    pub fn new(
        memory: Arc<Memory<CacheEntry>>,
        invalidations: Arc<Invalidations>,
        tier: Option<Arc<dyn RemoteTier>>,
    ) -> Self {
        Self {
            keeps_inputs: tier.is_some(),
            tier: tier.unwrap_or_else(|| Arc::new(MemoryAlone(Arc::clone(&memory)))),
            memory,
            invalidations,
            fetches: Arc::default(),
            backoff: RevalidationBackoff::default(),
        }
    }

    /// Returns the entry under a key, if this process has it.
    #[inline]
    pub fn look_up(&self, key: &[u8]) -> Option<Arc<CacheEntry>> {
        let entry = self.at_hand(key)?;
        if entry.variants().iter().all(|variant| self.invalidations.is_checked(&variant.head)) {
            return Some(entry);
        }
        self.look_up_purged(key, entry)
    }

    #[inline]
    fn at_hand(&self, key: &[u8]) -> Option<Arc<CacheEntry>> {
        self.memory.get(key).or_else(|| self.tier.pending(key))
    }

    /// Returns the entry under a key, for a caller that may change it: memory may evict the entry meanwhile. `None` without a tier.
    pub fn kept_in_use(&self, entry: Option<&Arc<CacheEntry>>) -> Option<Arc<CacheEntry>> {
        entry.filter(|_| self.keeps_inputs).cloned()
    }

    /// Changes the entry under a key to the result of `decide`, which receives the current entry. No other change of this entry runs at the
    /// same time.
    pub fn update(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<&Arc<CacheEntry>>) -> Change<CacheEntry>,
    ) -> Applied {
        let mut decide = Some(decide);
        self.tier.update(key, &mut |current| decide.take().map_or(Change::Keep, |decide| decide(current)))
    }

    /// Replaces the entry under a key with one that has the same responses and another note, in memory alone.
    pub fn annotate(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<&Arc<CacheEntry>>) -> Option<Arc<CacheEntry>>,
    ) {
        let mut decide = Some(decide);
        self.tier.update_in_memory(key, &mut |current| {
            decide.take().and_then(|decide| decide(current)).map_or(Change::Keep, Change::Put)
        });
    }

    /// Invalidates the entry under a key and the fetches for it; `change` returns what remains of the entry. The forward `spared` may still
    /// store its response. Fetches are invalidated first: their responses are delivered, but not stored. Returns the number of fetches.
    //= RFC 9111 section 4.4: invalidating stored responses
    pub fn invalidate(
        &self,
        key: &[u8],
        spared: Option<&Waiter>,
        change: impl FnOnce(&Arc<CacheEntry>) -> Change<CacheEntry>,
    ) -> usize {
        let fetches = self.invalidate_known(key, spared, change);
        self.remove_unknown(key);
        fetches
    }

    /// Like [`Self::invalidate`], but only for an entry that this process knows. [`Self::is_invalidated`] checks other entries of the tier
    /// when they are found.
    pub fn invalidate_known(
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

    /// Removes the tier's record under a key if this process doesn't know the record.
    pub fn remove_unknown(&self, key: &[u8]) {
        self.tier.remove_unknown(key);
    }

    /// Returns whether the stored response under a key has been invalidated since it was found, by anything other than its key.
    pub fn is_invalidated(&self, key: &[u8], head: &StoredHead) -> bool {
        self.invalidations.judge(key, head) != Verdict::Current
    }

    /// Returns whether a purge has removed the response.
    pub fn is_removed(&self, key: &[u8], head: &StoredHead) -> bool {
        matches!(self.invalidations.judge(key, head), Verdict::Removed(_))
    }

    /// Returns whether a response that a look-up found may be used stale if the origin fails.
    pub fn may_stand_in(&self, key: &[u8], look_up: LookUp, head: &StoredHead) -> bool {
        matches!(self.invalidations.judge(key, head), Verdict::Current | Verdict::Stale(_))
            && !self.invalidations.is_taken_away(look_up)
    }

    /// Creates the empty body of a new representation.
    pub fn open_body(&self, complete_bytes: Option<u64>) -> Segmented {
        let group = Arc::new(self.memory.open_group());
        let body = Segmented::new(group, self.memory.segment_bytes_max(), complete_bytes);
        if self.keeps_inputs { body.followed() } else { body }
    }

    /// Stores a body without a key, as another form of a stored response. The body is removed together with that response. `None` if memory
    /// is full.
    pub fn keep_beside(&self, body: CompleteBody) -> Option<Segmented> {
        let segments = match body {
            CompleteBody::Inline(data) => vec![Segment::copy(self.budget(), Placement::Heap, &data).ok()?],
            CompleteBody::Segments(segments) => segments,
        };
        let bytes = segments.iter().map(|segment| segment.len() as u64).sum();
        let group = Arc::new(self.memory.open_group());
        Segmented::new(group, self.memory.segment_bytes_max(), Some(bytes)).filled(&segments)
    }

    /// Returns the budget that counts every live byte.
    pub fn budget(&self) -> &Arc<Budget> {
        self.memory.budget()
    }

    pub fn body_bytes_max(&self) -> u64 {
        self.memory.body_bytes_max(ARRIVING_BYTES_MAX as u64)
    }

    /// Removes expired records, a few at a time, forever.
    pub async fn sweep(&self) {
        loop {
            tokio::time::sleep(SWEEP_PAUSE).await;
            let mut sweep = self.memory.sweep();
            let now_ms = u64::try_from(now().as_ms()).unwrap_or(0);
            while !sweep.step(now_ms, SWEEP_ENTRIES).end {
                tokio::time::sleep(SWEEP_STEP).await;
            }
        }
    }

    /// Returns the part of an entry that no purge has removed, and changes the record in memory to match, so that later look-ups don't
    /// repeat this.
    #[cold]
    fn look_up_purged(&self, key: &[u8], found: Arc<CacheEntry>) -> Option<Arc<CacheEntry>> {
        if !self.has_purged(key, &found) {
            return Some(found);
        }
        let mut left = None;
        self.tier.update_in_memory(key, &mut |current| {
            let Some(entry) = current else { return Change::Keep };
            if !self.has_purged(key, entry) {
                left = Some(Arc::clone(entry));
                return Change::Keep;
            }
            let change = self.left_of(key, entry);
            // `left` keeps the entry alive, because the memory may evict it immediately.
            if let Change::Put(entry) = &change {
                left = Some(Arc::clone(entry));
            }
            change
        });
        left
    }

    /// Returns the purge that removed the entry under a key, if known. Call this before the look-up, which applies the purge and removes
    /// its traces.
    pub fn purge_behind(&self, key: &[u8]) -> Option<Arc<PurgeEntry>> {
        let entry = self.at_hand(key);
        let heads = entry.iter().flat_map(|entry| entry.variants()).map(|variant| &variant.head);
        let number = heads.clone().find_map(|head| match self.invalidations.judge(key, head) {
            Verdict::Stale(number) | Verdict::Removed(number) => Some(number),
            Verdict::Current | Verdict::Invalidated => None,
        });
        if number.is_some() {
            return self.invalidations.purge_of(number?);
        }
        // Purges that were already applied are recognised by their time: a newer response was not purged.
        let newest_ms = heads.map(|head| head.facts.response_time.as_ms()).max().unwrap_or(i64::MIN);
        let last = self.invalidations.last_purge_of(key)?;
        i64::try_from(last.record.at_ms).is_ok_and(|at_ms| at_ms >= newest_ms).then_some(last)
    }

    fn has_purged(&self, key: &[u8], entry: &CacheEntry) -> bool {
        entry.variants().iter().any(|variant| {
            matches!(self.invalidations.judge(key, &variant.head), Verdict::Stale(_) | Verdict::Removed(_))
        })
    }

    fn left_of(&self, key: &[u8], entry: &Arc<CacheEntry>) -> Change<CacheEntry> {
        let left: Vec<_> =
            entry.variants().iter().filter_map(|variant| self.left_of_response(key, variant)).collect();
        if left.is_empty() { Change::Remove } else { entry.changed_to(self.budget(), left) }
    }

    fn left_of_response(&self, key: &[u8], response: &StoredResponse) -> Option<StoredResponse> {
        let (invalidations, upto) = (&self.invalidations, self.invalidations.stamp());
        match invalidations.judge(key, &response.head) {
            Verdict::Removed(_) => None,
            Verdict::Current | Verdict::Invalidated => Some(response.clone()),
            Verdict::Stale(number) => {
                let since = invalidations.stale_since(number, &response.head);
                let head = response.head.purged(since, (upto, invalidations.place_of(upto)));
                Some(StoredResponse { head: Arc::new(head), body: response.body.clone() })
            }
        }
    }
}

/// Creates the memory of a store.
pub fn memory(bytes_max: u64, files: FileUse) -> Memory<CacheEntry> {
    let memory = Memory::new(MemoryConfig {
        file_bytes_min: (files == FileUse::LargeBodies).then_some(FILE_SEGMENT_BYTES_MIN),
        ..MemoryConfig::with_bytes_max(bytes_max)
    });
    if let Some(reason) = memory.files_unavailable() {
        tracing::warn!(%reason, "large bodies are sent without sendfile");
    }
    memory
}
