//! Trailer sections: their grammar, and the fields that must not be in one.

use crate::fields::FieldLine;
use crate::{BodyError, Limits};

/// Returns whether a field of this name must not be in a trailer section: it belongs to framing, routing, connection,
/// request conditions, authentication, response control or the meaning of the content, which are already decided when
/// the head is parsed. Digests of the content are allowed: trailers exist for them.
//= RFC 9110 section 6.5.1: limitations on use of trailers
pub fn is_forbidden_trailer(name: &str) -> bool {
    let is = |known: &&str| known.eq_ignore_ascii_case(name);
    let begins =
        |prefix: &&str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    FORBIDDEN.iter().any(is) || FORBIDDEN_PREFIXES.iter().any(begins) && !DIGESTS.iter().any(is)
}

const FORBIDDEN: &[&str] = &[
    "age",
    "allow",
    "alt-svc",
    "authentication-control",
    "authentication-info",
    "authorization",
    "cache-control",
    "cache-groups",
    "cache-group-invalidation",
    "cache-status",
    "cache-tag",
    "cache-tags",
    "clear-site-data",
    "connection",
    "cookie",
    "cookie2",
    "date",
    "early-data",
    "etag",
    "expect",
    "expires",
    "forwarded",
    "from",
    "host",
    "http2-settings",
    "keep-alive",
    "last-modified",
    "location",
    "max-forwards",
    "origin",
    "pragma",
    "prefer",
    "priority",
    "range",
    "referer",
    "refresh",
    "retry-after",
    "set-cookie",
    "set-cookie2",
    "strict-transport-security",
    "surrogate-control",
    "surrogate-key",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "xkey",
];

const FORBIDDEN_PREFIXES: &[&str] =
    &["accept", "access-control-", "cdn-", "content-", "cross-origin-", "if-", "proxy-", "sec-", "x-forward"];

const DIGESTS: &[&str] = &["content-digest", "content-md5"];

/// Checks a section, which ends in an empty line and in which each LF has a CR before it.
pub(crate) fn check(section: &[u8], fields_max: usize) -> Result<(), BodyError> {
    let mut headers = [httparse::EMPTY_HEADER; Limits::FIELDS_CEILING];
    match httparse::parse_headers(section, &mut headers[..fields_max]) {
        Ok(httparse::Status::Complete((bytes, _))) if bytes == section.len() => Ok(()),
        Err(httparse::Error::TooManyHeaders) => Err(BodyError::TrailerTooLarge),
        _ => Err(BodyError::InvalidTrailer),
    }
}

/// Returns the lines of a section that has passed [`check`].
pub(crate) fn lines(section: &[u8]) -> impl Iterator<Item = FieldLine<'_>> {
    section.split(|&byte| byte == b'\n').filter_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        let name = core::str::from_utf8(&line[..colon]).ok()?;
        Some((name, line[colon + 1..].trim_ascii()))
    })
}
