//! What the rules of a site make of responses: those of the origin before they are judged, and any on its way to a client.

use std::net::IpAddr;

use super::cors;
use super::edit::{Context, TooLarge};
use super::rules::{Answer, Matching, Seen, Validated, matching};
use crate::cache::record::stored::StoredHead;
use crate::config::{Phase, Site, TransformRule};
use crate::message::head::RequestHead;
use crate::message::reply::{OwnHead, Reply, ReplyHead};
use crate::upstream::OriginResponse;

/// Carries out what rules say of a response of the origin, and tells which did.
///
/// # Errors
/// Where its header section becomes larger than any may be.
pub(crate) fn of_origin(
    rules: &[TransformRule],
    seen: &Seen<'_>,
    response: &mut OriginResponse,
    validated: Option<&StoredHead>,
) -> Result<Matching, TooLarge> {
    let validated = validated.map(|head| Validated { status: head.facts.status, fields: head.fields.view() });
    let status = response.status.as_u16();
    let mut fields = std::mem::take(&mut response.fields);
    let answer = Answer { status, fields: fields.view(), validated };
    let matching = matching(rules, seen, Some(&answer));
    let context = Context::of_answer(seen, &answer);
    let applied = context.apply(rules, &matching, &mut fields);
    response.fields = fields;
    applied.map(|()| matching)
}

/// The same of a reply. Its head becomes one of its own: what is stored stays as it is.
///
/// # Errors
/// As of [`of_origin`].
pub(crate) fn of_reply(
    site: &Site,
    (request, client): (&RequestHead<'_>, IpAddr),
    reply: &mut Reply,
) -> Result<Matching, TooLarge> {
    let rules = site.transforms.of(Phase::ClientResponse);
    let seen = Seen::of(request, client, Phase::ClientResponse);
    if site.cors.is_none() && matching(rules, &seen, None).is_empty() {
        return Ok(Matching::new());
    }
    let own = reply.own_head();
    let validated = match &reply.head {
        ReplyHead::NotModified(head) => {
            Some(Validated { status: head.facts.status, fields: head.fields.view() })
        }
        _ => None,
    };
    let answer = Answer { status: reply.status, fields: own.fields.view(), validated };
    let matching = matching(rules, &seen, Some(&answer));
    if site.cors.is_none() && matching.is_empty() {
        return Ok(matching);
    }
    let context = Context::of_answer(&seen, &answer);
    let mut fields = own.fields.clone();
    site.cors.iter().for_each(|cors| cors::lay_over(cors, request.fields, &mut fields));
    context.apply(rules, &matching, &mut fields)?;
    reply.take_head(OwnHead { fields, ..own });
    Ok(matching)
}
