//! Types for the values of labels, which bound their number.

/// A site, by its number in the registry. A name keeps its number as long as the process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteId(pub(crate) u16);

/// An origin, by its number in the registry. A name keeps its number as long as the process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OriginId(pub(crate) u16);

/// A cache rule, by the number of its name in the registry. Rules of the same name share a number: the site
/// label distinguishes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub(crate) u16);

impl RuleId {
    /// No rule: for requests answered before a rule was selected, and for rules beyond the registry's limit.
    pub const NONE: Self = Self(0);
}

impl SiteId {
    /// No site: for requests that match no site, and for sites beyond the registry's limit.
    pub const NONE: Self = Self(0);
}

impl OriginId {
    /// No origin: for origins beyond the registry's limit.
    pub const NONE: Self = Self(0);
}

/// The result of the cache for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CacheResult {
    /// A fresh stored response was served.
    Hit,
    /// A stale stored response was served.
    Stale,
    /// A stored response was served after the origin confirmed it.
    Revalidated,
    /// The response of another request's forward was served.
    Collapsed,
    /// The request was forwarded, because no stored response could answer it.
    Miss,
    /// The request was forwarded without a look-up.
    Bypass,
    /// The gateway generated the response, without using cache or origin (redirect, refusal, malformed
    /// request).
    Local,
    /// The origin sent no usable response, or its delivery failed.
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

    /// Returns the label value, which the access log uses too.
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

/// A request method as a label. Methods that aren't listed are [`Method::Other`], because clients choose the
/// method and every new value would be a new series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// DELETE.
    Delete,
    /// CONNECT.
    Connect,
    /// OPTIONS.
    Options,
    /// TRACE.
    Trace,
    /// PATCH.
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
    /// Returns the label of a method as received.
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

    /// Returns the label value.
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

/// The kind of a client connection. A connection with TLS is counted twice: as `tls`, and as the protocol
/// inside.
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

    /// Returns the label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::Http2 => "http2",
            Self::Tls => "tls",
        }
    }
}

/// The reason why a client's TLS handshake failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TlsFailure {
    /// The client rejects the certificate.
    CertificateRefused,
    /// The client ended the handshake for another reason.
    ClientAlert,
    /// The client closed the connection.
    ClientClosed,
    /// Client and server have no version or cipher suite in common.
    Incompatible,
    /// Client and server have no protocol in common (ALPN).
    NoApplicationProtocol,
    /// The received bytes aren't TLS.
    NotTls,
    /// Any other error.
    Protocol,
    /// The handshake took too long.
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

    /// Returns the label value.
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

/// The reason why the admin API refused a request before acting on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum AdminRefusal {
    /// A web page sent the request, and no token is configured.
    BrowserRequest,
    /// The host isn't this machine, and no token is configured.
    HostNotLoopback,
    /// The method isn't allowed for the route.
    MethodNotAllowed,
    /// The request has no bearer token.
    TokenMissing,
    /// The request has a wrong token.
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

    /// Returns the label value, which is the error code of the response.
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

/// The state of a fill of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FillState {
    /// The request is forwarded, and the response head has not arrived.
    Waiting,
    /// The body is arriving.
    Streaming,
}

impl FillState {
    /// All values, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Waiting, Self::Streaming];

    /// Returns the label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Streaming => "streaming",
        }
    }
}

/// The outcome of one request to an origin.
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
    /// No complete response head; `larder_origin_errors_total` has the reason.
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

    /// Returns the outcome for a final status.
    pub const fn from_status(status: u16) -> Self {
        match status {
            200..=299 => Self::Success,
            304 => Self::NotModified,
            300..=399 => Self::Redirection,
            400..=499 => Self::ClientError,
            _ => Self::ServerError,
        }
    }

    /// Returns the label value.
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
