//! What a request becomes on its way to the origin, and a response on its way into the cache.
//!
//! Only end-to-end fields travel (RFC 9110 section 7.6.1). What the gateway says about the client
//! (`Forwarded`, `X-Forwarded-*`) replaces what the client says about itself, unless the peer is a trusted proxy.

use std::net::IpAddr;

use caching::{HopByHop, MaxForwards, Timestamp};
use http::header::HeaderName;

use crate::config::{OverrideFields, Site};
use crate::fields::PackedFields;
use crate::head::{OwnedRequest, Peer, Trust, Version};
use crate::loops::{self, Instance};

/// Whether the origin's answer is meant for the cache or for this client alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The answer may be stored: it must be complete, and must not depend on what isn't in the cache key.
    Store { overrides: OverrideFields },
    /// The answer is for this client: preconditions and ranges are the origin's to judge.
    //= RFC 9110 section 13.2.1: preconditions of what is not answered from the cache are forwarded
    PassOn,
}

/// Fields that ask for something other than the complete current response.
const PRECONDITIONS: [&str; 6] =
    ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range", "range"];

/// The origin client writes these from the authority and the body, and an expectation is met on this side.
const NOT_FORWARDED: [&str; 3] = ["host", "content-length", "expect"];

/// Fields by which some origin frameworks let a client replace method or target. They are no part of the cache
/// key, so an answer to them must never be stored under it.
const UNKEYED_OVERRIDES: [&str; 6] = [
    "x-original-url",
    "x-rewrite-url",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-host",
];

/// Fields that describe the way of a request; the gateway writes its own.
const FORWARDING: [&str; 7] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-server",
    "x-real-ip",
];

/// The end-to-end fields that are forwarded.
//= RFC 9110 section 5.1: unrecognized fields are forwarded
//= RFC 9110 section 11.6.2: Authorization stays as it is
//= RFC 9111 section 5.2: directives are passed through
pub(crate) fn request_fields(
    request: &OwnedRequest,
    site: &Site,
    server_name: &str,
    instance: &Instance,
    purpose: Purpose,
) -> PackedFields {
    let lines = request.fields.to_lines();
    let hop_by_hop = HopByHop::of(&lines);
    let mut fields = PackedFields::with_capacity(lines.len() + 8);
    let mut way = Way::Untold;
    for &(name, value) in &lines {
        if !hop_by_hop.contains(name) && is_forwarded(name, site, request.peer, purpose) {
            fields.push_lowercase(name, value);
            if is_one_of(&FORWARDING, name) || is_one_of(&["via", loops::FIELD], name) {
                way = Way::Told;
            }
        }
    }
    if let MaxForwards::Forward(left) = MaxForwards::parse(&request.method, &lines) {
        fields.set("max-forwards", itoa::Buffer::new().format(left).as_bytes());
    }
    describe_the_way(&mut fields, way, request, server_name);
    way.append(&mut fields, loops::FIELD, &instance.element(server_name));
    fields
}

/// Whether the request may have been answered for another method or target than its own.
pub(crate) fn has_unkeyed_overrides(request: &OwnedRequest) -> bool {
    request
        .fields
        .lines()
        .any(|(name, _)| UNKEYED_OVERRIDES.iter().any(|known| name.eq_ignore_ascii_case(known)))
}

fn is_forwarded(name: &str, site: &Site, peer: Peer, purpose: Purpose) -> bool {
    if is_one_of(&NOT_FORWARDED, name) || is_listed(&site.request_fields_hidden, name) {
        return false;
    }
    if let Purpose::Store { overrides } = purpose {
        let is_override = overrides == OverrideFields::Drop && is_one_of(&UNKEYED_OVERRIDES, name);
        //= RFC 9111 section 4.3.2: preconditions where nothing is stored
        if is_override || is_one_of(&PRECONDITIONS, name) {
            return false;
        }
    }
    if is_one_of(&FORWARDING, name) {
        return peer.trust == Trust::Trusted;
    }
    name.eq_ignore_ascii_case(loops::FIELD)
        || site.request_fields_forwarded.is_empty()
        || is_listed(&site.request_fields_forwarded, name)
}

fn is_one_of(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn is_listed(names: &[HeaderName], name: &str) -> bool {
    names.iter().any(|listed| listed.as_str().eq_ignore_ascii_case(name))
}

/// `Via`, `Forwarded` and the `X-Forwarded-*` family.
fn describe_the_way(fields: &mut PackedFields, way: Way, request: &OwnedRequest, server_name: &str) {
    let client = request.peer.ip();
    let address = address_text(client);
    let (address, authority) = (address.as_bytes(), request.authority.as_bytes());
    let scheme = request.scheme.as_str().as_bytes();
    way.append(fields, "x-forwarded-for", &[address]);
    way.set_if_absent(fields, "x-forwarded-proto", scheme);
    way.set_if_absent(fields, "x-forwarded-host", authority);
    let (open, close): (&[u8], &[u8]) = if client.is_ipv6() { (b"\"[", b"]\"") } else { (b"", b"") };
    let element = [b"for=", open, address, close, b";host=\"", authority, b"\";proto=", scheme];
    way.append(fields, "forwarded", &element);
    //= RFC 9110 section 7.6.3: Via
    way.append(fields, "via", &via(request.version, server_name).map(str::as_bytes));
}

/// The parts of a `Via` element (RFC 9110 section 7.6.3).
fn via(received: Version, server_name: &str) -> [&str; 3] {
    [received.received_protocol(), " ", server_name]
}

/// Whether the request tells which way it has come until here. Most do not, and then there is nothing to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Untold,
    Told,
}

impl Way {
    fn append(self, fields: &mut PackedFields, name: &str, element: &[&[u8]]) {
        match self {
            Self::Untold => fields.push_parts(name, element),
            Self::Told => fields.append_to_list(name, element),
        }
    }

    fn set_if_absent(self, fields: &mut PackedFields, name: &str, value: &[u8]) {
        if self == Self::Untold || fields.value(name).is_none() {
            fields.push(name, value);
        }
    }
}

/// An address as text. The numbers of IPv4 are written one by one: the formatting machinery costs more than all other
/// fields together.
fn address_text(address: IpAddr) -> String {
    let IpAddr::V4(address) = address else { return address.to_string() };
    let mut text = String::with_capacity(15);
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            text.push('.');
        }
        text.push_str(itoa::Buffer::new().format(octet));
    }
    text
}

/// The end-to-end fields of an origin's response, with this gateway's `Via` and, if the origin sent none, a `Date`.
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
    fields.retain(|name| name != b"content-length" && !is_hidden(name));
    if fields.value("date").is_none() {
        //= RFC 9110 section 6.6.1: a response without Date is dated by its recipient
        fields.push("date", &caching::date::format(arrived()));
    }
    //= RFC 9110 section 7.6.3: Via in responses
    fields.push_parts("via", &via(received, server_name).map(str::as_bytes));
    fields
}

/// The target that the origin sees.
//= RFC 9110 section 7.7: the target stays as it is
pub(crate) fn origin_target(path_and_query: &str, site: &Site) -> String {
    match site.prefix {
        crate::config::PrefixHandling::Keep => path_and_query.to_owned(),
        crate::config::PrefixHandling::Strip => crate::route::strip_prefix(path_and_query, &site.path_prefix),
    }
}
