//! Keys of the transformation rules of a site. Those of actions stand with their actions.

use gateway::transform::{Phase, actions};

use super::section::*;
use super::site::PATTERN;

section! {
    /// Changes to messages that match all conditions. All rules that match apply, in the order of the file (docs/operate/transform.md).
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
    ..&actions::OPTIONS
}

const FIELD_GLOBS: Kind = Map(KeyForm::FieldName, &Text("glob over the value"));
