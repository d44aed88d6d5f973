//! Types with one word for each of their values, as the option table allows them.

use cache::settings::LeaderFailure;
use caching::{GroupsInvalidated, HeuristicFor, Negotiation, StoredCredentialed, StoredErrors, TypeMismatch};
use fleet::Coherence;
use gateway::config::{
    AcceptParent, CloseDelimited, CountedRequests, InterimResponses, OverrideFields, PreconditionMiss,
    QuotaFields, ServerTiming, UnderscoreFields,
};
use gateway::transform::Phase;
use kv::{DebugCommands, TextProtocol};
use origin::settings::{AddressFamily, Balance, OriginProtocol};
use telemetry::AccessFormat;
use telemetry::logging::LogFormat;
use tracing::Level;

pub(crate) trait Word: Copy + 'static {
    const WORDS: &'static [&'static str];
    /// Values in the order of the words.
    const VALUES: &'static [Self];
}

macro_rules! words {
    ($($type:ident: $($word:literal = $value:ident),+;)*) => {$(
        impl Word for $type {
            const WORDS: &'static [&'static str] = &[$($word),+];
            const VALUES: &'static [Self] = &[$(Self::$value),+];
        }
    )*};
}
words! {
    AcceptParent: "always" = Always, "trusted_proxies" = FromTrustedProxies, "never" = Never;
    AccessFormat: "json" = Json, "combined" = Combined;
    AddressFamily: "any" = Any, "ipv4" = Ipv4, "ipv6" = Ipv6;
    Balance: "round-robin" = RoundRobin, "least-requests" = LeastRequests, "power-of-two" = PowerOfTwo,
        "consistent-hash" = ConsistentHash;
    CloseDelimited: "pass" = Pass, "store" = Store;
    Coherence: "available" = Available, "strict" = Strict;
    CountedRequests: "all" = All, "forwarded" = Forwarded;
    DebugCommands: "no" = No, "yes" = Yes, "local" = Local;
    GroupsInvalidated: "named" = Named, "shared" = Shared;
    HeuristicFor: "anonymous" = Anonymous, "all" = All;
    InterimResponses: "http2" = Http2, "all" = All, "off" = Off;
    LeaderFailure: "share" = Share, "hand_over" = HandOver;
    Level: "error" = ERROR, "warn" = WARN, "info" = INFO, "debug" = DEBUG;
    LogFormat: "text" = Text, "json" = Json;
    Negotiation: "as-sent" = AsSent, "normalised" = Normalised, "selecting" = Selecting;
    OriginProtocol: "auto" = Auto, "http1" = Http1, "http2" = Http2;
    OverrideFields: "drop" = Drop, "key" = Key, "forward" = Forward;
    Phase: "client_request" = ClientRequest, "origin_request" = OriginRequest, "origin_response" = OriginResponse,
        "client_response" = ClientResponse;
    PreconditionMiss: "whole" = Whole, "forward" = Forward;
    QuotaFields: "refused" = Refused, "always" = Always;
    ServerTiming: "off" = Off, "on_request" = OnRequest, "always" = Always;
    StoredCredentialed: "explicit" = Explicit, "all" = All;
    StoredErrors: "of-resource" = OfResource, "all" = All;
    TextProtocol: "inline" = Inline, "unit-separator" = UnitSeparator;
    TypeMismatch: "pass" = Pass, "store" = Store;
    UnderscoreFields: "drop" = Drop, "forward" = Forward;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balances_have_the_names_that_metrics_have() {
        assert_eq!(Balance::WORDS, Balance::VALUES.iter().map(|balance| balance.name()).collect::<Vec<_>>());
    }
}
