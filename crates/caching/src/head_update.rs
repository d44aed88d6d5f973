//! The effect of a response to HEAD on the stored responses to GET that could have answered the request (RFC 9111
//! section 4.3.5).

use crate::{EntityTag, FieldLine, Validators, date, fields};
use crate::{ExchangeTimes, StoredFacts, Timestamp};

/// The effect on a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadUpdate {
    /// The stored response is still current: its fields are updated as by a 304 ([`crate::validation::freshen`]).
    Freshen,
    /// The stored response is no longer current: it must be validated before it is used again.
    Invalidate,
    /// The response to HEAD doesn't concern the stored response.
    Keep,
}

/// The facts of a stored response that are compared with the response to a HEAD.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// Its facts.
    pub facts: &'a StoredFacts,
    /// Its validators.
    pub validators: &'a Validators<'a>,
    /// The length of the whole content in bytes, if known. It may be unknown for a part.
    pub content_bytes: Option<u64>,
}

/// Judges the response to a forwarded HEAD, which arrived at `times`. A stored response that arrived while the HEAD was in progress may be
/// older or newer than the response to the HEAD. If both describe the same representation, it is kept unchanged. Otherwise it is
/// invalidated, so that a client that has seen newer content doesn't get older content.
//= RFC 9111 section 4.3.5: a 200 to HEAD updates or invalidates
pub fn judge(status: u16, answer: &[FieldLine<'_>], stored: &Stored<'_>, times: ExchangeTimes) -> HeadUpdate {
    // A response that arrived while the HEAD was in progress may be newer. An update must not replace its fields with older ones.
    let may_be_newer = stored.facts.response_time > times.request;
    match (status, stored.facts.status) {
        (200, 200) if is_same(answer, stored, times.response) && may_be_newer => HeadUpdate::Keep,
        (200, 200) if is_same(answer, stored, times.response) => HeadUpdate::Freshen,
        //= RFC 9111 section 4.3.5: anything else makes stale
        (200, _) => HeadUpdate::Invalidate,
        //= RFC 9110 section 9.3.2: HEAD says what GET would
        (404 | 410, known) if known != status => HeadUpdate::Invalidate,
        _ => HeadUpdate::Keep,
    }
}

/// Returns whether all validators of the response, and its length, match the stored response.
//= RFC 9111 section 4.3.5: equal validators and Content-Length update
fn is_same(answer: &[FieldLine<'_>], stored: &Stored<'_>, now: Timestamp) -> bool {
    let known = stored.validators;
    let has_tag = fields::first(answer, "etag").filter(|tag| !tag.is_empty()).is_none_or(|tag| {
        let tag = EntityTag::parse(tag);
        tag.is_some() && tag == known.entity_tag()
    });
    let has_date = fields::first(answer, "last-modified").is_none_or(|modified| {
        let modified = date::parse(modified, now);
        modified.is_some() && modified == known.last_modified.map(|(_, at)| at)
    });
    has_tag && has_date && has_length(answer, stored.content_bytes)
}

/// Compares `Content-Length` if it is given; several lines, or one that is not a number, are ignored.
fn has_length(answer: &[FieldLine<'_>], content_bytes: Option<u64>) -> bool {
    fields::values(answer, "content-length").all(|value| {
        let length = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse::<u64>().ok());
        content_bytes.is_none_or(|content_bytes| length == Some(content_bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RequestFacts, ResponseFacts, Rules};

    const THEN: Timestamp = Timestamp::from_seconds(784_111_777);
    const DATE: &[u8] = b"Sun, 06 Nov 1994 08:00:00 GMT";
    const STORED: &[FieldLine<'_>] =
        &[("etag", b"\"a\""), ("last-modified", DATE), ("cache-control", b"max-age=9")];

    fn judged(
        status: u16,
        answer: &[FieldLine<'_>],
        stored: &[FieldLine<'_>],
        head_sent_s: i64,
    ) -> HeadUpdate {
        let times = ExchangeTimes { request: THEN, response: THEN, clock_ahead_ms: 0 };
        let (request, rules) = (RequestFacts::parse("GET", &[]), Rules::default());
        let facts = StoredFacts::new(&request, &ResponseFacts::parse(200, stored, times, &rules), &rules);
        let validators = Validators::parse(stored, THEN);
        let stored = Stored { facts: &facts, validators: &validators, content_bytes: Some(8) };
        let sent = THEN.plus_ms(head_sent_s * 1000);
        judge(status, answer, &stored, ExchangeTimes { request: sent, response: sent, clock_ahead_ms: 0 })
    }

    //= RFC 9111 section 4.3.5: a 200 to HEAD updates or invalidates
    #[test]
    fn all_that_the_response_has_must_match() {
        use HeadUpdate::{Freshen, Invalidate, Keep};
        let cases: &[(u16, &[FieldLine<'_>], HeadUpdate)] = &[
            (200, &[], Freshen),
            (200, &[("ETag", b"\"a\"")], Freshen),
            (200, &[("ETag", b"W/\"a\"")], Invalidate),
            (200, &[("ETag", b"\"b\""), ("Last-Modified", DATE)], Invalidate),
            (200, &[("Last-Modified", b"Sunday, 06-Nov-94 08:00:00 GMT")], Freshen),
            (200, &[("Last-Modified", b"Sun, 06 Nov 1994 08:00:01 GMT")], Invalidate),
            (200, &[("Last-Modified", b"yesterday")], Invalidate),
            (200, &[("Content-Length", b"8"), ("ETag", b"\"a\"")], Freshen),
            (200, &[("Content-Length", b"9"), ("ETag", b"\"a\"")], Invalidate),
            (200, &[("Content-Length", b"eight")], Invalidate),
            (404, &[], Invalidate),
            (410, &[], Invalidate),
            (204, &[], Keep),
            (302, &[], Keep),
            (403, &[], Keep),
            (503, &[], Keep),
        ];
        for (status, answer, expected) in cases {
            assert_eq!(judged(*status, answer, STORED, 5), *expected, "{status} {answer:?}");
        }
    }

    #[test]
    fn a_stored_response_without_validators_has_none_to_match() {
        assert_eq!(judged(200, &[], &[], 5), HeadUpdate::Freshen);
        assert_eq!(judged(200, &[("ETag", b"\"a\"")], &[], 5), HeadUpdate::Invalidate);
        assert_eq!(judged(200, &[("Last-Modified", DATE)], &[], 5), HeadUpdate::Invalidate);
    }

    #[test]
    fn what_was_stored_after_the_head_was_sent_is_not_freshened() {
        assert_eq!(judged(200, &[("ETag", b"\"a\"")], STORED, -1), HeadUpdate::Keep);
        assert_eq!(judged(200, &[("ETag", b"\"b\"")], STORED, -1), HeadUpdate::Invalidate);
        assert_eq!(judged(200, &[("ETag", b"\"b\"")], STORED, 0), HeadUpdate::Invalidate);
    }
}
