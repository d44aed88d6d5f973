//! Reads files that users name: only of accepted kinds, and up to a size limit.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// The accepted kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Regular files, which never block: for all files that a running process reads.
    Regular,
    /// Accepts pipes and terminals too, which block until their writer sends, so it is only for files on the command line.
    RegularOrPipe,
}

/// Limit of a file with a token or a password, of which only the first line is used.
pub const SECRET_BYTES_MAX: u64 = 64 << 10;

/// Returns the bytes of a file.
///
/// # Errors
///
/// Returns an error if the file doesn't exist, is of another kind, or is larger than allowed.
pub fn read(path: &Path, kind: Kind, bytes_max: u64) -> io::Result<Vec<u8>> {
    // Check before opening, because opening has effects on devices, and fails on sockets with an unhelpful error.
    check(std::fs::metadata(path)?.file_type(), kind)?;
    let file = open(path, kind)?;
    // Check again, because the path may name another file by now.
    check(file.metadata()?.file_type(), kind)?;
    read_whole(file, bytes_max)
}

/// Reads to the end.
///
/// # Errors
///
/// Returns an error if there is more than allowed.
pub fn read_whole(from: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let limit = match bytes_max >> 20 {
            0 => format!("{}KiB", bytes_max >> 10),
            mebibytes => format!("{mebibytes}MiB"),
        };
        return Err(io::Error::other(format!("larger than {limit}")));
    }
    Ok(bytes)
}

/// Opens the file without blocking: opening a pipe waits for its writer by default.
fn open(path: &Path, kind: Kind) -> io::Result<File> {
    match kind {
        Kind::Regular => {
            OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
        }
        Kind::RegularOrPipe => File::open(path),
    }
}

fn check(found: FileType, kind: Kind) -> io::Result<()> {
    let waits = found.is_fifo() || found.is_char_device();
    if found.is_file() || (waits && kind == Kind::RegularOrPipe) {
        return Ok(());
    }
    let found = match () {
        () if found.is_dir() => "a directory",
        () if found.is_fifo() => "a pipe (FIFO)",
        () if found.is_socket() => "a socket",
        () => "a device",
    };
    Err(io::Error::other(format!("it is {found}, not a regular file")))
}
