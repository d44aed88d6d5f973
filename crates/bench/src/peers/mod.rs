//! Larder and other servers: started with fair configurations on free ports, queried, stopped.
//!
//! A [`Stage`] has everything that servers share: a folder, a certificate, the address of the origin, the core. A [`Peer`] is one
//! of the known servers. Its [`Recipe`] is data, and the comments at the top of its files in `crates/bench/peers` say why they
//! are fair. A [`PeerServer`] is a running server that has answered; dropping it ends all of its processes.

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

/// Errors of a peer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PeerError {
    /// Its files can't be written, or no free port was found.
    #[error("{what}: {}", path.display())]
    Files { what: &'static str, path: PathBuf, source: io::Error },
    /// This program can't open a socket.
    #[error("no free port on this machine")]
    Ports(#[source] io::Error),
    /// A file of a recipe has a placeholder without a value.
    #[error("no value for {place}")]
    Template { place: String },
    /// The shared certificate can't be made.
    #[error("no certificate can be made: {0}")]
    Certificate(String),
    /// It doesn't start, because it isn't installed or its configuration is wrong.
    #[error("{title} does not start")]
    Start { title: &'static str, source: ServerError },
    /// It listens, but sends no valid answer.
    #[error("{title} on {address} does not answer {path}; {}", last_words(output))]
    Silent { title: &'static str, address: SocketAddr, path: String, output: String },
}
