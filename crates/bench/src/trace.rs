//! Traces of key requests, for caches.
//!
//! The same settings give the same trace everywhere, so the figures of a model can be compared with those of a server.

use rand_distr::{Distribution as _, Zipf};

use crate::random::SplitMix;

/// An endless sequence of key numbers.
#[derive(Debug)]
pub struct Trace {
    settings: TraceSettings,
    zipf: Zipf<f64>,
    random: SplitMix,
    /// Keys left in the current scan, and the next key that has never been requested.
    scan_left: u64,
    scan_next: u64,
}

/// Settings of a trace.
#[derive(Clone, Copy, Debug)]
pub struct TraceSettings {
    /// Number of distinct keys, without those of scans.
    pub keys: u64,
    /// Zipf exponent: the key of rank r is requested as often as 1 / r^exponent. Above zero.
    pub exponent: f64,
    pub scans: Scans,
    pub seed: u64,
}

/// Whether the trace has scans: runs of keys that are requested once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scans {
    None,
    /// Scans make up a fifth of all requests. Each run has a fiftieth of the number of keys.
    Some,
}

/// Length of a run, as an inverse share of the keys.
const SCAN_PART: u64 = 50;
/// Number of other requests per request of a scan.
const REQUESTS_PER_SCANNED: u64 = 4;

impl Trace {
    /// # Panics
    /// Panics if there are no keys, or if the exponent isn't above zero.
    #[must_use]
    pub fn new(settings: TraceSettings) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 keys")]
        let zipf = Zipf::new(settings.keys as f64, settings.exponent).expect("settings as documented");
        Self { settings, zipf, random: SplitMix::new(settings.seed), scan_left: 0, scan_next: settings.keys }
    }

    /// Whether to begin a scan, with a probability that gives scans their share of all requests.
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
        // 2.93 / 7.49: the sums of 1/r up to 10 and up to 1000.
        assert!((38_000..41_000).contains(&counts[0]), "{counts:?}");
    }
}
