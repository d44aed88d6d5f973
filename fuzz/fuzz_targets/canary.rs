//! Fails as soon as the fuzzer finds a lifetime: a run that doesn't report this failure wouldn't report others either.

#![no_main]

mod sections;

use caching::ResponseDirectives;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (response, _) = sections::two(bytes);
    let directives = ResponseDirectives::parse(&response);
    assert_eq!(directives.max_age, None);
});
