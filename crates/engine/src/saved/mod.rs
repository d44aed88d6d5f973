//! A data set as bytes: what is written when a server stops, and read when it starts. The format: `docs/internals/save-file.md`.
//!
//! Reading trusts nothing. Everything has a checksum, and what the checksum vouches for is looked at once more: a file by
//! somebody else can be as wrong as it likes, and gives an error, never a panic and never a value that nobody stored.

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

/// Bytes that were saved, wherever they are.
pub trait Source: Send + Sync {
    /// How many there are.
    fn bytes(&self) -> u64;

    /// Fills the buffer from this offset on.
    ///
    /// # Errors
    /// When the bytes can't be had.
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

/// Why saved data is refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SavedError {
    #[error("it can't be read")]
    Read(#[from] io::Error),
    #[error("it is not a file of saved data")]
    Foreign,
    #[error("it has format {found}, and this version of Larder reads formats 2 to {known}")]
    Format { found: u32, known: u32 },
    #[error("its end is missing")]
    Incomplete,
    #[error("it is damaged at byte {offset}: {what}")]
    Damaged { offset: u64, what: &'static str },
}

/// With its causes, in one line.
fn text(error: &SavedError) -> String {
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    format!("{error}{}", source.unwrap_or_default())
}

impl SavedError {
    fn damaged(offset: u64, what: &'static str) -> Self {
        Self::Damaged { offset, what }
    }
}
