//! The bytes of a representation, with random access and without storing all of them.

use bytes::Bytes;

/// A representation: `head`, then filler up to `len_bytes`.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    head: Bytes,
    fill: Fill,
    len_bytes: u64,
}

/// Filler after the head.
#[derive(Debug, Clone, Copy)]
enum Fill {
    /// Spaces, which keep JSON, HTML, XML and CSS valid.
    Spaces,
    /// Pseudo-random bytes; the same seed gives the same bytes.
    Random { seed: u64 },
}

impl Content {
    /// Creates content of exactly these bytes.
    pub(crate) fn of(bytes: impl Into<Bytes>) -> Self {
        let head = bytes.into();
        let len_bytes = head.len() as u64;
        Self { head, fill: Fill::Spaces, len_bytes }
    }

    /// Creates content of `len_bytes` pseudo-random bytes.
    pub(crate) fn random(len_bytes: u64) -> Self {
        Self { head: Bytes::new(), fill: Fill::Random { seed: len_bytes }, len_bytes }
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Makes the content at least `size_bytes` long; never cuts it.
    pub(crate) fn padded_to(mut self, size_bytes: u64) -> Self {
        self.len_bytes = self.len_bytes.max(size_bytes);
        self
    }

    /// Makes the content depend on `note`: text includes it by means of `write`, and random bytes
    /// use a different seed.
    pub(crate) fn varied_by(mut self, note: &str, write: impl FnOnce(&[u8], &str) -> Vec<u8>) -> Self {
        match self.fill {
            Fill::Spaces => Self::of(write(&self.head, note)),
            Fill::Random { seed } => {
                self.fill = Fill::Random { seed: seed ^ fingerprint([note.as_bytes()]) };
                self
            }
        }
    }

    /// Returns at most `count` bytes from `start`.
    pub(crate) fn slice(&self, start: u64, count: usize) -> Bytes {
        let head_len = self.head.len() as u64;
        if start < head_len {
            let from = start as usize;
            return self.head.slice(from..self.head.len().min(from.saturating_add(count)));
        }
        let count = (count as u64).min(self.len_bytes.saturating_sub(start));
        self.fill.bytes(start - head_len, count as usize)
    }

    /// Returns a number that changes with the bytes, for the ETag.
    pub(crate) fn fingerprint(&self) -> u64 {
        let seed = match self.fill {
            Fill::Spaces => 0,
            Fill::Random { seed } => seed,
        };
        fingerprint([&self.head[..], &self.len_bytes.to_le_bytes(), &seed.to_le_bytes()])
    }
}

impl Fill {
    fn bytes(self, start: u64, count: usize) -> Bytes {
        let Self::Random { seed } = self else {
            return vec![b' '; count].into();
        };
        let skip = (start % 8) as usize;
        let base = scramble(seed).wrapping_add(start / 8);
        let mut filled = vec![0; (count + skip).next_multiple_of(8)];
        for (index, word) in filled.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&scramble(base.wrapping_add(index as u64)).to_le_bytes());
        }
        filled.truncate(count + skip);
        Bytes::from(filled).slice(skip..)
    }
}

/// Computes FNV-1a over the parts, which is stable across builds, unlike the standard library's
/// hasher.
pub(crate) fn fingerprint<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let bytes = parts.into_iter().flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The SplitMix64 step, which maps neighbours to unrelated numbers.
pub(crate) fn scramble(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Content {
        fn materialised(&self) -> Vec<u8> {
            let mut all = self.head.to_vec();
            all.extend_from_slice(&self.slice(self.head.len() as u64, usize::MAX));
            all
        }
    }

    #[test]
    fn any_slice_equals_the_same_part_of_the_whole() {
        for content in [Content::random(1000), Content::of("head").padded_to(50), Content::of("all")] {
            let whole = content.materialised();
            assert_eq!(whole.len() as u64, content.len_bytes());
            for start in 0..whole.len() {
                for count in [0, 1, 7, 8, 9, 64] {
                    let mut part = Vec::new();
                    while part.len() < count {
                        let more = content.slice((start + part.len()) as u64, count - part.len());
                        if more.is_empty() {
                            break;
                        }
                        part.extend_from_slice(&more);
                    }
                    assert_eq!(part, whole[start..whole.len().min(start + count)], "{start}+{count}");
                }
            }
        }
    }

    #[test]
    fn random_content_is_the_same_each_time_and_differs_by_length() {
        assert_eq!(Content::random(64).materialised(), Content::random(64).materialised());
        assert_ne!(Content::random(64).materialised(), Content::random(65).materialised()[..64]);
        assert_eq!(Content::random(1 << 40).slice((1 << 40) - 3, 100).len(), 3);
    }

    #[test]
    fn the_fingerprint_follows_the_bytes() {
        let plain = Content::of("a");
        assert_eq!(plain.fingerprint(), Content::of("a").fingerprint());
        assert_ne!(plain.fingerprint(), Content::of("b").fingerprint());
        assert_ne!(plain.fingerprint(), plain.padded_to(2).fingerprint());
    }
}
