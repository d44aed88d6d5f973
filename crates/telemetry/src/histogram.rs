//! Histograms of durations with fixed buckets, so that series of different instances add up.

/// Upper bounds of the buckets: nanoseconds, and the same in seconds as the exposition writes it.
/// Steps of 1, 2.5, 5 from 10 µs to 10 s: a hit from memory takes tens of microseconds, and an
/// origin that is given up on takes seconds.
pub const DURATION_BOUNDS: [(u64, &str); 19] = [
    (10_000, "0.00001"),
    (25_000, "0.000025"),
    (50_000, "0.00005"),
    (100_000, "0.0001"),
    (250_000, "0.00025"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5"),
    (10_000_000_000, "10"),
];

/// Counts per bucket, not cumulative; the last bucket has no bound.
#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram {
    counts: [u64; DURATION_BOUNDS.len() + 1],
    sum_ns: u64,
}

impl Histogram {
    /// A bound belongs to its bucket: `le` means less or equal.
    pub(crate) fn record(&mut self, duration_ns: u64) {
        let bucket = DURATION_BOUNDS.partition_point(|(bound_ns, _)| *bound_ns < duration_ns);
        self.counts[bucket] += 1;
        self.sum_ns = self.sum_ns.saturating_add(duration_ns);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// Number of durations recorded.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Sum of the durations, in seconds.
    pub(crate) fn sum_seconds(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// The text of each bound with the number of durations up to it, the unbounded one last.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let bounds = DURATION_BOUNDS.iter().map(|(_, text)| *text).chain(["+Inf"]);
        bounds.zip(self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_grow_and_match_their_text() {
        assert!(DURATION_BOUNDS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (bound_ns, text) in DURATION_BOUNDS {
            let seconds: f64 = text.parse().expect("a number");
            assert_eq!((seconds * 1e9).round() as u64, bound_ns, "{text}");
        }
    }

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let cases = [
            (0, "0.00001"),
            (10_000, "0.00001"),
            (10_001, "0.000025"),
            (500_000, "0.0005"),
            (500_001, "0.001"),
            (10_000_000_000, "10"),
            (10_000_000_001, "+Inf"),
            (u64::MAX, "+Inf"),
        ];
        for (duration_ns, want) in cases {
            let mut histogram = Histogram::default();
            histogram.record(duration_ns);
            let first = histogram.cumulative().find(|(_, count)| *count == 1).map(|(text, _)| text);
            assert_eq!(first, Some(want), "{duration_ns}");
            assert_eq!(histogram.count(), 1);
        }
    }

    #[test]
    fn merging_adds() {
        let (mut left, mut right) = (Histogram::default(), Histogram::default());
        left.record(1_000_000_000);
        right.record(2_000_000_000);
        right.record(1);
        left.merge(&right);
        assert_eq!(left.count(), 3);
        assert!((left.sum_seconds() - 3.0).abs() < 1e-6);
        assert_eq!(left.cumulative().last(), Some(("+Inf", 3)));
    }
}
