//! Names: of parts of the configuration, of header fields, and of hosts.

use std::collections::HashMap;

use http::HeaderName;

use crate::config::locate::Place;
use crate::config::tree::Node;

/// A name that is safe in metrics, logs and keys.
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

/// The names that stand twice, each with the place of the first one.
pub(super) fn doubled(names: Vec<&Node>) -> Vec<(&Node, &Place)> {
    let mut seen: HashMap<&str, &Place> = HashMap::new();
    let with_first = names.into_iter().map(|node| (node, *seen.entry(node.as_text()).or_insert(&node.place)));
    with_first.filter(|(node, first)| node.place != **first).collect()
}

/// A host name or address without a port, in lower case.
pub(super) fn host_name(text: &str) -> Result<String, String> {
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
    match host.len() <= 253 && host.split('.').all(label) {
        true => Ok(host),
        false if !host.is_ascii() => Err("expected a host name in ASCII (`xn--...` for others)".to_owned()),
        false => {
            Err("expected a host name of letters, digits, `-`, `_` and `.`, such as `example.org`".to_owned())
        }
    }
}

/// A host name, or `*.` and a host name.
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
        for wrong in
            ["example.org:80", "*", "a*.org", "*.*.org", "::1", "[x]", "a..b", "a b", "é.org", "http://a"]
        {
            check(wrong, None);
        }
    }
}
