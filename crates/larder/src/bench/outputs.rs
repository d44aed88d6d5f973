//! Where a report goes: the same arguments for every command that ends with one.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bench::result::Report;
use bench::{interrupt, report};
use clap::Args;

use crate::output;

/// The table goes to standard output, unless the JSON goes there.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArguments {
    /// Write the report as JSON; `-` is standard output, without the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write one HTML page with tables and charts that works offline
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write every chart as SVG and as PNG
    #[arg(long, value_name = "DIR")]
    charts: Option<PathBuf>,

    /// Write the mean and the standard deviation per URL, one file `mean sd url` for each run that has them
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl OutputArguments {
    /// Shows `report` and writes the files that were asked for.
    ///
    /// # Errors
    ///
    /// When a file can't be written, the table having been shown; and when what it shows was ended early, after all
    /// is written, so that a script does not take it for the whole.
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
        if let Some(directory) = &self.charts {
            let images = report::images(report);
            write_files(
                directory,
                images.iter().map(|image| (image.name.as_str(), image.content.as_slice())),
            )?;
        }
        if let Some(directory) = &self.data {
            let files = report::data_files(report);
            anyhow::ensure!(
                !files.is_empty(),
                "no run has figures per URL, so there are no data files to write"
            );
            write_files(directory, files.iter().map(|(name, text)| (name.as_str(), text.as_bytes())))?;
        }
        anyhow::ensure!(!interrupt::is_requested(), "interrupted: the figures are of the time until then");
        Ok(())
    }
}

fn write_files<'a>(directory: &Path, files: impl Iterator<Item = (&'a str, &'a [u8])>) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    for (name, content) in files {
        write_file(&directory.join(name), content)?;
    }
    Ok(())
}

fn write_file(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    std::fs::write(path, content).with_context(|| format!("{} can't be written", path.display()))
}
