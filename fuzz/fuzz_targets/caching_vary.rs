//! Matches any response with `Vary` and any two requests: the second request gets the response to the first exactly
//! if a simple model finds the same members in all nominated fields.

#![no_main]

mod sections;

use caching::vary::NOMINATED_FIELDS_MAX;
use caching::{FieldLine, Negotiation, NominatedFields, Selecting};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (response, requests) = sections::cut(bytes);
    let (one, two) = sections::two(requests);
    let Ok(nominated) = NominatedFields::parse(&sections::lines(response)) else { return };
    check_names(&nominated);
    let captured = nominated.capture(as_sent(&one));
    assert!(nominated.matches(&captured, as_sent(&one)), "a request selects its own response");
    check_lines(&nominated, &one);
    check_selects(&nominated, &one, &two);
    check_negotiated(&nominated, &one, &two);
});

fn check_names(nominated: &NominatedFields) {
    let names: Vec<&str> = nominated.names().collect();
    assert!(names.len() <= NOMINATED_FIELDS_MAX);
    assert!(names.is_sorted_by(|one, two| one < two), "sorted, each once: {names:?}");
    assert!(names.iter().all(|name| !name.bytes().any(|byte| byte.is_ascii_uppercase())));
    assert_eq!(nominated.is_empty(), names.is_empty());
    assert_eq!(&NominatedFields::from_joined(nominated.as_str()), nominated);
}

/// Checks that captured values round-trip: the lines made from them are captured as the same values.
fn check_lines(nominated: &NominatedFields, request: &[FieldLine<'_>]) {
    for negotiation in [Negotiation::AsSent, Negotiation::Normalised] {
        let captured = nominated.capture(Selecting::new(request, negotiation));
        let lines = nominated.lines(&captured);
        let had: Vec<FieldLine<'_>> =
            lines.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        assert_eq!(nominated.capture(Selecting::new(&had, negotiation)), captured);
    }
}

fn check_selects(nominated: &NominatedFields, one: &[FieldLine<'_>], two: &[FieldLine<'_>]) {
    let is_same = nominated.names().all(|name| members(one, name) == members(two, name));
    let captured = nominated.capture(as_sent(one));
    assert_eq!(nominated.matches(&captured, as_sent(two)), is_same);
    let (mut key_of_one, mut key_of_two) = (Vec::new(), Vec::new());
    nominated.write_variant_key(as_sent(one), &mut key_of_one);
    nominated.write_variant_key(as_sent(two), &mut key_of_two);
    assert_eq!(key_of_one == key_of_two, is_same);
}

/// Checks that requests equal as sent are equal by meaning, and that a response is certain for the request that it
/// answered.
fn check_negotiated(nominated: &NominatedFields, one: &[FieldLine<'_>], two: &[FieldLine<'_>]) {
    let [one_means, two_means] = [one, two].map(|lines| Selecting::new(lines, Negotiation::Selecting));
    let captured = nominated.capture(one_means);
    assert!(nominated.matches(&captured, one_means));
    let is_same = nominated.matches(&captured, two_means);
    assert_eq!(is_same, nominated.capture(two_means) == captured);
    assert!(is_same || !nominated.matches(&nominated.capture(as_sent(one)), as_sent(two)));
    assert!(!is_same || nominated.is_certain(&captured, two_means, one));
}

fn as_sent<'a>(request: &'a [FieldLine<'a>]) -> Selecting<'a> {
    Selecting::new(request, Negotiation::AsSent)
}

/// Returns all members of a field, split byte by byte.
fn members(section: &[FieldLine<'_>], wanted: &str) -> Vec<Vec<u8>> {
    let values = section.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
    values.flat_map(|(_, value)| cut_at_commas(value)).collect()
}

fn cut_at_commas(value: &[u8]) -> Vec<Vec<u8>> {
    let mut members = vec![Vec::new()];
    let mut at = 0;
    while at < value.len() {
        let taken = match value[at] {
            b',' => {
                members.push(Vec::new());
                at += 1;
                continue;
            }
            b'"' => quoted_bytes(&value[at..]),
            _ => 1,
        };
        let member = members.last_mut().expect("there is always one");
        member.extend_from_slice(&value[at..at + taken]);
        at += taken;
    }
    members.iter().map(|member| blanks_cut(member).to_vec()).collect()
}

/// Returns the length of the quoted string at the beginning; an unclosed quote is one character.
fn quoted_bytes(text: &[u8]) -> usize {
    let mut is_escaped = false;
    for (index, byte) in text.iter().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return index + 1,
            _ => {}
        }
    }
    1
}

fn blanks_cut(value: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let Some(start) = value.iter().position(|byte| !is_blank(byte)) else { return b"" };
    let end = value.iter().rposition(|byte| !is_blank(byte)).expect("the same byte at least");
    &value[start..=end]
}
