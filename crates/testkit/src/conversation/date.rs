//! The three forms of an HTTP date, written without code of the product.

/// Form of a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Imf,
    Rfc850,
    Asctime,
}

/// Writes a time in seconds since 1970.
pub(super) fn format(seconds: i64, form: Form) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let clock = format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
    let (weekday, month) = (WEEKDAYS[days.rem_euclid(7) as usize], MONTHS[month - 1]);
    match form {
        Form::Imf => format!("{}, {day:02} {month} {year:04} {clock} GMT", &weekday[..3]),
        Form::Rfc850 => format!("{weekday}, {day:02}-{month}-{:02} {clock} GMT", year % 100),
        Form::Asctime => format!("{} {month} {day:2} {clock} {year:04}", &weekday[..3]),
    }
}

/// Returns year, month from 1, and day of the month. The calculation counts years from March, so that the leap day is the last.
fn civil(days: i64) -> (i64, usize, i64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month as usize, day)
}

/// 1 January 1970 was a Thursday.
const WEEKDAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms() {
        assert_eq!(format(784_111_777, Form::Imf), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(format(784_111_777, Form::Rfc850), "Sunday, 06-Nov-94 08:49:37 GMT");
        assert_eq!(format(784_111_777, Form::Asctime), "Sun Nov  6 08:49:37 1994");
        assert_eq!(format(951_782_400, Form::Imf), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(format(0, Form::Imf), "Thu, 01 Jan 1970 00:00:00 GMT");
    }
}
