//! Look-ups in a header section, and the members of list-based field values.

/// One header field line: the name as received (compare it ASCII-case-insensitively) and the value
/// bytes without surrounding whitespace.
pub type FieldLine<'a> = (&'a str, &'a [u8]);

/// Returns all field values of this name, in order.
pub fn values<'a>(section: &'a [FieldLine<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> + Clone {
    section.iter().filter(move |(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
}

/// Returns the first field value of this name.
pub fn first<'a>(section: &'a [FieldLine<'a>], name: &str) -> Option<&'a [u8]> {
    section.iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
}

/// Returns the value of this field if it has exactly one line.
pub fn only<'a>(section: &'a [FieldLine<'a>], name: &'a str) -> Option<&'a [u8]> {
    let mut lines = values(section, name);
    let value = lines.next()?;
    lines.next().is_none().then_some(value)
}

/// Returns whether a field of this name is present, even with an empty value.
pub fn contains(section: &[FieldLine<'_>], name: &str) -> bool {
    section.iter().any(|(field, _)| field.eq_ignore_ascii_case(name))
}

/// Returns the members of a list-based field over all its lines, without the empty ones.
pub fn members<'a>(section: &'a [FieldLine<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> + Clone {
    values(section, name).flat_map(Members::new).filter(|member| !member.is_empty())
}

/// Iterator over the members of one field value, split at commas outside of quoted strings. Members are returned
/// without surrounding whitespace. Empty members are returned too, and an empty value has one empty member.
///
/// An unclosed quote is an ordinary character, so that it can't hide the members after it (`no-cache="x, no-store`
/// still contains `no-store`).
#[derive(Clone, Debug)]
pub struct Members<'a> {
    rest: Option<&'a [u8]>,
    quotes: Quotes,
}

impl<'a> Members<'a> {
    /// Returns an iterator over the members of `value`.
    pub fn new(value: &'a [u8]) -> Self {
        Self { rest: Some(value), quotes: Quotes::Respected }
    }

    fn member_end(&mut self, rest: &[u8]) -> usize {
        let mut at = 0;
        while let Some(found) = memchr::memchr2(b',', b'"', &rest[at..]).map(|offset| at + offset) {
            if rest[found] == b',' {
                return found;
            }
            at = self.after_quote(rest, found);
        }
        rest.len()
    }

    fn after_quote(&mut self, rest: &[u8], open: usize) -> usize {
        if self.quotes == Quotes::Respected {
            match quoted_end(rest, open) {
                Some(end) => return end,
                None => self.quotes = Quotes::Ordinary,
            }
        }
        open + 1
    }
}

//= RFC 9110 section 5.3: field lines of one name are one list
impl<'a> Iterator for Members<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let end = self.member_end(rest);
        self.rest = rest.get(end + 1..);
        Some(trim(&rest[..end]))
    }
}

/// Whether quotes are significant in the remaining part of a value. After an unclosed quote they aren't, which also keeps the cost linear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quotes {
    Respected,
    Ordinary,
}

/// Returns the index after the quote that closes the one at `open`.
fn quoted_end(text: &[u8], open: usize) -> Option<usize> {
    let mut at = open + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// Removes surrounding spaces and tabs.
pub fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Returns whether the text is a `token` of RFC 9110 section 5.6.2, as in field and directive names.
pub fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| is_token_byte(*byte))
}

pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str, expected: &[&str]) {
        let cut: Vec<_> =
            Members::new(value.as_bytes()).map(|member| std::str::from_utf8(member).unwrap()).collect();
        assert_eq!(cut, expected, "{value}");
    }

    //= RFC 9110 section 5.6.1.2: recipients parse and ignore empty list elements
    #[test]
    fn members_are_cut_outside_quotes() {
        check("", &[""]);
        check("a", &["a"]);
        check(" a ,\tb ", &["a", "b"]);
        check("a,,b,", &["a", "", "b", ""]);
        check(r#"a="x, y", b"#, &[r#"a="x, y""#, "b"]);
        check(r#"a="x\", y", b"#, &[r#"a="x\", y""#, "b"]);
        check(r#"a="x, no-store"#, &[r#"a="x"#, "no-store"]);
        check(r#"a="\"#, &[r#"a="\"#]);
        check(r#""",""#, &[r#""""#, r#"""#]);
    }

    #[test]
    fn names_are_compared_without_case() {
        let section: &[FieldLine<'_>] = &[("Vary", b"a, b"), ("ETag", b""), ("VARY", b" , c")];
        assert_eq!(members(section, "vary").collect::<Vec<_>>(), [b"a", b"b", b"c"]);
        assert_eq!(first(section, "etag"), Some(&b""[..]));
        assert_eq!(only(section, "etag"), Some(&b""[..]));
        assert_eq!(only(section, "vary"), None);
        assert!(contains(section, "eTAG") && !contains(section, "e-tag"));
    }
}
