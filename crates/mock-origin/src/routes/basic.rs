//! Plain resources: a page for browsers, items, bytes, and reports of requests.

use std::time::{Duration, UNIX_EPOCH};

use http::header::{CACHE_CONTROL, LAST_MODIFIED};
use http::{HeaderName, Method, StatusCode};
use serde_json::json;

use crate::{
    answer::{Answer, date_value},
    content::{Content, fingerprint},
    knobs::BODY_BYTES_MAX,
};

use super::call::{Call, State, target};

/// `GET /`, with links that have the prefix.
pub(super) fn index(call: &Call<'_>) -> Answer {
    let prefix = call.state.prefix.as_str();
    let page = INDEX.replace("=\"/", &format!("=\"{prefix}/"));
    Answer::new(StatusCode::OK, "text/html; charset=utf-8", Content::of(page)).cacheable("public, max-age=60")
}

/// `GET /style.css`.
pub(super) fn style() -> Answer {
    Answer::new(StatusCode::OK, "text/css; charset=utf-8", Content::of(STYLE))
        .cacheable("public, max-age=3600")
}

/// `GET /image.svg`.
pub(super) fn image() -> Answer {
    Answer::new(StatusCode::OK, "image/svg+xml", Content::of(IMAGE)).cacheable("public, max-age=3600")
}

/// `GET /items/:id`: always the same. Unsafe methods are acknowledged and change nothing, which is enough to trigger an invalidation
/// in a gateway.
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

/// Any method on `/echo`: the request as JSON. Names are in lower case, because the HTTP library converts them.
pub(super) fn echo(call: &Call<'_>) -> Answer {
    let head = call.head;
    let headers: Vec<_> = head
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let value = json!({
        "method": head.method.as_str(),
        "target": &*target(head),
        "authority": head.uri.authority().map(ToString::to_string),
        "version": format!("{:?}", head.version),
        "headers": headers,
        "body_bytes": call.body.len(),
        "body": String::from_utf8_lossy(&call.body),
    });
    Answer::json(StatusCode::OK, &value).with(CACHE_CONTROL, "no-store")
}

/// `GET /metrics`.
pub(super) fn metrics(state: &State) -> Answer {
    let page = Content::of(state.counters.to_prometheus());
    Answer::new(StatusCode::OK, "text/plain; version=0.0.4", page).with(CACHE_CONTROL, "no-store")
}

/// `GET /counters`: all URLs; with `?url=`, the requests for one URL as a plain number.
pub(super) fn counters(call: &Call<'_>) -> Answer {
    let query = call.head.uri.query().unwrap_or_default();
    let url = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "url");
    let counters = &call.state.counters;
    let answer = match url {
        Some((_, url)) => Answer::text(StatusCode::OK, counters.requests(&url).to_string()),
        None => Answer::new(StatusCode::OK, "application/json", Content::of(counters.to_json())),
    };
    let overflow = HeaderName::from_static("x-counters-overflow");
    answer.with(CACHE_CONTROL, "no-store").with(overflow, &counters.overflow().to_string())
}

fn pick(number: u64, count: usize) -> usize {
    (number % count as u64) as usize
}

const ADJECTIVES: [&str; 8] = ["Blue", "Quiet", "Sturdy", "Bright", "Small", "Folding", "Woollen", "Copper"];
const NOUNS: [&str; 8] = ["lamp", "kettle", "basket", "chair", "blanket", "clock", "ladder", "jar"];
/// 2024-01-01; items were last modified during the year after it.
const ITEMS_SINCE_S: u64 = 1_704_067_200;
const YEAR_S: u64 = 31_536_000;

const INDEX: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Mock origin</title>
<link rel="stylesheet" href="/style.css">
</head>
<body>
<h1><img src="/image.svg" alt="" width="48" height="48"> Mock origin</h1>
<table>
<tr><td><a href="/items/1">/items/:id</a><td>an item; unsafe methods are acknowledged
<tr><td><a href="/bytes/1000">/bytes/:n</a><td>pseudo-random bytes, the same for the same n
<tr><td><a href="/echo">/echo/...</a><td>any method: the request as JSON
<tr><td><a href="/api/products/1">/api/products/:id</a><td>and /api/products, /api/products/category/:category,
/api/recommendations/:userId, /api/stats, /health
<tr><td><a href="/counters">/counters</a>, <a href="/metrics">/metrics</a><td>what reached this origin
</table>
<p>Knobs for every resource: delay, sleep_between, chunk, size, cc, etag, vary, date.</p>
</body>
</html>
"#;

const STYLE: &str = "body { font-family: sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
td { padding: 0.2rem 1rem 0.2rem 0; vertical-align: top }
h1 img { vertical-align: middle }
";

const IMAGE: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48">
<rect x="6" y="10" width="36" height="32" rx="3" fill="#c96"/>
<path d="M6 20h36M6 31h36" stroke="#853" stroke-width="3"/>
<circle cx="24" cy="26" r="2.5" fill="#853"/>
</svg>
"##;
