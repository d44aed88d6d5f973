//! Unix sockets, for clients on the same machine.

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

/// A Unix socket. Any process with write permission on the socket file can connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixListen {
    pub path: PathBuf,
    /// Permissions of the socket file.
    pub mode: u32,
}

impl UnixListen {
    /// Maximum length of a path. The system's limit is 107 bytes, including the suffix of the temporary name.
    pub const PATH_BYTES_MAX: usize = 107 - PART.len();

    /// Checks that the path isn't occupied by something other than a socket.
    ///
    /// # Errors
    /// If the path is occupied by something else.
    pub fn check_place(path: &Path) -> io::Result<()> {
        Self::paths(path).iter().try_for_each(|path| check_kind(path))
    }

    /// All paths used for a socket at `path`.
    #[must_use]
    pub fn paths(path: &Path) -> [PathBuf; 2] {
        ["", PART].map(|ending| beside(path, ending))
    }
}

/// The file of a socket, removed on drop unless it was replaced.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            // No process listens on it any more, whether or not the removal succeeds.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Opens a listener. Replaces a stale socket, as left by a killed process, but no other file.
pub(crate) fn listen(wanted: &UnixListen, sockets: Sockets) -> io::Result<(net::UnixListener, SocketFile)> {
    let path = &wanted.path;
    check_free(path)?;
    // The socket gets its permissions under a temporary name, before clients can find it.
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
    Err(io::Error::new(ErrorKind::AlreadyExists, format!("expected a socket, found {kind}")))
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
        // A full accept queue also means that another process listens.
        Ok(()) | Err((ErrorKind::WouldBlock, _)) => {
            Err(io::Error::new(ErrorKind::AddrInUse, "another process listens there"))
        }
        Err((_, error)) => Err(error),
    }
}

/// Converts to a TCP stream: reads, writes and shutdown are the same for both kinds.
pub(crate) fn as_stream(socket: UnixStream) -> TcpStream {
    TcpStream::from(OwnedFd::from(socket))
}
