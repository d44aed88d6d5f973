//! Shared parts of Larder's programs at the terminal: the command line and its variables, output, exit statuses, files
//! and quantities that users name, versions, manual pages and completions.
//!
//! The crate doesn't depend on any program. Main entries: [`run`], [`command_line::read`], [`output`], [`OwnCommand`].

pub mod command_line;
pub mod input_file;
mod manual;
mod nearest;
pub mod output;
mod own;
pub mod quantity;
pub mod version;

pub use nearest::nearest;
pub use output::run;
pub use own::OwnCommand;
