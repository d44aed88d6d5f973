//! Limits of the information in a record, and of the harm from a forged one.

use std::sync::Arc;

use bytes::Bytes;
use caching::{FieldLine, Profile, Rules, StoredCredentialed};
use proptest::prelude::*;
use store::backing::{LogCursor, LogId, LogOffset};
use store::format::{
    Body, BodyState, Content, Layout, NamedValue, Record, RecordKind, RequestMarks, Response, Run, Variant,
    decode_record, encode_record,
};
use store::{FillId, Placement, Segment};

use crate::entry::segmented::Segmented;
use crate::entry::stored::{StoredBody, StoredResponse};
use crate::invalidation::Verdict;
use crate::portable::{Encoded, Reader, SegmentBytes, decode};
use crate::sample::{Asked, KEY, NOW, World, at, gathered, inline, small_bodies, written};
use crate::settings::StorageRules;

fn holds(encoded: &Encoded, text: &[u8]) -> bool {
    let all = encoded.apart.iter().map(|(_, bytes)| bytes).chain([&encoded.primary]);
    all.into_iter().any(|bytes| bytes.windows(text.len()).any(|window| window == text))
}

#[test]
fn nobodys_secrets_are_written() {
    let rules = Rules { store_set_cookie: true, ..Rules::default() };
    let world = World::new(rules);
    let request: &[FieldLine<'_>] = &[
        ("Cookie", b"SECRET"),
        ("Authorization", b"Bearer SECRET"),
        ("X-User", b"SECRET"),
        ("Referer", b"SECRET"),
        ("If-None-Match", b"\"SECRET\""),
        ("Accept-Language", b"de-TOLD"),
        ("Cache-Control", b"x-TOLD"),
    ];
    let response: &[FieldLine<'_>] = &[
        ("cache-control", b"public, max-age=60, private=\"set-cookie, x-private\""),
        ("vary", b"accept-language"),
        ("set-cookie", b"SECRET"),
        ("x-private", b"SECRET"),
    ];
    let head = world.stored(Asked { method: "GET", lines: request }, (200, response), at(NOW)).unwrap();
    let encoded = written(&world.entry(vec![inline(head, b"body")]));
    assert!(!holds(&encoded, b"SECRET"));
    for told in
        [&b"de-TOLD"[..], b"x-TOLD", b"authorization", b"cookie", b"x-user", b"http://a.example/x?y=1"]
    {
        assert!(holds(&encoded, told), "{}", told.escape_ascii());
    }
}

/// Checks the freshness lifetime, in seconds, that a reader with its own rules gives a response stored by `rules`.
#[track_caller]
fn check(
    rules: &Rules,
    request: &[FieldLine<'_>],
    response: &[FieldLine<'_>],
    reader: Rules,
    expected: Option<u64>,
) {
    let [writer, reader] = [rules.clone(), reader].map(World::new);
    let asked = Asked { method: "GET", lines: request };
    let head = writer.stored(asked, (200, response), at(NOW)).expect("it is stored");
    let read = reader.read(&written(&writer.entry(vec![inline(head, b"body")])));
    let lifetime_s = read.map(|read| read.variants()[0].head.facts.freshness_lifetime_ms() / 1000);
    assert_eq!(lifetime_s, expected);
}

#[test]
fn readers_go_by_their_own_rules() {
    let all = Rules { store_set_cookie: true, ..Rules::for_profile(Profile::Rfc9111) };
    let named = |name: &str| Rules { credential_fields: [name.into()].into(), ..Rules::default() };
    let targeted = |name: &str| Rules { targeted_fields: [name.into()].into(), ..Rules::default() };
    let max_age: FieldLine<'_> = ("cache-control", b"max-age=60");
    let etag: FieldLine<'_> = ("etag", b"\"1\"");
    let user: FieldLine<'_> = ("X-User", b"a");
    check(&all, &[], &[max_age], Rules::default(), Some(60));
    check(&all, &[], &[max_age], Rules { enabled: false, ..Rules::default() }, None);
    check(&all, &[], &[max_age, ("set-cookie", b"a")], Rules::default(), None);
    check(&all, &[], &[max_age, ("set-cookie", b"a")], all.clone(), Some(60));
    check(&all, &[user], &[etag], Rules::default(), Some(0));
    check(&all, &[user], &[etag], named("x-user"), None);
    check(&all, &[user], &[etag, max_age], named("x-user"), Some(60));
    check(&all, &[("Cookie", b"a")], &[etag], Rules::default(), None);
    // Fields that identify a user for the storing instance do so for the reader.
    let own = Rules { credentialed: StoredCredentialed::All, ..named("x-user") };
    check(&own, &[user], &[etag], Rules::default(), None);
    check(&own, &[], &[etag], Rules::default(), Some(0));
    check(&all, &[], &[max_age, ("x-cache-control", b"max-age=5")], targeted("X-Cache-Control"), Some(5));
    check(&all, &[], &[max_age, ("x-cache-control", b"private")], targeted("X-Cache-Control"), None);
    let deaf = Rules { honour_request_directives: false, ..Rules::default() };
    check(&deaf, &[("Cache-Control", b"no-store")], &[max_age], deaf.clone(), Some(60));
    check(&deaf, &[("Cache-Control", b"no-store")], &[max_age], Rules::default(), None);
}

#[test]
fn fields_that_a_reader_keeps_for_one_user_are_gone() {
    let [writer, reader] = [&[][..], &["X-Cache-Control".into()]].map(|targeted: &[Box<str>]| {
        World::new(Rules { targeted_fields: targeted.into(), ..Rules::default() })
    });
    let lines: &[FieldLine<'_>] = &[
        ("cache-control", b"max-age=60"),
        ("x-cache-control", b"max-age=5, private=x-mine"),
        ("x-mine", b"SECRET"),
    ];
    let head = writer.stored(Asked { method: "GET", lines: &[] }, (200, lines), at(NOW)).unwrap();
    assert_eq!(head.fields.value("x-mine"), Some(&b"SECRET"[..]));
    let read = reader.read(&written(&writer.entry(vec![inline(head, b"")]))).unwrap();
    assert_eq!(read.variants()[0].head.fields.value("x-mine"), None);
}

#[test]
fn what_is_too_large_for_the_reader_is_a_miss() {
    let world = World::new(Rules::default());
    let encoded = written(&world.entry(vec![plain(&world, b"12345")]));
    for (object_bytes_max, expected) in [(5, true), (4, false)] {
        let rules = StorageRules { object_bytes_max, ..world.rules() };
        let read = gathered(&encoded).entry(&[], &Reader { rules, ..world.reader() });
        assert_eq!(read.is_some(), expected);
    }
}

fn plain(world: &World, body: &[u8]) -> StoredResponse {
    let lines: &[FieldLine<'_>] = &[("cache-control", b"max-age=60"), ("cache-groups", b"\"g\"")];
    let head = world.stored(Asked { method: "GET", lines: &[] }, (200, lines), at(NOW)).unwrap();
    inline(head, body)
}

/// Each process has its own list of invalidations, so another process's invalidations may all be newer than a response of this process.
#[test]
fn what_others_asked_for_is_older_than_each_invalidation() {
    let [own, other] = [World::new(Rules::default()), World::new(Rules::default())];
    let groups = caching::groups::Groups::Named(vec!["g".to_owned()]);
    let target =
        caching::invalidation::Target { scheme: b"http", authority: b"a.example", path: b"/", query: None };
    let is_invalidated = |world: &World, encoded: &Encoded| {
        let read = world.read(encoded).unwrap();
        world.invalidations.judge(b"", &read.variants()[0].head) == Verdict::Invalidated
    };
    own.invalidations.invalidate(&groups, &target, None);
    let encoded = written(&own.entry(vec![plain(&own, b"")]));
    assert!(!is_invalidated(&own, &encoded) && !is_invalidated(&other, &encoded));
    other.invalidations.invalidate(&groups, &target, None);
    assert!(!is_invalidated(&own, &encoded) && is_invalidated(&other, &encoded));
    let again = written(&other.read(&encoded).unwrap());
    assert!(!is_invalidated(&own, &again), "who asked knows it on the way back");
    own.invalidations.invalidate(&groups, &target, None);
    assert!(is_invalidated(&own, &encoded));
}

#[test]
fn times_are_those_of_the_tier() {
    let world = World::new(Rules::default());
    let encoded = written(&world.entry(vec![plain(&world, b"")]));
    let reader = Reader { clock_ahead_ms: 1_000, ..world.reader() };
    let read = gathered(&encoded).entry(&[], &reader).unwrap();
    let facts = &read.variants()[0].head.facts;
    assert_eq!(facts.response_time, NOW.plus_ms(4_000), "a clock that is four seconds ahead of the writer's");
}

#[test]
fn bodies_lie_where_they_fit() {
    let world = World::new(Rules::default());
    for (bytes, is_apart) in [(0, false), (4096, false), (4097, true), (65_535, true)] {
        let encoded = written(&world.entry(vec![plain(&world, &vec![b'x'; bytes])]));
        let segments = encoded.segments.iter().inspect(|segment| check_segment(segment, bytes));
        let given: Vec<FillId> = segments.map(|segment| segment.id.fill).collect();
        let wanted = gathered(&encoded).small_bodies().map(|small| small.fill).collect::<Vec<_>>();
        assert_eq!(wanted, given, "{bytes}");
        assert_eq!(given.len(), usize::from(is_apart), "{bytes}");
        let without = gathered(&encoded).entry(&[], &world.reader());
        assert_eq!(without.is_some(), !is_apart, "{bytes}: a small body that is not there");
        let short: Vec<_> =
            small_bodies(&encoded).into_iter().map(|(fill, data)| (fill, data.slice(1..))).collect();
        assert_eq!(gathered(&encoded).entry(&short, &world.reader()).is_some(), !is_apart, "{bytes}");
    }
}

fn check_segment(segment: &SegmentBytes, bytes: usize) {
    assert_eq!((segment.id.index, segment.data.len()), (0, bytes));
    assert!(segment.cell_bytes as usize >= bytes, "all of it is in one cell");
}

#[test]
fn large_bodies_stay_in_segments() {
    const CELL_BYTES: usize = 40_000;
    let (world, last_bytes) = (World::new(Rules::default()), 5);
    let all_bytes = Some((2 * CELL_BYTES + last_bytes) as u64);
    for (held, complete_bytes, expected) in [
        (&[0, 1, 2][..], all_bytes, BodyState::Complete),
        (&[0, 2], all_bytes, BodyState::Part),
        (&[1], None, BodyState::Part),
    ] {
        let group = Arc::new(world.memory.open_group());
        let mut body = Segmented::new(Arc::clone(&group), CELL_BYTES, complete_bytes).followed();
        for index in held {
            let bytes = if *index == 2 { last_bytes } else { CELL_BYTES };
            body.put(
                *index,
                Segment::copy(world.memory.budget(), Placement::Heap, &vec![b'x'; bytes]).unwrap(),
            );
        }
        let response = StoredResponse { body: StoredBody::Segments(Box::new(body)), ..plain(&world, b"") };
        let encoded = written(&world.entry(vec![response]));
        assert!(encoded.segments.is_empty());
        let record = decode_record(&encoded.primary, RecordKind::Primary, KEY, None).unwrap();
        let body = &record.variants[0].response.as_ref().unwrap().body;
        let Content::Segments(layout) = &body.content else { panic!("{body:?}") };
        assert_eq!((body.state, body.complete_bytes), (expected, complete_bytes));
        assert_eq!((layout.fill, layout.cell_bytes), (group.fill(), CELL_BYTES as u32));
        let cells = layout.runs.iter().flat_map(|run| run.first..run.first + run.count);
        assert_eq!(cells.collect::<Vec<_>>(), held);
        let read = world.read(&encoded).unwrap();
        let body = read.variants()[0].body.segmented().expect("it is too large for a record");
        assert_eq!((body.layout().as_ref(), body.complete_bytes), (Some(layout), complete_bytes));
    }
}

/// A record that anyone may have forged.
fn forged<'a>(texts: &'a [Vec<u8>], numbers: [u64; 4], is_known: bool) -> Record<'a> {
    let text = |index: usize| &texts[index % texts.len()][..];
    let lines = |from: usize| vec![(text(from), text(from + 1)), (text(from + 2), text(from + 3))];
    let named = |from: usize| -> Vec<NamedValue<'_>> {
        lines(from).into_iter().map(|(name, value)| (name, (value.len() % 3 > 0).then_some(value))).collect()
    };
    let layout = Layout {
        fill: FillId { process: numbers[0], sequence: 0 },
        cell_bytes: 1 + numbers[1] as u32 % 1000,
        runs: vec![Run { first: 0, count: 1 + numbers[2] as u32 % 50 }],
        fragments: Vec::new(),
    };
    let freshness = is_known.then_some((&b"cache-control"[..], &b"max-age=60"[..]));
    let response = Response {
        status: numbers[0] as u16,
        marks: RequestMarks {
            had_credentials: numbers[1].is_multiple_of(2),
            had_content: numbers[2].is_multiple_of(2),
        },
        request_time_ms: numbers[0],
        response_time_ms: numbers[1],
        store_time_ms: numbers[2],
        stale_since_ms: numbers[3].is_multiple_of(2).then_some(numbers[3]),
        log: Some(LogCursor { id: LogId([1; 16]), offset: LogOffset(numbers[3]) }),
        method: if is_known { b"GET" } else { text(1) },
        target: text(2),
        reason: numbers[1].is_multiple_of(3).then_some(text(3)),
        head: freshness.into_iter().chain(lines(4)).collect(),
        judged: lines(numbers[2] as usize % 7),
        request: named(6),
        body: Body { state: BodyState::Part, complete_bytes: None, content: Content::Segments(layout) },
    };
    let response = Response { status: if is_known { 200 } else { response.status }, ..response };
    let id = FillId { process: 1, sequence: 1 };
    Record {
        key: KEY,
        note: None,
        variants: vec![Variant { nominated: named(8), id, response: Some(Box::new(response)) }],
    }
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    const TEXTS: [&str; 12] = [
        "vary",
        "x-kind",
        "etag",
        "content-length",
        "a\r\nx: y",
        "\u{e9}",
        "http://",
        "set-cookie",
        "*",
        "date",
        "a:b",
        "18446744073709551615",
    ];
    prop_oneof![
        3 => prop::sample::select(&TEXTS[..]).prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..12),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_record_of_anybody_gives_no_panic_and_no_other_lines(
        texts in prop::collection::vec(text(), 12),
        numbers in any::<[u64; 4]>(),
        is_known in any::<bool>(),
    ) {
        let world = World::new(Rules::for_profile(Profile::Rfc9111));
        let mut bytes = Vec::new();
        encode_record(&forged(&texts, numbers, is_known), RecordKind::Primary, None, &mut bytes).unwrap();
        let Some(entry) = decode(&bytes, KEY).unwrap().entry(&[], &world.reader()) else { return Ok(()) };
        let head = &entry.variants()[0].head;
        prop_assert!(head.fields.lines().all(|(name, value)| !name.is_empty() && !value.contains(&b'\n')));
        prop_assert!(head.fields.lines().all(|(name, _)| !name.eq_ignore_ascii_case("content-length")));
        prop_assert!(head.reason().is_none_or(|reason| !reason.contains(&b'\r')));
    }

    #[test]
    fn changed_bytes_are_an_error(at in any::<prop::sample::Index>(), flip in 1..=255_u8) {
        let world = World::new(Rules::default());
        let encoded = written(&world.entry(vec![plain(&world, &[b'x'; 5000]), plain(&world, b"small")]));
        let changed = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            bytes
        };
        prop_assert!(decode(&changed(&encoded.primary), KEY).is_err());
        let (id, apart) = &encoded.apart[0];
        let changed = changed(apart);
        let mut decoded = decode(&encoded.primary, KEY).unwrap();
        prop_assert!(decoded.add_apart(*id, &changed).is_err());
        prop_assert!(decoded.add_apart(FillId { process: 0, sequence: 0 }, apart).is_err(), "another id");
        let (fill, _) = small_bodies(&encoded)[0];
        let entry = decoded.entry(&[(fill, Bytes::from(vec![b'x'; 5000]))], &world.reader()).unwrap();
        prop_assert_eq!(entry.variants().len(), 1, "what is not added is not there");
    }
}
