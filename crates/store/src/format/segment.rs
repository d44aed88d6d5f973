//! The bytes of a segment.

use super::error::FormatError;
use super::frame::{self, Kind, TagKeys};
use crate::{SEGMENT_BYTES_MAX, SegmentId};

/// A segment, with what says where it belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentFrame<'a> {
    /// Its fill and index.
    pub id: SegmentId,
    /// The size of a cell where it was written; a tier with smaller ones splits it.
    pub cell_bytes: u32,
    /// At least one byte, and no more than a cell.
    pub data: &'a [u8],
}

/// Appends the bytes of a segment.
///
/// # Errors
/// When it is beyond a limit; nothing is appended then.
pub fn encode_segment(
    segment: &SegmentFrame<'_>,
    keys: Option<&TagKeys>,
    out: &mut Vec<u8>,
) -> Result<(), FormatError> {
    segment.check()?;
    out.reserve(segment.data.len() + FRAME_BYTES);
    frame::seal(out, Kind::Segment, keys, |writer| {
        writer.fill(segment.id.fill);
        writer.u32(segment.id.index);
        writer.u32(segment.cell_bytes);
        writer.u32(segment.data.len() as u32);
        writer.bytes(segment.data);
        Ok(())
    })
}

/// The segment that was asked for.
///
/// # Errors
/// When the bytes are anything else; [`FormatError::meaning`] says what to do.
pub fn decode_segment<'a>(
    bytes: &'a [u8],
    id: SegmentId,
    keys: Option<&TagKeys>,
) -> Result<SegmentFrame<'a>, FormatError> {
    let mut reader = frame::open(bytes, Kind::Segment, keys)?;
    let found = SegmentId { fill: reader.fill()?, index: reader.u32()? };
    let cell_bytes = reader.u32()?;
    let count = reader.u32()?;
    let data = reader.bytes(count as usize)?;
    reader.end()?;
    let segment = SegmentFrame { id: found, cell_bytes, data };
    segment.check()?;
    if found != id {
        return Err(FormatError::Other);
    }
    Ok(segment)
}

impl SegmentFrame<'_> {
    fn check(&self) -> Result<(), FormatError> {
        let is_within =
            self.data.len() <= self.cell_bytes as usize && self.cell_bytes as usize <= SEGMENT_BYTES_MAX;
        if self.data.is_empty() || !is_within {
            return Err(FormatError::Invalid("a segment is empty or larger than a cell"));
        }
        if self.id.index >= super::body::CELLS_MAX {
            return Err(FormatError::Invalid("a segment lies too far in"));
        }
        Ok(())
    }
}

/// What a frame takes at most beside the data.
const FRAME_BYTES: usize = 64;
