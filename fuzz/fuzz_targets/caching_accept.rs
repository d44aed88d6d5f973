//! Compares any two values of `Accept-Encoding` or `Accept-Language`: values that differ only in spelling are
//! equal, and a certain response is acceptable.

#![no_main]

use caching::{FieldLine, Negotiation, NominatedFields, Selecting, fields};
use libfuzzer_sys::fuzz_target;

/// The request field, and the response field with the selected value.
const DIMENSIONS: [(&str, &str); 2] =
    [("Accept-Encoding", "Content-Encoding"), ("Accept-Language", "Content-Language")];

const MEMBERS_MAX: usize = 16;
const RANGE_BYTES_MAX: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.split(|byte| matches!(byte, b'\n' | b'\r' | 0)).map(<[u8]>::trim_ascii);
    let [then, now, content] = std::array::from_fn(|_| lines.next().unwrap_or_default());
    for dimension in DIMENSIONS {
        check_spelling(dimension, now);
        check_choice(dimension, then, now, content);
    }
});

/// Returns ranges with weights in thousandths, if the value has a meaning.
fn understood(value: &[u8]) -> Option<Vec<(String, u32)>> {
    let mut known: Vec<(String, u32)> = Vec::new();
    for member in value.split(|byte| *byte == b',').map(blanks_cut).filter(|member| !member.is_empty()) {
        let (range, weight) = preference(std::str::from_utf8(member).ok()?)?;
        let range = match range.to_ascii_lowercase().as_str() {
            "x-gzip" => "gzip".to_owned(),
            "x-compress" => "compress".to_owned(),
            other => other.to_owned(),
        };
        match known.iter().find(|(name, _)| *name == range) {
            Some((_, other)) if *other == weight => {}
            Some(_) => return None,
            None => known.push((range, weight)),
        }
    }
    (known.len() <= MEMBERS_MAX).then_some(known)
}

fn preference(member: &str) -> Option<(&str, u32)> {
    let (range, weight) = match member.split_once(';') {
        None => (member, 1000),
        Some((range, parameter)) => (range.trim_end_matches([' ', '\t']), weight(parameter)?),
    };
    (fields::is_token(range.as_bytes()) && range.len() <= RANGE_BYTES_MAX).then_some((range, weight))
}

fn weight(parameter: &str) -> Option<u32> {
    let number = parameter.trim_matches([' ', '\t']).strip_prefix(['q', 'Q'])?.strip_prefix('=')?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = fraction.len() <= 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let thousandths: u32 = format!("{fraction:0<3}").parse().ok().filter(|_| is_number)?;
    match whole {
        "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(1000),
        _ => None,
    }
}

fn blanks_cut(value: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let Some(start) = value.iter().position(|byte| !is_blank(byte)) else { return b"" };
    let end = value.iter().rposition(|byte| !is_blank(byte)).expect("the same byte at least");
    &value[start..=end]
}

struct Choice {
    is_same: bool,
    is_certain: bool,
}

fn choice((field, content_field): (&str, &str), then: &[u8], now: &[u8], content: &[u8]) -> Choice {
    let response: &[FieldLine<'_>] = &[("Vary", field.as_bytes()), (content_field, content)];
    let nominated = NominatedFields::parse(response).expect("one name");
    let (then, now): ([FieldLine<'_>; 1], [FieldLine<'_>; 1]) = ([(field, then)], [(field, now)]);
    let [then, now] = [&then, &now].map(|lines| Selecting::new(lines, Negotiation::Selecting));
    let captured = nominated.capture(then);
    Choice {
        is_same: nominated.matches(&captured, now),
        is_certain: nominated.is_certain(&captured, now, response),
    }
}

/// Checks the same members in reverse order, in upper case, and with spaces and empty members between them.
fn check_spelling(dimension: (&str, &str), value: &[u8]) {
    assert!(choice(dimension, value, value, b"").is_same);
    if understood(value).is_none() {
        return;
    }
    let mut members: Vec<&[u8]> = value.split(|byte| *byte == b',').collect();
    members.reverse();
    let spelt = members.join(&b" ,\t, "[..]).to_ascii_uppercase();
    assert!(choice(dimension, value, &spelt, b"").is_same, "{}", value.escape_ascii());
}

fn check_choice(dimension: (&str, &str), then: &[u8], now: &[u8], content: &[u8]) {
    let Choice { is_same, is_certain } = choice(dimension, then, now, content);
    if is_same || !is_certain {
        return;
    }
    let preferences = understood(now).expect("a value without a meaning makes no response certain");
    let content = std::str::from_utf8(content).expect("one token").trim_matches([' ', '\t', ',']);
    let content = content.to_ascii_lowercase();
    let weight = match dimension.0 {
        "Accept-Encoding" => weight_of_coding(&preferences, &content),
        _ => weight_of_language(&preferences, &content),
    };
    assert!(weight > 0, "{} is served {content}", now.escape_ascii());
}

fn weight_of_coding(preferences: &[(String, u32)], content: &str) -> u32 {
    let coding = match content {
        "" => "identity",
        "x-gzip" => "gzip",
        "x-compress" => "compress",
        other => other,
    };
    let listed =
        |wanted: &str| preferences.iter().find(|(range, _)| range == wanted).map(|(_, weight)| *weight);
    listed(coding).or_else(|| listed("*")).unwrap_or(u32::from(coding == "identity"))
}

fn weight_of_language(preferences: &[(String, u32)], tag: &str) -> u32 {
    let matching = preferences.iter().filter(|(range, _)| {
        range == "*"
            || tag == range
            || tag.strip_prefix(range.as_str()).is_some_and(|rest| rest.starts_with('-'))
    });
    matching
        .max_by_key(|(range, _)| if range == "*" { 0 } else { range.len() })
        .map_or(0, |(_, weight)| *weight)
}
