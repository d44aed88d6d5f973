//! Stored responses in place of a failure of the origin, for requests whose answers could not have been stored: HEAD.

use cache::entry::stored::Hit;
use cache::failure::FailureCause;
use caching::{Outcome, may_serve_stale};
use telemetry::CacheResult;

use crate::request::findings;
use crate::request::plan::{ForwardMode, Plan, StandIn};
use crate::request::reply::Reply;
use crate::request::using::Use;
use crate::routing::key::key_of;

/// Stored response for a request that is forwarded alone.
pub(crate) fn candidate(plan: &Plan) -> Option<&Hit> {
    match &plan.mode {
        ForwardMode::Alone { stale, .. } => stale.as_ref().map(|stale| &stale.hit),
        ForwardMode::Fetch(_) | ForwardMode::Assemble(_) | ForwardMode::Query | ForwardMode::Load(_) => None,
    }
}

/// Reply in place of a failure, which may be a response that says so.
//= RFC 9111 section 4.2.4: serving stale responses
//= RFC 5861 section 4: stale-if-error
pub(crate) fn reply(plan: &Plan, cause: FailureCause) -> Option<Reply> {
    let ForwardMode::Alone { reason, stale: Some(StandIn { hit: stale, look_up }) } = &plan.mode else {
        return None;
    };
    let (cache, now, facts) = (plan.cache(), plan.worker.now(), &stale.head.facts);
    let (rules, request) = (&plan.rule().caching, &plan.request);
    let key = key_of(&plan.site, request.scheme, &request.authority, &request.path_and_query);
    if !may_serve_stale(&plan.facts, facts, rules, now, cause.failure)
        || !cache.may_stand_in(&key, *look_up, &stale.head)
    {
        return None;
    }
    plan.note(|| findings::failure(Some(stale), true, cause, now));
    let status = cause.status;
    let outcome = Outcome::Forwarded { reason: reason.fwd, status, stored: false, collapsed: false };
    let used = Use::Asked { outcome, result: CacheResult::Stale };
    plan.with_context(|context| context.stale(stale, cause, used))
}
