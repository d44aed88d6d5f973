//! Figures for readers: thousands separators, and the unit that keeps them short.

use indicatif::HumanCount;

/// A count, with a comma between thousands: `1,234,567`.
pub(crate) fn count(value: u64) -> String {
    HumanCount(value).to_string()
}

/// A rate: a whole number above 100, three significant digits below.
pub(crate) fn rate(value: f64) -> String {
    if !value.is_finite() {
        return String::from("-");
    }
    if value >= 100.0 {
        return count(value.round() as u64);
    }
    significant(value)
}

/// A time with its unit: `812 µs`, `1.23 ms`, `4.5 s`.
pub(crate) fn time(us: f64) -> String {
    if !us.is_finite() {
        return String::from("-");
    }
    let (name, unit_us) = match us.abs() {
        size if size < 999.5 => ("µs", 1.0),
        size if size < 999_500.0 => ("ms", 1e3),
        _ => ("s", 1e6),
    };
    format!("{} {name}", significant(us / unit_us))
}

/// Bytes with a binary unit: `1.5 MiB`.
pub(super) fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value} B") } else { format!("{} {}", significant(scaled), UNITS[unit]) }
}

/// Three significant digits, or all digits of a larger number.
pub(super) fn significant(value: f64) -> String {
    match value.abs() {
        0.0 => String::from("0"),
        size if size < 0.001 => format!("{value:.1e}"),
        size if size < 0.01 => format!("{value:.5}"),
        size if size < 0.1 => format!("{value:.4}"),
        size if size < 0.9995 => format!("{value:.3}"),
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        size if size < 999.5 => format!("{value:.0}"),
        _ if value > 0.0 => count(value.round() as u64),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_have_their_unit() {
        #[track_caller]
        fn check(seen: &str, expected: &str) {
            assert_eq!(seen, expected);
        }
        check(&count(0), "0");
        check(&count(999), "999");
        check(&count(1_234_567), "1,234,567");
        check(&rate(61_234.4), "61,234");
        check(&rate(12.34), "12.3");
        check(&rate(f64::NAN), "-");
        check(&time(0.0), "0 µs");
        check(&time(7.128), "7.13 µs");
        check(&time(999.6), "1.00 ms");
        check(&time(1_234.0), "1.23 ms");
        check(&time(12_345_678.0), "12.3 s");
        check(&time(3_600_000_000.0), "3,600 s");
        check(&bytes(1023), "1023 B");
        check(&bytes(1_572_864), "1.50 MiB");
        check(&significant(0.0123), "0.0123");
        check(&significant(99.97), "100");
    }
}
