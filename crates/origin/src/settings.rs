//! Origin servers: where they are, how they are reached, and what is limited.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// An origin: where requests of a site go, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginConfig {
    /// Unique name, for metrics and logs.
    pub name: String,
    /// The servers, any of which can answer; at least one, and at least one that takes requests.
    pub servers: Vec<ServerConfig>,
    /// Which of them gets a request.
    pub balance: Balance,
    /// How a server's share grows after it was out.
    pub slow_start: Duration,
    /// When a failed request is sent to another server.
    pub retries: RetryConfig,
    /// When a server is left out because of failures; absent: never.
    pub ejection: Option<EjectionConfig>,
    /// How servers are checked while nobody asks; absent: they aren't.
    pub health: Option<HealthConfig>,
    /// When nothing is sent to it for a while; absent: never.
    pub breaker: Option<BreakerConfig>,
    /// Path put before every forwarded path (from the URL); empty or starts with `/` and does not end with it.
    pub base_path: String,
    /// `Host` sent; absent: the client's.
    pub host_override: Option<http::HeaderValue>,
    /// Header fields set on every forwarded request, over the client's.
    pub fixed_fields: Vec<(http::HeaderName, http::HeaderValue)>,
    /// Credentials sent in `Authorization`, over the client's. Never logged.
    pub credentials: Option<Credentials>,
    /// Interim (1xx) responses that it may send before each response.
    pub interim_responses_max: u32,
    /// What may go on with it at the same time.
    pub admission: AdmissionConfig,
}

/// One of the servers of an origin.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// How it is reached.
    pub endpoint: EndpointConfig,
    /// Its share of the requests, to the sum of all; 0 drains it: no new requests, and it keeps those it has.
    pub weight: u32,
}

/// How the server for a request is picked among those that take requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// One after the other, each as often as its weight says, the turns of one spread over the round.
    RoundRobin,
    /// The one with the fewest requests in flight, by weight; among equals one after the other.
    LeastRequests,
    /// Of two by chance, the one with fewer requests in flight, by weight.
    PowerOfTwo,
    /// By cache key: one URL always goes to the same server, and when a server goes, only its URLs move.
    ConsistentHash,
}

impl Balance {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::RoundRobin, Self::LeastRequests, Self::PowerOfTwo, Self::ConsistentHash];

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::LeastRequests => "least-requests",
            Self::PowerOfTwo => "power-of-two",
            Self::ConsistentHash => "consistent-hash",
        }
    }
}

/// When a failed request is sent to another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// Servers that a request is sent to, the first included; 1 turns retries off.
    pub attempts_max: usize,
    /// Retries within 10 s, in percent of the requests within that time.
    pub budget_percent: u32,
    /// Retries a second that are allowed beside that.
    pub budget_per_second_min: u32,
}

/// When a server is left out because of how its requests ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EjectionConfig {
    /// So many failures in a row.
    pub failures: u32,
    /// How long the first ejection is; each one after it is twice as long.
    pub duration: Duration,
    /// How long any is at most.
    pub duration_max: Duration,
    /// How many servers may be out, in percent, rounded up; one always stays.
    pub servers_percent_max: usize,
    /// Which responses are failures.
    pub statuses: Statuses,
}

/// How servers are checked in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthConfig {
    /// What is asked for, with GET.
    pub path: String,
    /// From one check to the next.
    pub interval: Duration,
    /// How long a check may take; no longer than the interval.
    pub timeout: Duration,
    /// Failed checks in a row that make a server unhealthy.
    pub unhealthy_after: u32,
    /// Passed checks in a row that make it healthy again.
    pub healthy_after: u32,
    /// Which responses pass.
    pub statuses: Statuses,
}

/// When nothing is sent to an origin for a while, because most requests to it fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerConfig {
    /// When it opens, and for how long.
    pub settings: breaker::Settings,
    /// Which responses are failures.
    pub statuses: Statuses,
}

/// A set of status codes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statuses(Vec<RangeInclusive<u16>>);

impl Statuses {
    /// All that are in one of these ranges.
    #[must_use]
    pub fn new(ranges: Vec<RangeInclusive<u16>>) -> Self {
        Self(ranges)
    }

    /// Whether it is one of them.
    #[must_use]
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }
}

/// A server, and how it is reached. Connections to it are as good for any other configuration that says the same here: they
/// are kept over a reload that changes other things.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointConfig {
    /// Where it listens.
    pub address: OriginAddress,
    /// Which HTTP version is spoken.
    pub protocol: OriginProtocol,
    /// TLS towards the origin; absent means cleartext.
    pub tls: Option<OriginTls>,
    /// Local address that connections are made from.
    pub local_address: Option<IpAddr>,
    /// Which resolved addresses are tried.
    pub address_family: AddressFamily,
    /// Connections kept.
    pub pool: PoolConfig,
}

/// As its URL says it, without a path.
impl fmt::Display for EndpointConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        match &self.address {
            OriginAddress::Tcp { host, port } if host.contains(':') => {
                write!(f, "{scheme}://[{host}]:{port}")
            }
            OriginAddress::Tcp { host, port } => write!(f, "{scheme}://{host}:{port}"),
            OriginAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Where an origin listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginAddress {
    /// Host name or address, and port.
    Tcp {
        /// Name (resolved again when its TTL ends) or address literal.
        host: String,
        /// Port.
        port: u16,
    },
    /// Unix socket.
    Unix(PathBuf),
}

/// Which HTTP version is spoken to an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 (prior knowledge in cleartext).
    Http2,
    /// With TLS: what ALPN agrees on; in cleartext HTTP/1.1.
    Auto,
}

/// TLS towards an origin.
#[derive(Clone, Debug)]
pub struct OriginTls {
    /// Server name for SNI and verification; absent: the endpoint's host.
    pub server_name: Option<String>,
    /// The client configuration: roots (system or custom CA), client certificate, ALPN.
    pub client: Arc<rustls::ClientConfig>,
    /// Changes when anything that went into `client` changes, so that a reload can tell equal from unequal.
    pub fingerprint: u64,
}

impl PartialEq for OriginTls {
    fn eq(&self, other: &Self) -> bool {
        (&self.server_name, self.fingerprint) == (&other.server_name, other.fingerprint)
    }
}

/// Credentials for the `Authorization` field.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials(pub http::HeaderValue);

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(hidden)")
    }
}

/// Which resolved addresses are tried, in the order that the resolver gave them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFamily {
    /// IPv4 and IPv6.
    Any,
    /// IPv4 only.
    Ipv4,
    /// IPv6 only.
    Ipv6,
}

/// Limits on the idle connections to a server. All are global over the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Idle connections kept; 0 closes each connection after its response (keep-alive off).
    pub idle_connections_max: usize,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
}

/// Limits on what goes on with an origin at the same time. All are global over the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// Requests in flight; more wait in the queue.
    pub requests_in_flight_max: usize,
    /// Requests that wait for a place; more are answered 503.
    pub queue_max: usize,
    /// Longest wait in the queue (503).
    pub queue_timeout: Duration,
    /// Exchanges whose request content comes, and as many whose response goes out, at the pace of a client.
    pub transfers_max: usize,
    /// Tunnels (101) open at the same time; more are answered 503.
    pub tunnels_max: usize,
    /// What one client may have of each of these, in percent.
    pub client_share_percent: usize,
}

/// Time limits towards an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginTimeouts {
    /// Name resolution, TCP connection and TLS handshake together.
    pub connect: Duration,
    /// From the request's end to the response head.
    pub first_byte: Duration,
    /// Between two pieces of the response body.
    pub between_bytes: Duration,
    /// The whole exchange; absent means unlimited (streams).
    pub total: Option<Duration>,
}
