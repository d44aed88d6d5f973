//! Origin servers: where they are, how they are reached, and what is limited.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// One origin server. Two equal configurations share one connection pool, also across reloads.
#[derive(Clone, Debug)]
pub struct OriginConfig {
    /// Unique name, for metrics and logs.
    pub name: String,
    /// Where it listens.
    pub endpoint: OriginEndpoint,
    /// Path put before every forwarded path (from the URL); empty or starts with `/` and does not end with it.
    pub base_path: String,
    /// Which HTTP version is spoken.
    pub protocol: OriginProtocol,
    /// TLS towards the origin; absent means cleartext.
    pub tls: Option<OriginTls>,
    /// `Host` sent; absent: the client's.
    pub host_override: Option<http::HeaderValue>,
    /// Header fields set on every forwarded request, over the client's.
    pub fixed_fields: Vec<(http::HeaderName, http::HeaderValue)>,
    /// Credentials sent in `Authorization`, over the client's. Never logged.
    pub credentials: Option<Credentials>,
    /// Local address that connections are made from.
    pub local_address: Option<IpAddr>,
    /// Which resolved addresses are tried.
    pub address_family: AddressFamily,
    /// Connections kept and requests in flight.
    pub pool: PoolConfig,
}

/// Where an origin listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginEndpoint {
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

/// Credentials for the `Authorization` field.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials(pub http::HeaderValue);

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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

/// Limits on an origin's connections. All are global over the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Idle connections kept; 0 closes each connection after its response (keep-alive off).
    pub idle_connections_max: usize,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
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

impl PartialEq for OriginConfig {
    fn eq(&self, other: &Self) -> bool {
        let tls = |config: &Self| config.tls.as_ref().map(|tls| (tls.server_name.clone(), tls.fingerprint));
        (&self.name, &self.endpoint, &self.base_path, self.protocol, tls(self))
            == (&other.name, &other.endpoint, &other.base_path, other.protocol, tls(other))
            && (&self.host_override, &self.fixed_fields, &self.credentials)
                == (&other.host_override, &other.fixed_fields, &other.credentials)
            && (self.local_address, self.address_family, self.pool)
                == (other.local_address, other.address_family, other.pool)
    }
}
