//! Who may have a response that was made for one client.
//!
//! A request has *credentials* if it names its user: `Authorization`, `Cookie`, a usual field for API keys, or one that the
//! operator names. (`Proxy-Authorization` is for this proxy alone and never reaches an origin server; it counts all the
//! same.) What answers such a request may be that user's alone, and origin servers often forget to say so. So with [`StoredCredentialed::Explicit`]
//!
//! - it is stored only where somebody said that it may be shared ([`may_share`]);
//! - what answered a request without credentials, and nobody gave a lifetime, stays for requests without them ([`may_use`]);
//! - a 304 or an answer to HEAD brings news of what is stored only where it may be shared itself ([`may_inform`]).
//!
//! What each combination comes to stands in `tests/sharing.txt`.

use crate::opened::{Opener, is_open, still_opens};
use crate::{
    ExchangeTimes, FieldLine, NominatedFields, RequestFacts, ResponseFacts, Rules, StoredCredentialed,
    StoredFacts,
};

pub use crate::credentials::is_credential;
pub use crate::opened::{is_personal, may_share};

/// Whether a request may get a stored response at all: fresh, stale, or by a validation that names it.
pub fn may_use(request: &RequestFacts, stored: &StoredFacts, rules: &Rules) -> bool {
    stored.is_for_all() || is_permitted(request, stored, rules)
}

/// What the rules in force say of it. A reload may have changed those that it was stored by: whose it was is not known then, so it is
/// nobody's where they would not have it stored for all.
fn is_permitted(request: &RequestFacts, stored: &StoredFacts, rules: &Rules) -> bool {
    if stored.sets_cookie() && !rules.store_set_cookie {
        return false;
    }
    if rules.credentialed == StoredCredentialed::All {
        return true;
    }
    match stored.opener() {
        Some(Opener::Origin) => true,
        Some(Opener::Operator) => still_opens(stored.lifetime_source, stored.status, rules),
        None => !request.has_credentials && stored.response_time > rules.judged_since,
    }
}

/// Whether the response to this request says anything about what others get.
//= RFC 9111 section 3.5: responses to requests with Authorization
pub fn may_inform(request: &RequestFacts, response: &ResponseFacts, rules: &Rules) -> bool {
    !is_personal(request, rules)
        || (may_share(request, response, rules) && is_open(request, &response.directives))
}

/// Whether a validation of this request may name a stored response that the request did not select: one that is selected
/// by credentials is for whoever has them.
pub fn may_name(
    request: &RequestFacts,
    stored: &StoredFacts,
    nominated: &NominatedFields,
    rules: &Rules,
) -> bool {
    may_use(request, stored, rules) && !nominated.names().any(|name| rules.is_credential(name))
}

/// The fields of a 304, or of an answer to HEAD, that update what is stored with `status`: all, or where the answer may be
/// one user's, those that date, control and identify the stored response. What else it says is about that user.
pub fn news<'a>(
    request: &RequestFacts,
    status: u16,
    received: &[FieldLine<'a>],
    times: ExchangeTimes,
    rules: &Rules,
) -> Vec<FieldLine<'a>> {
    let informs = || may_inform(request, &ResponseFacts::parse(status, received, times, rules), rules);
    let is_for_all = !is_personal(request, rules) || informs();
    received.iter().copied().filter(|(name, _)| is_for_all || is_of_everybody(name, rules)).collect()
}

/// Whether a field of a 304 is about the stored response whoever asked: what it is dated, controlled and told apart by.
/// All else may be about the one user whose request was answered.
fn is_of_everybody(name: &str, rules: &Rules) -> bool {
    const NAMES: [&str; 6] = ["cache-control", "date", "etag", "expires", "last-modified", "vary"];
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    NAMES.into_iter().any(is) || rules.targeted_fields.iter().any(|field| is(field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Heuristic, HeuristicFor, StatusMatch, Timestamp, TtlTable};

    #[test]
    fn what_was_stored_by_other_rules_is_nobodys() {
        let received: &[FieldLine<'_>] = &[("etag", b"\"a\"")];
        let anonymous = RequestFacts::parse("GET", &[]);
        let at = Timestamp::from_ms(1000);
        let times = ExchangeTimes { request: at, response: at, clock_ahead_ms: 0 };
        for (judged_since_ms, credentialed, lines, expected) in [
            (999, StoredCredentialed::Explicit, received, true),
            (1000, StoredCredentialed::Explicit, received, false),
            (1000, StoredCredentialed::All, received, true),
            (1000, StoredCredentialed::Explicit, &[("cache-control", &b"max-age=1"[..])], true),
        ] {
            let judged_since = Timestamp::from_ms(judged_since_ms);
            let rules = Rules { judged_since, credentialed, ..Rules::default() };
            let response = ResponseFacts::parse(200, lines, times, &rules);
            let stored = StoredFacts::new(&anonymous, &response, &rules);
            assert_eq!(
                may_use(&anonymous, &stored, &rules),
                expected,
                "{judged_since_ms} {credentialed:?} {lines:?}"
            );
        }
    }

    #[test]
    fn what_the_rules_in_force_would_not_store_is_nobodys() {
        let at = Timestamp::from_ms(1000);
        let times = ExchangeTimes { request: at, response: at, clock_ahead_ms: 0 };
        let minute = || TtlTable::new([(StatusMatch::Exact(200), 60_000)]);
        let guessed = Rules {
            heuristic: Some(Heuristic { requests: HeuristicFor::All, ..Heuristic::default() }),
            ..Rules::default()
        };
        let overridden = Rules { override_ttl: minute(), ..Rules::default() };
        let with_default = Rules { default_ttl: minute(), ..Rules::default() };
        let with_cookies = Rules { store_set_cookie: true, ..Rules::default() };
        let old: &[FieldLine<'_>] = &[
            ("last-modified", b"Thu, 01 Jan 1970 00:00:00 GMT"),
            ("date", b"Thu, 01 Jan 1970 01:00:00 GMT"),
        ];
        for (stored_by, lines) in [
            (guessed, old),
            (overridden, &[]),
            (with_default, &[]),
            (with_cookies, &[("cache-control", &b"max-age=1"[..]), ("set-cookie", b"a=b")]),
        ] {
            let request = RequestFacts { has_credentials: true, ..RequestFacts::parse("GET", &[]) };
            let response = ResponseFacts::parse(200, lines, times, &stored_by);
            let stored = StoredFacts::new(&request, &response, &stored_by);
            let may = |rules: &Rules| {
                [request, RequestFacts::parse("GET", &[])].map(|request| may_use(&request, &stored, rules))
            };
            assert_eq!(may(&stored_by), [true; 2], "{lines:?}");
            assert_eq!(may(&Rules::default()), [false; 2], "{lines:?}");
        }
    }

    #[test]
    fn the_operator_names_more() {
        let rules = Rules { credential_fields: ["X-User".into()].into(), ..Rules::default() };
        let check = |lines: &[FieldLine<'_>], expected| {
            let facts = RequestFacts::parse("GET", lines).with_credentials_of(lines, &rules);
            assert_eq!(facts.has_credentials, expected, "{lines:?}");
        };
        check(&[("x-user", b"a")], true);
        check(&[("x-users", b"a")], false);
        check(&[("cookie", b"a")], true);
    }
}
