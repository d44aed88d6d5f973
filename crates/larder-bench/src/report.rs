//! `larder-bench report`: shows reports that were written before.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bench::report::{self, Named};
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
    let reports = arguments.files.iter().map(|path| read(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let merged = report::merge(reports).context("no report was given")?;
    arguments.outputs.write(&merged)
}

fn read(path: &Path) -> anyhow::Result<Named> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("can't read the report {}", path.display()))?;
    let report = report::read(&text).with_context(|| path.display().to_string())?;
    let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    Ok(Named { name, report })
}
