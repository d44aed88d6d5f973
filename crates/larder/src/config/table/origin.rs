//! Keys of origin servers.

use origin::settings::{AddressFamily, Balance, OriginProtocol};

use super::section::*;

section! {
    /// One origin: a server, or several that are as good as each other. Sites name it in their `origin` key; sites with the same origin share its
    /// connections.
    pub(crate) ORIGIN = "origin";
    /// Unique name; appears in metrics and logs.
    name = Text("name (letters, digits, `-`, `.`, `_`)").required(),
    /// Where the origin listens; a path is put before every forwarded path.
    ///
    /// A name is resolved again when its TTL ends. Either `url` or `servers` is needed.
    url = Text("URL: `http://host[:port][/path]`, `https://...`, or `unix:/path/of/socket`")
        .absent("`servers`"),
    /// Several servers in place of `url`; each request goes to one of them.
    ///
    /// Each is a URL, or a table with a `url` and a `weight`. At most 100; their paths must be the same, and everything else in this table holds for
    /// all of them. See the [guide](../operate/origins.md).
    servers = List(&TextOrTable("url", &SERVER)).absent("`url` alone"),
    /// How the server for a request is picked.
    ///
    /// By weight in all of them. `round-robin`: one after the other. `least-requests`: the one with the fewest requests in flight. `power-of-two`: of
    /// two by chance, the one with fewer requests in flight. `consistent-hash`: by cache key, so that a URL goes to the same server; when a server
    /// goes, only its URLs move.
    balance = one_of::<Balance>().default("round-robin"),
    /// How long a server's share of the requests grows after it was out, from a tenth to all.
    ///
    /// `0s` gives it its whole share at once.
    slow_start = Duration(0..=HOUR_MS).default("10s").no_limit(),
    /// When a failed request is sent to another server.
    retries = Table(&RETRIES).default("{}"),
    /// When a server is left out because of failures.
    ejection = Table(&EJECTION).default("{}"),
    /// How servers are checked in the background.
    health = Table(&HEALTH).default("{}"),
    /// When nothing is sent to the origin for a while.
    breaker = Table(&BREAKER).default("{}"),
    /// HTTP version towards the origin.
    ///
    /// `auto`: what ALPN agrees on with TLS, HTTP/1.1 without. `http2` without TLS is prior knowledge (h2c). Upgrades (WebSocket) go over HTTP/1.1
    /// on connections of their own, whatever is set here: an origin that speaks HTTP/2 alone gets 502 with `detail=http-upgrade-failed`.
    protocol = one_of::<OriginProtocol>().default("auto"),
    /// `Host` sent to the origin.
    host = Text("host name, with a port if it needs one").absent("the client's"),
    /// Name for SNI and for verifying the origin's certificate.
    server_name = Text("host name").absent("the host in `url`"),
    /// Whether the origin's certificate is verified: chain, name and time.
    ///
    /// `false` disables certificate verification; for a private certificate authority, set `ca_file` instead.
    verify = Flag.default("true"),
    /// PEM file with the certificate authorities that may sign the origin's certificate.
    ca_file = FILE.absent("the system's certificate authorities"),
    /// PEM file with a certificate chain that Larder shows to the origin.
    ///
    /// Needs `client_key`.
    client_certificate = FILE.absent("none"),
    /// PEM file with the private key of `client_certificate`.
    client_key = FILE.absent("none"),
    /// Local address that connections are made from.
    local_address = Text("IP address").absent("chosen by the system"),
    /// Which resolved addresses are tried.
    address_family = one_of::<AddressFamily>().default("any"),
    /// Header fields set on every forwarded request, over the client's.
    ///
    /// They take no part in the cache key. `Host` has a key of its own; framing and connection fields can't be set.
    fields = Map(KeyForm::FieldName, &Text("header field value")).default("{}"),
    /// Credentials sent to the origin in `Authorization`, over the client's.
    credentials = Table(&CREDENTIALS).default("{}"),
    /// Interim responses (1xx) that the origin may send before each response.
    ///
    /// With more, the request has failed (502, `detail=interim-responses-max`), the connection is closed, and the server is tried elsewhere and left
    /// out like one that breaks HTTP. Clients get at most 32 of those before a response that may be stored, and at most 16 wait for a client that is
    /// slow to read them; the others are dropped.
    interim_responses_max = Integer(1..=10_000).default("100"),
    /// Limits on connections to the origin.
    pool = Table(&POOL).default("{}"),
}

section! {
    /// One server of an origin.
    SERVER = "origin.servers";
    /// Where the server listens.
    url = Text("URL: `http://host[:port][/path]`, `https://...`, or `unix:/path/of/socket`").required(),
    /// The server's share of the requests, to the sum of all weights.
    ///
    /// `0` drains the server: it gets no new requests, and finishes those it has. At least one server needs more.
    weight = Integer(0..=1000).default("1").no_limit(),
}

section! {
    /// When a request that got no response is sent to another server of the origin: it could not be sent, or it may be repeated (idempotent methods
    /// and QUERY). An origin with one server has no retries, but for those on a new connection where a kept one was closed. All time limits of the
    /// site hold; each attempt has its own `connect` and `first_byte`.
    RETRIES = "origin.retries";
    /// Servers that a request is sent to, the first included.
    ///
    /// `1` turns retries off.
    attempts_max = Integer(1..=10).default("3"),
    /// Retries within 10 s, in percent of the requests within that time.
    ///
    /// So that a group in trouble gets no more than so much beside its usual load. `larder_origin_retries_over_budget_total` counts requests that
    /// failed because of it.
    budget_percent = Integer(0..=100).default("20").no_limit(),
    /// Retries allowed beside that, for each second.
    ///
    /// An instance with few requests has no share to speak of.
    budget_per_second_min = Integer(0..=10_000).default("10").no_limit(),
}

section! {
    /// When a server is left out because its requests fail: no connection, no response in time, no HTTP, content that breaks off, or a status in
    /// `statuses`. The others get its requests. Applies to origins with several servers only. When all are out, all get requests.
    EJECTION = "origin.ejection";
    /// Whether servers are ejected.
    enabled = Flag.default("true"),
    /// Failures in a row, over all workers, that eject a server.
    failures = Integer(1..=1_000).default("5").no_limit(),
    /// How long the first ejection lasts.
    ///
    /// Each one after it is twice as long, until a request succeeds after the server has stayed for as long as it was out last.
    duration = LIMIT.default("10s").no_limit(),
    /// How long an ejection lasts at most.
    ///
    /// By default `duration` if that is longer.
    duration_max = LIMIT.default("5m"),
    /// How many servers may be out, in percent, rounded up; one always stays.
    ///
    /// If more fail, the fault is likely elsewhere, and the rest could not carry the load.
    servers_percent_max = Integer(0..=100).default("50"),
    /// Responses that count as failures.
    ///
    /// They are passed on all the same. `500` is not among them by default: it is often the fault of a page and not of a server.
    statuses = STATUSES.default("[\"502\", \"503\", \"504\"]"),
}

section! {
    /// Checks of each server in the background, on a connection of its own: off unless there is a `path`. A server that fails gets no requests until
    /// it passes again. When all fail, all get requests.
    HEALTH = "origin.health";
    /// What is asked for, with GET and the origin's `host`.
    ///
    /// The path of the server's URL is put before it, as before every path. Choose one that fails when the server can't answer, and that doesn't
    /// depend on what all servers share: when a database is down, they all fail.
    path = Text("path, such as `/health`").absent("no checks"),
    /// Time from one check of a server to the next.
    ///
    /// Each instance of Larder checks for itself.
    interval = Duration(100..=HOUR_MS).default("5s"),
    /// How long a check may take, from the connection to the response's header section.
    ///
    /// By default `interval` if that is shorter.
    timeout = LIMIT.default("2s"),
    /// Failed checks in a row after which a server gets no requests.
    unhealthy_after = Integer(1..=100).default("3").no_limit(),
    /// Passed checks in a row after which it gets requests again.
    healthy_after = Integer(1..=100).default("2").no_limit(),
    /// Responses that pass.
    statuses = STATUSES.default("[\"2xx\", \"3xx\"]"),
}

section! {
    /// The circuit breaker: an origin that mostly fails (no connection, no response in time, no HTTP, or a status in `statuses`, retries
    /// included) gets no requests for a while. Each client counts once, by the latest result of its requests. Requests are answered as when the origin fails: from what is stored where it may be used stale, else 503 with
    /// `Retry-After`. Applies to the origin as a whole, with one server or several.
    BREAKER = "origin.breaker";
    /// Whether there is one.
    enabled = Flag.default("true"),
    /// How long a result counts.
    window = Duration(100..=HOUR_MS).default("10s"),
    /// Clients whose latest request within the window failed before the breaker can open.
    ///
    /// Clients are those of `pool.client_share_percent`; all that a trusted proxy does not name count as one. With fewer clients than this, the
    /// breaker never opens: lower it for an origin that a few services call. `1` lets a single client open it for all.
    requests_min = Integer(1..=1_000).default("20"),
    /// Percentage of failures at which the breaker opens: of the clients with a result within the window, those whose latest request failed.
    error_percent = Integer(1..=100).default("50"),
    /// How long the breaker stays open at first; each failed probe doubles the time.
    reset_time = Duration(1..=HOUR_MS).default("5s"),
    /// How long the breaker stays open at most.
    ///
    /// By default `reset_time` if that is longer.
    reset_time_max = Duration(1..=HOUR_MS).default("30s"),
    /// Requests that try the origin at once after that time.
    ///
    /// Besides, as many uploads: content of over 64 KiB, or that comes slowly. A client whose probe failed sends the next one only if no other
    /// client does for `reset_time`.
    probes_max = Integer(1..=100).default("1"),
    /// How long a probe keeps its place; then another request may try beside it.
    probe_time_max = Duration(1..=HOUR_MS).default("30s"),
    /// Probes that must succeed, without a failure between them, before all requests go again.
    successes_to_close = Integer(1..=1_000).default("3"),
    /// Responses that count as failures.
    ///
    /// They are passed on all the same.
    statuses = STATUSES.default("[\"502\", \"503\", \"504\"]"),
}

section! {
    /// Credentials for the origin: at most one of these. They come from files, so that configuration files can be shown and committed.
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
    /// `false` is the same as `idle_connections_max = 0`. A connection is not used again where the origin may not have read the content of a request
    /// and would take it for the next one: after an answer that came before all was sent, that is no 2xx, or to content with GET, HEAD, DELETE,
    /// OPTIONS or TRACE. Set `false` for an origin that answers 2xx without reading.
    keep_alive = Flag.default("true"),
    /// Idle connections kept to each server.
    idle_connections_max = Integer(0..=100_000).default("256"),
    /// How long an idle connection is kept.
    ///
    /// Set it a little below the origin's own idle timeout, so that Larder closes first.
    idle_timeout = Duration(1..=HOUR_MS).default("30s"),
    /// Requests in flight that wait for the origin; more wait in the queue.
    ///
    /// What goes at the pace of a client counts against `transfers_max` and `tunnels_max` instead. With HTTP/2 each may hold 256 KiB of a response
    /// that its client does not read.
    requests_in_flight_max = Integer(1..=1_000_000).default("1024"),
    /// Requests that wait for a place; more are answered 503.
    queue_max = Integer(0..=1_000_000).default("1024"),
    /// Longest wait in the queue (503).
    ///
    /// While requests wait, a forward that nobody waits for any more is given up, and one for an HTTP/1 client that has closed its sending side: it
    /// may be gone, or still read.
    queue_timeout = LIMIT.default("5s"),
    /// Exchanges at the pace of their clients: so many uploads, and so many responses.
    ///
    /// An upload is a request whose body is larger than 64 KiB or not there after a quarter of a second; more wait in a queue like that for requests
    /// in flight. A response counts here once its client has left half a MiB of it, for which it is read ahead; where there is no room, one whose
    /// client takes nothing for 2 s is broken off. The origin may see all three limits at once: lower this one where it has a thread for each
    /// connection.
    transfers_max = Integer(1..=1_000_000).default("1024"),
    /// Tunnels (WebSocket) open at the same time; more are answered 503.
    ///
    /// See also `limits.tunnel_idle_timeout`.
    tunnels_max = Integer(0..=1_000_000).default("1024"),
    /// What one client may have of each of these limits, and of each queue, in percent, rounded up.
    ///
    /// A client is an IPv4 address or a /64 network of IPv6; behind a peer in `trusted_proxies` it is the one that the proxy names, and where it
    /// names none, there is no share. Behind a balancer that is not in `trusted_proxies` all clients have one address: name it there, or set `100`.
    client_share_percent = Integer(1..=100).default("50"),
}
