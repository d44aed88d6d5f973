//! The body of a message: the position of its data and its end.

use core::ops::Range;

use crate::chunk_line::{ChunkLine, Step};
use crate::fields::FieldLine;
use crate::trailers::{self, is_forbidden_trailer};
use crate::{BodyError, Framing, Limits, ResponseFraming};

/// Finds the data of one body in the bytes after its head, without copying it. Only a trailer section is kept.
///
/// Call [`decode`](Self::decode) with the bytes not yet consumed until it returns [`Decoded::End`]; bytes after the
/// body are never consumed. Data and outcome don't depend on how the bytes are split over the calls.
#[derive(Debug, Clone)]
pub struct BodyDecoder {
    state: State,
    /// Initial state of each chunk line.
    chunk_line: ChunkLine,
    extension_bytes: usize,
    extension_bytes_max: usize,
    trailer: Vec<u8>,
    trailer_line_start: usize,
    trailer_bytes_max: usize,
    trailer_fields_max: usize,
}

/// The result of [`BodyDecoder::decode`] for the start of its input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    /// Data of the body at this range of the input, never empty. Consumes the input up to the end of the range.
    Data(Range<usize>),
    /// The input is consumed and the body continues.
    NeedMore {
        /// Consumed bytes of the input: all of them.
        consumed: usize,
    },
    /// The body is complete; the following bytes belong to the next request.
    End {
        /// Consumed bytes of the input.
        consumed: usize,
    },
}

impl Decoded {
    /// Returns the consumed bytes of the input.
    pub const fn consumed(&self) -> usize {
        match self {
            Self::Data(range) => range.end,
            Self::NeedMore { consumed } | Self::End { consumed } => *consumed,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Remaining bytes, by Content-Length.
    Length(u64),
    ChunkLine(ChunkLine),
    /// Remaining bytes of the chunk, at least one.
    ChunkData(u64),
    ChunkCarriageReturn,
    ChunkLineFeed,
    Trailer,
    Done,
    Failed(BodyError),
}

impl BodyDecoder {
    /// Returns a decoder for a body with this framing.
    pub fn new(framing: Framing, limits: &Limits) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(bytes) => State::Length(bytes),
            Framing::Chunked => State::ChunkLine(ChunkLine::default()),
        };
        Self::starting(state, limits)
    }

    /// Returns a decoder for the body of a response, or `None` if the body ends with the connection. More lenient than
    /// for requests: it accepts whitespace after a chunk size, which some servers use as padding, and anything in a
    /// chunk extension, because extensions are ignored.
    //= RFC 9112 section 7.1.1: chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )
    pub fn of_response(framing: ResponseFraming, limits: &Limits) -> Option<Self> {
        let state = match framing {
            ResponseFraming::None | ResponseFraming::Length(0) => State::Done,
            ResponseFraming::Length(bytes) => State::Length(bytes),
            ResponseFraming::Chunked => State::ChunkLine(ChunkLine::lenient()),
            ResponseFraming::UntilClose => return None,
        };
        Some(Self { chunk_line: ChunkLine::lenient(), ..Self::starting(state, limits) })
    }

    fn starting(state: State, limits: &Limits) -> Self {
        Self {
            state,
            chunk_line: ChunkLine::default(),
            extension_bytes: 0,
            extension_bytes_max: limits.chunk_extension_bytes_max,
            trailer: Vec::new(),
            trailer_line_start: 0,
            trailer_bytes_max: limits.trailer_bytes_max.max(b"\r\n".len()),
            trailer_fields_max: limits.fields_max.min(Limits::FIELDS_CEILING),
        }
    }

    /// Returns whether the body has ended.
    pub fn is_complete(&self) -> bool {
        self.state == State::Done
    }

    /// Returns the remaining bytes, if there is a Content-Length.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(bytes) => Some(bytes),
            State::Done => Some(0),
            _ => None,
        }
    }

    /// Finds the next data or the end at the start of `input`.
    ///
    /// # Errors
    ///
    /// Returns an error if the chunked coding is malformed or exceeds a limit. Every later call returns the same error.
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, BodyError> {
        let decoded = self.advance(input);
        if let Err(error) = decoded {
            self.state = State::Failed(error);
        }
        decoded
    }

    /// Returns the trailer lines of a complete body, without those that must not be in a trailer section
    /// ([`is_forbidden_trailer`]).
    pub fn trailers(&self) -> impl Iterator<Item = FieldLine<'_>> {
        let section = if self.is_complete() { self.trailer.as_slice() } else { b"" };
        trailers::lines(section).filter(|line| !is_forbidden_trailer(line.0))
    }

    fn advance(&mut self, input: &[u8]) -> Result<Decoded, BodyError> {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            match self.state {
                State::Done => return Ok(Decoded::End { consumed }),
                State::Failed(error) => return Err(error),
                _ if rest.is_empty() => return Ok(Decoded::NeedMore { consumed }),
                State::Length(left) => return Ok(self.data(rest, consumed, left)),
                State::ChunkData(left) => return Ok(self.data(rest, consumed, left)),
                State::ChunkLine(line) => consumed += self.chunk_line(line, rest)?,
                State::ChunkCarriageReturn | State::ChunkLineFeed => consumed += self.chunk_end(rest[0])?,
                State::Trailer => consumed += self.trailer(rest)?,
            }
        }
    }

    /// Returns the next data. `rest` is not empty and starts at `start` of the input.
    fn data(&mut self, rest: &[u8], start: usize, left: u64) -> Decoded {
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
        let left = left - bytes as u64;
        self.state = match self.state {
            State::ChunkData(_) if left == 0 => State::ChunkCarriageReturn,
            State::ChunkData(_) => State::ChunkData(left),
            _ if left == 0 => State::Done,
            _ => State::Length(left),
        };
        Decoded::Data(start..start + bytes)
    }

    fn chunk_line(&mut self, mut line: ChunkLine, rest: &[u8]) -> Result<usize, BodyError> {
        for (index, &byte) in rest.iter().enumerate() {
            match line.step(byte)? {
                Step::Framing => {}
                Step::Extension => self.count_extension_byte()?,
                Step::End { size } => {
                    self.state = if size == 0 { State::Trailer } else { State::ChunkData(size) };
                    return Ok(index + 1);
                }
            }
        }
        self.state = State::ChunkLine(line);
        Ok(rest.len())
    }

    const fn count_extension_byte(&mut self) -> Result<(), BodyError> {
        if self.extension_bytes == self.extension_bytes_max {
            return Err(BodyError::ChunkExtensionTooLarge);
        }
        self.extension_bytes += 1;
        Ok(())
    }

    //= RFC 9112 section 7.1: chunked transfer coding
    fn chunk_end(&mut self, byte: u8) -> Result<usize, BodyError> {
        self.state = match (self.state, byte) {
            (State::ChunkCarriageReturn, b'\r') => State::ChunkLineFeed,
            (State::ChunkLineFeed, b'\n') => State::ChunkLine(self.chunk_line),
            _ => return Err(BodyError::MissingChunkEnd),
        };
        Ok(1)
    }

    //= RFC 9112 section 7.1.2: chunked trailer section
    fn trailer(&mut self, rest: &[u8]) -> Result<usize, BodyError> {
        // Nearly all bodies have no trailers, so nothing is copied.
        if self.trailer.is_empty() && rest.starts_with(b"\r\n") {
            self.state = State::Done;
            return Ok(2);
        }
        let room = self.trailer_bytes_max - self.trailer.len();
        let visible = &rest[..rest.len().min(room)];
        let mut consumed = 0;
        for line_feed in memchr::memchr_iter(b'\n', visible) {
            self.trailer.extend_from_slice(&visible[consumed..=line_feed]);
            consumed = line_feed + 1;
            self.end_trailer_line()?;
            if self.state == State::Done {
                return Ok(consumed);
            }
        }
        if rest.len() > room {
            return Err(BodyError::TrailerTooLarge);
        }
        self.trailer.extend_from_slice(&visible[consumed..]);
        Ok(visible.len())
    }

    fn end_trailer_line(&mut self) -> Result<(), BodyError> {
        match &self.trailer[self.trailer_line_start..] {
            b"\r\n" => {
                trailers::check(&self.trailer, self.trailer_fields_max)?;
                self.state = State::Done;
            }
            line if !line.ends_with(b"\r\n") => return Err(BodyError::InvalidTrailer),
            _ => self.trailer_line_start = self.trailer.len(),
        }
        Ok(())
    }
}
