//! Keys of responses that a site generates itself: CORS, maintenance and error pages.

use super::section::*;

section! {
    /// Other web origins that may read the site's responses, and the requests that they may send (docs/operate/transform.md#cors).
    /// Replaces the CORS fields of the origin server.
    pub(super) CORS = "site.cors";
    /// Web origins that may read responses.
    ///
    /// Each is a scheme, a host, and a port unless it is the scheme's default, as browsers send them. `*` allows all.
    origins = List(&Text("web origin, such as `https://app.example`, or `*` alone")).required(),
    /// Methods that these web origins may use.
    methods = List(&Text("method, such as `GET` (in capitals)")).default("[\"GET\", \"HEAD\", \"POST\"]"),
    /// Request fields that these web origins may send, in addition to the CORS-safelisted ones. `*` allows all fields that a preflight
    /// requests.
    headers = List(&Text("header field name, or `*` alone")).default("[]"),
    /// Whether requests with credentials, such as cookies, are allowed.
    ///
    /// Can't be combined with `origins = ["*"]`: any page could then read its visitors' data.
    credentials = Flag.default("false"),
    /// Time for which browsers cache the response to a preflight.
    max_age = Duration(0..=DAY_MS).absent("the browser's default: 5s").no_limit(),
    /// Response fields that these web origins may read, in addition to the CORS-safelisted ones.
    exposed = FIELD_NAMES.default("[]"),
}

section! {
    /// Answers 503 in place of the site (docs/operate/transform.md#maintenance). Stored responses are kept.
    pub(super) MAINTENANCE = "site.maintenance";
    /// Whether maintenance is on; `false` keeps the other keys for the next time.
    ///
    /// Required, so that a table that only prepares for maintenance doesn't start it.
    enabled = Flag.required(),
    /// Clients that can use the site during maintenance.
    ///
    /// The client is determined as for `clients_allowed`.
    clients_admitted = NETWORKS.default("[]"),
    /// Value of `Retry-After`.
    retry_after = Duration(1_000..=30 * DAY_MS).default("5m").no_limit(),
    /// File with the body, at most 1MiB.
    body_file = FILE.absent("the page for 503, or a line of text"),
    /// `Content-Type` of the body.
    content_type = CONTENT_TYPE.default(HTML),
}

section! {
    /// Body of error responses that Larder generates because it has no response of the origin. The first matching entry applies.
    pub(super) ERROR_PAGE = "site.error_page";
    /// Statuses that get this body.
    ///
    /// Errors that the origin server sends keep their bodies.
    statuses = STATUSES.required(),
    /// File with the body, at most 1MiB.
    ///
    /// It is read when the configuration is loaded.
    body_file = FILE.required(),
    /// `Content-Type` of the body.
    content_type = CONTENT_TYPE.default(HTML),
}

const CONTENT_TYPE: Kind = Text("media type");
const HTML: &str = "text/html; charset=utf-8";
