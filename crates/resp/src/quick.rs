//! A fast path for requests in the usual form: a complete array with lengths of few digits. It reads them in
//! one pass, without the state machine of the general scanner.
//!
//! Its results equal those of [`RequestScanner`](crate::RequestScanner). `None` only means that the general
//! scanner has to try.

use std::ops::Range;

use crate::Limits;

/// A request of two or three arguments, the first of which has three bytes, such as GET or SET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short<'a> {
    /// Bytes of the request in the buffer.
    pub bytes: usize,
    /// The name of the command.
    pub name: [u8; 3],
    /// The second argument.
    pub key: &'a [u8],
    /// The third argument, if there is one.
    pub value: Option<&'a [u8]>,
}

/// Finds [`Short`] requests. Stateless.
#[derive(Clone, Copy, Debug)]
pub struct ShortScanner {
    bulk_bytes_max: usize,
}

/// The first bytes of requests with two and three arguments, as numbers, to compare eight bytes at once.
const TWO: u64 = u64::from_le_bytes(*b"*2\r\n$3\r\n");
const THREE: u64 = u64::from_le_bytes(*b"*3\r\n$3\r\n");
/// The header line of a bulk string with a length of two digits, as a number: a mask of the bits that all
/// digits share, and the values of those bits.
const AROUND_DIGITS: u64 = u64::from_le_bytes([0xFF, 0xF0, 0xF0, 0xFF, 0xFF, 0, 0, 0]);
const TWO_DIGITS: u64 = u64::from_le_bytes([b'$', 0x30, 0x30, b'\r', b'\n', 0, 0, 0]);
/// Added to the digits for a second check: a digit still matches the mask after this, but the six bytes
/// after `9` don't.
const SIX_MORE: u64 = u64::from_le_bytes([0, 6, 6, 0, 0, 0, 0, 0]);
const TWO_DIGITS_LINE_BYTES: usize = 5;
/// Maximum number of digits of a length on the fast path.
const DIGITS_MAX: usize = 4;
/// Number of bytes that are read at once: the size of the shortest non-empty bulk string.
const WORD: usize = 8;
/// Bytes before the header line of the key.
const HEAD_BYTES: usize = 13;
const LINE_END: &[u8; 2] = b"\r\n";

impl ShortScanner {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { bulk_bytes_max: limits.bulk_bytes_max }
    }

    /// Returns whether `bytes` may begin with a short request. One comparison rules out most other requests.
    #[inline]
    #[must_use]
    pub fn may_find(bytes: &[u8]) -> bool {
        let head = bytes.first_chunk().map(|head| u64::from_le_bytes(*head));
        head.is_some_and(|head| head == TWO || head == THREE)
    }

    /// Returns the request at the beginning of `bytes`. On `None`, call
    /// [`RequestScanner::scan`](crate::RequestScanner::scan).
    #[inline]
    #[must_use]
    pub fn scan<'a>(self, bytes: &'a [u8]) -> Option<Short<'a>> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let [name @ .., b'\r', b'\n'] = *head.last_chunk::<5>()? else { return None };
        let (key, rest) = bulk(rest, self.bulk_bytes_max)?;
        let (value, rest) = match u64::from_le_bytes(*head.first_chunk()?) {
            TWO => (None, rest),
            THREE => {
                let (value, rest) = bulk(rest, self.bulk_bytes_max)?;
                (Some(value), rest)
            }
            _ => return None,
        };
        Some(Short { bytes: bytes.len() - rest.len(), name, key, value })
    }
}

/// Finds the arguments of the request at the beginning of `bytes`, and returns its length in bytes.
pub(crate) fn array(bytes: &[u8], limits: &Limits, ranges: &mut Vec<Range<usize>>) -> Option<usize> {
    ranges.clear();
    let (count, begin) = length(bytes, b'*')?;
    if count > limits.elements_max {
        return None;
    }
    let mut rest = bytes.get(begin..)?;
    for _ in 0..count {
        let (argument, next) = bulk(rest, limits.bulk_bytes_max)?;
        let end = bytes.len() - next.len() - LINE_END.len();
        ranges.push(end - argument.len()..end);
        rest = next;
    }
    Some(bytes.len() - rest.len())
}

/// Returns whether the limits allow every header line that the fast path reads.
pub(crate) fn is_within(limits: &Limits) -> bool {
    limits.line_bytes_max >= DIGITS_MAX
}

/// Splits off the bulk string at the beginning of `bytes`.
#[inline(always)]
fn bulk(bytes: &[u8], bulk_bytes_max: usize) -> Option<(&[u8], &[u8])> {
    let word = u64::from_le_bytes(*bytes.first_chunk()?);
    let has_frame = |word: u64| word & AROUND_DIGITS == TWO_DIGITS;
    let (length, begin) = if has_frame(word) && has_frame(word.wrapping_add(SIX_MORE)) {
        let (tens, ones) = (word >> 8 & 0xF, word >> 16 & 0xF);
        ((tens * 10 + ones) as usize, TWO_DIGITS_LINE_BYTES)
    } else {
        length(bytes, b'$')?
    };
    let end = begin + length;
    if length > bulk_bytes_max || bytes.len() < end + LINE_END.len() {
        return None;
    }
    let (string, rest) = (&bytes[begin..end], &bytes[end..]);
    let (line_end, rest) = rest.split_first_chunk()?;
    (line_end == LINE_END).then_some((string, rest))
}

/// Parses the header line of this kind at the beginning of `bytes`, and returns its number and its length in
/// bytes.
#[inline]
fn length(bytes: &[u8], kind: u8) -> Option<(usize, usize)> {
    let word: [u8; WORD] = *bytes.first_chunk()?;
    let digit = |byte: u8| byte.is_ascii_digit().then(|| usize::from(byte - b'0'));
    let mut number = digit(word[1]).filter(|_| word[0] == kind)?;
    for digits in 1..=DIGITS_MAX {
        let next = word[digits + 1];
        if next == b'\r' {
            return (word[digits + 2] == b'\n').then_some((number, digits + 3));
        }
        number = number * 10 + digit(next)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::RequestScanner;

    const LIMITS: Limits = Limits { depth_max: 1, elements_max: 4, bulk_bytes_max: 1200, line_bytes_max: 8 };

    fn short(bytes: &[u8]) -> Option<Short<'_>> {
        ShortScanner::new(&LIMITS).scan(bytes)
    }

    #[test]
    fn short_requests_are_read() {
        let get = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n";
        assert_eq!(short(get), Some(Short { bytes: get.len(), name: *b"GET", key: b"key", value: None }));
        let set = b"*3\r\n$3\r\nset\r\n$10\r\n0123456789\r\n$2\r\nab\r\n+";
        let expected = Short { bytes: set.len() - 1, name: *b"set", key: b"0123456789", value: Some(b"ab") };
        assert_eq!(short(set), Some(expected));
    }

    #[test]
    fn anything_else_is_for_the_scanner() {
        let long = [b"*2\r\n$3\r\nGET\r\n$1201\r\n".to_vec(), vec![b'x'; 1201], b"\r\n".to_vec()].concat();
        let cases: [&[u8]; 8] = [
            b"",
            b"GET key\r\n",
            b"*2\r\n$4\r\nINCR\r\n$3\r\nkey\r\n",
            b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r",
            b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\r",
            b"*2\r\n$3\r\nGET\r\n$00003\r\nkey\r\n",
            b"*2\r\n$3\r\nGET\r\n:3\r\nkey\r\n",
            &long,
        ];
        for bytes in cases {
            assert_eq!(short(bytes), None, "{}", bytes.escape_ascii());
        }
    }

    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let whole =
            (prop::collection::vec("[a-z\r\n]{0,12}|x{100,130}|y{998,1210}", 0..6)).prop_map(|arguments| {
                let mut bytes = Vec::new();
                let arguments: Vec<&[u8]> = arguments.iter().map(String::as_bytes).collect();
                crate::encode_command(&mut bytes, &arguments);
                bytes
            });
        let any = |text: &'static str| Just(text.as_bytes().to_vec());
        prop_oneof![
            6 => whole,
            1 => any("*2\r\n$3\r\nGET\r\n"),
            1 => any("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n"),
            1 => any("$02\r\nab\r\n"),
            1 => any("$1\r\na\r\n"),
            1 => any("*02\r\n"),
            1 => any("$-1\r\n"),
            1 => "[*$:0-9a\r\n]{1,5}".prop_map(String::into_bytes),
        ]
    }

    proptest! {
        /// The fast path agrees with the scanner on the bytes and on each of their prefixes.
        #[test]
        fn what_is_found_is_what_the_scanner_finds(pieces in prop::collection::vec(piece(), 1..4), flip: prop::sample::Index) {
            let mut bytes = pieces.concat();
            if bytes.len() > 3 && flip.index(2) == 0 {
                let at = flip.index(bytes.len());
                bytes[at] ^= 1;
            }
            let mut ranges = Vec::new();
            for end in 0..=bytes.len() {
                let bytes = &bytes[..end];
                let found = array(bytes, &LIMITS, &mut ranges);
                let mut scanner = RequestScanner::new(LIMITS);
                let general = scanner.scan_any(bytes);
                if found.is_some() {
                    prop_assert_eq!(&general, &Ok(found));
                    prop_assert_eq!(&ranges, scanner.ranges());
                }
                if let Some(short) = short(bytes) {
                    let arguments: Vec<&[u8]> = scanner.ranges().iter().map(|range| &bytes[range.clone()]).collect();
                    let found: Vec<&[u8]> = [&short.name[..], short.key].into_iter().chain(short.value).collect();
                    prop_assert_eq!((general, arguments), (Ok(Some(short.bytes)), found));
                }
            }
        }
    }
}
