//! The checked configuration of the data plane.
//!
//! These types hold decisions, not text: patterns are compiled, certificates are loaded, and every number has passed its range check.
//! Only the `larder` binary knows the file format; it builds a complete [`Config`] at start and at each reload.

mod answer;
mod clients;
mod protection;
mod rule;
#[cfg(test)]
pub(crate) mod sample;
mod transform;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use answer::{
    Compression, Cors, CorsHeaders, CorsOrigins, ErrorPage, Levels, Maintenance, Page, PersonalResponses,
    Sharing,
};
pub use clients::{ClientLimits, ClientRules};
pub use ipnet::IpNet;
pub use protection::{
    ClientPrefixes, CountedRequests, DefaultResponse, Enforcement, QuotaFields, Rate, RateLimit,
    RuleProtection, SITE_POLICY, SiteProtection,
};
pub use rule::{
    CacheRule, CloseDelimited, MethodSet, OverrideFields, PathPattern, PathSpelling, PathSpellings,
    PreconditionMiss, RangeMiss, Spelling, codings_of,
};
use telemetry::Redaction;
use telemetry::trace::Sampling;
pub use transform::{Conditions, FieldPattern, TransformRule, Transforms};

use cache::settings::{CollapseLimits, FileUse, StorageRules};
use message::client::TrustedProxies;
use message::head::Version;
use origin::settings::{OriginConfig, OriginTimeouts};

pub use crate::transform::{Action, Phase};
pub(crate) use crate::urls::path_of;

/// Everything the data plane needs to run. Immutable; a reload replaces it as a whole.
#[derive(Clone, Debug)]
pub struct Config {
    /// Tracing of requests; absent: nothing is recorded, and trace fields of clients are forwarded unchanged. A reload can't
    /// change it.
    pub tracing: Option<TracingConfig>,
    /// Addresses that accept client connections. A reload can't change them.
    pub listeners: Vec<ListenerConfig>,
    /// Number of worker threads, each with its own runtime and `SO_REUSEPORT` listeners. A reload can't change it.
    pub workers: usize,
    /// Limits on clients.
    pub limits: ClientLimits,
    /// Stores, at least one. The first store also has the responses that belong to no site. A reload can't add or remove stores.
    pub stores: Vec<StoreConfig>,
    /// Authorisation of PURGE requests; absent: they are forwarded.
    pub purge_method: Option<PurgeMethod>,
    /// Sites in the order of the file. The most specific host, then the longest path prefix wins.
    pub sites: Vec<Arc<Site>>,
    /// Name in `Via` and `Cache-Status`.
    pub server_name: String,
    /// Peers whose `X-Forwarded-*` and `Forwarded` fields are trusted and extended.
    pub trusted_proxies: TrustedProxies,
    /// Time limit for requests in flight after a stop is requested.
    pub drain_limit: Duration,
}

/// Requests that are recorded as spans of a trace.
#[derive(Clone, Debug)]
pub struct TracingConfig {
    /// Share of new traces that is recorded.
    pub sampling: Sampling,
    /// Peers whose `traceparent` is trusted.
    pub accept_parent: AcceptParent,
    /// Parts of URLs that are redacted.
    pub redaction: Redaction,
}

/// Peers whose `traceparent` is trusted: the field decides whether a request is recorded, and in which trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptParent {
    /// All peers.
    Always,
    /// Trusted proxies. A request of another peer gets its own trace, linked to the trace of the peer.
    FromTrustedProxies,
    /// No peers.
    Never,
}

/// A store: memory, with an optional tier behind it, for the sites that name it.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Unique name; [`DEFAULT_STORE`] for the first.
    pub name: String,
    /// Memory for stored, filling and pinned bytes. A reload can't change it.
    pub memory_bytes_max: u64,
    /// Maximum number of stored responses per cache key that differ by nominated fields.
    pub variants_max: usize,
    /// Maximum number of entity tags in one validation request.
    pub validation_tags_max: usize,
    /// Maximum number of groups of a stored response, and maximum number of groups that one response invalidates.
    pub groups_max: usize,
}

/// Name of the default store.
pub const DEFAULT_STORE: &str = "default";

/// Index into [`Config::stores`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoreIndex(pub usize);

impl Config {
    pub(crate) fn file_use(&self) -> FileUse {
        let is_plain = self.listeners.iter().any(|listener| listener.tls.is_none());
        if is_plain { FileUse::LargeBodies } else { FileUse::None }
    }

    /// Returns the rules for storing responses to requests that match a rule of a site.
    pub(crate) fn storage_rules<'a>(&self, site: &Site, rule: &'a CacheRule) -> StorageRules<'a> {
        rule.storage(self.store(site).groups_max)
    }

    /// Settings of a site's store.
    pub(crate) fn store(&self, site: &Site) -> &StoreConfig {
        &self.stores[site.store.0]
    }
}

type IsToken = dyn Fn(&[u8]) -> bool + Send + Sync;

/// Authorisation of the method PURGE.
#[derive(Clone)]
pub struct PurgeMethod {
    is_token: Arc<IsToken>,
}

impl PurgeMethod {
    /// Creates an authorisation. `is_token` checks a bearer token in constant time, so that the time reveals only the result.
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

/// An address that accepts client connections.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// Address; port 0 binds a free port.
    pub address: SocketAddr,
    /// TLS with certificates chosen by SNI; absent means cleartext.
    pub tls: Option<ListenerTls>,
    /// Whether each connection starts with a PROXY protocol header.
    pub proxy_protocol: ProxyProtocol,
    /// Peers that may send such a header, which names the client.
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
    /// HTTP/2 if the peer requests it.
    On,
}

/// Certificates of a TLS listener, already read and checked.
#[derive(Clone, Debug)]
pub struct ListenerTls {
    /// At least one certificate. The first certificate is used for server names that match no other.
    pub certificates: Vec<Certificate>,
}

impl ListenerTls {
    /// Returns whether both settings are the same for clients: the same names with the same certificates. The keys aren't compared,
    /// because equal certificates have equal keys.
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
    /// Server names (exact, or `*.example.org`) for this certificate. If the file lists none, they are its subject alternative names.
    pub names: Vec<String>,
    /// Chain and key in the form that rustls uses.
    pub key: Arc<rustls::sign::CertifiedKey>,
}

/// A set of URLs with one origin and one list of cache rules.
#[derive(Clone, Debug)]
pub struct Site {
    /// Unique name, used in metrics and logs and as a part of every cache key.
    pub name: String,
    /// Host names (lower case, without port; `*.example.org` for subdomains). Empty means any host.
    pub hosts: Vec<String>,
    /// Path prefix on a segment boundary; `/` means every path.
    pub path_prefix: String,
    /// How closely the start of a path must match the prefix.
    pub spelling: Spelling,
    /// Clients that the site answers.
    pub clients: ClientRules,
    /// Limits on each client.
    pub protection: SiteProtection,
    /// Treatment of the prefix on the way to the origin.
    pub prefix: PrefixHandling,
    /// Origin for requests that the cache can't answer.
    pub origin: Arc<OriginConfig>,
    /// Store of its responses. A reload can't change the store of an existing site.
    pub store: StoreIndex,
    /// Cache rules; the first match decides. If none matches, the built-in default rule applies.
    pub rules: Vec<CacheRule>,
    /// Profile of the built-in rule.
    pub profile: caching::Profile,
    /// Whether concurrent requests for one cache key share one forward.
    pub collapse: Collapse,
    /// Time limits towards the origin.
    pub timeouts: OriginTimeouts,
    /// Header fields removed from requests before they're forwarded.
    pub request_fields_hidden: Vec<http::HeaderName>,
    /// If the list isn't empty, only these request fields are forwarded (Host and framing fields always are).
    pub request_fields_forwarded: Vec<http::HeaderName>,
    /// Request fields that are part of the cache key.
    pub request_fields_keyed: Vec<http::HeaderName>,
    /// Treatment of request fields with `_` in their names.
    pub underscore_fields: UnderscoreFields,
    /// Tags by which responses can be purged.
    pub tags: caching::tags::TagRules,
    /// Header fields removed from responses before they're stored and delivered.
    pub response_fields_hidden: Vec<http::HeaderName>,
    /// Whether error bodies show the cause.
    pub expose_errors: ErrorExposure,
    /// Most verbose level that is logged for this site.
    pub log_level: tracing::Level,
    /// Whether responses carry an `X-Cache: HIT|MISS|...` line.
    pub x_cache: XCache,
    /// Clients that receive interim responses of the origin.
    pub interim_responses: InterimResponses,
    /// Whether responses carry `Server-Timing`.
    pub server_timing: ServerTiming,
    /// Treatment of `traceparent` and `tracestate`.
    pub trace_fields: TraceFields,
    /// Changes to messages.
    pub transforms: Transforms,
    /// Access from other web origins; absent: the origin's CORS fields apply.
    pub cors: Option<Cors>,
    /// Maintenance response in place of the site; absent: no maintenance.
    pub maintenance: Option<Maintenance>,
    /// Bodies of the gateway's own errors; the first match is used.
    pub error_pages: Vec<ErrorPage>,
    /// Compression of responses for rules that don't set it; absent: none.
    pub compression: Option<Arc<Compression>>,
}

/// Treatment of request fields with `_` in their names, which CGI and WSGI can't distinguish from names with `-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnderscoreFields {
    /// Removed.
    Drop,
    /// Forwarded, unless the same name with `-` is a known field that isn't forwarded.
    Forward,
}

/// Treatment of a site's path prefix on the way to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixHandling {
    /// Forwarded as received.
    Keep,
    /// The prefix is removed; the remaining path starts with `/`.
    Strip,
}

/// Whether bodies of the gateway's own errors show the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorExposure {
    /// Bodies show the status only.
    Hide,
    /// Bodies show the cause in one line.
    Expose,
}

/// Clients that receive interim (1xx) responses of the origin. All clients except HTTP/1.0 ones receive a 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterimResponses {
    /// HTTP/2 clients only, because many HTTP/1.1 clients mistake an interim response for the final one.
    Http2,
    /// All clients except HTTP/1.0 ones.
    All,
    /// No clients.
    Off,
}

impl InterimResponses {
    /// Default for a profile.
    #[must_use]
    pub fn for_profile(profile: caching::Profile) -> Self {
        match profile {
            caching::Profile::Safe => Self::Http2,
            caching::Profile::Rfc9111 => Self::All,
        }
    }

    /// Returns whether a client with this HTTP version receives an interim response with this status.
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

/// Whether responses carry timings in `Server-Timing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerTiming {
    /// Never.
    Off,
    /// Only responses to requests with `Larder-Timing`.
    OnRequest,
    /// Always.
    Always,
}

/// Treatment of `traceparent` and `tracestate` on the way to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFields {
    /// Forwarded like any field.
    Forwarded,
    /// Replaced by new values in each request to the origin.
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
    /// One forward per key in all processes that share the tier behind memory. Without a tier, this is the same as
    /// [`Collapse::Process`].
    Fleet(CollapseLimits),
}

impl Collapse {
    /// Limits on waiting; `None` if requests don't wait for each other.
    pub(crate) fn limits(self) -> Option<CollapseLimits> {
        match self {
            Self::Off => None,
            Self::Process(limits) | Self::Fleet(limits) => Some(limits),
        }
    }

    /// Lifetime of a hit-for-miss, in milliseconds.
    pub(crate) fn uncacheable_for_ms(self) -> i64 {
        let remembered = self.limits().map(|limits| limits.uncacheable_for.as_millis());
        remembered.map_or(0, |ms| i64::try_from(ms).unwrap_or(i64::MAX))
    }
}

/// Destination of the access log. The destination is part of this configuration because the data plane writes the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogTarget {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// This file. Lines are appended, and a reload reopens the file.
    File(PathBuf),
}
