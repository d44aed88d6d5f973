//! What a site answers itself: to other web origins, during maintenance, and in place of bare errors.

use bytes::Bytes;
use caching::StatusMatch;
use http::HeaderValue;

use super::ClientRules;

/// Which other web origins may read what a site answers (Fetch: CORS).
#[derive(Clone, Debug)]
pub struct Cors {
    /// Who may.
    pub origins: CorsOrigins,
    /// Methods that they may use.
    pub methods: Vec<String>,
    /// Request fields that they may send.
    pub headers: CorsHeaders,
    /// Whether they may ask as their user.
    pub credentials: Sharing,
    /// How long browsers remember the answer to a preflight.
    pub max_age_s: Option<u64>,
    /// Response fields that they may read, beside those that all may.
    pub exposed: Vec<String>,
}

/// Web origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorsOrigins {
    /// All of them.
    Any,
    /// These, as browsers write them.
    Only(Vec<String>),
}

/// Request fields that scripts may send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorsHeaders {
    /// Those that they ask for.
    Any,
    /// These.
    Only(Vec<String>),
}

/// Whether scripts of other origins may ask as their user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// No.
    Anonymous,
    /// Yes: with cookies and client certificates.
    WithCredentials,
}

/// Clients get this in place of the site.
#[derive(Clone, Debug)]
pub struct Maintenance {
    /// Who gets the site all the same; nobody where it is open to all.
    pub admitted: ClientRules,
    /// `Retry-After`, in seconds.
    pub retry_after_s: u64,
    /// What they read; absent: the page for 503, or a line of text.
    pub page: Option<Page>,
}

/// The body of a response of the gateway's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// `Content-Type`.
    pub content_type: HeaderValue,
    /// The body.
    pub body: Bytes,
}

/// The page for errors of the gateway's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// Which errors.
    pub statuses: Vec<StatusMatch>,
    /// What clients get.
    pub page: Page,
}
