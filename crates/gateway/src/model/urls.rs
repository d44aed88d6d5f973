//! URLs that clients request, and their keys in the store.

pub(super) const HOST: &str = "a.example";
pub(super) const SITE: &str = "site";
/// URLs with their tags, which are also groups.
pub(super) const URLS: [(&str, &str); 4] =
    [("/a/1", "\"x\""), ("/a/2", "\"x\", \"y\""), ("/b/1", "\"y\""), ("/b/2", "\"z\"")];

/// Returns the names of all possible records.
pub(super) fn names() -> impl Iterator<Item = Vec<u8>> {
    URLS.iter().map(|(url, _)| [&b"r"[..], &key(url)].concat())
}

pub(super) fn key(url: &str) -> Vec<u8> {
    let parts = caching::KeyParts {
        site: SITE.as_bytes(),
        scheme: b"http",
        authority: HOST.as_bytes(),
        path: url.as_bytes(),
        query: None,
        method: "GET",
        extra: &[],
    };
    let mut key = Vec::new();
    caching::key::write_key(&parts, &caching::KeyRules::default(), &mut key);
    key
}
