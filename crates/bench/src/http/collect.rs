//! Runs the workers of a load, and merges their results.

use std::cell::Cell;
use std::sync::Arc;

use super::load::{HttpLoad, Until};
use super::plan::Plan;
use super::side::HttpSide;
use super::tally::Tally;
use super::{LoadError, words};
use crate::drive::{self, Opened, Worked, Worker};
use crate::observe::Observer;
use crate::result::{Interval, Outcome, Run};

/// Runs a load and returns its result. The observer sees each tenth of a second, and can end the load early with the results so far.
///
/// # Errors
///
/// Returns [`LoadError`] for invalid settings, and for a server that was never reached. Later failures are counted in the run.
pub fn run(load: &HttpLoad, observer: &mut dyn Observer) -> Result<Run, LoadError> {
    let plan = Plan::of(load)?;
    Ok(named(measure(&plan, load, observer)?, &plan, load))
}

/// Runs the loads of several sides in rounds, so that changes on the machine affect all sides. A round runs each side once;
/// every other round reverses the order. Returns one run per side, the sum of its rounds. The observer sees all loads, one
/// after the other.
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
    let mut sums: Vec<Option<Measured>> = sides.iter().map(|_| None).collect();
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
    sides.map(|(sum, (plan, load))| Ok(named(sum.ok_or(LoadError::Ended)?, plan, load))).collect()
}

fn measure(plan: &Arc<Plan>, load: &HttpLoad, observer: &mut dyn Observer) -> Result<Measured, LoadError> {
    if let Some(warm_up) = load.warm_up {
        round(plan, load, warm_up, &mut ())?;
    }
    round(plan, load, load.until, observer)
}

type Measured = Worked<HttpSide>;

fn round(
    plan: &Arc<Plan>,
    load: &HttpLoad,
    until: Until,
    observer: &mut dyn Observer,
) -> Result<Measured, LoadError> {
    let unreachable = |source| LoadError::Unreachable { address: plan.name.clone(), source };
    let mut workers = Vec::new();
    for thread in 0..load.threads {
        let (conduct, tickets) = plan.part(load, until, thread);
        let mut worker = Worker::new(HttpSide::new(plan, load), conduct, tickets)?;
        if let Opened::NotOne(source) = worker.open_all()? {
            return Err(unreachable(source));
        }
        workers.push(worker);
    }
    let mut worked = drive::on_threads(workers, until, observer)?;
    worked.never_reached.take().map_or(Ok(worked), |source| Err(unreachable(source)))
}

fn named(mut measured: Measured, plan: &Plan, load: &HttpLoad) -> Run {
    let mut tally = Tally::new(load.detail, plan.figures.len());
    measured.sides.drain(..).for_each(|side| tally.add(&side.tally));
    let statuses = tally.statuses.iter().enumerate().filter(|(_, count)| **count > 0);
    let outcome = |(status, count): (usize, &u64)| Outcome { name: status.to_string(), count: *count };
    Run {
        name: plan.name.clone(),
        target: words::targets(load),
        load: words::load(load),
        outcomes: statuses.map(outcome).collect(),
        first_byte: tally.first_bytes.part(),
        urls: tally.urls.iter().zip(&plan.figures).map(|(tally, url)| tally.figures(url)).collect(),
        ..measured.into_run()
    }
}
