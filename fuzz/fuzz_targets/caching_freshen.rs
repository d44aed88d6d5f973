//! Freshens any response with any 304: neither the stored nor the freshened response has connection-specific fields,
//! and applying the same 304 again has no effect.

#![no_main]

mod sections;

use caching::{ExchangeTimes, FieldLine, HopByHop, Rules, StorageFilter, Timestamp, validation};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (response, not_modified) = sections::two(bytes);
    let now = Timestamp::from_seconds(1_800_000_000);
    let times = ExchangeTimes { request: now, response: now, clock_ahead_ms: 0 };
    let rules = Rules::default();
    let stored: Vec<FieldLine<'_>> = StorageFilter::of(&response, &rules).kept().collect();
    check_kept(&stored, &response);
    let freshened = validation::freshen(200, &stored, &not_modified, times, &rules).fields;
    let (kept, updated): (Vec<_>, Vec<_>) =
        freshened.iter().copied().partition(|line| is_line_of(line, &stored));
    check_kept(&updated, &not_modified);
    // Fields that the response itself excluded from storing don't reappear.
    check_kept(&kept, &response);
    let again = validation::freshened_fields(&freshened, &not_modified, &rules);
    assert_eq!(by_name(again), by_name(freshened));
});

/// Returns whether this line itself, not an equal one, is in the section.
fn is_line_of(line: &FieldLine<'_>, section: &[FieldLine<'_>]) -> bool {
    section.iter().any(|known| std::ptr::eq(known.0, line.0) && std::ptr::eq(known.1, line.1))
}

/// Checks that each kept line is in `section`, and that nothing in the section forbids keeping it.
//= RFC 9111 section 3.1: fields that are not stored
fn check_kept(kept: &[FieldLine<'_>], section: &[FieldLine<'_>]) {
    for line in kept {
        assert!(is_line_of(line, section));
        let name = line.0.to_ascii_lowercase();
        assert!(!NEVER_KEPT.contains(&&name[..]), "{name}");
        assert!(!is_nominated(section, &name), "{name}");
        assert!(!HopByHop::of(section).contains(&name), "{name}");
    }
}

/// Splits without regard to quoted strings; other checks cover lines with quotes.
fn is_nominated(section: &[FieldLine<'_>], name: &str) -> bool {
    let options = section
        .iter()
        .filter(|(field, value)| field.eq_ignore_ascii_case("connection") && !value.contains(&b'"'))
        .flat_map(|(_, value)| value.split(|byte| *byte == b','));
    let is_option =
        options.into_iter().any(|option| option.trim_ascii().eq_ignore_ascii_case(name.as_bytes()));
    is_option && !["host", "content-length", "content-range", "cache-control"].contains(&name)
}

/// Sorts by name: only the order of lines of the same name is significant.
fn by_name(mut section: Vec<FieldLine<'_>>) -> Vec<FieldLine<'_>> {
    section.sort_by_key(|(name, _)| name.to_ascii_lowercase());
    section
}

const NEVER_KEPT: [&str; 12] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "age",
    "set-cookie",
];
