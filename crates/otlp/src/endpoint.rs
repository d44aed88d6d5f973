//! The URL of the collector.

use std::fmt;

use http::Uri;
use http::uri::Scheme;

/// The URL that spans are posted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub(crate) security: Security,
    pub(crate) host: Box<str>,
    pub(crate) port: u16,
    /// Value of `Host`.
    pub(crate) authority: Box<str>,
    pub(crate) path: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    Plain,
    Tls,
}

/// The reason why a text is not an [`Endpoint`]. Its message doesn't repeat the text, which may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The text isn't a URL, or has a different scheme.
    #[error("must be a URL of OTLP over HTTP, such as `http://collector:4318`")]
    NotHttp,
    /// Contains a user.
    #[error("must be without user and password; authenticate with a field in `headers`")]
    HasUser,
    /// The URL has the gRPC port and no path.
    #[error(
        "has port 4317, on which collectors speak gRPC; OTLP over HTTP has port 4318 (write the path as well if it is right: `/v1/traces`)"
    )]
    GrpcPort,
}

/// The default port of collectors.
const HTTP_PORT: u16 = 4318;
const GRPC_PORT: u16 = 4317;
const TRACES: &str = "/v1/traces";

impl Endpoint {
    /// Parses a URL. The default path is that of the specification. The default port is 4318 for `http` and 443 for
    /// `https`.
    ///
    /// # Errors
    ///
    /// Returns an [`EndpointError`].
    pub fn parse(url: &str) -> Result<Self, EndpointError> {
        let uri: Uri = url.parse().map_err(|_| EndpointError::NotHttp)?;
        let authority = uri.authority().ok_or(EndpointError::NotHttp)?;
        if authority.as_str().contains('@') {
            return Err(EndpointError::HasUser);
        }
        let (security, port) = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => (Security::Plain, HTTP_PORT),
            Some(scheme) if *scheme == Scheme::HTTPS => (Security::Tls, 443),
            _ => return Err(EndpointError::NotHttp),
        };
        let path = match uri.path_and_query().map_or("", |path| path.as_str()) {
            "" | "/" => None,
            path => Some(path),
        };
        let port = authority.port_u16().unwrap_or(port);
        if port == GRPC_PORT && path.is_none() {
            return Err(EndpointError::GrpcPort);
        }
        let host = authority.host();
        if host.is_empty() || port == 0 {
            return Err(EndpointError::NotHttp);
        }
        Ok(Self {
            security,
            host: host.trim_start_matches('[').trim_end_matches(']').into(),
            port,
            authority: format!("{host}:{port}").into(),
            path: path.unwrap_or(TRACES).into(),
        })
    }

    /// Returns whether the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        self.security == Security::Tls
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls() { "https" } else { "http" };
        // The text after a `?` may be a key.
        let path = self.path.split('?').next().unwrap_or_default();
        write!(f, "{scheme}://{}{path}", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        use Security::{Plain, Tls};
        let read = |url: &str| {
            let Endpoint { security, host, authority, path, .. } = Endpoint::parse(url)?;
            Ok((security, host.into(), authority.into(), path.into()))
        };
        let is = |security, host: &str, authority: &str, path: &str| {
            Ok((security, host.to_owned(), authority.to_owned(), path.to_owned()))
        };
        type Parts = (Security, String, String, String);
        let cases: [(&str, Result<Parts, EndpointError>); 14] = [
            ("http://collector", is(Plain, "collector", "collector:4318", TRACES)),
            ("http://collector:4318/", is(Plain, "collector", "collector:4318", TRACES)),
            ("http://collector:1/v1/traces", is(Plain, "collector", "collector:1", TRACES)),
            ("http://collector:4317/v1/traces", is(Plain, "collector", "collector:4317", TRACES)),
            ("https://a.example/otlp?x=y", is(Tls, "a.example", "a.example:443", "/otlp?x=y")),
            ("http://[::1]:8/", is(Plain, "::1", "[::1]:8", TRACES)),
            ("http://collector:4317", Err(EndpointError::GrpcPort)),
            ("http://collector:0", Err(EndpointError::NotHttp)),
            ("grpc://collector", Err(EndpointError::NotHttp)),
            ("collector:4318", Err(EndpointError::NotHttp)),
            ("/v1/traces", Err(EndpointError::NotHttp)),
            ("http://", Err(EndpointError::NotHttp)),
            ("", Err(EndpointError::NotHttp)),
            ("http://user:secret@collector", Err(EndpointError::HasUser)),
        ];
        for (url, expected) in cases {
            assert_eq!(read(url), expected, "{url}");
        }
    }
}
