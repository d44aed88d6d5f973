//! What reached the origin: the request itself, counters, metrics.

use http::header::CACHE_CONTROL;
use http::{HeaderName, StatusCode};
use serde_json::json;

use crate::{answer::Answer, content::Content, state::State};

use super::call::{Call, target};

/// Any method on `/echo`: the request as JSON. Names are in lower case: the HTTP library keeps no others.
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
    let page = state.metrics.to_prometheus(state.counters.overflow());
    Answer::new(StatusCode::OK, "text/plain; version=0.0.4", Content::of(page))
        .with(CACHE_CONTROL, "no-store")
}

/// `GET /counters`: everything; with `?url=`, the requests for one URL as a plain number.
pub(super) fn counters(call: &Call<'_>) -> Answer {
    let query = call.head.uri.query().unwrap_or_default();
    let url = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "url");
    let answer = match url {
        Some((_, url)) => Answer::text(StatusCode::OK, call.state.counters.of(&url).requests.to_string()),
        None => Answer::new(StatusCode::OK, "application/json", Content::of(call.state.counters.to_json())),
    };
    let overflow = HeaderName::from_static("x-counters-overflow");
    answer.with(CACHE_CONTROL, "no-store").with(overflow, &call.state.counters.overflow().to_string())
}

/// `POST /counters/reset`.
pub(super) fn reset_counters(state: &State) -> Answer {
    state.counters.reset();
    Answer::text(StatusCode::NO_CONTENT, "")
}
