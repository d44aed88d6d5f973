//! Options of the command line.

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, str::FromStr};

/// Options of `larder origin`.
#[derive(Debug, Clone, clap::Args)]
pub struct OriginOptions {
    /// Address for HTTP/1.1 and HTTP/2 without TLS; repeatable; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3030")]
    pub(crate) listen: Vec<SocketAddr>,

    /// Address for HTTP/1.1 and HTTP/2 over TLS; repeatable; self-signed without --tls-cert
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) tls_listen: Vec<SocketAddr>,

    /// Certificate chain (PEM) for --tls-listen
    #[arg(long, value_name = "FILE", requires = "tls_key", requires = "tls_listen")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key (PEM) that belongs to --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Path prefix of all resources, such as /mocks; other paths get 404
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub(crate) prefix: Prefix,

    /// CPU time in milliseconds for each request to `/api/products` and the paths below it
    #[arg(long, value_name = "MS", default_value_t = 1)]
    pub(crate) cpu_ms: u64,

    /// Requests that wait for their `delay` concurrently, as database queries do; others queue [default: no limit]
    #[arg(long, value_name = "N")]
    pub(crate) delay_slots: Option<NonZeroUsize>,

    /// Worker threads [default: one per CPU]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<NonZeroUsize>,
}

/// Path prefix of all resources: `/mocks`, or empty. Never ends with a slash, so that the path of a resource can follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prefix(String);

/// Error for an invalid prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a path that begins with `/`, without spaces, `?` or `#`")]
pub(crate) struct NoPath;

impl FromStr for Prefix {
    type Err = NoPath;

    fn from_str(text: &str) -> Result<Self, NoPath> {
        let of_path = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
        if !text.starts_with('/') || !text.bytes().all(of_path) {
            return Err(NoPath);
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

impl Prefix {
    /// Returns the path of a resource after the prefix, empty for the prefix itself. `None` if the path doesn't have the prefix.
    pub(crate) fn strip<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(&self.0).filter(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Returns the text before the path of a resource in a link.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_segments_are_a_prefix() {
        let cases = [
            ("/", "/items/1", Some("/items/1")),
            ("/mocks", "/mocks/items/1", Some("/items/1")),
            ("/mocks/", "/mocks/items/1", Some("/items/1")),
            ("/a/b", "/a/b/items/1", Some("/items/1")),
            ("/mocks", "/mocks/", Some("/")),
            ("/mocks", "/mocks", Some("")),
            ("/mocks", "/mocks/mocks/items/1", Some("/mocks/items/1")),
            ("/mocks", "/mocksitems/1", None),
            ("/mocks", "/items/1", None),
            ("/mocks", "*", None),
        ];
        for (prefix, path, expected) in cases {
            let prefix: Prefix = prefix.parse().unwrap();
            assert_eq!(prefix.strip(path), expected, "{prefix:?} {path}");
        }
    }

    #[test]
    fn what_is_no_path_is_no_prefix() {
        for text in ["", "mocks", "/mo cks", "/mocks?a", "/mocks#a", "/m\u{e9}"] {
            assert_eq!(text.parse::<Prefix>(), Err(NoPath), "{text:?}");
        }
    }
}
