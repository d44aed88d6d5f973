//! Runs the programs that commands here are made of.

use std::process::Command;

use anyhow::{Context as _, ensure};

/// Runs it to its end.
///
/// # Errors
/// When it can't be run, or fails.
pub(crate) fn execute(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// What it prints, without the end of the last line.
///
/// # Errors
/// When it can't be run, or fails: with what it says about that.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {}", output.status, errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
