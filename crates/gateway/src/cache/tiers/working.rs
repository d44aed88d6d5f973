//! What the tier behind memory does not know yet, and what it has just told: the two that a look-up must see although memory may have
//! forgotten them.
//!
//! For each key, at most one operation that the tier has not acknowledged, and the record that is in use. Both are gone as
//! soon as nobody needs them, so this is no second memory tier.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use store::{FillId, Record as _};

use crate::cache::record::stored::CacheEntry;

/// What is to happen to a record of the tier.
#[derive(Clone, Debug)]
pub(crate) enum Pending {
    /// It is written.
    Put { entry: Arc<CacheEntry>, theirs: Theirs },
    /// It is removed.
    Removed,
}

/// What becomes of the responses that the tier has, and that nobody here has seen, when a record is written.
#[derive(Clone, Debug)]
pub(crate) enum Theirs {
    /// They stay, but those with these ids, which were replaced.
    Kept { dropped: Vec<FillId> },
    /// They go.
    Gone,
}

/// What is known of a key without asking the tier.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// This is what lies there.
    Entry(Arc<CacheEntry>),
    /// Nothing lies there.
    Nothing,
    /// What the tier has.
    Unknown,
}

/// Whether an operation was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    Taken,
    Refused,
}

/// How much may wait to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) keys_max: usize,
    pub(crate) bytes_max: usize,
}

/// An operation, and which of those on its key.
#[derive(Clone, Debug)]
pub(crate) struct Numbered {
    pub(crate) pending: Pending,
    pub(crate) number: u64,
}

#[derive(Default)]
struct Slot {
    pending: Option<Pending>,
    in_use: Weak<CacheEntry>,
    /// The number of the last operation: a record that was asked for before it is outdated.
    number: u64,
    /// Who asks the tier now. The slot stays for them, and with it the number.
    asking: usize,
}

/// See the module.
pub(crate) struct Working {
    shards: Box<[Mutex<Slots>]>,
    hasher: RandomState,
    /// How many keys something is to happen to.
    pending: AtomicUsize,
    /// What the records take in memory that are to be written.
    pending_bytes: AtomicUsize,
    /// From where on the next key is looked for, so that each has its turn.
    next: AtomicUsize,
}

#[derive(Default)]
struct Slots {
    /// Keys that something is to happen to and that no writer has taken yet, each once.
    waiting: VecDeque<Box<[u8]>>,
    by_key: HashMap<Box<[u8]>, Slot>,
    /// How many there are when those that are idle go: nobody says when a record is no longer in use.
    sweep_at: usize,
}

/// Somebody asks the tier for a key. Whatever changes meanwhile is noticed.
pub(crate) struct Asking<'a> {
    working: &'a Working,
    key: &'a [u8],
    number: u64,
}

/// Enough that workers rarely wait for each other.
const SHARDS: usize = 64;
const SWEEP_SLOTS_MIN: usize = 64;

impl Default for Working {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self {
            shards,
            hasher: RandomState::new(),
            pending: AtomicUsize::new(0),
            pending_bytes: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
        }
    }
}

impl Working {
    /// What is known of a key.
    pub(crate) fn known(&self, key: &[u8]) -> Known {
        self.shard(key).lock().by_key.get(key).map_or(Known::Unknown, Slot::known)
    }

    /// What lies under a key, as far as that is known here.
    pub(crate) fn entry(&self, key: &[u8]) -> Option<Arc<CacheEntry>> {
        match self.known(key) {
            Known::Entry(entry) => Some(entry),
            Known::Nothing | Known::Unknown => None,
        }
    }

    /// Notes what is to happen in the tier, in place of what was to happen before. Refused where that would be one key more
    /// than may wait: then nobody will know. A record for which there is no room is not written, and what the tier has for
    /// its key is removed.
    pub(crate) fn note(&self, key: &[u8], next: Pending, limits: Limits) -> Noted {
        let mut shard = self.shard(key).lock();
        let is_full = self.pending_keys() >= limits.keys_max;
        let next = self.fitting(next, limits);
        let slot = shard.slot(key);
        slot.number += 1;
        if is_full && slot.pending.is_none() {
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
        if is_first {
            self.pending.fetch_add(1, Ordering::Relaxed);
            shard.waiting.push_back(key.into());
        }
        Noted::Taken
    }

    fn fitting(&self, next: Pending, limits: Limits) -> Pending {
        let waiting = self.pending_bytes.load(Ordering::Relaxed);
        if waiting.saturating_add(next.bytes()) > limits.bytes_max { Pending::Removed } else { next }
    }

    /// A key that something is to happen to, for one writer.
    pub(crate) fn next(&self) -> Option<Box<[u8]>> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        (0..SHARDS)
            .find_map(|step| self.shards[(first.wrapping_add(step)) % SHARDS].lock().waiting.pop_front())
    }

    /// What is to happen to a key.
    pub(crate) fn pending(&self, key: &[u8]) -> Option<Numbered> {
        let shard = self.shard(key).lock();
        let slot = shard.by_key.get(key)?;
        Some(Numbered { pending: slot.pending.clone()?, number: slot.number })
    }

    /// An operation took place; whether nothing else is to happen to its key.
    pub(crate) fn done(&self, key: &[u8], number: u64) -> bool {
        let mut shard = self.shard(key).lock();
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

    /// An operation can't take place: what the tier has for its key is removed instead, because it is older.
    pub(crate) fn give_up(&self, key: &[u8], number: u64) {
        let mut shard = self.shard(key).lock();
        if let Some(slot) = shard.by_key.get_mut(key).filter(|slot| slot.number == number) {
            slot.number += 1;
            slot.in_use = Weak::new();
            let given_up = slot.pending.replace(Pending::Removed);
            self.pending_bytes.fetch_sub(given_up.as_ref().map_or(0, Pending::bytes), Ordering::Relaxed);
        }
    }

    /// To be held while the tier is asked for a key.
    pub(crate) fn ask<'a>(&'a self, key: &'a [u8]) -> Asking<'a> {
        let mut shard = self.shard(key).lock();
        let slot = shard.slot(key);
        slot.asking += 1;
        Asking { working: self, key, number: slot.number }
    }

    /// How many keys something is to happen to.
    pub(crate) fn pending_keys(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    fn shard(&self, key: &[u8]) -> &Mutex<Slots> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }
}

impl Asking<'_> {
    /// Makes what the tier has told known to others, unless it is outdated by now.
    pub(crate) fn found(&self, entry: &Arc<CacheEntry>) -> bool {
        let mut shard = self.working.shard(self.key).lock();
        let slot = shard.by_key.get_mut(self.key).filter(|slot| slot.number == self.number);
        let is_current = slot.is_some();
        slot.into_iter().for_each(|slot| slot.in_use = Arc::downgrade(entry));
        is_current
    }

    /// Whether nothing has changed meanwhile.
    pub(crate) fn is_current(&self) -> bool {
        let shard = self.working.shard(self.key).lock();
        shard.by_key.get(self.key).is_some_and(|slot| slot.number == self.number)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut shard = self.working.shard(self.key).lock();
        if let Some(slot) = shard.by_key.get_mut(self.key) {
            slot.asking -= 1;
        }
        shard.let_go(self.key);
    }
}

impl Slots {
    fn slot(&mut self, key: &[u8]) -> &mut Slot {
        if self.by_key.len() >= self.sweep_at.max(SWEEP_SLOTS_MIN) {
            self.by_key.retain(|_, slot| !slot.is_idle());
            self.sweep_at = 2 * self.by_key.len();
        }
        self.by_key.entry(key.into()).or_default()
    }

    fn let_go(&mut self, key: &[u8]) {
        if self.by_key.get(key).is_some_and(Slot::is_idle) {
            self.by_key.remove(key);
        }
    }
}

impl Slot {
    fn known(&self) -> Known {
        match &self.pending {
            Some(Pending::Put { entry, .. }) => Known::Entry(Arc::clone(entry)),
            Some(Pending::Removed) => Known::Nothing,
            None => self.in_use.upgrade().map_or(Known::Unknown, Known::Entry),
        }
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

    /// What is left to be done where something else was to be done before, and was not.
    fn after(self, before: Option<Self>) -> Self {
        match (self, before) {
            (Self::Put { entry, theirs }, Some(before)) => {
                let theirs = theirs.after(before);
                Self::Put { entry, theirs }
            }
            (own, _) => own,
        }
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
