//! Responses and refusals of the admin API, with their statuses.

use std::fmt::Display;

use bytes::Bytes;
use gateway::{ExplainError, PurgeError};
use http_body_util::Full;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use telemetry::AdminRefusal;

pub(crate) type Answer = Response<Full<Bytes>>;

/// The reason why a request is refused.
#[derive(Debug)]
pub(crate) enum Refusal {
    ParametersUnusable { message: String },
    BodyBroken,
    TokenMissing,
    TokenWrong,
    BrowserRequest,
    HostNotLoopback,
    RouteUnknown,
    MethodNotAllowed { allow: String },
    BodyTooSlow,
    BodyTooLarge,
    RequestInvalid { reason: String },
    Purge(PurgeError),
    Explain(ExplainError),
    ConfigurationRefused { problems: Vec<String> },
    UpgradeFailed { reason: String },
}

/// Returns a response in JSON.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    // Serialization only fails for keys that aren't text and for numbers that aren't finite, and this crate has
    // neither.
    let body = serde_json::to_vec(value).unwrap_or_default();
    with_type(status, "application/json", body)
}

/// Reads a body that must be a JSON object: a list would fill the fields by their order.
pub(crate) fn json_object<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(
            "the body cannot be used: expected a JSON object such as {\"url\": \"http://..\"}".to_owned()
        );
    }
    serde_json::from_slice(body).map_err(|error| format!("the body cannot be used: {error}"))
}

/// Returns a response of any type. Responses of the admin API must not be cached, and browsers must not sniff their
/// type.
pub(crate) fn with_type(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

impl Refusal {
    pub(crate) fn into_answer(self) -> Answer {
        let (status, code, message) = self.parts();
        let mut body = json!({ "error": code, "message": message });
        match &self {
            Self::ConfigurationRefused { problems } => body["problems"] = json!(problems),
            Self::Purge(
                PurgeError::SiteUnknown { sites }
                | PurgeError::SiteNameUnknown { sites, .. }
                | PurgeError::SiteMissing { sites },
            ) => body["sites"] = json!(sites),
            _ => {}
        }
        let mut answer = json(status, &body);
        if let Some((name, value)) = self.field() {
            answer.headers_mut().insert(name, value);
        }
        answer
    }

    /// Returns the refusal to count and log, if it is an attempt at an unauthorised action.
    pub(crate) fn counted(&self) -> Option<AdminRefusal> {
        match self {
            Self::BrowserRequest => Some(AdminRefusal::BrowserRequest),
            Self::HostNotLoopback => Some(AdminRefusal::HostNotLoopback),
            Self::MethodNotAllowed { .. } => Some(AdminRefusal::MethodNotAllowed),
            Self::TokenMissing => Some(AdminRefusal::TokenMissing),
            Self::TokenWrong => Some(AdminRefusal::TokenWrong),
            _ => None,
        }
    }

    fn parts(&self) -> (StatusCode, &'static str, String) {
        let (status, code, message) = match self {
            Self::ParametersUnusable { message } => {
                (StatusCode::BAD_REQUEST, "parameters_unusable", message.as_str())
            }
            Self::BodyBroken => (StatusCode::BAD_REQUEST, "body_broken", "the body cannot be read"),
            Self::TokenMissing => {
                (StatusCode::UNAUTHORIZED, "token_missing", "send `Authorization: Bearer` with the token")
            }
            Self::TokenWrong => (StatusCode::UNAUTHORIZED, "token_wrong", "wrong token"),
            Self::BrowserRequest => {
                (StatusCode::FORBIDDEN, "browser_request", "requests from web pages need a token")
            }
            Self::HostNotLoopback => (
                StatusCode::FORBIDDEN,
                "host_not_loopback",
                "without a token, `Host` must be `localhost` or an IP address, and a loopback address for POST",
            ),
            Self::RouteUnknown => (StatusCode::NOT_FOUND, "route_unknown", "no such path"),
            Self::MethodNotAllowed { .. } => {
                (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "see the Allow field")
            }
            Self::BodyTooSlow => {
                (StatusCode::REQUEST_TIMEOUT, "body_too_slow", "the body did not arrive in time")
            }
            Self::BodyTooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", "the body is larger than 64 KiB")
            }
            Self::RequestInvalid { reason } => return request_invalid(reason),
            Self::Purge(error) => return purge_parts(error),
            Self::Explain(error) => return explain_parts(*error),
            Self::UpgradeFailed { reason } => (StatusCode::CONFLICT, "upgrade_failed", reason.as_str()),
            Self::ConfigurationRefused { .. } => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "configuration_refused",
                "the new configuration is invalid; the running one stays in use",
            ),
        };
        (status, code, message.to_owned())
    }

    fn field(&self) -> Option<(hyper::header::HeaderName, HeaderValue)> {
        match self {
            //= RFC 6750 section 3: the WWW-Authenticate response header field
            Self::TokenMissing => {
                Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"larder\"")))
            }
            Self::TokenWrong => {
                let value = "Bearer realm=\"larder\", error=\"invalid_token\"";
                Some((WWW_AUTHENTICATE, HeaderValue::from_static(value)))
            }
            //= RFC 9110 section 15.5.6: 405 carries Allow
            Self::MethodNotAllowed { allow } => HeaderValue::from_str(allow).ok().map(|value| (ALLOW, value)),
            _ => None,
        }
    }
}

fn request_invalid(reason: impl Display) -> (StatusCode, &'static str, String) {
    (StatusCode::BAD_REQUEST, "request_invalid", format!("invalid request: {reason}"))
}

fn explain_parts(error: ExplainError) -> (StatusCode, &'static str, String) {
    match error {
        ExplainError::UrlUnusable
        | ExplainError::UrlTooLong { .. }
        | ExplainError::MethodUnsafe
        | ExplainError::NoSite => request_invalid(error),
        ExplainError::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy", error.to_string()),
    }
}

fn purge_parts(error: &PurgeError) -> (StatusCode, &'static str, String) {
    let (status, code) = match error {
        PurgeError::UrlInvalid { .. } => (StatusCode::BAD_REQUEST, "url_invalid"),
        PurgeError::OrderInvalid(_) => (StatusCode::BAD_REQUEST, "purge_invalid"),
        PurgeError::SiteMissing { .. } => (StatusCode::BAD_REQUEST, "site_missing"),
        PurgeError::SiteUnknown { .. } | PurgeError::SiteNameUnknown { .. } => {
            (StatusCode::NOT_FOUND, "site_unknown")
        }
    };
    (status, code, error.to_string())
}
