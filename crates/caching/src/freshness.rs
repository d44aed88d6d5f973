//! Freshness lifetimes: RFC 9111 section 4.2.1, with the operator's rules.

use crate::codes::reason_codes;
use crate::facts::Expires;
use crate::status;
use crate::{HeuristicFor, RequestFacts, ResponseFacts, Rules};

reason_codes! {
    /// The source of a lifetime, in order of precedence.
    pub enum LifetimeSource {
        Override = "override", "", "The operator's rule, overriding the response.";
        SMaxage = "s-maxage", "RFC 9111 section 4.2.1", "`s-maxage`";
        MaxAge = "max-age", "RFC 9111 section 4.2.1", "`max-age`";
        Expires = "expires", "RFC 9111 section 4.2.1", "`Expires` minus `Date`.";
        Default = "default", "", "The operator's rule for responses without a lifetime.";
        Heuristic = "heuristic", "RFC 9111 section 4.2.2", "A share of the time since `Last-Modified`.";
        Nothing = "nothing", "RFC 9111 section 4.2.1", "None: stale at once.";
    }
}

/// A freshness lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// In milliseconds.
    pub ms: u64,
    /// The source of the lifetime.
    pub source: LifetimeSource,
}

/// Returns the freshness lifetime of a response.
//= RFC 9111 section 4.2.1: the first that applies
pub fn lifetime(request: &RequestFacts, response: &ResponseFacts, rules: &Rules) -> Lifetime {
    let (source, ms) = override_ms(response, rules)
        .or_else(|| explicit_ms(response))
        .or_else(|| default_ms(response, rules))
        //= RFC 9111 section 4.2.2: no heuristics beside an explicit time
        .or_else(|| heuristic_ms(request, response, rules))
        .unwrap_or((LifetimeSource::Nothing, 0));
    Lifetime { ms, source }
}

fn override_ms(response: &ResponseFacts, rules: &Rules) -> Option<(LifetimeSource, u64)> {
    Some((LifetimeSource::Override, rules.override_ttl.ttl_ms(response.status)?))
}

fn explicit_ms(response: &ResponseFacts) -> Option<(LifetimeSource, u64)> {
    let seconds = |seconds: u32| u64::from(seconds) * 1000;
    //= RFC 9111 section 5.2.2.10: s-maxage overrides max-age and Expires
    //= RFC 9111 section 5.3: s-maxage counts in place of Expires
    if let Some(s_maxage) = response.directives.s_maxage {
        return Some((LifetimeSource::SMaxage, seconds(s_maxage)));
    }
    //= RFC 9111 section 5.2.2.1: max-age
    //= RFC 9111 section 5.3: max-age counts in place of Expires
    if let Some(max_age) = response.directives.max_age {
        return Some((LifetimeSource::MaxAge, seconds(max_age)));
    }
    match response.expires {
        Expires::Absent => None,
        //= RFC 9111 section 5.3: an invalid date is in the past
        Expires::Invalid => Some((LifetimeSource::Expires, 0)),
        //= RFC 9111 section 4.2.1: Expires minus Date
        Expires::At(at) => Some((LifetimeSource::Expires, at.ms_since(response.date).max(0).unsigned_abs())),
    }
}

fn default_ms(response: &ResponseFacts, rules: &Rules) -> Option<(LifetimeSource, u64)> {
    Some((LifetimeSource::Default, rules.default_ttl.ttl_ms(response.status)?))
}

//= RFC 9111 section 4.2.2: a heuristic expiration time
//= RFC 9111 section 4.2.2: only where the status code or public permits
fn heuristic_ms(
    request: &RequestFacts,
    response: &ResponseFacts,
    rules: &Rules,
) -> Option<(LifetimeSource, u64)> {
    let heuristic = rules.heuristic?;
    let is_anonymous = !request.has_credentials;
    let unmodified_ms = response.date.ms_since(response.last_modified?).max(0).unsigned_abs();
    //= RFC 9111 section 5.2.2.9: public is heuristically cacheable
    let permitted = status::is_heuristic(response.status) || response.directives.public;
    //= RFC 9111 section 4.2.2: a tenth of the time since Last-Modified
    let share_ms = unmodified_ms / 100 * u64::from(heuristic.percent);
    (permitted && (is_anonymous || heuristic.requests == HeuristicFor::All))
        .then_some((LifetimeSource::Heuristic, share_ms.min(heuristic.max_ms)))
}
