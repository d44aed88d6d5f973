//! Responses of an origin: the head with its end-to-end fields, the connection after a 101, or the failure to get one.

use std::fmt;

use bytes::Bytes;
use caching::hop_by_hop::{self, ends_here};
use message::fields::PackedFields;
use message::head::Nominations;
use tokio::io::{AsyncRead, AsyncWrite};

use super::admission::Held;
use super::body::OriginBody;
use super::connect::Stream;
use super::error::OriginError;
use super::request_body::RequestBody;
use super::stats::Working;

/// The head of a response, and its body to be read.
#[derive(Debug)]
pub struct OriginResponse {
    /// Status.
    pub status: http::StatusCode,
    /// Reason phrase of HTTP/1, which may be empty; HTTP/2 has none.
    pub reason: Option<Bytes>,
    /// HTTP version of the response.
    pub version: http::Version,
    /// Fields without those of the origin's connection (RFC 9110 section 7.6.1), their names in lower case. A 101 response keeps
    /// `Upgrade`.
    pub fields: PackedFields,
    /// Content with its framing.
    pub body: OriginBody,
    /// The connection after a 101 response.
    pub upgraded: Option<Box<OriginTunnel>>,
    /// Whether a transfer coding other than chunked was applied: the content can't be decoded, so the response is never stored.
    pub unknown_transfer_coding: bool,
}

/// Selection of the end-to-end fields of a response.
#[derive(Clone, Copy, Debug)]
pub(super) enum EndToEnd {
    /// All fields except those for the connection or for a proxy such as Larder.
    AsTheyAre,
    /// These fields, with one `Content-Length` line of one number in place of all such lines.
    //= RFC 9110 section 8.6: a list of equal numbers is replaced by one before forwarding
    WithLength(u64),
    /// These fields without `Content-Length`.
    //= RFC 9112 section 6.3: Content-Length beside Transfer-Encoding is removed before forwarding
    //= RFC 9110 section 15.2: a 1xx response ends with its header section
    WithoutLength,
}

impl EndToEnd {
    /// Selects these fields from the received lines, and converts their names to lower case.
    //= RFC 9110 section 7.6.1: fields named in Connection are removed with it
    pub(super) fn of<'a, V: AsRef<[u8]>, I: Iterator<Item = (&'a str, V)>>(
        mut self,
        nominations: Nominations,
        received: impl Fn() -> I,
    ) -> PackedFields {
        let nominated = match nominations {
            Nominations::None => Vec::new(),
            Nominations::Some => nominated(received()),
        };
        let lines = received();
        let is_nominated =
            |name: &str| nominated.iter().any(|other| other.eq_ignore_ascii_case(name.as_bytes()));
        let mut packed = PackedFields::with_capacity(lines.size_hint().0);
        for (name, value) in lines {
            let is_kept = !(ends_here(name) || is_nominated(name));
            if is_kept && !name.eq_ignore_ascii_case("content-length") {
                packed.push_lowercase(name, value.as_ref());
            } else if is_kept {
                self.push_length(&mut packed, value.as_ref());
            }
        }
        packed
    }

    fn push_length(&mut self, packed: &mut PackedFields, value: &[u8]) {
        match *self {
            Self::AsTheyAre => packed.push("content-length", value),
            Self::WithLength(bytes) => {
                packed.push("content-length", itoa::Buffer::new().format(bytes).as_bytes());
                *self = Self::WithoutLength;
            }
            Self::WithoutLength => {}
        }
    }
}

fn nominated<'a, V: AsRef<[u8]>>(lines: impl Iterator<Item = (&'a str, V)>) -> Vec<Box<[u8]>> {
    let mut nominated = Vec::new();
    for (_, value) in lines.filter(|(name, _)| name.eq_ignore_ascii_case("connection")) {
        nominated.extend(hop_by_hop::nominated(value.as_ref()).map(Box::from));
    }
    nominated
}

/// An attempt without a response head.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: OriginError,
    /// The request body, if none of it was sent.
    pub(super) body: Option<RequestBody>,
    pub(super) processing: Processing,
}

/// Whether the origin may have acted on a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Processing {
    /// Never sent, or not processed according to the origin (RFC 9113 section 8.7).
    Never,
    Possible,
}

/// Whether a connection had already carried an earlier request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    No,
    Yes,
}

/// A raw connection to the origin. It counts as a tunnel until it is dropped, and not as a request in flight.
pub struct OriginTunnel {
    pub(super) io: Stream,
    /// Bytes received together with the 101 response.
    pub early: Vec<u8>,
    pub(super) _held: (Held, Option<Working>),
}

impl OriginTunnel {
    /// Returns the connection, which continues after the early bytes.
    pub fn io(&mut self) -> &mut (impl AsyncRead + AsyncWrite + Unpin + use<>) {
        &mut self.io
    }
}

impl fmt::Debug for OriginTunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OriginTunnel").field("early", &self.early.len()).finish_non_exhaustive()
    }
}
