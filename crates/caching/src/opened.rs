//! Whether the response to a request may be personal, and whether the origin or the operator allows sharing it nevertheless.

use crate::{
    HeuristicFor, Lifetime, LifetimeSource, RequestFacts, ResponseDirectives, ResponseFacts, Rules,
    StoredCredentialed, freshness,
};

/// Returns whether the response to this request may be personal, unless the response itself allows sharing.
pub fn is_personal(request: &RequestFacts, rules: &Rules) -> bool {
    request.has_credentials && rules.credentialed == StoredCredentialed::Explicit
}

/// Returns whether the origin server or the operator allows sharing of a response: `public`, or a lifetime above zero
/// without validation. A heuristic lifetime that applies only to requests without credentials doesn't allow it.
pub fn may_share(request: &RequestFacts, response: &ResponseFacts, rules: &Rules) -> bool {
    opener(freshness::lifetime(request, response, rules), response, rules).is_some()
}

/// The party that allowed sharing of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opener {
    /// The origin server. Its permission doesn't depend on the configuration.
    Origin,
    /// The operator, whose permission may end with a reload.
    Operator,
}

pub(crate) fn opener(lifetime: Lifetime, response: &ResponseFacts, rules: &Rules) -> Option<Opener> {
    if response.directives.public {
        return Some(Opener::Origin);
    }
    if lifetime.ms == 0 || response.must_always_validate() {
        return None;
    }
    match lifetime.source {
        LifetimeSource::Heuristic => guesses_for_all(rules).then_some(Opener::Operator),
        LifetimeSource::Override | LifetimeSource::Default => Some(Opener::Operator),
        LifetimeSource::SMaxage | LifetimeSource::MaxAge | LifetimeSource::Expires => Some(Opener::Origin),
        LifetimeSource::Nothing => None,
    }
}

/// Returns whether the operator's rules still allow sharing of a response with this status and source of lifetime.
pub(crate) fn still_opens(source: LifetimeSource, status: u16, rules: &Rules) -> bool {
    let overridden = || rules.override_ttl.ttl_ms(status);
    match source {
        LifetimeSource::Override => overridden().is_some_and(|ms| ms > 0),
        LifetimeSource::Default => {
            overridden().or_else(|| rules.default_ttl.ttl_ms(status)).is_some_and(|ms| ms > 0)
        }
        LifetimeSource::Heuristic => guesses_for_all(rules),
        LifetimeSource::SMaxage
        | LifetimeSource::MaxAge
        | LifetimeSource::Expires
        | LifetimeSource::Nothing => false,
    }
}

fn guesses_for_all(rules: &Rules) -> bool {
    rules.heuristic.is_some_and(|heuristic| heuristic.requests != HeuristicFor::Anonymous)
}

//= RFC 9111 section 3: Authorization
pub(crate) fn is_open(request: &RequestFacts, directives: &ResponseDirectives) -> bool {
    !request.has_authorization || opens_to_others(directives)
}

//= RFC 9111 section 3.5: responses to requests with Authorization
//= RFC 9111 section 3.5: must-revalidate, public and s-maxage allow it
//= RFC 9111 section 5.2.2.9: public
//= RFC 9111 section 5.2.2.10: s-maxage permits storing after Authorization
//= RFC 9111 section 5.2.2.8: proxy-revalidate alone permits no storing
//= RFC 9111 section 5.2.2.2: must-revalidate permits reuse after Authorization
fn opens_to_others(directives: &ResponseDirectives) -> bool {
    directives.public || directives.must_revalidate || directives.s_maxage.is_some()
}
