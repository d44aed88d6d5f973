//! Parses any two header sections with `Cache-Control`: both together have the directives of the two, in order, so no
//! line can undo a prohibition in another line. Numbers saturate.

#![no_main]

mod sections;

use caching::directives::{DELTA_SECONDS_MAX, is_qualified, qualified_names};
use caching::{FieldLine, MaxStale, RequestDirectives, ResponseDirectives};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (one, two) = sections::two(bytes);
    let both = [&one[..], &two[..]].concat();
    let response = ResponseDirectives::parse(&both);
    assert_eq!(response, responses(&ResponseDirectives::parse(&one), &ResponseDirectives::parse(&two)));
    let pragma_apart = |section: &[FieldLine<'_>]| RequestDirectives::parse(&without_pragma(section));
    assert_eq!(pragma_apart(&both), requests(&pragma_apart(&one), &pragma_apart(&two)));
    check_pragma(&both);
    check_saturates(bytes, &both);
    check_bounds(&response, &RequestDirectives::parse(&both));
    for name in qualified_names(&both).filter_map(|name| std::str::from_utf8(name).ok()) {
        assert!(is_qualified(&both, &name.to_ascii_uppercase()), "{name}");
    }
});

/// Combines directives: the first of two numbers, and the more restrictive of other directives.
fn responses(one: &ResponseDirectives, two: &ResponseDirectives) -> ResponseDirectives {
    ResponseDirectives {
        max_age: one.max_age.or(two.max_age),
        must_revalidate: one.must_revalidate | two.must_revalidate,
        must_understand: one.must_understand | two.must_understand,
        no_cache: one.no_cache.max(two.no_cache),
        no_store: one.no_store | two.no_store,
        no_transform: one.no_transform | two.no_transform,
        private: one.private.max(two.private),
        proxy_revalidate: one.proxy_revalidate | two.proxy_revalidate,
        public: one.public | two.public,
        s_maxage: one.s_maxage.or(two.s_maxage),
        immutable: one.immutable | two.immutable,
        stale_while_revalidate: one.stale_while_revalidate.or(two.stale_while_revalidate),
        stale_if_error: one.stale_if_error.or(two.stale_if_error),
    }
}

fn requests(one: &RequestDirectives, two: &RequestDirectives) -> RequestDirectives {
    RequestDirectives {
        max_age: one.max_age.or(two.max_age),
        max_stale: if one.max_stale == MaxStale::None { two.max_stale } else { one.max_stale },
        min_fresh: one.min_fresh.or(two.min_fresh),
        no_cache: one.no_cache | two.no_cache,
        no_store: one.no_store | two.no_store,
        no_transform: one.no_transform | two.no_transform,
        only_if_cached: one.only_if_cached | two.only_if_cached,
        stale_if_error: one.stale_if_error.or(two.stale_if_error),
    }
}

fn without_pragma<'a>(section: &[FieldLine<'a>]) -> Vec<FieldLine<'a>> {
    section.iter().copied().filter(|(name, _)| !name.eq_ignore_ascii_case("pragma")).collect()
}

//= RFC 9111 section 5.4: Pragma counts only where Cache-Control is absent
fn check_pragma(request: &[FieldLine<'_>]) {
    let plain = without_pragma(request);
    let with_pragma = [&plain[..], &[("Pragma", b"no-cache")]].concat();
    let (plain, with_pragma) = (RequestDirectives::parse(&plain), RequestDirectives::parse(&with_pragma));
    let has_cache_control = request.iter().any(|(name, _)| name.eq_ignore_ascii_case("cache-control"));
    let expected = RequestDirectives { no_cache: plain.no_cache | !has_cache_control, ..plain };
    assert_eq!(with_pragma, expected);
}

/// Checks that a first line with all digits of the input as its `max-age` is not changed by a later line.
//= RFC 9111 section 1.2.2: values too large become 2^31
fn check_saturates(bytes: &[u8], section: &[FieldLine<'_>]) {
    let digits: String =
        bytes.iter().filter(|byte| byte.is_ascii_digit()).map(|byte| char::from(*byte)).collect();
    if digits.is_empty() {
        return;
    }
    let significant = digits.trim_start_matches('0');
    let expected = match significant.len() {
        0 => 0,
        1..=10 => significant.parse::<u64>().expect("ten digits").min(u64::from(DELTA_SECONDS_MAX)),
        _ => u64::from(DELTA_SECONDS_MAX),
    };
    let value = format!("max-age={digits}");
    let lines = [&[("Cache-Control", value.as_bytes())], section].concat();
    assert_eq!(ResponseDirectives::parse(&lines).max_age.map(u64::from), Some(expected));
    assert_eq!(RequestDirectives::parse(&lines).max_age.map(u64::from), Some(expected));
}

fn check_bounds(response: &ResponseDirectives, request: &RequestDirectives) {
    let max_stale = match request.max_stale {
        MaxStale::Seconds(seconds) => Some(seconds),
        MaxStale::None | MaxStale::Any => None,
    };
    let numbers = [
        response.max_age,
        response.s_maxage,
        response.stale_while_revalidate,
        response.stale_if_error,
        request.max_age,
        max_stale,
        request.min_fresh,
        request.stale_if_error,
    ];
    assert!(numbers.into_iter().flatten().all(|seconds| seconds <= DELTA_SECONDS_MAX));
}
