//! What an installation has beside the binary and is made from the definition of its command line: manual pages, completions of shells.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use clap_complete::Shell;

use crate::{cli, output};

/// Writes a page for each command: larder.1, larder-serve.1 and so on.
///
/// # Errors
/// When a file can't be written.
pub(crate) fn write_pages(folder: &Path) -> anyhow::Result<()> {
    let write = || {
        fs::create_dir_all(folder)?;
        clap_mangen::generate_to(cli::definition(), folder)
    };
    write().with_context(|| format!("the manual pages can't be written to {}", folder.display()))
}

/// Prints the completions of a shell.
pub(crate) fn print_completions(shell: Shell) {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut cli::definition(), "larder", &mut text);
    output::result(String::from_utf8_lossy(&text).trim_end());
}
