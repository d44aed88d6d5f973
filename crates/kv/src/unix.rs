//! Sockets in the file system, for clients of the same machine.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net;
use std::path::{Path, PathBuf};

use mio::net::{TcpStream, UnixStream};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::place::{PART, beside, other_kind};
use crate::server::{Sockets, prepare};

/// A socket in the file system. Who may write to it may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixListen {
    pub path: PathBuf,
    /// Permissions of the file.
    pub mode: u32,
}

impl UnixListen {
    /// The longest path: with the name that it has at first, the system takes 107 bytes.
    pub const PATH_BYTES_MAX: usize = 107 - PART.len();

    /// Looks whether there is something else in its place.
    ///
    /// # Errors
    /// There is.
    pub fn check_place(path: &Path) -> io::Result<()> {
        Self::paths(path).iter().try_for_each(|path| check_kind(path))
    }

    /// All that a socket with this path needs.
    #[must_use]
    pub fn paths(path: &Path) -> [PathBuf; 2] {
        ["", PART].map(|ending| beside(path, ending))
    }
}

/// The file of a socket. It goes with this, unless it is another one by then.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            // Nobody listens there any more, whether it goes or not.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Listens there. A socket on which nobody listens, as a process leaves it that was killed, is replaced; nothing else is.
pub(crate) fn listen(wanted: &UnixListen, sockets: Sockets) -> io::Result<(net::UnixListener, SocketFile)> {
    let path = &wanted.path;
    check_free(path)?;
    // It gets its permissions before anybody can find it.
    let part = beside(path, PART);
    check_free(&part).map_err(|error| {
        io::Error::new(error.kind(), format!("{} is in the way: {error}", part.display()))
    })?;
    match fs::remove_file(&part) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    prepare(&socket, sockets)?;
    socket.bind(&SockAddr::unix(&part)?)?;
    fs::set_permissions(&part, Permissions::from_mode(wanted.mode))?;
    socket.listen(sockets.backlog.try_into().unwrap_or(i32::MAX))?;
    fs::rename(&part, path)?;
    let file = SocketFile { path: path.clone(), identity: identity(path) };
    Ok((socket.into(), file))
}

fn check_kind(path: &Path) -> io::Result<()> {
    let Some(found) = fs::symlink_metadata(path).ok().filter(|found| !found.file_type().is_socket()) else {
        return Ok(());
    };
    let kind = other_kind(found.file_type()).unwrap_or("a file");
    Err(io::Error::new(ErrorKind::AlreadyExists, format!("there is {kind}, and no socket")))
}

fn check_free(path: &Path) -> io::Result<()> {
    check_kind(path)?;
    if !path.exists() {
        return Ok(());
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?).map_err(|error| (error.kind(), error)) {
        Err((ErrorKind::ConnectionRefused, _)) => Ok(()),
        // It would block where as many wait already as the other process lets wait.
        Ok(()) | Err((ErrorKind::WouldBlock, _)) => {
            Err(io::Error::new(ErrorKind::AddrInUse, "another process listens there"))
        }
        Err((_, error)) => Err(error),
    }
}

/// What is done with a connection from here on is the same for both kinds: it is read from, written to and ended.
pub(crate) fn as_stream(socket: UnixStream) -> TcpStream {
    TcpStream::from(OwnedFd::from(socket))
}
