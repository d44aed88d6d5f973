//! Finds the site for a host and a path, in a time that doesn't grow with the number of sites.
//!
//! Exact hosts go before wildcards, longer wildcards before shorter ones, wildcards before sites for any host. Among the sites of one
//! host pattern, the longest path prefix wins; of two equal prefixes, the first. Prefixes of sites that restrict something match in any
//! case ([`Spelling::Lenient`]), but a prefix of the same length that is written exactly so wins.
//!
//! Only the operator writes into these tables, so their hash function needs no secret: a client that knows it can choose what to look
//! up, but can't make entries collide.

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::config::{Site, Spelling};

type Table<V> = HashMap<Box<str>, V, FixedState>;

/// All sites by host and path. A site is its position in the file.
#[derive(Debug, Default)]
pub(super) struct SiteIndex {
    exact: Table<Prefixes>,
    /// Keyed by the domain after `*.`.
    wildcards: Table<Prefixes>,
    any_host: Prefixes,
    has_prefixes: bool,
}

/// The sites of one host pattern by path prefix.
#[derive(Debug, Default)]
struct Prefixes {
    /// Site of `/`.
    root: Option<usize>,
    /// Keyed by prefix, without a closing `/`.
    longer: Table<usize>,
    /// Prefixes that match in any case, in lower case.
    lenient: Table<usize>,
    /// Largest number of slashes in a prefix.
    slashes_max: usize,
}

impl SiteIndex {
    pub(super) fn new<'a>(sites: impl Iterator<Item = &'a Site>) -> Self {
        let mut index = Self::default();
        for (at, site) in sites.enumerate() {
            index.add(&site.hosts, (&site.path_prefix, site.spelling), at);
        }
        index
    }

    /// Whether the choice depends on the path.
    pub(super) fn has_prefixes(&self) -> bool {
        self.has_prefixes
    }

    fn add(&mut self, hosts: &[String], prefix: (&str, Spelling), at: usize) {
        self.has_prefixes |= !matches!(prefix.0, "" | "/");
        if hosts.is_empty() {
            self.any_host.add(prefix, at);
        }
        for pattern in hosts {
            let pattern = pattern.to_ascii_lowercase();
            // Normalised as by `host_of`.
            let pattern = pattern.strip_suffix('.').unwrap_or(&pattern).to_owned();
            let (table, host) = match pattern.strip_prefix("*.") {
                Some(suffix) => (&mut self.wildcards, suffix),
                None => (&mut self.exact, pattern.as_str()),
            };
            table.entry(host.into()).or_default().add(prefix, at);
        }
    }

    /// Returns the site for a host without port, and a path. A query is ignored.
    pub(super) fn closest(&self, host: &str, path_and_query: &str) -> Option<usize> {
        let path = path_and_query.split('?').next().unwrap_or_default();
        let named = if self.exact.is_empty() && self.wildcards.is_empty() {
            None
        } else {
            self.of_named_host(&lower_case(host), path)
        };
        named.or_else(|| self.any_host.longest(path))
    }

    fn of_named_host(&self, host: &str, path: &str) -> Option<usize> {
        let exact = self.exact.get(host).and_then(|prefixes| prefixes.longest(path));
        exact.or_else(|| if self.wildcards.is_empty() { None } else { self.of_wildcard(host, path) })
    }

    /// Tries each domain that a name lies below, the longest first.
    fn of_wildcard(&self, host: &str, path: &str) -> Option<usize> {
        memchr::memchr_iter(b'.', host.as_bytes())
            .filter(|dot| *dot > 0)
            .find_map(|dot| self.wildcards.get(&host[dot + 1..])?.longest(path))
    }
}

impl Prefixes {
    fn add(&mut self, (prefix, spelling): (&str, Spelling), at: usize) {
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if prefix.is_empty() {
            self.root.get_or_insert(at);
            return;
        }
        self.slashes_max = self.slashes_max.max(prefix.bytes().filter(|byte| *byte == b'/').count());
        self.longer.entry(prefix.into()).or_insert(at);
        if spelling == Spelling::Lenient {
            self.lenient.entry(lower_case(prefix).into()).or_insert(at);
        }
    }

    /// Returns the site of the longest prefix. Prefixes end at the end of a segment: `/shop` covers `/shop` and `/shop/x`, not
    /// `/shopping`.
    fn longest(&self, path: &str) -> Option<usize> {
        //= RFC 9112 section 3.2.4: asterisk-form is only used for a server-wide OPTIONS
        if path == "*" {
            return self.root;
        }
        if !path.is_empty() && !path.starts_with('/') {
            return None;
        }
        if self.longer.is_empty() {
            return self.root;
        }
        let as_written = self.longest_in(&self.longer, path);
        if self.lenient.is_empty() {
            return as_written.map(|(_, at)| at).or(self.root);
        }
        let leniently = self.longest_in(&self.lenient, &lower_case(path));
        // Of two with one length, `max_by_key` returns the last: the exact one.
        let longer = leniently.into_iter().chain(as_written).max_by_key(|(end, _)| *end);
        longer.map(|(_, at)| at).or(self.root)
    }

    /// Returns the end of a path's longest prefix in a table, and its site.
    fn longest_in(&self, table: &Table<usize>, path: &str) -> Option<(usize, usize)> {
        // The end before the leading slash is skipped. No prefix has more slashes than `slashes_max`.
        let ends = memchr::memchr_iter(b'/', path.as_bytes()).chain([path.len()]).skip(1);
        ends.take(self.slashes_max).filter_map(|end| Some((end, *table.get(&path[..end])?))).last()
    }
}

/// Returns a text in lower case; hosts and paths of requests mostly are already.
fn lower_case(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return text.to_ascii_lowercase().into();
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use proptest::prelude::*;

    use super::*;

    type Pattern<'a> = (&'a [&'a str], &'a str);
    type SitePlace = (Vec<String>, String, bool);

    /// Parses a pattern. A prefix that begins with `~` matches leniently.
    fn place((hosts, prefix): Pattern<'_>) -> SitePlace {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        (hosts, prefix.trim_start_matches('~').to_owned(), prefix.starts_with('~'))
    }

    fn index(sites: &[SitePlace]) -> SiteIndex {
        let mut index = SiteIndex::default();
        for (at, (hosts, prefix, is_lenient)) in sites.iter().enumerate() {
            let spelling = if *is_lenient { Spelling::Lenient } else { Spelling::AsWritten };
            index.add(hosts, (prefix, spelling), at);
        }
        index
    }

    /// Specification, as a search of all sites: by how closely a site names the host, then the length of its prefix, then whether the
    /// prefix is written exactly so, then its position.
    fn closest_of_all(sites: &[SitePlace], host: &str, path_and_query: &str) -> Option<usize> {
        let host = host.to_ascii_lowercase();
        let path = path_and_query.split('?').next().unwrap();
        let closeness = |hosts: &[String]| {
            let of_pattern = |pattern: &String| match pattern.to_ascii_lowercase().strip_prefix("*.") {
                None => (pattern.to_ascii_lowercase() == host).then_some(usize::MAX),
                Some(suffix) => {
                    let before = host.strip_suffix(suffix)?.strip_suffix('.')?;
                    (!before.is_empty()).then_some(1 + suffix.len())
                }
            };
            if hosts.is_empty() { Some(0) } else { hosts.iter().filter_map(of_pattern).max() }
        };
        let covers = |prefix: &str, path: &str| {
            let rest = path.strip_prefix(prefix);
            if path == "*" {
                prefix.is_empty()
            } else {
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        };
        sites
            .iter()
            .enumerate()
            .filter_map(|(at, (hosts, prefix, is_lenient))| {
                let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
                let as_written = covers(prefix, path);
                let leniently =
                    || *is_lenient && covers(&prefix.to_ascii_lowercase(), &path.to_ascii_lowercase());
                (as_written || leniently()).then_some(())?;
                Some((closeness(hosts)?, prefix.len(), as_written, Reverse(at)))
            })
            .max()
            .map(|(_, _, _, Reverse(at))| at)
    }

    #[test]
    fn the_closest_site_is_found() {
        let sites: [Pattern<'_>; 9] = [
            (&[], "/"),
            (&["a.example"], "/"),
            (&["a.example"], "/shop"),
            (&["*.example"], "/"),
            (&["*.b.example"], "/"),
            (&[], "/shop"),
            (&["A.example", "c.example"], "/shop/cart"),
            (&["*.b.example"], "/shop/"),
            (&["c.example"], "/shop/cart"),
        ];
        let sites = sites.map(place);
        let cases = [
            ("a.example", "/", 1),
            ("A.EXAMPLE", "/x?/shop", 1),
            ("a.example", "/shop", 2),
            ("a.example", "/shop?x", 2),
            ("a.example", "/shop/cart/1", 6),
            ("a.example", "/shopping", 1),
            ("a.example", "*", 1),
            ("c.example", "/shop/cart", 6),
            // Its own host has no site for the path; the wildcard has.
            ("c.example", "/", 3),
            ("x.b.example", "/", 4),
            ("x.b.example", "/shop/", 7),
            ("b.example", "/", 3),
            ("example", "/shop/1", 5),
            ("badexample", "/", 0),
            ("[::1]", "*", 0),
        ];
        let found = index(&sites);
        for (host, path, expected) in cases {
            assert_eq!(found.closest(host, path), Some(expected), "{host}{path}");
            assert_eq!(closest_of_all(&sites, host, path), Some(expected), "{host}{path}");
        }
        assert_eq!(index(&sites[1..2]).closest("b.example", "/"), None);
        assert_eq!(index(&sites[5..6]).closest("b.example", "/shopping"), None);
    }

    #[test]
    fn prefixes_of_what_restricts_fit_in_any_case() {
        let sites: [Pattern<'_>; 7] = [
            (&[], "/"),
            (&[], "~/admin"),
            (&[], "/shop"),
            (&[], "~/Shop/Cart"),
            (&[], "/Admin"),
            (&["a.example"], "/ADMIN/logs"),
            (&["a.example"], "~/admin"),
        ];
        let sites = sites.map(place);
        let found = index(&sites);
        let cases = [
            ("b.example", "/admin/x", 1),
            ("b.example", "/ADMIN?x", 1),
            ("b.example", "/aDmin/X", 1),
            ("b.example", "/administration", 0),
            ("b.example", "/SHOP", 0),
            ("b.example", "/shop/cart", 3),
            ("b.example", "/SHOP/CART/1", 3),
            // An exact prefix wins, unless a longer one matches leniently.
            ("b.example", "/Admin/x", 4),
            ("a.example", "/ADMIN/logs", 5),
            ("a.example", "/admin/logs", 6),
            ("a.example", "/Shop/x", 0),
        ];
        for (host, path, expected) in cases {
            assert_eq!(found.closest(host, path), Some(expected), "{host}{path}");
            assert_eq!(closest_of_all(&sites, host, path), Some(expected), "{host}{path}");
        }
    }

    proptest! {
        #[test]
        fn tables_find_what_a_search_finds(
            sites in prop::collection::vec((prop::collection::vec("(\\*\\.)?[ab](\\.[aB]){0,2}", 0..3), "(/[aAb]{0,2}){1,3}", any::<bool>()), 0..8),
            host in "\\.?[aB](\\.[ab]){0,3}",
            path in "(\\*|(/[abB]{0,2}){0,4}(\\?/a)?)",
        ) {
            prop_assert_eq!(index(&sites).closest(&host, &path), closest_of_all(&sites, &host, &path));
        }
    }
}
