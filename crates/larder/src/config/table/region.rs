//! Regions that purge each other.

use super::section::*;

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
    /// URLs of several addresses of the region's store, as in `store.remote.endpoints`.
    ///
    /// Not with `url`.
    endpoints = List(&Text("as `store.remote.endpoints`")).default("[]").kept(),
    /// Time for which a nearer endpoint must answer before it is used again.
    ///
    /// Up to a tenth is added at random.
    return_after = Duration(1_000..=HOUR_MS).default("30s").kept(),
    /// User to log in as (ACL). It needs to read only.
    username = Text("a name").absent("the one in the URL, or the server's default user").kept(),
    /// File with the password in its first line.
    password_file = SecretFile.absent("the password in the URL, or none").kept(),
    /// User to log in as at the sentinels.
    ///
    /// Requires a `url` with sentinels.
    sentinel_username = Text("a name").absent("the sentinels' default user").kept(),
    /// File with the password for the sentinels in its first line.
    ///
    /// Requires a `url` with sentinels.
    sentinel_password_file = SecretFile.absent("none").kept(),
    /// Prefix of all keys in the region's store, as in its own configuration.
    prefix = Text("up to 64 characters without spaces and braces").default("larder:").kept(),
    /// PEM file with the certificate authorities that may sign the server's certificate.
    ///
    /// Requires a `url` with `rediss`.
    ca_file = FILE.absent("the system's certificate authorities").kept(),
    /// PEM file with a certificate chain that Larder presents to the server.
    ///
    /// It needs `client_key`.
    client_certificate = FILE.absent("none").kept(),
    /// PEM file with the private key of `client_certificate`.
    client_key = FILE.absent("none").kept(),
    /// Time limit for opening a connection, including handshakes.
    connect_timeout = LIMIT.default("5s").kept(),
    /// Time limit for an operation. No request of a client waits for it.
    timeout = LIMIT.default("2s").kept(),
}
