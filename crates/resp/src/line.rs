//! Lines, and the numbers in them.

use crate::{DecodeError, Limits, Problem};

/// Finds the end of a line without looking at a byte twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineScan {
    /// Bytes already searched for the line end.
    seen: usize,
}

impl LineScan {
    /// Returns the length of the line that begins at `start`, without its line end; `None` if the line is
    /// incomplete.
    pub(crate) fn scan(
        &mut self,
        bytes: &[u8],
        start: usize,
        limits: &Limits,
    ) -> Result<Option<usize>, DecodeError> {
        let from = start + self.seen;
        let found = bytes.get(from..).and_then(|rest| memchr::memchr2(b'\r', b'\n', rest));
        let length = self.seen + found.unwrap_or_else(|| bytes.len().saturating_sub(from));
        if length > limits.line_bytes_max {
            let limit = limits.line_bytes_max;
            return Err(Problem::LineOverLimit { limit }.at(start + limit));
        }
        self.seen = length;
        if found.is_none() {
            return Ok(None);
        }
        match bytes[start + length..] {
            [b'\r', b'\n', ..] => {
                self.seen = 0;
                Ok(Some(length))
            }
            [b'\r'] => Ok(None),
            _ => Err(Problem::LineEnd.at(start + length)),
        }
    }
}

/// A length: a number, or a null of RESP2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Of(usize),
    Null,
}

/// Parses a length. Nineteen digits suffice for any length, and can't overflow.
pub(crate) fn length(digits: &[u8]) -> Result<Length, Problem> {
    match digits {
        b"-1" => return Ok(Length::Null),
        b"?" => return Err(Problem::Streamed),
        [] => return Err(Problem::Length),
        _ if digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) => return Err(Problem::Length),
        _ => {}
    }
    let number = digits.iter().fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0'));
    usize::try_from(number).map(Length::Of).map_err(|_| Problem::Length)
}

/// Parses the number of arguments of a request. A negative number means none, as in Redis.
pub(crate) fn count(digits: &[u8]) -> Result<Length, Problem> {
    match digits {
        [b'-', b'1'..=b'9', ..] => integer(digits).map(|_| Length::Null).map_err(|_| Problem::Length),
        _ => length(digits),
    }
}

/// Parses an integer.
pub(crate) fn integer(digits: &[u8]) -> Result<i64, Problem> {
    let is_number = |rest: &[u8]| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit);
    let rest = digits.strip_prefix(b"-").or_else(|| digits.strip_prefix(b"+")).unwrap_or(digits);
    let text = str::from_utf8(digits).ok().filter(|_| is_number(rest));
    text.and_then(|text| text.parse().ok()).ok_or(Problem::Integer)
}

/// Parses a double as Rust does, but without the spelling `infinity` and other variants.
pub(crate) fn double(text: &[u8]) -> Result<f64, Problem> {
    match text {
        b"inf" => return Ok(f64::INFINITY),
        b"-inf" => return Ok(f64::NEG_INFINITY),
        b"nan" => return Ok(f64::NAN),
        _ => {}
    }
    let is_plain = text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
    let text = str::from_utf8(text).ok().filter(|_| is_plain);
    text.and_then(|text| text.parse().ok()).ok_or(Problem::Double)
}

/// Checks the digits of a big number.
pub(crate) fn big_number(digits: &[u8]) -> Result<&[u8], Problem> {
    let rest = digits.strip_prefix(b"-").or_else(|| digits.strip_prefix(b"+")).unwrap_or(digits);
    let is_number = !rest.is_empty() && rest.iter().all(u8::is_ascii_digit);
    if is_number { Ok(digits) } else { Err(Problem::BigNumber) }
}
