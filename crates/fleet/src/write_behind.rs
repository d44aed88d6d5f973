//! Changes that the tier doesn't have yet, and records that it has just returned. Look-ups have to find both, even if memory no longer has
//! them.
//!
//! For each key, there is at most one operation that the tier has not acknowledged, and one record in use. The operation and the record are
//! dropped as soon as they are no longer needed, so this isn't a second memory tier.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use cache::entry::copy::TierCopy;
use cache::entry::stored::CacheEntry;
use cache::sharded::Sharded;
use store::{FillId, Record as _};

use crate::leases::HeldLease;
use crate::queue::Queue;

/// Pending change to a record of the tier.
#[derive(Clone)]
pub(crate) enum Pending {
    /// Writes the record.
    Put { entry: Arc<CacheEntry>, theirs: Theirs, claim: Option<Claim> },
    /// Removes the record.
    Removed,
}

/// Lease under which a record is written.
#[derive(Clone)]
pub(crate) struct Claim {
    pub(super) held: Arc<HeldLease>,
    pub(super) covers: Covers,
}

/// How much of a pending write was fetched under the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Covers {
    All,
    /// Only a part: another change to the key was already pending.
    Part,
}

/// How a write treats responses in the tier that this instance has not read.
#[derive(Clone, Debug)]
pub(crate) enum Theirs {
    /// Keeps the responses, except for these ids, which were replaced.
    Kept { dropped: Vec<FillId> },
    /// Drops the responses.
    Gone,
}

/// State of a key, as far as this instance knows it without querying the tier.
#[derive(Clone, Debug)]
pub(crate) enum KnownRecord {
    /// The key has this record.
    Entry(Arc<CacheEntry>),
    /// The key has no record.
    Nothing,
    /// The tier has to be queried.
    Unknown,
}

/// Result of adding an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    Taken,
    Refused,
}

/// Limits on pending changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub keys_max: usize,
    pub bytes_max: usize,
}

/// A pending operation with its number among the operations on the key.
#[derive(Clone)]
pub(crate) struct Numbered {
    pub pending: Pending,
    pub number: u64,
}

#[derive(Default)]
struct KeySlot {
    pending: Option<Pending>,
    in_use: Weak<CacheEntry>,
    /// Number of the last operation. The answer to a look-up that began before this operation is outdated.
    number: u64,
    /// Failed attempts at the pending operation.
    failures: u32,
    /// Number of changes that the tier has reported while a look-up was in progress.
    reports: u64,
    /// Number of look-ups in progress. While there are any, the slot is kept, so that its number stays.
    asking: usize,
}

/// Pending changes and records in use, by key.
#[derive(Default)]
pub(crate) struct WriteBehind {
    shards: Sharded<Slots>,
    /// Number of keys with a pending change.
    pending: AtomicUsize,
    /// Memory of pending records, in bytes.
    pending_bytes: AtomicUsize,
    /// Keys with a pending change that no writer is working on. A writer puts its key back if a change is still pending.
    pub(crate) queue: Queue,
}

#[derive(Default)]
struct Slots {
    by_key: HashMap<Box<[u8]>, KeySlot>,
    /// Number of slots at which idle slots are removed, because nothing signals when a record is no longer in use.
    sweep_at: usize,
}

/// A look-up in progress. The guard detects changes to the key during the look-up.
pub(crate) struct KeyWatch<'a> {
    write_behind: &'a WriteBehind,
    key: &'a [u8],
    number: u64,
    reports: u64,
}

const SWEEP_SLOTS_MIN: usize = 64;

impl WriteBehind {
    /// Returns the state of a key, as far as it is known without querying the tier.
    pub(crate) fn known(&self, key: &[u8]) -> KnownRecord {
        self.shards.of(key).lock().by_key.get(key).map_or(KnownRecord::Unknown, KeySlot::known)
    }

    /// Returns the record under a key, if this queue knows it.
    pub(crate) fn entry(&self, key: &[u8]) -> Option<Arc<CacheEntry>> {
        match self.known(key) {
            KnownRecord::Entry(entry) => Some(entry),
            KnownRecord::Nothing | KnownRecord::Unknown => None,
        }
    }

    /// Adds an operation, in place of the pending one. If too many keys already have a pending change, the operation is refused, and the
    /// change never reaches the tier. If a record would exceed the byte limit, it isn't written, and the tier's record is removed instead.
    pub(crate) fn note(&self, key: &[u8], next: Pending, limits: Limits) -> Noted {
        let mut shard = self.shards.of(key).lock();
        let is_full = self.pending_keys() >= limits.keys_max;
        let pending_bytes = self.pending_bytes.load(Ordering::Relaxed);
        let next = if pending_bytes.saturating_add(next.bytes()) <= limits.bytes_max {
            next
        } else {
            next.mark_given_up();
            Pending::Removed
        };
        let slot = shard.slot(key);
        slot.number += 1;
        if is_full && slot.pending.is_none() {
            next.mark_given_up();
            slot.in_use = Weak::new();
            shard.let_go(key);
            return Noted::Refused;
        }
        slot.in_use = match &next {
            Pending::Put { entry, .. } => Arc::downgrade(entry),
            Pending::Removed => Weak::new(),
        };
        let before = slot.pending.take();
        self.pending_bytes.fetch_add(next.bytes(), Ordering::Relaxed);
        self.pending_bytes.fetch_sub(before.as_ref().map_or(0, Pending::bytes), Ordering::Relaxed);
        let is_first = before.is_none();
        slot.pending = Some(next.after(before));
        slot.failures = 0;
        if is_first {
            self.pending.fetch_add(1, Ordering::Relaxed);
            self.queue.push(key.into());
        }
        Noted::Taken
    }

    /// Replaces a record with one that has the same responses. A pending write then writes the new record, and no look-up becomes outdated.
    pub(crate) fn replace(&self, key: &[u8], before: &Arc<CacheEntry>, after: &Arc<CacheEntry>) {
        let mut shard = self.shards.of(key).lock();
        let Some(slot) = shard.by_key.get_mut(key) else { return };
        if let Some(Pending::Put { entry, .. }) = slot.pending.as_mut()
            && Arc::ptr_eq(entry, before)
        {
            self.pending_bytes.fetch_add(after.charge().bytes(), Ordering::Relaxed);
            self.pending_bytes.fetch_sub(entry.charge().bytes(), Ordering::Relaxed);
            *entry = Arc::clone(after);
        }
        if slot.in_use.upgrade().is_some_and(|in_use| Arc::ptr_eq(&in_use, before)) {
            slot.in_use = Arc::downgrade(after);
        }
    }

    /// Drops the reference to a key's record in use.
    pub(crate) fn out_of_use(&self, key: &[u8]) {
        let mut shard = self.shards.of(key).lock();
        if let Some(slot) = shard.by_key.get_mut(key) {
            slot.in_use = Weak::new();
        }
        shard.let_go(key);
    }

    /// Moves pending removals to the front of the queue, and ends all pauses.
    pub(crate) fn removals_first(&self) {
        let keys = self.queue.take().into_iter();
        let (removals, others): (Vec<_>, Vec<_>) = keys
            .partition(|key| matches!(self.pending(key), Some(Numbered { pending: Pending::Removed, .. })));
        removals.into_iter().chain(others).for_each(|key| self.queue.push(key));
    }

    /// Returns the number of pending removals.
    pub(crate) fn removals(&self) -> usize {
        let is_removal = |slot: &&KeySlot| matches!(slot.pending, Some(Pending::Removed));
        self.shards.iter().map(|shard| shard.lock().by_key.values().filter(is_removal).count()).sum()
    }

    /// Returns the pending operation of a key.
    pub(crate) fn pending(&self, key: &[u8]) -> Option<Numbered> {
        let shard = self.shards.of(key).lock();
        let slot = shard.by_key.get(key)?;
        Some(Numbered { pending: slot.pending.clone()?, number: slot.number })
    }

    /// Removes a completed operation. Returns whether the key has no other operation.
    pub(crate) fn done(&self, key: &[u8], number: u64) -> bool {
        let mut shard = self.shards.of(key).lock();
        let Some(slot) = shard.by_key.get_mut(key) else { return true };
        if slot.number != number {
            return false;
        }
        if let Some(pending) = slot.pending.take() {
            self.pending.fetch_sub(1, Ordering::Relaxed);
            self.pending_bytes.fetch_sub(pending.bytes(), Ordering::Relaxed);
        }
        shard.let_go(key);
        true
    }

    /// Counts a failed attempt. Returns the number of the operation's failed attempts.
    pub(crate) fn failed(&self, key: &[u8], number: u64) -> u32 {
        let mut shard = self.shards.of(key).lock();
        let slot = shard.by_key.get_mut(key).filter(|slot| slot.number == number);
        slot.map_or(0, |slot| {
            slot.failures += 1;
            slot.failures
        })
    }

    /// Turns an operation that failed into a removal, because the tier's record is outdated.
    pub(crate) fn give_up(&self, key: &[u8], number: u64) {
        let mut shard = self.shards.of(key).lock();
        if let Some(slot) = shard.by_key.get_mut(key).filter(|slot| slot.number == number) {
            let bytes = slot.give_up();
            self.pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Begins a look-up in the tier; the guard must be held until the answer is used.
    pub(crate) fn ask<'a>(&'a self, key: &'a [u8]) -> KeyWatch<'a> {
        let mut shard = self.shards.of(key).lock();
        let slot = shard.slot(key);
        slot.asking += 1;
        KeyWatch { write_behind: self, key, number: slot.number, reports: slot.reports }
    }

    /// Records that the tier has reported a change to a key. Returns the record in use, if any.
    pub(crate) fn suspect(&self, key: &[u8]) -> Option<Arc<CacheEntry>> {
        let mut shard = self.shards.of(key).lock();
        let slot = shard.by_key.get_mut(key)?;
        slot.reports += 1;
        slot.in_use.upgrade()
    }

    /// Returns the number of keys with a pending change.
    pub(crate) fn pending_keys(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }
}

impl KeyWatch<'_> {
    pub(crate) fn key(&self) -> &[u8] {
        self.key
    }

    /// Makes a loaded record the record in use, unless it is already outdated. `mark` stores in the record of which version it is a copy,
    /// before the tier can report a later change.
    pub(crate) fn found(&self, entry: &Arc<CacheEntry>, mark: impl FnOnce(&TierCopy)) -> bool {
        self.if_current(|slot| {
            slot.in_use = Arc::downgrade(entry);
            mark(&entry.copy);
        })
    }

    /// Drops the reference to the record in use, because the tier has a different record that this instance can't use. Returns whether the
    /// look-up is still current.
    pub(crate) fn gone(&self) -> bool {
        self.if_current(|slot| slot.in_use = Weak::new())
    }

    /// Returns whether the key is unchanged since the look-up began.
    pub(crate) fn is_current(&self) -> bool {
        self.if_current(|_| {})
    }

    fn if_current(&self, change: impl FnOnce(&mut KeySlot)) -> bool {
        let mut shard = self.write_behind.shards.of(self.key).lock();
        let slot = shard.by_key.get_mut(self.key);
        slot.filter(|slot| slot.number == self.number && slot.reports == self.reports).map(change).is_some()
    }
}

impl Drop for KeyWatch<'_> {
    fn drop(&mut self) {
        let mut shard = self.write_behind.shards.of(self.key).lock();
        if let Some(slot) = shard.by_key.get_mut(self.key) {
            slot.asking -= 1;
        }
        shard.let_go(self.key);
    }
}

impl Slots {
    fn slot(&mut self, key: &[u8]) -> &mut KeySlot {
        if self.by_key.len() >= self.sweep_at.max(SWEEP_SLOTS_MIN) {
            self.by_key.retain(|_, slot| !slot.is_idle());
            self.sweep_at = 2 * self.by_key.len();
        }
        self.by_key.entry(key.into()).or_default()
    }

    fn let_go(&mut self, key: &[u8]) {
        if self.by_key.get(key).is_some_and(KeySlot::is_idle) {
            self.by_key.remove(key);
        }
    }
}

impl KeySlot {
    fn known(&self) -> KnownRecord {
        match &self.pending {
            Some(Pending::Put { entry, .. }) => KnownRecord::Entry(Arc::clone(entry)),
            Some(Pending::Removed) => KnownRecord::Nothing,
            None => self.in_use.upgrade().map_or(KnownRecord::Unknown, KnownRecord::Entry),
        }
    }

    /// Turns the pending operation into a removal. Returns the number of pending bytes that this releases.
    fn give_up(&mut self) -> usize {
        self.number += 1;
        self.failures = 0;
        self.in_use = Weak::new();
        let given_up = self.pending.replace(Pending::Removed);
        given_up.iter().for_each(Pending::mark_given_up);
        given_up.as_ref().map_or(0, Pending::bytes)
    }

    fn is_idle(&self) -> bool {
        self.pending.is_none() && self.asking == 0 && self.in_use.strong_count() == 0
    }
}

impl Pending {
    fn bytes(&self) -> usize {
        match self {
            Self::Put { entry, .. } => entry.charge().bytes(),
            Self::Removed => 0,
        }
    }

    /// Marks a record that won't be written to the tier, so that the tier is queried before its next use.
    fn mark_given_up(&self) {
        if let Self::Put { entry, .. } = self {
            entry.copy.give_up();
        }
    }

    fn claim(&self) -> Option<&Claim> {
        match self {
            Self::Put { claim, .. } => claim.as_ref(),
            Self::Removed => None,
        }
    }

    /// Combines the operation with an earlier one that is still pending.
    fn after(self, before: Option<Self>) -> Self {
        match (self, before) {
            (Self::Put { entry, theirs, claim }, Some(before)) => {
                let claim = Claim::after(claim, before.claim());
                let theirs = theirs.after(before);
                Self::Put { entry, theirs, claim }
            }
            (own, _) => own,
        }
    }
}

impl Claim {
    /// Returns the claim on a record that also contains an earlier, unwritten change.
    fn after(own: Option<Self>, before: Option<&Self>) -> Option<Self> {
        let is_same =
            own.as_ref().zip(before).is_some_and(|(own, before)| Arc::ptr_eq(&own.held, &before.held));
        let claim = own.or_else(|| before.cloned())?;
        Some(if is_same { claim } else { Self { covers: Covers::Part, ..claim } })
    }
}

impl Theirs {
    fn after(self, before: Pending) -> Self {
        let Self::Kept { mut dropped } = self else { return Self::Gone };
        match before {
            Pending::Removed | Pending::Put { theirs: Self::Gone, .. } => Self::Gone,
            Pending::Put { theirs: Self::Kept { dropped: earlier }, .. } => {
                dropped.extend(earlier);
                Self::Kept { dropped }
            }
        }
    }
}
