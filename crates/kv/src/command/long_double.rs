//! Numbers of INCRBYFLOAT with a significand of 64 bits: the `long double` of x86-64, which Redis uses on
//! that architecture. `f64` has 53 bits, and rounds integers above 2^53.

use std::cmp::Ordering;

/// A number `significand * 2^exponent`. The highest bit of the significand is set, unless the exponent is the
/// minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LongDouble {
    is_negative: bool,
    significand: u64,
    exponent: i32,
}

/// A parsed number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Finite(LongDouble),
    Infinite,
}

const EXPONENT_MIN: i32 = -16_445;
const EXPONENT_MAX: i32 = 16_320;
/// Longer texts are not numbers, as in Redis.
const TEXT_BYTES_MAX: usize = 5 * 1024 - 1;
/// Half a unit in the last place, if the dropped bits are aligned to the top of a word.
const HALF: u128 = 1 << 127;
/// Digits after the decimal point.
const FRACTION_DIGITS: usize = 17;

impl Number {
    /// Parses a text like `strtold`: decimal or hexadecimal, with an optional exponent. Returns `None` if it
    /// isn't a number, overflows or underflows.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let is_negative = text.first() == Some(&b'-');
        let text = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
        if [&b"inf"[..], b"infinity"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
            return Some(Self::Infinite);
        }
        let number = match text {
            [b'0', b'x' | b'X', digits @ ..] => hexadecimal(digits),
            digits => decimal(digits),
        };
        number.map(|number| Self::Finite(LongDouble { is_negative, ..number }))
    }

    pub(super) const ZERO: Self =
        Self::Finite(LongDouble { is_negative: false, significand: 0, exponent: EXPONENT_MIN });

    /// Adds two numbers and formats the sum with at most 17 digits after the point, without trailing zeros
    /// and without an exponent. Returns `None` if the sum is not finite.
    pub(super) fn sum(self, other: Self) -> Option<String> {
        match (self, other) {
            (Self::Finite(one), Self::Finite(other)) => one.plus(other).map(LongDouble::to_text),
            _ => None,
        }
    }
}

impl LongDouble {
    /// Rounds `quotient * 2^exponent` to the nearest number, ties to even. Returns `None` if it overflows.
    fn nearest(quotient: u128, exponent: i32) -> Option<Self> {
        let bits = (u128::BITS - quotient.leading_zeros()) as i32;
        let dropped = (bits - 64).max(EXPONENT_MIN - exponent).max(0);
        let (kept, rest) = match dropped {
            0 => (quotient, 0),
            1..128 => (quotient >> dropped, quotient << (128 - dropped)),
            _ => (0, 0),
        };
        let is_up = rest > HALF || (rest == HALF && kept & 1 == 1);
        let (kept, exponent) = (kept + u128::from(is_up), exponent + dropped);
        // Rounding up may carry into a power of two.
        let carry = i32::from(kept >> 64 != 0);
        let number =
            Self { is_negative: false, significand: (kept >> carry) as u64, exponent: exponent + carry };
        number.normalized()
    }

    /// Shifts the highest bit into place, as far as the exponent permits.
    fn normalized(self) -> Option<Self> {
        if self.significand == 0 {
            return Some(Self { exponent: EXPONENT_MIN, ..self });
        }
        let shift = (self.significand.leading_zeros() as i32).min(self.exponent - EXPONENT_MIN);
        let exponent = self.exponent - shift;
        (exponent <= EXPONENT_MAX).then_some(Self {
            significand: self.significand << shift,
            exponent,
            ..self
        })
    }

    fn plus(self, other: Self) -> Option<Self> {
        let is_larger = (self.exponent, self.significand) >= (other.exponent, other.significand);
        let (large, small) = if is_larger { (self, other) } else { (other, self) };
        // The shift leaves one bit for a carry at the top, and enough bits at the bottom for lost bits to
        // count as a sticky bit.
        let distance = (large.exponent - small.exponent).min(127) as u32;
        let (one, other) = (u128::from(large.significand) << 62, u128::from(small.significand) << 62);
        let shifted = other >> distance;
        let other = shifted | u128::from(shifted << distance != other);
        let sum = if large.is_negative == small.is_negative { one + other } else { one - other };
        let number = Self::nearest(sum, large.exponent - 62)?;
        Some(Self { is_negative: large.is_negative && number.significand != 0, ..number })
    }

    fn to_text(self) -> String {
        let (whole, fraction) = match u32::try_from(self.exponent) {
            Ok(exponent) => (Natural::of(self.significand).shifted(exponent).to_text(), 0),
            Err(_) => self.parts(),
        };
        let text = format!("{whole}.{fraction:0FRACTION_DIGITS$}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        let sign = if self.is_negative && text != "0" { "-" } else { "" };
        format!("{sign}{text}")
    }

    /// The digits before and after the point, for a negative exponent.
    fn parts(self) -> (String, u128) {
        const UNIT: u128 = 10_u128.pow(FRACTION_DIGITS as u32);
        let places = self.exponent.unsigned_abs();
        // The number is less than half of the last digit.
        let Some(one) = 1_u128.checked_shl(places).filter(|_| places < 127) else {
            return ("0".to_owned(), 0);
        };
        let significand = u128::from(self.significand);
        let scaled = (significand & (one - 1)) * UNIT;
        let (digits, rest) = (scaled >> places, scaled & (one - 1));
        let is_up = rest > one / 2 || (rest == one / 2 && digits & 1 == 1);
        let digits = digits + u128::from(is_up);
        (((significand >> places) + digits / UNIT).to_string(), digits % UNIT)
    }
}

/// Parses digits with an optional point, and returns the number of digits after the point. Returns `None` if
/// other characters follow.
fn digits(text: &[u8], is_digit: fn(&u8) -> bool) -> Option<(Vec<u8>, i64)> {
    let mut parts = text.split(|byte| *byte == b'.');
    let (whole, fraction) = (parts.next()?, parts.next().unwrap_or_default());
    let digits = [whole, fraction].concat();
    let is_plain = parts.next().is_none() && !digits.is_empty() && digits.iter().all(is_digit);
    is_plain.then_some((digits, fraction.len() as i64))
}

/// Parses the exponent after `e` or `p`, which may be out of range.
fn exponent(text: &[u8]) -> Option<i64> {
    let is_negative = text.first() == Some(&b'-');
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    let is_plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let add = |number: i64, digit: &u8| (number * 10 + i64::from(digit - b'0')).min(FAR);
    is_plain.then(|| digits.iter().fold(0, add)).map(|number| if is_negative { -number } else { number })
}

/// An exponent beyond which every number except zero is out of range.
const FAR: i64 = 1_000_000;

fn split_exponent(text: &[u8], letter: u8) -> Option<(&[u8], i64)> {
    match text.iter().position(|byte| byte.eq_ignore_ascii_case(&letter)) {
        Some(at) => Some((&text[..at], exponent(&text[at + 1..])?)),
        None => Some((text, 0)),
    }
}

fn decimal(text: &[u8]) -> Option<LongDouble> {
    let (text, exponent) = split_exponent(text, b'e')?;
    let (digits, behind) = digits(text, u8::is_ascii_digit)?;
    let digits = &digits[digits.iter().take_while(|digit| **digit == b'0').count()..];
    let exponent = exponent - behind;
    let magnitude = digits.len() as i64 + exponent;
    if digits.is_empty() {
        return Some(LongDouble { is_negative: false, significand: 0, exponent: EXPONENT_MIN });
    }
    if !(-5000..5000).contains(&magnitude) {
        return None;
    }
    let mut numerator = Natural::default();
    for piece in digits.chunks(9) {
        let number = piece.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
        numerator.times_plus(10_u32.pow(piece.len() as u32), number);
    }
    let mut denominator = Natural::of(1);
    let scaled = if exponent < 0 { &mut denominator } else { &mut numerator };
    (0..exponent.unsigned_abs() / 9).for_each(|_| scaled.times_plus(1_000_000_000, 0));
    scaled.times_plus(10_u32.pow((exponent.unsigned_abs() % 9) as u32), 0);
    divide(&numerator, &denominator, 0)
}

fn hexadecimal(text: &[u8]) -> Option<LongDouble> {
    let (text, exponent) = split_exponent(text, b'p')?;
    let (digits, behind) = digits(text, u8::is_ascii_hexdigit)?;
    let mut numerator = Natural::default();
    for digit in digits {
        numerator.times_plus(16, char::from(digit).to_digit(16)?);
    }
    if numerator.bits() == 0 {
        return Some(LongDouble { is_negative: false, significand: 0, exponent: EXPONENT_MIN });
    }
    divide(&numerator, &Natural::of(1), exponent - behind * 4)
}

/// Rounds `numerator / denominator * 2^exponent` to the nearest number; both are non-zero. Returns `None` if
/// it overflows or rounds to zero.
fn divide(numerator: &Natural, denominator: &Natural, exponent: i64) -> Option<LongDouble> {
    // The quotient gets 65 or 66 bits.
    let shift = 65 - (i64::from(numerator.bits()) - i64::from(denominator.bits()));
    let places = |shift: i64| u32::try_from(shift).unwrap_or(0);
    let mut rest = numerator.shifted(places(shift));
    let denominator = denominator.shifted(places(-shift));
    let mut quotient = 0;
    for place in (0..=66).rev() {
        let part = denominator.shifted(place);
        quotient <<= 1;
        if rest.at_least(&part) {
            rest.minus(&part);
            quotient |= 1;
        }
    }
    let exponent = i32::try_from((exponent - shift).clamp(-2 * FAR, 2 * FAR)).ok()?;
    // The remainder becomes a sticky bit below the quotient, which has more bits than are kept.
    let quotient = quotient << 1 | u128::from(rest.bits() > 0);
    LongDouble::nearest(quotient, exponent - 1).filter(|number| number.significand != 0)
}

/// An arbitrary-precision integer: digits in base 2^32, the least significant first, without trailing zeros.
#[derive(Clone, Debug, Default)]
struct Natural(Vec<u32>);

impl Natural {
    fn of(number: u64) -> Self {
        let mut natural = Self(vec![number as u32, (number >> 32) as u32]);
        natural.trim();
        natural
    }

    fn trim(&mut self) {
        let zeros = self.0.iter().rev().take_while(|digit| **digit == 0).count();
        self.0.truncate(self.0.len() - zeros);
    }

    fn bits(&self) -> u32 {
        self.0.last().map_or(0, |last| self.0.len() as u32 * 32 - last.leading_zeros())
    }

    fn times_plus(&mut self, factor: u32, more: u32) {
        let mut carry = u64::from(more);
        for digit in &mut self.0 {
            let product = u64::from(*digit) * u64::from(factor) + carry;
            (*digit, carry) = (product as u32, product >> 32);
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn shifted(&self, places: u32) -> Self {
        let (whole, part) = ((places / 32) as usize, places % 32);
        let mut digits = vec![0; whole];
        let mut carry = 0;
        for digit in &self.0 {
            let wide = u64::from(*digit) << part | carry;
            digits.push(wide as u32);
            carry = wide >> 32;
        }
        digits.push(carry as u32);
        let mut natural = Self(digits);
        natural.trim();
        natural
    }

    fn at_least(&self, other: &Self) -> bool {
        let order = self.0.len().cmp(&other.0.len());
        order.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev())) != Ordering::Less
    }

    /// Subtracts a number that is not greater.
    fn minus(&mut self, other: &Self) {
        let mut borrow = 0;
        for (at, digit) in self.0.iter_mut().enumerate() {
            let less = i64::from(other.0.get(at).copied().unwrap_or(0)) + borrow;
            let difference = i64::from(*digit) - less;
            borrow = i64::from(difference < 0);
            *digit = difference as u32;
        }
        self.trim();
    }

    fn to_text(&self) -> String {
        let (mut rest, mut pieces) = (self.clone(), Vec::new());
        while !rest.0.is_empty() {
            let mut remainder = 0;
            for digit in rest.0.iter_mut().rev() {
                let wide = remainder << 32 | u64::from(*digit);
                *digit = (wide / 1_000_000_000) as u32;
                remainder = wide % 1_000_000_000;
            }
            rest.trim();
            pieces.push(remainder);
        }
        let first = pieces.pop().unwrap_or(0).to_string();
        pieces.iter().rev().fold(first, |text, piece| text + &format!("{piece:09}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Number;

    fn sum(one: &str, other: &str) -> Option<String> {
        Number::parse(one.as_bytes())?.sum(Number::parse(other.as_bytes())?)
    }

    #[test]
    fn sums_are_those_of_long_doubles() {
        let check = |one: &str, other: &str, expected: &str| {
            assert_eq!(sum(one, other).as_deref(), Some(expected), "{one} + {other}");
        };
        check("0.1", "0.2", "0.3");
        check("3.0e3", "200", "3200");
        check("9007199254740993", "0", "9007199254740993");
        check("18446744073709551615", "1", "18446744073709551616");
        check("18446744073709551615", "0.5", "18446744073709551616");
        check("99999999999999999.99999999999999999", "1", "100000000000000001");
        check("123456789012345678901234567890", "0", "123456789012345678899921813504");
        check("1", "-1e-17", "0.99999999999999999");
        check("6e-18", "0", "0.00000000000000001");
        check("0", "-1e-300", "0");
        check("-0x1.8p1", "0X.8", "-2.5");
        check("1e400", "-1e400", "0");
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for bad in [
            "", "-", "+", ".", "1e", "e1", "1e+", "--1", "+-1", " 1", "1 ", "0x", "0x.", "0xp1", "1_0",
            "nan", "1.2.3", "1e5000", "-1e-5000",
        ] {
            assert_eq!(Number::parse(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(Number::parse("1".repeat(6000).as_bytes()), None);
        assert_eq!(sum("inf", "1"), None);
        assert_eq!(sum("1.1e4932", "1.1e4932"), None);
        assert_eq!(sum("0e99999999999999999999", "-0").as_deref(), Some("0"));
    }

    proptest! {
        /// Every 64-bit integer is exact, and so is every sum that fits into 64 bits.
        #[test]
        fn integers_are_exact(one: i64, other: i64) {
            let expected = i128::from(one) + i128::from(other);
            prop_assert_eq!(sum(&one.to_string(), &other.to_string()), Some(expected.to_string()));
        }

        /// Every `f64` can be represented, so its text must parse to a neighbour.
        #[test]
        fn floats_are_read_as_they_are(number in -1e15..1e15_f64) {
            let text = sum(&number.to_string(), "0").expect("a number");
            prop_assert_eq!(text.parse::<f64>().expect("a number"), number);
        }
    }
}
