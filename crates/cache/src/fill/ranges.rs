//! Several ranges of a body that is still on its way, as one `multipart/byteranges`.

use std::collections::VecDeque;

use bytes::Bytes;
use caching::ByteRange;
use message::piece::PieceMax;
use store::Slice;

use crate::fill::{Aborted, FillReader};

/// A reader that goes from range to range. It never goes back: earlier bytes may be gone.
#[derive(Debug)]
pub struct FillRanges {
    reader: FillReader,
    place: Place,
    /// Head and range of each part to come.
    parts: VecDeque<(Bytes, ByteRange)>,
    end: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    BetweenParts,
    InPart,
}

impl FillRanges {
    /// Creates the parts. `None` if a range begins before the end of the one before it. The reader begins at the first range.
    pub fn new(reader: FillReader, parts: VecDeque<(Bytes, ByteRange)>, end: Bytes) -> Option<Self> {
        let is_ascending =
            parts.iter().zip(parts.iter().skip(1)).all(|(one, next)| one.1.last < next.1.first);
        is_ascending.then_some(Self { reader, place: Place::BetweenParts, parts, end })
    }

    /// Returns the next piece; `None` after the end of the last part.
    ///
    /// # Errors
    /// Returns an error if the body broke off.
    pub async fn data(&mut self, piece_max: PieceMax) -> Result<Option<Slice>, Aborted> {
        if self.place == Place::InPart {
            if let Some(data) = self.reader.chunk(piece_max).await? {
                return Ok(Some(data));
            }
            self.place = Place::BetweenParts;
        }
        if let Some((head, range)) = self.parts.pop_front() {
            self.reader.skip_to(range);
            self.place = Place::InPart;
            return Ok(Some(head.into()));
        }
        let end = std::mem::take(&mut self.end);
        Ok((!end.is_empty()).then(|| end.into()))
    }
}
