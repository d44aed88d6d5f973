//! Trailer fields that are forwarded. They are selected by name, like header fields: most recipients merge both sections, so a
//! field that must not be forwarded in the head must not be forwarded after the content either.

use caching::hop_by_hop;
use caching::unkeyed::{FieldClass, class_of};
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

/// Returns whether a forwarded message may have a trailer field of this name.
//= RFC 9110 section 6.5.1: limitations on use of trailers
//= RFC 9113 section 8.2.2: connection-specific fields are not sent
pub fn may_pass(name: &str) -> bool {
    !http1::is_forbidden_trailer(name)
        && !hop_by_hop::ends_here(name)
        && !hop_by_hop::is_written_by_sender(name)
        && class_of(name) == FieldClass::Ordinary
}

/// Returns the names in lines of `Trailer` that may be forwarded and aren't in `hidden`, if any.
//= RFC 9110 section 6.6.2: Trailer names what may come
pub fn announcing<'a>(lines: impl Iterator<Item = &'a [u8]>, hidden: &[HeaderName]) -> Option<Vec<u8>> {
    let is_hidden = |name: &str| hidden.iter().any(|hidden| hidden.as_str().eq_ignore_ascii_case(name));
    let passes = |name: &str| may_pass(name) && !is_hidden(name);
    let names = lines.flat_map(http1::elements);
    let names = names.filter(|name| std::str::from_utf8(name).is_ok_and(passes));
    let names: Vec<&[u8]> = names.collect();
    (!names.is_empty()).then(|| names.join(&b", "[..]))
}

/// Converts a trailer section to a map. `None` if it is empty.
pub fn of_lines<'a>(lines: impl Iterator<Item = (&'a str, &'a [u8])>) -> Option<HeaderMap> {
    let parsed = |(name, value): (&'a str, &'a [u8])| {
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_bytes(value).ok()?))
    };
    let mut trailers = HeaderMap::new();
    lines.filter_map(parsed).for_each(|(name, value)| _ = trailers.append(name, value));
    (!trailers.is_empty()).then_some(trailers)
}

/// Returns the trailers that may be forwarded and aren't in `hidden`, if any.
pub fn passing(received: HeaderMap, hidden: &[HeaderName]) -> Option<HeaderMap> {
    without(received, |name| !may_pass(name.as_str()) || hidden.contains(name))
}

/// Returns the trailers that the head announced, if any.
pub fn announced(received: HeaderMap, names: &[HeaderName]) -> Option<HeaderMap> {
    without(received, |name| !names.contains(name))
}

fn without(mut trailers: HeaderMap, is_dropped: impl Fn(&HeaderName) -> bool) -> Option<HeaderMap> {
    let dropped: Vec<HeaderName> = trailers.keys().filter(|name| is_dropped(name)).cloned().collect();
    dropped.iter().for_each(|name| drop(trailers.remove(name)));
    (!trailers.is_empty()).then_some(trailers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(trailers: Option<&HeaderMap>) -> Vec<&str> {
        trailers.into_iter().flat_map(HeaderMap::keys).map(HeaderName::as_str).collect()
    }

    //= RFC 9110 section 6.5.1: limitations on use of trailers
    #[test]
    fn trailers_lose_what_does_not_belong_there() {
        let mut received = HeaderMap::new();
        for name in
            ["content-length", "transfer-encoding", "x-checksum", "x-real-ip", "x_real_ip", "x-secret"]
        {
            received.insert(HeaderName::from_static(name), HeaderValue::from_static("1"));
        }
        let hidden = [HeaderName::from_static("x-secret")];
        assert_eq!(names(passing(received.clone(), &hidden).as_ref()), ["x-checksum"]);
        assert_eq!(names(announced(received.clone(), &hidden).as_ref()), ["x-secret"]);
        received.remove("x-checksum");
        assert_eq!(passing(received.clone(), &hidden), None);
        assert_eq!(announced(received, &[]), None);
    }
}
