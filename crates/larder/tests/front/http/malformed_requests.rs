//! Requests that must not be forwarded: they get the right status, the connection closes, and nothing reaches
//! the origin.

use std::time::Duration;

use testkit::{End, Larder, ScriptedOrigin, Setup};

use crate::LARDER;

const CONFIG: &str = r#"
[limits]
head_bytes_max = "4KiB"
target_bytes_max = 256
fields_max = 20
body_bytes_max = "1KiB"
@limits@
[[site]]
name = "a"
origin = "@origin@"
"#;

struct Pair {
    origin: ScriptedOrigin,
    larder: Larder,
}

impl Pair {
    fn start(limits: &str) -> Self {
        let origin = ScriptedOrigin::fixed("Cache-Control: no-store\r\n", "forwarded");
        let config = CONFIG.replace("@origin@", &origin.url()).replace("@limits@", limits);
        let larder = Setup::config(LARDER, &config).start();
        Self { origin, larder }
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

/// One case of each refusal; `http1` tests all cases.
//= RFC 9112 section 2.2: message parsing
//= RFC 9112 section 5.2: obsolete line folding
//= RFC 9112 section 3: request-line = method SP request-target SP HTTP-version
//= RFC 9112 section 3.2: request target
//= RFC 9112 section 3.2: 400 for an invalid request target, which is not corrected
#[test]
fn malformed_heads_are_refused() {
    let pair = Pair::start("");
    for (name, request, status) in [
        ("bare LF everywhere", "GET / HTTP/1.1\nHost: a\n\n", 400),
        ("bare LF after a field", "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400),
        ("bare LF at the end", "GET / HTTP/1.1\r\nHost: a\r\n\n", 400),
        ("bare CR in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400),
        ("bare CR in the request line", "GET /\r HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("obs-fold", "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", 400),
        ("whitespace before the first field", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
        ("space before the colon", "GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n", 400),
        ("no colon", "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", 400),
        ("NUL in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", 400),
        ("NUL in a name", "GET / HTTP/1.1\r\nHost: a\r\nX\0: b\r\n\r\n", 400),
        ("TLS on a plain port", "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\r\n\r\n", 400),
        ("HTTP/0.9", "GET /\r\n\r\n", 400),
        ("space in the target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("fragment in the target", "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("control byte in the target", "GET /\u{1} HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("asterisk with GET", "GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("version of two digits", "GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400),
        ("version 2.0", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        ("no Host", "GET / HTTP/1.1\r\nX: y\r\n\r\n", 400),
        ("two Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 400),
        ("Host with user information", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400),
        ("absolute-form with another Host", "GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", 400),
        ("absolute-form of another scheme", "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("unknown expectation", "POST / HTTP/1.1\r\nHost: a\r\nExpect: x\r\nContent-Length: 1\r\n\r\nx", 417),
    ] {
        pair.check(name, request, status);
    }
}

/// Framing that an origin may interpret differently from the gateway.
//= RFC 9112 section 6.1: chunked is applied once, and last; 501 for codings that are not understood
//= RFC 9112 section 6.3: message body length
//= RFC 9111 section 7.1: differences in message parsing
#[test]
fn ambiguous_framing_is_refused() {
    let pair = Pair::start("");
    for (fields, status) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", 400),
        ("Content-Length: 5\r\nContent-Length: 6", 400),
        ("Content-Length: 5\r\nContent-Length: 5", 400),
        ("Content-Length: 5, 5", 400),
        ("Content-Length: +5", 400),
        ("Content-Length: 0x5", 400),
        ("Content-Length:", 400),
        ("Content-Length: 99999999999999999999", 400),
        ("Transfer-Encoding: gzip", 400),
        ("Transfer-Encoding: identity", 400),
        ("Transfer-Encoding: chunked, gzip", 400),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip", 400),
        ("Transfer-Encoding: chunked, chunked", 400),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: gzip, chunked", 501),
        ("Transfer-Encoding: chunked;q=1", 400),
        ("Transfer-Encoding: xchunked", 400),
        ("Transfer-Encoding: \"chunked\"", 400),
        ("Transfer-Encoding:", 400),
        ("Transfer-Encoding:\u{b}chunked", 400),
    ] {
        pair.check(fields, &format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"), status);
    }
    let old = "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    pair.check("TE in HTTP/1.0", old, 400);
}

/// Heads and declared bodies. A head that never ends is refused as soon as it is too large.
//= RFC 9112 section 3: a method longer than any implemented gets 501, a target longer than wished 414
//= RFC 6585 section 5: 431 for large fields
//= RFC 9110 section 15.5.14: 413
#[test]
fn oversized_requests_are_refused() {
    let pair = Pair::start("");
    let (long, endless) = ("x".repeat(5000), "X".repeat(8 << 10));
    let many: String = (0..30).map(|number| format!("X-{number}: y\r\n")).collect();
    let head = |start: &str, fields: &str| format!("{start}\r\nHost: a\r\n{fields}\r\n");
    for (name, request, status) in [
        ("target", head(&format!("GET /{} HTTP/1.1", "x".repeat(300)), ""), 414),
        ("target longer than a head may be", head(&format!("GET /{long} HTTP/1.1"), ""), 414),
        ("value", head("GET / HTTP/1.1", &format!("X: {long}\r\n")), 431),
        ("name", head("GET / HTTP/1.1", &format!("{long}: x\r\n")), 431),
        ("number of fields", head("GET / HTTP/1.1", &many), 431),
        ("method", head(&format!("{} / HTTP/1.1", "X".repeat(300)), ""), 501),
        ("declared body", head("POST / HTTP/1.1", "Content-Length: 1025\r\n"), 413),
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
    let larder =
        Setup::config(LARDER, &CONFIG.replace("@origin@", &origin.url()).replace("@limits@", "")).start();
    for (name, body, status) in [
        ("no hexadecimal size", "xyz\r\n", 400),
        ("size beyond 64 bits", "fffffffffffffffff\r\n", 400),
        ("bare LF after the size", "5\nhello\r\n0\r\n\r\n", 400),
        ("data longer than its size", "5\r\nhello!\r\n0\r\n\r\n", 400),
        ("bare LF in an extension", "5;a\nb\r\nhello\r\n0\r\n\r\n", 400),
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
        let larder = Setup::origin(LARDER, &origin.url()).start();
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
    let pair = Pair::start("head_read_timeout = \"300ms\"");
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

#[test]
fn unusual_requests_that_are_right_pass() {
    let pair = Pair::start("");
    for request in [
        "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET HTTP://A/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: \t a \t\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 005\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n5;a=b;c=\"d e\"\r\nhello\r\n000\r\n\r\n",
        "GET /a\"{}?a[]=b|c^`{}' HTTP/1.1\r\nHost: a\r\nX: \u{fc}\r\nEmpty:\r\n\r\n",
    ] {
        let response = pair.larder.client().send(request).response();
        assert_eq!((response.status(), response.text().as_str()), (200, "forwarded"), "{request:?}");
    }
}
