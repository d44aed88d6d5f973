//! Limits on clients, and the choice of clients that a site answers.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use message::client::is_within;

use crate::pace::{BodyLimits, PaceLimits};

/// Limits on clients. Each limit has a key in the configuration file.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Maximum number of open client connections of all workers together.
    pub connections_max: usize,
    /// Maximum share of the connections for one client if all are in use, in percent.
    pub client_share_percent: usize,
    /// Maximum size of a request head: request line and header section (431).
    pub head_bytes_max: usize,
    /// Maximum number of header field lines in a request (431).
    pub fields_max: usize,
    /// Maximum size of a request target (414).
    pub target_bytes_max: usize,
    /// Maximum size of a request body (413).
    pub body_bytes_max: u64,
    /// Maximum time from accept or the first byte to the end of a request head (408).
    pub head_read_timeout: Duration,
    /// Maximum time between two reads of a request body (408).
    pub body_read_timeout: Duration,
    /// Minimum rate of a request body, in bytes per second of waiting for it (408); 0: no minimum.
    pub body_rate_min: u64,
    /// Maximum time between two requests on a persistent connection (closed without an answer).
    pub idle_timeout: Duration,
    /// Maximum time without progress while writing a response (connection closed).
    pub write_timeout: Duration,
    /// Minimum rate of a response, in bytes per second of waiting for the client to read it (connection closed); 0: no minimum.
    pub write_rate_min: u64,
    /// Maximum time without a byte in either direction of a tunnel (closed).
    pub tunnel_idle_timeout: Duration,
    /// Maximum number of requests answered on one connection before it's closed.
    pub requests_per_connection_max: u64,
    /// HTTP/2: maximum number of concurrent streams of a connection.
    pub http2_streams_max: u32,
    /// HTTP/2: maximum number of streams that the peer may reset before they are accepted (rapid reset). If the peer resets more
    /// streams, the connection is closed.
    pub http2_resets_max: usize,
    /// HTTP/2: maximum number of bytes of response data that a connection buffers for all its streams; beyond it, backpressure applies
    /// to the origin.
    pub http2_send_buffer_bytes_max: usize,
    /// Maximum number of responses compressed concurrently; others are sent uncompressed.
    pub compressions_max: usize,
}

impl ClientLimits {
    /// Maximum number of connections of one client if all are in use.
    pub(crate) fn connections_of_client_max(&self) -> usize {
        self.connections_max.saturating_mul(self.client_share_percent).div_ceil(100).max(1)
    }

    /// Maximum number of responses compressed concurrently for one client.
    pub(crate) fn compressions_of_client_max(&self) -> usize {
        self.compressions_max.saturating_mul(self.client_share_percent).div_ceil(100).max(1)
    }

    /// Returns the limits on request bodies for rules that set none.
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
    /// If this list isn't empty, only these clients are answered.
    pub allowed: Vec<IpNet>,
    /// Clients that are never answered, even if allowed.
    pub denied: Vec<IpNet>,
}

impl ClientRules {
    /// Returns whether all clients are answered, so that the address doesn't matter.
    pub(crate) fn are_open(&self) -> bool {
        self.allowed.is_empty() && self.denied.is_empty()
    }

    /// Returns whether a client is answered.
    pub(crate) fn admit(&self, client: IpAddr) -> bool {
        !is_within(&self.denied, client) && (self.allowed.is_empty() || is_within(&self.allowed, client))
    }
}
