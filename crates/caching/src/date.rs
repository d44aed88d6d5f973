//! Points in time, and the HTTP-date forms of RFC 9110 section 5.6.7.

/// Milliseconds since the Unix epoch; negative before 1970. Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Converts milliseconds since the Unix epoch.
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Converts seconds since the Unix epoch.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// Returns milliseconds since the Unix epoch.
    pub const fn as_ms(self) -> i64 {
        self.0
    }

    /// Returns whole seconds since the Unix epoch, rounded down as in an HTTP-date.
    pub const fn whole_seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// Returns milliseconds since `earlier`; negative if `earlier` is later.
    pub const fn ms_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns this point in time moved by `ms`.
    pub const fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

/// Length of an IMF-fixdate in bytes.
pub const IMF_FIXDATE_BYTES: usize = 29;

/// Parses an HTTP-date in any of its three forms; returns `None` for anything else. The form is strict, except that
/// letters match in any case and the day name need not match the date. `now` determines the century of two-digit years.
//= RFC 9111 section 4.2: matched without case
//= RFC 9110 section 5.6.7: three forms
pub fn parse(value: &[u8], now: Timestamp) -> Option<Timestamp> {
    as_senders_write(value)
        .or_else(|| imf_fixdate(value))
        .or_else(|| rfc850_date(value, now))
        .or_else(|| asctime_date(value))?
        .timestamp()
}

/// Formats an IMF-fixdate, rounded down to the second. Years outside 0 to 9999 are clamped.
//= RFC 9110 section 5.6.7: a sender generates IMF-fixdate
pub fn format(time: Timestamp) -> [u8; IMF_FIXDATE_BYTES] {
    let seconds = time.whole_seconds().clamp(YEAR_0_SECONDS, YEAR_10000_SECONDS - 1);
    let (days, second_of_day) = (seconds.div_euclid(DAY_SECONDS), seconds.rem_euclid(DAY_SECONDS));
    let (year, month, day) = civil_from_days(days);
    let mut out = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    out[..3].copy_from_slice(&DAYS[(days + 3).rem_euclid(7) as usize].as_bytes()[..3]);
    put_two_digits(&mut out[5..7], day);
    out[8..11].copy_from_slice(MONTHS[month as usize - 1].as_bytes());
    put_two_digits(&mut out[12..14], year / 100);
    put_two_digits(&mut out[14..16], year % 100);
    put_two_digits(&mut out[17..19], second_of_day / 3600);
    put_two_digits(&mut out[20..22], second_of_day / 60 % 60);
    put_two_digits(&mut out[23..25], second_of_day % 60);
    out
}

/// A date and time of day in UTC, with the numbers that the text contains.
struct Civil {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

impl Civil {
    //= RFC 9111 section 4.2: local time zones have no influence
    fn timestamp(self) -> Option<Timestamp> {
        let valid = (1..=month_days(self.year, self.month)).contains(&self.day)
            && self.hour < 24
            && self.minute < 60
            && self.second <= 60;
        // A leap second counts as the previous second, so that no response expires later because of it.
        let second = self.second.min(59);
        let of_day = self.hour * 3600 + self.minute * 60 + second;
        let days = days_from_civil(self.year, self.month, self.day);
        valid.then(|| Timestamp::from_seconds(days * DAY_SECONDS + of_day))
    }
}

/// Parses an IMF-fixdate at fixed positions. Nearly all dates have this form. Parsing it takes a third of the time of the general parser.
fn as_senders_write(value: &[u8]) -> Option<Civil> {
    const MARKS: [(usize, u8); 7] =
        [(3, b','), (4, b' '), (7, b' '), (11, b' '), (16, b' '), (19, b':'), (22, b':')];
    let value: &[u8; IMF_FIXDATE_BYTES] = value.try_into().ok()?;
    let is_at = |at: usize, name: &str| value[at..at + 3] == name.as_bytes()[..3];
    let number = |from: usize, to: usize| {
        value[from..to].iter().try_fold(0, |number, digit| {
            digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0'))
        })
    };
    if !MARKS.iter().all(|(at, mark)| value[*at] == *mark)
        || value[25..] != *b" GMT"
        || !DAYS.iter().any(|name| is_at(0, name))
    {
        return None;
    }
    Some(Civil {
        year: number(12, 16)?,
        month: MONTHS.iter().position(|name| is_at(8, name))? as i64 + 1,
        day: number(5, 7)?,
        hour: number(17, 19)?,
        minute: number(20, 22)?,
        second: number(23, 25)?,
    })
}

/// Parses `Sun, 06 Nov 1994 08:49:37 GMT`.
fn imf_fixdate(value: &[u8]) -> Option<Civil> {
    let mut at = Cursor(value);
    at.short_day()?;
    at.literal(b", ")?;
    let day = at.digits(2)?;
    at.literal(b" ")?;
    let month = at.month()?;
    at.literal(b" ")?;
    let year = at.digits(4)?;
    at.literal(b" ")?;
    let (hour, minute, second) = at.time_of_day()?;
    at.zone()?;
    at.end()?;
    Some(Civil { year, month, day, hour, minute, second })
}

/// Parses `Sunday, 06-Nov-94 08:49:37 GMT`.
fn rfc850_date(value: &[u8], now: Timestamp) -> Option<Civil> {
    let mut at = Cursor(value);
    at.one_of(&DAYS)?;
    at.literal(b", ")?;
    let day = at.digits(2)?;
    at.literal(b"-")?;
    let month = at.month()?;
    at.literal(b"-")?;
    let year = full_year(at.digits(2)?, now);
    at.literal(b" ")?;
    let (hour, minute, second) = at.time_of_day()?;
    at.zone()?;
    at.end()?;
    Some(Civil { year, month, day, hour, minute, second })
}

/// Parses `Sun Nov  6 08:49:37 1994`.
fn asctime_date(value: &[u8]) -> Option<Civil> {
    let mut at = Cursor(value);
    at.short_day()?;
    at.literal(b" ")?;
    let month = at.month()?;
    at.literal(b" ")?;
    let day = if at.literal(b" ").is_some() { at.digits(1)? } else { at.digits(2)? };
    at.literal(b" ")?;
    let (hour, minute, second) = at.time_of_day()?;
    at.literal(b" ")?;
    let year = at.digits(4)?;
    at.end()?;
    Some(Civil { year, month, day, hour, minute, second })
}

/// Returns the latest year with these two last digits that is at most 50 years ahead.
//= RFC 9110 section 5.6.7: a two-digit year more than 50 years ahead is in the past
fn full_year(two_digits: i64, now: Timestamp) -> i64 {
    let latest = civil_from_days(now.whole_seconds().div_euclid(DAY_SECONDS)).0 + 50;
    latest - (latest - two_digits).rem_euclid(100)
}

/// The unread part of a date.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn literal(&mut self, expected: &[u8]) -> Option<()> {
        let (head, rest) = self.0.split_at_checked(expected.len())?;
        head.eq_ignore_ascii_case(expected).then(|| self.0 = rest)
    }

    fn digits(&mut self, count: usize) -> Option<i64> {
        let (head, rest) = self.0.split_at_checked(count)?;
        let number = crate::decimal::parse_saturating(head)?;
        self.0 = rest;
        i64::try_from(number).ok()
    }

    fn one_of(&mut self, names: &[&str]) -> Option<usize> {
        names.iter().position(|name| self.literal(name.as_bytes()).is_some())
    }

    fn short_day(&mut self) -> Option<usize> {
        DAYS.iter().position(|name| self.literal(&name.as_bytes()[..3]).is_some())
    }

    fn month(&mut self) -> Option<i64> {
        self.one_of(&MONTHS).map(|index| index as i64 + 1)
    }

    fn time_of_day(&mut self) -> Option<(i64, i64, i64)> {
        let hour = self.digits(2)?;
        self.literal(b":")?;
        let minute = self.digits(2)?;
        self.literal(b":")?;
        Some((hour, minute, self.digits(2)?))
    }

    fn zone(&mut self) -> Option<()> {
        //= RFC 9111 section 4.2: time zones other than GMT are invalid
        self.literal(b" GMT")
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

const DAY_SECONDS: i64 = 86_400;
const YEAR_0_SECONDS: i64 = -62_167_219_200;
const YEAR_10000_SECONDS: i64 = 253_402_300_800;
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

fn put_two_digits(place: &mut [u8], number: i64) {
    place[0] = b'0' + (number / 10 % 10) as u8;
    place[1] = b'0' + (number % 10) as u8;
}

fn month_days(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns days since 1970-01-01 in the proleptic Gregorian calendar. The year begins in March here, so that the leap
/// day is its last day.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The inverse of [`days_from_civil`]: year, month, day.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_790_000_000); // September 2026

    fn check(text: &str, seconds: Option<i64>) {
        assert_eq!(parse(text.as_bytes(), NOW), seconds.map(Timestamp::from_seconds), "{text}");
    }

    //= RFC 9110 section 5.6.7: three forms
    //= RFC 9111 section 4.2: matched without case
    #[test]
    fn the_three_forms() {
        check("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777));
        check("Sunday, 06-Nov-94 08:49:37 GMT", Some(784_111_777));
        check("Sun Nov  6 08:49:37 1994", Some(784_111_777));
        check("sun, 06 nov 1994 08:49:37 gmt", Some(784_111_777));
        check("Thu, 01 Jan 1970 00:00:00 GMT", Some(0));
        check("Wed, 31 Dec 1969 23:59:59 GMT", Some(-1));
        check("Thu, 29 Feb 2024 00:00:00 GMT", Some(1_709_164_800));
        check("Fri, 31 Dec 9999 23:59:59 GMT", Some(253_402_300_799));
    }

    //= RFC 9110 section 5.6.7: a two-digit year more than 50 years ahead is in the past
    #[test]
    fn two_digit_years_stay_within_fifty_years_ahead() {
        check("Wednesday, 01-Jan-76 00:00:00 GMT", Some(3_345_062_400)); // 2076
        check("Saturday, 01-Jan-77 00:00:00 GMT", Some(220_924_800)); // 1977
        check("Friday, 01-Jan-27 00:00:00 GMT", Some(1_798_761_600)); // 2027
    }

    #[test]
    fn a_leap_second_is_the_second_before() {
        check("Sat, 31 Dec 2016 23:59:60 GMT", Some(1_483_228_799));
        check("Saturday, 31-Dec-16 23:59:60 GMT", Some(1_483_228_799));
        check("Sat, 31 Dec 2016 23:59:61 GMT", None);
    }

    #[test]
    fn anything_else_is_no_date() {
        for text in [
            "",
            "0",
            "-1",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun,  06 Nov 1994 08:49:37 GMT",
            "Sun 06 Nov 1994 08:49:37 GMT",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Thu, 29 Feb 2023 00:00:00 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "06 Nov 1994 08:49:37 GMT",
            "1994-11-06T08:49:37Z",
        ] {
            check(text, None);
        }
    }

    //= RFC 9111 section 4.2: time zones other than GMT are invalid
    #[test]
    fn other_time_zones_are_invalid() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sunday, 06-Nov-94 08:49:37 utc",
            "Sun, 06 Nov 1994 08:49:37 EST",
        ] {
            check(text, None);
        }
    }

    //= RFC 9111 section 5.3: far expiration times do not overflow
    #[test]
    fn years_beyond_four_digits_are_clamped() {
        assert_eq!(&format(Timestamp::from_ms(i64::MAX)), b"Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(&format(Timestamp::from_ms(i64::MIN)), b"Sat, 01 Jan 0000 00:00:00 GMT");
    }

    proptest! {
        //= RFC 9110 section 5.6.7: a sender generates IMF-fixdate
        #[test]
        fn written_dates_are_read_back(seconds in YEAR_0_SECONDS..YEAR_10000_SECONDS) {
            let time = Timestamp::from_seconds(seconds);
            prop_assert_eq!(parse(&format(time.plus_ms(999)), NOW), Some(time));
        }

        #[test]
        fn the_short_way_to_read_a_date_ends_where_the_long_one_does(
            seconds in YEAR_0_SECONDS..YEAR_10000_SECONDS,
            (at, byte) in (0..IMF_FIXDATE_BYTES, proptest::char::range(' ', 'z')),
        ) {
            let mut text = format(Timestamp::from_seconds(seconds));
            let long = imf_fixdate(&text).and_then(Civil::timestamp);
            prop_assert_eq!(as_senders_write(&text).and_then(Civil::timestamp), long);
            text[at] = byte as u8;
            if let Some(date) = as_senders_write(&text) {
                prop_assert_eq!(date.timestamp(), imf_fixdate(&text).and_then(Civil::timestamp));
            }
        }

        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40), now in any::<i64>()) {
            let _ = parse(&bytes, Timestamp::from_ms(now));
            let _ = format(Timestamp::from_ms(now));
        }
    }
}
