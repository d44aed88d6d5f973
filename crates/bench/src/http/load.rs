//! The settings of a load: requests, servers, rate and duration.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

pub use crate::drive::{Pace, Reuse, Until};

use super::LoadError;

/// A load on an HTTP server.
#[derive(Clone, Debug)]
pub struct HttpLoad {
    /// At least one target, all on one server.
    pub targets: Vec<Target>,
    pub order: Order,
    pub protocol: Protocol,
    pub tls: TlsSettings,
    /// Concurrent connections of all threads together. At least one per thread.
    pub connections: usize,
    /// Generator threads.
    pub threads: usize,
    pub reuse: Reuse,
    pub pace: Pace,
    pub until: Until,
    /// The same load before the measured one. Its figures are dropped and its connections closed.
    pub warm_up: Option<Until>,
    /// Time limit for a complete answer, after which the request and its connection are abandoned.
    pub timeout: Duration,
    /// Random pause of a connection before each request. Only with [`Pace::Closed`].
    pub think: Option<RangeInclusive<Duration>>,
    pub detail: Detail,
    /// Seed of [`Order::Random`] and of think times.
    pub seed: u64,
}

impl HttpLoad {
    /// Creates a closed loop on one connection for ten seconds. Callers then change its fields.
    #[must_use]
    pub fn of(targets: Vec<Target>) -> Self {
        Self {
            targets,
            order: Order::InTurn,
            protocol: Protocol::Http1 { pipelining: 1 },
            tls: TlsSettings::default(),
            connections: 1,
            threads: 1,
            reuse: Reuse::KeepAlive,
            pace: Pace::Closed,
            until: Until::Elapsed(Duration::from_secs(10)),
            warm_up: None,
            timeout: Duration::from_secs(30),
            think: None,
            detail: Detail::Total,
            seed: 1,
        }
    }

    /// Creates a load with a `GET` of each URL.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError::BadUrl`] if a URL isn't an absolute `http` or `https` URL.
    pub fn of_urls<T: AsRef<str>>(urls: &[T]) -> Result<Self, LoadError> {
        urls.iter().map(|url| Target::at(url.as_ref())).collect::<Result<_, _>>().map(Self::of)
    }
}

/// A request that is sent repeatedly.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    pub url: Url,
    pub method: String,
    /// Sent after `Host` and before `Content-Length`. A `Host` here replaces that of the URL.
    pub fields: Vec<(String, String)>,
    pub body: Bytes,
    /// Expected status; any other is a wrong answer. `None` accepts any status.
    pub status: Option<u16>,
}

impl Target {
    /// Creates a `GET` of a URL.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError::BadUrl`] if it isn't an absolute `http` or `https` URL.
    pub fn at(url: &str) -> Result<Self, LoadError> {
        Ok(Self {
            url: Url::parse(url)?,
            method: "GET".into(),
            fields: Vec::new(),
            body: Bytes::new(),
            status: None,
        })
    }
}

/// The parts of an absolute `http` or `https` URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Url {
    pub scheme: Scheme,
    /// As in the URL, with the brackets of an IPv6 address.
    pub host: String,
    pub port: u16,
    /// Path and query. At least `/`.
    pub path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl Url {
    /// Parses a URL. A fragment is dropped.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError::BadUrl`] if it isn't an absolute `http` or `https` URL.
    pub fn parse(text: &str) -> Result<Self, LoadError> {
        let bad = |why: String| LoadError::BadUrl { url: text.into(), why };
        let uri: http::Uri = text.parse().map_err(|error| bad(format!("{error}")))?;
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            Some(other) => return Err(bad(format!("its scheme is {other}; expected http or https"))),
            None => return Err(bad("it must begin with http:// or https://".into())),
        };
        let authority = uri.authority().ok_or_else(|| bad("it names no host".into()))?;
        if authority.as_str().contains('@') {
            return Err(bad("it has a user name; send an Authorization field instead".into()));
        }
        if authority.host().is_empty() {
            return Err(bad("it names no host".into()));
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') { path.into() } else { format!("/{path}") };
        let port = authority.port_u16().unwrap_or_else(|| scheme.port());
        Ok(Self { scheme, host: authority.host().into(), port, path })
    }

    /// The host, with the port unless it is the scheme's default.
    #[must_use]
    pub fn authority(&self) -> String {
        if self.port == self.scheme.port() {
            self.host.clone()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}{}", self.scheme.name(), self.authority(), self.path)
    }
}

/// Order of the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    InTurn,
    /// Each target with equal probability, in the same sequence for the same seed.
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A connection has at most `pipelining` unanswered requests.
    Http1 { pipelining: usize },
    /// A connection has at most `streams` unanswered requests. Without TLS, uses prior knowledge.
    Http2 { streams: usize },
}

impl Protocol {
    /// Maximum number of unanswered requests of a connection.
    #[must_use]
    pub fn depth(self) -> usize {
        match self {
            Self::Http1 { pipelining } => pipelining,
            Self::Http2 { streams } => streams,
        }
    }
}

/// TLS settings for `https` targets.
#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    pub trust: Trust,
    /// Name for SNI and verification, instead of the URL's host.
    pub server_name: Option<String>,
    pub session: Session,
}

/// Accepted certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Certificates issued by the system's authorities.
    #[default]
    System,
    /// Certificates issued by the authorities in this PEM file.
    File(PathBuf),
    /// All certificates. For test servers.
    Anyone,
}

/// Whether new connections resume the TLS session of an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Session {
    #[default]
    Resumed,
    AlwaysNew,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    Total,
    /// The totals and the figures of each URL, which take about 30 KiB per URL and thread.
    PerUrl,
}
