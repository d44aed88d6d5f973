//! Reason codes of the policy and of the data plane.

use caching::{NotReused, NotStored, reason_codes};

reason_codes! {
    /// Reason codes of the data plane, in addition to those of the policy.
    pub enum Reason {
        KnownUncacheable = "known-uncacheable", "", "A response for this key could not be stored a short while ago (`uncacheable_for`).";
        Upgrade = "upgrade", "RFC 9110 section 7.8", "The request asks to upgrade to another protocol, such as WebSocket.";
        RequestContent = "request-content", "RFC 9111 section 4", "The request has content, which takes no part in the cache key.";
        QueryContent = "query-content", "RFC 10008 section 2.7", "The content of the QUERY is too large for a cache key (`query_content_bytes_max`), or there is no memory for it.";
        QueryUntyped = "query-untyped", "RFC 10008 section 2", "The QUERY doesn't have exactly one `Content-Type` for its content.";
        CollapseGivenUp = "collapse-given-up", "", "Waiting for another request's forward reached its limits.";
        CollapseFailed = "collapse-failed", "RFC 9111 section 4", "The forwards that the request waited for failed, and its own turn to forward did not come.";
        CollapseFleet = "collapse-fleet", "RFC 9111 section 4", "Another instance that shares the store fetched the response, and this one waited for it.";
        SegmentEvicted = "segment-evicted", "", "A part of the stored body was evicted before it was needed.";
        TooLarge = "object-too-large", "", "The body is larger than `object_bytes_max`, or too large for the store.";
        MemoryFull = "memory-full", "", "Fills in progress and responses that are being read occupy the memory.";
        StoreFull = "store-full", "", "The store did not accept the response.";
        VariantsMax = "variants-max", "RFC 9111 section 4.1", "The maximum number of variants of the URL (`store.variants_max`) is in use, and none can be evicted.";
        Outdated = "outdated", "RFC 9111 section 4", "A purge, an invalidation or a newer response arrived while this response was in transit.";
        CloseDelimited = "close-delimited", "RFC 9112 section 8", "The body ends with the connection, so it may be incomplete (`close_delimited`).";
        UnknownTransferCoding = "unknown-transfer-coding", "RFC 9112 section 6.3", "The response has a transfer coding that can't be decoded, so its end is uncertain.";
        MaxStale = "max-stale", "RFC 9111 section 5.2.1.2", "The request accepts a stale response.";
        RefreshAhead = "refresh-ahead", "RFC 9111 section 4.2", "Fresh, and a validation runs in the background, because the lifetime ends soon (`refresh_ahead_percent`).";
        StaleWhileRevalidate = "stale-while-revalidate", "RFC 5861 section 3", "Stale, and a validation runs in the background.";
        SharedStore = "shared-store", "RFC 9211 section 2.8", "The stored response came from the store that instances share (`store.remote`), and is now in memory too.";
        DefaultResponse = "default-response", "", "The origin failed without a usable stored response: `default_response` of the rule answers.";
        StaleIfError = "stale-if-error", "RFC 5861 section 4", "Stale, because the origin answered with an error.";
    }
}

reason_codes! {
    /// Reasons why the gateway answers a request itself, in addition to the codes of malformed
    /// requests ([`RequestError`](http1::RequestError), [`BodyError`](http1::BodyError)) and of failed
    /// origins.
    pub enum Refused {
        AmbiguousPath = "ambiguous-path", "RFC 3986 section 6.2.2", "Origins interpret the path in several ways, so its rules are uncertain: it has an encoded slash, a backslash, a double encoding, a semicolon, an empty segment, a dot segment or a control character that its rule does not allow (`spellings_allowed`); or some origins interpret it as a path of another site (`path_prefix`).";
        ClientDenied = "client-denied", "RFC 9110 section 15.5.4", "The site does not answer the client's address (`clients_allowed`, `clients_denied`), or a trusted proxy names it in a way that can't be read.";
        Connect = "connect", "RFC 9110 section 9.3.6", "CONNECT over HTTP/2: Larder is not a forward proxy.";
        DrainLimit = "drain-limit", "RFC 9110 section 15.6.4", "Larder ended at its `drain_limit` before there was a response: the status is only in the access log, and the client got no response.";
        DuplicateHost = "duplicate-host", "RFC 9113 section 8.3.1", "HTTP/2: the request has more than one `Host`.";
        ForwardGivenUp = "forward-given-up", "", "The forward that the request waited for ended without a response.";
        HeadTimeout = "head-timeout", "RFC 9110 section 15.5.9", "The request head did not arrive within `head_read_timeout`.";
        Http2Malformed = "http2-malformed", "RFC 9113 section 5.4.1", "HTTP/2: the client has broken the protocol, which ends the connection.";
        InvalidAuthority = "invalid-authority", "RFC 9113 section 8.3.1", "HTTP/2: `:authority` or `Host` is invalid.";
        Maintenance = "maintenance", "RFC 9110 section 15.6.4", "The site is in maintenance (`[site.maintenance]`).";
        MaxForwards = "max-forwards", "RFC 9110 section 7.6.2", "`Max-Forwards` is 0: the request is not forwarded.";
        MissingAuthority = "missing-authority", "RFC 9113 section 8.3.1", "HTTP/2: the request has neither `:authority` nor `Host`.";
        NoSite = "no-site", "RFC 9110 section 15.5.20", "No site serves the host and path of the request.";
        NothingFound = "nothing-found", "", "A PURGE found no stored response for its URL, and no fetch in progress.";
        OnlyIfCached = "only-if-cached", "RFC 9111 section 5.2.1.7", "The request accepts stored responses only, and none can be used.";
        Preflight = "preflight", "", "The answer to a CORS preflight (`[site.cors]`).";
        ProxyLoopDetected = "proxy-loop-detected", "RFC 9209 section 2.3", "The request loops: `CDN-Loop` has the number of this process (`instance`), or `Via` its `server_name` eight times.";
        PlainHttp = "plain-http", "RFC 9110 section 4.2.2", "The client sent HTTP without TLS to an address with TLS.";
        PurgeInvalid = "purge-invalid", "", "The URL of a PURGE cannot be purged.";
        PurgeUncounted = "purge-uncounted", "", "The URL was purged by the method PURGE. No response was stored under its plain key; responses whose keys include request content or fields are purged too, but not counted.";
        PurgeTokenMissing = "purge-token-missing", "RFC 9110 section 15.5.2", "A PURGE requires the token (`purge.token_file`).";
        PurgeTokenWrong = "purge-token-wrong", "RFC 9110 section 15.5.4", "The token of a PURGE differs from that of `purge.token_file`.";
        Purged = "purged", "", "The URL was purged by the method PURGE.";
        RateLimited = "rate-limited", "RFC 6585 section 4", "The client has sent more requests than a `rate_limit` of the site or the rule allows.";
        Redirect = "redirect", "RFC 9110 section 15.4", "A transformation rule of the site redirects the request.";
        RequestBodyTimeout = "request-body-timeout", "RFC 9110 section 15.5.9", "The request body did not arrive in time.";
        RequestBodyTooLarge = "request-body-too-large", "RFC 9110 section 15.5.14", "The request body is larger than `limits.body_bytes_max`, or `request_body_bytes_max` of the site or the rule.";
        RequestContentIncomplete = "request-content-incomplete", "", "The content of a QUERY was cut short.";
        RuleDenied = "rule-denied", "RFC 9110 section 15.5.4", "A rule of the site has `deny = true`.";
        TransformTooLarge = "transform-too-large", "", "Transformation rules make the header section of the message larger than the limit.";
        UploadMemory = "upload-memory", "", "HTTP/2: `store.memory` has no room for the part of a request body that the origin has not read yet.";
        UnexpectedUpgrade = "unexpected-upgrade", "RFC 9110 section 7.8", "The origin switched protocols without being asked.";
    }
}

/// A `detail` parameter of `Cache-Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    Reuse(NotReused),
    Store(NotStored),
    Here(Reason),
    /// A failure of the origin: an error type of RFC 9209.
    Origin(&'static str),
}

impl Detail {
    /// Returns the code as written in the field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reuse(reason) => reason.as_str(),
            Self::Store(reason) => reason.as_str(),
            Self::Here(reason) => reason.as_str(),
            Self::Origin(error_type) => error_type,
        }
    }
}

impl Detail {
    /// Finds the detail for the code in a note about a response that wasn't stored.
    pub fn of_note(code: &[u8]) -> Option<Self> {
        let is = |known: &str| known.as_bytes() == code;
        let stored =
            NotStored::ALL.iter().find(|reason| is(reason.as_str())).map(|reason| Self::Store(*reason));
        let here = || Reason::ALL.iter().find(|reason| is(reason.as_str())).map(|reason| Self::Here(*reason));
        stored.or_else(here)
    }

    /// Returns the meaning, as a sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Reuse(reason) => reason.meaning(),
            Self::Store(reason) => reason.meaning(),
            Self::Here(reason) => reason.meaning(),
            Self::Origin(error_type) => error_type,
        }
    }

    /// Returns the section of the specification; empty if there is none.
    pub fn section(self) -> &'static str {
        match self {
            Self::Reuse(reason) => reason.section(),
            Self::Store(reason) => reason.section(),
            Self::Here(reason) => reason.section(),
            Self::Origin(_) => "RFC 9209 section 2.3",
        }
    }
}

impl From<NotReused> for Detail {
    fn from(reason: NotReused) -> Self {
        Self::Reuse(reason)
    }
}

impl From<NotStored> for Detail {
    fn from(reason: NotStored) -> Self {
        Self::Store(reason)
    }
}

impl From<Reason> for Detail {
    fn from(reason: Reason) -> Self {
        Self::Here(reason)
    }
}
