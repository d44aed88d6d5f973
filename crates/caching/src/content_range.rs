//! Parses `Content-Range` of a 206 (RFC 9110 section 14.4). [`crate::range`] writes it.

use crate::{ByteRange, decimal};

/// The part in a 206, and the length of the whole representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// The range of the part.
    pub range: ByteRange,
    /// The complete length, if the sender knows it; greater than the last position.
    pub complete_bytes: Option<u64>,
}

impl ContentRange {
    /// Returns whether the part is the whole representation.
    pub fn is_complete(&self) -> bool {
        self.range.first == 0 && self.complete_bytes == Some(self.range.len_bytes())
    }
}

/// Parses the value of `Content-Range`. Returns `None` for another unit, for `*` in place of the range (416), and for an invalid value,
/// because a part at an uncertain position is useless. Never saturates: a number beyond 64 bits is invalid.
//= RFC 9110 section 14.4: an invalid Content-Range must not be used to recombine
//= RFC 9111 section 3.3: parts need Range, Content-Range and known units
pub fn parse(value: &[u8]) -> Option<ContentRange> {
    let space = memchr::memchr(b' ', value)?;
    let (unit, rest) = (&value[..space], &value[space + 1..]);
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let slash = memchr::memchr(b'/', rest)?;
    let (positions, complete) = (&rest[..slash], &rest[slash + 1..]);
    let hyphen = memchr::memchr(b'-', positions)?;
    let (first, last) = (number(&positions[..hyphen])?, number(&positions[hyphen + 1..])?);
    let complete_bytes = match complete {
        b"*" => None,
        digits => Some(number(digits)?),
    };
    let fits = first <= last && complete_bytes.is_none_or(|bytes| last < bytes);
    fits.then_some(ContentRange { range: ByteRange { first, last }, complete_bytes })
}

fn number(digits: &[u8]) -> Option<u64> {
    decimal::parse_saturating(digits).filter(|number| *number != u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str, expected: Option<(u64, u64, Option<u64>)>) {
        let expected = expected.map(|(first, last, complete_bytes)| ContentRange {
            range: ByteRange { first, last },
            complete_bytes,
        });
        assert_eq!(parse(value.as_bytes()), expected, "{value}");
    }

    //= RFC 9110 section 14.4: Content-Range
    #[test]
    fn values() {
        check("bytes 0-9/100", Some((0, 9, Some(100))));
        check("BYTES 42-1233/*", Some((42, 1233, None)));
        check("bytes 0-0/1", Some((0, 0, Some(1))));
        check("bytes 18446744073709551613-18446744073709551613/18446744073709551614", {
            Some((u64::MAX - 2, u64::MAX - 2, Some(u64::MAX - 1)))
        });
    }

    //= RFC 9110 section 14.4: an invalid Content-Range must not be used to recombine
    #[test]
    fn invalid_values() {
        for value in [
            "",
            "bytes",
            "bytes ",
            "bytes */100",
            "bytes 9-0/100",
            "bytes 0-100/100",
            "bytes 0-9",
            "bytes 0-9/",
            "bytes 0-9/x",
            "bytes 0-/100",
            "bytes -9/100",
            "bytes=0-9/100",
            "bytes  0-9/100",
            "bytes 0-9/100, bytes 20-29/100",
            "lines 0-9/100",
            "bytes 0-18446744073709551615/*",
            "bytes 0-99999999999999999999999/*",
            "bytes 0-9/99999999999999999999999",
        ] {
            check(value, None);
        }
    }

    #[test]
    fn a_part_that_is_the_whole() {
        for (value, expected) in [
            ("bytes 0-99/100", true),
            ("bytes 0-98/100", false),
            ("bytes 1-99/100", false),
            ("bytes 0-99/*", false),
        ] {
            assert_eq!(parse(value.as_bytes()).unwrap().is_complete(), expected, "{value}");
        }
    }
}
