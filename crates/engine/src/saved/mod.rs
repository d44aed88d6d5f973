//! Saved data sets: written when a server stops, and read when it starts. `docs/internals/save-file.md`
//! specifies the format.
//!
//! The engine doesn't trust the data that it reads. All data has a checksum, and is validated as well: a
//! crafted file causes an error, but never a panic or a value that was not stored.

mod export;
mod format;
mod import;
mod place;
mod read;
#[cfg(test)]
mod tests;

use std::io;

use thiserror::Error;

pub(crate) use import::Pending;

pub use export::Exported;
pub use import::Progress;
pub use read::Saved;

/// A source of the bytes of saved data.
pub trait Source: Send + Sync {
    /// Number of bytes.
    fn bytes(&self) -> u64;

    /// Fills the buffer with the bytes from this offset on.
    ///
    /// # Errors
    /// If the bytes can't be read.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

impl Source for Vec<u8> {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let begin = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = begin.checked_add(buffer.len()).and_then(|end| self.get(begin..end));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Reasons for refusing saved data.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SavedError {
    #[error("can't be read")]
    Read(#[from] io::Error),
    #[error("not a save file of larder kv")]
    Foreign,
    #[error("unsupported format {found}: this version of Larder reads formats 2 to {known}")]
    Format { found: u32, known: u32 },
    #[error("the end is missing")]
    Incomplete,
    #[error("damaged at byte {offset}: {what}")]
    Damaged { offset: u64, what: &'static str },
}

/// Formats an error with its cause in one line.
fn text(error: &SavedError) -> String {
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    format!("{error}{}", source.unwrap_or_default())
}

impl SavedError {
    fn damaged(offset: u64, what: &'static str) -> Self {
        Self::Damaged { offset, what }
    }
}
