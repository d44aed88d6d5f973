//! One file as text, and what it says as a tree.

use std::io;
use std::path::Path;

use terminal::input_file::{self, Kind};

use super::locate::{Place, Sources};
use super::problem::Problems;
use super::raw::Reader;
use super::table::Section;
use super::tree::Table;

/// A text, or why there is none, and what it is called. Paths in it are relative to that name.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) name: String,
    bytes: io::Result<Vec<u8>>,
}

impl Input {
    /// Of a regular file, so that nobody waits for it.
    pub(crate) fn of_file(path: &Path) -> Self {
        Self { name: path.display().to_string(), bytes: input_file::read(path, Kind::Regular, BYTES_MAX) }
    }

    /// Of a file on the command line, which may be a pipe, such as `/dev/stdin` or one of the shell's `<(...)`.
    pub(crate) fn given(path: &Path) -> Self {
        Self {
            name: path.display().to_string(),
            bytes: input_file::read(path, Kind::RegularOrPipe, BYTES_MAX),
        }
    }

    /// Why there is no text.
    pub(crate) fn error(&self) -> Option<&io::Error> {
        self.bytes.as_ref().err()
    }

    /// Whatever the other end of a pipe sends.
    pub(crate) fn of_standard_input() -> Self {
        Self { name: "stdin".to_owned(), bytes: input_file::read_whole(io::stdin().lock(), BYTES_MAX) }
    }
}

/// Far more than ten thousand sites need.
const BYTES_MAX: u64 = 16 << 20;

/// Reads a text as `section`. One that can't be read counts as empty, so that the checks can go on.
pub(super) fn read(
    Input { name, bytes }: Input,
    section: &'static Section,
    sources: &mut Sources,
    problems: &mut Problems,
) -> Table {
    let (text, failure) = match bytes.map(String::from_utf8) {
        Ok(Ok(text)) => (text, None),
        Ok(Err(error)) => {
            let valid = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            (text, Some((valid, "not UTF-8".to_owned())))
        }
        Err(error) => (String::new(), Some((0, format!("can't be read: {error}")))),
    };
    let source = sources.add(name, text.clone());
    let is_unread = failure.is_some();
    if let Some((at, message)) = failure {
        problems.error(&Place::Text { source, span: at..at }, "", message);
    }
    let mut reader = Reader::new(Place::Text { source, span: 0..0 }, problems);
    // What isn't text is no TOML either, and nothing of it is worth a complaint of its own.
    let mut tree = reader.document(section, if is_unread { "" } else { &text });
    let hidden = std::mem::take(&mut reader.hidden);
    sources.hide(source, hidden);
    if is_unread {
        // Nobody knows what it lacks.
        tree.wrong.extend(section.options().map(|option| option.key));
    }
    tree
}
