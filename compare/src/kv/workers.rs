//! Two workers against one.
//!
//! With two cores, the generator shares them with the workers, and the throughput says little. What a command costs in CPU time says more: workers that wait for each other, or take cache lines from each other, pay for it there. The
//! same commands at 1 / 0.9 of the cost are 1.8 times as many on two cores.

use std::time::Duration;

use anyhow::Context as _;
use bench::resp::{self, RespLoad, Until};
use bench::server::ServerProbe;

use super::store::{Running, Store, Wanted};
use super::{HOT_KEYS, Wish};
use crate::calm;
use crate::output;
use crate::plan::{Budget, Limit, Reference, What};
use crate::row::{Row, Subject};
use crate::stage::BOTH_CORES;

const TITLE: &str = "kv: two workers against one, GET, P=100";
const RATIO_MAX: f64 = 1.11;

pub(super) fn budgets(title: &str) -> Vec<Budget> {
    let budget = Budget { measure: 0, limit: Limit::Times(RATIO_MAX, Reference::OneWorker) };
    if title == TITLE { vec![budget] } else { Vec::new() }
}

pub(super) fn measure(wish: &Wish<'_>) -> anyhow::Result<Vec<Row>> {
    if !wish.has(TITLE) {
        return Ok(Vec::new());
    }
    let Wish { larder, effort, .. } = *wish;
    let wanted = |workers| Wanted { workers, cores: &BOTH_CORES, ..Wanted::default() };
    let entrants = [
        (Subject::Store(Store::Larder), Store::Larder.start(larder, &wanted(2))?),
        (Subject::OneWorker, Store::Larder.start(larder, &wanted(1))?),
    ];
    let measures = [("CPU time per command", "µs"), ("commands/s", ""), ("others", "% of a core")];
    let mut row = Row::new(What::KvWorkers, TITLE, &measures);
    entrants.iter().try_for_each(|(_, server)| resp::prepare(&load(server, 1)))?;
    for round in 1..=effort.rounds {
        output::progress(&format!("{TITLE}: round {round} of {}", effort.rounds));
        for (subject, server) in &entrants {
            let probe = ServerProbe::new(&[server.pid()], None)?;
            let load = load(server, effort.seconds_each);
            let turn = calm::turn(&probe, || Ok(resp::run(&load, &mut ())?.run))?;
            let run = &turn.outcome;
            let spent = turn.spent.process_cpu_us.context("the process was watched")?;
            let figures = vec![spent / run.requests as f64, run.requests_per_s, turn.others_percent];
            row.add(*subject, figures, run.errors.total());
        }
    }
    Ok(vec![row])
}

fn load(server: &Running, seconds: u32) -> RespLoad {
    let until = Until::Elapsed(Duration::from_secs(seconds.into()));
    RespLoad { pipeline: 100, keys: HOT_KEYS, until, ..server.load() }
}
