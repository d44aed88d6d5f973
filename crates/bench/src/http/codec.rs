//! The protocol of a connection, without the connection: requests become bytes, bytes become answers.

use std::time::Instant;

use super::exchange::{Malformed, Pending, Sink, Then};
use super::h1::H1;
use super::h2::H2;
use super::prepare::Prepared;

#[derive(Debug)]
pub(super) enum Codec {
    H1(H1),
    H2(H2),
}

impl Codec {
    /// Says what has to be said first on a connection.
    pub(super) fn open(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::H1(_) => {}
            Self::H2(h2) => h2.open(out),
        }
    }

    /// Whether requests may be sent.
    pub(super) fn is_ready(&self) -> bool {
        match self {
            Self::H1(_) => true,
            Self::H2(h2) => h2.is_ready(),
        }
    }

    /// How many requests it takes now.
    pub(super) fn room(&self) -> usize {
        match self {
            Self::H1(h1) => h1.room(),
            Self::H2(h2) => h2.room(),
        }
    }

    /// When the request was sent that has waited longest.
    pub(super) fn oldest(&self) -> Option<Instant> {
        match self {
            Self::H1(h1) => h1.oldest(),
            Self::H2(h2) => h2.oldest(),
        }
    }

    /// Puts a request behind what is to be sent; a tag makes it conditional.
    pub(super) fn begin(
        &mut self,
        pending: Pending,
        prepared: &Prepared,
        known_tag: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::H1(h1) => h1.begin(pending, prepared, known_tag, out),
            Self::H2(h2) => h2.begin(pending, prepared, out),
        }
    }

    /// Reads what came; what has to be said to it goes behind what is to be sent.
    pub(super) fn receive(
        &mut self,
        input: &[u8],
        sink: &mut impl Sink,
        out: &mut Vec<u8>,
    ) -> Result<Then, Malformed> {
        match self {
            Self::H1(h1) => h1.receive(input, sink),
            Self::H2(h2) => h2.receive(input, sink, out),
        }
    }

    /// The server ended the connection, which may be the end of an answer too.
    pub(super) fn end(&mut self, sink: &mut impl Sink) {
        match self {
            Self::H1(h1) => h1.end(sink),
            Self::H2(_) => {}
        }
    }

    /// Whether an end of the connection now may have been meant for an idle one: no answer is half read, and the protocol
    /// has no other way to say it.
    pub(super) fn is_between(&self) -> bool {
        match self {
            Self::H1(h1) => h1.is_between(),
            Self::H2(_) => false,
        }
    }

    /// Empties the protocol for the next connection and returns what has no answer.
    pub(super) fn give_up(&mut self) -> Vec<Pending> {
        match self {
            Self::H1(h1) => h1.give_up().collect(),
            Self::H2(h2) => h2.give_up().collect(),
        }
    }
}
