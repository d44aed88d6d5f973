//! Other servers beside Larder: started with fair configurations on free ports, asked, stopped.
//!
//! A [`Stage`] has what all of them need: a folder, a certificate, the address of the origin, the core. A [`Peer`] is one
//! of the servers that we know; its [`Recipe`] is data, and its files in `crates/bench/peers` say in their heads why
//! they are fair. A [`PeerServer`] runs and has answered; dropped, it is gone with all its processes.

mod client;
mod recipe;
mod stage;
mod template;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

use crate::server::{ServerError, last_words};

pub use client::{Answer, Client};
pub use recipe::{Peer, Recipe, Shaping};
pub use stage::{Addresses, PeerServer, Stage, StageOptions};
pub(crate) use template::Values;

/// Why a peer does not run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PeerError {
    /// Its files can't be written, or the system has no free port.
    #[error("{what}: {}", path.display())]
    Files { what: &'static str, path: PathBuf, source: io::Error },
    /// No socket of our own.
    #[error("no free port on this machine")]
    Ports(#[source] io::Error),
    /// A file of a recipe has a place that nobody fills.
    #[error("no value for {place}")]
    Template { place: String },
    /// The certificate that all share can't be made.
    #[error("no certificate can be made: {0}")]
    Certificate(String),
    /// It doesn't start: not installed, or its configuration is wrong.
    #[error("{title} does not start")]
    Start { title: &'static str, source: ServerError },
    /// It listens and gives no good answer.
    #[error("{title} on {address} does not answer {path}; {}", last_words(output))]
    Silent { title: &'static str, address: SocketAddr, path: String, output: String },
}
