//! Purge orders of operators, and their interpretation.

use std::sync::Arc;

use caching::{authority, target};
use http::uri::Authority;
use message::head::Scheme;
use serde::Serialize;
use store::purge::{PurgeInvalid, PurgeMode, PurgeTarget, Selection, TagsMatch, UrlScheme};

use super::url::split_url;
use crate::active::ActiveConfig;
use crate::config::Site;

/// Order to purge one URL, everything, or the responses that match all other selectors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeOrder {
    /// A URL as requested by clients.
    pub url: Option<String>,
    /// Tags, within a site or a host.
    pub tags: Vec<String>,
    /// Whether a response needs one of the tags, or all of them.
    pub tags_match: TagsMatch,
    /// Name of a site.
    pub site: Option<String>,
    /// Host. If a port is given, only responses for this port are purged.
    pub host: Option<String>,
    /// Start of URLs: `https://host/path`, `host/path`, or a path.
    pub prefix: Option<String>,
    /// Whether to purge everything.
    pub everything: bool,
    /// Whether purged responses are removed, or kept for validation.
    pub mode: PurgeMode,
    /// Whether to only count the responses that would be purged.
    pub dry_run: bool,
    /// Instances for which the answer waits.
    pub wait: PurgeWait,
}

/// Instances for which the answer to a purge waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PurgeWait {
    /// Instances of all regions.
    #[default]
    All,
    /// Instances of this region.
    Near,
    /// No instance: the answer comes once the purge is in the log.
    None,
}

impl PurgeWait {
    /// All values.
    pub const ALL: [Self; 3] = [Self::All, Self::Near, Self::None];

    /// Returns the name of the value in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Near => "near",
            Self::None => "none",
        }
    }

    /// Returns the value for a word used in the API.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wait| wait.as_str() == word)
    }
}

/// Reason why nothing can be purged. The enum isn't `#[non_exhaustive]`, because the admin API has a status for each reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PurgeError {
    /// The URL isn't absolute, isn't http or https, or has user information or a fragment. The caller must correct it.
    #[error("invalid URL: {url:?} is not an absolute http or https URL")]
    UrlInvalid {
        /// The given URL.
        url: String,
    },
    /// The order is invalid. The caller must correct it.
    #[error("{0}")]
    OrderInvalid(String),
    /// No site serves this URL.
    #[error("no site serves this URL")]
    SiteUnknown {
        /// Existing sites, up to `SITES_SHOWN_MAX`.
        sites: Vec<SiteUrls>,
    },
    /// No site has this name.
    #[error("no site is named {name:?}")]
    SiteNameUnknown {
        /// The given name.
        name: String,
        /// Existing sites, up to `SITES_SHOWN_MAX`.
        sites: Vec<SiteUrls>,
    },
    /// Several sites are configured, and a tag belongs to one of them.
    #[error("several sites are configured: name a site or a host with the tag")]
    SiteMissing {
        /// Existing sites, up to `SITES_SHOWN_MAX`.
        sites: Vec<SiteUrls>,
    },
}

impl From<PurgeInvalid> for PurgeError {
    fn from(invalid: PurgeInvalid) -> Self {
        Self::OrderInvalid(invalid.to_string())
    }
}

/// URLs that belong to a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SiteUrls {
    /// Name of the site.
    pub name: String,
    /// Hosts; empty for the site that serves all other hosts.
    pub hosts: Vec<String>,
    /// Path prefix; `/` for all paths.
    pub path_prefix: String,
}

/// Hints for an operator whose URL or host matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PurgeHints {
    /// Existing sites, up to fifty.
    pub sites: Vec<SiteUrls>,
}

/// Maximum number of sites in an answer, so that it stays readable.
const SITES_SHOWN_MAX: usize = 50;

pub(super) fn sites(live: &ActiveConfig) -> Vec<SiteUrls> {
    let sites = live.config.sites.iter().take(SITES_SHOWN_MAX).map(|site| SiteUrls {
        name: site.name.clone(),
        hosts: site.hosts.clone(),
        path_prefix: site.path_prefix.clone(),
    });
    sites.collect()
}

impl PurgeOrder {
    /// Checks the form of a URL, which doesn't depend on the configuration.
    ///
    /// # Errors
    /// [`PurgeError::UrlInvalid`].
    pub fn check_url(url: &str) -> Result<(), PurgeError> {
        split_url(url).map(|_| ()).ok_or_else(|| PurgeError::UrlInvalid { url: url.to_owned() })
    }
}

/// Selection of responses that an order describes.
pub(super) fn what_of(order: &PurgeOrder, live: &ActiveConfig) -> Result<PurgeTarget, PurgeError> {
    let PurgeOrder { url, tags, site, host, prefix, everything, .. } = order;
    let has_selection = !tags.is_empty() || site.is_some() || host.is_some() || prefix.is_some();
    let what = match (url, *everything, has_selection) {
        (Some(url), false, false) => PurgeTarget::Url(url.clone()),
        (None, true, false) => PurgeTarget::Everything,
        (None, false, _) => PurgeTarget::Selected(selection(order, live)?),
        _ => {
            let says = "`url` and `everything` can't be combined with other selectors or with each other";
            return Err(PurgeError::OrderInvalid(says.to_owned()));
        }
    };
    match what.check() {
        // Earlier versions could only purge URLs, and reported this error.
        Err(_) if url.is_some() => Err(PurgeError::UrlInvalid { url: url.clone().unwrap_or_default() }),
        checked => checked.map(|()| what).map_err(PurgeError::from),
    }
}

fn selection(order: &PurgeOrder, live: &ActiveConfig) -> Result<Selection, PurgeError> {
    let prefix = order.prefix.as_deref().map(prefix).transpose()?.unwrap_or_default();
    let host = order.host.as_deref().map(host_name).transpose()?;
    if host.is_some() && prefix.host.is_some() {
        return Err(PurgeError::OrderInvalid("the prefix already contains a host".to_owned()));
    }
    let host = host.or(prefix.host);
    Ok(Selection {
        tags: order.tags.clone(),
        tags_match: order.tags_match,
        site: site(order, host.is_some(), live)?,
        host,
        scheme: prefix.scheme,
        prefix: prefix.path,
    })
}

/// Returns the site of an order. If there is only one site, tags without a site or host belong to it. If the order names a site,
/// this site must exist.
fn site(order: &PurgeOrder, has_host: bool, live: &ActiveConfig) -> Result<Option<String>, PurgeError> {
    let sites_there = &live.config.sites;
    match (&order.site, &sites_there[..]) {
        (Some(name), _) if sites_there.iter().any(|site| site.name == *name) => Ok(Some(name.clone())),
        (Some(name), _) => Err(PurgeError::SiteNameUnknown { name: name.clone(), sites: sites(live) }),
        (None, _) if order.tags.is_empty() || has_host => Ok(None),
        (None, [only]) => Ok(Some(only.name.clone())),
        (None, _) => Err(PurgeError::SiteMissing { sites: sites(live) }),
    }
}

/// Returns warnings about a purge by tags if no site of the purge configures fields with tags, so that only `Cache-Groups` is read.
pub(super) fn warnings(what: &PurgeTarget, live: &ActiveConfig) -> Vec<String> {
    let PurgeTarget::Selected(Selection { tags, site, host, .. }) = what else { return Vec::new() };
    let is_asked = |named: &&Arc<Site>| site.as_ref().is_none_or(|site| named.name == *site);
    let asked: Vec<&Arc<Site>> = match host {
        Some(host) => live.routes.sites_of_host(host).map(|site| &site.config).filter(is_asked).collect(),
        None => live.config.sites.iter().filter(is_asked).collect(),
    };
    let has_no_tags = |site: &&Arc<Site>| site.tags.fields.is_empty();
    // If no site matches, a different warning says so.
    if tags.is_empty() || asked.is_empty() || !asked.iter().all(has_no_tags) {
        return Vec::new();
    }
    let names =
        asked.iter().take(SITES_SHOWN_MAX).map(|site| site.name.as_str()).collect::<Vec<_>>().join(", ");
    vec![format!("only `Cache-Groups` is read for tags: set `tags` in the site {names}")]
}

/// Warnings and hints for a purge that matches no current site: its host is probably misspelt.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Miss {
    pub(super) warnings: Vec<String>,
    pub(super) hints: Option<PurgeHints>,
}

/// Compares the host of an order with the hosts of the sites, and its path if it names a site.
pub(super) fn miss(order: &PurgeOrder, what: &PurgeTarget, live: &ActiveConfig) -> Miss {
    let PurgeTarget::Selected(Selection { host, prefix, site, .. }) = what else { return Miss::default() };
    let path = prefix.as_deref().unwrap_or("/");
    let is_named = |known: &&Arc<Site>| site.as_ref().is_none_or(|name| known.name == *name);
    let may_have_path = |known: &Arc<Site>| {
        let own = &*known.path_prefix;
        own.starts_with(path) || path.starts_with(own)
    };
    let is_served = match host {
        Some(host) if site.is_none() => live.routes.serves(host, path),
        Some(host) => {
            let mut sites = live.routes.sites_of_host(host).map(|site| &site.config).filter(is_named);
            sites.any(may_have_path)
        }
        None => live.config.sites.iter().filter(is_named).any(may_have_path),
    };
    let mut warnings = Vec::new();
    if !is_served {
        let who = site
            .as_ref()
            .map_or_else(|| "no site serves".to_owned(), |name| format!("site {name} doesn't serve"));
        let host = host.as_ref().map(|host| format!(" the host {host}")).unwrap_or_default();
        let below = prefix.as_ref().map(|path| format!(" below {path}")).unwrap_or_default();
        warnings.push(format!("{who}{host}{below}"));
    }
    warnings.extend(host.as_ref().and_then(|host| taken_as_host(order, host, live)));
    let hints = (!is_served).then(|| PurgeHints { sites: sites(live) });
    Miss { warnings, hints }
}

/// Returns a warning if a prefix without a slash may be meant as a path.
fn taken_as_host(order: &PurgeOrder, host: &str, live: &ActiveConfig) -> Option<String> {
    let is_path_alike = |text: &&str| !text.starts_with('/') && !text.contains("://");
    let may_be_path = is_bare_word(host) && !live.routes.is_named(host);
    let bare = order.prefix.as_deref().filter(is_path_alike).filter(|_| may_be_path)?;
    Some(format!("`{host}` is taken as a host; write `/{bare}` for a path"))
}

/// Returns whether a host is a bare word, without the dot of internet host names.
fn is_bare_word(host: &str) -> bool {
    !host.contains(['.', ':']) && host != "localhost"
}

/// Start of URLs, split into its parts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Prefix {
    scheme: Option<UrlScheme>,
    host: Option<String>,
    path: Option<String>,
}

fn prefix(text: &str) -> Result<Prefix, PurgeError> {
    if text.contains("://") {
        let (scheme, authority, path) =
            split_url(text).ok_or_else(|| PurgeError::UrlInvalid { url: text.to_owned() })?;
        let host = authority::normalised(scheme.as_str(), authority);
        let scheme = match scheme {
            Scheme::Http => UrlScheme::Http,
            Scheme::Https => UrlScheme::Https,
        };
        return Ok(Prefix { scheme: Some(scheme), host: Some(host), path: below(&path) });
    }
    let normal = target::normal_form_of_text;
    if text.starts_with('/') {
        return Ok(Prefix { path: Some(normal(text)), ..Prefix::default() });
    }
    let (host, path) = text.split_at(text.find('/').unwrap_or(text.len()));
    Ok(Prefix { scheme: None, host: Some(host_name(host)?), path: below(&normal(path)) })
}

/// Normalises a host for comparison: removes the default port of either scheme.
fn host_name(text: &str) -> Result<String, PurgeError> {
    let parsed = text.parse().ok().filter(|parsed: &Authority| {
        let has_port = parsed.port_u16().is_some();
        let is_host = has_port || parsed.as_str().trim_end_matches(':') == parsed.host();
        is_host && !text.contains(['@', '*'])
    });
    match parsed {
        Some(_) => Ok(authority::normalised("https", &authority::normalised("http", text))),
        None => Err(PurgeError::OrderInvalid(format!(
            "{text:?} isn't a host: write it as clients send it, such as `shop.example` or `shop.example:8080`, without \
             wildcards"
        ))),
    }
}

/// Returns the path prefix; `None` for `/`, which covers the whole host.
fn below(path: &str) -> Option<String> {
    (!matches!(path, "" | "/")).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, scheme: Option<UrlScheme>, host: Option<&str>, path: Option<&str>) {
        let expected = Prefix { scheme, host: host.map(str::to_owned), path: path.map(str::to_owned) };
        assert_eq!(prefix(text), Ok(expected), "{text}");
    }

    #[test]
    fn prefixes_are_urls_hosts_or_paths() {
        check("https://A.example/x/", Some(UrlScheme::Https), Some("a.example"), Some("/x/"));
        check("http://a.example:80", Some(UrlScheme::Http), Some("a.example"), None);
        check("http://a.example:8080/", Some(UrlScheme::Http), Some("a.example:8080"), None);
        check("A.example/x", None, Some("a.example"), Some("/x"));
        check("a.example:8080", None, Some("a.example:8080"), None);
        check("a.example:443", None, Some("a.example"), None);
        check("a.example.:80/caf\u{e9}", None, Some("a.example"), Some("/caf%C3%A9"));
        check("/x", None, None, Some("/x"));
        check("/%7ea%2f", None, None, Some("/~a%2F"));
        check("a/%7ea", None, Some("a"), Some("/~a"));
        check("/", None, None, Some("/"));
        for text in [
            "ftp://a/",
            "http:///x",
            "*.example/x",
            "a.example:99999",
            "me@a.example",
            "caf\u{e9}.example/",
            "a b/",
        ] {
            assert!(prefix(text).is_err(), "{text}");
        }
    }
}
