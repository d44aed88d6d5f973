//! Decisions about a request with a stored response (RFC 9111 section 4, RFC 5861), and without one.

use crate::cache_status::FwdReason;
use crate::codes::reason_codes;
use crate::{MaxStale, NominatedFields, RequestFacts, Rules, StoredFacts, Timestamp, sharing, status};

/// The response that a request may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// The stored response, fresh.
    Fresh,
    /// The stored response, fresh, with a validation in the background: its lifetime ends soon
    /// ([`mod@crate::refresh_ahead`]).
    RefreshAhead,
    /// The stored response, stale: the request's `max-stale` accepts it, or `stale-while-revalidate` permits it for a
    /// request with `only-if-cached`.
    Stale,
    /// The stored response, stale, with a validation in the background.
    StaleWhileRevalidate,
    /// The stored response after a validation with its validators.
    Validate(NotReused),
    /// A response of the origin server.
    Forward(NotReused),
    /// No response, because the request accepts only a stored one: it gets 504.
    Unavailable(NotReused),
}

reason_codes! {
    /// The reason why a stored response, if any, was not used without validation.
    pub enum NotReused {
        RuleOff = "rule-off", "", "A rule has `cache = false`, or origins may read the path in several ways (percent-encoding, `//`, `/./`, parameters of segments) that have different rules.";
        Method = "method", "RFC 9111 section 4", "This method can't be answered from a stored response.";
        UriMiss = "uri-miss", "RFC 9111 section 4", "Nothing is stored for this URL.";
        VaryMiss = "vary-miss", "RFC 9111 section 4.1", "Nothing is stored for these nominated fields.";
        Miss = "miss", "RFC 9111 section 4", "Nothing stored fits.";
        Credentials = "credentials", "", "The request has credentials (`Cookie`, `Authorization` and the like); the stored response is for requests without them, and nothing allows sharing it.";
        Partial = "partial", "RFC 9111 section 3.4", "The stored response lacks some of the requested bytes.";
        OriginConditions = "origin-conditions", "RFC 9111 section 4.3.2", "`If-Match` or `If-Unmodified-Since`: for the origin to judge.";
        RequestNoCache = "request-no-cache", "RFC 9111 section 5.2.1.4", "The request says `no-cache`.";
        RequestMaxAge = "request-max-age", "RFC 9111 section 5.2.1.1", "The stored response is older than the request's `max-age`.";
        RequestMinFresh = "request-min-fresh", "RFC 9111 section 5.2.1.3", "The stored response isn't fresh for as long as the request's `min-fresh`.";
        ResponseNoCache = "no-cache", "RFC 9111 section 5.2.2.4", "The stored response says `no-cache`: it is validated each time.";
        Unverified = "unverified", "", "Another instance may have changed the stored response, and `store.remote.coherence` is `strict`: it is validated.";
        Invalidated = "invalidated", "RFC 9111 section 4.4", "A group of the stored response was invalidated since it was stored (RFC 9875): it is validated.";
        Expired = "expired", "RFC 9111 section 4.2", "The stored response is stale.";
    }
}

impl NotReused {
    /// Returns the `fwd` parameter of `Cache-Status`.
    //= RFC 9211 section 2.2: the most specific reason
    pub fn fwd(self) -> FwdReason {
        match self {
            Self::RuleOff => FwdReason::Bypass,
            Self::Method => FwdReason::Method,
            Self::UriMiss => FwdReason::UriMiss,
            Self::VaryMiss => FwdReason::VaryMiss,
            // No stored response can answer the request.
            Self::Miss | Self::Credentials => FwdReason::Miss,
            Self::Partial => FwdReason::Partial,
            Self::OriginConditions | Self::RequestNoCache | Self::RequestMaxAge | Self::RequestMinFresh => {
                FwdReason::Request
            }
            Self::ResponseNoCache | Self::Unverified | Self::Invalidated | Self::Expired => FwdReason::Stale,
        }
    }
}

/// The kind of a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// No stored response under the key.
    Uri,
    /// No stored response with the same nominated fields.
    Vary,
    /// Either `Uri` or `Vary`.
    Unknown,
    /// Some bytes of the stored response are missing.
    Bytes,
}

/// The failure of the origin server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection, no response, or a broken one.
    Unreachable,
    /// A response with this status code.
    Status(u16),
}

/// Returns the decision if no look-up is needed.
//= RFC 9111 section 4: the stored method allows the request's
pub fn without_lookup(request: &RequestFacts, rules: &Rules) -> Option<Reuse> {
    if !rules.enabled {
        return Some(Reuse::Forward(NotReused::RuleOff));
    }
    if !request.method.is_reusing() {
        return Some(ask_origin(request, rules, NotReused::Method, Candidate::None));
    }
    //= RFC 9111 section 4.3.2: preconditions for the origin server are not evaluated by a cache
    let ask = || ask_origin(request, rules, NotReused::OriginConditions, Candidate::None);
    request.has_origin_conditions.then(ask)
}

/// Decides about a request without a stored response.
pub fn on_miss(request: &RequestFacts, rules: &Rules, miss: Miss) -> Reuse {
    let reason = match miss {
        Miss::Uri => NotReused::UriMiss,
        Miss::Vary => NotReused::VaryMiss,
        Miss::Unknown => NotReused::Miss,
        Miss::Bytes => NotReused::Partial,
    };
    without_lookup(request, rules).unwrap_or_else(|| ask_origin(request, rules, reason, Candidate::None))
}

/// Decides about a request with a stored response that must be validated even if it is fresh, because it was invalidated after it was
/// stored ([`NotReused::Invalidated`]) or may have been ([`NotReused::Unverified`]).
//= RFC 9111 section 4.4: to invalidate is to remove, or to mark as in need of validation
pub fn reuse_in_doubt(
    request: &RequestFacts,
    stored: &StoredFacts,
    rules: &Rules,
    reason: NotReused,
) -> Reuse {
    without_lookup(request, rules)
        .or_else(|| made_for_others(request, stored, rules))
        .unwrap_or_else(|| ask_origin(request, rules, reason, Candidate::of(stored)))
}

/// Decides about a request with a stored response whose key and nominated fields match.
//= RFC 9111 section 4: when a stored response may be reused
pub fn reuse(request: &RequestFacts, stored: &StoredFacts, rules: &Rules, now: Timestamp) -> Reuse {
    if let Some(instead) = without_lookup(request, rules) {
        return instead;
    }
    if let Some(instead) = made_for_others(request, stored, rules) {
        return instead;
    }
    let ask = |reason| ask_origin(request, rules, reason, Candidate::of(stored));
    if let Some(reason) = refused_by_request(request, stored, rules, now) {
        return ask(reason);
    }
    //= RFC 9111 section 5.2.2.4: no-cache
    //= RFC 9111 section 4: no-cache needs validation
    if stored.no_cache {
        return ask(NotReused::ResponseNoCache);
    }
    if stored.is_fresh(now) {
        //= RFC 8246 section 2.1: no validation of a fresh response
        return Reuse::Fresh;
    }
    //= RFC 9111 section 4: fresh, allowed stale, or validated
    usable_stale(request, stored, rules, now).unwrap_or_else(|| ask(NotReused::Expired))
}

/// Returns whether the stored response may be used in place of a response from a failed origin server.
//= RFC 9111 section 4.2.4: serving stale responses
//= RFC 5861 section 4: stale-if-error
pub fn may_serve_stale(
    request: &RequestFacts,
    stored: &StoredFacts,
    rules: &Rules,
    now: Timestamp,
    failure: Failure,
) -> bool {
    let honoured = rules.honour_request_directives;
    if !counts_as_failure(failure) || stored.no_cache || (request.directives.no_cache && honoured) {
        return false;
    }
    if !sharing::may_use(request, stored, rules) {
        return false;
    }
    if stored.is_fresh(now) {
        return true;
    }
    if stored.must_revalidate {
        return false;
    }
    //= RFC 5861 section 4: of a request or of a response
    let requested_ms = request.directives.stale_if_error.filter(|_| honoured).map(to_ms);
    let asked_ms = stored.stale_if_error_ms().max(requested_ms);
    let granted_ms = rules.stale_if_error.grant_ms(asked_ms);
    //= RFC 9111 section 2: disconnected
    let window_ms = match failure {
        //= RFC 5861 section 4: past an explicit stale-if-error the response is not to be used
        Failure::Unreachable if asked_ms.is_none() => granted_ms.max(rules.stale_if_unreachable_ms),
        Failure::Unreachable | Failure::Status(_) => granted_ms,
    };
    let staleness_ms = stored.staleness_ms(now);
    staleness_ms < window_ms || within_max_stale(request, rules, staleness_ms)
}

/// One of the stored responses that match a request.
#[derive(Clone, Copy, Debug)]
pub struct Matching<'a> {
    /// Its facts.
    pub facts: &'a StoredFacts,
    /// Its nominated fields.
    pub nominated: &'a NominatedFields,
}

impl Matching<'_> {
    /// Returns whether this response takes precedence over `other`. A response without `Vary` ranks below responses with the field, because
    /// many origin servers omit the field in default responses.
    //= RFC 9111 section 4: the most recent of several
    //= RFC 9111 section 4.1: a valid Vary before none
    pub fn goes_before(&self, other: &Self) -> bool {
        let rank = |matching: &Self| {
            (!matching.nominated.is_empty(), matching.facts.date, matching.facts.response_time)
        };
        rank(self) > rank(other)
    }
}

/// Whether a stored response can be validated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Candidate {
    None,
    Bare,
    Validatable,
}

impl Candidate {
    fn of(stored: &StoredFacts) -> Self {
        if stored.has_validator() { Self::Validatable } else { Self::Bare }
    }
}

/// Returns the decision if the stored response was made for other users. A validation must not name that response, because a 304 would
/// disclose it.
fn made_for_others(request: &RequestFacts, stored: &StoredFacts, rules: &Rules) -> Option<Reuse> {
    let is_for_others = !sharing::may_use(request, stored, rules);
    is_for_others.then(|| ask_origin(request, rules, NotReused::Credentials, Candidate::None))
}

//= RFC 9111 section 5.2.1.7: only-if-cached
fn ask_origin(request: &RequestFacts, rules: &Rules, reason: NotReused, candidate: Candidate) -> Reuse {
    if request.directives.only_if_cached && rules.honour_request_directives {
        return Reuse::Unavailable(reason);
    }
    match candidate {
        Candidate::None | Candidate::Bare => Reuse::Forward(reason),
        //= RFC 9111 section 4.3: validating instead of fetching
        Candidate::Validatable => Reuse::Validate(reason),
    }
}

/// Returns whether the request refuses stored responses, fresh or not.
//= RFC 9111 section 5.2.1: Cache-Control of requests
//= RFC 9111 section 4.2: limits by the client
fn refused_by_request(
    request: &RequestFacts,
    stored: &StoredFacts,
    rules: &Rules,
    now: Timestamp,
) -> Option<NotReused> {
    if !rules.honour_request_directives {
        return None;
    }
    let directives = &request.directives;
    //= RFC 9111 section 5.2.1.4: no-cache of the request
    if directives.no_cache {
        return Some(NotReused::RequestNoCache);
    }
    //= RFC 9111 section 5.2.1.1: max-age of the request
    // `max-age=0` means a reload: the client requests a response from the origin server, not a stored one that is 0 seconds old.
    let too_old = |max_age| max_age == 0 || stored.current_age_ms(now) > to_ms(max_age);
    if directives.max_age.is_some_and(too_old) {
        return Some(NotReused::RequestMaxAge);
    }
    //= RFC 9111 section 5.2.1.3: min-fresh
    let wanted_ms = |min_fresh| i64::try_from(to_ms(min_fresh)).unwrap_or(i64::MAX);
    if directives.min_fresh.is_some_and(|min_fresh| stored.ttl_ms(now) < wanted_ms(min_fresh)) {
        return Some(NotReused::RequestMinFresh);
    }
    None
}

/// Returns the decision for a stale response that may be used although the origin server is available.
//= RFC 9111 section 4.2.4: no stale response where a directive prohibits it
//= RFC 9111 section 4: extensions override
fn usable_stale(
    request: &RequestFacts,
    stored: &StoredFacts,
    rules: &Rules,
    now: Timestamp,
) -> Option<Reuse> {
    let staleness_ms = stored.staleness_ms(now);
    if stored.must_revalidate {
        return None;
    }
    if within_max_stale(request, rules, staleness_ms) {
        return Some(Reuse::Stale);
    }
    let wants_fresh = rules.honour_request_directives && request.directives.max_age.is_some();
    let window_ms = rules.stale_while_revalidate.grant_ms(stored.stale_while_revalidate_ms());
    //= RFC 5861 section 3: stale-while-revalidate
    //= RFC 5861 section 3: not longer than that
    let permitted = !wants_fresh && staleness_ms < window_ms;
    // `only-if-cached` allows no request to the origin server, so the validation waits for another request.
    let keeps_away = rules.honour_request_directives && request.directives.only_if_cached;
    permitted.then_some(if keeps_away { Reuse::Stale } else { Reuse::StaleWhileRevalidate })
}

//= RFC 9111 section 5.2.1.2: max-stale
fn within_max_stale(request: &RequestFacts, rules: &Rules, staleness_ms: u64) -> bool {
    if !rules.honour_request_directives {
        return false;
    }
    let granted_ms = match request.directives.max_stale {
        MaxStale::None => return false,
        MaxStale::Any => u64::MAX,
        MaxStale::Seconds(seconds) => to_ms(seconds),
    };
    staleness_ms <= granted_ms.min(rules.max_stale_max_ms)
}

fn counts_as_failure(failure: Failure) -> bool {
    match failure {
        Failure::Unreachable => true,
        Failure::Status(code) => status::is_stale_if_error(code),
    }
}

fn to_ms(seconds: u32) -> u64 {
    u64::from(seconds) * 1000
}
