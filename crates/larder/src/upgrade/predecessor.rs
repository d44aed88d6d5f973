//! The side of the new process.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use gateway::SocketOwner;

use super::VARIABLE;

/// The process that this one takes over from.
#[derive(Debug)]
pub(crate) struct Predecessor {
    reports_to: String,
    owner: SocketOwner,
}

impl Predecessor {
    /// None where this process was started by somebody else.
    pub(crate) fn of_this_process() -> Option<Self> {
        let value = std::env::var(VARIABLE).ok()?;
        let (owner, reports_to) = value.split_once(' ')?;
        let owner = OWNERS.into_iter().find(|(_, word)| *word == owner)?.0;
        Some(Self { reports_to: reports_to.to_owned(), owner })
    }

    /// The value that [`Predecessor::of_this_process`] reads.
    pub(super) fn named(reports_to: &str, owner: SocketOwner) -> String {
        let word = OWNERS.into_iter().find(|(other, _)| *other == owner).map_or("", |(_, word)| word);
        format!("{word} {reports_to}")
    }

    /// Whose the sockets are that it gave.
    pub(crate) fn owner(&self) -> SocketOwner {
        self.owner
    }

    /// Tells it that this process serves: it stops accepting.
    ///
    /// # Errors
    /// It no longer waits.
    pub(crate) fn relieve(self) -> io::Result<()> {
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(self.reports_to)?).map(drop)
    }
}

const OWNERS: [(SocketOwner, &str); 2] = [(SocketOwner::Process, "own"), (SocketOwner::Starter, "kept")];
