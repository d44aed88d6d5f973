//! Runs the workers of a load, and merges their results.

use std::io;
use std::sync::Arc;

use super::client::Client;
use super::dialect::Dialect;
use super::keys::Share;
use super::load::{Pace, Preload, RespError, RespLoad, Until};
use super::side::RespSide;
use super::tally::Tally;
use crate::drive::{self, Conduct, Opened, Tickets, Worked, Worker};
use crate::observe::Observer;
use crate::result::Run;

/// Result of a load.
#[derive(Clone, Debug)]
pub struct RespRun {
    pub run: Run,
    /// The first wrong reply: the command, the reply, and the expected one.
    pub first_problem: Option<String>,
}

/// Sets the keys and warms up the server, if the load requires it. The results don't include these commands.
///
/// # Errors
/// Returns the errors of [`run`], and an error if keys can't be set.
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
/// Returns [`RespError`] for invalid settings, and for a server that can't be reached or refuses the greeting. Later failures
/// are counted in the run.
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
    greet(load, &dialect)?;
    let mut workers = Vec::new();
    for index in 0..load.threads as u64 {
        let share = Share { index, of: load.threads as u64 };
        let (conduct, tickets) = part(load, share);
        let mut worker = Worker::new(RespSide::new(load, &dialect, share), conduct, tickets)?;
        if let Opened::NotOne(source) = worker.open_all()? {
            return Err(RespError::Unreachable { address: load.address, source });
        }
        workers.push(worker);
    }
    Ok(result(load, drive::on_threads(workers, load.until, observer)?))
}

/// Checks that the server answers, and accepts the greeting.
fn greet(load: &RespLoad, dialect: &Dialect) -> Result<(), RespError> {
    let address = load.address;
    let unreachable = |source| RespError::Unreachable { address, source };
    let mut client = Client::connect_within(address, load.timeout).map_err(unreachable)?;
    if dialect.greeting.is_empty() {
        return Ok(());
    }
    let reply = client.exchange(&dialect.greeting).map_err(|source| match source.kind() {
        io::ErrorKind::InvalidData => RespError::Malformed { address, source },
        _ => unreachable(source),
    })?;
    match reply.strip_prefix(b"-") {
        None => Ok(()),
        Some(error) => {
            Err(RespError::Refused { address, reply: String::from_utf8_lossy(error).trim_end().to_owned() })
        }
    }
}

/// Returns the part of the load that one thread runs. A unit of the schedule is a batch.
fn part(load: &RespLoad, share: Share) -> (Conduct, Tickets) {
    let pipeline = load.pipeline as u64;
    let connections = usize::try_from(share.amount_of(load.connections as u64));
    let conduct = Conduct {
        address: load.address,
        tls: None,
        connections: connections.expect("no more than all connections"),
        reuse: load.reuse,
        until: load.until,
        timeout: load.timeout,
        think: None,
        seed: load.seed,
    };
    let limit = match load.until {
        Until::Requests(requests) => Some(share.amount_of(requests).div_ceil(pipeline)),
        Until::Elapsed(_) => None,
    };
    let pace = match load.pace {
        Pace::Closed => Pace::Closed,
        Pace::Open { per_second } => Pace::Open { per_second: per_second / load.pipeline as f64 },
    };
    (conduct, Tickets { first: share.index, step: share.of, limit, pace, taken: 0 })
}

fn result(load: &RespLoad, mut worked: Worked<RespSide>) -> RespRun {
    let mut tally = Tally::default();
    worked.sides.drain(..).for_each(|side| tally.add(side.tally));
    let run = worked.into_run();
    let run = Run {
        name: load.address.to_string(),
        target: load.address.to_string(),
        load: load.words(),
        outcomes: tally.outcomes(),
        unsent: run.unsent * load.pipeline as u64,
        ..run
    };
    RespRun { run, first_problem: tally.first_problem }
}
