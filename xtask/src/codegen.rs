//! The generated pages of `docs/reference`.
//!
//! The tables are in the binaries: `larder reference --out DIR` writes the pages into a folder, `larder-bench schema`
//! prints its own. A test of each binary (`command_line.rs`) checks that the pages in the tree are current, because
//! this module would have to build both binaries again.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::tool::{execute, output};

const PAGES: &str = "docs/reference";

/// Generates the pages of the repository at `root`; returns lines for people.
///
/// # Errors
///
/// Returns an error if a binary doesn't build or run, or a page can't be written.
pub fn run(root: &Path) -> anyhow::Result<Vec<String>> {
    let pages = root.join(PAGES);
    execute(binary(root, "larder").args(["reference", "--out"]).arg(&pages))?;
    let schema = output(binary(root, "larder-bench").arg("schema"))?;
    fs::write(pages.join("bench-report.schema.json"), schema + "\n")?;
    Ok(vec![format!("codegen: {PAGES} is up to date")])
}

fn binary(root: &Path, package: &str) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["run", "--quiet", "--package", package, "--"]);
    command
}
