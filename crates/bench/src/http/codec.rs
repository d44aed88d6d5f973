//! The protocol of a connection, without the socket: converts requests to bytes, and bytes to answers.

use std::fmt::Debug;
use std::time::Instant;

use super::exchange::{Malformed, Pending, Sink, Then};
use super::prepare::Prepared;

pub(super) trait Codec: Debug + Send {
    /// Appends the opening bytes of a connection, such as a preface.
    fn open(&mut self, _out: &mut Vec<u8>) {}

    /// Whether requests may be sent.
    fn is_ready(&self) -> bool {
        true
    }

    /// Number of requests that the connection can take now.
    fn room(&self) -> usize;

    /// When the oldest pending request was sent.
    fn oldest(&self) -> Option<Instant>;

    /// Appends a request to the output.
    fn begin(&mut self, pending: Pending, prepared: &Prepared, out: &mut Vec<u8>);

    /// Appends pending protocol bytes to the output, if `begin` hasn't done so.
    fn flush(&mut self, _out: &mut Vec<u8>) {}

    /// Parses received bytes, and appends any reply that the protocol requires to the output.
    fn receive(&mut self, input: &[u8], sink: &mut dyn Sink, out: &mut Vec<u8>) -> Result<Then, Malformed>;

    /// The server ended the connection, which may also end an answer.
    fn end(&mut self, _sink: &mut dyn Sink) {}

    /// Whether the server may have meant to close an idle connection if it closes now: no answer is half read, and the protocol
    /// has no other signal for it.
    fn is_between(&self) -> bool {
        false
    }

    /// Resets the protocol for the next connection, and returns the unanswered requests, oldest first.
    fn give_up(&mut self) -> Vec<Pending>;
}
