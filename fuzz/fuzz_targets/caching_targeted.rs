//! Parses any header section with targeted fields: if one applies, no other field does, and a further line can
//! only add directives.

#![no_main]

mod sections;

use caching::directives::DELTA_SECONDS_MAX;
use caching::{Control, FieldLine, ResponseDirectives, Rules};
use libfuzzer_sys::fuzz_target;

const FIELD: &str = "CDN-Cache-Control";

fuzz_target!(|bytes: &[u8]| {
    let rules = Rules::default();
    let (section, more) = sections::two(bytes);
    let control = Control::of(&section, &rules);
    let directives = control.directives();
    let is_field = |line: &&FieldLine<'_>| line.0.eq_ignore_ascii_case(FIELD);
    let (own, others): (Vec<FieldLine<'_>>, Vec<FieldLine<'_>>) =
        section.iter().copied().partition(|line| is_field(&line));
    if control.is_targeted() {
        assert!(!own.is_empty());
        //= RFC 9213 section 2.2: Cache-Control and Expires are ignored beside a targeted field
        assert_eq!(Control::of(&own, &rules).directives(), directives);
    } else {
        //= RFC 9213 section 2.1: an empty or unparsable field is ignored
        assert_eq!(directives, ResponseDirectives::parse(&others));
    }
    check_bounds(&directives);
    check_others(&section, &more, &rules);
    check_addition(&section, &rules);
    check_joined(&own, &rules);
});

fn check_bounds(directives: &ResponseDirectives) {
    let seconds = [
        directives.max_age,
        directives.s_maxage,
        directives.stale_while_revalidate,
        directives.stale_if_error,
    ];
    assert!(seconds.into_iter().flatten().all(|seconds| seconds <= DELTA_SECONDS_MAX), "{directives:?}");
}

/// Checks that lines of other fields have no effect if a targeted field applies.
fn check_others(section: &[FieldLine<'_>], more: &[FieldLine<'_>], rules: &Rules) {
    let others = more.iter().copied().filter(|(name, _)| !name.eq_ignore_ascii_case(FIELD));
    let longer: Vec<FieldLine<'_>> = section.iter().copied().chain(others).collect();
    let (before, after) = (Control::of(section, rules), Control::of(&longer, rules));
    assert_eq!(before.is_targeted(), after.is_targeted());
    if before.is_targeted() {
        assert_eq!(before.directives(), after.directives());
    }
}

/// Checks that a valid field stays valid with a further line, whose directives are added.
fn check_addition(section: &[FieldLine<'_>], rules: &Rules) {
    let added = [section, &[("cdn-CACHE-control", &b"no-store, private=\"X-a, b\""[..])]].concat();
    let (before, after) = (Control::of(section, rules), Control::of(&added, rules));
    let had_none = !section.iter().any(|(name, _)| name.eq_ignore_ascii_case(FIELD));
    if before.is_targeted() || had_none {
        assert!(after.is_targeted());
    }
    if after.is_targeted() {
        assert!(after.directives().no_store);
        assert!(["x-A", "B"].iter().all(|name| after.is_qualified(name)));
    }
}

/// Checks that several lines have the same meaning as one joined value.
fn check_joined(own: &[FieldLine<'_>], rules: &Rules) {
    let joined = own.iter().map(|(_, value)| *value).collect::<Vec<_>>().join(&b", "[..]);
    let one: &[FieldLine<'_>] = &[(FIELD, &joined)];
    let (apart, together) = (Control::of(own, rules), Control::of(one, rules));
    assert_eq!((apart.is_targeted(), apart.directives()), (together.is_targeted(), together.directives()));
}
