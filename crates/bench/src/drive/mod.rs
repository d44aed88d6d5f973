//! The loop that generates a load: connections to one server, requests that become due, and their counts.
//!
//! Each thread runs a [`Worker`], one loop over non-blocking sockets. A [`Side`] is a kind of load: it writes requests and counts
//! their answers. It never touches a socket. A request here is one unit of work for a connection: an HTTP request, or a batch of
//! Redis-protocol commands that are written together.

mod alarm;
mod connection;
mod counts;
mod pace;
mod tickets;
mod transport;
mod work;
mod worker;

use std::fmt::Debug;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

pub(crate) use counts::Counts;
pub(crate) use pace::broken;
pub use pace::{Pace, Reuse, Until};
pub(crate) use tickets::{Tickets, scramble};
pub(crate) use work::{Worked, on_threads};
pub(crate) use worker::{Opened, Worker};

use crate::http::Tls;

/// Settings of a worker's load.
#[derive(Clone, Debug)]
pub(crate) struct Conduct {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<Tls>,
    /// Number of connections of this worker.
    pub(crate) connections: usize,
    pub(crate) reuse: Reuse,
    pub(crate) until: Until,
    pub(crate) timeout: Duration,
    pub(crate) think: Option<RangeInclusive<Duration>>,
    /// Seed of think times.
    pub(crate) seed: u64,
}

/// A kind of load, on one worker.
pub(crate) trait Side: Send {
    type Codec: Codec + ?Sized;

    /// Whether the client closes a connection after its only request. If not, the server closes it.
    const CLOSES: bool;

    /// The protocol of a new connection.
    fn codec(&self) -> Box<Self::Codec>;

    /// Chooses the request for a position in the schedule.
    fn choose(&mut self, place: u64) -> Choice;

    /// Appends a request to the output.
    fn begin(&mut self, codec: &mut Self::Codec, pending: Pending, out: &mut Vec<u8>);

    /// Parses received bytes, and counts the answers in them. Appends any reply that the protocol requires to the output.
    fn receive(
        &mut self,
        codec: &mut Self::Codec,
        input: &[u8],
        arrival: &mut Arrival<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Then, Malformed>;

    /// Handles the end of the connection by the server, which may also complete an answer.
    fn end(&mut self, _codec: &mut Self::Codec, _arrival: &mut Arrival<'_>) {}

    /// Handles a failed request. The worker counts the failure.
    fn failed(&mut self, _pending: &Pending) {}
}

/// The protocol of a connection, without the socket.
pub(crate) trait Codec: Debug + Send {
    /// Appends the opening bytes of a connection, such as a preface.
    fn open(&mut self, _out: &mut Vec<u8>) {}

    /// Returns whether requests may be sent.
    fn is_ready(&self) -> bool {
        true
    }

    /// Returns the number of requests that the connection can accept now.
    fn room(&self) -> usize;

    /// Returns the time at which the oldest pending request was sent.
    fn oldest(&self) -> Option<Instant>;

    /// Appends pending protocol bytes to the output, unless the start of a request has already done so.
    fn flush(&mut self, _out: &mut Vec<u8>) {}

    /// Returns whether a close now may be the intended close of an idle connection: no answer is partly read, and the protocol
    /// has no other signal for it.
    fn is_between(&self) -> bool {
        false
    }

    /// Resets the protocol for the next connection, and returns the unanswered requests, oldest first.
    fn give_up(&mut self) -> Vec<Pending>;
}

/// The request that a side has chosen for a position in the schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    /// Index of the request among the side's requests.
    pub(crate) request: usize,
    /// Number of expected answers: 1, or the number of commands in a batch.
    pub(crate) answers: usize,
}

/// A request that was taken from the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) request: usize,
    /// Number of outstanding answers.
    pub(crate) answers: usize,
    /// Start of its latency: the time at which it was due, or in a closed loop, the time at which it was taken.
    pub(crate) since: Instant,
    /// Time at which it was handed to its connection, from which the time limit counts.
    pub(crate) sent: Instant,
}

/// Counters to update for received bytes.
#[derive(Debug)]
pub(crate) struct Arrival<'a> {
    pub(crate) counts: &'a mut Counts,
    /// Number of requests that the connection has answered.
    pub(crate) answered: &'a mut u64,
    pub(crate) now: Instant,
}

/// A protocol violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Whether a connection can be used after the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    GoOn,
    /// The connection accepts no further requests. Pending requests are lost.
    Close,
}
