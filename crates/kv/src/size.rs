//! Sizes with units, in Redis' notation, in configuration files, arguments and `CONFIG SET`.

/// Units in lower case: those of Redis up to gigabytes, the same for terabytes, and those of IEC 80000-13.
const UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("b", 1),
    ("k", 1_000),
    ("kb", 1 << 10),
    ("kib", 1 << 10),
    ("m", 1_000_000),
    ("mb", 1 << 20),
    ("mib", 1 << 20),
    ("g", 1_000_000_000),
    ("gb", 1 << 30),
    ("gib", 1 << 30),
    ("t", 1_000_000_000_000),
    ("tb", 1 << 40),
    ("tib", 1 << 40),
];

/// Parses a number of bytes with an optional unit in any case. `k` is 1000, `kb` and `KiB` are 1024, and so
/// on up to `t`.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let (_, bytes) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    number.parse::<u64>().ok()?.checked_mul(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_redis_and_more() {
        for (text, bytes) in [
            ("0", 0),
            ("100", 100),
            ("5b", 5),
            ("1k", 1_000),
            ("1kb", 1_024),
            ("64 KiB", 65_536),
            ("100m", 100_000_000),
            ("100mb", 104_857_600),
            ("512MiB", 512 << 20),
            ("1G", 1_000_000_000),
            ("1GB", 1 << 30),
            ("1gib", 1 << 30),
            ("2t", 2_000_000_000_000),
            ("2TB", 2 << 40),
            ("2TiB", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for wrong in [
            "",
            "b",
            "mb",
            "KiB",
            "-1",
            "+1",
            "1.5gb",
            "1 G B",
            "100mbb",
            "1p",
            "99999999999999999999",
            "99999999TiB",
        ] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }
}
