//! What clients get where the origin has failed, nothing that is stored may be used, and the operator has written a response for that.

use std::collections::VecDeque;

use caching::explain::Finding;
use caching::{CacheStatus, Outcome};
use telemetry::CacheResult;

use crate::config::DefaultResponse;
use crate::message::fields::PackedFields;
use crate::message::reply::{Body, Length, Reply, ReplyHead, has_no_content};
use crate::plan::Plan;
use crate::reason::Reason;
use crate::trace::note;
use crate::worker::Worker;

/// The reply, or the response of the rule in its place. Only to requests that ask for something: one that wants to change something must
/// see that it has failed.
pub(crate) fn or_default(worker: &Worker, plan: &Plan, reply: Reply) -> Reply {
    let default = plan.site.rule_at(plan.rule).protection.default_response.as_ref();
    match default.filter(|default| plan.facts.method.is_reusing() && stands_in_for(default, &reply)) {
        Some(default) => {
            note(plan.request.record.as_ref(), || {
                Finding::new("deliver", "the origin fails: the default response of the rule", "")
                    .with("in place of", reply.status.to_string(), "")
                    .with("status", default.status.to_string(), "")
            });
            written(worker, default, reply)
        }
        None => reply,
    }
}

fn stands_in_for(default: &DefaultResponse, reply: &Reply) -> bool {
    match reply.cache_status.outcome {
        Outcome::Forwarded { status: Some(status), .. } => {
            reply.status == status && default.statuses.contains(&status)
        }
        Outcome::Forwarded { status: None, .. } => {
            reply.account.result == CacheResult::Error && reply.status >= 500
        }
        _ => false,
    }
}

fn written(worker: &Worker, default: &DefaultResponse, failed: Reply) -> Reply {
    let mut fields = PackedFields::with_capacity(default.fields.len() + 1);
    fields.push("date", &worker.date());
    default.fields.iter().for_each(|(name, value)| fields.push(name.as_str(), value.as_bytes()));
    let (length, body) = match has_no_content(default.status) {
        true => (Length::None, Body::Empty),
        false => {
            let body = Body::Pieces(VecDeque::from([default.body.clone().into()]));
            (Length::Known(default.body.len() as u64), body)
        }
    };
    let detail = Some(Reason::DefaultResponse.as_str());
    Reply {
        status: default.status,
        head: ReplyHead::Own { reason: None, fields },
        extra: PackedFields::default(),
        length,
        body,
        age_s: None,
        cache_status: CacheStatus { detail, ttl_s: None, ..failed.cache_status },
        ..failed
    }
}
