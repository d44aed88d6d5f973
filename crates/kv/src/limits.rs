//! What connections may take.

use std::fmt;
use std::time::Duration;

/// Limits of connections. Each can be changed while they are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once, of all workers. More are told so and closed (`maxclients`).
    pub clients_max: usize,
    /// Clients that say nothing for so long are closed (`timeout`); none if zero.
    pub idle: Duration,
    /// How long a connection is silent before the kernel asks whether its client is there (`tcp-keepalive`); never if zero.
    pub keepalive: Duration,
    /// Bytes of a request that is not complete (`client-query-buffer-limit`). The client is closed.
    pub query_bytes_max: usize,
    /// Messages that a subscriber has not read (`client-output-buffer-limit pubsub`).
    pub messages: OutputLimit,
    /// Replies that another client has not read (`client-output-buffer-limit normal`).
    pub replies: OutputLimit,
    /// What requests and replies of all clients take together (`maxmemory-clients`). The client that has most is closed.
    pub buffers_max: BuffersLimit,
    /// Clients that have given no password, where one is needed, or not finished the handshake of TLS, are closed after so long; none if zero.
    pub auth: Duration,
    /// How many of those there are at once. The oldest is closed for a new one.
    pub strangers_max: usize,
}

/// What the buffers of all clients may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuffersLimit {
    /// No limit if zero.
    Bytes(usize),
    /// Of `maxmemory`, as it is at the time; no limit where that has none.
    Percent(u8),
}

/// What a client may leave unread. It is closed otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// At once; no limit if zero.
    pub bytes_max: usize,
    /// For so long as `patience` says; no limit if zero.
    pub bytes_soft: usize,
    pub patience: Duration,
}

impl Limits {
    /// What all buffers together may take, where so much may be stored.
    pub(crate) fn buffers_bytes_max(&self, maxmemory: u64) -> usize {
        match self.buffers_max {
            BuffersLimit::Bytes(0) => usize::MAX,
            BuffersLimit::Bytes(bytes) => bytes,
            BuffersLimit::Percent(_) if maxmemory == u64::MAX => usize::MAX,
            BuffersLimit::Percent(percent) => {
                // Each turn asks: two quick divisions in place of one of 128 bits.
                let percent = u64::from(percent);
                let bytes = maxmemory / 100 * percent + maxmemory % 100 * percent / 100;
                usize::try_from(bytes).unwrap_or(usize::MAX).max(BUFFERS_BYTES_LEAST)
            }
        }
    }
}

/// A small part of a small memory would leave nobody enough to change it again; Redis has the same.
const BUFFERS_BYTES_LEAST: usize = 128 << 10;

impl fmt::Display for BuffersLimit {
    /// As CONFIG GET tells it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl Default for Limits {
    /// 10,000 clients, no time limit, 300 s of silence, requests of 1 GiB, messages of 32 MiB, or 8 MiB for 60 s, as Redis has them; 1 GiB for all
    /// clients together. 1,000 clients without a password, for a minute each, as PostgreSQL has it: time to type one.
    fn default() -> Self {
        Self {
            clients_max: 10_000,
            idle: Duration::ZERO,
            keepalive: Duration::from_secs(300),
            query_bytes_max: 1 << 30,
            messages: OutputLimit {
                bytes_max: 32 << 20,
                bytes_soft: 8 << 20,
                patience: Duration::from_secs(60),
            },
            replies: OutputLimit::default(),
            buffers_max: BuffersLimit::Bytes(1 << 30),
            auth: Duration::from_secs(60),
            strangers_max: 1_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_goes_with_the_memory() {
        let check = |buffers_max, maxmemory, expected| {
            let limits = Limits { buffers_max, ..Limits::default() };
            assert_eq!(limits.buffers_bytes_max(maxmemory), expected, "{buffers_max} of {maxmemory}");
        };
        check(BuffersLimit::Bytes(0), 1 << 30, usize::MAX);
        check(BuffersLimit::Bytes(7), 1 << 30, 7);
        check(BuffersLimit::Percent(5), 100 << 20, 5 << 20);
        check(BuffersLimit::Percent(100), 1 << 40, 1 << 40);
        check(BuffersLimit::Percent(1), 4 << 20, BUFFERS_BYTES_LEAST);
        check(BuffersLimit::Percent(5), u64::MAX, usize::MAX);
    }
}
