//! Runs external programs.

use std::process::Command;

use anyhow::{Context as _, ensure};

/// Runs a command to its end.
///
/// # Errors
///
/// Returns an error if it can't be run, or fails.
pub(crate) fn execute(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// Returns the output of a command, without the last line end.
///
/// # Errors
///
/// Returns an error if it can't be run, or fails, with its error output.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {}", output.status, errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
