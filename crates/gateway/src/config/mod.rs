//! The checked configuration of the data plane.
//!
//! These types hold decisions, not text: patterns are compiled, certificates are loaded, every number
//! has passed its range check. Only the `larder` binary knows the file format; it builds a [`Config`]
//! and hands it over whole, at start and at each reload.

mod answer;
mod compression;
mod imprint;
mod protection;
mod rule;
#[cfg(test)]
pub(crate) mod sample;
mod template;
mod transform;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use answer::{Cors, CorsHeaders, CorsOrigins, ErrorPage, Maintenance, Page, Sharing};
pub use compression::{Compression, Levels, PersonalResponses};
pub use imprint::Imprint;
pub use ipnet::IpNet;
pub use protection::{
    ClientPrefixes, CountedRequests, DefaultResponse, Enforcement, QuotaFields, Rate, RateLimit,
    RuleProtection, SITE_POLICY, SiteProtection,
};
pub use rule::{
    CacheRule, CloseDelimited, MethodSet, OverrideFields, PathPattern, PathSpelling, PathSpellings,
    PreconditionMiss, RangeMiss, Spelling, codings_of,
};
pub(crate) use rule::{path_of, starts_with_any_case};
use telemetry::Redaction;
use telemetry::trace::Sampling;
pub(crate) use template::Piece;
pub use template::{Template, Variable};
pub use transform::{
    Action, Conditions, CookieChange, FieldPattern, Phase, PrefixChange, Redirect, Rewrite, TransformRule,
    Transforms,
};

use message::client::{TrustedProxies, is_within};
use message::head::Version;
use origin::settings::{OriginConfig, OriginTimeouts};

use crate::pace::{BodyLimits, PaceLimits};

/// Everything the data plane needs to run. Immutable; a reload replaces it as a whole.
#[derive(Clone, Debug)]
pub struct Config {
    /// How requests are traced; absent: nothing is recorded, and what clients say of traces is forwarded as it is. A reload can't change it.
    pub tracing: Option<TracingConfig>,
    /// Addresses that accept client connections. A reload can't change them.
    pub listeners: Vec<ListenerConfig>,
    /// Number of worker threads, each with its own runtime and `SO_REUSEPORT` listeners. A reload can't change it.
    pub workers: usize,
    /// Limits on what clients may use.
    pub limits: ClientLimits,
    /// Where responses are stored; at least one. The first also has what belongs to no site. A reload can't change which there are.
    pub stores: Vec<StoreConfig>,
    /// Whether the method PURGE purges; else it is forwarded.
    pub purge_method: Option<PurgeMethod>,
    /// Sites in the order of the file. The most specific host, then the longest path prefix wins.
    pub sites: Vec<Arc<Site>>,
    /// Name in `Via` and `Cache-Status`.
    pub server_name: String,
    /// Peers whose `X-Forwarded-*` and `Forwarded` fields are believed and extended.
    pub trusted_proxies: TrustedProxies,
    /// How long requests in flight may go on after a stop was asked for.
    pub drain_limit: Duration,
}

/// Which requests are recorded as spans of a trace.
#[derive(Clone, Debug)]
pub struct TracingConfig {
    /// Which of the traces that begin here.
    pub sampling: Sampling,
    /// Whose `traceparent` is believed.
    pub accept_parent: AcceptParent,
    /// What stays out of URLs.
    pub redaction: Redaction,
}

/// Whose `traceparent` is believed: what it says decides whether a request is recorded, and under which name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptParent {
    /// Everybody's.
    Always,
    /// That of a trusted proxy. Others get a trace of their own, which names theirs.
    FromTrustedProxies,
    /// Nobody's.
    Never,
}

/// One of the stores: memory, with what is behind it, for the sites that name it.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Unique; [`DEFAULT_STORE`] for the first.
    pub name: String,
    /// Bytes that the memory tier may use for everything it holds: stored, filling and pinned. A reload can't change it.
    pub memory_bytes_max: u64,
    /// Stored responses that differ only by nominated fields, kept per cache key at most.
    pub variants_max: usize,
    /// Stored responses of one cache key whose entity tags one validation request names.
    pub validation_tags_max: usize,
    /// Groups of a stored response, and groups that one response invalidates, that are told apart.
    pub groups_max: usize,
}

/// Whether large bodies lie in files, from which the kernel sends them: that only helps clients without TLS, and costs the others a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileUse {
    LargeBodies,
    None,
}

/// The name of the store of sites that name none.
pub const DEFAULT_STORE: &str = "default";

/// Which of [`Config::stores`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoreIndex(pub usize);

impl Config {
    pub(crate) fn file_use(&self) -> FileUse {
        let is_plain = self.listeners.iter().any(|listener| listener.tls.is_none());
        if is_plain { FileUse::LargeBodies } else { FileUse::None }
    }

    /// The settings of a site's store.
    pub(crate) fn store(&self, site: &Site) -> &StoreConfig {
        &self.stores[site.store.0]
    }
}

type IsToken = dyn Fn(&[u8]) -> bool + Send + Sync;

/// Who may purge with the method PURGE.
#[derive(Clone)]
pub struct PurgeMethod {
    is_token: Arc<IsToken>,
}

impl PurgeMethod {
    /// `is_token` tells whether bytes are the bearer token, in a time that tells nothing else.
    pub fn new(is_token: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self { is_token: Arc::new(is_token) }
    }

    pub(crate) fn is_token(&self, text: &[u8]) -> bool {
        (self.is_token)(text)
    }
}

impl fmt::Debug for PurgeMethod {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PurgeMethod(..)")
    }
}

/// One address that accepts client connections.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// Address; port 0 takes a free port.
    pub address: SocketAddr,
    /// TLS with certificates chosen by SNI; absent means cleartext.
    pub tls: Option<ListenerTls>,
    /// Whether each connection starts with a PROXY protocol header.
    pub proxy_protocol: ProxyProtocol,
    /// Peers that may send one: whoever sends it names the client.
    pub proxy_protocol_from: Vec<IpNet>,
    /// Whether HTTP/2 is offered (ALPN on TLS, prior knowledge in cleartext).
    pub http2: Http2,
}

/// Whether a listener expects the PROXY protocol (v1 or v2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// Connections start with HTTP or TLS.
    Off,
    /// Connections start with a PROXY header; one without it is closed.
    Required,
}

/// Whether HTTP/2 is offered to clients or used towards an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http2 {
    /// HTTP/1.1 only.
    Off,
    /// HTTP/2 where the peer asks for it.
    On,
}

/// Certificates of a TLS listener, already read and checked.
#[derive(Clone, Debug)]
pub struct ListenerTls {
    /// At least one; the first answers names that match none.
    pub certificates: Vec<Certificate>,
}

impl ListenerTls {
    /// Whether clients see no difference: the same names, answered by the same certificates. Whose certificate is the
    /// same has the same key.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let answers = |tls: &Self| {
            let of = |certificate: &Certificate| (certificate.names.clone(), certificate.key.cert.clone());
            tls.certificates.iter().map(of).collect::<Vec<_>>()
        };
        answers(self) == answers(other)
    }
}

/// A certificate chain with its private key, chosen by SNI.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Server names (exact, or `*.example.org`) that this certificate answers; from its subject
    /// alternative names when the file gives none.
    pub names: Vec<String>,
    /// Chain and key in the form that rustls signs with.
    pub key: Arc<rustls::sign::CertifiedKey>,
}

/// What clients may use. Each has a key in the configuration file.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Open client connections over all workers.
    pub connections_max: usize,
    /// What one client may have of them when all are taken, in percent.
    pub client_share_percent: usize,
    /// Request head: request line and header section (431).
    pub head_bytes_max: usize,
    /// Header field lines in a request (431).
    pub fields_max: usize,
    /// Request target (414).
    pub target_bytes_max: usize,
    /// Request body (413).
    pub body_bytes_max: u64,
    /// From accept or the first byte to the end of a request head (408).
    pub head_read_timeout: Duration,
    /// Between two reads of a request body (408).
    pub body_read_timeout: Duration,
    /// Bytes of a request body a second, over the time that is waited for them (408); 0: any.
    pub body_rate_min: u64,
    /// Between two requests of a kept connection (closed without an answer).
    pub idle_timeout: Duration,
    /// Without progress while writing a response (connection closed).
    pub write_timeout: Duration,
    /// Bytes of a response a second, over the time that is waited for the client to take them (connection closed); 0: any.
    pub write_rate_min: u64,
    /// Without a byte in either direction of a tunnel (closed).
    pub tunnel_idle_timeout: Duration,
    /// Requests answered on one connection before it's closed.
    pub requests_per_connection_max: u64,
    /// HTTP/2: concurrent streams of a connection.
    pub http2_streams_max: u32,
    /// HTTP/2: streams reset by the peer before they were accepted (rapid reset), then the connection is closed.
    pub http2_resets_max: usize,
    /// HTTP/2: bytes of response data that a connection holds, for all its streams, before the origin is held back.
    pub http2_send_buffer_bytes_max: usize,
    /// Responses that are being compressed at a time; more go as they came.
    pub compressions_max: usize,
}

impl ClientLimits {
    /// What one client may have of all connections when all are taken.
    pub(crate) fn connections_of_client_max(&self) -> usize {
        self.connections_max.saturating_mul(self.client_share_percent).div_ceil(100).max(1)
    }

    /// How many responses may be compressed for one client at a time.
    pub(crate) fn compressions_of_client_max(&self) -> usize {
        self.compressions_max.saturating_mul(self.client_share_percent).div_ceil(100).max(1)
    }

    /// What request bodies may take where no rule says.
    pub(crate) fn body_limits(&self) -> BodyLimits {
        BodyLimits {
            bytes_max: self.body_bytes_max,
            pace: PaceLimits { stall_max: self.body_read_timeout, rate_min: self.body_rate_min },
            answered_idle_max: self.tunnel_idle_timeout,
        }
    }

    /// How slowly a response may be taken.
    pub(crate) fn write_pace(&self) -> PaceLimits {
        PaceLimits { stall_max: self.write_timeout, rate_min: self.write_rate_min }
    }
}

/// Whose requests a site answers, by the address of the client.
#[derive(Clone, Debug, Default)]
pub struct ClientRules {
    /// When not empty, nobody else's.
    pub allowed: Vec<IpNet>,
    /// Not theirs, whatever is allowed.
    pub denied: Vec<IpNet>,
}

impl ClientRules {
    /// Whether it answers all, so that nobody needs to know the address.
    pub(crate) fn are_open(&self) -> bool {
        self.allowed.is_empty() && self.denied.is_empty()
    }

    /// Whether it answers a client.
    pub(crate) fn admit(&self, client: IpAddr) -> bool {
        !is_within(&self.denied, client) && (self.allowed.is_empty() || is_within(&self.allowed, client))
    }
}

/// A set of URLs with one origin and one list of cache rules.
#[derive(Clone, Debug)]
pub struct Site {
    /// Unique name: appears in metrics, logs, and is a part of every cache key.
    pub name: String,
    /// Host names (lower case, without port; `*.example.org` for subdomains). Empty means any host.
    pub hosts: Vec<String>,
    /// Path prefix on a segment boundary; `/` means every path.
    pub path_prefix: String,
    /// How closely the begin of a path must be written like that.
    pub spelling: Spelling,
    /// Whose requests it answers.
    pub clients: ClientRules,
    /// How much of it each client may have.
    pub protection: SiteProtection,
    /// What happens to the prefix on the way to the origin.
    pub prefix: PrefixHandling,
    /// Where requests go that the cache can't answer.
    pub origin: Arc<OriginConfig>,
    /// Where its responses are stored. A reload can't change it for a site that stays.
    pub store: StoreIndex,
    /// Cache rules; the first whose match fits decides. None fits: the built-in default rule.
    pub rules: Vec<CacheRule>,
    /// What the built-in rule decides.
    pub profile: caching::Profile,
    /// Whether concurrent requests for one cache key share one forward.
    pub collapse: Collapse,
    /// Time limits towards the origin.
    pub timeouts: OriginTimeouts,
    /// Header fields that are taken out of requests before they're forwarded.
    pub request_fields_hidden: Vec<http::HeaderName>,
    /// When not empty, only these request fields are forwarded (Host and framing always are).
    pub request_fields_forwarded: Vec<http::HeaderName>,
    /// Request fields that are part of the cache key.
    pub request_fields_keyed: Vec<http::HeaderName>,
    /// What becomes of request fields with `_` in their names.
    pub underscore_fields: UnderscoreFields,
    /// By which tags responses can be purged.
    pub tags: caching::tags::TagRules,
    /// Header fields that are taken out of responses before they're stored and delivered.
    pub response_fields_hidden: Vec<http::HeaderName>,
    /// Whether response bodies may say what went wrong.
    pub expose_errors: ErrorExposure,
    /// Least severe level that is logged for this site.
    pub log_level: tracing::Level,
    /// Whether responses carry an `X-Cache: HIT|MISS|...` line.
    pub x_cache: XCache,
    /// Which clients get interim responses of the origin.
    pub interim_responses: InterimResponses,
    /// Whether responses tell what took how long.
    pub server_timing: ServerTiming,
    /// What becomes of `traceparent` and `tracestate`.
    pub trace_fields: TraceFields,
    /// What is changed of the messages that pass.
    pub transforms: Transforms,
    /// Which other web origins may read its responses; absent: what its origin says.
    pub cors: Option<Cors>,
    /// What clients get in place of it, if that is so.
    pub maintenance: Option<Maintenance>,
    /// Bodies of errors of the gateway's own; the first that fits counts.
    pub error_pages: Vec<ErrorPage>,
    /// How responses are compressed on their way out where no rule decides; absent: they are not.
    pub compression: Option<Arc<Compression>>,
}

/// What becomes of request fields with `_` in their names, which CGI and WSGI can't tell from those with `-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnderscoreFields {
    /// They are not forwarded.
    Drop,
    /// They are forwarded, unless the field is known with `-` and would not be.
    Forward,
}

/// What happens to a site's path prefix on the way to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixHandling {
    /// Forwarded as received.
    Keep,
    /// Cut off; the rest starts with `/`.
    Strip,
}

/// Whether response bodies of errors that the gateway made say what went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorExposure {
    /// The status alone.
    Hide,
    /// The cause in one line.
    Expose,
}

/// Which clients get interim (1xx) responses of the origin. All get 100, which every client of HTTP/1.1 knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterimResponses {
    /// Those of HTTP/2: many of HTTP/1.1 take the first response for the final one.
    Http2,
    /// All but those of HTTP/1.0.
    All,
    /// None.
    Off,
}

impl InterimResponses {
    /// Where nothing is configured.
    #[must_use]
    pub fn for_profile(profile: caching::Profile) -> Self {
        match profile {
            caching::Profile::Safe => Self::Http2,
            caching::Profile::Rfc9111 => Self::All,
        }
    }

    /// Whether a client gets one.
    //= RFC 9110 section 15.2: no 1xx to HTTP/1.0 clients
    //= RFC 8297 section 3: 103 only for clients that know it
    pub(crate) fn passes(self, status: http::StatusCode, version: Version) -> bool {
        match version {
            Version::Http10 => false,
            Version::Http11 => self == Self::All || status == http::StatusCode::CONTINUE,
            Version::Http2 => self != Self::Off || status == http::StatusCode::CONTINUE,
        }
    }
}

/// Whether responses tell in `Server-Timing` what took how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerTiming {
    /// No.
    Off,
    /// To requests that ask for it with `Larder-Timing`.
    OnRequest,
    /// Yes.
    Always,
}

/// What becomes of `traceparent` and `tracestate` on the way to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFields {
    /// They are forwarded like any field.
    Forwarded,
    /// They are written anew for each request to the origin.
    Written,
}

/// Whether responses carry an `X-Cache` line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XCache {
    /// No such line.
    Off,
    /// `X-Cache: HIT`, `MISS`, `STALE`, `REVALIDATED`, `BYPASS`, `LOCAL`, ...
    On,
}

/// Whether concurrent requests for one cache key share one forward (RFC 9111 section 4: collapse).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collapse {
    /// Each request is forwarded on its own.
    Off,
    /// One forward per key in this process.
    Process(CollapseLimits),
    /// The same, and one for all processes that share the tier behind memory. Without one, as in this process.
    Fleet(CollapseLimits),
}

/// Bounds on waiting for another request's forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollapseLimits {
    /// Longest wait for the response head before one waiter forwards again, for all.
    pub wait_max: Duration,
    /// Waiters per forward; more are forwarded on their own.
    pub waiters_max: usize,
    /// What waiters do when the forward fails.
    pub on_failure: LeaderFailure,
    /// How long a key that turned out uncacheable is remembered and not collapsed.
    pub uncacheable_for: Duration,
}

impl Collapse {
    /// How requests wait for each other; `None` where they do not.
    pub(crate) fn limits(self) -> Option<CollapseLimits> {
        match self {
            Self::Off => None,
            Self::Process(limits) | Self::Fleet(limits) => Some(limits),
        }
    }

    /// How long a key that turned out uncacheable is remembered, in milliseconds.
    pub(crate) fn uncacheable_for_ms(self) -> i64 {
        let remembered = self.limits().map(|limits| limits.uncacheable_for.as_millis());
        remembered.map_or(0, |ms| i64::try_from(ms).unwrap_or(i64::MAX))
    }
}

/// What waiters do when the forward that they wait for fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaderFailure {
    /// All get the error of the failed forward: spares an origin in trouble.
    Share,
    /// One of them forwards again, once; the others wait for it, and share its failure.
    HandOver,
}

/// Where the access log goes; kept beside the data plane's configuration because the data plane writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogTarget {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// Appended to this file; reopened on reload.
    File(PathBuf),
}
