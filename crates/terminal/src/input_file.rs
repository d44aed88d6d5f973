//! The one way to read a file that somebody named: of a kind that ends, and not beyond a limit.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// What may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nobody waits for one: for all that a running process reads.
    Regular,
    /// Reading a pipe, or a terminal, waits for who writes it: for what stands on the command line.
    RegularOrPipe,
}

/// Of a file with a token or a password: only the first line counts.
pub const SECRET_BYTES_MAX: u64 = 64 << 10;

/// The bytes of a file.
///
/// # Errors
/// There is none, it is of another kind, or larger than allowed.
pub fn read(path: &Path, kind: Kind, bytes_max: u64) -> io::Result<Vec<u8>> {
    // Before it is opened, which has effects on devices, and fails on sockets with words that explain nothing.
    check(std::fs::metadata(path)?.file_type(), kind)?;
    let file = open(path, kind)?;
    // By now another file may have the name.
    check(file.metadata()?.file_type(), kind)?;
    read_whole(file, bytes_max)
}

/// All that there is to read.
///
/// # Errors
/// It is more than allowed.
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

/// Opening a pipe waits for who writes it, unless told otherwise.
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
