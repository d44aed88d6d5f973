//! Large values that are kept compressed, where that is wanted and makes them smaller.

use std::ops::Range;
use std::sync::Arc;

/// A large value, as it lies in memory, which all who have it share.
#[derive(Clone, Debug)]
pub enum Stored {
    /// As it was set.
    Plain(Arc<Vec<u8>>),
    /// Smaller.
    Packed(Arc<Packed>),
}

/// LZ4: the quickest to unpack of those that are worth it, and that is what a GET waits for. Blocks are packed each for itself: who wants a part
/// of a value unpacks no more than the blocks that it lies in.
#[derive(Debug)]
pub struct Packed {
    /// One block behind the other.
    bytes: Box<[u8]>,
    /// Where each of them ends.
    ends: Box<[usize]>,
    plain_bytes: usize,
}

/// Of a value, but for the last block: what is packed refers to 64 KiB before it at most, so that smaller ones would be packed worse.
const BLOCK_BYTES: usize = 256 << 10;

/// What packing has to save, as a part of the value: less is not worth unpacking it with each GET.
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

    /// A part as it was set: it is put together anew, so that no lock should be held.
    ///
    /// # Panics
    /// Where the value has no such part.
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
            unpacked.expect("these bytes were packed here, and nobody has changed them");
        }
        plain.truncate(part.end - before_bytes);
        plain.drain(..part.start - before_bytes);
        plain
    }

    fn block(&self, number: usize) -> &[u8] {
        let begin = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[begin..self.ends[number]]
    }

    /// That it takes.
    fn bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.ends)
    }
}

impl Stored {
    /// Packed, if the value has at least so many bytes and becomes smaller.
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

    /// That it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Plain(value) => value.capacity(),
            Self::Packed(packed) => packed.bytes(),
        }
    }

    /// Of the value, without unpacking it.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        match self {
            Self::Plain(value) => value.len(),
            Self::Packed(packed) => packed.plain_bytes,
        }
    }

    /// Whether it is this one, and not only one with the same bytes.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Plain(one), Self::Plain(other)) => Arc::ptr_eq(one, other),
            (Self::Packed(one), Self::Packed(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// As it was set. One that is packed is unpacked, so that no lock should be held.
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
