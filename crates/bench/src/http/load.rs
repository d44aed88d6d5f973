//! The settings of a load: what is asked, of whom, how often and for how long.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

pub use crate::until::Until;

use super::LoadError;

/// A load on one or more HTTP servers.
///
/// Targets of several servers share the connections, the rate and the requests among the servers.
#[derive(Clone, Debug)]
pub struct HttpLoad {
    /// At least one.
    pub targets: Vec<Target>,
    pub order: Order,
    pub protocol: Protocol,
    pub tls: TlsSettings,
    /// Open at the same time, of all threads and servers together; at least one per thread.
    pub connections: usize,
    /// Threads that generate; there are at least as many as servers.
    pub threads: usize,
    pub reuse: Reuse,
    pub pace: Pace,
    pub until: Until,
    /// The same load before the measured one; its figures are dropped, its connections closed.
    pub warm_up: Option<Until>,
    /// A request without its whole answer after this long is given up, with its connection.
    pub timeout: Duration,
    /// A connection rests for a random time of this range before each request; only with [`Pace::Closed`].
    pub think: Option<RangeInclusive<Duration>>,
    pub revisit: Revisit,
    pub detail: Detail,
    /// Of [`Order::Random`] and of think times.
    pub seed: u64,
}

impl HttpLoad {
    /// One connection per target list, as fast as answers come, for ten seconds; change the fields from here.
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
            revisit: Revisit::Plain,
            detail: Detail::Total,
            seed: 1,
        }
    }

    /// `GET` of each URL.
    ///
    /// # Errors
    ///
    /// [`LoadError::BadUrl`] for what is no absolute `http` or `https` URL.
    pub fn of_urls<T: AsRef<str>>(urls: &[T]) -> Result<Self, LoadError> {
        urls.iter().map(|url| Target::at(url.as_ref())).collect::<Result<_, _>>().map(Self::of)
    }
}

/// One request as it is made again and again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    pub url: Url,
    pub method: String,
    /// Sent after `Host` and before `Content-Length`; a `Host` here replaces that of the URL.
    pub fields: Vec<(String, String)>,
    pub body: Bytes,
    /// Another status is a wrong answer. None takes whatever comes.
    pub status: Option<u16>,
}

impl Target {
    /// `GET` of a URL.
    ///
    /// # Errors
    ///
    /// [`LoadError::BadUrl`] for what is no absolute `http` or `https` URL.
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

/// An absolute `http` or `https` URL, taken apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Url {
    pub scheme: Scheme,
    /// As in the URL, brackets around an IPv6 address included.
    pub host: String,
    pub port: u16,
    /// Path and query, at least `/`.
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
    /// Takes a URL apart; a fragment is left out.
    ///
    /// # Errors
    ///
    /// [`LoadError::BadUrl`] for what is no absolute `http` or `https` URL.
    pub fn parse(text: &str) -> Result<Self, LoadError> {
        let bad = |why: String| LoadError::BadUrl { url: text.into(), why };
        let uri: http::Uri = text.parse().map_err(|error| bad(format!("{error}")))?;
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            Some(other) => return Err(bad(format!("its scheme is {other}; http and https are known"))),
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

    /// Host, and the port unless it is that of the scheme.
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

/// Which target is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    InTurn,
    /// Each with the same chance, the same sequence for the same seed.
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// At most `pipelining` requests of a connection wait for answers.
    Http1 { pipelining: usize },
    /// At most `streams` requests of a connection wait for answers. Without TLS by prior knowledge.
    Http2 { streams: usize },
}

impl Protocol {
    /// Requests of a connection that wait for answers at the same time.
    #[must_use]
    pub fn depth(self) -> usize {
        match self {
            Self::Http1 { pipelining } => pipelining,
            Self::Http2 { streams } => streams,
        }
    }
}

/// How `https` targets are spoken to.
#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    pub trust: Trust,
    /// Asked for and verified instead of the URL's host.
    pub server_name: Option<String>,
    pub session: Session,
}

/// Whose certificates are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Those of the system's authorities.
    #[default]
    System,
    /// Those of the authorities in this PEM file.
    File(PathBuf),
    /// All. For test servers.
    Anyone,
}

/// Whether a further connection takes up the TLS session of an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Session {
    #[default]
    Resumed,
    AlwaysNew,
}

/// Whether a connection serves more than one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    KeepAlive,
    /// A connection each, asked to close after it; its making counts in the latency.
    OnePerRequest,
}

/// What lets a request go.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// The answer before it on its connection. A stalled server stalls the load, and hides most of the stall.
    Closed,
    /// The clock: request `i` is due `i / per_second` after the begin, and its latency counts from then, whether or not
    /// a connection was free.
    Open { per_second: f64 },
    /// The clock: target `i` is due at `due[i]` after the begin, once. In rising order, one per target.
    Recorded { due: Vec<Duration> },
}

/// What a connection asks of a URL that it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revisit {
    /// The same.
    Plain,
    /// Whether it changed: `If-None-Match` with the `ETag` that it got last. HTTP/1.1 only.
    Conditional,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    Total,
    /// Figures of each URL as well: about 30 KiB per URL and thread.
    PerUrl,
}
