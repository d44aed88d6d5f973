//! Settings for responses that the gateway generates or changes: CORS, maintenance, error pages, and compression.

use bytes::Bytes;
use caching::StatusMatch;
use caching::compression::{Coding, Compressible};
use http::HeaderValue;

use super::ClientRules;

/// Access of scripts from other web origins to the responses of a site (Fetch: CORS).
#[derive(Clone, Debug)]
pub struct Cors {
    /// Web origins whose scripts have access.
    pub origins: CorsOrigins,
    /// Methods allowed.
    pub methods: Vec<String>,
    /// Request fields allowed.
    pub headers: CorsHeaders,
    /// Whether requests may carry credentials.
    pub credentials: Sharing,
    /// Time for which browsers cache the response to a preflight.
    pub max_age_s: Option<u64>,
    /// Response fields that scripts may read, in addition to the safelisted ones.
    pub exposed: Vec<String>,
}

/// Web origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorsOrigins {
    /// All web origins.
    Any,
    /// Only these web origins, as browsers write them.
    Only(Vec<String>),
}

/// Request fields that scripts may send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorsHeaders {
    /// All fields that a preflight names.
    Any,
    /// Only these fields.
    Only(Vec<String>),
}

/// Whether scripts of other origins may send credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Requests without credentials.
    Anonymous,
    /// Requests with credentials: cookies and client certificates.
    WithCredentials,
}

/// Response during maintenance, in place of the site.
#[derive(Clone, Debug)]
pub struct Maintenance {
    /// Clients that can use the site during maintenance. Rules that allow all clients admit none.
    pub admitted: ClientRules,
    /// `Retry-After`, in seconds.
    pub retry_after_s: u64,
    /// Body of the response. If absent, the body is the error page for 503, or a line of text.
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

/// Compression of responses to clients.
#[derive(Clone, Debug)]
pub struct Compression {
    /// Responses to compress, and codings.
    pub compressible: Compressible,
    /// Effort for each coding.
    pub levels: Levels,
    /// Treatment of responses for a single client.
    pub personal: PersonalResponses,
}

/// Effort spent on compression, as the level of each coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// 1 to 19.
    pub zstd: u8,
    /// 0 to 11.
    pub br: u8,
    /// 1 to 9.
    pub gzip: u8,
}

/// Treatment of responses for a single client. The length of a compressed response shows how much of it repeats the request. An
/// attacker who makes a browser send requests, and sees the lengths of the encrypted responses, can use this to guess secrets in
/// them letter by letter (BREACH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersonalResponses {
    /// Sent as received.
    AsTheyCame,
    /// Compressed like others.
    Compressed,
}

impl Levels {
    /// Level of a coding.
    pub fn of(self, coding: Coding) -> u8 {
        match coding {
            Coding::Zstd => self.zstd,
            Coding::Brotli => self.br,
            Coding::Gzip => self.gzip,
        }
    }
}
