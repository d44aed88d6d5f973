//! URLs that operators write, and equivalent URLs that clients may have requested.

use caching::{authority, target};
use message::head::Scheme;

use crate::config::Config;
use crate::routing::host_of;

/// Returns the schemes and authorities that clients have probably used for a URL: each scheme, with the port of the URL, without a
/// port, and with the port of each listener. If a proxy is in front, an operator inside the network may know neither the scheme nor
/// the port that clients use. Entries under these keys are counted and purged immediately. Entries for other ports are found by the
/// name of their key, which has no port. The first result is that of the URL itself.
pub(crate) fn asked_as(scheme: Scheme, authority: &str, config: &Config) -> Vec<(Scheme, String)> {
    let ports = config.listeners.iter().map(|listener| listener.address.port());
    // Default ports are left out.
    similar(scheme, authority, ports.filter(|port| ![0, 80, 443].contains(port)))
}

fn similar(scheme: Scheme, authority: &str, ports: impl Iterator<Item = u16>) -> Vec<(Scheme, String)> {
    let host = host_of(authority);
    let mut authorities = vec![authority.to_owned(), host.to_owned()];
    authorities.extend(ports.map(|port| format!("{host}:{port}")));
    let other = if scheme == Scheme::Http { Scheme::Https } else { Scheme::Http };
    let mut found = Vec::new();
    for scheme in [scheme, other] {
        for authority in &authorities {
            let asked = (scheme, authority::normalised(scheme.as_str(), authority));
            if !found.contains(&asked) {
                found.push(asked);
            }
        }
    }
    found
}

/// Splits a URL into scheme, authority, and path with query in normal form. If the URL has no path, the path is `/`, as in a request
/// for the URL.
pub(super) fn split_url(url: &str) -> Option<(Scheme, &str, String)> {
    let (scheme, rest) = match url.split_once("://")? {
        (scheme, rest) if scheme.eq_ignore_ascii_case("http") => (Scheme::Http, rest),
        (scheme, rest) if scheme.eq_ignore_ascii_case("https") => (Scheme::Https, rest),
        _ => return None,
    };
    if rest.contains('#') || rest.bytes().any(|byte| byte.is_ascii_control() || byte == b' ') {
        return None;
    }
    let path_start = rest.find('/').unwrap_or(rest.len());
    let (authority, path_and_query) = rest.split_at(path_start);
    let has_host = http1::Authority::parse(authority.as_bytes()).is_some() && !host_of(authority).is_empty();
    let path_and_query = if path_and_query.is_empty() { "/" } else { path_and_query };
    has_host.then(|| (scheme, authority, target::normal_form_of_text(path_and_query)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_ask_by_either_scheme_and_several_ports() {
        let check = |scheme: Scheme, authority: &str, expected: &[&str]| {
            let found = similar(scheme, authority, [8080].into_iter());
            let found: Vec<_> = found
                .iter()
                .map(|(scheme, authority)| format!("{}://{authority}", scheme.as_str()))
                .collect();
            assert_eq!(found, expected, "{authority}");
        };
        check(
            Scheme::Http,
            "A:80",
            &["http://a", "http://a:8080", "https://a:80", "https://a", "https://a:8080"],
        );
        check(Scheme::Https, "a", &["https://a", "https://a:8080", "http://a", "http://a:8080"]);
        check(Scheme::Http, "a:8080", &["http://a:8080", "http://a", "https://a:8080", "https://a"]);
        check(
            Scheme::Http,
            "[::1]",
            &["http://[::1]", "http://[::1]:8080", "https://[::1]", "https://[::1]:8080"],
        );
    }

    #[test]
    fn urls_are_split_or_refused() {
        for (url, expected) in [
            ("http://a/b?c", Some((Scheme::Http, "a", "/b?c"))),
            ("http://a/%7eb?%d2", Some((Scheme::Http, "a", "/~b?%D2"))),
            ("HTTPS://a:8443", Some((Scheme::Https, "a:8443", "/"))),
            ("http://[::1]:80/x", Some((Scheme::Http, "[::1]:80", "/x"))),
            ("http:///x", None),
            ("http://a:/x", Some((Scheme::Http, "a:", "/x"))),
            ("http://[::1/", None),
            ("http://a:99999/x", None),
            ("http://a:8o/x", None),
            ("ftp://a/x", None),
            ("/x", None),
            ("http://user@a/x", None),
            ("http://a/x#y", None),
            ("http://a/x y", None),
        ] {
            let found = split_url(url);
            let expected = expected.map(|(scheme, authority, path)| (scheme, authority, path.to_owned()));
            assert_eq!(found, expected, "{url}");
        }
    }
}
