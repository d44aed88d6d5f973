//! `larder bench experiment`: a whole experiment, and whether it came out as expected.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use bench::experiments::{self, Experiment, Settings};
use bench::progress::Style;
use bench::result::Report;
use clap::Args;

use super::outputs::OutputArguments;
use crate::output;

/// Run a whole experiment: start its servers on free ports, load them, stop them, judge
///
/// Exit status 0 when everything came out as expected.
#[derive(Args, Debug)]
pub(crate) struct ExperimentArguments {
    /// Which one; without a name all are listed
    name: Option<Experiment>,

    /// Seconds that each load lasts, up to 900, where the experiment is a matter of time
    #[arg(short = 'd', long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=900))]
    duration: Option<u64>,

    /// Requests of each load, where the experiment is a matter of their number
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    requests: Option<u64>,

    /// Connections at the same time, where the experiment can have any number
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: Option<u16>,

    /// Tell no progress
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    outputs: OutputArguments,
}

pub(super) fn run(arguments: &ExperimentArguments) -> anyhow::Result<()> {
    let Some(experiment) = arguments.name else {
        list();
        return Ok(());
    };
    let settings = Settings {
        larder: std::env::current_exe().context("the path of this program is not known")?,
        duration: arguments.duration.map(Duration::from_secs),
        requests: arguments.requests,
        connections: arguments.connections.map(usize::from),
        progress: if arguments.quiet { Style::Quiet } else { Style::of_stderr() },
    };
    let mut report = experiments::run(experiment, &settings)?;
    crate::VERSION.clone_into(&mut report.larder);
    arguments.outputs.write(&report)?;
    judge(&report)
}

fn list() {
    for experiment in Experiment::ALL {
        output::result(&format!("{:<12} {}", experiment.name(), experiment.summary()));
    }
}

/// The report names those that failed.
fn judge(report: &Report) -> anyhow::Result<()> {
    let failed = report.expectations.iter().filter(|expectation| !expectation.holds).count();
    ensure!(failed == 0, "{failed} of {} expectations did not hold", report.expectations.len());
    Ok(())
}
