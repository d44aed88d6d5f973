//! Properties that hold for every request, response and time.

use std::borrow::Cow;

use caching::facts::ExchangeTimes;
use caching::forwarded::{End, Hop, Node};
use caching::invalidation::{self, Target};
use caching::multipart::Multipart;
use caching::validation;
use caching::{
    CacheKey, Failure, FieldLine, Hops, KeyParts, KeyRules, MethodClass, Negotiation, NominatedFields,
    Precondition, Profile, Qualified, QueryOrder, QueryParameters, Ranges, RequestFacts, ResponseFacts,
    Reuse, Rules, Selecting, StaleLimit, StatusMatch, StoredFacts, StoredValidators, Timestamp, TtlTable,
    Validators, conditional, groups, may_serve_stale, may_store, may_store_by_directives, query, range,
    reuse,
};
use proptest::collection::vec;
use proptest::prelude::*;

type Lines = Vec<(String, Vec<u8>)>;

fn borrowed(lines: &Lines) -> Vec<FieldLine<'_>> {
    lines.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect()
}

fn line(name: &'static str, values: &'static [&'static str]) -> BoxedStrategy<(String, Vec<u8>)> {
    prop::sample::select(values).prop_map(move |value| (name.to_owned(), value.as_bytes().to_vec())).boxed()
}

const CONTENT_FIELDS: [&str; 4] =
    ["content-type", "content-encoding", "content-language", "content-location"];

/// Generates few different values, so that sections are sometimes equal.
fn content_lines() -> impl Strategy<Value = Lines> {
    let name = prop::sample::select(&CONTENT_FIELDS[..2]).prop_map(str::to_owned);
    vec((name, vec(prop::sample::select(&[0_u8, 1, b'a'][..]), 0..2)), 0..3)
}

fn response_lines() -> impl Strategy<Value = Lines> {
    let cache_control: &[&str] = &[
        "max-age=60",
        "s-maxage=10",
        "max-age=0",
        "max-age=x",
        "public",
        "private",
        "private=\"x\"",
        "no-cache",
        "no-cache=\"x\"",
        "must-revalidate",
        "proxy-revalidate",
        "must-understand",
        "stale-while-revalidate=30",
        "stale-if-error=30",
        "immutable",
        "x=\"",
    ];
    let targeted: &[&str] = &[
        "max-age=60",
        "no-store",
        "private",
        "no-cache",
        "must-revalidate",
        "max-age=",
        "public, s-maxage=9",
    ];
    let dates: &[&str] =
        &["Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:50:37 GMT", "Sat Nov  5 08:49:37 1994", "0"];
    let choice = prop_oneof![
        6 => line("Cache-Control", cache_control),
        1 => line("CDN-Cache-Control", targeted),
        1 => line("Date", dates),
        1 => line("Expires", dates),
        1 => line("Last-Modified", dates),
        1 => line("Age", &["0", "5", "100", "-1", "99999999999"]),
        1 => line("ETag", &["\"a\"", "W/\"a\"", "a"]),
        1 => line("Vary", &["Accept", "*", "x y", ""]),
        1 => line("Set-Cookie", &["a=b"]),
        1 => line("X", &["1", "2"]),
        1 => line("Connection", &["close", "x"]),
    ];
    vec(choice, 0..8)
}

fn request_lines() -> impl Strategy<Value = Lines> {
    let cache_control: &[&str] = &[
        "no-cache",
        "no-store",
        "max-age=5",
        "max-stale",
        "max-stale=20",
        "min-fresh=5",
        "only-if-cached",
        "stale-if-error=20",
    ];
    let choice = prop_oneof![
        4 => line("Cache-Control", cache_control),
        1 => line("Pragma", &["no-cache"]),
        1 => line("Authorization", &["x"]),
        1 => line("If-Match", &["*"]),
    ];
    vec(choice, 0..4)
}

fn rules() -> impl Strategy<Value = Rules> {
    let ttl = prop_oneof![Just(None), Just(Some(0)), Just(Some(20_000)), Just(Some(u64::MAX))];
    let table = move |ttl: Option<u64>| TtlTable::new(ttl.map(|ttl_ms| (StatusMatch::Any, ttl_ms)));
    let window =
        || (0u64..40_000, 0u64..40_000).prop_map(|(default_ms, max_ms)| StaleLimit { default_ms, max_ms });
    let base = (prop::sample::select(&[Profile::Safe, Profile::Rfc9111][..]), any::<bool>());
    (ttl.clone(), ttl, window(), window(), base).prop_map(move |(overriding, default, swr, sie, base)| {
        Rules {
            override_ttl: table(overriding),
            default_ttl: table(default),
            stale_while_revalidate: swr,
            stale_if_error: sie,
            honour_request_directives: base.1,
            ..Rules::for_profile(base.0)
        }
    })
}

const STATUSES: &[u16] = &[0, 100, 200, 203, 206, 299, 301, 302, 304, 404, 412, 500, 503, 600, 65535];
/// A targeted `no-cache` isn't in this list: it permits storing, and a cache that finds it ignores `no-store`
/// in `Cache-Control` (RFC 9213).
const PROHIBITIONS: &[(&str, &str)] = &[
    ("Cache-Control", "no-store"),
    ("Cache-Control", "private"),
    ("Cache-Control", "no-cache"),
    ("CDN-Cache-Control", "no-store"),
    ("CDN-Cache-Control", "private"),
];
const EPOCH_MS: i64 = 784_111_777_000;

fn moment() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        8 => (EPOCH_MS - 200_000..EPOCH_MS + 200_000).prop_map(Timestamp::from_ms),
        1 => any::<i64>().prop_map(Timestamp::from_ms),
    ]
}

fn response() -> impl Strategy<Value = (u16, Lines, ExchangeTimes)> {
    let times = (moment(), moment()).prop_map(|(request, response)| ExchangeTimes {
        request,
        response,
        clock_ahead_ms: 0,
    });
    (prop::sample::select(STATUSES), response_lines(), times)
}

fn facts((status, lines, times): &(u16, Lines, ExchangeTimes)) -> ResponseFacts {
    ResponseFacts::parse(*status, &borrowed(lines), *times, &Rules::default())
}

proptest! {
    //= RFC 9111 section 4.2.3: current age
    //= RFC 9111 section 4.2.3: apparent age is never negative
    #[test]
    fn age_only_grows(response in response(), rules in rules(), now in moment(), later_ms in 0..1_000_000i64) {
        let facts = facts(&response);
        // Another test covers a clock that was set back.
        prop_assume!(now.ms_since(facts.times.response) >= -10_000);
        let stored = StoredFacts::new(&RequestFacts::parse("GET", &[]), &facts, &rules);
        let age_ms = stored.current_age_ms(now);
        prop_assert!(age_ms >= stored.corrected_initial_age_ms());
        prop_assert!(stored.age_s(now) >= u64::from(facts.age_s.unwrap_or(0)));
        prop_assert!(i64::try_from(age_ms).map_or(true, |age_ms| age_ms >= now.ms_since(facts.times.response)));
        prop_assert!(stored.current_age_ms(now.plus_ms(later_ms)) >= age_ms);
        prop_assert!(stored.ttl_ms(now.plus_ms(later_ms)) <= stored.ttl_ms(now));
    }

    #[test]
    fn fresh_means_time_to_live(response in response(), rules in rules(), request in request_lines(), now in moment()) {
        let request = RequestFacts::parse("GET", &borrowed(&request));
        let stored = StoredFacts::new(&request, &facts(&response), &rules);
        prop_assert_eq!(stored.is_fresh(now), stored.ttl_ms(now) > 0);
        prop_assert_eq!(stored.is_fresh(now), stored.staleness_ms(now) == 0 && stored.ttl_ms(now) != 0);
        if reuse(&request, &stored, &rules, now) == Reuse::Fresh {
            prop_assert!(stored.ttl_ms(now) > 0 && !stored.no_cache);
        }
        prop_assert!(!stored.expired(now).is_fresh(now));
    }

    //= RFC 9111 section 4.2.4: no stale response where a directive prohibits it
    #[test]
    fn never_stale_against_a_prohibition(
        response in response(), rules in rules(), request in request_lines(), now in moment(),
        failure in prop_oneof![Just(Failure::Unreachable), (400..600u16).prop_map(Failure::Status)],
    ) {
        let request = RequestFacts::parse("GET", &borrowed(&request));
        let stored = StoredFacts::new(&request, &facts(&response), &rules);
        let outcome = reuse(&request, &stored, &rules, now);
        let on_failure = may_serve_stale(&request, &stored, &rules, now, failure);
        if stored.no_cache {
            prop_assert!(!on_failure);
            prop_assert!(!matches!(outcome, Reuse::Fresh | Reuse::Stale | Reuse::StaleWhileRevalidate));
        }
        if stored.must_revalidate && !stored.is_fresh(now) {
            prop_assert!(!on_failure);
            prop_assert!(!matches!(outcome, Reuse::Stale | Reuse::StaleWhileRevalidate));
        }
    }

    #[test]
    fn a_prohibition_never_makes_more_storable(
        response in response(), request in request_lines(), rules in rules(), now in moment(),
        (field, prohibition) in prop::sample::select(PROHIBITIONS),
    ) {
        let request = RequestFacts::parse("GET", &borrowed(&request));
        let (status, mut lines, times) = response;
        let before = may_store(&request, &facts(&(status, lines.clone(), times)), &rules, now);
        lines.push((field.to_owned(), prohibition.as_bytes().to_vec()));
        let prohibited = facts(&(status, lines, times));
        let after = may_store(&request, &prohibited, &rules, now);
        prop_assert!(before.is_ok() || after.is_err());
        let directives = prohibited.directives;
        let forbids = directives.no_store && !directives.must_understand;
        prop_assert!(after.is_err() || !(forbids || directives.private == Qualified::All));
    }

    //= RFC 9111 section 3: when a response may be stored
    #[test]
    fn what_is_stored_is_of_the_right_kind(
        response in response(), request in request_lines(), rules in rules(), now in moment(),
    ) {
        let request = RequestFacts::parse("GET", &borrowed(&request));
        if let Ok(storable) = may_store(&request, &facts(&response), &rules, now) {
            prop_assert!(!matches!(response.0, 206 | 304 | 0..200 | 1000..));
            prop_assert_eq!(storable.facts, StoredFacts::new(&request, &facts(&response), &rules));
            prop_assert!(NominatedFields::parse(&borrowed(&response.1)).is_ok());
        }
    }

    #[test]
    fn what_the_directives_refuse_is_not_stored_for_that_reason(
        response in response(), request in request_lines(), rules in rules(), now in moment(),
    ) {
        let request = RequestFacts::parse("GET", &borrowed(&request));
        let (status, lines, times) = (response.0, borrowed(&response.1), response.2);
        if let Err(reason) = may_store_by_directives(&request, status, &lines, &rules) {
            let facts = ResponseFacts::parse(status, &lines, times, &rules);
            prop_assert_eq!(may_store(&request, &facts, &rules, now).map(drop), Err(reason));
        }
    }

    //= RFC 9111 section 3.2: updating stored header fields
    #[test]
    fn freshening_twice_is_freshening_once(stored in response_lines(), answer in response_lines(), rules in rules()) {
        let (stored, answer) = (borrowed(&stored), borrowed(&answer));
        let once = validation::freshened_fields(&stored, &answer, &rules);
        let twice = validation::freshened_fields(&once, &answer, &rules);
        let mut names: Vec<_> = once.clone();
        let mut names_twice = twice;
        names.sort_unstable();
        names_twice.sort_unstable();
        prop_assert!(names_twice.iter().all(|line| names.contains(line)));
        prop_assert!(once.iter().all(|(name, _)| !name.eq_ignore_ascii_case("age")));
    }

    #[test]
    fn kept_validators_are_those_of_the_response(lines in response_lines()) {
        let lines = borrowed(&lines);
        let validators = Validators::parse(&lines, Timestamp::from_ms(EPOCH_MS));
        let kept = StoredValidators::from(validators);
        prop_assert_eq!(kept.view(|name| caching::fields::first(&lines, name)), validators);
    }

    #[test]
    fn a_client_that_has_it_gets_a_304(tag in "(W/)?\"[!#-~]{0,8}\"", other in "\"[!#-~]{0,8}\"") {
        let now = Timestamp::from_ms(EPOCH_MS);
        let lines: &[FieldLine<'_>] = &[("ETag", tag.as_bytes())];
        let facts = ResponseFacts::parse(200, lines, ExchangeTimes { request: now, response: now, clock_ahead_ms: 0 }, &Rules::default());
        let stored = StoredFacts::new(&RequestFacts::parse("GET", &[]), &facts, &Rules::default());
        let list = format!("{other} , {tag}");
        let request: &[FieldLine<'_>] = &[("If-None-Match", list.as_bytes())];
        let validators = Validators::parse(lines, now);
        let outcome = conditional::evaluate(MethodClass::Get, request, &stored, &validators, now);
        prop_assert_eq!(outcome, Precondition::NotModified);
    }

    //= RFC 10008 section 2.7: the cache key has the content
    #[test]
    fn metadata_of_queries_are_equal_only_if_each_field_is(one in content_lines(), other in content_lines()) {
        let (one, other) = (borrowed(&one), borrowed(&other));
        let lines_of = |section: &[FieldLine<'_>], name: &str| -> Vec<Vec<u8>> {
            section.iter().filter(|(field, _)| *field == name).map(|(_, value)| value.to_vec()).collect()
        };
        let is_same = CONTENT_FIELDS.iter().all(|name| lines_of(&one, name) == lines_of(&other, name));
        prop_assert_eq!(query::metadata(&one) == query::metadata(&other), is_same);
    }

    #[test]
    fn no_bytes_make_a_parser_panic(
        name in prop::sample::select(&[
            "cache-control", "pragma", "vary", "etag", "if-none-match", "if-range", "range", "age", "date", "expires",
            "connection", "location", "last-modified", "if-modified-since", "set-cookie", "cdn-cache-control",
            "accept-encoding", "accept-language", "content-encoding", "content-language", "cache-groups",
            "cache-group-invalidation", "content-type",
        ][..]),
        value in vec(any::<u8>(), 0..60),
        now in moment(),
        status in any::<u16>(),
        complete_bytes in any::<u64>(),
    ) {
        let lines: &[FieldLine<'_>] = &[(name, &value), ("range", &value), (name, b"x")];
        let facts = ResponseFacts::parse(status, lines, ExchangeTimes { request: now, response: now, clock_ahead_ms: 0 }, &Rules::default());
        let request = RequestFacts::parse("GET", lines);
        let rules = Rules::default();
        let _ = may_store(&request, &facts, &rules, now);
        let stored = StoredFacts::new(&request, &facts, &rules);
        let _ = reuse(&request, &stored, &rules, now);
        let validators = Validators::parse(lines, now);
        let _ = conditional::evaluate(MethodClass::Get, lines, &stored, &validators, now);
        let _ = range::evaluate(MethodClass::Get, lines, &stored, &validators, complete_bytes, now);
        let _ = validation::judge(status, lines, &[validators], validation::First::Selected, now);
        let _ = validation::freshened_fields(lines, lines, &rules);
        let _ = NominatedFields::parse(lines).map(|fields| fields.capture(Selecting::new(lines, Negotiation::Selecting)));
        let nominated = NominatedFields::from_joined(name);
        let selecting = Selecting::new(lines, Negotiation::Selecting);
        let captured = nominated.capture(selecting);
        prop_assert!(nominated.matches(&captured, selecting) && nominated.is_certain(&captured, selecting, lines));
        let _ = nominated.is_certain(&captured, Selecting::new(&lines[2..], Negotiation::Selecting), lines);
        let _ = (groups::of_response(lines, 32), query::metadata(lines));
        let _ = groups::invalidated(MethodClass::Unsafe, status, lines, 32);
        let target = Target { scheme: b"http", authority: &value, path: &value, query: Some(&value) };
        let _ = invalidation::invalidated(MethodClass::Unsafe, status, &target, lines);
        prop_assert!(invalidation::resolve(&target, &value).is_none_or(|uri| !uri.path.is_empty() || value.is_empty()));
    }

    #[test]
    fn resolved_paths_have_no_dot_segments(reference in "[a./]{0,12}") {
        let target = Target { scheme: b"http", authority: b"a", path: b"/b/c", query: None };
        if let Some(uri) = invalidation::resolve(&target, reference.as_bytes()) {
            prop_assert!(uri.path.starts_with(b"/"));
            prop_assert!(uri.path.split(|byte| *byte == b'/').all(|segment| segment != b"." && segment != b".."));
        }
    }
}

proptest! {
    #[test]
    fn ranges_stay_in_bounds(value in "bytes=([0-9]{0,3}-[0-9]{0,3},? ?){1,6}", complete_bytes in 0..300u64) {
        let Some(specs) = range::parse(value.as_bytes()) else { return Ok(()) };
        let ranges = match range::resolve(&specs, complete_bytes) {
            Ranges::Whole | Ranges::Unsatisfiable => return Ok(()),
            Ranges::Single(range) => vec![range],
            Ranges::Multi(ranges) => ranges.to_vec(),
        };
        prop_assert!(ranges.iter().all(|range| range.first <= range.last && range.last < complete_bytes));
        prop_assert!(ranges.iter().map(|range| range.len_bytes()).sum::<u64>() <= complete_bytes);
    }

    //= RFC 9110 section 14.6: multipart/byteranges
    #[test]
    fn multipart_is_as_long_as_announced(
        ends in vec((0..2000u64, 0..2000u64), 1..6), boundary in "[a-z0-9]{1,70}", content_type in "[a-z/]{0,20}",
    ) {
        let content_type = (!content_type.is_empty()).then_some(content_type.as_bytes());
        let multipart = Multipart { boundary: boundary.as_bytes(), content_type, complete_bytes: 2000 };
        let ranges: Vec<_> = ends
            .iter()
            .map(|(a, b)| caching::ByteRange { first: *a.min(b), last: *a.max(b) })
            .collect();
        let mut body = Vec::new();
        for range in &ranges {
            multipart.write_part_head(*range, &mut body);
            body.resize(body.len() + usize::try_from(range.len_bytes()).unwrap(), b'x');
        }
        multipart.write_end(&mut body);
        prop_assert_eq!(body.len() as u64, multipart.total_bytes(&ranges));
    }
}

/// Generates a few bytes, among them every byte that could be mistaken for a separator in keys.
fn text() -> impl Strategy<Value = Vec<u8>> {
    vec(prop::sample::select(&b"aAb:/=&%,\0\x01"[..]), 0..5)
}

#[derive(Clone, Debug, PartialEq)]
struct Parts {
    site: Vec<u8>,
    scheme: Vec<u8>,
    authority: Vec<u8>,
    path: Vec<u8>,
    query: Option<Vec<u8>>,
    method: String,
    extra: Vec<Vec<u8>>,
}

impl Parts {
    fn key(&self, rules: &KeyRules) -> CacheKey {
        let extra: Vec<&[u8]> = self.extra.iter().map(Vec::as_slice).collect();
        let parts = KeyParts {
            site: &self.site,
            scheme: &self.scheme,
            authority: &self.authority,
            path: &self.path,
            query: self.query.as_deref(),
            method: &self.method,
            extra: &extra,
        };
        CacheKey::new(&parts, rules)
    }

    /// Normalises the parts in a simple way: two keys have to be equal exactly if the normalised parts are
    /// equal.
    fn normalised(mut self, rules: &KeyRules) -> Self {
        self.scheme.make_ascii_lowercase();
        self.authority.make_ascii_lowercase();
        if self.authority.iter().any(|byte| *byte != b'.') {
            while self.authority.ends_with(b".") {
                self.authority.pop();
            }
        }
        self.path = if self.path.is_empty() { b"/".to_vec() } else { self.path };
        self.query = self.query.and_then(|query| normalised_query(&query, rules));
        self
    }
}

fn normalised_query(query: &[u8], rules: &KeyRules) -> Option<Vec<u8>> {
    let name = |parameter: &&[u8]| parameter.split(|byte| *byte == b'=').next().unwrap().to_vec();
    let mut parameters: Vec<&[u8]> = query.split(|byte| *byte == b'&').collect();
    let is_ambiguous = |p: &&[u8]| p.contains(&b';');
    let is_respelled = |p: &&[u8]| name(p).iter().any(|byte| b"%+[".contains(byte));
    let read_alike = |name: &[u8]| {
        let name = String::from_utf8_lossy(name.split(|byte| *byte == b'[').next().unwrap()).into_owned();
        name.trim_start_matches('+').replace(['.', '+'], "_").to_ascii_lowercase()
    };
    let is_other = |p: &&[u8], n: &[u8]| read_alike(n) == read_alike(&name(p));
    match &rules.parameters {
        QueryParameters::All => {}
        QueryParameters::Ignore(names) => {
            parameters.retain(|p| is_ambiguous(p) || !names.iter().any(|n| **n == *name(p)));
        }
        QueryParameters::Keep(names) => {
            parameters.retain(|p| is_ambiguous(p) || is_respelled(p) || names.iter().any(|n| is_other(p, n)))
        }
    }
    if rules.order == QueryOrder::Sorted {
        let is_told = |p: &&[u8]| !name(p).iter().any(|byte| b"%;".contains(byte));
        if parameters.iter().all(is_told) {
            parameters.sort_by_key(|p| read_alike(&name(p)));
        }
    }
    (!parameters.is_empty()).then(|| parameters.join(&b'&'))
}

fn parts() -> impl Strategy<Value = Parts> {
    let words = prop::sample::select(&["GET", "POST", "G"][..]).prop_map(str::to_owned);
    let authority = vec(prop::sample::select(&b"aA."[..]), 0..4);
    let lists = vec(text(), 0..3);
    (text(), text(), authority, text(), prop::option::of(text()), words, lists).prop_map(
        |(site, scheme, authority, path, query, method, extra)| Parts {
            site,
            scheme,
            authority,
            path,
            query,
            method,
            extra,
        },
    )
}

fn key_rules() -> impl Strategy<Value = KeyRules> {
    let names = || vec(text().prop_map(Vec::into_boxed_slice), 0..3);
    let parameters = prop_oneof![
        Just(QueryParameters::All),
        names().prop_map(QueryParameters::Ignore),
        names().prop_map(QueryParameters::Keep),
    ];
    let order = prop_oneof![Just(QueryOrder::AsSent), Just(QueryOrder::Sorted)];
    (parameters, order).prop_map(|(parameters, order)| KeyRules { parameters, order })
}

/// Generates two sets of parts that are equal, differ in one part or are unrelated, to test near
/// collisions.
fn neighbours() -> impl Strategy<Value = (Parts, Parts)> {
    (parts(), parts(), 0..8u8).prop_map(|(a, b, place)| {
        let mut near = a.clone();
        match place {
            0 => near.site = b.site,
            1 => near.scheme = b.scheme,
            2 => near.authority = b.authority,
            3 => near.path = b.path,
            4 => near.query = b.query,
            5 => near.method = b.method,
            6 => near.extra = b.extra,
            _ => near = b,
        }
        (a, near)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    //= RFC 9111 section 2: the cache key holds at least the method and the target URI
    #[test]
    fn keys_are_equal_only_for_equal_parts((a, b) in neighbours(), rules in key_rules()) {
        let same_key = a.key(&rules) == b.key(&rules);
        prop_assert_eq!(same_key, a.normalised(&rules) == b.normalised(&rules));
    }

    //= RFC 9111 section 4.1: all nominated fields match
    #[test]
    fn nominated_values_are_equal_only_for_equal_fields(a in two_fields(), b in two_fields()) {
        let nominated = NominatedFields::parse(&[("Vary", b"a, b")]).unwrap();
        let captured = nominated.capture(Selecting::new(&borrowed(&a), Negotiation::Normalised));
        let matches = nominated.matches(&captured, Selecting::new(&borrowed(&b), Negotiation::Normalised));
        prop_assert_eq!(matches, combined(&a) == combined(&b));
    }

    /// Captured lines can replace the request, even under another negotiation.
    #[test]
    fn lines_of_captured_values_are_captured_alike(request in negotiating(), then in negotiation(), now in negotiation()) {
        let nominated = NominatedFields::parse(&[("Vary", b"a, b, accept-encoding")]).unwrap();
        let request = borrowed(&request);
        let captured = nominated.capture(Selecting::new(&request, then));
        let lines = nominated.lines(&captured);
        prop_assert!(nominated.names().all(|name| lines.iter().any(|(known, _)| *known == name)));
        let had: Vec<FieldLine<'_>> = lines.iter().filter_map(|(name, value)| Some((*name, (*value)?))).collect();
        let again = nominated.capture(Selecting::new(&had, now));
        prop_assert_eq!(&again, &nominated.capture(Selecting::new(&request, now)));
        prop_assert!(then != now || again.heap_bytes() == captured.heap_bytes(), "as it was sent, too");
    }
}

fn negotiation() -> impl Strategy<Value = Negotiation> {
    prop::sample::select(&[Negotiation::AsSent, Negotiation::Normalised, Negotiation::Selecting][..])
}

fn negotiating() -> impl Strategy<Value = Lines> {
    let value = vec(prop::sample::select(&b"x, \"\\;=q0"[..]), 0..8);
    let name = prop::sample::select(&["a", "b", "c", "Accept-Encoding"][..]).prop_map(str::to_owned);
    vec((name, value.prop_map(|value| value.trim_ascii().to_vec())), 0..5)
}

fn two_fields() -> impl Strategy<Value = Lines> {
    let value = vec(prop::sample::select(&b"xy, :\0\x01"[..]), 0..4);
    let name = prop::sample::select(&["a", "A", "b", "c"][..]).prop_map(str::to_owned);
    vec((name, value.prop_map(|value| value.trim_ascii().to_vec())), 0..4)
}

/// Returns the members of each nominated field over all its lines, or `None` if it is absent.
fn combined(lines: &Lines) -> [Option<Vec<Vec<u8>>>; 2] {
    ["a", "b"].map(|name| {
        let own: Vec<_> = lines.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name)).collect();
        let members = own.iter().flat_map(|(_, value)| value.split(|byte| *byte == b','));
        (!own.is_empty()).then(|| members.map(|member| member.trim_ascii().to_vec()).collect())
    })
}

/// Generates a `Forwarded` element that a proxy could write, with all bytes that quoted strings may contain.
fn element() -> impl Strategy<Value = String> {
    let node = prop::sample::select(&["192.0.2.1", "\"[2001:db8::1]:80\"", "unknown", "_a", "\"_a:_b\""][..]);
    let text = "(\\\\[ -~]|[ !#-\\[\\]-~]){0,8}";
    (node, text, prop::bool::ANY).prop_map(|(node, text, is_first)| match is_first {
        true => format!("for={node};own=\"{text}\""),
        false => format!("own=\"{text}\";for={node}"),
    })
}

/// Generates bytes with many quotes, escapes and separators.
fn claims() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::sample::select(&b"\"\"\\\\,;= for=_a_b.[]:1\xff"[..]);
    vec(bytes, 0..40)
}

fn hops_of(values: &[&[u8]]) -> Hops<'static> {
    let lines: Vec<FieldLine<'_>> = values.iter().map(|value| ("forwarded", *value)).collect();
    let Hops { source, nearest, end } = Hops::read(&lines, 100);
    let owned = |value: Option<Cow<'_, [u8]>>| value.map(|value| Cow::Owned(value.into_owned()));
    let kept =
        |hop: Hop<'_>| Hop { node: hop.node, by: hop.by, host: owned(hop.host), proto: owned(hop.proto) };
    Hops { source, nearest: nearest.into_iter().map(kept).collect(), end }
}

proptest! {
    /// Text from a client doesn't change how the elements that proxies append to it are parsed.
    #[test]
    fn nothing_before_an_element_changes_how_it_is_read(claims in claims(), elements in vec(element(), 1..4)) {
        let of_proxies = elements.join(", ");
        let alone = hops_of(&[of_proxies.as_bytes()]);
        prop_assert_eq!((alone.nearest.len(), alone.end), (elements.len(), End::Complete));
        for between in [&b","[..], b" ,\t"] {
            let behind = hops_of(&[&[&claims[..], between, of_proxies.as_bytes()].concat()]);
            prop_assert_eq!(&behind.nearest[..elements.len()], &alone.nearest[..]);
        }
        let in_lines = hops_of(&[&claims, of_proxies.as_bytes()]);
        prop_assert_eq!(&in_lines.nearest[..elements.len()], &alone.nearest[..]);
    }

    /// Parsed hops round-trip: written out again in either field, they parse to the same hops.
    #[test]
    fn hops_are_written_as_they_are_read(claims in claims()) {
        for name in ["forwarded", "x-forwarded-for"] {
            let lines = [(name, &claims[..])];
            let hops = Hops::read(&lines, 100);
            let nodes: Vec<Node> = hops.nearest.into_iter().filter_map(|hop| hop.node).collect();
            let write = |begin: &[u8], write: fn(&Node, &mut Vec<u8>)| {
                let mut list = Vec::new();
                for node in nodes.iter().rev() {
                    list.extend_from_slice(if list.is_empty() { b"" } else { b", " });
                    list.extend_from_slice(begin);
                    write(node, &mut list);
                }
                list
            };
            for (name, written) in [
                ("forwarded", write(b"for=", Node::write_as_value)),
                ("x-forwarded-for", write(b"", Node::write)),
            ] {
                let lines = [(name, &written[..])];
                let again = Hops::read(&lines, 100);
                prop_assert_eq!(again.end, End::Complete, "{}", written.escape_ascii());
                let read: Vec<Node> = again.nearest.into_iter().filter_map(|hop| hop.node).collect();
                prop_assert_eq!(&read, &nodes, "{}", written.escape_ascii());
            }
        }
    }
}
