//! The body of a message: where its data is and where it ends.

use core::ops::Range;

use crate::chunk_line::{ChunkLine, Step};
use crate::fields::FieldLine;
use crate::trailers::{self, is_forbidden_trailer};
use crate::{BodyError, Framing, Limits, ResponseFraming};

/// Finds the data of one body in the bytes behind its head, without copying it. Only a trailer section is kept.
///
/// Call [`decode`](Self::decode) with the bytes not yet consumed until it gives [`Decoded::End`]; bytes behind the
/// body are never consumed. The data and the outcome do not depend on how the bytes were split over the calls.
#[derive(Debug, Clone)]
pub struct BodyDecoder {
    state: State,
    /// How each chunk line begins to be read.
    chunk_line: ChunkLine,
    extension_bytes: usize,
    extension_bytes_max: usize,
    trailer: Vec<u8>,
    trailer_line_start: usize,
    trailer_bytes_max: usize,
    trailer_fields_max: usize,
}

/// What [`BodyDecoder::decode`] found at the start of its input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    /// Data of the body at this range of the input, never empty. Consumed up to the end of the range.
    Data(Range<usize>),
    /// All input is consumed and the body goes on.
    NeedMore {
        /// Bytes of the input that are done with: all of them.
        consumed: usize,
    },
    /// The body is complete; what follows belongs to the next request.
    End {
        /// Bytes of the input that are done with.
        consumed: usize,
    },
}

impl Decoded {
    /// Bytes of the input that are done with.
    pub const fn consumed(&self) -> usize {
        match self {
            Self::Data(range) => range.end,
            Self::NeedMore { consumed } | Self::End { consumed } => *consumed,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Bytes that are left, by Content-Length.
    Length(u64),
    ChunkLine(ChunkLine),
    /// Bytes that are left of the chunk, at least one.
    ChunkData(u64),
    ChunkCarriageReturn,
    ChunkLineFeed,
    Trailer,
    Done,
    Failed(BodyError),
}

impl BodyDecoder {
    /// A decoder for a body with this framing.
    pub fn new(framing: Framing, limits: &Limits) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(bytes) => State::Length(bytes),
            Framing::Chunked => State::ChunkLine(ChunkLine::default()),
        };
        Self::starting(state, limits)
    }

    /// A decoder for the body of a response, or `None` where only the end of the connection tells its end. Beyond what
    /// a request may have it takes whitespace behind a chunk size, which some servers fill up their lines with, and
    /// anything in a chunk extension, which nobody reads.
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

    /// Whether the body has ended.
    pub fn is_complete(&self) -> bool {
        self.state == State::Done
    }

    /// The bytes still to come, where Content-Length says it.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(bytes) => Some(bytes),
            State::Done => Some(0),
            _ => None,
        }
    }

    /// Looks at the start of `input` for the next data or the end.
    ///
    /// # Errors
    /// The chunked coding is malformed or over a limit. The same error comes again from every later call.
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, BodyError> {
        let decoded = self.advance(input);
        if let Err(error) = decoded {
            self.state = State::Failed(error);
        }
        decoded
    }

    /// The trailer lines of a complete body, without those that must not be in a trailer section
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

    /// `rest` is not empty and starts at `start` of the input.
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
        // Without trailers, which is nearly always, nothing is copied.
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
