//! Tests of partial responses: byte ranges are compared with a bitmap, and parts are combined only if they
//! belong to the same representation.

use caching::partial::{
    Description, Extents, HoleAnswer, Wanted, if_range_value, is_described_alike, is_of_one_message, judge,
    may_combine, received_part, single_range,
};
use caching::{ByteRange, FieldLine, Timestamp, Validators, content_range};
use proptest::collection::vec;
use proptest::prelude::*;

const BYTES: u64 = 64;

fn now() -> Timestamp {
    Timestamp::from_seconds(1_790_000_000)
}

fn byte_range() -> impl Strategy<Value = ByteRange> {
    (0..BYTES, 0..BYTES).prop_map(|(one, other)| ByteRange { first: one.min(other), last: one.max(other) })
}

/// Returns one bit per byte.
fn bits(ranges: &[ByteRange]) -> u64 {
    ranges.iter().flat_map(|range| range.first..=range.last).fold(0, |bits, byte| bits | 1 << byte)
}

fn is_canonical(extents: &Extents) -> bool {
    let ranges = extents.as_slice();
    ranges.iter().all(|range| range.first <= range.last)
        && ranges.windows(2).all(|pair| pair[0].last + 1 < pair[1].first)
}

proptest! {
    #[test]
    fn a_union_holds_the_bytes_of_its_parts(ranges in vec(byte_range(), 0..12)) {
        let extents: Extents = ranges.iter().copied().collect();
        prop_assert!(is_canonical(&extents), "{extents:?}");
        prop_assert_eq!(bits(extents.as_slice()), bits(&ranges));
    }

    #[test]
    fn what_is_missing_is_the_difference(ranges in vec(byte_range(), 0..12), asked in byte_range()) {
        let held: Extents = ranges.iter().copied().collect();
        let missing = held.missing(asked);
        prop_assert!(is_canonical(&missing), "{missing:?}");
        prop_assert_eq!(bits(missing.as_slice()), bits(&[asked]) & !bits(&ranges));
        prop_assert_eq!(held.contains(asked), missing.as_slice().is_empty());
    }

    #[test]
    fn filling_what_is_missing_leaves_nothing_missing(ranges in vec(byte_range(), 0..12), asked in byte_range()) {
        let mut held: Extents = ranges.iter().copied().collect();
        for hole in held.missing(asked).as_slice() {
            held.insert(*hole);
        }
        prop_assert!(held.contains(asked));
    }

    #[test]
    fn what_is_joined_is_told(ranges in vec(byte_range(), 0..12), added in byte_range()) {
        let mut extents: Extents = ranges.iter().copied().collect();
        let before = extents.clone();
        let joined = extents.insert(added);
        let mut replaced = before.as_slice()[joined.replaced.clone()].to_vec();
        replaced.push(added);
        prop_assert_eq!(bits(&replaced), bits(&[joined.union]));
        let mut expected = before.as_slice().to_vec();
        expected.splice(joined.replaced, [joined.union]);
        prop_assert_eq!(extents.as_slice(), &expected[..]);
    }

    #[test]
    fn any_bytes_are_read_without_panic(value in vec(any::<u8>(), 0..60)) {
        if let Some(part) = content_range::parse(&value) {
            prop_assert!(part.range.first <= part.range.last);
        }
    }

    #[test]
    fn content_range_is_read_as_it_is_written(
        first in 0u64..1 << 62, more in 0u64..1 << 61, rest in prop::option::of(0u64..1 << 61),
    ) {
        let range = ByteRange { first, last: first + more };
        let complete_bytes = rest.map(|rest| range.last + 1 + rest);
        let mut value = Vec::new();
        caching::range::write_content_range(range, complete_bytes, &mut value);
        let part = content_range::parse(&value).unwrap();
        prop_assert_eq!((part.range, part.complete_bytes), (range, complete_bytes));
    }
}

#[test]
fn the_ends_of_the_number_line() {
    let all = ByteRange { first: 0, last: u64::MAX };
    let mut extents = Extents::default();
    assert_eq!(extents.missing(all).as_slice(), [all]);
    extents.insert(ByteRange { first: u64::MAX, last: u64::MAX });
    assert_eq!(extents.missing(all).as_slice(), [ByteRange { first: 0, last: u64::MAX - 1 }]);
    extents.insert(all);
    assert_eq!(extents.as_slice(), [all]);
    assert!(extents.missing(all).as_slice().is_empty());
    assert_eq!(extents.shortest(), Some(0));
}

const DATE: FieldLine<'static> = ("date", b"Sun, 06 Nov 1994 08:49:37 GMT");
const SAME_SECOND: FieldLine<'static> = ("last-modified", b"Sun, 06 Nov 1994 08:49:37 GMT");
const MODIFIED: FieldLine<'static> = ("last-modified", b"Sun, 06 Nov 1994 08:49:36 GMT");
const EARLIER: FieldLine<'static> = ("last-modified", b"Sun, 06 Nov 1994 08:00:00 GMT");
const STRONG: FieldLine<'static> = ("etag", b"\"a\"");
const OTHER: FieldLine<'static> = ("etag", b"\"b\"");
const WEAK: FieldLine<'static> = ("etag", b"W/\"a\"");
const NO_TAG: FieldLine<'static> = ("etag", b"a");

//= RFC 9111 section 3.4: the same strong validator
//= RFC 9110 section 15.3.7.3: combining parts
#[test]
fn only_parts_with_the_same_strong_validator_are_combined() {
    let cases: &[(&[FieldLine<'_>], &[FieldLine<'_>], bool)] = &[
        (&[STRONG], &[STRONG], true),
        (&[STRONG], &[OTHER], false),
        (&[STRONG], &[WEAK], false),
        (&[WEAK], &[WEAK], false),
        (&[NO_TAG], &[NO_TAG], false),
        (&[STRONG], &[], false),
        (&[], &[], false),
        (&[DATE, MODIFIED], &[DATE, MODIFIED], true),
        (&[DATE, MODIFIED], &[DATE, EARLIER], false),
        (&[DATE, SAME_SECOND], &[DATE, SAME_SECOND], false),
        (&[MODIFIED], &[MODIFIED], false),
        (&[DATE, MODIFIED], &[MODIFIED], false),
        (&[DATE, MODIFIED, STRONG], &[DATE, MODIFIED], false),
        (&[DATE, MODIFIED, WEAK], &[DATE, MODIFIED, WEAK], false),
    ];
    for (stored, received, expected) in cases {
        let (one, other) = (Validators::parse(stored, now()), Validators::parse(received, now()));
        assert_eq!(may_combine(&one, &other), *expected, "{stored:?} {received:?}");
        assert_eq!(may_combine(&other, &one), *expected, "in reverse order");
    }
}

//= RFC 9110 section 13.1.5: If-Range takes strong validators only
//= RFC 9111 section 4.3.1: Last-Modified of a subrange
//= RFC 9110 section 13.1.5: no date where there is an entity tag
#[test]
fn the_rest_is_asked_for_by_a_strong_validator() {
    let cases: &[(&[FieldLine<'_>], Option<&[u8]>)] = &[
        (&[STRONG], Some(b"\"a\"")),
        (&[DATE, MODIFIED, STRONG], Some(b"\"a\"")),
        (&[DATE, MODIFIED], Some(MODIFIED.1)),
        (&[DATE, MODIFIED, WEAK], None),
        (&[DATE, SAME_SECOND], None),
        (&[MODIFIED], None),
        (&[NO_TAG], None),
        (&[], None),
    ];
    for (stored, expected) in cases {
        assert_eq!(if_range_value(&Validators::parse(stored, now())), *expected, "{stored:?}");
    }
}

//= RFC 9111 section 3.3: a 206 as an incomplete 200
//= RFC 9110 section 15.3.7: a 206 carries one range with Content-Range, or several as multipart/byteranges
//= RFC 9111 section 3.3: parts need Range, Content-Range and known units
#[test]
fn parts_that_can_be_stored() {
    let range: FieldLine<'_> = ("content-range", b"bytes 0-9/100");
    let cases: &[(&[FieldLine<'_>], Option<u64>, bool)] = &[
        (&[range], Some(10), true),
        (&[range], None, true),
        (&[range], Some(9), false),
        (&[range, range], Some(10), false),
        (&[("content-range", b"bytes 0-9")], Some(10), false),
        (&[], Some(10), false),
        (&[range, ("content-type", b"Multipart/ByteRanges; boundary=x")], Some(10), false),
        (&[range, ("content-type", b"text/plain")], Some(10), true),
    ];
    for (response, length, expected) in cases {
        assert_eq!(received_part(response, *length).is_some(), *expected, "{response:?} {length:?}");
    }
}

#[test]
fn requests_for_one_range() {
    for (value, expected) in
        [("bytes=0-9", true), ("bytes=-5", true), ("bytes=0-1,3-4", false), ("x=0-1", false)]
    {
        assert_eq!(single_range(&[("range", value.as_bytes())]).is_some(), expected, "{value}");
    }
    assert_eq!(single_range(&[("range", b"bytes=0-1"), ("range", b"bytes=0-1")]), None);
}

//= RFC 9110 section 15.3.7.3: combining parts
#[test]
fn parts_of_another_representation_are_not_combined() {
    const GZIP: FieldLine<'_> = ("Content-Encoding", b"gzip");
    const BOTH: FieldLine<'_> = ("content-encoding", b"br , gzip");
    type Lines = &'static [FieldLine<'static>];
    // Stored fields, received fields, whether they match if the request had `If-Range`, and whether they
    // match without `If-Range`.
    let cases: &[(Lines, Lines, bool, bool)] = &[
        (&[], &[], true, true),
        (&[GZIP], &[], false, false),
        (&[GZIP], &[GZIP], true, true),
        (&[], &[GZIP], false, false),
        (&[GZIP], &[BOTH], false, false),
        (&[("content-encoding", b"br"), GZIP], &[BOTH], true, true),
        (&[("content-type", b"text/plain")], &[("Content-Type", b"Text/Plain")], true, true),
        (&[("content-type", b"text/plain")], &[("content-type", b"text/html")], false, false),
        (&[("content-type", b"text/plain")], &[], true, false),
        (&[], &[("content-type", b"text/plain")], true, true),
        (&[("content-language", b"de")], &[("content-language", b"en")], false, false),
        (&[("content-location", b"/a.de")], &[("content-location", b"/a.en")], false, false),
        (&[("vary", b"accept, a")], &[("vary", b"A")], true, true),
        (&[("vary", b"a")], &[], true, true),
        (&[], &[("vary", b"accept-encoding")], false, false),
        (&[("vary", b"a")], &[("vary", b"a"), ("vary", b"b")], false, false),
    ];
    for (stored, received, short, full) in cases {
        let fits = [Description::Short, Description::Full]
            .map(|description| is_described_alike(stored, received, description));
        assert_eq!(fits, [*short, *full], "{stored:?} {received:?}");
    }
    let wanted = Wanted {
        range: ByteRange { first: 0, last: 9 },
        validators: Validators::parse(&[STRONG], now()),
        fields: &[STRONG],
        complete_bytes: None,
    };
    let response = [("content-range", &b"bytes 0-9/10"[..]), STRONG, GZIP];
    assert_eq!(judge(206, &response, None, &wanted, now()), HoleAnswer::Discard);
}

#[test]
fn fields_of_one_message() {
    for name in ["Content-Range", "content-length", "Content-Digest", "Content-MD5"] {
        assert!(is_of_one_message(name), "{name}");
    }
    for name in ["Repr-Digest", "Content-Type", "Content-Encoding", "ETag", "Last-Modified"] {
        assert!(!is_of_one_message(name), "{name}");
    }
}

fn check(status: u16, content_range: &[u8], etag: FieldLine<'_>, expected: HoleAnswer) {
    let wanted = Wanted {
        range: ByteRange { first: 10, last: 19 },
        validators: Validators::parse(&[STRONG], now()),
        fields: &[STRONG],
        complete_bytes: Some(100),
    };
    let response = [("content-range", content_range), etag];
    let text = String::from_utf8_lossy(content_range);
    assert_eq!(judge(status, &response, None, &wanted, now()), expected, "{status} {text} {etag:?}");
}

//= RFC 9111 section 3.4: the same strong validator
#[test]
fn answers_to_a_request_for_missing_bytes() {
    let splice = |value: &[u8]| HoleAnswer::Splice(content_range::parse(value).unwrap());
    for value in ["bytes 10-19/100", "bytes 10-15/100", "bytes 10-19/*"] {
        check(206, value.as_bytes(), STRONG, splice(value.as_bytes()));
    }
    for value in
        ["bytes 10-20/100", "bytes 9-19/100", "bytes 11-19/100", "bytes 10-19/101", "bytes 10-9/100", ""]
    {
        check(206, value.as_bytes(), STRONG, HoleAnswer::Discard);
    }
    for etag in [OTHER, WEAK, NO_TAG, ("x-none", b"")] {
        check(206, b"bytes 10-19/100", etag, HoleAnswer::Discard);
    }
    for (status, expected) in [
        (200, HoleAnswer::Replace),
        (416, HoleAnswer::Discard),
        (304, HoleAnswer::Discard),
        (404, HoleAnswer::Discard),
        (503, HoleAnswer::Failed),
    ] {
        check(status, b"", STRONG, expected);
    }
}
