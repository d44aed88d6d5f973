//! Two workers of a server against two servers that share nothing.
//!
//! With two cores, the generator shares them with the workers, and throughput says little. What a command costs in CPU time says more: workers that
//! wait for each other, or take cache lines from each other, pay for it there. Two servers of one worker each share nothing but the machine,
//! as the workers share it with the generator: with a core for each they would do twice what one does. Two workers whose commands cost 1 / 0.9 of
//! theirs would do 1.8 times as much.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bench::resp::{self, RespLoad, Until};
use bench::result::Run;
use bench::server::ServerProbe;

use super::store::{Running, Store, Wanted};
use super::{HOT_KEYS, Wish};
use crate::calm;
use crate::output;
use crate::plan::{Budget, Limit, Reference, What};
use crate::row::{Row, Subject};
use crate::stage::BOTH_CORES;

const TITLE: &str = "kv: two workers, GET, P=100";
const RATIO_MAX: f64 = 1.11;
/// Of each of the two halves of the load.
const CONNECTIONS: usize = 25;

/// Servers, and what they are in the row. There are two halves of the load: each server gets one, or a single one both.
struct Entrant {
    subject: Subject,
    servers: Vec<Running>,
}

pub(super) fn budgets(title: &str) -> Vec<Budget> {
    let budget = Budget { measure: 0, limit: Limit::Times(RATIO_MAX, Reference::Instances(2)) };
    if title == TITLE { vec![budget] } else { Vec::new() }
}

pub(super) fn measure(wish: &Wish<'_>) -> anyhow::Result<Vec<Row>> {
    if !wish.has(TITLE) {
        return Ok(Vec::new());
    }
    let start = |workers| {
        Store::Larder.start(wish.larder, &Wanted { workers, cores: &BOTH_CORES, ..Wanted::default() })
    };
    let entrants = [
        Entrant { subject: Subject::Store(Store::Larder), servers: vec![start(2)?] },
        Entrant { subject: Subject::Instances(2), servers: vec![start(1)?, start(1)?] },
        Entrant { subject: Subject::OneWorker, servers: vec![start(1)?] },
    ];
    let measures = [("CPU time per command", "µs"), ("commands/s", ""), ("others", "% of a core")];
    let mut row = Row::new(What::KvWorkers, TITLE, &measures);
    entrants.iter().flat_map(|entrant| &entrant.servers).try_for_each(|one| resp::prepare(&half(one, 1)))?;
    for round in 1..=wish.effort.rounds {
        output::progress(&format!("{TITLE}: round {round} of {}", wish.effort.rounds));
        for entrant in &entrants {
            let (figures, errors) = entrant.turn(wish.effort.seconds_each)?;
            row.add(entrant.subject, figures, errors);
        }
    }
    Ok(vec![row])
}

impl Entrant {
    fn turn(&self, seconds: u32) -> anyhow::Result<(Vec<f64>, u64)> {
        let pids: Vec<u32> = self.servers.iter().map(Running::pid).collect();
        let halves = [&self.servers[0], &self.servers[self.servers.len() - 1]].map(|one| half(one, seconds));
        let turn = calm::turn(&ServerProbe::new(&pids, None)?, || at_once(&halves))?;
        let spent = turn.spent.process_cpu_us.context("the processes were watched")?;
        let requests: u64 = turn.outcome.iter().map(|run| run.requests).sum();
        let per_s: f64 = turn.outcome.iter().map(|run| run.requests_per_s).sum();
        let errors = turn.outcome.iter().map(|run| run.errors.total()).sum();
        Ok((vec![spent / requests as f64, per_s, turn.others_percent], errors))
    }
}

fn at_once(loads: &[RespLoad]) -> anyhow::Result<Vec<Run>> {
    thread::scope(|scope| {
        let make = |load| move || resp::run(load, &mut ());
        let running: Vec<_> = loads.iter().map(|load| scope.spawn(make(load))).collect();
        let ended = running.into_iter().map(|one| one.join().map_err(|_| anyhow!("the generator panicked")));
        ended.map(|run| Ok(run??.run)).collect()
    })
}

fn half(server: &Running, seconds: u32) -> RespLoad {
    let until = Until::Elapsed(Duration::from_secs(seconds.into()));
    RespLoad { pipeline: 100, connections: CONNECTIONS, keys: HOT_KEYS, until, ..server.load() }
}
