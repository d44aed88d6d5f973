//! Keys of the transformation rules of a site.

use gateway::config::Phase;

use super::section::*;
use super::site::{PARAMETERS, PATTERN};

section! {
    /// Changes to messages that match all conditions. All rules that match apply, in the order of the file (docs/guide/transform.md).
    pub(super) TRANSFORM = "site.transform";
    /// Name in metrics and explanations; unique in its site.
    name = Text("name (letters, digits, `-`, `.`, `_`)").absent("`transform-` and its number"),
    /// Which message is changed, and when.
    ///
    /// `client_request`: the client's request, before the cache key is made of it. `origin_request`: what the origin is sent. `origin_response`: what
    /// the origin answers, before it is stored. `client_response`: any response on its way to a client; what is stored stays as it is.
    phase = one_of::<Phase>().required(),
    /// Hosts that match; an empty list means every host of the site.
    hosts = List(&Text("host name without a port, or `*.` and a host name")).default("[]"),
    /// Paths that match: one of `exact`, `prefix`, `glob`, `regex`.
    ///
    /// In the phases of the client this is the path as sent, in normal form, in those of the origin the path after `rewrite`. In `origin_response` an expression is
    /// compared with the path alone: the query may not be part of the cache key.
    path = Table(&PATTERN).absent("every path"),
    /// Methods that match; an empty list means every method.
    ///
    /// In `origin_response` a HEAD matches as `GET`: its response updates what is stored for GET.
    methods = List(&Text("method, such as `GET` (in capitals)")).default("[]"),
    /// Scheme that matches: of the connection, or as a peer in `trusted_proxies` says.
    scheme = Choice(&["http", "https"]).absent("both"),
    /// Request fields that must be there, each with a glob that one of its values matches; `*` matches any.
    ///
    /// Not in `origin_response`: what is stored is for clients with other fields as well.
    request_fields = FIELD_GLOBS.default("{}"),
    /// Statuses that match; an empty list means every status. Only for responses.
    ///
    /// A 304 matches as the response that it is about, too: 200 where that isn't known. A 206 matches as 200, too.
    statuses = STATUSES.default("[]"),
    /// Response fields that must be there, with globs as in `request_fields`. Only for responses.
    response_fields = FIELD_GLOBS.default("{}"),
    /// Media types that match, without parameters. Only for responses.
    content_types = List(&Text("media type, or a glob such as `text/*`")).default("[]"),
    /// Fields that get the values of another field, if that is there: `copy = { New = "Old" }`.
    ///
    /// In one rule `copy` comes first, then `remove`, `set` and `add`; so `copy` and `remove` rename a field.
    copy = Map(KeyForm::FieldName, &Text("name of the field that it gets the values of")).default("{}"),
    /// Fields that are taken out.
    remove = FIELD_NAMES.default("[]"),
    /// Fields that get one value in place of all that they have, with variables such as `{host}`.
    set = VALUES.default("{}"),
    /// Fields that get one more line.
    add = VALUES.default("{}"),
    /// `Cache-Control` by status, in place of the origin's. Only in `origin_response`.
    ///
    /// Keys are status codes, classes such as `5xx`, or `default`; the most specific one counts. Unlike `ttl_override`, clients see it too. A
    /// targeted field such as `CDN-Cache-Control` still goes before it.
    cache_control = Map(KeyForm::Status, &Text("value of `Cache-Control`")).default("{}"),
    /// Beginnings of `Location` and `Content-Location` that become others; the first that fits counts. Only for responses.
    ///
    /// A beginning ends where a component of the URL does; scheme and host are compared without regard to case.
    location = List(&Table(&PREFIX_CHANGE)).default("[]"),
    /// `Domain` of cookies that a response sets, where they have one. Only for responses.
    cookie_domain = Text("host name, or `none` to take the attribute out").absent("as sent"),
    /// Beginnings of the `Path` of cookies that become others. Only for responses.
    cookie_paths = List(&Table(&PREFIX_CHANGE)).default("[]"),
    /// Changes to path and query. Only in `client_request`.
    rewrite = Table(&REWRITE).absent("as sent"),
    /// Where clients are sent. Only in `client_request`: the first rule with one that matches answers.
    redirect = Table(&REDIRECT).absent("none"),
}

section! {
    /// Changes to path and query, in the order of these keys. The site is chosen before, the cache rule after it; the cache key has the new
    /// ones.
    REWRITE = "site.transform.rewrite";
    /// Cut off the path, where it ends a segment: `/app` of `/app/a`, not of `/apple`.
    strip_prefix = Text("path that starts with `/`").absent("nothing"),
    /// Put before the path.
    add_prefix = Text("path that starts with `/`").absent("nothing"),
    /// Part of the path that becomes `to`.
    ///
    /// Unanchored, as in `path.regex`.
    regex = Text("regular expression (syntax of the Rust `regex` crate)").absent("no match"),
    /// Replacement for the match of `regex`.
    ///
    /// Text after a `?` in it goes before the query of the request.
    to = Text("path, with `$1` or `${name}` for captures").absent("none"),
    /// Query parameters that are taken out; a name that ends with `*` stands for all that begin so.
    ///
    /// Unlike `query_ignore` of a cache rule, the origin does not get them either.
    query_ignore = PARAMETERS.default("[]"),
    /// The only query parameters that stay; an empty list keeps none.
    ///
    /// Not together with `query_ignore`.
    query_keep = PARAMETERS.absent("all"),
    /// Whether parameters are sorted by name.
    query_sort = Flag.default("false"),
}

section! {
    /// Where clients are sent.
    REDIRECT = "site.transform.redirect";
    /// Status of the redirection.
    ///
    /// 308 and 307 keep the method; clients remember 301 and 308.
    status = Choice(&["301", "302", "303", "307", "308"]).default("308"),
    /// Value of `Location`.
    ///
    /// `$1`, `${1}` and `${name}` stand for captures of the rule's `path = { regex = ... }`: with `^/p/([0-9]+)$` and `to = "/product/$1"`, `/p/7`
    /// goes to `/product/7`. They can't be part of the host. Bytes that can't stand in a URL are percent-encoded. A path never begins with `//`,
    /// which would name another server.
    to = Text("URL, or path that starts with `/`, with variables such as `{path}` and captures such as `$1`")
        .required(),
}

section! {
    /// A beginning that becomes another one.
    PREFIX_CHANGE = "site.transform.prefix";
    /// The beginning to look for.
    from = Text("text, not empty").required(),
    /// The text that replaces it.
    to = Text("text").required(),
}

const FIELD_GLOBS: Kind = Map(KeyForm::FieldName, &Text("glob over the value"));
const VALUES: Kind = Map(KeyForm::FieldName, &Text("value, with variables such as `{host}`"));
