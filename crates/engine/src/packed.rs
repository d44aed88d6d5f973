//! Large values that are kept compressed, where that is wanted and makes them smaller.

use std::sync::Arc;

/// A large value, as it lies in memory, which all who have it share.
#[derive(Clone, Debug)]
pub enum Stored {
    /// As it was set.
    Plain(Arc<Vec<u8>>),
    /// Smaller.
    Packed(Arc<Packed>),
}

/// LZ4: the quickest to unpack of those that are worth it, and that is what a GET waits for.
#[derive(Debug)]
pub struct Packed {
    bytes: Box<[u8]>,
    plain_bytes: usize,
}

/// What packing has to save, as a part of the value: less is not worth unpacking it with each GET.
const SAVED_PART: usize = 8;

impl Packed {
    /// As it was set: all of it is put together anew, so that no lock should be held.
    #[must_use]
    pub fn unpack(&self) -> Vec<u8> {
        let plain = lz4_flex::block::decompress(&self.bytes, self.plain_bytes);
        plain.expect("these bytes were packed here, and nobody has changed them")
    }
}

impl Stored {
    /// Packed, if the value has at least so many bytes and becomes smaller.
    pub(crate) fn new(value: Arc<Vec<u8>>, pack_from_bytes: usize) -> Self {
        if value.len() < pack_from_bytes {
            return Self::Plain(value);
        }
        let bytes = lz4_flex::block::compress(&value);
        if bytes.len() > value.len() - value.len() / SAVED_PART {
            return Self::Plain(value);
        }
        Self::Packed(Arc::new(Packed { bytes: bytes.into_boxed_slice(), plain_bytes: value.len() }))
    }

    /// That it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Plain(value) => value.capacity(),
            Self::Packed(packed) => packed.bytes.len(),
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
            Self::Packed(packed) => Arc::new(packed.unpack()),
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
        fn what_is_packed_comes_out(pattern in prop::collection::vec(any::<u8>(), 1..300), bytes in 0..100_000_usize) {
            let value: Vec<u8> = pattern.iter().copied().cycle().take(bytes).collect();
            let stored = Stored::new(value.clone().into(), 0);
            prop_assert!(*stored.plain() == value);
            prop_assert!(stored.bytes() <= value.len());
            let is_packed = matches!(stored, Stored::Packed(_));
            prop_assert!(bytes < 1000 || is_packed);
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
