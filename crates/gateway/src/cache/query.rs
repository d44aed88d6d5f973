//! QUERY (RFC 10008): a safe request whose content is part of what it asks for, and so of the cache key. The content is
//! read before anything is looked up.

use std::sync::Arc;

use bytes::Bytes;
use caching::{FwdReason, query};

use super::collapse;
use super::lookup::Lookup;
use crate::exchange::{self, Interims, PassReason, Plan, Way};
use crate::forward;
use crate::head::RequestHead;
use crate::origin::{Gathered, RequestBody};
use crate::reason::Reason;
use crate::reply::Reply;
use crate::respond::{self, Problem};
use crate::worker::Worker;

/// Answers a QUERY.
//= RFC 10008 section 2.7: responses to QUERY are cacheable
pub(crate) async fn run(worker: &Arc<Worker>, plan: &Plan, body: RequestBody, interims: &Interims) -> Reply {
    let pass = async |body, why: Reason| {
        let reason = PassReason { fwd: FwdReason::Bypass, detail: why.into() };
        forward::pass(worker, plan, body, reason, interims).await
    };
    let (bytes_max, memory) =
        (plan.site.rule_at(plan.rule).query_content_bytes_max, worker.shared.memory.budget());
    let content = match body.gather(bytes_max, memory).await {
        Gathered::Whole(content) => content,
        Gathered::TooLarge(body) => return pass(body, Reason::QueryContent).await,
        Gathered::Incomplete => {
            let problem = Problem::new(400, "request-content-incomplete", "the request content broke off");
            return respond::reply(&problem, Some(&plan.site), plan.started, worker);
        }
    };
    if !query::is_typed(&plan.request.fields.to_lines()) {
        return pass(RequestBody::from(content), Reason::QueryUntyped).await;
    }
    worker.shared.epochs.watch_keys();
    match look_up(worker, plan, &content) {
        Ok(reply) => reply,
        Err(Way::Fetch(fetch)) => collapse::run(worker, plan, &fetch, interims).await,
        Err(Way::Pass { reason, .. }) => {
            forward::pass(worker, plan, RequestBody::from(content), reason, interims).await
        }
        Err(Way::Query) => pass(RequestBody::from(content), Reason::RequestContent).await,
    }
}

fn look_up(worker: &Arc<Worker>, plan: &Plan, content: &Bytes) -> Result<Reply, Way> {
    let (lines, sent) = (plan.request.fields.to_lines(), plan.request.sent().to_lines());
    let lookup = Lookup {
        worker,
        live: &plan.live,
        site: &plan.site,
        rule: plan.rule,
        request: &RequestHead { sent: Some(&sent), ..plan.request.borrow(&lines) },
        facts: &plan.facts,
        now: worker.now(),
        content: Some(content),
    };
    exchange::settle(&lookup, &mut Vec::new(), plan.started)
}
