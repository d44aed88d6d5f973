//! Sizes as text: `"64KiB"`, `"1GiB"`.

use std::ops::RangeInclusive;

/// One parser for all sizes, including those in commands of the Redis-compatible server.
pub(crate) use kv::parse_size;

/// Units of displayed sizes, largest first.
const SIZE_UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// The range of `workers` in the configuration.
pub(crate) const WORKERS: RangeInclusive<u32> = 1..=1024;

/// Formats a size in the largest unit that divides it.
pub(crate) fn format_size(bytes: u64) -> String {
    let fits = |(_, factor): &&(&str, u64)| bytes >= *factor && bytes.is_multiple_of(*factor);
    SIZE_UNITS
        .iter()
        .find(fits)
        .map_or_else(|| format!("{bytes}B"), |(unit, factor)| format!("{}{unit}", bytes / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn formatted_sizes_read_back(number in 0_u64..1 << 50) {
            proptest::prop_assert_eq!(parse_size(&format_size(number)), Some(number));
        }
    }
}
