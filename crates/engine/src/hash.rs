//! Keys and their hashes.

use crate::chance::Chance;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::cipher::{Cipher, SHORT_BYTES_MAX};
use crate::siphash::SipHash;

/// A key in a database, with its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) database: Database,
    pub(crate) hash: Hash,
}

/// The number of a database, 0 to 15.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Database(u8);

/// A hash of 64 bits: the shard (8 high bits), the tag of a slot (the next 16 bits), and the bucket (the low
/// 40 bits). The parts are independent of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash(u64);

/// A keyed hash that resists clients choosing colliding keys: without the secret seed, its output is
/// indistinguishable from random. Keys of up to 16 bytes are hashed with AES-128 if the processor has
/// instructions for it, all others with SipHash-1-3.
#[derive(Clone, Debug)]
pub(crate) struct Hasher {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    short: Option<Cipher>,
    any: SipHash,
}

/// The hash function, as recorded in saved data. A different function assigns keys to different shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hashing {
    /// A function with known collisions, used only in old saved data.
    Foldhash,
    SipHash,
    /// AES for keys of up to 16 bytes, SipHash for longer ones.
    Aes,
}

pub(crate) const SHARDS_MAX: usize = 1 << SHARD_BITS;
const SHARD_BITS: u32 = 8;
const TAG_BITS: u32 = 16;
/// Bits of a ghost's tag: four more than a slot's tag, taken from the high bits of the bucket number, which
/// no table uses.
const GHOST_TAG_BITS: u32 = TAG_BITS + 4;
const BUCKET_BITS: u32 = u64::BITS - SHARD_BITS - TAG_BITS;

impl Database {
    /// Number of databases.
    pub const COUNT: usize = 16;

    /// Returns `None` if `number` is not less than [`Database::COUNT`].
    #[must_use]
    pub fn new(number: usize) -> Option<Self> {
        let number = u8::try_from(number).ok()?;
        (usize::from(number) < Self::COUNT).then_some(Self(number))
    }

    /// The number of the database.
    #[must_use]
    pub fn number(self) -> usize {
        usize::from(self.0)
    }
}

impl<'a> Key<'a> {
    /// The bytes of the key.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The database of the key.
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

    /// A tag of 20 bits.
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
                // The key and all masks are derived from the seed, but none of them reveals another.
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
        // The database number is 0 for most keys, for which the hash stays unchanged.
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

/// An odd number whose multiples differ in all parts of a hash: 2^64 divided by the golden ratio.
const DATABASE_SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
