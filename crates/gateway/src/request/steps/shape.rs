//! Applies the transformation rules of a site to a client's request, and to the reply.

use std::net::IpAddr;

use caching::explain::Finding;
use http::HeaderName;
use message::client::known_address_of;
use message::explain_record::note;
use message::head::RequestHead;

use crate::config::{ClientLimits, Phase};
use crate::request::context::SiteContext;
use crate::request::reply::{OwnHead, Reply, ReplyHead};
use crate::request::respond::{self, Problem};
use crate::rewrite::rules::{self, Matching, Seen, SeenAnswer, Validated, matching};
use crate::rewrite::rules::{Context, TooLarge, nominate};
use crate::rewrite::shape::{self, Shape, Shaped};
use crate::rewrite::{cors, rule_log};
use crate::routing::LiveSite;
use crate::worker::Worker;

/// Outcome of the rules for a request.
pub(crate) enum Shaping {
    /// No rule has changed the request.
    AsSent,
    /// Replacement for the request.
    Changed(Box<Shaped>),
    /// Reply of the site itself, without a forward.
    Reply(Box<Reply>),
}

/// Applies the rules to the request of a client.
pub(crate) fn run(at: &SiteContext<'_>, (request, client): (&RequestHead<'_>, IpAddr)) -> Shaping {
    let SiteContext { worker, live, site, .. } = *at;
    if let Some(reply) = answered(at, request) {
        return Shaping::Reply(Box::new(reply));
    }
    let rules = site.transforms(Phase::ClientRequest);
    let matching = shape::matching_client(rules, request, client);
    if matching.is_empty() {
        return Shaping::AsSent;
    }
    rule_log::tell(&worker.recorder, request.record, site, Phase::ClientRequest, &matching);
    let refused = |status| Shaping::Reply(Box::new(at.reply(&Problem::transformed(status))));
    match shape::shape(rules, &matching, request, client) {
        Err(TooLarge) => refused(431),
        Ok(Shape::Redirect { status, location }) => Shaping::Reply(Box::new(at.redirect(status, &location))),
        Ok(Shape::Request(shaped)) => match excess(&shaped, request, &live.config.limits) {
            Some(status) => refused(status),
            None => Shaping::Changed(Box::new(shaped)),
        },
    }
}

/// Returns the reply, if the site itself answers the request: a preflight of another web origin, or, during maintenance, any request
/// of a client that isn't admitted. Preflights are answered first, because after a failed preflight, a browser doesn't show the
/// maintenance response to scripts.
fn answered(at: &SiteContext<'_>, request: &RequestHead<'_>) -> Option<Reply> {
    let SiteContext { live, site, .. } = *at;
    if let Some(cors) = &site.config.cors
        && cors::is_preflight(request.method, request.fields)
    {
        let fields = cors::preflight(cors, request.fields);
        note(request.record, || Finding::new("transform", "the site answers the web origin's preflight", ""));
        return Some(at.preflight(&fields));
    }
    let maintenance = site.config.maintenance.as_ref()?;
    let client = known_address_of(request, &live.config.trusted_proxies);
    if !maintenance.admitted.are_open() && client.is_ok_and(|client| maintenance.admitted.admit(client)) {
        return None;
    }
    note(request.record, || Finding::new("transform", "the site is in maintenance", ""));
    Some(at.maintenance(maintenance))
}

/// Returns the error status for a request that rules have made larger than the limits for clients.
fn excess(shaped: &Shaped, request: &RequestHead<'_>, limits: &ClientLimits) -> Option<u16> {
    let target_bytes = shaped.path_and_query.len();
    let (lines, bytes) = (shaped.fields.len(), shaped.fields.view().wire().len());
    let is_longer = lines > request.fields.len() && lines > limits.fields_max;
    if target_bytes > request.path_and_query.len() && target_bytes > limits.target_bytes_max {
        return Some(414);
    }
    (is_longer || bytes > limits.head_bytes_max).then_some(431)
}

/// Applies the response rules to a reply; the stored response stays unchanged.
pub(crate) fn overlay(worker: &Worker, asked: (&RequestHead<'_>, IpAddr), reply: &mut Reply) {
    let Some(site) = reply.account.site.clone() else { return };
    let is_preflight = reply.cache_status.detail == Some(respond::PREFLIGHT);
    let has_any = !site.transforms(Phase::ClientResponse).is_empty()
        || site.config.cors.is_some()
        || site.answers_by_fields();
    if is_preflight || !has_any {
        return;
    }
    let (request, _) = asked;
    match of_reply(&site, asked, reply) {
        Ok(matching) => {
            rule_log::tell(&worker.recorder, request.record, &site, Phase::ClientResponse, &matching);
        }
        Err(TooLarge) => {
            let (rule, started) = (reply.account.rule, reply.account.started);
            *reply = respond::reply(&Problem::transformed(500), Some(&site), started, worker);
            reply.account.rule = rule;
        }
    }
}

/// Applies the rules to a reply. The reply gets its own head, so that the stored response stays unchanged.
///
/// # Errors
/// If the header section becomes too large.
fn of_reply(
    site: &LiveSite,
    (request, client): (&RequestHead<'_>, IpAddr),
    reply: &mut Reply,
) -> Result<Matching, TooLarge> {
    let (rules, cors) = (site.transforms(Phase::ClientResponse), site.config.cors.as_ref());
    let seen = Seen::of(request, client, Phase::ClientResponse);
    let has_others = cors.is_some() || site.answers_by_fields();
    if !has_others && matching(rules, &seen, None).is_empty() {
        return Ok(Matching::new());
    }
    let own = reply.own_head();
    let validated = match &reply.head {
        ReplyHead::NotModified(head) => {
            Some(Validated { status: head.facts.status, fields: head.fields.view() })
        }
        _ => None,
    };
    let answer = SeenAnswer { status: reply.status, fields: own.fields.view(), validated };
    let matching = matching(rules, &seen, Some(&answer));
    let deciding = match site.answers_by_fields() {
        true => deciding(site, &seen, &answer),
        false => Vec::new(),
    };
    if cors.is_none() && deciding.is_empty() && matching.is_empty() {
        return Ok(matching);
    }
    let context = Context::of_answer(&seen, &answer);
    let mut fields = own.fields.clone();
    cors.iter().for_each(|cors| cors::lay_over(cors, request.fields, &mut fields));
    deciding.iter().for_each(|name| nominate(name.as_str(), &mut fields));
    context.apply(rules, &matching, &mut fields)?;
    reply.take_head(OwnHead { fields, ..own });
    Ok(matching)
}

/// Returns the request fields on which replies of this site depend. The gateway adds these fields to `Vary`, so that caches closer
/// to the client distinguish the replies.
fn deciding<'a>(site: &'a LiveSite, seen: &Seen<'_>, answer: &SeenAnswer<'_>) -> Vec<&'a HeaderName> {
    let of_requests =
        rules::deciding(site.transforms(Phase::ClientRequest), Phase::ClientRequest, seen, None);
    let of_answers =
        rules::deciding(site.transforms(Phase::ClientResponse), Phase::ClientResponse, seen, Some(answer));
    of_requests.chain(of_answers).collect()
}
