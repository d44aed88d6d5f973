//! The protocol of a connection, without the connection: requests become bytes, bytes become answers.

use std::fmt::Debug;
use std::time::Instant;

use super::exchange::{Malformed, Pending, Sink, Then};
use super::prepare::Prepared;

pub(super) trait Codec: Debug + Send {
    /// Says what has to be said first on a connection.
    fn open(&mut self, _out: &mut Vec<u8>) {}

    /// Whether requests may be sent.
    fn is_ready(&self) -> bool {
        true
    }

    /// How many requests it takes now.
    fn room(&self) -> usize;

    /// When the request was sent that has waited longest.
    fn oldest(&self) -> Option<Instant>;

    /// Puts a request behind what is to be sent; a tag makes it conditional.
    fn begin(&mut self, pending: Pending, prepared: &Prepared, known_tag: Option<&[u8]>, out: &mut Vec<u8>);

    /// Puts bytes of the protocol behind what is to be sent, if `begin` did not do that.
    fn flush(&mut self, _out: &mut Vec<u8>) {}

    /// Reads what came; what has to be said to it goes behind what is to be sent.
    fn receive(&mut self, input: &[u8], sink: &mut dyn Sink, out: &mut Vec<u8>) -> Result<Then, Malformed>;

    /// The server ended the connection, which may be the end of an answer too.
    fn end(&mut self, _sink: &mut dyn Sink) {}

    /// Whether an end of the connection now may have been meant for an idle one: no answer is half read, and the protocol
    /// has no other way to say it.
    fn is_between(&self) -> bool {
        false
    }

    /// Empties the protocol for the next connection and returns what has no answer, oldest request first.
    fn give_up(&mut self) -> Vec<Pending>;
}
