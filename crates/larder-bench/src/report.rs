//! `larder-bench report`: shows saved reports.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bench::report;
use bench::result::{Report, Run};
use clap::Args;

use super::outputs::OutputArguments;

#[derive(Args, Debug)]
pub(crate) struct ReportArguments {
    /// Reports written by `--json`; the others are compared with the first
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    outputs: OutputArguments,
}

pub(super) fn run(arguments: &ReportArguments) -> anyhow::Result<()> {
    let mut files = arguments.files.iter();
    let mut all = read(files.next().context("no report was given")?)?;
    for path in files {
        let Report { runs, charts, expectations, .. } = read(path)?;
        let name = path.file_stem().unwrap_or_default().display();
        all.runs.extend(runs.into_iter().map(|run| Run { name: format!("{name}: {}", run.name), ..run }));
        all.charts.extend(charts);
        all.expectations.extend(expectations);
    }
    arguments.outputs.write(&all)
}

fn read(path: &Path) -> anyhow::Result<Report> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("can't read the report {}", path.display()))?;
    report::read(&text).with_context(|| path.display().to_string())
}
