//! Any reference in `Location`: what it resolves to is a path of the same origin, without control bytes.

#![no_main]

use caching::invalidation::{Target, resolve};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let target =
        Target { scheme: b"http", authority: b"example.org:80", path: b"/a/b/c", query: Some(b"q=1") };
    if let Some(uri) = resolve(&target, bytes) {
        assert!(uri.path.starts_with(b"/"), "{}", uri.path.escape_ascii());
        let all = uri.path.iter().chain(uri.query.iter().flatten());
        assert!(all.copied().all(|byte| !byte.is_ascii_control() && byte != b' '));
    }
});
