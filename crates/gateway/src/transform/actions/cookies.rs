//! `cookie_domain` and `cookie_paths`: change attributes of cookies that a response sets.

use message::fields::PackedFields;
use option_table::Kind::Text;
use option_table::row;

use crate::transform::prefix::{PREFIX_CHANGES, change_values, changed_prefix};
use crate::transform::{ActionKey, Change, Phases, PrefixChange};

row! {
    /// New `Domain` of cookies that a response sets, if they have one. Only for responses.
    DOMAIN("cookie_domain") = Text("host name, or `none` to remove the attribute").absent("as sent");
}

row! {
    /// Replacements for the start of the `Path` of cookies. Only for responses.
    PATHS("cookie_paths") = PREFIX_CHANGES.default("[]");
}

/// The keys.
pub const DOMAIN_KEY: ActionKey = ActionKey { option: DOMAIN, phases: Phases::OfResponses };
pub const PATHS_KEY: ActionKey = ActionKey { option: PATHS, phases: Phases::OfResponses };

/// Changes to cookies that a response sets.
#[derive(Clone, Debug)]
pub struct CookieChange {
    /// New `Domain` of cookies that have one; empty removes it.
    domain: Option<String>,
    /// Changes to the `Path` of cookies that have one.
    paths: Vec<PrefixChange>,
}

impl CookieChange {
    /// Creates the action from these changes, if there are any.
    pub fn new(domain: Option<String>, paths: Vec<PrefixChange>) -> Option<Self> {
        (domain.is_some() || !paths.is_empty()).then_some(Self { domain, paths })
    }

    /// Checks the new start of a path.
    ///
    /// # Errors
    /// A message with the problem.
    pub fn check_path(text: &str) -> Result<(), String> {
        match text.contains(';') {
            true => Err("`;` would begin another attribute of the cookie".to_owned()),
            false => Ok(()),
        }
    }

    pub(super) fn edit(&self, fields: &mut PackedFields) {
        change_values("set-cookie", fields, |value| changed_cookie(self, value));
    }

    pub(super) fn described(&self) -> Change {
        ("rewrite", "set-cookie".to_owned())
    }
}

/// Returns `Set-Cookie` with changed attributes (RFC 6265 section 4.1.1). Missing attributes aren't added.
fn changed_cookie(change: &CookieChange, value: &[u8]) -> Option<Vec<u8>> {
    let mut parts = value.split(|byte| *byte == b';');
    let mut changed = parts.next()?.to_vec();
    for part in parts {
        let (name, old) = attribute(part);
        if let Some(domain) = &change.domain
            && name.eq_ignore_ascii_case(b"domain")
        {
            if !domain.is_empty() {
                changed.extend_from_slice(b"; Domain=");
                changed.extend_from_slice(domain.as_bytes());
            }
            continue;
        }
        let path = changed_prefix(&change.paths, old).filter(|_| name.eq_ignore_ascii_case(b"path"));
        match path {
            Some(path) => {
                changed.extend_from_slice(b"; Path=");
                changed.extend_from_slice(&path);
            }
            None => {
                changed.push(b';');
                changed.extend_from_slice(part);
            }
        }
    }
    (changed != value).then_some(changed)
}

fn attribute(part: &[u8]) -> (&[u8], &[u8]) {
    let at = memchr::memchr(b'=', part).unwrap_or(part.len());
    (part[..at].trim_ascii(), part.get(at + 1..).unwrap_or_default().trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_cookie_stays_on_its_server() {
        let paths = vec![PrefixChange { from: "/app".to_owned(), to: "/".to_owned() }];
        let change = CookieChange { domain: None, paths };
        let check = |value: &str, expected: Option<&str>| {
            let found = changed_cookie(&change, value.as_bytes());
            let found = found.map(|value| String::from_utf8(value).unwrap());
            assert_eq!(found.as_deref(), expected, "{value}");
        };
        check("a=1; Path=/app/x; Secure", Some("a=1; Path=/x; Secure"));
        check("a=1; Path=/app", Some("a=1; Path=/"));
        check("a=1; Path=/app//x", None);
        check("a=1; Path=/apple", None);
    }
}
