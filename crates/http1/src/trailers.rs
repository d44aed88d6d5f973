//! Trailer sections: their grammar, and the fields that must not be in one.

use crate::fields::FieldLine;
use crate::{BodyError, Limits};

/// Whether a field of this name must not be in a trailer section: it belongs to framing, routing, connection,
/// request conditions, authentication, response control or the meaning of the content, which all were decided when
/// the head was read.
//= RFC 9110 section 6.5.1: limitations on use of trailers
pub fn is_forbidden_trailer(name: &str) -> bool {
    FORBIDDEN.iter().any(|forbidden| forbidden.eq_ignore_ascii_case(name))
}

const FORBIDDEN: &[&str] = &[
    "accept-ranges",
    "age",
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-location",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "etag",
    "expect",
    "expires",
    "forwarded",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "retry-after",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];

/// `section` ends in an empty line and each LF in it has a CR before it.
pub(crate) fn check(section: &[u8], fields_max: usize) -> Result<(), BodyError> {
    let mut headers = [httparse::EMPTY_HEADER; Limits::FIELDS_CEILING];
    match httparse::parse_headers(section, &mut headers[..fields_max]) {
        Ok(httparse::Status::Complete((bytes, _))) if bytes == section.len() => Ok(()),
        Err(httparse::Error::TooManyHeaders) => Err(BodyError::TrailerTooLarge),
        _ => Err(BodyError::InvalidTrailer),
    }
}

/// The lines of a section that passed [`check`].
pub(crate) fn lines(section: &[u8]) -> impl Iterator<Item = FieldLine<'_>> {
    section.split(|&byte| byte == b'\n').filter_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        let name = core::str::from_utf8(&line[..colon]).ok()?;
        Some((name, line[colon + 1..].trim_ascii()))
    })
}
