//! `redirect`: redirects the client.

use http::HeaderName;
use message::fields::PackedFields;
use option_table::Kind::{Choice, Table, Text};
use option_table::{row, section};

use crate::transform::captures::{self, Captured};
use crate::transform::{ActionKey, Change, Phase, Phases, Subject, Template};

row! {
    /// Redirect for clients. Only in `client_request`: the first matching rule with a redirect answers the request.
    OPTION("redirect") = Table(&REDIRECT).absent("none");
}

section! {
    /// Redirect for clients.
    REDIRECT = "site.transform.redirect";
    /// Status of the redirect.
    ///
    /// 307 and 308 preserve the method; clients cache 301 and 308.
    status = Choice(&["301", "302", "303", "307", "308"]).default("308"),
    /// Value of `Location`.
    ///
    /// `$1`, `${1}` and `${name}` stand for captures of the rule's `path = { regex = ... }`: with `^/p/([0-9]+)$` and `to =
    /// "/product/$1"`, `/p/7` goes to `/product/7`. They can't be part of the host. Bytes that aren't allowed in a URL are
    /// percent-encoded. A path never begins with `//`, which would name another server.
    to = Text("URL, or path that starts with `/`, with variables such as `{path}` and captures such as `$1`")
        .required(),
}

/// The key.
pub const KEY: ActionKey = ActionKey { option: OPTION, phases: Phases::ClientRequest };

/// A redirect of the client.
#[derive(Clone, Debug)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    /// `Location`.
    pub to: Template,
    /// The rule's expression, if `to` refers to its captures.
    pub captured: Option<Captured>,
}

impl Redirect {
    /// Checks the target.
    ///
    /// # Errors
    /// A message with the problem.
    pub fn target(text: &str) -> Result<Template, String> {
        if !["http://", "https://", "/", "{path}"].iter().any(|begin| text.starts_with(begin)) {
            return Err("must start with `http://`, `https://`, `/` or `{path}`".to_owned());
        }
        if text.starts_with("//") {
            return Err("`//` names another server: write its scheme".to_owned());
        }
        let to = Template::in_phase(&with_captures_kept(text), Phase::ClientRequest)?;
        to.check_server().map(|()| to)
    }

    /// Returns the expression for the captures in a target, if the target has any. `expression` compiles the expression in the rule's
    /// `path`, if there is one; failures are reported elsewhere.
    pub fn captured<E>(
        to: &str,
        expression: impl FnOnce() -> Option<Result<Captured, E>>,
    ) -> Result<Option<Captured>, String> {
        let Some(first) = captures::named(to).next() else { return Ok(None) };
        let authority = to.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
        if authority.is_some_and(|authority| authority.contains('$')) {
            return Err("a capture can't be part of the host, because clients could then choose the server: write `/` before it".to_owned());
        }
        match expression() {
            None => Err(format!(
                "`${first}` needs `path = {{ regex = ... }}` with that capture in the same rule; write `%24` for a dollar sign"
            )),
            Some(Err(_)) => Ok(None),
            Some(Ok(captured)) => captures::check(to, &captured.expression).map(|()| Some(captured)),
        }
    }

    pub(super) fn answer(&self, subject: &Subject<'_>, fields: &PackedFields) -> Option<(u16, Vec<u8>)> {
        location(self, subject, fields).map(|location| (self.status, location))
    }

    pub(super) fn request_fields_read(&self, phase: Phase) -> Vec<&HeaderName> {
        self.to.request_fields(phase).collect()
    }

    pub(super) fn described(&self) -> Change {
        ("redirect", self.status.to_string())
    }
}

/// Returns the text with doubled braces around the names of captures, which aren't variables.
fn with_captures_kept(text: &str) -> String {
    let mut parts = text.split("${");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('}') {
            Some((name, rest)) => kept.extend(["${{", name, "}}", rest]),
            None => kept.extend(["${", part]),
        }
    }
    kept
}

/// Returns the value of `Location`; `None` if it would be invalid, or if the request has no path: `OPTIONS *`.
fn location(redirect: &Redirect, subject: &Subject<'_>, fields: &PackedFields) -> Option<Vec<u8>> {
    if subject.seen.path_and_query == "*" {
        return None;
    }
    let value = match &redirect.captured {
        Some(captured) => subject.value_captured(&redirect.to, captured, fields)?,
        None => subject.value(&redirect.to, fields)?,
    };
    if names_no_server(&value) {
        return None;
    }
    // `//host` and `/\host` name another server.
    let slashes = value.iter().take_while(|byte| matches!(byte, b'/' | b'\\')).count();
    let (begin, rest): (&[u8], _) = if slashes > 0 { (b"/", &value[slashes..]) } else { (b"", &value[..]) };
    let mut location = begin.to_vec();
    for byte in rest {
        match byte {
            b'<' | b'>' | b'"' | b' ' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 0..=0x1f | 0x7f.. => {
                location.extend_from_slice(format!("%{byte:02X}").as_bytes());
            }
            byte => location.push(*byte),
        }
    }
    // For a request without a query, a template may produce `/a?`.
    if location.last() == Some(&b'?') && !has_query(subject.seen.path_and_query) {
        location.pop();
    }
    (!location.is_empty()).then_some(location)
}

/// Returns whether a URL has no server name, such as `https://{host}{path}` for a request without Host: browsers would take the path
/// for a server name.
fn names_no_server(url: &[u8]) -> bool {
    let rest = url.strip_prefix(b"http://").or_else(|| url.strip_prefix(b"https://"));
    rest.is_some_and(|rest| rest.first().is_none_or(|first| b"/?#:".contains(first)))
}

fn has_query(path_and_query: &str) -> bool {
    path_and_query.split_once('?').is_some_and(|(_, query)| !query.is_empty())
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;
    use crate::transform::Seen;

    #[test]
    fn a_redirection_stays_where_its_text_says() {
        let check_all =
            |authority: &str, expression: Option<&str>, to: &str, path_and_query: &str, expected: &str| {
                let seen = Seen {
                    method: "GET",
                    scheme: "http",
                    authority,
                    path_and_query,
                    fields: &[("X-Odd", b"a \xffb")],
                    client: [127, 0, 0, 1].into(),
                };
                let subject = Subject { seen: &seen, status: None };
                let captured = expression.map(|expression| Captured {
                    expression: Regex::new(expression).unwrap(),
                    with_query: expression.starts_with("[?&]"),
                });
                let redirect = Redirect { status: 301, to: Template::parse(to).unwrap(), captured };
                let fields = PackedFields::from_lines(seen.fields.iter().copied());
                let found = location(&redirect, &subject, &fields).unwrap_or_default();
                assert_eq!(String::from_utf8_lossy(&found), expected, "{to} for {path_and_query}");
            };
        let check =
            |to: &str, path: &str, expected: &str| check_all("a.example:80", None, to, path, expected);
        let by =
            |expression, to, path, expected| check_all("a.example:80", Some(expression), to, path, expected);
        by("^/p/([0-9]+)$", "/product/$1", "/p/7", "/product/7");
        by(
            "^/(?<kind>[a-z]+)/(.*)",
            "https://{host}/${{kind}}s/$2?from={path}",
            "/a/b",
            "https://a.example/as/b?from=/a/b",
        );
        by("^/go(.*)", "$1", "/go//evil.example/", "/evil.example/");
        by("^/go/(.*)", "/$1", "/go//evil.example/", "/evil.example/");
        by("[?&]id=([0-9]+)", "/item/$1", "/old?id=3", "/item/3");
        by("^/p/([0-9]+)$", "/product/$1", "/p/7?x=1", "/product/7");
        by("^/go/(.*)", "/$1?{query}", "/go/a?x=1", "/a?x=1");
        by("^/p/([0-9]+)$", "/product/$1", "/q", "");
        check("/a$1", "/a", "/a$1");
        let check_for = |authority, to, path, expected| check_all(authority, None, to, path, expected);
        check_for("", "https://{host}{path}", "/evil.example/", "");
        check("https://{authority}{path}", "*", "");
        check_for("", "https://{authority}:80{path}", "/evil.example/", "");
        check_for("", "https://www.{host}{path}", "/a", "https://www./a");
        check("https://{host}{path}?{query}", "/a?b=c", "https://a.example/a?b=c");
        check("https://{host}{path}?{query}", "/a", "https://a.example/a");
        check("https://{host}{path}?{query}", "/a?", "https://a.example/a");
        check("https://{host}{path}?{query}", "/a?b=c?", "https://a.example/a?b=c?");
        check("https://{host}{path}?{query}", "/a??", "https://a.example/a??");
        check("{path}", "//evil.example/", "/evil.example/");
        check("/new{path}", "/a", "/new/a");
        check("{path}", "/\\evil.example", "/evil.example");
        check("/?{header.X-Odd}", "/", "/?a%20%FFb");
        check("/<>{{", "/", "/%3C%3E%7B");
    }
}
