//! Fills of the cache: collapsed requests, fills that break, clients that are slow or leave, objects too large.

mod herd;
mod stalls;
mod turns;

use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{
    Client, End, Exchange, Gate, Larder, Random, Response, ScriptedOrigin, Setup, Signal, sha256, wait,
};

use crate::LARDER;

fn in_front_of(origin: &ScriptedOrigin) -> Larder {
    Setup::origin(LARDER, &origin.url()).start()
}

fn with(settings: &str, origin: &ScriptedOrigin) -> Larder {
    Setup::config(LARDER, &settings.replace("@origin@", &origin.url())).start()
}

fn request(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: test.example\r\n\r\n")
}

/// Clients that have asked for a target and not read anything yet.
fn askers(larder: &Larder, count: usize, target: &str) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| larder.client()).collect();
    clients.iter_mut().for_each(|client| drop(client.try_send(request(target))));
    clients
}

/// Its age counts the whole delay, so that it is stale when it arrives: for those who have waited for it, it is the answer all the same.
//= RFC 9111 section 4: collapsed requests
#[test]
fn a_crowd_shares_what_takes_longer_than_it_is_fresh() {
    const CROWD: usize = 40;
    const LIFETIME: Duration = Duration::from_secs(1);
    let origin = ScriptedOrigin::start(|exchange| {
        let asked = Instant::now();
        wait::until_true("its lifetime is over", || asked.elapsed() > LIFETIME + LIFETIME / 5);
        exchange.respond("200 OK", "Cache-Control: max-age=1\r\n", "late");
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    for client in &mut askers(&larder, CROWD, "/late") {
        assert_eq!(client.response().text(), "late");
    }
    // Who came after its lifetime shares the next one.
    assert!(origin.count("/late") <= 3, "{} forwards", origin.count("/late"));
}

/// One origin request for a thousand clients; the first half of the body reaches all of them before the origin sends
/// the second.
//= RFC 9111 section 4: collapsed requests
#[test]
fn a_thousand_requests_for_a_cold_url_are_one_forward() {
    testkit::raise_open_files_limit();
    let body = Random::new(1).bytes(64 << 10);
    let (first, second) = (body[..32 << 10].to_vec(), body[32 << 10..].to_vec());
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        exchange.delay_ms(500).head("200 OK", "Content-Length: 65536\r\nCache-Control: max-age=60\r\n");
        exchange.send(&first);
        released.pass();
        exchange.send(&second);
    });
    let larder = in_front_of(&origin);
    let mut clients = askers(&larder, 1000, "/");
    let half = body.len() / 2;
    for client in &mut clients {
        assert_eq!(client.head().status(), 200);
        assert!(client.bytes(half) == body[..half], "the first half");
    }
    assert_eq!(origin.total(), 1, "the fill runs, and nobody else asked");
    gate.open();
    for client in &mut clients {
        assert!(client.bytes(half) == body[half..], "the second half");
    }
    assert_eq!(origin.total(), 1);
    assert!(larder.get("/").is_hit());
}

/// The body of the first response is still on its way when a reload brings a newer one.
//= RFC 9111 section 4: the most recent of several
#[test]
fn a_slow_body_does_not_replace_a_newer_response() {
    for tags in [["\"a\"", "\"b\""], ["W/\"a\"", "W/\"a\""]] {
        let gate = Gate::new();
        let released = gate.clone();
        let origin = ScriptedOrigin::start(move |exchange| {
            let number = exchange.request.earlier;
            let fields =
                format!("Content-Length: 10\r\nCache-Control: max-age=60\r\nETag: {}\r\n", tags[number]);
            exchange.head("200 OK", &fields).send(format!("body{number}"));
            if number == 0 {
                released.pass();
            }
            exchange.send(format!("tail{number}"));
        });
        let larder = in_front_of(&origin);
        let mut slow = larder.client();
        slow.send(request("/"));
        assert_eq!(slow.head().status(), 200);
        assert_eq!(slow.bytes(5), b"body0");
        assert_eq!(larder.ask("GET", "/", "Cache-Control: no-cache\r\n").text(), "body1tail1");
        gate.open();
        assert_eq!(slow.bytes(5), b"tail0");
        let now = larder.get("/");
        assert_eq!((now.text().as_str(), now.is_hit()), ("body1tail1", true), "{tags:?}");
        assert_eq!(larder.metric("larder_not_stored_total", &["outdated"]), 1.0);
    }
}

/// Field bug: a body for which there could be no room said that it was stored, as chance would have it, and never was.
//= RFC 9211 section 2.5: stored
#[test]
fn a_body_that_says_that_it_is_stored_is_a_hit() {
    for (memory_mib, bytes, is_stored) in [
        (2, 600_000, true),
        (2, 700_000, false),
        (2, 1_000_000, false),
        (16, 6 << 20, true),
        (16, 7_000_000, true),
        (16, 7 << 20, false),
        (16, 8 << 20, false),
    ] {
        let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "x".repeat(bytes));
        let config = "workers = 1\n[[site]]\nname = \"a\"\norigin = \"@origin@\"\n";
        let larder = with(&format!("{config}[store]\nmemory = \"{memory_mib}MiB\"\n"), &origin);
        let said = larder.get("/").cache_status();
        assert_eq!(said.contains("; stored"), is_stored, "{memory_mib} {bytes}: {said}");
        assert!(is_stored || said.ends_with("detail=object-too-large"), "{memory_mib} {bytes}: {said}");
        assert_eq!(larder.get("/").is_hit(), is_stored, "{memory_mib} {bytes}");
    }
}

/// Field bug: the log said `abandoned`, as if the origin or a client had done it, where memory was wanted.
#[test]
fn a_body_that_nobody_reads_and_that_has_no_room_names_the_memory() {
    let (gate, left) = (Gate::new(), Gate::new());
    let (held, released) = (gate.clone(), left.clone());
    let body = vec![b'x'; 6 << 20];
    let origin = ScriptedOrigin::start(move |exchange| match exchange.request.target() {
        "/held" => {
            let fields = format!("Content-Length: {}\r\nCache-Control: max-age=60\r\n", body.len());
            exchange.head("200 OK", &fields).send(&body[1..]);
            held.pass();
            exchange.send("x");
        }
        _ => {
            exchange.chunked_head("Cache-Control: max-age=60\r\n").chunk("x");
            released.pass();
            in_chunks(exchange, &body).last_chunk("");
        }
    });
    let config = "[store]\nmemory = \"16MiB\"\n[[site]]\nname = \"a\"\norigin = \"@origin@\"\n";
    let larder = with(config, &origin);
    let mut reader = larder.client();
    reader.send(request("/held"));
    reader.head();
    let filling = || larder.metric("larder_store_bytes", &["class=\"filling\""]);
    wait::until_true("its body takes what there is", || filling() >= f64::from(5 << 20));
    let mut leaves = larder.client();
    leaves.send(request("/left"));
    leaves.head();
    drop(leaves);
    left.open();
    let aborted =
        |reason: &str| larder.metric("larder_fills_aborted_total", &[&format!("reason=\"{reason}\"")]);
    wait::until_true("it is given up", || aborted("memory-full") + aborted("abandoned") > 0.5);
    assert_eq!(aborted("memory-full"), 1.0);
    let told = |line: &&str| line.contains("body broke off") && line.contains("/left");
    let log = larder.stderr();
    assert!(log.lines().filter(told).all(|line| line.contains("reason=\"memory-full\"")), "{log}");
    gate.open();
}

/// However many ask, each expiry costs the origin one request.
#[test]
fn a_hot_url_is_one_forward_per_expiry() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.delay_ms(20).respond("200 OK", "Cache-Control: max-age=1\r\n", "hot");
    });
    let larder = in_front_of(&origin);
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut client = larder.client();
                while origin.total() < 3 {
                    assert_eq!(client.get("/").text(), "hot");
                }
            });
        }
    });
    // A response is fresh for a second, counted from its request.
    let expiries = began.elapsed().as_secs();
    assert!(origin.total() as u64 <= 1 + expiries, "{} forwards for {expiries} expiries", origin.total());
}

//= RFC 9211 section 2.6: collapsed
#[test]
fn waiters_say_that_they_were_collapsed() {
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        released.pass();
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "shared");
    });
    let larder = in_front_of(&origin);
    let mut clients = askers(&larder, 10, "/");
    wait::until_true("nine wait", || larder.metric("larder_collapsed_waiters", &[]) >= 9.0);
    gate.open();
    let responses: Vec<_> = clients.iter_mut().map(Client::response).collect();
    assert!(responses.iter().all(|response| response.text() == "shared"));
    let collapsed = responses.iter().filter(|response| response.cache_status().contains("collapsed")).count();
    assert_eq!((collapsed, origin.total()), (9, 1));
}

#[test]
fn collapse_can_be_switched_off() {
    let barrier = Arc::new(Barrier::new(5));
    let origin = ScriptedOrigin::start(move |exchange| {
        barrier.wait();
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "x");
    });
    let larder = with("[[site]]\nname = \"a\"\norigin = \"@origin@\"\ncollapse = \"off\"\n", &origin);
    let mut clients = askers(&larder, 5, "/");
    assert!(clients.iter_mut().all(|client| client.response().text() == "x"));
    assert_eq!(origin.total(), 5);
}

/// Requests that wait for an answer that turns out to be for one client only go to the origin side by side, not one
/// after the other; and the next ones need not find it out again.
#[test]
fn uncacheable_responses_are_not_collapsed() {
    let barrier = Arc::new(Barrier::new(10));
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.earlier > 0 {
            // Opens only when ten are here at the same time.
            barrier.wait();
        }
        let body = format!("answer {}", exchange.request.earlier);
        exchange.respond("200 OK", "Cache-Control: private\r\n", body);
    });
    let larder = in_front_of(&origin);
    larder.get("/");
    let mut clients = askers(&larder, 10, "/");
    let mut bodies: Vec<String> = clients.iter_mut().map(|client| client.response().text()).collect();
    bodies.sort_unstable();
    bodies.dedup();
    assert_eq!((bodies.len(), origin.total()), (10, 11), "each has an answer of its own");
}

/// The same when the first of them is still waiting for the head.
//= RFC 9111 section 4: collapsed requests
#[test]
fn waiters_leave_when_the_answer_is_not_for_them() {
    let gate = Gate::new();
    let released = gate.clone();
    let barrier = Arc::new(Barrier::new(9));
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.earlier == 0 {
            released.pass();
        } else {
            barrier.wait();
        }
        let body = format!("answer {}", exchange.request.earlier);
        exchange.respond("200 OK", "Cache-Control: private\r\n", body);
    });
    let larder = in_front_of(&origin);
    let mut clients = askers(&larder, 10, "/");
    wait::until_true("nine wait", || larder.metric("larder_collapsed_waiters", &[]) >= 9.0);
    gate.open();
    let mut bodies: Vec<String> = clients.iter_mut().map(|client| client.response().text()).collect();
    bodies.sort_unstable();
    bodies.dedup();
    assert_eq!((bodies.len(), origin.total()), (10, 10));
}

/// A body that takes longer than it is fresh: who comes when it is not fresh any more waits for one newer response, with all others.
//= RFC 9111 section 4: collapsed requests
#[test]
fn a_body_that_outlasts_its_freshness_costs_a_crowd_one_request_more() {
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        let number = exchange.request.earlier;
        exchange.head("200 OK", "Content-Length: 2\r\nCache-Control: max-age=1\r\n").send(number.to_string());
        if number == 0 {
            released.pass();
        }
        exchange.send(number.to_string());
    });
    let larder = in_front_of(&origin);
    let mut first = larder.client();
    first.send(request("/"));
    first.head();
    let begun = Instant::now();
    wait::until_true("it has expired", || begun.elapsed() > Duration::from_millis(1100));
    let mut clients = askers(&larder, 10, "/");
    assert!(clients.iter_mut().all(|client| client.response().text() == "11"));
    assert_eq!(origin.total(), 2);
    gate.open();
    assert_eq!(first.bytes(2), b"00");
}

/// Waiters for different variants: each variant is forwarded once, and everybody gets the own one.
//= RFC 9111 section 4.1: all nominated fields match
#[test]
fn waiters_leave_on_vary_mismatch() {
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        released.pass();
        let language = exchange.request.field("accept-language").to_owned();
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\nVary: Accept-Language\r\n", language);
    });
    let larder = in_front_of(&origin);
    let languages = ["de", "en", "fr"];
    let mut clients: Vec<(&str, Client)> = Vec::new();
    for language in languages.into_iter().cycle().take(30) {
        let mut client = larder.client();
        client.send(format!("GET / HTTP/1.1\r\nHost: test.example\r\nAccept-Language: {language}\r\n\r\n"));
        clients.push((language, client));
    }
    wait::until_true("the others wait", || larder.metric("larder_collapsed_waiters", &[]) >= 29.0);
    gate.open();
    for (language, client) in &mut clients {
        assert_eq!(client.response().text(), *language);
    }
    assert_eq!(origin.total(), languages.len());
}

/// How an origin breaks a body.
#[derive(Clone, Copy, Debug)]
enum Break {
    LengthFin,
    LengthReset,
    ChunkedFin,
    ChunkedReset,
}

const BREAKS: [Break; 4] = [Break::LengthFin, Break::LengthReset, Break::ChunkedFin, Break::ChunkedReset];

/// Sends half of a body of twice `half` bytes, and breaks the connection.
fn break_off(exchange: &mut Exchange<'_>, how: Break, half: &[u8]) {
    let fields = "Cache-Control: max-age=60\r\nETag: \"a\"\r\n";
    match how {
        Break::LengthFin | Break::LengthReset => {
            exchange.head("200 OK", &format!("Content-Length: {}\r\n{fields}", half.len() * 2)).send(half)
        }
        Break::ChunkedFin | Break::ChunkedReset => exchange.chunked_head(fields).chunk(half),
    };
    match how {
        Break::LengthFin | Break::ChunkedFin => exchange.close(),
        Break::LengthReset | Break::ChunkedReset => exchange.reset(),
    };
}

/// Nobody takes half a body for a whole one: not the client of the fill, not those who wait for it, not those who ask
/// afterwards; a hundred times in a row.
//= RFC 9112 section 8: an incomplete response is recorded as incomplete
#[test]
fn origin_killed_mid_body_a_hundred_times() {
    let sent = Random::new(4).bytes(40_000);
    let gates: Arc<Vec<Gate>> = Arc::new((0..100).map(|_| Gate::new()).collect());
    let released = Arc::clone(&gates);
    let origin = ScriptedOrigin::start(move |exchange| {
        let target = exchange.request.target().to_owned();
        let round: usize = target[1..].parse().expect("targets are numbers");
        match exchange.request.field("x-after") {
            "" => {
                released[round].pass();
                break_off(exchange, BREAKS[round % BREAKS.len()], &sent);
            }
            _ => drop(exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "whole")),
        }
    });
    let larder = in_front_of(&origin);
    for (round, gate) in gates.iter().enumerate() {
        let target = format!("/{round}");
        let mut clients = askers(&larder, 3, &target);
        origin.wait_for(&target, 1);
        gate.open();
        for client in &mut clients {
            // A waiter may try for itself, and fail the same way.
            if let Ok(response) = client.try_response_to("GET") {
                let whole = response.status() == 200 && response.end != End::Truncated;
                assert!(!whole, "{:?} ended cleanly: {:?}", BREAKS[round % BREAKS.len()], response.head);
            }
        }
        let after = larder.ask("GET", &target, "X-After: yes\r\n");
        assert_eq!((after.status(), after.text().as_str(), after.is_hit()), (200, "whole", false));
    }
    assert_eq!(larder.metric("larder_fills", &[]), 0.0, "no fill is left over");
}

/// The same where the body is for one client alone and HTTP/1.0 gives it no framing of its own.
#[test]
fn broken_bodies_that_pass_through_are_visibly_broken() {
    let origin = ScriptedOrigin::start(|exchange| {
        let how = BREAKS[exchange.request.earlier % BREAKS.len()];
        let head = "Cache-Control: no-store\r\n";
        match how {
            Break::LengthFin => {
                exchange.head("200 OK", &format!("Content-Length: 10\r\n{head}")).send("hello").close()
            }
            Break::LengthReset => {
                exchange.head("200 OK", &format!("Content-Length: 10\r\n{head}")).send("hello").reset()
            }
            Break::ChunkedFin => exchange.chunked_head(head).chunk("hello").close(),
            Break::ChunkedReset => exchange.chunked_head(head).chunk("hello").reset(),
        };
    });
    let larder = in_front_of(&origin);
    for _ in 0..20 {
        let mut client = larder.client();
        client.send(request("/"));
        if let Ok(response) = client.try_response_to("GET") {
            let whole = response.status() == 200 && response.end != End::Truncated;
            assert!(!whole, "{:?} {:?}", response.head, response.text());
        }
    }
}

/// HTTP/1.0 ends a body of unknown length with the connection, so a body that breaks off must break the connection too:
/// whoever cuts it, the origin, the end of the drain, or the kernel after the process was killed.
//= RFC 9112 section 8: an incomplete response is recorded as incomplete
#[test]
fn http_1_0_clients_see_that_a_body_broke_off() {
    let sent = Random::new(8).bytes(300_000);
    let origin = ScriptedOrigin::start(move |exchange| {
        let round: usize = exchange.request.target()[1..].parse().expect("targets are numbers");
        let caching = if round.is_multiple_of(2) { "max-age=60" } else { "no-store" };
        let bytes = if round.is_multiple_of(3) { 5 } else { sent.len() };
        exchange.chunked_head(&format!("Cache-Control: {caching}\r\n")).chunk(&sent[..bytes]);
        match round % 5 {
            0 | 1 => exchange.close(),
            2 | 3 => exchange.reset(),
            _ => exchange.send("this is no chunk\r\n").close(),
        };
    });
    for workers in [1, 4] {
        let settings = format!("workers = {workers}\n[[site]]\nname = \"a\"\norigin = \"@origin@\"\n");
        let larder = with(&settings, &origin);
        let ends = (0..80).map(|round| {
            let mut client = larder.client();
            client.send(format!("GET /{round} HTTP/1.0\r\nHost: a\r\n\r\n"));
            client.try_response_to("GET").map_or(End::Truncated, |response| response.end)
        });
        assert_eq!(ends.filter(|end| *end == End::Closed).count(), 0, "of 80 with {workers} workers");
    }
}

#[test]
fn http_1_0_clients_see_the_end_of_the_process() {
    for signal in [Signal::KILL, Signal::TERM] {
        let origin = ScriptedOrigin::start(|exchange| {
            exchange.chunked_head("Cache-Control: no-store\r\n").chunk("hello");
            exchange.wait_for_peer();
        });
        let settings = "drain_limit = \"1s\"\n[[site]]\nname = \"a\"\norigin = \"@origin@\"\n";
        let larder = with(settings, &origin);
        let mut client = larder.client();
        client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
        assert_eq!(client.head().status(), 200);
        assert_eq!(client.bytes(5), b"hello");
        larder.signal(signal);
        let mut rest = Vec::new();
        let ended = client.socket().read_to_end(&mut rest);
        assert!(ended.is_err(), "{signal:?} ended it cleanly");
    }
}

/// What is whole ends in order, also where much of it is still on its way.
#[test]
fn http_1_0_clients_get_all_of_a_whole_body() {
    let body = Random::new(9).bytes(3 << 20);
    let sent = body.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        in_chunks(exchange.chunked_head("Cache-Control: no-store\r\n"), &sent);
    });
    let larder = in_front_of(&origin);
    for _ in 0..20 {
        let mut client = larder.client();
        client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
        let response = client.response();
        assert!(response.end == End::Closed && response.body == body, "{:?}", response.end);
    }
}

/// `Cache-Status` says what is known when the head is sent.
//= RFC 9211 section 2.5: stored
#[test]
fn what_broke_off_with_its_head_does_not_say_that_it_is_stored() {
    let origin = ScriptedOrigin::start(|exchange| {
        let end = if exchange.request.target() == "/whole" { "0\r\n\r\n" } else { "no chunk\r\n" };
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCache-Control: max-age=60\r\n\r\n";
        // All in one packet, so that all is known at once.
        exchange.send(format!("{head}5\r\nhello\r\n{end}"));
    });
    let larder = in_front_of(&origin);
    let is_said = |response: &Response| response.cache_status().split("; ").any(|part| part == "stored");
    let whole = larder.get("/whole");
    assert!(is_said(&whole), "{}", whole.cache_status());
    for _ in 0..10 {
        let cut = larder.get("/cut");
        assert_eq!(cut.end, End::Truncated);
        assert!(!cut.is_hit() && !is_said(&cut), "{}", cut.cache_status());
    }
    assert_eq!(origin.count("/cut"), 10, "none of them was stored");
}

/// A body that only the close ends: whether it is whole, nobody knows.
//= RFC 9112 section 8: what the close ends is complete if its header section is
#[test]
fn bodies_that_the_close_ends_are_stored_where_that_is_asked_for() {
    let origin = ScriptedOrigin::start(|exchange| {
        let (version, fields) = match exchange.request.target() {
            "/1.0" => ("1.0", ""),
            _ => ("1.1", "Connection: close\r\n"),
        };
        let head = format!("HTTP/{version} 200 OK\r\nCache-Control: max-age=60\r\n{fields}\r\n");
        exchange.send(head).send("hello").close();
    });
    let site = "[[site]]\nname = \"a\"\norigin = \"@origin@\"\n";
    let cases = [
        (site.to_owned(), false),
        (format!("profile = \"rfc9111\"\n{site}"), true),
        (format!("{site}[[site.rule]]\nclose_delimited = \"store\"\n"), true),
        (format!("profile = \"rfc9111\"\n{site}[[site.rule]]\nclose_delimited = \"pass\"\n"), false),
    ];
    for (settings, is_stored) in cases {
        let larder = with(&settings, &origin);
        for target in ["/1.0", "/1.1"] {
            let first = larder.get(target);
            let second = larder.get(target);
            assert_eq!((first.text().as_str(), second.text().as_str()), ("hello", "hello"));
            assert_eq!(second.is_hit(), is_stored, "{target} {settings}");
            let says_why = first.cache_status().ends_with("detail=close-delimited");
            assert_eq!(says_why, !is_stored, "{}", first.cache_status());
        }
    }
}

fn in_chunks<'e, 's>(exchange: &'e mut Exchange<'s>, body: &[u8]) -> &'e mut Exchange<'s> {
    for piece in body.chunks(50_000) {
        exchange.chunk(piece);
    }
    exchange.last_chunk("")
}

#[test]
fn an_object_found_too_large_goes_on_to_its_client_and_is_not_stored() {
    let body = Random::new(5).bytes(300_000);
    let sent = body.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        match exchange.request.target() {
            "/length" => exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", &sent),
            _ => {
                exchange.chunked_head("Cache-Control: max-age=60\r\n");
                in_chunks(exchange, &sent)
            }
        };
    });
    let settings =
        "[[site]]\nname = \"a\"\norigin = \"@origin@\"\n[[site.rule]]\nobject_bytes_max = \"100KiB\"\n";
    let larder = with(settings, &origin);
    for target in ["/length", "/chunked"] {
        for _ in 0..2 {
            let response = larder.get(target);
            assert!(response.body == body && response.end == End::Complete, "{target}: {:?}", response.head);
            assert!(!response.is_hit());
        }
        assert_eq!(origin.count(target), 2);
    }
    wait::until_true("nothing is held", || larder.metric("larder_store_bytes", &["filling"]) == 0.0);
}

#[test]
fn an_object_larger_than_the_store_is_served() {
    let body = Random::new(6).bytes(20 << 20);
    let sum = sha256(&body);
    let sent = body.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        match exchange.request.target() {
            "/length" => exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", &sent),
            _ => {
                exchange.chunked_head("Cache-Control: max-age=60\r\n");
                in_chunks(exchange, &sent)
            }
        };
    });
    let larder = with("[store]\nmemory = \"4MiB\"\n[[site]]\nname = \"a\"\norigin = \"@origin@\"\n", &origin);
    for target in ["/length", "/chunked", "/length"] {
        let response = larder.get(target);
        assert_eq!((response.end, response.body.len()), (End::Complete, body.len()), "{target}");
        assert_eq!(sha256(&response.body), sum);
    }
    let small = larder.metric("larder_store_bytes", &[]);
    assert!(small <= f64::from(5 << 20), "{small} bytes are held");
}

/// The first client reads nothing at all; the fill ends without it, and the second gets everything.
#[test]
fn a_slow_client_does_not_stop_the_fill() {
    let body = Random::new(7).bytes(8 << 20);
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", body.clone());
    let larder = in_front_of(&origin);
    let mut slow = larder.client();
    slow.send(request("/"));
    let head = slow.head();
    let start = slow.bytes(1000);
    wait::until_true("the fill ends without its client", || {
        larder.metric("larder_fills", &[]) == 0.0 && larder.metric("larder_store_entries", &[]) == 1.0
    });
    let hit = larder.get("/");
    assert!(hit.is_hit() && hit.body == body);
    assert_eq!(head.status(), 200);
    assert!(
        start == body[..1000] && slow.bytes(body.len() - 1000) == body[1000..],
        "the slow one gets it all"
    );
    assert_eq!(origin.total(), 1);
}

#[test]
fn a_client_that_leaves_does_not_stop_the_fill() {
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        exchange.head("200 OK", "Content-Length: 10\r\nCache-Control: max-age=60\r\n").send("hello");
        released.pass();
        exchange.send("world");
    });
    let larder = in_front_of(&origin);
    let mut leader = larder.client();
    leader.send(request("/"));
    leader.head();
    drop(leader);
    let mut waiter = larder.client();
    waiter.send(request("/"));
    assert_eq!(waiter.head().status(), 200);
    gate.open();
    assert_eq!(waiter.bytes(10), b"helloworld");
    assert_eq!(origin.total(), 1);
}

/// A fill that a purge overtook goes on to its clients and is not stored.
/// Ranges are cut from a body that is on its way, each as soon as its bytes are there.
//= RFC 9110 section 14.6: multipart/byteranges
#[test]
fn several_ranges_of_a_body_on_its_way() {
    let gate = Gate::new();
    let passed = gate.clone();
    let body: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let (first, second) = (body[..150_000].to_vec(), body[150_000..].to_vec());
    let origin = ScriptedOrigin::start(move |exchange| {
        let fields = "Content-Length: 300000\r\nCache-Control: max-age=60\r\nContent-Type: a/b\r\n";
        exchange.head("200 OK", fields).send(&first);
        match exchange.request.target() {
            "/broken" => exchange.close(),
            "/waits" => {
                passed.pass();
                exchange.send(&second)
            }
            _ => exchange.send(&second),
        };
    });
    let larder = in_front_of(&origin);
    let mut client = larder.client();
    client.send("GET /waits HTTP/1.1\r\nHost: test.example\r\nRange: bytes=10-19,100000-100009,-5\r\n\r\n");
    let head = client.head();
    assert_eq!(head.status(), 206, "{head:?}");
    let boundary = head.fields.one("content-type").and_then(|value| value.split("boundary=").nth(1));
    let delimiter = format!("\r\n--{}", boundary.expect("a boundary"));
    let part = |first: usize, last: usize| {
        let range = format!("Content-Range: bytes {first}-{last}/300000");
        let head = format!("{delimiter}\r\nContent-Type: a/b\r\n{range}\r\n\r\n");
        [head.as_bytes(), &body[first..=last]].concat()
    };
    let early = [part(10, 19), part(100_000, 100_009)].concat();
    assert!(client.bytes(early.len()) == early, "both are there before the rest of the body");
    gate.open();
    let late = [part(299_995, 299_999), format!("{delimiter}--\r\n").into_bytes()].concat();
    assert!(client.bytes(late.len()) == late);
    let length = head.fields.one("content-length").map(str::to_owned);
    assert_eq!(length, Some((early.len() + late.len()).to_string()));
    assert!(client.get("/waits").is_hit(), "the whole is stored, and the connection goes on");
    let unordered = larder.ask("GET", "/unordered", "Range: bytes=-5,10-19\r\n");
    assert!(unordered.status() == 200 && unordered.body == body, "{:?}", unordered.head);
    let broken = larder.ask("GET", "/broken", "Range: bytes=10-19,-5\r\n");
    assert_eq!((broken.status(), broken.end), (206, End::Truncated));
    assert_eq!(origin.total(), 3);
}

#[test]
fn purge_during_a_fill() {
    let gate = Gate::new();
    let released = gate.clone();
    let round = Arc::new(AtomicUsize::new(0));
    let origin = ScriptedOrigin::start(move |exchange| {
        let number = round.fetch_add(1, Ordering::AcqRel);
        exchange.head("200 OK", "Content-Length: 10\r\nCache-Control: max-age=60\r\n").send("round");
        if number == 0 {
            released.pass();
        }
        exchange.send(format!("{number:5}"));
    });
    let larder = in_front_of(&origin);
    let mut client = larder.client();
    client.send(request("/"));
    client.head();
    assert_eq!(client.bytes(5), b"round");
    let purged = larder.ask_admin("POST", "/purge?url=http://test.example/", "");
    assert_eq!(purged.status(), 200, "{}", purged.text());
    assert!(purged.text().contains("\"fills_doomed\":1"), "{}", purged.text());
    let mut after = larder.client();
    after.send(request("/"));
    assert_eq!(after.response().text(), "round    1", "who asks after the purge gets nothing from before it");
    gate.open();
    assert_eq!(client.bytes(5), b"    0");
    let next = larder.get("/");
    assert_eq!((next.text().as_str(), next.is_hit()), ("round    1", true));
}

/// The first answer for each target is not stored, and a note says so.
#[test]
fn what_was_not_stored_is_stored_once_it_may_be_and_was_not_purged_meanwhile() {
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        let number = exchange.request.earlier;
        if number == 1 && exchange.request.target() == "/purged" {
            released.pass();
        }
        let control = if number == 0 { "no-store" } else { "max-age=60" };
        exchange.respond("200 OK", &format!("Cache-Control: {control}\r\n"), format!("answer {number}"));
    });
    let larder = in_front_of(&origin);
    let check = |target: &str, text: &str, is_hit: bool| {
        let response = larder.get(target);
        assert_eq!((response.text().as_str(), response.is_hit()), (text, is_hit), "{target}");
    };
    check("/", "answer 0", false);
    check("/", "answer 1", false);
    check("/", "answer 1", true);
    check("/purged", "answer 0", false);
    let mut under_way = larder.client();
    under_way.send(request("/purged"));
    origin.wait_for("/purged", 2);
    let purged = larder.ask_admin("POST", "/purge?url=http://test.example/purged", "");
    assert_eq!(purged.status(), 200, "{}", purged.text());
    gate.open();
    assert_eq!(under_way.response().text(), "answer 1");
    check("/purged", "answer 2", false);
    check("/purged", "answer 2", true);
}

/// Waiters give up waiting after their limit, and ask for themselves.
#[test]
fn waiting_has_a_limit() {
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.earlier == 0 {
            released.pass();
        }
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "x");
    });
    let settings =
        "[[site]]\nname = \"a\"\norigin = \"@origin@\"\n[site.collapse_limits]\nwait_max = \"100ms\"\n";
    let larder = with(settings, &origin);
    let mut leader = larder.client();
    leader.send(request("/"));
    origin.wait_for("/", 1);
    assert_eq!(larder.get("/").text(), "x", "answered while the first forward still waits");
    gate.open();
    assert_eq!(leader.response().text(), "x");
}

/// Memory does not grow with what an origin sends faster than a client reads, when nothing is stored.
#[test]
fn a_stream_for_a_slow_client_is_bounded() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let origin = ScriptedOrigin::start(move |exchange| {
        exchange.chunked_head("Cache-Control: no-store\r\n");
        let piece = vec![b'x'; 64 << 10];
        for _ in 0..2000 {
            if exchange.chunk(&piece).is_broken() {
                return;
            }
            counter.fetch_add(piece.len(), Ordering::AcqRel);
        }
        exchange.last_chunk("");
    });
    let larder = in_front_of(&origin);
    let mut client = larder.client();
    client.send(request("/"));
    client.head();
    // The origin stands still when every buffer on the way is full.
    let mut before = usize::MAX;
    wait::until_true("the origin is held back", || {
        thread::park_timeout(Duration::from_millis(200));
        let now = sent.load(Ordering::Acquire);
        std::mem::replace(&mut before, now) == now
    });
    assert!(before < 60 << 20, "{before} bytes were taken from the origin for a client that reads nothing");
}
