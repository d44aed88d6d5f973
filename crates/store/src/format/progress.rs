//! How far a body on its way has come.

use super::bytes::{Reader, Writer};
use super::error::FormatError;
use super::frame::{self, Kind, TagKeys};
use crate::FillId;

/// How far a body has come that one instance fetches and others follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Of its fragments.
    pub fill: FillId,
    /// Whether there will be more.
    pub state: ProgressState,
    /// How many fragments there are: from 0 on, one behind the other.
    pub fragments: u32,
    /// How many bytes they have together.
    pub bytes: u64,
}

/// Whether there will be more of a body on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressState {
    /// There may be.
    GoesOn,
    /// That is all of it.
    Complete,
    /// There won't be, and something is missing.
    BrokenOff,
}

/// Appends the bytes of a progress.
///
/// # Errors
/// When it is beyond a limit; nothing is appended then.
pub fn encode_progress(
    progress: &Progress,
    keys: Option<&TagKeys>,
    out: &mut Vec<u8>,
) -> Result<(), FormatError> {
    progress.check()?;
    frame::seal(out, Kind::Progress, keys, |writer| {
        progress.write(writer);
        Ok(())
    })
}

/// The progress of the body that was asked for.
///
/// # Errors
/// When the bytes are anything else; [`FormatError::meaning`] says what to do.
pub fn decode_progress(bytes: &[u8], fill: FillId, keys: Option<&TagKeys>) -> Result<Progress, FormatError> {
    let mut reader = frame::open(bytes, Kind::Progress, keys)?;
    let progress = Progress::read(&mut reader)?;
    reader.end()?;
    progress.check()?;
    if progress.fill == fill { Ok(progress) } else { Err(FormatError::Other) }
}

impl Progress {
    fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let fill = reader.fill()?;
        let state = match reader.u8()? {
            1 => ProgressState::GoesOn,
            2 => ProgressState::Complete,
            3 => ProgressState::BrokenOff,
            _ => return Err(FormatError::Invalid("the state of a progress is not known")),
        };
        Ok(Self { fill, state, fragments: reader.u32()?, bytes: reader.u64()? })
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.fill(self.fill);
        writer.u8(match self.state {
            ProgressState::GoesOn => 1,
            ProgressState::Complete => 2,
            ProgressState::BrokenOff => 3,
        });
        writer.u32(self.fragments);
        writer.u64(self.bytes);
    }

    /// No fragment is empty.
    fn check(&self) -> Result<(), FormatError> {
        let is_right = self.fragments <= super::body::CELLS_MAX && u64::from(self.fragments) <= self.bytes;
        if is_right {
            Ok(())
        } else {
            Err(FormatError::Invalid("a body has more fragments than it can have"))
        }
    }
}
