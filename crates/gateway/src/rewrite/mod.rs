//! Changes to a request on its way to the origin, and to a response on its way into the cache.
//!
//! Only end-to-end fields travel (RFC 9110 section 7.6.1). [`crate::rewrite::reading`] decides which fields of a request do.

pub(crate) mod cors;
pub(crate) mod credential_taint;
pub(crate) mod edit;
pub(crate) mod forwarding;
pub(crate) mod reading;
pub(crate) mod rule_log;
pub(crate) mod rules;
pub(crate) mod shape;

use caching::{FieldLine, Negotiation, Timestamp};
use message::fields::PackedFields;
use message::head::Version;
use message::trailers;
use smallvec::SmallVec;

use crate::config::{CacheRule, Site, XCache};
use crate::loops::{self, Instance};
use crate::rewrite::forwarding::via;
use crate::rewrite::reading::Inbound;

/// Whether the origin's answer is meant for the cache or for this client alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The answer may be stored: it must be complete.
    Store,
    /// The answer is for this client: the origin judges preconditions and ranges.
    //= RFC 9110 section 13.2.1: preconditions of what is not answered from the cache are forwarded
    PassOn,
}

/// Whether a field, in lower case, asks for something other than the complete current response.
fn is_precondition(name: &[u8]) -> bool {
    match name.len() {
        5 => name == b"range",
        8 => name == b"if-match" || name == b"if-range",
        13 => name == b"if-none-match",
        17 => name == b"if-modified-since",
        19 => name == b"if-unmodified-since",
        _ => false,
    }
}

/// Field lines of a request to the origin.
pub(crate) fn request_fields(request: &Inbound, instance: &Instance, purpose: Purpose) -> PackedFields {
    let mut fields = request.to_sent();
    reduce_codings(&mut fields, request.rule());
    if purpose == Purpose::Store && fields.has_any(is_precondition) {
        //= RFC 9111 section 4.3.2: preconditions where nothing is stored
        fields.retain(|name| !is_precondition(name));
    }
    fields.append_to_list(loops::FIELD, &instance.element(&request.config().server_name));
    fields
}

/// Reduces `Accept-Encoding` to the codings that the origin may have, in one form for all requests that mean the same.
fn reduce_codings(fields: &mut PackedFields, rule: &CacheRule) {
    let is_reduced = !rule.codings.are_all() && rule.caching.negotiation != Negotiation::AsSent;
    if !is_reduced || fields.value("accept-encoding").is_none() {
        return;
    }
    if let Some(form) = reduced_codings(fields, rule) {
        fields.set("accept-encoding", form.as_bytes());
    }
}

/// Reduced value; `None` if the field has that form already.
fn reduced_codings(fields: &PackedFields, rule: &CacheRule) -> Option<String> {
    let lines: SmallVec<[FieldLine<'_>; 2]> =
        fields.values("accept-encoding").map(|value| ("accept-encoding", value)).collect();
    let is_in_form = |form: &String| matches!(lines[..], [(_, only)] if only == form.as_bytes());
    rule.codings.accept_encoding(&lines).filter(|form| !is_in_form(form))
}

/// End-to-end fields of an origin's response, with this gateway's `Via` and, if the origin sent none, a `Date`.
//= RFC 9110 section 5.1: unrecognized fields are forwarded
//= RFC 9110 section 5.3: the order of lines of one name stays
//= RFC 9110 section 11.6.1: WWW-Authenticate stays as it is
//= RFC 9111 section 5.2: directives are passed through
//= RFC 9213 section 2.2: fields of other targets pass through
//= RFC 9213 section 3.1: CDN-Cache-Control is forwarded
//= RFC 9211 section 2: members of others stay
//= RFC 9110 section 7.7: content stays under no-transform
//= RFC 9111 section 5.2.2.6: no-transform
//= RFC 9111 section 5.2.1.6: no-transform of the request
pub(crate) fn response_fields(
    from_origin: PackedFields,
    site: &Site,
    received: Version,
    server_name: &str,
    arrived: impl FnOnce() -> Timestamp,
) -> PackedFields {
    let hidden = &site.response_fields_hidden;
    let is_hidden = |name: &[u8]| hidden.iter().any(|hidden| hidden.as_str().as_bytes() == name);
    let mut fields = from_origin;
    let announced = trailers::announcing(fields.values("trailer"), hidden);
    // Only this gateway tells how it answered.
    let is_written = |name: &[u8]| name == b"x-cache" && site.x_cache == XCache::On;
    fields.retain(|name| {
        name != b"content-length" && name != b"trailer" && !is_written(name) && !is_hidden(name)
    });
    if let Some(names) = announced.filter(|_| !is_hidden(b"trailer")) {
        fields.push("trailer", &names);
    }
    if fields.value("date").is_none() {
        //= RFC 9110 section 6.6.1: a response without Date is dated by its recipient
        fields.push("date", &caching::date::format(arrived()));
    }
    //= RFC 9110 section 7.6.3: Via in responses
    fields.push_parts("via", &via(received, server_name).map(str::as_bytes));
    fields
}

/// Target that the origin sees.
//= RFC 9110 section 7.7: the target stays as it is
pub(crate) fn origin_target(path_and_query: &str, site: &Site) -> String {
    match site.prefix {
        crate::config::PrefixHandling::Keep => path_and_query.to_owned(),
        crate::config::PrefixHandling::Strip => {
            crate::routing::strip_prefix(path_and_query, &site.path_prefix)
        }
    }
}
