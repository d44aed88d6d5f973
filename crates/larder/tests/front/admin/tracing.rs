//! Traces of requests at a collector, trace fields for the origin, and `Server-Timing` for clients.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{End, Exchange, Larder, Received, Redis, Response, ScriptedOrigin, Setup, run, wait};

use crate::LARDER;
use crate::admin::collector::{CollectedSpan, Collector};
use crate::admin::operator::{check, gated, printed, site, soon, start, stop};
use crate::cache::basics::{asking, gates, wait_for_waiters};
use crate::fleet::instances::{self, is_written, status};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
const FRESH: &str = "Cache-Control: max-age=600\r\n";
const STALE: &str = "Cache-Control: max-age=1, stale-while-revalidate=600\r\nAge: 5\r\nETag: \"1\"\r\n";
const ALWAYS: &str = "accept_parent = \"always\"\n";

fn parent(flags: &str) -> String {
    format!("traceparent: 00-{TRACE}-{PARENT}-{flags}\r\n")
}

/// The configuration of a gateway that samples every request and exports spans without delay.
fn traced(origin: &ScriptedOrigin, collector: &str, more: &str) -> String {
    let tracing = format!("[tracing]\nendpoint = \"{collector}\"\ninterval = \"10ms\"\nsample_one_in = 1\n");
    format!("{more}\n{}", site(origin, &tracing))
}

fn gateway(origin: &ScriptedOrigin, collector: &Collector, tracing: &str) -> Larder {
    start(&(traced(origin, &collector.url(), "") + tracing))
}

/// The metric that counts spans by their result.
const SPANS: &str = "larder_trace_spans_total";

#[track_caller]
fn only(spans: &[CollectedSpan], fits: impl Fn(&CollectedSpan) -> bool) -> &CollectedSpan {
    let found: Vec<_> = spans.iter().filter(|span| fits(span)).collect();
    assert_eq!(found.len(), 1, "among {spans:#?}");
    found[0]
}

/// Returns trace, span and flags of the `traceparent` that an origin received.
#[track_caller]
fn told(request: &Received) -> [&str; 3] {
    let value = request.field("traceparent");
    match value.split('-').collect::<Vec<_>>()[..] {
        ["00", trace, span, flags] => [trace, span, flags],
        _ => panic!("{value:?}"),
    }
}

#[test]
fn a_trace_of_one_miss_across_two_instances_is_complete() {
    let redis = Redis::start("");
    let collector = Collector::start();
    let (gate, origin) = gated("/a");
    let config = |name: &str| {
        let times = "record_timeout = \"10s\"\nlease_wait_max = \"20s\"\nlease_time = \"20s\"\n";
        let remote = format!("[store.remote]\nurl = \"redis://{}/0\"\n{times}", redis.address());
        let store = format!("server_name = \"{name}\"\n{remote}");
        let config = traced(&origin, &collector.url(), &store) + ALWAYS;
        config.replace("name = \"a\"", "name = \"a\"\nserver_timing = \"always\"")
    };
    let fleet = instances::start(2, |index| Setup::config(LARDER, &config(["one", "two"][index])));
    let mut first = asking(&fleet[0], "/a", &parent("01"));
    origin.wait_for("/a", 1);
    let mut second = asking(&fleet[1], "/a", &parent("01"));
    fleet[1].wait_for("larder_tier_leases_total", &["event=\"waited\""], |waited| waited > 0.0);
    gate.open();
    let (first, second) = (first.response(), second.response());
    assert_eq!((first.text(), second.text()), ("body".to_owned(), "body".to_owned()));
    assert!(status(&second).contains("collapsed"), "{}", status(&second));
    assert_eq!(timings(&first), ["cache", "local", "store", "origin", "total"]);
    assert_eq!(timings(&second), ["cache", "local", "store", "lease", "total"]);
    is_written(&fleet[0]);
    assert_eq!(origin.total(), 1);
    // The server spans arrive last.
    collector.wait_for(2, |span| span.kind == "server");
    let spans = collector.spans();
    assert!(spans.iter().all(|span| span.trace == TRACE), "{spans:#?}");
    let of = |service: &'static str, name: &'static str| {
        only(&spans, move |span| span.service() == service && span.name == name && span.kind != "client")
    };
    for service in ["one", "two"] {
        let server = of(service, "GET");
        assert_eq!((&*server.parent, server.kind), (PARENT, "server"));
        assert_eq!(server.attribute("http.response.status_code"), "200");
        for inner in spans.iter().filter(|span| span.service() == service && span.kind != "server") {
            assert_eq!(inner.parent, server.id, "{inner:#?}");
            assert!(server.start_ns <= inner.start_ns && inner.end_ns <= server.end_ns, "{inner:#?}");
        }
        assert_eq!(of(service, "larder.store").attribute("larder.store.result"), "nothing");
    }
    let asked = only(&spans, |span| span.kind == "client");
    assert_eq!((asked.service(), &*asked.name), ("one", "GET"));
    assert_eq!(asked.attribute("larder.origin"), origin.url());
    assert_eq!(told(&origin.last("/a")), [TRACE, &asked.id, "01"]);
    let waiting = of("two", "larder.lease");
    assert_eq!(waiting.links, [(TRACE.to_owned(), of("one", "GET").id.clone())]);
    assert_eq!(of("one", "GET").attribute("larder.cache.result"), "miss");
    assert_eq!(of("two", "GET").attribute("larder.cache.result"), "collapsed");
}

/// Field bug: if an origin has several servers, spans didn't name the server.
#[test]
fn spans_name_the_server_that_answered() {
    let dead = ScriptedOrigin::start(|exchange| _ = exchange.reset());
    let (well, collector) = (ScriptedOrigin::fixed("", "well"), Collector::start());
    let group = format!("[[origin]]\nname = \"group\"\nservers = [\"{}\", \"{}\"]\n", dead.url(), well.url());
    let config = traced(&well, &collector.url(), &group);
    let config = config.replace(&format!("\norigin = \"{}\"", well.url()), "\norigin = \"group\"");
    let larder = start(&config);
    ["/a", "/b"].iter().for_each(|target| assert_eq!(larder.get(target).text(), "well"));
    assert!(dead.total() > 0, "one of them was sent to the dead server first");
    for asked in collector.wait_for(2, |span| span.kind == "client") {
        assert_eq!(asked.attribute("larder.server"), well.url(), "{asked:#?}");
        assert_eq!(asked.attribute("server.address"), "127.0.0.1", "{asked:#?}");
    }
}

#[test]
fn whose_trace_goes_on_is_the_operators_choice() {
    let collector = Collector::start();
    let origin = ScriptedOrigin::fixed("Cache-Control: no-store\r\n", "x");
    let state = "tracestate: rojo=00f067aa0ba902b7,congo=t61rcWkgMzE\r\n";
    // `accept_parent`, the trusted proxies, and whether the client's trace is continued.
    let cases = [
        ("always", "", true),
        ("never", "\"127.0.0.1\"", false),
        ("trusted_proxies", "", false),
        ("trusted_proxies", "\"127.0.0.1\"", true),
    ];
    for (index, (accepted, trusted, goes_on)) in cases.into_iter().enumerate() {
        let trusted = format!("trusted_proxies = [{trusted}]");
        let accepted = format!("accept_parent = \"{accepted}\"\n");
        let larder = start(&(traced(&origin, &collector.url(), &trusted) + &accepted));
        let target = format!("/{index}");
        larder.ask("GET", &target, &(parent("01") + state));
        let server = collector.one(|span| span.attribute("url.path") == target);
        let client = collector.one(|span| span.parent == server.id && span.kind == "client");
        let at_origin = origin.last(&target);
        let [trace, span, flags] = told(&at_origin);
        assert_eq!([trace, span, flags], [&*server.trace, &client.id, "01"], "{accepted}");
        assert_eq!(trace == TRACE, goes_on, "{accepted} {trusted}");
        let links = if goes_on { vec![] } else { vec![(TRACE.to_owned(), PARENT.to_owned())] };
        let expected = if goes_on { (PARENT, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE") } else { ("", "") };
        assert_eq!((&*server.parent, at_origin.field("tracestate")), expected, "{accepted} {trusted}");
        assert_eq!((&server.links, &*server.state), (&links, expected.1), "{accepted} {trusted}");
    }
}

#[test]
fn an_unsampled_request_is_not_recorded_and_the_origin_is_told() {
    let collector = Collector::start();
    let origin = ScriptedOrigin::fixed("Cache-Control: no-store\r\n", "x");
    let larder = gateway(&origin, &collector, ALWAYS);
    larder.ask("GET", "/unsampled", &parent("00"));
    assert_eq!(told(&origin.last("/unsampled")), [TRACE, PARENT, "00"]);
    let never = traced(&origin, &collector.url(), "").replace("sample_one_in = 1", "sample_one_in = 0");
    let rare = start(&(never + ALWAYS));
    rare.get("/rare");
    assert_eq!(told(&origin.last("/rare"))[2], "00");
    // The unit tests of the trace context test other forms.
    for broken in [
        format!("traceparent: 00-{TRACE}-{PARENT}\r\n"),
        parent("01") + &parent("01").replace(TRACE, PARENT),
        parent("01") + &parent("01"),
        parent("01") + "Connection: traceparent\r\n",
    ] {
        rare.ask("GET", "/broken", &broken);
        let at_origin = origin.last("/broken");
        let [trace, _, flags] = told(&at_origin);
        assert!(trace != TRACE && flags == "00", "{broken}");
        assert_eq!(at_origin.head.fields.joined("traceparent").matches('-').count(), 3);
    }
    // A sampled request follows all others.
    larder.ask("GET", "/sampled", &parent("01"));
    collector.one(|span| span.kind == "server");
    assert!(collector.spans().iter().all(|span| span.attribute("url.path") != "/unsampled"));
    // Without a collector, the client's fields are forwarded unchanged.
    let off = start(&site(&origin, ""));
    off.ask("GET", "/off", &(parent("01") + "tracestate: a=b, c=d\r\n"));
    let at_origin = origin.last("/off");
    assert_eq!(told(&at_origin), [TRACE, PARENT, "01"]);
    assert_eq!(at_origin.field("tracestate"), "a=b, c=d");
}

/// Clients with different traces share a stored response, even if its `Vary` names the trace fields.
#[test]
fn traces_are_no_part_of_what_is_stored() {
    let collector = Collector::start();
    let origin = ScriptedOrigin::start(|exchange| {
        let is_varied = exchange.request.target() == "/varied";
        let vary = if is_varied { "Vary: traceparent, tracestate\r\n" } else { "" };
        exchange.respond("200 OK", &format!("{FRESH}{vary}"), "shared");
    });
    let larder = gateway(&origin, &collector, ALWAYS);
    for target in ["/plain", "/varied"] {
        let mut answers = (0..3).map(|number| {
            let trace = format!("{number:016x}{TRACE:.16}").replace("0000", "1111");
            let own = parent("01").replace(TRACE, &trace);
            larder.ask("GET", target, &format!("{own}tracestate: a={number}\r\n"))
        });
        assert!(!answers.next().unwrap().is_hit());
        for hit in answers {
            assert!(hit.is_hit(), "{target}: {}", hit.cache_status());
            let told = ["traceparent", "server-timing"].map(|name| hit.head.fields.has(name));
            assert_eq!(told, [false; 2]);
        }
        assert_eq!(origin.count(target), 1);
    }
}

#[test]
fn hits_collapsed_requests_and_refreshes_have_spans() {
    let collector = Collector::start();
    let (gate, released) = gates();
    let origin =
        ScriptedOrigin::start(move |exchange| match (exchange.request.target(), exchange.request.earlier) {
            ("/crowd", _) => {
                released.pass();
                _ = exchange.respond("200 OK", FRESH, "crowd");
            }
            ("/stale", 0) => _ = exchange.respond("200 OK", STALE, "old"),
            ("/cut", _) => _ = exchange.head("200 OK", "Content-Length: 9\r\n").send("begun").close(),
            ("/gone", _) => _ = exchange.respond("503 Service Unavailable", "", "no"),
            _ => _ = exchange.respond("200 OK", FRESH, "new"),
        });
    let larder = gateway(&origin, &collector, ALWAYS);
    let at = |path: &str| collector.one(|span| span.attribute("url.path") == path);
    let result = |path: &str, result: &str| {
        let is_result = |span: &CollectedSpan| span.attribute("larder.cache.result") == result;
        collector.one(|span| span.attribute("url.path") == path && is_result(span))
    };
    (0..2).for_each(|_| drop(larder.get("/hit?a=1&token=secret")));
    let hit = result("/hit", "hit");
    assert_eq!(hit.attribute("url.query"), "a=1&token=REDACTED");
    assert!(hit.attribute("larder.cache.status").starts_with("larder; hit"), "{hit:#?}");
    let names = ["larder.site", "http.request.method", "network.protocol.version", "client.address"];
    assert_eq!(names.map(|name| hit.attribute(name)), ["a", "GET", "1.1", "127.0.0.1"]);
    let inner = collector.wait_for(1, |span| span.parent == hit.id);
    assert_eq!(inner.iter().map(|span| &*span.name).collect::<Vec<_>>(), ["larder.local"]);
    // Two requests for one response.
    let first = asking(&larder, "/crowd", "");
    origin.wait_for("/crowd", 1);
    let second = asking(&larder, "/crowd", "");
    wait_for_waiters(&larder, 1);
    gate.open();
    [first, second].iter_mut().for_each(|client| assert_eq!(client.response().text(), "crowd"));
    let (leader, waiter) = (result("/crowd", "miss"), result("/crowd", "collapsed"));
    let waiting = collector.wait_for(1, |span| span.parent == waiter.id && span.name == "larder.collapse");
    assert_eq!(waiting[0].links, [(leader.trace.clone(), leader.id.clone())]);
    assert_ne!(leader.trace, waiter.trace);
    // A background validation.
    (0..2).for_each(|_| drop(larder.get("/stale")));
    let stale = result("/stale", "stale");
    let refresh = collector.one(|span| span.name == "larder.refresh");
    assert_eq!((&refresh.links, &*refresh.parent), (&vec![(stale.trace, stale.id)], ""));
    let asked = collector.one(|span| span.parent == refresh.id && span.kind == "client");
    assert_eq!(told(&origin.last("/stale")), [&*refresh.trace, &asked.id, "01"]);
    larder.get("/gone");
    let gone = at("/gone");
    assert!(gone.is_error && gone.attribute("error.type") == "503", "{gone:#?}");
    assert_eq!(larder.get("/cut").end, End::Truncated);
    let cut = at("/cut");
    assert!(cut.is_error && cut.attribute("error.type") == "broken-off", "{cut:#?}");
}

#[test]
fn secrets_stay_out_of_spans() {
    let collector = Collector::start();
    let origin = ScriptedOrigin::fixed(FRESH, "x");
    let config = traced(&origin, &collector.url(), "")
        + "headers = { authorization = \"@dir@/token\", x-team = \"@dir@/team\" }\n\
           resource_attributes = { \"deployment.environment.name\" = \"test\" }\nservice_name = \"edge\"\n\
           [log]\naccess = \"@dir@/access.log\"\nredact = [\"session\"]\n";
    let setup = Setup::config(LARDER, &config).file("token", "Bearer s3cret\n").file("team", "shop\n");
    let larder = setup.start();
    let secrets = "Cookie: id=s3cret\r\nAuthorization: Basic s3cret\r\nX-Api-Key: s3cret\r\n";
    larder.ask("GET", "/page?session=s3cret&b=2", &format!("{secrets}User-Agent: probe/1\r\n"));
    let server = collector.one(|span| span.kind == "server");
    assert_eq!(server.attribute("url.query"), "session=REDACTED&b=2");
    assert_eq!(server.attribute("user_agent.original"), "probe/1");
    let all = format!("{:?}", collector.spans());
    assert!(!all.contains("s3cret"), "{all}");
    assert_eq!((server.service(), &*server.resource["deployment.environment.name"]), ("edge", "test"));
    let request = &collector.received()[0];
    assert_eq!((request.target(), request.field("x-team")), ("/v1/traces", "shop"));
    assert_eq!(request.field("authorization"), "Bearer s3cret");
    // The log uses the same names.
    let line = wait::until("a line of the log", || {
        std::fs::read_to_string(larder.folder().join("access.log")).ok().filter(|text| text.ends_with('\n'))
    });
    let ids = format!("\"trace_id\":\"{}\",\"span_id\":\"{}\"", server.trace, server.id);
    assert!(line.contains(&ids), "{line}");
}

/// A request whose client leaves has a span too, and HTTP/2 is traced like HTTP/1.
#[test]
fn http_2_is_traced_and_clients_that_leave_are_seen() {
    let collector = Collector::start();
    let (gate, origin) = gated("/left");
    let larder = gateway(&origin, &collector, ALWAYS);
    let header = parent("01");
    for result in ["miss", "hit"] {
        let http2 = ["--silent", "--http2-prior-knowledge", "--header", header.trim(), &larder.url("/two")];
        assert_eq!(run("curl", http2).succeeded().text(), "body");
        let span = collector.one(|span| span.attribute("larder.cache.result") == result);
        assert_eq!((&*span.trace, &*span.parent), (TRACE, PARENT));
        assert_eq!(span.attribute("network.protocol.version"), "2");
    }
    let client = asking(&larder, "/left", "Cache-Control: no-store\r\n");
    origin.wait_for("/left", 1);
    client.reset();
    larder.wait_for("larder_client_errors_total", &["reason=\"client-closed\""], |left| left > 0.0);
    gate.open();
    let left = collector.one(|span| span.attribute("url.path") == "/left");
    assert_eq!(left.attribute("error.type"), "client-gone");
}

/// Checks that clients get their responses without delay, whatever the collector does.
fn is_served(larder: &Larder) {
    let began = Instant::now();
    let mut client = larder.client();
    for number in 0..50 {
        assert_eq!(client.get(&format!("/{number}")).text(), "x");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_collector_that_does_not_answer_holds_nobody_up() {
    // A collector that accepts connections but sends nothing, one that is down, and one that doesn't speak HTTP.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let garbage = ScriptedOrigin::start(|exchange| _ = exchange.send("+OK\r\n\0\0\0\0").close());
    let address = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
    let endpoints = [address(&silent), address(&gone), garbage.url()];
    drop(gone);
    let origin = ScriptedOrigin::fixed(FRESH, "x");
    let limits = "timeout = \"100ms\"\nqueue_spans_max = 60\nbatch_spans_max = 20\n";
    let mut dead = endpoints.map(|endpoint| start(&(traced(&origin, &endpoint, "") + limits)));
    thread::scope(|scope| dead.iter().for_each(|larder| _ = scope.spawn(|| is_served(larder))));
    for larder in &dead {
        larder.wait_for("larder_trace_exports_total", &["result=\"again\""], |tries| tries > 0.0);
        // At least 150 spans: 60 may wait and 20 may be in transit.
        assert!(larder.metric(SPANS, &["dropped"]) >= 50.0);
        assert_eq!(larder.metric(SPANS, &["exported"]), 0.0);
    }
    // The end of the process isn't delayed either.
    dead.iter_mut().for_each(|larder| soon("the stop", || stop(larder)));
}

#[test]
fn a_collector_is_asked_again_when_it_says_so_and_not_where_it_refuses() {
    let (asked, mood) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let its_mood = Arc::clone(&mood);
    let collector = Collector::answering(move |exchange: &mut Exchange<'_>| {
        match (asked.fetch_add(1, Ordering::Relaxed), its_mood.load(Ordering::Relaxed)) {
            (0, _) => _ = exchange.respond("429 Too Many Requests", "Retry-After: 1\r\n", ""),
            (_, 0) => return true,
            (_, 1) => _ = exchange.respond("400 Bad Request", "", "what?"),
            _ => _ = exchange.respond("200 OK", "", Collector::partial_success(1)),
        }
        false
    });
    let origin = ScriptedOrigin::fixed(FRESH, "x");
    let larder = gateway(&origin, &collector, "");
    let began = Instant::now();
    larder.get("/first");
    collector.wait_for(1, |span| span.kind == "server");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    larder.wait_for(SPANS, &["exported"], |count| count >= 3.0);
    for (next, result) in [(1, "failed"), (2, "rejected")] {
        mood.store(next, Ordering::Relaxed);
        larder.get("/first");
        larder.wait_for(SPANS, &[result], |count| count > 0.0);
    }
    assert!(larder.metric("larder_trace_exports_total", &["result=\"partial\""]) > 0.0);
}

#[test]
fn spans_that_wait_are_bounded_and_the_last_ones_are_sent_at_the_end() {
    let collector = Collector::start();
    let origin = ScriptedOrigin::fixed(FRESH, "x");
    let config = traced(&origin, &collector.url(), "").replace("10ms", "1h")
        + "queue_spans_max = 300\nbatch_spans_max = 1000\n";
    let mut larder = start(&config);
    larder.get("/hot");
    let mut client = larder.client();
    for _ in 0..100 {
        client.send("GET /hot HTTP/1.1\r\nHost: a\r\n\r\n".repeat(50));
        (0..50).for_each(|_| assert_eq!(client.response().text(), "x"));
    }
    larder.wait_for(SPANS, &["dropped"], |dropped| dropped >= 10_000.0 - 300.0);
    assert!(collector.spans().is_empty());
    stop(&mut larder);
    assert_eq!(collector.spans().len(), 300);
}

fn timings(response: &Response) -> Vec<String> {
    let all = response.head.fields.joined("server-timing");
    let names = all.split(", ").filter(|entry| !entry.is_empty());
    names.map(|entry| entry.split(';').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn clients_are_told_of_times_where_the_site_says_so() {
    let origin = ScriptedOrigin::start(|exchange| {
        let own = if exchange.request.target() == "/own" { "Server-Timing: db;dur=5\r\n" } else { "" };
        let vary = "Vary: Larder-Timing\r\n";
        exchange.respond("200 OK", &format!("{FRESH}{own}{vary}"), "x");
    });
    const ASKED: &str = "Larder-Timing: 1\r\n";
    for (setting, unasked, asked) in
        [("off", false, false), ("on_request", false, true), ("always", true, true)]
    {
        let larder = start(&site(&origin, &format!("server_timing = \"{setting}\"\n")));
        let check = |answer: &Response, is_told: bool, names: &[&str]| {
            assert_eq!(timings(answer), if is_told { names } else { &[] }, "{setting}");
        };
        let miss = larder.ask("GET", "/a", ASKED);
        assert_eq!(origin.last("/a").field("larder-timing").is_empty(), setting != "off", "{setting}");
        check(&miss, asked, &["cache", "local", "origin", "total"]);
        if setting == "off" {
            continue;
        }
        let hit = larder.ask("GET", "/a", if setting == "always" { "" } else { ASKED });
        assert!(hit.is_hit(), "{}", hit.cache_status());
        check(&hit, true, &["cache", "local", "total"]);
        assert!(hit.field("server-timing").starts_with("cache;desc=\"hit\", local;dur="), "{hit:?}");
        // Timings are not stored.
        check(&larder.get("/a"), unasked, &["cache", "local", "total"]);
        check(&larder.ask("GET", "/own", ASKED), true, &["db", "cache", "local", "origin", "total"]);
        let http2 =
            ["-s", "--include", "--http2-prior-knowledge", "--header", ASKED.trim(), &larder.url("/a")];
        run("curl", http2).succeeded();
        let two = run("curl", http2).succeeded().text();
        assert_eq!(two.matches("server-timing: cache;desc=\"hit\"").count(), 1, "{two}");
    }
}

#[test]
fn a_wait_for_a_place_at_the_origin_has_a_span() {
    let collector = Collector::start();
    let (gate, origin) = gated("/first");
    let pool = "pool = { requests_in_flight_max = 1 }\n";
    let narrow = format!("[[origin]]\nname = \"narrow\"\nurl = \"{}\"\n{pool}", origin.url());
    let config = traced(&origin, &collector.url(), &narrow);
    let config = config.replace(&format!("origin = \"{}\"", origin.url()), "origin = \"narrow\"");
    let larder = start(&config);
    let first = asking(&larder, "/first", "");
    origin.wait_for("/first", 1);
    let second = asking(&larder, "/second", "");
    larder.wait_for("larder_origin_exchanges", &["state=\"queued\""], |queued| queued > 0.0);
    gate.open();
    [first, second].iter_mut().for_each(|client| assert_eq!(client.response().text(), "body"));
    let second = collector.one(|span| span.attribute("url.path") == "/second");
    let queue = collector.wait_for(1, |span| span.name == "larder.queue");
    assert_eq!(queue.iter().map(|span| &*span.parent).collect::<Vec<_>>(), [&*second.id]);
}

#[test]
fn doctor_asks_the_collector() {
    let mut collector = Collector::answering(|exchange| {
        exchange.respond("200 OK", "", "");
        false
    });
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("larder.toml").display().to_string();
    let origin = ScriptedOrigin::fixed("", "body");
    std::fs::write(&file, traced(&origin, &collector.url(), "")).expect("a file");
    let doctor = || run(LARDER, ["doctor", "--config", &file]);
    check(&doctor(), 0, "/v1/traces, which accepts spans");
    collector.stop();
    let found = printed(&doctor());
    assert!(found.contains("which accepts no spans: can't connect"), "{found}");
}
