//! Keys of origin servers.

use origin::settings::{AddressFamily, Balance, OriginProtocol};

use super::section::*;

section! {
    /// One origin: a server, or several equivalent ones. Sites name it in their `origin` key; sites with the same origin share its
    /// connections.
    pub(crate) ORIGIN = "origin";
    /// Unique name; appears in metrics and logs.
    name = Text("name (letters, digits, `-`, `.`, `_`)").required(),
    /// URL of the origin; its path is prepended to every forwarded path.
    ///
    /// A host name is resolved again when its DNS TTL ends. Either `url` or `servers` is required.
    url = Text("URL: `http://host[:port][/path]`, `https://...`, or `unix:/path/of/socket`")
        .absent("`servers`"),
    /// Several servers in place of `url`; each request goes to one of them.
    ///
    /// Each is a URL, or a table with a `url` and a `weight`. At most 100 are allowed; their paths must be the same, and everything else in
    /// this table applies to all of them. See the [guide](../operate/origins.md).
    servers = List(&TextOrTable("url", &SERVER)).absent("`url` alone"),
    /// Method of picking the server for a request.
    ///
    /// All methods respect weights. `round-robin`: in turn. `least-requests`: the one with the fewest requests in flight. `power-of-two`:
    /// of two random servers, the one with fewer requests in flight. `consistent-hash`: by cache key, so that a URL always goes to the same
    /// server; when a server leaves, only its URLs move.
    balance = one_of::<Balance>().default("round-robin"),
    /// Time in which a returning server regains its share of the requests, starting from a tenth.
    ///
    /// `0s` restores the whole share at once.
    slow_start = Duration(0..=HOUR_MS).default("10s").no_limit(),
    /// Retries of failed requests on other servers.
    retries = Table(&RETRIES).default("{}"),
    /// Ejection of failing servers.
    ejection = Table(&EJECTION).default("{}"),
    /// Health checks in the background.
    health = Table(&HEALTH).default("{}"),
    /// Circuit breaker for the origin as a whole.
    breaker = Table(&BREAKER).default("{}"),
    /// HTTP version of requests to the origin.
    ///
    /// `auto`: the version negotiated by ALPN with TLS, HTTP/1.1 without TLS. `http2` without TLS uses prior knowledge (h2c). Upgrades
    /// (WebSocket) always use HTTP/1.1 on connections of their own: with an origin that supports HTTP/2 only, they get 502 with
    /// `detail=http-upgrade-failed`.
    protocol = one_of::<OriginProtocol>().default("auto"),
    /// `Host` sent to the origin.
    host = Text("host name, with a port if it needs one").absent("the client's"),
    /// Name for SNI and for the verification of the origin's certificate.
    server_name = Text("host name").absent("the host in `url`"),
    /// Whether the origin's certificate is verified: chain, name and validity period.
    ///
    /// `false` disables certificate verification; for a private certificate authority, set `ca_file` instead.
    verify = Flag.default("true"),
    /// PEM file with the certificate authorities that may sign the origin's certificate.
    ca_file = FILE.absent("the system's certificate authorities"),
    /// PEM file with a certificate chain that Larder presents to the origin.
    ///
    /// It needs `client_key`.
    client_certificate = FILE.absent("none"),
    /// PEM file with the private key of `client_certificate`.
    client_key = FILE.absent("none"),
    /// Local address for connections to the origin.
    local_address = Text("IP address").absent("chosen by the system"),
    /// Address families that are tried.
    address_family = one_of::<AddressFamily>().default("any"),
    /// Header fields set on every forwarded request, replacing the client's.
    ///
    /// They are not part of the cache key. `Host` has a key of its own; framing and connection fields can't be set.
    fields = Map(KeyForm::FieldName, &Text("header field value")).default("{}"),
    /// Credentials sent to the origin in `Authorization`, replacing the client's.
    credentials = Table(&CREDENTIALS).default("{}"),
    /// Interim responses (1xx) that the origin may send before each response.
    ///
    /// With more, the request fails (502, `detail=interim-responses-max`) and the connection is closed; the request may be retried on
    /// another server, and the failure counts towards ejection, as for invalid HTTP. Clients get at most 32 interim responses before a
    /// response that may be stored, and at most 16 are queued for a slow client; the others are dropped.
    interim_responses_max = Integer(1..=10_000).default("100"),
    /// Limits on connections to the origin.
    pool = Table(&POOL).default("{}"),
}

section! {
    /// One server of an origin.
    SERVER = "origin.servers";
    /// URL of the server.
    url = Text("URL: `http://host[:port][/path]`, `https://...`, or `unix:/path/of/socket`").required(),
    /// The server's share of the requests, relative to the sum of all weights.
    ///
    /// `0` drains the server: it gets no new requests, and finishes those in flight. At least one server needs a higher weight.
    weight = Integer(0..=1000).default("1").no_limit(),
}

section! {
    /// Retries on another server of the origin, for requests that got no response: those that could not be sent, or that may be repeated
    /// (idempotent methods and QUERY). An origin with one server has no retries, except on a new connection if a kept one was closed. All
    /// time limits of the site apply; each attempt has its own `connect` and `first_byte`.
    RETRIES = "origin.retries";
    /// Maximum number of servers that a request is sent to, including the first.
    ///
    /// `1` disables retries.
    attempts_max = Integer(1..=10).default("3"),
    /// Retries within 10 s, as a percentage of the requests in that time.
    ///
    /// It limits the extra load on a failing group of servers. `larder_origin_retries_over_budget_total` counts requests that failed
    /// because of this limit.
    budget_percent = Integer(0..=100).default("20").no_limit(),
    /// Retries allowed in addition to the percentage, per second.
    ///
    /// Use it if an instance gets so few requests that the percentage allows hardly any retries.
    budget_per_second_min = Integer(0..=10_000).default("10").no_limit(),
}

section! {
    /// Ejection of a server whose requests fail: no connection, no response in time, invalid HTTP, truncated content, or a status in
    /// `statuses`. The other servers get its requests. Ejection applies only to origins with several servers. If all servers are ejected,
    /// all of them get requests.
    EJECTION = "origin.ejection";
    /// Whether servers are ejected.
    enabled = Flag.default("true"),
    /// Consecutive failures, over all workers, that eject a server.
    failures = Integer(1..=1_000).default("5").no_limit(),
    /// Duration of the first ejection.
    ///
    /// Each further ejection lasts twice as long, until a request succeeds after the server has been back for as long as its last ejection.
    duration = LIMIT.default("10s").no_limit(),
    /// Longest ejection.
    ///
    /// The default is `duration` if that is longer.
    duration_max = LIMIT.default("5m"),
    /// Percentage of servers that may be ejected, rounded up; one server always stays.
    ///
    /// If more fail, the cause is likely elsewhere, and the remaining servers could not carry the load.
    servers_percent_max = Integer(0..=100).default("50"),
    /// Statuses that count as failures.
    ///
    /// The responses are still passed on. `500` is not included by default: often one page causes it, not the server.
    statuses = STATUSES.default("[\"502\", \"503\", \"504\"]"),
}

section! {
    /// Health checks of each server in the background, on a connection of their own; off without a `path`. A server that fails them gets no
    /// requests until it passes again. If all fail, all get requests.
    HEALTH = "origin.health";
    /// Path that is requested, with GET and the origin's `host`.
    ///
    /// The path of the server's URL is prepended, as to every path. Choose a path that fails if the server can't answer, and that doesn't
    /// depend on shared services: if a shared database is down, all servers would fail.
    path = Text("path, such as `/health`").absent("no checks"),
    /// Time between two checks of a server.
    ///
    /// Each instance of Larder runs its own checks.
    interval = Duration(100..=HOUR_MS).default("5s"),
    /// Longest duration of a check, from the connection to the response's header section.
    ///
    /// The default is `interval` if that is shorter.
    timeout = LIMIT.default("2s"),
    /// Consecutive failed checks after which a server gets no requests.
    unhealthy_after = Integer(1..=100).default("3").no_limit(),
    /// Consecutive passed checks after which it gets requests again.
    healthy_after = Integer(1..=100).default("2").no_limit(),
    /// Statuses that pass.
    statuses = STATUSES.default("[\"2xx\", \"3xx\"]"),
}

section! {
    /// The circuit breaker: an origin that mostly fails (no connection, no response in time, invalid HTTP, or a status in `statuses`,
    /// retries included) gets no requests for a while. Each client counts once, by the latest result of its requests. While the breaker is
    /// open, Larder answers requests with stale responses if they are allowed, else with 503 and `Retry-After`. The breaker applies to the
    /// origin as a whole, with one server or several.
    BREAKER = "origin.breaker";
    /// Whether the circuit breaker is used.
    enabled = Flag.default("true"),
    /// Time for which a result counts.
    window = Duration(100..=HOUR_MS).default("10s"),
    /// Minimum number of clients whose latest request within the window failed: with fewer, the breaker stays closed.
    ///
    /// Clients are counted as for `pool.client_share_percent`; all clients that a trusted proxy doesn't name count as one. Lower it for an
    /// origin that only a few services call. With `1`, a single client can open the breaker for all clients.
    requests_min = Integer(1..=1_000).default("20"),
    /// Percentage of failures at which the breaker opens: of the clients with a result within the window, those whose latest request
    /// failed.
    error_percent = Integer(1..=100).default("50"),
    /// Time for which the breaker stays open at first; each failed probe doubles it.
    reset_time = Duration(1..=HOUR_MS).default("5s"),
    /// Longest time for which the breaker stays open.
    ///
    /// The default is `reset_time` if that is longer.
    reset_time_max = Duration(1..=HOUR_MS).default("30s"),
    /// Requests that may probe the origin concurrently once the open time has ended.
    ///
    /// The same number of uploads may probe it too: requests with content of over 64 KiB, or with content that arrives slowly. A client
    /// whose probe failed sends the next one only if no other client does for `reset_time`.
    probes_max = Integer(1..=100).default("1"),
    /// Time for which a probe counts as in progress; afterwards, another request may probe the origin too.
    probe_time_max = Duration(1..=HOUR_MS).default("30s"),
    /// Consecutive successful probes after which the breaker closes.
    successes_to_close = Integer(1..=1_000).default("3"),
    /// Statuses that count as failures.
    ///
    /// The responses are still passed on.
    statuses = STATUSES.default("[\"502\", \"503\", \"504\"]"),
}

section! {
    /// Credentials for the origin: at most one of these. They are in files, so that configuration files can be shown and committed.
    CREDENTIALS = "origin.credentials";
    /// File with `user:password` in its first line (RFC 7617).
    basic_file = SecretFile.absent("none"),
    /// File with a bearer token in its first line (RFC 6750).
    bearer_file = SecretFile.absent("none"),
}

section! {
    /// Limits on connections and requests to the origin, over all workers and servers.
    POOL = "origin.pool";
    /// Whether connections are kept after a response.
    ///
    /// `false` is the same as `idle_connections_max = 0`. A connection is not reused if the origin may not have read the content of a
    /// request and would take it for the next request: after a response other than 2xx that arrived before all content was sent, or after
    /// content with GET, HEAD, DELETE, OPTIONS or TRACE. Set `false` for an origin that answers 2xx without reading the content.
    keep_alive = Flag.default("true"),
    /// Idle connections kept to each server.
    idle_connections_max = Integer(0..=100_000).default("256"),
    /// Time for which an idle connection is kept.
    ///
    /// Set it a little below the origin's own idle timeout, so that Larder closes first.
    idle_timeout = Duration(1..=HOUR_MS).default("30s"),
    /// Requests in flight to the origin; further ones wait in the queue.
    ///
    /// Exchanges at the pace of a client count towards `transfers_max` and `tunnels_max` instead. Over HTTP/2, each exchange may hold 256
    /// KiB of a response that its client doesn't read.
    requests_in_flight_max = Integer(1..=1_000_000).default("1024"),
    /// Maximum length of the queue; further requests are answered 503.
    queue_max = Integer(0..=1_000_000).default("1024"),
    /// Longest wait in the queue (503).
    ///
    /// While requests wait, Larder cancels forwards whose clients have all left. It also cancels forwards for HTTP/1 clients that have
    /// closed their sending side: such a client may have left, or may still be reading.
    queue_timeout = LIMIT.default("5s"),
    /// Exchanges at the pace of their clients: the limit applies to uploads and to responses separately.
    ///
    /// An upload is a request whose body is larger than 64 KiB or has not arrived after 250 ms; further uploads wait in a queue of
    /// `queue_max`, like requests in flight. A response counts once its client has left half a MiB of it unread, as much as Larder reads
    /// ahead; if the limit is reached, a response whose client reads nothing for 2 s is aborted. The origin may see the sum of all three
    /// limits: lower this one if it has a thread for each connection.
    transfers_max = Integer(1..=1_000_000).default("1024"),
    /// Tunnels (WebSocket) open at the same time; further ones are answered 503.
    ///
    /// See also `limits.tunnel_idle_timeout`.
    tunnels_max = Integer(0..=1_000_000).default("1024"),
    /// Share of each of these limits, and of each queue, that one client may use, in percent, rounded up.
    ///
    /// A client is an IPv4 address or a /64 network of IPv6; behind a peer in `trusted_proxies` it is the client that the proxy names, and
    /// if the proxy names none, there is no share. Behind a load balancer that is not in `trusted_proxies`, all clients have one address:
    /// add the balancer there, or set `100`.
    client_share_percent = Integer(1..=100).default("50"),
}
