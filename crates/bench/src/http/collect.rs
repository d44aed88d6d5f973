//! Runs the workers of a load, and merges their results.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use super::load::{HttpLoad, Until};
use super::plan::Plan;
use super::tally::Tally;
use super::worker::{Opened, Worker};
use super::{LoadError, words};
use crate::observe::Observer;
use crate::result::{Interval, Latencies, Outcome, Run, Timeline};
use crate::work::{self, Worked};

/// Runs a load and returns its result. The observer sees each tenth of a second, and can end the load early with the results so far.
///
/// # Errors
///
/// Returns [`LoadError`] for settings that no load can follow, and for a server that was never reached. Later failures are counted in the run.
pub fn run(load: &HttpLoad, observer: &mut dyn Observer) -> Result<Run, LoadError> {
    let plan = Plan::of(load)?;
    Ok(measure(&plan, load, observer)?.into_run(&plan, load))
}

/// Runs the loads of several sides in rounds, so that changes on the machine affect all sides: each side once, in reverse order
/// every other time. Returns one run per side, the sum of its rounds. The observer sees all loads, one after the other.
///
/// # Errors
///
/// Returns the errors of [`run`], and [`LoadError::Ended`] if the observer ends the load before each side had a round.
pub fn run_in_turn(
    sides: &[HttpLoad],
    rounds: u32,
    observer: &mut dyn Observer,
) -> Result<Vec<Run>, LoadError> {
    let is_over = Cell::new(false);
    let mut observer = |interval: &Interval| {
        let flow = observer.observe(interval);
        is_over.set(is_over.get() || flow.is_break());
        flow
    };
    let plans = sides.iter().map(Plan::of).collect::<Result<Vec<_>, _>>()?;
    let mut sums: Vec<Option<Collected>> = sides.iter().map(|_| None).collect();
    let turns = (0..rounds).flat_map(|round| {
        let order = 0..sides.len();
        if round % 2 == 0 { order.collect::<Vec<_>>() } else { order.rev().collect() }
    });
    for side in turns {
        if is_over.get() {
            break;
        }
        let measured = measure(&plans[side], &sides[side], &mut observer)?;
        match &mut sums[side] {
            None => sums[side] = Some(measured),
            Some(sum) => sum.add(measured),
        }
    }
    let sides = sums.into_iter().zip(plans.iter().zip(sides));
    sides.map(|(sum, (plan, load))| Ok(sum.ok_or(LoadError::Ended)?.into_run(plan, load))).collect()
}

fn measure(plan: &Arc<Plan>, load: &HttpLoad, observer: &mut dyn Observer) -> Result<Collected, LoadError> {
    if let Some(warm_up) = load.warm_up {
        round(plan, load, warm_up, &mut ())?;
    }
    round(plan, load, load.until, observer)
}

fn round(
    plan: &Arc<Plan>,
    load: &HttpLoad,
    until: Until,
    observer: &mut dyn Observer,
) -> Result<Collected, LoadError> {
    let unreachable = |source| LoadError::Unreachable { address: plan.name.clone(), source };
    let mut workers = Vec::new();
    for thread in 0..load.threads {
        let mut worker = Worker::new(plan, load, until, thread)?;
        if let Opened::NotOne(source) = worker.open_all()? {
            return Err(unreachable(source));
        }
        workers.push(worker);
    }
    let Worked { workers, latencies, timeline, elapsed, cpu } =
        work::on_threads(workers, until.duration(), observer, Worker::run)?;
    let mut tally = Tally::new(load.detail, plan.figures.len());
    let mut trouble = None;
    for mut worker in workers {
        trouble = trouble.or_else(|| worker.take_trouble());
        tally.add(&worker.tally);
    }
    let is_reached = tally.read_bytes > 0 || tally.completed > tally.errors.connect || tally.completed == 0;
    match trouble.filter(|_| !is_reached) {
        Some(source) => Err(unreachable(source)),
        None => Ok(Collected { tally, latencies, timeline, elapsed, cpu }),
    }
}

/// Merged counts of all workers, and of all rounds of a side.
struct Collected {
    tally: Tally,
    latencies: Latencies,
    timeline: Timeline,
    elapsed: Duration,
    cpu: Duration,
}

impl Collected {
    /// Adds the results of a further round, as if it had followed this one.
    fn add(&mut self, other: Self) {
        self.tally.add(&other.tally);
        self.latencies.add(&other.latencies);
        self.timeline.append(other.timeline);
        self.elapsed += other.elapsed;
        self.cpu += other.cpu;
    }

    fn into_run(self, plan: &Plan, load: &HttpLoad) -> Run {
        let Self { tally, latencies, timeline, elapsed, cpu } = self;
        let statuses = tally.statuses.iter().enumerate().filter(|(_, count)| **count > 0);
        let outcome = |(status, count): (usize, &u64)| Outcome { name: status.to_string(), count: *count };
        Run {
            name: plan.name.clone(),
            target: words::targets(load),
            load: words::load(load),
            errors: tally.errors,
            unsent: tally.unsent,
            reconnects: tally.reconnects,
            outcomes: statuses.map(outcome).collect(),
            connect: tally.connects.part(),
            first_byte: tally.first_bytes.part(),
            urls: tally.urls.iter().zip(&plan.figures).map(|(tally, url)| tally.figures(url)).collect(),
            ..Run::made(&latencies, timeline, elapsed, cpu).with_bytes(tally.read_bytes, tally.written_bytes)
        }
    }
}
