//! Number of requests at an origin over time.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::result::{Interval, Point, Run, Series};

/// A count, and when it was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) at_s: f64,
    pub(super) total: u64,
}

/// Reads a count once a second on its own thread, until it is finished.
pub(super) struct Sampler {
    stop: SyncSender<()>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Sampler {
    /// Starts the sampler. If `read` returns `None`, the second has no sample.
    pub(super) fn start(mut read: impl FnMut() -> Option<u64> + Send + 'static) -> Self {
        let (stop, stopped) = sync_channel(0);
        let begin = Instant::now();
        let thread = thread::spawn(move || {
            let mut samples = Vec::new();
            loop {
                let sample = read().map(|total| Sample { at_s: begin.elapsed().as_secs_f64(), total });
                samples.extend(sample);
                if is_over(&stopped, next_turn(begin.elapsed())) {
                    samples.extend(read().map(|total| Sample { at_s: begin.elapsed().as_secs_f64(), total }));
                    return samples;
                }
            }
        });
        Self { stop, thread }
    }

    /// Stops the sampler, and returns all samples with a last one taken now.
    pub(super) fn finish(self) -> Vec<Sample> {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

fn is_over(stopped: &Receiver<()>, wait: Duration) -> bool {
    !matches!(stopped.recv_timeout(wait), Err(RecvTimeoutError::Timeout))
}

/// Time until the next full second.
fn next_turn(elapsed: Duration) -> Duration {
    Duration::from_secs(1) - Duration::from_nanos(u64::from(elapsed.subsec_nanos()))
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

/// Answers to the clients of a run, per second over time: as coarse as the samples of an origin.
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
        let sampler = Sampler::start(move || {
            count += 5;
            Some(count)
        });
        let samples = sampler.finish();
        assert!(samples.len() >= 2, "{samples:?}");
        assert_eq!(samples.last().map(|sample| sample.total), Some(5 * samples.len() as u64));
    }
}
