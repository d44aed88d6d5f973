//! Evaluates any bytes as `Range` for a body of any length: served ranges are within the body and were
//! requested, and the announced length of a multipart body is its actual length.

#![no_main]

use caching::multipart::Multipart;
use caching::range::{self, RANGES_MAX, RangeSpec};
use caching::{ByteRange, Ranges};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((head, value)) = bytes.split_first_chunk::<9>() else { return };
    let [scale, length @ ..] = *head;
    // Short bodies are likely, so that ranges overlap and reach the end.
    let complete_bytes = u64::from_le_bytes(length) >> (scale % 64);
    let Some(specs) = range::parse(value) else { return };
    check_specs(&specs);
    let satisfiable: Vec<ByteRange> = specs.iter().filter_map(|spec| model(*spec, complete_bytes)).collect();
    match range::resolve(&specs, complete_bytes) {
        Ranges::Whole => assert!(complete_bytes == 0 || satisfiable.len() > 1, "one range is always served"),
        Ranges::Single(single) => assert_eq!(satisfiable, [single]),
        Ranges::Multi(list) => {
            assert_eq!(satisfiable, list.as_slice());
            assert!(list.len() > 1);
            let total: u128 = list.iter().map(|range| u128::from(range.len_bytes())).sum();
            assert!(total <= u128::from(complete_bytes), "never more than the whole body");
            check_multipart(&list, complete_bytes, value);
        }
        Ranges::Unsatisfiable => assert!(satisfiable.is_empty()),
    }
});

/// Checks that the ranges round-trip: written out again, they parse to the same ranges.
fn check_specs(specs: &[RangeSpec]) {
    assert!((1..=RANGES_MAX).contains(&specs.len()));
    let written: Vec<String> = specs
        .iter()
        .map(|spec| match spec {
            RangeSpec::FromTo(first, last) => format!("{first}-{last}"),
            RangeSpec::From(first) => format!("{first}-"),
            RangeSpec::Suffix(length) => format!("-{length}"),
        })
        .collect();
    let parsed = range::parse(format!("bytes={}", written.join(", ")).as_bytes());
    assert_eq!(parsed.as_deref(), Some(specs));
}

/// Returns the range in a body of this length, computed without overflow.
fn model(spec: RangeSpec, complete_bytes: u64) -> Option<ByteRange> {
    let end = i128::from(complete_bytes) - 1;
    let (first, last) = match spec {
        RangeSpec::FromTo(first, last) => (i128::from(first), i128::from(last)),
        RangeSpec::From(first) => (i128::from(first), end),
        RangeSpec::Suffix(length) => ((end + 1 - i128::from(length)).max(0), end),
    };
    let within = |at: i128| u64::try_from(at.min(end)).ok();
    let is_satisfiable = first <= end && first <= last;
    is_satisfiable.then_some(ByteRange { first: within(first)?, last: within(last)? })
}

fn check_multipart(ranges: &[ByteRange], complete_bytes: u64, text: &[u8]) {
    let boundary = &text[..text.len().min(70)];
    for content_type in [None, Some(text)] {
        let multipart = Multipart { boundary, content_type, complete_bytes };
        let mut written = Vec::new();
        for range in ranges {
            assert!(range.first <= range.last && range.last < complete_bytes, "{range:?}");
            multipart.write_part_head(*range, &mut written);
            let content_range = format!("bytes {}-{}/{complete_bytes}\r\n\r\n", range.first, range.last);
            assert!(written.ends_with(content_range.as_bytes()));
        }
        multipart.write_end(&mut written);
        let body_bytes: u128 = ranges.iter().map(|range| u128::from(range.len_bytes())).sum();
        let total_bytes = u64::try_from(written.len() as u128 + body_bytes).unwrap_or(u64::MAX);
        assert_eq!(multipart.total_bytes(ranges), total_bytes);
    }
}
