//! Decimal numbers in header fields: parses numbers of any length, and writes them without allocation.

/// Parses one or more ASCII digits and nothing else; a number too large for `u64` becomes `u64::MAX`.
//= RFC 9110 section 14.1.2: large numerals
pub(crate) fn parse_saturating(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(
        digits.iter().fold(0u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'))),
    )
}

/// Appends `number` in decimal.
pub(crate) fn push(number: u64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut start = digits.len();
    let mut rest = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Returns the number of digits that [`push`] writes.
pub(crate) fn width(number: u64) -> u64 {
    u64::from(number.checked_ilog10().unwrap_or(0)) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_as_read() {
        for number in [0, 7, 10, 99, 100, u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            push(number, &mut out);
            assert_eq!(out, number.to_string().as_bytes());
            assert_eq!(out.len() as u64, width(number));
            assert_eq!(parse_saturating(&out), Some(number));
        }
    }

    #[test]
    fn only_digits_and_never_overflow() {
        for (text, number) in [
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.0", None),
            (" 1", None),
            ("007", Some(7)),
            ("99999999999999999999999", Some(u64::MAX)),
        ] {
            assert_eq!(parse_saturating(text.as_bytes()), number, "{text}");
        }
    }
}
