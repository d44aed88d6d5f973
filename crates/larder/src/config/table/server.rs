//! Keys of the process as a whole.

use telemetry::AccessFormat;
use telemetry::logging::LogFormat;

use super::kv::KV;
use super::origin::ORIGIN;
use super::section::*;
use super::site::SITE;

section! {
    /// The process as a whole. Every key has a default except `site`, which may be absent if there is a `kv` table.
    pub(crate) ROOT = "";
    /// Addresses that accept client connections.
    ///
    /// An element is an address, or a table if the listener needs TLS or the PROXY protocol.
    listen = List(&TextOrTable("address", &LISTENER)).default("[\"127.0.0.1:8080\"]").inside(),
    /// Worker threads, each with its own listening sockets.
    ///
    /// Connections never move between workers. More workers than CPUs cost memory and gain nothing.
    workers = Integer(1..=1024).absent("one per CPU that the process may use").kept().no_limit(),
    /// Name of this cache in `Via`, `CDN-Loop` and `Cache-Status`.
    ///
    /// Give each cache in a chain its own name, so that a response shows which one answered.
    server_name = Text("token (letters, digits, `-`, `.`, `_`)").default("larder"),
    /// Defaults of the cache rules: `safe`, or everything that RFC 9111 permits.
    ///
    /// The guide page on profiles lists every choice in which the two differ. Keys of a rule override the profile.
    profile = Choice(&["safe", "rfc9111"]).default("safe"),
    /// Peers whose `X-Forwarded-*` and `Forwarded` fields are trusted and extended.
    ///
    /// From any other peer these fields are dropped, because anyone can put any address into them. The client is the last address in
    /// `X-Forwarded-For` that isn't in this list.
    trusted_proxies = NETWORKS.default("[]"),
    /// Addresses in `X-Forwarded-For` or `Forwarded` that are read and forwarded, counted from the right.
    ///
    /// Further addresses are dropped: none of them can be the client's, and the origin doesn't get them. Set this limit higher than the
    /// number of proxies in front of Larder.
    forwarded_hops_max = Integer(1..=1000).default("32"),
    /// Time for which clients are still served after a stop is requested, while `/ready` already answers 503.
    ///
    /// Set it to more time than your load balancer takes to notice `/ready`, so that it sends no more requests on connections that are
    /// about to close. A SHUTDOWN by a client takes effect immediately.
    drain_delay = Duration(0..=HOUR_MS).default("0s").kept(),
    /// Time for requests in flight to finish when Larder stops, after `drain_delay`.
    ///
    /// Stored responses are written to the shared store in that time; Larder stops waiting for a store that accepts nothing for 2 s, unless
    /// a purge waits for it. Keep the sum of this key and `drain_delay` below the time after which your supervisor kills the process.
    drain_limit = Duration(0..=HOUR_MS).default("30s").kept(),
    /// Further files with `site` and `origin` tables, such as `["sites.d/*.toml"]`.
    ///
    /// Paths are relative to this file. Files are read in the order of their names. An included file can't include others.
    include = List(&Text("path of a file; `*` and `?` are allowed in the file name")).default("[]"),
    /// The admin API: probes, metrics, purge, reload.
    admin = Table(&ADMIN).default("{}").inside(),
    /// The PURGE method on client addresses.
    purge = Table(&PURGE).default("{}"),
    /// Limits on clients.
    limits = Table(&LIMITS).default("{}"),
    /// Store for responses, except those of sites with their own `store`.
    store = Table(&super::store::STORE).default("{}").inside(),
    /// Stores that sites name in `site.store`, each with the keys of `[store]`: `[stores.NAME]`.
    ///
    /// Each store has its own memory, its own remote server and its own purges: filling, purging or losing one of them doesn't affect the
    /// sites of the others. A key that a named store lacks has its default, regardless of `[store]`. The process needs the memory of all
    /// stores together. At most 64 stores are allowed, including `[store]`.
    stores = Map(KeyForm::Name, &Table(&super::store::STORE)).default("{}").inside(),
    /// The region of this instance, if there are several.
    ///
    /// It applies to `[store]`, which then needs `remote`.
    region = Table(&super::region::REGION).absent("one region").inside(),
    /// The Redis-compatible cache server.
    kv = Table(&KV).absent("no Redis-compatible server, except as `larder kv`").inside(),
    /// Spans of requests, for an OpenTelemetry collector.
    tracing = Table(&super::tracing::TRACING).absent("nothing is recorded").inside(),
    /// Logs and the access log.
    log = Table(&LOG).default("{}").inside(),
    origin = ORIGINS,
    site = SITES,
}

section! {
    /// An included file holds `site` and `origin` tables only.
    pub(crate) INCLUDED = "included file";
    origin = ORIGINS,
    site = SITES,
}

static ORIGIN_KIND: Kind = Table(&ORIGIN);
static SITE_KIND: Kind = Table(&SITE);

row! {
    /// Origin servers that sites name.
    ///
    /// A site can also give a URL in its `origin` key, if the origin needs no other settings.
    ORIGINS = List(&ORIGIN_KIND).default("[]");
}

row! {
    /// Sites map requests to origins and determine how responses are cached. At least one is required, over all files, unless there is a
    /// `kv` table: without a site no gateway runs.
    ///
    /// The most specific host wins, then the longest path prefix. A request that matches no site is answered 421 (Misdirected Request).
    SITES = List(&SITE_KIND).default("[]");
}

section! {
    /// One address that accepts client connections.
    LISTENER = "listen";
    /// Address and port; port 0 picks a free port.
    ///
    /// A host name stands for the first of its addresses that this machine has, IPv4 preferred. It is resolved at the start; a reload
    /// resolves only new names.
    address = Text("IP address or host name, and port, such as `0.0.0.0:8080` or `[::]:8080`")
        .required().kept(),
    /// Whether every connection starts with a PROXY protocol header (version 1 or 2).
    ///
    /// Enable it only behind a load balancer that always sends one: the header determines the client address, and also the scheme if the
    /// balancer terminates TLS. A connection without it is closed.
    proxy_protocol = Flag.default("false").kept(),
    /// Peers that may send the PROXY protocol header; connections from others are closed.
    ///
    /// List the load balancers in front of this listener. A peer that may send the header can name any client address, including one of
    /// `trusted_proxies`.
    proxy_protocol_from = NETWORKS.default("[\"127.0.0.0/8\", \"::1/128\"]"),
    /// Whether HTTP/2 is offered: by ALPN with TLS, by prior knowledge without.
    http2 = Flag.default("true").kept(),
    /// Certificates; with at least one, the listener uses TLS.
    ///
    /// The server name (SNI) selects one; the first certificate is used for other names. A reload reads the files again.
    certificates = List(&Table(&CERTIFICATE)).default("[]"),
}

section! {
    /// One certificate of a TLS listener.
    CERTIFICATE = "listen.certificates";
    /// PEM file with the chain, the server's certificate first.
    cert = FILE.required(),
    /// PEM file with the private key.
    key = FILE.required(),
    /// Server names for which this certificate is used.
    names = List(&Text("host name, or `*.` and a host name")).absent("the DNS names in the certificate"),
}

section! {
    /// The admin API: `/live`, `/ready`, `/metrics`, `/purge`, `/reload`.
    ADMIN = "admin";
    /// Address of the whole admin API.
    ///
    /// Without a token it must be a loopback address, because anyone who can reach it can purge the cache.
    listen = Text("IP address or host name, and port").default("127.0.0.1:8081").kept(),
    /// A second address, which serves only `/live`, `/ready` and `/metrics`, without a token.
    ///
    /// Use it for orchestrators and scrapers that must not be able to purge.
    probes_listen = Text("IP address or host name, and port")
        .absent("probes and metrics on the admin address only").kept(),
    /// File with the bearer token of the admin API in its first line.
    ///
    /// The token has at least 16 characters. It is in a file, so that configuration files can be shown and committed.
    token_file = SecretFile.absent("no token").kept(),
}

section! {
    /// The PURGE method on client addresses. The admin API can purge even if this method is disabled.
    PURGE = "purge";
    /// File with the bearer token for PURGE requests in its first line.
    ///
    /// The token has at least 16 characters. If it is set, PURGE is never forwarded: a request without a token gets 401, one with a wrong
    /// token 403.
    token_file = SecretFile.absent("PURGE is forwarded like any unknown method"),
}

section! {
    /// Limits on clients. A request over a limit is refused with the status in parentheses.
    LIMITS = "limits";
    /// Open client connections over all workers.
    ///
    /// A new connection replaces an idle one: the longest idle connection of the client with the most connections. See also
    /// `client_share_percent`. If none is idle, the new connection waits up to half a second for one to become idle, with at most 63
    /// others, and is then closed. Each connection needs a file descriptor, and another one for the origin while it forwards: keep this key
    /// below half of the process's limit.
    connections_max = Integer(1..=10_000_000).default("10000"),
    /// Maximum share of one client, in percent, rounded up: of all connections when all are in use, of all compressions, and of half of the
    /// memory for unread responses.
    ///
    /// A client above its share loses connections to other clients even while they are in use, the longest used first; a new connection of
    /// its own replaces only one of its own idle ones. A client is an IPv4 address or a /64 network of IPv6; with the PROXY protocol, the
    /// one in its header. Peers in `trusted_proxies` have no share, because each represents many clients. If `store.memory` has no room for
    /// a response, Larder looks for the client whose slow readers hold the most memory for bodies that aren't stored, encoders included. If
    /// that client is above its share, its oldest slow reader is closed. `100` disables the share.
    client_share_percent = Integer(1..=100).default("50"),
    /// Request line and header section together (431).
    ///
    /// HTTP/2 heads are measured as HTTP/1.1 would send them, with the crumbs of `Cookie` joined. `SETTINGS_MAX_HEADER_LIST_SIZE` is
    /// higher, because HTTP/2 counts 32 bytes for each field line and crumb: there is room for `fields_max` lines and 1,024 crumbs. A
    /// header section several times as large closes an HTTP/2 connection.
    head_bytes_max = Size(KIB..=MIB).default("64KiB"),
    /// Header field lines in a request (431), including `Host` or `:authority`.
    ///
    /// Over HTTP/2 all crumbs of `Cookie` are one line.
    fields_max = Integer(1..=10_000).default("100"),
    /// Length of the request target (414).
    target_bytes_max = Size(64..=MIB).default("8KiB"),
    /// Length of the request body (413).
    ///
    /// Bodies are passed on as they arrive and need no memory of that size.
    body_bytes_max = Size(0..=TIB).default("100MiB"),
    /// Time from the first byte of a request, or from accept, to the end of its header section (408).
    ///
    /// Over HTTP/2, it limits the connection preface only; `idle_timeout` ends incomplete header sections. A client that keeps sending
    /// single bytes of its header section is closed after this time, and earlier if others need its connection: see `connections_max`.
    head_read_timeout = LIMIT.default("10s"),
    /// Time between two reads of a request body (408).
    ///
    /// Once the response has begun, `tunnel_idle_timeout` applies instead, for both directions together. Rules may override it.
    body_read_timeout = LIMIT.default("30s"),
    /// Minimum rate of a request body, in bytes a second, over the time spent waiting for it (408); `0` for any.
    ///
    /// A slower client uses up `body_read_timeout` bit by bit, so that single bytes now and then don't keep an upload open. Lower it for
    /// clients that send long requests slowly on purpose.
    body_rate_min = Size(0..=TIB).default("500"),
    /// Time between two requests on a connection; it is then closed without a response.
    idle_timeout = LIMIT.default("60s"),
    /// Time without progress while writing a response; the connection is then closed.
    ///
    /// It also applies to an HTTP/1 client that closes its sending side during a response: if Larder has nothing to send for this long, it
    /// closes the connection, because the client may have left.
    write_timeout = LIMIT.default("30s"),
    /// Minimum rate of a response, in bytes a second, over the time spent waiting for the client to read; `0` for any.
    ///
    /// A slower client uses up `write_timeout` bit by bit; the connection is then closed. Time with nothing to send doesn't count.
    write_rate_min = Size(0..=TIB).default("500"),
    /// Time without a byte in either direction of a tunnel (WebSocket); it is then closed.
    ///
    /// Most applications send something at least every minute. `origin.pool.tunnels_max` limits the number of tunnels.
    tunnel_idle_timeout = Duration(1..=DAY_MS).default("5m"),
    /// Requests answered on one connection before it is closed.
    ///
    /// Lower it if a load balancer in front should redistribute long-lived connections.
    requests_per_connection_max = Integer(1..=u32::MAX as u64).default("1000000"),
    /// HTTP/2: concurrent streams of a connection.
    http2_streams_max = Integer(1..=10_000).default("128"),
    /// HTTP/2: streams that the client may reset before they are accepted, or open beyond `http2_streams_max`; further ones close the
    /// connection.
    ///
    /// This limit stops the rapid reset attack, in which a client opens and resets streams faster than they can be answered. A connection
    /// is also closed when the streams that were reset before their response outnumber the answered ones by more than `http2_resets_max` +
    /// `http2_streams_max`.
    http2_resets_max = Integer(1..=10_000).default("64"),
    /// HTTP/2: bytes of responses that a connection buffers for all its streams together, before the sender is held back.
    http2_send_buffer_bytes_max = Size(16 * KIB..=16 * MIB).default("256KiB"),
    /// Responses that are compressed at the same time; further ones are sent uncompressed.
    ///
    /// One per worker is enough to keep all CPUs busy. One client has at most `client_share_percent` of them. Each takes up to 3MiB of
    /// `store.memory`, and more at high levels of Brotli.
    compressions_max = Integer(1..=10_000).default("64"),
}

section! {
    /// Logs of Larder's own events go to standard error; the access log of requests goes to the destination in `access`.
    LOG = "log";
    /// Log level.
    level = one_of::<::tracing::Level>().default("info"),
    /// Format of log lines.
    format = one_of::<LogFormat>().default("text").kept(),
    /// Destination of the access log.
    ///
    /// SIGUSR1 or a reload reopens the file, for log rotation.
    access = Text("`off`, `stdout` or the path of a file").default("off").kept(),
    /// Format of access log lines.
    access_format = one_of::<AccessFormat>().default("json").kept(),
    /// Access log lines queued for the disk; further ones are dropped and counted.
    ///
    /// Requests never wait for the access log.
    access_queue_lines_max = Integer(1..=10_000_000).default("65536").kept(),
    /// Query parameters whose values are left out of the access log.
    ///
    /// Use it for API keys and personal data in URLs.
    redact = List(&Text("name of a query parameter"))
        .default("[\"token\", \"access_token\", \"key\", \"api_key\", \"password\", \"secret\"]").kept(),
}
