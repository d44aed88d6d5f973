//! Several ranges of a body that is still on its way, as one `multipart/byteranges`.

use std::collections::VecDeque;

use bytes::Bytes;
use caching::ByteRange;
use message::piece::PieceMax;
use store::Slice;

use crate::cache::inflight::fill::{Aborted, FillReader};

/// One reader that goes from range to range. It never goes back: the bytes before it may be gone.
#[derive(Debug)]
pub(crate) struct FillRanges {
    reader: FillReader,
    place: Place,
    /// The head of each part that is to come, and its bytes.
    parts: VecDeque<(Bytes, ByteRange)>,
    end: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    BetweenParts,
    InPart,
}

impl FillRanges {
    /// `None` where a range begins before the end of the one before it. The reader begins where the first does.
    pub(crate) fn new(reader: FillReader, parts: VecDeque<(Bytes, ByteRange)>, end: Bytes) -> Option<Self> {
        let is_ascending =
            parts.iter().zip(parts.iter().skip(1)).all(|(one, next)| one.1.last < next.1.first);
        is_ascending.then_some(Self { reader, place: Place::BetweenParts, parts, end })
    }

    /// The next piece; `None` behind the end of the last part.
    ///
    /// # Errors
    /// When the body broke off.
    pub(crate) async fn data(&mut self, piece_max: PieceMax) -> Result<Option<Slice>, Aborted> {
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
