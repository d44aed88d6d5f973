//! Changes to requests before they are sent to the origin, and to responses before they are stored.
//!
//! `CDN-Loop` (RFC 8586) reveals a looping request when it returns for the first time. The field contains a random number for each
//! process, because gateways in a chain may have the same name. If a hop removes `CDN-Loop`, `Via` reveals the loop after several
//! rounds.
//!
//! Only end-to-end fields are forwarded (RFC 9110 section 7.6.1). [`crate::rewrite::reading`] decides which fields of a request are
//! forwarded.

pub(crate) mod cors;
pub(crate) mod credential_taint;
pub(crate) mod forwarding;
pub(crate) mod reading;
pub(crate) mod rule_log;
pub(crate) mod rules;
pub(crate) mod shape;

use std::hash::{BuildHasher, RandomState};

use caching::fields::members;
use caching::{FieldLine, Negotiation, Timestamp};
use message::fields::PackedFields;
use message::head::{OwnedRequest, Version};
use message::trailers;
use smallvec::SmallVec;

use crate::config::{CacheRule, Site, XCache};
use crate::rewrite::forwarding::via;
use crate::rewrite::reading::Inbound;

/// Whether the origin's response is for the cache or for this client alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The response may be stored, so it must be complete.
    Store,
    /// The response is for this client alone, so the origin evaluates preconditions and ranges.
    //= RFC 9110 section 13.2.1: preconditions of what is not answered from the cache are forwarded
    PassOn,
}

/// Returns whether a field, in lower case, requests something other than the complete current response.
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

/// Returns the field lines of a request to the origin.
pub(crate) fn request_fields(request: &Inbound, instance: &Instance, purpose: Purpose) -> PackedFields {
    let mut fields = request.to_sent();
    reduce_codings(&mut fields, request.rule());
    if purpose == Purpose::Store && fields.has_any(is_precondition) {
        //= RFC 9111 section 4.3.2: preconditions where nothing is stored
        fields.retain(|name| !is_precondition(name));
    }
    fields.append_to_list(LOOP_FIELD, &instance.element(&request.config().server_name));
    fields
}

/// Reduces `Accept-Encoding` to the codings that the rule requests from the origin. Equivalent requests then have the same value.
fn reduce_codings(fields: &mut PackedFields, rule: &CacheRule) {
    let is_reduced = !rule.codings.are_all() && rule.caching.negotiation != Negotiation::AsSent;
    if !is_reduced || fields.value("accept-encoding").is_none() {
        return;
    }
    if let Some(form) = reduced_codings(fields, rule) {
        fields.set("accept-encoding", form.as_bytes());
    }
}

/// Returns the reduced value, or `None` if the field already has this value.
fn reduced_codings(fields: &PackedFields, rule: &CacheRule) -> Option<String> {
    let lines: SmallVec<[FieldLine<'_>; 2]> =
        fields.values("accept-encoding").map(|value| ("accept-encoding", value)).collect();
    let is_in_form = |form: &String| matches!(lines[..], [(_, only)] if only == form.as_bytes());
    rule.codings.accept_encoding(&lines).filter(|form| !is_in_form(form))
}

/// Returns the end-to-end fields of an origin's response, with this gateway's `Via` and, if the origin sent none, a `Date`.
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
    // If the site sends `X-Cache`, the origin's `X-Cache` is removed.
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

/// Returns the request target for the origin.
//= RFC 9110 section 7.7: the target stays as it is
pub(crate) fn origin_target(path_and_query: &str, site: &Site) -> String {
    match site.prefix {
        crate::config::PrefixHandling::Keep => path_and_query.to_owned(),
        crate::config::PrefixHandling::Strip => {
            crate::routing::strip_prefix(path_and_query, &site.path_prefix)
        }
    }
}

/// Field in which a gateway detects its own name.
pub(crate) const LOOP_FIELD: &str = "cdn-loop";

/// Identity of this process among others with the same name.
#[derive(Debug)]
pub(crate) struct Instance {
    /// The parameter `instance=`, with a random number.
    parameter: Box<str>,
}

impl Instance {
    pub(crate) fn new() -> Self {
        let number = RandomState::new().hash_one(std::process::id());
        Self { parameter: format!("instance={number:016x}").into() }
    }

    /// Returns the parts of this process's list element in `CDN-Loop`.
    pub(crate) fn element<'a>(&'a self, server_name: &'a str) -> [&'a [u8]; 3] {
        [server_name.as_bytes(), b"; ", self.parameter.as_bytes()]
    }

    /// Returns whether this process has already forwarded a request, or gateways with the same name have forwarded it so often that
    /// there is probably a loop. A valid chain of gateways with the default name is shorter.
    //= RFC 9110 section 7.6: no message goes round without end
    pub(crate) fn goes_in_circles(&self, request: &OwnedRequest, server_name: &str) -> bool {
        // Most requests come directly from a client.
        let is_named = |name: &[u8], known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if !request.fields.has_any(|name| is_named(name, "via") || is_named(name, LOOP_FIELD)) {
            return false;
        }
        let lines = request.fields.to_lines();
        self.is_returned(&lines) || passes(&lines, server_name) >= OWN_PASSES_MAX
    }

    fn is_returned(&self, lines: &[FieldLine<'_>]) -> bool {
        let is_own = |element: &[u8]| {
            let mut parameters = element.split(|byte| *byte == b';').skip(1);
            parameters.any(|parameter| parameter.trim_ascii() == self.parameter.as_bytes())
        };
        members(lines, LOOP_FIELD).any(is_own)
    }
}

/// Returns the number of times that a request passed through gateways with this name.
fn passes(lines: &[FieldLine<'_>], server_name: &str) -> usize {
    let is_own = |element: &&[u8]| {
        let mut words = element.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        words.nth(1).is_some_and(|received_by| received_by.eq_ignore_ascii_case(server_name.as_bytes()))
    };
    members(lines, "via").filter(is_own).count()
}

/// Number of passes through gateways with the same name after which a request counts as looping.
const OWN_PASSES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_forwarded_is_known_at_once() {
        let (instance, other) = (Instance::new(), Instance::new());
        let element = |of: &Instance| String::from_utf8(of.element("larder").concat()).unwrap();
        let (own, others) = (element(&instance), element(&other));
        assert_ne!(own, others);
        let check = |value: &str, expected: bool| {
            assert_eq!(instance.is_returned(&[(LOOP_FIELD, value.as_bytes())]), expected, "{value}");
        };
        check(&own, true);
        check(&format!("a.example, {own}"), true);
        check(&format!("{own}, {others}"), true);
        check(&own.replace("; ", ";"), true);
        check(&own.replace("; ", " ; a=b ; "), true);
        check(&others, false);
        check("larder", false);
        check("", false);
        check(&own.replace("larder; ", ""), false);
        check(&format!("a; b=\"{own}\""), false);
    }

    #[test]
    fn passes_are_counted_by_name() {
        let check = |value: &str, expected: usize| {
            assert_eq!(passes(&[("via", value.as_bytes())], "larder"), expected, "{value}");
        };
        check("1.1 larder, 2 other, 1.0 LARDER (comment)", 2);
        check("1.1 larder2, larder", 0);
    }
}
