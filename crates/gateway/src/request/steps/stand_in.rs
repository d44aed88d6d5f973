//! Default responses: written by the operator, and sent if the origin fails and no stored response may be used.

use caching::Outcome;
use caching::explain::Finding;
use message::explain_record::note;
use message::fields::PackedFields;
use message::reason::Reason;
use telemetry::CacheResult;

use crate::config::DefaultResponse;
use crate::request::context::RequestContext;
use crate::request::reply::{Body, Length, Reply, ReplyHead, has_no_content};
use crate::worker::Worker;

/// Replaces a failure, whatever its source, with the default response of the rule. Only for methods that retrieve: a request that
/// changes something must see that it failed.
pub(crate) fn replace_failure(context: &RequestContext<'_>, mut reply: Reply) -> Reply {
    // Covers all failures, and few hits.
    if reply.status >= 400 {
        replace(context, &mut reply);
    }
    reply
}

fn replace(context: &RequestContext<'_>, reply: &mut Reply) {
    let Some(default) = context.rule.protection.default_response.as_deref() else { return };
    if context.facts.method.is_reusing() && stands_in_for(default, reply) {
        note(context.request.record, || {
            Finding::new("deliver", "the origin fails: the default response of the rule", "")
                .with("in place of", reply.status.to_string(), "")
                .with("status", default.status.to_string(), "")
        });
        write(context.worker, default, reply);
    }
}

/// Whether the default response replaces a reply. Responses of the origin count, whether new, collapsed or stored.
fn stands_in_for(default: &DefaultResponse, reply: &Reply) -> bool {
    match reply.account.result {
        CacheResult::Local => false,
        CacheResult::Error => {
            matches!(reply.cache_status.outcome, Outcome::Forwarded { status: None, .. })
                && reply.status >= 500
        }
        CacheResult::Hit
        | CacheResult::Stale
        | CacheResult::Revalidated
        | CacheResult::Collapsed
        | CacheResult::Miss
        | CacheResult::Bypass => default.statuses.iter().any(|known| known.matches(reply.status)),
    }
}

fn write(worker: &Worker, default: &DefaultResponse, reply: &mut Reply) {
    let mut fields = PackedFields::with_capacity(default.fields.len() + 1);
    fields.push("date", &worker.date());
    default.fields.iter().for_each(|(name, value)| fields.push(name.as_str(), value.as_bytes()));
    (reply.length, reply.body) = match has_no_content(default.status) {
        true => (Length::None, Body::Empty),
        false => Body::of(default.body.clone()),
    };
    reply.status = default.status;
    reply.head = ReplyHead::own(fields);
    reply.extra = PackedFields::default();
    reply.age_s = None;
    reply.cache_status.detail = Some(Reason::DefaultResponse.as_str());
    reply.cache_status.ttl_s = None;
}
