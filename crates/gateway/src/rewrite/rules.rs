//! Selects the transformation rules that a message matches, and applies their actions to its header section. The functions are pure:
//! they depend only on the message and the rules.
//!
//! All rules of a phase are matched with the message as it is at the start of the phase, whatever earlier rules change. So each rule
//! can be understood without the others.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use globset::GlobMatcher;
use http::HeaderName;
use message::fields::{Fields, PackedFields};
use origin::{FIELDS_MAX, HEAD_BYTES_MAX};
use smallvec::SmallVec;

use crate::config::{Conditions, FieldPattern, Phase, Spelling, TransformRule};
use crate::routing::host_of;

use crate::transform::Subject;

pub(crate) use crate::transform::Seen;

/// A response, for rules that match responses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenAnswer<'a> {
    pub(crate) status: u16,
    pub(crate) fields: Fields<'a>,
    /// Stored response to which a 304 refers, if known.
    pub(crate) validated: Option<Validated<'a>>,
}

/// Status and fields of a stored response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Validated<'a> {
    pub(crate) status: u16,
    pub(crate) fields: Fields<'a>,
}

/// Positions of the rules that match.
pub(crate) type Matching = SmallVec<[u16; 8]>;

impl SeenAnswer<'_> {
    /// Returns the status that rules match. For a 304, it is the status of the response to which the 304 refers, or 200 if that isn't
    /// known. For a 206, it is 200, because a part is stored under the head of the whole response.
    pub(crate) fn status_meant(&self) -> u16 {
        match self.status {
            206 => 200,
            304 => self.validated.map_or(200, |validated| validated.status),
            status => status,
        }
    }

    /// Returns the values of a field. If a 304 doesn't have the field, returns the values of the stored response.
    fn values<'b>(&'b self, name: &'b str) -> impl Iterator<Item = &'b [u8]> {
        let own = self.fields.values(name);
        let is_absent = self.fields.value(name).is_none();
        let stored = self.validated.filter(|_| self.status == 304 && is_absent);
        own.chain(stored.into_iter().flat_map(move |stored| stored.fields.values(name)))
    }
}

/// Returns the rules that a message matches.
pub(crate) fn matching(
    rules: &[TransformRule],
    seen: &Seen<'_>,
    answer: Option<&SeenAnswer<'_>>,
) -> Matching {
    let fits = |(_, rule): &(u16, &TransformRule)| fits(&rule.on, seen, answer);
    (0..).zip(rules).filter(fits).map(|(place, _)| place).collect()
}

fn fits(on: &Conditions, seen: &Seen<'_>, answer: Option<&SeenAnswer<'_>>) -> bool {
    fits_but_for_fields(on, seen, answer)
        && on
            .request_fields
            .iter()
            .all(|field| has_value(field, caching::fields::values(seen.fields, field.name.as_str())))
}

fn fits_but_for_fields(on: &Conditions, seen: &Seen<'_>, answer: Option<&SeenAnswer<'_>>) -> bool {
    on.methods.contains(seen.method)
        && on.scheme.is_none_or(|scheme| scheme == seen.scheme)
        && (on.hosts.is_empty() || on.hosts.iter().any(|pattern| is_host(pattern, seen.authority)))
        && on.path.as_ref().is_none_or(|pattern| pattern.matches(seen.path_and_query, Spelling::AsWritten))
        && answer.is_none_or(|answer| fits_answer(on, answer))
}

/// Returns the request fields on which a response depends because of rules of the client phases, either by their conditions or by the
/// values that they write.
pub(crate) fn deciding<'a>(
    rules: &'a [TransformRule],
    phase: Phase,
    seen: &Seen<'_>,
    answer: Option<&SeenAnswer<'_>>,
) -> impl Iterator<Item = &'a HeaderName> {
    let fitting = rules.iter().filter(move |rule| fits_but_for_fields(&rule.on, seen, answer));
    fitting.flat_map(move |rule| rule.deciding_fields(phase))
}

fn fits_answer(on: &Conditions, answer: &SeenAnswer<'_>) -> bool {
    let (status, meant) = (answer.status, answer.status_meant());
    let is_type = |pattern: &GlobMatcher| {
        answer.values("content-type").next().is_some_and(|value| is_glob(pattern, &media_type(value)))
    };
    (on.statuses.is_empty() || on.statuses.iter().any(|known| known.matches(status) || known.matches(meant)))
        && on.response_fields.iter().all(|field| has_value(field, answer.values(field.name.as_str())))
        && (on.content_types.is_empty() || on.content_types.iter().any(is_type))
}

fn has_value<'a>(field: &FieldPattern, mut values: impl Iterator<Item = &'a [u8]>) -> bool {
    values.any(|value| is_glob(&field.value, value))
}

fn is_glob(pattern: &GlobMatcher, value: &[u8]) -> bool {
    pattern.is_match(Path::new(OsStr::from_bytes(value)))
}

/// Returns the media type without its parameters, in lower case.
fn media_type(value: &[u8]) -> Vec<u8> {
    let essence = value.split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().to_ascii_lowercase()
}

/// Returns whether the host of an authority matches a pattern.
fn is_host(pattern: &str, authority: &str) -> bool {
    let host = host_of(authority);
    match pattern.strip_prefix('*') {
        None => host.eq_ignore_ascii_case(pattern),
        Some(domain) => host
            .len()
            .checked_sub(domain.len())
            .and_then(|at| host.get(at..).filter(|_| at > 0))
            .is_some_and(|end| end.eq_ignore_ascii_case(domain)),
    }
}

/// A message to which rules are applied.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a>(pub(super) Subject<'a>);

/// The header section exceeds the limits of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl<'a> Context<'a> {
    pub(crate) fn of_request(seen: &'a Seen<'a>) -> Self {
        Self(Subject { seen, status: None })
    }

    pub(crate) fn of_answer(seen: &'a Seen<'a>, answer: &SeenAnswer<'_>) -> Self {
        Self(Subject { seen, status: Some((answer.status, answer.status_meant())) })
    }

    /// Applies the `matching` rules, in their order.
    ///
    /// # Errors
    /// If the header section becomes too large for any message.
    pub(crate) fn apply(
        &self,
        rules: &[TransformRule],
        matching: &Matching,
        fields: &mut PackedFields,
    ) -> Result<(), TooLarge> {
        let matching = matching.iter().filter_map(|place| rules.get(usize::from(*place)));
        for action in matching.flat_map(|rule| &rule.actions) {
            action.edit(&self.0, fields);
            if fields.len() > FIELDS_MAX || fields.view().wire().len() > HEAD_BYTES_MAX {
                return Err(TooLarge);
            }
        }
        Ok(())
    }
}

/// Adds a request field that a response depends on to its `Vary`.
pub(crate) fn nominate(name: &str, fields: &mut PackedFields) {
    let is_listed = |member: &[u8]| member == b"*" || member.eq_ignore_ascii_case(name.as_bytes());
    if !caching::fields::members(&fields.to_lines(), "vary").any(is_listed) {
        fields.append_to_list("vary", &[name.as_bytes()]);
    }
}

#[cfg(test)]
mod tests {
    use caching::{FieldLine, StatusMatch};
    use globset::Glob;
    use message::fields::PackedFields;

    use super::*;
    use crate::config::{MethodSet, PathPattern};

    const LINES: &[FieldLine<'_>] = &[("X-A", b"one"), ("X-A", b"two/three")];

    fn seen() -> Seen<'static> {
        Seen {
            method: "GET",
            scheme: "http",
            authority: "Shop.Example:8080",
            path_and_query: "/a/b?c=1",
            fields: LINES,
            client: [127, 0, 0, 1].into(),
        }
    }

    fn glob(text: &str) -> GlobMatcher {
        Glob::new(text).unwrap().compile_matcher()
    }

    fn field(name: &'static str, value: &str) -> Vec<FieldPattern> {
        vec![FieldPattern { name: HeaderName::from_static(name), value: glob(value) }]
    }

    fn hosts(pattern: &str) -> Conditions {
        Conditions { hosts: vec![pattern.to_owned()], ..Conditions::default() }
    }

    #[test]
    fn requests_are_compared_with_all_conditions() {
        let check = |name: &str, on: Conditions, expected: bool| {
            assert_eq!(fits(&on, &seen(), None), expected, "{name}");
        };
        let none = Conditions::default;
        let method = |name: &str| MethodSet::Only([name.to_owned()].into());
        check("nothing", none(), true);
        check("host", hosts("shop.example"), true);
        check("other host", hosts("example"), false);
        check("below a domain", hosts("*.example"), true);
        check("the domain itself", hosts("*.shop.example"), false);
        check("method", Conditions { methods: method("GET"), ..none() }, true);
        check("other method", Conditions { methods: method("HEAD"), ..none() }, false);
        check("scheme", Conditions { scheme: Some("http"), ..none() }, true);
        check("other scheme", Conditions { scheme: Some("https"), ..none() }, false);
        let path = |text: &str| Conditions { path: Some(PathPattern::Prefix(text.to_owned())), ..none() };
        check("path", path("/a/"), true);
        check("other path", path("/b"), false);
        check("one of two lines", Conditions { request_fields: field("x-a", "two*"), ..none() }, true);
        check("any value", Conditions { request_fields: field("x-a", "*"), ..none() }, true);
        check("other value", Conditions { request_fields: field("x-a", "four"), ..none() }, false);
        check("absent field", Conditions { request_fields: field("x-b", "*"), ..none() }, false);
        check("all of them", Conditions { scheme: Some("https"), ..path("/a/") }, false);
    }

    #[test]
    fn a_304_is_compared_as_what_it_validates() {
        let own = PackedFields::from_lines([("x-b", &b"new"[..])]);
        let stored =
            PackedFields::from_lines([("content-type", &b"Text/HTML; charset=utf-8"[..]), ("x-b", b"old")]);
        let validated = Some(Validated { status: 404, fields: stored.view() });
        let check = |status: u16, validated: Option<Validated<'_>>, on: Conditions, expected: bool| {
            let answer = SeenAnswer { status, fields: own.view(), validated };
            assert_eq!(fits(&on, &seen(), Some(&answer)), expected, "{status} {on:?}");
        };
        let statuses = |status| Conditions { statuses: vec![status], ..Conditions::default() };
        check(200, None, statuses(StatusMatch::Class(2)), true);
        check(304, None, statuses(StatusMatch::Exact(200)), true);
        check(304, None, statuses(StatusMatch::Exact(304)), true);
        check(304, validated, statuses(StatusMatch::Exact(404)), true);
        check(304, validated, statuses(StatusMatch::Exact(200)), false);
        check(206, None, statuses(StatusMatch::Exact(200)), true);
        check(206, None, statuses(StatusMatch::Exact(206)), true);
        check(500, None, statuses(StatusMatch::Exact(304)), false);
        let content = || Conditions { content_types: vec![glob("text/*")], ..Conditions::default() };
        check(304, validated, content(), true);
        check(304, None, content(), false);
        check(200, validated, content(), false);
        let fields = |value| Conditions { response_fields: field("x-b", value), ..Conditions::default() };
        check(304, validated, fields("new"), true);
        check(304, validated, fields("old"), false);
    }
}
