//! Parses any bytes as an HTTP-date, and formats any time as one. Parsed dates round-trip, and the forms of a
//! date agree with each other.

#![no_main]

use caching::{Timestamp, date};
use libfuzzer_sys::fuzz_target;

/// The first and the last second of the years with four digits.
const YEAR_0_SECONDS: i64 = -62_167_219_200;
const YEAR_9999_END_SECONDS: i64 = 253_402_300_799;

/// Maximum distance of a two-digit year from now: fifty years, and parts of the first and the last year.
const CENTURY_SIDE_MS: i64 = 51 * 366 * 86_400_000;

fuzz_target!(|bytes: &[u8]| {
    let now = Timestamp::from_seconds(1_800_000_000);
    if let Some(time) = date::parse(bytes, now) {
        let written = date::format(time);
        assert_eq!(date::parse(&written, now), Some(time), "{}", written.escape_ascii());
        let is_two_digit_year = bytes.contains(&b'-');
        assert!(!is_two_digit_year || time.ms_since(now).abs() <= CENTURY_SIDE_MS, "{time:?}");
    }
    if let Some(ms) = bytes.first_chunk() {
        check_written(Timestamp::from_ms(i64::from_le_bytes(*ms)), now);
    }
});

fn check_written(time: Timestamp, now: Timestamp) {
    let shown = Timestamp::from_seconds(time.whole_seconds().clamp(YEAR_0_SECONDS, YEAR_9999_END_SECONDS));
    let written = date::format(time);
    assert_eq!(date::parse(&written, now), Some(shown), "{}", written.escape_ascii());
    // Sun, 06 Nov 1994 08:49:37 GMT.
    let [day_name, day, month, year, clock] = [0..3, 5..7, 8..11, 12..16, 17..25].map(|part| &written[part]);
    let asctime = [day_name, month, day, clock, year].join(&b' ');
    assert_eq!(date::parse(&asctime, now), Some(shown), "{}", asctime.escape_ascii());
}
