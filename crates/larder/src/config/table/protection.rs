//! Keys of what protects a site: limits of what clients may ask.

use super::section::{
    DAY_MS, FILE, KeyForm, Kind, NETWORKS, Opt, Preset, Reload, STATUSES, Section, TIB, row,
};

pub(super) static SITE_RATE_LIMIT: Section = Section {
    name: "site.rate_limit",
    about: "How fast each client may send requests to the site. A client beyond the limit gets 429 with `Retry-After`, `RateLimit` and \
            `RateLimit-Policy`. Several limits hold together: that of the site, and that of the rule.",
    options: RATE_LIMIT,
};

pub(super) const SITE_REQUEST_BODY: Opt = row(
    "request_body_bytes_max",
    BODY,
    Preset::Absent("that of `limits.body_bytes_max`"),
    Reload::Yes,
    "Largest content of a request (413), where its rule doesn't say.",
    "",
);

pub(super) const RULE_REQUEST_BODY: Opt = row(
    "request_body_bytes_max",
    BODY,
    Preset::Absent("that of the site"),
    Reload::Yes,
    "Largest content of a request that matches (413).",
    "Up to `limits.body_bytes_max`, which holds for all. What `Content-Length` says is refused before the origin sees anything of it; other content is broken off.",
);

pub(super) const RULE_RESPONSE_BODY: Opt = row(
    "response_body_bytes_max",
    BODY,
    Preset::Absent("any size"),
    Reload::Yes,
    "Largest content of a response of the origin; a larger one is answered 502, or broken off where it has begun, and never stored.",
    "To store less and pass on all, set `object_bytes_max` instead.",
);

pub(super) const RULE_TYPE_MISMATCH: Opt = row(
    "type_mismatch",
    Kind::Choice(&["pass", "store"]),
    Preset::Is("\"pass\""),
    Reload::Yes,
    "What happens to a response whose URL ends like that of a file (`.css`, `.png`, ...) and whose `Content-Type` is another one: a page, say (cache deception, docs/guide/protection.md).",
    "`pass`: it goes to the client that asked and is not stored. Absent under `profile = \"rfc9111\"`: `store`.",
);

pub(super) static DEFAULT_RESPONSE: Section = Section {
    name: "site.rule.default_response",
    about: "What GET, HEAD and QUERY requests get when the origin fails (no response in time, no connection, a full queue, an exhausted `miss_budget`) and no stored \
            response may be used. It is never stored.",
    options: &[
        row(
            "status",
            Kind::Integer { min: 200, max: 599 },
            Preset::Is("503"),
            Reload::Yes,
            "Status of the response.",
            "",
        ),
        row(
            "fields",
            Kind::Map { keys: KeyForm::FieldName, values: &Kind::Text("value of a header field") },
            Preset::Is("{}"),
            Reload::Yes,
            "Header fields of the response.",
            "Absent, `Content-Type` is `text/plain; charset=utf-8`, `Cache-Control` is `no-store`, and a 503 has `Retry-After: 1`.",
        ),
        row(
            "body",
            Kind::Text("content"),
            Preset::Absent("empty"),
            Reload::Yes,
            "Content of the response.",
            "",
        ),
        row(
            "file",
            FILE,
            Preset::Absent("none"),
            Reload::Yes,
            "File with the content, in place of `body`.",
            "At most 1 MiB. It is read when the configuration is loaded.",
        ),
        row(
            "statuses",
            STATUSES,
            Preset::Is("[]"),
            Reload::Yes,
            "Errors of the origin that it replaces too, stored ones as well, such as `[500, 502]` or `[\"5xx\"]`.",
            "",
        ),
    ],
};

const BODY: Kind = Kind::Size { min: 0, max: TIB };

pub(super) static RULE_RATE_LIMIT: Section = Section {
    name: "site.rule.rate_limit",
    about: "How fast each client may send requests that the rule matches, beside what `site.rate_limit` allows. The keys are the same.",
    options: RATE_LIMIT,
};

const WINDOW: Opt = row(
    "window",
    Kind::Duration { min_ms: 1000, max_ms: DAY_MS },
    Preset::Is("\"1s\""),
    Reload::Yes,
    "The time for `requests`.",
    "It is no fixed window: requests become available again one by one, evenly spread over it.",
);

const BURST: Opt = row(
    "burst",
    Kind::Integer { min: 1, max: 1_000_000 },
    Preset::Absent("that of `requests`"),
    Reload::Yes,
    "Requests that may come at once.",
    "At most 584 years' worth: at a rate of 1 a day, 213,503.",
);

const RATE_LIMIT: &[Opt] = &[
    row(
        "requests",
        Kind::Integer { min: 1, max: 1_000_000 },
        Preset::Required,
        Reload::Yes,
        "Requests of each client in `window`.",
        "",
    ),
    WINDOW,
    BURST,
    row(
        "count",
        Kind::Choice(&["all", "forwarded"]),
        Preset::Is("\"all\""),
        Reload::Yes,
        "Which requests count: all, or those that no stored response answers.",
        "`forwarded` protects the origin and lets clients have what is stored as often as they like. Requests that wait for another's forward count too.",
    ),
    row(
        "clients_exempt",
        NETWORKS,
        Preset::Is("[]"),
        Reload::Yes,
        "Clients with these addresses are not limited by this limit.",
        "",
    ),
    row(
        "ipv4_prefix",
        Kind::Integer { min: 8, max: 32 },
        Preset::Is("32"),
        Reload::Yes,
        "Bits of an IPv4 address that tell clients apart.",
        "",
    ),
    row(
        "ipv6_prefix",
        Kind::Integer { min: 16, max: 128 },
        Preset::Is("64"),
        Reload::Yes,
        "Bits of an IPv6 address that tell clients apart.",
        "One host can have any address of its /64. Many customers have a /56 or a /48.",
    ),
    row(
        "clients_max",
        Kind::Integer { min: 1024, max: 16_777_216 },
        Preset::Is("65536"),
        Reload::Yes,
        "Clients below their full burst that are told apart at a time.",
        "Each takes 17 bytes, whether it is there or not. With more, clients share what is left to the one that has asked for the least. A client with all of its burst needs no place.",
    ),
    row(
        "fields",
        Kind::Choice(&["refused", "always"]),
        Preset::Is("\"refused\""),
        Reload::Yes,
        "Which responses carry `RateLimit` and `RateLimit-Policy`: those with 429, or all that the limit counts.",
        "",
    ),
    row(
        "dry_run",
        Kind::Flag,
        Preset::Is("false"),
        Reload::Yes,
        "Whether requests beyond the limit are only counted (`larder_rate_limited_total`), and answered like any other.",
        "",
    ),
];

pub(super) static MISS_BUDGET: Section = Section {
    name: "site.rule.miss_budget",
    about: "How many requests that match may go to the origin, all clients together: misses and validations, which a cold or purged cache has many of. Beyond it, \
            clients get a stale response where `stale_if_unreachable` allows one, or else 503 with `Retry-After`. All GET, HEAD and QUERY requests that are forwarded count; requests \
            with other methods (POST, say) don't, nor do those that wait for another's forward.",
    options: &[
        row(
            "requests",
            Kind::Integer { min: 1, max: 1_000_000 },
            Preset::Required,
            Reload::Yes,
            "Requests to the origin in `window`.",
            "",
        ),
        WINDOW,
        BURST,
    ],
};
