//! An origin server that answers range requests as RFC 9110 section 14 says, for a resource that a test may
//! change.

pub(crate) mod storm;

use std::ops::Range;
use std::sync::{Arc, Mutex};

use testkit::{Exchange, Response};

/// The content that an origin server has under every target.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub(crate) body: Vec<u8>,
    /// Entity tag, including the quotes.
    pub(crate) etag: &'static str,
    /// Field lines, including line ends.
    pub(crate) fields: &'static str,
    pub(crate) on_range: OnRange,
}

/// How the origin server handles `Range`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnRange {
    /// As specified.
    Answer,
    Ignore,
    /// Sends at most 10 bytes per response.
    TenBytes,
    /// Sends half of the announced bytes, then closes the connection.
    Half,
}

/// A resource that changes when the test says so.
pub(crate) type Resource = Arc<Mutex<Content>>;

impl Content {
    pub(crate) fn new(body: Vec<u8>) -> Self {
        Self { body, etag: "\"a\"", fields: "Cache-Control: max-age=60\r\n", on_range: OnRange::Answer }
    }

    pub(crate) fn shared(self) -> Resource {
        Arc::new(Mutex::new(self))
    }
}

/// A hundred bytes that depend on their position.
pub(crate) fn hundred() -> Vec<u8> {
    (0..100).map(|place| b' ' + place % 90).collect()
}

/// Answers a request for a resource.
pub(crate) fn answer(exchange: &mut Exchange<'_>, resource: &Resource) {
    let content = resource.lock().expect("no holder of this lock panics").clone();
    let mut fields = format!("{}ETag: {}\r\n", content.fields, content.etag);
    if exchange.request.field("if-none-match") == content.etag {
        exchange.head("304 Not Modified", &fields);
        return;
    }
    let if_range = exchange.request.field("if-range").to_owned();
    let is_current = if_range.is_empty() || if_range == content.etag;
    let range = exchange.request.field("range").to_owned();
    let (mut status, mut body) = ("200 OK", &content.body[..]);
    if !range.is_empty() && is_current && content.on_range != OnRange::Ignore {
        let length = body.len();
        let Some(mut part) = part_of(&range, length) else {
            let fields = format!("Content-Range: bytes */{length}\r\n");
            exchange.respond("416 Range Not Satisfiable", &fields, "");
            return;
        };
        if content.on_range == OnRange::TenBytes {
            part.end = part.end.min(part.start + 10);
        }
        fields.push_str(&format!("Content-Range: bytes {}-{}/{length}\r\n", part.start, part.end - 1));
        (status, body) = ("206 Partial Content", &content.body[part]);
    }
    if content.on_range == OnRange::Half {
        fields.push_str(&format!("Content-Length: {}\r\n", body.len()));
        exchange.head(status, &fields).send(&body[..body.len() / 2]).close();
    } else {
        exchange.respond(status, &fields, body);
    }
}

/// Returns the single range of a `Range` field.
pub(crate) fn part_of(range: &str, length: usize) -> Option<Range<usize>> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let part = match (first, last) {
        ("", count) => length.saturating_sub(count.parse().ok()?)..length,
        (first, "") => first.parse().ok()?..length,
        (first, last) => first.parse().ok()?..(last.parse::<usize>().ok()? + 1).min(length),
    };
    (part.start < part.end).then_some(part)
}

/// Describes the response: `10-19/100` for a part, `whole` for all of `body`, else the status code. Panics if
/// the bytes differ from those of `body`.
#[track_caller]
pub(crate) fn extent(response: &Response, body: &[u8]) -> String {
    match response.status() {
        200 => {
            assert!(response.body == body, "200 with other bytes: {:?}", response.head);
            "whole".to_owned()
        }
        206 => {
            let value = response.field("content-range");
            let extent = value.strip_prefix("bytes ").unwrap_or_else(|| panic!("{:?}", response.head));
            let (part, _) = extent.split_once('/').expect(value);
            let part = part_of(&format!("bytes={part}"), body.len()).expect(value);
            assert!(response.body == body[part], "206 with other bytes: {:?}", response.head);
            extent.to_owned()
        }
        status => status.to_string(),
    }
}
