//! How an origin may read a path that can be spelled in several ways.
//!
//! Sites and rules are chosen by the path as it is written, and origins decode it before they choose: nginx, and most others, take
//! `/images/..%2faccount` for `/account`. Whoever respells a path must not get other rules for it, nor around an access list.

/// The path as most origins read it, with the query as it is written. None where that is how it is written.
///
/// Characters that need no encoding, slashes and backslashes are decoded (RFC 3986 section 6.2.2), empty segments and those of dots are removed, with what follows a
/// semicolon in the latter, which servlet containers leave out first. Everything else stays encoded.
pub(super) fn other_reading(path_and_query: &str) -> Option<String> {
    let path_bytes = memchr::memchr(b'?', path_and_query.as_bytes()).unwrap_or(path_and_query.len());
    let (path, query) = path_and_query.split_at(path_bytes);
    if !may_be_read_otherwise(path.as_bytes()) {
        return None;
    }
    let read = without_dots(&decoded(path));
    (read != path).then_some(read + query)
}

/// Most paths are plain, and cost one pass.
fn may_be_read_otherwise(path: &[u8]) -> bool {
    let is_odd = |pair: &[u8]| pair[0] == b'/' && matches!(pair[1], b'/' | b'.');
    memchr::memchr2(b'%', b'\\', path).is_some() || path.windows(2).any(is_odd)
}

fn decoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(character) = rest.chars().next() {
        let encoded = rest.get(1..3).filter(|_| character == '%').and_then(plain);
        rest = &rest[if encoded.is_some() { 3 } else { character.len_utf8() }..];
        out.push(match encoded.unwrap_or(character) {
            '\\' => '/',
            character => character,
        });
    }
    out
}

/// What two hexadecimal digits stand for, if it means the same decoded or separates segments.
fn plain(digits: &str) -> Option<char> {
    // A sign would be taken for a part of the number.
    let byte = u8::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?;
    (byte.is_ascii_alphanumeric() || b"-._~/\\".contains(&byte)).then_some(char::from(byte))
}

fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_open = false;
    for segment in path.split('/') {
        let name = segment.split(';').next().unwrap_or_default();
        ends_open = matches!(name, "." | "..") || segment.is_empty();
        match name {
            ".." => drop(kept.pop()),
            "." => {}
            _ if segment.is_empty() => {}
            _ => kept.push(segment),
        }
    }
    let end = if ends_open && !kept.is_empty() { "/" } else { "" };
    format!("/{}{end}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn respelled_paths_are_read_as_origins_read_them() {
        for (path, expected) in [
            ("/", None),
            ("/a/b.jpg?x=%2f", None),
            ("/caf%C3%A9/%20", None),
            ("/.well-known/x", None),
            ("/a/...", None),
            ("*", None),
            ("/images/..%2faccount", Some("/account")),
            ("/images/%2e%2E/account?q=//", Some("/account?q=//")),
            ("/images/../account", Some("/account")),
            ("/images/..;x=1/account", Some("/account")),
            ("/images/..%5caccount", Some("/account")),
            ("/images\\account", Some("/images/account")),
            ("//account", Some("/account")),
            ("/%61ccount", Some("/account")),
            ("/./a//b/.", Some("/a/b/")),
            ("/../..", Some("/")),
            ("/%2e", Some("/")),
            ("/a%", None),
            ("/a%2", None),
            ("/a%+f", None),
            ("/a%2g", None),
            ("/%é", None),
        ] {
            assert_eq!(other_reading(path).as_deref(), expected, "{path}");
        }
    }

    proptest! {
        #[test]
        fn what_was_read_is_read_no_other_way(path in "/([a./%;\\\\?é]|%2[ef]|%5c|%61){0,12}") {
            if let Some(read) = other_reading(&path) {
                let bytes = read.find('?').unwrap_or(read.len());
                prop_assert!(read.starts_with('/') && !read[..bytes].contains("//"), "{path} is read as {read}");
            }
        }
    }
}
