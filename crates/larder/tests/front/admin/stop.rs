//! A stop: no request fails, clients are served until balancers notice, and the drain has limits.

use std::fs;
use std::net::TcpStream;
use std::time::Duration;

use testkit::{ScriptedOrigin, Signal, wait};

use crate::admin::operator::{echoing, ends, halting, lasting, named, site, start, stop};
use crate::admin::steady_clients::{Load, Refused};
use crate::cache::basics::gates;

/// The kernel may complete a handshake between the last accept and the close, which no process can prevent. One such client in three
/// stops is chance; more show that connections were left in the queue.
#[test]
fn a_stop_under_load_fails_no_request() {
    let mut cut_off = 0;
    for signal in [Signal::INT, Signal::TERM, Signal::TERM] {
        let origin = echoing();
        let mut larder = start(&site(&origin, ""));
        let load = Load::start(&larder, 16, Refused::Ends);
        load.wait_for_answers(200);
        larder.signal(signal);
        ends(&mut larder);
        cut_off += load.finish();
    }
    assert!(cut_off <= 1, "{cut_off} clients were connected and got no answer");
}

/// After a stop signal, the process isn't ready, accepts no new clients, and finishes requests in flight. This includes requests that
/// one worker forwards over a connection of another worker, whose clients are gone.
#[test]
fn requests_in_flight_finish_after_the_stop() {
    let (gate, origin) = halting("max-age=60");
    let limits = "[limits]\nhead_read_timeout = \"3s\"\n";
    let mut larder = start(&format!("workers = 4\n{}{limits}", named(&origin, "larder")));
    let (mut unused, mut idle, mut slow) = (larder.client(), larder.client(), larder.client());
    assert_eq!(idle.get("/quick").text(), "helloworld");
    let mut busy: Vec<_> = (0..3).map(|_| larder.client()).collect();
    for (number, busy) in busy.iter_mut().enumerate() {
        busy.send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(busy.head().status(), 200);
    }
    assert_eq!(origin.connections(), busy.len(), "one of them reused the existing connection");
    slow.send("GET /quick HTTP");
    larder.signal(Signal::TERM);
    wait::until_true("it is not ready", || larder.ask_admin("GET", "/ready", "").status() == 503);
    wait::until_true("it accepts no connections", || TcpStream::connect(larder.address()).is_err());
    assert_eq!(larder.ask_admin("GET", "/live", "").status(), 200);
    assert_eq!((idle.rest(), unused.rest()), (vec![], vec![]), "idle connections are closed");
    assert!(!slow.wait_for_bytes(Duration::from_millis(1)), "the time limit for a request isn't over");
    // By now, a worker without requests may have ended.
    assert!(slow.rest().starts_with(b"HTTP/1.1 408"), "this request has begun, but never ends");
    larder.service().assert_runs();
    gate.open();
    busy.iter_mut().for_each(|busy| assert_eq!(busy.bytes(10), b"helloworld"));
    ends(&mut larder);
}

/// Balancers keep sending, also on existing connections, until they notice that the process isn't ready.
#[test]
fn clients_are_served_until_balancers_know_of_the_stop() {
    let origin = lasting();
    let config = |delay: &str| format!("drain_delay = \"{delay}\"\n{}", site(&origin, ""));
    let mut larder = start(&config("1h"));
    let mut kept = larder.client();
    assert_eq!(kept.get("/").status(), 200);
    larder.signal(Signal::TERM);
    wait::until_true("it is not ready", || larder.ask_admin("GET", "/ready", "").status() == 503);
    assert_eq!(kept.get("/").status(), 200, "on an existing connection");
    assert_eq!(larder.get("/").status(), 200, "on a new connection");
    larder.service().assert_runs();
    let status = wait::until("a second signal ends the process immediately", || {
        // Directly after the first signal, it would count as the same request.
        larder.signal(Signal::TERM);
        larder.service().status()
    });
    assert!(status.success(), "{status}");
    assert_eq!(kept.rest(), b"");
    stop(&mut start(&config("50ms")));
}

/// Each request that the limit cuts off has a line in the access log, and one warning gives their number.
#[test]
fn the_drain_limit_ends_requests_that_do_not_end() {
    let (gate, released) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.target() != "/silent" {
            let stored = if exchange.request.target() == "/stored" { "max-age=60" } else { "no-store" };
            let fields = format!("Content-Length: 10\r\nCache-Control: {stored}\r\n");
            exchange.head("200 OK", &fields).send("hello");
        }
        released.pass();
    });
    let settings = "workers = 2\ndrain_limit = \"200ms\"\nlog = { access = \"@dir@/access\" }\n";
    let mut larder = start(&format!("{settings}{}", site(&origin, "")));
    let cases = [("/private", 200, ""), ("/stored", 200, ""), ("/silent", 503, "drain-limit")];
    let mut clients = cases.map(|(target, status, _)| {
        let mut client = larder.client();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        origin.wait_for(target, 1);
        if status == 200 {
            client.head();
        }
        client
    });
    larder.signal(Signal::TERM);
    larder.service().end();
    let log = fs::read_to_string(larder.folder().join("access")).expect("the access log");
    for ((target, status, detail), client) in cases.iter().zip(&mut clients) {
        let expected: &[u8] = if *status == 200 { b"hello" } else { b"" };
        assert_eq!(client.rest(), expected, "{target}: cut off, visibly");
        let mut lines = log.lines().filter(|line| line.contains(&format!("\"{target}\"")));
        let line = lines.next().unwrap_or_else(|| panic!("{target}: {log}"));
        assert!(line.contains(&format!("\"status\":{status},")) && line.contains(detail), "{line}");
        assert!(line.contains("\"cache\":\"error\"") && lines.next().is_none(), "{log}");
    }
    let warnings = larder.stderr();
    assert_eq!(warnings.matches("drain limit reached").count(), 1, "{warnings}");
    gate.open();
}
