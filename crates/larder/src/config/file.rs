//! Text of one file, and its tree.

use std::io;
use std::path::Path;

use terminal::input_file::{self, Kind};

use super::locate::{Place, Sources};
use super::problem::Problems;
use super::raw::Reader;
use super::table::Section;
use super::tree::Table;

/// The text of a file, or the error on reading it, with the file's name. Paths in it are relative to that name.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) name: String,
    bytes: io::Result<Vec<u8>>,
}

impl Input {
    /// Reads a regular file only, because other files may block.
    pub(crate) fn of_file(path: &Path) -> Self {
        Self { name: path.display().to_string(), bytes: input_file::read(path, Kind::Regular, BYTES_MAX) }
    }

    /// Reads a file of the command line, which may be a pipe, such as `/dev/stdin` or the shell's `<(...)`.
    pub(crate) fn given(path: &Path) -> Self {
        Self {
            name: path.display().to_string(),
            bytes: input_file::read(path, Kind::RegularOrPipe, BYTES_MAX),
        }
    }

    /// Returns the error on reading the text.
    pub(crate) fn error(&self) -> Option<&io::Error> {
        self.bytes.as_ref().err()
    }

    /// Reads standard input to its end.
    pub(crate) fn of_standard_input() -> Self {
        Self { name: "stdin".to_owned(), bytes: input_file::read_whole(io::stdin().lock(), BYTES_MAX) }
    }
}

/// Maximum size of a file: far more than ten thousand sites need.
const BYTES_MAX: u64 = 16 << 20;

/// Parses a text as `section`. An unreadable text counts as empty, so that the checks can continue.
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
    // Text that isn't UTF-8 isn't TOML either, so only one problem is reported.
    let mut tree = reader.document(section, if is_unread { "" } else { &text });
    let hidden = std::mem::take(&mut reader.hidden);
    sources.hide(source, hidden);
    if is_unread {
        // Keys that seem to be missing may be in the part that was not read.
        tree.wrong.extend(section.options().map(|option| option.key));
    }
    tree
}
