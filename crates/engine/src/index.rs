//! The index of a shard: maps hashes to slots, and grows one bucket at a time.
//!
//! Linear hashing (Litwin, VLDB 1980): every few insertions split the next bucket in two, so that the table
//! never moves as a whole. A bucket is a cache line of ten slots, with a link to an overflow bucket for the
//! few that don't fit.

use std::sync::Arc;

use crate::bucket::{BLOCK_BYTES, Bucket, Buckets, SLOTS};
use crate::chunks::Chunks;
use crate::hash::Hash;
use crate::slot::Slot;

/// The table grows when it has more keys per two buckets: on average, 6.5 of 10 slots are then in use,
/// because buckets that aren't split yet hold more keys than others. One key in twenty is in an overflow
/// bucket. With 7.5 slots in use, it would be one in thirteen, and the index would need a byte less per key.
const KEYS_PER_TWO_BUCKETS: usize = 13;

/// The position of a slot, valid until the next insertion or removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotAt {
    bucket: BucketAt,
    slot: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BucketAt {
    Home(usize),
    Overflow(usize),
}

/// The likely position of a key from an earlier look-up. A hint may be outdated, so the key has to be
/// compared.
#[derive(Clone, Copy, Debug)]
pub struct Hint {
    home: u32,
    /// Index of a slot; [`SLOTS`] if none was found.
    slot: u32,
}

#[derive(Debug)]
pub(crate) struct Index {
    /// The first `1 << level` buckets, and as many of the next level as have been split.
    buckets: Buckets,
    /// The smallest power of two that isn't less than the number of buckets, minus one.
    mask: usize,
    overflow: Buckets,
    /// Index plus one of the first unused overflow bucket; each links to the next.
    spare: u32,
    keys: usize,
}

impl Index {
    pub(crate) fn new(chunks: &Arc<Chunks<BLOCK_BYTES>>) -> Self {
        let [buckets, overflow] = [(); 2].map(|()| Buckets::new(Arc::clone(chunks)));
        let mut index = Self { buckets, mask: 0, overflow, spare: 0, keys: 0 };
        index.add_bucket();
        index
    }

    /// Creates an index with room for `keys` keys.
    pub(crate) fn with_room_for(keys: usize, chunks: &Arc<Chunks<BLOCK_BYTES>>) -> Self {
        let mut index = Self::new(chunks);
        while keys * 2 > index.buckets.count() * KEYS_PER_TWO_BUCKETS {
            index.add_bucket();
        }
        index
    }

    pub(crate) fn keys(&self) -> usize {
        self.keys
    }

    /// Checks the buckets, for tests.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut known = vec![false; self.overflow.count()];
        let links = (0..self.buckets.count()).map(|home| self.buckets.at(home).more).chain([self.spare]);
        for mut more in links {
            while let Some(number) = more.checked_sub(1) {
                if std::mem::replace(&mut known[number as usize], true) {
                    return Err(format!("overflow bucket {number} is linked twice"));
                }
                more = self.overflow.at(number as usize).more;
            }
        }
        if known.contains(&false) {
            return Err("an overflow bucket is not linked".to_owned());
        }
        let all = (0..self.buckets.count()).map(|number| self.buckets.at(number));
        let all = all.chain((0..self.overflow.count()).map(|number| self.overflow.at(number)));
        let is_odd = |bucket: &Bucket| {
            bucket.slots.iter().zip(bucket.tags).any(|(slot, tag)| slot.is_empty() && tag != 0)
        };
        if all.into_iter().any(is_odd) { Err("an empty slot has a tag".to_owned()) } else { Ok(()) }
    }

    /// Number of buckets in the longest chain.
    pub(crate) fn longest_search(&self) -> usize {
        let links = |home: usize| {
            let next = |bucket: &&Bucket| Some(self.overflow.at(bucket.more.checked_sub(1)? as usize));
            std::iter::successors(Some(self.buckets.at(home)), next).count()
        };
        (0..self.buckets.count()).map(links).max().unwrap_or_default()
    }

    pub(crate) fn buckets(&self) -> usize {
        self.buckets.count()
    }

    /// Memory of the index.
    pub(crate) fn bytes(&self) -> usize {
        self.buckets.bytes() + self.overflow.bytes()
    }

    /// The home bucket of a hash at the current size of the table.
    #[inline]
    pub(crate) fn home(&self, hash: Hash) -> usize {
        // The hash modulo the power of two above the number of buckets, or modulo the power below it if that
        // bucket doesn't exist yet.
        let bits = hash.bucket_bits();
        let high = bits & self.mask;
        if high < self.buckets.count() { high } else { bits & (self.mask >> 1) }
    }

    /// Finds the slot that has the tag of the hash and for which `is_it` returns true.
    #[inline]
    pub(crate) fn find(&self, hash: Hash, mut is_it: impl FnMut(Slot) -> bool) -> Option<(SlotAt, Slot)> {
        let tag = hash.tag();
        let mut at = BucketAt::Home(self.home(hash));
        loop {
            let bucket = self.bucket(at);
            for slot in bucket.candidates(tag) {
                let content = bucket.slots[slot];
                if !content.is_empty() && is_it(content) {
                    return Some((SlotAt { bucket: at, slot }, content));
                }
            }
            at = BucketAt::Overflow(bucket.more.checked_sub(1)? as usize);
        }
    }

    /// The home bucket of a hash, as a hint without a slot.
    #[inline]
    pub(crate) fn hint(&self, hash: Hash) -> (Hint, &Bucket) {
        let home = self.home(hash);
        // A shard of 2^32 buckets doesn't fit into memory. Even a truncated hint would cause no error,
        // because hints may be wrong.
        (Hint { home: home as u32, slot: SLOTS as u32 }, self.buckets.at(home))
    }

    /// Finds the first slot in the home bucket that may belong to the hash, and records it in the hint.
    #[inline]
    pub(crate) fn look_closer(&self, hash: Hash, hint: &mut Hint) -> Option<Slot> {
        let bucket = self.home_bucket(*hint)?;
        let slot = bucket.candidates(hash.tag()).next()?;
        hint.slot = slot as u32;
        bucket.slots.get(slot).copied()
    }

    /// Returns the slot at a hint. The slot may belong to another key by now.
    #[inline]
    pub(crate) fn seen(&self, hint: Hint) -> Option<Slot> {
        self.home_bucket(hint)?.slots.get(hint.slot as usize).copied()
    }

    /// Returns `None` if the index has become smaller since the hint was made.
    #[inline]
    fn home_bucket(&self, hint: Hint) -> Option<&Bucket> {
        let home = hint.home as usize;
        (home < self.buckets.count()).then(|| self.buckets.at(home))
    }

    pub(crate) fn put(&mut self, at: SlotAt, content: Slot) {
        debug_assert!(!content.is_empty());
        self.bucket_mut(at.bucket).slots[at.slot] = content;
    }

    /// Adds a slot. `hash_of` returns the hash of an existing slot, which is needed if the table grows.
    pub(crate) fn insert(&mut self, hash: Hash, content: Slot, hash_of: impl Fn(Slot) -> Hash) {
        self.place(self.home(hash), hash.tag(), content);
        self.keys += 1;
        if self.keys * 2 > self.buckets.count() * KEYS_PER_TWO_BUCKETS {
            self.split(hash_of);
        }
    }

    pub(crate) fn remove(&mut self, at: SlotAt) {
        let bucket = self.bucket_mut(at.bucket);
        (bucket.tags[at.slot], bucket.slots[at.slot]) = (0, Slot::EMPTY);
        self.keys -= 1;
    }

    /// The slots of a home bucket and its overflow buckets.
    pub(crate) fn slots_of(&self, home: usize) -> impl Iterator<Item = Slot> {
        self.tagged_slots_of(home).map(|(_, slot)| slot)
    }

    /// The slots of a home bucket and its overflow buckets, with their tags.
    pub(crate) fn tagged_slots_of(&self, home: usize) -> impl Iterator<Item = (u16, Slot)> {
        let mut at = Some(BucketAt::Home(home));
        let buckets = std::iter::from_fn(move || {
            let bucket = self.bucket(at?);
            at = bucket.more.checked_sub(1).map(|number| BucketAt::Overflow(number as usize));
            Some(bucket)
        });
        let slots = buckets.flat_map(|bucket| bucket.tags.into_iter().zip(bucket.slots));
        slots.filter(|(_, slot)| !slot.is_empty())
    }

    #[inline]
    fn bucket(&self, at: BucketAt) -> &Bucket {
        match at {
            BucketAt::Home(number) => self.buckets.at(number),
            BucketAt::Overflow(number) => self.overflow.at(number),
        }
    }

    fn bucket_mut(&mut self, at: BucketAt) -> &mut Bucket {
        match at {
            BucketAt::Home(number) => self.buckets.at_mut(number),
            BucketAt::Overflow(number) => self.overflow.at_mut(number),
        }
    }

    /// Puts a slot into the first free place of the bucket or its overflow buckets.
    fn place(&mut self, home: usize, tag: u16, content: Slot) {
        let mut at = BucketAt::Home(home);
        loop {
            let bucket = self.bucket_mut(at);
            if let Some(free) = bucket.slots.iter().position(|slot| slot.is_empty()) {
                (bucket.tags[free], bucket.slots[free]) = (tag, content);
                return;
            }
            at = match bucket.more.checked_sub(1) {
                Some(number) => BucketAt::Overflow(number as usize),
                None => self.add_overflow(at),
            };
        }
    }

    fn add_overflow(&mut self, behind: BucketAt) -> BucketAt {
        let number = match self.spare.checked_sub(1) {
            Some(number) => {
                self.spare = std::mem::take(&mut self.overflow.at_mut(number as usize).more);
                number
            }
            None => {
                self.overflow.add();
                self.overflow.count() as u32 - 1
            }
        };
        self.bucket_mut(behind).more = number + 1;
        BucketAt::Overflow(number as usize)
    }

    fn add_bucket(&mut self) {
        self.buckets.add();
        self.mask = self.buckets.count().next_power_of_two() - 1;
    }

    /// Splits the next bucket: keys with the next hash bit set move to a new bucket at the end.
    fn split(&mut self, hash_of: impl Fn(Slot) -> Hash) {
        let new = self.buckets.count();
        // The highest bit of the new bucket's index is the hash bit that distinguishes its keys from the keys
        // of the old bucket.
        let old = new & !(1 << new.ilog2());
        let slots = self.take_all(old);
        self.add_bucket();
        for slot in slots {
            let hash = hash_of(slot);
            let home = self.home(hash);
            debug_assert!(home == old || home == new);
            self.place(home, hash.tag(), slot);
        }
    }

    fn take_all(&mut self, home: usize) -> Vec<Slot> {
        let slots = self.slots_of(home).collect();
        let mut more = std::mem::take(self.bucket_mut(BucketAt::Home(home))).more;
        while let Some(number) = more.checked_sub(1) {
            let bucket = std::mem::take(self.overflow.at_mut(number as usize));
            self.overflow.at_mut(number as usize).more = std::mem::replace(&mut self.spare, more);
            more = bucket.more;
        }
        slots
    }
}
