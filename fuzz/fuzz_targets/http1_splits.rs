//! Parses any bytes as a connection with any number of requests. The result is the same for every split of the
//! bytes. The first four bytes are the lengths of the pieces, repeated.

#![no_main]

#[path = "../../crates/http1/tests/drive/mod.rs"]
mod drive;

use http1::Limits;
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits {
    head_bytes_max: 512,
    target_bytes_max: 128,
    fields_max: 8,
    chunk_extension_bytes_max: 32,
    trailer_bytes_max: 64,
};

fuzz_target!(|input: &[u8]| {
    let Some((pieces, bytes)) = input.split_first_chunk::<4>() else {
        return;
    };
    let whole = drive::events(bytes, &[], &LIMITS);
    let one_by_one: Vec<usize> = (0..bytes.len()).collect();
    assert_eq!(drive::events(bytes, &one_by_one, &LIMITS), whole);
    let cuts: Vec<usize> = pieces
        .iter()
        .cycle()
        .scan(0, |end, &piece| {
            *end += usize::from(piece).max(1);
            (*end < bytes.len()).then_some(*end)
        })
        .collect();
    assert_eq!(drive::events(bytes, &cuts, &LIMITS), whole);
});
