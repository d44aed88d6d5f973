//! Selects the coding for any request and any response: according to a straightforward interpretation, the client
//! accepts the coding, and the origin's entity tag can be derived from the tag of each form.

#![no_main]

use caching::compression::{Coding, Compressible, ContentTypes, names_form, tag_in, with_tags_of_origin};
use caching::{EntityTag, EntityTags, FieldLine, RequestFacts, entity_tag::Strength};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.split(|byte| matches!(byte, b'\n' | b'\r' | 0)).map(<[u8]>::trim_ascii);
    let [accept, content_type, control, tag, named] =
        std::array::from_fn(|_| lines.next().unwrap_or_default());
    let content_types = ContentTypes::parse(["text/*", "application/json", "*/*+xml"]).expect("patterns");
    let offer = Compressible { codings: Coding::ALL.to_vec(), content_types, bytes_min: 0 };
    let response: [FieldLine<'_>; 2] = [("Content-Type", content_type), ("Cache-Control", control)];
    let _ = offer.may_encode(200, response.into_iter(), None, &caching::Rules::default());
    let request: [FieldLine<'_>; 1] = [("Accept-Encoding", accept)];
    if let Ok(coding) = offer.choose(&RequestFacts::parse("GET", &request), &request) {
        check_accepted(accept, coding);
    }
    Coding::ALL.iter().for_each(|coding| check_tag(tag, *coding, named));
});

/// Checks that the coding, or the asterisk, is listed with a weight other than zero.
fn check_accepted(accept: &[u8], coding: Coding) {
    let text =
        std::str::from_utf8(accept).expect("the value consists of tokens and weights").to_ascii_lowercase();
    let weight_of = |wanted: &str| {
        let mut members = text.split(',').map(|member| member.split_once(';').unwrap_or((member, "q=1")));
        let member = members.find(|(name, _)| name.trim_matches([' ', '\t']) == wanted);
        member.map(|(_, weight)| weight.contains(|digit: char| ('1'..='9').contains(&digit)))
    };
    let names = if coding == Coding::Gzip { &["gzip", "x-gzip"][..] } else { &[coding.name()] };
    let listed = names.iter().find_map(|name| weight_of(name));
    assert_eq!(listed.or_else(|| weight_of("*")), Some(true), "{text:?}: {coding:?}");
}

fn check_tag(tag: &[u8], coding: Coding, named: &[u8]) {
    with_tags_of_origin([named].into_iter(), &[coding]);
    let Some(form) = tag_in(coding, tag) else { return };
    let origin = EntityTag::parse(tag).expect("a tag that has a form");
    assert_eq!(origin.strength, Strength::Strong);
    assert!(names_form([&form[..]].into_iter(), &form));
    let list = with_tags_of_origin([named, &form].into_iter(), &[coding]);
    if named.is_empty() {
        let list = list.expect("the form is named");
        assert!(EntityTags::new(&list).any(|tag| tag.matches_strongly(&origin)));
    }
}
