//! Files that are generated from the definition of the command line: manual pages, and completions of shells.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use clap_complete::Shell;

use crate::output;

/// Writes a page for each command: larder.1, larder-serve.1 and so on.
pub(crate) fn write_pages(definition: clap::Command, folder: &Path) -> anyhow::Result<()> {
    let write = || {
        fs::create_dir_all(folder)?;
        clap_mangen::generate_to(definition, folder)
    };
    write().with_context(|| format!("the manual pages can't be written to {}", folder.display()))
}

/// Prints the completions of a shell.
pub(crate) fn print_completions(definition: &clap::Command, shell: Shell) {
    output::result(completions(definition, shell).trim_end());
}

fn completions(definition: &clap::Command, shell: Shell) -> String {
    let program = definition.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut visible(definition), &program, &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    match shell {
        Shell::Bash => with_one_spelling(&text, &program),
        _ => text,
    }
}

/// Removes the commands that `--help` hides, which clap_complete would offer.
fn visible(definition: &clap::Command) -> clap::Command {
    let listed = definition.get_subcommands().filter(|command| !command.is_hide_set());
    clap::Command::new(definition.get_name().to_owned())
        .version(definition.get_version().unwrap_or_default().to_owned())
        .args(definition.get_arguments())
        .subcommands(listed)
}

/// Corrects the script for bash. If the program's name has a hyphen, the original script uses two names for a command
/// (`larder__bench__subcmd__http` and `larder__subcmd__bench__subcmd__http`), so it completes nothing after a command.
fn with_one_spelling(script: &str, program: &str) -> String {
    script.replace(&program.replace('-', "__subcmd__"), &program.replace('-', "__"))
}
