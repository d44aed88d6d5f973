//! Turns of servers under load, one after the other, in rounds.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use bench::resp::{self, RespLoad, RespRun, Until};
use bench::server::ServerProbe;

use crate::Effort;
use crate::calm::{self, Turn};
use crate::output;
use crate::row::{Row, Subject};

/// A participant of a row.
pub(super) struct Entrant {
    pub(super) subject: Subject,
    /// Process ids of its servers.
    pub(super) pids: Vec<u32>,
    /// Its loads, which run at the same time.
    pub(super) loads: Vec<RespLoad>,
}

/// Figures of a turn of servers that share their cores with the load.
pub(super) const MEASURES: [(&str, &str); 3] =
    [("CPU time per command", "µs"), ("commands/s", ""), ("others", "% of a core")];

/// Figures of a turn of servers that have a core for themselves.
pub(super) const MEASURES_OF_CORE: [(&str, &str); 4] =
    [MEASURES[0], ("core time per command", "µs"), MEASURES[1], MEASURES[2]];

/// The figures of a turn with this many commands.
pub(super) fn figures<T>(turn: &Turn<T>, commands: u64, per_second: f64) -> anyhow::Result<Vec<f64>> {
    ensure!(commands > 0, "not one command was answered");
    let own_us = turn.spent.process_cpu_us.context("the processes were watched")?;
    let spent_us = [own_us].into_iter().chain(turn.spent.core_busy_us);
    let per_command = spent_us.map(|us| us / commands as f64);
    Ok(per_command.chain([per_second, turn.others_percent]).collect())
}

/// Sets the keys of all servers, and runs their turns. `core` is the one reserved for each server.
pub(super) fn take(
    row: &mut Row,
    entrants: &[Entrant],
    effort: Effort,
    core: Option<usize>,
) -> anyhow::Result<()> {
    for entrant in entrants {
        output::progress(&format!("{}: {} gets its keys", row.title, entrant.subject.title()));
        let prepared = entrant.loads.iter().try_for_each(resp::prepare);
        prepared.with_context(|| entrant.subject.title())?;
    }
    for _ in output::rounds(&row.title.clone(), effort.rounds) {
        for entrant in entrants {
            let (figures, errors) =
                entrant.turn(effort.seconds_each, core).with_context(|| entrant.subject.title())?;
            row.add(entrant.subject, figures, errors);
        }
    }
    Ok(())
}

impl Entrant {
    fn turn(&self, seconds: u32, core: Option<usize>) -> anyhow::Result<(Vec<f64>, u64)> {
        let until = Until::Elapsed(Duration::from_secs(seconds.into()));
        let loads: Vec<RespLoad> = self.loads.iter().map(|load| RespLoad { until, ..load.clone() }).collect();
        let turn = calm::turn(&ServerProbe::new(&self.pids, core)?, || at_once(&loads))?;
        for problem in turn.outcome.iter().filter_map(|made| made.first_problem.as_ref()) {
            output::progress(&format!("{}: {problem}", self.subject.title()));
        }
        let runs = || turn.outcome.iter().map(|made| &made.run);
        let requests: u64 = runs().map(|run| run.requests).sum();
        let figures = figures(&turn, requests, runs().map(|run| run.requests_per_s).sum())?;
        Ok((figures, runs().map(|run| run.errors.total()).sum()))
    }
}

fn at_once(loads: &[RespLoad]) -> anyhow::Result<Vec<RespRun>> {
    thread::scope(|scope| {
        let make = |load| move || resp::run(load, &mut ());
        let running: Vec<_> = loads.iter().map(|load| scope.spawn(make(load))).collect();
        let ended = running.into_iter().map(|one| one.join().map_err(|_| anyhow!("the generator panicked")));
        ended.map(|run| Ok(run??)).collect()
    })
}
