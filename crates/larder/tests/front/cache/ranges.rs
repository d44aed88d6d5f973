//! Parts of a representation: stored, combined and completed, seen from both sides of the running binary.

mod parts;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parts::storm::Storm;
use parts::{Content, OnRange, Resource, answer, extent, hundred, part_of};
use testkit::{End, Gate, Larder, Response, ScriptedOrigin, Setup, run, wait};

use crate::LARDER;

/// A gateway in front of a resource.
struct Pair {
    origin: ScriptedOrigin,
    larder: Larder,
    resource: Resource,
}

impl Pair {
    fn new(content: Content) -> Self {
        Self::with(content, "")
    }

    /// `rule` is text of the configuration.
    fn with(content: Content, rule: &str) -> Self {
        let resource = content.shared();
        let served = Arc::clone(&resource);
        let origin = ScriptedOrigin::start(move |exchange| answer(exchange, &served));
        let config = format!(
            "[[site]]\nname = \"a\"\norigin = \"{}\"\n[[site.rule]]\nstore_set_cookie = false\n{rule}",
            origin.url()
        );
        Self { larder: Setup::config(LARDER, &config).start(), origin, resource }
    }

    fn ask(&self, fields: &str) -> Response {
        self.larder.ask("GET", "/", &lines(fields))
    }

    fn change(&self, change: impl FnOnce(&mut Content)) {
        change(&mut self.resource.lock().expect("no holder of this lock panics"));
    }

    /// What the origin was asked for since `seen` requests: `Range` and `If-Range`, `-` for none.
    fn asked(&self, seen: &mut usize) -> Vec<String> {
        let received = self.origin.received();
        let asked = received[*seen..].iter().map(|request| {
            let parts = [request.field("range"), request.field("if-range")];
            let [range, if_range] = parts.map(|value| if value.is_empty() { "-" } else { value });
            format!("{} {if_range}", range.trim_start_matches("bytes="))
        });
        let asked = asked.collect();
        *seen = received.len();
        asked
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

/// A conversation about one resource of 100 bytes: fields of the request, what has to come, a part of `Cache-Status`,
/// and what the origin is asked for.
type Step<'a> = (&'a str, &'a str, &'a str, &'a [&'a str]);

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

fn check_all(cases: &[(&str, &[Step<'_>])]) {
    for (name, steps) in cases {
        check(&Pair::new(Content::new(hundred())), name, steps);
    }
}

//= RFC 9111 section 3.3: a 206 as an incomplete 200
//= RFC 9111 section 3.3: completing by a range request
//= RFC 9111 section 3.3: an incomplete response answers ranges inside it only
//= RFC 9110 section 15.3.7.3: combining parts
//= RFC 9110 section 13.1.5: no If-Range without Range
//= RFC 9110 section 15.3.7.3: what is whole is a 200
//= RFC 9110 section 15.3.7.3: what is not whole is a 206
#[test]
fn parts_are_stored_and_completed() {
    check_all(&[
        (
            "a part answers what lies inside it",
            &[
                ("10-19", "10-19/100", "fwd=uri-miss; fwd-status=206; stored", &["10-19 -"]),
                ("12-15", "12-15/100", "hit", &[]),
                ("10-19", "10-19/100", "hit", &[]),
            ],
        ),
        (
            "only missing bytes are fetched",
            &[
                ("10-19", "10-19/100", "stored", &["10-19 -"]),
                ("15-29", "15-29/100", "fwd=partial; fwd-status=206", &["20-29 \"a\""]),
                ("15-29", "15-29/100", "hit", &[]),
                ("5-9", "5-9/100", "fwd=partial", &["5-9 \"a\""]),
                ("", "whole", "fwd=partial", &["0-4 \"a\"", "30- \"a\""]),
                ("", "whole", "hit", &[]),
                ("-1", "99-99/100", "hit", &[]),
            ],
        ),
        (
            "from the end",
            &[
                ("-10", "90-99/100", "stored", &["-10 -"]),
                ("95-", "95-99/100", "hit", &[]),
                ("-20", "80-99/100", "fwd=partial", &["80-89 \"a\""]),
                ("", "whole", "fwd=partial", &["0-79 \"a\""]),
                ("", "whole", "hit", &[]),
            ],
        ),
        (
            "a 206 with all bytes is a complete response",
            &[("0-", "0-99/100", "stored", &["0- -"]), ("", "whole", "hit", &[])],
        ),
        (
            "a whole over the first bytes asks for the open end",
            &[("0-49", "0-49/100", "stored", &["0-49 -"]), ("", "whole", "fwd=partial", &["50- \"a\""])],
        ),
    ]);
}

//= RFC 9110 section 13.2.2: preconditions come before ranges
//= RFC 9110 section 13.1.5: If-Range, strong comparison and exact dates
#[test]
fn conditional_requests_for_parts() {
    const FIRST: Step<'_> = ("10-19", "10-19/100", "stored", &["10-19 -"]);
    check_all(&[
        ("If-Range that holds", &[FIRST, ("11-12\nIf-Range: \"a\"", "11-12/100", "hit", &[])]),
        (
            "If-Range that does not hold is for the whole",
            &[FIRST, ("11-12\nIf-Range: \"b\"", "whole", "fwd=partial", &["0-9 \"a\"", "20- \"a\""])],
        ),
        (
            "If-Range on a miss is judged here",
            &[
                ("10-19\nIf-Range: \"a\"", "10-19/100", "fwd=uri-miss", &["10-19 -"]),
                ("10-19", "10-19/100", "hit", &[]),
            ],
        ),
        (
            "If-Range of something else on a miss",
            &[
                ("10-19\nIf-Range: \"b\"", "whole", "fwd=uri-miss", &["10-19 -", "- -"]),
                ("", "whole", "hit", &[]),
            ],
        ),
        (
            "If-None-Match goes first",
            &[
                FIRST,
                ("50-60\nIf-None-Match: \"a\"", "304", "hit", &[]),
                ("\nIf-None-Match: \"a\"", "304", "hit", &[]),
            ],
        ),
        (
            "If-Match is the origin's",
            &[FIRST, ("11-12\nIf-Match: \"a\"", "11-12/100", "fwd=request", &["11-12 -"])],
        ),
        ("only-if-cached", &[FIRST, ("11-12\nCache-Control: only-if-cached", "11-12/100", "hit", &[])]),
        (
            "only-if-cached, not there",
            &[FIRST, ("\nCache-Control: only-if-cached", "504", "only-if-cached", &[])],
        ),
        (
            "no-store of the request",
            &[
                FIRST,
                ("15-29\nCache-Control: no-store", "15-29/100", "fwd=partial", &["15-29 -"]),
                ("11-12", "11-12/100", "hit", &[]),
                ("20-29", "20-29/100", "fwd=partial", &["20-29 \"a\""]),
            ],
        ),
        (
            "no-cache of the request validates the part",
            &[
                FIRST,
                ("10-19\nCache-Control: no-cache", "10-19/100", "fwd=request; fwd-status=304", &["10-19 -"]),
            ],
        ),
        ("outside", &[FIRST, ("100-", "416", "hit", &[])]),
        (
            "outside of something new",
            &[("100-", "416", "fwd=uri-miss", &["100- -"]), ("", "whole", "fwd=uri-miss", &["- -"])],
        ),
    ]);
}

#[test]
fn head_and_several_ranges_over_a_part() {
    let pair = Pair::new(Content::new(hundred()));
    pair.ask("10-19");
    let head = pair.larder.ask("HEAD", "/", "");
    assert_eq!(
        (head.status(), head.field("content-length"), head.is_hit()),
        (200, "100", true),
        "{:?}",
        head.head
    );
    let inside = pair.ask("10-11,15-16");
    assert!(
        inside.is_hit() && inside.field("content-type").starts_with("multipart/byteranges"),
        "{:?}",
        inside.head
    );
    let outside = pair.ask("10-11,50-51");
    assert!(outside.cache_status().contains("fwd=partial"), "{:?}", outside.head);
    assert_eq!(pair.origin.last("/").field("range"), "bytes=10-11,50-51", "for the origin to answer");
}

//= RFC 9111 section 3.4: the same strong validator
#[test]
fn only_strong_validators_combine() {
    const DATED: &str = "Cache-Control: max-age=60\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nAge: 1\r\n\
                         Last-Modified: Sun, 06 Nov 1994 07:00:00 GMT\r\n";
    const FRESH: &str = "Cache-Control: max-age=60\r\n";
    let alone: &[Step<'_>] = &[
        ("10-19", "10-19/100", "stored", &["10-19 -"]),
        ("12-13", "12-13/100", "hit", &[]),
        ("15-29", "15-29/100", "fwd=partial", &["15-29 -"]),
        ("15-29", "15-29/100", "hit", &[]),
        ("", "whole", "fwd=partial", &["- -"]),
        ("", "whole", "hit", &[]),
    ];
    let weak = Content { etag: "W/\"a\"", ..Content::new(hundred()) };
    check(&Pair::new(weak), "weak entity tag", alone);
    let none = Content { etag: "", ..Content::new(hundred()) };
    check(&Pair::new(none.clone()), "no validator", alone);
    let dated = Content { fields: DATED, ..none };
    let rule = "ttl_override = { 200 = \"1h\" }\n";
    check(
        &Pair::with(dated, rule),
        "a strong date",
        &[
            ("10-19", "10-19/100", "stored", &["10-19 -"]),
            (
                "",
                "whole",
                "fwd=partial",
                &["0-9 Sun, 06 Nov 1994 07:00:00 GMT", "20- Sun, 06 Nov 1994 07:00:00 GMT"],
            ),
        ],
    );
    let mixed = Pair::new(Content { fields: FRESH, ..Content::new(hundred()) });
    mixed.ask("10-19");
    mixed.change(|content| content.etag = "W/\"a\"");
    check(&mixed, "a weak tag is not the strong one", &[("", "whole", "fwd=partial", &["0-9 \"a\""])]);
}

fn other() -> Vec<u8> {
    hundred().into_iter().rev().collect()
}

//= RFC 9111 section 3.4: the same strong validator
#[test]
fn a_representation_that_changed_takes_the_place_of_its_parts() {
    for (name, on_range, forwarded) in [
        ("200", OnRange::Answer, &["0-9 \"a\""] as &[&str]),
        ("the origin ignores ranges now", OnRange::Ignore, &["0-9 \"a\""]),
        ("206 despite If-Range", OnRange::DespiteIfRange, &["0-9 \"a\"", "- -"]),
    ] {
        let pair = Pair::new(Content::new(hundred()));
        pair.ask("10-19");
        pair.change(|content| *content = Content { etag: "\"b\"", on_range, ..Content::new(other()) });
        check(&pair, name, &[("", "whole", "fwd=partial", forwarded), ("10-19", "10-19/100", "hit", &[])]);
    }
}

#[test]
fn a_range_over_a_part_that_changed() {
    let pair = Pair::new(Content::new(hundred()));
    pair.ask("10-19");
    pair.change(|content| *content = Content { etag: "\"b\"", ..Content::new(other()) });
    check(
        &pair,
        "the new one answers the range",
        &[("15-24", "15-24/100", "fwd=partial", &["20-24 \"a\""]), ("", "whole", "hit", &[])],
    );
    pair.ask("Cache-Control: no-cache");
    let despite = Pair::new(Content::new(hundred()));
    despite.ask("10-19");
    despite.change(|content| {
        *content = Content { etag: "\"b\"", on_range: OnRange::DespiteIfRange, ..Content::new(other()) };
    });
    check(
        &despite,
        "no mixture",
        &[
            ("15-24", "15-24/100", "fwd=partial", &["20-24 \"a\"", "15-24 -"]),
            ("15-24", "15-24/100", "hit", &[]),
            ("10-14", "10-14/100", "fwd=partial", &["10-14 \"b\""]),
        ],
    );
}

/// Once the head is sent, half of one and half of another must not look like a response.
#[test]
fn a_change_between_two_missing_parts_breaks_the_reply() {
    let resource = Content::new(hundred()).shared();
    let served = Arc::clone(&resource);
    let origin = ScriptedOrigin::start(move |exchange| {
        let is_last = exchange.request.field("range") == "bytes=30-";
        if is_last {
            *served.lock().expect("no holder of this lock panics") =
                Content { etag: "\"b\"", ..Content::new(other()) };
        }
        answer(exchange, &served);
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    larder.ask("GET", "/", &lines("10-29"));
    let broken = larder.get("/");
    assert_eq!((broken.status(), broken.end), (200, End::Truncated), "{:?}", broken.head);
    assert!(hundred().starts_with(&broken.body) && broken.body.len() >= 10, "{} bytes", broken.body.len());
    let right = larder.get("/");
    assert_eq!(extent(&right, &other()), "whole");
    assert_eq!(right.end, End::Complete);
}

/// Field bug: a hit was cut where a part of it was gone and the origin answered the request for that with the whole.
//= RFC 9111 section 3.4: the same strong validator
#[test]
fn a_whole_of_the_same_representation_goes_on_with_the_reply() {
    #[track_caller]
    fn check(whole: fn() -> Content, end: End) {
        let resource = Content::new(hundred()).shared();
        let served = Arc::clone(&resource);
        let origin = ScriptedOrigin::start(move |exchange| {
            if exchange.request.field("range") == "bytes=30-" {
                *served.lock().expect("no holder of this lock panics") =
                    Content { on_range: OnRange::Ignore, ..whole() };
            }
            answer(exchange, &served);
        });
        let larder = Setup::origin(LARDER, &origin.url()).start();
        larder.ask("GET", "/", &lines("10-29"));
        let response = larder.get("/");
        assert_eq!((response.status(), response.end), (200, end), "{:?}", response.head);
        assert!(hundred().starts_with(&response.body), "{} bytes", response.body.len());
        assert_eq!(larder.get("/").body, whole().body, "the whole is stored");
        assert_eq!(origin.total(), 3);
    }
    check(|| Content::new(hundred()), End::Complete);
    check(|| Content { etag: "\"b\"", ..Content::new(hundred()) }, End::Truncated);
    check(|| Content::new(hundred()[..90].to_vec()), End::Truncated);
}

#[test]
fn a_missing_part_that_breaks_off_breaks_the_reply() {
    let resource = Content::new(hundred()).shared();
    let cuts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&cuts);
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.field("range") == "bytes=20-" && counted.fetch_add(1, Ordering::AcqRel) == 0 {
            let fields = "Content-Length: 80\r\nContent-Range: bytes 20-99/100\r\nETag: \"a\"\r\n";
            exchange.head("206 Partial Content", fields).send(&hundred()[20..50]).close();
            return;
        }
        answer(exchange, &resource);
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    larder.ask("GET", "/", &lines("0-19"));
    let broken = larder.get("/");
    assert_eq!((broken.status(), broken.end), (200, End::Truncated), "{:?}", broken.head);
    assert!(hundred().starts_with(&broken.body), "only right bytes");
    let again = larder.get("/");
    assert_eq!((extent(&again, &hundred()).as_str(), again.end), ("whole", End::Complete));
    assert!(larder.get("/").is_hit());
}

#[test]
fn an_origin_in_trouble_leaves_the_parts_alone() {
    let resource = Content::new(hundred()).shared();
    let origin = ScriptedOrigin::start(move |exchange| match exchange.request.field("x-trouble") {
        "" => answer(exchange, &resource),
        status => {
            let status = format!("{status} Trouble");
            exchange.respond(&status, "", "trouble");
        }
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    larder.ask("GET", "/", &lines("10-19"));
    for status in ["500", "503", "403", "429"] {
        let trouble = larder.ask("GET", "/", &format!("Range: bytes=15-24\r\nX-Trouble: {status}\r\n"));
        assert_eq!(trouble.status().to_string(), status, "{:?}", trouble.head);
        assert!(larder.ask("GET", "/", &lines("10-19")).is_hit(), "after {status}");
    }
    let gone = larder.ask("GET", "/", &lines("15-24\nX-Trouble: 404"));
    assert_eq!(gone.status(), 404);
    assert!(!larder.ask("GET", "/", &lines("10-19")).is_hit(), "it is gone");
}

//= RFC 9110 section 15.3.7: a 206 carries one range with Content-Range, or several as multipart/byteranges
//= RFC 9110 section 14.4: an invalid Content-Range must not be used to recombine
//= RFC 9111 section 3.3: parts need Range, Content-Range and known units
#[test]
fn a_206_that_is_no_part_passes_and_is_not_stored() {
    for (range, fields) in [
        ("0-9", "Content-Length: 10\r\n"),
        ("0-9", "Content-Range: bytes 9-0/100\r\nContent-Length: 10\r\n"),
        ("0-9", "Content-Range: bytes 0-9/5\r\nContent-Length: 10\r\n"),
        ("0-9", "Content-Range: lines 0-9/100\r\nContent-Length: 10\r\n"),
        ("0-9", "Content-Range: bytes 0-19/100\r\nContent-Length: 10\r\n"),
        ("0-9", "Content-Type: multipart/byteranges; boundary=x\r\nContent-Length: 10\r\n"),
    ] {
        let answer = format!("{fields}Cache-Control: max-age=60\r\nETag: \"a\"\r\n");
        let origin = ScriptedOrigin::start(move |exchange| {
            exchange.head("206 Partial Content", &answer).send("0123456789");
        });
        let larder = Setup::origin(LARDER, &origin.url()).start();
        for asked in 1..=2 {
            let response = larder.ask("GET", "/", &lines(range));
            assert_eq!((response.status(), response.text().as_str()), (206, "0123456789"), "{fields}");
            assert!(response.cache_status().contains("partial-content"), "{fields}: {:?}", response.head);
            assert_eq!(origin.total(), asked, "{fields}");
        }
    }
}

/// Without `Content-Length` nothing but its end tells how long a part is.
#[test]
fn a_part_of_another_length_than_it_says_breaks_off() {
    for (range, says, chunk) in [
        ("10-19", "10-19/100", "12345678901"),
        ("10-19", "10-19/100", "123456789"),
        ("0-", "0-9/10", "12345678901"),
    ] {
        let fields = format!("Cache-Control: max-age=60\r\nETag: \"a\"\r\nContent-Range: bytes {says}\r\n");
        let origin = ScriptedOrigin::start(move |exchange| {
            let fields = format!("Transfer-Encoding: chunked\r\n{fields}");
            exchange.head("206 Partial Content", &fields).chunk(chunk).last_chunk("");
        });
        let larder = Setup::origin(LARDER, &origin.url()).start();
        for asked in 1..=2 {
            let response = larder.ask("GET", "/", &lines(range));
            assert_eq!(
                (response.status(), response.end),
                (206, End::Truncated),
                "{says}: {:?}",
                response.head
            );
            assert_eq!(origin.total(), asked, "not stored: {says}");
        }
    }
}

/// The same where nothing is stored: the client must see that it has not got the part that the head tells of, whatever
/// the origin's framing says.
//= RFC 9110 section 15.3.7: a 206 carries one range with Content-Range, or several as multipart/byteranges
#[test]
fn a_part_that_is_passed_on_breaks_off_where_it_is_not_what_it_says() {
    let origin = ScriptedOrigin::start(|exchange| {
        let target = exchange.request.target().to_owned();
        let (_, how) = target.rsplit_once('/').expect("a path");
        let (framing, body) = how.split_once('-').expect("framing and body");
        let fields = "Cache-Control: no-store\r\nContent-Range: bytes 10-19/100\r\n";
        match framing {
            "length" => exchange.respond("206 Partial Content", fields, body),
            "chunked" => {
                let fields = format!("Transfer-Encoding: chunked\r\n{fields}");
                exchange.head("206 Partial Content", &fields).chunk(body).last_chunk("")
            }
            _ => exchange.head("206 Partial Content", fields).send(body).close(),
        };
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    // The last is never looked up.
    for (version, method) in [("1.1", "GET"), ("1.0", "GET"), ("1.1", "POST")] {
        for framing in ["length", "chunked", "close"] {
            for body in ["1234567890", "123456789", "12345678901", ""] {
                let target = format!("/{method}{version}/{framing}-{body}");
                let mut client = larder.client();
                let fields = "Host: test.example\r\nRange: bytes=10-19\r\nContent-Length: 0\r\n";
                client.send(format!("{method} {target} HTTP/{version}\r\n{fields}\r\n"));
                let response = client.response();
                let is_whole = matches!(response.end, End::Complete | End::Closed);
                assert_eq!(response.status(), 206, "{target}: {:?}", response.head);
                assert_eq!(is_whole, body.len() == 10, "{target}: {:?} {:?}", response.head, response.text());
                assert!(response.body.len() <= 10, "{target}: {:?}", response.text());
            }
        }
    }
}

#[test]
fn an_origin_that_ignores_ranges_or_answers_with_less() {
    let ignoring = Content { on_range: OnRange::Ignore, ..Content::new(hundred()) };
    check(
        &Pair::new(ignoring),
        "ranges are ignored",
        &[
            ("10-19", "10-19/100", "fwd=uri-miss; fwd-status=200; stored", &["10-19 -"]),
            ("", "whole", "hit", &[]),
        ],
    );
    let sparing = Content { on_range: OnRange::TenBytes, ..Content::new(hundred()) };
    check(
        &Pair::new(sparing),
        "ten bytes at once",
        &[
            ("10-39", "10-19/100", "stored", &["10-39 -"]),
            ("10-39", "10-39/100", "fwd=partial", &["20-39 \"a\"", "30-39 \"a\""]),
            ("10-39", "10-39/100", "hit", &[]),
        ],
    );
}

#[test]
fn parts_can_be_switched_off() {
    check(
        &Pair::with(Content::new(hundred()), "store_parts = false\n"),
        "the whole is fetched",
        &[
            ("10-19", "10-19/100", "fwd=uri-miss; fwd-status=200; stored", &["- -"]),
            ("", "whole", "hit", &[]),
        ],
    );
}

/// The lifetime of a part, and what validation makes of it.
//= RFC 9111 section 4.3.4: freshening stored responses upon validation
#[test]
fn a_stale_part_is_validated() {
    let fields = "Cache-Control: no-cache\r\n";
    let pair = Pair::new(Content { fields, ..Content::new(hundred()) });
    check(
        &pair,
        "each time",
        &[
            ("10-19", "10-19/100", "stored", &["10-19 -"]),
            ("12-13", "12-13/100", "fwd=stale; fwd-status=304", &["12-13 -"]),
            ("15-24", "15-24/100", "fwd=partial", &["15-24 -", "20-24 \"a\""]),
        ],
    );
    pair.change(|content| *content = Content { etag: "\"b\"", fields, ..Content::new(other()) });
    check(
        &pair,
        "and replaced when it changed",
        &[
            ("12-13", "12-13/100", "fwd=stale; fwd-status=206", &["12-13 -"]),
            ("", "whole", "fwd=partial", &["- -", "0-11 \"b\"", "14- \"b\""]),
        ],
    );
}

/// Waits at the gate where the request says so.
fn gated(resource: Resource, gate: &Gate) -> ScriptedOrigin {
    let gate = gate.clone();
    ScriptedOrigin::start(move |exchange| {
        if exchange.request.field("range") == "bytes=10-19" {
            gate.pass();
        }
        answer(exchange, &resource);
    })
}

#[test]
fn identical_ranges_are_one_forward_and_others_do_not_wait() {
    let gate = Gate::new();
    let origin = gated(Content::new(hundred()).shared(), &gate);
    let larder = Setup::origin(LARDER, &origin.url()).start();
    thread::scope(|scope| {
        let asks: Vec<_> = (0..8).map(|_| scope.spawn(|| larder.ask("GET", "/", &lines("10-19")))).collect();
        origin.wait_for("/", 1);
        wait::until_true("the others wait", || larder.metric("larder_collapsed_waiters", &[]) >= 7.0);
        let other = larder.ask("GET", "/", &lines("30-39"));
        assert_eq!(extent(&other, &hundred()), "30-39/100", "it does not wait");
        gate.open();
        for ask in asks {
            assert_eq!(extent(&ask.join().expect("no panic"), &hundred()), "10-19/100");
        }
    });
    assert_eq!(origin.total(), 2, "one per range");
    assert!(
        larder.ask("GET", "/", &lines("10-19")).is_hit() && larder.ask("GET", "/", &lines("30-39")).is_hit()
    );
    larder.get("/");
    let asked: Vec<String> =
        origin.received()[2..].iter().map(|request| request.field("range").into()).collect();
    assert_eq!(asked, ["bytes=0-9", "bytes=20-29", "bytes=40-"], "both parts were stored");
}

#[test]
fn a_purge_forbids_storing_what_is_under_way() {
    let gate = Gate::new();
    let origin = gated(Content::new(hundred()).shared(), &gate);
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let url = "http://test.example/";
    thread::scope(|scope| {
        let asking = scope.spawn(|| larder.ask("GET", "/", &lines("10-19")));
        origin.wait_for("/", 1);
        let purged = larder.ask_admin("POST", "/purge", &format!("{{\"url\": \"{url}\"}}"));
        assert_eq!(purged.status(), 200, "{}", purged.text());
        gate.open();
        assert_eq!(extent(&asking.join().expect("no panic"), &hundred()), "10-19/100");
    });
    assert!(!larder.ask("GET", "/", &lines("10-19")).is_hit(), "not stored");
}

/// A whole that is put together slowly, and was begun before a purge, asks for its second hole after it: its fields are older
/// than those of what was stored since.
//= RFC 9111 section 3.4: the same strong validator
#[test]
fn a_part_asked_for_after_a_purge_does_not_bring_old_fields_back() {
    for purge in ["{\"url\": \"http://test.example/\"}", "{\"prefix\": \"/\"}"] {
        // It comes while the first hole is on its way, or while the origin is asked for the second one.
        for held in [0, 20] {
            check_parts_of_a_purged_response(purge, held);
        }
    }
}

fn check_parts_of_a_purged_response(purge: &str, held: usize) {
    let gate = Gate::new();
    let released = gate.clone();
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
    let larder = Setup::origin(LARDER, &origin.url()).start();
    larder.ask("GET", "/", &lines("10-19"));
    let mut slow = larder.client();
    slow.send("GET / HTTP/1.1\r\nHost: test.example\r\n\r\n");
    assert_eq!(slow.head().status(), 200);
    let asked = if held == 0 { 2 } else { 3 };
    origin.wait_for("/", asked);
    assert_eq!(larder.ask_admin("POST", "/purge", purge).status(), 200);
    assert_eq!(larder.get("/").field("x-age"), "new");
    gate.open();
    assert_eq!(slow.bytes(100), hundred(), "{purge}, {held}");
    let last = if held == 0 { "bytes=20-" } else { "" };
    assert_eq!(origin.last("/").field("range"), last, "the second hole, after the purge or before");
    let after = larder.get("/");
    assert!(after.is_hit() && after.field("x-age") == "new", "{:?}", after.head);
}

/// Missing bytes that are too many to be stored pass by in a window: a client that doesn't read holds nobody else up.
#[test]
fn a_slow_reader_of_a_large_hole_is_alone() {
    let body: Vec<u8> = (0..40_u32 << 20).map(|place| (place >> 12) as u8).collect();
    let resource = Content::new(body.clone()).shared();
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.earlier > 0 {
            released.pass();
        }
        answer(exchange, &resource);
    });
    // Longer than any client of the tests waits: who is held up stays so.
    let settings = "[store]\nmemory = \"32MiB\"\n[limits]\nwrite_timeout = \"10m\"\n\
                    [[site]]\nname = \"a\"\norigin = \"@origin@\"\n";
    let larder = Setup::config(LARDER, &settings.replace("@origin@", &origin.url())).start();
    larder.ask("GET", "/", &lines("0-9"));
    let mut slow = larder.client();
    slow.send("GET / HTTP/1.1\r\nHost: test.example\r\n\r\n");
    origin.wait_for("/", 2);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| larder.get("/"));
        wait::until_true("one waits", || larder.metric("larder_collapsed_waiters", &[]) >= 1.0);
        gate.open();
        assert_eq!(slow.head().status(), 200);
        assert_eq!(extent(&waiter.join().expect("no panic"), &body), "whole", "who waited before");
    });
    assert_eq!(extent(&larder.get("/"), &body), "whole", "who comes later");
}

//= RFC 9111 section 4.1: all nominated fields match
#[test]
fn parts_of_variants_are_kept_apart() {
    let (upper, lower) = (vec![b'A'; 100], vec![b'a'; 100]);
    let of_case = |body: &[u8], etag| {
        let fields = "Cache-Control: max-age=60\r\nVary: X-Case\r\n";
        Content { etag, fields, ..Content::new(body.to_vec()) }.shared()
    };
    let (big, small) = (of_case(&upper, "\"A\""), of_case(&lower, "\"a\""));
    let origin = ScriptedOrigin::start(move |exchange| match exchange.request.field("x-case") {
        "upper" => answer(exchange, &big),
        _ => answer(exchange, &small),
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    for (fields, body) in [
        ("10-19\nX-Case: upper", &upper),
        ("20-29\nX-Case: lower", &lower),
        ("\nX-Case: upper", &upper),
        ("15-35\nX-Case: lower", &lower),
        ("\nX-Case: lower", &lower),
    ] {
        extent(&larder.ask("GET", "/", &lines(fields.trim_start())), body);
        extent(&larder.ask("GET", "/", &lines(fields.trim_start())), body);
    }
    assert!(larder.ask("GET", "/", &lines("X-Case: upper")).is_hit());
    let asked: Vec<String> = origin.received().iter().map(|request| request.field("range").into()).collect();
    assert_eq!(
        asked,
        [
            "bytes=10-19",
            "bytes=20-29",
            "bytes=0-9",
            "bytes=20-",
            "bytes=15-19",
            "bytes=30-35",
            "bytes=0-14",
            "bytes=36-"
        ]
    );
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
    assert_eq!(pair.origin.total(), 3, "the part, and what comes before and after it");
    pair.larder.ask_admin("POST", "/purge", "{\"url\": \"http://test.example/\"}");
    pair.ask("10-19");
    pair.change(|content| content.on_range = OnRange::Half);
    let broken = whole();
    assert_ne!(broken.status, 0, "the client sees that it broke off");
    assert!(hundred().starts_with(&broken.stdout), "{}", broken.text());
}

/// What shows of it.
#[test]
fn parts_are_counted() {
    let pair = Pair::new(Content::new(hundred()));
    pair.ask("10-19");
    pair.ask("");
    let metric = |name: &str| pair.larder.metric(name, &[]);
    wait::until_true("three parts", || metric("larder_parts_stored_total") >= 3.0);
    assert_eq!(metric("larder_missing_part_bytes_total"), 90.0);
    assert_eq!(pair.larder.metric("larder_missing_parts_total", &["outcome=\"spliced\""]), 2.0);
}

//= RFC 9110 section 14.6: multipart/byteranges
//= RFC 9110 section 15.3.7: a 206 carries one range with Content-Range, or several as multipart/byteranges
#[test]
fn several_ranges_come_in_the_order_of_the_request() {
    let content = Content {
        fields: "Cache-Control: max-age=60\r\nContent-Type: text/plain\r\n",
        ..Content::new(hundred())
    };
    let pair = Pair::new(content);
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
        let boundary = kind.unwrap_or_else(|| panic!("{:?}", response.head)).trim_matches('"');
        let mut expected = Vec::new();
        for range in asked.split(',') {
            let part = part_of(&format!("bytes={range}"), 100).expect(range);
            let (first, last) = (part.start, part.end - 1);
            let head = format!(
                "\r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes {first}-{last}/100\r\n\r\n"
            );
            expected.extend_from_slice(head.as_bytes());
            expected.extend_from_slice(&hundred()[part]);
        }
        expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        // The line break before the first boundary is a matter of taste.
        let (found, expected) = (response.text(), String::from_utf8(expected).expect("text"));
        assert_eq!(found.trim_start().to_lowercase(), expected.trim_start().to_lowercase(), "{asked}");
    }
}

/// Under load and change, with breaks and purges: no byte is ever of another version than the response says.
#[test]
fn no_mixture_whatever_happens() {
    let ends = Storm::run(LARDER);
    let total = ends.complete + ends.broken;
    assert!(ends.complete > total / 2 && ends.hits > 0 && ends.assembled > 0, "{ends:?}");
}
