//! Keys and their values, computed instead of stored.

use std::ops::Range;

use rand_distr::{Distribution, Zipf};

use super::load::{Choice, Values};
use crate::random::SplitMix;

/// The values of all keys: each is a part of one text without repetition, and its start is a function of the key.
///
/// Two keys of the same load whose numbers differ by less than 16,384 never share a value of 8 bytes or more, except by chance.
/// The text is always the same, so that a later run knows the values set by an earlier one.
#[derive(Debug)]
pub struct ValuePool {
    text: Vec<u8>,
    value_bytes: usize,
    values: Values,
}

impl ValuePool {
    /// Creates the values of one size.
    #[must_use]
    pub fn new(value_bytes: usize, values: Values) -> Self {
        let mut random = SplitMix::new(TEXT_SEED);
        let length = BEGINS + value_bytes;
        let bytes = std::iter::repeat_with(|| random.next().to_le_bytes()).flatten();
        let text = bytes.take(length).map(|byte| ALPHABET[usize::from(byte & 63)]).collect();
        Self { text, value_bytes, values }
    }

    /// The value of the key with this number: letters, digits, `-` and `_`, which are valid in every protocol.
    #[must_use]
    pub fn value(&self, key: u64) -> &[u8] {
        let begin = match self.values {
            Values::Fixed => 0,
            // The factor is odd, so that all numbers modulo 2^14 have distinct starts.
            #[expect(clippy::cast_possible_truncation, reason = "the remainder is below 2^14")]
            Values::OfKey => (key.wrapping_mul(0x2545_F491_4F6C_DD1D) % BEGINS as u64) as usize,
        };
        &self.text[begin..begin + self.value_bytes]
    }
}

/// Number of starts: few enough to fit into the first-level cache of any processor, with room for other data.
const BEGINS: usize = 1 << 14;
const TEXT_SEED: u64 = 0x6C61_7264_6572;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The first byte of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    /// A key that may be set.
    Stored,
    /// A key that is never set.
    Missing,
}

/// Appends a key of `key_bytes` bytes: its kind, and its number with leading zeros.
pub(super) fn write_key(out: &mut Vec<u8>, kind: KeyKind, mut number: u64, key_bytes: usize) {
    let begin = out.len();
    out.resize(begin + key_bytes, b'0');
    let key = &mut out[begin..];
    key[0] = match kind {
        KeyKind::Stored => b'k',
        KeyKind::Missing => b'm',
    };
    let mut at = key_bytes;
    while number > 0 {
        at -= 1;
        let digit = (number % 10) as u8;
        key[at] = b'0' + digit;
        number /= 10;
    }
}

/// Chooses keys, the same ones for the same seed.
#[derive(Debug)]
pub(super) struct KeySource {
    random: SplitMix,
    keys: u64,
    choice: Chooser,
}

#[derive(Debug)]
enum Chooser {
    Uniform,
    Zipf(Zipf<f64>),
    InTurn { next: u64, range: Range<u64> },
}

impl KeySource {
    /// Creates the key source of one thread. If keys are taken in order, each thread has its own range of keys.
    pub(super) fn new(choice: Choice, keys: u64, seed: u64, thread: Share) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "more keys than 2^52 are chosen a little unevenly")]
        let chooser = match choice {
            Choice::Uniform => Chooser::Uniform,
            Choice::Zipf(exponent) => Chooser::Zipf(
                Zipf::new(keys as f64, exponent).expect("keys and exponent are checked to be positive"),
            ),
            Choice::InTurn => {
                let range = thread.part_of(keys);
                // With fewer keys than threads, some threads share a key.
                let range = if range.is_empty() { 0..keys } else { range };
                Chooser::InTurn { next: range.start, range }
            }
        };
        let seed = seed.wrapping_add(thread.index.wrapping_mul(0x9E37_79B9));
        Self { random: SplitMix::new(seed), keys, choice: chooser }
    }

    /// The number of the next key, below the number of keys.
    pub(super) fn next(&mut self) -> u64 {
        match &mut self.choice {
            // The high half of the product is as uniform as the random number, and needs no division.
            Chooser::Uniform => ((u128::from(self.random.next()) * u128::from(self.keys)) >> 64) as u64,
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank from 1 on")]
            Chooser::Zipf(zipf) => (zipf.sample(&mut self.random) as u64).clamp(1, self.keys) - 1,
            Chooser::InTurn { next, range } => {
                let key = *next;
                *next = if key + 1 == range.end { range.start } else { key + 1 };
                key
            }
        }
    }
}

/// One of `of` equal parts of a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) index: u64,
    pub(super) of: u64,
}

impl Share {
    /// Returns this share's part of `0..whole`. The parts of all shares add up to the whole.
    pub(super) fn part_of(self, whole: u64) -> Range<u64> {
        let up_to = |index: u64| u128::from(whole) * u128::from(index) / u128::from(self.of.max(1));
        let edge = |index| u64::try_from(up_to(index)).unwrap_or(whole);
        edge(self.index)..edge(self.index + 1)
    }

    /// Returns the length of this share's part of `0..whole`.
    pub(super) fn amount_of(self, whole: u64) -> u64 {
        let part = self.part_of(whole);
        part.end - part.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Share = Share { index: 0, of: 1 };

    #[test]
    fn keys_have_their_size_and_number() {
        let cases = [(2, 7, "k7"), (16, 1_234_567, "k000000001234567"), (16, 0, "k000000000000000")];
        for (bytes, number, expected) in cases {
            let mut out = b"x".to_vec();
            write_key(&mut out, KeyKind::Stored, number, bytes);
            assert_eq!(String::from_utf8_lossy(&out[1..]), expected);
        }
        let mut out = Vec::new();
        write_key(&mut out, KeyKind::Missing, u64::MAX, 24);
        assert_eq!(out, b"m00018446744073709551615");
    }

    #[test]
    fn neighbours_have_different_values() {
        let pool = ValuePool::new(12, Values::OfKey);
        let values: std::collections::HashSet<&[u8]> =
            (0..BEGINS as u64).map(|key| pool.value(key)).collect();
        assert_eq!(values.len(), BEGINS);
        assert_eq!(pool.value(5), ValuePool::new(12, Values::OfKey).value(5), "another run knows it");
        let fixed = ValuePool::new(12, Values::Fixed);
        assert_eq!(fixed.value(5), fixed.value(6));
    }

    #[test]
    fn same_seed_chooses_the_same_keys() {
        for choice in [Choice::Uniform, Choice::Zipf(0.99), Choice::InTurn] {
            let keys = |seed| {
                let mut source = KeySource::new(choice, 1000, seed, WHOLE);
                (0..100).map(|_| source.next()).collect::<Vec<_>>()
            };
            assert_eq!(keys(1), keys(1), "{choice:?}");
            assert!(keys(1).iter().all(|key| *key < 1000), "{choice:?}");
            assert_eq!(keys(1) == keys(2), choice == Choice::InTurn, "{choice:?}");
        }
    }

    #[test]
    fn choices_are_distributed_as_they_say() {
        let counts = |choice| {
            let mut source = KeySource::new(choice, 100, 7, WHOLE);
            let mut counts = [0_u32; 100];
            (0..100_000).for_each(|_| counts[usize::try_from(source.next()).expect("below 100")] += 1);
            counts
        };
        let uniform = counts(Choice::Uniform);
        assert!(uniform.iter().all(|count| (800..1200).contains(count)), "{uniform:?}");
        let zipf = counts(Choice::Zipf(1.0));
        // The expected share of the first key is 1 / 5.187, because the sum of 1/r up to 100 is 5.187.
        assert!((18_500..20_000).contains(&zipf[0]), "{zipf:?}");
        assert!((9_000..10_300).contains(&zipf[1]), "{zipf:?}");
    }

    #[test]
    fn in_turn_threads_share_the_keys() {
        let mut seen = Vec::new();
        for index in 0..3 {
            let mut source = KeySource::new(Choice::InTurn, 10, 0, Share { index, of: 3 });
            let part = Share { index, of: 3 }.part_of(10);
            seen.extend((part.start..part.end).map(|_| source.next()));
        }
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
    }
}
