//! Fills of the cache: collapsed requests, aborted fills, clients that are slow or leave, and bodies that are too large.

mod herd;
mod stalls;
mod turns;

use std::io::Read;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use testkit::{Client, End, Exchange, Gate, Larder, Random, ScriptedOrigin, Signal, wait};

use super::basics::{asking, bare, gates, wait_for_waiters, with};
use crate::fleet::purge_waits::purge;

/// A site whose origin keeps no connections and doesn't limit a client's share of them.
const UNKEPT: &str = "[[origin]]\nname = \"o\"\nurl = \"@origin@\"\n\
    pool = { keep_alive = false, client_share_percent = 100 }\n[[site]]\nname = \"a\"\norigin = \"o\"\n";
/// Maximum number of concurrent forwards for one key.
const AT_ONCE: usize = 4;
/// A field that is in no cache key, but that the origin reads.
const ATTACK: &str = "X-Attack: 1\r\n";

fn askers(larder: &Larder, count: usize, target: &str) -> Vec<Client> {
    (0..count).map(|_| asking(larder, target, "")).collect()
}

/// The age of the response includes the delay, so it is stale on arrival. It still answers the requests that waited for it.
//= RFC 9111 section 4: collapsed requests
#[test]
fn a_crowd_shares_what_takes_longer_than_it_is_fresh() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.delay_ms(1200).respond("200 OK", "Cache-Control: max-age=1\r\n", "late");
    });
    let larder = bare(&origin);
    for client in &mut askers(&larder, 40, "/late") {
        assert_eq!(client.response().text(), "late");
    }
    assert!(origin.count("/late") <= 3, "{} forwards", origin.count("/late"));
}

/// A thousand clients cost one origin request, and all of them get the first half of the body before the origin sends the second.
//= RFC 9111 section 4: collapsed requests
//= RFC 9211 section 2.6: collapsed
#[test]
fn a_thousand_requests_for_a_cold_url_are_one_forward() {
    testkit::raise_open_files_limit();
    let body = Random::new(1).bytes(64 << 10);
    let half = body.len() / 2;
    let (first, second) = (body[..half].to_vec(), body[half..].to_vec());
    let (gate, released) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        released.pass_step(1);
        exchange.head("200 OK", "Content-Length: 65536\r\nCache-Control: max-age=60\r\n").send(&first);
        released.pass_step(2);
        exchange.send(&second);
    });
    let larder = bare(&origin);
    let mut clients = askers(&larder, 1000, "/");
    wait_for_waiters(&larder, 999);
    gate.reach(1);
    let mut collapsed = 0;
    for client in &mut clients {
        let head = client.head();
        assert_eq!(head.status(), 200);
        collapsed += usize::from(head.fields.joined("cache-status").contains("collapsed"));
        assert!(client.bytes(half) == body[..half], "the first half");
    }
    assert_eq!((origin.total(), collapsed), (1, 999), "one fill, and no other forward");
    gate.open();
    assert!(clients.iter_mut().all(|client| client.bytes(half) == body[half..]), "the second half");
    assert_eq!(origin.total(), 1);
    assert!(larder.get("/").is_hit());
}

/// The body of the first response is still arriving when a client's reload fetches a newer one.
//= RFC 9111 section 4: the most recent of several
#[test]
fn a_slow_body_does_not_replace_a_newer_response() {
    for tags in [["\"a\"", "\"b\""], ["W/\"a\"", "W/\"a\""]] {
        let (gate, released) = gates();
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
        let larder = bare(&origin);
        let mut slow = asking(&larder, "/", "");
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

/// Field bug: `Cache-Status` sometimes said `stored` for a body that could never fit into the store.
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
        let larder = with(&format!("workers = 1\n@site@[store]\nmemory = \"{memory_mib}MiB\"\n"), &origin);
        let said = larder.get("/").cache_status();
        assert_eq!(said.contains("; stored"), is_stored, "{memory_mib} {bytes}: {said}");
        assert!(is_stored || said.ends_with("detail=object-too-large"), "{memory_mib} {bytes}: {said}");
        assert_eq!(larder.get("/").is_hit(), is_stored, "{memory_mib} {bytes}");
    }
}

/// Field bug: the log said `abandoned`, as if the origin or a client had caused it, although memory was full.
#[test]
fn a_body_that_nobody_reads_and_that_has_no_room_names_the_memory() {
    let ((gate, held), (left, released)) = (gates(), gates());
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
            in_chunks(exchange, &body);
        }
    });
    let larder = with("[store]\nmemory = \"16MiB\"\n@site@", &origin);
    let mut reader = asking(&larder, "/held", "");
    reader.head();
    let filling = || larder.metric("larder_store_bytes", &["class=\"filling\""]);
    wait::until_true("its body fills the memory", || filling() >= f64::from(5 << 20));
    asking(&larder, "/left", "").head();
    left.open();
    let aborted =
        |reason: &str| larder.metric("larder_fills_aborted_total", &[&format!("reason=\"{reason}\"")]);
    wait::until_true("the fill is aborted", || aborted("memory-full") + aborted("abandoned") > 0.5);
    assert_eq!(aborted("memory-full"), 1.0);
    let told = |line: &&str| line.contains("body was cut short") && line.contains("/left");
    let log = larder.stderr();
    assert!(log.lines().filter(told).all(|line| line.contains("reason=\"memory-full\"")), "{log}");
    gate.open();
}

/// Requests that waited for a private response then go to the origin concurrently, not one after the other. Once the response is known to
/// be private, later requests don't wait.
//= RFC 9111 section 4: collapsed requests
#[test]
fn answers_for_one_client_alone_are_not_collapsed() {
    for is_known in [false, true] {
        let ((gate, released), barrier) = (gates(), Barrier::new(if is_known { 10 } else { 9 }));
        let origin = ScriptedOrigin::start(move |exchange| {
            if exchange.request.earlier > 0 {
                // Opens only when all of these requests are here at the same time.
                barrier.wait();
            } else if !is_known {
                released.pass();
            }
            let body = format!("answer {}", exchange.request.earlier);
            exchange.respond("200 OK", "Cache-Control: private\r\n", body);
        });
        let larder = bare(&origin);
        if is_known {
            larder.get("/");
        }
        let mut clients = askers(&larder, 10, "/");
        if !is_known {
            wait_for_waiters(&larder, 9);
            gate.open();
        }
        let mut bodies: Vec<String> = clients.iter_mut().map(|client| client.response().text()).collect();
        bodies.sort_unstable();
        bodies.dedup();
        let forwards = 10 + usize::from(is_known);
        assert_eq!((bodies.len(), origin.total()), (10, forwards), "each has an answer of its own");
    }
}

/// Requests that arrive while a body that is already stale is arriving share one newer response.
//= RFC 9111 section 4: collapsed requests
#[test]
fn a_body_that_outlasts_its_freshness_costs_a_crowd_one_request_more() {
    let (gate, released) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        let number = exchange.request.earlier;
        exchange.head("200 OK", "Content-Length: 2\r\nCache-Control: max-age=1\r\n").send(number.to_string());
        if number == 0 {
            released.pass();
        }
        exchange.send(number.to_string());
    });
    let larder = bare(&origin);
    let mut first = asking(&larder, "/", "");
    first.head();
    let begun = Instant::now();
    wait::until_true("it has expired", || begun.elapsed() > Duration::from_millis(1100));
    assert!(askers(&larder, 10, "/").iter_mut().all(|client| client.response().text() == "11"));
    assert_eq!(origin.total(), 2);
    gate.open();
    assert_eq!(first.bytes(2), b"00");
}

//= RFC 9111 section 4.1: all nominated fields match
#[test]
fn waiters_leave_on_vary_mismatch() {
    let (gate, released) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        released.pass();
        let language = exchange.request.field("accept-language").to_owned();
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\nVary: Accept-Language\r\n", language);
    });
    let larder = bare(&origin);
    let ask = |language| (language, asking(&larder, "/", &format!("Accept-Language: {language}\r\n")));
    let mut clients: Vec<(&str, Client)> = ["de", "en", "fr"].into_iter().cycle().take(30).map(ask).collect();
    wait_for_waiters(&larder, 29);
    gate.open();
    for (language, client) in &mut clients {
        assert_eq!(client.response().text(), *language);
    }
    assert_eq!(origin.total(), 3);
}

/// Sends `half`, the first half of a body, in one of two framings, and then closes or resets the connection.
fn break_off(exchange: &mut Exchange<'_>, (is_chunked, is_reset): (bool, bool), fields: &str, half: &[u8]) {
    if is_chunked {
        exchange.chunked_head(fields).chunk(half);
    } else {
        exchange.head("200 OK", &format!("Content-Length: {}\r\n{fields}", half.len() * 2)).send(half);
    }
    if is_reset {
        exchange.reset()
    } else {
        exchange.close()
    };
}

/// No client mistakes half a body for a complete one: not the client of the fill, no waiter and no later client, a hundred times in a row.
/// The same applies if nothing is stored.
//= RFC 9112 section 8: an incomplete response is recorded as incomplete
#[test]
fn origin_killed_mid_body_a_hundred_times() {
    let sent = Random::new(4).bytes(40_000);
    let gates: Arc<Vec<Gate>> = Arc::new((0..100).map(|_| Gate::new()).collect());
    let released = Arc::clone(&gates);
    let origin = ScriptedOrigin::start(move |exchange| {
        let round: usize = exchange.request.target()[1..].parse().expect("targets are numbers");
        let control = if round % 3 == 2 { "no-store" } else { "max-age=60" };
        if exchange.request.field("x-after").is_empty() {
            released[round].pass();
            let fields = format!("Cache-Control: {control}\r\nETag: \"a\"\r\n");
            break_off(exchange, (round % 4 > 1, round % 2 == 1), &fields, &sent);
        } else {
            exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "whole");
        }
    });
    let larder = bare(&origin);
    for (round, gate) in gates.iter().enumerate() {
        let target = format!("/{round}");
        let mut clients = askers(&larder, 3, &target);
        origin.wait_for(&target, 1);
        gate.open();
        for client in &mut clients {
            // A waiter's own request may be forwarded, and fail in the same way.
            if let Ok(response) = client.try_response_to("GET") {
                let is_whole = response.status() == 200 && response.end != End::Truncated;
                assert!(!is_whole, "{round} ended cleanly: {:?}", response.head);
            }
        }
        let after = larder.ask("GET", &target, "X-After: yes\r\n");
        assert_eq!((after.status(), after.text().as_str(), after.is_hit()), (200, "whole", false));
    }
    assert_eq!(larder.metric("larder_fills", &[]), 0.0, "no fill is left over");
}

fn ask_http_1_0(larder: &Larder, target: &str) -> Client {
    let mut client = larder.client();
    client.send(format!("GET {target} HTTP/1.0\r\nHost: a\r\n\r\n"));
    client
}

/// Over HTTP/1.0, closing the connection ends a body of unknown length, so a body that is cut short must reset it.
//= RFC 9112 section 8: an incomplete response is recorded as incomplete
#[test]
fn http_1_0_clients_see_that_a_body_broke_off_and_get_all_of_a_whole_one() {
    let (sent, whole) = (Random::new(8).bytes(300_000), Random::new(9).bytes(3 << 20));
    let body = whole.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        let Ok(round) = exchange.request.target()[1..].parse::<usize>() else {
            in_chunks(exchange.chunked_head("Cache-Control: no-store\r\n"), &whole);
            return;
        };
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
        let larder = with(&format!("workers = {workers}\n@site@"), &origin);
        let ends = (0..80).map(|round| {
            let response = ask_http_1_0(&larder, &format!("/{round}")).try_response_to("GET");
            response.map_or(End::Truncated, |response| response.end)
        });
        assert_eq!(ends.filter(|end| *end == End::Closed).count(), 0, "of 80 with {workers} workers");
        for _ in 0..10 {
            let response = ask_http_1_0(&larder, "/whole").response();
            assert!(response.end == End::Closed && response.body == body, "{:?}", response.end);
        }
    }
}

#[test]
fn http_1_0_clients_see_the_end_of_the_process() {
    for signal in [Signal::KILL, Signal::TERM] {
        let origin = ScriptedOrigin::start(|exchange| {
            exchange.chunked_head("Cache-Control: no-store\r\n").chunk("hello").wait_for_peer();
        });
        let larder = with("drain_limit = \"1s\"\n@site@", &origin);
        let mut client = ask_http_1_0(&larder, "/");
        assert_eq!(client.head().status(), 200);
        assert_eq!(client.bytes(5), b"hello");
        larder.signal(signal);
        let ended = client.socket().read_to_end(&mut Vec::new());
        assert!(ended.is_err(), "{signal:?} ended it cleanly");
    }
}

/// `Cache-Status` reflects what is known when the head is sent.
//= RFC 9211 section 2.5: stored
#[test]
fn what_broke_off_with_its_head_does_not_say_that_it_is_stored() {
    let origin = ScriptedOrigin::start(|exchange| {
        let end = if exchange.request.target() == "/whole" { "0\r\n\r\n" } else { "no chunk\r\n" };
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCache-Control: max-age=60\r\n\r\n";
        // All in one packet, so that the failure is known together with the head.
        exchange.send(format!("{head}5\r\nhello\r\n{end}"));
    });
    let larder = bare(&origin);
    let whole = larder.get("/whole").cache_status();
    assert!(whole.contains("; stored"), "{whole}");
    for _ in 0..10 {
        let cut = larder.get("/cut");
        assert_eq!(cut.end, End::Truncated);
        assert!(!cut.is_hit() && !cut.cache_status().contains("; stored"), "{}", cut.cache_status());
    }
    assert_eq!(origin.count("/cut"), 10, "none of them was stored");
}

//= RFC 9112 section 6.3: a response ended by the close of the connection
//= RFC 9112 section 8: what the close ends is complete if its header section is
#[test]
fn bodies_that_the_close_ends_are_stored_where_that_is_asked_for() {
    let origin = ScriptedOrigin::start(|exchange| {
        let start = if exchange.request.target() == "/1.0" {
            "1.0 200 OK"
        } else {
            "1.1 200 OK\r\nConnection: close"
        };
        exchange.send(format!("HTTP/{start}\r\nCache-Control: max-age=60\r\n\r\nhello")).close();
    });
    for (settings, is_stored) in [
        ("@site@", false),
        ("profile = \"rfc9111\"\n@site@", true),
        ("@site@[[site.rule]]\nclose_delimited = \"store\"\n", true),
        ("profile = \"rfc9111\"\n@site@[[site.rule]]\nclose_delimited = \"pass\"\n", false),
    ] {
        let larder = with(settings, &origin);
        for target in ["/1.0", "/1.1"] {
            let [first, second] = [larder.get(target), larder.get(target)];
            assert_eq!((first.text().as_str(), second.text().as_str()), ("hello", "hello"));
            assert_eq!(second.is_hit(), is_stored, "{target} {settings}");
            assert_eq!(
                first.field("via"),
                format!("{} larder", &target[1..]),
                "the version that was received"
            );
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
fn an_object_that_is_too_large_goes_on_to_its_client_and_is_not_stored() {
    for (settings, bytes, held_max) in [
        ("@site@[[site.rule]]\nobject_bytes_max = \"100KiB\"\n", 300_000, 100_000),
        ("[store]\nmemory = \"4MiB\"\n@site@", 20 << 20, 5 << 20),
    ] {
        let body = Random::new(5).bytes(bytes);
        let sent = body.clone();
        let origin = ScriptedOrigin::start(move |exchange| {
            match exchange.request.target() {
                "/length" => exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", &sent),
                _ => in_chunks(exchange.chunked_head("Cache-Control: max-age=60\r\n"), &sent),
            };
        });
        let larder = with(settings, &origin);
        for target in ["/length", "/chunked", "/length", "/chunked"] {
            let response = larder.get(target);
            assert!(response.body == body && response.end == End::Complete, "{target}: {:?}", response.head);
            assert!(!response.is_hit(), "{settings}");
        }
        assert_eq!(origin.total(), 4);
        wait::until_true("nothing is held", || larder.metric("larder_store_bytes", &["filling"]) == 0.0);
        let held = larder.metric("larder_store_bytes", &[]);
        assert!(held <= f64::from(held_max), "{held} bytes are held");
    }
}

#[test]
fn a_slow_client_does_not_stop_the_fill() {
    let body = Random::new(7).bytes(8 << 20);
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", body.clone());
    let larder = bare(&origin);
    let mut slow = asking(&larder, "/", "");
    assert_eq!(slow.head().status(), 200);
    let start = slow.bytes(1000);
    wait::until_true("the fill ends without its client", || {
        larder.metric("larder_fills", &[]) == 0.0 && larder.metric("larder_store_entries", &[]) == 1.0
    });
    let hit = larder.get("/");
    assert!(hit.is_hit() && hit.body == body);
    assert!([start, slow.bytes(body.len() - 1000)].concat() == body, "the slow client gets all of it");
    assert_eq!(origin.total(), 1);
}

/// Ranges are cut from an arriving body, each as soon as its bytes have arrived.
//= RFC 9110 section 14.6: multipart/byteranges
#[test]
fn several_ranges_of_a_body_on_its_way() {
    let (gate, passed) = gates();
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
    let larder = bare(&origin);
    let mut client = asking(&larder, "/waits", "Range: bytes=10-19,100000-100009,-5\r\n");
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
    assert!(client.bytes(early.len()) == early, "both arrive before the rest of the body");
    gate.open();
    let late = [part(299_995, 299_999), format!("{delimiter}--\r\n").into_bytes()].concat();
    assert!(client.bytes(late.len()) == late);
    let length = (early.len() + late.len()).to_string();
    assert_eq!(head.fields.one("content-length"), Some(&length[..]));
    assert!(client.get("/waits").is_hit(), "the whole body is stored, and the connection stays open");
    let unordered = larder.ask("GET", "/unordered", "Range: bytes=-5,10-19\r\n");
    assert!(unordered.status() == 200 && unordered.body == body, "{:?}", unordered.head);
    let broken = larder.ask("GET", "/broken", "Range: bytes=10-19,-5\r\n");
    assert_eq!((broken.status(), broken.end), (206, End::Truncated));
    assert_eq!(origin.total(), 3);
}

/// The first response isn't stored, which leaves a note (hit-for-miss).
#[test]
fn what_was_not_stored_is_stored_once_it_may_be_and_was_not_purged_meanwhile() {
    let (gate, released) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        let number = exchange.request.earlier;
        if number == 1 {
            released.pass();
        }
        let control = if number == 0 { "no-store" } else { "max-age=60" };
        exchange.respond("200 OK", &format!("Cache-Control: {control}\r\n"), format!("answer {number}"));
    });
    let larder = bare(&origin);
    assert_eq!(larder.get("/").text(), "answer 0");
    let mut under_way = asking(&larder, "/", "");
    origin.wait_for("/", 2);
    purge(&larder, "url=http://test.example/");
    gate.open();
    assert_eq!(under_way.response().text(), "answer 1");
    for is_hit in [false, true] {
        let response = larder.get("/");
        assert_eq!((response.text().as_str(), response.is_hit()), ("answer 2", is_hit));
    }
}
