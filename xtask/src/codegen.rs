//! The generated pages of `docs/reference`.
//!
//! The tables stand in the binary; `larder reference --out DIR` prints them into a folder. A test of the binary (`command_line.rs`) compares
//! the tree with what it prints: this module would have to build it once more.

use std::path::Path;
use std::process::Command;

use crate::tool::execute;

const PAGES: &str = "docs/reference";

/// Generates the pages of the repository at `root`; answers with lines for people.
///
/// # Errors
///
/// When the binary does not build or run, or a page can't be written.
pub fn run(root: &Path) -> anyhow::Result<Vec<String>> {
    let pages = root.join(PAGES);
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["run", "--quiet", "--package", "larder", "--", "reference", "--out"]);
    execute(command.arg(&pages))?;
    Ok(vec![format!("codegen: {PAGES} is up to date")])
}
