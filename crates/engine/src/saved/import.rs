//! Restoring a data set: each shard is loaded when it is first needed, so that the start doesn't wait for all
//! of them.
//!
//! If the number of shards is the same, parts become segments unchanged, and the index is rebuilt from their
//! items. If the number is different, items are added one by one. In both cases, all data is validated.

use std::sync::Arc;

use super::format::{Kind, ShardEntry};
use super::read::{Opened, Parts};
use super::{Saved, SavedError};
use crate::budget::Budget;
use crate::engine::{Engine, Settings};
use crate::hash::Hash;
use crate::index::Index;
use crate::item::{Body, EXPIRY_BYTES, HEADER_BYTES, Header, Item};
use crate::large::Large;
use crate::packed::Stored;
use crate::policy::Policy;
use crate::queue::Queue;
use crate::segment::{SEGMENT_BYTES, Segment};
use crate::shard::{OutOfMemory, Shard};
use crate::slot::Place;
use crate::sync::atomic::Ordering::Relaxed;

/// Progress of loading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of loaded shards.
    pub shards: u64,
    /// Number of keys in the loaded shards.
    pub keys: u64,
    /// Number of keys in the file that have expired since it was written.
    pub expired_keys: u64,
    /// Number of keys in the file for which there was no room.
    pub left_out_keys: u64,
    /// The reason why the rest of the file was not loaded.
    pub failure: Option<String>,
}

/// The source of a shard that is not loaded yet.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    saved: Arc<Saved>,
    number: usize,
    shards: usize,
    now_ms: u64,
    /// The memory limit when the engine was created.
    first_bytes_max: u64,
}

/// A shard being loaded.
struct Loading<'a> {
    pending: &'a Pending,
    shard: Shard,
    missing: Missing,
    /// The memory that the shard may take above the limit.
    beyond: Beyond,
}

/// Keys of the file that are not restored.
#[derive(Clone, Copy, Debug, Default)]
struct Missing {
    expired: u64,
    /// Keys for which no room was left. Keys evicted to load later ones are not counted.
    refused: u64,
}

impl Missing {
    fn add(&mut self, item: Item<'_>, added: Result<(), OutOfMemory>, now_ms: u64) {
        match added {
            _ if item.is_expired(now_ms) => self.expired += 1,
            Err(OutOfMemory) => self.refused += 1,
            Ok(()) => {}
        }
    }

    fn count(self, saved: &Saved, evicted: u64) {
        saved.expired_keys.fetch_add(self.expired, Relaxed);
        saved.left_out_keys.fetch_add(self.refused + evicted, Relaxed);
    }
}

/// The memory above the limit for keys that may be neither evicted nor left out.
#[derive(Clone, Copy, Debug)]
struct Beyond {
    /// Zero if the policy may evict all keys.
    bytes: u64,
    /// The amount by which the limit was raised for such keys.
    stretched_bytes: u64,
    policy: Policy,
}

/// A part with items, and their large values.
struct Block {
    queue: Queue,
    segment: Segment,
    items: usize,
    items_bytes: usize,
    large: std::vec::IntoIter<Large>,
    at: Opened,
}

impl Engine {
    /// Creates an engine from saved data, with the saved seed instead of the seed in the settings. Shards are
    /// loaded when they are needed, or by [`Engine::load`]. If the keys were hashed with a different
    /// function, all shards are loaded before this function returns.
    #[must_use]
    pub fn restored(settings: &Settings, saved: &Arc<Saved>, now_ms: u64) -> Self {
        let engine = Self::new(&Settings { seed: saved.seed(), ..*settings });
        if engine.hashing() != saved.hashing() {
            return Self::sorted_anew(settings, saved, now_ms);
        }
        let (shards, first_bytes_max) = (engine.shards_count(), settings.bytes_max);
        for number in 0..shards {
            let pending = Pending { saved: Arc::clone(saved), number, shards, now_ms, first_bytes_max };
            engine.shard_as_is(number).wait_for(pending);
        }
        engine
    }

    /// Assigns each key to its new shard.
    fn sorted_anew(settings: &Settings, saved: &Arc<Saved>, now_ms: u64) -> Self {
        let engine = Self::new(settings);
        let (shards, first_bytes_max) = (engine.shards_count(), settings.bytes_max);
        let pending = Pending { saved: Arc::clone(saved), number: 0, shards, now_ms, first_bytes_max };
        let reader = engine.shard_as_is(0).empty_copy();
        let beyond = Beyond::new(pending.bytes_beyond(settings.bytes_max), settings.policy);
        let mut loading = Loading { pending: &pending, shard: reader, missing: Missing::default(), beyond };
        match loading.sort_into(&engine) {
            Ok(()) => {
                let keys = engine.counts().keys.iter().sum();
                saved.loaded_keys.fetch_add(keys, Relaxed);
                loading.missing.count(saved, engine.counts().evicted);
            }
            Err(error) => {
                saved.refuse(&error);
                drop(engine.clear());
            }
        }
        engine.budget.unstretch(loading.beyond.stretched_bytes);
        saved.loaded_shards.fetch_add(shards as u64, Relaxed);
        engine
    }

    /// Loads a shard if it isn't loaded yet. Another thread that needs the shard in the meantime loads it,
    /// too, and the result of this call is dropped.
    pub fn load(&self, number: usize) {
        // The calling thread loads the shard without its lock, so that another thread that needs the shard
        // doesn't wait.
        let Some((pending, empty, beyond)) = self.shard_as_is(number).loadable() else { return };
        let loaded = pending.load(empty, beyond);
        let mut shard = self.shard_as_is(number);
        if shard.pending.is_some() {
            pending.count(&loaded);
            shard.begin_with(loaded);
        }
    }
}

/// A saved key: its queue, its item, its large value, and its hash.
type Saving<'a> = (Queue, Item<'a>, Option<Large>, Hash);

/// Maximum memory above the limit for keys that may not be evicted: the limit divided by this number, but at
/// least [`BEYOND_BYTES_LEAST`].
const BEYOND_SHARE: u64 = 8;
const BEYOND_BYTES_LEAST: u64 = 1 << 20;
/// Approximate size of the index per key.
const INDEX_BYTES: u64 = 11;

/// A loaded shard, which is empty if loading failed.
pub(crate) struct Loaded {
    shard: Shard,
    missing: Missing,
}

impl Shard {
    /// Sets the source from which the shard is loaded before its first lookup.
    fn wait_for(&mut self, pending: Pending) {
        for file_shard in pending.file_shards() {
            let entry = pending.saved.entry(file_shard);
            // If there are more shards than in the file, several shards share an entry, and the first of them
            // counts its keys.
            if pending.number < pending.saved.shards() {
                self.counts.expect(&entry.keys, &entry.expiring);
            }
        }
        if self.policy == Policy::NoEviction {
            self.expected_bytes = pending.bytes_expected(&self.budget);
            self.budget.expect(self.expected_bytes);
        }
        self.pending = Some(Box::new(pending));
    }

    /// Returns the pending source, and an empty shard that it can be loaded into. The empty shard has a
    /// separate budget: otherwise two threads that load the same shard would use up the budget and evict each
    /// other's keys.
    fn loadable(&mut self) -> Option<(Pending, Self, Beyond)> {
        let pending = self.pending.as_deref().cloned()?;
        let loaded_bytes = self.budget.loaded_bytes();
        // A lower limit must not lose keys that may not be evicted, even if they aren't loaded yet.
        let limit_bytes = if self.policy.keeps_keys() {
            self.budget.bytes_max().max(pending.first_bytes_max)
        } else {
            self.budget.bytes_max()
        };
        let bytes_max = pending.bytes_max(limit_bytes).saturating_sub(loaded_bytes);
        let beyond_max = limit_bytes.saturating_add(pending.bytes_beyond(limit_bytes));
        let beyond_bytes = beyond_max.saturating_sub(loaded_bytes).saturating_sub(bytes_max);
        let budget = Arc::new(self.budget.beside(bytes_max));
        Some((pending, self.empty_copy_within(budget), Beyond::new(beyond_bytes, self.policy)))
    }

    /// Loads the pending data.
    #[cold]
    pub(crate) fn load(&mut self) {
        let Some((pending, empty, beyond)) = self.loadable() else { return };
        let loaded = pending.load(empty, beyond);
        pending.count(&loaded);
        self.begin_with(loaded);
    }

    fn begin_with(&mut self, mut loaded: Loaded) {
        self.adapt(&mut loaded.shard);
        self.replace(loaded.shard);
        // Keys that may not be evicted may exceed the limit, so the first write has to check the budget.
        self.is_short = true;
    }
}

impl Pending {
    /// Returns the shards of the file that may contain keys of this shard.
    fn file_shards(&self) -> impl Iterator<Item = usize> + use<> {
        let mask = self.shards.min(self.saved.shards()) - 1;
        let number = self.number;
        (0..self.saved.shards()).filter(move |file_shard| file_shard & mask == number & mask)
    }

    /// Loads the shard; returns an empty shard if the file is damaged.
    fn load(&self, mut empty: Shard, beyond: Beyond) -> Loaded {
        if self.saved.is_refused() {
            return Loaded { shard: empty, missing: Missing::default() };
        }
        let fallback = empty.empty_copy();
        let mut loading = Loading { pending: self, shard: empty, missing: Missing::default(), beyond };
        match loading.run() {
            Ok(()) => Loaded { shard: loading.shard, missing: loading.missing },
            Err(error) => {
                self.saved.refuse(&error);
                Loaded { shard: fallback, missing: Missing::default() }
            }
        }
    }

    fn count(&self, loaded: &Loaded) {
        let keys = loaded.shard.index.keys() as u64;
        self.saved.loaded_shards.fetch_add(1, Relaxed);
        self.saved.loaded_keys.fetch_add(keys, Relaxed);
        loaded.missing.count(&self.saved, loaded.shard.counts.evicted);
    }

    /// Returns the limit for this shard and the shards loaded before it. If the file doesn't fit completely,
    /// each shard leaves out some of its keys, so that the last shards don't have to leave out all of theirs.
    fn bytes_max(&self, limit_bytes: u64) -> u64 {
        if self.saved.bytes() <= limit_bytes {
            return limit_bytes;
        }
        let shards = self.saved.loaded_shards.load(Relaxed) + 1;
        (u128::from(limit_bytes) * u128::from(shards) / self.shards as u128) as u64
    }

    /// Returns the memory above the limit, in all shards, for keys that may not be evicted. In a different
    /// order, the keys may leave the ends of two segments per shard unused; a shard has at least 32 segments.
    /// Keys may also have an expiry that was stored when memory was already full.
    fn bytes_beyond(&self, limit_bytes: u64) -> u64 {
        let expiring: u64 = (0..self.saved.shards()).flat_map(|shard| self.saved.entry(shard).expiring).sum();
        (limit_bytes / BEYOND_SHARE).max(BEYOND_BYTES_LEAST).saturating_add(expiring * EXPIRY_BYTES as u64)
    }

    /// Estimated number of keys.
    fn keys_expected(&self) -> usize {
        self.share_of(|entry| entry.keys.iter().sum()) as usize
    }

    /// Returns the estimated memory, which is at most the shard's share of the limit, because compressed
    /// values take less memory than in the file.
    fn bytes_expected(&self, budget: &Budget) -> u64 {
        let index_bytes = self.share_of(|entry| entry.keys.iter().sum()).saturating_mul(INDEX_BYTES);
        let bytes = self.share_of(|entry| entry.bytes).saturating_add(index_bytes);
        bytes.min(budget.bytes_max() / self.shards as u64)
    }

    /// Sums a value over the shards of the file that may contain keys of this shard, and returns this shard's
    /// share.
    fn share_of(&self, what: impl Fn(&ShardEntry) -> u64) -> u64 {
        let all: u64 = self.file_shards().map(|file_shard| what(self.saved.entry(file_shard))).sum();
        let (written, shards) = (self.saved.shards() as u128, self.shards as u128);
        (u128::from(all) * written / shards.max(written)) as u64
    }

    fn is_as_before(&self) -> bool {
        self.shards == self.saved.shards()
    }
}

impl Loading<'_> {
    fn run(&mut self) -> Result<(), SavedError> {
        let saved = Arc::clone(&self.pending.saved);
        self.shard.index =
            Index::with_room_for(self.pending.keys_expected(), &self.shard.budget.pools.blocks);
        for file_shard in self.pending.file_shards() {
            let mut parts = saved.parts(file_shard);
            while let Some(opened) = parts.next()? {
                let block = self.read_block(opened, &mut parts)?;
                // A nearly empty segment takes as much memory as a full one, so items of small parts are
                // added one by one.
                if self.pending.is_as_before() && block.items_bytes >= SEGMENT_BYTES / 2 {
                    self.adopt(block)?;
                } else {
                    self.add_one_by_one(block)?;
                }
                self.shard.charge_tables();
                self.keep_to_share();
            }
        }
        Ok(())
    }

    /// Distributes all saved keys to the shards of an engine.
    fn sort_into(&mut self, engine: &Engine) -> Result<(), SavedError> {
        let saved = Arc::clone(&self.pending.saved);
        for file_shard in 0..saved.shards() {
            let mut parts = saved.parts(file_shard);
            while let Some(opened) = parts.next()? {
                let mut block = self.read_block(opened, &mut parts)?;
                block.each_item(|queue, item, large| {
                    let Some(hash) = hash_of(&self.shard, item, large.as_ref()) else { return };
                    let mut shard = engine.shard_as_is(hash.shard(self.pending.shards));
                    let added = self.beyond.add(&mut shard, (queue, item, large, hash), self.pending.now_ms);
                    self.missing.add(item, added, self.pending.now_ms);
                })?;
                self.shard.segments.give_blank(block.segment);
            }
        }
        Ok(())
    }

    /// Reads a part with items, and the parts with their large values.
    fn read_block(&mut self, at: Opened, parts: &mut Parts<'_>) -> Result<Block, SavedError> {
        let saved = &self.pending.saved;
        let Kind::Items(queue) = at.part.kind else { return Err(at.damaged("a value without an item")) };
        let items_bytes = at.part.first_bytes as usize;
        let mut segment = self.shard.segments.blank();
        saved.read(&at, &mut segment.rest_mut(0)[..items_bytes], &mut [])?;
        let (items, large_items) =
            count_items(&segment.rest(0)[..items_bytes]).map_err(|what| at.damaged(what))?;
        let large = (0..large_items).map(|_| self.read_large(&at, parts));
        let large = large.collect::<Result<Vec<_>, _>>()?.into_iter();
        Ok(Block { queue, segment, items, items_bytes, large, at })
    }

    fn read_large(&self, of: &Opened, parts: &mut Parts<'_>) -> Result<Large, SavedError> {
        let opened = parts.next()?.filter(|opened| opened.part.kind == Kind::Large);
        let opened = opened.ok_or_else(|| of.damaged("a value is missing"))?;
        let mut key = vec![0; opened.part.first_bytes as usize];
        let mut value = vec![0; opened.part.second_bytes as usize];
        self.pending.saved.read(&opened, &mut key, &mut value)?;
        let stored = Stored::new(Arc::new(value), self.shard.budget.pack_from_bytes());
        Ok(Large { key: key.into_boxed_slice(), stored })
    }

    /// Turns the block's segment into a segment of the shard.
    fn adopt(&mut self, mut block: Block) -> Result<(), SavedError> {
        if !self.beyond.take_segment(&mut self.shard, self.pending.now_ms) {
            self.missing.refused += block.items as u64;
            return Ok(());
        }
        let Ok(number) = self.shard.adopt(block.segment, block.queue, block.items_bytes) else {
            self.missing.refused += block.items as u64;
            return Ok(());
        };
        let mut offset = 0;
        while offset < block.items_bytes {
            let place = Place { segment: number, offset: offset as u32 };
            let header = Header::read(self.shard.segments.at(place));
            offset += header.item_bytes();
            if header.is_large() {
                let large = block.large.next().ok_or_else(|| block.at.damaged("a value is missing"))?;
                self.shard.attach(large, place);
            }
            self.index_item(place).map_err(|what| block.at.damaged(what))?;
        }
        self.shard.free_if_empty(number);
        Ok(())
    }

    /// Adds an item to the index, unless it has expired or its large value doesn't fit.
    fn index_item(&mut self, place: Place) -> Result<(), &'static str> {
        let shard = &mut self.shard;
        let item = Item::read(shard.segments.at(place));
        let hash = shard.hash_of_item(item).ok_or("a value is missing")?;
        if hash.shard(self.pending.shards) != self.pending.number {
            return Err("a key of another shard");
        }
        let has_room = !self.beyond.is_exceeded(&shard.budget);
        if item.is_expired(self.pending.now_ms) || !has_room {
            self.missing.add(item, Err(OutOfMemory), self.pending.now_ms);
            shard.drop_large_at(place);
            return Ok(());
        }
        shard.index_loaded(hash, place);
        Ok(())
    }

    fn add_one_by_one(&mut self, mut block: Block) -> Result<(), SavedError> {
        block.each_item(|queue, item, large| self.add(queue, item, large))?;
        self.shard.segments.give_blank(block.segment);
        Ok(())
    }

    /// Adds an item, unless it belongs to another shard.
    fn add(&mut self, queue: Queue, item: Item<'_>, large: Option<Large>) {
        let hash = hash_of(&self.shard, item, large.as_ref());
        let Some(hash) = hash.filter(|hash| hash.shard(self.pending.shards) == self.pending.number) else {
            return;
        };
        let added = self.beyond.add(&mut self.shard, (queue, item, large, hash), self.pending.now_ms);
        self.missing.add(item, added, self.pending.now_ms);
    }

    fn keep_to_share(&mut self) {
        self.shard.make_up(self.pending.now_ms);
    }
}

impl Beyond {
    fn new(bytes: u64, policy: Policy) -> Self {
        let bytes = if policy.keeps_keys() { bytes } else { 0 };
        Self { bytes, stretched_bytes: 0, policy }
    }

    /// Adds an item to a shard. An evictable item is left out if there is no room for it. An item that may
    /// not be evicted is left out only if it would exceed the memory allowed above the limit.
    fn add(
        &mut self,
        shard: &mut Shard,
        (queue, item, large, hash): Saving<'_>,
        now_ms: u64,
    ) -> Result<(), OutOfMemory> {
        let stays = self.policy == Policy::NoEviction || !item.header.expires();
        let bytes = item.header.item_bytes() + large.as_ref().map_or(0, Large::bytes);
        let again = large.clone().filter(|_| self.bytes > 0);
        let added = shard.add_saved(queue, item, large, hash, now_ms);
        if added.is_err() && stays && self.stretch(&shard.budget, bytes) {
            return shard.add_saved(queue, item, again, hash, now_ms);
        }
        added
    }

    /// Takes room for a segment. Returns whether there was any.
    fn take_segment(&mut self, shard: &mut Shard, now_ms: u64) -> bool {
        shard.make_room_for(SEGMENT_BYTES, now_ms).is_ok()
            || self.stretch(&shard.budget, SEGMENT_BYTES)
                && shard.make_room_for(SEGMENT_BYTES, now_ms).is_ok()
    }

    /// Raises the limit so that `bytes` and two segments fit. Returns whether the memory allowed above the
    /// limit was enough.
    fn stretch(&mut self, budget: &Budget, bytes: usize) -> bool {
        let needed = budget.used_bytes().saturating_add((bytes + 2 * SEGMENT_BYTES) as u64);
        let more = needed.saturating_sub(budget.bytes_max());
        let may_be = more > 0 && more <= self.bytes;
        if may_be {
            budget.stretch(more);
            self.bytes -= more;
            self.stretched_bytes += more;
        }
        may_be
    }

    /// Returns whether usage exceeds even the memory allowed above the limit for keys that may not be
    /// evicted.
    fn is_exceeded(&self, budget: &Budget) -> bool {
        self.policy.keeps_keys() && budget.used_bytes() > budget.bytes_max().saturating_add(self.bytes)
    }
}

impl Block {
    fn each_item(&mut self, mut take: impl FnMut(Queue, Item<'_>, Option<Large>)) -> Result<(), SavedError> {
        let mut offset = 0;
        while offset < self.items_bytes {
            let item = Item::read(self.segment.rest(offset));
            offset += item.header.item_bytes();
            let large = match item.header.is_large() {
                true => Some(self.large.next().ok_or_else(|| self.at.damaged("a value is missing"))?),
                false => None,
            };
            take(self.queue, item, large);
        }
        Ok(())
    }
}

/// Returns the hash of an item's key; `None` for a large item without its key.
fn hash_of(shard: &Shard, item: Item<'_>, large: Option<&Large>) -> Option<Hash> {
    let key = match (large, item.body()) {
        (Some(large), _) => &*large.key,
        (None, Body::Inline { key, .. }) => key,
        (None, Body::Large(_)) => return None,
    };
    Some(shard.hasher.hash(item.header.database(), key))
}

/// Counts the items and the large items among them. Fails if there are gaps between the items.
fn count_items(bytes: &[u8]) -> Result<(usize, usize), &'static str> {
    let (mut rest, mut items, mut large) = (bytes, 0, 0);
    while !rest.is_empty() {
        if rest.len() < HEADER_BYTES {
            return Err("incomplete item");
        }
        let header = Header::read(rest);
        rest = rest.get(header.item_bytes()..).ok_or("an item beyond its part")?;
        items += 1;
        large += usize::from(header.is_large());
    }
    Ok((items, large))
}
