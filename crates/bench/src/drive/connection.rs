//! A connection slot, which is reused for new connections during the load.

use std::collections::VecDeque;
use std::time::Instant;

use super::transport::Transport;
use super::{Codec, Pending};

#[derive(Debug)]
pub(super) struct Connection<C: ?Sized> {
    pub(super) state: State,
    pub(super) transport: Option<Transport>,
    pub(super) codec: Box<C>,
    /// Output of the connection. The first `sent` bytes have been sent.
    pub(super) out: Vec<u8>,
    pub(super) sent: usize,
    /// Requests taken from the schedule that haven't begun.
    pub(super) next: VecDeque<Pending>,
    pub(super) is_resting: bool,
    /// Whether the connection is in the worker's queue of connections that can take a request.
    pub(super) is_in_line: bool,
    /// Number of requests answered since the connection was opened.
    pub(super) answered: u64,
    /// Number of consecutive connections without an answer.
    pub(super) failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Closed,
    /// The connection has been opening since this time.
    Opening(Instant),
    Open,
    /// All requests have been answered, and the client has been waiting since this time for the server to close.
    Ending(Instant),
}

impl<C: Codec + ?Sized> Connection<C> {
    pub(super) fn new(codec: Box<C>) -> Self {
        Self {
            state: State::Closed,
            transport: None,
            codec,
            out: Vec::new(),
            sent: 0,
            next: VecDeque::new(),
            is_resting: false,
            is_in_line: false,
            answered: 0,
            failures: 0,
        }
    }

    /// Number of requests that the connection can take now, including those in `next`.
    pub(super) fn room(&self) -> usize {
        if self.state != State::Open || self.is_resting { 0 } else { self.codec.room() }
    }
}
