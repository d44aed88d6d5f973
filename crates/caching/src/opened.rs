//! Whether the answer to a request is its user's alone, and whether somebody opened it to others.

use crate::{
    HeuristicFor, Lifetime, LifetimeSource, RequestFacts, ResponseDirectives, ResponseFacts, Rules,
    StoredCredentialed, freshness,
};

/// Whether the answer to this request may be one user's, unless it says otherwise.
pub fn is_personal(request: &RequestFacts, rules: &Rules) -> bool {
    request.has_credentials && rules.credentialed == StoredCredentialed::Explicit
}

/// Whether the origin server or the operator said that a response may be shared: `public`, or a lifetime above zero
/// during which it may be used as it is. A lifetime that is guessed for requests without credentials alone says nothing
/// to others.
pub fn may_share(request: &RequestFacts, response: &ResponseFacts, rules: &Rules) -> bool {
    opener(freshness::lifetime(request, response, rules), response, rules).is_some()
}

/// Who said that a response may be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opener {
    /// The origin server, whose word holds whatever the rules are.
    Origin,
    /// The operator, whose word may be another one after a reload.
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

/// Whether the operator still says what opened a response with this status, whose lifetime came from there.
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
