//! Number of requests at an origin over time.

use std::time::Instant;

use crate::result::{Interval, Point, Run, Series};

/// A count, and when it was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) at_s: f64,
    pub(super) total: u64,
}

/// Reads a count once a second.
pub(super) struct Sampler<R> {
    read: R,
    begin: Instant,
    samples: Vec<Sample>,
    seconds: u64,
}

impl<R: FnMut() -> Option<u64>> Sampler<R> {
    /// Takes the first sample. If `read` returns `None`, that second has no sample.
    pub(super) fn start(read: R) -> Self {
        let mut sampler = Self { read, begin: Instant::now(), samples: Vec::new(), seconds: 0 };
        sampler.sample();
        sampler
    }

    fn sample(&mut self) {
        let sample = (self.read)().map(|total| Sample { at_s: self.begin.elapsed().as_secs_f64(), total });
        self.samples.extend(sample);
    }

    /// Takes a sample if a second has passed. The observer of a load calls this several times a second.
    pub(super) fn tick(&mut self) {
        let seconds = self.begin.elapsed().as_secs();
        if seconds > self.seconds {
            self.seconds = seconds;
            self.sample();
        }
    }

    /// Takes the last sample, and returns all.
    pub(super) fn finish(mut self) -> Vec<Sample> {
        self.sample();
        self.samples
    }
}

/// Growth from the first sample to the last.
pub(super) fn growth(samples: &[Sample]) -> u64 {
    match samples {
        [first, .., last] => last.total.saturating_sub(first.total),
        _ => 0,
    }
}

/// The largest growth between adjacent samples.
pub(super) fn largest_step(samples: &[Sample]) -> u64 {
    samples.windows(2).map(growth).max().unwrap_or(0)
}

/// Growth per second over time.
pub(super) fn rate_series(name: &str, samples: &[Sample]) -> Series {
    let points = samples.windows(2).filter_map(|pair| {
        let length_s = pair[1].at_s - pair[0].at_s;
        (length_s > 0.0).then(|| Point { x: pair[1].at_s, y: growth(pair) as f64 / length_s, ribbon: None })
    });
    Series { name: name.to_owned(), points: points.collect() }
}

/// Answers to the clients of a run per second over time, at the resolution of the samples of an origin.
pub(super) fn client_series(name: &str, run: &Run) -> Series {
    let seconds = run.intervals.chunk_by(|one, next| one.at_s.floor() == next.at_s.floor());
    let point = |second: &[Interval]| {
        let length_s: f64 = second.iter().map(|interval| interval.length_s).sum();
        let requests: u64 = second.iter().map(|interval| interval.requests).sum();
        let end_s = second.last()?.at_s + second.last()?.length_s;
        (length_s > 0.0).then(|| Point { x: end_s, y: requests as f64 / length_s, ribbon: None })
    };
    Series { name: name.to_owned(), points: seconds.filter_map(point).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(totals: &[u64]) -> Vec<Sample> {
        totals.iter().enumerate().map(|(at, total)| Sample { at_s: at as f64, total: *total }).collect()
    }

    #[test]
    fn growth_and_steps() {
        #[track_caller]
        fn check(totals: &[u64], all: u64, step: u64) {
            let samples = samples(totals);
            assert_eq!((growth(&samples), largest_step(&samples)), (all, step));
        }
        check(&[], 0, 0);
        check(&[7], 0, 0);
        check(&[7, 7, 9, 10], 3, 2);
    }

    #[test]
    fn rate_is_growth_over_time() {
        let mut samples = samples(&[0, 10, 10]);
        samples[2].at_s = 3.0;
        let rates: Vec<_> =
            rate_series("origin", &samples).points.iter().map(|point| (point.x, point.y)).collect();
        assert_eq!(rates, [(1.0, 10.0), (3.0, 0.0)]);
    }

    #[test]
    fn intervals_of_one_second_are_one_point() {
        let interval = |at_s, requests| Interval { at_s, length_s: 0.5, requests, ..Interval::default() };
        let intervals = vec![interval(0.0, 1), interval(0.5, 3), interval(1.0, 8)];
        let series = client_series("clients", &Run { intervals, ..Run::default() });
        let points: Vec<_> = series.points.iter().map(|point| (point.x, point.y)).collect();
        assert_eq!(points, [(1.0, 4.0), (1.5, 16.0)]);
    }

    #[test]
    fn sampler_reads_at_begin_and_end() {
        let mut count = 0;
        let mut sampler = Sampler::start(|| {
            count += 5;
            Some(count)
        });
        sampler.tick();
        let totals: Vec<u64> = sampler.finish().iter().map(|sample| sample.total).collect();
        assert_eq!(totals, [5, 10], "and not again within a second");
    }
}
