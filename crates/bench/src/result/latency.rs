//! Latencies: recorded in a histogram of bounded size, reported as a summary.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Maximum recorded latency, which also stands for longer ones.
const LONGEST_US: u64 = 3_600_000_000;

/// A histogram of latencies: three significant digits, at most an hour, about 200 KiB for any number of latencies.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_US, 3).expect("the bounds are in order");
        Self { histogram }
    }
}

impl Latencies {
    /// Records one latency.
    pub fn record(&mut self, latency_us: u64) {
        self.histogram.saturating_record(latency_us);
    }

    pub(crate) fn record_time(&mut self, latency: Duration) {
        self.record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
    }

    /// Records the same latency `count` times.
    pub fn record_many(&mut self, latency_us: u64, count: u64) {
        self.histogram.saturating_record_n(latency_us, count);
    }

    /// Adds the latencies of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("all have the same bounds");
    }

    /// Removes all latencies, but keeps the memory.
    pub fn clear(&mut self) {
        self.histogram.reset();
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    #[must_use]
    pub fn mean_us(&self) -> f64 {
        self.histogram.mean()
    }

    #[must_use]
    pub fn sd_us(&self) -> f64 {
        self.histogram.stdev()
    }

    #[must_use]
    pub fn max_us(&self) -> u64 {
        self.histogram.max()
    }

    /// The latency that `percent` of the requests did not exceed.
    #[must_use]
    pub fn percentile_us(&self, percent: f64) -> u64 {
        self.histogram.value_at_percentile(percent)
    }

    #[must_use]
    pub fn summary(&self) -> LatencySummary {
        let curve =
            CURVE_PERCENT.map(|percent| Percentile { percent, latency_us: self.percentile_us(percent) });
        LatencySummary {
            count: self.count(),
            mean_us: self.mean_us(),
            sd_us: self.sd_us(),
            min_us: if self.count() == 0 { 0 } else { self.histogram.min() },
            p50_us: self.percentile_us(50.0),
            p90_us: self.percentile_us(90.0),
            p95_us: self.percentile_us(95.0),
            p99_us: self.percentile_us(99.0),
            p999_us: self.percentile_us(99.9),
            max_us: self.max_us(),
            curve: curve.to_vec(),
        }
    }

    /// The summary of a part of each request's time, which has no chart. `None` if nothing was recorded.
    #[must_use]
    pub fn part(&self) -> Option<LatencySummary> {
        (self.count() > 0).then(|| LatencySummary { curve: Vec::new(), ..self.summary() })
    }
}

/// The points of a percentile chart: each halves the distance to 100 %, with the usual percentiles in between.
const CURVE_PERCENT: [f64; 21] = [
    0.0, 10.0, 25.0, 50.0, 62.5, 75.0, 87.5, 90.0, 93.75, 95.0, 97.5, 98.75, 99.0, 99.5, 99.75, 99.9, 99.95,
    99.975, 99.99, 99.999, 100.0,
];

/// Latencies of a run. With an open loop, measured from the time at which the request was due.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LatencySummary {
    pub count: u64,
    pub mean_us: f64,
    /// Standard deviation.
    pub sd_us: f64,
    pub min_us: u64,
    pub p50_us: u64,
    pub p90_us: u64,
    pub p95_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub max_us: u64,
    /// Points of the percentile chart, in rising order. Empty for a part of the latency.
    pub curve: Vec<Percentile>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Percentile {
    pub percent: f64,
    pub latency_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_tells_what_was_recorded() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|latency| latencies.record(latency));
        let summary = latencies.summary();
        assert_eq!((summary.count, summary.min_us, summary.max_us), (1000, 1, 1000));
        assert_eq!((summary.p50_us, summary.p90_us, summary.p95_us, summary.p99_us), (500, 900, 950, 990));
        assert!(summary.p999_us.abs_diff(999) <= 1, "a rank is rounded up: {}", summary.p999_us);
        assert!((summary.mean_us - 500.5).abs() < 0.5, "{}", summary.mean_us);
    }

    #[test]
    fn nothing_recorded_is_all_zero() {
        let summary = Latencies::default().summary();
        assert_eq!((summary.count, summary.min_us, summary.max_us, summary.p999_us), (0, 0, 0, 0));
        assert_eq!(Latencies::default().part(), None);
    }

    #[test]
    fn what_takes_longer_than_an_hour_counts_as_an_hour() {
        let mut latencies = Latencies::default();
        latencies.record(u64::MAX);
        assert_eq!(latencies.count(), 1);
        assert!(latencies.max_us().abs_diff(LONGEST_US) < LONGEST_US / 1000);
    }
}
