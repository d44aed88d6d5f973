//! A client's preconditions against a stored response (RFC 9110 section 13, RFC 9111 section 4.3.2).
//!
//! `If-Match` and `If-Unmodified-Since` are not evaluated here: RFC 9111 keeps them for the origin
//! server, and [`crate::reuse()`] forwards requests that carry them.

use crate::facts::MethodClass;
use crate::{EntityTags, FieldLine, StoredFacts, Timestamp, Validators, date, fields};

/// The result of evaluating the preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Answer as if the request had no preconditions.
    Proceed,
    /// Answer 304 with the fields for which [`belongs_in_304`] holds.
    NotModified,
}

/// Evaluates `If-None-Match`, or without it `If-Modified-Since`, against the stored response selected for this request.
/// Doesn't allocate.
//= RFC 9110 section 13.2.2: precedence of preconditions
//= RFC 9111 section 4.3.2: handling a received validation request
pub fn evaluate(
    method: MethodClass,
    request: &[FieldLine<'_>],
    stored: &StoredFacts,
    validators: &Validators<'_>,
    now: Timestamp,
) -> Precondition {
    //= RFC 9110 section 13.2.1: only where the answer would be 2xx
    //= RFC 9111 section 4.3.2: preconditions of requests that a stored response cannot satisfy
    //= RFC 9110 section 13.2.1: ignored for CONNECT, OPTIONS and TRACE
    if !method.is_reusing() || !(200..300).contains(&stored.status) {
        return Precondition::Proceed;
    }
    //= RFC 9110 section 13.1.3: If-Modified-Since is ignored when If-None-Match is present
    //= RFC 9111 section 4.3.2: If-None-Match before If-Modified-Since
    let not_modified = if fields::contains(request, "if-none-match") {
        is_any_known(request, validators)
    } else {
        is_unmodified(request, stored, validators, now)
    };
    //= RFC 9110 section 13.1.2: 304 to GET and HEAD
    //= RFC 8246 section 2.1: 304 or 200 as the client asked
    if not_modified { Precondition::NotModified } else { Precondition::Proceed }
}

/// Returns whether a field of a stored 200 belongs in a 304. Fields about the content don't, because the 304 has none;
/// `Last-Modified` does, so that caches of the response can update theirs.
//= RFC 9110 section 15.4.5: fields of a 304 response
pub fn belongs_in_304(name: &str) -> bool {
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    // Compares lengths first, because every field of every 304 passes through here.
    let is_of_content = match name.len() {
        6 => is("digest"),
        7 => is("trailer"),
        11 => is("content-md5") || is("repr-digest"),
        12 => is("content-type"),
        13 => is("content-range"),
        14 => is("content-length") || is("content-digest"),
        16 => is("content-encoding") || is("content-language"),
        17 => is("transfer-encoding"),
        _ => false,
    };
    !is_of_content
}

/// Returns whether a request field is a precondition. A cache that validates replaces it by its own.
pub fn is_precondition(name: &str) -> bool {
    PRECONDITIONS.iter().any(|known| known.eq_ignore_ascii_case(name))
}

//= RFC 9110 section 13.1.2: If-None-Match, weak comparison
fn is_any_known(request: &[FieldLine<'_>], validators: &Validators<'_>) -> bool {
    let mut lines = fields::values(request, "if-none-match");
    //= RFC 9110 section 13.1.2: If-None-Match: *
    if lines.clone().any(|line| line == b"*") {
        return true;
    }
    let Some(stored) = validators.entity_tag() else { return false };
    lines.any(|line| EntityTags::new(line).any(|tag| tag.matches_weakly(&stored)))
}

//= RFC 9110 section 13.1.3: If-Modified-Since, ignored where it is no date
fn is_unmodified(
    request: &[FieldLine<'_>],
    stored: &StoredFacts,
    validators: &Validators<'_>,
    now: Timestamp,
) -> bool {
    let since = fields::only(request, "if-modified-since").and_then(|value| date::parse(value, now));
    //= RFC 9111 section 4.3.2: without Last-Modified, Date or the time of arrival
    let modified = validators.last_modified.map_or(stored.date, |(_, at)| at);
    //= RFC 9110 section 13.1.3: 304 where not modified since
    //= RFC 9110 section 13.1.3: the clock of the origin server
    since.is_some_and(|since| modified.whole_seconds() <= since.whole_seconds())
}

const PRECONDITIONS: [&str; 5] =
    ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range"];

#[cfg(test)]
mod tests {
    use super::*;

    //= RFC 9110 section 15.4.5: fields of a 304 response
    #[test]
    fn a_304_has_what_the_200_had_but_its_content() {
        for name in
            ["Content-Location", "Date", "ETag", "Vary", "Cache-Control", "Expires", "X-Any", "Set-Cookie"]
        {
            assert!(belongs_in_304(name), "{name}");
        }
        for name in [
            "Content-Type",
            "content-length",
            "Content-Encoding",
            "Content-Language",
            "Content-Range",
            "Content-MD5",
            "Content-Digest",
            "Repr-Digest",
            "Digest",
            "Transfer-Encoding",
            "Trailer",
        ] {
            assert!(!belongs_in_304(name), "{name}");
        }
    }

    #[test]
    fn preconditions() {
        assert!(is_precondition("If-None-Match") && is_precondition("if-range"));
        assert!(!is_precondition("Range"));
    }
}
