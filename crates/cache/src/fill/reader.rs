//! Readers of a body in progress.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use caching::ByteRange;
use http::HeaderMap;
use message::piece::PieceMax;
use store::Slice;

use super::Fill;
use super::state::{End, Reading, Retention};
use crate::changed::until;

/// The body was cut short. Readers must make the abort visible to their clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the response body was cut short")]
pub struct Aborted {
    /// Reason, unless another part of the code reports it.
    pub because: Option<&'static str>,
}

/// A reader of a fill, from one position to another.
#[derive(Debug)]
pub struct FillReader {
    pub fill: Arc<Fill>,
    pub(super) slot: usize,
    pub(super) position: u64,
    pub(super) end: Option<u64>,
}

impl FillReader {
    /// Returns the next bytes; `None` at the end of the body (or of the range).
    ///
    /// # Errors
    /// Returns an error if the body was aborted before its end.
    pub async fn chunk(&mut self, piece_max: PieceMax) -> Result<Option<Slice>, Aborted> {
        if self.end.is_some_and(|end| self.position >= end) {
            return Ok(None);
        }
        let fill = Arc::clone(&self.fill);
        until(&fill.arrived, || self.poll_next(piece_max)).await
    }

    /// Returns the next bytes or the end, or `None` if neither has arrived.
    fn poll_next(&mut self, piece_max: PieceMax) -> Option<Result<Option<Slice>, Aborted>> {
        let mut state = self.fill.state.lock();
        if state.readers[self.slot].is_some_and(|reading| reading.is_cut_off) {
            return Some(Err(Aborted { because: Some("write-timeout") }));
        }
        if let Some(mut data) = state.bytes_at(self.position) {
            if let Some(end) = self.end {
                data.truncate((end - self.position).min(data.len() as u64) as usize);
            }
            let data = piece_max.limit(data);
            self.position += data.len() as u64;
            state.note_reading(self.slot, data.len());
            let retention = state.retention;
            drop(state);
            if retention == Retention::Window {
                self.fill.read.notify_one();
            }
            return Some(Ok(Some(data)));
        }
        match state.end {
            End::Filling => {
                if state.begins_to_wait(self.slot) {
                    drop(state);
                    self.fill.read.notify_one();
                }
                None
            }
            // A range that begins or ends past the end of the body can't be served in full.
            End::Complete(_) if self.end.is_some() => Some(Err(Aborted { because: None })),
            End::Complete(_) => Some(Ok(None)),
            End::Aborted => Some(Err(Aborted { because: state.because })),
        }
    }

    /// Skips to `range`, which must not begin before the current position.
    pub fn skip_to(&mut self, range: ByteRange) {
        debug_assert!(range.first >= self.position, "earlier bytes may be gone");
        self.position = range.first;
        self.end = Some(range.last + 1);
        self.fill.state.lock().readers[self.slot] = Some(Reading::from(range.first));
        self.fill.read.notify_one();
    }

    /// Returns the trailers of a complete body.
    pub fn trailers(&self) -> Option<Arc<HeaderMap>> {
        match &self.fill.state.lock().end {
            End::Complete(trailers) => trailers.clone(),
            End::Filling | End::Aborted => None,
        }
    }
}

impl Drop for FillReader {
    fn drop(&mut self) {
        let mut state = self.fill.state.lock();
        state.readers[self.slot] = None;
        let is_left = self.fill.is_left_to_the_promised(&state);
        drop(state);
        self.fill.read.notify_one();
        if is_left {
            self.fill.arrived.notify_waiters();
        }
    }
}

/// Several ranges of a body in progress, as one `multipart/byteranges`. The reader proceeds from range to range and never goes back,
/// because earlier bytes may be gone.
#[derive(Debug)]
pub struct FillRanges {
    reader: FillReader,
    place: Place,
    /// Head and range of each remaining part.
    parts: VecDeque<(Bytes, ByteRange)>,
    end: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    BetweenParts,
    InPart,
}

impl FillRanges {
    /// Creates the parts. `None` if a range begins before the end of the previous one. The reader starts at the first range.
    pub fn new(reader: FillReader, parts: VecDeque<(Bytes, ByteRange)>, end: Bytes) -> Option<Self> {
        let is_ascending =
            parts.iter().zip(parts.iter().skip(1)).all(|(one, next)| one.1.last < next.1.first);
        is_ascending.then_some(Self { reader, place: Place::BetweenParts, parts, end })
    }

    /// Returns the next piece; `None` after the end of the last part.
    ///
    /// # Errors
    /// Returns an error if the body was aborted.
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
