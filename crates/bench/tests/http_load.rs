//! The HTTP load on scripted servers, conforming and misbehaving.

mod null;

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use bench::http::{
    Detail, HttpLoad, LoadError, Order, Pace, Protocol, Reuse, Target, Until, run, run_in_turn,
};
use bench::null::{NullHttp, Stall};
use bench::result::{Errors, Interval, LatencySummary, Run};

use null::NullThread;
use testkit::{Port, ScriptedOrigin};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// An answer that is never sent.
const STAND_STILL: &[u8] = b"(stand still)";

/// A server that sends these answers on each connection, and then closes it. Each write has at most `piece` bytes.
fn in_pieces(answers: &[&[u8]], piece: usize) -> ScriptedOrigin {
    let answers: Vec<Vec<u8>> = answers.iter().map(|answer| answer.to_vec()).collect();
    let asked: Mutex<HashMap<usize, usize>> = Mutex::default();
    ScriptedOrigin::start(move |exchange| {
        let turn = {
            let mut asked = asked.lock().expect("no script panics");
            let turn = asked.entry(exchange.request.connection).or_default();
            *turn += 1;
            *turn
        };
        let answer = &answers[turn - 1];
        if answer == STAND_STILL {
            return exchange.wait_for_peer();
        }
        answer.chunks(piece).for_each(|bytes| {
            exchange.send(bytes);
        });
        if turn == answers.len() {
            exchange.close();
        }
    })
}

fn scripted(answers: &[&[u8]]) -> ScriptedOrigin {
    in_pieces(answers, usize::MAX)
}

fn null_http(settings: &NullHttp) -> NullThread {
    NullThread::start(|address| settings.bind(address))
}

impl NullThread {
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

fn load_on(url: &str, requests: u64) -> HttpLoad {
    let mut load = HttpLoad::of_urls(&[url]).expect("a URL");
    load.until = Until::Requests(requests);
    load.timeout = Duration::from_secs(5);
    load
}

fn done(load: &HttpLoad) -> Run {
    run(load, &mut ()).expect("the load runs")
}

fn outcomes(run: &Run) -> Vec<(&str, u64)> {
    run.outcomes.iter().map(|outcome| (outcome.name.as_str(), outcome.count)).collect()
}

#[test]
fn every_request_is_answered_and_counted_once() {
    let server = null_http(&NullHttp { body_bytes: 100, ..NullHttp::default() });
    let cases: [(usize, usize, usize); 5] = [(1, 1, 1), (7, 1, 1), (3, 16, 1), (5, 2, 2), (4, 3, 4)];
    for (connections, pipelining, threads) in cases {
        let mut load = load_on(&server.url("/x"), 1003);
        (load.connections, load.threads) = (connections, threads);
        load.protocol = Protocol::Http1 { pipelining };
        let run = done(&load);
        let seen = format!("{connections} connections, {pipelining} deep, {threads} threads: {run:?}");
        assert_eq!((run.requests, run.latency.count, run.errors), (1003, 1003, Errors::default()), "{seen}");
        assert_eq!(outcomes(&run), [("200", 1003)], "{seen}");
        assert_eq!(run.intervals.iter().map(|interval| interval.requests).sum::<u64>(), 1003, "{seen}");
        let response = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n".len() as u64 + 100;
        assert_eq!(run.read_bytes, 1003 * response, "{seen}");
    }
}

#[test]
fn parts_of_the_latency_are_told() {
    let server = null_http(&NullHttp { body_bytes: 4 << 20, ..NullHttp::default() });
    let mut load = load_on(&server.url("/x"), 30);
    load.connections = 3;
    let part = |part: Option<LatencySummary>| part.expect("it was measured");
    for (reuse, connects) in [(Reuse::KeepAlive, 3), (Reuse::OnePerRequest, 30)] {
        load.reuse = reuse;
        let run = done(&load);
        let (connect, first_byte) = (part(run.connect.clone()), part(run.first_byte.clone()));
        assert_eq!((connect.count, first_byte.count, run.errors.total()), (connects, 30, 0), "{run:?}");
        assert!(first_byte.mean_us < run.latency.mean_us, "a body follows it: {run:?}");
        assert!(run.read_bytes_per_s > 0.0, "{run:?}");
    }
    let interim = [b"HTTP/1.1 103 Early Hints\r\n\r\n".as_slice(), OK].concat();
    let run = done(&load_on(&scripted(&[&interim, OK]).url(), 2));
    assert_eq!(part(run.first_byte.clone()).count, 2, "an interim response is no second one: {run:?}");
}

#[test]
fn a_random_order_is_the_same_for_the_same_seed() {
    let server = null_http(&NullHttp::default());
    let urls: Vec<String> = (0..20).map(|number| server.url(&format!("/{number}"))).collect();
    let counts = |seed| {
        let mut load = HttpLoad::of_urls(&urls).expect("URLs");
        (load.until, load.connections) = (Until::Requests(500), 4);
        (load.order, load.detail, load.seed) = (Order::Random, Detail::PerUrl, seed);
        done(&load).urls.iter().map(|figures| figures.requests).collect::<Vec<_>>()
    };
    assert_eq!(counts(1), counts(1));
    assert_ne!(counts(1), counts(2));
    assert_eq!(counts(3).iter().sum::<u64>(), 500);
}

const CLOSING: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

#[test]
fn a_server_that_closes_after_each_answer_is_met_again() {
    let server = scripted(&[CLOSING]);
    for reuse in [Reuse::KeepAlive, Reuse::OnePerRequest] {
        let mut load = load_on(&server.url(), 200);
        (load.connections, load.reuse) = (3, reuse);
        let run = done(&load);
        assert_eq!((run.requests, run.errors), (200, Errors::default()), "{reuse:?}: {run:?}");
    }
}

#[test]
fn what_waits_behind_a_closing_answer_is_asked_again() {
    let server = scripted(&[OK, CLOSING]);
    let mut load = load_on(&server.url(), 50);
    load.protocol = Protocol::Http1 { pipelining: 8 };
    let run = done(&load);
    assert_eq!((run.requests, run.errors), (50, Errors::default()), "{run:?}");
    assert!(run.reconnects >= 20, "{run:?}");
}

#[test]
fn errors_are_told_by_their_cause() {
    let broken = |run: &Run| run.errors.broken;
    let malformed = |run: &Run| run.errors.malformed;
    let wrong = |run: &Run| run.errors.wrong;
    let timeout = |run: &Run| run.errors.timeout;
    type Cause = fn(&Run) -> u64;
    let cases: [(&[u8], Cause); 10] = [
        (b"", broken),
        (b"HTTP/1.1 200 OK\r\nContent-Le", broken),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", broken),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", broken),
        (b"garbage\r\n\r\n", malformed),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", malformed),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", malformed),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", malformed),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", wrong),
        (STAND_STILL, timeout),
    ];
    for (answer, cause) in cases {
        let server = scripted(&[answer]);
        let mut load = load_on(&server.url(), 3);
        (load.timeout, load.targets[0].status) = (Duration::from_millis(300), Some(200));
        let run = done(&load);
        let seen = format!("{:?}: {:?}", String::from_utf8_lossy(answer), run.errors);
        assert_eq!((run.requests, cause(&run), run.errors.total()), (0, 3, 3), "{seen}");
    }
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    let port = Port::reserve();
    let address = port.address();
    for reuse in [Reuse::KeepAlive, Reuse::OnePerRequest] {
        let mut load = load_on(&format!("http://{address}/"), 3);
        load.reuse = reuse;
        match run(&load, &mut ()) {
            Err(LoadError::Unreachable { address: named, source }) => {
                assert_eq!(named, address.to_string());
                assert_eq!(source.kind(), std::io::ErrorKind::ConnectionRefused);
            }
            other => panic!("{reuse:?}: {other:?}"),
        }
    }
}

#[test]
fn bodies_are_told_apart_by_their_framing() {
    let chunked =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nTrailer: 1\r\n\r\n";
    let interim =
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    let until_close = b"HTTP/1.1 200 OK\r\n\r\nall of it";
    let cases: [(&str, &[u8], u64); 6] = [
        ("GET", chunked, 200),
        ("GET", interim, 200),
        ("GET", until_close, 200),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", 204),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\n\r\n", 304),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", 200),
    ];
    for (method, answer, status) in cases {
        for piece in [usize::MAX, 1] {
            let server = in_pieces(&[answer], piece);
            let mut load = load_on(&server.url(), 4);
            load.targets[0].method = method.into();
            let run = done(&load);
            let seen = format!("{:?}: {run:?}", String::from_utf8_lossy(answer));
            assert_eq!(outcomes(&run), [(status.to_string().as_str(), 4)], "{seen}");
            assert_eq!(run.errors, Errors::default(), "{seen}");
        }
    }
}

#[test]
fn the_request_is_sent_as_it_was_asked_for() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let server = thread::spawn(move || {
        let (mut socket, mut request) = (listener.accept().expect("a connection").0, vec![0; 1024]);
        let bytes = socket.read(&mut request).expect("a request in one write");
        socket.write_all(OK).expect("the load reads");
        String::from_utf8(request[..bytes].to_vec()).expect("text")
    });
    let mut load = load_on(&format!("http://{address}/a?b=c#d"), 1);
    let target = &mut load.targets[0];
    target.method = "POST".into();
    target.fields = vec![("X-A".into(), "1".into()), ("host".into(), "other.test".into())];
    target.body = "body".into();
    done(&load);
    let expected = "POST /a?b=c HTTP/1.1\r\nX-A: 1\r\nhost: other.test\r\nContent-Length: 4\r\n\r\nbody";
    assert_eq!(server.join().expect("it got a request"), expected);
}

#[test]
fn think_times_hold_a_connection_back() {
    let server = null_http(&NullHttp::default());
    let mut load = load_on(&server.url("/"), 20);
    (load.connections, load.think) = (2, Some(Duration::from_millis(20)..=Duration::from_millis(30)));
    let run = done(&load);
    assert_eq!(run.requests, 20);
    assert!((0.2..2.0).contains(&run.elapsed_s), "ten rests of 20 to 30 ms each: {}", run.elapsed_s);
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let server = null_http(&NullHttp::default());
    let mut load = load_on(&server.url("/"), 1);
    load.until = Until::Elapsed(Duration::from_secs(1));
    (load.connections, load.pace) = (10, Pace::Open { per_second: 500.0 });
    for threads in [1, 2] {
        load.threads = threads;
        let run = done(&load);
        assert_eq!((run.requests + run.unsent, run.errors), (500, Errors::default()), "{run:?}");
    }
}

#[test]
fn requests_that_find_no_connection_are_told_as_unsent() {
    let server = scripted(&[STAND_STILL]);
    let mut load = load_on(&server.url(), 1);
    load.until = Until::Elapsed(Duration::from_millis(500));
    (load.timeout, load.pace) = (Duration::from_secs(1), Pace::Open { per_second: 100.0 });
    let run = done(&load);
    assert_eq!((run.requests, run.errors.timeout, run.unsent), (0, 1, 49), "{run:?}");
}

/// Demonstrates coordinated omission: a closed loop sends nothing while the server stalls, so it sees one slow answer per
/// connection, although in an open loop, a tenth of all requests wait.
#[test]
fn a_planted_stall_shows_in_the_open_loop_and_hides_in_the_closed_one() {
    let stall = Stall { length: Duration::from_millis(100), every: Duration::from_millis(500) };
    let measure = |pace: Pace| {
        let server = null_http(&NullHttp { stall: Some(stall), ..NullHttp::default() });
        let mut load = load_on(&server.url("/"), 1);
        load.until = Until::Elapsed(Duration::from_millis(900));
        (load.connections, load.pace) = (4, pace);
        done(&load)
    };
    let open = measure(Pace::Open { per_second: 1000.0 });
    assert!(open.latency.max_us >= 95_000, "{:?}", open.latency);
    // One request is due every millisecond. The stalls delay a hundred of the 900 requests, for 50 ms on average.
    assert!(open.latency.p99_us >= 60_000, "{:?}", open.latency);
    let closed = measure(Pace::Closed);
    assert!(closed.latency.max_us >= 95_000, "{:?}", closed.latency);
    assert!(closed.latency.p99_us < 50_000, "{:?}", closed.latency);
}

#[test]
fn an_observer_sees_all_and_may_end_the_load() {
    let server = null_http(&NullHttp::default());
    let mut load = load_on(&server.url("/"), 1);
    load.until = Until::Elapsed(Duration::from_secs(60));
    let mut seen = Vec::new();
    let mut observer = |interval: &Interval| {
        seen.push(interval.requests);
        if seen.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let run = run(&load, &mut observer).expect("the load runs");
    assert!(run.elapsed_s < 30.0, "{}", run.elapsed_s);
    assert!(run.requests >= seen[..3].iter().sum(), "{seen:?}");
}

#[test]
fn a_warm_up_is_not_in_the_figures() {
    let server = scripted(&[OK]);
    let mut load = load_on(&server.url(), 10);
    load.warm_up = Some(Until::Requests(5));
    assert_eq!(done(&load).requests, 10);
    assert_eq!(server.total(), 15);
}

#[test]
fn sides_are_measured_in_turn_and_summed_up_each() {
    let (first, second) = (scripted(&[OK]), null_http(&NullHttp::default()));
    let of_first = |path| format!("{}{path}", first.url());
    let per_url = |urls: [String; 2]| {
        let mut load = HttpLoad::of_urls(&urls).expect("URLs");
        (load.until, load.detail) = (Until::Requests(4), Detail::PerUrl);
        load
    };
    let sides = [per_url(["/a", "/b"].map(of_first)), per_url(["/c"; 2].map(|path| second.url(path)))];
    let runs = run_in_turn(&sides, 3, &mut ()).expect("the loads run");
    let figures = |run: &Run| {
        run.urls.iter().map(|figures| (figures.url.clone(), figures.requests)).collect::<Vec<_>>()
    };
    assert_eq!(figures(&runs[0]), [(of_first("/a"), 6), (of_first("/b"), 6)]);
    assert_eq!(figures(&runs[1]), [(second.url("/c"), 12)]);
    assert_eq!((runs[0].requests, runs[1].requests), (12, 12));
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    type Spoil = fn(&mut HttpLoad);
    let cases: [(Spoil, &str); 9] = [
        (|load| load.targets.clear(), "at least one URL"),
        (|load| load.targets.extend(Target::at("http://127.0.0.1:2/")), "URLs of one server"),
        (|load| load.connections = 0, "connections have to be 1 to 65536"),
        (|load| load.threads = 2, "as many connections as threads"),
        (|load| load.until = Until::Requests(0), "above zero"),
        (|load| load.pace = Pace::Open { per_second: 0.0 }, "rate has to be"),
        (|load| load.protocol = Protocol::Http1 { pipelining: 0 }, "1 to 10000"),
        (|load| load.targets[0].method = "G T".into(), "isn't a method"),
        (|load| load.targets[0].fields = vec![("Connection".into(), "x".into())], "is set by the load"),
    ];
    for (spoil, expected) in cases {
        let mut load = load_on("http://127.0.0.1:1/", 1);
        spoil(&mut load);
        let error = run(&load, &mut ()).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_is_no_url_is_refused() {
    let cases = [
        ("ftp://h/", "its scheme is ftp"),
        ("/path", "begin with http"),
        ("http://user@h/", "user name"),
        ("http://h/a b", "invalid"),
    ];
    for (url, expected) in cases {
        let error = Target::at(url).expect_err(url).to_string();
        assert!(error.contains(expected) && error.contains(url), "{error}");
    }
}
