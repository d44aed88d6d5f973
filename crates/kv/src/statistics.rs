//! Statistics: commands and their times, hits, and errors.
//!
//! Each worker writes its own counters, and readers sum them, so workers never contend. Plain GET, SET and
//! DEL are counted in the session and added once per batch. One run of these commands in [`RUNS_PER_SAMPLE`]
//! is timed, and the time is divided equally among the commands of the run. Among other quick commands, one
//! call in [`CALLS_PER_SAMPLE`] is timed. Calls of all other commands are always timed. Samples are
//! extrapolated to all calls.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Reading the clock twice costs about a tenth of a GET.
pub(crate) const RUNS_PER_SAMPLE: u64 = 8;
pub(crate) const CALLS_PER_SAMPLE: u64 = 16;

/// Statistics of one worker.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Statistics {
    commands: Box<[OfCommand]>,
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) input_bytes: Counter,
    pub(crate) output_bytes: Counter,
    /// Reads from and writes to sockets.
    pub(crate) reads: Counter,
    pub(crate) writes: Counter,
    runs: Counter,
}

/// Statistics of one command on one worker.
#[derive(Debug, Default)]
pub(crate) struct OfCommand {
    pub(crate) calls: Counter,
    pub(crate) rejected: Counter,
    pub(crate) failed: Counter,
    samples: Counter,
    samples_ns: Counter,
    times: OnceLock<Box<Times>>,
}

/// A counter written by one thread and read by all.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

/// A histogram of times, with eight buckets per power of two.
#[derive(Debug)]
pub(crate) struct Times([Counter; STEPS]);

const STEPS_PER_OCTAVE: usize = 8;
/// Covers times up to 2^40 ns, eighteen minutes.
const STEPS: usize = 41 * STEPS_PER_OCTAVE;

/// Number of commands that bypass the dispatcher.
pub(crate) const PLAIN: usize = 3;

/// Plain GETs, SETs and DELs of a session in the current batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) sets: u64,
    pub(crate) dels: u64,
}

/// Statistics of one command, summed over the workers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sum {
    pub(crate) calls: u64,
    pub(crate) rejected: u64,
    pub(crate) failed: u64,
    samples: u64,
    samples_ns: u64,
    times: Vec<u64>,
}

/// Error replies by code.
#[derive(Debug, Default)]
pub(crate) struct Errors(Mutex<BTreeMap<String, u64>>);

/// Maximum number of codes. The server's own codes are few; the limit guards against codes taken from client
/// input.
pub(crate) const CODES_MAX: usize = 128;

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.get().wrapping_add(more), Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

impl Tally {
    /// Calls of GET, SET and DEL.
    pub(crate) fn calls(self) -> [u64; PLAIN] {
        [self.hits + self.misses, self.sets, self.dels]
    }
}

impl Statistics {
    pub(crate) fn new(commands: usize) -> Self {
        Self {
            commands: (0..commands).map(|_| OfCommand::default()).collect(),
            hits: Counter::default(),
            misses: Counter::default(),
            input_bytes: Counter::default(),
            output_bytes: Counter::default(),
            reads: Counter::default(),
            writes: Counter::default(),
            runs: Counter::default(),
        }
    }

    pub(crate) fn command(&self, number: usize) -> &OfCommand {
        &self.commands[number]
    }

    /// Calls of all commands.
    pub(crate) fn calls(&self) -> u64 {
        self.commands.iter().map(|command| command.calls.get()).sum()
    }

    /// The start time of a run of plain commands, if it is sampled.
    pub(crate) fn begin_run(&self) -> Option<Instant> {
        let run = self.runs.get();
        self.runs.add(1);
        run.is_multiple_of(RUNS_PER_SAMPLE).then(Instant::now)
    }

    /// Counts a lookup of a key.
    pub(crate) fn looked(&self, is_found: bool) {
        let counter = if is_found { &self.hits } else { &self.misses };
        counter.add(1);
    }

    /// Records a sampled run of plain commands, given their numbers and counts.
    pub(crate) fn end_run(&self, begin: Instant, commands: [(usize, u64); PLAIN]) {
        let count: u64 = commands.iter().map(|(_, calls)| calls).sum();
        if count == 0 {
            return;
        }
        let each = begin.elapsed() / u32::try_from(count).unwrap_or(u32::MAX);
        for (number, calls) in commands.into_iter().filter(|(_, calls)| *calls > 0) {
            self.command(number).took(each, calls);
        }
    }

    /// Counts plain commands; `number` maps their position to the number in the command table.
    pub(crate) fn count_plain(&self, tally: Tally, number: impl Fn(usize) -> usize) {
        for (at, calls) in tally.calls().into_iter().enumerate() {
            if calls > 0 {
                self.command(number(at)).calls.add(calls);
            }
        }
        self.hits.add(tally.hits);
        self.misses.add(tally.misses);
    }

    /// Resets all counters. No other thread may be executing commands.
    pub(crate) fn reset(&self) {
        let bytes = [&self.input_bytes, &self.output_bytes];
        for counter in [&self.hits, &self.misses, &self.reads, &self.writes].into_iter().chain(bytes) {
            counter.reset();
        }
        self.commands.iter().for_each(OfCommand::reset);
    }
}

impl OfCommand {
    /// Returns whether the call that begins should be timed.
    pub(crate) fn is_due(&self, is_quick: bool) -> bool {
        !is_quick || self.calls.get().is_multiple_of(CALLS_PER_SAMPLE)
    }

    /// Records `calls` samples of this duration.
    pub(crate) fn took(&self, each: Duration, calls: u64) {
        let each_ns = u64::try_from(each.as_nanos()).unwrap_or(u64::MAX);
        self.samples.add(calls);
        self.samples_ns.add(each_ns.saturating_mul(calls));
        self.times.get_or_init(Box::default).0[step(each_ns)].add(calls);
    }

    fn reset(&self) {
        for counter in [&self.calls, &self.rejected, &self.failed, &self.samples, &self.samples_ns] {
            counter.reset();
        }
        self.times.get().iter().for_each(|times| times.0.iter().for_each(Counter::reset));
    }

    fn add_to(&self, sum: &mut Sum) {
        sum.calls += self.calls.get();
        sum.rejected += self.rejected.get();
        sum.failed += self.failed.get();
        sum.samples += self.samples.get();
        sum.samples_ns += self.samples_ns.get();
        if let Some(times) = self.times.get() {
            sum.times.resize(STEPS, 0);
            sum.times.iter_mut().zip(&times.0).for_each(|(sum, step)| *sum += step.get());
        }
    }
}

impl Default for Times {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl Sum {
    /// Sums the statistics of a command over the workers.
    pub(crate) fn of<'a>(all: impl Iterator<Item = &'a Statistics>, number: usize) -> Self {
        let mut sum = Self::default();
        all.for_each(|statistics| statistics.command(number).add_to(&mut sum));
        sum
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls == 0 && self.rejected == 0
    }

    /// Total time of all calls, extrapolated from the samples.
    pub(crate) fn total_us(&self) -> u64 {
        let scaled_ns = u128::from(self.samples_ns) * u128::from(self.calls);
        (scaled_ns / u128::from(self.samples.max(1)) / 1000) as u64
    }

    /// Total time of the sampled calls.
    pub(crate) fn samples_ns(&self) -> u64 {
        self.samples_ns
    }

    /// Non-empty buckets: the upper bound in nanoseconds, and the count.
    pub(crate) fn times(&self) -> Vec<(u64, u64)> {
        let steps = self.times.iter().enumerate().filter(|(_, count)| **count > 0);
        steps.map(|(step, count)| (end_ns(step), *count)).collect()
    }

    /// The given percentile of the call times, in microseconds.
    pub(crate) fn percentile_us(&self, percent: f64) -> f64 {
        let wanted = (self.samples as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.times.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0.0, |step| end_ns(step) as f64 / 1000.0)
    }

    /// Cumulative counts for powers of two in microseconds.
    pub(crate) fn cumulative_us(&self) -> Vec<(u64, u64)> {
        let mut seen = 0;
        let mut told: Vec<(u64, u64)> = Vec::new();
        for (step, count) in self.times.iter().enumerate().filter(|(_, count)| **count > 0) {
            seen += count;
            let at_most_us = end_ns(step).div_ceil(1000).next_power_of_two();
            let calls = (u128::from(seen) * u128::from(self.calls) / u128::from(self.samples.max(1))) as u64;
            match told.last_mut() {
                Some(last) if last.0 == at_most_us => last.1 = calls,
                _ => told.push((at_most_us, calls)),
            }
        }
        told
    }
}

fn step(time_ns: u64) -> usize {
    let octave = time_ns.max(1).ilog2() as usize;
    let inside = if octave < 3 { 0 } else { (time_ns >> (octave - 3)) as usize & (STEPS_PER_OCTAVE - 1) };
    (octave * STEPS_PER_OCTAVE + inside).min(STEPS - 1)
}

/// The upper bound of a bucket.
fn end_ns(step: usize) -> u64 {
    let (octave, inside) = (step / STEPS_PER_OCTAVE, (step % STEPS_PER_OCTAVE) as u64);
    let begin = 1_u64 << octave;
    if octave < 3 { begin * 2 - 1 } else { begin + (begin >> 3) * (inside + 1) - 1 }
}

impl Errors {
    /// Counts an error reply; its code is the first word.
    pub(crate) fn add(&self, text: &str) {
        let code = text.split(' ').next().unwrap_or_default();
        let mut counts = self.0.lock();
        if let Some(count) = counts.get_mut(code) {
            *count += 1;
        } else if counts.len() < CODES_MAX {
            counts.insert(code.to_owned(), 1);
        }
    }

    pub(crate) fn all(&self) -> BTreeMap<String, u64> {
        self.0.lock().clone()
    }

    pub(crate) fn reset(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_holds_the_times_up_to_its_end() {
        for time_ns in (0..5000).chain([1 << 20, (1 << 33) + 12345, 1 << 39]) {
            let step = step(time_ns);
            assert!(time_ns <= end_ns(step), "{time_ns}");
            assert!(step == 0 || time_ns > end_ns(step - 1) || time_ns < 8, "{time_ns}");
        }
        assert_eq!(step(u64::MAX), STEPS - 1);
    }

    #[test]
    fn samples_stand_for_all_calls() {
        let statistics = [Statistics::new(2), Statistics::new(2)];
        for (worker, each_us) in statistics.iter().zip([10, 30]) {
            worker.command(1).calls.add(100);
            worker.command(1).took(Duration::from_micros(each_us), 5);
        }
        let sum = Sum::of(statistics.iter(), 1);
        assert_eq!((sum.calls, sum.total_us()), (200, 4000));
        assert!((10.0..12.0).contains(&sum.percentile_us(50.0)), "{}", sum.percentile_us(50.0));
        assert!((30.0..34.0).contains(&sum.percentile_us(99.9)));
        assert_eq!(sum.cumulative_us(), [(16, 100), (32, 200)]);
        assert!(Sum::of(statistics.iter(), 0).is_empty());
        statistics.iter().for_each(Statistics::reset);
        assert!(Sum::of(statistics.iter(), 1).is_empty());
    }

    #[test]
    fn a_run_is_shared_by_its_commands() {
        let statistics = Statistics::new(2);
        let taken = (0..RUNS_PER_SAMPLE * 3).filter_map(|_| statistics.begin_run()).count();
        assert_eq!(taken, 3);
        statistics.end_run(Instant::now(), [(0, 3), (1, 0), (1, 0)]);
        assert_eq!(statistics.command(0).samples.get(), 3);
        assert_eq!(statistics.command(1).samples.get(), 0);
    }
}
