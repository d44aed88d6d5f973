//! The location of a save file: checks on its path and the files next to it. The module `saved` reads and
//! writes the file.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use engine::Saved;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use thiserror::Error;

use crate::ownership::{self, MODE, Ownership};

/// Reasons why a path can't hold a save file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// Two servers would write one file, and the last to stop would win.
    #[error("the save file {} is in use by another process", path.display())]
    InUse { path: PathBuf },
    #[error("the save file {} can't be locked", path.display())]
    Lock { path: PathBuf, source: io::Error },
    /// The path leads to something other than a file, which a save would replace.
    #[error("{} is {kind}, not a file", path.display())]
    NoFile { path: PathBuf, kind: &'static str },
    /// A save would overwrite the file of another program.
    #[error("{} is not a save file of larder kv: move it, or choose another path", path.display())]
    Foreign { path: PathBuf },
    /// The file may contain a data set. A server that starts without loading it would overwrite it.
    #[error("{} can't be read: {error}; {advice}", path.display())]
    Unreadable { path: PathBuf, error: io::Error, advice: String },
    /// Every save would fail.
    #[error("{} can't be written", path.display())]
    Part { path: PathBuf, source: io::Error },
    #[error("the save file {} can't be found", path.display())]
    Path { path: PathBuf, source: io::Error },
}

/// Suffix of the lock file.
pub(crate) const LOCK: &str = ".lock";
/// Suffix of the file being written, until it is complete.
pub(crate) const PART: &str = ".part";

/// Resolves all links, so that a save replaces the target and keeps the links, and all links to a file share
/// one lock.
///
/// # Errors
/// If the folder is missing; if the file, its lock or its temporary file is not a regular file; if the file
/// belongs to another program or can't be read.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf, ReserveError> {
    let place = behind_links(path).map_err(|source| ReserveError::Path { path: path.to_owned(), source })?;
    check_kind(&place)?;
    beginning(&place)?;
    check_kind(&beside(&place, LOCK))?;
    match check_kind(&beside(&place, PART)) {
        // Any other temporary file is removed when a save begins.
        Err(refused @ ReserveError::NoFile { kind: DIRECTORY, .. }) => Err(refused),
        _ => Ok(place),
    }
}

pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Maximum number of links followed, as in Linux.
const LINKS_MAX: usize = 40;

pub(crate) fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let folder = fs::canonicalize(folder_of(&path))?;
        path = folder.join(path.file_name().ok_or(ErrorKind::InvalidInput)?);
        match fs::read_link(&path) {
            Ok(target) => path = folder.join(target),
            // Not a link, or nothing exists there yet.
            Err(_) => return Ok(path),
        }
    }
    Err(Errno::LOOP.into())
}

fn check_kind(path: &Path) -> Result<(), ReserveError> {
    match fs::symlink_metadata(path).ok().and_then(|found| other_kind(found.file_type())) {
        Some(kind) => Err(ReserveError::NoFile { path: path.to_owned(), kind }),
        None => Ok(()),
    }
}

/// The header of the existing save file, which is unique. Empty if the file is missing or empty.
///
/// # Errors
/// If the file belongs to another program, or can't be read, so that its contents are unknown.
pub(crate) fn beginning(path: &Path) -> Result<Vec<u8>, ReserveError> {
    match File::open(path).and_then(|file| beginning_of(&file)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(unreadable(path, error)),
        Ok(beginning) if Saved::is_foreign(&beginning) => {
            Err(ReserveError::Foreign { path: path.to_owned() })
        }
        Ok(beginning) => Ok(beginning),
    }
}

pub(crate) fn beginning_of(file: &File) -> io::Result<Vec<u8>> {
    let mut beginning = Vec::new();
    file.take(BEGINNING_BYTES).read_to_end(&mut beginning)?;
    Ok(beginning)
}

pub(crate) fn unreadable(path: &Path, error: io::Error) -> ReserveError {
    let otherwise = "move it, or choose another path";
    let advice = match Ownership::of_file(path) {
        Some(ownership) if error.kind() == ErrorKind::PermissionDenied => {
            format!("{}, {otherwise}", ownership.advice(path))
        }
        _ => otherwise.to_owned(),
    };
    ReserveError::Unreadable { path: path.to_owned(), error, advice }
}

/// Enough bytes for the header, which identifies a file.
const BEGINNING_BYTES: u64 = 64;

const DIRECTORY: &str = "a directory";

/// Names the kind of a file that is not a regular file.
pub(crate) fn other_kind(kind: FileType) -> Option<&'static str> {
    match () {
        () if kind.is_file() => None,
        () if kind.is_dir() => Some(DIRECTORY),
        () if kind.is_fifo() => Some("a named pipe"),
        () if kind.is_socket() => Some("a socket"),
        () if kind.is_symlink() => Some("a link"),
        () => Some("a device"),
    }
}

pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(ending);
    name.into()
}

/// Creates the file after removing an existing one. Opening an existing file for writing isn't safe, because
/// it may be a link to another user's file.
pub(crate) fn create_anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)
}

/// Opens and locks a file. The file stays when the lock is released: removing it could remove the lock of the
/// next process. A link created since the check isn't followed, and a named pipe doesn't block the call.
pub(crate) fn lock(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.write(true).mode(MODE).custom_flags(flags);
    let file = match options.clone().create_new(true).open(path) {
        Ok(file) => {
            ownership::give_to_user_of_folder(&file, folder_of(path))?;
            file
        }
        // A file created by another user keeps its owner.
        Err(_) => options.create(true).truncate(false).open(path)?,
    };
    if let Some(kind) = other_kind(file.metadata()?.file_type()) {
        return Err(io::Error::other(format!("{} is {kind}, not a file", path.display())));
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode, mknodat};

    use super::*;

    /// Tries everything that may appear at the path between the first check and the lock.
    #[test]
    fn nothing_but_a_file_is_locked() {
        let temporary = tempfile::tempdir().expect("a folder");
        let folder = temporary.path();
        fs::create_dir_all(folder.join("folder")).expect("a folder");
        mknodat(CWD, folder.join("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .expect("a named pipe");
        // The pipe has a reader, so that opening it would succeed.
        let _reader = OpenOptions::new().read(true).write(true).open(folder.join("pipe")).expect("it opens");
        symlink("elsewhere", folder.join("link")).expect("a link");
        for name in ["folder", "pipe", "link"] {
            lock(&folder.join(name)).expect_err(name);
        }
        assert!(!folder.join("elsewhere").exists());
        lock(&folder.join("new")).expect("nobody else has it");
    }
}
