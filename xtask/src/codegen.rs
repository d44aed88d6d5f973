//! The generated pages of `docs/reference`.
//!
//! The tables are in the binary: `larder reference --out DIR` writes the pages into a folder. A test of the binary
//! (`command_line.rs`) checks that the pages in the tree are current, because this module would have to build the
//! binary again.

use std::path::Path;
use std::process::Command;

use crate::tool::execute;

const PAGES: &str = "docs/reference";

/// Generates the pages of the repository at `root`; returns lines to print.
///
/// # Errors
///
/// Returns an error if the binary doesn't build or run, or a page can't be written.
pub fn run(root: &Path) -> anyhow::Result<Vec<String>> {
    let pages = root.join(PAGES);
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["run", "--quiet", "--package", "larder", "--", "reference", "--out"]);
    execute(command.arg(&pages))?;
    Ok(vec![format!("codegen: {PAGES} is up to date")])
}
