//! Access control: decisions on request heads, without IO.

use std::net::IpAddr;

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::{Method, Uri};

use crate::answer::Refusal;
use crate::secret::Secret;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The access rule of a listener.
#[derive(Debug)]
pub(crate) enum Guard {
    /// Routes that change nothing, open to every client that can reach the address.
    Open,
    /// A token is required.
    Token(Secret),
    /// Bound to loopback. Refuses only requests that browsers can be tricked into: requests that change anything, and
    /// requests of a page whose name was made to resolve to loopback (DNS rebinding).
    Loopback,
}

impl Guard {
    pub(crate) fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        match self {
            Self::Open => Ok(()),
            Self::Token(secret) => check_token(secret, headers),
            Self::Loopback if *method == Method::GET || *method == Method::HEAD => {
                // HTTP/1.0 requests may lack a host, and no browser sends them.
                if uri.authority().is_none() && !headers.contains_key(HOST) {
                    return Ok(());
                }
                check_host(uri, headers, |host| is_localhost(host) || address_in(host).is_some())
            }
            Self::Loopback => check_browser(uri, headers),
        }
    }
}

//= RFC 6750 section 2.1: the Authorization request header field
/// Checks the token. The scheme name is case-insensitive (RFC 9110 section 11.1).
//= RFC 9111 section 7: stored content is sensitive
fn check_token(secret: &Secret, headers: &HeaderMap) -> Result<(), Refusal> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return Err(Refusal::TokenMissing);
    };
    let bytes = field.as_bytes();
    let Some((scheme, token)) = bytes.split_at_checked(7) else {
        return Err(Refusal::TokenMissing);
    };
    if !scheme.eq_ignore_ascii_case(b"bearer ") {
        return Err(Refusal::TokenMissing);
    }
    if secret.matches(token.trim_ascii()) { Ok(()) } else { Err(Refusal::TokenWrong) }
}

/// Refuses requests of web pages. A page in a browser on this machine can send a POST here without asking (cross-site
/// request forgery), and with a name that resolves to loopback it even counts as same-origin (DNS rebinding). Tools
/// send neither Origin nor Sec-Fetch-Site, and name a loopback host.
fn check_browser(uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.contains_key(ORIGIN) || headers.contains_key(SEC_FETCH_SITE) {
        return Err(Refusal::BrowserRequest);
    }
    check_host(uri, headers, is_loopback)
}

/// Accepts a request with exactly one host, if that host is trusted.
fn check_host(uri: &Uri, headers: &HeaderMap, is_trusted: impl Fn(&str) -> bool) -> Result<(), Refusal> {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Refusal::HostNotLoopback);
    };
    let authority = uri.authority().map(|authority| authority.as_str().as_bytes());
    let named = [Some(host.as_bytes()), authority];
    let is_trusted = |host: &[u8]| std::str::from_utf8(host).is_ok_and(|host| is_trusted(without_port(host)));
    if named.into_iter().flatten().all(is_trusted) { Ok(()) } else { Err(Refusal::HostNotLoopback) }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

fn is_loopback(name: &str) -> bool {
    is_localhost(name) || address_in(name).is_some_and(|address| address.is_loopback())
}

fn is_localhost(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
}

/// Parses a host that is an IP address. An attacker can't make it resolve to this machine.
fn address_in(name: &str) -> Option<IpAddr> {
    match name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse().map(IpAddr::V6).ok(),
        None => name.parse().map(IpAddr::V4).ok(),
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn loopback_hosts() {
        let cases = [
            ("localhost", true),
            ("LOCALHOST:8081", true),
            ("127.0.0.1:8081", true),
            ("127.9.9.9", true),
            ("[::1]:8081", true),
            ("[::1]", true),
            ("::1", false),
            ("", false),
            (":8081", false),
            ("evil.example", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example:80", false),
            ("user@localhost", false),
            ("192.0.2.1", false),
            ("[127.0.0.1]", false),
            ("localhost:x", false),
        ];
        for (host, want) in cases {
            assert_eq!(is_loopback(without_port(host)), want, "{host}");
        }
    }

    #[test]
    fn names_of_others_read_nothing() {
        let cases = [
            ("localhost:8081", true),
            ("127.0.0.1:8081", true),
            ("192.0.2.1:8081", true),
            ("[2001:db8::1]", true),
            ("rebound.example:8081", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("1.2.3", false),
            ("", false),
        ];
        for (host, want) in cases {
            let mut headers = HeaderMap::new();
            headers.append(HOST, HeaderValue::from_static(host));
            let found = Guard::Loopback.check(&Method::GET, &Uri::from_static("/metrics"), &headers);
            assert_eq!(found.is_ok(), want, "{host}");
        }
    }

    fn token_check(fields: &[&'static str]) -> Result<(), Refusal> {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(AUTHORIZATION, HeaderValue::from_static(field));
        }
        let guard = Guard::Token(Secret::new("0123456789abcdef").expect("a token"));
        guard.check(&Method::GET, &Uri::from_static("/"), &headers)
    }

    //= RFC 6750 section 2.1: the Authorization request header field
    #[test]
    fn tokens() {
        assert!(token_check(&["Bearer 0123456789abcdef"]).is_ok());
        assert!(token_check(&["bEARER  0123456789abcdef"]).is_ok());
        assert!(matches!(token_check(&["Bearer 0123456789abcdeX"]), Err(Refusal::TokenWrong)));
        assert!(matches!(token_check(&["Bearer "]), Err(Refusal::TokenWrong)));
        for fields in [&[][..], &["Basic 0123456789abcdef"], &["0123456789abcdef"], &["Bear"]] {
            assert!(matches!(token_check(fields), Err(Refusal::TokenMissing)), "{fields:?}");
        }
        let twice = ["Bearer 0123456789abcdef", "Bearer 0123456789abcdef"];
        assert!(matches!(token_check(&twice), Err(Refusal::TokenMissing)));
    }
}
