//! Validation of stored responses with the origin server, and the meaning of its response (RFC 9111 sections 4.3.1,
//! 4.3.3, 4.3.4 and 3.2).

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::control::Control;
use crate::entity_tag::Strength;
use crate::{
    EntityTag, ExchangeTimes, FieldLine, ResponseFacts, Rules, StorageFilter, Timestamp, Validators, age,
    fields,
};

/// Indices of stored responses.
pub type Indexes = SmallVec<[usize; 4]>;

/// The properties of a stored response that decide whether a validation may name it.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Its validators.
    pub validators: Validators<'a>,
    /// Whether the response may answer only requests that select it, even if a 304 identifies it. This is the case if
    /// it is one of several codings of a content (it has `Content-Encoding`, or `Vary` names `Accept-Encoding`), or it
    /// belongs to one user (`Vary` names `Cookie` or `Authorization`).
    pub is_only_for_selected: bool,
}

/// Returns the stored responses that a validation request names, at most `max`: the one that the request selected, and
/// those that the origin server may select. `stored` has all responses under the key, most recent first.
///
/// A response that the request did not select is named only by a strong tag, and only if it neither is one of several
/// codings nor belongs to one user. A 304 to a weak tag doesn't prove that it is right for the request. Origin servers
/// that encode on the fly (nginx, Apache httpd) compare the tag of the plain file before they know which coding the
/// request selects.
//= RFC 9111 section 4.3.1: validators of the same URI
//= RFC 9111 section 4.3.1: responses that the request cannot choose
pub fn candidates(selected: Option<usize>, stored: &[Known<'_>], max: usize) -> Indexes {
    let own = selected.and_then(|index| stored.get(index)).map(|known| known.validators);
    // `If-Modified-Since` is ignored if there is an `If-None-Match`.
    let by_date_only = own.is_some_and(|own| own.entity_tag().is_none() && !own.is_empty());
    let others = stored.iter().enumerate().filter(|(index, known)| {
        let tag = known.validators.entity_tag();
        let is_strong = tag.is_some_and(|tag| tag.strength == Strength::Strong);
        Some(*index) != selected && is_strong && !known.is_only_for_selected && !by_date_only
    });
    selected.into_iter().chain(others.map(|(index, _)| index)).take(max).collect()
}

/// The kind of the first candidate of a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The response that the request selected.
    Selected,
    /// A response that the request did not select, because it selected none of the candidates.
    Other,
}

/// Returns the precondition fields of a validation of these candidates, which replace the client's precondition fields.
/// `Last-Modified` is sent back unchanged.
//= RFC 9111 section 4.3.1: entity tags are sent
pub fn conditional_fields<'a>(
    candidates: &[Validators<'a>],
    first: First,
) -> Vec<(&'static str, Cow<'a, [u8]>)> {
    let mut tags: Vec<&'a [u8]> = Vec::with_capacity(candidates.len());
    for tag in candidates.iter().filter_map(|candidate| candidate.etag) {
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    let etag = match tags[..] {
        [] => None,
        [only] => Some(Cow::Borrowed(only)),
        _ => Some(Cow::Owned(tags.join(&b", "[..]))),
    };
    //= RFC 9111 section 4.3.1: Last-Modified is sent
    let last_modified = match candidates {
        // A date proves nothing about a response that the request did not select.
        [only] if first == First::Selected => only.last_modified.map(|(text, _)| Cow::Borrowed(text)),
        _ => None,
    };
    let etag = etag.map(|etag| ("if-none-match", etag));
    etag.into_iter().chain(last_modified.map(|text| ("if-modified-since", text))).collect()
}

/// The meaning of the response to a validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// 304: freshen the candidates with these indices, at least one, and use the first.
    Freshen(Indexes),
    /// 304 that matches none of the candidates: repeat the request without preconditions.
    Unidentified,
    /// 5xx, or an invalid code: forward it, or use the stored response if [`crate::may_serve_stale`] permits.
    ServerError,
    /// Any other response: use it, and replace the stored one by it if it may be stored.
    Replace,
}

/// Judges the response to a validation of `candidates`, which are in order: the selected one, then the others, most
/// recent first.
//= RFC 9111 section 4.3.3: handling a validation response
pub fn judge(
    status: u16,
    answer: &[FieldLine<'_>],
    candidates: &[Validators<'_>],
    first: First,
    now: Timestamp,
) -> Answer {
    match status {
        304 => match identify(&Validators::parse(answer, now), candidates, first) {
            identified if identified.is_empty() => Answer::Unidentified,
            identified => Answer::Freshen(identified),
        },
        //= RFC 9110 section 15: status codes above 599 are treated as 5xx
        //= RFC 9111 section 4.3.3: a 5xx may count as no answer
        500..=999 => Answer::ServerError,
        //= RFC 9111 section 4.3.3: a full response answers the request
        _ => Answer::Replace,
    }
}

/// A stored response after a 304.
#[derive(Clone, Debug)]
pub struct Freshened<'a> {
    /// The updated fields, without `Age`, and without `Date` if the 304 has none.
    pub fields: Vec<FieldLine<'a>>,
    /// The facts for calling [`crate::may_store`] again, because the 304 may forbid storing.
    pub response: ResponseFacts,
}

/// Freshens a stored response with a 304 that arrived at `times`.
pub fn freshen<'a>(
    stored_status: u16,
    stored: &[FieldLine<'a>],
    not_modified: &'a [FieldLine<'a>],
    times: ExchangeTimes,
    rules: &Rules,
) -> Freshened<'a> {
    let fields = freshened_fields(stored, not_modified, rules);
    let mut response = ResponseFacts::parse(stored_status, &fields, times, rules);
    response.age_s = age::parse(not_modified);
    Freshened { fields, response }
}

/// Returns the stored fields after a 304: each field of the 304 replaces all stored lines of its name, at the position
/// of the first of them, or is appended. Fields about the content are kept, and fields that date the old response are
/// removed.
//= RFC 9111 section 3.2: updating stored header fields
pub fn freshened_fields<'a>(
    stored: &[FieldLine<'a>],
    not_modified: &'a [FieldLine<'a>],
    rules: &Rules,
) -> Vec<FieldLine<'a>> {
    let filter = StorageFilter::of(not_modified, rules);
    //= RFC 9111 section 3.2: fields that are not stored are not updated
    let is_update = |name: &str| filter.keeps(name) && !is_one_of(&KEPT_AS_STORED, name);
    let mut freshened: Vec<FieldLine<'a>> = Vec::with_capacity(stored.len() + not_modified.len());
    for (index, &(name, value)) in stored.iter().enumerate() {
        let is_replaced = is_update(name) && fields::contains(not_modified, name);
        if is_replaced && !fields::contains(&stored[..index], name) {
            freshened.extend(lines_named(not_modified, name));
        } else if !is_replaced && !is_one_of(&DATING_FIELDS, name) {
            freshened.push((name, value));
        }
    }
    let is_new = |name: &str| is_update(name) && !fields::contains(stored, name);
    freshened.extend(not_modified.iter().copied().filter(|(name, _)| is_new(name)));
    without_qualified(&freshened, rules)
}

/// Limits of the header section of an origin's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Number of field lines.
    pub fields_max: usize,
    /// Total bytes of names and values.
    pub bytes_max: usize,
}

/// Returns whether updates have made a stored header section larger than the limits for a response. A header section
/// that exceeded the limits on arrival may keep its size. Without this check, the header section could grow with each
/// 304 that adds new names.
pub fn outgrows<'a>(
    updated: impl IntoIterator<Item = FieldLine<'a>>,
    stored: &[FieldLine<'_>],
    limits: HeadLimits,
) -> bool {
    let bytes_of = |(name, value): &FieldLine<'_>| name.len() + value.len();
    let stored_bytes = || stored.iter().map(bytes_of).sum::<usize>();
    let (fields, bytes) =
        updated.into_iter().fold((0, 0), |(fields, bytes), line| (fields + 1, bytes + bytes_of(&line)));
    (fields > limits.fields_max && fields > stored.len())
        || (bytes > limits.bytes_max && bytes > stored_bytes())
}

/// Removes the fields that `no-cache` and `private` of the freshened response name, whether the directive comes from
/// the 304 or from the stored response.
//= RFC 9111 section 3.1: qualified no-cache and private keep fields out
fn without_qualified<'a>(lines: &[FieldLine<'a>], rules: &Rules) -> Vec<FieldLine<'a>> {
    let control = Control::of(lines, rules);
    lines.iter().copied().filter(|(name, _)| !control.is_qualified(name)).collect()
}

/// Returns the stored responses that a 304 identifies: all with its strong tag; else the selected one, if it has its
/// weak tag and date. (Responses that the request did not select are named by strong tags alone, so that origin servers
/// that compare dates, or answer without validators, can't pass one client's response to another.) A 304 without
/// validators identifies the only candidate: the request named only its validators, and a 304 confirms them. (Taken
/// literally, section 4.3.4 identifies it only if it has no validators either, which would make validation impossible
/// with origin servers that omit them from their 304s.)
//= RFC 9111 section 4.3.4: strong validators select all that share one
//= RFC 9111 section 4.3.4: a weak validator selects the most recent
//= RFC 9111 section 4.3.4: no validator selects a single response without
fn identify(answer: &Validators<'_>, candidates: &[Validators<'_>], first: First) -> Indexes {
    let selected = &candidates[..usize::from(first == First::Selected).min(candidates.len())];
    let Some(tag) = answer.entity_tag() else {
        // A 304 without validators is ambiguous if several were named.
        let is_clear = answer.last_modified.is_some() || candidates.len() == 1;
        return if is_clear { identify_by_date(answer, selected) } else { Indexes::new() };
    };
    let strongly = move |candidate: &Validators<'_>| is_tagged(candidate, tag, Strength::Strong);
    let weakly = move |candidate: &Validators<'_>| is_tagged(candidate, tag, Strength::Weak);
    match tag.strength {
        Strength::Strong => positions(candidates, strongly).collect(),
        // The strong validator decides; the weak one must match too, as a precaution.
        Strength::Weak if answer.is_last_modified_strong() => {
            let both = |candidate: &Validators<'_>| weakly(candidate) && same_date(answer, candidate);
            positions(selected, both).collect()
        }
        Strength::Weak => positions(selected, weakly).collect(),
    }
}

fn identify_by_date(answer: &Validators<'_>, selected: &[Validators<'_>]) -> Indexes {
    let is_bare = answer.last_modified.is_none();
    positions(selected, |candidate| is_bare || same_date(answer, candidate)).collect()
}

fn is_tagged(candidate: &Validators<'_>, tag: EntityTag<'_>, comparison: Strength) -> bool {
    candidate.entity_tag().is_some_and(|stored| match comparison {
        Strength::Strong => tag.matches_strongly(&stored),
        Strength::Weak => tag.matches_weakly(&stored),
    })
}

fn same_date(answer: &Validators<'_>, candidate: &Validators<'_>) -> bool {
    let dates = answer.last_modified.zip(candidate.last_modified);
    dates.is_some_and(|((_, answered), (_, stored))| answered == stored)
}

fn positions<'a>(
    candidates: &'a [Validators<'a>],
    matches: impl Fn(&Validators<'a>) -> bool + 'a,
) -> impl Iterator<Item = usize> + 'a {
    let matching = candidates.iter().enumerate().filter(move |(_, candidate)| matches(candidate));
    matching.map(|(index, _)| index)
}

fn lines_named<'a>(section: &'a [FieldLine<'a>], wanted: &str) -> impl Iterator<Item = FieldLine<'a>> {
    section.iter().copied().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted))
}

fn is_one_of(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// These fields describe the stored content, and a 304 often has wrong ones: section 3.2 excludes the length, and lets
/// a cache keep the fields that it needs to process the content.
//= RFC 9111 section 3.2: Content-Length is not updated
//= RFC 9111 section 3.2: Content-Range may be left out
//= RFC 9111 section 3.2: fields that the stored form depends on
//= RFC 9111 section 3.2: few omissions
//= RFC 9111 section 3.2: the prefix Content- is no signal
const KEPT_AS_STORED: [&str; 4] = ["content-length", "content-encoding", "content-type", "content-range"];

/// Fields that date the message with which they arrive.
const DATING_FIELDS: [&str; 2] = ["age", "date"];

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(784_111_777);
    const DATE: &[u8] = b"Sunday, 06-Nov-94 08:49:37 GMT";

    fn check(candidates: &[&[FieldLine<'_>]], expected: &[FieldLine<'_>]) {
        let candidates: Vec<_> = candidates.iter().map(|lines| Validators::parse(lines, NOW)).collect();
        let fields = conditional_fields(&candidates, First::Selected);
        let fields: Vec<FieldLine<'_>> = fields.iter().map(|(name, value)| (*name, &value[..])).collect();
        assert_eq!(fields, expected);
    }

    //= RFC 9111 section 4.3.1: entity tags are sent
    //= RFC 9111 section 4.3.1: Last-Modified is sent
    #[test]
    fn validators_go_back_as_they_came() {
        check(&[], &[]);
        check(&[&[]], &[]);
        check(&[&[("etag", b"W/\"a\"")]], &[("if-none-match", b"W/\"a\"")]);
        check(
            &[&[("last-modified", DATE), ("ETag", b"a")]],
            &[("if-none-match", b"a"), ("if-modified-since", DATE)],
        );
        check(&[&[("Last-Modified", b"yesterday")]], &[]);
    }

    //= RFC 9111 section 4.3.1: Last-Modified is sent
    #[test]
    fn several_candidates_send_each_tag_once_and_no_date() {
        check(
            &[&[("etag", b"\"a\""), ("last-modified", DATE)], &[("etag", b"\"b\"")], &[("etag", b"\"a\"")]],
            &[("if-none-match", b"\"a\", \"b\"")],
        );
    }

    #[test]
    fn a_head_does_not_outgrow_what_one_response_may_have() {
        const LIMITS: HeadLimits = HeadLimits { fields_max: 2, bytes_max: 10 };
        let check = |updated: &[FieldLine<'_>], stored: &[FieldLine<'_>], expected| {
            assert_eq!(outgrows(updated.iter().copied(), stored, LIMITS), expected, "{updated:?} {stored:?}");
        };
        const A: FieldLine<'_> = ("a", b"1");
        const LONG: FieldLine<'_> = ("b", b"123456789x");
        check(&[A, A], &[], false);
        check(&[A, A, A], &[A], true);
        check(&[A, A, A], &[A, A, A], false);
        check(&[LONG], &[A], true);
        check(&[LONG], &[LONG], false);
        check(&[LONG, A], &[LONG], true);
    }

    fn named(
        selected: Option<usize>,
        stored: &[(&'static [FieldLine<'static>], bool)],
        max: usize,
    ) -> Vec<usize> {
        let known = |(lines, is_only_for_selected): &(&'static [FieldLine<'static>], bool)| Known {
            validators: Validators::parse(lines, NOW),
            is_only_for_selected: *is_only_for_selected,
        };
        let stored: Vec<_> = stored.iter().map(known).collect();
        candidates(selected, &stored, max).to_vec()
    }

    #[test]
    fn the_date_of_what_is_not_selected_is_not_sent() {
        let known = [Validators::parse(&[("etag", b"\"a\""), ("last-modified", DATE)], NOW)];
        let fields = conditional_fields(&known, First::Other);
        assert_eq!(fields.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["if-none-match"]);
    }

    //= RFC 9111 section 4.3.1: validators of the same URI
    #[test]
    fn others_are_named_by_strong_tags_of_plain_content() {
        const A: &[FieldLine<'_>] = &[("etag", b"\"a\"")];
        const B: &[FieldLine<'_>] = &[("etag", b"\"b\"")];
        const WEAK: &[FieldLine<'_>] = &[("etag", b"W/\"w\"")];
        const DATED: &[FieldLine<'_>] = &[("last-modified", DATE)];
        assert_eq!(named(Some(1), &[(A, false), (B, false)], 9), [1, 0]);
        assert_eq!(named(Some(1), &[(A, false), (B, false)], 1), [1]);
        assert_eq!(named(None, &[(A, false), (WEAK, false), (B, true)], 9), [0]);
        assert_eq!(named(Some(1), &[(A, false), (WEAK, false)], 9), [1, 0]);
        assert_eq!(named(Some(0), &[(DATED, false), (A, false)], 9), [0]);
        assert_eq!(named(Some(0), &[(&[], false), (A, false)], 9), [0, 1]);
        assert_eq!(named(None, &[(DATED, false)], 9), [0; 0]);
    }
}
