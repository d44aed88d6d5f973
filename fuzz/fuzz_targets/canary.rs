//! Fails as soon as the fuzzer has found a lifetime. If a run doesn't fail here, it wouldn't find other failures
//! either.

#![no_main]

mod sections;

use caching::ResponseDirectives;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (response, _) = sections::two(bytes);
    let directives = ResponseDirectives::parse(&response);
    assert_eq!(directives.max_age, None);
});
