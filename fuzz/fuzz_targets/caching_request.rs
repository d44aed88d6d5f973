//! Evaluates any header section as a request for a stored response, with its directives, preconditions, ranges and
//! nominated fields.

#![no_main]

mod sections;

use caching::multipart::Multipart;
use caching::{
    ByteRange, ExchangeTimes, Negotiation, NominatedFields, RequestFacts, ResponseFacts, Reuse, Rules,
    Selecting, StoredFacts, Timestamp, Validators, conditional, range, reuse,
};
use libfuzzer_sys::fuzz_target;

const COMPLETE_BYTES: u64 = 1000;

fuzz_target!(|bytes: &[u8]| {
    let (request, response) = sections::two(bytes);
    let now = Timestamp::from_seconds(1_800_000_000);
    let times = ExchangeTimes { request: now, response: now, clock_ahead_ms: 0 };
    let rules = Rules::default();
    let facts = RequestFacts::parse("GET", &request);
    let stored = StoredFacts::new(&facts, &ResponseFacts::parse(200, &response, times, &rules), &rules);
    let validators = Validators::parse(&response, now);
    if reuse(&facts, &stored, &rules, now) == Reuse::Fresh {
        assert!(stored.ttl_ms(now) > 0, "fresh responses have time left");
    }
    conditional::evaluate(facts.method, &request, &stored, &validators, now);
    check_ranges(&range::evaluate(facts.method, &request, &stored, &validators, COMPLETE_BYTES, now));
    if let Ok(nominated) = NominatedFields::parse(&response) {
        let captured = nominated.capture(Selecting::new(&request, Negotiation::Selecting));
        assert!(
            nominated.matches(&captured, Selecting::new(&request, Negotiation::Selecting)),
            "a request selects its own response"
        );
    }
});

fn check_ranges(ranges: &range::Ranges) {
    match ranges {
        range::Ranges::Single(range) => check_range(range),
        range::Ranges::Multi(list) => {
            list.iter().for_each(check_range);
            check_multipart(list);
        }
        range::Ranges::Whole | range::Ranges::Unsatisfiable => {}
    }
}

fn check_range(range: &ByteRange) {
    assert!(range.first <= range.last && range.last < COMPLETE_BYTES, "{range:?}");
}

fn check_multipart(ranges: &[ByteRange]) {
    let multipart =
        Multipart { boundary: b"b", content_type: Some(b"text/plain"), complete_bytes: COMPLETE_BYTES };
    let mut written = Vec::new();
    let mut body_bytes = 0;
    for range in ranges {
        multipart.write_part_head(*range, &mut written);
        body_bytes += range.len_bytes();
    }
    multipart.write_end(&mut written);
    assert_eq!(written.len() as u64 + body_bytes, multipart.total_bytes(ranges));
}
