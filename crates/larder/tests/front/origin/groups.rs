//! Origins with several servers: selection, retries, ejection, health checks, and reloads that change them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use testkit::{Client, Gate, Larder, Port, ScriptedOrigin, Setup, run, wait};

use crate::LARDER;
use crate::cache::basics::{asking, gates};

const NOT_STORED: &str = "Cache-Control: no-store\r\n";

/// Answers with its number, in a response that may not be stored.
pub(super) fn numbered(number: usize) -> ScriptedOrigin {
    ScriptedOrigin::start(move |exchange| {
        exchange.read_body();
        let number = number.to_string();
        let body = if exchange.request.method() == "HEAD" { "" } else { &number };
        let length = number.len();
        // Sent in one piece: a kill in between would cut the body short, and the gateway couldn't retry.
        exchange.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{NOT_STORED}\r\n{body}"));
    })
}

pub(super) fn ill() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        exchange.respond("503 Service Unavailable", NOT_STORED, "ill");
    })
}

/// Resets the connection instead of answering.
fn resetting() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        exchange.reset();
    })
}

/// Answers once the gate is open.
fn held(gate: Gate) -> ScriptedOrigin {
    ScriptedOrigin::start(move |exchange| {
        gate.pass();
        exchange.respond("200 OK", NOT_STORED, "0");
    })
}

/// Configuration of a site and its origin, with these servers, weights and settings.
pub(super) fn config(servers: &[(String, u32)], settings: &str) -> String {
    let server = |(url, weight): &(String, u32)| format!("{{ url = \"{url}\", weight = {weight} }}");
    let servers = servers.iter().map(server).collect::<Vec<_>>().join(", ");
    format!(
        "[[site]]\nname = \"a\"\norigin = \"group\"\n[[origin]]\nname = \"group\"\nservers = [{servers}]\n{settings}\n"
    )
}

#[track_caller]
pub(super) fn reload(larder: &mut Larder, config: &str) {
    larder.write_config(config);
    assert_eq!(larder.ask_admin("POST", "/reload", "").status(), 200);
}

/// Returns the output of `larder explain` for a path.
pub(super) fn explained(larder: &Larder, path: &str) -> String {
    let url = format!("http://test.example{path}");
    run(LARDER, ["explain", &url, "--admin", &larder.admin().to_string()]).text()
}

/// A gateway in front of an origin with several servers.
struct Group {
    larder: Larder,
    servers: Vec<ScriptedOrigin>,
}

impl Group {
    /// Starts a gateway with equal weights for all servers.
    fn start(servers: Vec<ScriptedOrigin>, settings: &str) -> Self {
        Self::weighted(servers, &[1; 4], settings)
    }

    fn weighted(servers: Vec<ScriptedOrigin>, weights: &[u32], settings: &str) -> Self {
        let urls: Vec<_> = servers.iter().map(ScriptedOrigin::url).zip(weights.iter().copied()).collect();
        Self { larder: Setup::config(LARDER, &config(&urls, settings)).start(), servers }
    }

    #[track_caller]
    fn reload(&mut self, weights: &[u32], settings: &str) {
        let urls: Vec<_> =
            self.servers.iter().map(ScriptedOrigin::url).zip(weights.iter().copied()).collect();
        reload(&mut self.larder, &config(&urls, settings));
    }

    /// Requests that each server has received.
    fn received(&self) -> Vec<usize> {
        self.servers.iter().map(ScriptedOrigin::total).collect()
    }

    /// A metric of one server.
    fn metric(&self, server: usize, name: &str, part: &str) -> f64 {
        let url = format!("server=\"{}\"", self.servers[server].url());
        self.larder.metric(&format!("larder_origin_server_{name}"), &[&url, part])
    }

    fn is_in(&self, server: usize, state: &str) -> bool {
        self.metric(server, "state", &format!("state=\"{state}\"")) == 1.0
    }

    fn ejections(&self) -> f64 {
        self.larder.metric("larder_origin_server_ejections_total", &[])
    }

    /// Numbers of the servers that answer `count` sequential requests for different URLs.
    fn answers(&self, count: usize) -> Vec<usize> {
        let mut client = self.larder.client();
        let one = |number| {
            let response = client.get(&format!("/{number}"));
            assert_eq!(response.status(), 200);
            response.text().parse().expect("a server number")
        };
        (0..count).map(one).collect()
    }
}

fn numbered_servers(count: usize) -> Vec<ScriptedOrigin> {
    (0..count).map(numbered).collect()
}

/// All requests for a URL go to one server, whatever their method, even after a restart. If a server is drained, only its own URLs move.
#[test]
fn consistent_hashing_moves_nothing_but_the_urls_of_the_server_that_goes() {
    let settings = "balance = \"consistent-hash\"";
    let mut group = Group::start(numbered_servers(3), settings);
    let before = group.answers(100);
    for (number, server) in before.iter().enumerate() {
        let target = format!("/{number}");
        for method in ["HEAD", "POST"] {
            assert_eq!(group.larder.ask(method, &target, "Content-Length: 0\r\n").status(), 200);
        }
        assert_eq!(group.servers[*server].count(&target), 3, "{target}");
    }
    group = Group::start(group.servers, settings);
    assert_eq!(group.answers(100), before);
    group.reload(&[1, 0, 1], settings);
    for (before, after) in before.iter().zip(group.answers(100)) {
        assert_eq!(*before != after, *before == 1, "from {before} to {after}");
    }
}

#[test]
fn a_drained_server_finishes_what_it_has() {
    let (gate, passed) = gates();
    let mut group = Group::start(vec![held(passed), numbered(1)], "");
    let mut waiting = asking(&group.larder, "/slow", "");
    group.servers[0].wait_for("/slow", 1);
    group.reload(&[0, 1], "");
    assert_eq!(group.answers(20), [1; 20]);
    assert_eq!(group.metric(0, "requests_in_flight", ""), 1.0);
    gate.open();
    assert_eq!(waiting.response().text(), "0");
}

#[test]
fn explanations_name_the_server_and_retries() {
    let group = Group::weighted(vec![resetting(), numbered(1), numbered(2)], &[1, 1, 0], "");
    let text = explained(&group.larder, "/");
    for part in [
        &format!("pick     the request goes to {}", group.servers[0].url()),
        "balance = round-robin",
        "servers that accept requests = 2 of 3",
        &format!(
            "retry    connection closed before a response: the request goes to {}",
            group.servers[1].url()
        ),
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

const NEVER_EJECTED: &str = "[origin.ejection]\nenabled = false";

/// An unsent request goes to another server, whatever its method. A request that may have been processed is retried only if its method is
/// idempotent.
//= RFC 9110 section 9.2.2: idempotent methods may be retried, others only when known not to be processed
#[test]
fn a_failed_request_goes_to_another_server_where_that_is_safe() {
    let (nobody, resetting, good) = (Port::reserve(), resetting(), numbered(1));
    let refused = (format!("http://{}", nobody.address()), "connection-refused");
    let reset = (resetting.url(), "connection-terminated");
    let content = ("Content-Length: 2\r\n\r\nab", "ab");
    let empty = ("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "");
    for ((bad, reason), method, (sent, body), status) in [
        (&refused, "GET", content, 200),
        (&refused, "POST", content, 200),
        (&reset, "GET", content, 200),
        (&reset, "HEAD", content, 200),
        (&reset, "PUT", content, 200),
        (&reset, "PUT", empty, 200),
        (&reset, "DELETE", content, 200),
        (&reset, "POST", content, 502),
        (&reset, "PATCH", content, 502),
    ] {
        // The first request goes to the first server.
        let servers = [(bad.clone(), 1), (good.url(), 1)];
        let larder = Setup::config(LARDER, &config(&servers, NEVER_EJECTED)).start();
        let mut client = larder.client();
        client.send(format!("{method} / HTTP/1.1\r\nHost: test.example\r\n{sent}"));
        assert_eq!(client.response_to(method).status(), status, "{method} {bad}");
        let is_retried = status == 200;
        let retries = larder.metric("larder_origin_retries_total", &[]);
        assert_eq!(retries, f64::from(u8::from(is_retried)), "{method} {bad}");
        assert!(!is_retried || good.last("/").body == body.as_bytes(), "{method} {bad}");
        let failures = |parts: &[&str]| larder.metric("larder_origin_server_failures_total", parts);
        let labels = [format!("server=\"{bad}\""), format!("reason=\"{reason}\"")];
        assert_eq!(failures(&labels.each_ref().map(String::as_str)), 1.0, "{method} {bad}");
        assert_eq!(failures(&[]), 1.0, "{method} {bad}: there are no other failures");
    }
}

#[test]
fn retries_have_limits() {
    let mut servers: Vec<_> = (0..3).map(|_| resetting()).chain([numbered(1)]).collect();
    for (settings, status, asked, over_budget) in [
        ("attempts_max = 4", 200, 4, 0.0),
        ("", 502, 3, 0.0),
        ("attempts_max = 1", 502, 1, 0.0),
        ("budget_percent = 0\nbudget_per_second_min = 0", 502, 1, 1.0),
        ("attempts_max = 4\nbudget_percent = 100\nbudget_per_second_min = 0", 502, 2, 1.0),
    ] {
        let before = servers.iter().map(ScriptedOrigin::total).sum::<usize>();
        let group = Group::start(servers, &format!("{NEVER_EJECTED}\n[origin.retries]\n{settings}"));
        assert_eq!(group.larder.get("/").status(), status, "{settings}");
        assert_eq!(group.received().iter().sum::<usize>() - before, asked, "{settings}");
        let counted = group.larder.metric("larder_origin_retries_over_budget_total", &[]);
        assert_eq!(counted, over_budget, "{settings}");
        servers = group.servers;
    }
}

#[test]
fn a_request_without_an_answer_goes_to_another_server() {
    let (gate, passed) = gates();
    let silent = ScriptedOrigin::start(move |_| passed.pass());
    let group = Group::start(vec![silent, numbered(1)], "[site.timeouts]\nfirst_byte = \"200ms\"");
    assert_eq!(group.answers(8), [1; 8]);
    // Every second request goes to the silent server, until it has failed 5 times.
    assert_eq!((group.ejections(), group.received()[0]), (0.0, 4));
    gate.open();
}

/// A server that doesn't speak HTTP, or cuts its responses short, counts as failed like one that doesn't answer.
#[test]
fn a_server_that_does_not_speak_http_is_left_out() {
    let settings = "interim_responses_max = 2\n[origin.ejection]\nfailures = 3\nduration = \"1h\"\nduration_max = \"1h\"";
    for (answer, is_retried) in [
        ("HTTP/1.1 102 A\r\n\r\nHTTP/1.1 103 B\r\n\r\nHTTP/1.1 103 C\r\n\r\n", true),
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
        let group = Group::start(vec![strange, numbered(1)], settings);
        for number in 0..20 {
            let response = asking(&group.larder, &format!("/{number}"), "Connection: close\r\n").rest();
            assert!(!is_retried || response.ends_with(b"\r\n\r\n1"), "{answer}: {}", response.escape_ascii());
        }
        assert_eq!((group.metric(0, "ejections_total", ""), group.received()[0]), (1.0, 3), "{answer}");
    }
}

#[test]
fn clients_eject_nobody() {
    let stalls = |_| {
        ScriptedOrigin::start(|exchange| {
            exchange.head("200 OK", "Content-Length: 9\r\nCache-Control: no-store\r\n").send("abc");
            exchange.wait_for_peer();
        })
    };
    let settings = "[origin.ejection]\nfailures = 1\n[limits]\nwrite_timeout = \"200ms\"";
    let group = Group::start((0..2).map(stalls).collect(), settings);
    for number in 0..4 {
        asking(&group.larder, &format!("/{number}"), "").head();
        let mut client = group.larder.client();
        client.send(format!("POST /{number} HTTP/1.1\r\nHost: test.example\r\nContent-Length: 9\r\n\r\nab"));
    }
    let in_flight = || group.larder.metric("larder_origin_server_requests_in_flight", &[]);
    wait::until_true("nothing is in flight", || in_flight() == 0.0);
    assert_eq!(group.ejections(), 0.0);
}

/// The client sets the pace of an upload. A failure while the gateway waits for the client, or because the upload took too long, doesn't
/// count against the origin, neither for ejection nor for the circuit breaker.
#[test]
fn slow_uploads_are_no_failures_of_the_origin() {
    const SETTINGS: &str = "[origin.ejection]\nfailures = 1\nstatuses = [\"5xx\"]\n\
        [origin.breaker]\nrequests_min = 1\n[site.timeouts]\ntotal = \"600ms\"\n";
    // Path, bytes of the content sent with the head, bytes sent later, status, failures.
    for (target, at_once, later, status, failures) in [
        ("/silent", "ab", "", 504, 0.0),
        ("/silent", "ab", "c", 504, 0.0),
        ("/silent", "abc", "", 504, 1.0),
        ("/closes", "ab", "", 502, 0.0),
        ("/closes", "abc", "", 502, 1.0),
        ("/answers", "ab", "", 503, 0.0),
        ("/answers", "abc", "", 503, 1.0),
    ] {
        let (gate, passed) = gates();
        let server = |_| {
            let passed = passed.clone();
            ScriptedOrigin::start(move |exchange| {
                let _ = exchange.read_exact(2);
                match exchange.request.target() {
                    "/closes" => _ = exchange.close(),
                    "/answers" => _ = exchange.head("503 A", "Content-Length: 0\r\n").close(),
                    _ => passed.pass(),
                }
            })
        };
        let group = Group::start((0..2).map(server).collect(), SETTINGS);
        let mut client = group.larder.client();
        client.send(format!(
            "POST {target} HTTP/1.1\r\nHost: test.example\r\nContent-Length: 3\r\n\r\n{at_once}"
        ));
        if !later.is_empty() {
            wait::until_true("a server has received it", || group.received().iter().any(|count| *count > 0));
            client.send(later);
        }
        assert_eq!(client.response_to("POST").status(), status, "{target} {at_once} {later}");
        let opened = group.larder.metric("larder_origin_breaker_opened_total", &[]);
        assert_eq!((group.ejections(), opened), (failures, failures), "{target} {at_once} {later}");
        gate.open();
    }
}

/// A stalled body counts neither as a failure nor as a success of its server.
#[test]
fn a_stall_hides_no_failures() {
    let broken = |_| {
        ScriptedOrigin::start(|exchange| {
            exchange.head("200 OK", "Content-Length: 9\r\nCache-Control: no-store\r\n").send("abc");
            match exchange.request.target() {
                "/stall" => exchange.wait_for_peer(),
                _ => drop(exchange.close()),
            }
        })
    };
    let settings = "[origin.ejection]\nfailures = 2\n[site.timeouts]\nbetween_bytes = \"200ms\"";
    let group = Group::start((0..2).map(broken).collect(), settings);
    for (target, expected) in
        [("/stall", 0.0), ("/stall", 0.0), ("/break", 0.0), ("/stall", 0.0), ("/break", 1.0)]
    {
        // One request for each server.
        (0..2).for_each(|_| drop(group.larder.get(target)));
        assert_eq!(group.ejections(), expected, "{target}");
    }
}

/// A server whose health the test changes: when unwell, it answers 503 to targets that match `fails`.
fn changing(is_well: &Arc<AtomicBool>, fails: fn(&str) -> bool) -> ScriptedOrigin {
    let is_well = Arc::clone(is_well);
    ScriptedOrigin::start(move |exchange| {
        let is_failed = fails(exchange.request.target()) && !is_well.load(Relaxed);
        let status = if is_failed { "503 Service Unavailable" } else { "200 OK" };
        exchange.respond(status, NOT_STORED, "0");
    })
}

#[test]
fn a_failing_server_is_left_out_for_a_time_and_comes_back() {
    let is_well = Arc::new(AtomicBool::new(false));
    let settings =
        "slow_start = \"0s\"\n[origin.ejection]\nfailures = 3\nduration = \"1s\"\nduration_max = \"1s\"";
    let group = Group::start(vec![changing(&is_well, |_| true), numbered(1)], settings);
    let statuses = (0..20).map(|number| group.larder.get(&format!("/{number}")).status());
    let failed: Vec<u16> = statuses.filter(|status| *status != 200).collect();
    assert_eq!(failed, [503; 3], "ejected after this many failures");
    assert_eq!(group.metric(0, "ejections_total", ""), 1.0);
    is_well.store(true, Relaxed);
    wait::until_true("it is back", || group.is_in(0, "up"));
    let before = group.received()[0];
    assert_eq!(group.answers(10).iter().filter(|server| **server == 0).count(), 5);
    assert_eq!(group.received()[0] - before, 5);
}

/// The last server is never ejected: its errors are better than no answer. A reload keeps the health of the servers that stay.
#[test]
fn the_last_server_stays_over_reloads_too() {
    let settings = "[origin.ejection]\nfailures = 1\nduration = \"1h\"\nduration_max = \"1h\"\nservers_percent_max = 100";
    let mut group = Group::start(vec![ill(), ill()], settings);
    for (round, (weight, pool)) in
        [(1, ""), (2, ""), (1, "idle_timeout = \"7s\""), (1, "idle_connections_max = 3"), (1, "")]
            .into_iter()
            .enumerate()
    {
        group.reload(&[weight, 1], &format!("{settings}\n[origin.pool]\n{pool}"));
        for number in 0..10 {
            assert_eq!(group.larder.get(&format!("/{number}")).text(), "ill");
        }
        assert_eq!(group.received(), [1, 10 * round + 9], "{pool}");
        assert_eq!((group.is_in(0, "ejected"), group.ejections()), (true, 1.0), "{pool}");
    }
    let log = group.larder.stderr();
    assert!(log.contains("a server is ejected origin="), "{log}");
    assert!(log.contains("last_failure=it answered 503"), "{log}");
}

/// The health of a server belongs to its address.
#[test]
fn a_server_in_the_place_of_an_ejected_one_is_not_ejected() {
    let settings = "[origin.ejection]\nfailures = 1\nduration = \"1h\"\nduration_max = \"1h\"\n";
    let mut group = Group::start(vec![numbered(0), ill()], settings);
    let ask =
        |group: &Group, count| (0..count).for_each(|number| drop(group.larder.get(&format!("/{number}"))));
    ask(&group, 10);
    assert_eq!(group.received()[1], 1);
    let wrong = std::mem::replace(&mut group.servers[1], numbered(1));
    group.reload(&[1, 1], settings);
    let mut seen = group.answers(4);
    seen.sort_unstable();
    assert_eq!(seen, [0, 0, 1, 1]);
    // The health of the old server is dropped with its last use.
    group.servers.push(wrong);
    group.reload(&[1, 1, 1], settings);
    ask(&group, 9);
    assert_eq!(group.received()[2], 2);
}

/// One server is killed, one is slow and one is drained: no idempotent request fails, whichever balancing method is used.
#[test]
fn no_idempotent_request_fails_while_servers_go() {
    for balance in ["round-robin", "least-requests", "power-of-two", "consistent-hash"] {
        while_servers_go(balance);
    }
}

fn while_servers_go(balance: &str) {
    let settings = format!("balance = \"{balance}\"");
    let slow = ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        exchange.delay_ms(20).respond("200 OK", NOT_STORED, "1");
    });
    let mut group = Group::start(vec![numbered(0), slow, numbered(2)], &settings);
    let address = group.larder.address();
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
        let clients: Vec<_> = (0..8).map(|client| scope.spawn(move || visit(client))).collect();
        some_more("requests are answered");
        group.servers[0].stop();
        some_more("requests are answered without the server that was killed");
        group.reload(&[1, 1, 0], &settings);
        wait::until_true("the drained server has finished", || {
            group.metric(2, "requests_in_flight", "") == 0.0
        });
        let finished = group.received()[2];
        some_more("requests are answered without the drained server");
        assert_eq!(group.received()[2], finished, "{balance}: a drained server gets nothing new");
        over.store(true, Relaxed);
        clients.into_iter().for_each(|client| client.join().expect("no request failed"));
    });
    let retries = group.larder.metric("larder_origin_retries_total", &[]);
    assert!(retries > 0.5 && !group.received().contains(&0), "{balance}: {:?}", group.received());
    assert!(group.metric(0, "ejections_total", "") > 0.5);
}

/// Checks detect the failure before clients do: no request goes to a server that fails them, and it returns by itself.
#[test]
fn a_server_that_fails_its_checks_gets_no_requests_until_it_passes() {
    let is_well = Arc::new(AtomicBool::new(true));
    let server = changing(&is_well, |target| target == "/health");
    let settings =
        "slow_start = \"0s\"\n[origin.health]\npath = \"/health\"\ninterval = \"100ms\"\ntimeout = \"100ms\"";
    let group = Group::start(vec![server, numbered(1)], settings);
    group.servers[0].wait_for("/health", 2);
    assert!(group.answers(10).contains(&0));
    is_well.store(false, Relaxed);
    wait::until_true("it is unhealthy", || group.is_in(0, "unhealthy"));
    assert_eq!(group.answers(10), [1; 10]);
    assert!(group.metric(0, "checks_total", "failed") > 2.5);
    is_well.store(true, Relaxed);
    wait::until_true("it is healthy again", || group.is_in(0, "up"));
    assert!(group.answers(10).contains(&0));
    let asked = group.received()[0] - group.servers[0].count("/health");
    assert_eq!(group.metric(0, "requests_total", ""), asked as f64, "checks don't count as requests");
}

/// A reload starts, changes and stops checks.
#[test]
fn a_reload_takes_checks_over() {
    let checks =
        |path: &str| format!("[origin.health]\npath = \"{path}\"\ninterval = \"100ms\"\ntimeout = \"100ms\"");
    let mut group = Group::start(numbered_servers(2), "");
    group.reload(&[1, 1], &checks("/one"));
    group.servers[0].wait_for("/one", 3);
    group.reload(&[1, 1], &checks("/two"));
    group.servers[1].wait_for("/two", 3);
    let before = group.servers[0].count("/one");
    group.servers[0].wait_for("/two", group.servers[0].count("/two") + 3);
    assert!(group.servers[0].count("/one") <= before + 1, "one may have been in flight");
    group.reload(&[1, 1], "");
    let before = group.servers[0].count("/two");
    group.answers(50);
    assert!(group.servers[0].count("/two") <= before + 1);
}
