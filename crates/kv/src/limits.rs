//! Limits of connections.

use std::fmt;
use std::time::Duration;

/// Limits of connections. They can change while connections are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Simultaneous connections of all workers (`maxclients`). Further clients receive an error and are
    /// closed.
    pub clients_max: usize,
    /// Idle timeout (`timeout`); zero disables it.
    pub idle: Duration,
    /// Idle time before the kernel sends keepalive probes (`tcp-keepalive`); zero disables them.
    pub keepalive: Duration,
    /// Bytes of an incomplete request (`client-query-buffer-limit`). The client is closed above it.
    pub query_bytes_max: usize,
    /// Unread messages of a subscriber (`client-output-buffer-limit pubsub`).
    pub messages: OutputLimit,
    /// Unread replies of any other client (`client-output-buffer-limit normal`).
    pub replies: OutputLimit,
    /// Requests and replies of all clients together (`maxmemory-clients`). Above it, the client with the
    /// largest buffers is closed.
    pub buffers_max: BuffersLimit,
    /// Time limit for authentication, if a password is needed, and for the TLS handshake; zero disables it.
    pub auth: Duration,
    /// Simultaneous clients that are not authenticated. If there are more, the oldest is closed.
    pub strangers_max: usize,
}

/// Limit of the buffers of all clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuffersLimit {
    /// An absolute limit; zero disables it.
    Bytes(usize),
    /// A percentage of the current `maxmemory`; no limit if `maxmemory` has none.
    Percent(u8),
}

/// Limit of unread output, above which a client is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Hard limit; zero disables it.
    pub bytes_max: usize,
    /// Soft limit, which may be exceeded for `patience`; zero disables it.
    pub bytes_soft: usize,
    pub patience: Duration,
}

impl Limits {
    /// The limit of all buffers in bytes, for this `maxmemory`.
    pub(crate) fn buffers_bytes_max(&self, maxmemory: u64) -> usize {
        match self.buffers_max {
            BuffersLimit::Bytes(0) => usize::MAX,
            BuffersLimit::Bytes(bytes) => bytes,
            BuffersLimit::Percent(_) if maxmemory == u64::MAX => usize::MAX,
            BuffersLimit::Percent(percent) => {
                // Called every turn: two 64-bit divisions are faster than one of 128 bits.
                let percent = u64::from(percent);
                let bytes = maxmemory / 100 * percent + maxmemory % 100 * percent / 100;
                usize::try_from(bytes).unwrap_or(usize::MAX).max(BUFFERS_BYTES_LEAST)
            }
        }
    }
}

/// Minimum of the limit, as in Redis. A percentage of a small `maxmemory` would leave too little even to
/// change the setting.
const BUFFERS_BYTES_LEAST: usize = 128 << 10;

impl fmt::Display for BuffersLimit {
    /// Formats the limit as CONFIG GET does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl Default for Limits {
    /// The defaults of Redis: 10,000 clients, no idle timeout, keepalive after 300 s, requests of 1 GiB,
    /// messages of 32 MiB, or 8 MiB for 60 s. Larder's own defaults: 1 GiB for all clients together, and
    /// 1,000 unauthenticated clients for a minute each. A minute is also PostgreSQL's limit, and is long
    /// enough to type a password.
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
