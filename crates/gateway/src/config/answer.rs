//! Responses of the gateway itself: CORS, maintenance, and error pages.

use bytes::Bytes;
use caching::StatusMatch;
use http::HeaderValue;

use super::ClientRules;

/// Access of scripts from other web origins to the responses of a site (Fetch: CORS).
#[derive(Clone, Debug)]
pub struct Cors {
    /// Web origins with access.
    pub origins: CorsOrigins,
    /// Methods allowed.
    pub methods: Vec<String>,
    /// Request fields allowed.
    pub headers: CorsHeaders,
    /// Whether requests may carry credentials.
    pub credentials: Sharing,
    /// Time for which browsers remember the answer to a preflight.
    pub max_age_s: Option<u64>,
    /// Response fields that scripts may read, in addition to the safelisted ones.
    pub exposed: Vec<String>,
}

/// Web origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorsOrigins {
    /// All web origins.
    Any,
    /// These, as browsers write them.
    Only(Vec<String>),
}

/// Request fields that scripts may send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorsHeaders {
    /// All that a preflight asks for.
    Any,
    /// These fields.
    Only(Vec<String>),
}

/// Whether scripts of other origins may send credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// No.
    Anonymous,
    /// Yes: cookies and client certificates.
    WithCredentials,
}

/// Response during maintenance, in place of the site.
#[derive(Clone, Debug)]
pub struct Maintenance {
    /// Clients that still get the site; rules open to all admit nobody.
    pub admitted: ClientRules,
    /// `Retry-After`, in seconds.
    pub retry_after_s: u64,
    /// Body; absent: the error page for 503, or a line of text.
    pub page: Option<Page>,
}

/// Body of a response of the gateway itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// `Content-Type`.
    pub content_type: HeaderValue,
    /// The body.
    pub body: Bytes,
}

/// Page for errors of the gateway itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// Statuses of the errors.
    pub statuses: Vec<StatusMatch>,
    /// Body sent to clients.
    pub page: Page,
}
