//! Compares the keys of any two targets: the keys are equal exactly if the targets are equivalent. Sorted and reduced
//! keys never panic.

#![no_main]

use caching::{CacheKey, KeyParts, KeyRules, QueryOrder, QueryParameters};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let half = bytes.len() / 2;
    let (one, two) = (&bytes[..half], &bytes[half..]);
    let as_sent = KeyRules::default();
    assert_eq!(key(one, &as_sent) == key(two, &as_sent), with_path(one) == with_path(two));
    let names: Vec<Box<[u8]>> = vec![b"utm_*"[..].into(), b"q"[..].into()];
    for parameters in [QueryParameters::Ignore(names.clone()), QueryParameters::Keep(names)] {
        let rules = KeyRules { parameters, order: QueryOrder::Sorted };
        assert_eq!(key(one, &rules), key(one, &rules));
    }
});

/// An empty path is equivalent to `/` (RFC 3986 section 6.2.3).
fn with_path(target: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if target.is_empty() || target.starts_with(b"?") { b"/" } else { b"" };
    [slash, target].concat()
}

/// Uses the target as path and query, split at its first `?`.
fn key(target: &[u8], rules: &KeyRules) -> CacheKey {
    let cut = target.iter().position(|byte| *byte == b'?');
    let (path, query) = match cut {
        Some(cut) => (&target[..cut], Some(&target[cut + 1..])),
        None => (target, None),
    };
    let parts = KeyParts {
        site: b"site",
        scheme: b"http",
        authority: b"example.org",
        path,
        query,
        method: "GET",
        extra: &[],
    };
    CacheKey::new(&parts, rules)
}
