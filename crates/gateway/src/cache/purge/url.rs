//! URLs as operators write them.

use crate::message::head::Scheme;
use crate::route::host_of;

/// The same URL with either scheme, without port and with each of these.
pub(super) fn similar(url: &str, ports: impl Iterator<Item = u16>) -> Vec<String> {
    let Some((_, authority, path_and_query)) = split_url(url) else { return Vec::new() };
    let host = host_of(authority);
    let mut authorities = vec![authority.to_owned(), host.to_owned()];
    authorities.extend(ports.map(|port| format!("{host}:{port}")));
    let mut urls = Vec::new();
    for scheme in ["http", "https"] {
        let of_scheme = authorities.iter().map(|authority| format!("{scheme}://{authority}{path_and_query}"));
        for similar in of_scheme {
            if similar != url && !urls.contains(&similar) {
                urls.push(similar);
            }
        }
    }
    urls
}

/// Scheme, authority, path with query. No path means `/`, as in a request for it.
pub(super) fn split_url(url: &str) -> Option<(Scheme, &str, &str)> {
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
    has_host.then_some((scheme, authority, if path_and_query.is_empty() { "/" } else { path_and_query }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_urls_have_other_schemes_and_ports() {
        let ports = || [80, 8080].into_iter();
        let of_port_80 =
            ["http://a/x", "http://a:8080/x", "https://a:80/x", "https://a/x", "https://a:8080/x"];
        assert_eq!(similar("http://a:80/x", ports()), of_port_80);
        let without = ["http://[::1]:80/", "http://[::1]:8080/", "https://[::1]/", "https://[::1]:80/"];
        assert_eq!(similar("http://[::1]/", ports())[..4], without);
        assert_eq!(similar("nonsense", ports()), Vec::<String>::new());
    }

    #[test]
    fn urls_are_split_or_refused() {
        for (url, expected) in [
            ("http://a/b?c", Some((Scheme::Http, "a", "/b?c"))),
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
            assert_eq!(split_url(url), expected, "{url}");
        }
    }
}
