//! The server under load: started and stopped, and what its processes and its core spend.
//!
//! [`ServerProcess`] runs a command as a server and leaves nothing of it behind. [`ServerProbe`] reads `/proc` before
//! and after a load, and ten times a second the resident memory in between.

mod command;
mod probe;
mod proc_text;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

pub(crate) use command::kill_tree;
pub use command::{Ready, ServerCommand, ServerProcess};
pub(crate) use probe::busy_ticks;
pub use probe::{Measuring, ServerProbe, Spent};

/// What can go wrong with a server under load.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The command does not exist, or may not be run.
    #[error("the server command {command:?} can't be started")]
    Start { command: String, source: io::Error },
    /// The command ended before it was ready; the text is the end of what it wrote.
    #[error("the server command {command:?} ended ({status}) before it was ready; its last words:\n{output}")]
    Ended { command: String, status: String, output: String },
    /// The command runs, but does not listen or print what it should; the text is the end of what it wrote.
    #[error("the server command {command:?} was not ready after {after:?}; its last words:\n{output}")]
    NotReady { command: String, after: Duration, output: String },
    /// The process ended, or there never was one.
    #[error("there is no process {pid}")]
    NoProcess { pid: u32 },
    /// Cores count from 0.
    #[error("there is no core {core}; this machine has the cores 0 to {last}")]
    NoCore { core: usize, last: usize },
    /// Not a Linux system, or `/proc` is hidden from us.
    #[error("{path} can't be read")]
    Proc { path: PathBuf, source: io::Error },
    /// `/proc` has a form that we don't know.
    #[error("{path} has an unknown form: {text:?}")]
    ProcText { path: PathBuf, text: String },
    /// Threads or signals of the generator itself.
    #[error("the generator lacks a means to watch the server")]
    Own(#[source] io::Error),
}
