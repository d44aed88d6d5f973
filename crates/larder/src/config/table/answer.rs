//! Keys of what a site answers itself: CORS, maintenance, pages for errors.

use super::section::{DAY_MS, FIELD_NAMES, FILE, Kind, NETWORKS, Preset, Reload, STATUSES, Section, row};

pub(super) static CORS: Section = Section {
    name: "site.cors",
    about: "Which other web origins may read what the site answers, and how they may ask (docs/guide/transform.md#cors). Takes the place of what the origin server says of it.",
    options: &[
        row(
            "origins",
            Kind::List(&Kind::Text("web origin, such as `https://app.example`, or `*` alone")),
            Preset::Required,
            Reload::Yes,
            "Web origins that may.",
            "Scheme, host and port if it is not the usual one, as browsers write them. `*` stands for all.",
        ),
        row(
            "methods",
            Kind::List(&Kind::Text("method, such as `GET` (in capitals)")),
            Preset::Is("[\"GET\", \"HEAD\", \"POST\"]"),
            Reload::Yes,
            "Methods that they may use.",
            "",
        ),
        row(
            "headers",
            Kind::List(&Kind::Text("header field name, or `*` alone")),
            Preset::Is("[]"),
            Reload::Yes,
            "Request fields that they may send, beside those that all may. `*` stands for those that they ask for.",
            "",
        ),
        row(
            "credentials",
            Kind::Flag,
            Preset::Is("false"),
            Reload::Yes,
            "Whether they may ask as their user, with cookies.",
            "Not with `origins = [\"*\"]`: any page could then read what its visitors may.",
        ),
        row(
            "max_age",
            Kind::Duration { min_ms: 0, max_ms: DAY_MS },
            Preset::Absent("as the browser has it: 5s"),
            Reload::Yes,
            "How long browsers remember the answer to a preflight.",
            "",
        ),
        row(
            "exposed",
            FIELD_NAMES,
            Preset::Is("[]"),
            Reload::Yes,
            "Response fields that they may read, beside those that all may.",
            "",
        ),
    ],
};

pub(super) static MAINTENANCE: Section = Section {
    name: "site.maintenance",
    about: "Answers 503 in place of the site (docs/guide/transform.md#maintenance). Stored responses are kept.",
    options: &[
        row(
            "enabled",
            Kind::Flag,
            Preset::Required,
            Reload::Yes,
            "Whether it does; `false` keeps the other keys for the next time.",
            "Required, so that a table that only prepares a maintenance doesn't begin it.",
        ),
        row(
            "clients_admitted",
            NETWORKS,
            Preset::Is("[]"),
            Reload::Yes,
            "Clients that get the site all the same.",
            "The client is the same as for `clients_allowed`.",
        ),
        row(
            "retry_after",
            Kind::Duration { min_ms: 1_000, max_ms: 30 * DAY_MS },
            Preset::Is("\"5m\""),
            Reload::Yes,
            "`Retry-After`.",
            "",
        ),
        row(
            "body_file",
            FILE,
            Preset::Absent("the page for 503, or a line of text"),
            Reload::Yes,
            "File with the body, at most 1MiB.",
            "",
        ),
        row("content_type", CONTENT_TYPE, Preset::Is(HTML), Reload::Yes, "`Content-Type` of it.", ""),
    ],
};

pub(super) static ERROR_PAGE: Section = Section {
    name: "site.error_page",
    about: "The body of errors that Larder answers itself, for want of an answer of the origin. The first that fits counts.",
    options: &[
        row(
            "statuses",
            STATUSES,
            Preset::Required,
            Reload::Yes,
            "Which errors.",
            "Errors that the origin server answers keep their bodies.",
        ),
        row(
            "body_file",
            FILE,
            Preset::Required,
            Reload::Yes,
            "File with the body, at most 1MiB.",
            "It is read when the configuration is.",
        ),
        row("content_type", CONTENT_TYPE, Preset::Is(HTML), Reload::Yes, "`Content-Type` of it.", ""),
    ],
};

const CONTENT_TYPE: Kind = Kind::Text("media type");
const HTML: &str = "\"text/html; charset=utf-8\"";
