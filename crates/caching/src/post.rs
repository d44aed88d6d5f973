//! Responses to POST that answer later GETs (RFC 9110 section 9.3.3). A POST itself is never answered from a stored
//! response.

use crate::invalidation::{SameOrigin, Target, resolve};
use crate::storing::{NotStored, Storable, may_store};
use crate::{FieldLine, MethodClass, RequestFacts, ResponseFacts, Rules, Timestamp, fields};

/// Checks whether the response to a POST may be stored as the response to a GET of `target`.
///
/// Only a 200 may be stored. With another status, the content may describe something other than the target, such as the result of the
/// request.
///
/// # Errors
///
/// Returns the first reason against it.
//= RFC 9110 section 9.3.3: POST with explicit freshness and Content-Location answers GET
pub fn may_store_for_get(
    request: &RequestFacts,
    response: &ResponseFacts,
    lines: &[FieldLine<'_>],
    target: &Target<'_>,
    rules: &Rules,
    now: Timestamp,
) -> Result<Storable, NotStored> {
    if !rules.store_post || response.status != 200 || !names_target(lines, target) {
        return Err(NotStored::Method);
    }
    if !response.has_explicit_lifetime() {
        return Err(NotStored::NoFreshness);
    }
    may_store(&request.as_get(), response, rules, now)
}

//= RFC 9110 section 9.3.3: POST with explicit freshness and Content-Location answers GET
fn names_target(lines: &[FieldLine<'_>], target: &Target<'_>) -> bool {
    let own = SameOrigin { path: target.path.to_vec(), query: target.query.map(<[u8]>::to_vec) };
    fields::only(lines, "content-location")
        .and_then(|reference| resolve(target, reference))
        .is_some_and(|location| location == own)
}

impl RequestFacts {
    /// Returns the facts of a GET with the same fields and without content, preconditions and ranges.
    #[must_use]
    pub fn as_get(&self) -> Self {
        Self {
            method: MethodClass::Get,
            has_content: false,
            has_conditions: false,
            has_origin_conditions: false,
            has_range: false,
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExchangeTimes, Profile};

    const NOW: Timestamp = Timestamp::from_seconds(784_111_777);
    const TARGET: Target<'_> =
        Target { scheme: b"http", authority: b"a.example", path: b"/a", query: Some(b"q") };

    fn check(status: u16, fields: &[FieldLine<'_>], profile: Profile, expected: Result<(), NotStored>) {
        let rules = Rules::for_profile(profile);
        let request = RequestFacts::parse("POST", &[("content-length", b"3")]);
        let times = ExchangeTimes { request: NOW, response: NOW, clock_ahead_ms: 0 };
        let response = ResponseFacts::parse(status, fields, times, &rules);
        let stored = may_store_for_get(&request, &response, fields, &TARGET, &rules, NOW);
        assert_eq!(stored.map(drop), expected, "{status} {fields:?}");
    }

    //= RFC 9110 section 9.3.3: POST with explicit freshness and Content-Location answers GET
    #[test]
    fn both_conditions_must_hold() {
        const FRESH: FieldLine<'_> = ("cache-control", b"max-age=60");
        const OWN: FieldLine<'_> = ("content-location", b"/a?q");
        let all = Profile::Rfc9111;
        check(200, &[FRESH, OWN], all, Ok(()));
        check(200, &[FRESH, ("content-location", b"http://A.example:80/a?q#x")], all, Ok(()));
        check(200, &[FRESH, OWN], Profile::Safe, Err(NotStored::Method));
        check(201, &[FRESH, OWN], all, Err(NotStored::Method));
        check(200, &[FRESH], all, Err(NotStored::Method));
        check(200, &[FRESH, ("content-location", b"/a")], all, Err(NotStored::Method));
        check(200, &[FRESH, ("content-location", b"http://b.example/a?q")], all, Err(NotStored::Method));
        check(200, &[FRESH, OWN, OWN], all, Err(NotStored::Method));
        check(200, &[OWN], all, Err(NotStored::NoFreshness));
        check(200, &[OWN, ("cache-control", b"public")], all, Err(NotStored::NoFreshness));
        check(200, &[OWN, ("cache-control", b"max-age=60, no-store")], all, Err(NotStored::ResponseNoStore));
    }
}
