//! How an origin may read a path that can be spelled in several ways.
//!
//! Sites and rules are chosen by the path as it is written, and origins decode it before they choose: nginx, and most others, take
//! `/images/..%2faccount` for `/account`. Whoever respells a path must not get other rules for it, nor around an access list.

/// How else origins may read a path, with the query as it is written: most of them, and then those that leave out parameters of segments, as
/// servlet containers do. None where that is how it is written, or as most read it.
///
/// Visible characters are decoded, so are slashes and backslashes (nginx decodes all of them; RFC 3986 section 6.2.2), and empty segments and those of dots are
/// removed, with what follows a semicolon in the latter. Everything else stays encoded, in capital letters.
pub(super) fn other_readings(path_and_query: &str) -> [Option<String>; 2] {
    let path_bytes = memchr::memchr(b'?', path_and_query.as_bytes()).unwrap_or(path_and_query.len());
    let (path, query) = path_and_query.split_at(path_bytes);
    if !may_be_read_otherwise(path.as_bytes()) {
        return [None, None];
    }
    let decoded = decoded(path);
    let read = without_dots(&decoded, Parameters::Kept);
    let bare = decoded.contains(';').then(|| without_dots(&decoded, Parameters::Removed));
    let bare = bare.filter(|bare| *bare != read).map(|bare| bare + query);
    [(read != path).then_some(read + query), bare]
}

/// What becomes of what follows a semicolon.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parameters {
    Kept,
    Removed,
}

/// Most paths are plain, and cost one pass.
fn may_be_read_otherwise(path: &[u8]) -> bool {
    let is_odd = |pair: &[u8]| pair[0] == b'/' && matches!(pair[1], b'/' | b'.');
    memchr::memchr3(b'%', b'\\', b';', path).is_some() || path.windows(2).any(is_odd)
}

fn decoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(character) = rest.chars().next() {
        let digits = rest.get(1..3).filter(|_| character == '%');
        let Some((digits, byte)) = digits.and_then(|digits| Some((digits, byte(digits)?))) else {
            out.push(if character == '\\' { '/' } else { character });
            rest = &rest[character.len_utf8()..];
            continue;
        };
        match byte {
            b'\\' => out.push('/'),
            // Decoded, these would begin something else.
            b'%' | b'?' | b'#' => push_encoded(&mut out, digits),
            _ if byte.is_ascii_graphic() => out.push(char::from(byte)),
            _ => push_encoded(&mut out, digits),
        }
        rest = &rest[3..];
    }
    out
}

fn push_encoded(out: &mut String, digits: &str) {
    out.push('%');
    out.push_str(&digits.to_ascii_uppercase());
}

/// What two hexadecimal digits stand for.
fn byte(digits: &str) -> Option<u8> {
    // A sign would be taken for a part of the number.
    u8::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))
}

fn without_dots(path: &str, parameters: Parameters) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_open = false;
    for segment in path.split('/') {
        let name = segment.split(';').next().unwrap_or_default();
        let segment = if parameters == Parameters::Removed { name } else { segment };
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
            ("/%40me/a%3Ab", Some("/@me/a:b")),
            ("/caf%c3%a9", Some("/caf%C3%A9")),
            ("/a%3fb%23%25", Some("/a%3Fb%23%25")),
            ("/./a//b/.", Some("/a/b/")),
            ("/../..", Some("/")),
            ("/%2e", Some("/")),
            ("/a%", None),
            ("/a%2", None),
            ("/a%+f", None),
            ("/a%2g", None),
            ("/%é", None),
        ] {
            assert_eq!(other_readings(path)[0].as_deref(), expected, "{path}");
        }
        for (path, read, bare) in [
            ("/login;x", None, Some("/login")),
            ("/;a/login?b;c", None, Some("/login?b;c")),
            ("/a;b/../login;x=1", Some("/login;x=1"), Some("/login")),
            ("/log%69n%3bx", Some("/login;x"), Some("/login")),
            ("/login/;x", None, Some("/login/")),
            ("/..;/login", Some("/login"), None),
            ("/;", None, Some("/")),
        ] {
            assert_eq!(other_readings(path), [read, bare].map(|path| path.map(str::to_owned)), "{path}");
        }
    }

    proptest! {
        #[test]
        fn what_was_read_is_read_no_other_way(path in "/([a./%;\\\\?é]|%2[ef]|%5c|%61){0,12}") {
            for read in other_readings(&path).into_iter().flatten() {
                let bytes = read.find('?').unwrap_or(read.len());
                prop_assert!(read.starts_with('/') && !read[..bytes].contains("//"), "{path} is read as {read}");
            }
        }
    }
}
