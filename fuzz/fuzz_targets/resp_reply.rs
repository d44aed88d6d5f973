//! Parses any bytes as replies. The result is the same for every split of the bytes, and parsed replies round-trip.
//! The first four bytes are the lengths of the pieces, repeated.

#![no_main]

use libfuzzer_sys::fuzz_target;
use resp::{DecodeError, Limits, Scanner, Value};

const LIMITS: Limits = Limits { depth_max: 8, elements_max: 256, bulk_bytes_max: 512, line_bytes_max: 128 };

fuzz_target!(|input: &[u8]| {
    let Some((pieces, bytes)) = input.split_first_chunk::<4>() else {
        return;
    };
    let whole = lengths(bytes, std::iter::empty());
    let ends = pieces.iter().cycle().scan(0, |end, &piece| {
        *end += usize::from(piece).max(1);
        (*end < bytes.len()).then_some(*end)
    });
    assert_eq!(lengths(bytes, ends), whole);
    let mut rest = bytes;
    for length in whole.0 {
        if let Ok(value) = Value::parse(&rest[..length], &LIMITS) {
            check_round_trip(&value);
        }
        rest = &rest[length..];
    }
});

fn lengths(bytes: &[u8], cuts: impl Iterator<Item = usize>) -> (Vec<usize>, Option<DecodeError>) {
    let mut scanner = Scanner::new(LIMITS);
    let (mut lengths, mut begin) = (Vec::new(), 0);
    for cut in cuts.chain([bytes.len()]) {
        while begin < cut {
            match scanner.scan(&bytes[begin..cut]) {
                Ok(None) => break,
                Ok(Some(length)) => {
                    lengths.push(length);
                    begin += length;
                }
                Err(error) => return (lengths, Some(error)),
            }
        }
    }
    (lengths, None)
}

fn check_round_trip(value: &Value<'_>) {
    let mut written = Vec::new();
    value.encode(&mut written);
    // A written number may have more digits than the received one.
    let limits = Limits { line_bytes_max: 1024, ..LIMITS };
    let again = Value::parse(&written, &limits).expect("it was written by us");
    let mut twice = Vec::new();
    again.encode(&mut twice);
    assert_eq!(twice, written);
}
