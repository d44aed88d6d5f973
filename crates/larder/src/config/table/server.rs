//! Keys of the process as a whole.

use super::kv::KV;
use super::origin::ORIGIN;
use super::section::{
    DAY_MS, FILE, HOUR_MS, KIB, KeyForm, Kind, LEVEL, LIMIT, MIB, NETWORKS, Opt, Preset, Reload, Section,
    TIB, row,
};
use super::site::SITE;

/// The main file.
pub(crate) static ROOT: Section = Section {
    name: "",
    about: "The process as a whole. Every key has a default except `site`, and that may be absent where there is a `kv` table.",
    options: &[
        row(
            "listen",
            Kind::List(&Kind::TextOrTable { short_for: "address", section: &LISTENER }),
            Preset::Is("[\"127.0.0.1:8080\"]"),
            Reload::Inside,
            "Addresses that accept client connections.",
            "An element is an address, or a table when the listener needs TLS or the PROXY protocol.",
        ),
        row(
            "workers",
            Kind::Integer { min: 1, max: 1024 },
            Preset::Absent("one per CPU that the process may use"),
            Reload::No,
            "Worker threads, each with its own listening sockets.",
            "Connections never move between workers. More workers than CPUs cost memory and gain nothing.",
        ),
        row(
            "server_name",
            Kind::Text("token (letters, digits, `-`, `.`, `_`)"),
            Preset::Is("\"larder\""),
            Reload::Yes,
            "Name of this cache in `Via`, `CDN-Loop` and `Cache-Status`.",
            "Give each layer its own name when caches stand in a row, so that a response says which one answered.",
        ),
        row(
            "profile",
            Kind::Choice(&["safe", "rfc9111"]),
            Preset::Is("\"safe\""),
            Reload::Yes,
            "Defaults of the cache rules: `safe`, or everything that RFC 9111 permits.",
            "The guide page on profiles lists every choice in which the two differ. Keys of a rule override the profile.",
        ),
        row(
            "trusted_proxies",
            NETWORKS,
            Preset::Is("[]"),
            Reload::Yes,
            "Peers whose `X-Forwarded-*` and `Forwarded` fields are trusted and extended.",
            "From any other peer these fields are dropped, because anyone can put any address into them. The client is the last address in `X-Forwarded-For` that isn't in this list.",
        ),
        row(
            "drain_delay",
            Kind::Duration { min_ms: 0, max_ms: HOUR_MS },
            Preset::Is("\"0s\""),
            Reload::No,
            "Time that clients are still served after a stop is requested, while `/ready` already answers 503.",
            "Set it longer than your load balancer takes to notice `/ready`, so that it sends no more requests to connections that are about to close. A SHUTDOWN by a client takes effect at once.",
        ),
        row(
            "drain_limit",
            Kind::Duration { min_ms: 0, max_ms: HOUR_MS },
            Preset::Is("\"30s\""),
            Reload::No,
            "Time that requests in flight get to finish when Larder stops, once `drain_delay` is over.",
            "Bodies that other instances follow are fetched to the end in it, and what was stored is written to the shared store; a store that takes nothing for 2 s is not waited for. \
             Keep it and `drain_delay` together below the time after which your supervisor kills the process.",
        ),
        row(
            "include",
            Kind::List(&Kind::Text("path of a file; `*` and `?` may stand in the file name")),
            Preset::Is("[]"),
            Reload::Yes,
            "Further files with `site` and `origin` tables, such as `[\"sites.d/*.toml\"]`.",
            "Paths are relative to this file. Files are read in the order of their names. An included file can't include.",
        ),
        row(
            "admin",
            Kind::Table(&ADMIN),
            Preset::Is("{}"),
            Reload::Inside,
            "The admin API: probes, metrics, purge, reload.",
            "",
        ),
        row(
            "purge",
            Kind::Table(&PURGE),
            Preset::Is("{}"),
            Reload::Yes,
            "The PURGE method on client addresses.",
            "",
        ),
        row("limits", Kind::Table(&LIMITS), Preset::Is("{}"), Reload::Yes, "What clients may use.", ""),
        row(
            "store",
            Kind::Table(&super::store::STORE),
            Preset::Is("{}"),
            Reload::Inside,
            "Where responses are stored, except for sites with a `store` of their own.",
            "",
        ),
        row(
            "stores",
            Kind::Map { keys: KeyForm::Name, values: &STORE_KIND },
            Preset::Is("{}"),
            Reload::Inside,
            "Stores that sites name in `site.store`, each with the keys of `[store]`: `[stores.NAME]`.",
            "Each has its own memory, its own server behind it, and its own purges: what fills, empties or breaks one of them leaves the sites of the others alone. A key that a named store lacks has its default, whatever `[store]` says. Memory is that of all stores together. There are 64 at most, `[store]` among them.",
        ),
        row(
            "kv",
            Kind::Table(&KV),
            Preset::Absent("no Redis-compatible server, except as `larder kv`"),
            Reload::Inside,
            "The Redis-compatible cache server.",
            "",
        ),
        row(
            "tracing",
            Kind::Table(&super::tracing::TRACING),
            Preset::Absent("nothing is recorded"),
            Reload::Inside,
            "Spans of requests, for a collector of OpenTelemetry.",
            "",
        ),
        row("log", Kind::Table(&LOG), Preset::Is("{}"), Reload::Inside, "Logs and the access log.", ""),
        ORIGINS,
        SITES,
    ],
};

/// A file named by `include`.
pub(crate) static INCLUDED: Section = Section {
    name: "included file",
    about: "An included file holds `site` and `origin` tables only.",
    options: &[ORIGINS, SITES],
};

static STORE_KIND: Kind = Kind::Table(&super::store::STORE);
static ORIGIN_KIND: Kind = Kind::Table(&ORIGIN);
static SITE_KIND: Kind = Kind::Table(&SITE);

const ORIGINS: Opt = row(
    "origin",
    Kind::List(&ORIGIN_KIND),
    Preset::Is("[]"),
    Reload::Yes,
    "Origin servers that sites name.",
    "A site that needs nothing special may give a URL in its `origin` key instead.",
);

const SITES: Opt = row(
    "site",
    Kind::List(&SITE_KIND),
    Preset::Is("[]"),
    Reload::Yes,
    "Sites: which requests go to which origin, and what is cached. At least one, over all files, unless there is a `kv` table: without a site no gateway runs.",
    "The most specific host wins, then the longest path prefix. A request that fits no site is answered 421 (Misdirected Request).",
);

static LISTENER: Section = Section {
    name: "listen",
    about: "One address that accepts client connections.",
    options: &[
        row(
            "address",
            Kind::Text("IP address or host name, and port, such as `0.0.0.0:8080` or `[::]:8080`"),
            Preset::Required,
            Reload::No,
            "Address and port; port 0 takes a free port.",
            "Of the addresses of a host name the first counts that the machine has, of IPv4 if there is one. A name is looked up at the start, and by a \
             reload only where it is new.",
        ),
        row(
            "proxy_protocol",
            Kind::Flag,
            Preset::Is("false"),
            Reload::No,
            "Whether every connection starts with a PROXY protocol header (version 1 or 2).",
            "Switch it on only behind a balancer that always sends one: it decides the client address, and whether the scheme is https where TLS ends at the balancer. A connection without it is closed.",
        ),
        row(
            "proxy_protocol_from",
            NETWORKS,
            Preset::Is("[\"127.0.0.0/8\", \"::1/128\"]"),
            Reload::Yes,
            "Peers that may send the PROXY protocol header; connections of others are closed.",
            "The balancers in front of this listener. A peer that may send the header can name any client address, including one of `trusted_proxies`.",
        ),
        row(
            "http2",
            Kind::Flag,
            Preset::Is("true"),
            Reload::No,
            "Whether HTTP/2 is offered: by ALPN with TLS, by prior knowledge without.",
            "",
        ),
        row(
            "certificates",
            Kind::List(&Kind::Table(&CERTIFICATE)),
            Preset::Is("[]"),
            Reload::Yes,
            "Certificates; with at least one the listener speaks TLS.",
            "The server name (SNI) chooses; the first certificate answers names that fit none. A reload reads the files again.",
        ),
    ],
};

static CERTIFICATE: Section = Section {
    name: "listen.certificates",
    about: "One certificate of a TLS listener.",
    options: &[
        row(
            "cert",
            FILE,
            Preset::Required,
            Reload::Yes,
            "PEM file with the chain, the server's certificate first.",
            "",
        ),
        row("key", FILE, Preset::Required, Reload::Yes, "PEM file with the private key.", ""),
        row(
            "names",
            Kind::List(&Kind::Text("host name, or `*.` and a host name")),
            Preset::Absent("the DNS names in the certificate"),
            Reload::Yes,
            "Server names that this certificate answers.",
            "",
        ),
    ],
};

static ADMIN: Section = Section {
    name: "admin",
    about: "The admin API: `/live`, `/ready`, `/metrics`, `/purge`, `/reload`.",
    options: &[
        row(
            "listen",
            Kind::Text("IP address or host name, and port"),
            Preset::Is("\"127.0.0.1:8081\""),
            Reload::No,
            "Address of the whole admin API.",
            "Without a token it must be a loopback address, because anyone who can reach it can purge the cache.",
        ),
        row(
            "probes_listen",
            Kind::Text("IP address or host name, and port"),
            Preset::Absent("probes and metrics on the admin address only"),
            Reload::No,
            "A second address that answers `/live`, `/ready` and `/metrics` only, without a token.",
            "For orchestrators and scrapers that must not be able to purge.",
        ),
        row(
            "token_file",
            Kind::SecretFile,
            Preset::Absent("no token"),
            Reload::No,
            "File whose first line is the bearer token of the admin API.",
            "At least 16 characters. A file and not a value, so that configuration files can be shown and committed.",
        ),
    ],
};

static PURGE: Section = Section {
    name: "purge",
    about: "The PURGE method on client addresses. The admin API purges without it.",
    options: &[row(
        "token_file",
        Kind::SecretFile,
        Preset::Absent("PURGE is forwarded like any unknown method"),
        Reload::Yes,
        "File with the bearer token for PURGE requests in its first line.",
        "At least 16 characters. With it no PURGE is forwarded: one without the token gets 401, one with another 403.",
    )],
};

static LIMITS: Section = Section {
    name: "limits",
    about: "What clients may use. A request over a limit is refused with the status that is named here.",
    options: &[
        row(
            "connections_max",
            Kind::Integer { min: 1, max: 10_000_000 },
            Preset::Is("10000"),
            Reload::Yes,
            "Open client connections over all workers.",
            "A new one takes the place of one that waits for a request: the one that has waited longest, of the client with most connections. See also `client_share_percent`. Where there is none to be closed, the new one waits half a second for a place, with 63 others at most, and is closed. Each needs a file descriptor, and another towards the origin while it forwards: keep it below half of the process's limit.",
        ),
        row(
            "client_share_percent",
            Kind::Integer { min: 1, max: 100 },
            Preset::Is("50"),
            Reload::Yes,
            "What one client may have of all connections when all are taken, in percent, rounded up; of all compressions; and of half of the memory, for what it leaves unread.",
            "Of a client with more, connections that are in use give way to other clients too, the longest used first; and a new one of its own gets in only for one of its own that waits for a request. A client is an IPv4 address or a /64 network of IPv6, with the PROXY protocol the one that it names. Peers in `trusted_proxies` have no share: many clients stand behind each. Where a response finds no room in `store.memory`, the client whose slow readers keep most bodies that are not stored, with the encoders that compress them, loses the oldest of them, if it is above its share. `100` is no share at all.",
        ),
        row(
            "head_bytes_max",
            Kind::Size { min: KIB, max: MIB },
            Preset::Is("\"64KiB\""),
            Reload::Yes,
            "Request line and header section together (431; over HTTP/2 the connection ends instead, without a response).",
            "HTTP/2 clients are told of it by `SETTINGS_MAX_HEADER_LIST_SIZE`.",
        ),
        row(
            "fields_max",
            Kind::Integer { min: 1, max: 10_000 },
            Preset::Is("100"),
            Reload::Yes,
            "Header field lines in a request (431).",
            "",
        ),
        row(
            "target_bytes_max",
            Kind::Size { min: 64, max: MIB },
            Preset::Is("\"8KiB\""),
            Reload::Yes,
            "Request target (414).",
            "",
        ),
        row(
            "body_bytes_max",
            Kind::Size { min: 0, max: TIB },
            Preset::Is("\"100MiB\""),
            Reload::Yes,
            "Request body (413).",
            "Bodies are passed on as they arrive and need no memory of that size.",
        ),
        row(
            "head_read_timeout",
            LIMIT,
            Preset::Is("\"10s\""),
            Reload::Yes,
            "From the first byte of a request, or from accept, to the end of its header section (408).",
            "A client that sends a byte of its header section now and then is closed after this time, and before where others need its connection: see `connections_max`.",
        ),
        row(
            "body_read_timeout",
            LIMIT,
            Preset::Is("\"30s\""),
            Reload::Yes,
            "Between two reads of a request body (408).",
            "",
        ),
        row(
            "body_rate_min",
            Kind::Size { min: 0, max: TIB },
            Preset::Is("500"),
            Reload::Yes,
            "Bytes of a request body a second, over the time that is waited for them (408); `0` for any.",
            "A client that is slower uses up `body_read_timeout` bit by bit, so that a byte now and then does not hold an upload. Lower it for clients that send a long request on purpose slowly.",
        ),
        row(
            "idle_timeout",
            LIMIT,
            Preset::Is("\"60s\""),
            Reload::Yes,
            "Between two requests of a kept connection; it is then closed without an answer.",
            "",
        ),
        row(
            "write_timeout",
            LIMIT,
            Preset::Is("\"30s\""),
            Reload::Yes,
            "Without progress while writing a response; the connection is then closed.",
            "Also how long, once its response has begun, an HTTP/1 client that has closed its sending side is waited for while there is nothing to send to it: it may be gone, or still read.",
        ),
        row(
            "write_rate_min",
            Kind::Size { min: 0, max: TIB },
            Preset::Is("500"),
            Reload::Yes,
            "Bytes of a response a second, over the time that is waited for the client to take them; `0` for any.",
            "A client that is slower uses up `write_timeout` bit by bit; the connection is then closed. Time in which there is nothing to send doesn't count.",
        ),
        row(
            "tunnel_idle_timeout",
            Kind::Duration { min_ms: 1, max_ms: DAY_MS },
            Preset::Is("\"5m\""),
            Reload::Yes,
            "Without a byte in either direction of a tunnel (WebSocket); it is then closed.",
            "Most applications send something at least every minute. `origin.pool.tunnels_max` limits their number.",
        ),
        row(
            "requests_per_connection_max",
            Kind::Integer { min: 1, max: u32::MAX as u64 },
            Preset::Is("1000000"),
            Reload::Yes,
            "Requests answered on one connection before it is closed.",
            "Lower it where a balancer in front should spread long-lived connections anew.",
        ),
        row(
            "http2_streams_max",
            Kind::Integer { min: 1, max: 10_000 },
            Preset::Is("128"),
            Reload::Yes,
            "HTTP/2: concurrent streams of a connection.",
            "",
        ),
        row(
            "http2_resets_max",
            Kind::Integer { min: 1, max: 10_000 },
            Preset::Is("64"),
            Reload::Yes,
            "HTTP/2: streams that the peer reset before they were accepted; more close the connection.",
            "Stops the rapid-reset attack, in which a client opens and resets streams faster than they can be answered.",
        ),
        row(
            "http2_send_buffer_bytes_max",
            Kind::Size { min: 16 * KIB, max: 16 * MIB },
            Preset::Is("\"256KiB\""),
            Reload::Yes,
            "HTTP/2: bytes of responses that a connection holds for all its streams together, before the sender is held back.",
            "",
        ),
        row(
            "compressions_max",
            Kind::Integer { min: 1, max: 10_000 },
            Preset::Is("64"),
            Reload::Yes,
            "Responses that are compressed at the same time; further ones are sent as they are.",
            "As many of them as there are workers take a processor. One client has at most `client_share_percent` of them. Each takes up to 3MiB of `store.memory` meanwhile, and more at high levels of Brotli.",
        ),
    ],
};

static LOG: Section = Section {
    name: "log",
    about: "Logs (what Larder does) go to standard error; the access log (what clients asked) goes where `access` says.",
    options: &[
        row(
            "level",
            LEVEL,
            Preset::Is("\"info\""),
            Reload::Yes,
            "Log level. A release build has no events below `debug`.",
            "",
        ),
        row(
            "format",
            Kind::Choice(&["text", "json"]),
            Preset::Is("\"text\""),
            Reload::No,
            "Form of log lines.",
            "",
        ),
        row(
            "access",
            Kind::Text("`off`, `stdout` or the path of a file"),
            Preset::Is("\"off\""),
            Reload::No,
            "Where the access log goes.",
            "SIGUSR1 or a reload opens the file again, which is what log rotation needs.",
        ),
        row(
            "access_format",
            Kind::Choice(&["json", "combined"]),
            Preset::Is("\"json\""),
            Reload::No,
            "Form of access log lines.",
            "",
        ),
        row(
            "access_queue_lines_max",
            Kind::Integer { min: 1, max: 10_000_000 },
            Preset::Is("65536"),
            Reload::No,
            "Access log lines that may wait for the disk; more are dropped and counted.",
            "Requests never wait for the access log.",
        ),
        row(
            "redact",
            Kind::List(&Kind::Text("name of a query parameter")),
            Preset::Is("[\"token\", \"access_token\", \"key\", \"api_key\", \"password\", \"secret\"]"),
            Reload::No,
            "Query parameters whose values are left out of the access log.",
            "For keys and personal data that clients put into URLs.",
        ),
    ],
};
