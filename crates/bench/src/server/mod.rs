//! The server under load: started and stopped, and the cost of its processes and its core.
//!
//! [`ServerProcess`] runs a command as a server and leaves no process behind. [`ServerProbe`] reads `/proc` before and after a
//! load.

mod command;
mod probe;
mod processes;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

pub(crate) use command::kill_tree;
pub use command::{Ready, ServerCommand, ServerProcess};
pub use probe::{Measuring, ServerProbe, Spent, memory_bytes};

/// Errors of a server under load.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The command doesn't exist, or isn't executable.
    #[error("the server command {command:?} can't be started")]
    Start { command: String, source: io::Error },
    /// Another process listens on the server's address.
    #[error("the server command {command:?} isn't started: another process listens on {address}")]
    Taken { command: String, address: SocketAddr },
    /// The command ended before it was ready. The text is the end of its output.
    #[error("the server command {command:?} ended ({status}) before it was ready; {}", last_words(output))]
    Ended { command: String, status: String, output: String },
    /// The command runs, but doesn't listen or print the expected text. The text is the end of its output.
    #[error("the server command {command:?} was not ready after {after:?}; {}", last_words(output))]
    NotReady { command: String, after: Duration, output: String },
    /// The process has ended, or never existed.
    #[error("there is no process {pid}")]
    NoProcess { pid: u32 },
    /// This machine has no such core. Cores are numbered from 0.
    #[error("there is no core {core}; this machine has the cores 0 to {last}")]
    NoCore { core: usize, last: usize },
    /// Not a Linux system, or `/proc` isn't readable.
    #[error("{path} can't be read")]
    Proc { path: PathBuf, source: io::Error },
    /// A thread or signal handler of the generator itself failed.
    #[error("the generator can't watch the server")]
    Own(#[source] io::Error),
}

/// A free port of the loopback address. If another process takes it before the server does, the server reports an error.
///
/// # Errors
/// Returns an error if the system has no free port.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// The end of a server's output, for an error message.
pub(crate) fn last_words(output: &str) -> String {
    match output.trim_end() {
        "" => "it wrote nothing".to_owned(),
        words => format!("its last words:\n{words}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_server_has_no_last_words() {
        let told = |output: &str| {
            let (command, after) = ("a".to_owned(), Duration::from_secs(1));
            ServerError::NotReady { command, after, output: output.to_owned() }.to_string()
        };
        let begin = "the server command \"a\" was not ready after 1s; ";
        assert_eq!(told("\n"), format!("{begin}it wrote nothing"));
        assert_eq!(told("no\nspace\n"), format!("{begin}its last words:\nno\nspace"));
    }
}
