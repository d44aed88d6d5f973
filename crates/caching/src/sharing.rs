//! The requests that may use a response to one client.
//!
//! A request has *credentials* if it identifies its user: `Authorization`, `Cookie`, a common field for API keys, or
//! one that the operator names. (`Proxy-Authorization` is for this proxy alone and never reaches an origin server; it
//! counts all the same.) The response to such a request may belong to that user alone, and origin servers often don't
//! say so. So with [`StoredCredentialed::Explicit`]
//!
//! - it is stored only if the origin or the operator says that it may be shared ([`may_share`]);
//! - the response to a request without credentials, if it has no lifetime, is used only for requests without
//!   credentials ([`may_use`]);
//! - a 304 or a response to HEAD updates a stored response only if that 304 or response may itself be shared
//!   ([`may_inform`]).
//!
//! `tests/sharing.txt` lists the result for each combination of request and response.

use crate::opened::{Opener, is_open, still_opens};
use crate::{
    ExchangeTimes, FieldLine, NominatedFields, RequestFacts, ResponseFacts, Rules, StoredCredentialed,
    StoredFacts,
};

pub use crate::credentials::is_credential;
pub use crate::opened::{is_personal, may_share};

/// Returns whether a stored response may answer a request: while fresh, while stale, or after a validation that names
/// it.
pub fn may_use(request: &RequestFacts, stored: &StoredFacts, rules: &Rules) -> bool {
    stored.is_for_all() || is_permitted(request, stored, rules)
}

/// Returns whether the rules in force permit the use. The stored response may predate a change of the rules, and so
/// belong to one user: it is used only if the present rules would store it for all.
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

/// Returns whether the response to this request applies to other users too.
//= RFC 9111 section 3.5: responses to requests with Authorization
pub fn may_inform(request: &RequestFacts, response: &ResponseFacts, rules: &Rules) -> bool {
    !is_personal(request, rules)
        || (may_share(request, response, rules) && is_open(request, &response.directives))
}

/// Returns whether a validation of this request may name a stored response that the request did not select: a response
/// selected by credentials is for clients that have them.
pub fn may_name(
    request: &RequestFacts,
    stored: &StoredFacts,
    nominated: &NominatedFields,
    rules: &Rules,
) -> bool {
    may_use(request, stored, rules) && !nominated.names().any(|name| rules.is_credential(name))
}

/// Returns the fields of a 304, or of a response to HEAD, that update a stored response with `status`: all fields, or,
/// if the 304 or response may belong to one user, only those that date, control and identify the stored response. The
/// remaining fields of such a response may describe that user.
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

/// Returns whether a field of a 304 applies to the stored response for all users: such fields date, control or identify
/// it. Other fields may describe the user who sent the request.
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
