//! Keys of what protects a site: limits of what clients may ask.

use gateway::config::{CountedRequests, QuotaFields};

use super::section::*;

section! {
    /// How fast each client may send requests to the site. A client beyond the limit gets 429 with `Retry-After`, `RateLimit` and `RateLimit-Policy`.
    /// Several limits hold together: that of the site, and that of the rule.
    pub(super) SITE_RATE_LIMIT = "site.rate_limit";
    /// Requests of each client in `window`.
    requests = Integer(1..=1_000_000).required(),
    window = WINDOW,
    burst = BURST,
    /// Which requests count: all, or those that no stored response answers.
    ///
    /// `forwarded` protects the origin and lets clients have what is stored as often as they like. Requests that wait for another's forward count
    /// too.
    count = one_of::<CountedRequests>().default("all"),
    /// Clients with these addresses are not limited by this limit.
    clients_exempt = NETWORKS.default("[]"),
    /// Bits of an IPv4 address that tell clients apart.
    ipv4_prefix = Integer(8..=32).default("32").no_limit(),
    /// Bits of an IPv6 address that tell clients apart.
    ///
    /// One host can have any address of its /64. Many customers have a /56 or a /48.
    ipv6_prefix = Integer(16..=128).default("64").no_limit(),
    /// Clients below their full burst that are told apart at a time.
    ///
    /// Each takes 17 bytes, whether it is there or not. With more, clients share what is left to the one that has asked for the least. A client with
    /// all of its burst needs no place.
    clients_max = Integer(1024..=16_777_216).default("65536"),
    /// Which responses carry `RateLimit` and `RateLimit-Policy`: those with 429, or all that the limit counts.
    fields = one_of::<QuotaFields>().default("refused"),
    /// Whether requests beyond the limit are only counted (`larder_rate_limited_total`), and answered like any other.
    dry_run = Flag.default("false"),
}

section! {
    /// What GET, HEAD and QUERY requests get when the origin fails (no response in time, no connection, a full queue, an exhausted `miss_budget`) and
    /// no stored response may be used. It is never stored.
    pub(super) DEFAULT_RESPONSE = "site.rule.default_response";
    /// Status of the response.
    status = Integer(200..=599).default("503").no_limit(),
    /// Header fields of the response.
    ///
    /// Absent, `Content-Type` is `text/plain; charset=utf-8`, `Cache-Control` is `no-store`, and a 503 has `Retry-After: 1`.
    fields = Map(KeyForm::FieldName, &Text("value of a header field")).default("{}"),
    /// Content of the response.
    body = Text("content").absent("empty"),
    /// File with the content, in place of `body`.
    ///
    /// At most 1 MiB. It is read when the configuration is loaded.
    file = FILE.absent("none"),
    /// Errors of the origin that it replaces too, stored ones as well, such as `[500, 502]` or `["5xx"]`.
    statuses = STATUSES.default("[]"),
}

pub(super) static RULE_RATE_LIMIT: Section = Section {
    name: "site.rule.rate_limit",
    doc: &[
        "How fast each client may send requests that the rule matches, beside what `site.rate_limit` allows.",
        "The keys are the same.",
    ],
    rows: SITE_RATE_LIMIT.rows,
    more: &[],
};

row! {
    /// The time for `requests`.
    ///
    /// It is no fixed window: requests become available again one by one, evenly spread over it.
    WINDOW = Duration(1000..=DAY_MS).default("1s");
}

row! {
    /// Requests that may come at once.
    ///
    /// At most 584 years' worth: at a rate of 1 a day, 213,503.
    BURST = Integer(1..=1_000_000).absent("that of `requests`");
}

section! {
    /// How many requests that match may go to the origin, all clients together: misses and validations, which a cold or purged cache has many of.
    /// Beyond it, clients get a stale response where `stale_if_unreachable` allows one, or else 503 with `Retry-After`. All GET, HEAD and QUERY
    /// requests that are forwarded count; requests with other methods (POST, say) don't, nor do those that wait for another's forward.
    pub(super) MISS_BUDGET = "site.rule.miss_budget";
    /// Requests to the origin in `window`.
    requests = Integer(1..=1_000_000).required(),
    window = WINDOW,
    burst = BURST,
}
