//! Replies for one client alone: a response of the origin that isn't shared, or the failure to get one.

use cache::entry::stored::Hit;
use cache::failure::FailureCause;
use caching::partial::received_part;
use caching::{FwdReason, Outcome, may_serve_stale};
use http1::ResponseFraming;
use message::clock::now;
use message::head::Version;
use message::reason::Reason;
use origin::OriginResponse;
use telemetry::CacheResult;

use crate::request::findings;
use crate::request::plan::{ForwardMode, ForwardReason, Plan, StandIn};
use crate::request::reply::{Account, Body, Length, OwnHead, Reply, has_no_content};
use crate::request::respond::Problem;
use crate::request::serve::Use;
use crate::rewrite;
use crate::routing::key::key_of;

/// Reply without a response of the origin.
pub(crate) fn failed(plan: &Plan, problem: &Problem, reason: ForwardReason) -> Reply {
    let mut reply = plan.at().failure(problem);
    reply.cache_status.outcome =
        Outcome::Forwarded { reason: reason.fwd, status: None, stored: false, collapsed: false };
    reply
}

/// Hands an origin's response to the client that asked for it.
//= RFC 9110 section 15.4.5: a 304 to the client's own condition is forwarded
pub(crate) fn reply(plan: &Plan, mut response: Box<OriginResponse>, reason: ForwardReason) -> Reply {
    let (site, server_name) = (&plan.site.config, &plan.live.config.server_name);
    //= RFC 9110 section 9.3.2: HEAD says what GET would
    let declared =
        if plan.request.is_head() { response.fields.value("content-length").and_then(number) } else { None };
    let part_bytes = part_bytes(&response);
    let (fields, received) = (std::mem::take(&mut response.fields), Version::received(response.version));
    let fields = rewrite::response_fields(fields, site, received, server_name, now);
    let status = response.status.as_u16();
    let was_looked_up = match plan.mode {
        ForwardMode::Alone { .. } => reason.detail == Reason::KnownUncacheable.into(),
        ForwardMode::Fetch(_) | ForwardMode::Assemble(_) | ForwardMode::Load(_) => true,
        ForwardMode::Query => reason.fwd != FwdReason::Bypass,
    };
    let result = if was_looked_up { CacheResult::Miss } else { CacheResult::Bypass };
    let outcome =
        Outcome::Forwarded { reason: reason.fwd, status: Some(status), stored: false, collapsed: false };
    let phrase = response.reason.take();
    let content = content(response, (declared, part_bytes), plan);
    let detail = Some(reason.detail.as_str()).filter(|detail| *detail != reason.fwd.as_str());
    let account = Account::new(Some(&plan.site), result, plan.started);
    Reply::new(status, OwnHead { reason: phrase, fields }, content, (outcome, detail), account)
}

/// Number of bytes that a part declares.
fn part_bytes(response: &OriginResponse) -> Option<u64> {
    let is_part = response.status == http::StatusCode::PARTIAL_CONTENT;
    let part = is_part.then(|| received_part(&response.fields.to_lines(), None)).flatten();
    part.map(|part| part.range.len_bytes())
}

fn content(
    mut response: Box<OriginResponse>,
    (declared, part_bytes): (Option<u64>, Option<u64>),
    plan: &Plan,
) -> (Length, Body) {
    if let Some(upgraded) = response.upgraded.take() {
        return (Length::None, Body::Tunnel(upgraded));
    }
    if has_no_content(response.status.as_u16()) {
        return (Length::None, Body::Empty);
    }
    if plan.request.is_head() {
        return (declared.map_or(Length::Unknown, Length::Known), Body::Empty);
    }
    if let Some(bytes) = part_bytes {
        response.body.expect(bytes);
        // The longer of the two lengths is declared, so that the client notices a body that breaks off.
        let length = match response.body.framing() {
            ResponseFraming::None => Length::Known(bytes),
            ResponseFraming::Length(declared) => Length::Known(bytes.max(declared)),
            ResponseFraming::Chunked | ResponseFraming::UntilClose => Length::Unknown,
        };
        return (length, Body::Origin(response));
    }
    match response.body.framing() {
        ResponseFraming::Length(bytes) => (Length::Known(bytes), Body::Origin(response)),
        ResponseFraming::None => (Length::Known(0), Body::Empty),
        ResponseFraming::Chunked | ResponseFraming::UntilClose => (Length::Unknown, Body::Origin(response)),
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Stored response for a request that is forwarded alone.
pub(crate) fn stale_candidate(plan: &Plan) -> Option<&Hit> {
    match &plan.mode {
        ForwardMode::Alone { stale, .. } => stale.as_ref().map(|stale| &stale.hit),
        ForwardMode::Fetch(_) | ForwardMode::Assemble(_) | ForwardMode::Query | ForwardMode::Load(_) => None,
    }
}

/// Reply in place of a failure, which may be a response that says so.
//= RFC 9111 section 4.2.4: serving stale responses
//= RFC 5861 section 4: stale-if-error
pub(crate) fn stale_instead(plan: &Plan, cause: FailureCause) -> Option<Reply> {
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
