//! Groups of stored responses (RFC 9875): the groups that a response belongs to, and those that an unsafe request
//! invalidates.

use sfv::{BareItem, List, ListEntry, Parser};

use crate::authority::Authority;
use crate::invalidation::Target;
use crate::{FieldLine, MethodClass, fields};

/// The groups that a field names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Groups {
    /// These groups; none if the field is missing or malformed.
    Named(Vec<String>),
    /// More groups than the limit of the store.
    TooMany,
}

/// A selection of the groups of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group<'a> {
    /// The group of this name.
    Named(&'a str),
    /// All groups, because a response invalidated more groups than the limit of the store.
    All,
    /// Any group: a response that belongs to too many groups is invalidated with each of them.
    Any,
}

/// Returns the groups that a response belongs to.
//= RFC 9875 section 2: a List of Strings
//= RFC 9875 section 2: 32 groups of 32 characters
pub fn of_response(response: &[FieldLine<'_>], max: usize) -> Groups {
    read(response, "cache-groups", max)
}

/// Returns the groups that the response to this request invalidates.
//= RFC 9875 section 3: ignored for safe methods
//= RFC 9111 section 4.4: non-error is 2xx and 3xx
//= RFC 9875 section 3: a List of Strings
//= RFC 9875 section 3: 32 groups of 32 characters
pub fn invalidated(method: MethodClass, status: u16, response: &[FieldLine<'_>], max: usize) -> Groups {
    if method != MethodClass::Unsafe || !(200..400).contains(&status) {
        return Groups::Named(Vec::new());
    }
    read(response, "cache-group-invalidation", max)
}

/// Writes the identity of a group: equal exactly if host and name are. Scheme and port are ignored, as for an
/// invalidated URL: proxies in front and internal clients use different ones for the same response.
//= RFC 9875 section 2.1: the same String and the same origin
pub fn write_identity(target: &Target<'_>, group: Group<'_>, out: &mut Vec<u8>) {
    let authority = Authority::new(target.scheme, target.authority).without_port();
    out.extend_from_slice(&(authority.len() as u64).to_be_bytes());
    authority.write(out);
    match group {
        Group::Named(name) => {
            out.push(0);
            out.extend_from_slice(name.as_bytes());
        }
        Group::All => out.push(1),
        Group::Any => out.push(2),
    }
}

fn read(section: &[FieldLine<'_>], name: &str, max: usize) -> Groups {
    let lines: Vec<&[u8]> = fields::values(section, name).collect();
    let members = if lines.is_empty() { None } else { strings(&lines.join(&b", "[..])) };
    match members.unwrap_or_default() {
        members if members.len() > max => Groups::TooMany,
        members => Groups::Named(members),
    }
}

/// Returns the members of a List of Strings without their parameters, or `None` if the value is anything else.
fn strings(value: &[u8]) -> Option<Vec<String>> {
    let list = Parser::new(value).parse::<List>().ok()?;
    let string = |entry: ListEntry| match entry {
        ListEntry::Item(item) => match item.bare_item {
            BareItem::String(string) => Some(string.as_str().to_owned()),
            _ => None,
        },
        ListEntry::InnerList(_) => None,
    };
    list.into_iter().map(string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &[&str], expected: &[&str]) {
        let section: Vec<FieldLine<'_>> =
            lines.iter().map(|line| ("Cache-Groups", line.as_bytes())).collect();
        let expected = expected.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(of_response(&section, 32), Groups::Named(expected), "{lines:?}");
    }

    //= RFC 9875 section 2: a List of Strings
    #[test]
    fn groups_are_a_list_of_strings() {
        check(&[], &[]);
        check(&[""], &[]);
        check(&["\"a\", \"B b\""], &["a", "B b"]);
        check(&["\"a\";x=1;revalidate", "\"b\\\"\""], &["a", "b\""]);
        check(&["a"], &[]);
        check(&["\"a\", b"], &[]);
        check(&["\"a\", (\"b\")"], &[]);
        check(&["\"a\",, \"b\""], &[]);
        check(&["\"a"], &[]);
        check(&["\"\u{e9}\""], &[]);
    }

    //= RFC 9875 section 2: 32 groups of 32 characters
    #[test]
    fn many_long_groups_are_told_apart() {
        let names: Vec<String> = (0..32).map(|number| format!("{number:032}")).collect();
        let field = names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(",");
        let section = [("cache-groups", field.as_bytes())];
        assert_eq!(of_response(&section, 32), Groups::Named(names));
        assert_eq!(of_response(&section, 31), Groups::TooMany);
    }

    //= RFC 9875 section 3: ignored for safe methods
    #[test]
    fn only_an_unsafe_method_that_succeeds_invalidates() {
        let section = [("Cache-Group-Invalidation", &b"\"a\""[..])];
        let named = |method: &str, status| invalidated(MethodClass::parse(method), status, &section, 9);
        for (method, status) in [("POST", 200), ("DELETE", 204), ("PATCH", 303), ("FOO", 200)] {
            assert_eq!(named(method, status), Groups::Named(vec!["a".to_owned()]), "{method} {status}");
        }
        for (method, status) in [("GET", 200), ("HEAD", 200), ("OPTIONS", 200), ("QUERY", 200), ("POST", 400)]
        {
            assert_eq!(named(method, status), Groups::Named(Vec::new()), "{method} {status}");
        }
    }

    fn identity(scheme: &str, authority: &str, group: Group<'_>) -> Vec<u8> {
        let target =
            Target { scheme: scheme.as_bytes(), authority: authority.as_bytes(), path: b"/", query: None };
        let mut out = Vec::new();
        write_identity(&target, group, &mut out);
        out
    }

    //= RFC 9875 section 2.1: the same String and the same origin
    #[test]
    fn identities_are_of_one_host() {
        let known = identity("http", "a.example", Group::Named("x"));
        for (scheme, authority) in [
            ("HTTP", "A.example:80"),
            ("https", "a.example"),
            ("http", "a.example:81"),
            ("https", "a.example."),
        ] {
            assert_eq!(known, identity(scheme, authority, Group::Named("x")), "{scheme} {authority}");
        }
        for (scheme, authority, group) in [
            ("http", "b.example", Group::Named("x")),
            ("http", "a.example", Group::Named("X")),
            ("http", "a.example", Group::Named("")),
            ("http", "a.example", Group::All),
            ("http", "a.example", Group::Any),
        ] {
            assert_ne!(known, identity(scheme, authority, group), "{scheme} {authority} {group:?}");
        }
    }
}
