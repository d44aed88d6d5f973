//! The values that labels can have, as types, so that no label grows without bound.

/// A site, by its place in the registry. Stable for a name as long as the process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteId(pub(crate) u16);

/// An origin, by its place in the registry. Stable for a name as long as the process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OriginId(pub(crate) u16);

/// A cache rule, by the place of its name in the registry. Rules of the same name share a number: the site tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub(crate) u16);

impl RuleId {
    /// Of requests that were answered before a rule was chosen, and of rules beyond the registry's limit.
    pub const NONE: Self = Self(0);
}

impl SiteId {
    /// The site of requests that no site took, and of sites beyond the registry's limit.
    pub const NONE: Self = Self(0);
}

impl OriginId {
    /// Origins beyond the limit of the registry share this one.
    pub const NONE: Self = Self(0);
}

/// What the cache did for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CacheResult {
    /// A fresh stored response was served.
    Hit,
    /// A stale stored response was served.
    Stale,
    /// A stored response was served after the origin confirmed it.
    Revalidated,
    /// The response came from a forward that another request had started.
    Collapsed,
    /// The request was forwarded, because nothing stored could answer it.
    Miss,
    /// The request was forwarded without a look into the cache.
    Bypass,
    /// The gateway answered itself, without cache and origin (redirect, refusal, malformed request).
    Local,
    /// The origin gave no usable response, or the delivery broke.
    Error,
}

impl CacheResult {
    /// All values, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Hit,
        Self::Stale,
        Self::Revalidated,
        Self::Collapsed,
        Self::Miss,
        Self::Bypass,
        Self::Local,
        Self::Error,
    ];

    /// The label value, also used in the access log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::Revalidated => "revalidated",
            Self::Collapsed => "collapsed",
            Self::Miss => "miss",
            Self::Bypass => "bypass",
            Self::Local => "local",
            Self::Error => "error",
        }
    }
}

/// A request method as a label. Everything that the list lacks is [`Method::Other`], because the
/// method is the client's to choose and every new value would be a new series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// POST
    Post,
    /// PUT
    Put,
    /// DELETE
    Delete,
    /// CONNECT
    Connect,
    /// OPTIONS
    Options,
    /// TRACE
    Trace,
    /// PATCH
    Patch,
    /// Any other token.
    Other,
}

impl Method {
    /// All values, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Get,
        Self::Head,
        Self::Post,
        Self::Put,
        Self::Delete,
        Self::Connect,
        Self::Options,
        Self::Trace,
        Self::Patch,
        Self::Other,
    ];

    //= RFC 9110 section 9.1: methods are case-sensitive
    /// The label for a method as received.
    pub fn from_token(token: &[u8]) -> Self {
        match token {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"CONNECT" => Self::Connect,
            b"OPTIONS" => Self::Options,
            b"TRACE" => Self::Trace,
            b"PATCH" => Self::Patch,
            _ => Self::Other,
        }
    }

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Options => "OPTIONS",
            Self::Trace => "TRACE",
            Self::Patch => "PATCH",
            Self::Other => "other",
        }
    }
}

/// What a client connection is counted as. A connection over TLS is counted twice: as `tls`, and
/// as the protocol that it speaks inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ConnectionKind {
    /// HTTP/1.0 or HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
    /// TLS, from the first byte of the handshake.
    Tls,
}

impl ConnectionKind {
    /// All values, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Http1, Self::Http2, Self::Tls];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::Http2 => "http2",
            Self::Tls => "tls",
        }
    }
}

/// Why a TLS handshake of a client failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TlsFailure {
    /// The client does not accept the certificate.
    CertificateRefused,
    /// The client ended the handshake for another reason.
    ClientAlert,
    /// The client left.
    ClientClosed,
    /// No version or cipher suite in common.
    Incompatible,
    /// No protocol in common (ALPN).
    NoApplicationProtocol,
    /// What came is no TLS.
    NotTls,
    /// Any other error.
    Protocol,
    /// It took too long.
    Timeout,
}

impl TlsFailure {
    /// All values.
    pub const ALL: [Self; 8] = [
        Self::CertificateRefused,
        Self::ClientAlert,
        Self::ClientClosed,
        Self::Incompatible,
        Self::NoApplicationProtocol,
        Self::NotTls,
        Self::Protocol,
        Self::Timeout,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CertificateRefused => "certificate-refused",
            Self::ClientAlert => "client-alert",
            Self::ClientClosed => "client-closed",
            Self::Incompatible => "incompatible",
            Self::NoApplicationProtocol => "no-application-protocol",
            Self::NotTls => "not-tls",
            Self::Protocol => "protocol",
            Self::Timeout => "timeout",
        }
    }
}

/// Why the admin API answered a request with a refusal before it did anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum AdminRefusal {
    /// A web page sent it, and there is no token.
    BrowserRequest,
    /// Its host is none of this machine, and there is no token.
    HostNotLoopback,
    /// The route has another method.
    MethodNotAllowed,
    /// It has no bearer token.
    TokenMissing,
    /// It has another token.
    TokenWrong,
}

impl AdminRefusal {
    /// All values, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::BrowserRequest,
        Self::HostNotLoopback,
        Self::MethodNotAllowed,
        Self::TokenMissing,
        Self::TokenWrong,
    ];

    /// The label value, which is the code of the answer.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BrowserRequest => "browser_request",
            Self::HostNotLoopback => "host_not_loopback",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::TokenMissing => "token_missing",
            Self::TokenWrong => "token_wrong",
        }
    }
}

/// How far a fill of the cache is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FillState {
    /// The request is forwarded, the head of the response is not there yet.
    Waiting,
    /// The body arrives.
    Streaming,
}

impl FillState {
    /// All values, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Waiting, Self::Streaming];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Streaming => "streaming",
        }
    }
}

/// How one request to an origin ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OriginOutcome {
    /// A final 2xx response.
    Success,
    /// A 304 response.
    NotModified,
    /// Any other 3xx response.
    Redirection,
    /// A 4xx response.
    ClientError,
    /// A 5xx response, or a status out of range.
    ServerError,
    /// No complete response head: see `larder_origin_errors_total` for the reason.
    Failed,
}

impl OriginOutcome {
    /// All values.
    pub const ALL: [Self; 6] = [
        Self::Success,
        Self::NotModified,
        Self::Redirection,
        Self::ClientError,
        Self::ServerError,
        Self::Failed,
    ];

    /// The outcome for a final status.
    pub const fn from_status(status: u16) -> Self {
        match status {
            200..=299 => Self::Success,
            304 => Self::NotModified,
            300..=399 => Self::Redirection,
            400..=499 => Self::ClientError,
            _ => Self::ServerError,
        }
    }

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "2xx",
            Self::NotModified => "304",
            Self::Redirection => "3xx",
            Self::ClientError => "4xx",
            Self::ServerError => "5xx",
            Self::Failed => "failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places_in_all() {
        CacheResult::ALL.iter().enumerate().for_each(|(i, v)| assert_eq!(*v as usize, i));
        Method::ALL.iter().enumerate().for_each(|(i, v)| assert_eq!(*v as usize, i));
        ConnectionKind::ALL.iter().enumerate().for_each(|(i, v)| assert_eq!(*v as usize, i));
        AdminRefusal::ALL.iter().enumerate().for_each(|(i, v)| assert_eq!(*v as usize, i));
        FillState::ALL.iter().enumerate().for_each(|(i, v)| assert_eq!(*v as usize, i));
    }

    //= RFC 9110 section 9.1: methods are case-sensitive
    #[test]
    fn unknown_methods_share_one_label() {
        for method in Method::ALL {
            assert_eq!(Method::from_token(method.as_str().as_bytes()), method);
        }
        for unknown in [&b"get"[..], b"PROPFIND", b"", b"\xff"] {
            assert_eq!(Method::from_token(unknown), Method::Other);
        }
    }

    #[test]
    fn origin_outcomes_by_status() {
        let cases = [
            (200, "2xx"),
            (206, "2xx"),
            (301, "3xx"),
            (304, "304"),
            (404, "4xx"),
            (599, "5xx"),
            (999, "5xx"),
        ];
        for (status, want) in cases {
            assert_eq!(OriginOutcome::from_status(status).as_str(), want);
        }
    }
}
