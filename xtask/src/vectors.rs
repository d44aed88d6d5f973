//! The vectors of `conformance/store`: the tests of `crates/store` compare them with the code's results, or write them.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

/// Whether to compare or write the vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vectors {
    /// Compare the new vectors with those in the tree.
    Check,
    /// Write the new vectors into the tree.
    Write,
}

/// Runs the tests of the vectors; returns lines to print.
///
/// # Errors
///
/// Returns an error if the tests don't build; for [`Vectors::Check`] also if a file is stale.
pub fn run(root: &Path, vectors: Vectors) -> anyhow::Result<Vec<String>> {
    let mut tests = Command::new("cargo");
    tests.current_dir(root).args([
        "test",
        "--quiet",
        "--package",
        "store",
        "--lib",
        "--features",
        "test-double",
    ]);
    tests.args(["vectors::"]);
    let says = match vectors {
        Vectors::Check => "is up to date",
        Vectors::Write => {
            tests.env("WRITE_VECTORS", "1");
            "is written"
        }
    };
    let status = tests.status().with_context(|| format!("cannot run {tests:?}"))?;
    anyhow::ensure!(status.success(), "vectors: {FOLDER} is out of date; run `cargo xtask vectors`");
    Ok(vec![format!("vectors: {FOLDER} {says}")])
}

const FOLDER: &str = "conformance/store";
