//! What the operator says about a server.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use super::url::{self, UrlError};

/// How a server of the Redis protocol is reached, and used.
#[derive(Clone, Debug)]
pub struct RemoteSettings {
    /// Where it listens.
    pub address: Address,
    /// Whom to log in as; without it, as the server's default user.
    pub username: Option<Box<str>>,
    /// What to log in with.
    pub password: Option<Secret>,
    /// Which database.
    pub database: u32,
    /// What the server lists the connections as.
    pub client_name: Word,
    /// What all names begin with. Instances that share a tier have the same.
    pub prefix: Word,
    /// How long copies are relied upon after the last answer to a heartbeat was asked for; four heartbeats are sent in it.
    pub verification: Duration,
    /// How long opening a connection may take, handshakes included.
    pub connect_timeout: Duration,
    /// What the table of followed keys may take, in bytes; beyond it, keys are given up.
    pub followed_bytes_max: usize,
    /// How certificates are checked where the address says TLS; `None`: by the roots of the system.
    pub tls: Option<Arc<ClientConfig>>,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Without encryption.
    Tcp(Host),
    /// With TLS.
    Tls(Host),
    /// A socket on this machine.
    Unix(Box<Path>),
}

/// A name or an IP address, with a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Without brackets.
    pub name: Box<str>,
    /// From 1 on.
    pub port: u16,
}

/// A password. Shown to nobody but the server.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

/// A short text without spaces, control characters and braces: those would choose the slot in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word(Box<str>);

/// Why a text is no [`Word`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must have at most {} printable ASCII characters, and neither spaces nor braces", Word::BYTES_MAX)]
pub struct NotAWord;

impl RemoteSettings {
    /// For a server at an address, without logging in, and with all defaults.
    pub fn new(address: Address) -> Self {
        Self {
            address,
            username: None,
            password: None,
            database: 0,
            client_name: Word("larder".into()),
            prefix: Word("larder:".into()),
            verification: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(1),
            followed_bytes_max: 16 << 20,
            tls: None,
        }
    }

    /// From `redis://[user[:password]@]host[:port][/database]`, the same with `rediss` for TLS, or
    /// `unix://[user[:password]@]/path[?db=database]`. User and password may have percent escapes. The rest is as by default.
    ///
    /// # Errors
    /// What is wrong, without any part of the URL: a password may stand in an unexpected place.
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
    /// Takes a password.
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
    /// The longest.
    pub const BYTES_MAX: usize = 64;

    /// Checks a text.
    ///
    /// # Errors
    /// When it is too long, or has other characters.
    pub fn new(text: &str) -> Result<Self, NotAWord> {
        let is_good = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
        let fits = text.len() <= Self::BYTES_MAX && text.bytes().all(is_good);
        if fits { Ok(Self(text.into())) } else { Err(NotAWord) }
    }

    /// As it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host) => write!(f, "redis://{host}"),
            Self::Tls(host) => write!(f, "rediss://{host}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
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
