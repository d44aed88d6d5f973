//! Entity tags (RFC 9110 section 8.8.3), parsed leniently: tags with quoting errors are common and can be compared, but
//! only weakly.

use crate::fields;

/// Whether equal tags mean equal bytes.
//= RFC 9110 section 8.8.1: weak or strong
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// Representations with the same tag are equal byte for byte.
    Strong,
    /// Representations with the same tag have the same meaning, or the tag is not well-formed.
    Weak,
}

/// An entity tag of a field value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTag<'a> {
    /// The text between the quotes.
    pub opaque: &'a [u8],
    /// Strong only when well-formed and without `W/`.
    pub strength: Strength,
}

impl<'a> EntityTag<'a> {
    /// Parses the value of `ETag`, or one member of `If-None-Match`. Missing quotes and a lower-case `w/` are tolerated
    /// and make the tag weak. Returns `None` for an empty value.
    //= RFC 9110 section 8.8.3: an entity tag is an opaque quoted string
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let value = fields::trim(value);
        let (rest, prefix) = match value {
            [b'W' | b'w', b'/', rest @ ..] => (rest, Strength::Weak),
            rest => (rest, Strength::Strong),
        };
        let (opaque, strength) = match rest {
            [] => return None,
            [b'"', inner @ .., b'"'] if inner.iter().all(|byte| is_etagc(*byte)) => (inner, prefix),
            malformed => (strip_quotes(malformed), Strength::Weak),
        };
        Some(Self { opaque, strength })
    }

    //= RFC 9110 section 8.8.3.2: weak comparison
    /// Returns whether the opaque tags are equal, regardless of strength.
    pub fn matches_weakly(&self, other: &EntityTag<'_>) -> bool {
        self.opaque == other.opaque
    }

    //= RFC 9110 section 8.8.3.2: strong comparison
    /// Returns whether the opaque tags are equal and both are strong.
    pub fn matches_strongly(&self, other: &EntityTag<'_>) -> bool {
        self.strength == Strength::Strong && other.strength == Strength::Strong && self.opaque == other.opaque
    }
}

/// Iterator over the members of an `If-None-Match` or `If-Match` line. Unlike in all other lists, a tag may contain
/// commas, and a backslash in it is an ordinary character. `*` is returned as a weak tag `*`.
#[derive(Clone, Debug)]
pub struct EntityTags<'a> {
    rest: &'a [u8],
}

impl<'a> EntityTags<'a> {
    /// Returns an iterator over the tags in `value`.
    pub fn new(value: &'a [u8]) -> Self {
        Self { rest: value }
    }
}

impl<'a> Iterator for EntityTags<'a> {
    type Item = EntityTag<'a>;

    fn next(&mut self) -> Option<EntityTag<'a>> {
        while !self.rest.is_empty() {
            let (member, rest) = self.rest.split_at(member_end(self.rest));
            self.rest = rest.get(1..).unwrap_or_default();
            if let Some(tag) = EntityTag::parse(member) {
                return Some(tag);
            }
        }
        None
    }
}

/// Returns the index of the comma after the first member.
fn member_end(list: &[u8]) -> usize {
    let comma_from = |at: usize| memchr::memchr(b',', &list[at..]).map_or(list.len(), |found| at + found);
    let start = list.len() - trim_start(list).len();
    let open = match &list[start..] {
        [b'W' | b'w', b'/', b'"', ..] => start + 2,
        [b'"', ..] => start,
        _ => return comma_from(start),
    };
    let close = memchr::memchr(b'"', &list[open + 1..]).map(|found| open + 1 + found);
    comma_from(close.unwrap_or(start))
}

fn trim_start(list: &[u8]) -> &[u8] {
    let blank = list.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &list[blank..]
}

fn is_etagc(byte: u8) -> bool {
    matches!(byte, 0x21 | 0x23..=0x7e | 0x80..)
}

fn strip_quotes(text: &[u8]) -> &[u8] {
    let text = text.strip_prefix(b"\"").unwrap_or(text);
    text.strip_suffix(b"\"").unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(value: &str, expected: &[(&str, Strength)]) {
        let tags: Vec<_> = EntityTags::new(value.as_bytes())
            .map(|tag| (std::str::from_utf8(tag.opaque).unwrap(), tag.strength))
            .collect();
        assert_eq!(tags, expected, "{value}");
    }

    #[test]
    fn lists_of_tags() {
        use Strength::{Strong, Weak};
        check("", &[]);
        check(" , ,", &[]);
        check("*", &[("*", Weak)]);
        check(r#""a""#, &[("a", Strong)]);
        check(r#"W/"a""#, &[("a", Weak)]);
        check(r#"w/"a""#, &[("a", Weak)]);
        check(r#""""#, &[("", Strong)]);
        check(r#""a", W/"b" ,"c""#, &[("a", Strong), ("b", Weak), ("c", Strong)]);
        check(r#""a,b", "c\""#, &[("a,b", Strong), ("c\\", Strong)]);
        check("a, b", &[("a", Weak), ("b", Weak)]);
        check(r#""a, "b""#, &[("a, \"b", Weak)]);
        check(r#""a"#, &[("a", Weak)]);
        check(r#""a b""#, &[("a b", Weak)]);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(value in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = EntityTag::parse(&value);
            let _ = EntityTags::new(&value).count();
        }

        #[test]
        fn a_strong_match_is_a_weak_match(a in "(W/)?\"?[ab]\"?", b in "(W/)?\"?[ab]\"?") {
            let (Some(a), Some(b)) = (EntityTag::parse(a.as_bytes()), EntityTag::parse(b.as_bytes())) else { return Ok(()) };
            prop_assert!(!a.matches_strongly(&b) || a.matches_weakly(&b));
        }
    }
}
