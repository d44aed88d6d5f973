//! Bringing a data set back: each shard when it is first needed, so that nobody waits for all of them.
//!
//! As many shards as before: the parts become segments as they are, and the index is built from their items. Another number: item by
//! item. Either way nothing is taken over that was not looked at.

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

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// That are there.
    pub shards: u64,
    /// In these.
    pub keys: u64,
    /// Written keys that have expired meanwhile.
    pub expired_keys: u64,
    /// Written keys for which there was no room.
    pub left_out_keys: u64,
    /// Why the rest is not used.
    pub failure: Option<String>,
}

/// Where a shard is to come from.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    saved: Arc<Saved>,
    number: usize,
    shards: usize,
    now_ms: u64,
    /// With which the engine has begun.
    first_bytes_max: u64,
}

/// A shard on its way in.
struct Loading<'a> {
    pending: &'a Pending,
    shard: Shard,
    missing: Missing,
    /// What it may take beyond the limit.
    beyond: Beyond,
}

/// Written keys that do not come back.
#[derive(Clone, Copy, Debug, Default)]
struct Missing {
    expired: u64,
    /// There was no room for them. Others were evicted for those that came behind them.
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

/// What keys may take beyond the limit for which nothing may be evicted, since they may not be left out either.
#[derive(Clone, Copy, Debug)]
struct Beyond {
    /// Nothing where keys are evicted anyway.
    bytes: u64,
    /// The limit was raised by so much for them.
    stretched_bytes: u64,
    policy: Policy,
}

/// Items that came together, and what they have outside.
struct Block {
    queue: Queue,
    segment: Segment,
    items: usize,
    items_bytes: usize,
    large: std::vec::IntoIter<Large>,
    at: Opened,
}

impl Engine {
    /// One that begins with what was saved: with the seed of that, whatever the settings say. Shards are loaded when they are needed,
    /// or with [`Engine::load`]. Where keys were hashed with other functions, all of it is loaded before this returns.
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

    /// Each key goes to the shard in which it is looked for from now on.
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

    /// Loads a shard, unless it is loaded. Who needs it meanwhile loads it too, and this is dropped then.
    pub fn load(&self, number: usize) {
        // Not under its lock: who needs the shard in the meantime is not kept waiting by this thread.
        let Some((pending, empty, beyond)) = self.shard_as_is(number).loadable() else { return };
        let loaded = pending.load(empty, beyond);
        let mut shard = self.shard_as_is(number);
        if shard.pending.is_some() {
            pending.count(&loaded);
            shard.begin_with(loaded);
        }
    }
}

/// A key that was saved: its queue, its item, what it has outside, and its hash.
type Saving<'a> = (Queue, Item<'a>, Option<Large>, Hash);

/// Beyond the limit, keys that stay may take one byte for so many below it, and at least so many.
const BEYOND_SHARE: u64 = 8;
const BEYOND_BYTES_LEAST: u64 = 1 << 20;
/// About what a key takes of an index.
const INDEX_BYTES: u64 = 11;

/// A shard that was loaded, or an empty one.
pub(crate) struct Loaded {
    shard: Shard,
    missing: Missing,
}

impl Shard {
    /// From now on it is to be loaded before anybody looks for a key.
    fn wait_for(&mut self, pending: Pending) {
        for file_shard in pending.file_shards() {
            let entry = pending.saved.entry(file_shard);
            // With more shards than before, the first of those that share an entry tells of its keys.
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

    /// What it waits for, and where to load that to: beside the budget, which two threads that load the same shard would use up, and then
    /// each would evict what it has for the sake of the other.
    fn loadable(&mut self) -> Option<(Pending, Self, Beyond)> {
        let pending = self.pending.as_deref().cloned()?;
        let loaded_bytes = self.budget.loaded_bytes();
        // To lower the limit costs no key that stays, whether it is loaded already or not.
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

    /// Loads what it waits for.
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
        // Keys that stay may take more than the limit: the first write finds out.
        self.is_short = true;
    }
}

impl Pending {
    /// The shards of the file that may have keys of this one.
    fn file_shards(&self) -> impl Iterator<Item = usize> + use<> {
        let mask = self.shards.min(self.saved.shards()) - 1;
        let number = self.number;
        (0..self.saved.shards()).filter(move |file_shard| file_shard & mask == number & mask)
    }

    /// An empty shard where the file is not what it seemed to be.
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

    /// What there is for this shard and those before it. When not all of the file fits, each shard gives some up: else those that come last
    /// would have to give all.
    fn bytes_max(&self, limit_bytes: u64) -> u64 {
        if self.saved.bytes() <= limit_bytes {
            return limit_bytes;
        }
        let shards = self.saved.loaded_shards.load(Relaxed) + 1;
        (u128::from(limit_bytes) * u128::from(shards) / self.shards as u128) as u64
    }

    /// What keys that stay may take beyond the limit, in all shards together. They lie in another order than before, so that they may take some
    /// more: the ends of two segments in each shard, of at least 32. And each may have got an expiry, for which there is always room.
    fn bytes_beyond(&self, limit_bytes: u64) -> u64 {
        let expiring: u64 = (0..self.saved.shards()).flat_map(|shard| self.saved.entry(shard).expiring).sum();
        (limit_bytes / BEYOND_SHARE).max(BEYOND_BYTES_LEAST).saturating_add(expiring * EXPIRY_BYTES as u64)
    }

    /// About as many.
    fn keys_expected(&self) -> usize {
        self.share_of(|entry| entry.keys.iter().sum()) as usize
    }

    /// What they will take, or their share of the limit if that is less: what is packed takes less than it has in the file.
    fn bytes_expected(&self, budget: &Budget) -> u64 {
        let index_bytes = self.share_of(|entry| entry.keys.iter().sum()).saturating_mul(INDEX_BYTES);
        let bytes = self.share_of(|entry| entry.bytes).saturating_add(index_bytes);
        bytes.min(budget.bytes_max() / self.shards as u64)
    }

    /// Of what the shards of the file have together that may have keys of this one.
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
                // A segment that is nearly empty would take as much memory as a full one.
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

    /// Everything that was saved goes to the shards of an engine.
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

    /// A part of items, and the parts of the large ones that follow it.
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

    /// The segment of the block becomes one of the shard.
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

    /// Lets its slot point to an item, unless the item has expired, or what it has outside is too much.
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

    /// Unless it belongs to another shard.
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

    /// Adds an item to a shard. Of what may be evicted, that is left out for which there is no room, and all that would be too much beyond it.
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

    /// Whether there was room for a segment.
    fn take_segment(&mut self, shard: &mut Shard, now_ms: u64) -> bool {
        shard.make_room_for(SEGMENT_BYTES, now_ms).is_ok()
            || self.stretch(&shard.budget, SEGMENT_BYTES)
                && shard.make_room_for(SEGMENT_BYTES, now_ms).is_ok()
    }

    /// Raises the limit, so that so much has room with two segments; whether it may be raised.
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

    /// Whether more is in use than may be at all, of what counts for keys that stay.
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

/// Nothing for a large item whose key is not there.
fn hash_of(shard: &Shard, item: Item<'_>, large: Option<&Large>) -> Option<Hash> {
    let key = match (large, item.body()) {
        (Some(large), _) => &*large.key,
        (None, Body::Inline { key, .. }) => key,
        (None, Body::Large(_)) => return None,
    };
    Some(shard.hasher.hash(item.header.database(), key))
}

/// How many items there are, and how many of them are large, if they follow each other exactly.
fn count_items(bytes: &[u8]) -> Result<(usize, usize), &'static str> {
    let (mut rest, mut items, mut large) = (bytes, 0, 0);
    while !rest.is_empty() {
        if rest.len() < HEADER_BYTES {
            return Err("half an item");
        }
        let header = Header::read(rest);
        rest = rest.get(header.item_bytes()..).ok_or("an item beyond its part")?;
        items += 1;
        large += usize::from(header.is_large());
    }
    Ok((items, large))
}
