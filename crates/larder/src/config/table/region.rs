//! Regions that purge each other.

use super::section::*;
use super::store::{
    CA_FILE, CLIENT_CERTIFICATE, CLIENT_KEY, ENDPOINTS, PASSWORD_FILE, RETURN_AFTER, SENTINEL_PASSWORD_FILE,
    SENTINEL_USERNAME, USERNAME,
};

section! {
    /// The region of this instance: the instances that share `[store.remote]`. Purges apply in all regions.
    pub(super) REGION = "region";
    /// Name of the region, the same for all of its instances, and different from those of its peers.
    name = Text("letters, digits, `-`, `.`, `_`").required().kept(),
    /// Time for which purges of a peer may be unknown before stored responses count as unverified.
    ///
    /// With `store.remote.coherence = "strict"`, each unverified response is validated with the origin before its use. Before a peer is first
    /// reached, all are unverified.
    purge_lag_max = Duration(1_000..=HOUR_MS).default("30s").kept(),
    /// The other regions, at least one. Each region names all others.
    peers = List(&Table(&PEER)).default("[]").kept(),
}

section! {
    /// Another region. This one reads its purges from its store, and never writes there.
    PEER = "region.peers";
    /// Name of the region, as in its own configuration.
    name = Text("letters, digits, `-`, `.`, `_`").required().kept(),
    /// URL of the region's store, in the forms of `store.remote.url`.
    ///
    /// Not with `endpoints`.
    url = Text("as `store.remote.url`").absent("`endpoints`").kept(),
    endpoints = ENDPOINTS,
    return_after = RETURN_AFTER,
    username = USERNAME,
    password_file = PASSWORD_FILE,
    sentinel_username = SENTINEL_USERNAME,
    sentinel_password_file = SENTINEL_PASSWORD_FILE,
    /// Prefix of all keys in the region's store, as in its own configuration.
    prefix = Text("up to 64 characters without spaces and braces").default("larder:").kept(),
    ca_file = CA_FILE,
    client_certificate = CLIENT_CERTIFICATE,
    client_key = CLIENT_KEY,
    /// Time limit for opening a connection, including handshakes.
    connect_timeout = LIMIT.default("5s").kept(),
    /// Time limit for an operation. No request of a client waits for it.
    timeout = LIMIT.default("2s").kept(),
}
