//! The side of the new process.

use std::io::{self, Write as _};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use gateway::SocketOwner;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::{COMPLAINT_BYTES_MAX, VARIABLE, complaints_to};

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

/// Tells the process that this one was to take over from why it can't, if there is one that still waits. Who asked for the upgrade sees it then.
pub(crate) fn complain(why: &str) {
    let Some(Predecessor { reports_to, .. }) = Predecessor::of_this_process() else { return };
    let connected = connect_at_once(&complaints_to(&reports_to));
    let why = &why.as_bytes()[..why.len().min(COMPLAINT_BYTES_MAX)];
    // One that does not wait has no use for it, and the log has it anyway.
    let _ = connected.and_then(|mut stream| stream.write_all(why));
}

/// Anybody on this machine can fill the queue of the socket; a process that is about to end waits for no place in it.
fn connect_at_once(name: &str) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

const OWNERS: [(SocketOwner, &str); 2] = [(SocketOwner::Process, "own"), (SocketOwner::Starter, "kept")];
