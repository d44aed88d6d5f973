//! One request and its answer, as the connection's protocols and the tally speak of them.

use std::time::Instant;

/// A request that was taken from the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    /// Which of the plan's requests.
    pub(super) request: usize,
    /// From when its latency counts: when it was due, or when its turn came.
    pub(super) since: Instant,
    /// When it was handed to its connection: from here the time limit counts.
    pub(super) sent: Instant,
}

/// What came for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Status(u16),
    /// The server took the request back alone, and kept the connection (HTTP/2).
    Reset,
}

/// Receives answers as they come out of a connection's bytes.
pub(super) trait Sink {
    fn answered(&mut self, pending: Pending, answer: Answer);

    /// The first byte of a response has come, be it an interim one.
    fn first_byte(&mut self, pending: Pending);

    /// The entity tag of the answer that is told next; only where they are asked for.
    fn entity_tag(&mut self, _request: usize, _tag: &[u8]) {}
}

/// Bytes that are not the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

/// Whether a connection may be used after what it received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    GoOn,
    /// No further request; what still waits is lost.
    Close,
}
