//! Finds the site for a host and a path, in a time that doesn't grow with the number of sites.
//!
//! Exact hosts take precedence over wildcards, longer wildcards over shorter ones, and wildcards over sites for any host. Among the
//! sites of one host pattern, the longest path prefix wins; of two equal prefixes, the first. Prefixes of sites with restrictions match
//! in any case ([`Spelling::Lenient`]), but an exactly matching prefix of the same length wins.
//!
//! Only the operator adds entries to these tables, so their hash function needs no secret: a client that knows the function can choose
//! which keys are looked up, but can't make entries collide.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use caching::{target, unkeyed};
use foldhash::fast::FixedState;

use super::choice::{Chooser, Routed};
use super::spelling::{self, Readings};
use super::{LiveSite, host_of};
use crate::config::{CacheRule, Config, Site, Spelling, StoreIndex};

type Table<V> = HashMap<Box<str>, V, FixedState>;

/// All sites by host and path. A site is represented by its position in the file.
#[derive(Debug, Default)]
struct SiteIndex {
    exact: Table<Prefixes>,
    /// The keys are the domains after `*.`.
    wildcards: Table<Prefixes>,
    any_host: Prefixes,
    /// Whether the choice depends on the path.
    has_prefixes: bool,
}

/// The sites of one host pattern by path prefix.
#[derive(Debug, Default)]
struct Prefixes {
    /// Site with the prefix `/`.
    root: Option<usize>,
    /// Keyed by prefix, without a trailing `/`.
    longer: Table<usize>,
    /// Prefixes that match in any case; the keys are in lower case.
    lenient: Table<usize>,
    /// Maximum number of slashes in a prefix.
    slashes_max: usize,
}

impl SiteIndex {
    fn new<'a>(sites: impl Iterator<Item = &'a Site>) -> Self {
        let mut index = Self::default();
        for (at, site) in sites.enumerate() {
            index.add(&site.hosts, (&site.path_prefix, site.spelling), at);
        }
        index
    }

    fn add(&mut self, hosts: &[String], prefix: (&str, Spelling), at: usize) {
        self.has_prefixes |= !matches!(prefix.0, "" | "/");
        if hosts.is_empty() {
            self.any_host.add(prefix, at);
        }
        for pattern in hosts {
            let pattern = pattern.to_ascii_lowercase();
            // The pattern is normalised in the same way as `host_of` does it.
            let pattern = pattern.strip_suffix('.').unwrap_or(&pattern).to_owned();
            let (table, host) = match pattern.strip_prefix("*.") {
                Some(suffix) => (&mut self.wildcards, suffix),
                None => (&mut self.exact, pattern.as_str()),
            };
            table.entry(host.into()).or_default().add(prefix, at);
        }
    }

    /// Returns the site for a host without port, and a path. A query is ignored.
    fn closest(&self, host: &str, path_and_query: &str) -> Option<usize> {
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

    /// Tries each parent domain of a name, the longest first.
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

    /// Returns the site with the longest matching prefix. Prefixes end at a segment boundary: `/shop` covers `/shop` and `/shop/x`, but
    /// not `/shopping`.
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
        // If two prefixes have the same length, `max_by_key` returns the last one, which is the exact prefix.
        let longer = leniently.into_iter().chain(as_written).max_by_key(|(end, _)| *end);
        longer.map(|(_, at)| at).or(self.root)
    }

    /// Finds the longest prefix of a path in a table. Returns the end of the prefix, and its site.
    fn longest_in(&self, table: &Table<usize>, path: &str) -> Option<(usize, usize)> {
        // A prefix never ends before the leading slash, so this end is skipped. No prefix has more slashes than `slashes_max`.
        let ends = memchr::memchr_iter(b'/', path.as_bytes()).chain([path.len()]).skip(1);
        ends.take(self.slashes_max).filter_map(|end| Some((end, *table.get(&path[..end])?))).last()
    }
}

/// Returns a text in lower case. Most hosts and paths of requests are already in lower case.
fn lower_case(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return text.to_ascii_lowercase().into();
    }
    text.into()
}

/// Returns the request fields that a site configures for keys and credentials, and the request fields that its transformation rules
/// read.
fn fields_read(site: &Site) -> impl Iterator<Item = &str> {
    let credentials = site.rules.iter().flat_map(|rule| &rule.caching.credential_fields);
    let of_rules = site.transforms.request_fields_read();
    let names = site.request_fields_keyed.iter().chain(of_rules).map(http::HeaderName::as_str);
    names.chain(credentials.map(|name| &**name))
}

/// Returns the name of the site that a request belongs to in a configuration, and its cache rule.
pub fn route_of(
    config: &Config,
    authority: &str,
    method: &str,
    path_and_query: &str,
) -> Option<(String, CacheRule)> {
    let sites = SiteIndex::new(config.sites.iter().map(AsRef::as_ref));
    let normal = target::normal_form(path_and_query);
    let path_and_query = normal.as_deref().unwrap_or(path_and_query);
    let site = &config.sites[sites.closest(host_of(authority), path_and_query)?];
    let chooser = Chooser::new(site);
    let mut rules = chooser.all_rules(site);
    let readings = spelling::readings(path_and_query);
    let request = Routed { readings: readings.as_deref(), ..Routed::plain(method, path_and_query) };
    let rule = chooser.choose(site, &rules, &request);
    Some((site.name.clone(), rules.swap_remove(rule.place())))
}

/// All sites, indexed by host and path.
pub(crate) struct Routes {
    sites: Vec<Arc<LiveSite>>,
    index: SiteIndex,
    /// Stores that the sites use.
    stores: BTreeSet<StoreIndex>,
    /// Stores of sites that a reload has removed, or whose URLs or keys a reload has changed.
    left: BTreeSet<StoreIndex>,
    /// Sites whose rules may produce paths that belong to other sites or to no site.
    rewriting: Vec<usize>,
    /// Whether any site has settings that depend on the path.
    has_paths: bool,
    /// Request fields that the configuration of any site reads.
    fields_read: BTreeSet<Box<str>>,
}

impl Routes {
    pub(crate) fn new(sites: Vec<Arc<LiveSite>>) -> Self {
        let index = SiteIndex::new(sites.iter().map(|site| &*site.config));
        let stores = sites.iter().map(|site| site.config.store).collect();
        // If no site has a path prefix, each site serves all paths of its hosts, so a changed path belongs to the same site.
        let may_leave = |site: &LiveSite| index.has_prefixes && site.config.transforms.write_paths();
        let rewriting = (0..sites.len()).filter(|at| may_leave(&sites[*at])).collect();
        let fields_read = sites.iter().flat_map(|site| fields_read(&site.config)).map(Into::into).collect();
        let has_paths = sites.iter().any(|site| site.chooser.has_paths);
        Self { sites, index, stores, left: BTreeSet::new(), rewriting, has_paths, fields_read }
    }

    /// Returns whether any site uses a request field in its keys, as a credential, or in a rule.
    pub(crate) fn read_field(&self, name: &str) -> bool {
        self.fields_read.iter().any(|known| unkeyed::are_read_alike(known, name))
    }

    /// Takes over state from the routes that a reload replaces.
    pub(crate) fn replacing(self, before: &Self) -> Self {
        let is_kept = |site: &LiveSite| self.sites.iter().any(|other| other.has_keys_of(site));
        let changed = before.sites.iter().filter(|site| !is_kept(site)).map(|site| site.config.store);
        let left = changed.chain(before.left.iter().copied()).collect();
        Self { left, ..self }
    }

    /// Returns whether a store may contain responses that no current site can find.
    pub(crate) fn may_hold_more(&self, store: StoreIndex) -> bool {
        self.left.contains(&store) || !self.stores.contains(&store)
    }

    /// Returns all sites by name.
    pub(crate) fn by_name(&self) -> HashMap<&str, &LiveSite> {
        self.sites.iter().map(|site| (site.config.name.as_str(), &**site)).collect()
    }

    /// Returns the sites that a host (with or without port) may belong to.
    pub(crate) fn sites_of_host(&self, authority: &str) -> impl Iterator<Item = &Arc<LiveSite>> {
        let host = host_of(authority);
        // If another site has a closer host pattern and the same prefix, it serves all paths below the prefix.
        let takes = move |(at, site): &(usize, &Arc<LiveSite>)| {
            self.index.closest(host, &site.config.path_prefix) == Some(*at)
        };
        self.sites.iter().enumerate().filter(takes).map(|(_, site)| site)
    }

    /// Returns the stores of the sites that a host may belong to.
    pub(crate) fn stores_of_host(&self, authority: &str) -> BTreeSet<StoreIndex> {
        match self.stores.len() {
            0 | 1 => self.stores.clone(),
            _ => self.sites_of_host(authority).map(|site| site.config.store).collect(),
        }
    }

    /// Returns whether any URL that begins with a host (with or without port) and a path belongs to a site.
    pub(crate) fn serves(&self, authority: &str, path: &str) -> bool {
        let host = host_of(authority);
        let below =
            self.sites.iter().map(|site| &*site.config.path_prefix).filter(|prefix| prefix.starts_with(path));
        let is_served = [path].into_iter().chain(below).any(|path| self.index.closest(host, path).is_some());
        is_served || !self.sites_storing(authority, path).is_empty()
    }

    /// Returns whether a site lists a host (with or without port) or one of its parent domains.
    pub(crate) fn is_named(&self, authority: &str) -> bool {
        let named = |site: &&Arc<LiveSite>| !site.config.hosts.is_empty();
        let closest = |site: &Arc<LiveSite>| {
            self.site(authority, &site.config.path_prefix).is_some_and(|found| named(&found))
        };
        self.sites.iter().filter(named).any(closest)
    }

    /// Returns the site for a host (with or without port) and a path. A query is ignored.
    pub(crate) fn site(&self, authority: &str, path_and_query: &str) -> Option<&Arc<LiveSite>> {
        self.index.closest(host_of(authority), path_and_query).map(|at| &self.sites[at])
    }

    /// Returns the sites that may have stored a response for a URL in its rewritten form: the site of the URL, and sites of the same
    /// host whose rules may have rewritten one of their URLs to it.
    pub(crate) fn sites_storing(&self, authority: &str, path_and_query: &str) -> Vec<&Arc<LiveSite>> {
        let host = host_of(authority);
        let own = self.index.closest(host, path_and_query);
        let has_host =
            |at: &usize| self.index.closest(host, &self.sites[*at].config.path_prefix) == Some(*at);
        let others = self.rewriting.iter().copied().filter(|at| Some(*at) != own && has_host(at));
        own.into_iter().chain(others).map(|at| &self.sites[at]).collect()
    }

    /// Returns the other readings of a path, if settings depend on the path of a request to this site.
    #[inline]
    pub(crate) fn readings(&self, site: &LiveSite, path_and_query: &str) -> Option<Box<Readings>> {
        // Rules of another host don't apply to this site, unless the origin may interpret the path as a URL with that host.
        let reads_paths = self.index.has_prefixes
            || site.chooser.has_paths
            || (self.has_paths && path_and_query.starts_with("//"));
        if reads_paths { spelling::readings(path_and_query) } else { None }
    }

    /// Returns the first reading of a path that belongs to a different site from the path as written, or to no site.
    pub(crate) fn read_as_of_another<'a>(
        &self,
        site: &Arc<LiveSite>,
        authority: &str,
        readings: &'a Readings,
    ) -> Option<&'a str> {
        let is_own = |read: &str| self.site(authority, read).is_some_and(|other| Arc::ptr_eq(other, site));
        let mut others = readings.others.iter().map(String::as_str).filter(|_| self.index.has_prefixes);
        others.find(|read| !is_own(read))
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use proptest::prelude::*;

    use super::*;

    type Pattern<'a> = (&'a [&'a str], &'a str);
    type SitePlace = (Vec<String>, String, bool);

    /// Parses a pattern. A prefix with a leading `~` matches leniently.
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

    /// Specifies the expected site, by a search over all sites. The search compares the closeness of the host pattern, then the length
    /// of the prefix, then whether the prefix matches exactly, then the position.
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
            // The exact host has no site for this path, but a wildcard host has one.
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
