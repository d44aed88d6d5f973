//! What a trusted peer says of the way of a request: by which scheme, and for which host and port, its client asked.
//!
//! There is one reading for the cache key and for the origin, which is sent what was read and nothing else:
//!
//! - of a list, the first element counts: it is the nearest to the client;
//! - `X-Forwarded-Proto`, `-Host` and `-Port` go before `Forwarded` (RFC 7239), and this before other names of the
//!   scheme;
//! - what is no scheme, host or port counts as not there.
//!
//! Trusted peers are trusted to overwrite what strangers send them in these fields.

use std::borrow::Cow;
use std::net::IpAddr;

use caching::unkeyed::{FieldClass, SchemeForm, class_of, is_spelled_oddly};
use caching::{FieldLine, authority, fields};
use http1::Authority;

use crate::message::fields::PackedFields;
use crate::message::head::{Peer, RequestHead, Scheme, Trust, Version};

/// The scheme of a request: of the connection, or what a trusted peer says.
pub(crate) fn scheme(peer: Peer, lines: &[FieldLine<'_>]) -> Scheme {
    match peer.trust {
        Trust::Untrusted => peer.scheme,
        Trust::Trusted => told_scheme(lines).unwrap_or(peer.scheme),
    }
}

/// Host and port for which a trusted peer's client asked, as far as the peer says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told<'a> {
    host: Option<&'a str>,
    port: Option<u16>,
}

impl<'a> Told<'a> {
    pub(crate) fn read(trust: Trust, lines: &'a [FieldLine<'a>]) -> Self {
        match trust {
            Trust::Untrusted => Self::default(),
            Trust::Trusted => Self {
                host: told_host(lines),
                port: fields::values(lines, "x-forwarded-port").find_map(read_port),
            },
        }
    }

    /// The authority that the client asked, in its one form, which that of the request has.
    pub(crate) fn authority<'b>(&self, request: &RequestHead<'b>) -> Cow<'b, str> {
        match self.host {
            Some(host) => authority::normalised(request.scheme.as_str(), host).into(),
            None => request.authority.into(),
        }
    }

    /// Gives `sink` what of it the cache key lacks, as field lines.
    pub(crate) fn each_unkeyed(&self, request: &RequestHead<'_>, mut sink: impl FnMut(&str, &[u8])) {
        let normalised = |authority| authority::normalised(request.scheme.as_str(), authority);
        let other = self.host.filter(|host| *host != request.authority).map(normalised);
        if let Some(host) = other.filter(|host| *host != normalised(request.authority)) {
            sink("x-forwarded-host", host.as_bytes());
        }
        let asked = Authority::parse(self.host.unwrap_or(request.authority).as_bytes());
        let usual =
            asked.and_then(|authority| authority.port()).unwrap_or_else(|| default_port(request.scheme));
        if let Some(port) = self.port.filter(|port| *port != usual) {
            sink("x-forwarded-port", &port.to_be_bytes());
        }
    }
}

/// Writes what the origin is told about scheme, host and port, of the fields that describe the way of a request: our own
/// ones, and those that a trusted peer has sent.
pub(crate) fn describe(request: &RequestHead<'_>, authority: &str, told: &Told<'_>, out: &mut PackedFields) {
    let scheme = request.scheme.as_str();
    out.push("x-forwarded-proto", scheme.as_bytes());
    out.push("x-forwarded-host", authority.as_bytes());
    if request.peer.trust == Trust::Untrusted {
        return;
    }
    for (name, form, _) in scheme_lines(request.fields) {
        let name = name.to_ascii_lowercase();
        if out.value(&name).is_none() {
            out.push(&name, form.value(scheme).as_bytes());
        }
    }
    if let Some(port) = told.port {
        out.push("x-forwarded-port", itoa::Buffer::new().format(port).as_bytes());
    }
}

/// The elements of a trusted peer's `Forwarded`, each with our reading of host and scheme behind the nodes that it names.
pub(crate) fn forwarded_elements(request: &RequestHead<'_>, rest: &[&[u8]]) -> Vec<u8> {
    let mut list = Vec::new();
    for element in fields::members(request.fields, "forwarded") {
        let nodes = ["for", "by"].map(|name| parameter(element, name).map(|value| (name, value)));
        for (index, (name, value)) in nodes.into_iter().flatten().enumerate() {
            list.extend_from_slice(if index > 0 { b";" } else { b"" });
            [name.as_bytes(), b"=", value].into_iter().for_each(|part| list.extend_from_slice(part));
        }
        if nodes.iter().any(Option::is_some) {
            rest.iter().for_each(|part| list.extend_from_slice(part));
            list.extend_from_slice(b", ");
        }
    }
    list
}

fn told_scheme(lines: &[FieldLine<'_>]) -> Option<Scheme> {
    let usual =
        || fields::values(lines, "x-forwarded-proto").find_map(|value| scheme_of(SchemeForm::Name, value));
    let forwarded = || first_parameter(lines, "proto").and_then(|value| scheme_of(SchemeForm::Name, value));
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

fn told_host<'a>(lines: &'a [FieldLine<'a>]) -> Option<&'a str> {
    let host = |value| Authority::parse(value).map(|authority| authority.as_str());
    let usual = fields::values(lines, "x-forwarded-host").find_map(|value| host(first_element(value)));
    usual.or_else(|| first_parameter(lines, "host").and_then(host))
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

/// The value of a parameter in the first element of `Forwarded` that has it, without quotes.
fn first_parameter<'a>(lines: &'a [FieldLine<'a>], name: &str) -> Option<&'a [u8]> {
    let value = fields::members(lines, "forwarded").find_map(|element| parameter(element, name))?;
    Some(value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value))
}

/// The value of a parameter of an element as it is written: a token, or a quoted string without escapes. No node, host or
/// scheme needs more.
//= RFC 7239 section 4: Forwarded
fn parameter<'a>(element: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let pairs = element.split(|byte| *byte == b';').map(fields::trim);
    let (_, value) = pairs
        .filter_map(|pair| pair.split_at_checked(memchr::memchr(b'=', pair)?))
        .find(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes()))?;
    let value = &value[1..];
    let is_quotable = |byte: &u8| fields::is_token(&[*byte]) || b":[]/".contains(byte);
    let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    let is_whole = match quoted {
        Some(inner) => inner.iter().all(is_quotable),
        None => fields::is_token(value),
    };
    is_whole.then_some(value)
}

fn default_port(scheme: Scheme) -> u16 {
    match scheme {
        Scheme::Http => 80,
        Scheme::Https => 443,
    }
}

/// The parts of a `Via` element (RFC 9110 section 7.6.3).
pub(crate) fn via(received: Version, server_name: &str) -> [&str; 3] {
    [received.received_protocol(), " ", server_name]
}

/// An address as text. The numbers of IPv4 are written one by one: the formatting machinery costs more than all other
/// fields together.
pub(crate) fn address_text(address: IpAddr) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told_of(lines: &[FieldLine<'_>]) -> (Option<Scheme>, Option<String>, Option<u16>) {
        let told = Told::read(Trust::Trusted, lines);
        (told_scheme(lines), told.host.map(str::to_owned), told.port)
    }

    #[test]
    fn the_way_is_read_once() {
        const HTTPS: Option<Scheme> = Some(Scheme::Https);
        const HTTP: Option<Scheme> = Some(Scheme::Http);
        type Case<'a> = (&'a [(&'a str, &'a str)], Option<Scheme>, Option<&'a str>, Option<u16>);
        let cases: [Case<'_>; 21] = [
            (&[], None, None, None),
            (&[("X-Forwarded-Proto", "https, http")], HTTPS, None, None),
            (&[("x-forwarded-proto", "http"), ("X-Forwarded-Proto", "https")], HTTP, None, None),
            (&[("X-Forwarded-Proto", "ftp"), ("X-Forwarded-Proto", "HTTPS")], HTTPS, None, None),
            (&[("X-Forwarded-Proto", "ftp, https")], None, None, None),
            (&[("X_Forwarded_Proto", "https"), ("X_Scheme", "https")], None, None, None),
            (&[("X-Forwarded-Ssl", "on"), ("X-Forwarded-Proto", "http")], HTTP, None, None),
            (&[("Front-End-Https", "ON")], HTTPS, None, None),
            (&[("Forwarded", "for=a;proto=https, for=b;proto=http")], HTTPS, None, None),
            (&[("Forwarded", "for=a, for=b;PROTO=\"https\"")], HTTPS, None, None),
            (&[("Forwarded", "proto=https"), ("X-Forwarded-Proto", "http")], HTTP, None, None),
            (&[("Forwarded", "proto=https"), ("X-Forwarded-Ssl", "off")], HTTPS, None, None),
            (&[("X-Forwarded-Host", "A.example:8080, b")], None, Some("A.example:8080"), None),
            (&[("X-Forwarded-Host", "a b"), ("Forwarded", "host=\"c:1\"")], None, Some("c:1"), None),
            (&[("X-Forwarded-Host", "user@a")], None, None, None),
            (&[("Forwarded", "host=\"a\\b\"")], None, None, None),
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

    #[test]
    fn parameters_are_tokens_or_plain_strings() {
        for (element, name, expected) in [
            ("for=192.0.2.1;proto=https", "for", Some("192.0.2.1")),
            ("For=\"[2001:db8::1]:4711\" ; by=_hidden", "for", Some("\"[2001:db8::1]:4711\"")),
            ("for=_a;by=\"x\"", "by", Some("\"x\"")),
            ("for=a b", "for", None),
            ("for=\"a\\\"b\"", "for", None),
            ("for=", "for", None),
            ("for", "for", None),
            ("=a", "for", None),
            ("for=\"", "for", None),
        ] {
            let found = parameter(element.as_bytes(), name);
            assert_eq!(found, expected.map(str::as_bytes), "{element}");
        }
    }
}
