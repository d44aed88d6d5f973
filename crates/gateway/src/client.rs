//! Whom a request is counted for, where limits hold for each client.

use std::net::{IpAddr, SocketAddr};

use caching::{FieldLine, fields};
use ipnet::IpNet;

use crate::config::is_within;
use crate::message::head::{OwnedRequest, RequestHead, Trust};

/// An address, or a network of IPv6 that one customer usually has: one host alone can have any address of its /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    V4([u8; 4]),
    V6([u8; 8]),
}

impl Client {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                let mut network = [0; 8];
                network.copy_from_slice(&address.octets()[..8]);
                Self::V6(network)
            }
        }
    }

    /// Who made a request: the peer, or whom a trusted proxy names. `None` where that names nobody: all its clients
    /// would share what is meant for one.
    pub(crate) fn of_request(request: &OwnedRequest, trusted: &[IpNet]) -> Option<Self> {
        match request.peer.trust {
            Trust::Untrusted => Some(Self::of(request.peer.ip())),
            Trust::Trusted => named(&request.fields.to_lines(), trusted).ok().flatten().map(Self::of),
        }
    }
}

/// Where a request came from, for people to read: the address that a trusted proxy names, or else that of the peer.
pub(crate) fn address_of(request: &RequestHead<'_>, trusted: &[IpNet]) -> IpAddr {
    known_address_of(request, trusted).unwrap_or_else(|_| request.peer.ip())
}

/// The same, for what is counted; `None` where a trusted proxy names nobody, or not so that it can be read: it may be anybody behind it.
pub(crate) fn named_address_of(request: &RequestHead<'_>, trusted: &[IpNet]) -> Option<IpAddr> {
    match request.peer.trust {
        Trust::Untrusted => Some(request.peer.ip()),
        Trust::Trusted => named(request.fields, trusted).ok().flatten(),
    }
}

/// As [`address_of`], for decisions that must not be made for somebody else.
///
/// # Errors
/// A trusted proxy names somebody in a way that can't be read.
pub(crate) fn known_address_of(
    request: &RequestHead<'_>,
    trusted: &[IpNet],
) -> Result<IpAddr, UnknownClient> {
    let named = match request.peer.trust {
        Trust::Untrusted => None,
        Trust::Trusted => named(request.fields, trusted)?,
    };
    Ok(named.unwrap_or_else(|| request.peer.ip()))
}

/// Who made a request is told, but not so that it can be read: `unknown`, a name, or half a quotation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnknownClient;

/// The last address in `X-Forwarded-For`, or else in `Forwarded`, that is not itself a trusted proxy. What stands before it
/// anybody may have written. Where all are trusted proxies, the first of them made the request.
fn named(lines: &[FieldLine<'_>], trusted: &[IpNet]) -> Result<Option<IpAddr>, UnknownClient> {
    let mut way: Vec<_> = fields::members(lines, "x-forwarded-for").map(address).collect();
    if way.is_empty() {
        way = fields::members(lines, "forwarded").map(|element| address(forwarded_for(element)?)).collect();
    }
    let Some(first) = way.first().copied() else { return Ok(None) };
    let mut from_the_end = way.into_iter().rev();
    let client = from_the_end.find(|hop| !hop.is_some_and(|hop| is_within(trusted, hop)));
    client.unwrap_or(first).map(Some).ok_or(UnknownClient)
}

/// The `for` of an element of `Forwarded` (RFC 7239 section 4).
fn forwarded_for(element: &[u8]) -> Option<&[u8]> {
    let pairs = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let is_for = |pair: &&[u8]| pair.len() > 4 && pair[..4].eq_ignore_ascii_case(b"for=");
    pairs.into_iter().find(is_for).map(|pair| &pair[4..])
}

/// An address with or without port, brackets and quotes.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim().trim_matches('"');
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse::<IpAddr>().or_else(|_| text.parse::<SocketAddr>().map(|socket| socket.ip()));
    address.ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trusted_proxy_names_the_client() {
        let trusted: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let check = |name: &str, value: &str, expected: Option<&str>| {
            let lines = [(name, value.as_bytes())];
            let expected = expected.map(|text| text.parse().unwrap());
            assert_eq!(named(&lines, &trusted), expected.map(Some).ok_or(UnknownClient), "{name}: {value}");
        };
        check("x-forwarded-for", "192.0.2.1", Some("192.0.2.1"));
        check("x-forwarded-for", "198.51.100.1, 192.0.2.1, 10.1.1.1", Some("192.0.2.1"));
        check("x-forwarded-for", "192.0.2.1:4711", Some("192.0.2.1"));
        check("x-forwarded-for", "[2001:db8::1]:4711", Some("2001:db8::1"));
        check("x-forwarded-for", "2001:db8::1, fd00::7", Some("2001:db8::1"));
        check("x-forwarded-for", "192.0.2.1, unknown", None);
        check("x-forwarded-for", "10.0.0.1, 10.0.0.2", Some("10.0.0.1"));
        check("x-forwarded-for", "unknown, 10.0.0.2", None);
        check("forwarded", "for=192.0.2.1;proto=https, For=\"10.0.0.1:80\";by=x", Some("192.0.2.1"));
        check("forwarded", "proto=https;for=\"[2001:db8::1]\"", Some("2001:db8::1"));
        check("forwarded", "proto=https", None);
        check("forwarded", "for=\"1.1.1.1, for=\"[2001:db8::1]:4711\"", None);
        // A quotation that a client began, and never ended, hides nothing behind it.
        check("forwarded", "for=\"192.0.2.1, for=192.0.2.2", Some("192.0.2.2"));
        assert_eq!(named(&[("x-forwarded-for", b" ")], &trusted), Ok(None));
        assert_eq!(named(&[("x-other", b"192.0.2.1")], &trusted), Ok(None));
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one_client() {
        let client = |text: &str| Client::of(text.parse().unwrap());
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:1"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
    }
}
