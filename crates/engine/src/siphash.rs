//! SipHash-1-3 (Aumasson and Bernstein, INDOCRYPT 2012): a keyed hash whose output is unpredictable without
//! the key.

/// A key, expanded to the initial state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SipHash {
    state: [u64; 4],
}

impl SipHash {
    pub(crate) fn new(key: [u64; 2]) -> Self {
        let [k0, k1] = key;
        // "somepseudorandomlygeneratedbytes", from the specification.
        let state = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        Self { state }
    }

    pub(crate) fn hash(mut self, bytes: &[u8]) -> u64 {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.absorb(u64::from_le_bytes(*word)));
        let rest = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        self.absorb(rest | (bytes.len() as u64) << 56);
        self.finish()
    }

    #[inline(always)]
    fn absorb(&mut self, word: u64) {
        self.state[3] ^= word;
        self.round();
        self.state[0] ^= word;
    }

    #[inline(always)]
    fn finish(mut self) -> u64 {
        self.state[2] ^= 0xff;
        (0..3).for_each(|_| self.round());
        self.state.into_iter().fold(0, |sum, word| sum ^ word)
    }

    #[inline(always)]
    fn round(&mut self) {
        let [v0, v1, v2, v3] = &mut self.state;
        *v0 = v0.wrapping_add(*v1);
        *v1 = v1.rotate_left(13) ^ *v0;
        *v0 = v0.rotate_left(32);
        *v2 = v2.wrapping_add(*v3);
        *v3 = v3.rotate_left(16) ^ *v2;
        *v0 = v0.wrapping_add(*v3);
        *v3 = v3.rotate_left(21) ^ *v0;
        *v2 = v2.wrapping_add(*v1);
        *v1 = v1.rotate_left(17) ^ *v2;
        *v2 = v2.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hasher as _};

    use proptest::prelude::*;

    use super::SipHash;

    proptest! {
        /// SipHash with a key of zeros returns the same hashes as the hasher of the standard library.
        #[test]
        fn it_is_that_of_the_standard_library(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut hasher = DefaultHasher::new();
            hasher.write(&bytes);
            prop_assert_eq!(SipHash::new([0, 0]).hash(&bytes), hasher.finish());
        }
    }

    #[test]
    fn each_half_of_the_key_counts() {
        let hashes = [[0, 0], [1, 0], [0, 1], [1, 1]].map(|key| SipHash::new(key).hash(b"key"));
        let different = std::collections::BTreeSet::from(hashes);
        assert_eq!(different.len(), hashes.len());
    }
}
