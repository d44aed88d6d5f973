//! Requests that must not be forwarded: they get the right status, the connection closes, and nothing reaches
//! the origin.

use std::time::Duration;

use testkit::{End, Larder, ScriptedOrigin};

use crate::cache::basics::{bare, with};

const LIMITS: &str = "[limits]\nhead_bytes_max = \"4KiB\"\ntarget_bytes_max = 256\n\
                      fields_max = 20\nbody_bytes_max = \"1KiB\"\n";

struct Pair {
    origin: ScriptedOrigin,
    larder: Larder,
}

impl Pair {
    fn start(limits: &str) -> Self {
        let origin = ScriptedOrigin::fixed("Cache-Control: no-store\r\n", "forwarded");
        Self { larder: with(&format!("{LIMITS}{limits}@site@"), &origin), origin }
    }

    /// Checks that the request gets this status, the connection closes, and neither the request nor anything
    /// after it is forwarded.
    fn check(&self, name: &str, request: &str, status: u16) {
        let mut client = self.larder.client();
        // The refusal may arrive, and the connection close, before the last byte is sent.
        let _ = client.try_send(request);
        let _ = client.try_send("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = client.try_response_to("GET").unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(response.status(), status, "{name}: {:?}", response.head);
        assert_eq!(response.end, End::Complete, "{name}");
        assert!(response.head.fields.lists("connection", "close"), "{name}: {:?}", response.head);
        assert_eq!(String::from_utf8_lossy(&client.rest()), "", "{name}: nothing follows");
        assert_eq!(self.origin.total(), 0, "{name}: {:?}", self.origin.received());
    }
}

/// Some cases of each status; `http1` tests all cases. An origin may interpret an ambiguous framing differently from the gateway. A head
/// that never ends is refused as soon as it is too large.
//= RFC 9111 section 7.1: differences in message parsing
//= RFC 9112 section 2.2: message parsing
//= RFC 9112 section 3.2: 400 for an invalid request target, which is not corrected
//= RFC 9112 section 6.1: chunked is applied once, and last; 501 for codings that are not understood
//= RFC 9112 section 6.3: message body length
//= RFC 6585 section 5: 431 for large fields
//= RFC 9110 section 15.5.14: 413
#[test]
fn malformed_and_oversized_requests_are_refused() {
    let pair = Pair::start("");
    let (long, endless) = ("x".repeat(5000), "X".repeat(8 << 10));
    let many: String = (0..30).map(|number| format!("X-{number}: y\r\n")).collect();
    let get = |fields: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let post = |fields: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
    for (name, request, status) in [
        ("bare LF", "GET / HTTP/1.1\nHost: a\n\n".to_owned(), 400),
        ("obs-fold", get("X: b\r\n c\r\n"), 400),
        ("space before the colon", get("X : b\r\n"), 400),
        ("NUL in a value", get("X: a\0b\r\n"), 400),
        ("TLS on a plain port", "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\r\n\r\n".to_owned(), 400),
        ("HTTP/0.9", "GET /\r\n\r\n".to_owned(), 400),
        ("fragment in the target", "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        ("version 2.0", "GET / HTTP/2.0\r\nHost: a\r\n\r\n".to_owned(), 505),
        ("two Hosts", get("Host: b\r\n"), 400),
        ("absolute-form with another Host", "GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n".to_owned(), 400),
        ("unknown expectation", post("Expect: x\r\nContent-Length: 1") + "x", 417),
        ("a length and chunks", post("Content-Length: 5\r\nTransfer-Encoding: chunked"), 400),
        ("two lengths", post("Content-Length: 5\r\nContent-Length: 6"), 400),
        ("a length that is no number", post("Content-Length: +5"), 400),
        ("chunked is not the last coding", post("Transfer-Encoding: chunked, gzip"), 400),
        ("chunked twice", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), 400),
        ("unknown coding", post("Transfer-Encoding: gzip, chunked"), 501),
        ("target", format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", &long[..300]), 414),
        ("value", get(&format!("X: {long}\r\n")), 431),
        ("name", get(&format!("{long}: x\r\n")), 431),
        ("number of fields", get(&many), 431),
        ("method", format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", &long[..300]), 501),
        ("declared body", post("Content-Length: 1025"), 413),
        ("endless target", format!("GET /{endless}"), 414),
        ("endless value", format!("GET / HTTP/1.1\r\nHost: a\r\nX: {endless}"), 431),
        ("endless method", endless, 501),
    ] {
        pair.check(name, &request, status);
    }
}

/// A body may turn out malformed after the forward has begun: the origin never gets a complete request then.
//= RFC 9112 section 7.1: chunked transfer coding
#[test]
fn malformed_chunks_are_refused() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        if !exchange.is_broken() {
            exchange.respond("200 OK", "", "whole");
        }
    });
    let larder = with(&format!("{LIMITS}@site@"), &origin);
    for (name, body, status) in [
        ("no hexadecimal size", "xyz\r\n", 400),
        ("data longer than its size", "5\r\nhello!\r\n0\r\n\r\n", 400),
        ("trailer folded", "5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n", 400),
        ("more than the limit", &format!("800\r\n{}\r\n0\r\n\r\n", "x".repeat(0x800)), 413),
        ("more than the limit in small chunks", &format!("{}0\r\n\r\n", "1\r\nx\r\n".repeat(1100)), 413),
    ] {
        let mut client = larder.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        let _ = client.try_send(body);
        let _ = client.try_send("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = client.try_response_to("POST").unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(response.status(), status, "{name}: {:?}", response.head);
        assert_eq!(String::from_utf8_lossy(&client.rest()), "", "{name}: nothing follows");
    }
    assert_eq!(origin.count("/smuggled"), 0);
}

/// A body that the client cuts short is cut short for the origin too.
#[test]
fn a_client_that_leaves_inside_its_body_breaks_the_forward_off() {
    for framing in ["Content-Length: 10\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"] {
        let (told, outcome) = std::sync::mpsc::sync_channel(1);
        let origin = ScriptedOrigin::start(move |exchange| {
            exchange.read_body();
            told.send(exchange.is_broken()).expect("the test waits");
            exchange.close();
        });
        let larder = bare(&origin);
        let mut client = larder.client();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}"));
        origin.wait_for("/", 1);
        drop(client);
        let broken = outcome.recv_timeout(testkit::wait::DEADLINE).expect("the origin notices it");
        assert!(broken, "{framing:?}: the origin must not mistake half a body for a complete one");
    }
}

/// The slow-header attack: one deadline applies to the whole head, even if bytes keep arriving.
//= RFC 9110 section 15.5.9: 408
#[test]
fn heads_that_dribble_end_with_408() {
    let pair = Pair::start("head_read_timeout = \"300ms\"\n");
    for start in ["G", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX-Slow: "] {
        let mut client = pair.larder.client();
        client.send(start);
        // Sends a byte now and then until the answer arrives or the connection is closed.
        testkit::wait::until_true("the answer arrives", || {
            client.wait_for_bytes(Duration::from_millis(20)) || client.try_send("a").is_err()
        });
        assert_eq!(client.response().status(), 408, "{start:?}");
        client.rest();
    }
    let mut silent = pair.larder.client();
    assert_eq!(silent.rest(), b"", "a connection without a request closes without an answer");
    assert_eq!(pair.origin.total(), 0);
}
