//! Parses any bytes from an origin on one connection. The result is the same for every split of the bytes. The
//! first four bytes are the lengths of the pieces, repeated; the lowest bit of the fifth selects HEAD.

#![no_main]

#[path = "../../crates/http1/tests/drive_responses/mod.rs"]
mod drive_responses;

use http1::{Asked, Limits};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits {
    head_bytes_max: 512,
    target_bytes_max: 0,
    fields_max: 8,
    chunk_extension_bytes_max: 32,
    trailer_bytes_max: 64,
};

fuzz_target!(|input: &[u8]| {
    let Some(([pieces @ .., method], bytes)) = input.split_first_chunk::<5>() else {
        return;
    };
    let asked = if method & 1 == 1 { Asked::Head } else { Asked::Content };
    let whole = drive_responses::events(bytes, &[], asked, &LIMITS);
    let one_by_one: Vec<usize> = (0..bytes.len()).collect();
    assert_eq!(drive_responses::events(bytes, &one_by_one, asked, &LIMITS), whole);
    let cuts: Vec<usize> = pieces
        .iter()
        .cycle()
        .scan(0, |end, &piece| {
            *end += usize::from(piece).max(1);
            (*end < bytes.len()).then_some(*end)
        })
        .collect();
    assert_eq!(drive_responses::events(bytes, &cuts, asked, &LIMITS), whole);
});
