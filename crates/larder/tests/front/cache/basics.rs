//! What is stored, reused, validated and invalidated: seen from both sides of the running binary.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use testkit::{Exchange, Larder, Received, Response, ScriptedOrigin, Setup, wait};

use crate::LARDER;

/// Field lines in a table have `\n` between them.
fn lines(fields: &str) -> String {
    fields.lines().map(|line| format!("{line}\r\n")).collect()
}

/// A conversation about one resource.
struct Case {
    name: &'static str,
    /// Status line and fields of the origin; a validator there makes it answer 304.
    answer: (&'static str, &'static str),
    /// Request, expected status, a part of the expected `Cache-Status`, requests at the origin so far.
    steps: &'static [(&'static str, u16, &'static str, usize)],
}

impl Case {
    fn path(&self) -> String {
        format!("/{}", self.name.replace(' ', "-"))
    }
}

fn answer(exchange: &mut Exchange<'_>, status: &str, fields: &str) {
    let stored_tag = fields.lines().find_map(|line| line.strip_prefix("ETag: "));
    let is_known = stored_tag.is_some_and(|tag| exchange.request.field("if-none-match").contains(tag));
    match is_known {
        true => exchange.head("304 Not Modified", &lines(fields)),
        false => exchange.respond(status, &lines(fields), "the body"),
    };
}

/// Sends a request as tables have it: the method, then field lines.
fn send(larder: &Larder, path: &str, request: &str) -> Response {
    let (method, fields) = request.split_once('\n').unwrap_or((request, ""));
    larder.ask(method, path, &lines(fields))
}

fn check(cases: &'static [Case]) {
    let by_path: HashMap<String, &Case> = cases.iter().map(|case| (case.path(), case)).collect();
    let by_path = Arc::new(by_path);
    let origin = ScriptedOrigin::start(move |exchange| {
        let (status, fields) = by_path[exchange.request.target()].answer;
        answer(exchange, status, fields);
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    for case in cases {
        for (number, (request, status, cache_status, forwarded)) in case.steps.iter().enumerate() {
            let response = send(&larder, &case.path(), request);
            let what = format!("{}, step {}: {request:?} -> {:?}", case.name, number + 1, response.head);
            assert_eq!(response.status(), *status, "status; {what}");
            assert!(
                response.cache_status().contains(cache_status),
                "Cache-Status has no {cache_status}; {what}"
            );
            assert_eq!(origin.count(&case.path()), *forwarded, "requests at the origin; {what}");
            if *status == 200 && !request.starts_with("HEAD") {
                assert_eq!(response.text(), "the body", "{what}");
            }
        }
    }
}

//= RFC 9111 section 3: when a response may be stored
//= RFC 9111 section 4.2.1: the first that applies
//= RFC 9111 section 2: reuse is the default
//= RFC 9111 section 4: when a stored response may be reused
#[test]
fn responses_are_stored_and_reused_as_their_fields_say() {
    check(&[
        Case {
            name: "a miss becomes a hit",
            answer: ("200 OK", "Cache-Control: max-age=60"),
            steps: &[("GET", 200, "fwd=uri-miss", 1), ("GET", 200, "larder; hit", 1), ("GET", 200, "hit", 1)],
        },
        Case {
            name: "storing is said",
            answer: ("200 OK", "Cache-Control: max-age=60"),
            steps: &[("GET", 200, "stored", 1)],
        },
        Case {
            name: "s-maxage goes before max-age",
            answer: ("200 OK", "Cache-Control: max-age=0, s-maxage=60"),
            steps: &[("GET", 200, "stored", 1), ("GET", 200, "hit", 1)],
        },
        Case {
            name: "Expires alone",
            answer: ("200 OK", "Expires: Fri, 01 Jan 2100 00:00:00 GMT"),
            steps: &[("GET", 200, "stored", 1), ("GET", 200, "hit", 1)],
        },
        Case {
            name: "Expires 0 is in the past",
            answer: ("200 OK", "Expires: 0"),
            steps: &[("GET", 200, "no-freshness", 1), ("GET", 200, "fwd=", 2)],
        },
        Case {
            name: "no-store",
            answer: ("200 OK", "Cache-Control: no-store, max-age=60"),
            steps: &[("GET", 200, "detail=no-store", 1), ("GET", 200, "fwd=uri-miss", 2)],
        },
        Case {
            name: "private",
            answer: ("200 OK", "Cache-Control: private, max-age=60"),
            steps: &[("GET", 200, "detail=private", 1), ("GET", 200, "fwd=uri-miss", 2)],
        },
        Case {
            name: "two Cache-Control lines are one list",
            answer: ("200 OK", "Cache-Control: max-age=60\nCache-Control: no-store"),
            steps: &[("GET", 200, "detail=no-store", 1), ("GET", 200, "fwd=", 2)],
        },
        Case {
            name: "a cookie is for one client",
            answer: ("200 OK", "Cache-Control: max-age=60\nSet-Cookie: a=b"),
            steps: &[("GET", 200, "detail=set-cookie", 1), ("GET", 200, "fwd=", 2)],
        },
        Case {
            name: "neither freshness nor validator",
            answer: ("200 OK", "X-Nothing: here"),
            steps: &[("GET", 200, "detail=no-freshness", 1), ("GET", 200, "fwd=", 2)],
        },
    ]);
}

//= RFC 9111 section 3: when a response may be stored
#[test]
fn statuses_and_validators_decide_about_storing() {
    check(&[
        Case {
            name: "404 with a lifetime",
            answer: ("404 Not Found", "Cache-Control: max-age=60"),
            steps: &[("GET", 404, "stored", 1), ("GET", 404, "hit", 1)],
        },
        Case {
            name: "301 with a lifetime",
            answer: ("301 Moved Permanently", "Cache-Control: max-age=60\nLocation: /x"),
            steps: &[("GET", 301, "stored", 1), ("GET", 301, "hit", 1)],
        },
        Case {
            name: "500 without a lifetime",
            answer: ("500 Internal Server Error", "X-Nothing: here"),
            steps: &[("GET", 500, "fwd=uri-miss", 1), ("GET", 500, "fwd=", 2)],
        },
        Case {
            name: "206 is not stored as if it were whole",
            answer: ("206 Partial Content", "Cache-Control: max-age=60\nContent-Range: bytes 0-7/100"),
            steps: &[("GET", 502, "http-protocol-error", 1), ("GET", 502, "fwd=", 2)],
        },
        Case {
            name: "no-cache is validated each time",
            answer: ("200 OK", "Cache-Control: no-cache\nETag: \"v1\""),
            steps: &[
                ("GET", 200, "stored", 1),
                ("GET", 200, "fwd=stale", 2),
                ("GET", 200, "fwd-status=304", 3),
            ],
        },
        Case {
            name: "stale on arrival is validated",
            answer: ("200 OK", "Cache-Control: max-age=60\nAge: 100\nETag: \"v1\""),
            steps: &[("GET", 200, "fwd=uri-miss", 1), ("GET", 200, "fwd=stale", 2)],
        },
        Case {
            name: "Vary star",
            answer: ("200 OK", "Cache-Control: max-age=60\nVary: *"),
            steps: &[("GET", 200, "vary-star", 1), ("GET", 200, "fwd=", 2)],
        },
    ]);
}

//= RFC 9111 section 5.2.1: Cache-Control of requests
#[test]
fn requests_say_what_they_accept() {
    check(&[
        Case {
            name: "only-if-cached without anything stored",
            answer: ("200 OK", "Cache-Control: max-age=60"),
            steps: &[
                ("GET\nCache-Control: only-if-cached", 504, "larder; detail=only-if-cached", 0),
                ("GET", 200, "stored", 1),
                ("GET\nCache-Control: only-if-cached", 200, "hit", 1),
            ],
        },
        Case {
            name: "request no-cache",
            answer: ("200 OK", "Cache-Control: max-age=60"),
            steps: &[
                ("GET", 200, "stored", 1),
                ("GET\nCache-Control: no-cache", 200, "fwd=request", 2),
                ("GET", 200, "hit", 2),
            ],
        },
        Case {
            name: "Pragma no-cache counts without Cache-Control",
            answer: ("200 OK", "Cache-Control: max-age=60"),
            steps: &[("GET", 200, "stored", 1), ("GET\nPragma: no-cache", 200, "fwd=request", 2)],
        },
        Case {
            name: "request max-age below the age",
            answer: ("200 OK", "Cache-Control: max-age=60\nAge: 5\nETag: \"a\""),
            steps: &[
                ("GET", 200, "stored", 1),
                ("GET\nCache-Control: max-age=30", 200, "hit", 1),
                ("GET\nCache-Control: max-age=0", 200, "fwd=request", 2),
            ],
        },
        Case {
            name: "request no-store",
            answer: ("200 OK", "Cache-Control: max-age=60"),
            steps: &[
                ("GET\nCache-Control: no-store", 200, "request-no-store", 1),
                ("GET", 200, "stored", 2),
                ("GET", 200, "hit", 2),
            ],
        },
        Case {
            name: "min-fresh longer than the lifetime",
            answer: ("200 OK", "Cache-Control: max-age=60"),
            steps: &[("GET", 200, "stored", 1), ("GET\nCache-Control: min-fresh=100", 200, "fwd=request", 2)],
        },
        Case {
            name: "max-stale takes a stale response",
            answer: ("200 OK", "Cache-Control: max-age=60\nAge: 100\nETag: \"a\""),
            steps: &[
                ("GET", 200, "stored", 1),
                ("GET\nCache-Control: max-stale=1000", 200, "hit", 1),
                ("GET\nCache-Control: max-stale=10", 200, "fwd=stale", 2),
            ],
        },
    ]);
}

//= RFC 9111 section 3.5: responses to requests with Authorization
#[test]
fn what_is_no_part_of_the_key_keeps_responses_apart() {
    check(&[
        Case {
            name: "Authorization keeps a response from others",
            answer: ("200 OK", "Cache-Control: max-age=60"),
            steps: &[
                ("GET\nAuthorization: Basic YTpi", 200, "detail=authorization", 1),
                ("GET", 200, "fwd=uri-miss", 2),
            ],
        },
        Case {
            name: "Authorization with public",
            answer: ("200 OK", "Cache-Control: max-age=60, public"),
            steps: &[("GET\nAuthorization: Basic YTpi", 200, "stored", 1), ("GET", 200, "hit", 1)],
        },
        Case {
            name: "Authorization with s-maxage",
            answer: ("200 OK", "Cache-Control: s-maxage=60"),
            steps: &[("GET\nAuthorization: Basic YTpi", 200, "stored", 1), ("GET", 200, "hit", 1)],
        },
        Case {
            name: "Authorization with must-revalidate",
            answer: ("200 OK", "Cache-Control: max-age=60, must-revalidate"),
            steps: &[("GET\nAuthorization: Basic YTpi", 200, "stored", 1), ("GET", 200, "hit", 1)],
        },
        Case {
            name: "content in a GET takes no part in the key",
            answer: ("200 OK", "Cache-Control: max-age=60"),
            steps: &[("GET\nContent-Length: 0", 200, "fwd=uri-miss", 1), ("GET", 200, "hit", 1)],
        },
        Case {
            name: "a method that overrides another in a field",
            answer: ("200 OK", "Cache-Control: max-age=60"),
            steps: &[("GET", 200, "stored", 1), ("POST\nX-HTTP-Method-Override: GET", 200, "fwd=method", 2)],
        },
    ]);
}

//= RFC 9111 section 4.3.2: handling a received validation request
//= RFC 9110 section 13.2.2: precedence of preconditions
#[test]
fn conditional_requests_are_answered_from_the_cache() {
    const DATED: &str =
        "Cache-Control: max-age=60\nETag: \"a\"\nLast-Modified: Mon, 05 Jan 2026 10:00:00 GMT";
    check(&[
        Case {
            name: "If-None-Match",
            answer: ("200 OK", DATED),
            steps: &[
                ("GET", 200, "stored", 1),
                ("GET\nIf-None-Match: \"a\"", 304, "hit", 1),
                ("GET\nIf-None-Match: W/\"a\"", 304, "hit", 1),
                ("GET\nIf-None-Match: \"b\", \"a\"", 304, "hit", 1),
                ("GET\nIf-None-Match: *", 304, "hit", 1),
                ("GET\nIf-None-Match: \"b\"", 200, "hit", 1),
                ("HEAD\nIf-None-Match: \"a\"", 304, "hit", 1),
            ],
        },
        Case {
            name: "If-Modified-Since",
            answer: ("200 OK", DATED),
            steps: &[
                ("GET", 200, "stored", 1),
                ("GET\nIf-Modified-Since: Mon, 05 Jan 2026 10:00:00 GMT", 304, "hit", 1),
                ("GET\nIf-Modified-Since: Mon, 05 Jan 2026 09:59:59 GMT", 200, "hit", 1),
                ("GET\nIf-Modified-Since: not a date", 200, "hit", 1),
                (
                    "GET\nIf-None-Match: \"b\"\nIf-Modified-Since: Mon, 05 Jan 2026 10:00:00 GMT",
                    200,
                    "hit",
                    1,
                ),
            ],
        },
        Case {
            name: "the precondition of the client that misses",
            answer: ("200 OK", DATED),
            steps: &[("GET\nIf-None-Match: \"b\"", 200, "fwd=uri-miss", 1), ("GET", 200, "hit", 1)],
        },
        Case {
            name: "HEAD is answered from a stored GET",
            answer: ("200 OK", DATED),
            steps: &[("GET", 200, "stored", 1), ("HEAD", 200, "hit", 1)],
        },
        Case {
            name: "ranges of a stored response",
            answer: ("200 OK", DATED),
            steps: &[
                ("GET", 200, "stored", 1),
                ("GET\nRange: bytes=0-2", 206, "hit", 1),
                ("GET\nRange: bytes=-3", 206, "hit", 1),
                ("GET\nRange: bytes=4-", 206, "hit", 1),
                ("GET\nRange: bytes=100-", 416, "hit", 1),
                ("GET\nRange: bytes=0-1,4-5", 206, "hit", 1),
                ("GET\nRange: lines=0-2", 200, "hit", 1),
                ("GET\nRange: bytes=0-2\nIf-Range: \"a\"", 206, "hit", 1),
                ("GET\nRange: bytes=0-2\nIf-Range: \"b\"", 200, "hit", 1),
                ("GET\nRange: bytes=0-2\nIf-None-Match: \"a\"", 304, "hit", 1),
            ],
        },
    ]);
}

/// An origin that answers everything with these fields and its target as the body, and a gateway in front of it.
fn pair(fields: &str) -> (ScriptedOrigin, Larder) {
    let fields = lines(fields);
    let origin = ScriptedOrigin::start(move |exchange| {
        let body = exchange.request.target().to_owned();
        exchange.respond("200 OK", &fields, body);
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    (origin, larder)
}

//= RFC 9111 section 4.2.3: current age
#[test]
fn age_grows_and_starts_at_what_the_origin_said() {
    let (_origin, larder) = pair("Cache-Control: max-age=600\nAge: 30");
    larder.get("/");
    let age = |response: &Response| response.field("age").parse::<u64>().expect("a hit has an Age");
    let first = larder.get("/");
    assert!(first.is_hit() && age(&first) >= 30);
    assert_eq!(first.head.fields.all("age").count(), 1, "one Age line: {:?}", first.head);
    wait::until_true("Age grows", || age(&larder.get("/")) > age(&first));
}

//= RFC 9211 section 2: a member per cache, with parameters
#[test]
fn ttl_says_what_is_left_of_the_lifetime() {
    let (_origin, larder) = pair("Cache-Control: max-age=600\nAge: 100");
    larder.get("/");
    let status = larder.get("/").cache_status();
    let ttl = status.split(';').find_map(|part| part.trim().strip_prefix("ttl=")).expect(&status);
    let ttl: i64 = ttl.parse().expect("an integer");
    assert!((400..=500).contains(&ttl), "{status}");
}

//= RFC 9110 section 9.3.2: HEAD says what GET would
//= RFC 9110 section 9.3.2: HEAD is GET without content
#[test]
fn head_has_the_length_of_get_and_no_body() {
    let (_origin, larder) = pair("Cache-Control: max-age=60");
    larder.get("/length");
    let mut client = larder.client();
    let head = client.ask("HEAD", "/length", "");
    assert_eq!((head.status(), head.field("content-length")), (200, "7"));
    assert!(client.get("/length").is_hit(), "nothing of a body was left on the connection");
}

//= RFC 9110 section 14.4: Content-Range
//= RFC 9110 section 15.3.7: a 206 carries one range with Content-Range, or several as multipart/byteranges
//= RFC 9110 section 15.3.7.2: one range is no multipart
//= RFC 9110 section 15.5.17: Content-Range of a 416
//= RFC 9111 section 3.3: a partial response is a 206
//= RFC 9110 section 14.4: the complete length is said
#[test]
fn parts_have_the_right_bytes() {
    let body: Vec<u8> = (0..=255).collect();
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\nETag: \"a\"\r\n", body.clone());
    let larder = Setup::origin(LARDER, &origin.url()).start();
    larder.get("/");
    let part = |range: &str| larder.ask("GET", "/", &format!("Range: bytes={range}\r\n"));
    for (range, first, last) in [("0-0", 0, 0), ("10-19", 10, 19), ("250-999", 250, 255), ("-6", 250, 255)] {
        let response = part(range);
        assert_eq!(response.body, body[first..=last], "{range}");
        assert_eq!(response.field("content-range"), format!("bytes {first}-{last}/256"));
    }
    assert_eq!(part("256-").field("content-range"), "bytes */256");
    let multipart = part("0-1,4-5");
    assert!(multipart.field("content-type").starts_with("multipart/byteranges; boundary="));
    for expected in ["bytes 0-1/256", "bytes 4-5/256"] {
        assert!(multipart.text().contains(expected), "{}", multipart.text());
    }
}

//= RFC 9110 section 14.6: multipart/byteranges
//= RFC 9110 section 15.3.7.2: Content-Range in each part
//= RFC 9110 section 15.3.7.2: no Content-Range beside the parts
//= RFC 9110 section 15.3.7.2: parts in the order of the request
#[test]
fn several_ranges_are_parts_in_the_order_of_the_request() {
    let fields = "Cache-Control: max-age=60\r\nETag: \"a\"\r\nContent-Type: text/plain\r\n";
    let origin = ScriptedOrigin::fixed(fields, "0123456789");
    let larder = Setup::origin(LARDER, &origin.url()).start();
    larder.get("/");
    let response = larder.ask("GET", "/", "Range: bytes=5-6, 0-1, -1\r\n");
    assert_eq!(response.status(), 206);
    assert!(!response.head.fields.has("content-range"), "{:?}", response.head);
    let content_type = response.field("content-type");
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").expect("a boundary");
    let part = |range: &str, bytes: &str| {
        let head = format!("Content-Type: text/plain\r\nContent-Range: bytes {range}/10");
        format!("\r\n--{boundary}\r\n{head}\r\n\r\n{bytes}")
    };
    let end = format!("\r\n--{boundary}--\r\n");
    let parts = [part("5-6", "56"), part("0-1", "01"), part("9-9", "9"), end].concat();
    assert_eq!(response.text(), parts);
}

//= RFC 9111 section 4.1: all nominated fields match
//= RFC 9111 section 4.1: no match is forwarded
#[test]
fn each_variant_is_stored_for_itself() {
    let origin = ScriptedOrigin::start(|exchange| {
        let language = exchange.request.field("accept-language").to_owned();
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\nVary: Accept-Language\r\n", language);
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    for (language, hit, forwarded) in [
        ("de", false, 1),
        ("en", false, 2),
        ("de", true, 2),
        ("en", true, 2),
        ("fr", false, 3),
        ("de", true, 3),
    ] {
        let response = larder.ask("GET", "/", &format!("Accept-Language: {language}\r\n"));
        assert_eq!((response.text().as_str(), response.is_hit()), (language, hit), "{:?}", response.head);
        assert_eq!(origin.count("/"), forwarded);
    }
}

/// What has waited elsewhere is as old as it says, and has its time here all the same.
#[test]
fn a_lifetime_of_the_rules_begins_with_the_arrival() {
    for (key, says) in [("ttl_default", ""), ("ttl_override", "Cache-Control: max-age=55\r\n")] {
        let origin = ScriptedOrigin::fixed(&format!("Age: 50\r\n{says}"), "x");
        let config = format!(
            "[[site]]\nname = \"a\"\norigin = \"{}\"\n[[site.rule]]\nname = \"all\"\n{key} = {{ 200 = \"60s\" }}\n",
            origin.url()
        );
        let larder = Setup::config(LARDER, &config).start();
        let first = larder.get("/");
        let begins = ["; stored; ttl=60", "; stored; ttl=59"];
        let has_begun = begins.iter().any(|end| first.cache_status().ends_with(end));
        assert!(has_begun, "{key}: {}", first.cache_status());
        let hit = larder.get("/");
        let left =
            hit.cache_status().strip_prefix("larder; hit; ttl=").and_then(|left| left.parse::<u64>().ok());
        assert!(left.is_some_and(|left| (11..=60).contains(&left)), "{key}: {}", hit.cache_status());
        assert!(hit.field("age").parse::<u64>().is_ok_and(|age| age >= 50), "{key}: {:?}", hit.head);
    }
}

#[test]
fn variants_of_one_key_are_capped() {
    let origin = ScriptedOrigin::start(|exchange| {
        let language = exchange.request.field("accept-language").to_owned();
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\nVary: Accept-Language\r\n", language);
    });
    let config = "[store]\nvariants_max = 3\n[[site]]\nname = \"a\"\norigin = \"@origin@\"\n";
    let larder = Setup::config(LARDER, &config.replace("@origin@", &origin.url())).start();
    for language in 0..20 {
        let response = larder.ask("GET", "/", &format!("Accept-Language: l{language}\r\n"));
        assert_eq!(response.text(), format!("l{language}"));
    }
    wait::until_true("at most three variants are left", || larder.metric("larder_store_entries", &[]) <= 3.0);
    assert!(larder.ask("GET", "/", "Accept-Language: l19\r\n").is_hit(), "the newest variant stays");
}

//= RFC 9111 section 4.3.4: freshening stored responses upon validation
#[test]
fn a_304_freshens_the_stored_fields() {
    let origin = ScriptedOrigin::start(|exchange| {
        match exchange.request.field("if-none-match") {
            "\"v1\"" => exchange
                .head("304 Not Modified", "ETag: \"v1\"\r\nX-Round: 2\r\nCache-Control: max-age=60\r\n"),
            _ => exchange.respond(
                "200 OK",
                "ETag: \"v1\"\r\nX-Round: 1\r\nX-Kept: yes\r\nAge: 100\r\nCache-Control: max-age=60\r\n",
                "body",
            ),
        };
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let rounds = [("1", "fwd=uri-miss", 1), ("2", "fwd=stale", 2), ("2", "hit", 2), ("2", "hit", 2)];
    for (round, cache_status, forwarded) in rounds {
        let response = larder.get("/");
        assert_eq!((response.status(), response.text().as_str()), (200, "body"));
        assert_eq!(response.field("x-round"), round);
        assert_eq!(response.field("x-kept"), "yes");
        assert!(response.cache_status().contains(cache_status), "{:?}", response.head);
        assert_eq!(origin.count("/"), forwarded);
    }
}

/// Field bug: such an answer said `stored`, and nothing was.
#[test]
fn a_304_that_forbids_storing_does_not_say_that_it_is_stored() {
    for (says, request, detail) in [
        ("private", "", "private"),
        ("no-store", "", "no-store"),
        ("max-age=60", "Cache-Control: no-store\r\n", "request-no-store"),
        ("max-age=60", "", ""),
    ] {
        let origin = ScriptedOrigin::start(move |exchange| {
            match exchange.request.field("if-none-match") {
                "" => exchange.respond("200 OK", "ETag: \"a\"\r\nCache-Control: max-age=0\r\n", "body"),
                _ => exchange.head("304 Not Modified", &format!("ETag: \"a\"\r\nCache-Control: {says}\r\n")),
            };
        });
        let larder = Setup::origin(LARDER, &origin.url()).start();
        larder.get("/");
        let told = larder.ask("GET", "/", request).cache_status();
        let is_stored = detail.is_empty();
        assert!(told.contains("fwd=stale; fwd-status=304"), "{says}: {told}");
        assert_eq!(
            (told.contains("stored"), told.contains("detail=")),
            (is_stored, !is_stored),
            "{says}: {told}"
        );
        assert!(told.contains(detail), "{says}: {told}");
        let gone = ["private", "no-store"].contains(&says);
        assert_eq!(larder.get("/").cache_status().contains("fwd=uri-miss"), gone, "{says}");
    }
}

/// What applications say to the cache alone, where a rule listens.
//= RFC 9213 section 2.2: the first valid field of the target list counts
#[test]
fn applications_say_what_is_stored_where_a_rule_listens() {
    let config = r#"
[[site]]
name = "a"
origin = "@origin@"
[[site.rule]]
path = { prefix = "/asked" }
store_only_with = "X-Cache-Set"
ttl_default = { 200 = "1h" }
[[site.rule]]
path = { prefix = "/surrogate" }
targeted_fields = ["Surrogate-Control", "CDN-Cache-Control"]
[[site.transform]]
phase = "client_response"
remove = ["Surrogate-Control"]
"#;
    let cases: [(&str, &str, &str); 13] = [
        ("/asked/1", "X-Cache-Set: 1", "stored"),
        ("/asked/yes", "X-Cache-Set: yes\nCache-Control: max-age=60", "stored"),
        ("/asked/no", "X-Cache-Set: 0", "detail=not-signalled"),
        ("/asked/empty", "X-Cache-Set:", "detail=not-signalled"),
        ("/asked/not", "Cache-Control: public, max-age=60", "detail=not-signalled"),
        ("/asked/forbidden", "X-Cache-Set: 1\nCache-Control: no-store", "detail=no-store"),
        ("/other", "Cache-Control: max-age=60", "stored"),
        ("/surrogate/1", "Surrogate-Control: max-age=60\nCache-Control: no-store", "stored"),
        ("/surrogate/2", "Surrogate-Control: no-store\nCache-Control: max-age=60", "detail=no-store"),
        ("/surrogate/3", "Surrogate-Control: max-age=60+30, content=\"ESI/1.0\"", "stored"),
        ("/surrogate/4", "CDN-Cache-Control: max-age=9\nCache-Control: no-store", "stored"),
        ("/surrogate/5", "Surrogate-Control: max-age\u{3d}x y\nCache-Control: max-age=60", "stored"),
        ("/unheard", "Surrogate-Control: max-age=60\nCache-Control: no-store", "detail=no-store"),
    ];
    let origin = ScriptedOrigin::start(move |exchange| {
        let says = cases.iter().find(|(target, ..)| *target == exchange.request.target());
        exchange.respond("200 OK", &lines(says.expect("a case").1), "content");
    });
    let larder = Setup::config(LARDER, &config.replace("@origin@", &origin.url())).start();
    for (target, says, expected) in cases {
        let first = larder.get(target);
        assert!(first.cache_status().contains(expected), "{target}: {says} -> {:?}", first.head);
        assert!(!first.head.fields.has("surrogate-control"), "{target}: {:?}", first.head);
        assert_eq!(larder.get(target).is_hit(), expected.contains("stored"), "{target}: {says}");
    }
}

//= RFC 9111 section 4.3.3: a full response answers the request
//= RFC 9111 section 4.3.3: a full response may be stored
#[test]
fn a_changed_representation_replaces_the_stale_one() {
    let origin = ScriptedOrigin::start(|exchange| {
        let (age, body) = if exchange.request.earlier == 0 { (100, "old") } else { (0, "new") };
        let fields = format!("ETag: \"{body}\"\r\nAge: {age}\r\nCache-Control: max-age=60\r\n");
        exchange.respond("200 OK", &fields, body);
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let bodies: Vec<String> = (0..3).map(|_| larder.get("/").text()).collect();
    assert_eq!(bodies, ["old", "new", "new"]);
    assert_eq!(origin.received()[1].field("if-none-match"), "\"old\"");
}

//= RFC 9111 section 4.4: invalidating stored responses
#[test]
fn unsafe_methods_invalidate_target_and_location() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        match (exchange.request.method(), exchange.request.field("x-fail")) {
            ("GET", _) => exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "x"),
            (_, "") => exchange.respond(
                "200 OK",
                "Location: /location\r\nContent-Location: /content-location\r\n",
                "done",
            ),
            _ => exchange.respond("500 Internal Server Error", "", "failed"),
        };
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let targets = ["/target", "/location", "/content-location", "/bystander"];
    let is_hit = |path: &str| larder.get(path).is_hit();
    for method in ["POST", "PUT", "DELETE", "PATCH", "UNKNOWN"] {
        targets.iter().for_each(|path| drop(larder.get(path)));
        assert!(targets.iter().all(|path| is_hit(path)));
        larder.ask(method, "/target", "X-Fail: yes\r\nContent-Length: 0\r\n");
        assert!(targets.iter().all(|path| is_hit(path)), "an error invalidates nothing");
        larder.ask(method, "/target", "Content-Length: 0\r\n");
        let hits: Vec<bool> = targets.iter().map(|path| is_hit(path)).collect();
        assert_eq!(hits, [false, false, false, true], "{method}");
    }
}

/// Field bug: a key without the host lets one host answer for another.
#[test]
fn key_without_host() {
    let origin = ScriptedOrigin::start(|exchange| {
        let host = exchange.request.field("host").to_owned();
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", host);
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let ask = |host: &str| {
        let mut client = larder.client();
        client.send(format!("GET /same HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.response()
    };
    for _ in 0..2 {
        for host in ["a.example", "b.example", "a.example:8080"] {
            assert_eq!(ask(host).text(), host);
        }
    }
    assert!(ask("a.example").is_hit() && ask("A.EXAMPLE").is_hit(), "host names have no case");
}

/// Field bugs: keys made by decoding or joining parts let one URL answer for another.
//= RFC 9111 section 4: the target URIs match
#[test]
fn keys_of_different_urls_never_meet() {
    let (origin, larder) = pair("Cache-Control: max-age=60");
    let targets = [
        "/a?b=c",
        "/a%3Fb=c",
        "/a?b=c&",
        "/a?",
        "/a",
        "/a/",
        "/A",
        "/a%2Fb",
        "/a/b",
        "/a?b=c%26d",
        "/a?b=c&d",
        "/a?b=C",
        "//a",
        "/a;b",
        "/a%00b",
        "/a%20b",
        "/a+b",
        "/a?b=1&b=2",
        "/a?b=2&b=1",
    ];
    for round in [false, true] {
        for target in targets {
            let response = larder.get(target);
            assert_eq!((response.text().as_str(), response.is_hit()), (target, round));
        }
    }
    assert_eq!(origin.total(), targets.len());
}

/// Field bug: what a cache before the origin said of one request was said of every hit.
#[test]
fn x_cache_of_others_is_not_replayed() {
    for (settings, [miss, hit, passed]) in [
        ("", ["HIT from elsewhere", "", "HIT from elsewhere"]),
        ("x_cache = true\n", ["MISS", "HIT", "MISS"]),
    ] {
        let origin = ScriptedOrigin::start(|exchange| {
            let control = if exchange.request.target() == "/own" { "no-store" } else { "max-age=60" };
            let fields =
                format!("ETag: \"a\"\r\nX-Cache: HIT from elsewhere\r\nCache-Control: {control}\r\n");
            match exchange.request.field("if-none-match") {
                "" => exchange.respond("200 OK", &fields, "page"),
                _ => exchange.head("304 Not Modified", &fields),
            };
        });
        let site = format!("[[site]]\nname = \"a\"\norigin = \"{}\"\n{settings}", origin.url());
        let larder = Setup::config(LARDER, &site).start();
        let told = |target: &str, fields: &str| {
            let response = larder.ask("GET", target, fields);
            response.head.fields.all("x-cache").collect::<Vec<_>>().join(" and ")
        };
        assert_eq!(told("/", ""), miss);
        assert_eq!(told("/", ""), hit);
        // Nor of one that has validated it.
        told("/", "Cache-Control: no-cache\r\n");
        assert_eq!(told("/", ""), hit);
        told("/own", "");
        assert_eq!(told("/own", ""), passed);
    }
}

#[test]
fn rules_shape_keys_and_lifetimes() {
    let origin = ScriptedOrigin::start(|exchange| {
        let target = exchange.request.target().to_owned();
        let status = if target.starts_with("/404") { "404 Not Found" } else { "200 OK" };
        exchange.respond(status, "X-Nothing: here\r\n", target);
    });
    let config = r#"
[[site]]
name = "a"
origin = "@origin@"
x_cache = true
[[site.rule]]
path = { prefix = "/off/" }
cache = false
[[site.rule]]
path = { glob = "/ignored/*" }
query_ignore = ["utm_*"]
ttl_default = { 200 = "1h" }
[[site.rule]]
path = { regex = "^/kept/[a-z]+" }
query_keep = ["id"]
query_sort = true
ttl_override = { 200 = "1h" }
[[site.rule]]
path = { prefix = "/404" }
ttl_default = { 200 = "1h", 404 = "1h" }
[[site.rule]]
path = { exact = "/exact" }
ttl_default = { default = "1h" }
"#;
    let larder = Setup::config(LARDER, &config.replace("@origin@", &origin.url())).start();
    let check = |first: &str, second: &str, x_cache: &str| {
        larder.get(first);
        let response = larder.get(second);
        assert_eq!(response.field("x-cache"), x_cache, "{second} after {first}: {:?}", response.head);
    };
    check("/off/a", "/off/a", "BYPASS");
    check("/none", "/none", "MISS");
    check("/ignored/a?x=1&utm_source=a", "/ignored/a?utm_medium=b&x=1", "HIT");
    check("/ignored/b?x=1", "/ignored/b?x=2", "MISS");
    check("/kept/a?z=1&id=7", "/kept/a?id=7&y=2", "HIT");
    check("/kept/b?id=1", "/kept/b?id=2", "MISS");
    check("/kept/c?id=1&ID=2", "/kept/c?id=1", "MISS");
    check("/kept/d?id[]=2&id=1", "/kept/d?id=1&id[]=2", "MISS");
    check("/kept/e?y=1&id=2&id=1", "/kept/e?id=2&id=1", "HIT");
    check("/404/a", "/404/a", "HIT");
    check("/exact", "/exact", "HIT");
    check("/exact/more", "/exact/more", "MISS");
}

//= RFC 5861 section 4: stale-if-error
//= RFC 9111 section 4.2.4: serving stale responses
#[test]
fn stale_responses_answer_for_a_dead_origin() {
    let mut origin = ScriptedOrigin::start(|exchange| {
        let extra = match exchange.request.target() {
            "/allowed" => ", stale-if-error=600",
            "/over" => ", stale-if-error=10",
            "/forbidden" => ", stale-if-error=600, must-revalidate",
            _ => "",
        };
        let fields = format!("ETag: \"a\"\r\nAge: 100\r\nCache-Control: max-age=60{extra}\r\n");
        exchange.respond("200 OK", &fields, "stale");
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    for path in ["/allowed", "/over", "/forbidden", "/silent"] {
        assert_eq!(larder.get(path).status(), 200);
    }
    origin.stop();
    for path in ["/allowed", "/silent"] {
        let stale = larder.get(path);
        assert_eq!((stale.status(), stale.text().as_str()), (200, "stale"), "{path}: {:?}", stale.head);
    }
    for (path, status) in [("/forbidden", 504), ("/over", 502), ("/never-seen", 502)] {
        let response = larder.get(path);
        assert_eq!(response.status(), status, "{path}: {:?}", response.head);
        assert!(!response.text().contains("127.0.0.1"), "what went wrong stays inside: {}", response.text());
    }
    origin.start_again();
    assert_eq!(larder.get("/never-seen").status(), 200);
}

//= RFC 9111 section 7.3: Set-Cookie does not inhibit caching
#[test]
fn a_profile_decides_where_rules_are_silent() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n", "page");
    });
    for (arguments, hit) in [(vec![], false), (vec!["--profile", "rfc9111"], true)] {
        let larder = Setup::origin(LARDER, &origin.url()).arguments(&arguments).start();
        let responses = [larder.get("/"), larder.get("/")];
        assert!(responses.iter().all(|response| response.field("set-cookie") == "a=b"));
        assert_eq!(responses[1].cache_status().contains("; hit"), hit, "{:?}", responses[1].head);
    }
}

//= RFC 5861 section 3: stale-while-revalidate
//= RFC 5861 section 3: validation without blocking
//= RFC 5861 section 5: validations follow requests
#[test]
fn stale_while_revalidate_answers_at_once_and_validates_behind() {
    let origin = ScriptedOrigin::start(|exchange| {
        let age = if exchange.request.earlier == 0 { 100 } else { 0 };
        let body = format!("round {}", exchange.request.earlier);
        let fields = format!("Age: {age}\r\nCache-Control: max-age=60, stale-while-revalidate=600\r\n");
        exchange.respond("200 OK", &fields, body);
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    assert_eq!(larder.get("/").text(), "round 0");
    let stale = larder.get("/");
    assert_eq!(stale.text(), "round 0", "{:?}", stale.head);
    wait::until_true("the validation ends", || larder.get("/").text() == "round 1");
    assert_eq!(origin.count("/"), 2);
}

/// What is not to be stored leaves a note at most, that it need not be waited for.
//= RFC 9111 section 5.2.1.5: no trace in storage
//= RFC 9111 section 5.2.2.5: no trace in storage
#[test]
fn what_is_not_stored_leaves_nothing_behind() {
    const BODY_BYTES: usize = 100_000;
    let origin = ScriptedOrigin::start(|exchange| {
        let control = if exchange.request.target() == "/no-store" { "no-store" } else { "max-age=60" };
        exchange.respond("200 OK", &format!("Cache-Control: {control}\r\n"), "x".repeat(BODY_BYTES));
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let held = || larder.metric("larder_store_bytes", &[]);
    let empty = held();
    for (target, fields) in [("/no-store", ""), ("/stored", "Cache-Control: no-store\r\n")] {
        assert_eq!(larder.ask("GET", target, fields).body.len(), BODY_BYTES);
        wait::until_true("only a note is left", || held() - empty < 2_000.0);
    }
    larder.get("/stored");
    wait::until_true("the other is stored", || held() - empty > BODY_BYTES as f64);
}

/// Each 304 brings names that no response before had. What is stored stays within what one response may have: then the
/// whole is fetched again.
#[test]
fn a_head_does_not_grow_without_end_by_304s() {
    let turns = AtomicUsize::new(0);
    let origin = ScriptedOrigin::start(move |exchange| {
        let turn = turns.fetch_add(1, Relaxed);
        let news: String = (0..20).map(|line| format!("X-{turn}-{line}: {}\r\n", "x".repeat(1000))).collect();
        let fields = format!("Cache-Control: max-age=0\r\nETag: \"a\"\r\n{news}");
        let is_known = !exchange.request.field("if-none-match").is_empty();
        match is_known {
            true => exchange.head("304 Not Modified", &fields),
            false => exchange.respond("200 OK", &fields, "the body"),
        };
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    for method in ["GET", "HEAD", "GET"] {
        for _ in 0..25 {
            let response = larder.ask(method, "/a", "");
            let names = (0..100).filter(|turn| response.head.fields.has(&format!("x-{turn}-0"))).count();
            assert!(names <= 7, "{names} times 20 kB, of 128 KiB at most");
            assert!(method == "HEAD" || response.text() == "the body");
        }
    }
    let whole = |request: &Received| request.field("if-none-match").is_empty() && request.method() == "GET";
    let fetched = origin.received().iter().filter(|request| whole(request)).count();
    assert!((3..=20).contains(&fetched), "fetched {fetched} times");
}
