//! Compares two responses to one request, from an origin server and from the gateway in front of it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::SystemTime;

use testkit::{Client, End, Response};

/// Fields in which a cache's response may differ: fields of the connection, the framing and the cache itself.
const OWN_FIELDS: [&str; 12] = [
    // nginx omits it from a 206, so a response combined from parts lacks it.
    "accept-ranges",
    "age",
    "via",
    "cache-status",
    "connection",
    "keep-alive",
    "upgrade",
    "transfer-encoding",
    "content-length",
    "trailer",
    "date",
    "expires",
];

/// Fields that a 304 has or may have (RFC 9110 section 15.4.5), whether or not the origin server sends them.
const FIELDS_OF_304: [&str; 5] = ["cache-control", "content-location", "etag", "vary", "last-modified"];

/// Sends one request on a new connection.
pub(crate) fn ask(address: SocketAddr, method: &str, path: &str, fields: &str) -> Response {
    let mut client = Client::connect(address);
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: test.example\r\n{fields}\r\n"));
    client
        .try_response_to(method)
        .unwrap_or_else(|error| panic!("{method} {path} {fields:?} at {address}: {error}"))
}

/// Describes differences; empty if the responses mean the same. `fields` are the request fields.
pub(crate) fn differences(fields: &str, origin: &Response, cached: &Response) -> Vec<String> {
    let mut found = Vec::new();
    if fields.contains("Range: ") && origin.status() == 200 && is_of_whole(origin, cached) {
        return found;
    }
    note(&mut found, "status", &origin.status(), &cached.status());
    note(&mut found, "truncated", &(origin.end == End::Truncated), &(cached.end == End::Truncated));
    if origin.status() != cached.status() {
        return found;
    }
    // A cache may omit trailers from a stored response.
    if fields.contains("TE: trailers") && !cached.is_hit() {
        let trailers = |response: &Response| response.trailers.joined("x-sum");
        note(&mut found, "trailers", &trailers(origin), &trailers(cached));
    }
    match origin.status() {
        // The rest is the server's own error page.
        416 if !origin.head.fields.has("content-range") => {}
        416 => {
            note(&mut found, "content-range", &origin.field("content-range"), &cached.field("content-range"))
        }
        304 => compare_304(&mut found, origin, cached),
        _ => compare_whole(&mut found, origin, cached),
    }
    found
}

/// Returns whether the cache answered with ranges of a response that the server doesn't serve in ranges, or not of this kind.
fn is_of_whole(whole: &Response, cached: &Response) -> bool {
    let size = whole.body.len();
    match cached.status() {
        416 => cached.field("content-range") == format!("bytes */{size}"),
        206 if is_multipart(cached) => {
            parts(cached).iter().all(|(range, part)| is_slice(range, part, &whole.body))
        }
        206 => is_slice(cached.field("content-range"), &cached.body, &whole.body),
        _ => false,
    }
}

/// Returns whether `part` has the bytes of a `Content-Range`.
fn is_slice(range: &str, part: &[u8], whole: &[u8]) -> bool {
    let size = format!("/{}", whole.len());
    let bounds = range.strip_prefix("bytes ").and_then(|range| range.strip_suffix(&size)?.split_once('-'));
    let Some((first, last)) = bounds else { return false };
    let (first, last) = (first.parse::<usize>().expect("a number"), last.parse::<usize>().expect("a number"));
    whole.get(first..=last) == Some(part)
}

fn is_multipart(response: &Response) -> bool {
    response.field("content-type").starts_with("multipart/byteranges")
}

fn note<T: PartialEq + std::fmt::Debug>(found: &mut Vec<String>, what: &str, origin: &T, cached: &T) {
    if origin != cached {
        found.push(format!("{what}: origin {origin:?}, cached {cached:?}"));
    }
}

/// Compares leniently: some servers omit required fields from a 304, and some only know the tag of the uncoded form.
fn compare_304(found: &mut Vec<String>, origin: &Response, cached: &Response) {
    for name in names(origin).intersection(&names(cached)).filter(|name| *name != "etag") {
        note(found, name, &origin.head.fields.joined(name), &cached.head.fields.joined(name));
    }
    for name in names(origin).symmetric_difference(&names(cached)) {
        if !FIELDS_OF_304.contains(&name.as_str()) {
            found.push(format!("{name} is in only one 304"));
        }
    }
}

fn compare_whole(found: &mut Vec<String>, origin: &Response, cached: &Response) {
    note(found, "status line", &origin.head.start, &cached.head.start);
    let is_multipart = is_multipart(origin);
    for name in names(origin).union(&names(cached)) {
        if !(is_multipart && name == "content-type") {
            let lines =
                |response: &Response| response.head.fields.all(name).map(str::to_owned).collect::<Vec<_>>();
            note(found, name, &lines(origin), &lines(cached));
        }
    }
    note(found, "lifetime by Expires", &lifetime_s(origin), &lifetime_s(cached));
    if is_multipart {
        note(found, "parts", &parts(origin), &parts(cached));
        return;
    }
    if origin.body != cached.body {
        found.push(format!("body: origin {} bytes, cached {} bytes", origin.body.len(), cached.body.len()));
    }
    let length = |response: &Response| response.head.fields.one("content-length").map(str::to_owned);
    if let (Some(origin), Some(cached)) = (length(origin), length(cached)) {
        note(found, "content-length", &origin, &cached);
    }
}

fn names(response: &Response) -> BTreeSet<String> {
    let names = response.head.fields.0.iter().map(|(name, _)| name.to_ascii_lowercase());
    names.filter(|name| !OWN_FIELDS.contains(&name.as_str())).collect()
}

/// Lifetime by Expires: a server that computes Expires from the current time sends changing dates, but a constant lifetime.
fn lifetime_s(response: &Response) -> Option<i64> {
    let seconds = |name| {
        let date = httpdate::parse_http_date(response.field(name)).ok()?;
        let since = date.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        i64::try_from(since.as_secs()).ok()
    };
    Some(seconds("expires")? - seconds("date")?)
}

/// Range and bytes of each part of a multipart body.
fn parts(response: &Response) -> Vec<(String, Vec<u8>)> {
    let content_type = response.field("content-type");
    let boundary = content_type.split("boundary=").nth(1).expect("a boundary").trim_matches('"');
    let delimiter = format!("\r\n--{boundary}");
    let whole = [b"\r\n", &response.body[..]].concat();
    let mut found = Vec::new();
    let mut rest = &whole[find(&whole, delimiter.as_bytes()).expect("a first delimiter") + delimiter.len()..];
    while let Some(end) = find(rest, delimiter.as_bytes()) {
        let part = &rest[..end];
        let body = find(part, b"\r\n\r\n").expect("the head of a part ends") + 4;
        let head = String::from_utf8_lossy(&part[..body]).to_ascii_lowercase();
        let range = head.lines().find_map(|line| line.strip_prefix("content-range:"));
        found.push((range.expect("a range").trim().to_owned(), part[body..].to_vec()));
        rest = &rest[end + delimiter.len()..];
    }
    assert!(rest.starts_with(b"--"), "the last delimiter is marked");
    found
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
