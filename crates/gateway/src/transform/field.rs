//! Fields that actions may read, write or remove.

use caching::hop_by_hop;
use caching::unkeyed::{self, FieldClass, class_of};
use http::HeaderName;

use super::phase::Phase;

/// Parses the name of a field.
///
/// # Errors
/// A message with the problem; also below.
pub fn field_name(text: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(text.as_bytes()).map_err(|_| format!("`{text}` is not a header field name"))
}

/// Parses the name of a field whose value may be copied.
pub(super) fn readable(text: &str) -> Result<HeaderName, String> {
    let name = field_name(text)?;
    match hop_by_hop::ends_here(name.as_str()) {
        true => Err(format!("`{name}` applies to this connection only")),
        false => Ok(name),
    }
}

/// Parses the name of a field that may be set.
pub(super) fn writable(text: &str, phase: Phase) -> Result<HeaderName, String> {
    let name = removable(text, phase)?;
    match phase.is_of_responses() && ["etag", "last-modified"].contains(&name.as_str()) {
        true => Err(format!("only the origin may set `{name}`, because it is used for validation")),
        false => Ok(name),
    }
}

/// Parses the name of a field that may be removed.
pub(super) fn deletable(text: &str, phase: Phase) -> Result<HeaderName, String> {
    let name = removable(text, phase)?;
    match phase.is_of_responses() && name == http::header::CONTENT_ENCODING {
        true => Err(format!(
            "`{name}` is needed to decode the body, which rules don't change: remove `accept-encoding` in phase `origin_request` instead"
        )),
        false => Ok(name),
    }
}

/// Parses the name of a field that rules may change.
fn removable(text: &str, phase: Phase) -> Result<HeaderName, String> {
    let name = field_name(text)?;
    let own = name.as_str();
    if hop_by_hop::ends_here(own) || hop_by_hop::is_written_by_sender(own) || FRAMING.contains(&own) {
        return Err(format!("`{name}` belongs to the connection or to the framing of the message"));
    }
    let is_larder_s = match phase {
        Phase::ClientRequest | Phase::OriginRequest => WRITTEN_IN_REQUESTS.contains(&own),
        Phase::OriginResponse | Phase::ClientResponse => WRITTEN_IN_RESPONSES.contains(&own),
    };
    if is_larder_s || phase == Phase::OriginRequest && class_of(own) == FieldClass::Never {
        return Err(format!("`{name}` is written by Larder itself"));
    }
    if phase == Phase::ClientRequest && unkeyed::is_written_or_dropped(own) {
        return Err(format!("`{name}` is not forwarded as a client sends it: use phase `origin_request`"));
    }
    Ok(name)
}

const FRAMING: [&str; 2] = ["content-range", "trailer"];
const WRITTEN_IN_REQUESTS: [&str; 18] = [
    "cdn-loop",
    "expect",
    "forwarded",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "larder-timing",
    "max-forwards",
    "range",
    "traceparent",
    "tracestate",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
];
const WRITTEN_IN_RESPONSES: [&str; 5] = ["age", "cache-status", "date", "via", "x-cache"];
