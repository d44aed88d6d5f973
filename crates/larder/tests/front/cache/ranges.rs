//! Parts of a representation: stored, combined and completed. `conformance/caching/partial.json` has more tests.

pub(super) mod parts;

use std::sync::Arc;

use parts::storm::Storm;
use parts::{Content, OnRange, Resource, answer, extent, hundred, part_of};
use testkit::{End, Gate, Larder, Response, ScriptedOrigin, run, wait};

use super::basics::{asking, bare, gates, wait_for_waiters, with};
use crate::LARDER;
use crate::fleet::purge_waits::purge;

struct Pair {
    origin: ScriptedOrigin,
    larder: Larder,
    resource: Resource,
}

impl Pair {
    fn new(content: Content) -> Self {
        Self::with(content, "@site@")
    }

    fn with(content: Content, settings: &str) -> Self {
        let resource = content.shared();
        let served = Arc::clone(&resource);
        let origin = ScriptedOrigin::start(move |exchange| answer(exchange, &served));
        Self { larder: with(settings, &origin), origin, resource }
    }

    fn ask(&self, fields: &str) -> Response {
        self.larder.ask("GET", "/", &lines(fields))
    }

    /// `Range` and `If-Range` of the origin's requests after the first `seen`; `-` if a request has neither.
    fn asked(&self, seen: &mut usize) -> Vec<String> {
        let received = self.origin.received();
        let asked = received[*seen..].iter().map(|request| {
            let parts = [request.field("range"), request.field("if-range")];
            let [range, if_range] = parts.map(|value| if value.is_empty() { "-" } else { value });
            format!("{} {if_range}", range.trim_start_matches("bytes="))
        });
        *seen = received.len();
        asked.collect()
    }
}

/// Field lines in a table have `\n` between them; a line without a colon is a range.
fn lines(fields: &str) -> String {
    let line = |line: &str| match line.contains(':') {
        true => format!("{line}\r\n"),
        false => format!("Range: bytes={line}\r\n"),
    };
    fields.lines().map(line).collect()
}

/// A conversation about one resource of 100 bytes: fields of the request, the [`extent`] of the response, a part of `Cache-Status`, and the
/// requests of the origin.
type Step<'a> = (&'a str, &'a str, &'a str, &'a [&'a str]);

#[track_caller]
fn check(pair: &Pair, name: &str, steps: &[Step<'_>]) {
    let mut seen = pair.origin.total();
    for (number, (fields, expected, cache_status, forwarded)) in steps.iter().enumerate() {
        let response = pair.ask(fields);
        let what = format!("{name}, step {}: {fields:?} -> {:?}", number + 1, response.head);
        let body = pair.resource.lock().expect("no holder of this lock panics").body.clone();
        assert_eq!(extent(&response, &body), *expected, "{what}");
        assert_eq!(response.end, End::Complete, "{what}");
        assert!(response.cache_status().contains(cache_status), "no {cache_status}; {what}");
        assert_eq!(pair.asked(&mut seen), *forwarded, "{what}");
    }
}

//= RFC 9110 section 13.1.5: no If-Range without Range
//= RFC 9110 section 15.3.7.3: what is whole is a 200
//= RFC 9110 section 15.3.7.3: what is not whole is a 206
//= RFC 9110 section 14.4: the complete length is said
#[test]
fn only_missing_bytes_are_fetched_and_they_are_counted() {
    let pair = Pair::new(Content::new(hundred()));
    check(
        &pair,
        "parts",
        &[
            ("10-19", "10-19/100", "stored", &["10-19 -"]),
            ("15-29", "15-29/100", "fwd=partial; fwd-status=206", &["20-29 \"a\""]),
            ("15-29", "15-29/100", "hit", &[]),
            ("5-9", "5-9/100", "fwd=partial", &["5-9 \"a\""]),
            ("-10", "90-99/100", "fwd=partial", &["90- \"a\""]),
            ("-1", "99-99/100", "hit", &[]),
            ("", "whole", "fwd=partial", &["0-4 \"a\"", "30-89 \"a\""]),
            ("", "whole", "hit", &[]),
        ],
    );
    let metric = |name: &str| pair.larder.metric(name, &[]);
    wait::until_true("six parts", || metric("larder_parts_stored_total") >= 6.0);
    assert_eq!(metric("larder_missing_part_bytes_total"), 90.0);
    assert_eq!(pair.larder.metric("larder_missing_parts_total", &["outcome=\"spliced\""]), 5.0);
}

//= RFC 9110 section 13.1.5: If-Range, strong comparison and exact dates
#[test]
fn if_range_on_a_miss_is_judged_here() {
    let cases: [(&str, &[Step<'_>]); 2] = [
        (
            "of the response",
            &[
                ("10-19\nIf-Range: \"a\"", "10-19/100", "fwd=uri-miss", &["10-19 -"]),
                ("10-19", "10-19/100", "hit", &[]),
            ],
        ),
        (
            "of a different response",
            &[
                ("10-19\nIf-Range: \"b\"", "whole", "fwd=uri-miss", &["10-19 -", "- -"]),
                ("", "whole", "hit", &[]),
            ],
        ),
    ];
    for (name, steps) in cases {
        check(&Pair::new(Content::new(hundred())), name, steps);
    }
}

#[test]
fn rules_and_origins_may_know_less_of_parts() {
    let sparing = Content { on_range: OnRange::TenBytes, ..Content::new(hundred()) };
    check(
        &Pair::new(sparing),
        "the origin sends ten bytes per response",
        &[
            ("10-39", "10-19/100", "stored", &["10-39 -"]),
            ("10-39", "10-39/100", "fwd=partial", &["20-39 \"a\"", "30-39 \"a\""]),
            ("10-39", "10-39/100", "hit", &[]),
        ],
    );
    check(
        &Pair::with(Content::new(hundred()), "@site@[[site.rule]]\nstore_parts = false\n"),
        "the whole is fetched where a rule stores no parts",
        &[
            ("10-19", "10-19/100", "fwd=uri-miss; fwd-status=200; stored", &["- -"]),
            ("", "whole", "hit", &[]),
        ],
    );
}

/// Field bug: a hit with a missing part was cut short if the origin answered the request for the part with the whole representation.
//= RFC 9111 section 3.4: the same strong validator
#[test]
fn a_change_between_two_missing_parts_breaks_the_reply_and_a_whole_of_the_same_goes_on_with_it() {
    let other = || hundred().into_iter().rev().collect();
    let whole = |content| Content { on_range: OnRange::Ignore, ..content };
    for (is_cut, last) in [
        (true, Content { etag: "\"b\"", ..Content::new(other()) }),
        (false, whole(Content::new(hundred()))),
        (true, whole(Content { etag: "\"b\"", ..Content::new(hundred()) })),
        (true, whole(Content::new(hundred()[..90].to_vec()))),
    ] {
        let resource = Content::new(hundred()).shared();
        let new = last.clone();
        let origin = ScriptedOrigin::start(move |exchange| {
            if exchange.request.field("range") == "bytes=30-" {
                *resource.lock().expect("no holder of this lock panics") = new.clone();
            }
            answer(exchange, &resource);
        });
        let larder = bare(&origin);
        larder.ask("GET", "/", &lines("10-29"));
        let reply = larder.get("/");
        let end = if is_cut { End::Truncated } else { End::Complete };
        assert_eq!((reply.status(), reply.end), (200, end), "{last:?}: {:?}", reply.head);
        assert!(hundred().starts_with(&reply.body) && reply.body.len() >= 10, "{} bytes", reply.body.len());
        let right = larder.get("/");
        assert_eq!((extent(&right, &last.body).as_str(), right.end), ("whole", End::Complete));
        assert_eq!(origin.total(), 3, "{last:?}: the whole is stored");
    }
}

/// If a part is not as long as its head says, the client must notice, regardless of the origin's framing, and the part isn't stored.
//= RFC 9110 section 15.3.7: a 206 carries one range with Content-Range, or several as multipart/byteranges
#[test]
fn a_part_of_another_length_than_it_says_breaks_off() {
    let origin = ScriptedOrigin::start(|exchange| {
        let target = exchange.request.target().to_owned();
        let [_, _, control, framing, range, body] = target.split('/').collect::<Vec<_>>()[..] else {
            panic!("{target}");
        };
        let range = range.replace('_', "/");
        let fields = format!("Cache-Control: {control}\r\nETag: \"a\"\r\nContent-Range: bytes {range}\r\n");
        match framing {
            "length" => exchange.respond("206 Partial Content", &fields, body),
            "chunked" => {
                let fields = format!("Transfer-Encoding: chunked\r\n{fields}");
                exchange.head("206 Partial Content", &fields).chunk(body).last_chunk("")
            }
            _ => exchange.head("206 Partial Content", &fields).send(body).close(),
        };
    });
    let larder = bare(&origin);
    // The POST is never looked up.
    for (method, control, range) in [
        ("GET", "no-store", "10-19_100"),
        ("GET", "max-age=60", "10-19_100"),
        ("GET", "max-age=60", "0-9_10"),
        ("POST", "no-store", "10-19_100"),
    ] {
        let asked = range.split('_').next().expect("a range");
        for (framing, body) in ["length", "chunked", "close"]
            .into_iter()
            .flat_map(|framing| ["1234567890", "123456789", "12345678901", ""].map(|body| (framing, body)))
        {
            let target = format!("/{method}/{control}/{framing}/{range}/{body}");
            for forwards in 1..=2 {
                let fields = format!("Range: bytes={asked}\r\nContent-Length: 0\r\n");
                let response = larder.ask(method, &target, &fields);
                let what = format!("{target}: {:?} {:?}", response.head, response.text());
                let is_whole = response.end != End::Truncated;
                assert_eq!((response.status(), is_whole), (206, body.len() == 10), "{what}");
                assert!(response.body.len() <= 10, "{what}");
                let is_stored = origin.count(&target) < forwards;
                assert!(body.len() == 10 || !is_stored, "it is not stored: {what}");
            }
        }
    }
}

fn gated() -> (Gate, ScriptedOrigin, Larder) {
    let (gate, waits) = gates();
    let resource = Content::new(hundred()).shared();
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.field("range") == "bytes=10-19" {
            waits.pass();
        }
        answer(exchange, &resource);
    });
    let larder = bare(&origin);
    (gate, origin, larder)
}

#[test]
fn identical_ranges_are_one_forward_and_others_do_not_wait() {
    let (gate, origin, larder) = gated();
    let asks: Vec<_> = (0..8).map(|_| asking(&larder, "/", &lines("10-19"))).collect();
    origin.wait_for("/", 1);
    wait_for_waiters(&larder, 7);
    let other = larder.ask("GET", "/", &lines("30-39"));
    assert_eq!(extent(&other, &hundred()), "30-39/100", "it does not wait");
    gate.open();
    for mut ask in asks {
        assert_eq!(extent(&ask.response(), &hundred()), "10-19/100");
    }
    assert_eq!(origin.total(), 2, "one per range");
    assert!(["10-19", "30-39"].iter().all(|range| larder.ask("GET", "/", &lines(range)).is_hit()));
    larder.get("/");
    let asked: Vec<String> =
        origin.received()[2..].iter().map(|request| request.field("range").into()).collect();
    assert_eq!(asked, ["bytes=0-9", "bytes=20-29", "bytes=40-"], "both parts were stored");
}

#[test]
fn a_purge_forbids_storing_what_is_under_way() {
    let (gate, origin, larder) = gated();
    let mut asking = asking(&larder, "/", &lines("10-19"));
    origin.wait_for("/", 1);
    purge(&larder, "url=http://test.example/");
    gate.open();
    assert_eq!(extent(&asking.response(), &hundred()), "10-19/100");
    assert!(!larder.ask("GET", "/", &lines("10-19")).is_hit(), "not stored");
}

/// The fields of a hole that is requested after the purge are older than those of a response stored since.
//= RFC 9111 section 3.4: the same strong validator
#[test]
fn a_part_asked_for_after_a_purge_does_not_bring_old_fields_back() {
    for order in ["url=http://test.example/", "prefix=/"] {
        // The purge comes while the first hole is arriving, or while the second one is being requested.
        for held in [0, 20] {
            check_parts_of_a_purged_response(order, held);
        }
    }
}

fn check_parts_of_a_purged_response(order: &str, held: usize) {
    let (gate, released) = gates();
    let body = hundred();
    let origin = ScriptedOrigin::start(move |exchange| {
        let range = exchange.request.field("range").to_owned();
        let Some(part) = part_of(&range, 100) else {
            let fields = "Cache-Control: max-age=60\r\nETag: \"a\"\r\nX-Age: new\r\n";
            exchange.respond("200 OK", fields, &body);
            return;
        };
        let first = if part.start == 10 { "Cache-Control: max-age=60\r\nX-Age: old\r\n" } else { "" };
        let bytes = format!("Content-Range: bytes {}-{}/100\r\n", part.start, part.end - 1);
        let fields = format!("Content-Length: {}\r\nETag: \"a\"\r\n{first}{bytes}", part.len());
        if part.start == held && held > 0 {
            released.pass();
        }
        exchange.head("206 Partial Content", &fields).send(&body[part.start..=part.start]);
        if part.start == held && held == 0 {
            released.pass();
        }
        exchange.send(&body[part.start + 1..part.end]);
    });
    let larder = bare(&origin);
    larder.ask("GET", "/", &lines("10-19"));
    let mut slow = asking(&larder, "/", "");
    assert_eq!(slow.head().status(), 200);
    origin.wait_for("/", if held == 0 { 2 } else { 3 });
    purge(&larder, order);
    assert_eq!(larder.get("/").field("x-age"), "new");
    gate.open();
    assert_eq!(slow.bytes(100), hundred(), "{order}, {held}");
    let last = if held == 0 { "bytes=20-" } else { "" };
    assert_eq!(origin.last("/").field("range"), last, "the second hole, after the purge or before");
    let after = larder.get("/");
    assert!(after.is_hit() && after.field("x-age") == "new", "{:?}", after.head);
}

/// A hole that is too large to be stored is passed on through a window: a client that doesn't read delays no other.
#[test]
fn a_slow_reader_of_a_large_hole_is_alone() {
    let body: Vec<u8> = (0..40_u32 << 20).map(|place| (place >> 12) as u8).collect();
    let resource = Content::new(body.clone()).shared();
    let (gate, released) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.earlier > 0 {
            released.pass();
        }
        answer(exchange, &resource);
    });
    // Longer than any test client waits, so a delayed client would stay delayed.
    let settings = "[store]\nmemory = \"32MiB\"\n[limits]\nwrite_timeout = \"10m\"\n@site@";
    let larder = with(settings, &origin);
    larder.ask("GET", "/", &lines("0-9"));
    let mut slow = asking(&larder, "/", "");
    origin.wait_for("/", 2);
    let mut waiter = asking(&larder, "/", "");
    wait_for_waiters(&larder, 1);
    gate.open();
    assert_eq!(slow.head().status(), 200);
    assert_eq!(extent(&waiter.response(), &body), "whole", "an earlier waiter");
    assert_eq!(extent(&larder.get("/"), &body), "whole", "a later request");
}

#[test]
fn parts_over_http2() {
    let pair = Pair::new(Content::new(hundred()));
    pair.ask("10-19");
    let whole = || {
        let host = "Host: test.example";
        run("curl", ["-s", "--http2-prior-knowledge", "-H", host, &pair.larder.url("/")])
    };
    assert_eq!(whole().succeeded().stdout, hundred());
    assert_eq!(pair.origin.total(), 3, "the part, and the bytes before and after it");
    purge(&pair.larder, "url=http://test.example/");
    pair.ask("10-19");
    pair.resource.lock().expect("no holder of this lock panics").on_range = OnRange::Half;
    let broken = whole();
    assert_ne!(broken.status, 0, "the client sees that the body was cut short");
    assert!(hundred().starts_with(&broken.stdout), "{}", broken.text());
}

//= RFC 9110 section 14.6: multipart/byteranges
//= RFC 9110 section 15.3.7: a 206 carries one range with Content-Range, or several as multipart/byteranges
//= RFC 9110 section 15.3.7.2: Content-Range in each part
//= RFC 9110 section 15.3.7.2: parts in the order of the request
#[test]
fn several_ranges_come_in_the_order_of_the_request() {
    let fields = "Cache-Control: max-age=60\r\nContent-Type: text/plain\r\n";
    let pair = Pair::new(Content { fields, ..Content::new(hundred()) });
    pair.ask("");
    for asked in ["50-54,0-4,-3", "0-0,99-99", "10-19,30-39,20-29"] {
        let response = pair.ask(asked);
        assert_eq!(
            (response.status(), response.end, response.is_hit()),
            (206, End::Complete, true),
            "{asked}"
        );
        assert!(!response.head.fields.has("content-range"), "each part has its own: {:?}", response.head);
        let kind = response.field("content-type").strip_prefix("multipart/byteranges; boundary=");
        let boundary = kind.unwrap_or_else(|| panic!("{:?}", response.head));
        let text = String::from_utf8(hundred()).expect("text");
        let part = |range: &str| {
            let part = part_of(&format!("bytes={range}"), 100).expect(range);
            let place = format!("Content-Range: bytes {}-{}/100", part.start, part.end - 1);
            format!("\r\n--{boundary}\r\nContent-Type: text/plain\r\n{place}\r\n\r\n{}", &text[part])
        };
        let parts: String = asked.split(',').map(part).collect();
        assert_eq!(response.text(), format!("{parts}\r\n--{boundary}--\r\n"), "{asked}");
    }
}

#[test]
fn no_mixture_whatever_happens() {
    let ends = Storm::run(LARDER);
    let total = ends.complete + ends.broken;
    assert!(ends.complete > total / 2 && ends.hits > 0 && ends.assembled > 0, "{ends:?}");
}
