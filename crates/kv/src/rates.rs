//! Values sampled over time: rates of roughly the last second, and peak memory.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// Number of samples for a rate.
const SAMPLES: usize = 16;

/// Sampled values of the server.
#[derive(Debug)]
pub(crate) struct Rates {
    /// Identifies this run of the server: 40 hexadecimal digits.
    pub(crate) run_id: String,
    began_ms: AtomicU64,
    peak_bytes: AtomicU64,
    samples: Mutex<VecDeque<(u64, Totals)>>,
}

/// Totals since the start, or rates per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) commands: u64,
    pub(crate) input_bytes: u64,
    pub(crate) output_bytes: u64,
}

impl Default for Rates {
    fn default() -> Self {
        let number = || RandomState::new().hash_one(());
        let run_id = format!("{:016x}{:016x}{:08x}", number(), number(), number() as u32);
        Self { run_id, began_ms: AtomicU64::new(0), peak_bytes: AtomicU64::new(0), samples: Mutex::default() }
    }
}

impl Rates {
    /// Takes a sample, about ten times a second.
    pub(crate) fn sample(&self, totals: Totals, used_bytes: u64, now_ms: u64) {
        let _ = self.began_ms.compare_exchange(0, now_ms, Relaxed, Relaxed);
        self.peak_bytes.fetch_max(used_bytes, Relaxed);
        let mut samples = self.samples.lock();
        samples.push_back((now_ms, totals));
        if samples.len() > SAMPLES {
            samples.pop_front();
        }
    }

    /// Start time of the server in seconds since 1970.
    pub(crate) fn began_s(&self, now_ms: u64) -> u64 {
        match self.began_ms.load(Relaxed) {
            0 => now_ms / 1000,
            began_ms => began_ms / 1000,
        }
    }

    pub(crate) fn uptime_s(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.began_ms.load(Relaxed).min(now_ms)) / 1000
    }

    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Relaxed)
    }

    /// Current rates per second.
    pub(crate) fn now(&self) -> Totals {
        let samples = self.samples.lock();
        let (Some((begin_ms, first)), Some((end_ms, last))) = (samples.front(), samples.back()) else {
            return Totals::default();
        };
        let passed_ms = end_ms.saturating_sub(*begin_ms).max(1);
        let rate = |first: u64, last: u64| last.saturating_sub(first).saturating_mul(1000) / passed_ms;
        Totals {
            commands: rate(first.commands, last.commands),
            input_bytes: rate(first.input_bytes, last.input_bytes),
            output_bytes: rate(first.output_bytes, last.output_bytes),
        }
    }

    /// Resets the values, for CONFIG RESETSTAT.
    pub(crate) fn reset(&self, used_bytes: u64) {
        self.peak_bytes.store(used_bytes, Relaxed);
        self.samples.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_means_of_the_last_samples() {
        let rates = Rates::default();
        assert_eq!((rates.now(), rates.run_id.len()), (Totals::default(), 40));
        for tick in 0..100 {
            let totals = Totals { commands: tick * 50, input_bytes: tick * 100, output_bytes: 7 };
            rates.sample(totals, tick, 1000 + tick * 100);
        }
        assert_eq!(rates.now(), Totals { commands: 500, input_bytes: 1000, output_bytes: 0 });
        assert_eq!((rates.peak_bytes(), rates.uptime_s(11_000)), (99, 10));
    }
}
