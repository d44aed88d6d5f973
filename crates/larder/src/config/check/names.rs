//! Names: of tables in the configuration, of header fields, and of hosts.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::str::FromStr;

use http::HeaderName;

use crate::config::locate::Place;
use crate::config::tree::Node;

/// Checks that a name is safe in metrics, logs and keys.
pub(super) fn name(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    match text.bytes().all(allowed) && text.len() <= NAME_BYTES_MAX {
        true => Ok(text.to_owned()),
        false => Err(format!("expected up to {NAME_BYTES_MAX} letters, digits, `-`, `.` or `_`")),
    }
}

pub(super) fn field_name(text: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(text.as_bytes()).map_err(|_| "not a header field name".to_owned())
}

/// Returns the repeated names, each with the place of the first.
pub(super) fn doubled(names: Vec<&Node>) -> Vec<(&Node, &Place)> {
    let mut seen: HashMap<&str, &Place> = HashMap::new();
    let with_first = names.into_iter().map(|node| (node, *seen.entry(node.as_text()).or_insert(&node.place)));
    with_first.filter(|(node, first)| node.place != **first).collect()
}

/// Parses a host name or address without a port, and returns it in lower case.
pub(in crate::config) fn host_name(text: &str) -> Result<String, String> {
    let host = text.to_ascii_lowercase();
    let is_v6 = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(address) = is_v6 {
        return address
            .parse::<std::net::Ipv6Addr>()
            .map(|_| host.clone())
            .map_err(|_| "not an IPv6 address".to_owned());
    }
    if host.contains("://") {
        return Err("expected a host name alone, without a scheme such as `http://`".to_owned());
    }
    if host.contains(':') {
        return Err("expected a host name without a port, with an IPv6 address in brackets".to_owned());
    }
    let label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.len() <= 63 && label.bytes().all(allowed)
    };
    // The resolver would take `1.2.3` for an abbreviated address.
    if host.rsplit('.').next().is_some_and(is_numeric) && host.parse::<Ipv4Addr>().is_err() {
        return Err("not an IPv4 address, and no host name ends in a number".to_owned());
    }
    match host.len() <= 253 && host.split('.').all(label) {
        true => Ok(host),
        false if !host.is_ascii() => Err("expected a host name in ASCII (`xn--...` for others)".to_owned()),
        false => {
            Err("expected a host name, such as `example.org`: labels of 1 to 63 letters, digits, `-` and `_`, with `.` between them, 253 characters at most".to_owned())
        }
    }
}

/// Parses a host and an optional port. Returns the host in lower case and without brackets.
pub(super) fn host_and_port(text: &str) -> Result<(String, Option<u16>), String> {
    let colon = text.rfind(':').filter(|colon| !text[*colon..].contains(']'));
    let (host, port) = match colon {
        None => (text, None),
        Some(colon) => (&text[..colon], Some(port(&text[colon + 1..])?)),
    };
    let host = host_name(host)?;
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    Ok((address.unwrap_or(&host).to_owned(), port))
}

fn port(text: &str) -> Result<u16, String> {
    let port = number::<u16>(text).filter(|port| *port > 0);
    port.ok_or_else(|| "the port must be a whole number from 1 to 65535".to_owned())
}

/// Parses a number of digits only: `parse` accepts a sign as well.
pub(in crate::config) fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns whether the resolver would read the last label of a name, and so the whole name, as an
/// address.
fn is_numeric(label: &str) -> bool {
    let digits = label.strip_prefix("0x").unwrap_or(label);
    let is_digit = |byte: u8| if digits == label { byte.is_ascii_digit() } else { byte.is_ascii_hexdigit() };
    !label.is_empty() && digits.bytes().all(is_digit)
}

/// Parses a host name, or `*.` and a host name.
pub(super) fn host_pattern(text: &str) -> Result<String, String> {
    match text.strip_prefix("*.") {
        Some(rest) => host_name(rest).map(|host| format!("*.{host}")),
        None if text == "*" => Err("for every host, leave out `hosts`".to_owned()),
        None if text.contains('*') => {
            Err("`*` is only allowed as the whole first label: `*.example.org`".to_owned())
        }
        None => host_name(text),
    }
}

const NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_patterns() {
        #[track_caller]
        fn check(text: &str, host: Option<&str>) {
            assert_eq!(host_pattern(text).ok().as_deref(), host, "{text}");
        }
        check("Example.ORG", Some("example.org"));
        check("*.example.org", Some("*.example.org"));
        check("[::1]", Some("[::1]"));
        check("127.0.0.1", Some("127.0.0.1"));
        check("localhost", Some("localhost"));
        assert!(host_pattern("http://a").is_err_and(|message| message.contains("without a scheme")));
        for wrong in [
            "example.org:80",
            "*",
            "a*.org",
            "*.*.org",
            "::1",
            "[x]",
            "a..b",
            "a b",
            "é.org",
            "http://a",
            "1.2.3",
            "",
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn hosts_with_ports() {
        #[track_caller]
        fn check(text: &str, expected: Result<(&str, Option<u16>), &str>) {
            match (host_and_port(text), expected) {
                (Ok((host, port)), Ok(expected)) => assert_eq!((&*host, port), expected, "{text}"),
                (Err(error), Err(message)) => assert!(error.contains(message), "{text}: {error}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
        check("Cache-1.internal:6379", Ok(("cache-1.internal", Some(6379))));
        check("10.0.0.1", Ok(("10.0.0.1", None)));
        check("[::1]:1", Ok(("::1", Some(1))));
        check("[::1]", Ok(("::1", None)));
        for wrong in ["c:+80", "c:0", "c:65536", "c:", "c:x", "[::1]:"] {
            check(wrong, Err("port"));
        }
        check("[zz]:80", Err("IPv6"));
        check("::1:80", Err("brackets"));
        check("10.0.0:80", Err("IPv4"));
        check("0x7f000001:80", Err("IPv4"));
        check("0x:80", Err("IPv4"));
        check("0xg:80", Ok(("0xg", Some(80))));
        for wrong in ["a b:1", ":1", "a..b:1", "%zz:1", ".:1", "[::1:80"] {
            check(wrong, Err("host name"));
        }
        check("cä:1", Err("ASCII"));
    }
}
