//! HTTP on a connection, without the socket: converts requests to bytes, and bytes to answers.

use super::prepare::Prepared;
use crate::drive::{Codec, Malformed, Pending, Then};

pub(crate) trait HttpCodec: Codec {
    /// Appends a request to the output.
    fn begin(&mut self, pending: Pending, prepared: &Prepared, out: &mut Vec<u8>);

    /// Parses received bytes, and appends any reply that the protocol requires to the output.
    fn receive(&mut self, input: &[u8], sink: &mut dyn Sink, out: &mut Vec<u8>) -> Result<Then, Malformed>;

    /// Handles the end of the connection by the server, which may also complete an answer.
    fn end(&mut self, _sink: &mut dyn Sink) {}
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Status(u16),
    /// The server reset only this request, and kept the connection (HTTP/2).
    Reset,
}

/// Receives the answers that are parsed from a connection's bytes.
pub(crate) trait Sink {
    fn answered(&mut self, pending: Pending, answer: Answer);

    /// Handles the first byte of a response, possibly of an interim one.
    fn first_byte(&mut self, pending: Pending);
}
