//! Limits that protect a site and its origin.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use caching::StatusMatch;
use http::{HeaderName, HeaderValue};
use ipnet::IpNet;

/// What a site allows its clients, whichever rule a request matches.
#[derive(Clone, Debug, Default)]
pub struct SiteProtection {
    /// How fast each client may ask; absent: as it likes.
    pub rate_limit: Option<RateLimit>,
    /// Largest content of a request (413), where its rule says nothing; absent: that of all clients.
    pub request_body_bytes_max: Option<u64>,
}

/// The policy of the limit of a site, for clients; those of rules have the names of the rules.
pub const SITE_POLICY: &str = "default";

/// What holds for the requests of a rule.
#[derive(Clone, Debug, Default)]
pub struct RuleProtection {
    /// What its counts go by over a reload: the name of the rule, or what it matches where nobody has named it.
    pub counted_as: String,
    /// Whether nobody is answered (403).
    pub is_denied: bool,
    /// How fast each client may ask, beside what the site allows.
    pub rate_limit: Option<RateLimit>,
    /// Largest content of a request (413); absent: that of the site.
    pub request_body_bytes_max: Option<u64>,
    /// Between two reads of the content of a request (408); absent: that of all clients.
    pub body_read_timeout: Option<Duration>,
    /// Bytes of the content of a request a second (408), 0 for any; absent: that of all clients.
    pub body_rate_min: Option<u64>,
    /// How many requests that could be answered from the store may go to the origin; absent: all.
    pub miss_budget: Option<Rate>,
    /// What clients get where the origin fails and nothing that is stored may stand in; absent: the failure.
    pub default_response: Option<Arc<DefaultResponse>>,
    /// Largest content of a response; absent: any.
    pub response_body_bytes_max: Option<u64>,
}

/// A response that the operator wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultResponse {
    /// From 200 to 599.
    pub status: u16,
    /// Its fields, but for `Date`.
    pub fields: Vec<(HeaderName, HeaderValue)>,
    /// Its content.
    pub body: Bytes,
    /// Statuses of the origin's own responses that it stands in for too.
    pub statuses: Vec<StatusMatch>,
}

/// So many requests in a time, and so many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// At least 1.
    pub requests: u32,
    /// The time for that many.
    pub window: Duration,
    /// At least 1. How many may come at once, after a time without any.
    pub burst: u32,
}

/// How fast each client may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests of each client.
    pub rate: Rate,
    /// Which requests count.
    pub count: CountedRequests,
    /// Who counts as one client.
    pub clients: ClientPrefixes,
    /// How many clients are told apart at a time.
    pub clients_max: usize,
    /// Clients without a limit.
    pub exempt: Vec<IpNet>,
    /// What happens to a request beyond the limit.
    pub enforcement: Enforcement,
    /// Which responses tell what is left.
    pub fields: QuotaFields,
}

/// Which requests count against a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedRequests {
    /// All.
    All,
    /// Those that no stored response answers.
    Forwarded,
}

/// What happens to a request beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// It is counted and answered as any other.
    DryRun,
    /// It is refused.
    Refuse,
}

/// Which responses say how much of a limit is left (`RateLimit`, `RateLimit-Policy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaFields {
    /// All that the limit counts.
    Always,
    /// Those that refuse.
    Refused,
}

/// How much of an address is one client: whoever has one address often has a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPrefixes {
    /// Leading bits of an IPv4 address, up to 32.
    pub ipv4_bits: u8,
    /// Leading bits of an IPv6 address, up to 128.
    pub ipv6_bits: u8,
}

impl RateLimit {
    /// Whether what was counted under this limit counts under another one too.
    pub(crate) fn counts_like(&self, other: &Self) -> bool {
        let of = |limit: &Self| (limit.rate, limit.clients, limit.clients_max, limit.count);
        of(self) == of(other)
    }
}

impl ClientPrefixes {
    /// What all addresses of one client have in common.
    pub(crate) fn network(self, address: IpAddr) -> u128 {
        let (bits, length) = match address.to_canonical() {
            IpAddr::V4(address) => (address.to_ipv6_mapped().to_bits(), 96 + self.ipv4_bits),
            IpAddr::V6(address) => (address.to_bits(), self.ipv6_bits),
        };
        let host_bits = 128 - u32::from(length.min(128));
        bits.checked_shr(host_bits).unwrap_or(0).checked_shl(host_bits).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_network_are_one_client() {
        let check = |one: &str, other: &str, bits: (u8, u8), is_same: bool| {
            let prefixes = ClientPrefixes { ipv4_bits: bits.0, ipv6_bits: bits.1 };
            let network = |text: &str| prefixes.network(text.parse().expect("an address"));
            assert_eq!(network(one) == network(other), is_same, "{one} and {other} by {bits:?}");
        };
        check("192.0.2.1", "192.0.2.2", (32, 64), false);
        check("192.0.2.1", "192.0.2.2", (24, 64), true);
        check("192.0.2.1", "192.0.3.1", (24, 64), false);
        check("192.0.2.1", "::ffff:192.0.2.1", (32, 64), true);
        check("0.0.0.1", "255.0.0.1", (0, 0), true);
        check("2001:db8::1", "2001:db8::ffff:2", (32, 64), true);
        check("2001:db8::1", "2001:db8:0:1::1", (32, 64), false);
        check("2001:db8::1", "2001:db8:0:1::1", (32, 56), true);
        check("2001:db8::1", "2001:db8::2", (32, 128), false);
        // An address of IPv4 is none of IPv6, however short that prefix is.
        check("192.0.2.1", "2001:db8::1", (32, 64), false);
    }
}
