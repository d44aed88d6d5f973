//! The validity of certificates.

use std::time::{Duration, SystemTime};

/// The period in which a certificate is valid (RFC 5280 section 4.1.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) begin: SystemTime,
    pub(crate) end: SystemTime,
}

/// The state of a certificate at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Valid,
    /// Not valid yet.
    Early,
    Expired,
}

impl Validity {
    /// Reads the validity of a certificate in DER (RFC 5280 section 4.1): the fifth element of the signed part, whose
    /// first element, the version, may be absent. Returns `None` if the dates can't be read or don't exist.
    pub(crate) fn of(certificate: &[u8]) -> Option<Self> {
        let whole = element(certificate)?;
        let mut rest = element(whole.content)?.content;
        if element(rest)?.tag == VERSION {
            rest = element(rest)?.rest;
        }
        for _serial_signature_issuer in 0..3 {
            rest = element(rest)?.rest;
        }
        let not_before = element(element(rest)?.content)?;
        let not_after = element(not_before.rest)?;
        Some(Self { begin: date(&not_before)?, end: date(&not_after)? })
    }

    pub(crate) fn at(&self, now: SystemTime) -> Standing {
        if now < self.begin {
            Standing::Early
        } else if now > self.end {
            Standing::Expired
        } else {
            Standing::Valid
        }
    }
}

fn date(element: &Element<'_>) -> Option<SystemTime> {
    let text = std::str::from_utf8(element.content).ok()?;
    match element.tag {
        UTC_TIME if text >= "5" => time(&format!("19{text}")),
        UTC_TIME => time(&format!("20{text}")),
        GENERALIZED_TIME => time(text),
        _ => None,
    }
}

struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    rest: &'a [u8],
}

/// Reads the first element in `bytes`.
fn element(bytes: &[u8]) -> Option<Element<'_>> {
    let (&[tag, length], rest) = bytes.split_first_chunk()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some(Element { tag, content, rest })
}

/// Parses `YYYYMMDDHHMMSSZ`. Returns 1970 for earlier years, and `None` for a date that doesn't exist, which could
/// not be formatted.
fn time(text: &str) -> Option<SystemTime> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.len() == 14)?;
    let digits = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let number = |from: usize, to: usize| digits[from..to].parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(8, 10)?, number(10, 12)?, number(12, 14)?);
    let is_time = (1..=days_in(year, month)?).contains(&day) && hour < 24 && minute < 60 && second < 60;
    // Years that begin in March have their leap day at the end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = (year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day)
        .saturating_sub(DAYS_BEFORE_1970);
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    is_time.then_some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// Returns the number of days in a month, or `None` if there is no such month.
fn days_in(year: u64, month: u64) -> Option<u64> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => Some(if is_leap { 29 } else { 28 }),
        4 | 6 | 9 | 11 => Some(30),
        1..=12 => Some(31),
        _ => None,
    }
}

const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// Days before 1970, counted from the first of March of year 0, which is day one.
const DAYS_BEFORE_1970: u64 = 719_469;

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    /// Returns a certificate that is valid from the first of January of a year until a given day.
    pub(crate) fn between(from: i32, (year, month, day): (i32, u8, u8)) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["shop.example".to_owned()]).expect("a name");
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(year, month, day);
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().to_vec()
    }

    pub(crate) fn until(year: i32, month: u8, day: u8) -> Vec<u8> {
        between(2001, (year, month, day))
    }

    pub(crate) fn at(text: &str) -> SystemTime {
        httpdate::parse_http_date(text).expect(text)
    }

    #[test]
    fn the_end_is_read_in_both_forms() {
        let check = |certificate: &[u8], expected: &str| {
            assert_eq!(Validity::of(certificate).map(|dates| dates.end), Some(at(expected)), "{expected}");
        };
        check(&until(2026, 11, 24), "Tue, 24 Nov 2026 00:00:00 GMT");
        check(&until(2028, 2, 29), "Tue, 29 Feb 2028 00:00:00 GMT");
        check(&until(2049, 12, 31), "Fri, 31 Dec 2049 00:00:00 GMT");
        check(&until(2050, 1, 1), "Sat, 01 Jan 2050 00:00:00 GMT");
        check(&until(4096, 3, 1), "Thu, 01 Mar 4096 00:00:00 GMT");
        let whole = until(2026, 11, 24);
        (0..whole.len().min(120)).for_each(|len| assert_eq!(Validity::of(&whole[..len]), None, "{len}"));
    }

    #[test]
    fn what_no_calendar_has_is_no_time() {
        let last = "99991231235959Z";
        assert_eq!(time(last), Some(at("Fri, 31 Dec 9999 23:59:59 GMT")));
        assert_eq!(time("19000301000000Z"), Some(SystemTime::UNIX_EPOCH));
        for text in [
            "99999999999999Z",
            "99991231235960Z",
            "99991231236000Z",
            "99991231240000Z",
            "20270229000000Z",
            "21000229000000Z",
            "20270431000000Z",
            "20271301000000Z",
            "20270001000000Z",
            "20270100000000Z",
            "2027010100000Z",
            "+0270101000000Z",
            "202701010000\u{e9}Z",
            "20270101000000",
        ] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn a_certificate_is_valid_from_its_begin_to_its_end() {
        let second = |number| SystemTime::UNIX_EPOCH + Duration::from_secs(number);
        let validity = Validity { begin: second(10), end: second(20) };
        for (now, expected) in
            [(9, Standing::Early), (10, Standing::Valid), (20, Standing::Valid), (21, Standing::Expired)]
        {
            assert_eq!(validity.at(second(now)), expected, "{now}");
        }
    }
}
