//! Cache keys, for look-ups and for every change to the contents under them.

use std::sync::Arc;

use caching::key::write_key;
use caching::{CacheKey, KeyParts, KeyRules, MethodClass, RequestFacts};
use message::head::{OwnedRequest, Scheme};

use crate::routing::LiveSite;

/// Parts of a cache key beside path and query.
#[derive(Clone, Copy)]
pub(crate) struct Keyed<'a> {
    pub(crate) site: &'a LiveSite,
    pub(crate) scheme: Scheme,
    pub(crate) authority: &'a str,
    /// Field lines that are part of the key.
    pub(crate) fields: &'a [u8],
}

/// Writes the cache key of a URL of a site.
//= RFC 9111 section 4: the target URIs match
pub(crate) fn write_site_key(keyed: &Keyed<'_>, path_and_query: &str, rules: &KeyRules, key: &mut Vec<u8>) {
    let extra = [keyed.fields];
    let extra = if keyed.fields.is_empty() { &[][..] } else { &extra };
    write_key(&KeyParts { extra, ..keyed.parts(path_and_query) }, rules, key);
}

impl<'a> Keyed<'a> {
    pub(crate) fn parts(&self, path_and_query: &'a str) -> KeyParts<'a> {
        let target = path_and_query.as_bytes();
        let (path, query) = match memchr::memchr(b'?', target) {
            Some(mark) => (&target[..mark], Some(&target[mark + 1..])),
            None => (target, None),
        };
        KeyParts {
            site: self.site.config.name.as_bytes(),
            scheme: self.scheme.as_str().as_bytes(),
            authority: self.authority.as_bytes(),
            path,
            query,
            method: "GET",
            extra: &[],
        }
    }
}

/// Key of a URL that belongs to no site. Nothing is stored under it.
pub(crate) fn key_without_site(scheme: Scheme, authority: &str, path: &str) -> Vec<u8> {
    let parts = KeyParts {
        site: b"",
        scheme: scheme.as_str().as_bytes(),
        authority: authority.as_bytes(),
        path: path.as_bytes(),
        query: None,
        method: "GET",
        extra: &[],
    };
    CacheKey::new(&parts, &KeyRules::default()).as_bytes().to_vec()
}

/// Key under which the response to a GET is stored.
pub(crate) fn key_of(site: &LiveSite, scheme: Scheme, authority: &str, path_and_query: &str) -> Vec<u8> {
    let mut key = Vec::new();
    let rule = site.rule_at(site.rule("GET", path_and_query));
    let plain = Keyed { site, scheme, authority, fields: &[] };
    write_site_key(&plain, path_and_query, &rule.query, &mut key);
    key
}

/// Key of a request's URL alone, if its own key has more parts.
pub(crate) fn site_key(
    site: &Arc<LiveSite>,
    request: &OwnedRequest,
    facts: &RequestFacts,
) -> Option<Vec<u8>> {
    let has_more = facts.method == MethodClass::Query || !request.keyed.is_empty();
    has_more.then(|| key_of(site, request.scheme, &request.authority, &request.path_and_query))
}
