//! Applies rules to the client's request: to its fields, path and query, or with a redirect in place of an answer. Pure.
//!
//! The result takes the place of the client's request for all that follows: facts, key, `Vary` and origin. Fields that `Connection`
//! names are removed before, so that a client can't remove a field that a rule has added.

use std::borrow::Cow;
use std::net::IpAddr;

use caching::key::reduced_query;
use caching::{FieldLine, HopByHop, target};
use message::fields::PackedFields;
use message::head::{Nominations, RequestHead};

use super::edit::{Context, TooLarge};
use super::rules::{Matching, Seen, matching};
use crate::config::{Action, Phase, Redirect, Rewrite, TransformRule};
use crate::routing;

/// Outcome of the rules for a request.
pub(crate) enum Shape {
    /// The gateway answers, with this status and `Location`.
    Redirect { status: u16, location: Vec<u8> },
    /// The request goes on in this form.
    Request(Shaped),
}

/// Replacement for a client's request.
pub(crate) struct Shaped {
    pub(crate) fields: PackedFields,
    pub(crate) path_and_query: String,
    /// Rules that made it.
    pub(crate) matching: Matching,
}

impl Shaped {
    /// The request with these `lines`, which are those of [`Self::fields`].
    pub(crate) fn over<'a>(
        &'a self,
        client: &RequestHead<'a>,
        lines: &'a [FieldLine<'a>],
    ) -> RequestHead<'a> {
        RequestHead {
            path_and_query: &self.path_and_query,
            fields: lines,
            nominations: Nominations::None,
            ..*client
        }
    }
}

/// Rules that a client's request matches.
pub(crate) fn matching_client(
    rules: &[TransformRule],
    request: &RequestHead<'_>,
    client: IpAddr,
) -> Matching {
    matching(rules, &Seen::of(request, client, Phase::ClientRequest), None)
}

/// Applies the matching rules to a request.
///
/// # Errors
/// If the request becomes too large for any.
pub(crate) fn shape(
    rules: &[TransformRule],
    matching: &Matching,
    request: &RequestHead<'_>,
    client: IpAddr,
) -> Result<Shape, TooLarge> {
    let seen = Seen::of(request, client, Phase::ClientRequest);
    let context = Context::of_request(&seen);
    let hop_by_hop = HopByHop::of(request.fields);
    let is_kept = |(name, _): &&FieldLine<'_>| !hop_by_hop.contains(name) || is_of_larder(name);
    let mut fields = PackedFields::from_lines(request.fields.iter().filter(is_kept).copied());
    let rules_matching = || matching.iter().filter_map(|place| rules.get(usize::from(*place)));
    for action in rules_matching().flat_map(|rule| &rule.actions) {
        if let Action::Redirect(redirect) = action
            && let Some(location) = location(redirect, &context, &fields)
        {
            return Ok(Shape::Redirect { status: redirect.status, location });
        }
    }
    context.apply(rules, matching, &mut fields)?;
    let rewrites = rules_matching().flat_map(|rule| &rule.actions).filter_map(|action| match action {
        Action::Rewrite(rewrite) => Some(rewrite),
        _ => None,
    });
    let path_and_query = rewrites.fold(Cow::Borrowed(request.path_and_query), rewritten);
    let path_and_query = target::normal_form(&path_and_query).unwrap_or_else(|| path_and_query.into_owned());
    Ok(Shape::Request(Shaped { fields, path_and_query, matching: matching.clone() }))
}

/// Whether the gateway itself reads a field of the connection.
fn is_of_larder(name: &str) -> bool {
    name.eq_ignore_ascii_case("te")
}

/// Value of `Location`; `None` if it would be invalid, or the request is for no path: `OPTIONS *`.
fn location(redirect: &Redirect, context: &Context<'_>, fields: &PackedFields) -> Option<Vec<u8>> {
    if context.seen.path_and_query == "*" {
        return None;
    }
    let value = match &redirect.captured {
        Some(expression) => context.value_captured(&redirect.to, expression, fields)?,
        None => context.value(&redirect.to, fields)?,
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
    // A template turns a request without a query into `/a?`.
    if location.last() == Some(&b'?') && !has_query(context.seen.path_and_query) {
        location.pop();
    }
    (!location.is_empty()).then_some(location)
}

/// Whether a URL lacks a server, like `https://{host}{path}` for a request without Host: browsers would take the path for one.
fn names_no_server(url: &[u8]) -> bool {
    let rest = url.strip_prefix(b"http://").or_else(|| url.strip_prefix(b"https://"));
    rest.is_some_and(|rest| rest.first().is_none_or(|first| b"/?#:".contains(first)))
}

fn has_query(path_and_query: &str) -> bool {
    path_and_query.split_once('?').is_some_and(|(_, query)| !query.is_empty())
}

/// Path and query after a rewrite. A target without a path stays as it is.
fn rewritten<'a>(path_and_query: Cow<'a, str>, rewrite: &Rewrite) -> Cow<'a, str> {
    if !path_and_query.starts_with('/') {
        return path_and_query;
    }
    let (path, query) = match path_and_query.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (&*path_and_query, None),
    };
    let (path, query) = with_pattern(rewrite, &with_prefixes(rewrite, path), query);
    let query = match (&rewrite.query, query) {
        (Some(rules), Some(query)) => {
            reduced_query(query.as_bytes(), rules).and_then(|query| String::from_utf8(query).ok())
        }
        (_, query) => query,
    };
    match query {
        Some(query) => format!("{path}?{query}").into(),
        None => path.into(),
    }
}

fn with_prefixes<'a>(rewrite: &Rewrite, path: &'a str) -> Cow<'a, str> {
    let stripped = match &rewrite.strip_prefix {
        Some(prefix) if is_below(path, prefix) => Cow::Owned(routing::strip_prefix(path, prefix)),
        _ => Cow::Borrowed(path),
    };
    match &rewrite.add_prefix {
        Some(prefix) => format!("{}{stripped}", prefix.trim_end_matches('/')).into(),
        None => stripped,
    }
}

fn is_below(path: &str, prefix: &str) -> bool {
    let rest = path.strip_prefix(prefix.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Applies the pattern of a rewrite. A query in its replacement goes before the client's own.
fn with_pattern(rewrite: &Rewrite, path: &str, query: Option<String>) -> (String, Option<String>) {
    let Some((pattern, text)) = &rewrite.pattern else { return (path.to_owned(), query) };
    let replaced = pattern.replace(path, text.as_str());
    let (path, own) = match replaced.split_once('?') {
        Some((path, own)) => (path.to_owned(), Some(own.to_owned())),
        None => (replaced.into_owned(), None),
    };
    let path = if path.starts_with('/') { path } else { format!("/{path}") };
    let query = match (own, query) {
        (Some(own), Some(query)) => Some(format!("{own}&{query}")),
        (own, query) => own.or(query),
    };
    (path, query)
}

#[cfg(test)]
mod tests {
    use caching::{KeyRules, QueryOrder, QueryParameters};
    use regex::Regex;

    use super::*;
    use crate::config::Template;

    fn rewrite_of(pattern: &str, text: &str) -> Rewrite {
        Rewrite { pattern: Some((Regex::new(pattern).unwrap(), text.to_owned())), ..Rewrite::default() }
    }

    #[test]
    fn paths_are_rewritten() {
        let check = |rewrite: &Rewrite, from: &str, to: &str| {
            assert_eq!(rewritten(from.into(), rewrite), to, "{from} by {rewrite:?}");
        };
        let strip = Rewrite { strip_prefix: Some("/app".to_owned()), ..Rewrite::default() };
        check(&strip, "/app/x?y", "/x?y");
        check(&strip, "/app", "/");
        check(&strip, "/application", "/application");
        let replace = Rewrite { add_prefix: Some("/v2/".to_owned()), ..strip.clone() };
        check(&replace, "/app/x", "/v2/x");
        check(&replace, "/x", "/v2/x");
        let pattern = rewrite_of("^/product/(\\d+)$", "/product.php?id=$1");
        check(&pattern, "/product/7", "/product.php?id=7");
        check(&pattern, "/product/7?a=b", "/product.php?id=7&a=b");
        check(&pattern, "/product/x?a=b", "/product/x?a=b");
        check(&rewrite_of("^/+", ""), "//evil.example/", "/evil.example/");
        check(&rewrite_of("^/a", ""), "/a", "/");
        check(&strip, "*", "*");
        let parameters = QueryParameters::Ignore(vec![b"utm_*"[..].into()]);
        let query =
            Rewrite { query: Some(KeyRules { parameters, order: QueryOrder::Sorted }), ..Rewrite::default() };
        check(&query, "/x?b=1&utm_source=y&a=2", "/x?a=2&b=1");
        check(&query, "/x?utm_source=y", "/x");
        check(&query, "/x", "/x");
    }

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
                let context = Context::of_request(&seen);
                let captured = expression.map(|expression| Regex::new(expression).unwrap());
                let redirect = Redirect { status: 301, to: Template::parse(to).unwrap(), captured };
                let fields = PackedFields::from_lines(seen.fields.iter().copied());
                let found = location(&redirect, &context, &fields).unwrap_or_default();
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
