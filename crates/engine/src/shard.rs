//! A shard: a part of the keys under one lock, with its index and memory, and the operations on a single key.

use std::sync::Arc;

use slab::Slab;

use crate::budget::Budget;
use crate::chance::Chance;
use crate::expire::Sweep;
use crate::ghosts::Ghosts;
use crate::hash::{Database, Hash, Hasher, Key};
use crate::index::{Index, SlotAt};
use crate::item::{Body, Content, Header, INLINE_BYTES_MAX, Item, is_same};
use crate::large::Large;
use crate::losses::{Cause, Losses};
use crate::packed::Stored;
use crate::policy::Policy;
use crate::queue::{Queue, Queues};
use crate::reclaim::Emptying;
use crate::saved::Pending;
use crate::segment::Segments;
use crate::slot::{Place, Slot};

/// Error of a write for which there is no room, if no key may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("memory is full, and nothing may be evicted")]
pub struct OutOfMemory;

/// The expiry to set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    /// No expiry.
    #[default]
    Never,
    /// The current expiry; none for a new key.
    Keep,
    /// An expiry in milliseconds, on the same clock as `now_ms` in calls.
    At(u64),
}

/// Limits of keys' lifetimes, which override the requested expiries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lifetimes {
    /// Lifetime of a key without an expiry.
    pub default_ms: Option<u64>,
    /// Maximum lifetime of every key.
    pub max_ms: Option<u64>,
}

impl Lifetimes {
    /// Returns the effective expiry for a requested expiry.
    fn bound(self, expires_at_ms: Option<u64>, now_ms: u64) -> Option<u64> {
        let from_now = |lifetime_ms: u64| now_ms.saturating_add(lifetime_ms);
        let latest = self.max_ms.map(from_now);
        match expires_at_ms.or_else(|| self.default_ms.map(from_now)) {
            Some(at_ms) => Some(latest.map_or(at_ms, |latest| at_ms.min(latest))),
            None => latest,
        }
    }
}

/// Whether a lookup counts as an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Counts for eviction.
    Use,
    /// Doesn't count.
    Peek,
}

/// A key that was found.
#[derive(Clone, Debug)]
pub struct Found<'a> {
    /// The value.
    pub value: Value<'a>,
    /// The expiry.
    pub expires_at_ms: Option<u64>,
    /// Access frequency in the units of the policy.
    pub frequency: u8,
    /// Seconds since the last access.
    pub idle_s: u32,
}

/// A stored value.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A small value in its segment.
    Inline(&'a [u8]),
    /// A large value, which can be cloned without a copy of its bytes, for decompression or sending.
    Large(&'a Stored),
}

/// Counters of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Keys per database.
    pub keys: [u64; Database::COUNT],
    /// Keys with an expiry per database.
    pub expiring: [u64; Database::COUNT],
    /// Bytes of keys with an expiry, without large items.
    pub(crate) expiring_bytes: u64,
    /// Number of large items with an expiry.
    pub(crate) expiring_large: u64,
    pub evicted: u64,
    pub expired: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, header: Header) {
        let database = header.database().number();
        self.keys[database] += 1;
        if header.expires() {
            self.expiring[database] += 1;
            self.expiring_bytes += header.item_bytes() as u64;
            self.expiring_large += u64::from(header.is_large());
        }
    }

    fn remove(&mut self, header: Header) {
        let database = header.database().number();
        self.keys[database] -= 1;
        if header.expires() {
            self.expiring[database] -= 1;
            self.expiring_bytes -= header.item_bytes() as u64;
            self.expiring_large -= u64::from(header.is_large());
        }
    }

    /// Counts keys that aren't loaded yet.
    pub(crate) fn expect(&mut self, keys: &[u64; Database::COUNT], expiring: &[u64; Database::COUNT]) {
        let add = |sum: &mut [u64], more: &[u64]| {
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
        };
        add(&mut self.keys, keys);
        add(&mut self.expiring, expiring);
    }
}

/// A shard.
#[derive(Debug)]
pub struct Shard {
    pub(crate) index: Index,
    pub(crate) segments: Segments,
    pub(crate) large: Slab<Large>,
    pub(crate) queues: Queues,
    pub(crate) ghosts: Ghosts,
    pub(crate) hasher: Hasher,
    pub(crate) chance: Chance,
    pub(crate) policy: Policy,
    /// `None` if lifetimes are not limited.
    pub(crate) lifetimes: Option<Lifetimes>,
    pub(crate) budget: Arc<Budget>,
    /// Memory of index and ghosts, as charged to the budget.
    tables_bytes: usize,
    /// The segment being read for expired items.
    pub(crate) sweep: Option<Sweep>,
    /// The segment being emptied.
    pub(crate) emptying: Option<Emptying>,
    /// Whether the budget has no segment left for the time when the open ones are full.
    pub(crate) is_short: bool,
    /// Number of segments taken for kept items regardless of the budget, and not yet compensated by freed
    /// segments.
    pub(crate) lent_segments: usize,
    /// Bytes taken from the budget in advance, for the writes of a reservation.
    pub(crate) reserved_bytes: usize,
    /// Whether a reservation relies on the room in open segments.
    pub(crate) is_reserved: bool,
    pub(crate) counts: Counts,
    losses: Arc<Losses>,
    /// The source from which the shard has to be loaded before the first lookup.
    pub(crate) pending: Option<Box<Pending>>,
    /// Bytes that the budget has reserved for loading.
    pub(crate) expected_bytes: u64,
}

impl Shard {
    pub(crate) fn new(
        policy: Policy,
        hasher: Hasher,
        budget: Arc<Budget>,
        losses: Arc<Losses>,
        seed: u64,
    ) -> Self {
        let mut shard = Self {
            index: Index::new(&budget.pools.blocks),
            segments: Segments::new(Arc::clone(&budget.pools.commons), Arc::clone(&budget.pools.segments)),
            large: Slab::new(),
            queues: Queues::default(),
            ghosts: Ghosts::default(),
            hasher,
            chance: Chance::new(seed),
            policy,
            lifetimes: None,
            budget,
            tables_bytes: 0,
            sweep: None,
            emptying: None,
            is_short: false,
            lent_segments: 0,
            reserved_bytes: 0,
            is_reserved: false,
            counts: Counts::default(),
            losses,
            pending: None,
            expected_bytes: 0,
        };
        shard.charge_tables();
        shard
    }

    /// Looks up a key.
    #[inline]
    pub(crate) fn get(&mut self, key: &Key<'_>, access: Access, now_ms: u64) -> Option<Found<'_>> {
        let (_, slot) = self.find(key, now_ms)?;
        let place = slot.place()?;
        let now_s = seconds(now_ms);
        let header = Header::read(self.segments.at(place));
        if access == Access::Use {
            let used = self.used_once_more(header).used_at(now_s);
            used.write_change(header, self.segments.at_mut(place));
        }
        let item = Item::with_header(header, self.segments.at(place));
        let value = if header.is_large() {
            Value::Large(&self.large[item.large() as usize].stored)
        } else {
            Value::Inline(item.value())
        };
        let idle_s = if access == Access::Use { 0 } else { header.idle_s(now_s) };
        Some(Found { value, expires_at_ms: item.expires_at_ms(), frequency: header.frequency(), idle_s })
    }

    /// Memory of a key, its value and its share of the index. Doesn't count as an access.
    pub(crate) fn memory_bytes(&mut self, key: &Key<'_>, now_ms: u64) -> Option<usize> {
        let (_, slot) = self.find(key, now_ms)?;
        let item = Item::read(self.segments.at(slot.place()?));
        let outside_bytes = match item.body() {
            Body::Inline { .. } => 0,
            Body::Large(number) => self.large[number as usize].bytes(),
        };
        let index_bytes = self.index.bytes() / self.index.keys();
        Some(item.header.item_bytes() + outside_bytes + index_bytes.min(INDEX_BYTES_MAX))
    }

    /// The number of a key's large item, if it has one.
    pub(crate) fn large_number(&mut self, key: &Key<'_>, now_ms: u64) -> Option<u32> {
        let (_, slot) = self.find(key, now_ms)?;
        match Item::read(self.segments.at(slot.place()?)).body() {
            Body::Inline { .. } => None,
            Body::Large(number) => Some(number),
        }
    }

    /// Returns whether a key exists. Doesn't count as an access.
    pub(crate) fn contains(&mut self, key: &Key<'_>, now_ms: u64) -> bool {
        self.find(key, now_ms).is_some()
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// If there is no room. The old value is unchanged.
    pub(crate) fn set(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        expiry: Expiry,
        now_ms: u64,
    ) -> Result<(), OutOfMemory> {
        if key.bytes.len() + value.len() > INLINE_BYTES_MAX {
            let stored = Stored::new(Arc::new(value.to_vec()), self.budget.pack_from_bytes());
            return self.set_stored(key, stored, expiry, now_ms);
        }
        let old = self.find(key, now_ms);
        let expires_at_ms = self.expiry_of(old, expiry, now_ms);
        let body = Body::Inline { key: key.bytes, value };
        let used_s = seconds(now_ms);
        let content = Content { database: key.database, body, expires_at_ms, used_s, frequency: 0 };
        if self.overwrite(old, &content) {
            return Ok(());
        }
        self.write(key, &content, now_ms)
    }

    /// Sets a value prepared by [`Engine::pack`](crate::Engine::pack). A large value isn't copied.
    ///
    /// # Errors
    /// Returns the errors of [`Shard::set`].
    pub(crate) fn set_stored(
        &mut self,
        key: &Key<'_>,
        value: Stored,
        expiry: Expiry,
        now_ms: u64,
    ) -> Result<(), OutOfMemory> {
        if key.bytes.len() + value.value_bytes() <= INLINE_BYTES_MAX {
            return self.set(key, &value.plain(), expiry, now_ms);
        }
        let old = self.find(key, now_ms);
        let expires_at_ms = self.expiry_of(old, expiry, now_ms);
        self.set_large(key, value, expires_at_ms, now_ms)
    }

    /// Changes the expiry of a key, which counts as an access. Returns whether the key exists. Works even if
    /// memory is full: an added expiry may take 6 bytes per key above the limit, and other keys are then
    /// evicted to compensate, as far as possible.
    ///
    /// # Errors
    /// If the shard has the maximum number of segments.
    pub(crate) fn set_expiry(
        &mut self,
        key: &Key<'_>,
        expiry: Expiry,
        now_ms: u64,
    ) -> Result<bool, OutOfMemory> {
        let Some((at, slot)) = self.find(key, now_ms) else { return Ok(false) };
        let Some(place) = slot.place() else { return Ok(false) };
        let expires_at_ms = self.expiry_of(Some((at, slot)), expiry, now_ms);
        let header = Header::read(self.segments.at(place));
        let used = self.used_once_more(header).used_at(seconds(now_ms));
        if header.expires() == expires_at_ms.is_some() {
            let segment = self.segments.get_mut(place.segment);
            used.write(segment.rest_mut(place.offset as usize));
            if let Some(expires_at_ms) = expires_at_ms {
                Item::write_expiry(segment.rest_mut(place.offset as usize), expires_at_ms);
                segment.note_expiry(expires_at_ms);
            }
            return Ok(true);
        }
        let queue = self.queues.queue_of_any(place.segment);
        self.rewrite(queue, at, place, (used, expires_at_ms))?;
        self.make_up_for_rewritten(queue, header.item_bytes(), now_ms);
        Ok(true)
    }

    /// Writes an item again, with or without an expiry. A large value isn't moved.
    fn rewrite(
        &mut self,
        queue: Queue,
        at: SlotAt,
        place: Place,
        (header, expires_at_ms): (Header, Option<u64>),
    ) -> Result<(), OutOfMemory> {
        let bytes = Item::read(self.segments.at(place)).bytes().to_vec();
        let item = Item::read(&bytes);
        let content = Content {
            database: header.database(),
            body: item.body(),
            expires_at_ms,
            used_s: header.used_s(),
            frequency: header.frequency(),
        };
        let moved = self.append_anyway(queue, &content)?;
        self.index.put(at, Slot::new(moved));
        self.forget_item(place, item.header);
        self.counts.add(content.header());
        Ok(())
    }

    /// Removes a key. Returns whether the key existed.
    pub(crate) fn remove(&mut self, key: &Key<'_>, now_ms: u64) -> bool {
        let Some((at, slot)) = self.find(key, now_ms) else { return false };
        self.discard(slot);
        self.index.remove(at);
        true
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.take_all();
    }

    /// Moves the contents to a new shard, and leaves this one empty.
    pub(crate) fn take_all(&mut self) -> Self {
        let empty = self.empty_copy();
        self.replace(empty)
    }

    /// An empty shard with the same settings.
    pub(crate) fn empty_copy(&mut self) -> Self {
        self.empty_copy_within(Arc::clone(&self.budget))
    }

    /// Returns an empty shard with the same settings, whose memory counts in another budget.
    pub(crate) fn empty_copy_within(&mut self, budget: Arc<Budget>) -> Self {
        let losses = Arc::clone(&self.losses);
        Self::new(self.policy, self.hasher.clone(), budget, losses, self.chance.next())
    }

    /// Moves a shard that was loaded separately to this budget, where its memory replaces the bytes reserved
    /// for loading.
    pub(crate) fn adapt(&mut self, other: &mut Self) {
        self.budget.take_over(&other.budget, std::mem::take(&mut self.expected_bytes));
        other.budget = Arc::clone(&self.budget);
        other.policy = self.policy;
    }

    /// Takes over the contents of another shard, and returns the old contents.
    pub(crate) fn replace(&mut self, other: Self) -> Self {
        let (evicted, expired) = (self.counts.evicted, self.counts.expired);
        let lifetimes = self.lifetimes;
        let old = std::mem::replace(self, other);
        self.lifetimes = lifetimes;
        self.counts.evicted += evicted;
        self.counts.expired += expired;
        old
    }

    /// Removes all keys of a database.
    pub fn clear_database(&mut self, database: Database) {
        let of_others = self
            .counts
            .keys
            .iter()
            .enumerate()
            .any(|(number, keys)| number != database.number() && *keys > 0);
        if !of_others {
            return self.clear();
        }
        for home in 0..self.index.buckets() {
            let slots: Vec<Slot> = self.index.slots_of(home).collect();
            slots.into_iter().for_each(|slot| self.remove_if_of(slot, database));
        }
    }

    fn remove_if_of(&mut self, slot: Slot, database: Database) {
        let Some(place) = slot.place() else { return };
        let item = Item::read(self.segments.at(place));
        if item.header.database() != database {
            return;
        }
        let hash = self.hash_of_item(item).expect("an indexed item exists");
        let (at, _) = self.index.find(hash, |other| other == slot).expect("it was just listed");
        self.index.remove(at);
        self.discard(slot);
    }

    /// Returns the maximum number of index buckets that a search for a key visits. The number is small for
    /// any set of keys.
    #[must_use]
    pub fn longest_search(&self) -> usize {
        self.index.longest_search()
    }

    /// Returns an upper bound of the bytes that can be freed without removing keys that have no expiry: the
    /// bytes of keys with an expiry, and dead bytes.
    pub(crate) fn passing_bytes(&self) -> u64 {
        let large_bytes = if self.counts.expiring_large > 0 { self.segments.outside_bytes() } else { 0 };
        self.counts.expiring_bytes + (self.segments.dead_bytes() + large_bytes) as u64
    }

    /// The counters of the shard.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The slot of a key that has not expired.
    #[inline]
    pub(crate) fn find(&mut self, key: &Key<'_>, now_ms: u64) -> Option<(SlotAt, Slot)> {
        let (segments, large) = (&self.segments, &self.large);
        let (at, slot) = self.index.find(key.hash, |slot| holds(segments, large, slot, key))?;
        let item = Item::read(segments.at(slot.place()?));
        if !item.is_expired(now_ms) {
            return Some((at, slot));
        }
        self.lose(slot, key, Cause::Expired);
        self.index.remove(at);
        None
    }

    fn expiry_of(&self, old: Option<(SlotAt, Slot)>, expiry: Expiry, now_ms: u64) -> Option<u64> {
        let before = || Item::read(self.segments.at(old?.1.place()?)).expires_at_ms();
        let expires_at_ms = match expiry {
            Expiry::Never => None,
            Expiry::At(at_ms) => Some(at_ms),
            Expiry::Keep => before(),
        };
        self.bounded(expires_at_ms, now_ms)
    }

    /// Returns the effective expiry for a requested expiry.
    pub(crate) fn bounded(&self, expires_at_ms: Option<u64>, now_ms: u64) -> Option<u64> {
        self.lifetimes.map_or(expires_at_ms, |lifetimes| lifetimes.bound(expires_at_ms, now_ms))
    }

    /// Overwrites an item of the same size and kind. Returns whether there was an item to overwrite.
    fn overwrite(&mut self, old: Option<(SlotAt, Slot)>, content: &Content<'_>) -> bool {
        let Some((_, slot)) = old else { return false };
        let Some(place) = slot.place() else { return false };
        let header = Header::read(self.segments.at(place));
        let is_same_form = header.expires() == content.expires_at_ms.is_some() && !header.is_large();
        let new = content.header();
        if !is_same_form || header.item_bytes() != new.item_bytes() {
            return false;
        }
        let new = new.with_frequency(self.used_once_more(header).frequency());
        content.write_over(new, self.segments.at_mut(place));
        if let Some(expires_at_ms) = content.expires_at_ms {
            self.segments.get_mut(place.segment).note_expiry(expires_at_ms);
        }
        true
    }

    fn set_large(
        &mut self,
        key: &Key<'_>,
        stored: Stored,
        expires_at_ms: Option<u64>,
        now_ms: u64,
    ) -> Result<(), OutOfMemory> {
        let large = Large { key: key.bytes.into(), stored };
        self.make_room_for(large.bytes(), now_ms)?;
        let number = self.add_large(large);
        let body = Body::Large(number);
        let used_s = seconds(now_ms);
        let content = Content { database: key.database, body, expires_at_ms, used_s, frequency: 0 };
        let written = self.write(key, &content, now_ms);
        if written.is_err() {
            self.drop_large(number);
        }
        written
    }

    /// Appends an item to a queue, and points the key's slot to it.
    fn write(&mut self, key: &Key<'_>, content: &Content<'_>, now_ms: u64) -> Result<(), OutOfMemory> {
        if self.is_short {
            self.refuse_above_limit()?;
        }
        let old = self.find(key, now_ms).and_then(|(_, slot)| slot.place());
        let queue = if old.is_none() && self.ghosts.take(key.hash) { Queue::Main } else { Queue::Small };
        let frequency = match old.map(|place| Header::read(self.segments.at(place))) {
            Some(header) => self.used_once_more(header).frequency(),
            None => self.first_frequency(),
        };
        let place = self.append(queue, &Content { frequency, ..*content }, now_ms)?;
        // Making room may have moved or evicted the old item.
        let (segments, large) = (&self.segments, &self.large);
        let old = self.index.find(key.hash, |slot| holds(segments, large, slot, key));
        self.point(key.hash, old, Slot::new(place));
        self.counts.add(content.header());
        Ok(())
    }

    /// Replaces the slot of a key, or inserts it.
    pub(crate) fn point(&mut self, hash: Hash, old: Option<(SlotAt, Slot)>, slot: Slot) {
        match old {
            Some((at, old)) => {
                self.index.put(at, slot);
                self.discard(old);
            }
            None => self.insert(hash, slot),
        }
    }

    fn insert(&mut self, hash: Hash, slot: Slot) {
        let (segments, large, hasher) = (&self.segments, &self.large, &self.hasher);
        self.index.insert(hash, slot, |slot| hash_of(segments, large, hasher, slot));
        self.charge_tables();
    }

    /// Removes the item of a slot: its bytes are dead from now on.
    pub(crate) fn discard(&mut self, slot: Slot) {
        let Some(place) = slot.place() else { return };
        let item = Item::read(self.segments.at(place));
        let (header, body) = (item.header, item.body());
        if let Body::Large(number) = body {
            self.drop_large(number);
        }
        self.forget_item(place, header);
    }

    /// Counts the bytes of an item as dead, without freeing a large value.
    fn forget_item(&mut self, place: Place, header: Header) {
        self.uncount(header);
        let segment = self.segments.get_mut(place.segment);
        segment.live_bytes -= header.item_bytes();
        if segment.live_bytes == 0 {
            self.free_if_sealed(place.segment);
        }
    }

    pub(crate) fn uncount(&mut self, header: Header) {
        self.counts.remove(header);
    }

    /// Removes an item that expired or was evicted.
    fn lose(&mut self, slot: Slot, key: &Key<'_>, cause: Cause) {
        self.note_loss(key.bytes, key.database, cause);
        self.discard(slot);
    }

    pub(crate) fn note_loss(&mut self, key: &[u8], database: Database, cause: Cause) {
        match cause {
            Cause::Expired => self.counts.expired += 1,
            Cause::Evicted => self.counts.evicted += 1,
        }
        self.losses.note(key, database, cause);
    }

    /// Charges the current size of index and ghosts to the budget.
    pub(crate) fn charge_tables(&mut self) {
        let bytes = self.index.bytes() + self.ghosts.bytes();
        if bytes > self.tables_bytes {
            self.budget.take_anyway(bytes - self.tables_bytes);
        } else {
            self.budget.give_back(self.tables_bytes - bytes);
        }
        self.budget.fix(self.tables_bytes, bytes);
        self.tables_bytes = bytes;
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        let large_bytes: usize = self.large.iter().map(|(_, large)| large.bytes()).sum();
        let segments_bytes = self.segments.count() * crate::segment::SEGMENT_BYTES;
        self.budget.fix(self.tables_bytes, 0);
        self.budget.give_back(self.tables_bytes + segments_bytes);
        self.budget.free(large_bytes);
        self.budget.expect_no_more(self.expected_bytes);
    }
}

impl Value<'_> {
    /// Length of the value.
    #[must_use]
    pub fn length(&self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len(),
            Self::Large(stored) => stored.value_bytes(),
        }
    }

    /// The bytes, unless they are compressed.
    #[must_use]
    pub fn plain(&self) -> Option<&[u8]> {
        match self {
            Self::Inline(bytes) => Some(bytes),
            Self::Large(Stored::Plain(value)) => Some(value),
            Self::Large(Stored::Packed(_)) => None,
        }
    }

    /// A copy of the value, decompressed if necessary.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        match self {
            Self::Inline(bytes) => bytes.to_vec(),
            Self::Large(stored) => Arc::unwrap_or_clone(stored.plain()),
        }
    }
}

/// Maximum share of the index to count for a key, because a key doesn't cause nearly empty buckets.
const INDEX_BYTES_MAX: usize = 64;

#[inline]
pub(crate) fn seconds(now_ms: u64) -> u32 {
    (now_ms / 1000) as u32
}

#[inline]
pub(crate) fn holds(segments: &Segments, large: &Slab<Large>, slot: Slot, key: &Key<'_>) -> bool {
    let Some(place) = slot.place() else { return false };
    let item = Item::read(segments.at(place));
    if item.header.is_large() {
        return *large[item.large() as usize].key == *key.bytes && item.header.database() == key.database;
    }
    is_same(item.key(), key.bytes) && item.header.database() == key.database
}

fn hash_of(segments: &Segments, large: &Slab<Large>, hasher: &Hasher, slot: Slot) -> Hash {
    let place = slot.place().expect("the index has no empty slots in use");
    let item = Item::read(segments.at(place));
    let key = match item.body() {
        Body::Inline { key, .. } => key,
        Body::Large(number) => &*large[number as usize].key,
    };
    hasher.hash(item.header.database(), key)
}
