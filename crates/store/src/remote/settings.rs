//! Settings for a server.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use super::url::{self, UrlError};

/// Settings for connecting to a Redis-compatible server and using it.
#[derive(Clone, Debug)]
pub struct RemoteSettings {
    /// Address of the server.
    pub address: Address,
    /// User name; `None` for the server's default user.
    pub username: Option<Box<str>>,
    /// Password.
    pub password: Option<Secret>,
    /// User name at the sentinels; `None` for their default user.
    pub sentinel_username: Option<Box<str>>,
    /// Password at the sentinels; they don't get the server's.
    pub sentinel_password: Option<Secret>,
    /// Number of the database.
    pub database: u32,
    /// Name of the connections in the server's client list.
    pub client_name: Word,
    /// Prefix of all key names. Instances that share a tier have the same prefix.
    pub prefix: Word,
    /// Time for which copies are trusted after the last answered heartbeat was sent; four heartbeats are sent in this time.
    pub verification: Duration,
    /// Timeout for opening a connection, including handshakes.
    pub connect_timeout: Duration,
    /// Time for which a nearer endpoint must work before it is used again.
    pub return_after: Duration,
    /// Maximum memory for the table of followed keys, in bytes; beyond it, keys are dropped.
    pub followed_bytes_max: usize,
    /// Use of the data on the server.
    pub access: Access,
    /// Certificate verification for a TLS address; `None` for the system's root certificates.
    pub tls: Option<Arc<ClientConfig>>,
}

/// Use of the data on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// This instance shares the data with others, and begins a missing log.
    Shared,
    /// The data are those of another region, which this one never changes.
    Reading,
}

/// Address of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// TCP without encryption.
    Tcp(Host),
    /// TCP with TLS.
    Tls(Host),
    /// Unix socket.
    Unix(Box<Path>),
}

/// Address of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// One server.
    Server(Server),
    /// Several addresses of one master, the nearest first.
    Endpoints(Box<[Server]>),
    /// The master of a service, which sentinels know.
    Sentinels(Sentinels),
    /// A cluster.
    Cluster(Seeds),
}

/// Nodes by which a cluster is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// Nodes; at least one.
    pub hosts: Box<[Host]>,
    /// Whether connections to all nodes use TLS.
    pub tls: bool,
}

/// Sentinels, and the service whose master they know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentinels {
    /// Sentinels; at least one.
    pub hosts: Box<[Host]>,
    /// Name of the service.
    pub service: Box<str>,
    /// Whether the connections to the sentinels and to the master use TLS.
    pub tls: bool,
}

/// Host name or IP address, and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name or address; IPv6 addresses without brackets.
    pub name: Box<str>,
    /// Port; at least 1.
    pub port: u16,
}

/// A password. It is sent only to the server, and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

/// A short text without spaces, control characters and braces; braces would select the slot in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word(Box<str>);

/// Error in the URLs of several endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The URL is invalid.
    #[error(transparent)]
    Url(UrlError),
    /// The URL is for sentinels or a cluster.
    #[error("must be that of a single server")]
    NoServer,
    /// The address is in the list twice.
    #[error("has the same address as another endpoint")]
    Twice,
    /// The URL has another database, user or password than the first one.
    #[error(
        "has another database, user or password than the first endpoint, but all are addresses of one server"
    )]
    Different,
}

/// A text that isn't a [`Word`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must have at most {} printable ASCII characters, and neither spaces nor braces", Word::BYTES_MAX)]
pub struct InvalidWord;

impl Host {
    /// Returns the host that a server names, if it can be one.
    pub(super) fn reported(name: &str, port: u16) -> Option<Self> {
        let is_good = name.parse::<IpAddr>().is_ok() || url::host_name(name).is_ok();
        (is_good && port > 0).then(|| Self { name: name.into(), port })
    }
}

impl RemoteSettings {
    /// Parses the URLs of several addresses of one master, the nearest first. Each is that of a single server.
    ///
    /// # Errors
    /// Returns the index of the invalid URL with the error; for the last index, the URLs may also contradict each other.
    pub fn from_endpoints(urls: &[&str]) -> Result<Self, (usize, EndpointError)> {
        let mut all: Vec<Self> = Vec::with_capacity(urls.len());
        let mut servers = Vec::with_capacity(urls.len());
        for (index, url) in urls.iter().enumerate() {
            let settings = Self::from_url(url).map_err(|error| (index, EndpointError::Url(error)))?;
            let Address::Server(server) = &settings.address else {
                return Err((index, EndpointError::NoServer));
            };
            if servers.contains(server) {
                return Err((index, EndpointError::Twice));
            }
            let is_like = |first: &Self| {
                (first.database, &first.username, &first.password)
                    == (settings.database, &settings.username, &settings.password)
            };
            if !all.first().is_none_or(is_like) {
                return Err((index, EndpointError::Different));
            }
            servers.push(server.clone());
            all.push(settings);
        }
        let first = all.into_iter().next().ok_or((0, EndpointError::NoServer))?;
        Ok(Self { address: Address::Endpoints(servers.into()), ..first })
    }

    /// Returns the default settings for an address, without credentials.
    pub fn new(address: Address) -> Self {
        Self {
            address,
            username: None,
            password: None,
            sentinel_username: None,
            sentinel_password: None,
            database: 0,
            client_name: Word("larder".into()),
            prefix: Word("larder:".into()),
            verification: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(1),
            return_after: Duration::from_secs(30),
            access: Access::Shared,
            followed_bytes_max: 16 << 20,
            tls: None,
        }
    }

    /// Parses `redis://[user[:password]@]host[:port][/database]`, `unix://[user[:password]@]/path[?db=database]`, or, with sentinels,
    /// `redis+sentinel://[user[:password]@]host[:port][,host[:port]...]/service[/database]`, or for a cluster
    /// `redis+cluster://[user[:password]@]host[:port][,host[:port]...]`. With `rediss` in place of `redis`, connections use TLS. User and password are those of the server, and may contain percent escapes. All other settings have their defaults.
    ///
    /// # Errors
    /// If the URL is invalid. The error contains no part of the URL, because a password may be in an unexpected place.
    pub fn from_url(text: &str) -> Result<Self, UrlError> {
        let url = url::parse(text)?;
        Ok(Self {
            username: url.username,
            password: url.password.map(Secret),
            database: url.database,
            ..Self::new(url.address)
        })
    }
}

impl Secret {
    /// Wraps a password.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Word {
    /// Maximum length in bytes.
    pub const BYTES_MAX: usize = 64;

    /// Checks a text.
    ///
    /// # Errors
    /// If it is too long, or contains other characters.
    pub fn new(text: &str) -> Result<Self, InvalidWord> {
        let is_good = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
        let fits = text.len() <= Self::BYTES_MAX && text.bytes().all(is_good);
        if fits { Ok(Self(text.into())) } else { Err(InvalidWord) }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => server.fmt(f),
            Self::Endpoints(servers) => {
                let servers: Vec<_> = servers.iter().map(Server::to_string).collect();
                f.write_str(&servers.join(", "))
            }
            Self::Sentinels(sentinels) => sentinels.fmt(f),
            Self::Cluster(Seeds { hosts, tls }) => write!(f, "{}+cluster://{}", scheme(*tls), list(hosts)),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host) => write!(f, "redis://{host}"),
            Self::Tls(host) => write!(f, "rediss://{host}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+sentinel://{}/{}", scheme(self.tls), list(&self.hosts), self.service)
    }
}

fn scheme(tls: bool) -> &'static str {
    if tls { "rediss" } else { "redis" }
}

fn list(hosts: &[Host]) -> String {
    hosts.iter().map(Host::to_string).collect::<Vec<_>>().join(",")
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]:{}", self.name, self.port),
            false => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let settings = RemoteSettings::from_url("redis://me:hush@host").unwrap();
        assert_eq!(settings.password.as_ref().map(Secret::reveal), Some("hush"));
        let shown = format!("{settings:?} {:#?} {}", settings, settings.address);
        assert!(!shown.contains("hush"), "{shown}");
    }

    #[test]
    fn words_are_plain() {
        for (text, is_word) in [
            ("larder:", true),
            ("", true),
            ("a b", false),
            ("{x}", false),
            ("line\n", false),
            ("größe", false),
            (&"x".repeat(64), true),
            (&"x".repeat(65), false),
        ] {
            assert_eq!(Word::new(text).is_ok(), is_word, "{text:?}");
        }
    }
}
