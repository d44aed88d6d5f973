//! Requests forwarded for one client alone, and replies that aren't shared: responses of the origin, and failures.

use std::sync::Arc;

use cache::entry::stored::Hit;
use cache::failure::FailureCause;
use caching::partial::received_part;
use caching::{Asked, FwdReason, MethodClass, Outcome, may_serve_stale};
use http1::ResponseFraming;
use message::clock::now;
use message::head::Version;
use message::reason::Reason;
use origin::{Interim, OriginError, OriginResponse, RequestBody};
use telemetry::CacheResult;

use crate::request::fetch::other_methods::{HeadExchange, PostStore};
use crate::request::origin_call::OriginCall;
use crate::request::plan::{ForwardMode, ForwardReason, Interims, Next, Plan, StandIn};
use crate::request::reply::{Account, Body, Length, OwnHead, Reply, has_no_content};
use crate::request::respond::Problem;
use crate::request::serve::Use;
use crate::request::{findings, invalidate};
use crate::rewrite::{self, Purpose};
use crate::routing::key_of;

/// Forwards a request unchanged; the response goes to its client only.
//= RFC 9111 section 4: unsafe methods are written through
pub(crate) async fn forward(
    plan: &Plan,
    body: RequestBody,
    reason: ForwardReason,
    interims: &Interims,
) -> Next {
    let call = OriginCall { owned: plan, validated: None, probe: None };
    let fields = call.fields(Purpose::PassOn);
    // The gateway itself sends 100 to a client that expects it, and never forwards the expectation.
    let expects = plan.request.fields.value("expect").is_some();
    //= RFC 9110 section 15.2: informational responses
    let mut interim = |interim: Interim| {
        if !(expects && interim.status == http::StatusCode::CONTINUE) {
            interims.push(Arc::new(interim));
        }
    };
    // A request that no stored response could answer counts as well, because it costs the origin the same.
    if plan.facts.method.is_reusing()
        && let Err(error) = plan.spend()
    {
        return Next::Reply(stale_or_failed(plan, &error, reason));
    }
    let written = PostStore::begin(plan);
    let updating = HeadExchange::begin(plan);
    let (asked, sent) = (Asked::by(|name| fields.value(name).is_some()), now());
    match call.send(fields, body, &mut interim).await {
        Ok(response) => {
            let times = plan.times_since(sent);
            let spared = written.as_ref().map(|written| &written.waiter);
            if plan.facts.method == MethodClass::Unsafe {
                // This future is boxed, because otherwise the future of every forward would contain it.
                Box::pin(invalidate::apply(plan, &response, spared)).await;
            }
            // The origin has processed the request, but its response is unusable.
            if let Some(error) = plan.unasked(asked, response.status) {
                return Next::Reply(stale_or_failed(plan, &error, reason));
            }
            if let Some(updating) = updating {
                updating.apply(plan, &response, times);
            }
            if let Some(reply) = stale_instead(plan, FailureCause::of_status(response.status.as_u16())) {
                return Next::Reply(reply);
            }
            match written.filter(|written| written.may_store(&response, times)) {
                Some(written) => written.take(response, times),
                None => Next::Reply(reply(plan, response, reason)),
            }
        }
        Err(error) => Next::Reply(stale_or_failed(plan, &error, reason)),
    }
}

fn stale_or_failed(plan: &Plan, error: &OriginError, reason: ForwardReason) -> Reply {
    stale_instead(plan, FailureCause::of_error(error))
        .unwrap_or_else(|| failed(plan, &Problem::origin(error, stale_candidate(plan)), reason))
}

/// Returns the reply for a problem, without a response of the origin.
pub(crate) fn failed(plan: &Plan, problem: &Problem, reason: ForwardReason) -> Reply {
    let mut reply = plan.at().failure(problem);
    reply.cache_status.outcome =
        Outcome::Forwarded { reason: reason.fwd, status: None, stored: false, collapsed: false };
    reply
}

/// Returns the reply with an origin's response to the client's own request.
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

/// Returns the number of bytes that a 206 declares.
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
        // The reply declares the longer of the two lengths, so that the client detects a body that is cut
        // short.
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

/// Returns the stored response that may be used if the origin fails, for a request that is forwarded alone.
fn stale_candidate(plan: &Plan) -> Option<&Hit> {
    match &plan.mode {
        ForwardMode::Alone { stale, .. } => stale.as_ref().map(|stale| &stale.hit),
        ForwardMode::Fetch(_) | ForwardMode::Assemble(_) | ForwardMode::Query | ForwardMode::Load(_) => None,
    }
}

/// Returns a stale reply in place of a failure, which may be an error response of the origin.
//= RFC 9111 section 4.2.4: serving stale responses
//= RFC 5861 section 4: stale-if-error
fn stale_instead(plan: &Plan, cause: FailureCause) -> Option<Reply> {
    let ForwardMode::Alone { reason, stale: Some(StandIn { hit: stale, look_up }) } = &plan.mode else {
        return None;
    };
    let (cache, now, facts) = (plan.cache(), now(), &stale.head.facts);
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
