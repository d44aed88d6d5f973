//! Decisions about conditional and range requests, as functions of values.

use std::{ops::Range, time::SystemTime};

use http::HeaderMap;
use http::header::{
    HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};

/// The validators of the selected representation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Validators<'a> {
    /// The ETag value as sent, with `W/` if it is weak.
    pub(crate) etag: Option<&'a str>,
    pub(crate) last_modified: Option<SystemTime>,
}

/// The answer in place of a 200.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// 200 with the whole content.
    Full,
    /// 206 with these bytes.
    Partial(Range<u64>),
    /// 304.
    NotModified,
    /// 412.
    PreconditionFailed,
    /// 416.
    Unsatisfiable,
}

/// Whether `Range` is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ranges {
    Served,
    Ignored,
}

/// Evaluates the preconditions and the range of a GET or HEAD in the required order.
pub(crate) fn evaluate(
    headers: &HeaderMap,
    current: Validators<'_>,
    len_bytes: u64,
    ranges: Ranges,
) -> Outcome {
    //= RFC 9110 section 13.2.2: precedence of preconditions
    if !writes_allowed(headers, current) {
        return Outcome::PreconditionFailed;
    }
    if unchanged(headers, current) {
        return Outcome::NotModified;
    }
    if ranges == Ranges::Ignored || !range_still_wanted(headers, current) {
        return Outcome::Full;
    }
    let Some(range) = text(headers, RANGE) else {
        return Outcome::Full;
    };
    select(range, len_bytes)
}

fn writes_allowed(headers: &HeaderMap, current: Validators<'_>) -> bool {
    //= RFC 9110 section 13.1.1: If-Match uses the strong comparison
    if headers.contains_key(IF_MATCH) {
        return listed(headers, IF_MATCH, current.etag, Comparison::Strong);
    }
    //= RFC 9110 section 13.1.4: If-Unmodified-Since
    let (Some(limit), Some(modified)) = (date(headers, IF_UNMODIFIED_SINCE), current.last_modified) else {
        return true;
    };
    modified <= limit
}

fn unchanged(headers: &HeaderMap, current: Validators<'_>) -> bool {
    //= RFC 9110 section 13.1.2: If-None-Match, weak comparison
    if headers.contains_key(IF_NONE_MATCH) {
        return listed(headers, IF_NONE_MATCH, current.etag, Comparison::Weak);
    }
    //= RFC 9110 section 13.1.3: If-Modified-Since is ignored when If-None-Match is present
    let (Some(since), Some(modified)) = (date(headers, IF_MODIFIED_SINCE), current.last_modified) else {
        return false;
    };
    modified <= since
}

//= RFC 9110 section 13.1.5: If-Range, strong comparison and exact dates
fn range_still_wanted(headers: &HeaderMap, current: Validators<'_>) -> bool {
    let Some(condition) = text(headers, IF_RANGE) else {
        return true;
    };
    if condition.starts_with('"') || condition.starts_with("W/") {
        return current.etag.is_some_and(|etag| same(condition, etag, Comparison::Strong));
    }
    match (httpdate::parse_http_date(condition), current.last_modified) {
        (Ok(date), Some(modified)) => date == modified,
        _ => false,
    }
}

//= RFC 9110 section 14.1.2: byte ranges
fn select(range: &str, len_bytes: u64) -> Outcome {
    // A server may answer a request for several ranges with the whole content, as the mock origin
    // does.
    let Some((first, last)) = single_range(range) else {
        return Outcome::Full;
    };
    let (start, end) = match (first, last) {
        (Some(first), Some(last)) if last < first => return Outcome::Full,
        (Some(first), last) => (first, last.map_or(len_bytes, |last| last.saturating_add(1).min(len_bytes))),
        (None, Some(suffix)) => (len_bytes - suffix.min(len_bytes), len_bytes),
        (None, None) => return Outcome::Full,
    };
    if start >= len_bytes {
        return Outcome::Unsatisfiable;
    }
    Outcome::Partial(start..end)
}

fn single_range(range: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (unit, set) = range.split_once('=')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = set.trim().split_once('-')?;
    Some((position(first)?, position(last)?))
}

/// Parses a position in a range: a number, or nothing.
fn position(digits: &str) -> Option<Option<u64>> {
    if digits.is_empty() {
        return Some(None);
    }
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(Some(digits.parse().unwrap_or(u64::MAX)))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

fn listed(headers: &HeaderMap, name: HeaderName, current: Option<&str>, comparison: Comparison) -> bool {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.into_iter().any(|line| {
        line.trim() == "*" || current.is_some_and(|etag| tags(line).any(|tag| same(tag, etag, comparison)))
    })
}

//= RFC 9110 section 8.8.3.2: strong comparison
//= RFC 9110 section 8.8.3.2: weak comparison
fn same(one: &str, other: &str, comparison: Comparison) -> bool {
    let opaque = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
    match comparison {
        Comparison::Strong => one == other && !one.starts_with("W/"),
        Comparison::Weak => opaque(one) == opaque(other),
    }
}

/// Returns the entity tags of a list; commas inside the quotes belong to the tag.
fn tags(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let quote = rest.find('"')?;
        let end = quote + 1 + rest[quote + 1..].find('"')? + 1;
        let (tag, after) = rest.split_at(end);
        rest = after;
        Some(tag)
    })
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn date(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(text(headers, name)?).ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    const MODIFIED: &str = "Sun, 09 Sep 2001 01:46:40 GMT";
    const EARLIER: &str = "Sun, 09 Sep 2001 01:46:39 GMT";
    const LATER: &str = "Sun, 09 Sep 2001 01:46:41 GMT";

    fn check(etag: &str, request: &[(&'static str, &str)], expected: &Outcome) {
        let mut headers = HeaderMap::new();
        for (name, value) in request {
            headers.append(*name, value.parse().unwrap());
        }
        let modified = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let current = Validators { etag: Some(etag), last_modified: Some(modified) };
        let outcome = evaluate(&headers, current, 100, Ranges::Served);
        assert_eq!(&outcome, expected, "{etag} {request:?}");
    }

    #[test]
    fn preconditions_follow_their_order() {
        use Outcome::{Full, NotModified, PreconditionFailed};
        //= RFC 9110 section 13.1.2: If-None-Match, weak comparison
        check("\"a\"", &[], &Full);
        check("\"a\"", &[("if-none-match", "\"a\"")], &NotModified);
        check("\"a\"", &[("if-none-match", "W/\"a\"")], &NotModified);
        check("W/\"a\"", &[("if-none-match", "\"a\"")], &NotModified);
        check("\"a\"", &[("if-none-match", "\"b\", \"a\"")], &NotModified);
        check("\"a\"", &[("if-none-match", "\"b\""), ("if-none-match", "\"a\"")], &NotModified);
        check("\"a,b\"", &[("if-none-match", "\"x\",\"a,b\"")], &NotModified);
        check("\"a\"", &[("if-none-match", "*")], &NotModified);
        check("\"a\"", &[("if-none-match", "\"b\"")], &Full);
        check("\"a\"", &[("if-none-match", "a")], &Full);
        //= RFC 9110 section 13.1.3: If-Modified-Since is ignored when If-None-Match is present
        check("\"a\"", &[("if-none-match", "\"b\""), ("if-modified-since", LATER)], &Full);
        check("\"a\"", &[("if-modified-since", MODIFIED)], &NotModified);
        check("\"a\"", &[("if-modified-since", LATER)], &NotModified);
        check("\"a\"", &[("if-modified-since", EARLIER)], &Full);
        check("\"a\"", &[("if-modified-since", "yesterday")], &Full);
        //= RFC 9110 section 13.1.1: If-Match uses the strong comparison
        check("\"a\"", &[("if-match", "\"a\"")], &Full);
        check("W/\"a\"", &[("if-match", "W/\"a\"")], &PreconditionFailed);
        check("\"a\"", &[("if-match", "\"b\""), ("if-none-match", "\"a\"")], &PreconditionFailed);
        //= RFC 9110 section 13.1.4: If-Unmodified-Since
        check("\"a\"", &[("if-unmodified-since", EARLIER)], &PreconditionFailed);
        check("\"a\"", &[("if-unmodified-since", MODIFIED)], &Full);
    }

    #[test]
    fn ranges_select_bytes() {
        use Outcome::{Full, Partial, Unsatisfiable};
        //= RFC 9110 section 14.1.2: byte ranges
        let cases = [
            ("bytes=0-0", Partial(0..1)),
            ("bytes=0-99", Partial(0..100)),
            ("bytes=10-", Partial(10..100)),
            ("bytes=90-500", Partial(90..100)),
            ("bytes=5-99999999999999999999999", Partial(5..100)),
            ("bytes=-1", Partial(99..100)),
            ("bytes=-500", Partial(0..100)),
            ("BYTES=1-2", Partial(1..3)),
            ("bytes=100-", Unsatisfiable),
            ("bytes=99999999999999999999999-", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=5-4", Full),
            ("bytes=-", Full),
            ("bytes=a-b", Full),
            ("bytes=0-1,5-6", Full),
            ("lines=0-1", Full),
            ("bytes", Full),
        ];
        for (range, expected) in &cases {
            check("\"a\"", &[("range", range)], expected);
        }
    }

    #[test]
    fn if_range_guards_the_range() {
        use Outcome::{Full, NotModified, Partial};
        //= RFC 9110 section 13.1.5: If-Range, strong comparison and exact dates
        let part = &Partial(1..3);
        check("\"a\"", &[("range", "bytes=1-2"), ("if-range", "\"a\"")], part);
        check("\"a\"", &[("range", "bytes=1-2"), ("if-range", "\"b\"")], &Full);
        check("W/\"a\"", &[("range", "bytes=1-2"), ("if-range", "W/\"a\"")], &Full);
        check("\"a\"", &[("range", "bytes=1-2"), ("if-range", MODIFIED)], part);
        check("\"a\"", &[("range", "bytes=1-2"), ("if-range", LATER)], &Full);
        check("\"a\"", &[("range", "bytes=1-2"), ("if-range", "soon")], &Full);
        check("\"a\"", &[("range", "bytes=1-2"), ("if-none-match", "\"a\"")], &NotModified);
    }
}
