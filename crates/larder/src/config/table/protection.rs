//! Keys that protect a site: limits on the requests of its clients.

use gateway::config::{CountedRequests, QuotaFields};

use super::section::*;

section! {
    /// Rate of requests that each client may send to the site. A client beyond the limit gets 429 with `Retry-After`, `RateLimit` and
    /// `RateLimit-Policy`. The limits of the site and of the rule both apply.
    pub(super) SITE_RATE_LIMIT = "site.rate_limit";
    /// Requests of each client in `window`.
    requests = Integer(1..=1_000_000).required(),
    window = WINDOW,
    burst = BURST,
    /// Requests that count: all, or those that no stored response answers.
    ///
    /// `forwarded` protects the origin and doesn't limit cache hits. Requests that wait for another request's forward count too.
    count = one_of::<CountedRequests>().default("all"),
    /// Clients with these addresses are exempt from this limit.
    clients_exempt = NETWORKS.default("[]"),
    /// Prefix length that identifies a client by its IPv4 address.
    ipv4_prefix = Integer(8..=32).default("32").no_limit(),
    /// Prefix length that identifies a client by its IPv6 address.
    ///
    /// A host can use any address of its /64. Many customers have a /56 or a /48.
    ipv6_prefix = Integer(16..=128).default("64").no_limit(),
    /// Maximum number of tracked clients. A client is tracked while it is below its full burst.
    ///
    /// The table takes 17 bytes per entry, used or not. If it is full, further clients share the entry of
    /// the client that has sent the fewest requests.
    clients_max = Integer(1024..=16_777_216).default("65536"),
    /// Responses with the fields `RateLimit` and `RateLimit-Policy`: those with 429, or all that the limit counts.
    fields = one_of::<QuotaFields>().default("refused"),
    /// Whether requests beyond the limit are counted (`larder_rate_limited_total`) but answered as usual.
    dry_run = Flag.default("false"),
}

section! {
    /// Response to GET, HEAD and QUERY requests when the origin fails (no response in time, no connection, a full queue, an exhausted
    /// `miss_budget`) and no stored response may be used. It is never stored.
    pub(super) DEFAULT_RESPONSE = "site.rule.default_response";
    /// Status of the response.
    status = Integer(200..=599).default("503").no_limit(),
    /// Header fields of the response.
    ///
    /// By default `Content-Type` is `text/plain; charset=utf-8`, `Cache-Control` is `no-store`, and a 503 has `Retry-After: 1`.
    fields = Map(KeyForm::FieldName, &Text("value of a header field")).default("{}"),
    /// Content of the response.
    body = Text("content").absent("empty"),
    /// File with the content, in place of `body`.
    ///
    /// At most 1 MiB. It is read when the configuration is loaded.
    file = FILE.absent("none"),
    /// Errors of the origin that it also replaces, including stored ones, such as `[500, 502]` or `["5xx"]`.
    statuses = STATUSES.default("[]"),
}

pub(super) static RULE_RATE_LIMIT: Section = Section {
    name: "site.rule.rate_limit",
    doc: &[
        "Rate of requests for the rule that each client may send, in addition to the limit of `site.rate_limit`.",
        "It has the same keys as `site.rate_limit`.",
    ],
    rows: SITE_RATE_LIMIT.rows,
    more: &[],
};

row! {
    /// Time for `requests`.
    ///
    /// It is not a fixed window: requests become available one by one, spread evenly over it.
    WINDOW = Duration(1000..=DAY_MS).default("1s");
}

row! {
    /// Maximum number of requests that may arrive together.
    ///
    /// The maximum is the number of requests that the rate allows in 584 years, such as 213,503 at 1 a day.
    BURST = Integer(1..=1_000_000).absent("that of `requests`");
}

section! {
    /// Requests for this rule that may go to the origin, from all clients together: misses and validations, which a cold or purged cache
    /// causes in large numbers. Beyond the budget, clients get a stale response if `stale_if_unreachable` allows one, else 503 with
    /// `Retry-After`. All GET, HEAD and QUERY requests that are forwarded count. Requests with other methods, such as POST, don't, nor do
    /// requests that wait for another request's forward.
    pub(super) MISS_BUDGET = "site.rule.miss_budget";
    /// Requests to the origin in `window`.
    requests = Integer(1..=1_000_000).required(),
    window = WINDOW,
    burst = BURST,
}
