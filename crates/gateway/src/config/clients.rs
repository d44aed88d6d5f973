//! Clients: their limits, and those that a site answers.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use message::client::is_within;

use crate::pace::{BodyLimits, PaceLimits};

/// Limits on clients. Each has a key in the configuration file.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Open client connections over all workers.
    pub connections_max: usize,
    /// One client's largest share of the connections when all are taken, in percent.
    pub client_share_percent: usize,
    /// Size of a request head: request line and header section (431).
    pub head_bytes_max: usize,
    /// Header field lines in a request (431).
    pub fields_max: usize,
    /// Size of a request target (414).
    pub target_bytes_max: usize,
    /// Size of a request body (413).
    pub body_bytes_max: u64,
    /// Time from accept or the first byte to the end of a request head (408).
    pub head_read_timeout: Duration,
    /// Time between two reads of a request body (408).
    pub body_read_timeout: Duration,
    /// Lowest rate of a request body, in bytes per second of waiting for it (408); 0: any.
    pub body_rate_min: u64,
    /// Time between two requests of a kept connection (closed without an answer).
    pub idle_timeout: Duration,
    /// Time without progress while writing a response (connection closed).
    pub write_timeout: Duration,
    /// Lowest rate of a response, in bytes per second of waiting for the client to take it (connection closed); 0: any.
    pub write_rate_min: u64,
    /// Time without a byte in either direction of a tunnel (closed).
    pub tunnel_idle_timeout: Duration,
    /// Requests answered on one connection before it's closed.
    pub requests_per_connection_max: u64,
    /// HTTP/2: concurrent streams of a connection.
    pub http2_streams_max: u32,
    /// HTTP/2: streams that the peer may reset before they are accepted (rapid reset) until the connection is closed.
    pub http2_resets_max: usize,
    /// HTTP/2: bytes of response data that a connection holds, for all its streams, before the origin is held back.
    pub http2_send_buffer_bytes_max: usize,
    /// Responses compressed at the same time; more are sent uncompressed.
    pub compressions_max: usize,
}

impl ClientLimits {
    /// Maximum number of connections of one client when all are taken.
    pub(crate) fn connections_of_client_max(&self) -> usize {
        self.connections_max.saturating_mul(self.client_share_percent).div_ceil(100).max(1)
    }

    /// Maximum number of responses compressed for one client at the same time.
    pub(crate) fn compressions_of_client_max(&self) -> usize {
        self.compressions_max.saturating_mul(self.client_share_percent).div_ceil(100).max(1)
    }

    /// Limits on request bodies where no rule sets any.
    pub(crate) fn body_limits(&self) -> BodyLimits {
        BodyLimits {
            bytes_max: self.body_bytes_max,
            pace: PaceLimits { stall_max: self.body_read_timeout, rate_min: self.body_rate_min },
            answered_idle_max: self.tunnel_idle_timeout,
        }
    }

    /// Limits on slow readers of a response.
    pub(crate) fn write_pace(&self) -> PaceLimits {
        PaceLimits { stall_max: self.write_timeout, rate_min: self.write_rate_min }
    }
}

/// Clients that a site answers, by their address.
#[derive(Clone, Debug, Default)]
pub struct ClientRules {
    /// When not empty, no other clients are answered.
    pub allowed: Vec<IpNet>,
    /// Never answered, even if allowed.
    pub denied: Vec<IpNet>,
}

impl ClientRules {
    /// Whether all clients are answered, so that the address doesn't matter.
    pub(crate) fn are_open(&self) -> bool {
        self.allowed.is_empty() && self.denied.is_empty()
    }

    /// Whether a client is answered.
    pub(crate) fn admit(&self, client: IpAddr) -> bool {
        !is_within(&self.denied, client) && (self.allowed.is_empty() || is_within(&self.allowed, client))
    }
}
