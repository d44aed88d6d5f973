//! Turns of servers under load, one after the other, in rounds.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use bench::resp::{self, RespLoad, RespRun, Until};
use bench::server::ServerProbe;

use crate::Effort;
use crate::calm::{self, Turn};
use crate::output;
use crate::row::{Row, Subject};
use crate::stage::SERVER_CORE;

/// A participant of a row.
pub(super) struct Entrant {
    pub(super) subject: Subject,
    /// Process id of its server.
    pub(super) pid: u32,
    pub(super) load: RespLoad,
}

/// Figures of a turn.
pub(super) const MEASURES: [(&str, &str); 4] = [
    ("CPU time per command", "µs"),
    ("core time per command", "µs"),
    ("commands/s", ""),
    ("others", "% of a core"),
];

/// The figures of a turn with this many commands.
pub(super) fn figures<T>(turn: &Turn<T>, commands: u64, per_second: f64) -> anyhow::Result<Vec<f64>> {
    ensure!(commands > 0, "no command was answered");
    let spent_us = turn.spent.process_cpu_us.zip(turn.spent.core_busy_us);
    let (own_us, core_us) = spent_us.context("the process or the core wasn't measured")?;
    let per_command = |us: f64| us / commands as f64;
    Ok(vec![per_command(own_us), per_command(core_us), per_second, turn.others_percent])
}

/// Sets the keys of all servers, and runs their turns.
pub(super) fn take(row: &mut Row, entrants: &[Entrant], effort: Effort) -> anyhow::Result<()> {
    for entrant in entrants {
        output::progress(&format!("{}: {} gets its keys", row.title, entrant.subject.title()));
        resp::prepare(&entrant.load).with_context(|| entrant.subject.title())?;
    }
    for _ in output::rounds(&row.title.clone(), effort.rounds) {
        for entrant in entrants {
            let (figures, errors) =
                entrant.turn(effort.seconds_each).with_context(|| entrant.subject.title())?;
            row.add(entrant.subject, figures, errors);
        }
    }
    Ok(())
}

impl Entrant {
    fn turn(&self, seconds: u32) -> anyhow::Result<(Vec<f64>, u64)> {
        let until = Until::Elapsed(Duration::from_secs(seconds.into()));
        let load = RespLoad { until, ..self.load.clone() };
        let probe = ServerProbe::new(&[self.pid], Some(SERVER_CORE))?;
        let turn = calm::turn(&probe, || Ok(resp::run(&load, &mut ())?))?;
        let RespRun { run, first_problem } = &turn.outcome;
        if let Some(problem) = first_problem {
            output::progress(&format!("{}: {problem}", self.subject.title()));
        }
        Ok((figures(&turn, run.requests, run.requests_per_s)?, run.errors.total()))
    }
}
