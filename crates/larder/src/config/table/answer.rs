//! Keys of what a site answers itself: CORS, maintenance, pages for errors.

use super::section::*;

section! {
    /// Which other web origins may read what the site answers, and how they may ask (docs/operate/transform.md#cors). Takes the place of what the
    /// origin server says of it.
    pub(super) CORS = "site.cors";
    /// Web origins that may.
    ///
    /// Scheme, host and port if it is not the usual one, as browsers write them. `*` stands for all.
    origins = List(&Text("web origin, such as `https://app.example`, or `*` alone")).required(),
    /// Methods that they may use.
    methods = List(&Text("method, such as `GET` (in capitals)")).default("[\"GET\", \"HEAD\", \"POST\"]"),
    /// Request fields that they may send, beside those that all may. `*` stands for those that they ask for.
    headers = List(&Text("header field name, or `*` alone")).default("[]"),
    /// Whether they may ask as their user, with cookies.
    ///
    /// Not with `origins = ["*"]`: any page could then read what its visitors may.
    credentials = Flag.default("false"),
    /// How long browsers remember the answer to a preflight.
    max_age = Duration(0..=DAY_MS).absent("as the browser has it: 5s").no_limit(),
    /// Response fields that they may read, beside those that all may.
    exposed = FIELD_NAMES.default("[]"),
}

section! {
    /// Answers 503 in place of the site (docs/operate/transform.md#maintenance). Stored responses are kept.
    pub(super) MAINTENANCE = "site.maintenance";
    /// Whether it does; `false` keeps the other keys for the next time.
    ///
    /// Required, so that a table that only prepares a maintenance doesn't begin it.
    enabled = Flag.required(),
    /// Clients that get the site all the same.
    ///
    /// The client is the same as for `clients_allowed`.
    clients_admitted = NETWORKS.default("[]"),
    /// `Retry-After`.
    retry_after = Duration(1_000..=30 * DAY_MS).default("5m").no_limit(),
    /// File with the body, at most 1MiB.
    body_file = FILE.absent("the page for 503, or a line of text"),
    /// `Content-Type` of it.
    content_type = CONTENT_TYPE.default(HTML),
}

section! {
    /// The body of errors that Larder answers itself, for want of an answer of the origin. The first that fits counts.
    pub(super) ERROR_PAGE = "site.error_page";
    /// Which errors.
    ///
    /// Errors that the origin server answers keep their bodies.
    statuses = STATUSES.required(),
    /// File with the body, at most 1MiB.
    ///
    /// It is read when the configuration is.
    body_file = FILE.required(),
    /// `Content-Type` of it.
    content_type = CONTENT_TYPE.default(HTML),
}

const CONTENT_TYPE: Kind = Text("media type");
const HTML: &str = "text/html; charset=utf-8";
