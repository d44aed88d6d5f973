//! Settings common to every kind of load: its end, its rate and its connections.

use std::fmt;
use std::time::Duration;

/// The condition that ends a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After this many requests, answered or failed.
    Requests(u64),
    Elapsed(Duration),
}

impl Until {
    /// Duration of the load, if it is known in advance.
    pub(crate) fn duration(self) -> Option<Duration> {
        match self {
            Self::Requests(_) => None,
            Self::Elapsed(duration) => Some(duration),
        }
    }
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requests(1) => write!(f, "1 request"),
            Self::Requests(requests) => write!(f, "{requests} requests"),
            Self::Elapsed(duration) => write!(f, "{} s", duration.as_secs_f64()),
        }
    }
}

/// The event that triggers the next request, or the next batch of commands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// The previous answer on the connection. A stalled server stalls the load, which hides most of the stall.
    Closed,
    /// The clock: request `i` is due `i / per_second` after the start. Its latency counts from then, whether or not a connection is free.
    Open { per_second: f64 },
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => write!(f, "closed loop"),
            Self::Open { per_second } => write!(f, "open loop at {per_second} requests/s"),
        }
    }
}

/// Whether a connection serves more than one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    KeepAlive,
    /// A connection for each request, or for each batch of commands. The latency includes the time to open it.
    OnePerRequest,
}

/// Returns an error message for invalid settings, and `None` for valid ones.
pub(crate) fn broken(
    (connections, threads): (usize, usize),
    (until, timeout): (Until, Duration),
    pace: Pace,
) -> Option<&'static str> {
    let is_rate_possible = match pace {
        Pace::Closed => true,
        Pace::Open { per_second } => (0.001..=1e8).contains(&per_second),
    };
    let broken = [
        (!(1..=65_536).contains(&connections), "connections have to be 1 to 65536"),
        (!(1..=256).contains(&threads), "threads have to be 1 to 256"),
        (threads > connections, "expected at least as many connections as threads"),
        (until == Until::Requests(0), "the number of requests has to be above zero"),
        (until == Until::Elapsed(Duration::ZERO), "the duration has to be above zero"),
        (timeout.is_zero(), "the time limit has to be above zero"),
        (!is_rate_possible, "the rate has to be 0.001 to 100000000 per second"),
    ];
    broken.iter().find(|(is_broken, _)| *is_broken).map(|(_, what)| *what)
}
