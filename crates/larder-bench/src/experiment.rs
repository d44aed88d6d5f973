//! `larder-bench experiment`: runs an experiment and judges its result.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use bench::experiments::{Experiment, Settings, Way};
use bench::programs;
use bench::progress::Style;
use bench::result::Report;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use terminal::output;
use terminal::quantity::whole_number;

use super::amount::time;
use super::outputs::OutputArguments;

/// Run an experiment: start its servers on free ports, load them, stop them, and judge the result
///
/// Runs the `larder` in this program's directory, or else the one on the PATH; the environment variable LARDER names another
/// program. Exit status 0 if the result is as expected, 1 if it isn't.
#[derive(Args, Debug)]
#[command(after_help = format!("Experiments:\n{}", listed("  ")))]
pub(crate) struct ExperimentArguments {
    /// Name of the experiment [default: none, which lists them]
    #[arg(value_parser = experiment(), hide_possible_values = true)]
    name: Option<Experiment>,

    /// Duration of each load, such as 90s or 5m, up to 15m, in timed experiments; a bare number is seconds
    #[arg(short = 'd', long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,

    /// Requests per load, in experiments with a fixed number of requests
    #[arg(short = 'n', long, value_name = "N", value_parser = whole_number(100..=1_000_000_000_u64))]
    requests: Option<u64>,

    /// Concurrent connections, in experiments without a fixed number
    #[arg(short, long, value_name = "N", value_parser = whole_number(1..=10_000_u16))]
    connections: Option<u16>,

    #[command(flatten)]
    suites: SuiteArguments,

    /// Don't print progress
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    outputs: OutputArguments,
}

/// Options of the `kv` experiment, as in the test of poor-man-s-cache.
#[derive(Args, Debug)]
struct SuiteArguments {
    /// Run only the pipelined suites (kv)
    #[arg(short, long, conflicts_with = "one_by_one")]
    pipeline: bool,

    /// Run only the suites without pipelining (kv)
    #[arg(long)]
    one_by_one: bool,

    /// Commands per batch (kv) [default: 100]
    #[arg(short, long, value_name = "N", value_parser = whole_number(1..=1000_u16))]
    batch_size: Option<u16>,
}

impl SuiteArguments {
    fn way(&self) -> Option<Way> {
        match (self.pipeline, self.one_by_one) {
            (true, _) => Some(Way::Batches),
            (_, true) => Some(Way::OneByOne),
            _ => None,
        }
    }
}

pub(super) fn run(arguments: &ExperimentArguments) -> anyhow::Result<()> {
    let Some(experiment) = arguments.name else {
        output::result(&listed(""));
        return Ok(());
    };
    arguments.outputs.check()?;
    let settings = Settings {
        larder: programs::larder()?,
        duration: arguments.duration,
        requests: arguments.requests,
        connections: arguments.connections.map(usize::from),
        way: arguments.suites.way(),
        batch: arguments.suites.batch_size.map(usize::from),
        progress: if arguments.quiet { Style::Quiet } else { Style::Shown },
    };
    let mut report = experiment.run(&settings)?;
    terminal::version::VERSION.clone_into(&mut report.larder);
    arguments.outputs.write(&report)?;
    judge(&report)
}

/// Returns a parser that knows the names of all experiments; shell completions use them, too.
fn experiment() -> impl TypedValueParser<Value = Experiment> {
    let names = PossibleValuesParser::new(Experiment::ALL.map(|experiment| experiment.name));
    names.try_map(|name| Experiment::named(&name).context("a name in the list above"))
}

fn duration(text: &str) -> Result<Duration, String> {
    let range = Duration::from_secs(1)..=Duration::from_secs(900);
    time(text).ok().filter(|time| range.contains(time)).ok_or_else(|| "expected a time from 1s to 15m".into())
}

fn listed(indent: &str) -> String {
    let line = |experiment: Experiment| format!("{indent}{:<12} {}", experiment.name, experiment.summary);
    Experiment::ALL.map(line).join("\n")
}

/// Returns an error if an expectation doesn't hold. The report lists the expectations.
fn judge(report: &Report) -> anyhow::Result<()> {
    let failed = report.expectations.iter().filter(|expectation| !expectation.holds).count();
    ensure!(failed == 0, "{failed} of {} expectations did not hold", report.expectations.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_of_the_other_benches() {
        let cases =
            [("3s", Some(3)), ("3", Some(3)), ("15m", Some(900)), ("16m", None), ("0", None), ("x", None)];
        for (text, expected) in cases {
            assert_eq!(duration(text).ok(), expected.map(Duration::from_secs), "{text}");
        }
    }
}
