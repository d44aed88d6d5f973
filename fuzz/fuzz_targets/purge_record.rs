//! Decodes any bytes as a purge, on their own or after a valid head. The result is an error or a purge that
//! encodes to the same bytes, never a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use store::purge::PurgeRecord;

fuzz_target!(|input: &[u8]| {
    check(input);
    if let [first, rest @ ..] = input {
        let head = [1, 1 + first % 3, 1 + (first >> 2) % 3, first & 63];
        check(&[&head[..], &[0; 24], rest].concat());
    }
});

fn check(bytes: &[u8]) {
    if let Ok(record) = PurgeRecord::decode(bytes) {
        assert_eq!(record.encode().as_deref(), Ok(bytes));
        // Texts for users are never empty.
        assert!(!record.what.to_string().is_empty() && !record.what.form().is_empty());
    }
}
