//! Parses any bytes as `ETag` and as `If-None-Match`. A tag is strong exactly if the grammar allows it, lists
//! round-trip, and a client with the stored tag gets a 304, whatever else its list contains.

#![no_main]

use caching::entity_tag::Strength;
use caching::{
    EntityTag, EntityTags, ExchangeTimes, FieldLine, Precondition, RequestFacts, ResponseFacts, Rules,
    StoredFacts, Timestamp, Validators, conditional,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let parsed = EntityTag::parse(bytes);
    assert_eq!(parsed.is_some_and(|tag| tag.strength == Strength::Strong), is_strong(blanks_cut(bytes)));
    if let Some(tag) = parsed {
        assert!(tag.matches_weakly(&tag));
        assert_eq!(tag.matches_strongly(&tag), tag.strength == Strength::Strong);
    }
    let tags: Vec<EntityTag<'_>> = EntityTags::new(bytes).collect();
    let well_formed: Vec<EntityTag<'_>> =
        tags.iter().copied().filter(|tag| tag.opaque.iter().copied().all(is_etagc)).collect();
    let list = well_formed.iter().map(written).collect::<Vec<_>>().join(&b", "[..]);
    assert_eq!(EntityTags::new(&list).collect::<Vec<_>>(), well_formed, "{}", list.escape_ascii());
    for tag in &well_formed {
        check_known(&written(tag), bytes);
        check_known(&written(tag), &list);
    }
});

/// `entity-tag = DQUOTE *etagc DQUOTE`.
fn is_strong(value: &[u8]) -> bool {
    value.len() >= 2
        && value.starts_with(b"\"")
        && value.ends_with(b"\"")
        && value[1..value.len() - 1].iter().copied().all(is_etagc)
}

/// Returns whether a byte is visible or not ASCII, and isn't a quote.
fn is_etagc(byte: u8) -> bool {
    byte != b'"' && (byte.is_ascii_graphic() || !byte.is_ascii())
}

fn blanks_cut(value: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let Some(start) = value.iter().position(|byte| !is_blank(byte)) else { return b"" };
    let end = value.iter().rposition(|byte| !is_blank(byte)).expect("the same byte at least");
    &value[start..=end]
}

fn written(tag: &EntityTag<'_>) -> Vec<u8> {
    let prefix: &[u8] = if tag.strength == Strength::Strong { b"" } else { b"W/" };
    [prefix, b"\"", tag.opaque, b"\""].concat()
}

/// Checks that the response is not modified for a list with the tag, or with the tag after another line of the field.
//= RFC 9110 section 13.1.2: If-None-Match, weak comparison
fn check_known(etag: &[u8], list: &[u8]) {
    let now = Timestamp::from_seconds(1_800_000_000);
    let response: &[FieldLine<'_>] = &[("ETag", etag)];
    let times = ExchangeTimes { request: now, response: now, clock_ahead_ms: 0 };
    let (rules, get) = (Rules::default(), RequestFacts::parse("GET", &[]));
    let stored = StoredFacts::new(&get, &ResponseFacts::parse(200, response, times, &rules), &rules);
    let validators = Validators::parse(response, now);
    let other_line: FieldLine<'_> = ("If-None-Match", b"x\", \"");
    for lines in [&[("If-None-Match", list)][..], &[other_line, ("if-none-match", list)]] {
        let method = RequestFacts::parse("GET", lines).method;
        let precondition = conditional::evaluate(method, lines, &stored, &validators, now);
        assert_eq!(precondition, Precondition::NotModified, "{}", etag.escape_ascii());
    }
}
