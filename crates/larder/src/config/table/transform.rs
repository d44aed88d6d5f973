//! Keys of the transformation rules of a site. Keys of actions are defined with their actions.

use gateway::transform::{Phase, actions};

use super::section::*;
use super::site::PATTERN;

section! {
    /// Changes to messages that match all conditions. All matching rules apply, in the order of the file (docs/operate/transform.md).
    pub(super) TRANSFORM = "site.transform";
    /// Name in metrics and explanations; unique in its site.
    name = Text("name (letters, digits, `-`, `.`, `_`)").absent("`transform-` and its number"),
    /// Phase in which the rule applies, and thereby the message that it changes.
    ///
    /// `client_request`: the client's request, before the cache key is computed. `origin_request`: the request to the origin.
    /// `origin_response`: the origin's response, before it is stored. `client_response`: any response to a client; stored responses stay
    /// unchanged.
    phase = one_of::<Phase>().required(),
    /// Hosts that match; an empty list means every host of the site.
    hosts = List(&Text("host name without a port, or `*.` and a host name")).default("[]"),
    /// Paths that match: one of `exact`, `prefix`, `glob`, `regex`.
    ///
    /// In the client's phases, this is the path as sent, in normal form; in the origin's phases, it is the path after `rewrite`. In
    /// `origin_response` an expression is compared with the path alone: the query may not be part of the cache key.
    path = Table(&PATTERN).absent("every path"),
    /// Methods that match; an empty list means every method.
    ///
    /// In `origin_response` a HEAD matches as `GET`: its response updates the stored response for GET.
    methods = List(&Text("method, such as `GET` (in capitals)")).default("[]"),
    /// Scheme that matches: that of the connection, or the one that a peer in `trusted_proxies` reports.
    scheme = Choice(&["http", "https"]).absent("both"),
    /// Request fields that must be present, each with a glob that one of its values matches; `*` matches any.
    ///
    /// They are not allowed in `origin_response`: stored responses also answer clients with other fields.
    request_fields = FIELD_GLOBS.default("{}"),
    /// Statuses that match; an empty list means every status. Only for responses.
    ///
    /// A 304 also matches as the response that it validates, or as 200 if that isn't known. A 206 also matches as 200.
    statuses = STATUSES.default("[]"),
    /// Response fields that must be present, with globs as in `request_fields`. Only for responses.
    response_fields = FIELD_GLOBS.default("{}"),
    /// Media types that match, without parameters. Only for responses.
    content_types = List(&Text("media type, or a glob such as `text/*`")).default("[]"),
    ..&actions::OPTIONS
}

const FIELD_GLOBS: Kind = Map(KeyForm::FieldName, &Text("glob over the value"));
