//! Unreachable rules: an earlier rule matches all of their requests, or the site never gets such requests.

use gateway::config::Spelling;
use gateway::transform::actions::redirect;

use super::rule::spelling;
use super::scope::Scope;
use crate::config::tree::{Node, Table};

/// Reports cache rules that no request reaches, as far as a comparison of the patterns shows it.
pub(super) fn check_rules(scope: &mut Scope<'_>, site: &Table) {
    let rules: Vec<(&Table, Option<Reach<'_>>)> =
        site.tables("rule").map(|table| (table, Reach::of(table, spelling(table)))).collect();
    let prefix = site.text("path_prefix").unwrap_or("/").trim_end_matches('/');
    for (index, (table, reach)) in rules.iter().enumerate() {
        let Some(reach) = reach else { continue };
        let earlier = rules[..index].iter().find_map(|(table, earlier)| {
            let earlier = earlier.as_ref()?;
            earlier.covers(reach).then_some((table, earlier))
        });
        let message = match earlier {
            Some((earlier, Reach { paths: Paths::All, methods, .. })) if methods.is_empty() => {
                format!("unreachable: `{}` above it matches every request", earlier.path)
            }
            Some((earlier, _)) => {
                format!("unreachable: `{}` above it matches every request that it does", earlier.path)
            }
            None if !reach.is_below(prefix) => {
                format!("unreachable: the paths of the site begin with `{prefix}/`")
            }
            None => continue,
        };
        scope.warning_in(table, message);
    }
}

/// Reports transformation rules that no request reaches: outside of the site's paths and hosts, or after a
/// redirection.
pub(super) fn check_transforms(scope: &mut Scope<'_>, site: &Table) {
    let prefix = site.text("path_prefix").unwrap_or("/").trim_end_matches('/');
    let mut redirects: Vec<(&Table, Reach<'_>)> = Vec::new();
    for table in site.tables("transform") {
        let Some(reach) = Reach::of(table, Spelling::AsWritten) else { continue };
        let is_first = table.text("phase") == Some("client_request");
        let redirected = redirects.iter().find(|(_, earlier)| is_first && earlier.covers(&reach));
        let message = match redirected {
            Some((earlier, _)) => Some(format!(
                "never applies: `{}` above it redirects every request that it matches",
                earlier.path
            )),
            None if is_first && !reach.is_below(prefix) => {
                Some(format!("never matches: the paths of the site begin with `{prefix}/`"))
            }
            None if !shares_hosts(site, table) => {
                Some("never matches: the site has none of these `hosts`".to_owned())
            }
            None => None,
        };
        if let Some(message) = message {
            scope.warning_in(table, message);
        }
        let is_plain = ["hosts", "scheme", "request_fields"].iter().all(|key| table.given(key).is_none());
        if is_first && is_plain && table.node(redirect::KEY.name()).is_some() {
            redirects.push((table, reach));
        }
    }
}

/// Returns whether a rule is for a host of the site.
fn shares_hosts(site: &Table, rule: &Table) -> bool {
    let is_below = |host: &str, pattern: &str| {
        pattern.strip_prefix('*').is_some_and(|domain| host.trim_start_matches('*').ends_with(domain))
    };
    let fits = |one: &str, other: &str| {
        let (one, other) = (one.to_ascii_lowercase(), other.to_ascii_lowercase());
        one == other || is_below(&one, &other) || is_below(&other, &one)
    };
    let (of_site, of_rule) = (site.list("hosts"), rule.list("hosts"));
    let is_of_site = |host: &Node| of_site.iter().any(|other| fits(host.as_text(), other.as_text()));
    of_site.is_empty() || of_rule.is_empty() || of_rule.iter().any(is_of_site)
}

/// The requests that a rule matches.
struct Reach<'a> {
    paths: Paths<'a>,
    spelling: Spelling,
    /// Matched methods; empty for all.
    methods: Vec<&'a str>,
}

enum Paths<'a> {
    All,
    Exact(&'a str),
    Prefix(&'a str),
    /// A pattern with wildcards, and the text before the first of them.
    Pattern {
        key: &'static str,
        text: &'a str,
        head: &'a str,
    },
}

impl<'a> Reach<'a> {
    /// Returns `None` if an error in the rule makes its intent unclear.
    fn of(rule: &'a Table, spelling: Spelling) -> Option<Self> {
        let is_wrong = rule.is_wrong("path") || rule.is_wrong("methods");
        let methods = rule.list("methods").iter().map(|node| node.as_text()).collect();
        let paths = rule.optional_table("path").map_or(Some(Paths::All), Paths::of)?;
        let is_wrong = is_wrong || !paths.are_paths();
        (!is_wrong).then_some(Self { paths, spelling, methods })
    }

    fn covers(&self, other: &Self) -> bool {
        let has = |method: &&str| self.methods.contains(method);
        let has_methods =
            self.methods.is_empty() || !other.methods.is_empty() && other.methods.iter().all(has);
        has_methods && self.paths.cover(&other.paths, self.spelling)
    }

    fn is_below(&self, prefix: &str) -> bool {
        self.paths.are_below(prefix, self.spelling)
    }
}

impl<'a> Paths<'a> {
    fn of(path: &'a Table) -> Option<Self> {
        let pattern = |key, text, head| Self::Pattern { key, text, head };
        match (path.text("exact"), path.text("prefix"), path.text("glob"), path.text("regex")) {
            (Some(text), None, None, None) => Some(Self::Exact(text)),
            (None, Some("/"), None, None) | (None, None, Some("/**" | "**"), None) => Some(Self::All),
            (None, Some(text), None, None) => Some(Self::Prefix(text)),
            (None, None, Some(text), None) => {
                let head = text.split(WILDCARDS).next().unwrap_or_default();
                Some(pattern("glob", text, head))
            }
            (None, None, None, Some(text)) => Some(pattern("regex", text, "")),
            _ => None,
        }
    }

    /// Returns whether the pattern begins like a path. Other beginnings have already been refused.
    fn are_paths(&self) -> bool {
        match self {
            Self::All => true,
            Self::Exact(begin) | Self::Prefix(begin) => begin.starts_with('/'),
            Self::Pattern { head, .. } => head.is_empty() || head.starts_with('/'),
        }
    }

    /// Returns whether these paths include all of `other`, compared according to `spelling`.
    fn cover(&self, other: &Self, spelling: Spelling) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (
                Self::Prefix(prefix),
                Self::Exact(begin) | Self::Prefix(begin) | Self::Pattern { head: begin, .. },
            ) => begins(begin, prefix, spelling),
            (Self::Exact(one), Self::Exact(other)) => is_same(one, other, spelling),
            (Self::Pattern { key, text, .. }, Self::Pattern { key: other_key, text: other, .. }) => {
                key == other_key && is_same(text, other, spelling)
            }
            _ => false,
        }
    }

    /// Returns whether some path is the site's prefix or below it.
    fn are_below(&self, prefix: &str, spelling: Spelling) -> bool {
        let folder = format!("{prefix}/");
        match self {
            Self::All => true,
            Self::Exact(path) => is_same(path, prefix, spelling) || begins(path, &folder, spelling),
            Self::Prefix(begin) | Self::Pattern { head: begin, .. } => {
                is_same(begin, prefix, spelling)
                    || begins(begin, &folder, spelling)
                    || begins(&folder, begin, spelling)
            }
        }
    }
}

fn is_same(one: &str, other: &str, spelling: Spelling) -> bool {
    one.len() == other.len() && begins(one, other, spelling)
}

fn begins(path: &str, begin: &str, spelling: Spelling) -> bool {
    match spelling {
        Spelling::AsWritten => path.starts_with(begin),
        Spelling::Lenient => path.to_ascii_lowercase().starts_with(&begin.to_ascii_lowercase()),
    }
}

/// Characters with a special meaning in globs.
const WILDCARDS: [char; 5] = ['*', '?', '[', '{', '\\'];

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Paths<'_> {
        match text.strip_prefix('=') {
            Some(exact) => Paths::Exact(exact),
            None if text == "/" => Paths::All,
            None if text.contains('*') => {
                Paths::Pattern { key: "glob", text, head: text.split('*').next().unwrap_or_default() }
            }
            None => Paths::Prefix(text),
        }
    }

    #[test]
    fn what_an_earlier_rule_leaves() {
        let check = |earlier: &str, later: &str, expected: bool| {
            for (spelling, is_same_in_any_case) in [(Spelling::AsWritten, false), (Spelling::Lenient, true)] {
                let covers = |later: &str| pattern(earlier).cover(&pattern(later), spelling);
                assert_eq!(covers(later), expected, "{earlier} before {later}");
                let capitals = covers(&later.to_ascii_uppercase());
                let has_capitals = is_same_in_any_case || earlier == "/";
                assert_eq!(capitals, expected && has_capitals, "{earlier} before {later} in capitals");
            }
        };
        check("/", "/a", true);
        check("/a", "/a", true);
        check("/a", "/a/b", true);
        check("/a", "=/a", true);
        check("/a", "/ab*", true);
        check("=/a", "=/a", true);
        check("/a*", "/a*", true);
        check("/a/b", "/a", false);
        check("=/a", "/a", false);
        check("/a*", "/ab", false);
        check("/a", "/*", false);
    }

    #[test]
    fn what_a_site_has() {
        let check = |paths: &str, expected: bool| {
            let are_below = |prefix, spelling| pattern(paths).are_below(prefix, spelling);
            assert_eq!(are_below("/shop", Spelling::AsWritten), expected, "{paths}");
            assert_eq!(are_below("/SHOP", Spelling::Lenient), expected, "{paths}");
        };
        for paths in ["/", "/s", "/shop", "/shop/", "/shop/a", "=/shop", "=/shop/a", "/*", "/shop/*"] {
            check(paths, true);
        }
        for paths in ["/api", "/shopping", "=/shopping", "=/", "/api/*"] {
            check(paths, false);
        }
    }
}
