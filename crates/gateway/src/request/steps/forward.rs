//! Forwards a request as it is.

use std::sync::Arc;

use cache::failure::FailureCause;
use caching::{Asked, MethodClass};
use message::clock::now;
use origin::{Interim, OriginError, RequestBody};

use crate::request::fetch::head_update;
use crate::request::fetch::post::PostStore;
use crate::request::origin_call::OriginCall;
use crate::request::plan::Interims;
use crate::request::plan::{ForwardReason, Next, Plan};
use crate::request::reply::Reply;
use crate::request::respond::Problem;
use crate::request::{invalidate, private};
use crate::rewrite::Purpose;

/// Forwards a request as it is; the answer goes to its client alone.
//= RFC 9111 section 4: unsafe methods are written through
pub(crate) async fn run(plan: &Plan, body: RequestBody, reason: ForwardReason, interims: &Interims) -> Next {
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
    // A request that no stored response could answer costs the origin just as much.
    if plan.facts.method.is_reusing()
        && let Err(error) = plan.spend()
    {
        return Next::Reply(failed(plan, &error, reason));
    }
    let written = PostStore::begin(plan);
    let updating = head_update::HeadExchange::begin(plan);
    let (asked, sent) = (Asked::by(|name| fields.value(name).is_some()), now());
    match call.send(fields, body, &mut interim).await {
        Ok(response) => {
            let times = plan.times_since(sent);
            let spared = written.as_ref().map(PostStore::waiter);
            if plan.facts.method == MethodClass::Unsafe {
                // Boxed, since every forward would have to hold room for it.
                Box::pin(invalidate::apply(plan, &response, spared)).await;
            }
            // The origin has acted on the request, but the answer is unusable.
            if let Some(error) = plan.unasked(asked, response.status) {
                return Next::Reply(failed(plan, &error, reason));
            }
            if let Some(updating) = updating {
                updating.apply(plan, &response, times);
            }
            if let Some(reply) =
                private::stale_instead(plan, FailureCause::of_status(response.status.as_u16()))
            {
                return Next::Reply(reply);
            }
            match written.filter(|written| written.may_store(&response, times)) {
                Some(written) => written.take(response, times),
                None => Next::Reply(private::reply(plan, response, reason)),
            }
        }
        Err(error) => Next::Reply(failed(plan, &error, reason)),
    }
}

fn failed(plan: &Plan, error: &OriginError, reason: ForwardReason) -> Reply {
    private::stale_instead(plan, FailureCause::of_error(error)).unwrap_or_else(|| {
        private::failed(plan, &Problem::origin(error, private::stale_candidate(plan)), reason)
    })
}
