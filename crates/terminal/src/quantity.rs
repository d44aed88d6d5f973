//! Parsing of numbers and durations: `"500ms"`, `"5s"`, `"1h30m"`.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Units of durations in milliseconds, largest first.
const DURATION_UNITS: [(&str, u64); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Returns a parser for whole numbers within a range.
pub fn whole_number<N>(range: RangeInclusive<N>) -> impl Fn(&str) -> Result<N, String> + Clone
where
    N: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("expected a whole number from {} to {}", range.start(), range.end()))
    }
}

/// Returns a parser for numbers within a range.
pub fn number(range: RangeInclusive<f64>) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("expected a number from {} to {}", range.start(), range.end()))
    }
}

/// Parses a duration: one or more pairs of digits and a unit (`ms`, `s`, `m`, `h`, `d`, `w`), each unit at most once
/// and the larger first. A number without a unit is refused, because it could mean seconds or milliseconds.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total_ms = 0_u64;
    let mut units = DURATION_UNITS.iter();
    while !rest.is_empty() {
        let (digits, tail) = split_number(rest)?;
        let unit_len = tail.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        let (_, factor) = units.find(|(name, _)| *name == unit)?;
        total_ms = total_ms.checked_add(digits.checked_mul(*factor)?)?;
        rest = tail;
    }
    (!text.is_empty()).then(|| Duration::from_millis(total_ms))
}

/// Formats a duration in the largest unit that divides it.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let fits = |(_, factor): &&(&str, u64)| ms >= *factor && ms.is_multiple_of(*factor);
    DURATION_UNITS
        .iter()
        .find(fits)
        .map_or_else(|| "0s".to_owned(), |(unit, factor)| format!("{}{unit}", ms / factor))
}

fn split_number(text: &str) -> Option<(u64, &str)> {
    let digits_len = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(digits_len);
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        #[track_caller]
        fn check(text: &str, ms: Option<u64>) {
            assert_eq!(parse_duration(text), ms.map(Duration::from_millis), "{text}");
        }
        check("0s", Some(0));
        check("500ms", Some(500));
        check("5s", Some(5_000));
        check("1h30m", Some(5_400_000));
        check("7d", Some(604_800_000));
        for wrong in ["", "5", "s", "5 s", "1.5s", "30m1h", "1s1s", "-1s", "5S", "99999999999999999999s"] {
            check(wrong, None);
        }
    }

    proptest::proptest! {
        #[test]
        fn formatted_durations_read_back(ms in 0_u64..1 << 50) {
            let duration = Duration::from_millis(ms);
            proptest::prop_assert_eq!(parse_duration(&format_duration(duration)), Some(duration));
        }
    }
}
