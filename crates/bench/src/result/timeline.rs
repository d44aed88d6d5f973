//! Timeline of a run: intervals of equal length, bounded in number.

use std::time::Duration;

use super::{INTERVALS_MAX, Interval, Latencies};

/// Collects slices of time into at most [`INTERVALS_MAX`] intervals.
///
/// If the length of the run is known, each interval is exact. If a run is longer than expected, neighbours are merged: a merged interval
/// gets the percentiles of its worse half.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Slices per interval.
    slices: u32,
    collected: u32,
    current: Latencies,
    errors: u64,
    length: Duration,
    at: Duration,
    intervals: Vec<Interval>,
}

impl Timeline {
    /// Creates a timeline for slices of this length and a run of the expected length.
    #[must_use]
    pub fn new(slice: Duration, expected: Option<Duration>) -> Self {
        let least = expected.map_or(1.0, |expected| {
            expected.as_secs_f64() / slice.as_secs_f64() / f64::from(INTERVALS_EXPECTED_MAX)
        });
        let slices = ROUND.into_iter().find(|slices| f64::from(*slices) >= least).unwrap_or(36_000);
        Self {
            slices,
            collected: 0,
            current: Latencies::default(),
            errors: 0,
            length: Duration::ZERO,
            at: Duration::ZERO,
            intervals: Vec::new(),
        }
    }

    /// Adds the next slice, and returns it as a separate interval.
    pub fn add(&mut self, latencies: &Latencies, errors: u64, length: Duration) -> Interval {
        let slice = interval(self.at + self.length, length, latencies, errors);
        self.current.add(latencies);
        self.errors += errors;
        self.length += length;
        self.collected += 1;
        if self.collected == self.slices {
            self.close();
        }
        slice
    }

    /// Appends all of another timeline.
    pub fn append(&mut self, other: Self) {
        self.close();
        for interval in other.into_intervals() {
            self.intervals.push(Interval { at_s: self.at.as_secs_f64() + interval.at_s, ..interval });
        }
        self.at = self
            .intervals
            .last()
            .map_or(Duration::ZERO, |last| Duration::from_secs_f64(last.at_s + last.length_s));
        self.bound();
    }

    /// All intervals, oldest first.
    #[must_use]
    pub fn into_intervals(mut self) -> Vec<Interval> {
        self.close();
        self.join_remnant();
        self.intervals
    }

    /// Merges the last interval into its neighbour if it is so short that its rate would be random.
    fn join_remnant(&mut self) {
        if let [.., before, last] = self.intervals.as_slice()
            && last.length_s < before.length_s * REMNANT_SHARE
        {
            let sum = joined(*before, *last);
            self.intervals.truncate(self.intervals.len() - 2);
            self.intervals.push(sum);
        }
    }

    fn close(&mut self) {
        if self.collected == 0 {
            return;
        }
        self.intervals.push(interval(self.at, self.length, &self.current, self.errors));
        self.at += self.length;
        self.current.clear();
        (self.collected, self.errors, self.length) = (0, 0, Duration::ZERO);
        self.bound();
    }

    /// Merges neighbours while there are too many.
    fn bound(&mut self) {
        while self.intervals.len() > INTERVALS_MAX {
            let pairs = self.intervals.chunks(2).filter_map(|pair| pair.iter().copied().reduce(joined));
            self.intervals = pairs.collect();
            self.slices *= 2;
        }
    }
}

/// Maximum for a run of the expected length: fewer than allowed, since a run may take a little longer.
const INTERVALS_EXPECTED_MAX: u16 = 1000;

/// Minimum share of an interval's length. A shorter last interval is merged into the one before.
const REMNANT_SHARE: f64 = 0.1;

/// Interval lengths that are readable on an axis, in slices of a tenth of a second: 0.1 s to an hour.
const ROUND: [u32; 14] = [1, 2, 5, 10, 20, 50, 100, 150, 300, 600, 1200, 3000, 9000, 36_000];

fn interval(at: Duration, length: Duration, latencies: &Latencies, errors: u64) -> Interval {
    Interval {
        at_s: at.as_secs_f64(),
        length_s: length.as_secs_f64(),
        requests: latencies.count(),
        errors,
        mean_us: latencies.mean_us(),
        p50_us: latencies.percentile_us(50.0),
        p99_us: latencies.percentile_us(99.0),
        max_us: latencies.max_us(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
fn joined(first: Interval, second: Interval) -> Interval {
    let requests = first.requests + second.requests;
    let sum_us = first.mean_us * first.requests as f64 + second.mean_us * second.requests as f64;
    Interval {
        at_s: first.at_s,
        length_s: first.length_s + second.length_s,
        requests,
        errors: first.errors + second.errors,
        mean_us: if requests == 0 { 0.0 } else { sum_us / requests as f64 },
        p50_us: first.p50_us.max(second.p50_us),
        p99_us: first.p99_us.max(second.p99_us),
        max_us: first.max_us.max(second.max_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Duration = Duration::from_millis(100);

    fn slice_of(latency_us: u64) -> Latencies {
        let mut latencies = Latencies::default();
        latencies.record(latency_us);
        latencies
    }

    #[test]
    fn a_long_run_has_long_intervals() {
        let mut timeline = Timeline::new(SLICE, Some(Duration::from_secs(150)));
        for slice in 0..1500 {
            timeline.add(&slice_of(slice), 0, SLICE);
        }
        let intervals = timeline.into_intervals();
        assert_eq!(intervals.len(), 750);
        assert!(
            intervals.iter().all(|interval| (interval.length_s - 0.2).abs() < 1e-9),
            "{:?}",
            intervals[0]
        );
        assert_eq!(intervals.iter().map(|interval| interval.requests).sum::<u64>(), 1500);
    }

    #[test]
    fn what_is_appended_follows() {
        let timeline = || {
            let mut timeline = Timeline::new(SLICE, None);
            timeline.add(&slice_of(1), 0, SLICE);
            timeline.add(&slice_of(2), 0, SLICE / 2);
            timeline
        };
        let mut sum = timeline();
        sum.append(timeline());
        let begins: Vec<f64> = sum.into_intervals().iter().map(|interval| interval.at_s).collect();
        let expected = [0.0, 0.1, 0.15, 0.25];
        assert!(
            begins.iter().zip(expected).all(|(begin, expected)| (begin - expected).abs() < 1e-9),
            "{begins:?}"
        );
    }

    #[test]
    fn a_remnant_belongs_to_the_interval_before() {
        #[track_caller]
        fn check(remnant: Duration, requests: &[u64]) {
            let mut timeline = Timeline::new(SLICE, None);
            timeline.add(&slice_of(1), 0, SLICE);
            timeline.add(&slice_of(2), 0, SLICE);
            timeline.add(&slice_of(3), 0, remnant);
            let intervals = timeline.into_intervals();
            assert_eq!(intervals.iter().map(|interval| interval.requests).collect::<Vec<_>>(), requests);
        }
        check(SLICE / 5, &[1, 1, 1]);
        check(SLICE / 20, &[1, 2]);
        check(Duration::ZERO, &[1, 2]);
    }

    #[test]
    fn whatever_the_length_the_number_is_bounded_and_nothing_is_lost() {
        let mut timeline = Timeline::new(SLICE, None);
        for slice in 0..2100 {
            let told = timeline.add(&slice_of(slice), 1, SLICE);
            assert_eq!(told.requests, 1);
        }
        let intervals = timeline.into_intervals();
        assert!(intervals.len() <= INTERVALS_MAX, "{}", intervals.len());
        assert_eq!(intervals.iter().map(|interval| interval.requests).sum::<u64>(), 2100);
        assert_eq!(intervals.iter().map(|interval| interval.errors).sum::<u64>(), 2100);
        let follows = |pair: &[Interval]| (pair[0].at_s + pair[0].length_s - pair[1].at_s).abs() < 1e-6;
        assert!(intervals.windows(2).all(follows));
    }
}
