//! Plain resources: items, statuses, bytes, chunks, users, SOAP, events.

use std::time::{Duration, UNIX_EPOCH};

use http::header::{CACHE_CONTROL, LAST_MODIFIED};
use http::{Method, StatusCode};
use serde_json::json;

use crate::{
    answer::{Answer, date_value},
    conditional::Ranges,
    content::{Content, fingerprint, scramble},
    knobs::{BODY_BYTES_MAX, Framing, Knobs},
};

use super::call::Call;

/// `GET /items/:id` is the same for ever; unsafe methods are acknowledged and change nothing, which is
/// enough to see a gateway invalidate.
pub(super) fn item(call: &Call<'_>, id: &str) -> Answer {
    let method = &call.head.method;
    if !matches!(*method, Method::GET | Method::HEAD) {
        let value = json!({ "id": id, "method": method.as_str(), "received_bytes": call.body.len() });
        return Answer::json(StatusCode::OK, &value);
    }
    let number = fingerprint([id.as_bytes()]);
    let value = json!({
        "id": id,
        "name": format!("{} {}", ADJECTIVES[pick(number, ADJECTIVES.len())], NOUNS[pick(number >> 8, NOUNS.len())]),
        "price_cents": 100 + number % 99_900,
        "in_stock": number % 7 != 0,
    });
    let mut answer = Answer::json(StatusCode::OK, &value).cacheable("public, max-age=60");
    let modified = UNIX_EPOCH + Duration::from_secs(ITEMS_SINCE_S + number % YEAR_S);
    answer.fields.insert(LAST_MODIFIED, date_value(modified));
    answer
}

/// `/status/:code` with a line of text, and no Cache-Control by itself.
pub(super) fn status(code: &str) -> Answer {
    let status = code.parse().ok().filter(|code| (200..1000).contains(code));
    let Some(status) = status.and_then(|code| StatusCode::from_u16(code).ok()) else {
        return Answer::refusal(StatusCode::BAD_REQUEST, "/status/:code takes a code from 200 to 999");
    };
    Answer::text(status, format!("{status}\n"))
}

/// `GET /bytes/:n`.
pub(super) fn bytes(count: &str) -> Answer {
    let Some(count) = count.parse().ok().filter(|count| *count <= BODY_BYTES_MAX) else {
        return Answer::refusal(
            StatusCode::BAD_REQUEST,
            format!("/bytes/:n takes a number up to {BODY_BYTES_MAX}"),
        );
    };
    let mut answer = Answer::new(StatusCode::OK, "application/octet-stream", Content::random(count));
    answer.chunk_bytes = 64 * 1024;
    answer.cacheable("public, max-age=60")
}

/// `GET /stream/:chunks`: one line per chunk.
pub(super) fn stream(chunks: &str) -> Answer {
    let Some(chunks) = chunks.parse::<usize>().ok().filter(|chunks| *chunks <= CHUNKS_MAX) else {
        return Answer::refusal(
            StatusCode::BAD_REQUEST,
            format!("/stream/:chunks takes a number up to {CHUNKS_MAX}"),
        );
    };
    let lines = numbered(chunks, |number| format!("chunk {number:06} of {chunks:06}\n"));
    let mut answer = Answer::text(StatusCode::OK, lines.text);
    answer.framing = Framing::Chunked;
    answer.chunk_bytes = lines.each_bytes;
    answer
}

/// `GET /sse`: numbered events, one chunk each.
pub(super) fn events(knobs: &Knobs) -> Answer {
    let lines = numbered(knobs.events.unwrap_or(EVENTS), |number| {
        format!("id: {number:06}\nevent: tick\ndata: tick {number:06}\n\n")
    });
    let mut answer = Answer::new(StatusCode::OK, "text/event-stream", Content::of(lines.text));
    answer.framing = Framing::Chunked;
    answer.ranges = Ranges::Ignored;
    answer.chunk_bytes = lines.each_bytes;
    answer.sleep_between = EVENT_PAUSE;
    answer.with(CACHE_CONTROL, "no-cache")
}

/// Parts of equal length, so that a chunk size splits them again.
struct Numbered {
    text: String,
    each_bytes: usize,
}

fn numbered(count: usize, part: impl Fn(usize) -> String) -> Numbered {
    Numbered { text: (1..=count).map(&part).collect(), each_bytes: part(1).len() }
}

/// `GET /users`.
pub(super) fn users() -> Answer {
    let users: Vec<_> = (1..=USERS).map(user_json).collect();
    Answer::json(StatusCode::OK, &json!({ "users": users })).cacheable("public, max-age=30")
}

/// `GET /users/:id`.
pub(super) fn user(id: &str) -> Answer {
    let Some(id) = id.parse().ok().filter(|id| (1..=USERS).contains(id)) else {
        return Answer::refusal(StatusCode::NOT_FOUND, format!("users have the numbers 1 to {USERS}"));
    };
    Answer::json(StatusCode::OK, &user_json(id)).cacheable("public, max-age=30")
}

fn user_json(id: u64) -> serde_json::Value {
    let name = GIVEN_NAMES[pick(scramble(id), GIVEN_NAMES.len())];
    json!({ "id": id, "name": name, "email": format!("{}{id}@example.com", name.to_lowercase()) })
}

/// `POST /soap`: the body inside an envelope.
pub(super) fn soap(call: &Call<'_>) -> Answer {
    let text = String::from_utf8_lossy(&call.body);
    let text = text.trim_start_matches('\u{feff}').trim();
    // A declaration is only allowed at the very start of a document.
    let inner = text
        .strip_prefix("<?xml")
        .and_then(|rest| rest.split_once("?>"))
        .map_or(text, |(_, rest)| rest.trim());
    let envelope = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
         <soap:Envelope xmlns:soap=\"http://schemas.xmlsoap.org/soap/envelope/\">\
         <soap:Body><EchoResponse xmlns=\"urn:example:mock-origin\">{inner}</EchoResponse></soap:Body>\
         </soap:Envelope>\n"
    );
    Answer::new(StatusCode::OK, "text/xml; charset=utf-8", Content::of(envelope))
}

fn pick(number: u64, count: usize) -> usize {
    (number % count as u64) as usize
}

const ADJECTIVES: [&str; 8] = ["Blue", "Quiet", "Sturdy", "Bright", "Small", "Folding", "Woollen", "Copper"];
const NOUNS: [&str; 8] = ["lamp", "kettle", "basket", "chair", "blanket", "clock", "ladder", "jar"];
const GIVEN_NAMES: [&str; 8] = ["Ada", "Bruno", "Chen", "Dora", "Emil", "Farah", "Goran", "Hana"];
const USERS: u64 = 100;
const CHUNKS_MAX: usize = 100_000;
const EVENTS: usize = 5;
const EVENT_PAUSE: Duration = Duration::from_secs(1);
/// 2024-01-01; items were last modified during the year after it.
const ITEMS_SINCE_S: u64 = 1_704_067_200;
const YEAR_S: u64 = 31_536_000;
