//! Asking the origin server whether a stored response still holds, and what its answer means
//! (RFC 9111 sections 4.3.1, 4.3.3, 4.3.4 and 3.2).

use crate::entity_tag::Strength;
use crate::{
    ExchangeTimes, FieldLine, ResponseFacts, Rules, StorageFilter, Timestamp, Validators, age, fields,
};

/// The precondition fields to send with a validation, in place of those of the client. `Last-Modified`
/// goes back as it came.
//= RFC 9111 section 4.3.1: entity tags are sent
//= RFC 9111 section 4.3.1: Last-Modified is sent
pub fn conditional_fields<'a>(stored: &Validators<'a>) -> impl Iterator<Item = FieldLine<'a>> {
    let etag = stored.etag.map(|etag| ("If-None-Match", etag));
    let last_modified = stored.last_modified.map(|(text, _)| ("If-Modified-Since", text));
    etag.into_iter().chain(last_modified)
}

/// What the answer to a validation means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// 304: freshen the candidate with this index and use it.
    Freshen(usize),
    /// 304, but for none of the candidates: ask again without preconditions.
    Unidentified,
    /// 5xx, or no valid code: forward it, or use the stored response where [`crate::may_serve_stale`] permits.
    ServerError,
    /// Any other response: use it, and it takes the place of the stored one where it may be stored.
    Replace,
}

/// Judges the answer to a validation that was sent for `candidates`, most recent first.
//= RFC 9111 section 4.3.3: handling a validation response
pub fn judge(status: u16, answer: &[FieldLine<'_>], candidates: &[Validators<'_>], now: Timestamp) -> Answer {
    match status {
        304 => identify(&Validators::parse(answer, now), candidates)
            .map_or(Answer::Unidentified, Answer::Freshen),
        //= RFC 9110 section 15: status codes above 599 are treated as 5xx
        500..=999 => Answer::ServerError,
        _ => Answer::Replace,
    }
}

/// A stored response after a 304.
#[derive(Clone, Debug)]
pub struct Freshened<'a> {
    /// Its fields now, without `Age`, and without `Date` where the 304 has none.
    pub fields: Vec<FieldLine<'a>>,
    /// What to decide by: [`crate::may_store`] again, for the 304 may forbid what was permitted before.
    pub response: ResponseFacts,
}

/// Freshens a stored response with a 304 that came at `times`.
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

/// The stored fields after a 304: each field of the 304 replaces all lines of its name, at the place of
/// the first, or is appended. What describes the content stays, what dates the old response goes.
//= RFC 9111 section 3.2: updating stored header fields
pub fn freshened_fields<'a>(
    stored: &[FieldLine<'a>],
    not_modified: &'a [FieldLine<'a>],
    rules: &Rules,
) -> Vec<FieldLine<'a>> {
    let filter = StorageFilter::of(not_modified, rules);
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
    freshened
}

/// Which stored response a 304 is about. A 304 without validators is about the only candidate: the
/// request named that one's validators and no others, and a 304 to them says that they hold. (Taken to
/// the letter, section 4.3.4 identifies it only if it has no validators either, which would make origin
/// servers that leave them out of their 304s impossible to validate with.)
//= RFC 9111 section 4.3.4: strong validators select all that share one
//= RFC 9111 section 4.3.4: a weak validator selects the most recent
//= RFC 9111 section 4.3.4: no validator selects a single response without
fn identify(answer: &Validators<'_>, candidates: &[Validators<'_>]) -> Option<usize> {
    let Some(tag) = answer.entity_tag() else {
        return identify_by_date(answer, candidates);
    };
    candidates.iter().position(|candidate| {
        candidate.entity_tag().is_some_and(|stored| match tag.strength {
            Strength::Strong => tag.matches_strongly(&stored),
            Strength::Weak => tag.matches_weakly(&stored),
        })
    })
}

fn identify_by_date(answer: &Validators<'_>, candidates: &[Validators<'_>]) -> Option<usize> {
    match answer.last_modified {
        Some((_, modified)) => candidates
            .iter()
            .position(|candidate| candidate.last_modified.is_some_and(|(_, stored)| stored == modified)),
        None => (candidates.len() == 1).then_some(0),
    }
}

fn lines_named<'a>(section: &'a [FieldLine<'a>], wanted: &str) -> impl Iterator<Item = FieldLine<'a>> {
    section.iter().copied().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted))
}

fn is_one_of(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// They describe the stored content, and a 304 often has others by mistake: section 3.2 excludes the
/// length and lets a cache leave out those that content is processed by.
const KEPT_AS_STORED: [&str; 4] = ["content-length", "content-encoding", "content-type", "content-range"];

/// They date the response they came with.
const DATING_FIELDS: [&str; 2] = ["age", "date"];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(response: &[FieldLine<'_>], expected: &[FieldLine<'_>]) {
        let validators = Validators::parse(response, Timestamp::from_seconds(784_111_777));
        assert_eq!(conditional_fields(&validators).collect::<Vec<_>>(), expected);
    }

    //= RFC 9111 section 4.3.1: entity tags are sent
    //= RFC 9111 section 4.3.1: Last-Modified is sent
    #[test]
    fn validators_go_back_as_they_came() {
        let date: &[u8] = b"Sunday, 06-Nov-94 08:49:37 GMT";
        check(&[], &[]);
        check(&[("etag", b"W/\"a\"")], &[("If-None-Match", b"W/\"a\"")]);
        check(
            &[("last-modified", date), ("ETag", b"a")],
            &[("If-None-Match", b"a"), ("If-Modified-Since", date)],
        );
        check(&[("Last-Modified", b"yesterday")], &[]);
    }
}
