//! Keys of the transformation rules of a site.

use super::section::{FIELD_NAMES, KeyForm, Kind, Preset, Reload, STATUSES, Section, row};
use super::site::{PARAMETERS, PATTERN};

pub(super) static TRANSFORM: Section = Section {
    name: "site.transform",
    about: "What is changed of the messages that match all conditions. All rules that match apply, in the order of the file (docs/guide/transform.md).",
    options: &[
        row(
            "name",
            Kind::Text("name (letters, digits, `-`, `.`, `_`)"),
            Preset::Absent("`transform-` and its number"),
            Reload::Yes,
            "Name in metrics and explanations; unique in its site.",
            "",
        ),
        row(
            "phase",
            Kind::Choice(&["client_request", "origin_request", "origin_response", "client_response"]),
            Preset::Required,
            Reload::Yes,
            "Which message is changed, and when.",
            "`client_request`: the client's request, before the cache key is made of it. `origin_request`: what the origin is sent. `origin_response`: what the origin answers, before it is stored. `client_response`: any response on its way to a client; what is stored stays as it is.",
        ),
        row(
            "hosts",
            Kind::List(&Kind::Text("host name without a port, or `*.` and a host name")),
            Preset::Is("[]"),
            Reload::Yes,
            "Hosts that match; an empty list means every host of the site.",
            "",
        ),
        row(
            "path",
            Kind::Table(&PATTERN),
            Preset::Absent("every path"),
            Reload::Yes,
            "Paths that match: one of `exact`, `prefix`, `glob`, `regex`.",
            "In the phases of the client this is the path as sent, in those of the origin the path after `rewrite`. In `origin_response` an expression is compared with the path alone: the query may not be part of the cache key.",
        ),
        row(
            "methods",
            Kind::List(&Kind::Text("method, such as `GET` (in capitals)")),
            Preset::Is("[]"),
            Reload::Yes,
            "Methods that match; an empty list means every method.",
            "In `origin_response` a HEAD matches as `GET`: its response updates what is stored for GET.",
        ),
        row(
            "scheme",
            Kind::Choice(&["http", "https"]),
            Preset::Absent("both"),
            Reload::Yes,
            "Scheme that matches: of the connection, or as a peer in `trusted_proxies` says.",
            "",
        ),
        row(
            "request_fields",
            FIELD_GLOBS,
            Preset::Is("{}"),
            Reload::Yes,
            "Request fields that must be there, each with a glob that one of its values matches; `*` matches any.",
            "Not in `origin_response`: what is stored is for clients with other fields as well.",
        ),
        row(
            "statuses",
            STATUSES,
            Preset::Is("[]"),
            Reload::Yes,
            "Statuses that match; an empty list means every status. Only for responses.",
            "A 304 matches as the response that it is about, too: 200 where that isn't known. A 206 matches as 200, too.",
        ),
        row(
            "response_fields",
            FIELD_GLOBS,
            Preset::Is("{}"),
            Reload::Yes,
            "Response fields that must be there, with globs as in `request_fields`. Only for responses.",
            "",
        ),
        row(
            "content_types",
            Kind::List(&Kind::Text("media type, or a glob such as `text/*`")),
            Preset::Is("[]"),
            Reload::Yes,
            "Media types that match, without parameters. Only for responses.",
            "",
        ),
        row(
            "copy",
            Kind::Map {
                keys: KeyForm::FieldName,
                values: &Kind::Text("name of the field that it gets the values of"),
            },
            Preset::Is("{}"),
            Reload::Yes,
            "Fields that get the values of another field, if that is there: `copy = { New = \"Old\" }`.",
            "In one rule `copy` comes first, then `remove`, `set` and `add`; so `copy` and `remove` rename a field.",
        ),
        row("remove", FIELD_NAMES, Preset::Is("[]"), Reload::Yes, "Fields that are taken out.", ""),
        row(
            "set",
            VALUES,
            Preset::Is("{}"),
            Reload::Yes,
            "Fields that get one value in place of all that they have, with variables such as `{host}`.",
            "",
        ),
        row("add", VALUES, Preset::Is("{}"), Reload::Yes, "Fields that get one more line.", ""),
        row(
            "cache_control",
            Kind::Map { keys: KeyForm::Status, values: &Kind::Text("value of `Cache-Control`") },
            Preset::Is("{}"),
            Reload::Yes,
            "`Cache-Control` by status, in place of the origin's. Only in `origin_response`.",
            "Keys are status codes, classes such as `5xx`, or `default`; the most specific one counts. Unlike `ttl_override`, clients see it too. A targeted field such as `CDN-Cache-Control` still goes before it.",
        ),
        row(
            "location",
            Kind::List(&Kind::Table(&PREFIX_CHANGE)),
            Preset::Is("[]"),
            Reload::Yes,
            "Beginnings of `Location` and `Content-Location` that become others; the first that fits counts. Only for responses.",
            "A beginning ends where a component of the URL does; scheme and host are compared without regard to case.",
        ),
        row(
            "cookie_domain",
            Kind::Text("host name, or `none` to take the attribute out"),
            Preset::Absent("as sent"),
            Reload::Yes,
            "`Domain` of cookies that a response sets, where they have one. Only for responses.",
            "",
        ),
        row(
            "cookie_paths",
            Kind::List(&Kind::Table(&PREFIX_CHANGE)),
            Preset::Is("[]"),
            Reload::Yes,
            "Beginnings of the `Path` of cookies that become others. Only for responses.",
            "",
        ),
        row(
            "rewrite",
            Kind::Table(&REWRITE),
            Preset::Absent("as sent"),
            Reload::Yes,
            "What becomes of path and query. Only in `client_request`.",
            "",
        ),
        row(
            "redirect",
            Kind::Table(&REDIRECT),
            Preset::Absent("none"),
            Reload::Yes,
            "Where clients are sent. Only in `client_request`: the first rule with one that matches answers.",
            "",
        ),
    ],
};

static REWRITE: Section = Section {
    name: "site.transform.rewrite",
    about: "What becomes of path and query, in the order of these keys. The site is chosen before, the cache rule after it; the cache key has the new ones.",
    options: &[
        row(
            "strip_prefix",
            Kind::Text("path that starts with `/`"),
            Preset::Absent("nothing"),
            Reload::Yes,
            "Cut off the path, where it ends a segment: `/app` of `/app/a`, not of `/apple`.",
            "",
        ),
        row(
            "add_prefix",
            Kind::Text("path that starts with `/`"),
            Preset::Absent("nothing"),
            Reload::Yes,
            "Put before the path.",
            "",
        ),
        row(
            "regex",
            Kind::Text("regular expression (syntax of the Rust `regex` crate)"),
            Preset::Absent("no match"),
            Reload::Yes,
            "Part of the path that becomes `to`.",
            "Unanchored, as in `path.regex`.",
        ),
        row(
            "to",
            Kind::Text("path, with `$1` or `${name}` for captures"),
            Preset::Absent("none"),
            Reload::Yes,
            "What the match of `regex` becomes.",
            "What stands behind a `?` in it goes before the query of the request.",
        ),
        row(
            "query_ignore",
            PARAMETERS,
            Preset::Is("[]"),
            Reload::Yes,
            "Query parameters that are taken out; a name that ends with `*` stands for all that begin so.",
            "Unlike `query_ignore` of a cache rule, the origin does not get them either.",
        ),
        row(
            "query_keep",
            PARAMETERS,
            Preset::Absent("all"),
            Reload::Yes,
            "The only query parameters that stay; an empty list keeps none.",
            "Not together with `query_ignore`.",
        ),
        row(
            "query_sort",
            Kind::Flag,
            Preset::Is("false"),
            Reload::Yes,
            "Whether parameters are sorted by name.",
            "",
        ),
    ],
};

static REDIRECT: Section = Section {
    name: "site.transform.redirect",
    about: "Where clients are sent.",
    options: &[
        row(
            "status",
            Kind::Choice(&["301", "302", "303", "307", "308"]),
            Preset::Is("\"308\""),
            Reload::Yes,
            "Status of the redirection.",
            "308 and 307 keep the method; clients remember 301 and 308.",
        ),
        row(
            "to",
            Kind::Text(
                "URL, or path that starts with `/`, with variables such as `{path}` and captures such as `$1`",
            ),
            Preset::Required,
            Reload::Yes,
            "Value of `Location`.",
            "`$1`, `${1}` and `${name}` stand for captures of the rule's `path = { regex = ... }`: with `^/p/([0-9]+)$` and `to = \"/product/$1\"`, `/p/7` goes to `/product/7`. They can't be part of the host. Bytes that can't stand in a URL are percent-encoded. A path never begins with `//`, which would name another server.",
        ),
    ],
};

static PREFIX_CHANGE: Section = Section {
    name: "site.transform.prefix",
    about: "A beginning that becomes another one.",
    options: &[
        row("from", Kind::Text("text, not empty"), Preset::Required, Reload::Yes, "What it is.", ""),
        row("to", Kind::Text("text"), Preset::Required, Reload::Yes, "What it becomes.", ""),
    ],
};

const FIELD_GLOBS: Kind = Kind::Map { keys: KeyForm::FieldName, values: &Kind::Text("glob over the value") };
const VALUES: Kind =
    Kind::Map { keys: KeyForm::FieldName, values: &Kind::Text("value, with variables such as `{host}`") };
