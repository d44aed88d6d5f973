//! Circuit breakers of origins: when they open, what clients get while they are open, probes, and reloads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use testkit::{Exchange, Gate, Larder, ScriptedOrigin, Setup, Signal, wait};

use super::groups::{config, explained, ill, numbered, reload};
use crate::LARDER;
use crate::cache::basics::{asking, client_from, gates};
use crate::fleet::purge_waits::purge;

fn start(origin: &ScriptedOrigin, settings: &str) -> Larder {
    Setup::config(LARDER, &config(&[(origin.url(), 1)], settings)).start()
}

/// Settings of a breaker that opens after `requests_min` failures.
fn breaker(requests_min: usize, settings: &str) -> String {
    format!("[origin.breaker]\nrequests_min = {requests_min}\n{settings}\n")
}

fn is_in(larder: &Larder, state: &str) -> bool {
    larder.metric("larder_origin_breaker", &[&format!("state=\"{state}\"")]) == 1.0
}

fn opened(larder: &Larder) -> f64 {
    larder.metric("larder_origin_breaker_opened_total", &[])
}

/// Statuses that `count` other clients get for one request each.
fn statuses_of_others(larder: &Larder, count: u8) -> Vec<u16> {
    (0..count).map(|number| client_from(larder, number).get(&format!("/{number}")).status()).collect()
}

/// An origin that resets connections while it is unwell.
fn recovering(fields: &'static str) -> (Arc<AtomicBool>, ScriptedOrigin) {
    let is_well = Arc::new(AtomicBool::new(true));
    let well = Arc::clone(&is_well);
    let origin = ScriptedOrigin::start(move |exchange| {
        exchange.read_body();
        match well.load(Relaxed) {
            true => exchange.respond("200 OK", fields, "well"),
            false => exchange.reset(),
        };
    });
    (is_well, origin)
}

/// An open circuit counts as a failure of the origin: stored responses are served stale if allowed, and all other requests get a 503 with
/// Retry-After.
#[test]
fn an_open_circuit_spares_the_origin_and_closes_by_probes() {
    let (is_well, origin) = recovering("Cache-Control: max-age=0, stale-if-error=600\r\n");
    let larder = start(&origin, &breaker(4, "reset_time = \"2s\"\nsuccesses_to_close = 2"));
    let mut client = larder.client();
    assert_eq!(client.get("/kept").text(), "well");
    is_well.store(false, Relaxed);
    assert_eq!(statuses_of_others(&larder, 4), [502; 4]);
    let asked = origin.total();
    assert!(is_in(&larder, "open") && !is_in(&larder, "closed"));
    let stale = client.get("/kept");
    assert_eq!((stale.status(), stale.text().as_str()), (200, "well"));
    assert!(stale.cache_status().contains("detail=circuit-open"), "{}", stale.cache_status());
    for method in ["GET", "POST"] {
        let refused = client.ask(method, "/other", "Content-Length: 0\r\n");
        let seconds: u64 = refused.field("retry-after").parse().expect("a time");
        assert_eq!((refused.status(), (1..=2).contains(&seconds)), (503, true), "{seconds}");
        assert!(refused.cache_status().contains("detail=circuit-open"), "{}", refused.cache_status());
    }
    assert_eq!((origin.total(), opened(&larder)), (asked, 1.0), "nothing is sent");
    is_well.store(true, Relaxed);
    wait::until_true("a probe is answered", || client.get("/probe").status() == 200);
    assert_eq!(client.get("/second").status(), 200);
    assert!(is_in(&larder, "closed"));
}

/// Error responses also open a circuit, unless they don't indicate a failing origin.
#[test]
fn what_opens_a_circuit() {
    for (answer, requests_min, settings, opens) in [
        ("503 Service Unavailable", 4, "", true),
        ("500 Internal Server Error", 4, "", false),
        ("500 Internal Server Error", 4, "statuses = [\"5xx\"]", true),
        ("404 Not Found", 4, "", false),
        ("503 Service Unavailable", 4, "enabled = false", false),
        ("503 Service Unavailable", 10, "", false),
    ] {
        let origin = ScriptedOrigin::start(move |exchange| {
            exchange.respond(answer, "Cache-Control: no-store\r\n", "");
        });
        let larder = start(&origin, &breaker(requests_min, settings));
        statuses_of_others(&larder, 8);
        assert_eq!(origin.total(), if opens { 4 } else { 8 }, "{answer} {requests_min} {settings}");
    }
}

/// An origin with stored pages, whose circuit breaker alternates between open and half-open. Requests for `/fails` are reset, and repeated
/// requests for pages wait for the gate.
struct Probed {
    gate: Gate,
    origin: ScriptedOrigin,
    larder: Larder,
}

type Ending = fn(&mut Exchange<'_>);

const RECOVERS: Ending = |exchange| _ = exchange.respond("200 OK", "Cache-Control: max-age=600\r\n", "new");

impl Probed {
    fn start(ending: Ending, probes_max: usize, timeouts: &str) -> Self {
        let (gate, passed) = gates();
        let origin = ScriptedOrigin::start(move |exchange| {
            let fields = "ETag: \"1\"\r\nCache-Control: max-age=0, stale-if-error=600\r\n";
            match (exchange.request.target(), exchange.request.earlier) {
                ("/fails", _) => _ = exchange.reset(),
                (_, 0) => _ = exchange.respond("200 OK", fields, "old"),
                _ => {
                    passed.pass();
                    ending(exchange);
                }
            }
        });
        let times = "reset_time = \"50ms\"\nreset_time_max = \"50ms\"\nsuccesses_to_close = 1";
        let settings = breaker(4, &format!("{times}\nprobes_max = {probes_max}\n{timeouts}"));
        let larder = start(&origin, &settings);
        for page in ["/a", "/b"] {
            assert_eq!(larder.get(page).text(), "old");
        }
        for number in 0..4 {
            assert_eq!(client_from(&larder, number).get("/fails").status(), 502);
        }
        Self { gate, origin, larder }
    }

    /// Requests a page that must be answered immediately: the origin doesn't answer before the gate opens.
    #[track_caller]
    fn get_stale(&self, page: &str) {
        let response = self.larder.get(page);
        assert_eq!((response.status(), response.text().as_str()), (200, "old"), "{page}");
        let status = response.cache_status();
        assert!(status.contains("fwd=stale") && status.contains("detail=circuit-open"), "{page}: {status}");
    }

    /// Waits until the origin has received `count` probes, and answers none of them.
    #[track_caller]
    fn has_probes(&self, count: usize) {
        let pages = ["/a", "/b"];
        let probes = || pages.iter().map(|page| self.origin.count(page) - 1).sum::<usize>();
        wait::until_true("the origin is probed", || {
            pages.iter().for_each(|page| self.get_stale(page));
            probes() >= count
        });
        (0..10).for_each(|number| self.get_stale(pages[number % 2]));
        assert_eq!(probes(), count, "no more than that");
        let counted = self.larder.metric("larder_background_validations_total", &["event=\"probe\""]);
        assert_eq!(counted, count as f64);
    }
}

/// Requests that accept a stale response get it, whatever the outcome of the probe.
//= RFC 5861 section 4: stale-if-error
#[test]
fn nobody_waits_for_a_probe_who_can_have_a_stale_response() {
    let endings: [(Ending, usize, bool); 4] = [
        (|exchange| _ = exchange.reset(), 1, false),
        (|exchange| _ = exchange.respond("503 Service Unavailable", "", "down"), 1, false),
        (RECOVERS, 1, true),
        (RECOVERS, 2, true),
    ];
    for (number, (ending, probes_max, recovers)) in endings.into_iter().enumerate() {
        let probed = Probed::start(ending, probes_max, "");
        probed.has_probes(probes_max);
        for (method, fields, status) in [
            ("HEAD", "", 200),
            ("GET", "Range: bytes=0-1\r\n", 206),
            ("GET", "If-None-Match: \"1\"\r\n", 304),
            // It doesn't accept stale responses, and no probe slot is free.
            ("GET", "Cache-Control: no-cache\r\n", 503),
        ] {
            let response = probed.larder.ask(method, "/a", fields);
            assert_eq!(response.status(), status, "{number}: {method} {fields}");
        }
        let before = opened(&probed.larder);
        assert!(!is_in(&probed.larder, "closed"));
        probed.gate.open();
        if recovers {
            wait::until_true("the breaker is closed", || is_in(&probed.larder, "closed"));
            wait::until_true("the probe's response is stored", || {
                let response = probed.larder.get("/a");
                response.is_hit() && response.text() == "new"
            });
        } else {
            wait::until_true("the breaker is open again", || {
                probed.get_stale("/a");
                opened(&probed.larder) > before
            });
        }
    }
}

/// A probe without an answer times out like any request, and other probes follow it.
#[test]
fn a_probe_that_nobody_waits_for_ends_by_its_time_limit() {
    let probed = Probed::start(RECOVERS, 1, "[site.timeouts]\nfirst_byte = \"200ms\"\n");
    wait::until_true("two probes have failed", || {
        probed.get_stale("/a");
        opened(&probed.larder) > 2.5
    });
    probed.gate.open();
}

/// A probe doesn't store a response that was purged meanwhile.
#[test]
fn a_purge_overtakes_a_probe() {
    let probed = Probed::start(RECOVERS, 2, "");
    probed.has_probes(2);
    purge(&probed.larder, "url=http://test.example/a");
    probed.gate.open();
    wait::until_true("the other probe's response is stored", || {
        is_in(&probed.larder, "closed") && probed.larder.get("/b").is_hit()
    });
    wait::until_true("no fetch is in progress", || probed.larder.metric("larder_fills", &[]) == 0.0);
    let status = probed.larder.get("/a").cache_status();
    assert!(status.contains("fwd=uri-miss"), "{status}");
}

/// A stopping process waits for its clients, but not for a probe.
#[test]
fn a_probe_keeps_no_process_from_ending() {
    let mut probed = Probed::start(RECOVERS, 1, "");
    probed.has_probes(1);
    probed.larder.signal(Signal::TERM);
    assert!(probed.larder.service().end().success());
    probed.gate.open();
}

#[test]
fn a_probe_is_explained() {
    let probed = Probed::start(RECOVERS, 1, "");
    probed.gate.open();
    let first = "forward  the circuit breaker probes the origin in the background";
    let text = wait::until("it is time for one", || {
        Some(explained(&probed.larder, "/a")).filter(|text| text.contains(first))
    });
    let steps = [
        first,
        "stale    the stale response is used in place of the error",
        "cause = circuit-open",
        "deliver  the client gets the response",
        "forward  the origin answers 200",
    ];
    let places = steps.map(|step| text.find(step).unwrap_or_else(|| panic!("{step}: {text}")));
    assert!(places.is_sorted() && text.contains("detail=circuit-open"), "{text}");
}

/// Field bug: an operator corrected the address of an origin, and the breaker of the old address kept refusing requests. Changes to other
/// settings keep the breaker's state.
#[test]
fn what_failed_elsewhere_says_nothing_of_a_new_server() {
    let check = |before: &[&ScriptedOrigin], after: &[&ScriptedOrigin], settings: &str, stays_open: bool| {
        let with = |servers: &[&ScriptedOrigin], settings: &str| {
            let servers: Vec<_> = servers.iter().map(|server| (server.url(), 1)).collect();
            config(&servers, &breaker(2, &format!("reset_time = \"1h\"\n{settings}")))
        };
        let mut larder = Setup::config(LARDER, &with(before, "")).start();
        assert_eq!(statuses_of_others(&larder, 2), [503; 2]);
        assert!(is_in(&larder, "open"));
        reload(&mut larder, &with(after, settings));
        assert_eq!(is_in(&larder, "open"), stays_open, "{settings}");
        let asked = || after.iter().map(|server| server.total()).sum::<usize>();
        let (total, status) = (asked(), larder.get("/after").status());
        assert_eq!((asked() > total, status == 503), (!stays_open, stays_open), "{settings}");
        assert_eq!(opened(&larder), 1.0, "{settings}");
    };
    let (wrong, other, right) = (ill(), ill(), numbered(1));
    check(&[&wrong], &[&right], "", false);
    check(&[&wrong, &other], &[&right], "", false);
    check(&[&wrong, &other], &[&wrong], "", true);
    check(&[&wrong, &other], &[&other, &wrong], "", true);
    for settings in ["error_percent = 60", "window = \"1m\"", "probes_max = 3"] {
        check(&[&wrong], &[&wrong], settings, true);
    }
}

/// Field bug: during a probe, Retry-After was the maximum duration of a probe, and the error called the half-open circuit open.
#[test]
fn a_refusal_beside_a_probe_asks_for_the_time_of_a_reset() {
    let (gate, passed) = gates();
    let origin = ScriptedOrigin::start(move |exchange| match exchange.request.target() {
        "/held" => {
            passed.pass();
            exchange.respond("200 OK", "", "well");
        }
        _ => _ = exchange.respond("503 Service Unavailable", "", "ill"),
    });
    let larder = start(&origin, &breaker(2, "reset_time = \"1s\""));
    statuses_of_others(&larder, 2);
    let mut clients = Vec::new();
    wait::until_true("a probe is in flight", || {
        clients.push(asking(&larder, "/held", ""));
        is_in(&larder, "half_open")
    });
    let refused = larder.get("/other");
    assert_eq!((refused.status(), refused.field("retry-after")), (503, "1"), "{:?}", refused.head);
    // Warnings are rate-limited, so only some of the earlier ones are written.
    wait::until_true("it is logged", || {
        larder.get("/other");
        larder.stderr().contains("the circuit breaker of the origin is half-open")
    });
    gate.open();
    let statuses: Vec<_> = clients.iter_mut().map(|client| client.response().status()).collect();
    assert!(statuses.contains(&200), "{statuses:?}");
}

/// An origin that answers 503 to requests with the field X-Fail, which is in no cache key.
fn made_to_fail() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        let is_well = exchange.request.field("x-fail").is_empty();
        let status = if is_well { "200 OK" } else { "503 Service Unavailable" };
        exchange.respond(status, "Cache-Control: no-store\r\n", "");
    })
}

/// Field bug: twenty failing requests of one client blocked the origin for all clients. The breaker is on by default.
#[test]
fn a_few_clients_open_no_circuit() {
    let origin = made_to_fail();
    let larder = start(&origin, "");
    let fail = |number| {
        let response = client_from(&larder, number).ask("GET", "/", "X-Fail: 1\r\n");
        (response.status(), response.text())
    };
    for round in 0..10 {
        for number in 100..110 {
            assert_eq!(client_from(&larder, number).get("/").status(), 200, "{round}: {number}");
        }
        (0..12).for_each(|number| assert_eq!(fail(number), (503, String::new()), "{round}: {number}"));
        assert_eq!(larder.get("/").status(), 200, "{round}");
    }
    assert_eq!(opened(&larder), 0.0);
    // The breaker opens after about twenty clients with failures. A few more may be needed, since several clients may share a slot in the
    // breaker.
    let opener = (12..30).find(|number| {
        assert_eq!(fail(*number).0, 503);
        opened(&larder) > 0.5
    });
    assert!(opener.is_some_and(|last| (19..24).contains(&last)), "{opener:?}");
    let refused = larder.get("/");
    assert!(refused.status() == 503 && refused.cache_status().contains("detail=circuit-open"));
}

/// Clients behind a trusted proxy that doesn't name them count as one client.
#[test]
fn clients_that_nobody_names_open_no_circuit() {
    let origin = made_to_fail();
    let site = config(&[(origin.url(), 1)], "");
    let larder = Setup::config(LARDER, &format!("trusted_proxies = [\"127.0.0.0/8\"]\n{site}")).start();
    for number in 0..40 {
        assert_eq!(client_from(&larder, number).ask("GET", "/", "X-Fail: 1\r\n").status(), 503);
    }
    assert_eq!(opened(&larder), 0.0);
    for number in 0..20 {
        larder.ask("GET", "/", &format!("X-Fail: 1\r\nX-Forwarded-For: 192.0.2.{number}\r\n"));
    }
    assert_eq!(opened(&larder), 1.0, "clients that it names open it");
}

/// Clients that send their content slowly don't occupy a probe slot, so a recovered origin gets its requests.
#[test]
fn a_stuck_upload_keeps_no_circuit_open() {
    let (is_well, origin) = recovering("Cache-Control: no-store\r\n");
    is_well.store(false, Relaxed);
    let larder = start(&origin, &breaker(4, "reset_time = \"1s\"\nsuccesses_to_close = 1"));
    let mut client = larder.client();
    assert_eq!(statuses_of_others(&larder, 4), [502; 4]);
    is_well.store(true, Relaxed);
    let mut stuck = Vec::new();
    wait::until_true("an upload is in flight", || {
        let mut client = larder.client();
        client.send("POST /stuck HTTP/1.1\r\nHost: test.example\r\nContent-Length: 100000\r\n\r\n");
        stuck.push(client);
        is_in(&larder, "half_open")
    });
    let uploads = || larder.metric("larder_origin_exchanges", &["state=\"upload\""]);
    wait::until_true("the client sets the pace", || uploads() > 0.5);
    assert_eq!(client.get("/other").status(), 200);
    assert!(is_in(&larder, "closed"));
}
