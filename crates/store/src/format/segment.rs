//! Encoding of a segment.

use super::error::FormatError;
use super::frame::{self, Kind, TagKeys};
use crate::{SEGMENT_BYTES_MAX, SegmentId};

/// A segment with its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentFrame<'a> {
    /// Fill and index.
    pub id: SegmentId,
    /// Size of a cell in the tier that wrote it; a tier with smaller cells splits the segment.
    pub cell_bytes: u32,
    /// Data; at least one byte and at most a cell.
    pub data: &'a [u8],
}

/// Encodes a segment and appends it.
///
/// # Errors
/// If it exceeds a limit; nothing is appended in that case.
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

/// Decodes the requested segment.
///
/// # Errors
/// If the bytes are anything else; [`FormatError::meaning`] says what to do.
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
            return Err(FormatError::Invalid("the index of a segment is too large"));
        }
        Ok(())
    }
}

/// Upper bound on the bytes of a frame in addition to the data.
const FRAME_BYTES: usize = 64;
