//! QUERY (RFC 10008): a safe request whose content is part of what it asks for, and so of the cache key. The content is
//! read before anything is looked up.

use caching::{FwdReason, query};
use message::reason::Reason;
use origin::{Gathered, RequestBody};

use crate::request::plan::{ForwardReason, Next, Plan};
use crate::request::respond::Problem;

/// Reads the content, for a look-up that depends on it.
//= RFC 10008 section 2.7: responses to QUERY are cacheable
pub(crate) async fn run(plan: &Plan, body: RequestBody) -> Next {
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
