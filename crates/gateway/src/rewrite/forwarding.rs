//! Forwarding information from trusted peers: the scheme, host and port that the client used, and the hops of the request.
//!
//! The cache key and the request to the origin use the same values, read by these rules:
//!
//! - the first element of a list is used, because it is the nearest to the client;
//! - `X-Forwarded-Proto`, `-Host` and `-Port` take precedence over `Forwarded` (RFC 7239), and `Forwarded` over other fields with the
//!   scheme;
//! - only elements of `Forwarded` that trusted proxies wrote are used ([`Route`]), and none if the request has `X-Forwarded-For`;
//! - a value that isn't a scheme, host or port counts as absent.
//!
//! Trusted peers must overwrite all these fields in requests of untrusted clients, except `Forwarded` and `X-Forwarded-For`.
//!
//! The origin also gets the hops as the gateway has read them, with the same content in both fields.

use std::borrow::Cow;
use std::net::IpAddr;

use caching::forwarded::{Hop, Node, NodeName};
use caching::unkeyed::{FieldClass, SchemeForm, class_of, is_spelled_oddly};
use caching::{FieldLine, authority, fields};
use http1::Authority;
use message::client::{Route, TrustedProxies};
use message::fields::PackedFields;
use message::head::{RequestHead, Scheme, Trust, Version};

use crate::config::{Config, Site};
use crate::rewrite::reading::{is_forwarded_by, is_listed};
use crate::urls::address_text;

/// Host and port that the client of a trusted peer requested, as far as the peer reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestedHost {
    host: Option<String>,
    port: Option<u16>,
}

impl RequestedHost {
    pub(crate) fn read(trust: Trust, lines: &[FieldLine<'_>], trusted: &TrustedProxies) -> Self {
        match trust {
            Trust::Untrusted => Self::default(),
            Trust::Trusted => Self {
                host: told_host(lines, trusted),
                port: fields::values(lines, "x-forwarded-port").find_map(read_port),
            },
        }
    }

    /// Returns the authority requested by the client, in the same normal form as the request's own.
    pub(crate) fn authority<'b>(&self, request: &RequestHead<'b>) -> Cow<'b, str> {
        match &self.host {
            Some(host) => authority::normalised(request.scheme.as_str(), host).into(),
            None => request.authority.into(),
        }
    }

    /// Passes host and port to `sink` as field lines, as far as they aren't in the cache key.
    pub(crate) fn each_unkeyed(&self, request: &RequestHead<'_>, mut sink: impl FnMut(&str, &[u8])) {
        let normalised = |authority| authority::normalised(request.scheme.as_str(), authority);
        let other = self.host.as_deref().filter(|host| *host != request.authority).map(normalised);
        if let Some(host) = other.filter(|host| *host != normalised(request.authority)) {
            sink("x-forwarded-host", host.as_bytes());
        }
        let asked = Authority::parse(self.host.as_deref().unwrap_or(request.authority).as_bytes());
        let usual =
            asked.and_then(|authority| authority.port()).unwrap_or_else(|| default_port(request.scheme));
        if let Some(port) = self.port.filter(|port| *port != usual) {
            sink("x-forwarded-port", &port.to_be_bytes());
        }
    }
}

/// Writes `Via`, `Forwarded` and the `X-Forwarded-*` family.
pub(super) fn describe_the_way(
    request: &RequestHead<'_>,
    (site, config): (&Site, &Config),
    out: &mut PackedFields,
) {
    let told = RequestedHost::read(request.peer.trust, request.fields, &config.trusted_proxies);
    let authority = told.authority(request);
    let scheme = request.scheme.as_str().as_bytes();
    let way: [&[u8]; 4] = [b";host=\"", authority.as_bytes(), b"\";proto=", scheme];
    match request.peer.trust {
        // The forwarding fields that an untrusted peer sent aren't forwarded.
        Trust::Untrusted => describe_client(request.peer.ip(), way, out),
        Trust::Trusted => describe_hops(request, (site, config), &way.concat(), out),
    }
    describe(request, &authority, &told, |name| is_forwarded_by(site, name), out);
    // Hidden fields aren't sent to the origin, even if the gateway writes them. `Via` is required (RFC 9110 section 7.6.3).
    if !site.request_fields_hidden.is_empty() {
        out.retain(|name| {
            !std::str::from_utf8(name).is_ok_and(|name| is_listed(&site.request_fields_hidden, name))
        });
    }
    //= RFC 9110 section 7.6.3: Via
    out.append_to_list("via", &via(request.version, &config.server_name).map(str::as_bytes));
}

/// Writes the fields for an untrusted peer, which counts as the client.
fn describe_client(client: IpAddr, way: [&[u8]; 4], out: &mut PackedFields) {
    let address = address_text(client);
    let (open, close): (&[u8], &[u8]) = if client.is_ipv6() { (b"\"[", b"]\"") } else { (b"", b"") };
    let [host, authority, proto, scheme] = way;
    out.push("x-forwarded-for", address.as_bytes());
    let address = address.as_bytes();
    out.push_parts("forwarded", &[b"for=", open, address, close, host, authority, proto, scheme]);
}

/// Writes the fields for the hops that a trusted proxy reports, and for the proxy itself.
fn describe_hops(
    request: &RequestHead<'_>,
    (site, config): (&Site, &Config),
    way: &[u8],
    out: &mut PackedFields,
) {
    let Route { mut hops, is_cut_off, .. } = Route::read(request.fields, &config.trusted_proxies);
    if is_listed(&site.request_fields_hidden, hops.source.name()) {
        hops.nearest.clear();
    } else if is_cut_off {
        // Without this hop, recipients would mistake a proxy for the client.
        hops.nearest.push(Hop { node: Some(UNKNOWN.clone()), ..Hop::default() });
    }
    hops.nearest.reverse();
    hops.nearest.push(Hop { node: Some(Node::of(request.peer.ip())), ..Hop::default() });
    write_hops(&hops.nearest, way, out);
}

/// Writes the scheme, host and port fields for the origin: the gateway's own, and those of a trusted peer, if the site forwards them.
fn describe(
    request: &RequestHead<'_>,
    authority: &str,
    told: &RequestedHost,
    is_forwarded: impl Fn(&str) -> bool,
    out: &mut PackedFields,
) {
    let scheme = request.scheme.as_str();
    out.push("x-forwarded-proto", scheme.as_bytes());
    out.push("x-forwarded-host", authority.as_bytes());
    if request.peer.trust == Trust::Untrusted {
        return;
    }
    for (name, form, _) in scheme_lines(request.fields) {
        let name = name.to_ascii_lowercase();
        if is_forwarded(&name) && out.value(&name).is_none() {
            out.push(&name, form.value(scheme).as_bytes());
        }
    }
    if let Some(port) = told.port.filter(|_| is_forwarded("x-forwarded-port")) {
        out.push("x-forwarded-port", itoa::Buffer::new().format(port).as_bytes());
    }
}

/// Writes the hops that a trusted peer reports, and the peer itself, to both `X-Forwarded-For` and `Forwarded`. `way` has the host and
/// scheme parameters that follow a node. Only the first and the last hop get these parameters, because recipients read either of them,
/// and the text may be long.
fn write_hops(hops: &[Hop<'_>], way: &[u8], out: &mut PackedFields) {
    let (mut addresses, mut elements) = (Vec::new(), Vec::new());
    for (index, hop) in hops.iter().enumerate() {
        let node = hop.node.as_ref().unwrap_or(&UNKNOWN);
        if index > 0 {
            [&mut addresses, &mut elements].into_iter().for_each(|list| list.extend_from_slice(b", "));
        }
        node.write(&mut addresses);
        elements.extend_from_slice(b"for=");
        node.write_as_value(&mut elements);
        if let Some(by) = &hop.by {
            elements.extend_from_slice(b";by=");
            by.write_as_value(&mut elements);
        }
        if index == 0 || index + 1 == hops.len() {
            elements.extend_from_slice(way);
        }
    }
    out.push("x-forwarded-for", &addresses);
    out.push("forwarded", &elements);
}

/// An unknown node.
static UNKNOWN: Node = Node { name: NodeName::Unknown, port: None };

pub(super) fn told_scheme(lines: &[FieldLine<'_>], trusted: &TrustedProxies) -> Option<Scheme> {
    let usual =
        || fields::values(lines, "x-forwarded-proto").find_map(|value| scheme_of(SchemeForm::Name, value));
    let named = |hop: &Hop<'_>| scheme_of(SchemeForm::Name, hop.proto.as_deref()?);
    let forwarded = || Route::read(lines, trusted).believed().find_map(named);
    let other = || scheme_lines(lines).find_map(|(_, form, value)| scheme_of(form, value));
    usual().or_else(forwarded).or_else(other)
}

fn scheme_lines<'a>(lines: &'a [FieldLine<'a>]) -> impl Iterator<Item = (&'a str, SchemeForm, &'a [u8])> {
    lines.iter().filter(|(name, _)| !is_spelled_oddly(name)).filter_map(|(name, value)| {
        match class_of(name) {
            FieldClass::Scheme(form) => Some((*name, form, *value)),
            _ => None,
        }
    })
}

fn scheme_of(form: SchemeForm, value: &[u8]) -> Option<Scheme> {
    form.is_https(first_element(value)).map(|is_https| if is_https { Scheme::Https } else { Scheme::Http })
}

fn host(value: &[u8]) -> Option<String> {
    Authority::parse(value).map(|authority| authority.as_str().to_owned())
}

fn told_host(lines: &[FieldLine<'_>], trusted: &TrustedProxies) -> Option<String> {
    let usual = fields::values(lines, "x-forwarded-host").find_map(|value| host(first_element(value)));
    let named = |hop: &Hop<'_>| host(hop.host.as_deref()?);
    usual.or_else(|| Route::read(lines, trusted).believed().find_map(named))
}

fn read_port(value: &[u8]) -> Option<u16> {
    let digits = std::str::from_utf8(first_element(value)).ok()?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|port| is_number && *port != 0)
}

fn first_element(value: &[u8]) -> &[u8] {
    let end = memchr::memchr(b',', value).unwrap_or(value.len());
    fields::trim(&value[..end])
}

fn default_port(scheme: Scheme) -> u16 {
    match scheme {
        Scheme::Http => 80,
        Scheme::Https => 443,
    }
}

/// Returns the parts of a `Via` element (RFC 9110 section 7.6.3).
pub(super) fn via(received: Version, server_name: &str) -> [&str; 3] {
    [received.received_protocol(), " ", server_name]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told_of(lines: &[FieldLine<'_>]) -> (Option<Scheme>, Option<String>, Option<u16>) {
        let trusted = TrustedProxies { networks: vec!["10.0.0.0/8".parse().unwrap()], hops_max: 3 };
        let told = RequestedHost::read(Trust::Trusted, lines, &trusted);
        (told_scheme(lines, &trusted), told.host, told.port)
    }

    #[test]
    fn the_way_is_read_once() {
        const HTTPS: Option<Scheme> = Some(Scheme::Https);
        const HTTP: Option<Scheme> = Some(Scheme::Http);
        type Case<'a> = (&'a [(&'a str, &'a str)], Option<Scheme>, Option<&'a str>, Option<u16>);
        let cases: [Case<'_>; 28] = [
            (&[], None, None, None),
            (&[("X-Forwarded-Proto", "https, http")], HTTPS, None, None),
            (&[("x-forwarded-proto", "http"), ("X-Forwarded-Proto", "https")], HTTP, None, None),
            (&[("X-Forwarded-Proto", "ftp"), ("X-Forwarded-Proto", "HTTPS")], HTTPS, None, None),
            (&[("X-Forwarded-Proto", "ftp, https")], None, None, None),
            (&[("X_Forwarded_Proto", "https"), ("X_Scheme", "https")], None, None, None),
            (&[("X-Forwarded-Ssl", "on"), ("X-Forwarded-Proto", "http")], HTTP, None, None),
            (&[("Front-End-Https", "ON")], HTTPS, None, None),
            (&[("Forwarded", "for=_a;proto=https, for=10.0.0.1;proto=http")], HTTPS, None, None),
            (&[("Forwarded", "for=_a, for=10.0.0.1;PROTO=\"https\"")], HTTPS, None, None),
            (&[("Forwarded", "for=_a;proto=https, for=_b;proto=http")], HTTP, None, None),
            (&[("Forwarded", "for=a;proto=https, for=10.0.0.1;host=b")], None, Some("b"), None),
            (&[("Forwarded", "proto=https;host=a, for=_b")], None, None, None),
            (&[("Forwarded", "x=\"a;proto=https;host=a\", for=_b;x=\";proto=https\"")], None, None, None),
            (&[("Forwarded", "proto=https, for=10.0.0.1, for=10.0.0.1, for=10.0.0.1")], None, None, None),
            (&[("Forwarded", "proto=https"), ("X-Forwarded-For", "192.0.2.1")], None, None, None),
            (&[("Forwarded", "host=\"\\a\"")], None, Some("a"), None),
            (&[("Forwarded", "proto=https"), ("X-Forwarded-Proto", "http")], HTTP, None, None),
            (&[("Forwarded", "proto=https"), ("X-Forwarded-Ssl", "off")], HTTPS, None, None),
            (&[("X-Forwarded-Host", "A.example:8080, b")], None, Some("A.example:8080"), None),
            (&[("X-Forwarded-Host", "a b"), ("Forwarded", "host=\"c:1\"")], None, Some("c:1"), None),
            (&[("X-Forwarded-Host", "user@a")], None, None, None),
            (&[("Forwarded", "host=\"a\\ b\"")], None, None, None),
            (&[("X-Forwarded-Port", "443, 80")], None, None, Some(443)),
            (&[("X-Forwarded-Port", "0")], None, None, None),
            (&[("X-Forwarded-Port", "+80")], None, None, None),
            (&[("X-Forwarded-Port", "65536")], None, None, None),
            (&[("X-Forwarded-Port", "00080")], None, None, Some(80)),
        ];
        for (lines, scheme, host, port) in cases {
            let lines: Vec<FieldLine<'_>> =
                lines.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
            assert_eq!(told_of(&lines), (scheme, host.map(str::to_owned), port), "{lines:?}");
        }
    }
}
