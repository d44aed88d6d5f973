//! When certificates are valid.

use std::time::{Duration, SystemTime};

use gateway::config::Config;

use super::checks::{Advice, Finding};

/// Those of the listeners.
pub(super) fn findings(config: &Config, now: SystemTime) -> Vec<Finding> {
    let listeners = config.listeners.iter().filter_map(|listener| Some((listener, listener.tls.as_ref()?)));
    let certificates = listeners.flat_map(|(listener, tls)| {
        tls.certificates.iter().map(|certificate| (listener.address, certificate))
    });
    let finding = |(address, certificate): (std::net::SocketAddr, &gateway::config::Certificate)| {
        let setting = format!("certificate of {address} ({})", certificate.names.join(", "));
        expiry(setting, certificate.key.cert.first()?, now, OWN)
    };
    certificates.filter_map(finding).collect()
}

/// None where the end can't be read.
pub(super) fn expiry(setting: String, certificate: &[u8], now: SystemTime, renewed: &str) -> Option<Finding> {
    let [begin, end] = validity(certificate)?;
    if begin > now {
        let found = format!("not valid before {}", httpdate::fmt_http_date(begin));
        let advice = Some(Advice { set: VALID.to_owned(), why: REFUSED_EARLY });
        return Some(Finding { setting: setting.into(), found, advice });
    }
    let date = httpdate::fmt_http_date(end);
    let left = end.duration_since(now).unwrap_or_default();
    let found = match left.as_secs() {
        0 => format!("expired on {date}"),
        _ => format!("valid until {date}"),
    };
    let advice = Advice { set: renewed.to_owned(), why: REFUSED };
    Some(Finding { setting: setting.into(), found, advice: (left < LEFT_MIN).then_some(advice) })
}

/// `notBefore` and `notAfter` of a certificate in DER (RFC 5280 section 4.1): the dates of the fifth part of what is signed, where the first
/// part is the version, which may be absent.
fn validity(certificate: &[u8]) -> Option<[SystemTime; 2]> {
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
    Some([date(&not_before)?, date(&not_after)?])
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

/// The first of the elements in `bytes`.
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

/// Of `YYYYMMDDHHMMSSZ`. What is before 1970 counts as 1970.
fn time(text: &str) -> Option<SystemTime> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.len() == 14)?;
    let number = |from: usize, to: usize| digits.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    // Years that begin in March have their leap day at the end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = (year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day)
        .saturating_sub(DAYS_BEFORE_1970);
    let seconds = days * 86_400 + number(8, 10)? * 3_600 + number(10, 12)? * 60 + number(12, 14)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// From the first of March of year 0, counted from one.
const DAYS_BEFORE_1970: u64 = 719_469;
/// Authorities that renew by themselves do so earlier.
const LEFT_MIN: Duration = Duration::from_secs(14 * 86_400);
const OWN: &str = "a renewed certificate, then run `larder reload`";
const VALID: &str = "a certificate that is valid now, or the clock of this machine";
const REFUSED_EARLY: &str = "clients refuse a certificate that is not valid yet";
const REFUSED: &str = "clients refuse an expired certificate";

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn until(year: i32, month: u8, day: u8) -> Vec<u8> {
        between(2001, (year, month, day))
    }

    fn between(from: i32, (year, month, day): (i32, u8, u8)) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["shop.example".to_owned()]).expect("a name");
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(year, month, day);
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().to_vec()
    }

    fn at(text: &str) -> SystemTime {
        httpdate::parse_http_date(text).expect(text)
    }

    #[test]
    fn the_end_is_read_in_both_forms() {
        let check = |certificate: &[u8], expected: &str| {
            assert_eq!(validity(certificate).map(|dates| dates[1]), Some(at(expected)), "{expected}");
        };
        check(&until(2026, 11, 24), "Tue, 24 Nov 2026 00:00:00 GMT");
        check(&until(2028, 2, 29), "Tue, 29 Feb 2028 00:00:00 GMT");
        check(&until(2049, 12, 31), "Fri, 31 Dec 2049 00:00:00 GMT");
        check(&until(2050, 1, 1), "Sat, 01 Jan 2050 00:00:00 GMT");
        check(&until(4096, 3, 1), "Thu, 01 Mar 4096 00:00:00 GMT");
        let whole = until(2026, 11, 24);
        (0..whole.len().min(120)).for_each(|len| assert_eq!(validity(&whole[..len]), None, "{len}"));
    }

    #[test]
    fn an_end_that_is_near_is_told() {
        let now = at("Tue, 24 Nov 2026 12:00:00 GMT");
        let line =
            |certificate: &[u8]| expiry("x".to_owned(), certificate, now, OWN).expect("a date").to_string();
        assert_eq!(line(&until(2026, 12, 9)), "good  x = valid until Wed, 09 Dec 2026 00:00:00 GMT");
        let near = "SET   x = valid until Tue, 08 Dec 2026 00:00:00 GMT: set a renewed certificate, then run `larder reload`; clients refuse an expired certificate";
        assert_eq!(line(&until(2026, 12, 8)), near);
        assert!(
            line(&between(2027, (2028, 1, 1)))
                .starts_with("SET   x = not valid before Fri, 01 Jan 2027 00:00:00 GMT")
        );
        assert_eq!(
            line(&between(1950, (2026, 12, 9))),
            "good  x = valid until Wed, 09 Dec 2026 00:00:00 GMT"
        );
        assert!(line(&until(2026, 11, 24)).starts_with("SET   x = expired on Tue, 24 Nov 2026"));
    }
}
