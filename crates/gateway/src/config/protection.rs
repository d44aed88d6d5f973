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
    /// Maximum size of request content (413), unless the rule sets its own; absent: the limit for all clients.
    pub request_body_bytes_max: Option<u64>,
}

/// Policy name of a site's limit in response fields. The limit of a rule has the name of the rule.
pub const SITE_POLICY: &str = "default";

/// Limits on the requests of a rule.
#[derive(Clone, Debug, Default)]
pub struct RuleProtection {
    /// Identifies the counts of this rule across reloads: the name of the rule, or its match if it has no name.
    pub counted_as: String,
    /// Whether all requests are refused (403).
    pub is_denied: bool,
    /// Request rate of each client, in addition to the site's.
    pub rate_limit: Option<RateLimit>,
    /// Maximum size of request content (413); absent: the limit of the site.
    pub request_body_bytes_max: Option<u64>,
    /// Maximum time between two reads of request content (408); absent: the limit for all clients.
    pub body_read_timeout: Option<Duration>,
    /// Minimum rate of request content, in bytes per second (408), 0 for no minimum; absent: the limit for all clients.
    pub body_rate_min: Option<u64>,
    /// Maximum rate of cacheable requests to the origin; absent: unlimited.
    pub miss_budget: Option<Rate>,
    /// Response if the origin fails and no stored response may be used; absent: an error response.
    pub default_response: Option<Arc<DefaultResponse>>,
    /// Maximum size of response content; absent: unlimited.
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
    /// Statuses of the origin responses that this response also replaces.
    pub statuses: Vec<StatusMatch>,
}

/// A number of requests per time, with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Number of requests; at least 1.
    pub requests: u32,
    /// Time in which this number of requests is permitted.
    pub window: Duration,
    /// Maximum burst after an idle period; at least 1.
    pub burst: u32,
}

/// Limit on the request rate of each client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Request rate of each client.
    pub rate: Rate,
    /// Requests that count against the limit.
    pub count: CountedRequests,
    /// Networks that count as one client.
    pub clients: ClientPrefixes,
    /// Maximum number of clients that are counted separately at a time.
    pub clients_max: usize,
    /// Clients without a limit.
    pub exempt: Vec<IpNet>,
    /// Treatment of a request beyond the limit.
    pub enforcement: Enforcement,
    /// Responses that report the remaining quota.
    pub fields: QuotaFields,
}

/// Requests that count against a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedRequests {
    /// All.
    All,
    /// Requests that aren't answered from a stored response.
    Forwarded,
}

/// Treatment of a request beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// Counted, but answered like any other request.
    DryRun,
    /// Refused.
    Refuse,
}

/// Responses that report the remaining quota (`RateLimit`, `RateLimit-Policy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaFields {
    /// Responses to all requests that the limit counts.
    Always,
    /// Refusals only.
    Refused,
}

/// Size of the network that counts as one client, because a single client often has the addresses of a whole network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPrefixes {
    /// Leading bits of an IPv4 address, up to 32.
    pub ipv4_bits: u8,
    /// Leading bits of an IPv6 address, up to 128.
    pub ipv6_bits: u8,
}

impl RateLimit {
    /// Returns whether the counts of this limit are also valid for another limit.
    pub(crate) fn counts_like(&self, other: &Self) -> bool {
        let of = |limit: &Self| (limit.rate, limit.clients, limit.clients_max, limit.count);
        of(self) == of(other)
    }
}

impl ClientPrefixes {
    /// Returns the network prefix shared by all addresses of a client.
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
        // An IPv4 address never matches an IPv6 address, even if the IPv6 prefix is short.
        check("192.0.2.1", "2001:db8::1", (32, 64), false);
    }
}
