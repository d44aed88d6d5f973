//! Which site, and which of its cache rules, a request belongs to.

use std::sync::Arc;

use telemetry::{OriginId, SiteId};

use crate::config::{CacheRule, Config, Site};
use crate::origin::Origin;

/// A site with the living things that belong to it.
pub(crate) struct LiveSite {
    pub(crate) config: Arc<Site>,
    /// The site's rules, and behind them the built-in one that takes what is left.
    rules: Vec<CacheRule>,
    pub(crate) origin: Arc<Origin>,
    pub(crate) metrics: SiteId,
    pub(crate) origin_metrics: OriginId,
}

impl LiveSite {
    pub(crate) fn new(
        config: &Arc<Site>,
        origin: Arc<Origin>,
        metrics: SiteId,
        origin_metrics: OriginId,
    ) -> Self {
        let rules = all_rules(config);
        Self { config: Arc::clone(config), rules, origin, metrics, origin_metrics }
    }

    /// The first rule that fits, in the order of the file.
    pub(crate) fn rule(&self, method: &str, path_and_query: &str) -> RuleIndex {
        RuleIndex(first_fit(&self.rules, method, path_and_query))
    }

    pub(crate) fn rule_at(&self, index: RuleIndex) -> &CacheRule {
        &self.rules[index.0]
    }
}

/// The site's rules, and behind them the built-in one that takes what is left.
fn all_rules(site: &Site) -> Vec<CacheRule> {
    let mut rules = site.rules.clone();
    rules.push(CacheRule::built_in(site.profile));
    rules
}

fn first_fit(rules: &[CacheRule], method: &str, path_and_query: &str) -> usize {
    let fits = |rule: &CacheRule| {
        rule.methods.contains(method)
            && rule.path.as_ref().is_none_or(|pattern| pattern.matches(path_and_query))
    };
    rules.iter().position(fits).unwrap_or(rules.len() - 1)
}

/// The name of the site that a request belongs to under a configuration, and the cache rule.
pub fn route_of(
    config: &Config,
    authority: &str,
    method: &str,
    path_and_query: &str,
) -> Option<(String, CacheRule)> {
    let path = path_and_query.split('?').next().unwrap_or_default();
    let mut sites: Vec<_> = config.sites.iter().collect();
    sites.sort_by_key(|site| longest_prefix_first(site));
    let site = closest(&sites, |site| site, authority, path)?;
    let mut rules = all_rules(site);
    let rule = first_fit(&rules, method, path_and_query);
    Some((site.name.clone(), rules.swap_remove(rule)))
}

/// Names a rule of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleIndex(usize);

/// All sites, in the order in which they are tried.
pub(crate) struct Routes {
    sites: Vec<Arc<LiveSite>>,
}

impl Routes {
    /// Orders sites so that the first match is the right one: exact hosts before wildcards before any
    /// host, then longer path prefixes first, then the order of the file.
    pub(crate) fn new(mut sites: Vec<Arc<LiveSite>>) -> Self {
        sites.sort_by_key(|site| longest_prefix_first(&site.config));
        Self { sites }
    }

    /// The site for a host (with or without port) and a path; a query behind it makes no difference.
    pub(crate) fn site(&self, authority: &str, path_and_query: &str) -> Option<&Arc<LiveSite>> {
        closest(&self.sites, |site| &site.config, authority, path_and_query)
    }
}

fn longest_prefix_first(site: &Site) -> std::cmp::Reverse<usize> {
    std::cmp::Reverse(site.path_prefix.len())
}

fn closest<'a, T>(
    sites: &'a [T],
    config: impl Fn(&T) -> &Site,
    authority: &str,
    path: &str,
) -> Option<&'a T> {
    let host = host_of(authority);
    let fits = |site: &&T| has_prefix(path, &config(site).path_prefix);
    let candidates = sites.iter().filter(fits);
    candidates
        .filter_map(|site| Some((specificity(&config(site).hosts, host)?, site)))
        .min_by_key(|(specificity, _)| *specificity)
        .map(|(_, site)| site)
}

/// The host of an authority, without port; brackets of IPv6 literals stay.
pub(crate) fn host_of(authority: &str) -> &str {
    if authority.starts_with('[') {
        return authority.find(']').map_or(authority, |end| &authority[..=end]);
    }
    // From the end: few names end in digits, and those soon show what stands before them.
    let before_digits = authority.bytes().rposition(|byte| !byte.is_ascii_digit());
    match before_digits {
        Some(at) if authority.as_bytes()[at] == b':' => &authority[..at],
        _ => authority,
    }
}

/// How closely `host` is named: smaller is closer; `None` is not at all.
fn specificity(hosts: &[String], host: &str) -> Option<usize> {
    const WILDCARD: usize = 1 << 16;
    const ANY_HOST: usize = usize::MAX;
    if hosts.is_empty() {
        return Some(ANY_HOST);
    }
    hosts
        .iter()
        .filter_map(|pattern| match pattern.strip_prefix("*.") {
            None => pattern.eq_ignore_ascii_case(host).then_some(0),
            // Longer wildcards are closer.
            Some(suffix) => is_subdomain(host, suffix).then(|| WILDCARD - suffix.len().min(WILDCARD - 1)),
        })
        .min()
}

fn is_subdomain(host: &str, suffix: &str) -> bool {
    let Some(cut) = host.len().checked_sub(suffix.len() + 1) else { return false };
    cut > 0
        && host.is_char_boundary(cut)
        && host.as_bytes()[cut] == b'.'
        && host[cut + 1..].eq_ignore_ascii_case(suffix)
}

/// Whether `path` lies under `prefix`, on a segment boundary: `/shop` covers `/shop` and `/shop/x`, not `/shopping`.
fn has_prefix(path: &str, prefix: &str) -> bool {
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    //= RFC 9112 section 3.2.4: asterisk-form is only used for a server-wide OPTIONS
    if path == "*" {
        return prefix.is_empty();
    }
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
}

/// `path_and_query` without the site's prefix; always starts with `/`.
pub(crate) fn strip_prefix(path_and_query: &str, prefix: &str) -> String {
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    match path_and_query.strip_prefix(prefix) {
        Some(rest) if rest.starts_with('/') => rest.to_owned(),
        Some(rest) => format!("/{rest}"),
        None => path_and_query.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_on_segments() {
        for (path, prefix, expected) in [
            ("/shop", "/shop", true),
            ("/shop/x", "/shop", true),
            ("/shop?x", "/shop/", true),
            ("/shopping", "/shop", false),
            ("/", "/", true),
            ("/anything", "/", true),
            ("*", "/", true),
            ("*", "/shop", false),
        ] {
            assert_eq!(has_prefix(path, prefix), expected, "{path} under {prefix}");
        }
    }

    #[test]
    fn stripped_paths_start_with_a_slash() {
        for (path, prefix, expected) in [
            ("/shop/x?y=/shop", "/shop", "/x?y=/shop"),
            ("/shop", "/shop", "/"),
            ("/shop?q", "/shop/", "/?q"),
            ("/x", "/", "/x"),
        ] {
            assert_eq!(strip_prefix(path, prefix), expected);
        }
    }

    #[test]
    fn closer_host_patterns_win() {
        let hosts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(specificity(&hosts(&["a.example"]), "A.example"), Some(0));
        assert_eq!(specificity(&hosts(&["*.example"]), "example"), None);
        assert!(
            specificity(&hosts(&["*.b.example"]), "a.b.example")
                < specificity(&hosts(&["*.example"]), "a.b.example")
        );
        assert!(specificity(&hosts(&["*.example"]), "a.example") < specificity(&[], "a.example"));
        assert_eq!(specificity(&hosts(&["*.example"]), "badexample"), None);
    }

    #[test]
    fn hosts_lose_their_port() {
        for (authority, host) in [("a:80", "a"), ("a", "a"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]")] {
            assert_eq!(host_of(authority), host);
        }
    }
}
