//! Timestamps for the access log. UTC only: a log with daylight saving time can't be sorted.

/// A point in time split into calendar fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Civil {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    milli: u64,
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY_MS: u64 = 86_400_000;
/// Days in the 400 years after which the Gregorian calendar repeats.
const ERA_DAYS: u64 = 146_097;
/// Days from 1 March of the year 0 to 1 January 1970.
const EPOCH_SHIFT_DAYS: u64 = 719_468;

impl Civil {
    /// Computes with years that begin in March, so that the leap day is the last day of its year.
    pub(crate) fn from_unix_ms(unix_ms: u64) -> Self {
        let days = unix_ms / DAY_MS + EPOCH_SHIFT_DAYS;
        let (era, day_of_era) = (days / ERA_DAYS, days % ERA_DAYS);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let in_day = unix_ms % DAY_MS;
        Self {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            hour: in_day / 3_600_000,
            minute: in_day / 60_000 % 60,
            second: in_day / 1_000 % 60,
            milli: in_day % 1_000,
        }
    }

    /// Writes `2026-03-01T12:00:00.123Z`.
    pub(crate) fn write_rfc3339(&self, line: &mut Vec<u8>) {
        push_digits::<4>(line, self.year);
        line.push(b'-');
        push_digits::<2>(line, self.month);
        line.push(b'-');
        push_digits::<2>(line, self.day);
        line.push(b'T');
        self.write_clock(line);
        line.push(b'.');
        push_digits::<3>(line, self.milli);
        line.push(b'Z');
    }

    /// Writes `01/Mar/2026:12:00:00 +0000`.
    pub(crate) fn write_common_log(&self, line: &mut Vec<u8>) {
        push_digits::<2>(line, self.day);
        line.push(b'/');
        line.extend_from_slice(MONTHS[self.month as usize - 1].as_bytes());
        line.push(b'/');
        push_digits::<4>(line, self.year);
        line.push(b':');
        self.write_clock(line);
        line.extend_from_slice(b" +0000");
    }

    fn write_clock(&self, line: &mut Vec<u8>) {
        push_digits::<2>(line, self.hour);
        line.push(b':');
        push_digits::<2>(line, self.minute);
        line.push(b':');
        push_digits::<2>(line, self.second);
    }
}

/// Appends the last `N` digits, with leading zeros. The standard library's formatting takes several times as
/// long, and this runs for every request.
pub(crate) fn push_digits<const N: usize>(line: &mut Vec<u8>, mut number: u64) {
    let mut digits = [b'0'; N];
    for digit in digits.iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
    }
    line.extend_from_slice(&digits);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(unix_ms: u64, rfc3339: &str, common: &str) {
        let civil = Civil::from_unix_ms(unix_ms);
        let (mut left, mut right) = (Vec::new(), Vec::new());
        civil.write_rfc3339(&mut left);
        civil.write_common_log(&mut right);
        assert_eq!((&left[..], &right[..]), (rfc3339.as_bytes(), common.as_bytes()));
    }

    #[test]
    fn known_points_in_time() {
        check(0, "1970-01-01T00:00:00.000Z", "01/Jan/1970:00:00:00 +0000");
        check(951_782_400_000, "2000-02-29T00:00:00.000Z", "29/Feb/2000:00:00:00 +0000");
        check(951_868_799_999, "2000-02-29T23:59:59.999Z", "29/Feb/2000:23:59:59 +0000");
        check(951_868_800_000, "2000-03-01T00:00:00.000Z", "01/Mar/2000:00:00:00 +0000");
        check(4_107_542_399_001, "2100-02-28T23:59:59.001Z", "28/Feb/2100:23:59:59 +0000");
        check(4_107_542_400_000, "2100-03-01T00:00:00.000Z", "01/Mar/2100:00:00:00 +0000");
        check(1_798_761_599_000, "2026-12-31T23:59:59.000Z", "31/Dec/2026:23:59:59 +0000");
    }
}
