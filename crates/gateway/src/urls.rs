//! Parts of authorities, paths and addresses.

use std::net::IpAddr;

/// Returns the host of an authority, without port; brackets of IPv6 literals are kept.
pub(crate) fn host_of(authority: &str) -> &str {
    if authority.starts_with('[') {
        return authority.find(']').map_or(authority, |end| &authority[..=end]);
    }
    // Search from the end: few names end in digits, and the search stops at the first other character.
    let before_digits = authority.bytes().rposition(|byte| !byte.is_ascii_digit());
    let host = match before_digits {
        Some(at) if authority.as_bytes()[at] == b':' => &authority[..at],
        _ => authority,
    };
    // A trailing dot marks a fully qualified name; origins treat both forms as the same.
    if host.ends_with('.') { host.trim_end_matches('.') } else { host }
}

/// Returns `path_and_query` without the site's prefix, which matches in any case; always starts with `/`.
pub(crate) fn strip_prefix(path_and_query: &str, prefix: &str) -> String {
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    match starts_with_any_case(path_and_query, prefix).then(|| &path_and_query[prefix.len()..]) {
        Some(rest) if rest.starts_with('/') => rest.to_owned(),
        Some(rest) => format!("/{rest}"),
        None => path_and_query.to_owned(),
    }
}

/// Returns whether a path starts with a text, in any ASCII case.
pub(crate) fn starts_with_any_case(path: &str, text: &str) -> bool {
    path.as_bytes().get(..text.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(text.as_bytes()))
}

/// Removes the query.
pub(crate) fn path_of(path_and_query: &str) -> &str {
    path_and_query.split_once('?').map_or(path_and_query, |(path, _)| path)
}

/// Returns an address as text. The numbers of IPv4 addresses are written one by one: the standard formatting costs more than all other
/// fields together.
pub(crate) fn address_text(address: IpAddr) -> String {
    let IpAddr::V4(address) = address else { return address.to_string() };
    let mut text = String::with_capacity(15);
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            text.push('.');
        }
        text.push_str(itoa::Buffer::new().format(octet));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripped_paths_start_with_a_slash() {
        for (path, prefix, expected) in [
            ("/shop/x?y=/shop", "/shop", "/x?y=/shop"),
            ("/shop", "/shop", "/"),
            ("/shop?q", "/shop/", "/?q"),
            ("/SHOP/x", "/shop", "/x"),
            ("/shöp", "/shop", "/shöp"),
            ("/x", "/", "/x"),
        ] {
            assert_eq!(strip_prefix(path, prefix), expected);
        }
    }

    #[test]
    fn hosts_lose_their_port() {
        for (authority, host) in [
            ("a:80", "a"),
            ("a", "a"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("a.:80", "a"),
            ("a.", "a"),
        ] {
            assert_eq!(host_of(authority), host);
        }
    }
}
