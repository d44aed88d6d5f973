//! Tags of stored responses, by which operators purge: the groups of RFC 9875, and the older fields.

use crate::groups::{self, Groups};
use crate::{FieldLine, fields};

/// A response field with tags, in addition to `Cache-Groups`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagField {
    /// `Cache-Tag: a, b`
    CacheTag,
    /// `Cache-Tags: a, b`
    CacheTags,
    /// `Surrogate-Key: a b`
    SurrogateKey,
    /// `xkey: a b`
    Xkey,
}

impl TagField {
    /// All fields.
    pub const ALL: [Self; 4] = [Self::CacheTag, Self::CacheTags, Self::SurrogateKey, Self::Xkey];
    /// The names of all fields.
    pub const NAMES: [&'static str; 4] = ["cache-tag", "cache-tags", "surrogate-key", "xkey"];

    /// Returns the field name in lower case.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns the field of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name().eq_ignore_ascii_case(name))
    }

    /// Returns whether a byte other than a space separates tags. Lists of `xkey` are separated by spaces, and in newer
    /// releases by commas.
    fn separates(self, byte: u8) -> bool {
        match self {
            Self::CacheTag | Self::CacheTags => byte == b',',
            Self::SurrogateKey => byte == b' ' || byte == b'\t',
            Self::Xkey => b" \t,".contains(&byte),
        }
    }
}

/// Rules for tags of responses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagRules {
    /// The fields with tags, in addition to `Cache-Groups`.
    pub fields: Vec<TagField>,
    /// Maximum number of distinguished tags of one response.
    pub tags_max: usize,
}

/// Returns whether a field of this name may contain tags.
pub fn names_tags(name: &str) -> bool {
    name.eq_ignore_ascii_case("cache-groups") || TagField::from_name(name).is_some()
}

/// Returns the tags of a response, each once; [`Groups::TooMany`] if there are more than are distinguished. Values that
/// aren't text are skipped, because no purge could name them.
pub fn of_response(response: &[FieldLine<'_>], rules: &TagRules) -> Groups {
    let Groups::Named(groups) = groups::of_response(response, rules.tags_max) else {
        return Groups::TooMany;
    };
    let of_field = |field: &TagField| {
        let field = *field;
        let values = fields::values(response, field.name());
        values.flat_map(move |value| value.split(move |byte| field.separates(*byte)))
    };
    let members = rules.fields.iter().flat_map(of_field);
    let texts = members.filter_map(|member| std::str::from_utf8(member.trim_ascii()).ok());
    let mut tags: Vec<&str> = groups.iter().map(String::as_str).chain(texts).collect();
    tags.sort_unstable();
    tags.dedup();
    tags.retain(|tag| !tag.is_empty());
    match tags.len() > rules.tags_max {
        true => Groups::TooMany,
        false => Groups::Named(tags.into_iter().map(str::to_owned).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &[(&str, &str)], expected: &[&str]) {
        let section: Vec<FieldLine<'_>> =
            lines.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        let rules = TagRules { fields: TagField::ALL.to_vec(), tags_max: 4 };
        let expected = expected.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(of_response(&section, &rules), Groups::Named(expected), "{lines:?}");
    }

    #[test]
    fn each_field_has_its_own_form() {
        check(&[], &[]);
        check(&[("Cache-Groups", "\"b b\", \"a\"")], &["a", "b b"]);
        check(&[("Cache-Tag", "a, b b ,,c"), ("cache-tag", "a")], &["a", "b b", "c"]);
        check(&[("Cache-Tags", "a,b")], &["a", "b"]);
        check(&[("Surrogate-Key", " a  b,c\t")], &["a", "b,c"]);
        check(&[("xkey", "a b, c"), ("XKEY", "d")], &["a", "b", "c", "d"]);
        check(&[("Cache-Groups", "\"a\""), ("Cache-Tag", "a"), ("Surrogate-Key", "b")], &["a", "b"]);
        check(&[("Cache-Tag", &"a,".repeat(1000))], &["a"]);
        check(&[("X-Tag", "a")], &[]);
    }

    #[test]
    fn more_tags_than_are_told_apart_are_too_many() {
        let rules = TagRules { fields: vec![TagField::CacheTag], tags_max: 2 };
        let of = |value: &str| of_response(&[("cache-tag", value.as_bytes())], &rules);
        assert_eq!(of("a,b"), Groups::Named(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(of("a,b,c"), Groups::TooMany);
        assert_eq!(of("a,b,c,d,e,f,g,h"), Groups::TooMany);
        let groups = of_response(&[("cache-groups", b"\"a\",\"b\",\"c\"")], &rules);
        assert_eq!(groups, Groups::TooMany);
    }

    #[test]
    fn fields_that_are_not_configured_say_nothing() {
        let rules = TagRules { fields: vec![TagField::Xkey], tags_max: 2 };
        assert_eq!(of_response(&[("cache-tag", b"a")], &rules), Groups::Named(Vec::new()));
        assert!(names_tags("Cache-Tag") && names_tags("cache-groups") && !names_tags("etag"));
        assert!(TagField::ALL.into_iter().all(|field| TagField::from_name(field.name()) == Some(field)));
    }
}
