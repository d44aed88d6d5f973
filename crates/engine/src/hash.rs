//! Keys and where they belong.

use crate::chance::Chance;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::cipher::{Cipher, SHORT_BYTES_MAX};
use crate::siphash::SipHash;

/// A key of one database, with its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) database: Database,
    pub(crate) hash: Hash,
}

/// The number of a database, 0 to 15.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Database(u8);

/// 64 bits: which shard (8 bits at the top), the tag of a slot (16 bits below), which bucket (40 bits at the bottom). None
/// of them tells anything of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash(u64);

/// Hashes keys with functions that are made against whoever chooses keys to collide: with a secret seed, nobody can tell them from chance.
/// Up to 16 bytes, where the processor has instructions for it, AES-128; else SipHash-1-3.
#[derive(Clone, Debug)]
pub(crate) struct Hasher {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    short: Option<Cipher>,
    any: SipHash,
}

/// With which functions keys are hashed, as saved data tells it: with others, its keys are in other shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hashing {
    /// A function of which colliding keys are known. Nothing is hashed with it any more.
    Foldhash,
    SipHash,
    /// Keys of up to 16 bytes with AES, longer ones with SipHash.
    Aes,
}

pub(crate) const SHARDS_MAX: usize = 1 << SHARD_BITS;
const SHARD_BITS: u32 = 8;
const TAG_BITS: u32 = 16;
/// Of a key that is only remembered: with four of the bits that are there for buckets, which no table needs.
const GHOST_TAG_BITS: u32 = TAG_BITS + 4;
const BUCKET_BITS: u32 = u64::BITS - SHARD_BITS - TAG_BITS;

impl Database {
    /// How many there are.
    pub const COUNT: usize = 16;

    /// `None` from [`Database::COUNT`] on.
    #[must_use]
    pub fn new(number: usize) -> Option<Self> {
        let number = u8::try_from(number).ok()?;
        (usize::from(number) < Self::COUNT).then_some(Self(number))
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> usize {
        usize::from(self.0)
    }
}

impl<'a> Key<'a> {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The database it belongs to.
    #[must_use]
    pub fn database(&self) -> Database {
        self.database
    }
}

impl Hash {
    #[inline]
    pub(crate) fn shard(self, shards: usize) -> usize {
        debug_assert!(shards.is_power_of_two() && shards <= SHARDS_MAX);
        (self.0 >> (u64::BITS - SHARD_BITS)) as usize & (shards - 1)
    }

    #[inline]
    pub(crate) fn tag(self) -> u16 {
        (self.0 >> BUCKET_BITS) as u16
    }

    /// 20 bits.
    pub(crate) fn ghost_tag(self) -> u32 {
        (self.0 >> (u64::BITS - SHARD_BITS - GHOST_TAG_BITS)) as u32 & ((1 << GHOST_TAG_BITS) - 1)
    }

    #[inline]
    pub(crate) fn bucket_bits(self) -> usize {
        (self.0 & ((1 << BUCKET_BITS) - 1)) as usize
    }
}

impl Hasher {
    pub(crate) fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let mut pair = || [chance.next(), chance.next()];
        Self {
            any: SipHash::new(pair()),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            short: {
                // All of them follow from the seed, but none from another.
                let spread = SipHash::new(pair());
                let word = |number: usize| spread.hash(&number.to_le_bytes());
                let block = |number: usize| [word(2 * number), word(2 * number + 1)];
                Cipher::new(block(0), std::array::from_fn(|length| block(length + 1)))
            },
        }
    }

    pub(crate) fn hashing(&self) -> Hashing {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.short.is_some() {
            return Hashing::Aes;
        }
        Hashing::SipHash
    }

    #[inline]
    pub(crate) fn hash(&self, database: Database, key: &[u8]) -> Hash {
        // Database 0 costs nothing.
        Hash(self.hash_of(key) ^ u64::from(database.0).wrapping_mul(DATABASE_SPREAD))
    }

    #[inline]
    fn hash_of(&self, key: &[u8]) -> u64 {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if let Some(cipher) = &self.short
            && key.len() <= SHORT_BYTES_MAX
        {
            return cipher.hash(key);
        }
        self.any.hash(key)
    }
}

/// An odd number whose multiples differ in all parts of a hash: the golden ratio.
const DATABASE_SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
