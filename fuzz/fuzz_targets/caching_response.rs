//! Stores any header section as a response: checks the stored fields, the effect of a 304, and the
//! prohibition of no-store.

#![no_main]

mod sections;

use caching::{
    ExchangeTimes, HopByHop, RequestFacts, ResponseFacts, Rules, StorageFilter, Timestamp, may_store,
    validation,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (stored, not_modified) = sections::two(bytes);
    let now = Timestamp::from_seconds(1_800_000_000);
    let times = ExchangeTimes { request: now, response: now, clock_ahead_ms: 0 };
    // A targeted field would replace `Cache-Control`, and must-understand makes the cache ignore no-store.
    let rules = Rules { targeted_fields: Box::default(), ..Rules::default() };
    let request = RequestFacts::parse("GET", &[]);
    let facts = ResponseFacts::parse(200, &stored, times, &rules);
    let storable = may_store(&request, &facts, &rules, now);
    let forbidden: Vec<_> = stored.iter().copied().chain([("Cache-Control", &b"no-store"[..])]).collect();
    let is_understood = facts.directives.must_understand;
    let with_no_store =
        may_store(&request, &ResponseFacts::parse(200, &forbidden, times, &rules), &rules, now);
    assert!(with_no_store.is_err() || is_understood);
    if storable.is_ok() {
        assert!(!facts.directives.no_store || is_understood);
    }
    let hop_by_hop = HopByHop::of(&stored);
    assert!(StorageFilter::of(&stored, &rules).kept().all(|(name, _)| !hop_by_hop.contains(name)));
    let freshened = validation::freshen(200, &stored, &not_modified, times, &rules);
    for kept in ["Content-Type", "Content-Encoding", "Content-Range"] {
        let values = |lines: &[caching::FieldLine<'_>]| -> Vec<Vec<u8>> {
            caching::fields::values(lines, kept).map(<[u8]>::to_vec).collect()
        };
        assert_eq!(values(&freshened.fields), values(&stored), "{kept} describes the stored content");
    }
});
