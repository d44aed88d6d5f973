//! Settings of origins: addresses, protocols, limits.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// An origin, to which the requests of a site are forwarded.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginConfig {
    /// Unique name, for metrics and logs.
    pub name: String,
    /// The servers, any of which can answer; at least one, and at least one with a weight above 0.
    pub servers: Vec<ServerConfig>,
    /// Method of picking the server for a request.
    pub balance: Balance,
    /// Time over which the share of a returning server grows.
    pub slow_start: Duration,
    /// Retries on other servers.
    pub retries: RetryConfig,
    /// Rules for ejecting failing servers; `None` disables ejection.
    pub ejection: Option<EjectionConfig>,
    /// Active checks of the servers, if any.
    pub health: Option<HealthConfig>,
    /// Circuit breaker, if any.
    pub breaker: Option<BreakerConfig>,
    /// Prefix of every forwarded path (from the URL); it is empty, or starts with `/` and does not end with it.
    pub base_path: String,
    /// `Host` sent; absent: the client's.
    pub host_override: Option<http::HeaderValue>,
    /// Header fields set on every forwarded request, over the client's.
    pub fixed_fields: Vec<(http::HeaderName, http::HeaderValue)>,
    /// Credentials sent in `Authorization`, over the client's. Never logged.
    pub credentials: Option<Credentials>,
    /// Interim (1xx) responses allowed before each response.
    pub interim_responses_max: u32,
    /// Limits on concurrent exchanges.
    pub admission: AdmissionConfig,
}

/// One of the servers of an origin.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Address, protocol and connections.
    pub endpoint: EndpointConfig,
    /// Share of the requests, relative to the sum of all; 0 drains the server: it gets no new requests, and finishes those in
    /// flight.
    pub weight: u32,
}

/// Method of picking among the servers that accept requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Round robin by weight, with the turns of a server spread over the round.
    RoundRobin,
    /// The server with the fewest requests in flight, by weight; round robin among equals.
    LeastRequests,
    /// The server with fewer requests in flight, by weight, among two random servers.
    PowerOfTwo,
    /// By cache key: one URL always goes to the same server, and if a server is removed, only its URLs move.
    ConsistentHash,
}

impl Balance {
    /// All methods.
    pub const ALL: [Self; 4] =
        [Self::RoundRobin, Self::LeastRequests, Self::PowerOfTwo, Self::ConsistentHash];

    /// Returns the name in the configuration.
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

/// Retries of failed requests on other servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// Maximum number of servers that a request is sent to, including the first; 1 disables retries.
    pub attempts_max: usize,
    /// Maximum number of retries within 10 s, in percent of the requests within that time.
    pub budget_percent: u32,
    /// Number of retries per second that are allowed in addition to the percentage.
    pub budget_per_second_min: u32,
}

/// Rules for ejecting a server because of its failures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EjectionConfig {
    /// Consecutive failures that eject a server.
    pub failures: u32,
    /// Length of the first ejection; each further one is twice as long.
    pub duration: Duration,
    /// Maximum length of an ejection.
    pub duration_max: Duration,
    /// Maximum share of ejected servers, in percent, rounded up; one server always stays.
    pub servers_percent_max: usize,
    /// Statuses that count as failures.
    pub statuses: Statuses,
}

/// Active checks of servers in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthConfig {
    /// Path and query requested with GET.
    pub path: String,
    /// Time from one check to the next.
    pub interval: Duration,
    /// Time limit for a check; no longer than the interval.
    pub timeout: Duration,
    /// Consecutive failed checks that make a server unhealthy.
    pub unhealthy_after: u32,
    /// Consecutive passed checks that make it healthy again.
    pub healthy_after: u32,
    /// Statuses that pass.
    pub statuses: Statuses,
}

/// Circuit breaker: sends no requests to an origin for a while if most requests to it fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerConfig {
    /// Thresholds and times.
    pub settings: breaker::Settings,
    /// Statuses that count as failures.
    pub statuses: Statuses,
}

/// A set of status codes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statuses(Vec<RangeInclusive<u16>>);

impl Statuses {
    /// Creates a set of all statuses in these ranges.
    #[must_use]
    pub fn new(ranges: Vec<RangeInclusive<u16>>) -> Self {
        Self(ranges)
    }

    /// Returns whether a status is in the set.
    #[must_use]
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }
}

/// Address of a server, and settings of the connections to it. Configurations that are equal here share connections: the
/// connections are kept across a reload that changes only other settings.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointConfig {
    /// Address.
    pub address: OriginAddress,
    /// HTTP version.
    pub protocol: OriginProtocol,
    /// TLS towards the origin; absent for cleartext.
    pub tls: Option<OriginTls>,
    /// Local address of connections.
    pub local_address: Option<IpAddr>,
    /// Address families to use.
    pub address_family: AddressFamily,
    /// Limits on idle connections.
    pub pool: PoolConfig,
}

/// Formats the URL of the server, without a path.
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

/// Address of an origin server.
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

/// HTTP version towards an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 (prior knowledge in cleartext).
    Http2,
    /// With TLS, the protocol chosen by ALPN; in cleartext, HTTP/1.1.
    Auto,
}

/// TLS towards an origin.
#[derive(Clone, Debug)]
pub struct OriginTls {
    /// Server name for SNI and verification; absent: the endpoint's host.
    pub server_name: Option<String>,
    /// The client configuration: roots (system or custom CA), client certificate, ALPN.
    pub client: Arc<rustls::ClientConfig>,
    /// A hash of all inputs of `client`, so that a reload can compare configurations.
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

/// Resolved addresses to try, in the order of the resolver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFamily {
    /// IPv4 and IPv6.
    Any,
    /// IPv4 only.
    Ipv4,
    /// IPv6 only.
    Ipv6,
}

/// Limits on the idle connections to a server. All are shared by all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Maximum number of idle connections; 0 closes each connection after its response (keep-alive off).
    pub idle_connections_max: usize,
    /// Time for which an idle connection is kept.
    pub idle_timeout: Duration,
}

/// Limits on concurrent exchanges with an origin. All are shared by all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// Maximum number of requests in flight; further ones wait in the queue.
    pub requests_in_flight_max: usize,
    /// Maximum number of queued requests; further ones are answered with 503.
    pub queue_max: usize,
    /// Maximum wait in the queue, followed by a 503.
    pub queue_timeout: Duration,
    /// Maximum number of exchanges whose request content arrives at the pace of a client, and of exchanges whose response
    /// leaves at that pace.
    pub transfers_max: usize,
    /// Maximum number of concurrent tunnels (101); further ones are answered with 503.
    pub tunnels_max: usize,
    /// Maximum share of one client in each of these limits, in percent.
    pub client_share_percent: usize,
}

/// Time limits towards an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginTimeouts {
    /// Time for name resolution, TCP connection and TLS handshake together.
    pub connect: Duration,
    /// Time from the end of the request to the response head.
    pub first_byte: Duration,
    /// Time between two pieces of the response body.
    pub between_bytes: Duration,
    /// Time for the whole exchange; `None` for no limit (streams).
    pub total: Option<Duration>,
}

/// Maximum number of header field lines in a response.
pub const FIELDS_MAX: usize = 200;
/// Maximum size of a response head, in bytes.
pub const HEAD_BYTES_MAX: usize = 128 * 1024;
/// Maximum size, in bytes, of a piece of content that isn't charged to the budget. Each exchange has at most one such piece;
/// the memory that the process needs in addition to the budget covers them.
pub const UNCHARGED_PIECE_BYTES_MAX: usize = 16 * 1024 + 1;
/// Size of the buffer for reading a large body, in bytes.
pub(crate) const INPUT_BYTES_MAX: usize = 128 * 1024;
/// Maximum number of bytes of a body that are charged in transit: the buffer of a read, and the piece from an earlier read.
pub const ARRIVING_BYTES_MAX: usize = 2 * INPUT_BYTES_MAX;
