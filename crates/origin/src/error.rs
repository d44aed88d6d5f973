//! Failures between the gateway and an origin server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The reason why there is no (complete) response from the origin server.
///
/// Cheap to clone: the waiters of a collapsed forward share one failure. Texts never hold field values,
/// targets or credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OriginError {
    /// The name has no usable address, and no earlier address is known.
    #[error("name resolution failed: {0}")]
    Resolve(Arc<str>),
    /// Every address refused the connection or could not be reached; this is the last failure.
    #[error("connection failed: {0}")]
    Connect(io::ErrorKind),
    /// Resolution, connection and TLS handshake took longer than allowed.
    #[error("connection not established in time")]
    ConnectTimeout,
    /// The TLS handshake failed.
    #[error("TLS handshake failed: {0}")]
    Tls(Arc<str>),
    /// The origin's certificate is not trusted or is for a different name.
    #[error("TLS certificate refused: {0}")]
    TlsCertificate(Arc<str>),
    /// No response head in time after the request was sent.
    #[error("no response head in time")]
    FirstByteTimeout,
    /// A pause within the response body was too long.
    #[error("response body stalled")]
    BetweenBytesTimeout,
    /// The whole exchange took longer than allowed.
    #[error("exchange took too long")]
    TotalTimeout,
    /// The connection ended before a response head arrived.
    #[error("connection closed before a response")]
    ClosedBeforeResponse,
    /// The origin has not begun to process the request: over HTTP/2 it accepts no more streams.
    #[error("the origin refused the stream")]
    StreamRefused,
    /// The origin speaks HTTP/2, which has no upgrades, and did not answer over HTTP/1.1.
    #[error("an upgrade needs HTTP/1.1, which the origin does not speak: {0}")]
    UpgradeFailed(Arc<str>),
    /// The response body ended early: it is incomplete.
    #[error("response body incomplete")]
    BodyTruncated,
    /// The response body is larger than the rule permits.
    #[error("response body larger than {bytes_max} bytes")]
    BodyTooLarge {
        /// The limit.
        bytes_max: u64,
    },
    /// The origin violated HTTP.
    #[error("invalid response: {0}")]
    Protocol(Arc<str>),
    /// The origin sent too many interim responses.
    #[error("more than {max} interim responses before the response")]
    InterimResponses {
        /// The limit.
        max: u32,
    },
    /// Too many requests wait for this origin.
    #[error("too many requests wait for the origin")]
    QueueFull,
    /// No permit for a request in flight became free in time.
    #[error("waited too long for the origin")]
    QueueTimeout,
    /// The client has used up its share of the origin.
    #[error("this client has too many requests to the origin in progress")]
    ClientShare,
    /// The miss budget of the rule is used up.
    #[error("the miss budget is used up")]
    MissBudget {
        /// Seconds until the budget has room again.
        retry_after_s: u64,
    },
    /// Too many exchanges with the origin proceed at the pace of their clients.
    #[error("too many transfers are in progress")]
    TransfersFull,
    /// Too many tunnels to the origin are open.
    #[error("too many tunnels are open")]
    TunnelsFull,
    /// Most requests to this origin failed, so none is sent for a while.
    #[error("the circuit breaker of the origin is open for another {:.1} s", .retry.as_secs_f64())]
    CircuitOpen {
        /// Time until a retry makes sense.
        retry: Duration,
    },
    /// The circuit breaker is half-open, and other requests are trying the origin.
    #[error("the circuit breaker of the origin is half-open: other requests try the origin")]
    CircuitHalfOpen {
        /// Time until a retry makes sense.
        retry: Duration,
    },
    /// The request body could not be read to its end, so the forward was aborted.
    #[error("request body incomplete")]
    RequestBody,
    /// The request can't be expressed in the protocol of this origin.
    #[error("request can't be forwarded: {0}")]
    InvalidRequest(Arc<str>),
}

/// The party at fault, which decides the status and whether a stale stored response may be used instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginErrorKind {
    /// No usable connection (502).
    Unreachable,
    /// No answer in time (504).
    TimedOut,
    /// An answer that can't be used (502).
    InvalidResponse,
    /// A limit of the gateway towards the origin, such as its circuit breaker (503).
    Overloaded,
    /// The client's request (400, or no response if the client has disconnected).
    Request,
}

impl OriginError {
    /// All values of [`Self::reason`].
    pub const REASONS: [&'static str; 26] = [
        "dns-error",
        "connection-refused",
        "destination-ip-unroutable",
        "destination-unavailable",
        "connection-timeout",
        "tls-protocol-error",
        "tls-certificate-error",
        "http-response-timeout",
        "connection-read-timeout",
        "total-timeout",
        "connection-terminated",
        "stream-refused",
        "http-upgrade-failed",
        "http-response-incomplete",
        "http-response-body-size",
        "http-protocol-error",
        "interim-responses-max",
        "connection-limit-reached",
        "queue-timeout",
        "client-share",
        "miss-budget",
        "transfers-max",
        "tunnels-max",
        "circuit-open",
        "request-body-incomplete",
        "http-request-error",
    ];

    /// Returns a short fixed name for `Cache-Status` details, metrics and logs: the error type of RFC 9209 section 2.3 that
    /// fits, if any, in kebab case.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.reason_and_kind().0
    }

    /// The party at fault.
    #[must_use]
    pub fn kind(&self) -> OriginErrorKind {
        self.reason_and_kind().1
    }

    fn reason_and_kind(&self) -> (&'static str, OriginErrorKind) {
        use OriginErrorKind::{InvalidResponse, Overloaded, Request, TimedOut, Unreachable};
        use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
        match self {
            Self::Resolve(_) => ("dns-error", Unreachable),
            Self::Connect(ConnectionRefused) => ("connection-refused", Unreachable),
            Self::Connect(HostUnreachable | NetworkUnreachable) => ("destination-ip-unroutable", Unreachable),
            Self::Connect(_) => ("destination-unavailable", Unreachable),
            Self::ConnectTimeout => ("connection-timeout", TimedOut),
            Self::Tls(_) => ("tls-protocol-error", Unreachable),
            Self::TlsCertificate(_) => ("tls-certificate-error", Unreachable),
            Self::FirstByteTimeout => ("http-response-timeout", TimedOut),
            Self::BetweenBytesTimeout => ("connection-read-timeout", TimedOut),
            Self::TotalTimeout => ("total-timeout", TimedOut),
            Self::ClosedBeforeResponse => ("connection-terminated", Unreachable),
            Self::StreamRefused => ("stream-refused", Unreachable),
            Self::UpgradeFailed(_) => ("http-upgrade-failed", InvalidResponse),
            Self::BodyTruncated => ("http-response-incomplete", InvalidResponse),
            Self::BodyTooLarge { .. } => ("http-response-body-size", InvalidResponse),
            Self::Protocol(_) => ("http-protocol-error", InvalidResponse),
            Self::InterimResponses { .. } => ("interim-responses-max", InvalidResponse),
            Self::QueueFull => ("connection-limit-reached", Overloaded),
            Self::QueueTimeout => ("queue-timeout", Overloaded),
            Self::ClientShare => ("client-share", Overloaded),
            Self::MissBudget { .. } => ("miss-budget", Overloaded),
            Self::TransfersFull => ("transfers-max", Overloaded),
            Self::TunnelsFull => ("tunnels-max", Overloaded),
            Self::CircuitOpen { .. } | Self::CircuitHalfOpen { .. } => ("circuit-open", Overloaded),
            Self::RequestBody => ("request-body-incomplete", Request),
            Self::InvalidRequest(_) => ("http-request-error", Request),
        }
    }

    /// Returns whether no answer arrived or could be requested, so that the cache counts as disconnected from the origin. A
    /// full queue counts too: nothing can be requested, and a stale response spares an overloaded origin one more request.
    //= RFC 9111 section 2: disconnected
    #[must_use]
    pub fn is_disconnection(&self) -> bool {
        self.is_unreachable() || self.kind() == OriginErrorKind::Overloaded
    }

    /// Returns whether no connection could be made. The request was then not sent, so it didn't cause the failure.
    #[must_use]
    pub fn is_without_connection(&self) -> bool {
        matches!(
            self,
            Self::Resolve(_)
                | Self::Connect(_)
                | Self::ConnectTimeout
                | Self::Tls(_)
                | Self::TlsCertificate(_)
                | Self::CircuitOpen { .. }
        )
    }

    /// Returns the seconds until a retry makes sense, for a 503.
    #[must_use]
    pub fn retry_after_s(&self) -> u64 {
        match self {
            Self::CircuitOpen { retry } | Self::CircuitHalfOpen { retry } => {
                retry.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX).max(1)
            }
            Self::MissBudget { retry_after_s } => *retry_after_s,
            _ => 1,
        }
    }

    /// Returns whether the origin gave no answer at all.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        matches!(self.kind(), OriginErrorKind::Unreachable | OriginErrorKind::TimedOut)
    }

    pub fn protocol(cause: &str) -> Self {
        Self::Protocol(cause.into())
    }

    pub(super) fn invalid_request(cause: &str) -> Self {
        Self::InvalidRequest(cause.into())
    }
}

/// Returns the text of an error and its source: fixed texts of the protocol libraries, without field values.
pub(super) fn cause(error: &(dyn std::error::Error + 'static)) -> Arc<str> {
    match error.source() {
        Some(source) => format!("{error}: {source}").into(),
        None => error.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_all_listed() {
        let (_, rest) = include_str!("error.rs").split_once("fn reason_and_kind(&self)").expect("it is here");
        let (body, _) = rest.split_once("\n    }\n").expect("it ends");
        let told: Vec<_> = body.split('"').skip(1).step_by(2).collect();
        assert_eq!(told, OriginError::REASONS);
    }
}
