//! What a browser loads: a page with a style sheet and an image, and text that may be compressed.

use http::header::{ACCEPT_ENCODING, VARY};
use http::{HeaderMap, StatusCode};

use crate::{
    answer::{Answer, Coding},
    content::Content,
};

use super::call::Call;

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

/// `GET /gzip`: compressed for those who accept it; the ETag follows the bytes and so differs.
pub(super) fn gzip(call: &Call<'_>) -> Answer {
    let text: String = (1..=200)
        .map(|line| format!("Line {line:03}: the same words on every line compress well.\n"))
        .collect();
    let mut answer = Answer::text(StatusCode::OK, text);
    if accepts_gzip(&call.head.headers) {
        if call.knobs.size_bytes > GZIP_SIZE_BYTES_MAX {
            let limit =
                format!("knob `size`: /gzip holds its body in memory; allowed: up to {GZIP_SIZE_BYTES_MAX}");
            return Answer::refusal(StatusCode::BAD_REQUEST, limit);
        }
        answer.coding = Coding::Gzip;
    }
    answer.with(VARY, "Accept-Encoding").cacheable("public, max-age=60")
}

//= RFC 9110 section 12.5.3: Accept-Encoding
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    let members: Vec<_> = lines.flat_map(|line| line.split(',')).map(member).collect();
    let named = |name: &str| members.iter().find(|(coding, _)| coding.eq_ignore_ascii_case(name));
    let chosen = named("gzip").or_else(|| named("x-gzip")).or_else(|| named("*"));
    chosen.is_some_and(|(_, weight)| *weight > 0.0)
}

fn member(member: &str) -> (&str, f32) {
    let mut parts = member.split(';').map(str::trim);
    let coding = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    (coding, weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0)))
}

const GZIP_SIZE_BYTES_MAX: u64 = 16 << 20;

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
<tr><td><a href="/status/503">/status/:code</a><td>any method, that status
<tr><td><a href="/bytes/1000">/bytes/:n</a><td>pseudo-random bytes, the same for the same n
<tr><td><a href="/stream/5?sleep_between=300">/stream/:chunks</a><td>one line per chunk
<tr><td><a href="/gzip">/gzip</a><td>compressed when accepted
<tr><td><a href="/users">/users</a>, <a href="/users/1">/users/:id</a><td>people
<tr><td><a href="/private/basic/a">/private/basic/...</a><td>any user with the password "password"
<tr><td><a href="/private/bearer/a">/private/bearer/...</a><td>the token "token", or "token-NAME"
<tr><td>/soap<td>POST: the body in an envelope
<tr><td><a href="/sse?events=3">/sse</a><td>server-sent events
<tr><td>/ws<td>WebSocket echo
<tr><td><a href="/echo">/echo/...</a><td>any method: the request as JSON
<tr><td><a href="/api/products/1">/api/products/:id</a><td>and /api/products, /api/products/category/:category,
/api/recommendations/:userId, /api/stats, /api/admin/invalidate-cache, /health
<tr><td><a href="/counters">/counters</a>, <a href="/metrics">/metrics</a><td>what reached this origin
</table>
<p>Knobs for every resource: delay, cc, vary, etag, lm, size, fail, close, sleep_between, chunk, expires, age, date,
header, chunked, trailer, events.</p>
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_sent_only_to_those_who_accept_it() {
        let cases = [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("x-gzip", true),
            ("*", true),
            ("*;q=0, gzip", true),
            ("gzip;q=0, *", false),
            ("gzip;q=0.000", false),
            ("br", false),
            ("", false),
        ];
        for (line, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, line.parse().unwrap());
            assert_eq!(accepts_gzip(&headers), expected, "{line}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
