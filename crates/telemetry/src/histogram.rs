//! Histograms of durations with fixed buckets, so that series of different instances can be added up.

/// The upper bound of a bucket: in nanoseconds, and in seconds as in the exposition.
pub type Bound = (u64, &'static str);

/// Upper bounds of the buckets: in nanoseconds, and in seconds as in the exposition. Steps of 1, 2.5, 5 from
/// 10 µs to 10 s: a hit from memory takes tens of microseconds, and a request to a slow origin several
/// seconds.
pub const DURATION_BOUNDS: [Bound; 19] = [
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

/// The same steps from 100 ns on, for commands that take less than a microsecond.
pub const COMMAND_BOUNDS: [Bound; 25] = {
    let below = [
        (100, "0.0000001"),
        (250, "0.00000025"),
        (500, "0.0000005"),
        (1_000, "0.000001"),
        (2_500, "0.0000025"),
        (5_000, "0.000005"),
    ];
    let mut bounds = [(0, ""); 25];
    let mut at = 0;
    while at < bounds.len() {
        bounds[at] = if at < below.len() { below[at] } else { DURATION_BOUNDS[at - below.len()] };
        at += 1;
    }
    bounds
};

/// Durations in the buckets of [`DURATION_BOUNDS`]. Counts are per bucket, not cumulative; the last bucket
/// has no bound.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    counts: [u64; DURATION_BOUNDS.len() + 1],
    sum_ns: u64,
}

impl Histogram {
    /// Adds a duration. A duration equal to a bound belongs to the bucket of that bound (`le`: less or equal).
    pub fn record(&mut self, duration_ns: u64) {
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

    /// Returns the number of recorded durations.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// A histogram in a scrape, with any bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buckets {
    bounds: &'static [Bound],
    /// Counts per bucket: one more than there are bounds.
    counts: Vec<u64>,
    sum_ns: u64,
}

impl From<&Histogram> for Buckets {
    fn from(histogram: &Histogram) -> Self {
        Self { bounds: &DURATION_BOUNDS, counts: histogram.counts.to_vec(), sum_ns: histogram.sum_ns }
    }
}

impl Buckets {
    /// Returns a histogram without durations.
    pub fn new(bounds: &'static [Bound]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum_ns: 0 }
    }

    /// Adds `count` durations to the bucket that contains `at_most_ns`.
    pub fn add(&mut self, at_most_ns: u64, count: u64) {
        let bucket = self.bounds.partition_point(|(bound_ns, _)| *bound_ns < at_most_ns);
        self.counts[bucket] += count;
    }

    /// Adds to the sum of all durations.
    pub fn add_sum(&mut self, sum_ns: u64) {
        self.sum_ns = self.sum_ns.saturating_add(sum_ns);
    }

    /// Returns the number of durations.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of the durations, in seconds.
    pub(crate) fn sum_seconds(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// Adds a histogram with the same bounds.
    pub(crate) fn merge(&mut self, other: &Self) {
        assert_eq!(self.bounds.len(), other.bounds.len(), "a metric has the same bounds everywhere");
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.add_sum(other.sum_ns);
    }

    /// Returns the text of each bound with the number of durations up to it, the unbounded one last.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let bounds = self.bounds.iter().map(|(_, text)| *text).chain(["+Inf"]);
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
        assert!(COMMAND_BOUNDS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(COMMAND_BOUNDS.ends_with(&DURATION_BOUNDS));
        for (bound_ns, text) in COMMAND_BOUNDS {
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
            let first =
                Buckets::from(&histogram).cumulative().find(|(_, count)| *count == 1).map(|(text, _)| text);
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
        let mut buckets = Buckets::from(&left);
        assert_eq!((left.count(), buckets.count()), (3, 3));
        assert!((buckets.sum_seconds() - 3.0).abs() < 1e-6);
        buckets.merge(&Buckets::from(&right));
        assert_eq!(buckets.cumulative().last(), Some(("+Inf", 5)));
    }

    #[test]
    fn counts_of_others_go_where_they_belong() {
        let mut buckets = Buckets::new(&COMMAND_BOUNDS);
        buckets.add(250, 3);
        buckets.add(251, 4);
        buckets.add_sum(2_000);
        let counted: Vec<_> = buckets.cumulative().skip(1).take(2).collect();
        assert_eq!(counted, [("0.00000025", 3), ("0.0000005", 7)]);
        assert_eq!((buckets.count(), buckets.sum_seconds()), (7, 2e-6));
    }
}
