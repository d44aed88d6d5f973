//! Encoding of the records in a file of saved data. Numbers are little-endian.

use twox_hash::XxHash3_64;

use super::SavedError;
use crate::hash::{Database, Hashing, SHARDS_MAX};
use crate::queue::Queue;
use crate::segment::SEGMENT_BYTES;

/// The first bytes of a file. The bytes aren't valid text, and a tool that treats the file as text corrupts
/// them.
pub(super) const MAGIC: [u8; 8] = *b"\x89LARDER\n";
const MAGIC_OF_END: [u8; 8] = *b"\x89LARDER.";
/// Version of this encoding and of the layout of items (`crate::item`). Increase this number when either
/// changes.
const FORMAT: u32 = 3;
/// The oldest version that can be read. A header of this version doesn't have the hash function.
const FORMAT_WITHOUT_HASHING: u32 = 2;

pub(super) const HEADER_BYTES: usize = 64;
pub(super) const PART_BYTES: usize = 48;
pub(super) const SHARD_BYTES: usize = 24 + 16 * Database::COUNT;
pub(super) const TRAILER_BYTES: usize = 64;
/// Maximum length of a key or a value, as in Redis.
const STRING_BYTES_MAX: u64 = 512 << 20;
/// The shortest item consists of a header only.
const ITEM_BYTES_MIN: u64 = 8;

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Identifies the file, so that parts of two files are never mixed.
    pub(super) id: u64,
    /// Seed of the key hash, which determines the shard of a key.
    pub(super) seed: u64,
    pub(super) saved_at_ms: u64,
    pub(super) shards: u32,
    /// The hash functions.
    pub(super) hashing: Hashing,
}

/// The contents of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Items of a queue, in the layout of a segment.
    Items(Queue),
    /// Key and value of the next large item of the preceding `Items` part.
    Large,
}

/// The head of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Number of the part in its shard, from 0.
    pub(super) number: u32,
    pub(super) shard: u16,
    pub(super) kind: Kind,
    /// Length of the items, or of the key of a large item.
    pub(super) first_bytes: u64,
    /// Length of the value of a large item.
    pub(super) second_bytes: u64,
}

/// The position of a shard's parts, and a summary of their contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ShardEntry {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) parts: u64,
    pub(super) keys: [u64; Database::COUNT],
    pub(super) expiring: [u64; Database::COUNT],
}

/// The trailer of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trailer {
    pub(super) table_offset: u64,
    pub(super) table_checksum: u64,
    /// The caller's note.
    pub(super) note: u64,
}

/// Computes a checksum of bytes that are passed in pieces.
pub(super) struct Checksum(XxHash3_64);

impl Checksum {
    /// The checksum of a part, which also covers the file's id and the head of the part.
    pub(super) fn of_part(id: u64, head: &[u8; PART_BYTES]) -> Self {
        Self::new(id).add(&head[8..])
    }

    pub(super) fn new(seed: u64) -> Self {
        Self(XxHash3_64::with_seed(seed))
    }

    #[must_use]
    pub(super) fn add(mut self, bytes: &[u8]) -> Self {
        std::hash::Hasher::write(&mut self.0, bytes);
        self
    }

    pub(super) fn finish(&self) -> u64 {
        std::hash::Hasher::finish(&self.0)
    }

    /// Returns whether the checksum is equal to the one in the file.
    pub(super) fn is(&self, written: u64) -> bool {
        self.finish() == written || ARE_TRUSTED
    }
}

/// Writes the fields of a record, one after the other.
struct Writer<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Writer<N> {
    fn new() -> Self {
        Self { bytes: [0; N], at: 0 }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

/// Reads the fields of a record, one after the other. The reader has exactly the bytes of the record.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let (array, rest) = self.0.split_first_chunk().expect("a record has as many bytes as its fields");
        self.0 = rest;
        *array
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut writer = Writer::new();
        writer.put(&MAGIC);
        writer.put(&FORMAT.to_le_bytes());
        writer.put(&self.shards.to_le_bytes());
        writer.put(&self.id.to_le_bytes());
        writer.put(&self.seed.to_le_bytes());
        writer.put(&self.saved_at_ms.to_le_bytes());
        let hashing = match self.hashing {
            Hashing::Foldhash => 0_u32,
            Hashing::SipHash => 1,
            Hashing::Aes => 2,
        };
        writer.put(&hashing.to_le_bytes());
        seal(writer.bytes)
    }

    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, SavedError> {
        let mut reader = Reader(bytes);
        if reader.array() != MAGIC {
            return Err(SavedError::Foreign);
        }
        let found = reader.u32();
        if ![FORMAT_WITHOUT_HASHING, FORMAT].contains(&found) {
            return Err(SavedError::Format { found, known: FORMAT });
        }
        if !is_sealed(bytes) {
            return Err(SavedError::damaged(0, "checksum mismatch at the beginning"));
        }
        let shards = reader.u32();
        let is_possible = shards.is_power_of_two() && shards as usize <= SHARDS_MAX;
        if !is_possible {
            return Err(SavedError::damaged(12, "invalid number of shards"));
        }
        let (id, seed, saved_at_ms) = (reader.u64(), reader.u64(), reader.u64());
        let hashing = match (found, reader.u32()) {
            (FORMAT_WITHOUT_HASHING, _) | (_, 0) => Hashing::Foldhash,
            (_, 1) => Hashing::SipHash,
            (_, 2) => Hashing::Aes,
            _ => return Err(SavedError::damaged(40, "unknown hash function")),
        };
        Ok(Self { id, seed, saved_at_ms, shards, hashing })
    }
}

impl Trailer {
    pub(super) fn encode(&self, id: u64) -> [u8; TRAILER_BYTES] {
        let mut writer = Writer::new();
        writer.put(&MAGIC_OF_END);
        writer.put(&id.to_le_bytes());
        writer.put(&self.table_offset.to_le_bytes());
        writer.put(&self.table_checksum.to_le_bytes());
        writer.put(&self.note.to_le_bytes());
        seal(writer.bytes)
    }

    /// Decodes a trailer; returns `None` if it doesn't belong to the file with this id.
    pub(super) fn decode(bytes: &[u8; TRAILER_BYTES], id: u64) -> Option<Self> {
        let mut reader = Reader(bytes);
        let is_it = reader.array() == MAGIC_OF_END && reader.u64() == id && is_sealed(bytes);
        is_it.then(|| Self { table_offset: reader.u64(), table_checksum: reader.u64(), note: reader.u64() })
    }
}

impl Part {
    /// Encodes the head without its checksum, which belongs in the first eight bytes.
    pub(super) fn encode(&self) -> [u8; PART_BYTES] {
        let mut writer = Writer::new();
        writer.put(&[0; 8]);
        writer.put(&self.first_bytes.to_le_bytes());
        writer.put(&self.second_bytes.to_le_bytes());
        writer.put(&self.number.to_le_bytes());
        writer.put(&self.shard.to_le_bytes());
        let kind = match self.kind {
            Kind::Items(Queue::Small) => 1_u16,
            Kind::Items(Queue::Main) => 2,
            Kind::Large => 3,
        };
        writer.put(&kind.to_le_bytes());
        writer.bytes
    }

    /// Decodes a head and its checksum.
    pub(super) fn decode(bytes: &[u8; PART_BYTES]) -> Result<(Self, u64), &'static str> {
        let mut reader = Reader(bytes);
        let checksum = reader.u64();
        let (first_bytes, second_bytes) = (reader.u64(), reader.u64());
        let (number, shard) = (reader.u32(), reader.u16());
        let kind = match reader.u16() {
            1 => Kind::Items(Queue::Small),
            2 => Kind::Items(Queue::Main),
            3 => Kind::Large,
            _ => return Err("unknown kind of part"),
        };
        let is_possible = match kind {
            Kind::Items(_) => first_bytes <= SEGMENT_BYTES as u64 && second_bytes == 0,
            Kind::Large => first_bytes <= STRING_BYTES_MAX && second_bytes <= STRING_BYTES_MAX,
        };
        let part = Self { number, shard, kind, first_bytes, second_bytes };
        if is_possible { Ok((part, checksum)) } else { Err("invalid length of a part") }
    }

    /// Length of the part after its head.
    pub(super) fn body_bytes(&self) -> u64 {
        self.first_bytes + self.second_bytes
    }
}

impl ShardEntry {
    pub(super) fn encode(&self) -> [u8; SHARD_BYTES] {
        let mut writer = Writer::new();
        let numbers = [self.offset, self.bytes, self.parts].into_iter().chain(self.keys).chain(self.expiring);
        numbers.for_each(|number| writer.put(&number.to_le_bytes()));
        writer.bytes
    }

    /// Returns whether the parts of the shard are large enough for its number of keys.
    pub(super) fn is_possible(&self) -> bool {
        let keys_max = self.bytes / ITEM_BYTES_MIN;
        let total = |keys: &[u64]| keys.iter().fold(0, |sum: u64, keys| sum.saturating_add(*keys));
        total(&self.keys) <= keys_max && total(&self.expiring) <= keys_max
    }

    pub(super) fn decode(bytes: &[u8]) -> Self {
        let mut reader = Reader(bytes);
        let (offset, bytes, parts) = (reader.u64(), reader.u64(), reader.u64());
        let mut many = || std::array::from_fn(|_| reader.u64());
        Self { offset, bytes, parts, keys: many(), expiring: many() }
    }
}

/// Writes the checksum of the preceding bytes into the last eight bytes.
fn seal<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    let checksum = XxHash3_64::oneshot(&bytes[..N - 8]);
    bytes[N - 8..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn is_sealed<const N: usize>(bytes: &[u8; N]) -> bool {
    seal(*bytes) == *bytes || ARE_TRUSTED
}

/// Whether all checksums are accepted. Without this, a fuzzer would never get past the checksums to the
/// checks that follow.
const ARE_TRUSTED: bool = cfg!(fuzzing);
