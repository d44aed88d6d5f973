//! Look-up: finds the stored response for a request, and replies if it answers.

use bytes::Bytes;
use caching::{FwdReason, query};
use message::explain_record::note;
use message::head::RequestHead;
use message::reason::Reason;
use message::timeline::{Stage, measure};
use origin::{Gathered, RequestBody};

use crate::request::fetch::fetch_spec::TierLookUp;
use crate::request::lookup::{Found, Lookup};
use crate::request::plan::{Content, ForwardMode, ForwardReason, Next, Plan, StandIn};
use crate::request::probing::{self, Candidate};
use crate::request::reply::Reply;
use crate::request::respond::Problem;
use crate::request::{findings, refresh};

/// Looks a request up, and replies if a stored response answers.
///
/// # Errors
/// How to go on, if no reply is possible at once.
pub(crate) fn settle(lookup: &Lookup<'_>, key: &mut Vec<u8>) -> Result<Reply, ForwardMode> {
    let request = lookup.request;
    let unavailable = || lookup.at().reply(&Problem::only_if_cached());
    let looking = measure(request.timeline, Stage::Local);
    let found = lookup.run(key);
    drop(looking);
    match found {
        Found::Forward(reason, stale) => {
            let candidate = stale.as_ref().map(|StandIn { hit, look_up }| {
                let (look_up, fwd) = (*look_up, reason.fwd);
                Candidate { hit, look_up, fwd }
            });
            if let Some(way) = probing::instead(lookup, candidate, key) {
                return way;
            }
            note(request.record, || {
                findings::because("pass", "forwarded for this client alone", reason.detail)
            });
            Err(ForwardMode::Alone { reason, stale })
        }
        Found::Use(hit, use_) => match lookup.stored(&hit, use_) {
            Some(reply) => {
                refresh::behind(lookup, use_, &hit, key);
                Ok(reply)
            }
            None => match lookup.mode_for_rest(&hit, use_, key) {
                Some(mode) => {
                    if matches!(mode, ForwardMode::Assemble(_)) {
                        refresh::behind(lookup, use_, &hit, key);
                    }
                    Err(mode)
                }
                None => Ok(unavailable()),
            },
        },
        Found::Fetch(fetch) => {
            let (look_up, fwd) = (fetch.look_up, fetch.reason.fwd());
            let candidate = fetch.stale.as_ref().map(|hit| Candidate { hit, look_up, fwd });
            let instead = probing::instead(lookup, candidate, key);
            instead.unwrap_or_else(|| Err(ForwardMode::Fetch(fetch)))
        }
        Found::NeedContent => Err(ForwardMode::Query),
        Found::Unavailable => Ok(unavailable()),
        Found::Load => Err(ForwardMode::Load(key.as_slice().into())),
    }
}

/// Looks up the request of a plan, with its content if that is part of its key.
///
/// # Errors
/// As for [`settle`].
pub(crate) fn again(plan: &Plan, content: Option<&Bytes>, tier: TierLookUp) -> Result<Reply, ForwardMode> {
    let (lines, sent) = (plan.request.fields.to_lines(), plan.request.sent().to_lines());
    let request = RequestHead { sent: Some(&sent), ..plan.request.borrow(&lines) };
    let lookup = Lookup { content, tier, ..Lookup::new(plan.context(&request)) };
    settle(&lookup, &mut Vec::new())
}

/// Looks up a QUERY whose content has been read.
pub(crate) fn by_content(plan: &Plan, content: Bytes, tier: TierLookUp) -> Next {
    plan.cache().watch_keys();
    let reason = match again(plan, Some(&content), tier) {
        Ok(reply) => return Next::Reply(reply),
        Err(ForwardMode::Fetch(fetch)) => return Next::Fetch(fetch),
        Err(ForwardMode::Assemble(asked)) => return Next::Assemble(asked),
        Err(ForwardMode::Load(key)) => return Next::Load { key, content: Content::Read(content) },
        Err(ForwardMode::Alone { reason, .. }) => reason,
        Err(ForwardMode::Query) => {
            ForwardReason { fwd: FwdReason::Bypass, detail: Reason::RequestContent.into() }
        }
    };
    Next::Forward { body: RequestBody::from(content), reason }
}

/// Reads the content, for a look-up that depends on it.
//= RFC 10008 section 2.7: responses to QUERY are cacheable
pub(crate) async fn read_content(plan: &Plan, body: RequestBody) -> Next {
    let pass = |body, why: Reason| {
        let reason = ForwardReason { fwd: FwdReason::Bypass, detail: why.into() };
        Next::Forward { body, reason }
    };
    let (bytes_max, memory) = (plan.rule().query_content_bytes_max, plan.cache().budget());
    match body.gather(bytes_max, memory).await {
        Gathered::Whole(content) if query::is_typed(&plan.request.fields.to_lines()) => Next::LookUp(content),
        Gathered::Whole(content) => pass(RequestBody::from(content), Reason::QueryUntyped),
        Gathered::TooLarge(body) => pass(body, Reason::QueryContent),
        Gathered::Incomplete => {
            let problem = Problem::new(400, "request-content-incomplete", "the request content broke off");
            Next::Reply(plan.at().failure(&problem))
        }
    }
}
