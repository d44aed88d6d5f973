//! Tests which requests are no longer collapsed after the cache refused to store a response, and for how
//! long.

use caching::refusal::{RefusalScope, was_shared_lately};
use caching::{ExchangeTimes, NotStored, RequestFacts, ResponseFacts, Rules, StoredFacts, Timestamp};

const AUTHORIZATION: &str = "authorization";
const COOKIE: &str = "cookie";
const NOTHING: &str = "accept";

fn facts(field: &str) -> RequestFacts {
    RequestFacts::parse("GET", &[(field, b"a")])
}

#[test]
fn a_refusal_speaks_of_requests_like_the_refused_one() {
    // Each case: a request, the reason why its response wasn't stored, and whether the refusal applies to
    // later requests with `Authorization`, with a cookie and without either.
    for (asked, reason, with_authorization, with_cookie, without) in [
        (AUTHORIZATION, Some(NotStored::Authorization), true, false, false),
        (AUTHORIZATION, Some(NotStored::ResponseNoStore), true, true, false),
        (AUTHORIZATION, None, true, true, false),
        (COOKIE, Some(NotStored::Credentials), true, true, false),
        (COOKIE, Some(NotStored::Private), true, true, false),
        (COOKIE, Some(NotStored::SetCookie), true, true, false),
        (COOKIE, None, true, true, false),
        (NOTHING, Some(NotStored::ResponseNoStore), true, true, true),
        (NOTHING, Some(NotStored::VaryAny), true, true, true),
        (NOTHING, None, true, true, true),
    ] {
        let scope = RefusalScope::of(&facts(asked), reason);
        let reached = [AUTHORIZATION, COOKIE, NOTHING].map(|field| scope.has(&facts(field)));
        assert_eq!(reached, [with_authorization, with_cookie, without], "{asked} {reason:?}");
    }
}

#[test]
fn a_stored_response_speaks_against_it_for_a_while() {
    let at = Timestamp::from_seconds(784_111_777);
    let (times, rules) = (ExchangeTimes { request: at, response: at, clock_ahead_ms: 0 }, Rules::default());
    let response = ResponseFacts::parse(200, &[("cache-control", b"max-age=10")], times, &rules);
    let stored = StoredFacts::new(&facts(NOTHING), &response, &rules);
    for (after_s, lately_s, expected) in
        [(0, 60, true), (10, 60, true), (69, 60, true), (70, 60, false), (3600, 60, false), (9, 0, false)]
    {
        let lately = was_shared_lately(Some(&stored), at.plus_ms(after_s * 1000), lately_s * 1000);
        assert_eq!(lately, expected, "{after_s} s, {lately_s} s");
    }
    assert!(!was_shared_lately(None, at, 60_000));
}
