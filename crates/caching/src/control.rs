//! The field that controls this cache: a targeted one (RFC 9213), or `Cache-Control`.

use sfv::{BareItem, Dictionary, ListEntry, Parser};

use crate::directives::{self, DELTA_SECONDS_MAX, DeltaSeconds, Qualified, ResponseDirectives};
use crate::{FieldLine, Rules, fields};

/// The directives of a response that apply to this cache.
#[derive(Debug)]
pub struct Control<'a> {
    source: Source<'a>,
}

#[derive(Debug)]
enum Source<'a> {
    CacheControl(&'a [FieldLine<'a>]),
    Targeted { directives: ResponseDirectives, qualified: Vec<String> },
}

impl<'a> Control<'a> {
    /// Selects the first targeted field of the rules that is valid and not empty in the response.
    //= RFC 9213 section 2.2: the first valid field of the target list counts
    //= RFC 9213 section 2.2: the target list
    //= RFC 9213 section 2.4: a suffix does not make a targeted field
    //= RFC 9213 section 2.2: fields of other targets change nothing
    pub fn of(response: &'a [FieldLine<'a>], rules: &Rules) -> Self {
        let targeted = rules.targeted_fields.iter().find_map(|name| targeted(response, name));
        Self { source: targeted.unwrap_or(Source::CacheControl(response)) }
    }

    /// Returns the directives.
    pub fn directives(&self) -> ResponseDirectives {
        match &self.source {
            Source::CacheControl(response) => ResponseDirectives::parse(response),
            Source::Targeted { directives, .. } => *directives,
        }
    }

    /// Returns whether a targeted field applies, so that `Cache-Control` and `Expires` are ignored.
    //= RFC 9213 section 2.2: the target list
    pub fn is_targeted(&self) -> bool {
        matches!(self.source, Source::Targeted { .. })
    }

    /// Returns whether any name is listed in a qualified `no-cache="..."` or `private="..."`.
    pub(crate) fn qualifies(&self) -> bool {
        match &self.source {
            Source::CacheControl(response) => directives::qualified_names(response).next().is_some(),
            Source::Targeted { qualified, .. } => !qualified.is_empty(),
        }
    }

    /// Returns whether `name` is listed in a qualified `no-cache="..."` or `private="..."`.
    //= RFC 9111 section 5.2.2.4: no-cache limited to fields
    //= RFC 9111 section 5.2.2.7: private limited to fields
    pub fn is_qualified(&self, name: &str) -> bool {
        match &self.source {
            Source::CacheControl(response) => directives::is_qualified(response, name),
            Source::Targeted { qualified, .. } => {
                qualified.iter().any(|listed| listed.eq_ignore_ascii_case(name))
            }
        }
    }
}

/// Parses all lines of a targeted field as one dictionary.
//= RFC 9213 section 2.1: an empty or unparsable field is ignored
fn targeted<'a>(response: &[FieldLine<'_>], name: &str) -> Option<Source<'a>> {
    let mut lines = fields::values(response, name);
    //= RFC 9651 section 4.2: field lines are joined before parsing
    let mut joined = lines.next()?.to_vec();
    for line in lines {
        joined.extend_from_slice(b", ");
        joined.extend_from_slice(line);
    }
    //= RFC 9213 section 2.1: a Dictionary of directives
    //= RFC 9651 section 3.2: the last of several members counts
    //= RFC 9651 section 4.2: a field that does not parse is ignored as a whole
    let is_surrogate = name.eq_ignore_ascii_case("surrogate-control");
    if is_surrogate {
        joined = with_extension(&joined);
    }
    let dictionary: Dictionary = Parser::new(&joined).parse().ok()?;
    if dictionary.is_empty() {
        return None;
    }
    let mut directives = ResponseDirectives::default();
    let mut qualified = Vec::new();
    for (name, entry) in &dictionary {
        //= RFC 9213 section 2.1: parameters of directives are ignored
        let ListEntry::Item(item) = entry else { continue };
        // In `Surrogate-Control`, a parameter names the surrogate that a directive is for. Only `no-store` applies to all surrogates.
        if is_surrogate && !item.params.is_empty() && name.as_str() != "no-store" {
            continue;
        }
        take(&mut directives, name.as_str(), &item.bare_item);
        if matches!(name.as_str(), "no-cache" | "private") {
            qualified.extend(listed_names(&item.bare_item));
        }
    }
    Some(Source::Targeted { directives, qualified })
}

/// Translates `Surrogate-Control: max-age=60+30` to `Cache-Control`: the second number is the time for which the
/// response may be used stale.
fn with_extension(value: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(value);
    let member = |member: &str| match member.split_once('+') {
        Some((lifetime, extension)) if lifetime.trim_start().starts_with("max-age=") => {
            format!("{lifetime}, stale-while-revalidate={extension}")
        }
        _ => member.to_owned(),
    };
    text.split(',').map(member).collect::<Vec<_>>().join(",").into_bytes()
}

/// Applies a directive, unless its value has the wrong type.
//= RFC 9213 section 2.1: directives have types
//= RFC 9213 section 2.2: directives that are supported
//= RFC 9213 section 2.2: all other directives
//= RFC 9213 section 2.2: the same meaning and precedence
fn take(directives: &mut ResponseDirectives, name: &str, value: &BareItem) {
    let is_set = matches!(value, BareItem::Boolean(true));
    match name {
        "max-age" => directives.max_age = seconds(value),
        "s-maxage" => directives.s_maxage = seconds(value),
        "stale-while-revalidate" => directives.stale_while_revalidate = seconds(value),
        "stale-if-error" => directives.stale_if_error = seconds(value),
        "must-revalidate" => directives.must_revalidate = is_set,
        "must-understand" => directives.must_understand = is_set,
        "no-cache" => directives.no_cache = qualification(value),
        "no-store" => directives.no_store = is_set,
        "no-transform" => directives.no_transform = is_set,
        "private" => directives.private = qualification(value),
        "proxy-revalidate" => directives.proxy_revalidate = is_set,
        "public" => directives.public = is_set,
        "immutable" => directives.immutable = is_set,
        _ => {}
    }
}

fn seconds(value: &BareItem) -> Option<DeltaSeconds> {
    let BareItem::Integer(seconds) = value else { return None };
    let seconds = i64::from(*seconds);
    // A negative number is invalid as delta-seconds; as in `Cache-Control`, the lifetime has then ended.
    Some(u32::try_from(seconds.max(0)).map_or(DELTA_SECONDS_MAX, |seconds| seconds.min(DELTA_SECONDS_MAX)))
}

fn qualification(value: &BareItem) -> Qualified {
    match value {
        BareItem::Boolean(true) => Qualified::All,
        _ if listed_names(value).next().is_some() => Qualified::Fields,
        // An empty list doesn't limit the directive.
        BareItem::String(_) => Qualified::All,
        _ => Qualified::Absent,
    }
}

/// Returns the field names in a string such as `"set-cookie, x-user"`, or the only name, if the value is a token.
fn listed_names(value: &BareItem) -> impl Iterator<Item = String> {
    let text = match value {
        BareItem::String(text) => text.as_str(),
        BareItem::Token(name) => name.as_str(),
        _ => "",
    };
    text.split(',').map(str::trim).filter(|name| fields::is_token(name.as_bytes())).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directives(response: &[FieldLine<'_>]) -> (ResponseDirectives, bool) {
        let control = Control::of(response, &Rules::default());
        (control.directives(), control.is_targeted())
    }

    #[track_caller]
    fn check(value: &str, expected: Option<ResponseDirectives>) {
        let lines: &[FieldLine<'_>] =
            &[("Cache-Control", b"max-age=1"), ("CDN-cache-control", value.as_bytes())];
        let fallback = ResponseDirectives { max_age: Some(1), ..ResponseDirectives::default() };
        assert_eq!(directives(lines), (expected.unwrap_or(fallback), expected.is_some()), "{value}");
    }

    //= RFC 9213 section 2.1: an empty or unparsable field is ignored
    //= RFC 9213 section 2.1: directives have types
    //= RFC 9213 section 2.1: parameters of directives are ignored
    #[test]
    fn a_targeted_field_is_a_dictionary() {
        let none = ResponseDirectives::default();
        let max_age = |seconds| Some(ResponseDirectives { max_age: Some(seconds), ..none });
        check("max-age=60", max_age(60));
        check("max-age=60;x=y", max_age(60));
        check("max-age=5, max-age=60", max_age(60));
        check("max-age=60, foo=(1 2)", max_age(60));
        check("max-age=999999999999999", max_age(DELTA_SECONDS_MAX));
        check("no-store", Some(ResponseDirectives { no_store: true, ..none }));
        check("no-store=?0", Some(none));
        check("private", Some(ResponseDirectives { private: Qualified::All, ..none }));
        check("private=\"set-cookie, a\"", Some(ResponseDirectives { private: Qualified::Fields, ..none }));
        check("foo", Some(none));
        check("max-age=\"60\"", Some(none));
        check("max-age=60.5", Some(none));
        check("max-age", Some(none));
        for ignored in ["", "  ", "max-age=", "max-age =60", "Max-Age=60", "max-age=60,", "a, ,b", "&"] {
            check(ignored, None);
        }
    }

    //= RFC 9213 section 2.2: the first valid field of the target list counts
    #[test]
    fn the_first_valid_field_of_the_list_counts() {
        let rules = Rules { targeted_fields: Box::new(["A".into(), "B".into()]), ..Rules::default() };
        let chosen = |a: &[u8], b: &[u8]| {
            Control::of(&[("b", b), ("a", a), ("cache-control", b"max-age=3")], &rules).directives().max_age
        };
        assert_eq!(chosen(b"max-age=1", b"max-age=2"), Some(1));
        assert_eq!(chosen(b"max-age=", b"max-age=2"), Some(2));
        assert_eq!(chosen(b"", b"="), Some(3));
    }

    #[test]
    fn surrogate_control_has_a_form_of_its_own() {
        let rules = Rules { targeted_fields: Box::new(["Surrogate-Control".into()]), ..Rules::default() };
        let none = ResponseDirectives::default();
        let max_age = |seconds| ResponseDirectives { max_age: Some(seconds), ..none };
        for (value, expected) in [
            ("max-age=60", max_age(60)),
            ("max-age=60, content=\"ESI/1.0\"", max_age(60)),
            ("max-age=60+30", ResponseDirectives { stale_while_revalidate: Some(30), ..max_age(60) }),
            (
                "content=\"a+b\", max-age=60+30",
                ResponseDirectives { stale_while_revalidate: Some(30), ..max_age(60) },
            ),
            ("no-store", ResponseDirectives { no_store: true, ..none }),
            ("no-store;other", ResponseDirectives { no_store: true, ..none }),
            ("max-age=60, max-age=5;other", none),
            ("no-store-remote", none),
            ("max-age=60+", max_age(3)),
            ("max-age=+30", max_age(3)),
        ] {
            let lines: &[FieldLine<'_>] =
                &[("surrogate-control", value.as_bytes()), ("cache-control", b"max-age=3")];
            assert_eq!(Control::of(lines, &rules).directives(), expected, "{value}");
        }
        let lines: &[FieldLine<'_>] =
            &[("surrogate-control", b"max-age=60"), ("cache-control", b"max-age=3")];
        assert_eq!(Control::of(lines, &Rules::default()).directives(), max_age(3), "not in the list");
    }

    #[test]
    fn qualified_names_come_from_the_field_that_counts() {
        let lines: &[FieldLine<'_>] =
            &[("cache-control", b"private=\"a\""), ("cdn-cache-control", b"no-cache=\"b, C\", private=d")];
        let targeted = Control::of(lines, &Rules::default());
        assert_eq!(["a", "B", "c", "d"].map(|name| targeted.is_qualified(name)), [false, true, true, true]);
        let plain = Control::of(&lines[..1], &Rules::default());
        assert!(plain.is_qualified("A") && !plain.is_qualified("b"));
    }
}
