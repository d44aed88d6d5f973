//! The generated pages of `docs/reference`.
//!
//! The tables stand in the binaries; `larder reference --out DIR` prints them into a folder, `larder-bench schema` prints its own. That
//! the tree has what they print is a test of each binary (`command_line.rs`): this module would have to build both once more.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::tool::{execute, output};

const PAGES: &str = "docs/reference";

/// Generates the pages of the repository at `root`; answers with lines for people.
///
/// # Errors
///
/// When a binary does not build or run, or a page can't be written.
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
