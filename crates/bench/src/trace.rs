//! Traces of keys for caches.
//!
//! The same settings give the same trace everywhere: a figure that a model has can be compared with one that a server has.

use rand_distr::{Distribution as _, Zipf};

use crate::random::SplitMix;

/// A sequence of key numbers without end.
#[derive(Debug)]
pub struct Trace {
    settings: TraceSettings,
    zipf: Zipf<f64>,
    random: SplitMix,
    /// Keys of the scan that is under way, and the next key that never came before.
    scan_left: u64,
    scan_next: u64,
}

/// What a trace is like.
#[derive(Clone, Copy, Debug)]
pub struct TraceSettings {
    /// Different keys, those of scans not counted.
    pub keys: u64,
    /// The key of rank r comes as often as 1 / r^exponent; above zero.
    pub exponent: f64,
    pub scans: Scans,
    pub seed: u64,
}

/// Whether there are runs of keys that come once and never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scans {
    None,
    /// A fifth of all requests, each run a fiftieth of the keys.
    Some,
}

/// Runs are this part of the keys.
const SCAN_PART: u64 = 50;
/// Requests of a scan for each that is none, as its inverse.
const REQUESTS_PER_SCANNED: u64 = 4;

impl Trace {
    /// # Panics
    /// Without keys, or with an exponent that is not above zero.
    #[must_use]
    pub fn new(settings: TraceSettings) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 keys")]
        let zipf = Zipf::new(settings.keys as f64, settings.exponent).expect("settings as documented");
        Self { settings, zipf, random: SplitMix::new(settings.seed), scan_left: 0, scan_next: settings.keys }
    }

    /// Whether a scan is to begin: once in as many requests as give it its share of all.
    fn begins_scan(&mut self) -> bool {
        let apart = self.settings.keys / SCAN_PART * REQUESTS_PER_SCANNED;
        self.settings.scans == Scans::Some && self.random.next().is_multiple_of(apart.max(1))
    }
}

impl Iterator for Trace {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.scan_left == 0 && self.begins_scan() {
            self.scan_left = self.settings.keys / SCAN_PART;
        }
        if self.scan_left > 0 {
            self.scan_left -= 1;
            self.scan_next += 1;
            return Some(self.scan_next - 1);
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank from 1 on")]
        Some((self.zipf.sample(&mut self.random) as u64).clamp(1, self.settings.keys) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(scans: Scans) -> impl Iterator<Item = u64> {
        Trace::new(TraceSettings { keys: 1000, exponent: 1.0, scans, seed: 3 }).take(100_000)
    }

    #[test]
    fn scans_are_a_fifth_and_never_come_back() {
        assert!(trace(Scans::None).all(|key| key < 1000));
        let scanned: Vec<u64> = trace(Scans::Some).filter(|key| *key >= 1000).collect();
        assert!((15_000..25_000).contains(&scanned.len()), "{}", scanned.len());
        assert!(scanned.windows(2).all(|pair| pair[0] + 1 == pair[1]));
        assert!(trace(Scans::Some).eq(trace(Scans::Some)), "the same settings give the same trace");
    }

    #[test]
    fn the_first_keys_come_most() {
        let counts = trace(Scans::None).fold([0; 2], |mut counts, key| {
            counts[usize::from(key >= 10)] += 1;
            counts
        });
        // 2.93 of 7.49: the sums of 1/r up to 10 and up to 1000.
        assert!((38_000..41_000).contains(&counts[0]), "{counts:?}");
    }
}
