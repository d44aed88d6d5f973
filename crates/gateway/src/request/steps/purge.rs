//! The method PURGE, if it is configured. PURGE purges the URL of the request, and the request is never
//! forwarded.

use std::net::IpAddr;

use bytes::Bytes;
use caching::fields;
use message::client::address_of;
use message::fields::PackedFields;
use store::purge::PurgeMode;
use tokio::time::Instant;

use crate::config::PurgeMethod;
use crate::events::{self, Event};
use crate::purge::{self, PurgeOrder, PurgeOutcome};
use crate::request::plan::Plan;
use crate::request::reply::{Body, Reply, ReplyHead};
use crate::request::respond::Problem;

/// Purges the URL, if the client presents the token.
pub(crate) async fn answer(plan: &Plan, method: &PurgeMethod) -> Reply {
    let lines = plan.request.fields.to_lines();
    if let Err(problem) = check(fields::only(&lines, "authorization"), method) {
        let mut reply = refused(plan, &problem);
        reply.extra.push("www-authenticate", b"Bearer realm=\"larder\"");
        return reply;
    }
    let mode = match fields::only(&lines, "fastly-soft-purge") {
        Some(b"1") => PurgeMode::Soft,
        _ => PurgeMode::Hard,
    };
    let request = &plan.request;
    let (scheme, authority) = (request.scheme.as_str(), &request.authority);
    let url = format!("{scheme}://{authority}{}", request.path_and_query);
    let order = PurgeOrder { url: Some(url), mode, ..PurgeOrder::default() };
    let begun = Instant::now();
    match purge::purge(&plan.worker.shared, &order).await {
        Ok(outcome) => {
            plan.worker.recorder.purge(&outcome.counted(mode, begun.elapsed()));
            outcome.log(&order, client(plan));
            told(plan, &outcome)
        }
        Err(error) => refused(plan, &Problem::new(400, "purge-invalid", error.to_string())),
    }
}

fn refused(plan: &Plan, problem: &Problem) -> Reply {
    plan.worker.recorder.purge_refused(problem.reason);
    let event = Event::PurgeRefused { client: client(plan), reason: problem.reason };
    events::emit(&plan.site, &plan.request.path_and_query, &event);
    plan.at().reply(problem)
}

/// Returns the address of the client, which trusted proxies may report.
fn client(plan: &Plan) -> IpAddr {
    let lines = plan.asked().fields.to_lines();
    address_of(&plan.asked().borrow(&lines), &plan.live.config.trusted_proxies)
}

fn check(authorization: Option<&[u8]>, method: &PurgeMethod) -> Result<(), Problem> {
    let text = "send `Authorization: Bearer` with the token for PURGE";
    let authorization = authorization.ok_or_else(|| Problem::new(401, "purge-token-missing", text))?;
    let (scheme, token) = authorization.split_at_checked(BEARER.len()).unwrap_or((authorization, b""));
    if scheme.eq_ignore_ascii_case(BEARER) && method.is_token(token.trim_ascii()) {
        return Ok(());
    }
    Err(Problem::new(403, "purge-token-wrong", "wrong token for PURGE"))
}

const BEARER: &[u8] = b"Bearer ";

/// Returns the reply, which has the counts under the same names as the admin API. If instances share a tier,
/// it also says whether the purge has reached all of them.
fn told(plan: &Plan, outcome: &PurgeOutcome) -> Reply {
    let PurgeOutcome { keys_matched, responses_purged, fills_doomed, fleet, .. } = outcome;
    let complete =
        fleet.as_ref().map(|reach| format!("\"complete\":{},", reach.complete)).unwrap_or_default();
    let uncounted = if outcome.keyed_uncounted { "\"keyed_uncounted\":true," } else { "" };
    let (detail, message) = match (*keys_matched, outcome.keyed_uncounted) {
        (0, false) => (
            "nothing-found",
            "\"message\":\"nothing found: no stored response for this URL with http or https, without a port or with the port of a listener\",",
        ),
        (0, true) => ("purge-uncounted", "\"message\":\"nothing found under the key of the URL alone\","),
        _ => ("purged", ""),
    };
    let body = Bytes::from(format!(
        "{{\"keys_matched\":{keys_matched},\"responses_purged\":{responses_purged},\"fills_doomed\":{fills_doomed},{uncounted}{complete}{message}\"id\":\"{}\"}}\n",
        outcome.id.as_deref().unwrap_or_default()
    ));
    let mut reply = plan.at().reply(&Problem::new(200, detail, ""));
    let lines = [
        ("date", &plan.worker.date()[..]),
        ("content-type", b"application/json"),
        ("cache-control", b"no-store"),
    ];
    (reply.head, reply.x_cache) = (ReplyHead::own(PackedFields::from_lines(lines)), None);
    (reply.length, reply.body) = Body::of(body);
    reply
}
