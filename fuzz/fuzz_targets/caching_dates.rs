//! Any bytes as an HTTP-date. What is read comes back from its own written form.

#![no_main]

use caching::{Timestamp, date};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let now = Timestamp::from_seconds(1_800_000_000);
    if let Some(time) = date::parse(bytes, now) {
        let written = date::format(time);
        assert_eq!(date::parse(&written, now), Some(time), "{}", written.escape_ascii());
    }
});
