//! Takes stored responses out of use for operators.
//!
//! A purge wins against fetches in flight: they are doomed first, so that what they bring is delivered but not
//! stored, and then what is stored goes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use store::Change;

use crate::active::ActiveConfig;
use crate::cache::OutOfUse;
use crate::cache::epochs::Taken;
use crate::cache::inflight::table::Waiter;
use crate::cache::key::key_of;
use crate::cache::record::stored::{CacheEntry, StoredResponse};
use crate::cache::tiers::load::Asker;
use crate::clock::now;
use crate::message::head::Scheme;
use crate::route::host_of;
use crate::worker::Shared;

/// What a purge leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PurgeMode {
    /// Nothing: stored responses are removed.
    #[default]
    Hard,
    /// Stale responses: used only after validation, or where stale responses may be.
    Soft,
}

impl PurgeMode {
    /// The word of the API and of the metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hard => "hard",
            Self::Soft => "soft",
        }
    }

    /// The mode of a word of the API.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Hard, Self::Soft].into_iter().find(|mode| mode.as_str() == word)
    }
}

/// What a purge found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PurgeOutcome {
    /// Cache keys of the URL that had something stored or on its way.
    pub keys_matched: usize,
    /// Stored responses, all variants counted, that were removed or made stale.
    pub responses_purged: usize,
    /// Forwards in progress whose responses won't be stored.
    pub fills_doomed: usize,
    /// Whether responses for the URL may be out of use now that nobody has counted: they lie under keys with the content or the fields of their
    /// requests, of which there is no list.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keyed_uncounted: bool,
    /// Only where nothing matched.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub hints: Option<PurgeHints>,
}

/// Why nothing can be purged. Not `#[non_exhaustive]`: the admin API has a status for each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PurgeError {
    /// Not an absolute http or https URL without user information and fragment. The caller corrects it.
    #[error("the URL cannot be used: {url:?} is not an absolute http or https URL")]
    UrlInvalid {
        /// What was given.
        url: String,
    },
    /// No site takes requests for this URL.
    #[error("no site serves this URL")]
    SiteUnknown {
        /// The sites there are, up to [`SITES_SHOWN_MAX`].
        sites: Vec<SiteUrls>,
    },
}

/// What an operator may have meant whose URL matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PurgeHints {
    /// URLs with the same path, another scheme or the port of a listener, under which something is stored.
    pub elsewhere: Vec<String>,
    /// The sites, up to [`SITES_SHOWN_MAX`].
    pub sites: Vec<SiteUrls>,
}

/// Which URLs belong to a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SiteUrls {
    /// Its name.
    pub name: String,
    /// None where it takes what no other site wants.
    pub hosts: Vec<String>,
    /// `/` for all paths.
    pub path_prefix: String,
}

/// So that an answer stays readable.
const SITES_SHOWN_MAX: usize = 50;

/// Purges a URL with all its variants, in memory and behind it.
pub(crate) async fn purge_url(
    shared: &Shared,
    url: &str,
    mode: PurgeMode,
) -> Result<PurgeOutcome, PurgeError> {
    let live = shared.live.load_full();
    let invalid = || PurgeError::UrlInvalid { url: url.to_owned() };
    let (scheme, authority, path_and_query) = split_url(url).ok_or_else(invalid)?;
    let path = path_and_query.split_once('?').map_or(path_and_query, |(path, _)| path);
    let site = live.routes.site(authority, path);
    let site = site.ok_or_else(|| PurgeError::SiteUnknown { sites: sites(&live) })?;
    let key = key_of(site, scheme, authority, path_and_query);
    // What is made stale, and counted, is what there is.
    let rule = site.rule_at(site.rule("GET", path_and_query));
    let asker = Asker { rule, groups_max: live.config.groups_max, site_key: None };
    let _loaded = shared.cache.load(&key, asker).await;
    let outcome = purge_key(shared, &key, mode, None);
    shared.cache.written(&key).await;
    let hints = (outcome.keys_matched == 0)
        .then(|| PurgeHints { elsewhere: elsewhere(shared, &live, url), sites: sites(&live) });
    Ok(PurgeOutcome { hints, ..outcome })
}

fn sites(live: &ActiveConfig) -> Vec<SiteUrls> {
    let sites = live.config.sites.iter().take(SITES_SHOWN_MAX).map(|site| SiteUrls {
        name: site.name.clone(),
        hosts: site.hosts.clone(),
        path_prefix: site.path_prefix.clone(),
    });
    sites.collect()
}

/// Under which URLs that are easily taken for this one something is stored.
fn elsewhere(shared: &Shared, live: &ActiveConfig, url: &str) -> Vec<String> {
    let ports =
        live.config.listeners.iter().map(|listener| listener.address.port()).filter(|port| *port != 0);
    let is_stored = |url: &String| {
        let Some((scheme, authority, path_and_query)) = split_url(url) else { return false };
        let site = live.routes.site(authority, path_and_query);
        site.is_some_and(|site| {
            shared.cache.look_up(&key_of(site, scheme, authority, path_and_query)).is_some()
        })
    };
    similar(url, ports).into_iter().filter(is_stored).collect()
}

/// The same URL with either scheme, without port and with each of these.
fn similar(url: &str, ports: impl Iterator<Item = u16>) -> Vec<String> {
    let Some((_, authority, path_and_query)) = split_url(url) else { return Vec::new() };
    let host = host_of(authority);
    let mut authorities = vec![authority.to_owned(), host.to_owned()];
    authorities.extend(ports.map(|port| format!("{host}:{port}")));
    let mut urls = Vec::new();
    for scheme in ["http", "https"] {
        let of_scheme = authorities.iter().map(|authority| format!("{scheme}://{authority}{path_and_query}"));
        for similar in of_scheme {
            if similar != url && !urls.contains(&similar) {
                urls.push(similar);
            }
        }
    }
    urls
}

/// `spared` is a forward that may still store what it brings.
pub(super) fn purge_key(
    shared: &Shared,
    key: &[u8],
    mode: PurgeMode,
    spared: Option<&Waiter>,
) -> PurgeOutcome {
    let taken = match mode {
        PurgeMode::Hard => Taken::Away,
        PurgeMode::Soft => Taken::OutOfUse,
    };
    let mut responses_purged = 0;
    let out_of_use = shared.cache.invalidate(key, (taken, spared), |entry| {
        responses_purged = entry.variants().len();
        match mode {
            PurgeMode::Hard => Change::Remove,
            PurgeMode::Soft => expired(shared, entry).map_or(Change::Remove, Change::Put),
        }
    });
    let OutOfUse { fetches: fills_doomed, may_have_keyed: keyed_uncounted } = out_of_use;
    // A URL has one cache key here; a key counts as matched when anything was found under it.
    let keys_matched = usize::from(responses_purged + fills_doomed > 0);
    PurgeOutcome { keys_matched, responses_purged, fills_doomed, keyed_uncounted, hints: None }
}

/// The same record with every response stale.
fn expired(shared: &Shared, entry: &Arc<CacheEntry>) -> Option<Arc<CacheEntry>> {
    let now = now();
    let variants = entry
        .variants()
        .iter()
        .map(|variant| StoredResponse {
            head: Arc::new(variant.head.expired(now)),
            body: variant.body.clone(),
        })
        .collect();
    CacheEntry::new(shared.cache.budget(), variants, entry.uncacheable()).ok().map(Arc::new)
}

/// Scheme, authority, path with query. No path means `/`, as in a request for it.
fn split_url(url: &str) -> Option<(Scheme, &str, &str)> {
    let (scheme, rest) = match url.split_once("://")? {
        (scheme, rest) if scheme.eq_ignore_ascii_case("http") => (Scheme::Http, rest),
        (scheme, rest) if scheme.eq_ignore_ascii_case("https") => (Scheme::Https, rest),
        _ => return None,
    };
    if rest.contains('#') || rest.bytes().any(|byte| byte.is_ascii_control() || byte == b' ') {
        return None;
    }
    let path_start = rest.find('/').unwrap_or(rest.len());
    let (authority, path_and_query) = rest.split_at(path_start);
    let has_host = !host_of(authority).is_empty() && !authority.contains(['@', '?']);
    has_host.then_some((scheme, authority, if path_and_query.is_empty() { "/" } else { path_and_query }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_urls_have_other_schemes_and_ports() {
        let ports = || [80, 8080].into_iter();
        let of_port_80 =
            ["http://a/x", "http://a:8080/x", "https://a:80/x", "https://a/x", "https://a:8080/x"];
        assert_eq!(similar("http://a:80/x", ports()), of_port_80);
        let without = ["http://[::1]:80/", "http://[::1]:8080/", "https://[::1]/", "https://[::1]:80/"];
        assert_eq!(similar("http://[::1]/", ports())[..4], without);
        assert_eq!(similar("nonsense", ports()), Vec::<String>::new());
    }

    #[test]
    fn urls_are_split_or_refused() {
        for (url, expected) in [
            ("http://a/b?c", Some((Scheme::Http, "a", "/b?c"))),
            ("HTTPS://a:8443", Some((Scheme::Https, "a:8443", "/"))),
            ("http://[::1]:80/x", Some((Scheme::Http, "[::1]:80", "/x"))),
            ("http:///x", None),
            ("ftp://a/x", None),
            ("/x", None),
            ("http://user@a/x", None),
            ("http://a/x#y", None),
            ("http://a/x y", None),
        ] {
            assert_eq!(split_url(url), expected, "{url}");
        }
    }
}
