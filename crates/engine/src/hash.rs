//! Keys and where they belong.

use std::hash::{BuildHasher, Hasher as _};

use foldhash::quality::FixedState;

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

/// Hashes keys, with a seed that nobody outside can know: else a client could choose keys that collide.
#[derive(Clone, Debug)]
pub(crate) struct Hasher {
    state: FixedState,
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
        Self { state: FixedState::with_seed(seed) }
    }

    #[inline]
    pub(crate) fn hash(&self, database: Database, key: &[u8]) -> Hash {
        // One slice, whose length the hasher takes into account: it need not be written before. Database 0 costs nothing.
        let mut hasher = self.state.build_hasher();
        hasher.write(key);
        Hash(hasher.finish() ^ u64::from(database.0).wrapping_mul(DATABASE_SPREAD))
    }
}

/// An odd number whose multiples differ in all parts of a hash: the golden ratio.
const DATABASE_SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
