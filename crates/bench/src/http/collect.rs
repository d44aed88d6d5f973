//! Runs the workers of a load, and makes one result of what they tell.

use std::time::Duration;

use super::load::{HttpLoad, Until};
use super::plan::Plan;
use super::tally::Tally;
use super::worker::{Opened, Worker};
use super::{LoadError, words};
use crate::observe::Observer;
use crate::result::{Latencies, Outcome, Run, Timeline};
use crate::work::{self, Worked};

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

fn work(workers: Vec<Worker>, until: Until, observer: &mut dyn Observer) -> Result<Collected, LoadError> {
    let expected = match until {
        Until::Elapsed(duration) => Some(duration),
        Until::Requests(_) => None,
    };
    let Worked { workers, latencies, timeline, elapsed, cpu } =
        work::on_threads(workers, expected, observer, Worker::run)?;
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
