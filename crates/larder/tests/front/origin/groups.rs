//! Origins with several servers: which of them gets a request, and what becomes of requests when one is in trouble.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use testkit::{Client, Exchange, Gate, Larder, Port, ScriptedOrigin, Setup, Signal, run, wait};

use crate::LARDER;

/// Answers with its number, and may not be stored.
fn numbered(number: usize) -> ScriptedOrigin {
    ScriptedOrigin::start(move |exchange| {
        exchange.read_body();
        let number = number.to_string();
        let body = if exchange.request.method() == "HEAD" { "" } else { &number };
        let length = number.len();
        // In one piece: who is killed in between breaks off a body, which nobody can repair.
        exchange.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nCache-Control: no-store\r\n\r\n{body}"
        ));
    })
}

fn numbered_servers(count: usize) -> Vec<ScriptedOrigin> {
    (0..count).map(numbered).collect()
}

/// An origin with these servers and weights, and more settings of it.
fn config(servers: &[(String, u32)], settings: &str) -> String {
    let server = |(url, weight): &(String, u32)| format!("{{ url = \"{url}\", weight = {weight} }}");
    let servers = servers.iter().map(server).collect::<Vec<_>>().join(", ");
    format!(
        "[[origin]]\nname = \"group\"\nservers = [{servers}]\n{settings}\n\
         [[site]]\nname = \"a\"\norigin = \"group\"\n"
    )
}

fn weighted(servers: &[ScriptedOrigin], weights: &[u32]) -> Vec<(String, u32)> {
    servers.iter().map(ScriptedOrigin::url).zip(weights.iter().copied()).collect()
}

fn start(servers: &[ScriptedOrigin], weights: &[u32], settings: &str) -> Larder {
    Setup::config(LARDER, &config(&weighted(servers, weights), settings)).start()
}

#[track_caller]
fn reload(larder: &mut Larder, config: &str) {
    larder.write_config(config);
    assert_eq!(larder.ask_admin("POST", "/reload", "").status(), 200);
}

/// The numbers of the servers that answered so many requests for different URLs, one after the other.
fn answers(client: &mut Client, count: usize) -> Vec<usize> {
    let one = |number| {
        let response = client.get(&format!("/{number}"));
        assert_eq!(response.status(), 200);
        response.text().parse().expect("the number of a server")
    };
    (0..count).map(one).collect()
}

#[test]
fn each_method_distributes_by_weight() {
    const REQUESTS: usize = 300;
    // By lot, counts differ: of 300 with a chance of a half, one in a million times by more than 42.
    for (balance, tolerance) in
        [("round-robin", 0), ("least-requests", 0), ("power-of-two", 50), ("consistent-hash", 50)]
    {
        let servers = numbered_servers(4);
        let weights = [3, 0, 2, 1];
        let larder = start(&servers, &weights, &format!("balance = \"{balance}\""));
        answers(&mut larder.client(), REQUESTS);
        let counts: Vec<_> = servers.iter().map(ScriptedOrigin::total).collect();
        eprintln!("{balance}: {REQUESTS} requests, weights {weights:?}, counts {counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), REQUESTS, "{balance}");
        for ((count, weight), server) in counts.iter().zip(weights).zip(&servers) {
            let expected = REQUESTS * weight as usize / 6;
            assert!(count.abs_diff(expected) <= tolerance, "{balance}: {counts:?}");
            assert!(weight > 0 || *count == 0, "{balance}: {counts:?}");
            let url = format!("server=\"{}\"", server.url());
            let counted = larder.metric("larder_origin_server_requests_total", &["origin=\"group\"", &url]);
            assert!((counted - *count as f64).abs() < 0.5, "{balance}: {counted} {count}");
        }
    }
}

/// The requests for a URL go to one server, whatever their method, and to the same one after a restart. When a server goes,
/// nobody else's URLs move.
#[test]
fn consistent_hashing_moves_nothing_but_the_urls_of_the_server_that_goes() {
    const URLS: usize = 100;
    let servers = numbered_servers(3);
    let settings = "balance = \"consistent-hash\"";
    let mut larder = start(&servers, &[1, 1, 1], settings);
    let before = answers(&mut larder.client(), URLS);
    for (number, server) in before.iter().enumerate() {
        let target = format!("/{number}");
        let seen = servers[*server].count(&target);
        for method in ["HEAD", "POST"] {
            assert_eq!(larder.ask(method, &target, "Content-Length: 0\r\n").status(), 200);
        }
        assert_eq!(servers[*server].count(&target), seen + 2, "{target}");
    }
    let again = start(&servers, &[1, 1, 1], settings);
    assert_eq!(answers(&mut again.client(), URLS), before);
    reload(&mut larder, &config(&weighted(&servers, &[1, 0, 1]), settings));
    let after = answers(&mut larder.client(), URLS);
    let moved: Vec<_> = before.iter().zip(&after).filter(|(before, after)| before != after).collect();
    assert!(moved.iter().all(|(before, after)| **before == 1 && **after != 1), "{moved:?}");
    assert_eq!(moved.len(), before.iter().filter(|server| **server == 1).count());
}

/// A server that is drained gets nothing new, and finishes what it has.
#[test]
fn a_drained_server_finishes_what_it_has() {
    let gate = Gate::new();
    let held = gate.clone();
    let slow = ScriptedOrigin::start(move |exchange| {
        held.pass();
        exchange.respond("200 OK", "Cache-Control: no-store\r\n", "0");
    });
    let servers = [slow, numbered(1)];
    let mut larder = start(&servers, &[1, 1], "");
    let mut waiting = larder.client();
    waiting.send("GET /slow HTTP/1.1\r\nHost: test.example\r\n\r\n");
    servers[0].wait_for("/slow", 1);
    reload(&mut larder, &config(&weighted(&servers, &[0, 1]), ""));
    assert_eq!(answers(&mut larder.client(), 20), [1; 20]);
    let slow = format!("server=\"{}\"", servers[0].url());
    let in_flight = || larder.metric("larder_origin_server_requests_in_flight", &[&slow]);
    assert!((in_flight() - 1.0).abs() < 0.5);
    gate.open();
    let response = waiting.response();
    assert_eq!((response.status(), response.text().as_str()), (200, "0"));
    wait::until_true("nothing is in flight", || in_flight() < 0.5);
}

/// Requests in flight count on, whatever limit a reload sets for them.
#[test]
fn a_reload_of_a_limit_forgets_no_request_in_flight() {
    let gate = Gate::new();
    let held = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.target() != "/free" {
            held.pass();
        }
        exchange.respond("200 OK", "Cache-Control: no-store\r\n", "0");
    });
    let limited = |requests_max: usize| {
        let pool = "client_share_percent = 100\nqueue_max = 4\nqueue_timeout = \"100ms\"";
        let pool = format!("[origin.pool]\nrequests_in_flight_max = {requests_max}\n{pool}\n");
        config(&[(origin.url(), 1)], &pool)
    };
    let mut larder = Setup::config(LARDER, &limited(2)).start();
    let mut waiting = [larder.client(), larder.client()];
    for client in &mut waiting {
        client.send("GET /held HTTP/1.1\r\nHost: test.example\r\n\r\n");
    }
    origin.wait_for("/held", 2);
    for (requests_max, status) in [(2, 503), (1, 503), (3, 200), (2, 503)] {
        reload(&mut larder, &limited(requests_max));
        assert_eq!(larder.get("/free").status(), status, "{requests_max}");
    }
    gate.open();
    for client in &mut waiting {
        assert_eq!(client.response().status(), 200);
    }
    assert_eq!(larder.get("/free").status(), 200);
}

/// Unanswered requests keep new ones from a busy server.
#[test]
fn least_requests_and_power_of_two_spare_a_busy_server() {
    for balance in ["least-requests", "power-of-two"] {
        let gate = Gate::new();
        let held = gate.clone();
        let busy = ScriptedOrigin::start(move |exchange| {
            held.pass();
            exchange.respond("200 OK", "Cache-Control: no-store\r\n", "0");
        });
        let servers = [busy, numbered(1)];
        let larder = start(&servers, &[1, 1], &format!("balance = \"{balance}\""));
        let mut waiting: Vec<Client> = Vec::new();
        wait::until_true("the busy server has a request", || {
            let mut client = larder.client();
            client.send("GET /held HTTP/1.1\r\nHost: test.example\r\n\r\n");
            waiting.push(client);
            wait::until_true("one has it", || {
                servers.iter().map(ScriptedOrigin::total).sum::<usize>() >= waiting.len()
            });
            servers[0].total() == 1
        });
        assert_eq!(answers(&mut larder.client(), 30), [1; 30], "{balance}");
        gate.open();
        for mut client in waiting {
            assert_eq!(client.response().status(), 200);
        }
    }
}

#[test]
fn a_pick_is_explained() {
    let servers = numbered_servers(2);
    let larder = start(&servers, &[1, 0], "balance = \"power-of-two\"");
    let output = run(LARDER, ["explain", "http://test.example/", "--admin", &larder.admin().to_string()]);
    let text = output.text();
    for part in [
        &format!("pick     the request goes to {}", servers[0].url()),
        "balance = power-of-two",
        "servers that accept requests = 1 of 2",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// A server that resets the connection instead of an answer.
fn resetting() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        exchange.reset();
    })
}

/// Has no response for anybody, and is never ejected.
const NEVER_EJECTED: &str = "[origin.ejection]\nenabled = false";

/// An unsent request goes to another server, whatever its method; one that may have been processed only where it may be
/// processed twice.
//= RFC 9110 section 9.2.2: idempotent methods may be retried, others only when known not to be processed
#[test]
fn a_failed_request_goes_to_another_server_where_that_is_safe() {
    let nobody = Port::reserve();
    let (resetting, good) = (resetting(), numbered(1));
    let refused = format!("http://{}", nobody.address());
    for (bad, method, status) in [
        (&refused, "GET", 200),
        (&refused, "POST", 200),
        (&resetting.url(), "GET", 200),
        (&resetting.url(), "HEAD", 200),
        (&resetting.url(), "PUT", 200),
        (&resetting.url(), "DELETE", 200),
        (&resetting.url(), "POST", 502),
        (&resetting.url(), "PATCH", 502),
    ] {
        let reason = if *bad == refused { "connection-refused" } else { "connection-terminated" };
        // The first turn is that of the first server.
        let servers = [(bad.clone(), 1), (good.url(), 1)];
        let larder = Setup::config(LARDER, &config(&servers, NEVER_EJECTED)).start();
        let mut client = larder.client();
        client.send(format!("{method} / HTTP/1.1\r\nHost: test.example\r\nContent-Length: 2\r\n\r\nab"));
        assert_eq!(client.response_to(method).status(), status, "{method} {bad}");
        let retries = larder.metric("larder_origin_retries_total", &[]);
        assert!((retries - f64::from(u8::from(status == 200))).abs() < 0.5, "{method} {bad}: {retries}");
        let failures = |parts: &[&str]| larder.metric("larder_origin_server_failures_total", parts);
        let labels = [format!("server=\"{bad}\""), format!("reason=\"{reason}\"")];
        assert_eq!(failures(&labels.each_ref().map(String::as_str)), 1.0, "{method} {bad}");
        assert_eq!(failures(&[]), 1.0, "{method} {bad}: of no other server, for no other reason");
    }
    assert!(good.received().iter().all(|request| request.body == b"ab"));
}

/// Nothing is as much content as anything else.
#[test]
fn a_request_with_empty_chunked_content_is_sent_again() {
    let servers = [resetting(), numbered(1)];
    let larder = start(&servers, &[1, 1], NEVER_EJECTED);
    let mut client = larder.client();
    client.send("PUT / HTTP/1.1\r\nHost: test.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    assert_eq!(client.response_to("PUT").status(), 200);
    assert_eq!(servers[1].received()[0].body, b"");
}

#[test]
fn retries_have_limits() {
    let bad: Vec<_> = (0..3).map(|_| resetting()).collect();
    let good = numbered(1);
    let servers: Vec<_> = bad.iter().chain([&good]).map(|server| (server.url(), 1)).collect();
    for (settings, status, asked, over_budget) in [
        ("attempts_max = 4", 200, 4, 0.0),
        ("", 502, 3, 0.0),
        ("attempts_max = 1", 502, 1, 0.0),
        ("budget_percent = 0\nbudget_per_second_min = 0", 502, 1, 1.0),
        ("attempts_max = 4\nbudget_percent = 100\nbudget_per_second_min = 0", 502, 2, 1.0),
    ] {
        let total = || bad.iter().chain([&good]).map(ScriptedOrigin::total).sum::<usize>();
        let before = total();
        let settings = format!("{NEVER_EJECTED}\n[origin.retries]\n{settings}");
        let larder = Setup::config(LARDER, &config(&servers, &settings)).start();
        assert_eq!((larder.get("/").status(), total() - before), (status, asked), "{settings}");
        let counted = larder.metric("larder_origin_retries_over_budget_total", &[]);
        assert!((counted - over_budget).abs() < 0.5, "{settings}: {counted}");
    }
}

/// A server that says nothing holds a request up for `first_byte`, and no longer.
#[test]
fn a_request_without_an_answer_goes_to_another_server() {
    let gate = Gate::new();
    let held = gate.clone();
    let silent = ScriptedOrigin::start(move |_| held.pass());
    let servers = [silent, numbered(1)];
    let config = config(&weighted(&servers, &[1, 1]), "") + "[site.timeouts]\nfirst_byte = \"200ms\"\n";
    let larder = Setup::config(LARDER, &config).start();
    assert_eq!(answers(&mut larder.client(), 8), [1; 8]);
    let ejected = larder.metric("larder_origin_server_ejections_total", &[]);
    // Every second request is the silent server's, until it has failed 5 times.
    assert!(ejected < 0.5 && servers[0].total() == 4, "{ejected}, {}", servers[0].total());
    gate.open();
}

/// A server that doesn't speak HTTP, or breaks its responses off, fails as much as one that doesn't answer.
#[test]
fn a_server_that_does_not_speak_http_is_left_out() {
    let settings = "interim_responses_max = 2\n[origin.ejection]\nfailures = 3\nduration = \"1h\"\nduration_max = \"1h\"";
    for (answer, is_retried) in [
        (
            concat!("HTTP/1.1 102 Processing\r\n\r\n", "HTTP/1.1 103 A\r\n\r\n", "HTTP/1.1 103 B\r\n\r\n"),
            true,
        ),
        ("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc", true),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nCache-Control: no-store\r\n\r\nabc", false),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n", false),
    ] {
        let strange = ScriptedOrigin::start(move |exchange| {
            exchange.read_body();
            exchange.send(answer).close();
        });
        let servers = [strange, numbered(1)];
        let larder = start(&servers, &[1, 1], settings);
        for number in 0..20 {
            // A connection for each: one breaks off with its response.
            let mut client = larder.client();
            client.send(format!("GET /{number} HTTP/1.1\r\nHost: test.example\r\nConnection: close\r\n\r\n"));
            let response = client.rest();
            assert!(!is_retried || response.ends_with(b"\r\n\r\n1"), "{answer}: {}", response.escape_ascii());
        }
        let url = format!("server=\"{}\"", servers[0].url());
        let ejections = larder.metric("larder_origin_server_ejections_total", &[&url]);
        assert!((ejections - 1.0).abs() < 0.5 && servers[0].total() == 3, "{answer}: {}", servers[0].total());
    }
}

/// Faults of clients say nothing about a server.
#[test]
fn clients_eject_nobody() {
    let servers: Vec<_> = (0..2)
        .map(|_| {
            ScriptedOrigin::start(|exchange| {
                exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nCache-Control: no-store\r\n\r\nabc");
                exchange.wait_for_peer();
            })
        })
        .collect();
    let larder = start(&servers, &[1, 1], "[origin.ejection]\nfailures = 1");
    for number in 0..4 {
        let mut client = larder.client();
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: test.example\r\n\r\n"));
        client.head();
        drop(client);
        let mut client = larder.client();
        client.send(format!("POST /{number} HTTP/1.1\r\nHost: test.example\r\nContent-Length: 9\r\n\r\nab"));
        drop(client);
    }
    let in_flight = || larder.metric("larder_origin_server_requests_in_flight", &[]);
    wait::until_true("nothing is in flight", || in_flight() < 0.5);
    assert!(larder.metric("larder_origin_server_ejections_total", &[]) < 0.5);
}

/// Fate of a client's upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upload {
    AtOnce,
    InTwoParts,
    NeverEnds,
}

/// An upload goes at the pace of its client: what fails while it waits for that, or for want of the time that it has taken, says nothing of the
/// origin, neither to ejection nor to the circuit breaker.
#[test]
fn slow_uploads_are_no_failures_of_the_origin() {
    #[track_caller]
    fn check(target: &str, upload: Upload, status: u16, failures: f64) {
        let gate = Gate::new();
        let server = || {
            let held = gate.clone();
            ScriptedOrigin::start(move |exchange| {
                let _ = exchange.read_exact(2);
                match exchange.request.target() {
                    "/closes" => _ = exchange.close(),
                    "/answers" => _ = exchange.send("HTTP/1.1 503 A\r\nContent-Length: 0\r\n\r\n").close(),
                    _ => held.pass(),
                }
            })
        };
        let servers = [server(), server()];
        let settings =
            "[origin.ejection]\nfailures = 1\nstatuses = [\"5xx\"]\n[origin.breaker]\nrequests_min = 1\n";
        let config = config(&weighted(&servers, &[1, 1]), settings);
        let larder = Setup::config(LARDER, &(config + "[site.timeouts]\ntotal = \"600ms\"\n")).start();
        let mut client = larder.client();
        let part = if upload == Upload::AtOnce { "abc" } else { "ab" };
        client
            .send(format!("POST {target} HTTP/1.1\r\nHost: test.example\r\nContent-Length: 3\r\n\r\n{part}"));
        if upload == Upload::InTwoParts {
            wait::until_true("a server has it", || servers.iter().any(|server| server.total() > 0));
            client.send("c");
        }
        assert_eq!(client.response_to("POST").status(), status, "{target} {upload:?}");
        for metric in ["larder_origin_server_ejections_total", "larder_origin_breaker_opened_total"] {
            let counted = larder.metric(metric, &[]);
            assert!((counted - failures).abs() < 0.5, "{target} {upload:?}: {metric} {counted}");
        }
        gate.open();
    }
    check("/silent", Upload::NeverEnds, 504, 0.0);
    check("/silent", Upload::InTwoParts, 504, 0.0);
    check("/silent", Upload::AtOnce, 504, 1.0);
    check("/closes", Upload::NeverEnds, 502, 0.0);
    check("/closes", Upload::AtOnce, 502, 1.0);
    check("/answers", Upload::NeverEnds, 503, 0.0);
    check("/answers", Upload::AtOnce, 503, 1.0);
}

/// A body that comes too late tells nothing of its server: neither that it is ill nor that it is well.
#[test]
fn a_stall_hides_no_failures() {
    let broken = || {
        ScriptedOrigin::start(|exchange| {
            exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nCache-Control: no-store\r\n\r\nabc");
            match exchange.request.target() {
                "/stall" => exchange.wait_for_peer(),
                _ => drop(exchange.close()),
            }
        })
    };
    let servers = [broken(), broken()];
    let config = config(&weighted(&servers, &[1, 1]), "[origin.ejection]\nfailures = 2\n");
    let larder = Setup::config(LARDER, &(config + "[site.timeouts]\nbetween_bytes = \"200ms\"\n")).start();
    let ejections = || larder.metric("larder_origin_server_ejections_total", &[]);
    for (target, expected) in
        [("/stall", 0.0), ("/stall", 0.0), ("/break", 0.0), ("/stall", 0.0), ("/break", 1.0)]
    {
        // One for each server.
        (0..2).for_each(|_| drop(larder.get(target)));
        assert!((ejections() - expected).abs() < 0.5, "{target}: {}", ejections());
    }
}

#[test]
fn a_failing_server_is_left_out_for_a_time_and_comes_back() {
    let state = Arc::new(AtomicBool::new(false));
    let is_well = Arc::clone(&state);
    let ill = ScriptedOrigin::start(move |exchange| {
        let status = if is_well.load(Relaxed) { "200 OK" } else { "503 Service Unavailable" };
        exchange.respond(status, "Cache-Control: no-store\r\n", "0");
    });
    let servers = [ill, numbered(1)];
    let settings =
        "slow_start = \"0s\"\n[origin.ejection]\nfailures = 3\nduration = \"1s\"\nduration_max = \"1s\"";
    let larder = start(&servers, &[1, 1], settings);
    let mut client = larder.client();
    let mut statuses: Vec<u16> = (0..20).map(|number| client.get(&format!("/{number}")).status()).collect();
    statuses.retain(|status| *status != 200);
    assert_eq!(statuses, [503; 3], "as many as it takes to eject it");
    let url = format!("server=\"{}\"", servers[0].url());
    let is_in = |state: &str| {
        larder.metric("larder_origin_server_state", &[&url, &format!("state=\"{state}\"")]) > 0.5
    };
    assert!(larder.metric("larder_origin_server_ejections_total", &[&url]) > 0.5);
    state.store(true, Relaxed);
    wait::until_true("it is back", || is_in("up"));
    let before = servers[0].total();
    assert_eq!(answers(&mut client, 10).iter().filter(|server| **server == 0).count(), 5);
    assert_eq!(servers[0].total() - before, 5);
}

/// The last server is never left out: its errors are better than none. A reload forgets nothing of servers that it keeps.
#[test]
fn the_last_server_stays_over_a_reload_too() {
    let ill = || {
        ScriptedOrigin::start(|exchange| {
            exchange.respond("503 Service Unavailable", "Cache-Control: no-store\r\n", "ill");
        })
    };
    let servers = [ill(), ill()];
    let settings = "[origin.ejection]\nfailures = 1\nduration = \"1h\"\nduration_max = \"1h\"\nservers_percent_max = 100";
    let mut larder = start(&servers, &[1, 1], settings);
    let mut client = larder.client();
    for number in 0..10 {
        assert_eq!(client.get(&format!("/{number}")).text(), "ill");
    }
    assert!((larder.metric("larder_origin_server_ejections_total", &[]) - 1.0).abs() < 0.5);
    let told = "a server is ejected origin=";
    assert!(
        larder.stderr().contains(told) && larder.stderr().contains("last_failure=it answered 503"),
        "{}",
        larder.stderr()
    );
    let totals = || servers.iter().map(ScriptedOrigin::total).collect::<Vec<_>>();
    assert_eq!(totals(), [1, 9]);
    reload(&mut larder, &config(&weighted(&servers, &[2, 1]), settings));
    for number in 0..10 {
        assert_eq!(client.get(&format!("/{number}")).text(), "ill");
    }
    assert_eq!(totals(), [1, 19]);
}

/// A reload that changes the connections to a server keeps its health.
#[test]
fn a_reload_of_the_pool_forgets_nothing_of_servers() {
    let servers = [resetting(), numbered(1)];
    let ejection = "[origin.ejection]\nfailures = 1\nduration = \"1h\"\nduration_max = \"1h\"\n";
    let mut larder = start(&servers, &[1, 1], ejection);
    answers(&mut larder.client(), 10);
    let url = format!("server=\"{}\"", servers[0].url());
    for settings in ["[origin.pool]\nidle_timeout = \"7s\"", "[origin.pool]\nidle_connections_max = 3", ""] {
        reload(&mut larder, &config(&weighted(&servers, &[1, 1]), &format!("{ejection}{settings}")));
        let state = larder.metric("larder_origin_server_state", &[&url, "state=\"ejected\""]);
        let ejections = larder.metric("larder_origin_server_ejections_total", &[&url]);
        assert!(
            (state - 1.0).abs() < 0.5 && (ejections - 1.0).abs() < 0.5,
            "{settings}: {state} {ejections}"
        );
        assert_eq!(answers(&mut larder.client(), 10), [1; 10], "{settings}");
    }
    assert_eq!(servers[0].total(), 1);
}

/// One server is killed, one is slow, one is drained: no idempotent request fails, however servers are chosen.
#[test]
fn no_idempotent_request_fails_while_servers_go() {
    for balance in ["round-robin", "least-requests", "power-of-two", "consistent-hash"] {
        while_servers_go(balance);
    }
}

fn while_servers_go(balance: &str) {
    const CLIENTS: usize = 8;
    let settings = format!("balance = \"{balance}\"");
    let slow = ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        exchange.delay_ms(20).respond("200 OK", "Cache-Control: no-store\r\n", "1");
    });
    let mut servers = vec![numbered(0), slow, numbered(2)];
    let mut larder = start(&servers, &[1, 1, 1], &settings);
    let address = larder.address();
    let (answered, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let visit = |client: usize| {
        let mut connection = Client::connect(address);
        let methods = ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"].iter().cycle();
        for (number, method) in methods.enumerate().take_while(|_| !over.load(Relaxed)) {
            let response = connection.ask(method, &format!("/{client}/{number}"), "Content-Length: 0\r\n");
            assert_eq!(response.status(), 200, "{method} {number} of client {client}");
            answered.fetch_add(1, Relaxed);
        }
    };
    let some_more = |what: &str| {
        let before = answered.load(Relaxed);
        wait::until_true(what, || answered.load(Relaxed) >= before + 300);
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(move || visit(client))).collect();
        some_more("requests are answered");
        servers[0].stop();
        some_more("requests are answered without the server that was killed");
        let urls: Vec<_> = servers.iter().map(ScriptedOrigin::url).zip([1, 1, 0]).collect();
        reload(&mut larder, &config(&urls, &settings));
        let drained = format!("server=\"{}\"", servers[2].url());
        let in_flight = || larder.metric("larder_origin_server_requests_in_flight", &[&drained]);
        wait::until_true("the drained server has finished", || in_flight() < 0.5);
        let finished = servers[2].total();
        some_more("requests are answered without the one that is drained");
        assert_eq!(servers[2].total(), finished, "{balance}: a drained server gets nothing new");
        over.store(true, Relaxed);
        clients.into_iter().for_each(|client| client.join().expect("no request failed"));
    });
    let counts: Vec<_> = servers.iter().map(ScriptedOrigin::total).collect();
    let retries = larder.metric("larder_origin_retries_total", &[]);
    eprintln!("{balance}: {} answers, {retries} retries, counts {counts:?}", answered.load(Relaxed));
    assert!(retries > 0.5 && counts.iter().all(|count| *count > 0), "{balance}: {counts:?}");
    let killed = format!("server=\"{}\"", servers[0].url());
    assert!(larder.metric("larder_origin_server_ejections_total", &[&killed]) > 0.5);
}

#[test]
fn a_retry_is_explained() {
    let servers = [resetting(), numbered(1)];
    let larder = start(&servers, &[1, 1], "");
    let output = run(LARDER, ["explain", "http://test.example/", "--admin", &larder.admin().to_string()]);
    let text = output.text();
    let retry =
        format!("retry    connection closed before a response: the request goes to {}", servers[1].url());
    assert!(text.contains(&retry), "{text}");
}

/// Checks find out, and not clients: no request is sent to a server that fails them, and it comes back by itself.
#[test]
fn a_server_that_fails_its_checks_gets_no_requests_until_it_passes() {
    let is_well = Arc::new(AtomicBool::new(true));
    let checked = Arc::clone(&is_well);
    let server = ScriptedOrigin::start(move |exchange| {
        let is_failed = exchange.request.target() == "/health" && !checked.load(Relaxed);
        let status = if is_failed { "500 Internal Server Error" } else { "200 OK" };
        exchange.respond(status, "Cache-Control: no-store\r\n", "0");
    });
    let servers = [server, numbered(1)];
    let settings =
        "slow_start = \"0s\"\n[origin.health]\npath = \"/health\"\ninterval = \"100ms\"\ntimeout = \"100ms\"";
    let larder = start(&servers, &[1, 1], settings);
    let url = format!("server=\"{}\"", servers[0].url());
    let is_in = |state: &str| {
        larder.metric("larder_origin_server_state", &[&url, &format!("state=\"{state}\"")]) > 0.5
    };
    let mut client = larder.client();
    servers[0].wait_for("/health", 2);
    assert!(answers(&mut client, 10).contains(&0));
    is_well.store(false, Relaxed);
    wait::until_true("it is unhealthy", || is_in("unhealthy"));
    assert_eq!(answers(&mut client, 10), [1; 10]);
    assert!(larder.metric("larder_origin_server_checks_total", &[&url, "failed"]) > 2.5);
    is_well.store(true, Relaxed);
    wait::until_true("it is healthy again", || is_in("up"));
    assert!(answers(&mut client, 10).contains(&0));
    let requests = larder.metric("larder_origin_server_requests_total", &[&url]);
    let asked = servers[0].total() - servers[0].count("/health");
    assert!((requests - asked as f64).abs() < 0.5, "checks are no requests: {requests} {asked}");
}

/// A reload begins checks, changes them and ends them.
#[test]
fn a_reload_takes_checks_over() {
    let servers = numbered_servers(2);
    let checks = |path: &str| {
        let health = format!("[origin.health]\npath = \"{path}\"\ninterval = \"100ms\"\ntimeout = \"100ms\"");
        config(&weighted(&servers, &[1, 1]), &health)
    };
    let mut larder = start(&servers, &[1, 1], "");
    reload(&mut larder, &checks("/one"));
    servers[0].wait_for("/one", 3);
    reload(&mut larder, &checks("/two"));
    servers[1].wait_for("/two", 3);
    let before = servers[0].count("/one");
    servers[0].wait_for("/two", servers[0].count("/two") + 3);
    assert!(servers[0].count("/one") <= before + 1, "one may have been on its way");
    reload(&mut larder, &config(&weighted(&servers, &[1, 1]), ""));
    let before = servers[0].count("/two");
    answers(&mut larder.client(), 50);
    assert!(servers[0].count("/two") <= before + 1);
}

/// A client with an address of its own: all requests of one client count once for a circuit breaker.
fn other_client(larder: &Larder, number: u8) -> Client {
    Client::connect_from(IpAddr::V4(Ipv4Addr::new(127, 0, 1, number)), larder.address())
}

/// The statuses of so many other clients, a request each.
fn statuses_of_others(larder: &Larder, count: u8) -> Vec<u16> {
    (0..count).map(|number| other_client(larder, number).get(&format!("/{number}")).status()).collect()
}

/// An open circuit is an origin that failed: what is stored is used stale where it may be, everything else is 503 with a time.
#[test]
fn an_open_circuit_spares_the_origin_and_closes_by_probes() {
    let is_well = Arc::new(AtomicBool::new(true));
    let well = Arc::clone(&is_well);
    let origin = ScriptedOrigin::start(move |exchange| {
        match well.load(Relaxed) {
            true => exchange.respond("200 OK", "Cache-Control: max-age=0, stale-if-error=600\r\n", "well"),
            false => exchange.reset(),
        };
    });
    let settings = "[origin.breaker]\nrequests_min = 4\nreset_time = \"2s\"\nsuccesses_to_close = 2";
    let larder = start(std::slice::from_ref(&origin), &[1], settings);
    let mut client = larder.client();
    assert_eq!(client.get("/kept").text(), "well");
    is_well.store(false, Relaxed);
    assert_eq!(statuses_of_others(&larder, 4), [502; 4]);
    let asked = origin.total();
    let state = |name: &str| larder.metric("larder_origin_breaker", &[&format!("state=\"{name}\"")]) > 0.5;
    assert!(state("open") && !state("closed"));
    let stale = client.get("/kept");
    assert_eq!((stale.status(), stale.text().as_str()), (200, "well"));
    assert!(stale.cache_status().contains("detail=circuit-open"), "{}", stale.cache_status());
    for method in ["GET", "POST"] {
        let refused = client.ask(method, "/other", "Content-Length: 0\r\n");
        let seconds: u64 = refused.field("retry-after").parse().expect("a time");
        assert_eq!((refused.status(), (1..=2).contains(&seconds)), (503, true), "{seconds}");
        assert!(refused.cache_status().contains("detail=circuit-open"), "{}", refused.cache_status());
    }
    assert_eq!(origin.total(), asked, "nothing is sent");
    assert!((larder.metric("larder_origin_breaker_opened_total", &[]) - 1.0).abs() < 0.5);
    is_well.store(true, Relaxed);
    wait::until_true("a probe is answered", || client.get("/probe").status() == 200);
    assert_eq!(client.get("/second").status(), 200);
    assert!(state("closed"));
}

/// An origin whose pages were stored, and whose circuit breaker is open and half-open by turns: all of `/fails` is reset, and pages wait for the
/// gate when they are asked for again, before they are answered.
struct Probed {
    gate: Gate,
    origin: ScriptedOrigin,
    larder: Larder,
}

type Ending = fn(&mut Exchange<'_>);

const RECOVERS: Ending = |exchange| _ = exchange.respond("200 OK", "Cache-Control: max-age=600\r\n", "new");

impl Probed {
    fn start(ending: Ending, probes_max: usize, timeouts: &str) -> Self {
        let gate = Gate::new();
        let held = gate.clone();
        let origin = ScriptedOrigin::start(move |exchange| {
            let fields = "ETag: \"1\"\r\nCache-Control: max-age=0, stale-if-error=600\r\n";
            match (exchange.request.target(), exchange.request.earlier) {
                ("/fails", _) => _ = exchange.reset(),
                (_, 0) => _ = exchange.respond("200 OK", fields, "old"),
                _ => {
                    held.pass();
                    ending(exchange);
                }
            }
        });
        let settings = format!(
            "[origin.breaker]\nrequests_min = 4\nreset_time = \"50ms\"\nreset_time_max = \"50ms\"\n\
             successes_to_close = 1\nprobes_max = {probes_max}"
        );
        let config = config(&[(origin.url(), 1)], &settings) + timeouts;
        let larder = Setup::config(LARDER, &config).start();
        let mut client = larder.client();
        for page in ["/a", "/b"] {
            assert_eq!(client.get(page).text(), "old");
        }
        for number in 0..4 {
            assert_eq!(other_client(&larder, number).get("/fails").status(), 502);
        }
        Self { gate, origin, larder }
    }

    fn opened(&self) -> f64 {
        self.larder.metric("larder_origin_breaker_opened_total", &[])
    }

    fn is_closed(&self) -> bool {
        self.larder.metric("larder_origin_breaker", &["state=\"closed\""]) > 0.5
    }

    /// Asks for a page that must be answered at once: its origin says nothing before the gate opens.
    #[track_caller]
    fn get_stale(&self, page: &str) {
        let response = self.larder.get(page);
        assert_eq!((response.status(), response.text().as_str()), (200, "old"), "{page}");
        let status = response.cache_status();
        assert!(status.contains("fwd=stale") && status.contains("detail=circuit-open"), "{page}: {status}");
    }

    /// Until the origin has so many probes, none of which it answers.
    #[track_caller]
    fn has_probes(&self, count: usize) {
        let pages = ["/a", "/b"];
        let probes = || pages.iter().map(|page| self.origin.count(page) - 1).sum::<usize>();
        wait::until_true("the origin is tried", || {
            pages.iter().for_each(|page| self.get_stale(page));
            probes() >= count
        });
        (0..10).for_each(|number| self.get_stale(pages[number % 2]));
        assert_eq!(probes(), count, "no more than that");
        let counted = self.larder.metric("larder_background_validations_total", &["event=\"probe\""]);
        assert!((counted - count as f64).abs() < 0.5, "{counted}");
    }
}

/// Requests that accept a stale response get it, whatever the outcome of the request that tries the origin.
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
            // It takes nothing stale, and there is no place for one more probe.
            ("GET", "Cache-Control: no-cache\r\n", 503),
        ] {
            let response = probed.larder.ask(method, "/a", fields);
            assert_eq!(response.status(), status, "{number}: {method} {fields}");
        }
        let opened = probed.opened();
        assert!(!probed.is_closed());
        probed.gate.open();
        match recovers {
            true => wait::until_true("the breaker is closed", || probed.is_closed()),
            false => wait::until_true("the breaker is open again", || {
                probed.get_stale("/a");
                probed.opened() > opened
            }),
        }
        if recovers {
            wait::until_true("what the probe has brought is stored", || {
                let response = probed.larder.get("/a");
                response.is_hit() && response.text() == "new"
            });
        }
    }
}

/// A probe that gets no answer ends in time, as every request does, and others follow it.
#[test]
fn a_probe_that_nobody_waits_for_ends_by_its_time_limit() {
    let probed = Probed::start(RECOVERS, 1, "[site.timeouts]\nfirst_byte = \"200ms\"\n");
    wait::until_true("two probes have failed", || {
        probed.get_stale("/a");
        probed.opened() > 2.5
    });
    probed.gate.open();
}

/// A probe doesn't store a response that was purged meanwhile.
#[test]
fn a_purge_overtakes_a_probe() {
    let probed = Probed::start(RECOVERS, 2, "");
    probed.has_probes(2);
    let purge = probed.larder.ask_admin("POST", "/purge", "{\"url\": \"http://test.example/a\"}");
    assert_eq!(purge.status(), 200, "{}", purge.text());
    probed.gate.open();
    wait::until_true("what the other probe has brought is stored", || {
        probed.is_closed() && probed.larder.get("/b").is_hit()
    });
    let fills = || probed.larder.metric("larder_fills", &[]);
    wait::until_true("nothing is on its way", || fills() < 0.5);
    let response = probed.larder.get("/a");
    assert!(response.cache_status().contains("fwd=uri-miss"), "{}", response.cache_status());
}

/// A process that is told to end waits for its clients, and for no probe.
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
    let admin = probed.larder.admin().to_string();
    let explained = |part: &str| {
        let output = run(LARDER, ["explain", "http://test.example/a", "--admin", &admin]);
        output.text().contains(part).then(|| output.text())
    };
    let text = wait::until("it is time for one", || {
        explained("the circuit breaker probes the origin in the background")
    });
    let steps = [
        "forward  the circuit breaker probes the origin in the background",
        "stale    the stale response is used in place of the error",
        "cause = circuit-open",
        "deliver  the client gets the response",
        "forward  the origin answers 200",
    ];
    let places = steps.map(|step| text.find(step).unwrap_or_else(|| panic!("{step}: {text}")));
    assert!(places.is_sorted() && text.contains("detail=circuit-open"), "{text}");
}

/// A reload of its keys neither closes a breaker nor forgets how often it opened.
#[test]
fn an_open_circuit_outlives_a_reload_of_its_keys() {
    let servers = [ScriptedOrigin::start(|exchange| {
        exchange.respond("503 Service Unavailable", "", "");
    })];
    let with = |settings: &str| {
        let settings =
            format!("[origin.breaker]\nenabled = {settings}\nrequests_min = 2\nreset_time = \"30s\"\n");
        config(&weighted(&servers, &[1]), &settings)
    };
    let mut larder = Setup::config(LARDER, &with("true")).start();
    statuses_of_others(&larder, 4);
    let asked = servers[0].total();
    let opened = |larder: &Larder| larder.metric("larder_origin_breaker_opened_total", &[]);
    for settings in ["true\nerror_percent = 60", "true\nwindow = \"1m\"", "true\nprobes_max = 3", "true"] {
        reload(&mut larder, &with(settings));
        assert_eq!(larder.get("/after").status(), 503);
        assert!(larder.metric("larder_origin_breaker", &["state=\"open\""]) > 0.5, "{settings}");
        assert!((opened(&larder) - 1.0).abs() < 0.5, "{settings}: {}", opened(&larder));
        assert_eq!(servers[0].total(), asked, "{settings}: nothing is sent");
    }
    // One that was switched off meanwhile knows nothing, but the counter goes on.
    reload(&mut larder, &with("false"));
    reload(&mut larder, &with("true"));
    assert!((opened(&larder) - 1.0).abs() < 0.5, "{}", opened(&larder));
    statuses_of_others(&larder, 4);
    assert!((opened(&larder) - 2.0).abs() < 0.5, "{}", opened(&larder));
}

fn ill() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        exchange.respond("503 Service Unavailable", "", "ill");
    })
}

/// Field bug: an operator corrected the address of an origin, and the breaker of the wrong one went on refusing.
#[test]
fn what_failed_elsewhere_says_nothing_of_a_new_server() {
    let is_open = |larder: &Larder| larder.metric("larder_origin_breaker", &["state=\"open\""]) > 0.5;
    let check = |before: &[&ScriptedOrigin], after: &[&ScriptedOrigin], stays_open: bool| {
        let with = |servers: &[&ScriptedOrigin]| {
            let servers: Vec<_> = servers.iter().map(|server| (server.url(), 1)).collect();
            config(&servers, "[origin.breaker]\nrequests_min = 2\nreset_time = \"1h\"\n")
        };
        let mut larder = Setup::config(LARDER, &with(before)).start();
        assert_eq!(statuses_of_others(&larder, 2), [503; 2]);
        assert!(is_open(&larder));
        reload(&mut larder, &with(after));
        assert_eq!(is_open(&larder), stays_open);
        let asked = || after.iter().map(|server| server.total()).sum::<usize>();
        let (total, status) = (asked(), larder.get("/after").status());
        assert_eq!((asked() > total, status == 503), (!stays_open, stays_open));
        assert!((larder.metric("larder_origin_breaker_opened_total", &[]) - 1.0).abs() < 0.5);
    };
    let (wrong, other, right) = (ill(), ill(), numbered(1));
    check(&[&wrong], &[&right], false);
    check(&[&wrong, &other], &[&right], false);
    check(&[&wrong, &other], &[&wrong], true);
    check(&[&wrong, &other], &[&other, &wrong], true);
}

/// The health of a server belongs to its address.
#[test]
fn a_server_in_the_place_of_an_ejected_one_is_not_ejected() {
    let (wrong, steady, right) = (ill(), numbered(0), numbered(1));
    let settings = "[origin.ejection]\nfailures = 1\nduration = \"1h\"\nduration_max = \"1h\"\n";
    let with = |second: &ScriptedOrigin| config(&[(steady.url(), 1), (second.url(), 1)], settings);
    let mut larder = Setup::config(LARDER, &with(&wrong)).start();
    (0..10).for_each(|number| drop(larder.get(&format!("/{number}"))));
    assert_eq!(wrong.total(), 1);
    reload(&mut larder, &with(&right));
    let mut seen = answers(&mut larder.client(), 4);
    seen.sort_unstable();
    assert_eq!(seen, [0, 0, 1, 1]);
    // The old one is forgotten with the last that used it.
    reload(&mut larder, &config(&[(steady.url(), 1), (right.url(), 1), (wrong.url(), 1)], settings));
    (0..9).for_each(|number| drop(larder.get(&format!("/{number}"))));
    assert_eq!(wrong.total(), 2);
}

/// Field bug: beside a probe, clients were told to wait for as long as a probe may keep its place, by an open circuit that was half-open.
#[test]
fn a_refusal_beside_a_probe_asks_for_the_time_of_a_reset() {
    let gate = Gate::new();
    let held = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| match exchange.request.target() {
        "/held" => {
            held.pass();
            exchange.respond("200 OK", "", "well");
        }
        _ => _ = exchange.respond("503 Service Unavailable", "", "ill"),
    });
    let settings = "[origin.breaker]\nrequests_min = 2\nreset_time = \"1s\"";
    let larder = start(std::slice::from_ref(&origin), &[1], settings);
    statuses_of_others(&larder, 2);
    let mut clients = Vec::new();
    wait::until_true("a probe is on its way", || {
        let mut client = larder.client();
        client.send("GET /held HTTP/1.1\r\nHost: test.example\r\n\r\n");
        clients.push(client);
        larder.metric("larder_origin_breaker", &["state=\"half_open\""]) > 0.5
    });
    let refused = larder.get("/other");
    assert_eq!((refused.status(), refused.field("retry-after")), (503, "1"), "{:?}", refused.head);
    let told = "the circuit breaker of the origin is half-open";
    // Only some of the warnings before it are written.
    wait::until_true("it is told", || {
        larder.get("/other");
        larder.stderr().contains(told)
    });
    gate.open();
    let statuses: Vec<_> = clients.iter_mut().map(|client| client.response().status()).collect();
    assert!(statuses.contains(&200), "{statuses:?}");
}

/// Answers 503 to those who ask for it by a field that is in no key.
fn made_to_fail() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        let status =
            if exchange.request.field("x-fail").is_empty() { "200 OK" } else { "503 Service Unavailable" };
        exchange.respond(status, "Cache-Control: no-store\r\n", "");
    })
}

/// Field bug: twenty requests of one client refused the origin to all. The breaker is on by default.
#[test]
fn a_few_clients_open_no_circuit() {
    let origin = made_to_fail();
    let larder = start(std::slice::from_ref(&origin), &[1], "");
    let opened = || larder.metric("larder_origin_breaker_opened_total", &[]);
    for round in 0..10 {
        for number in 100..110 {
            assert_eq!(other_client(&larder, number).get("/").status(), 200, "{round}: {number}");
        }
        for number in 0..12 {
            let response = other_client(&larder, number).ask("GET", "/", "X-Fail: 1\r\n");
            assert_eq!((response.status(), response.text().as_str()), (503, ""), "{round}: {number}");
        }
        assert_eq!(larder.get("/").status(), 200, "{round}");
    }
    assert!(opened() < 0.5);
    // It takes twenty that are in trouble, or a few more: some may meet in a place of the breaker.
    let opener = (12..30).find(|number| {
        assert_eq!(other_client(&larder, *number).ask("GET", "/", "X-Fail: 1\r\n").status(), 503);
        opened() > 0.5
    });
    assert!(opener.is_some_and(|last| (19..24).contains(&last)), "{opener:?}");
    let refused = larder.get("/");
    assert!(refused.status() == 503 && refused.cache_status().contains("detail=circuit-open"));
}

/// Clients without a name of their own are one: those behind a trusted proxy that doesn't name them.
#[test]
fn clients_that_nobody_names_open_no_circuit() {
    let origin = made_to_fail();
    let site = config(&[(origin.url(), 1)], "");
    let larder = Setup::config(LARDER, &format!("trusted_proxies = [\"127.0.0.0/8\"]\n{site}")).start();
    for number in 0..40 {
        assert_eq!(other_client(&larder, number).ask("GET", "/", "X-Fail: 1\r\n").status(), 503);
    }
    let opened = || larder.metric("larder_origin_breaker_opened_total", &[]);
    assert!(opened() < 0.5);
    for number in 0..20 {
        larder.ask("GET", "/", &format!("X-Fail: 1\r\nX-Forwarded-For: 192.0.2.{number}\r\n"));
    }
    assert!((opened() - 1.0).abs() < 0.5, "those that it names do");
}

/// Nor does a client keep a circuit open whose origin is well again: after a probe of its own that failed, it is the turn of another.
#[test]
fn a_client_keeps_no_circuit_open() {
    let origin = made_to_fail();
    let settings = "[origin.breaker]\nrequests_min = 2\nreset_time = \"1s\"\nreset_time_max = \"1s\"\nsuccesses_to_close = 1";
    let larder = start(std::slice::from_ref(&origin), &[1], settings);
    let ask_to_fail = |number| other_client(&larder, number).ask("GET", "/", "X-Fail: 1\r\n").status();
    (0..2).for_each(|number| assert_eq!(ask_to_fail(number), 503));
    let opened = || larder.metric("larder_origin_breaker_opened_total", &[]);
    wait::until_true("a probe of the client has failed", || {
        ask_to_fail(0);
        opened() > 1.5
    });
    let asked = origin.total();
    wait::until_true("another client closes it", || {
        ask_to_fail(0);
        larder.get("/").status() == 200
    });
    assert_eq!(origin.total(), asked + 1, "that was the next request that the origin got");
}

/// Clients that send their content slowly hold no place of a probe, so an origin that is well again gets its requests.
#[test]
fn a_stuck_upload_keeps_no_circuit_open() {
    let is_well = Arc::new(AtomicBool::new(false));
    let well = Arc::clone(&is_well);
    let origin = ScriptedOrigin::start(move |exchange| {
        exchange.read_body();
        match well.load(Relaxed) {
            true => exchange.respond("200 OK", "Cache-Control: no-store\r\n", "well"),
            false => exchange.reset(),
        };
    });
    let settings = "[origin.breaker]\nrequests_min = 4\nreset_time = \"1s\"\nsuccesses_to_close = 1";
    let larder = start(std::slice::from_ref(&origin), &[1], settings);
    let mut client = larder.client();
    assert_eq!(statuses_of_others(&larder, 4), [502; 4]);
    is_well.store(true, Relaxed);
    let mut stuck = Vec::new();
    let state = |name: &str| larder.metric("larder_origin_breaker", &[&format!("state=\"{name}\"")]) > 0.5;
    wait::until_true("an upload is on its way", || {
        let mut client = larder.client();
        client.send("POST /stuck HTTP/1.1\r\nHost: test.example\r\nContent-Length: 100000\r\n\r\n");
        stuck.push(client);
        state("half_open")
    });
    let uploads = || larder.metric("larder_origin_exchanges", &["state=\"upload\""]);
    wait::until_true("it goes at the pace of its client", || uploads() > 0.5);
    assert_eq!(client.get("/other").status(), 200);
    assert!(state("closed"));
}

/// Responses open it as well, and what says nothing of the origin doesn't.
#[test]
fn what_opens_a_circuit() {
    for (answer, settings, opens) in [
        ("503 Service Unavailable", "", true),
        ("500 Internal Server Error", "", false),
        ("500 Internal Server Error", "statuses = [\"5xx\"]", true),
        ("404 Not Found", "", false),
        ("503 Service Unavailable", "enabled = false", false),
        ("503 Service Unavailable", "requests_min = 10", false),
    ] {
        let origin = ScriptedOrigin::start(move |exchange| {
            exchange.respond(answer, "Cache-Control: no-store\r\n", "");
        });
        let minimum = if settings.contains("requests_min") { "" } else { "requests_min = 4\n" };
        let settings = format!("[origin.breaker]\n{minimum}{settings}");
        let larder = start(std::slice::from_ref(&origin), &[1], &settings);
        statuses_of_others(&larder, 8);
        let asked = if opens { 4 } else { 8 };
        assert_eq!(origin.total(), asked, "{answer} {settings}");
    }
}
