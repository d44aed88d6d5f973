//! Request heads in a form common to both protocols, borrowed and owned.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use caching::invalidation::Target;
use caching::{FieldLine, authority};

use crate::explain_record::Record;
use crate::fields::PackedFields;
use crate::timeline::Timeline;

/// URI scheme of the target, from the connection or a trusted proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    #[inline]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// Protocol version of a client's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Http10,
    Http11,
    Http2,
}

impl Version {
    /// Returns the version of an origin's message.
    #[inline]
    pub fn received(version: http::Version) -> Self {
        match version {
            http::Version::HTTP_10 => Self::Http10,
            http::Version::HTTP_2 => Self::Http2,
            _ => Self::Http11,
        }
    }

    /// Returns the version as written in `Via` (RFC 9110 section 7.6.3).
    #[inline]
    pub fn received_protocol(self) -> &'static str {
        match self {
            Self::Http10 => "1.0",
            Self::Http11 => "1.1",
            Self::Http2 => "2.0",
        }
    }

    /// Returns the version as written in spans.
    #[inline]
    pub fn of_protocol(self) -> &'static str {
        match self {
            Self::Http10 => "1.0",
            Self::Http11 => "1.1",
            Self::Http2 => "2",
        }
    }

    #[inline]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2.0",
        }
    }
}

/// A client connection, for its lifetime.
#[derive(Clone, Debug)]
pub struct ClientEnd {
    pub peer: Peer,
    pub tls: Option<Arc<TlsSession>>,
}

/// Result of a TLS handshake, shared by all requests of a connection.
#[derive(Debug)]
pub struct TlsSession {
    /// Protocol version: `TLSv1.2`, `TLSv1.3`.
    pub version: &'static str,
    /// Server name requested by the client (RFC 6066 section 3).
    pub server_name: Option<Box<str>>,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// The client's address, from the PROXY protocol if it is in use.
    pub address: SocketAddr,
    /// Whether the peer's forwarding fields are trusted.
    pub trust: Trust,
    /// Scheme of the connection itself.
    pub scheme: Scheme,
}

impl Peer {
    #[inline]
    pub fn ip(&self) -> IpAddr {
        self.address.ip().to_canonical()
    }
}

/// Whether a peer's `X-Forwarded-*` and `Forwarded` fields are trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    Untrusted,
    Trusted,
}

/// A request head, borrowed from the connection's buffer.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    pub method: &'a str,
    pub scheme: Scheme,
    pub authority: &'a str,
    /// Path and query. The path starts with `/`; for OPTIONS, it may be `*`.
    pub path_and_query: &'a str,
    pub version: Version,
    pub fields: &'a [FieldLine<'a>],
    /// Whether `Connection` names any field.
    pub nominations: Nominations,
    /// Fields to send to the origin, after the site's transformations; `None` if they are not
    /// prepared.
    pub sent: Option<&'a [FieldLine<'a>]>,
    /// Field lines that are part of the cache key.
    pub keyed: &'a [u8],
    pub content: Content,
    pub upgrade: Option<&'a str>,
    pub peer: Peer,
    /// Record of decisions, for `larder explain`.
    pub record: Option<&'a Arc<Record>>,
    /// Timings of the exchange, if it is traced or the client requests them.
    pub timeline: Option<&'a Arc<Timeline>>,
    pub tls: Option<&'a Arc<TlsSession>>,
}

impl<'a> RequestHead<'a> {
    #[inline]
    pub fn into_owned(self) -> OwnedRequest {
        OwnedRequest {
            method: self.method.to_owned(),
            scheme: self.scheme,
            authority: authority::normalised(self.scheme.as_str(), self.authority),
            path_and_query: self.path_and_query.to_owned(),
            version: self.version,
            fields: PackedFields::from_lines(self.fields.iter().copied()),
            nominations: self.nominations,
            keyed: self.keyed.to_owned(),
            content: self.content,
            upgrade: self.upgrade.map(str::to_owned),
            peer: self.peer,
            record: self.record.cloned(),
            timeline: self.timeline.cloned(),
            tls: self.tls.cloned(),
        }
    }
}

/// Whether `Connection` names fields that aren't forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nominations {
    None,
    Some,
}

/// Whether a request carries content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    None,
    Length(u64),
    Unknown,
}

/// A request head that outlives its connection's buffer.
#[derive(Clone, Debug)]
pub struct OwnedRequest {
    pub method: String,
    pub scheme: Scheme,
    /// Normalised, as in the cache key.
    pub authority: String,
    pub path_and_query: String,
    pub version: Version,
    pub fields: PackedFields,
    pub nominations: Nominations,
    /// Field lines that are part of the cache key.
    pub keyed: Vec<u8>,
    pub content: Content,
    pub upgrade: Option<String>,
    pub peer: Peer,
    pub record: Option<Arc<Record>>,
    pub timeline: Option<Arc<Timeline>>,
    pub tls: Option<Arc<TlsSession>>,
}

impl OwnedRequest {
    /// Borrows the head; `lines` are those of [`Self::fields`].
    #[inline]
    pub fn borrow<'a>(&'a self, lines: &'a [FieldLine<'a>]) -> RequestHead<'a> {
        RequestHead {
            method: &self.method,
            scheme: self.scheme,
            authority: &self.authority,
            path_and_query: &self.path_and_query,
            version: self.version,
            fields: lines,
            nominations: self.nominations,
            sent: None,
            keyed: &self.keyed,
            content: self.content,
            upgrade: self.upgrade.as_deref(),
            peer: self.peer,
            record: self.record.as_ref(),
            timeline: self.timeline.as_ref(),
            tls: self.tls.as_ref(),
        }
    }

    #[inline]
    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Returns the target URI.
    #[inline]
    pub fn target(&self) -> Target<'_> {
        let (path, query) = match self.path_and_query.split_once('?') {
            Some((path, query)) => (path, Some(query.as_bytes())),
            None => (self.path_and_query.as_str(), None),
        };
        Target {
            scheme: self.scheme.as_str().as_bytes(),
            authority: self.authority.as_bytes(),
            path: path.as_bytes(),
            query,
        }
    }

    /// Returns whether trailers of the response can be used.
    //= RFC 9110 section 10.1.4: TE: trailers
    #[inline]
    pub fn accepts_trailers(&self) -> bool {
        let has_trailers = |value: &[u8]| {
            value
                .split(|byte| *byte == b',')
                .any(|member| member.trim_ascii().eq_ignore_ascii_case(b"trailers"))
        };
        self.fields.values("te").any(has_trailers)
    }
}
