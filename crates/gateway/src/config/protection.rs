//! Limits that protect a site and its origin.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use caching::StatusMatch;
use http::{HeaderName, HeaderValue};
use ipnet::IpNet;

/// Limits on the clients of a site, for requests of all rules.
#[derive(Clone, Debug, Default)]
pub struct SiteProtection {
    /// Request rate of each client; absent: unlimited.
    pub rate_limit: Option<RateLimit>,
    /// Largest content of a request (413), unless its rule sets another; absent: that of all clients.
    pub request_body_bytes_max: Option<u64>,
}

/// Policy name of a site's limit, as shown to clients; limits of rules have the names of the rules.
pub const SITE_POLICY: &str = "default";

/// Limits on the requests of a rule.
#[derive(Clone, Debug, Default)]
pub struct RuleProtection {
    /// Identifies its counts over a reload: the name of the rule, or its match if it has no name.
    pub counted_as: String,
    /// Whether all requests are refused (403).
    pub is_denied: bool,
    /// Request rate of each client, in addition to the site's.
    pub rate_limit: Option<RateLimit>,
    /// Largest content of a request (413); absent: that of the site.
    pub request_body_bytes_max: Option<u64>,
    /// Time between two reads of the content of a request (408); absent: that of all clients.
    pub body_read_timeout: Option<Duration>,
    /// Lowest rate of the content of a request, in bytes per second (408), 0 for any; absent: that of all clients.
    pub body_rate_min: Option<u64>,
    /// Rate at which cacheable requests may go to the origin; absent: unlimited.
    pub miss_budget: Option<Rate>,
    /// Response when the origin fails and no stored response may be used; absent: the failure.
    pub default_response: Option<Arc<DefaultResponse>>,
    /// Largest content of a response; absent: any.
    pub response_body_bytes_max: Option<u64>,
}

/// A response written by the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultResponse {
    /// Status, from 200 to 599.
    pub status: u16,
    /// Fields, without `Date`.
    pub fields: Vec<(HeaderName, HeaderValue)>,
    /// Its content.
    pub body: Bytes,
    /// Statuses of origin responses that it also replaces.
    pub statuses: Vec<StatusMatch>,
}

/// A number of requests per time, with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Number of requests; at least 1.
    pub requests: u32,
    /// The time for that many.
    pub window: Duration,
    /// Largest burst after a time without requests; at least 1.
    pub burst: u32,
}

/// Limit on the request rate of each client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests of each client.
    pub rate: Rate,
    /// Requests that count.
    pub count: CountedRequests,
    /// Networks that count as one client.
    pub clients: ClientPrefixes,
    /// Number of clients counted separately at a time.
    pub clients_max: usize,
    /// Clients without a limit.
    pub exempt: Vec<IpNet>,
    /// Treatment of a request beyond the limit.
    pub enforcement: Enforcement,
    /// Responses that tell what is left.
    pub fields: QuotaFields,
}

/// Requests that count against a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedRequests {
    /// All.
    All,
    /// Requests that no stored response answers.
    Forwarded,
}

/// Treatment of a request beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// Counted, and answered as any other.
    DryRun,
    /// Refused.
    Refuse,
}

/// Responses that tell how much of a limit is left (`RateLimit`, `RateLimit-Policy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaFields {
    /// All that the limit counts.
    Always,
    /// Refusals.
    Refused,
}

/// Size of the network that counts as one client: a client with one address often has a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPrefixes {
    /// Leading bits of an IPv4 address, up to 32.
    pub ipv4_bits: u8,
    /// Leading bits of an IPv6 address, up to 128.
    pub ipv6_bits: u8,
}

impl RateLimit {
    /// Whether counts under this limit stay valid under another one.
    pub(crate) fn counts_like(&self, other: &Self) -> bool {
        let of = |limit: &Self| (limit.rate, limit.clients, limit.clients_max, limit.count);
        of(self) == of(other)
    }
}

impl ClientPrefixes {
    /// Network prefix that all addresses of one client share.
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
        // An IPv4 address never matches an IPv6 one, however short that prefix is.
        check("192.0.2.1", "2001:db8::1", (32, 64), false);
    }
}
