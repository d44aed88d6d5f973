//! Commands about the program itself, shared by all programs.

use std::path::PathBuf;

use clap::Subcommand;

use crate::version::VersionArguments;
use crate::{manual, version};

/// Commands that a program flattens into its own commands.
#[derive(Debug, Subcommand)]
pub enum OwnCommand {
    Version(VersionArguments),
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages
    Manual {
        /// Directory that the pages are written to
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

impl OwnCommand {
    /// Runs the command; `definition` defines the whole command line.
    ///
    /// # Errors
    ///
    /// Returns an error if a file can't be written.
    pub fn run(self, definition: clap::Command) -> anyhow::Result<()> {
        match self {
            Self::Version(arguments) => version::print(definition.get_name(), &arguments),
            Self::Completions { shell } => manual::print_completions(&definition, shell),
            Self::Manual { out } => return manual::write_pages(definition, &out),
        }
        Ok(())
    }
}
