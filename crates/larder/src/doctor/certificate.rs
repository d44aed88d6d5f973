//! Checks the expiry of certificates.

use std::time::{Duration, SystemTime};

use gateway::config::Config;

use super::checks::{Advice, Finding};
use crate::certificate::Validity;

/// Checks the certificates of the listeners.
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

/// Returns `None` if the expiry date can't be read.
pub(super) fn expiry(setting: String, certificate: &[u8], now: SystemTime, renewed: &str) -> Option<Finding> {
    let Validity { begin, end } = Validity::of(certificate)?;
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

/// Certificate authorities with automatic renewal renew earlier than this.
const LEFT_MIN: Duration = Duration::from_secs(14 * 86_400);
const OWN: &str = "a renewed certificate in its file, then run `larder reload`";
const VALID: &str = "a certificate that is valid now, or the clock of this machine";
const REFUSED_EARLY: &str = "clients refuse a certificate that is not valid yet";
const REFUSED: &str = "clients refuse an expired certificate";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::tests::{at, between, until};

    #[test]
    fn an_end_that_is_near_is_told() {
        let now = at("Tue, 24 Nov 2026 12:00:00 GMT");
        let line =
            |certificate: &[u8]| expiry("x".to_owned(), certificate, now, OWN).expect("a date").to_string();
        assert_eq!(line(&until(2026, 12, 9)), "good  x = valid until Wed, 09 Dec 2026 00:00:00 GMT");
        let near = "SET   x = valid until Tue, 08 Dec 2026 00:00:00 GMT: set a renewed certificate in its file, then run `larder reload`; clients refuse an expired certificate";
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
