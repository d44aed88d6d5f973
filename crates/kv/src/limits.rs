//! What connections may take.

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
    /// Bytes of messages that a client has not read (`client-output-buffer-limit pubsub`). The client is closed.
    pub mail_bytes_max: usize,
    /// As many as this may wait for a short time only: for `mail_patience`. None at all if zero.
    pub mail_bytes_soft: usize,
    pub mail_patience: Duration,
    /// Bytes that requests and replies of all clients take together (`maxmemory-clients`). The client that has most is closed.
    pub buffers_bytes_max: usize,
}

impl Default for Limits {
    /// 10,000 clients, no time limit, 300 s of silence, requests of 1 GiB, messages of 32 MiB, or 8 MiB for 60 s, as Redis has them; 1 GiB for all
    /// clients together.
    fn default() -> Self {
        Self {
            clients_max: 10_000,
            idle: Duration::ZERO,
            keepalive: Duration::from_secs(300),
            query_bytes_max: 1 << 30,
            mail_bytes_max: 32 << 20,
            mail_bytes_soft: 8 << 20,
            mail_patience: Duration::from_secs(60),
            buffers_bytes_max: 1 << 30,
        }
    }
}
