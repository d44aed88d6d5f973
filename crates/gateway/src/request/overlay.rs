//! Response rules of a site, applied to responses of the origin before they are judged, and to any reply on its way to a client.

use std::net::IpAddr;

use cache::entry::stored::StoredHead;
use http::HeaderName;
use message::head::RequestHead;
use origin::OriginResponse;

use crate::config::{Phase, TransformRule};
use crate::request::reply::{OwnHead, Reply, ReplyHead};
use crate::rewrite::cors;
use crate::rewrite::edit::{Context, TooLarge, nominate};
use crate::rewrite::rules::{self, Matching, Seen, SeenAnswer, Validated, matching};
use crate::routing::LiveSite;

/// Applies the rules to a response of the origin, and returns those that matched.
///
/// # Errors
/// If the header section becomes too large.
pub(crate) fn of_origin(
    rules: &[TransformRule],
    seen: &Seen<'_>,
    response: &mut OriginResponse,
    validated: Option<&StoredHead>,
) -> Result<Matching, TooLarge> {
    let validated = validated.map(|head| Validated { status: head.facts.status, fields: head.fields.view() });
    let status = response.status.as_u16();
    let mut fields = std::mem::take(&mut response.fields);
    let answer = SeenAnswer { status, fields: fields.view(), validated };
    let matching = matching(rules, seen, Some(&answer));
    let context = Context::of_answer(seen, &answer);
    let applied = context.apply(rules, &matching, &mut fields);
    response.fields = fields;
    applied.map(|()| matching)
}

/// Applies the rules to a reply. The reply gets a head of its own: the stored response stays as it is.
///
/// # Errors
/// As for [`of_origin`].
pub(crate) fn of_reply(
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

/// Request fields that the reply depends on at this site, for `Vary`: caches between here and the client keep such replies apart.
fn deciding<'a>(site: &'a LiveSite, seen: &Seen<'_>, answer: &SeenAnswer<'_>) -> Vec<&'a HeaderName> {
    let of_requests =
        rules::deciding(site.transforms(Phase::ClientRequest), Phase::ClientRequest, seen, None);
    let of_answers =
        rules::deciding(site.transforms(Phase::ClientResponse), Phase::ClientResponse, seen, Some(answer));
    of_requests.chain(of_answers).collect()
}
