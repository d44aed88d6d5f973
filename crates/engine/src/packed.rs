//! Compression of large values.

use std::ops::Range;
use std::sync::Arc;

/// A large value as stored, shared by all of its owners.
#[derive(Clone, Debug)]
pub enum Stored {
    /// Uncompressed.
    Plain(Arc<Vec<u8>>),
    /// Compressed.
    Packed(Arc<Packed>),
}

/// A value compressed with LZ4, which decompresses fastest among the suitable algorithms: a GET waits for the
/// decompression. Blocks are compressed independently, so that reading a part of a value decompresses only
/// the blocks that contain it.
#[derive(Debug)]
pub struct Packed {
    /// The compressed blocks, concatenated.
    bytes: Box<[u8]>,
    /// The end of each block.
    ends: Box<[usize]>,
    plain_bytes: usize,
}

/// Uncompressed size of a block, except the last. LZ4 refers back at most 64 KiB, so smaller blocks would
/// compress worse.
const BLOCK_BYTES: usize = 256 << 10;

/// Compression has to save at least the size of the value divided by this number. A smaller saving isn't
/// worth decompressing the value for every GET.
const SAVED_PART: usize = 8;

impl Packed {
    fn new(value: &[u8]) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for block in value.chunks(BLOCK_BYTES) {
            bytes.extend_from_slice(&lz4_flex::block::compress(block));
            ends.push(bytes.len());
        }
        Self { bytes: bytes.into_boxed_slice(), ends: ends.into_boxed_slice(), plain_bytes: value.len() }
    }

    /// Decompresses a part of the value. The function allocates and copies, so call it without a lock.
    ///
    /// # Panics
    /// If the range exceeds the value.
    #[must_use]
    pub fn unpack(&self, part: Range<usize>) -> Vec<u8> {
        if part.is_empty() {
            return Vec::new();
        }
        let blocks = part.start / BLOCK_BYTES..part.end.div_ceil(BLOCK_BYTES);
        let before_bytes = blocks.start * BLOCK_BYTES;
        let mut plain = vec![0; self.plain_bytes.min(blocks.end * BLOCK_BYTES) - before_bytes];
        for (number, plain) in blocks.zip(plain.chunks_mut(BLOCK_BYTES)) {
            let unpacked = lz4_flex::block::decompress_into(self.block(number), plain);
            unpacked.expect("these bytes were packed here, and have not changed since");
        }
        plain.truncate(part.end - before_bytes);
        plain.drain(..part.start - before_bytes);
        plain
    }

    fn block(&self, number: usize) -> &[u8] {
        let begin = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[begin..self.ends[number]]
    }

    /// Memory of the compressed value.
    fn bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.ends)
    }
}

impl Stored {
    /// Compresses the value, if it has at least `pack_from_bytes` and becomes smaller.
    pub(crate) fn new(value: Arc<Vec<u8>>, pack_from_bytes: usize) -> Self {
        if value.len() < pack_from_bytes {
            return Self::Plain(value);
        }
        let packed = Packed::new(&value);
        if packed.bytes() > value.len() - value.len() / SAVED_PART {
            return Self::Plain(value);
        }
        Self::Packed(Arc::new(packed))
    }

    /// Memory of the value as stored.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Plain(value) => value.capacity(),
            Self::Packed(packed) => packed.bytes(),
        }
    }

    /// Uncompressed length of the value.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        match self {
            Self::Plain(value) => value.len(),
            Self::Packed(packed) => packed.plain_bytes,
        }
    }

    /// Returns whether both values are the same object in memory, and not only equal.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Plain(one), Self::Plain(other)) => Arc::ptr_eq(one, other),
            (Self::Packed(one), Self::Packed(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// The uncompressed value. A compressed value is decompressed, so no lock should be held.
    #[must_use]
    pub fn plain(&self) -> Arc<Vec<u8>> {
        match self {
            Self::Plain(value) => Arc::clone(value),
            Self::Packed(packed) => Arc::new(packed.unpack(0..packed.plain_bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Stored;
    use crate::chance::Chance;
    use crate::{Access, Database, Engine, Expiry, Policy, Settings};

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn what_is_packed_comes_out(
            pattern in prop::collection::vec(any::<u8>(), 1..300),
            bytes in prop_oneof![0..100_000_usize, 0..1_000_000_usize],
            [one, other] in any::<[prop::sample::Index; 2]>(),
        ) {
            let value: Vec<u8> = pattern.iter().copied().cycle().take(bytes).collect();
            let stored = Stored::new(value.clone().into(), 0);
            prop_assert!(*stored.plain() == value);
            prop_assert!(stored.bytes() <= value.len());
            let is_packed = matches!(stored, Stored::Packed(_));
            prop_assert!(bytes < 1000 || is_packed);
            if let Stored::Packed(packed) = &stored {
                let [one, other] = [one, other].map(|index| index.index(bytes + 1));
                let part = one.min(other)..one.max(other);
                prop_assert!(packed.unpack(part.clone()) == value[part]);
            }
        }
    }

    #[test]
    fn a_packed_value_takes_less_and_is_the_same() {
        let engine =
            Engine::new(&Settings { bytes_max: 64 << 20, policy: Policy::default(), seed: 1, threads: 1 });
        let text = b"the same words again and again, ".repeat(4096);
        let mut chance = Chance::new(1);
        let noise: Vec<u8> = std::iter::repeat_with(|| chance.next() as u8).take(text.len()).collect();
        let key = engine.key(Database::default(), b"key");
        let charged = |value: &[u8], pack_from_bytes| {
            engine.set_pack_from_bytes(pack_from_bytes);
            let before = engine.used_bytes();
            engine.lock(&key).set(value, Expiry::At(1000), 0).expect("there is room");
            let charged = engine.used_bytes() - before;
            let mut shard = engine.lock(&key);
            let found = shard.get(Access::Use, 0).expect("it is there");
            assert!(*found.value.to_vec() == *value && found.value.length() == value.len());
            assert_eq!(shard.set_expiry(Expiry::Never, 0), Ok(true));
            assert!(shard.get(Access::Use, 5000).expect("it is there").value.to_vec() == value);
            assert!(shard.remove(5000));
            drop(shard);
            engine.shards().try_for_each(|shard| shard.check()).expect("all is well");
            charged
        };
        charged(b"a segment is there from now on", usize::MAX);
        let plain = charged(&text, usize::MAX);
        assert!(plain >= text.len() as u64);
        assert_eq!(charged(&text, text.len() + 1), plain);
        assert!(charged(&text, text.len()) < plain / 10);
        assert_eq!(charged(&noise, 1 << 10), plain, "it would not become smaller");
    }
}
