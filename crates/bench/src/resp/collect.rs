//! Runs the workers of a load, and merges their results.

use std::sync::Arc;

use super::cluster::{self, Nodes};
use super::dialect::Dialect;
use super::keys::Share;
use super::load::{Preload, RespError, RespLoad, Until};
use super::tally::Tally;
use super::worker::Worker;
use crate::observe::Observer;
use crate::result::Run;
use crate::work::{self, Worked};

/// Result of a load.
#[derive(Clone, Debug)]
pub struct RespRun {
    pub run: Run,
    /// The first wrong reply: the command, the reply, and the expected one.
    pub first_problem: Option<String>,
}

/// Sets the keys and warms the server up, if the load asks for it. None of this counts.
///
/// # Errors
/// Returns the errors of [`run`], and one if keys can't be set.
pub fn prepare(load: &RespLoad) -> Result<(), RespError> {
    load.check()?;
    if load.preload == Preload::AllKeys {
        preload(load)?;
    }
    if let Some(warm_up) = load.warm_up {
        let until = Until::Elapsed(warm_up);
        make(&RespLoad { until, ..load.clone() }, &mut ())?;
    }
    Ok(())
}

/// Runs a prepared load and returns its result. The observer sees each tenth of a second, and can end the load early with the results so far.
///
/// # Errors
/// Returns [`RespError`] for settings that no load can follow, and for a server that can't be reached or refuses the greeting.
/// Later failures are counted in the run.
pub fn run(load: &RespLoad, observer: &mut dyn Observer) -> Result<RespRun, RespError> {
    load.check()?;
    make(load, observer)
}

fn preload(load: &RespLoad) -> Result<(), RespError> {
    let RespRun { run, first_problem } = make(&load.preload(), &mut ())?;
    let errors = run.errors.total();
    if errors == 0 {
        return Ok(());
    }
    let first = first_problem.unwrap_or_else(|| "a connection failed".to_owned());
    Err(RespError::Preload { errors, keys: load.keys, first })
}

fn make(load: &RespLoad, observer: &mut dyn Observer) -> Result<RespRun, RespError> {
    let dialect = Arc::new(Dialect::of(load));
    let nodes = cluster::find_nodes(load, &dialect)?;
    let of = load.threads as u64;
    let mut workers = Vec::new();
    for index in 0..of {
        let mut worker = Worker::new(load, &dialect, nodes.clone(), Share { index, of })?;
        worker.open_all()?;
        workers.push(worker);
    }
    let worked = work::on_threads(workers, load.until.duration(), observer, Worker::run)?;
    Ok(result(load, &nodes, worked))
}

fn result(load: &RespLoad, nodes: &Nodes, worked: Worked<Worker>) -> RespRun {
    let mut tally = Tally::default();
    worked.workers.into_iter().for_each(|worker| tally.add(worker.tally));
    let targets: Vec<String> = (0..nodes.count()).map(|node| nodes.address(node).to_string()).collect();
    let run = Run {
        name: load.address.to_string(),
        target: targets.join(", "),
        load: load.words(),
        errors: tally.errors,
        unsent: tally.unsent,
        reconnects: tally.reconnects,
        outcomes: tally.outcomes(),
        ..Run::made(&worked.latencies, worked.timeline, worked.elapsed, worked.cpu)
            .with_bytes(tally.read_bytes, tally.written_bytes)
    };
    RespRun { run, first_problem: tally.first_problem }
}
