//! One request and its answer, as exchanged between protocols and tally.

use std::time::Instant;

/// A request that was taken from the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    /// Index of the request in the plan.
    pub(super) request: usize,
    /// Start of its latency: when it was due, or when its turn came.
    pub(super) since: Instant,
    /// When it was handed to its connection. The time limit starts here.
    pub(super) sent: Instant,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Status(u16),
    /// The server reset this request alone, and kept the connection (HTTP/2).
    Reset,
}

/// Receives the answers that are parsed from a connection's bytes.
pub(super) trait Sink {
    fn answered(&mut self, pending: Pending, answer: Answer);

    /// The first byte of a response has arrived, possibly of an interim one.
    fn first_byte(&mut self, pending: Pending);
}

/// The bytes violate the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

/// Whether a connection can be used after the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    GoOn,
    /// The connection takes no further request. Pending requests are lost.
    Close,
}
