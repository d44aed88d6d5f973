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
    is_shareable(freshness::lifetime(request, response, rules), response, rules)
}

pub(crate) fn is_shareable(lifetime: Lifetime, response: &ResponseFacts, rules: &Rules) -> bool {
    let is_for_anonymous = || {
        lifetime.source == LifetimeSource::Heuristic
            && rules.heuristic.is_some_and(|heuristic| heuristic.requests == HeuristicFor::Anonymous)
    };
    let has_lifetime = lifetime.ms > 0 && !response.must_always_validate() && !is_for_anonymous();
    has_lifetime || response.directives.public
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
