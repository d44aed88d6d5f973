//! Two workers of one server, compared with two servers that share nothing.
//!
//! With two cores, the generator shares them with the workers, so throughput says little. The CPU time per command says more: it
//! includes the time that workers wait for each other, and the cache lines that they take from each other. Two servers with one
//! worker each share only the machine, as the workers share it with the generator: with a core for each, they would reach twice
//! the throughput of one. If commands of two workers cost 1 / 0.9 of theirs, the workers would reach 1.8 times that throughput.

use bench::resp::RespLoad;

use super::store::{Running, Store, Wanted};
use super::turns::{self, Entrant, MEASURES};
use super::{HOT_KEYS, Wish};
use crate::plan::What;
use crate::row::{Row, Subject};
use crate::stage::BOTH_CORES;

pub(super) const TITLE: &str = "kv: two workers, GET, P=100";
/// Connections of each half of the load.
const CONNECTIONS: usize = 25;

pub(super) fn measure(wish: &Wish<'_>) -> anyhow::Result<Vec<Row>> {
    if !wish.has(TITLE) {
        return Ok(Vec::new());
    }
    let start = |workers| {
        Store::Larder.start(wish.larder, &Wanted { workers, cores: &BOTH_CORES, ..Wanted::default() })
    };
    let (two_workers, apart, one_worker) = ([start(2)?], [start(1)?, start(1)?], [start(1)?]);
    let entrants = [
        entrant(Subject::Store(Store::Larder), &two_workers),
        entrant(Subject::Instances(2), &apart),
        entrant(Subject::OneWorker, &one_worker),
    ];
    let mut row = Row::new(What::KvWorkers, TITLE, &MEASURES);
    turns::take(&mut row, &entrants, wish.effort, None)?;
    Ok(vec![row])
}

/// The load has two halves: each of two servers gets one half, a single server gets both.
fn entrant(subject: Subject, servers: &[Running]) -> Entrant {
    let half = |server: &Running| RespLoad {
        pipeline: 100,
        connections: CONNECTIONS,
        keys: HOT_KEYS,
        ..server.load()
    };
    let halves = [&servers[0], &servers[servers.len() - 1]].map(half);
    Entrant { subject, pids: servers.iter().map(Running::pid).collect(), loads: halves.into() }
}
