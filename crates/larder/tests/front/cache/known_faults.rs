//! What other caches get wrong, as far as it is known of them: the requests with which it goes wrong there, and what Larder does with them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::{Client, Exchange, Gate, Larder, Port, Redis, Response, ScriptedOrigin, Setup, wait};

use crate::LARDER;
use crate::tools::mock_origin::MockOrigin;

/// A mistake that others make.
struct Case {
    mistake: &'static str,
    /// Configuration before the site, and what follows in the site.
    config: [&'static str; 2],
    answer: fn(&mut Exchange<'_>),
    steps: &'static [Step],
    /// Requests that reach the origin; at most, where they come at the same time.
    forwarded: usize,
}

/// One request, and what must be true of its response.
struct Step {
    /// Method and target, with field lines behind them, and behind an empty line the content.
    asks: &'static str,
    status: u16,
    /// Absent where it is a text of Larder.
    body: Option<&'static [u8]>,
    /// A field and a part of its value; an empty part where the field must not be there.
    says: &'static [(&'static str, &'static str)],
}

const fn step(
    asks: &'static str,
    status: u16,
    body: &'static [u8],
    says: &'static [(&'static str, &'static str)],
) -> Step {
    Step { asks, status, body: Some(body), says }
}

/// Answered by Larder itself.
const fn own(asks: &'static str, status: u16, says: &'static [(&'static str, &'static str)]) -> Step {
    Step { asks, status, body: None, says }
}

impl Step {
    fn bytes(&self) -> String {
        let (head, content) = self.asks.split_once("\n\n").unwrap_or((self.asks, ""));
        let (line, fields) = head.split_once('\n').unwrap_or((head, ""));
        let fields: String = fields.lines().map(|field| format!("{field}\r\n")).collect();
        let length = if content.is_empty() && !line.starts_with("POST") {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", content.len())
        };
        format!("{line} HTTP/1.1\r\nHost: test.example\r\n{length}{fields}\r\n{content}")
    }

    fn response(&self, client: &mut Client) -> Response {
        client.response_to(self.asks.split(' ').next().unwrap_or_default())
    }

    #[track_caller]
    fn check(&self, mistake: &str, response: &Response) {
        let what = format!("{mistake}: {:?} was answered with {:?}", self.asks, response.head);
        assert_eq!(response.status(), self.status, "{what}");
        assert!(self.body.is_none_or(|body| response.body == body), "{what}, {:?}", response.text());
        for (name, part) in self.says {
            let value = response.head.fields.joined(name);
            assert!(value.contains(part) && value.is_empty() == part.is_empty(), "{what}, {name}");
        }
    }
}

impl Case {
    fn config(&self, origin: &str) -> String {
        let [top, site] = self.config;
        let named = match top.contains("[[origin]]") {
            true => "o",
            false => origin,
        };
        format!("{top}\n[[site]]\nname = \"a\"\norigin = \"{named}\"\n{site}\n").replace("@origin@", origin)
    }
}

/// The requests come one after the other, on one connection.
#[track_caller]
fn check(case: &Case) {
    let origin = ScriptedOrigin::start(case.answer);
    let larder = Setup::config(LARDER, &case.config(&origin.url())).file("token", "0123456789abcdef").start();
    let mut client = larder.client();
    for step in case.steps {
        client.send(step.bytes());
        step.check(case.mistake, &step.response(&mut client));
    }
    assert_eq!(origin.total(), case.forwarded, "{}: {:?}", case.mistake, origin.received());
}

/// The requests come at the same time, and the origin answers when each has arrived there or waits for another.
#[track_caller]
fn check_together(case: &Case) {
    let (gate, answer) = (Gate::new(), case.answer);
    let at_origin = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        at_origin.pass();
        answer(exchange);
    });
    let larder = Setup::config(LARDER, &case.config(&origin.url())).start();
    let mut clients: Vec<_> = case.steps.iter().map(|_| larder.client()).collect();
    for (client, step) in clients.iter_mut().zip(case.steps) {
        client.send(step.bytes());
    }
    wait::until_true("all have arrived", || {
        let waiting = larder.metric("larder_collapsed_waiters", &[]);
        origin.total() as f64 + waiting == case.steps.len() as f64
    });
    gate.open();
    for (client, step) in clients.iter_mut().zip(case.steps) {
        step.check(case.mistake, &step.response(client));
    }
    assert!(origin.total() <= case.forwarded, "{}: {:?}", case.mistake, origin.received());
}

/// All bytes there are: text in no encoding.
const BYTES: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut at = 0;
    while at < 256 {
        bytes[at] = at as u8;
        at += 1;
    }
    bytes
};

fn compressed(exchange: &mut Exchange<'_>) {
    let fields = "Cache-Control: max-age=60\r\nContent-Encoding: gzip\r\nVary: Accept-Encoding\r\n";
    exchange.respond("200 OK", fields, BYTES);
}

/// Says what it was asked, for a minute.
fn echo(exchange: &mut Exchange<'_>) {
    let content = String::from_utf8_lossy(exchange.read_body()).into_owned();
    let request = &exchange.request;
    let body = format!("{} {} {content}", request.target(), request.field("authorization"));
    let location = format!("Content-Location: {}\r\n", request.target());
    exchange.respond("200 OK", &format!("Cache-Control: max-age=60\r\n{location}"), body.trim_end());
}

/// Answers a condition without looking at it, as origins do that compare no more than dates.
fn conditional(exchange: &mut Exchange<'_>) {
    let fields = "Cache-Control: max-age=60\r\nETag: \"a\"\r\nVary: Accept\r\n";
    match exchange.request.field("if-none-match") {
        "" => exchange.respond("200 OK", fields, "whole"),
        _ => exchange.respond("304 Not Modified", fields, ""),
    };
}

const GZIP: &str = "GET /\nAccept-Encoding: gzip";
const STORES_POST: [&str; 2] = ["profile = \"rfc9111\"", ""];
const SORTED: [&str; 2] = ["", "[[site.rule]]\nquery_sort = true\nquery_ignore = [\"delay\"]"];

const KEYS: [Case; 8] = [
    Case {
        mistake: "bodies pass through text, which damages compressed ones and images",
        config: [""; 2],
        answer: compressed,
        steps: &[
            step(GZIP, 200, &BYTES, &[("content-length", "256"), ("content-encoding", "gzip")]),
            step(GZIP, 200, &BYTES, &[("content-length", "256"), ("cache-status", "hit")]),
        ],
        forwarded: 1,
    },
    Case {
        mistake: "POST with different content has one entry",
        config: [""; 2],
        answer: echo,
        steps: &[
            step("POST /\n\na", 200, b"/  a", &[("cache-status", "fwd=method")]),
            step("POST /\n\nb", 200, b"/  b", &[("cache-status", "fwd=method")]),
            step("GET /", 200, b"/", &[("cache-status", "fwd=uri-miss")]),
        ],
        forwarded: 3,
    },
    Case {
        mistake: "POST with different content has one entry, where responses to POST are stored",
        config: STORES_POST,
        answer: echo,
        steps: &[
            step("POST /\n\na", 200, b"/  a", &[("cache-status", "fwd=method")]),
            step("POST /\n\nb", 200, b"/  b", &[("cache-status", "fwd=method")]),
        ],
        forwarded: 2,
    },
    Case {
        mistake: "responses to requests with Authorization are shared",
        config: [""; 2],
        answer: echo,
        steps: &[
            step("GET /\nAuthorization: alice", 200, b"/ alice", &[("cache-status", "detail=authorization")]),
            step("GET /\nAuthorization: bob", 200, b"/ bob", &[("cache-status", "detail=authorization")]),
            step("GET /", 200, b"/", &[("cache-status", "fwd=uri-miss")]),
            step("GET /\nAuthorization: bob", 200, b"/", &[("cache-status", "hit")]),
        ],
        forwarded: 3,
    },
    Case {
        mistake: "queries are decoded, and cut off at a second question mark; slashes and colons are one",
        config: [""; 2],
        answer: echo,
        steps: &[
            step("GET /?a=1%26b=2", 200, b"/?a=1%26b=2", &[]),
            step("GET /?a=1&b=2", 200, b"/?a=1&b=2", &[("cache-status", "fwd=uri-miss")]),
            step("GET /?x?1", 200, b"/?x?1", &[]),
            step("GET /?x?2", 200, b"/?x?2", &[("cache-status", "fwd=uri-miss")]),
            step("GET /a/b", 200, b"/a/b", &[]),
            step("GET /a:b", 200, b"/a:b", &[("cache-status", "fwd=uri-miss")]),
            step("GET /:a/b", 200, b"/:a/b", &[("cache-status", "fwd=uri-miss")]),
        ],
        forwarded: 7,
    },
    Case {
        mistake: "queries are decoded, where they are sorted",
        config: SORTED,
        answer: echo,
        steps: &[
            step("GET /?a=1%26b=2&delay=1", 200, b"/?a=1%26b=2&delay=1", &[]),
            step("GET /?b=2&a=1", 200, b"/?b=2&a=1", &[("cache-status", "fwd=uri-miss")]),
            step("GET /?delay=2&a=1&b=2", 200, b"/?b=2&a=1", &[("cache-status", "hit")]),
            step("GET /?x?1", 200, b"/?x?1", &[]),
            step("GET /?x?2", 200, b"/?x?2", &[("cache-status", "fwd=uri-miss")]),
        ],
        forwarded: 4,
    },
    Case {
        mistake: "a client's condition is forwarded on a miss, and its 304 breaks the entry",
        config: ["profile = \"rfc9111\"", ""],
        answer: conditional,
        steps: &[
            step("GET /\nIf-None-Match: \"a\"", 304, b"", &[("etag", "\"a\"")]),
            step("GET /", 200, b"whole", &[("cache-status", "fwd=uri-miss")]),
            step("GET /\nIf-None-Match: \"b\"", 200, b"whole", &[("cache-status", "hit")]),
        ],
        forwarded: 2,
    },
    Case {
        mistake: "Vary in a request makes an entry of its own",
        config: [""; 2],
        answer: echo,
        steps: &[
            step("GET /\nVary: X-A\nX-A: 1", 200, b"/", &[("cache-status", "fwd=uri-miss")]),
            step("GET /\nVary: X-A\nX-A: 2", 200, b"/", &[("cache-status", "hit")]),
            step("GET /\nVary: *", 200, b"/", &[("cache-status", "hit")]),
        ],
        forwarded: 1,
    },
];

/// Stale from the start, and gone from then on.
fn gone(exchange: &mut Exchange<'_>) {
    match exchange.request.earlier {
        0 => exchange.respond(
            "200 OK",
            "Cache-Control: max-age=10\r\nAge: 100\r\nConnection: close\r\n",
            "good",
        ),
        _ => exchange.reset(),
    };
}

/// Stale from the start, and broken from then on, in a way that might be stored.
fn broken(exchange: &mut Exchange<'_>) {
    match exchange.request.earlier {
        0 => {
            let fields = "Cache-Control: max-age=10, stale-if-error=600\r\nAge: 20\r\nETag: \"a\"\r\n";
            exchange.respond("200 OK", fields, "good")
        }
        _ => exchange.respond("503 Service Unavailable", "Cache-Control: max-age=60\r\n", "bad"),
    };
}

fn failing(exchange: &mut Exchange<'_>) {
    exchange.respond("500 Internal Server Error", "", "bad");
}

/// A part, to those that ask for one.
fn parts(exchange: &mut Exchange<'_>) {
    let part = |range: &str| match range {
        "bytes=0-1" => Some(("0-1", "ab")),
        "bytes=2-3" => Some(("2-3", "cd")),
        _ => None,
    };
    match part(exchange.request.field("range")) {
        Some((range, body)) => {
            let fields =
                format!("Content-Range: bytes {range}/4\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\n");
            exchange.respond("206 Partial Content", &fields, body)
        }
        None => exchange.respond("200 OK", "Cache-Control: max-age=60\r\nETag: \"a\"\r\n", "abcd"),
    };
}

const TRANSFORMED: &str = "[[site.transform]]\nphase = \"origin_response\"\npath = { regex = \"^/items/\" }\n\
                           add = { X-Added = \"once\" }";
const BREAKER: &str = "[[origin]]\nname = \"o\"\nurl = \"@origin@\"\n[origin.breaker]\nenabled = true\n\
                       requests_min = 1\nerror_percent = 1\nreset_time = \"1h\"\nreset_time_max = \"1h\"\nstatuses = [\"5xx\"]";
const PURGE: &str = "[purge]\ntoken_file = \"@dir@/token\"";
const TOKEN: &str = "PURGE /purge:a\nAuthorization: Bearer 0123456789abcdef";

const RESPONSES: [Case; 7] = [
    Case {
        mistake: "a stale response is served for ever",
        config: ["", "[[site.rule]]\nstale_if_unreachable = \"60s\""],
        answer: gone,
        steps: &[
            step("GET /", 200, b"good", &[("cache-status", "stored")]),
            own("GET /", 502, &[("cache-status", "fwd=stale")]),
        ],
        forwarded: 2,
    },
    Case {
        mistake: "an error of the origin never makes a stale response answer, and takes its place",
        config: [""; 2],
        answer: broken,
        steps: &[
            step("GET /", 200, b"good", &[("cache-status", "stored")]),
            step("GET /", 200, b"good", &[("cache-status", "detail=stale-if-error")]),
            step("GET /", 200, b"good", &[("cache-status", "detail=stale-if-error")]),
        ],
        forwarded: 3,
    },
    Case {
        mistake: "what is changed before storing matches no path",
        config: ["", TRANSFORMED],
        answer: echo,
        steps: &[
            step("GET /items/1", 200, b"/items/1", &[("x-added", "once")]),
            step("GET /items/1", 200, b"/items/1", &[("x-added", "once"), ("cache-status", "hit")]),
            step("GET /other", 200, b"/other", &[("x-added", "")]),
            step("GET /other", 200, b"/other", &[("x-added", ""), ("cache-status", "hit")]),
        ],
        forwarded: 2,
    },
    Case {
        mistake: "an open breaker is a 500 where nothing is cached",
        config: [BREAKER, "[[site.rule]]\ncache = false"],
        answer: failing,
        steps: &[
            step("POST /\n\na", 500, b"bad", &[("via", "1.1 larder")]),
            own("POST /\n\na", 503, &[("retry-after", "3600")]),
            own("GET /", 503, &[("retry-after", "3600")]),
        ],
        forwarded: 1,
    },
    Case {
        mistake: "there is no Via, and a 304 has no ETag, Cache-Control and Vary",
        config: [""; 2],
        answer: conditional,
        steps: &[
            step("GET /", 200, b"whole", &[("via", "1.1 larder")]),
            step(
                "GET /\nIf-None-Match: \"a\"",
                304,
                b"",
                &[
                    ("etag", "\"a\""),
                    ("cache-control", "max-age=60"),
                    ("vary", "Accept"),
                    ("via", "1.1 larder"),
                ],
            ),
            step("GET /\nIf-None-Match: *", 304, b"", &[("cache-status", "hit")]),
            step("GET /\nIf-None-Match: \"*\", \"b\"", 200, b"whole", &[("cache-status", "hit")]),
        ],
        forwarded: 1,
    },
    Case {
        mistake: "a purge takes the word purge out of the URL, and any DELETE is one",
        config: [PURGE, ""],
        answer: echo,
        steps: &[
            step("GET /a", 200, b"/a", &[]),
            step("GET /purge:a", 200, b"/purge:a", &[]),
            own("PURGE /a", 401, &[]),
            own("PURGE /a\nAuthorization: Bearer 0123456789abcdee", 403, &[]),
            step("GET /a", 200, b"/a", &[("cache-status", "hit")]),
            own(TOKEN, 200, &[]),
            step("GET /a", 200, b"/a", &[("cache-status", "hit")]),
            step("GET /purge:a", 200, b"/purge:a", &[("cache-status", "fwd=uri-miss")]),
            step("DELETE /purge/a", 200, b"/purge/a", &[("cache-status", "fwd=method")]),
            step("GET /a", 200, b"/a", &[("cache-status", "hit")]),
        ],
        forwarded: 4,
    },
    Case {
        mistake: "only-if-cached reaches the origin, and directives are compared with regard to case",
        config: [""; 2],
        answer: echo,
        steps: &[
            own("GET /\nCache-Control: Only-If-Cached", 504, &[]),
            step("GET /", 200, b"/", &[("cache-status", "stored")]),
            step("GET /\nCache-Control: ONLY-IF-CACHED", 200, b"/", &[("cache-status", "hit")]),
        ],
        forwarded: 1,
    },
];

const TOGETHER: [Case; 2] = [
    Case {
        mistake: "a response is changed once for each client that waits for it",
        config: ["", TRANSFORMED],
        answer: echo,
        steps: &[
            step("GET /items/1", 200, b"/items/1", &[("x-added", "once")]),
            step("GET /items/1", 200, b"/items/1", &[("x-added", "once")]),
            step("GET /items/1", 200, b"/items/1", &[("x-added", "once")]),
        ],
        forwarded: 1,
    },
    Case {
        mistake: "who waits gets the range that another client has asked for",
        config: [""; 2],
        answer: parts,
        steps: &[
            step("GET /\nRange: bytes=0-1", 206, b"ab", &[("content-range", "bytes 0-1/4")]),
            step("GET /\nRange: bytes=2-3", 206, b"cd", &[("content-range", "bytes 2-3/4")]),
            step("GET /", 200, b"abcd", &[("content-range", "")]),
        ],
        forwarded: 3,
    },
];

#[test]
fn keys_tell_apart_what_is_not_the_same() {
    KEYS.iter().for_each(check);
}

#[test]
fn responses_are_what_the_origin_has_said() {
    RESPONSES.iter().for_each(check);
}

#[test]
fn clients_that_wait_get_what_they_have_asked_for() {
    TOGETHER.iter().for_each(check_together);
}

/// A request between the answer of the origin and the end of the write asks again.
#[test]
fn each_url_is_fetched_once_whenever_requests_come() {
    let origin = ScriptedOrigin::start(echo);
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let next = AtomicUsize::new(0);
    let visit = || {
        let mut client = larder.client();
        while let number @ ..400 = next.fetch_add(1, Ordering::Relaxed) {
            let target = format!("/{}", number / 4);
            assert_eq!(client.get(&target).text(), target);
        }
    };
    std::thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(visit)));
    });
    for url in 0..100 {
        assert_eq!(origin.count(&format!("/{url}")), 1, "/{url}");
    }
}

/// In front of one origin, with a shared store.
fn sharing(origin: &ScriptedOrigin, store: SocketAddr) -> Setup {
    let passed_on = "[[site.rule]]\npath = { prefix = \"/passed\" }\ncache = false\n";
    let store = format!("[store.remote]\nurl = \"redis://{store}/0\"\n");
    let site = format!("[[site]]\nname = \"a\"\norigin = \"{}\"\n{passed_on}", origin.url());
    Setup::config(LARDER, &(store + &site))
}

/// Several that know each other.
#[track_caller]
fn fleet<const N: usize>(origin: &ScriptedOrigin, store: &Redis) -> [Larder; N] {
    let fleet = [(); N].map(|()| sharing(origin, store.address()).start());
    for larder in &fleet {
        wait::until_true("all know each other", || larder.metric("larder_tier_instances", &[]) == N as f64);
    }
    fleet
}

/// Entries without a time to live stay in the store for ever, and what is only passed on leaves some.
#[test]
fn what_the_store_has_expires() {
    let redis = Redis::start("");
    let origin = ScriptedOrigin::start(echo);
    let [larder] = fleet(&origin, &redis);
    let records = || {
        wait::until_true("the store knows", || larder.metric("larder_tier_pending_keys", &[]) == 0.0);
        redis.command("EVAL \"return #redis.call('keys','larder:r:*')\" 0")
    };
    larder.get("/stored");
    // Two more are of the instance itself.
    wait::until_true("it is written", || records() == ":3");
    larder.get("/passed/on");
    assert_eq!(records(), ":3", "nothing is written of what is passed on");
    let lasting = "EVAL \"local n={} for _,k in ipairs(redis.call('keys','*')) do \
                   if redis.call('ttl',k)<0 then n[#n+1]=k end end return table.concat(n,' ')\" 0";
    let lasting = redis.command(lasting);
    assert_eq!(lasting, "larder:log", "has no time to live");
}

/// With a lock in the store, its failure is one of each request; and who gets the lock does not look again.
#[test]
fn the_lock_of_a_fleet_costs_no_answer_and_no_second_forward() {
    let gate = Gate::new();
    let at_origin = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        at_origin.pass();
        echo(exchange);
    });
    let nobody = Port::reserve();
    let alone = sharing(&origin, nobody.address()).start();
    let redis = Redis::start("");
    let fleet: [_; 2] = fleet(&origin, &redis);
    let mut clients = fleet.each_ref().map(Larder::client);
    clients[0].send("GET /shared HTTP/1.1\r\nHost: test.example\r\n\r\n");
    origin.wait_for("/shared", 1);
    clients[1].send("GET /shared HTTP/1.1\r\nHost: test.example\r\n\r\n");
    wait::until_true("the other one waits", || {
        fleet[1].metric("larder_tier_leases_total", &["event=\"waited\""]) == 1.0
    });
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().text(), "/shared");
    }
    assert_eq!(origin.count("/shared"), 1);
    assert_eq!(alone.get("/alone").text(), "/alone");
}

/// Options of HTTP/2 have no effect; and durations are milliseconds, in buckets of seconds.
#[test]
fn options_of_http2_count_and_durations_are_seconds() {
    let origin = MockOrigin::start();
    let config = "[[origin]]\nname = \"o\"\nurl = \"@origin@\"\nprotocol = \"http2\"\nhost = \"set.example\"\n\
                  fields = { X-Set = \"by-the-gateway\" }\n[[site]]\nname = \"a\"\norigin = \"o\"\n\
                  timeouts = { first_byte = \"50ms\" }\n";
    let larder = Setup::config(LARDER, &config.replace("@origin@", &origin.url)).start();
    let echoed = larder.get("/echo/").text();
    assert!(echoed.contains("by-the-gateway") && echoed.contains("set.example"), "{echoed}");
    assert_eq!(origin.count("/echo/"), 1);
    assert_eq!(larder.get("/items/1?delay=60000").status(), 504);
    let of = |name: &str, parts: &[&str]| {
        larder.metric(&format!("larder_response_duration_seconds_{name}"), parts)
    };
    wait::until_true("both are counted", || of("count", &[]) == 2.0);
    let sum = of("sum", &[]);
    assert!(sum > 0.05 && sum < 60.0, "two responses took {sum} s");
    assert!(of("bucket", &["le=\"0.025\""]) < 2.0, "one took 50 ms at least");
}
