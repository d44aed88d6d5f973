//! Two workers against one.
//!
//! With two cores, the second worker shares its core with the generator, and the throughput says nothing. What a command
//! costs in CPU time does: workers that wait for each other, or take cache lines from each other, pay for it there. The
//! same commands at 1 / 0.9 of the cost are 1.8 times as many on two cores.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use bench::resp::{self, RespLoad, Until};
use bench::server::ServerProbe;

use super::HOT_KEYS;
use super::store::{Running, Store, Wanted};
use crate::Effort;
use crate::output;
use crate::plan::{Budget, Limit, Reference, What};
use crate::row::{Row, Subject};

const TITLE: &str = "kv: two workers against one, GET, P=100";
const RATIO_MAX: f64 = 1.11;

pub(super) fn budgets(title: &str) -> Vec<Budget> {
    let budget = Budget { measure: 0, limit: Limit::Times(RATIO_MAX, Reference::OneWorker) };
    if title == TITLE { vec![budget] } else { Vec::new() }
}

pub(super) fn measure(larder: &Path, effort: Effort) -> anyhow::Result<Row> {
    let wanted = |workers| Wanted { workers, core: None, ..Wanted::default() };
    let entrants = [
        (Subject::Store(Store::Larder), Store::Larder.start(larder, &wanted(2))?),
        (Subject::OneWorker, Store::Larder.start(larder, &wanted(1))?),
    ];
    let measures = [("CPU time of the server per command", "µs"), ("commands/s", "")];
    let mut row = Row::new(What::KvWorkers, TITLE, &measures);
    entrants.iter().try_for_each(|(_, server)| resp::prepare(&load(server, 1)))?;
    for round in 1..=effort.rounds {
        output::progress(&format!("{TITLE}: round {round} of {}", effort.rounds));
        for (subject, server) in &entrants {
            let measuring = ServerProbe::new(&[server.pid()], None)?.begin()?;
            let run = resp::run(&load(server, effort.seconds_each), &mut ())?.run;
            let spent = measuring.end()?.process_cpu_us.context("the process was watched")?;
            row.add(*subject, vec![spent / run.requests as f64, run.requests_per_s], run.errors.total());
        }
    }
    Ok(row)
}

fn load(server: &Running, seconds: u32) -> RespLoad {
    let until = Until::Elapsed(Duration::from_secs(seconds.into()));
    RespLoad { pipeline: 100, keys: HOT_KEYS, until, ..server.load() }
}
