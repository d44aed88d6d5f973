//! The version of the build, shared by all programs of the build.

use clap::Args;
use serde_json::{Value, json};

use crate::output;

/// Version and, if the build knows it, the commit.
pub const VERSION: &str = env!("LARDER_VERSION");

/// The version alone.
pub const NUMBER: &str = env!("BUILD_VERSION");

/// The commit; empty if the build doesn't know it.
pub const COMMIT: &str = env!("BUILD_COMMIT");

/// The compiler.
pub const RUSTC: &str = env!("BUILD_RUSTC");

/// Print the version; with --json, also the commit, target and compiler
#[derive(Args, Debug)]
pub struct VersionArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints the version.
pub(crate) fn print(program: &str, arguments: &VersionArguments) {
    let text = if arguments.json { described(program).to_string() } else { format!("{program} {VERSION}") };
    output::result(&text);
}

/// Returns the build as JSON. `commit` is null if the build doesn't know it.
fn described(program: &str) -> Value {
    json!({
        "name": program,
        "version": NUMBER,
        "commit": Some(COMMIT).filter(|commit| !commit.is_empty()),
        "profile": env!("BUILD_PROFILE"),
        "target": env!("BUILD_TARGET"),
        "rustc": RUSTC,
    })
}
