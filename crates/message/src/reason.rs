//! Reason codes: those of the policy and those of the data plane.

use caching::{NotReused, NotStored, reason_codes};

reason_codes! {
    /// Reason codes of the data plane, in addition to those of the policy.
    pub enum Reason {
        KnownUncacheable = "known-uncacheable", "", "A response for this key could not be stored a short while ago (`uncacheable_for`).";
        Upgrade = "upgrade", "RFC 9110 section 7.8", "The request asks for another protocol, such as WebSocket.";
        RequestContent = "request-content", "RFC 9111 section 4", "The request has content, which takes no part in the cache key.";
        QueryContent = "query-content", "RFC 10008 section 2.7", "The content of the QUERY is larger than what takes part in a cache key (`query_content_bytes_max`), or there is no memory for it.";
        QueryUntyped = "query-untyped", "RFC 10008 section 2", "The QUERY doesn't say in one `Content-Type` what its content is.";
        CollapseGivenUp = "collapse-given-up", "", "Waiting for another request's forward reached its limits.";
        CollapseFailed = "collapse-failed", "RFC 9111 section 4", "The forwards that the request waited for failed, and it had no turn of its own to ask the origin.";
        CollapseFleet = "collapse-fleet", "RFC 9111 section 4", "Another instance that shares the store has fetched it, and this one has waited for that.";
        SegmentEvicted = "segment-evicted", "", "A part of the stored body was evicted before it was needed.";
        TooLarge = "object-too-large", "", "The body is larger than `object_bytes_max` or than the store takes.";
        MemoryFull = "memory-full", "", "Fills in progress and readers hold the memory.";
        StoreFull = "store-full", "", "The store did not take the response.";
        VariantsMax = "variants-max", "RFC 9111 section 4.1", "As many variants of the URL as are kept (`store.variants_max`) are in use, and none makes room for another one.";
        Outdated = "outdated", "RFC 9111 section 4", "A purge, an invalidation or a newer response came while this one was on its way.";
        CloseDelimited = "close-delimited", "RFC 9112 section 8", "Only the end of the connection ends the body: whether it is whole, nobody can tell (`close_delimited`).";
        UnknownTransferCoding = "unknown-transfer-coding", "RFC 9112 section 6.3", "The response has a transfer coding that nobody can undo: where it ends is a guess.";
        MaxStale = "max-stale", "RFC 9111 section 5.2.1.2", "The request takes a stale response.";
        RefreshAhead = "refresh-ahead", "RFC 9111 section 4.2", "Fresh, and a validation runs behind, since the lifetime ends soon (`refresh_ahead_percent`).";
        StaleWhileRevalidate = "stale-while-revalidate", "RFC 5861 section 3", "Stale, and a validation runs behind.";
        SharedStore = "shared-store", "RFC 9211 section 2.8", "The stored response came from the store that instances share (`store.remote`); memory has it from now on.";
        DefaultResponse = "default-response", "", "The origin failed, and no stored response may be used: the rule's `default_response`.";
        StaleIfError = "stale-if-error", "RFC 5861 section 4", "Stale, because the origin answered with an error.";
    }
}

reason_codes! {
    /// Reasons for which the gateway answers a request itself, besides the codes of malformed requests
    /// ([`RequestError`](http1::RequestError), [`BodyError`](http1::BodyError)) and of failed origins.
    pub enum Refused {
        AmbiguousPath = "ambiguous-path", "RFC 3986 section 6.2.2", "Origins read the path in several ways, so nobody can tell which rules hold for it: it has an encoded slash, a backslash, a double encoding, a semicolon, an empty segment, a dot segment or a control character that its rule does not allow (`spellings_allowed`); or, as some origins read it, it belongs to another site (`path_prefix`) than as it is written.";
        ClientDenied = "client-denied", "RFC 9110 section 15.5.4", "The site does not answer the client's address (`clients_allowed`, `clients_denied`), or a trusted proxy names it in a way that can't be read.";
        Connect = "connect", "RFC 9110 section 9.3.6", "CONNECT over HTTP/2: this is no proxy.";
        DrainLimit = "drain-limit", "RFC 9110 section 15.6.4", "Larder ended at its `drain_limit` before there was a response: the status is that of the access log, the client got nothing.";
        DuplicateHost = "duplicate-host", "RFC 9113 section 8.3.1", "HTTP/2: `Host` is there more than once.";
        ForwardGivenUp = "forward-given-up", "", "The forward that the request waited for ended without a response.";
        HeadTimeout = "head-timeout", "RFC 9110 section 15.5.9", "The request head did not arrive within `head_read_timeout`.";
        Http2Malformed = "http2-malformed", "RFC 9113 section 5.4.1", "HTTP/2: the client has broken the protocol, which ends the connection.";
        InvalidAuthority = "invalid-authority", "RFC 9113 section 8.3.1", "HTTP/2: `:authority` or `Host` names no server.";
        Maintenance = "maintenance", "RFC 9110 section 15.6.4", "The site is in maintenance (`[site.maintenance]`).";
        MaxForwards = "max-forwards", "RFC 9110 section 7.6.2", "`Max-Forwards` is 0: the request is not forwarded.";
        MissingAuthority = "missing-authority", "RFC 9113 section 8.3.1", "HTTP/2: the request has neither `:authority` nor `Host`.";
        NoSite = "no-site", "RFC 9110 section 15.5.20", "No site serves the host and path of the request.";
        NothingFound = "nothing-found", "", "A PURGE found no stored response for its URL, and none on its way.";
        OnlyIfCached = "only-if-cached", "RFC 9111 section 5.2.1.7", "The request accepts stored responses only, and none can be used.";
        Preflight = "preflight", "", "The answer to a CORS preflight (`[site.cors]`).";
        ProxyLoopDetected = "proxy-loop-detected", "RFC 9209 section 2.3", "The request loops: `CDN-Loop` has the number of this process (`instance`), or `Via` its `server_name` eight times.";
        PlainHttp = "plain-http", "RFC 9110 section 4.2.2", "The client has sent HTTP without TLS to an address that has certificates.";
        PurgeInvalid = "purge-invalid", "", "The URL of a PURGE cannot be purged.";
        PurgeUncounted = "purge-uncounted", "", "The URL was purged by the method PURGE. Nothing was stored under its key alone; responses under keys with content or fields of requests are out of use too, and not counted.";
        PurgeTokenMissing = "purge-token-missing", "RFC 9110 section 15.5.2", "PURGE is for those with the token (`purge.token_file`).";
        PurgeTokenWrong = "purge-token-wrong", "RFC 9110 section 15.5.4", "The token of a PURGE is not that of `purge.token_file`.";
        Purged = "purged", "", "The URL was purged by the method PURGE.";
        RateLimited = "rate-limited", "RFC 6585 section 4", "The client has sent more requests than a `rate_limit` of the site or the rule allows.";
        Redirect = "redirect", "RFC 9110 section 15.4", "A transformation rule of the site redirects the request.";
        RequestBodyTimeout = "request-body-timeout", "RFC 9110 section 15.5.9", "The request body did not arrive in time.";
        RequestBodyTooLarge = "request-body-too-large", "RFC 9110 section 15.5.14", "The request body is larger than `limits.body_bytes_max`, or `request_body_bytes_max` of the site or the rule.";
        RequestContentIncomplete = "request-content-incomplete", "", "The content of a QUERY broke off.";
        RuleDenied = "rule-denied", "RFC 9110 section 15.5.4", "A rule of the site has `deny = true`.";
        TransformTooLarge = "transform-too-large", "", "Transformation rules make the header section of the message larger than any may be.";
        UploadMemory = "upload-memory", "", "HTTP/2: `store.memory` has no room for what the origin leaves of a request body.";
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
    /// The code as written in the field.
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
    /// Finds the detail for the code in a note, which says why a response wasn't stored.
    pub fn of_note(code: &[u8]) -> Option<Self> {
        let is = |known: &str| known.as_bytes() == code;
        let stored =
            NotStored::ALL.iter().find(|reason| is(reason.as_str())).map(|reason| Self::Store(*reason));
        let here = || Reason::ALL.iter().find(|reason| is(reason.as_str())).map(|reason| Self::Here(*reason));
        stored.or_else(here)
    }

    /// The meaning, as a sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Reuse(reason) => reason.meaning(),
            Self::Store(reason) => reason.meaning(),
            Self::Here(reason) => reason.meaning(),
            Self::Origin(error_type) => error_type,
        }
    }

    /// The section of the specification; empty if there is none.
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
