//! Runs the workers of a load on threads, and merges their results.

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::counts::Counts;
use super::worker::Worker;
use super::{Side, Until};
use crate::observe::Observer;
use crate::result::{Interval, Latencies, Run, Timeline};

/// Length of a time slice, after which a worker reports its counts.
pub(super) const SLICE: Duration = Duration::from_millis(100);

/// Counts of one time slice.
#[derive(Debug, Default)]
pub(super) struct Slice {
    pub(super) latencies: Latencies,
    pub(super) errors: u64,
}

/// Receives each slice when it ends. `Break` ends the load.
pub(super) type Tell<'a> = &'a mut dyn FnMut(Slice) -> ControlFlow<()>;

/// Merged results of the workers, and of all rounds of a load.
#[derive(Debug)]
pub(crate) struct Worked<S> {
    pub(crate) sides: Vec<S>,
    counts: Counts,
    latencies: Latencies,
    timeline: Timeline,
    elapsed: Duration,
    /// CPU time of the threads, user and system.
    cpu: Duration,
    /// Error of a connection attempt, if no attempt succeeded.
    pub(crate) never_reached: Option<io::Error>,
}

impl<S> Worked<S> {
    /// Adds the results of another round, as if it followed this one.
    pub(crate) fn add(&mut self, other: Self) {
        self.sides.extend(other.sides);
        self.counts.add(&other.counts);
        self.latencies.add(&other.latencies);
        self.timeline.append(other.timeline);
        self.elapsed += other.elapsed;
        self.cpu += other.cpu;
    }

    /// Converts to a [`Run`], without its name and without the counts of outcomes.
    pub(crate) fn into_run(self) -> Run {
        let Counts { errors, reconnects, unsent, read_bytes, written_bytes, connects, .. } = self.counts;
        Run {
            errors,
            unsent,
            reconnects,
            connect: connects.part(),
            ..Run::made(&self.latencies, self.timeline, self.elapsed, self.cpu)
                .with_bytes(read_bytes, written_bytes)
        }
    }
}

/// Runs each worker on a thread.
pub(crate) fn on_threads<S: Side>(
    workers: Vec<Worker<S>>,
    until: Until,
    observer: &mut dyn Observer,
) -> io::Result<Worked<S>> {
    let is_enough = AtomicBool::new(false);
    let start = Instant::now();
    let mut slices = Slices::new(workers.len(), until.duration());
    let (sender, receiver) = sync_channel(workers.len() * 4);
    let done = thread::scope(|scope| -> io::Result<Vec<Done<S>>> {
        let mut threads = Vec::new();
        for (at, worker) in workers.into_iter().enumerate() {
            let teller = Teller { at, sender: sender.clone(), is_enough: &is_enough };
            let body = move || drive(worker, start, &teller);
            threads.push(thread::Builder::new().name(format!("load-{at}")).spawn_scoped(scope, body)?);
        }
        drop(sender);
        slices.collect(&receiver, observer, &is_enough);
        let join = |thread: thread::ScopedJoinHandle<'_, Done<S>>| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok(threads.into_iter().map(join).collect())
    })?;
    gather(done, slices, start)
}

/// Result of one worker.
struct Done<S: Side> {
    worker: Worker<S>,
    outcome: io::Result<()>,
    end: Instant,
    cpu: Duration,
}

fn drive<S: Side>(mut worker: Worker<S>, start: Instant, teller: &Teller<'_>) -> Done<S> {
    let cpu_before = thread_cpu();
    let outcome = worker.run(start, &mut |slice| teller.tell(slice));
    Done { worker, outcome, end: Instant::now(), cpu: thread_cpu().saturating_sub(cpu_before) }
}

fn gather<S: Side>(done: Vec<Done<S>>, slices: Slices, start: Instant) -> io::Result<Worked<S>> {
    let elapsed = done.iter().map(|done| done.end).max().unwrap_or(start).saturating_duration_since(start);
    let cpu = done.iter().map(|done| done.cpu).sum();
    let (latencies, timeline) = slices.finish(elapsed);
    let (mut sides, mut counts, mut trouble) = (Vec::new(), Counts::default(), None);
    for Done { mut worker, outcome, .. } in done {
        outcome?;
        trouble = trouble.or_else(|| worker.take_trouble());
        counts.add(&worker.counts);
        sides.push(worker.side);
    }
    let is_reached = counts.read_bytes > 0
        || latencies.count() + counts.errors.total() > counts.errors.connect
        || counts.completed == 0;
    let never_reached = trouble.filter(|_| !is_reached);
    Ok(Worked { sides, counts, latencies, timeline, elapsed, cpu, never_reached })
}

/// CPU time of the calling thread, user and system.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

struct Teller<'a> {
    at: usize,
    sender: SyncSender<(usize, Slice)>,
    is_enough: &'a AtomicBool,
}

impl Teller<'_> {
    fn tell(&self, slice: Slice) -> ControlFlow<()> {
        let is_heard = self.sender.send((self.at, slice)).is_ok();
        if is_heard && !self.is_enough.load(Ordering::Relaxed) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

/// Time slices of all workers, merged in order.
struct Slices {
    /// Number of slices that each worker has reported.
    told: Vec<usize>,
    /// Slices that at least one worker hasn't reported yet. The index of the first one is `complete`.
    open: VecDeque<Slice>,
    complete: usize,
    latencies: Latencies,
    timeline: Timeline,
}

impl Slices {
    fn new(workers: usize, expected: Option<Duration>) -> Self {
        Self {
            told: vec![0; workers],
            open: VecDeque::new(),
            complete: 0,
            latencies: Latencies::default(),
            timeline: Timeline::new(SLICE, expected),
        }
    }

    fn collect(
        &mut self,
        receiver: &Receiver<(usize, Slice)>,
        observer: &mut dyn Observer,
        is_enough: &AtomicBool,
    ) {
        while let Ok((worker, slice)) = receiver.recv() {
            self.take(worker, slice);
            // The last slice is closed at the end, because its length isn't known earlier.
            while self.told.iter().all(|told| *told > self.complete + 1) {
                if observer.observe(&self.close_first(SLICE)).is_break() {
                    is_enough.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    fn take(&mut self, worker: usize, slice: Slice) {
        let at = self.told[worker] - self.complete;
        self.told[worker] += 1;
        match self.open.get_mut(at) {
            Some(sum) => {
                sum.latencies.add(&slice.latencies);
                sum.errors += slice.errors;
            }
            None => self.open.push_back(slice),
        }
    }

    fn close_first(&mut self, length: Duration) -> Interval {
        let slice = self.open.pop_front().unwrap_or_default();
        self.complete += 1;
        self.latencies.add(&slice.latencies);
        self.timeline.add(&slice.latencies, slice.errors, length)
    }

    fn finish(mut self, elapsed: Duration) -> (Latencies, Timeline) {
        while !self.open.is_empty() {
            let begin = SLICE * u32::try_from(self.complete).unwrap_or(u32::MAX);
            self.close_first(elapsed.saturating_sub(begin).min(SLICE));
        }
        (self.latencies, self.timeline)
    }
}
