//! What the programs of Larder have in common at the terminal: the command line and its variables, what is printed where, exit statuses,
//! files and quantities that users name, versions, manual pages and completions.
//!
//! Never knows what a program does. Main entries: [`run`] and [`command_line::read`], [`output`], [`OwnCommand`].

pub mod command_line;
pub mod input_file;
mod manual;
mod nearest;
pub mod output;
mod own;
pub mod quantity;
pub mod version;

use std::process::ExitCode;
use std::sync::OnceLock;

pub use nearest::nearest;
pub use own::OwnCommand;

/// Runs `program`, which is the name that its messages begin with.
pub fn run(program: &'static str, main: impl FnOnce() -> ExitCode) -> ExitCode {
    PROGRAM.get_or_init(|| program);
    output::ended(main())
}

static PROGRAM: OnceLock<&str> = OnceLock::new();

/// Of this process.
fn program() -> &'static str {
    PROGRAM.get().copied().unwrap_or("larder")
}
