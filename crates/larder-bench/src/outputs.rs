//! Destinations of a report: the arguments common to all commands that produce a report.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bench::result::{Report, Run};
use bench::{interrupt, report};
use clap::Args;
use terminal::output;

/// Output options. The table is printed on standard output, unless the JSON is.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArguments {
    /// Write the report as JSON; `-` is standard output, without the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write one HTML page with tables and charts that works offline
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl OutputArguments {
    /// Runs a load, shows it as a report with this title, and writes the requested files. A load with failures makes the
    /// command fail, so that scripts can check the exit status.
    ///
    /// # Errors
    ///
    /// Returns the errors of the load and of [`Self::write`], or an error if a request failed.
    pub(crate) fn of_load(
        &self,
        title: &str,
        load: impl FnOnce() -> anyhow::Result<Vec<Run>>,
    ) -> anyhow::Result<()> {
        self.check()?;
        let begun = Report::begin();
        let runs = load()?;
        let report = Report {
            title: title.into(),
            description: runs.first().map_or_else(String::new, |run| run.load.clone()),
            larder: terminal::version::VERSION.into(),
            runs,
            ..begun
        };
        self.write(&report)?;
        let failures: Vec<String> = report.runs.iter().filter_map(Run::failure).collect();
        anyhow::ensure!(failures.is_empty(), "{}", failures.join("; "));
        Ok(())
    }

    /// Checks that the requested files can be written, before a long load runs. Changes nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if a file can't be written.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let files = [&self.json, &self.html].into_iter().flatten();
        files.filter(|path| path.as_os_str() != "-").try_for_each(|path| try_file(path))
    }

    /// Shows `report` and writes the requested files.
    ///
    /// # Errors
    ///
    /// Returns an error if a file can't be written, after the table was shown. Also returns an error if the run was ended early,
    /// after everything was written, so that a script doesn't mistake the report for a complete one.
    pub(crate) fn write(&self, report: &Report) -> anyhow::Result<()> {
        match &self.json {
            Some(path) if path.as_os_str() == "-" => output::result(report::write(report).trim_end()),
            Some(path) => {
                output::result(report::text(report).trim_end());
                write_file(path, report::write(report).as_bytes())?;
            }
            None => output::result(report::text(report).trim_end()),
        }
        if let Some(path) = &self.html {
            write_file(path, report::html(report).as_bytes())?;
        }
        anyhow::ensure!(
            !interrupt::is_requested(),
            "interrupted: the figures cover only the time before the interrupt"
        );
        Ok(())
    }
}

fn write_file(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    fs::write(path, content).with_context(|| not_writable(path))
}

/// Opens a file for writing without changing it. Pipes are skipped: closing one would end the input of its reader.
fn try_file(path: &Path) -> anyhow::Result<()> {
    let before = fs::metadata(path).ok();
    if before.as_ref().is_some_and(|before| !before.is_file() && !before.is_dir()) {
        return Ok(());
    }
    OpenOptions::new().append(true).create(true).open(path).with_context(|| not_writable(path))?;
    match before {
        None => fs::remove_file(path).with_context(|| not_writable(path)),
        Some(_) => Ok(()),
    }
}

fn not_writable(path: &Path) -> String {
    format!("{} can't be written", path.display())
}
