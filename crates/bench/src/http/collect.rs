//! Runs the workers of a load, and merges their results.

use std::cell::Cell;
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
    Ok(measure(load, observer)?.into_run(load))
}

/// Runs the loads of several sides in turn, so that changes on the machine affect all sides: the first load of each side, the
/// second of each side, and so on, in reverse order every other time. Returns one run per side, with figures per URL merged by
/// URL. The observer sees all loads, one after the other.
///
/// # Errors
///
/// Returns the errors of [`run`], and [`LoadError::Ended`] if the observer ends the load before each side had a round.
pub fn run_in_turn(sides: &[Vec<HttpLoad>], observer: &mut dyn Observer) -> Result<Vec<Run>, LoadError> {
    let is_over = Cell::new(false);
    let mut observer = |interval: &Interval| {
        let flow = observer.observe(interval);
        is_over.set(is_over.get() || flow.is_break());
        flow
    };
    let mut sums: Vec<Option<Measured>> = sides.iter().map(|_| None).collect();
    for round in 0..sides.iter().map(Vec::len).max().unwrap_or_default() {
        let mut order: Vec<usize> = (0..sides.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for side in order.into_iter().filter(|&side| round < sides[side].len()) {
            if is_over.get() {
                return summed_up(sums, sides);
            }
            let measured = measure(&sides[side][round], &mut observer)?;
            match &mut sums[side] {
                None => sums[side] = Some(measured),
                Some(sum) => sum.add(measured),
            }
        }
    }
    summed_up(sums, sides)
}

fn summed_up(sums: Vec<Option<Measured>>, sides: &[Vec<HttpLoad>]) -> Result<Vec<Run>, LoadError> {
    let run = |(sum, loads): (Option<Measured>, &Vec<HttpLoad>)| match (sum, loads.first()) {
        (_, None) => Err(LoadError::NoTargets),
        (None, Some(_)) => Err(LoadError::Ended),
        (Some(sum), Some(load)) => Ok(sum.into_run(load)),
    };
    sums.into_iter().zip(sides).map(run).collect()
}

fn measure(load: &HttpLoad, observer: &mut dyn Observer) -> Result<Measured, LoadError> {
    let plan = Plan::of(load)?;
    if let Some(warm_up) = load.warm_up {
        round(&plan, load, warm_up, &mut ())?;
    }
    round(&plan, load, load.until, observer)
}

fn round(
    plan: &Plan,
    load: &HttpLoad,
    until: Until,
    observer: &mut dyn Observer,
) -> Result<Measured, LoadError> {
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
    Ok(collected.named(plan))
}

/// Merged counts of all workers.
struct Collected {
    tally: Tally,
    latencies: Latencies,
    timeline: Timeline,
    elapsed: Duration,
    cpu: Duration,
    never_reached: Option<std::io::Error>,
}

fn work(workers: Vec<Worker>, until: Until, observer: &mut dyn Observer) -> Result<Collected, LoadError> {
    let Worked { workers, latencies, timeline, elapsed, cpu } =
        work::on_threads(workers, until.duration(), observer, Worker::run)?;
    let mut sum: Option<Tally> = None;
    let mut trouble = None;
    for mut worker in workers {
        trouble = trouble.or_else(|| worker.take_trouble());
        match &mut sum {
            None => sum = Some(worker.tally),
            Some(sum) => sum.add(&worker.tally),
        }
    }
    let tally = sum.expect("there is at least one worker");
    let is_reached = tally.read_bytes > 0 || tally.completed > tally.errors.connect || tally.completed == 0;
    let never_reached = trouble.filter(|_| !is_reached);
    Ok(Collected { tally, latencies, timeline, elapsed, cpu, never_reached })
}

impl Collected {
    fn named(self, plan: &Plan) -> Measured {
        let servers = plan.servers.iter().map(|server| server.name.clone()).collect();
        Measured { servers, figures: plan.figures.clone(), collected: self }
    }

    /// Adds the results of a further load, as if it had followed this one.
    fn add(&mut self, other: Self) {
        self.tally.add(&other.tally);
        self.latencies.add(&other.latencies);
        self.timeline.append(other.timeline);
        self.elapsed += other.elapsed;
        self.cpu += other.cpu;
    }
}

/// Results of a load, or of several on the same side, before they are summarised.
struct Measured {
    servers: Vec<String>,
    /// The URLs of the tally's figures, in the same order.
    figures: Vec<String>,
    collected: Collected,
}

impl Measured {
    fn add(&mut self, mut other: Self) {
        for server in other.servers {
            if !self.servers.contains(&server) {
                self.servers.push(server);
            }
        }
        for (url, figures) in other.figures.into_iter().zip(std::mem::take(&mut other.collected.tally.urls)) {
            match self.figures.iter().position(|known| *known == url) {
                Some(at) => self.collected.tally.urls[at].add(&figures),
                None => {
                    self.figures.push(url);
                    self.collected.tally.urls.push(figures);
                }
            }
        }
        self.collected.add(other.collected);
    }

    fn into_run(self, load: &HttpLoad) -> Run {
        let Collected { tally, latencies, timeline, elapsed, cpu, .. } = self.collected;
        let outcome = |(status, count): (usize, &u64)| Outcome { name: status.to_string(), count: *count };
        let figures = tally.urls.iter().zip(&self.figures);
        Run {
            name: self.servers.join(", "),
            target: words::targets(load),
            load: words::load(load),
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
            connect: tally.connects.part(),
            first_byte: tally.first_bytes.part(),
            urls: figures.map(|(tally, url)| tally.figures(url)).collect(),
            ..Run::made(&latencies, timeline, elapsed, cpu).with_bytes(tally.read_bytes, tally.written_bytes)
        }
    }
}
