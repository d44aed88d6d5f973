//! Fails as soon as the fuzzer has found a lifetime: a run without this failure would not report other failures either.

#![no_main]

mod sections;

use caching::ResponseDirectives;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (response, _) = sections::two(bytes);
    let directives = ResponseDirectives::parse(&response);
    assert_eq!(directives.max_age, None);
});
