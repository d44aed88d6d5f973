//! Runs the workers of a load, and makes one result of what they tell.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::load::{HttpLoad, Until};
use super::plan::Plan;
use super::tally::{Slice, Tally};
use super::worker::{Opened, SLICE, Worker};
use super::{LoadError, words};
use crate::observe::Observer;
use crate::result::{Interval, Latencies, Outcome, Run, Timeline};

/// Makes a load and tells what came of it. The observer sees each tenth of a second; when it has seen enough, the load
/// ends early, with what there is.
///
/// # Errors
///
/// [`LoadError`] for settings that no load can follow, and for a server that was never reached. What goes wrong after
/// that is counted in the run.
pub fn run(load: &HttpLoad, observer: &mut dyn Observer) -> Result<Run, LoadError> {
    let plan = Plan::of(load)?;
    if let Some(warm_up) = load.warm_up {
        round(&plan, load, warm_up, &mut ())?;
    }
    round(&plan, load, load.until, observer)
}

fn round(plan: &Plan, load: &HttpLoad, until: Until, observer: &mut dyn Observer) -> Result<Run, LoadError> {
    let mut workers = Vec::new();
    for part in plan.parts(load, until) {
        let address = part.server.name.clone();
        let mut worker = Worker::new(load, until, part, plan.figures.len())?;
        if let Opened::NotOne(source) = worker.open_all()? {
            return Err(LoadError::Unreachable { address, source });
        }
        workers.push(worker);
    }
    let collected = work(workers, until, observer)?;
    if let Some(source) = collected.never_reached {
        return Err(LoadError::Unreachable { address: plan.servers[0].name.clone(), source });
    }
    Ok(collected.result(plan, load))
}

/// What all workers counted.
struct Collected {
    tally: Tally,
    latencies: Latencies,
    timeline: Timeline,
    elapsed: Duration,
    cpu: Duration,
    never_reached: Option<std::io::Error>,
}

/// What one worker leaves.
struct Done {
    worker: Worker,
    outcome: std::io::Result<()>,
    end: Instant,
    cpu: Duration,
}

fn work(workers: Vec<Worker>, until: Until, observer: &mut dyn Observer) -> Result<Collected, LoadError> {
    let is_enough = AtomicBool::new(false);
    let start = Instant::now();
    let mut slices = Slices::new(workers.len(), until);
    let (sender, receiver) = sync_channel(workers.len() * 4);
    let done: Vec<Done> = thread::scope(|scope| -> Result<Vec<Done>, LoadError> {
        let mut threads = Vec::new();
        for (at, worker) in workers.into_iter().enumerate() {
            let teller = Teller { at, sender: sender.clone(), is_enough: &is_enough };
            let body = move || drive(worker, start, &teller);
            threads.push(thread::Builder::new().name(format!("load-{at}")).spawn_scoped(scope, body)?);
        }
        drop(sender);
        slices.collect(&receiver, observer, &is_enough);
        let join = |thread: thread::ScopedJoinHandle<'_, Done>| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok(threads.into_iter().map(join).collect())
    })?;
    gather(done, slices, start)
}

fn gather(done: Vec<Done>, slices: Slices, start: Instant) -> Result<Collected, LoadError> {
    let elapsed = done.iter().map(|done| done.end).max().unwrap_or(start).saturating_duration_since(start);
    let cpu = done.iter().map(|done| done.cpu).sum();
    let mut sum: Option<Tally> = None;
    let mut trouble = None;
    for Done { mut worker, outcome, .. } in done {
        outcome?;
        trouble = trouble.or_else(|| worker.take_trouble());
        match &mut sum {
            None => sum = Some(worker.tally),
            Some(sum) => sum.add(&worker.tally),
        }
    }
    let tally = sum.expect("there is at least one worker");
    let (latencies, timeline) = slices.finish(elapsed);
    let is_reached = tally.read_bytes > 0 || tally.completed > tally.errors.connect || tally.completed == 0;
    let never_reached = trouble.filter(|_| !is_reached);
    Ok(Collected { tally, latencies, timeline, elapsed, cpu, never_reached })
}

fn drive(mut worker: Worker, start: Instant, teller: &Teller<'_>) -> Done {
    let cpu_before = thread_cpu();
    let outcome = worker.run(start, |slice| teller.tell(slice));
    Done { worker, outcome, end: Instant::now(), cpu: thread_cpu().saturating_sub(cpu_before) }
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

/// Slices of time of all workers, put together in order.
struct Slices {
    /// How many slices each worker has told.
    told: Vec<usize>,
    /// Slices that not all workers have told yet; the first is number `complete`.
    open: VecDeque<Slice>,
    complete: usize,
    latencies: Latencies,
    timeline: Timeline,
}

impl Slices {
    fn new(workers: usize, until: Until) -> Self {
        let expected = match until {
            Until::Elapsed(duration) => Some(duration),
            Until::Requests(_) => None,
        };
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
            while self.told.iter().all(|told| *told > self.complete) {
                let interval = self.close_first(SLICE);
                if observer.observe(&interval).is_break() {
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

impl Collected {
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
    fn result(self, plan: &Plan, load: &HttpLoad) -> Run {
        let tally = self.tally;
        let requests = self.latencies.count();
        let outcome = |(status, count): (usize, &u64)| Outcome { name: status.to_string(), count: *count };
        let elapsed_s = self.elapsed.as_secs_f64();
        let cpu_us = self.cpu.as_secs_f64() * 1e6;
        let figures = tally.urls.iter().zip(&plan.figures);
        Run {
            name: plan.servers.iter().map(|server| server.name.as_str()).collect::<Vec<_>>().join(", "),
            target: words::targets(load),
            load: words::load(load),
            elapsed_s,
            requests,
            requests_per_s: if elapsed_s > 0.0 { requests as f64 / elapsed_s } else { 0.0 },
            errors: tally.errors,
            unsent: tally.unsent,
            reconnects: tally.reconnects,
            outcomes: tally
                .statuses
                .iter()
                .enumerate()
                .filter(|(_, count)| **count > 0)
                .map(outcome)
                .collect(),
            read_bytes: tally.read_bytes,
            written_bytes: tally.written_bytes,
            latency: self.latencies.summary(),
            intervals: self.timeline.into_intervals(),
            urls: figures.map(|(tally, url)| tally.figures(url)).collect(),
            server: None,
            generator_cpu_us_per_request: if requests > 0 { cpu_us / requests as f64 } else { 0.0 },
        }
    }
}
