//! Resolves any reference in `Location` against any target. The result is a path on the same origin without control
//! bytes and dot segments, and resolves to itself.

#![no_main]

use caching::MethodClass;
use caching::invalidation::{SameOrigin, Target, invalidated, resolve};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    check(&target(b"/a/b/c?q=1"), bytes);
    // The first line may be the target.
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    let (line, rest) = bytes.split_at(end);
    let is_target = |byte: &u8| byte.is_ascii_graphic() && *byte != b'#';
    if line.starts_with(b"/") && line.iter().all(is_target) {
        check(&target(line), &rest[1..]);
    }
});

fn target(text: &[u8]) -> Target<'_> {
    let mark = text.iter().position(|byte| *byte == b'?');
    let (path, query) = mark.map_or((text, None), |mark| (&text[..mark], Some(&text[mark + 1..])));
    Target { scheme: b"http", authority: b"example.org:80", path, query }
}

fn check(target: &Target<'_>, reference: &[u8]) {
    let resolved = resolve(target, reference);
    check_invalidated(target, reference, resolved.as_ref());
    let Some(uri) = resolved else { return };
    assert!(uri.path.starts_with(b"/"), "{}", uri.path.escape_ascii());
    let all = uri.path.iter().chain(uri.query.iter().flatten());
    assert!(all.copied().all(|byte| !byte.is_ascii_control() && byte != b' '));
    if uri.path == target.path {
        return;
    }
    let mut segments = uri.path.split(|byte| *byte == b'/');
    assert!(!segments.any(|segment| segment == b"." || segment == b".."), "{}", uri.path.escape_ascii());
    let query = uri.query.as_ref().map_or(Vec::new(), |query| [b"?", &query[..]].concat());
    let absolute = [b"HTTP://Example.ORG", &uri.path[..], &query].concat();
    assert_eq!(resolve(target, &absolute), Some(uri));
}

/// Checks the invalidated URIs: the target and those in the two fields, each once.
//= RFC 9111 section 4.4: invalidating stored responses
fn check_invalidated(target: &Target<'_>, reference: &[u8], resolved: Option<&SameOrigin>) {
    let fields = [("Location", reference), ("Content-Location", reference)];
    let own = SameOrigin { path: target.path.to_vec(), query: target.query.map(<[u8]>::to_vec) };
    let mut expected = vec![own];
    expected.extend(resolved.filter(|uri| **uri != expected[0]).cloned());
    assert_eq!(invalidated(MethodClass::Unsafe, 200, target, &fields).as_slice(), expected);
    assert!(invalidated(MethodClass::Unsafe, 500, target, &fields).is_empty());
}
