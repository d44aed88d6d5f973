//! Ranges of a complete stored response (RFC 9110 section 14): the meaning of `Range` and `If-Range`, and the response
//! to them. [`crate::multipart`] writes several ranges into one body.

use smallvec::SmallVec;

use crate::facts::MethodClass;
use crate::{EntityTag, FieldLine, StoredFacts, Timestamp, Validators, date, decimal, fields};

/// A `Range` with more ranges than this is ignored.
pub const RANGES_MAX: usize = 64;

/// Up to this many ranges are kept without allocation.
pub const RANGES_INLINE: usize = 4;

/// One range as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeSpec {
    /// `first-last`, `first <= last`.
    FromTo(u64, u64),
    /// `first-`.
    From(u64),
    /// `-length`: the last bytes.
    Suffix(u64),
}

/// The ranges of a valid `Range`, in the client's order.
pub type RangeSet = SmallVec<[RangeSpec; RANGES_INLINE]>;

/// A range of a body, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// The first byte.
    pub first: u64,
    /// The last byte, at least `first`.
    pub last: u64,
}

impl ByteRange {
    /// Returns the number of bytes.
    pub fn len_bytes(self) -> u64 {
        self.last - self.first + 1
    }

    fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// The form of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// 200 with the whole body.
    Whole,
    /// 206 with this range and `Content-Range`.
    Single(ByteRange),
    /// 206 with `multipart/byteranges`, at least two.
    Multi(SmallVec<[ByteRange; RANGES_INLINE]>),
    /// 416 with [`write_unsatisfied`].
    Unsatisfiable,
}

/// Returns the form of the response from a complete stored response of `complete_bytes`. Evaluate all other preconditions first.
//= RFC 9110 section 14.2: Range is for GET, and for what would be a 200
//= RFC 9111 section 4.3.2: If-Range is evaluated
//= RFC 9110 section 13.1.5: If-Range without Range is ignored
//= RFC 9110 section 14.4: Content-Range of a request is ignored
pub fn evaluate(
    method: MethodClass,
    request: &[FieldLine<'_>],
    stored: &StoredFacts,
    validators: &Validators<'_>,
    complete_bytes: u64,
    now: Timestamp,
) -> Ranges {
    if method != MethodClass::Get || stored.status != 200 || !if_range_holds(request, validators, now) {
        return Ranges::Whole;
    }
    let specs = fields::only(request, "range").and_then(parse);
    specs.map_or(Ranges::Whole, |specs| resolve(&specs, complete_bytes))
}

/// Parses the value of `Range`. Returns `None` if it must be ignored: another unit, an invalid value, too many ranges.
/// Numbers saturate.
//= RFC 9110 section 14.1.1: range specifiers
//= RFC 9110 section 14.2: an invalid or unknown Range is ignored
pub fn parse(value: &[u8]) -> Option<RangeSet> {
    let equals = memchr::memchr(b'=', value)?;
    let (unit, list) = (&value[..equals], &value[equals + 1..]);
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut specs = RangeSet::new();
    for member in list.split(|byte| *byte == b',').map(fields::trim).filter(|member| !member.is_empty()) {
        if specs.len() == RANGES_MAX {
            return None;
        }
        specs.push(parse_spec(member)?);
    }
    (!specs.is_empty()).then_some(specs)
}

/// Resolves the ranges in a body of `complete_bytes`, and drops ranges outside it. If the response would be longer than the whole body, or
/// more than two ranges overlap, the result is the whole body.
//= RFC 9110 section 14.1.2: byte ranges
//= RFC 9110 section 14.2: sets of many small or overlapping ranges may be ignored
pub fn resolve(specs: &[RangeSpec], complete_bytes: u64) -> Ranges {
    // An empty body has no byte that `Content-Range` could name.
    if complete_bytes == 0 && specs.iter().any(|spec| matches!(spec, RangeSpec::Suffix(1..))) {
        return Ranges::Whole;
    }
    let ranges: SmallVec<[ByteRange; RANGES_INLINE]> =
        specs.iter().filter_map(|spec| resolve_one(*spec, complete_bytes)).collect();
    match ranges[..] {
        [] => Ranges::Unsatisfiable,
        [single] => Ranges::Single(single),
        _ if is_wasteful(&ranges, complete_bytes) => Ranges::Whole,
        _ => Ranges::Multi(ranges),
    }
}

/// Returns whether `Range` may be applied: the request has no `If-Range`, or one that matches exactly the stored
/// response.
//= RFC 9110 section 13.1.5: If-Range, strong comparison and exact dates
pub fn if_range_holds(request: &[FieldLine<'_>], validators: &Validators<'_>, now: Timestamp) -> bool {
    if !fields::contains(request, "if-range") {
        return true;
    }
    let Some(value) = fields::only(request, "if-range") else { return false };
    if let Some(wanted) = date::parse(value, now) {
        let modified = validators.last_modified.map(|(_, at)| at);
        return modified == Some(wanted) && validators.is_last_modified_strong();
    }
    let tags = EntityTag::parse(value).zip(validators.entity_tag());
    tags.is_some_and(|(wanted, stored)| wanted.matches_strongly(&stored))
}

/// Appends the value of a `Range` with this range alone.
//= RFC 9110 section 14.2: 206 or 416
pub fn write_range(spec: RangeSpec, out: &mut Vec<u8>) {
    out.extend_from_slice(b"bytes=");
    match spec {
        RangeSpec::FromTo(first, last) => {
            decimal::push(first, out);
            out.push(b'-');
            decimal::push(last, out);
        }
        RangeSpec::From(first) => {
            decimal::push(first, out);
            out.push(b'-');
        }
        RangeSpec::Suffix(length) => {
            out.push(b'-');
            decimal::push(length, out);
        }
    }
}

/// Appends the value of `Content-Range` of a 206; the complete length may be unknown.
//= RFC 9110 section 14.4: Content-Range
//= RFC 9110 section 14.4: the complete length is said
pub fn write_content_range(range: ByteRange, complete_bytes: impl Into<Option<u64>>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"bytes ");
    decimal::push(range.first, out);
    out.push(b'-');
    decimal::push(range.last, out);
    out.push(b'/');
    match complete_bytes.into() {
        Some(complete_bytes) => decimal::push(complete_bytes, out),
        None => out.push(b'*'),
    }
}

/// Appends the value of `Content-Range` of a 416.
//= RFC 9110 section 15.5.17: Content-Range of a 416
pub fn write_unsatisfied(complete_bytes: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"bytes */");
    decimal::push(complete_bytes, out);
}

fn parse_spec(member: &[u8]) -> Option<RangeSpec> {
    let hyphen = memchr::memchr(b'-', member)?;
    let (first, last) = (&member[..hyphen], &member[hyphen + 1..]);
    match (first, last) {
        ([], length) => Some(RangeSpec::Suffix(decimal::parse_saturating(length)?)),
        (first, []) => Some(RangeSpec::From(decimal::parse_saturating(first)?)),
        (first, last) => {
            let (first, last) = (decimal::parse_saturating(first)?, decimal::parse_saturating(last)?);
            (first <= last).then_some(RangeSpec::FromTo(first, last))
        }
    }
}

fn resolve_one(spec: RangeSpec, complete_bytes: u64) -> Option<ByteRange> {
    let end = complete_bytes.checked_sub(1)?;
    let (first, last) = match spec {
        RangeSpec::FromTo(first, last) => (first, last.min(end)),
        RangeSpec::From(first) => (first, end),
        RangeSpec::Suffix(0) => return None,
        RangeSpec::Suffix(length) => (complete_bytes.saturating_sub(length), end),
    };
    (first <= last).then_some(ByteRange { first, last })
}

fn is_wasteful(ranges: &[ByteRange], complete_bytes: u64) -> bool {
    let total: u128 = ranges.iter().map(|range| u128::from(range.len_bytes())).sum();
    let overlaps = ranges
        .iter()
        .enumerate()
        .map(|(index, range)| ranges[index + 1..].iter().filter(|other| range.overlaps(**other)).count())
        .sum::<usize>();
    total > u128::from(complete_bytes) || overlaps > 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_range() {
        let mut out = Vec::new();
        write_content_range(ByteRange { first: 0, last: 49 }, 200, &mut out);
        assert_eq!(out, b"bytes 0-49/200");
        out.clear();
        write_content_range(ByteRange { first: 7, last: 7 }, None, &mut out);
        assert_eq!(out, b"bytes 7-7/*");
        out.clear();
        write_unsatisfied(0, &mut out);
        assert_eq!(out, b"bytes */0");
    }

    #[test]
    fn a_range_is_written_as_it_is_read() {
        for value in ["bytes=0-0", "bytes=5-", "bytes=-7"] {
            let spec = parse(value.as_bytes()).unwrap()[0];
            let mut out = Vec::new();
            write_range(spec, &mut out);
            assert_eq!(out, value.as_bytes());
        }
    }

    #[test]
    fn the_largest_bodies_have_ranges_too() {
        let specs = parse(b"bytes=0-18446744073709551615").unwrap();
        let expected = ByteRange { first: 0, last: u64::MAX - 1 };
        assert_eq!(resolve(&specs, u64::MAX), Ranges::Single(expected));
        assert_eq!(expected.len_bytes(), u64::MAX);
        let one_too_many = parse(b"bytes=0-18446744073709551615, -1").unwrap();
        assert_eq!(resolve(&one_too_many, u64::MAX), Ranges::Whole);
    }
}
