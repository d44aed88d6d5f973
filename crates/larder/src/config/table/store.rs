//! Stores of responses: the keys of memory, and of the tier behind it.

use fleet::Coherence;

use super::section::*;

section! {
    /// Store for responses: `[store]` and, with the same keys, each `[stores.NAME]`.
    pub(super) STORE = "store";
    /// Bytes that stored responses may use in memory, including metadata and responses being filled.
    ///
    /// The process needs some 64 MiB in addition for connections and buffers. Bodies are stored in segments of up to 1 MiB, so a memory of
    /// less than two of them caches almost nothing. Segments of 64 KiB and more that are sent without TLS are in anonymous files: they
    /// count as memory of the control group (`shmem`), but not towards the resident size of the process.
    memory = Size(2 * MIB..=16 * TIB).default("256MiB").kept(),
    /// Stored responses per cache key that differ only by nominated fields (`Vary`).
    ///
    /// At the limit, a new variant replaces the least used one. If all are in use, the new variant isn't stored (`variants-max`). If a
    /// client has caused a quarter of them, and no other client has used these, its new responses replace its own. Without the limit, a
    /// response that varies by `User-Agent` could fill the store alone.
    variants_max = Integer(1..=1000).default("32"),
    /// Stored responses of one cache key that a validation request names in `If-None-Match`.
    ///
    /// The origin's 304 then shows which of them answers the request, even if its nominated fields (`Vary`) match none of them. In addition
    /// to the response that the request selects, only those with a strong ETag and without `Content-Encoding` are named. `1` names the
    /// selected response alone, for origins whose 304 has no `ETag`.
    validation_tags_max = Integer(1..=100).default("8"),
    /// Maximum number of groups that are tracked for one response, in `Cache-Groups` or in `Cache-Group-Invalidation` (RFC 9875).
    ///
    /// A response that belongs to more groups is invalidated with any group of its origin. A response that names more groups to invalidate
    /// invalidates all groups of its origin.
    groups_max = Integer(32..=10_000).default("128"),
    /// Maximum number of tags that are tracked for one response: its groups, and the tags in the fields of `site.tags`.
    ///
    /// A response with more tags is purged with any tag of its site or host. Each tag takes eight bytes of memory.
    tags_max = Integer(1..=10_000).default("256"),
    /// Redis-compatible server that several instances share: a table, or only its URL.
    ///
    /// A response stored by one instance is available to all. `larder serve --store URL` sets the URL of `[store]`. No two stores may have
    /// the same server, database and prefix.
    remote = TextOrTable("url", &REMOTE).absent("no tier behind memory").kept(),
}

section! {
    /// The tier behind memory, on a Redis-compatible server: Redis 6 or newer, Valkey, `larder kv`. Instances that share it behave as one
    /// cache. It is never required: while it is down, each instance works alone.
    REMOTE = "store.remote";
    /// URL of the server.
    ///
    /// It may contain a user and password (`redis://user:password@host`), with percent escapes; a file is the better place for a password.
    /// With `redis+sentinel`, it names sentinels and a service, whose current master is used; with `redis+cluster`, some nodes of a cluster.
    /// Not with `endpoints`.
    url = Text("`redis://HOST:PORT/DATABASE`, `redis+sentinel://HOST1,HOST2,HOST3/SERVICE/DATABASE`, `redis+cluster://HOST1,HOST2`, `rediss` in place of `redis` for TLS, or `unix:///path/of/socket`")
        .absent("`endpoints`")
        .kept(),
    endpoints = ENDPOINTS,
    return_after = RETURN_AFTER,
    username = USERNAME,
    password_file = PASSWORD_FILE,
    sentinel_username = SENTINEL_USERNAME,
    sentinel_password_file = SENTINEL_PASSWORD_FILE,
    /// Prefix of all keys on the server.
    ///
    /// Instances with the same prefix share their stored responses; two fleets on one server need different prefixes.
    prefix = Text("up to 64 characters without spaces and braces").default("larder:").kept(),
    /// Name of this instance in the response to a purge, which reports on each instance.
    instance = Text("a name").absent("the host name and process id").kept(),
    /// Name of the connections in `CLIENT LIST` of the server.
    client_name = Text("up to 64 characters without spaces and braces").default("larder").kept(),
    ca_file = CA_FILE,
    client_certificate = CLIENT_CERTIFICATE,
    client_key = CLIENT_KEY,
    /// Time limit for opening a connection, including handshakes.
    connect_timeout = LIMIT.default("1s").kept(),
    /// Time limit for an operation on metadata, and so the longest delay of a miss before it is forwarded.
    ///
    /// The default suits servers up to 5 ms away. If yours is farther away, set it to ten round trips: an operation takes one or two, and
    /// five on a new connection. The release of a lease may take a third of `lease_time` instead, if that is longer.
    record_timeout = LIMIT.default("50ms").kept(),
    /// Time limit for an operation on up to 1 MiB of a body.
    segment_timeout = LIMIT.default("500ms").kept(),
    /// Time limit for an operation on the purge log.
    log_timeout = LIMIT.default("500ms").kept(),
    /// Time for which copies in memory are trusted after the last heartbeat that the server answered.
    ///
    /// Four heartbeats are sent in that time. It is also the longest time until an instance notices that a connection has died silently.
    verification_time = Duration(100..=HOUR_MS).default("2s").kept(),
    /// Use of fresh copies in memory while the server doesn't answer: `available` serves them, `strict` validates them with the origin
    /// before each use.
    ///
    /// With `strict`, an instance that has noticed the failure (within `verification_time`) serves no response that another instance has
    /// changed. Each request then costs a request to the origin; if the origin is unreachable too, responses are stale.
    coherence = one_of::<Coherence>().default("available").kept(),
    /// Time for which a crashed instance delays others that wait for its fetch (`collapse = "fleet"`).
    ///
    /// A running instance renews its lease three times in this time, for as long as it fetches.
    lease_time = Duration(200..=60_000).default("3s").kept(),
    /// Longest wait for another instance's fetch; then this one requests the response from the origin itself.
    ///
    /// Set it longer than `lease_time`, or a crash of one instance sends all others to the origin; and shorter than `wait_max` of
    /// `site.collapse_limits`.
    lease_wait_max = Duration(1..=60_000).default("5s").kept(),
    /// Memory for the keys whose changes the server reports.
    ///
    /// A copy in memory whose key was removed to make room is read again before its next use, so set it higher for a large cache: a key
    /// takes its length and some 100 bytes.
    tracked_bytes_max = Size(64 * KIB..=TIB).default("16MiB").kept(),
    /// Circuit breaker for the server.
    breaker = Table(&BREAKER).default("{}").kept(),
}

section! {
    /// The circuit breaker: a server that fails or does not answer in time gets no requests for a while, so that misses don't wait for it.
    BREAKER = "store.remote.breaker";
    /// Time for which a result counts.
    window = Duration(100..=HOUR_MS).default("1s").kept(),
    /// Minimum number of failures within the window: with fewer, the breaker stays closed.
    requests_min = Integer(1..=1_000_000).default("5").kept(),
    /// Percentage of failures at which the breaker opens.
    error_percent = Integer(1..=100).default("50").kept(),
    /// Time for which the breaker stays open at first; each failed probe doubles it.
    reset_time = Duration(1..=HOUR_MS).default("500ms").kept(),
    /// Longest time for which the breaker stays open.
    ///
    /// The default is `reset_time` if that is longer.
    reset_time_max = Duration(1..=HOUR_MS).default("2s").kept(),
}

row! {
    /// URLs of several addresses of one server, the nearest first.
    ///
    /// The first that answers as a master is used. All must lead to the same data: an address with another purge log is not used. Database,
    /// user and password are the same in all. Not with `url`.
    pub(super) ENDPOINTS = List(&Text("`redis://HOST:PORT/DATABASE`, `rediss://...` for TLS, or `unix:///path/of/socket`")).default("[]").kept();
}

row! {
    /// Time for which a nearer endpoint must answer before it is used again.
    ///
    /// Up to a tenth is added at random, so that the instances of a fleet don't move at the same time.
    pub(super) RETURN_AFTER = Duration(1_000..=HOUR_MS).default("30s").kept();
}

row! {
    /// User to log in as (ACL).
    pub(super) USERNAME = Text("a name").absent("the one in the URL, or the server's default user").kept();
}

row! {
    /// File with the password in its first line.
    pub(super) PASSWORD_FILE = SecretFile.absent("the password in the URL, or none").kept();
}

row! {
    /// User to log in as at the sentinels.
    ///
    /// Requires a `url` with sentinels.
    pub(super) SENTINEL_USERNAME = Text("a name").absent("the sentinels' default user").kept();
}

row! {
    /// File with the password for the sentinels in its first line. They don't get the server's password.
    ///
    /// Requires a `url` with sentinels.
    pub(super) SENTINEL_PASSWORD_FILE = SecretFile.absent("none").kept();
}

row! {
    /// PEM file with the certificate authorities that may sign the server's certificate.
    ///
    /// Requires a `url` with `rediss`.
    pub(super) CA_FILE = FILE.absent("the system's certificate authorities").kept();
}

row! {
    /// PEM file with a certificate chain that Larder presents to the server.
    ///
    /// It needs `client_key`.
    pub(super) CLIENT_CERTIFICATE = FILE.absent("none").kept();
}

row! {
    /// PEM file with the private key of `client_certificate`.
    pub(super) CLIENT_KEY = FILE.absent("none").kept();
}
