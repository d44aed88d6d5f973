//! HTTP/1.1 on one connection: requests are sent in order, and answers arrive in the same order.

use std::collections::VecDeque;
use std::time::Instant;

use super::codec::{Answer, HttpCodec, Sink};
use super::prepare::Prepared;
use super::response::{Body, Response, ResponseReader};
use crate::drive::{Codec, Malformed, Pending, Then};

#[derive(Debug)]
pub(super) struct H1 {
    depth: usize,
    waiting: VecDeque<(Pending, Body)>,
    reader: ResponseReader,
    /// Whether the first byte of the response to the oldest request was reported: once, even if an interim response
    /// precedes it.
    is_first_byte_told: bool,
}

impl H1 {
    pub(super) fn new(depth: usize) -> Self {
        let (waiting, reader) = (VecDeque::with_capacity(depth), ResponseReader::new());
        Self { depth, waiting, reader, is_first_byte_told: false }
    }

    fn finish(&mut self, response: Response, sink: &mut dyn Sink) -> Then {
        self.is_first_byte_told = false;
        let (pending, _) = self.waiting.pop_front().expect("only read while a request waits");
        sink.answered(pending, Answer::Status(response.status));
        response.then
    }
}

impl Codec for H1 {
    fn room(&self) -> usize {
        self.depth - self.waiting.len()
    }

    fn oldest(&self) -> Option<Instant> {
        self.waiting.front().map(|(pending, _)| pending.sent)
    }

    fn is_between(&self) -> bool {
        self.reader.is_between()
    }

    fn give_up(&mut self) -> Vec<Pending> {
        self.reader = ResponseReader::new();
        self.is_first_byte_told = false;
        self.waiting.drain(..).map(|(pending, _)| pending).collect()
    }
}

impl HttpCodec for H1 {
    fn begin(&mut self, pending: Pending, prepared: &Prepared, out: &mut Vec<u8>) {
        debug_assert!(self.room() > 0, "more requests than the depth");
        out.extend_from_slice(&prepared.bytes);
        self.waiting.push_back((pending, prepared.body));
    }

    fn receive(
        &mut self,
        mut input: &[u8],
        sink: &mut dyn Sink,
        _out: &mut Vec<u8>,
    ) -> Result<Then, Malformed> {
        while !input.is_empty() {
            let Some(&(pending, body)) = self.waiting.front() else { return unasked(input) };
            if !self.is_first_byte_told {
                self.is_first_byte_told = true;
                sink.first_byte(pending);
            }
            let (used, response) = self.reader.read(input, body)?;
            input = &input[used..];
            if let Some(response) = response
                && self.finish(response, sink) == Then::Close
            {
                return Ok(Then::Close);
            }
        }
        Ok(Then::GoOn)
    }

    fn end(&mut self, sink: &mut dyn Sink) {
        if let Some(response) = self.reader.end() {
            self.finish(response, sink);
        }
    }
}

/// Handles bytes without a request. A server that closes a connection may announce it with a response (408).
fn unasked(input: &[u8]) -> Result<Then, Malformed> {
    let begin = b"HTTP/1.";
    if begin.iter().zip(input).all(|(expected, seen)| expected == seen) {
        return Ok(Then::Close);
    }
    Err(Malformed("bytes after the end of the answer"))
}
