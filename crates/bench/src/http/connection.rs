//! One place for a connection: while the load runs it is filled again and again.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use super::codec::Codec;
use super::exchange::Pending;
use super::h1::H1;
use super::h2::H2;
use super::load::{HttpLoad, Protocol, Revisit};
use super::prepare::Prepared;
use super::response::Tags;
use super::transport::Transport;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    pub(super) transport: Option<Transport>,
    pub(super) codec: Box<dyn Codec>,
    /// What is still to be sent, from `sent` on.
    pub(super) out: Vec<u8>,
    pub(super) sent: usize,
    /// Taken from the schedule, and not yet begun.
    pub(super) next: VecDeque<Pending>,
    pub(super) is_resting: bool,
    /// Stands in the worker's line of connections with room.
    pub(super) is_in_line: bool,
    pub(super) log: Log,
    /// Connections in a row that brought no answer.
    pub(super) failures: u32,
}

/// What came of its requests.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Since it was opened.
    pub(super) answers: u64,
    /// The entity tag that came last for each request; empty unless they are asked for.
    pub(super) tags: HashMap<usize, Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Closed,
    /// Since when.
    Opening(Instant),
    Open,
    /// Answered for good; the server is to close, since when.
    Ending(Instant),
}

impl Connection {
    pub(super) fn new(load: &HttpLoad) -> Self {
        let tags = if load.revisit == Revisit::Conditional { Tags::Kept } else { Tags::Ignored };
        let codec: Box<dyn Codec> = match load.protocol {
            Protocol::Http1 { pipelining } => Box::new(H1::new(pipelining, tags)),
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
            log: Log::default(),
            failures: 0,
        }
    }

    /// How many requests it takes now, those in its own line included.
    pub(super) fn room(&self) -> usize {
        if self.state != State::Open || self.is_resting { 0 } else { self.codec.room() }
    }

    pub(super) fn begin(&mut self, pending: Pending, prepared: &Prepared) {
        let tag = self.log.tags.get(&pending.request).map(Vec::as_slice);
        self.codec.begin(pending, prepared, tag, &mut self.out);
    }
}
