//! A slot for a connection, which is filled again and again during the load.

use std::collections::VecDeque;
use std::time::Instant;

use super::codec::Codec;
use super::exchange::Pending;
use super::h1::H1;
use super::h2::H2;
use super::load::{HttpLoad, Protocol};
use super::prepare::Prepared;
use super::transport::Transport;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    pub(super) transport: Option<Transport>,
    pub(super) codec: Box<dyn Codec>,
    /// Bytes to send. Those before `sent` have been sent.
    pub(super) out: Vec<u8>,
    pub(super) sent: usize,
    /// Requests taken from the schedule that haven't begun.
    pub(super) next: VecDeque<Pending>,
    pub(super) is_resting: bool,
    /// Whether it is in the worker's queue of connections with room.
    pub(super) is_in_line: bool,
    /// Number of answers since it was opened.
    pub(super) answers: u64,
    /// Consecutive connections without an answer.
    pub(super) failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Closed,
    /// Opening, since this time.
    Opening(Instant),
    Open,
    /// All requests have been answered and the server is to close, since this time.
    Ending(Instant),
}

impl Connection {
    pub(super) fn new(load: &HttpLoad) -> Self {
        let codec: Box<dyn Codec> = match load.protocol {
            Protocol::Http1 { pipelining } => Box::new(H1::new(pipelining)),
            Protocol::Http2 { streams } => Box::new(H2::new(streams)),
        };
        Self {
            state: State::Closed,
            transport: None,
            codec,
            out: Vec::new(),
            sent: 0,
            next: VecDeque::new(),
            is_resting: false,
            is_in_line: false,
            answers: 0,
            failures: 0,
        }
    }

    /// Number of requests that it can take now, including those in `next`.
    pub(super) fn room(&self) -> usize {
        if self.state != State::Open || self.is_resting { 0 } else { self.codec.room() }
    }

    pub(super) fn begin(&mut self, pending: Pending, prepared: &Prepared) {
        self.codec.begin(pending, prepared, &mut self.out);
    }
}
