//! Which build this is.

use clap::Args;
use serde_json::{Value, json};
use telemetry::BuildInfo;

use crate::output;

/// Version and, where the build knows it, the commit.
pub(crate) const VERSION: &str = env!("LARDER_VERSION");

/// The same in parts, for metrics.
pub(crate) const BUILD: BuildInfo =
    BuildInfo { version: env!("BUILD_VERSION"), commit: env!("BUILD_COMMIT"), rustc: env!("BUILD_RUSTC") };

/// Print the version; with --json, also the commit, target and compiler
#[derive(Args, Debug)]
pub(crate) struct VersionArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints it.
pub(crate) fn run(arguments: &VersionArguments) {
    let text = if arguments.json { described().to_string() } else { format!("larder {VERSION}") };
    output::result(&text);
}

/// `commit` is null where the build knows none.
fn described() -> Value {
    let commit = Some(BUILD.commit).filter(|commit| !commit.is_empty());
    json!({
        "name": "larder",
        "version": BUILD.version,
        "commit": commit,
        "profile": env!("BUILD_PROFILE"),
        "target": env!("BUILD_TARGET"),
        "rustc": BUILD.rustc,
    })
}
