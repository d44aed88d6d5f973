//! A response in HTTP/1.1 form: head, framing, and body.

use std::num::NonZeroU64;

use caching::{CacheName, CacheStatus};
use http1::{Persistence, ResponseFraming, Version, encode};
use message::fields::Fields;

use super::Traits;
use crate::active::ActiveConfig;
use crate::request::reply::{HeadSink, Length, Reply};
use crate::server::Wanted;

/// Writes a head into the connection's output buffer.
pub(super) struct Http1Head<'a> {
    pub(super) out: &'a mut Vec<u8>,
}

impl HeadSink for Http1Head<'_> {
    fn status(&mut self, status: u16, reason: Option<&[u8]>) {
        if encode::write_status_line(self.out, status, reason).is_err() {
            // If the reason phrase is invalid, the registered one replaces it.
            let _ = encode::write_status_line(self.out, status, None);
        }
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        // The parser has already refused invalid lines; skipping one can't split the response.
        let _ = encode::write_field(self.out, name, value);
    }

    fn number(&mut self, name: &'static str, value: u64) {
        encode::write_field_number(self.out, name, value);
    }

    fn cache_status(&mut self, status: &CacheStatus<'_>, cache: &CacheName) {
        self.out.extend_from_slice(b"cache-status: ");
        status.write(cache, self.out);
        self.out.extend_from_slice(b"\r\n");
    }

    fn fields(&mut self, fields: Fields<'_>) {
        self.out.extend_from_slice(fields.wire());
    }

    fn fields_of_304(&mut self, fields: Fields<'_>) {
        fields.wire_of_304().for_each(|line| self.out.extend_from_slice(line));
    }
}

/// Framing around one piece of data.
pub(super) struct Chunk<'a> {
    pub(super) head: &'a [u8],
    pub(super) end: &'a [u8],
}

impl<'a> Chunk<'a> {
    pub(super) fn around(data_bytes: usize, framing: ResponseFraming, chunk_head: &'a mut [u8; 18]) -> Self {
        match (framing, NonZeroU64::new(data_bytes as u64)) {
            (ResponseFraming::Chunked, Some(bytes)) => {
                Self { head: encode::write_chunk_head(bytes, chunk_head), end: encode::CHUNK_END }
            }
            _ => Self { head: &[], end: &[] },
        }
    }
}

/// Writes the head of a response with its framing and connection fields.
pub(super) fn write_head(
    out: &mut Vec<u8>,
    reply: &Reply,
    traits: Traits,
    live: &ActiveConfig,
) -> ResponseFraming {
    reply.write_head(&mut Http1Head { out }, &live.cache_name);
    let mut framing = match (reply.length, traits.version) {
        (Length::None, _) => ResponseFraming::None,
        (Length::Known(bytes), _) => ResponseFraming::Length(bytes),
        (Length::Unknown, Version::Http11) => ResponseFraming::Chunked,
        //= RFC 9112 section 6.1: no Transfer-Encoding to HTTP/1.0
        (Length::Unknown, Version::Http10) => ResponseFraming::UntilClose,
    };
    match (framing, traits.wanted) {
        (ResponseFraming::Length(bytes), _) => encode::write_field_number(out, "content-length", bytes),
        // A response to HEAD has the same information about the length as a response to GET.
        (ResponseFraming::Chunked, Wanted::HeadAndBody) => {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n")
        }
        _ => {}
    }
    if traits.wanted == Wanted::HeadOnly {
        framing = ResponseFraming::None;
    }
    let closes = traits.persistence == Persistence::Close || framing == ResponseFraming::UntilClose;
    match (closes, traits.version) {
        //= RFC 9112 section 9.6: close is said
        (true, _) => out.extend_from_slice(b"connection: close\r\n"),
        //= RFC 9112 section 9.3: an HTTP/1.0 client must be told that the connection stays
        (false, Version::Http10) => out.extend_from_slice(b"connection: keep-alive\r\n"),
        (false, Version::Http11) => {}
    }
    encode::end_head(out);
    framing
}

//= RFC 9110 section 7.8: a 101 response names the protocol in Upgrade
pub(super) fn write_upgrade_head(out: &mut Vec<u8>, reply: &Reply, live: &ActiveConfig) {
    reply.write_head(&mut Http1Head { out }, &live.cache_name);
    out.extend_from_slice(b"connection: upgrade\r\n");
    encode::end_head(out);
}
