//! `rewrite`: changes path and query of a request.

use std::borrow::Cow;

use caching::KeyRules;
use caching::key::reduced_query;
use option_table::Kind::{Flag, Table, Text};
use option_table::{PARAMETERS, row, section};
use regex::Regex;

use crate::transform::{ActionKey, Change, Phases, captures};
use crate::urls::strip_prefix;

row! {
    /// Changes to path and query. Only in `client_request`.
    OPTION("rewrite") = Table(&REWRITE).absent("as sent");
}

section! {
    /// Changes to path and query, in the order of these keys. The site is chosen before the rewrite, the cache rule after it; the cache
    /// key has the new path and query.
    REWRITE = "site.transform.rewrite";
    /// Prefix removed from the path at a segment boundary: `/app` from `/app/a`, but not from `/apple`.
    strip_prefix = Text("path that starts with `/`").absent("nothing"),
    /// Prefix added to the path.
    add_prefix = Text("path that starts with `/`").absent("nothing"),
    /// Part of the path to replace by `to`.
    ///
    /// Unanchored, as in `path.regex`.
    regex = Text("regular expression (syntax of the Rust `regex` crate)").absent("no match"),
    /// Replacement for the match of `regex`.
    ///
    /// Text after a `?` is inserted before the query of the request.
    to = Text("path, with `$1` or `${name}` for captures").absent("none"),
    /// Query parameters to remove; a trailing `*` matches all names with that prefix.
    ///
    /// Unlike with `query_ignore` of a cache rule, the origin doesn't get these parameters either.
    query_ignore = PARAMETERS.default("[]"),
    /// Query parameters to keep; all others are removed.
    ///
    /// Can't be combined with `query_ignore`.
    query_keep = PARAMETERS.absent("all"),
    /// Whether parameters are sorted by name.
    query_sort = Flag.default("false"),
}

/// The key.
pub const KEY: ActionKey = ActionKey { option: OPTION, phases: Phases::ClientRequest };

/// Changes to path and query.
#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    /// Prefix to remove from paths, at a segment boundary.
    pub strip_prefix: Option<String>,
    /// Prefix to add to the path.
    pub add_prefix: Option<String>,
    /// Expression, and the replacement for its match in the path, in which `$1` stands for a capture.
    pub pattern: Option<(Regex, String)>,
    /// Query parameters to keep, and their order.
    pub query: Option<KeyRules>,
}

impl Rewrite {
    /// Checks the replacement for a match.
    ///
    /// # Errors
    /// A message with the problem.
    pub fn replacement(text: &str, expression: &Regex) -> Result<String, String> {
        if text.contains('#') || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("expected a path in visible ASCII without `#`".to_owned());
        }
        captures::check(text, expression).map(|()| text.to_owned())
    }

    /// Returns whether the rewrite changes paths, so that responses are stored under other paths than the requested ones.
    pub(crate) fn changes_path(&self) -> bool {
        let Self { strip_prefix, add_prefix, pattern, query: _ } = self;
        strip_prefix.is_some() || add_prefix.is_some() || pattern.is_some()
    }

    /// Returns whether the rewrite changes the query, whose parameters may be missing from the key. The path is part of the key, so a path
    /// chosen by credentials can't reveal them to other clients.
    pub(crate) fn changes_query(&self) -> bool {
        self.query.is_some() || self.pattern.as_ref().is_some_and(|(_, text)| text.contains('?'))
    }

    pub(super) fn described(&self) -> Change {
        ("rewrite", "path and query".to_owned())
    }
}

/// Returns the path and query after a rewrite. A target without a path stays unchanged.
pub(crate) fn rewritten<'a>(path_and_query: Cow<'a, str>, rewrite: &Rewrite) -> Cow<'a, str> {
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
        Some(prefix) if is_below(path, prefix) => Cow::Owned(strip_prefix(path, prefix)),
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

/// Applies the pattern of a rewrite. A query in the pattern's replacement is inserted before the query of the client.
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
    use caching::{QueryOrder, QueryParameters};

    use super::*;

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
}
