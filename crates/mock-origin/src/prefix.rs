//! The path below which all resources stand.

use std::str::FromStr;

/// `/mocks`, or nothing. Never with a slash at its end, so that a path of a resource can follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prefix(String);

/// Why a text is no prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a path that begins with `/`, without spaces, `?` or `#`")]
pub(crate) struct NoPath;

impl FromStr for Prefix {
    type Err = NoPath;

    fn from_str(text: &str) -> Result<Self, NoPath> {
        let of_path = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
        if !text.starts_with('/') || !text.bytes().all(of_path) {
            return Err(NoPath);
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

impl Prefix {
    /// What follows the prefix: the path of a resource, or nothing for the prefix itself. `None` outside of it.
    pub(crate) fn strip<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(&self.0).filter(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// What stands before the path of a resource in a link.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_segments_are_a_prefix() {
        let cases = [
            ("/", "/items/1", Some("/items/1")),
            ("/mocks", "/mocks/items/1", Some("/items/1")),
            ("/mocks/", "/mocks/items/1", Some("/items/1")),
            ("/a/b", "/a/b/items/1", Some("/items/1")),
            ("/mocks", "/mocks/", Some("/")),
            ("/mocks", "/mocks", Some("")),
            ("/mocks", "/mocks/mocks/items/1", Some("/mocks/items/1")),
            ("/mocks", "/mocksitems/1", None),
            ("/mocks", "/items/1", None),
            ("/mocks", "*", None),
        ];
        for (prefix, path, expected) in cases {
            let prefix: Prefix = prefix.parse().unwrap();
            assert_eq!(prefix.strip(path), expected, "{prefix:?} {path}");
        }
    }

    #[test]
    fn what_is_no_path_is_no_prefix() {
        for text in ["", "mocks", "/mo cks", "/mocks?a", "/mocks#a", "/m\u{e9}"] {
            assert_eq!(text.parse::<Prefix>(), Err(NoPath), "{text:?}");
        }
    }
}
