//! Replacement of the start of URLs and paths.

use http1::is_field_value;
use message::fields::PackedFields;
use option_table::Kind::{List, Table, Text};
use option_table::{Kind, section};

section! {
    /// Replacement of the start of a value.
    PREFIX_CHANGE = "site.transform.prefix";
    /// The start to look for.
    from = Text("text, not empty").required(),
    /// The text that replaces it.
    to = Text("text").required(),
}

/// A list of replacements.
pub(super) const PREFIX_CHANGES: Kind = List(&Table(&PREFIX_CHANGE));

/// Replacement of the start of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixChange {
    pub(super) from: String,
    pub(super) to: String,
}

impl PrefixChange {
    /// Creates a change from one start to another; [`Self::beginning`] and [`Self::replacement`] must have checked them.
    pub fn new(from: String, to: String) -> Self {
        Self { from, to }
    }

    /// Checks the start to look for.
    ///
    /// # Errors
    /// A message with the problem; also below.
    pub fn beginning(text: &str) -> Result<String, String> {
        match text {
            "" => Err("expected the beginning of a value".to_owned()),
            text => Self::replacement(text),
        }
    }

    /// Checks the text that replaces it.
    pub fn replacement(text: &str) -> Result<String, String> {
        match text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(text.to_owned()),
            false => Err("expected visible ASCII".to_owned()),
        }
    }
}

/// Replaces each value for which `change` returns a new one.
pub(super) fn change_values(
    name: &str,
    fields: &mut PackedFields,
    change: impl Fn(&[u8]) -> Option<Vec<u8>>,
) {
    if !fields.values(name).any(|value| change(value).is_some()) {
        return;
    }
    let mut changed = PackedFields::with_capacity(fields.len());
    for (other, value) in fields.lines() {
        match change(value).filter(|value| other.eq_ignore_ascii_case(name) && is_field_value(value)) {
            Some(value) => changed.push(other, &value),
            None => changed.push(other, value),
        }
    }
    *fields = changed;
}

/// Returns the value with a new start, from the first matching change. Returns `None` if the rest of the value would then name a
/// server.
pub(super) fn changed_prefix(changes: &[PrefixChange], value: &[u8]) -> Option<Vec<u8>> {
    let (change, rest) =
        changes.iter().find_map(|change| Some((change, behind(value, change.from.as_bytes())?)))?;
    let to = change.to.as_bytes();
    let begin = to.strip_suffix(b"/").filter(|_| rest.starts_with(b"/")).unwrap_or(to);
    let changed = [begin, rest].concat();
    (names_server(to) || !names_server(&changed)).then_some(changed)
}

/// Returns the text after the start of a URL or path, including the slash if the start ends with one. The start must end at a component
/// boundary, so that it doesn't match a different host or a longer name; scheme and host are case-insensitive (RFC 3986 section
/// 6.2.2.1).
fn behind<'a>(value: &'a [u8], from: &[u8]) -> Option<&'a [u8]> {
    let (begin, rest) = value.split_at_checked(from.len())?;
    let caseless = authority_end(from);
    let is_same =
        begin[..caseless].eq_ignore_ascii_case(&from[..caseless]) && begin[caseless..] == from[caseless..];
    let is_whole = match from.last() {
        Some(b'/') => from != b"/" || !names_server(value),
        _ if memchr::memchr2(b'?', b'#', from).is_some() => true,
        _ => rest.first().is_none_or(|next| b"/?#".contains(next)),
    };
    let rest = if from.ends_with(b"/") { &value[from.len() - 1..] } else { rest };
    (is_same && is_whole).then_some(rest)
}

/// Returns whether a URL without a scheme names a server: `//host`. Browsers also take `\` for a slash, and skip tabs.
fn names_server(url: &[u8]) -> bool {
    let mut bytes = url.iter().filter(|byte| **byte != b'\t');
    let mut is_slash = || bytes.next().is_some_and(|byte| b"/\\".contains(byte));
    is_slash() && is_slash()
}

/// Returns the end of scheme and authority in a URL, or in its start.
fn authority_end(url: &[u8]) -> usize {
    let is_end = |byte: &u8| b"/?#".contains(byte);
    let scheme_end = url.iter().position(|byte| *byte == b':' || is_end(byte));
    let after_scheme = scheme_end.filter(|at| url[*at] == b':').map_or(0, |at| at + 1);
    match url[after_scheme..].strip_prefix(b"//") {
        Some(rest) => after_scheme + 2 + rest.iter().position(is_end).unwrap_or(rest.len()),
        None => after_scheme,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_change_at_whole_segments() {
        let check = |from: &str, to: &str, value: &str, expected: Option<&str>| {
            let change = PrefixChange { from: from.to_owned(), to: to.to_owned() };
            let found = changed_prefix(&[change], value.as_bytes());
            let found = found.map(|value| String::from_utf8(value).unwrap());
            assert_eq!(found.as_deref(), expected, "{from} to {to}: {value:?}");
        };
        for (value, expected) in [
            ("/app", Some("/")),
            ("/app/", Some("/")),
            ("/app/x", Some("/x")),
            ("/app?x", Some("/?x")),
            ("/app#x", Some("/#x")),
            ("/app/evil.example", Some("/evil.example")),
            ("/apple", None),
            ("/app//evil.example", None),
            ("/app/\\evil.example", None),
            ("/app/\t/evil.example", None),
            ("/x", None),
        ] {
            check("/app", "/", value, expected);
        }
        check("/app", "", "/app/x", Some("/x"));
        check("/app", "", "/app//x", None);
        check("/app/", "/base", "/app/x", Some("/base/x"));
        check("/app/", "/base/", "/app/x", Some("/base/x"));
        check("/app/", "/base/", "/app", None);
        check("/app", "/base/", "/app/x", Some("/base/x"));
        check("/app", "/base", "/app//x", Some("/base//x"));
        check("/", "/base/", "/x", Some("/base/x"));
        check("/", "/base", "/", Some("/base/"));
        for other in ["//evil.example", "/\\evil.example", "\\/evil.example", "/\t/evil.example"] {
            check("/", "/base/", other, None);
        }
        check("/", "//own.example/", "/x", Some("//own.example/x"));
        check("http://in.example", "", "http://in.example//evil.example", None);
        check("http://in.example", "https://a.example/", "HTTP://In.example/x", Some("https://a.example/x"));
        check("http://in.example/", "https://a.example", "http://in.example/x", Some("https://a.example/x"));
        check("http://in.example", "https://a.example", "http://in.example:80/", None);
        check("/a?b=", "/c?b=", "/a?b=1", Some("/c?b=1"));
    }
}
