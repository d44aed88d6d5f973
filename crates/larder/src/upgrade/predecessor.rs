//! The new process's side of an upgrade.

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
    /// Returns `None` if another program started this process.
    pub(crate) fn of_this_process() -> Option<Self> {
        let value = std::env::var(VARIABLE).ok()?;
        let (owner, reports_to) = value.split_once(' ')?;
        let owner = OWNERS.into_iter().find(|(_, word)| *word == owner)?.0;
        Some(Self { reports_to: reports_to.to_owned(), owner })
    }

    /// Returns the value that [`Predecessor::of_this_process`] parses.
    pub(super) fn named(reports_to: &str, owner: SocketOwner) -> String {
        let word = OWNERS.into_iter().find(|(other, _)| *other == owner).map_or("", |(_, word)| word);
        format!("{word} {reports_to}")
    }

    /// Returns the owner of the passed sockets.
    pub(crate) fn owner(&self) -> SocketOwner {
        self.owner
    }

    /// Reports that this process serves, so that the predecessor stops accepting.
    ///
    /// # Errors
    ///
    /// Returns an error if the predecessor no longer waits.
    pub(crate) fn relieve(self) -> io::Result<()> {
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(self.reports_to)?).map(drop)
    }
}

/// Reports to a waiting predecessor why this process can't serve. The operator who requested the upgrade then gets the
/// reason.
pub(crate) fn complain(why: &str) {
    let Some(Predecessor { reports_to, .. }) = Predecessor::of_this_process() else { return };
    let connected = connect_at_once(&complaints_to(&reports_to));
    let why = &why.as_bytes()[..why.len().min(COMPLAINT_BYTES_MAX)];
    // A failure is ignored: a predecessor that no longer waits doesn't need the reason, which is also in the log.
    let _ = connected.and_then(|mut stream| stream.write_all(why));
}

/// Connects without waiting: any process on this machine can fill the queue of the socket, and a process that is about
/// to exit must not wait for it.
fn connect_at_once(name: &str) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

const OWNERS: [(SocketOwner, &str); 2] = [(SocketOwner::Process, "own"), (SocketOwner::Starter, "kept")];
