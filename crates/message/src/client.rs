//! The client to which a request counts, in limits per client.

use std::net::IpAddr;

use caching::forwarded::{End, Hop, Node};
use caching::{FieldLine, Hops};
use ipnet::IpNet;

use crate::head::{OwnedRequest, RequestHead, Trust};

/// Peers that name the client whose request they forward.
#[derive(Clone, Debug)]
pub struct TrustedProxies {
    /// Networks of the proxies.
    pub networks: Vec<IpNet>,
    /// Maximum number of hops that Larder reads and forwards; at least 1.
    pub hops_max: usize,
}

impl TrustedProxies {
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        is_within(&self.networks, address)
    }
}

/// Returns whether one of the networks contains an address, including an IPv4 address in IPv6 form.
#[inline]
pub fn is_within(networks: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    networks.iter().any(|network| network.contains(&address))
}

/// An IPv4 address, or the IPv6 network of a typical customer: a single host can use any address of its /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    V4([u8; 4]),
    V6([u8; 8]),
}

impl Client {
    #[inline]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                let mut network = [0; 8];
                network.copy_from_slice(&address.octets()[..8]);
                Self::V6(network)
            }
        }
    }

    /// Returns the client that made a request: the peer, or the client that a trusted proxy names. `None` if the proxy names none,
    /// because all clients of the proxy would then share one limit.
    #[inline]
    pub fn of_request(request: &OwnedRequest, trusted: &TrustedProxies) -> Option<Self> {
        match request.peer.trust {
            Trust::Untrusted => Some(Self::of(request.peer.ip())),
            Trust::Trusted => named(&request.fields.to_lines(), trusted).ok().flatten().map(Self::of),
        }
    }
}

/// Returns the source of a request, for display: the address that a trusted proxy names, or else that of the peer.
#[inline]
pub fn address_of(request: &RequestHead<'_>, trusted: &TrustedProxies) -> IpAddr {
    known_address_of(request, trusted).unwrap_or_else(|_| request.peer.ip())
}

/// Returns the source of a request, for counting requests by client. `None` if a trusted proxy names no address, or one that can't
/// be parsed: the request may then come from any client of the proxy.
#[inline]
pub fn named_address_of(request: &RequestHead<'_>, trusted: &TrustedProxies) -> Option<IpAddr> {
    match request.peer.trust {
        Trust::Untrusted => Some(request.peer.ip()),
        Trust::Trusted => named(request.fields, trusted).ok().flatten(),
    }
}

/// Returns the source of a request as [`address_of`] does, for decisions that must apply to the right client.
///
/// # Errors
/// Returns an error if a trusted proxy names the client in a form that can't be read.
#[inline]
pub fn known_address_of(
    request: &RequestHead<'_>,
    trusted: &TrustedProxies,
) -> Result<IpAddr, UnknownClient> {
    let named = match request.peer.trust {
        Trust::Untrusted => None,
        Trust::Trusted => named(request.fields, trusted)?,
    };
    Ok(named.unwrap_or_else(|| request.peer.ip()))
}

#[inline]
fn named(lines: &[FieldLine<'_>], trusted: &TrustedProxies) -> Result<Option<IpAddr>, UnknownClient> {
    Route::read(lines, trusted).client
}

/// The client is named, but can't be determined: it is `unknown`, a name or an unfinished quotation, or is more hops away than the
/// limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownClient;

/// Hops of a request that came from a trusted proxy, and the number of them that are trusted.
///
/// The client is the last hop that isn't a trusted proxy itself: the elements before it may be forged. If all hops are trusted
/// proxies, the first of them made the request. Trusted proxies wrote the element that names the client, and those after it.
#[derive(Debug)]
pub struct Route<'a> {
    pub hops: Hops<'a>,
    /// Number of hops that trusted proxies wrote, counted from the nearest.
    believed: usize,
    pub client: Result<Option<IpAddr>, UnknownClient>,
    /// Whether the client is named beyond the limit on hops, where elements are neither read nor trusted.
    pub is_cut_off: bool,
}

impl<'a> Route<'a> {
    #[inline]
    pub fn read(lines: &'a [FieldLine<'a>], trusted: &TrustedProxies) -> Self {
        let hops = Hops::read(lines, trusted.hops_max);
        let address = |hop: &Hop<'_>| hop.node.as_ref().and_then(Node::address);
        let is_trusted = |hop: &Hop<'_>| address(hop).is_some_and(|address| trusted.contains(address));
        let client = hops.nearest.iter().position(|hop| !is_trusted(hop));
        let is_cut_off = client.is_none() && hops.end != End::Complete;
        let believed = client.map_or(hops.nearest.len(), |client| client + 1);
        let first = hops.nearest[..believed].last();
        let client = match first {
            _ if is_cut_off => Err(UnknownClient),
            None => Ok(None),
            Some(first) => address(first).map(Some).ok_or(UnknownClient),
        };
        Self { hops, believed, client, is_cut_off }
    }

    /// Returns the trusted hops, from the client on.
    #[inline]
    pub fn believed(&self) -> impl Iterator<Item = &Hop<'a>> {
        self.hops.nearest[..self.believed].iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trusted_proxy_names_the_client() {
        let networks = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let trusted = TrustedProxies { networks, hops_max: 4 };
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
        check("forwarded", "for=\"1.1.1.1, for=\"[2001:db8::1]:4711\"", Some("2001:db8::1"));
        // An unfinished quotation by a client doesn't hide the elements after it.
        check("forwarded", "for=\"192.0.2.1, for=192.0.2.2", Some("192.0.2.2"));
        check("forwarded", "for=192.0.2.1, for=evil, for=10.0.0.2", None);
        check("forwarded", "for=192.0.2.1;x=\"a;for=6.6.6.6\"", Some("192.0.2.1"));
        let behind = |hops: &str| format!("192.0.2.1{hops}");
        check("x-forwarded-for", &behind(&", 10.0.0.1".repeat(3)), Some("192.0.2.1"));
        check("x-forwarded-for", &behind(&", 10.0.0.1".repeat(4)), None);
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
