//! Incremental HTTP/1.x response parser, which keeps as few bytes as possible.
//!
//! Parses only as much of a response as is needed to find the start of the next one (RFC 9112 section 6.3). Body bytes are
//! skipped in place; only a head that arrives in pieces is copied.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Status};

use super::chunked::Chunks;
use crate::drive::{Malformed, Then};

/// Maximum size of a head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const FIELDS_MAX: usize = 128;

/// Result of a complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) then: Then,
}

/// Whether an answer has a body regardless of its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    AsFramed,
    /// The answer to `HEAD`.
    Never,
}

#[derive(Debug)]
pub(super) struct ResponseReader {
    state: State,
    /// The bytes of an incomplete head.
    partial_head: Vec<u8>,
    response: Response,
}

#[derive(Debug)]
enum State {
    Head,
    Sized { left: u64 },
    Chunked(Chunks),
    UntilClose,
}

/// Framing of the bytes after a head.
#[derive(Debug)]
struct Head {
    length: usize,
    response: Response,
    framing: State,
}

impl ResponseReader {
    pub(super) fn new() -> Self {
        let response = Response { status: 0, then: Then::GoOn };
        Self { state: State::Head, partial_head: Vec::new(), response }
    }

    /// Returns whether no part of a response has been read since the last complete one.
    pub(super) fn is_between(&self) -> bool {
        matches!(self.state, State::Head) && self.partial_head.is_empty()
    }

    /// Reads further input. Returns the number of bytes used, and the response that they complete. If no response is complete, all of the
    /// input was used.
    pub(super) fn read(&mut self, input: &[u8], body: Body) -> Result<(usize, Option<Response>), Malformed> {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            let done = match &mut self.state {
                State::Head => {
                    let Some(bytes) = self.read_head(rest, body)? else { return Ok((input.len(), None)) };
                    used += bytes;
                    matches!(self.state, State::Sized { left: 0 })
                }
                State::Sized { left } => {
                    let step = (*left).min(rest.len() as u64);
                    *left -= step;
                    used += usize::try_from(step).expect("no more than the length of a slice");
                    *left == 0
                }
                State::Chunked(chunks) => {
                    let (bytes, end) = chunks.read(rest)?;
                    used += bytes;
                    end
                }
                State::UntilClose => return Ok((input.len(), None)),
            };
            if done {
                return Ok((used, Some(self.finish())));
            }
            if used == input.len() {
                return Ok((used, None));
            }
        }
    }

    /// Handles the end of the connection, which completes a response that has no other delimiter.
    pub(super) fn end(&mut self) -> Option<Response> {
        matches!(self.state, State::UntilClose).then(|| self.finish())
    }

    fn finish(&mut self) -> Response {
        self.state = State::Head;
        self.response
    }

    /// Reads a head. Returns `None` if it is incomplete. Interim responses are skipped.
    fn read_head(&mut self, input: &[u8], body: Body) -> Result<Option<usize>, Malformed> {
        let before = self.partial_head.len();
        let head = if before == 0 {
            parse(input, body)?
        } else {
            self.partial_head.extend_from_slice(input);
            parse(&self.partial_head, body)?
        };
        let Some(head) = head else {
            if before == 0 {
                self.partial_head.extend_from_slice(input);
            }
            if self.partial_head.len() > HEAD_BYTES_MAX {
                return Err(Malformed("a head without end"));
            }
            return Ok(None);
        };
        self.partial_head.clear();
        if !is_interim(head.response.status) {
            self.response = head.response;
            self.state = head.framing;
        }
        Ok(Some(head.length - before))
    }
}

//= RFC 9110 section 15.2: informational responses
fn is_interim(status: u16) -> bool {
    (100..200).contains(&status)
}

/// Parses a head from its start. Returns `None` if it is incomplete.
fn parse(input: &[u8], body: Body) -> Result<Option<Head>, Malformed> {
    let mut fields = [const { MaybeUninit::<Header<'_>>::uninit() }; FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let outcome = ParserConfig::default().parse_response_with_uninit_headers(&mut parsed, input, &mut fields);
    let length = match outcome {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Ok(None),
        Err(_) => return Err(Malformed("no response head")),
    };
    let status = parsed.code.expect("a complete head has a status");
    if status == 101 {
        return Err(Malformed("an unrequested switch of protocols"));
    }
    let mut framing = Framing::new(parsed.version == Some(1));
    for field in parsed.headers.iter() {
        framing.take(field)?;
    }
    let (framing, then) = framing.decide(status, body)?;
    Ok(Some(Head { length, response: Response { status, then }, framing }))
}

/// Length and connection handling according to the fields.
#[derive(Debug)]
struct Framing {
    content_length: Option<u64>,
    transfer: Transfer,
    then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transfer {
    Plain,
    Chunked,
    /// A transfer coding that ends only with the connection.
    Other,
}

impl Framing {
    fn new(is_persistent: bool) -> Self {
        let then = if is_persistent { Then::GoOn } else { Then::Close };
        Self { content_length: None, transfer: Transfer::Plain, then }
    }

    fn take(&mut self, field: &Header<'_>) -> Result<(), Malformed> {
        // The length of the name rules out most irrelevant fields.
        match field.name.len() {
            10 if field.name.eq_ignore_ascii_case("connection") => self.connection(field.value),
            14 if field.name.eq_ignore_ascii_case("content-length") => self.length(field.value)?,
            17 if field.name.eq_ignore_ascii_case("transfer-encoding") => self.coding(field.value),
            _ => {}
        }
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if option.eq_ignore_ascii_case(b"close") {
                self.then = Then::Close;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.then = Then::GoOn;
            }
        }
    }

    fn length(&mut self, value: &[u8]) -> Result<(), Malformed> {
        let text = std::str::from_utf8(value.trim_ascii()).ok();
        let digits = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let length =
            digits.and_then(|text| text.parse().ok()).ok_or(Malformed("no length in Content-Length"))?;
        if self.content_length.is_some_and(|before| before != length) {
            return Err(Malformed("two different lengths"));
        }
        self.content_length = Some(length);
        Ok(())
    }

    fn coding(&mut self, value: &[u8]) {
        let last = value.rsplit(|byte| *byte == b',').next().unwrap_or(value).trim_ascii();
        self.transfer =
            if last.eq_ignore_ascii_case(b"chunked") { Transfer::Chunked } else { Transfer::Other };
    }

    //= RFC 9112 section 6.3: message body length
    fn decide(self, status: u16, body: Body) -> Result<(State, Then), Malformed> {
        if body == Body::Never || matches!(status, 100..=199 | 204 | 304) {
            return Ok((State::Sized { left: 0 }, self.then));
        }
        match (self.transfer, self.content_length) {
            (Transfer::Chunked, _) => Ok((State::Chunked(Chunks::default()), self.then)),
            (Transfer::Plain, Some(left)) => Ok((State::Sized { left }, self.then)),
            (Transfer::Other, _) | (Transfer::Plain, None) => Ok((State::UntilClose, Then::Close)),
        }
    }
}
