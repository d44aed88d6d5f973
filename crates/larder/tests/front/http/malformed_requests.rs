//! Requests that must not be forwarded: the right status, a closed connection, and an origin that saw nothing.

use std::time::Duration;

use testkit::{Client, End, Larder, ScriptedOrigin, Setup};

use crate::LARDER;

const CONFIG: &str = r#"
[limits]
head_bytes_max = "4KiB"
target_bytes_max = 256
fields_max = 20
body_bytes_max = "1KiB"
[[site]]
name = "a"
origin = "@origin@"
"#;

struct Pair {
    origin: ScriptedOrigin,
    larder: Larder,
}

impl Pair {
    fn start(config: &str) -> Self {
        let origin = ScriptedOrigin::fixed("Cache-Control: no-store\r\n", "forwarded");
        let larder = Setup::config(LARDER, &config.replace("@origin@", &origin.url())).start();
        Self { origin, larder }
    }

    /// The request gets this status, the connection closes, and neither it nor what follows it is forwarded.
    fn check(&self, name: &str, request: &[u8], status: u16) {
        let mut client = self.larder.client();
        // A refusal may come, and the connection close, before the last byte is sent.
        let _ = client.try_send(request);
        let _ = client.try_send("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = client.try_response_to("GET").unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(response.status(), status, "{name}: {:?}", response.head);
        assert_eq!(response.end, End::Complete, "{name}");
        assert!(
            response.head.fields.lists("connection", "close"),
            "{name} says that it closes: {:?}",
            response.head
        );
        assert_eq!(String::from_utf8_lossy(&client.rest()), "", "{name}: nothing follows");
        assert_eq!(self.origin.total(), 0, "{name}: {:?}", self.origin.received());
    }

    fn check_all(&self, cases: &[(&str, &str, u16)]) {
        cases.iter().for_each(|(name, request, status)| self.check(name, request.as_bytes(), *status));
    }

    /// The same with field lines after a good request line and a good Host.
    fn check_fields(&self, cases: &[(&str, &str, u16)]) {
        for (name, fields, status) in cases {
            let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
            self.check(name, request.as_bytes(), *status);
        }
    }
}

//= RFC 9112 section 2.2: message parsing
//= RFC 9112 section 5.2: obsolete line folding
#[test]
fn lines_and_fields() {
    Pair::start(CONFIG).check_all(&[
        ("bare LF everywhere", "GET / HTTP/1.1\nHost: a\n\n", 400),
        ("bare LF after the request line", "GET / HTTP/1.1\nHost: a\r\n\r\n", 400),
        ("bare LF after a field", "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400),
        ("bare LF at the end", "GET / HTTP/1.1\r\nHost: a\r\n\n", 400),
        ("bare CR in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400),
        ("bare CR in the request line", "GET /\r HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("obs-fold with a space", "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", 400),
        ("obs-fold with a tab", "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n\tc\r\n\r\n", 400),
        ("whitespace before the first field", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
        ("space before the colon", "GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n", 400),
        ("space in a name", "GET / HTTP/1.1\r\nHost: a\r\nX Y: b\r\n\r\n", 400),
        ("no colon", "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", 400),
        ("empty name", "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400),
        ("name beyond ASCII", "GET / HTTP/1.1\r\nHost: a\r\nÄ: b\r\n\r\n", 400),
        ("NUL in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", 400),
        ("NUL in a name", "GET / HTTP/1.1\r\nHost: a\r\nX\0: b\r\n\r\n", 400),
        ("control byte in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: \u{1}\r\n\r\n", 400),
        ("DEL in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: \u{7f}\r\n\r\n", 400),
        ("TLS on a plain port", "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\r\n\r\n", 400),
    ]);
}

//= RFC 9112 section 3: request-line = method SP request-target SP HTTP-version
//= RFC 9112 section 3.2: request target
//= RFC 9112 section 3.2: 400 for an invalid request target, which is not corrected
#[test]
fn request_lines_and_hosts() {
    Pair::start(CONFIG).check_all(&[
        ("HTTP/0.9", "GET /\r\n\r\n", 400),
        ("two spaces", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("tab instead of a space", "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("space at the end", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
        ("space in the target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("fragment in the target", "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("fragment in the query", "GET /a?b#c HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("angle in the path", "GET /<a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("angle in the query", "GET /a?b=> HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("quote in the query", "GET /a?b=\" HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("backtick in the path", "GET /` HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("target beyond ASCII", "GET /ä HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("control byte in the target", "GET /\u{1} HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("target without a slash", "GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("asterisk with GET", "GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("method that is no token", "G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("version in small letters", "GET / http/1.1\r\nHost: a\r\n\r\n", 400),
        ("version of two digits", "GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400),
        ("version 2.0", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        ("no Host", "GET / HTTP/1.1\r\nX: y\r\n\r\n", 400),
        ("two Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("the same Host twice", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        ("empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 400),
        ("Host with a space", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("Host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        ("Host with user information", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400),
        ("Host with a bad port", "GET / HTTP/1.1\r\nHost: a:x\r\n\r\n", 400),
        ("Host as a list", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400),
        ("absolute-form with another Host", "GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", 400),
        ("absolute-form with another port", "GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("absolute-form of another scheme", "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("absolute-form with user information", "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("unknown expectation", "POST / HTTP/1.1\r\nHost: a\r\nExpect: x\r\nContent-Length: 1\r\n\r\nx", 417),
    ]);
}

//= RFC 9112 section 6.1: chunked is applied once, and last; 501 for codings that are not understood
//= RFC 9112 section 6.3: message body length
//= RFC 9111 section 7.1: differences in message parsing
#[test]
fn framing() {
    let pair = Pair::start(CONFIG);
    pair.check_fields(&[
        ("CL and TE", "Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
        ("TE and CL", "Transfer-Encoding: chunked\r\nContent-Length: 5", 400),
        ("two CL that differ", "Content-Length: 5\r\nContent-Length: 6", 400),
        ("two CL that agree", "Content-Length: 5\r\nContent-Length: 5", 400),
        ("CL as a list", "Content-Length: 5, 5", 400),
        ("CL with a plus", "Content-Length: +5", 400),
        ("CL with a minus", "Content-Length: -5", 400),
        ("CL in hexadecimal", "Content-Length: 0x5", 400),
        ("CL with a fraction", "Content-Length: 5.0", 400),
        ("CL with a space inside", "Content-Length: 5 5", 400),
        ("empty CL", "Content-Length:", 400),
        ("CL beyond 64 bits", "Content-Length: 99999999999999999999", 400),
        ("TE without chunked", "Transfer-Encoding: gzip", 400),
        ("TE identity", "Transfer-Encoding: identity", 400),
        ("chunked not last", "Transfer-Encoding: chunked, gzip", 400),
        ("chunked not last over two lines", "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip", 400),
        ("chunked twice", "Transfer-Encoding: chunked, chunked", 400),
        ("chunked twice over two lines", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400),
        ("another coding before chunked", "Transfer-Encoding: gzip, chunked", 501),
        ("chunked with a parameter", "Transfer-Encoding: chunked;q=1", 400),
        ("nearly chunked", "Transfer-Encoding: xchunked", 400),
        ("chunked in quotes", "Transfer-Encoding: \"chunked\"", 400),
        ("empty TE", "Transfer-Encoding:", 400),
        ("TE with a vertical tab", "Transfer-Encoding:\u{b}chunked", 400),
    ]);
    pair.check(
        "TE in HTTP/1.0",
        b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    );
}

//= RFC 9112 section 3: a method longer than any implemented gets 501, a target longer than wished 414
//= RFC 6585 section 5: 431 for large fields
//= RFC 9110 section 15.5.14: 413
#[test]
fn oversize_everything() {
    let pair = Pair::start(CONFIG);
    let long = "x".repeat(5000);
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
    ] {
        pair.check(name, request.as_bytes(), status);
    }
}

/// A head that never ends is refused when it is too large, not when it ends.
#[test]
fn endless_heads() {
    let pair = Pair::start(CONFIG);
    for (name, start, status) in
        [("target", "GET /", 414), ("value", "GET / HTTP/1.1\r\nHost: a\r\nX: ", 431), ("method", "", 501)]
    {
        let mut client = pair.larder.client();
        client.send(start);
        // It may close while more arrives.
        let _ = client.try_send("X".repeat(8 << 10));
        let response = client.try_response_to("GET").unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(response.status(), status, "{name}");
        client.rest();
    }
    assert_eq!(pair.origin.total(), 0);
}

/// What comes after the head may be wrong when the forward has begun: then the origin never gets a whole request.
//= RFC 9112 section 7.1: chunked transfer coding
#[test]
fn bodies() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        if !exchange.is_broken() {
            exchange.respond("200 OK", "", "whole");
        }
    });
    let larder = Setup::config(LARDER, &CONFIG.replace("@origin@", &origin.url())).start();
    for (name, body, status) in [
        ("no hexadecimal size", "xyz\r\n", 400),
        ("size with a sign", "+5\r\nhello\r\n0\r\n\r\n", 400),
        ("size with 0x", "0x5\r\nhello\r\n0\r\n\r\n", 400),
        ("size with a space before it", " 5\r\nhello\r\n0\r\n\r\n", 400),
        ("size beyond 64 bits", "fffffffffffffffff\r\n", 400),
        ("bare LF after the size", "5\nhello\r\n0\r\n\r\n", 400),
        ("data longer than its size", "5\r\nhello!\r\n0\r\n\r\n", 400),
        ("bare LF after the data", "5\r\nhello\n0\r\n\r\n", 400),
        ("bare LF in an extension", "5;a\nb\r\nhello\r\n0\r\n\r\n", 400),
        ("trailer without a colon", "5\r\nhello\r\n0\r\nX\r\n\r\n", 400),
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

/// A body that ends too early reaches the origin as one that ends too early.
#[test]
fn a_client_that_leaves_inside_its_body() {
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
        let broken = outcome.recv_timeout(testkit::wait::DEADLINE).expect("the origin hears of it");
        assert!(broken, "{framing:?}: the origin must not take half a body for a whole one");
    }
}

/// The slow-header attack: one deadline for the whole head, however lively the client is.
//= RFC 9110 section 15.5.9: 408
#[test]
fn heads_that_dribble_end_with_408() {
    let config = format!("{CONFIG}\n").replace("[limits]", "[limits]\nhead_read_timeout = \"300ms\"");
    let pair = Pair::start(&config);
    for start in ["G", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX-Slow: "] {
        let mut client = pair.larder.client();
        client.send(start);
        // A byte now and then until the answer is there, or the connection closed.
        testkit::wait::until_true("the answer comes", || {
            client.wait_for_bytes(Duration::from_millis(20)) || client.try_send("a").is_err()
        });
        assert_eq!(client.response().status(), 408, "{start:?}");
        client.rest();
    }
    let mut silent = pair.larder.client();
    assert_eq!(silent.rest(), b"", "a connection without a request closes without an answer");
    assert_eq!(pair.origin.total(), 0);
}

/// RFC 9112 section 2.2: an empty line before the request line is allowed.
#[test]
fn what_is_unusual_and_right() {
    let pair = Pair::start(CONFIG);
    for request in [
        "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET HTTP://A/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nhOsT:a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: \t a \t\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 005\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n5;a=b;c=\"d e\"\r\nhello\r\n000\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: \u{fc}\r\nEmpty:\r\n\r\n",
        "GET /a\"{}?a[]=b|c^`{}' HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let mut client: Client = pair.larder.client();
        client.send(request);
        let response = client.response();
        assert_eq!((response.status(), response.text().as_str()), (200, "forwarded"), "{request:?}");
    }
}
