//! The content of requests: its cost on the way to the origin, its framing there, and how slowly it may arrive.

use std::fs;
use std::time::Duration;

use testkit::{Client, Larder, ScriptedOrigin, run, wait};

use super::real_clients::Secured;
use super::slow_clients::frames::Http2;
use crate::cache::basics::{bare, with};

const MIB: usize = 1 << 20;

/// An origin that reads all content and answers with its length.
fn origin() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        let bytes = exchange.read_body().len().to_string();
        exchange.respond("200 OK", "Cache-Control: no-store\r\n", bytes);
    })
}

/// The process's writes that the kernel counts: those to a file, and vectored ones, such as a piece of a body with its framing.
fn writes(larder: &mut Larder) -> u64 {
    let counts = fs::read_to_string(format!("/proc/{}/io", larder.service().id())).expect("it runs");
    let count = counts.lines().find_map(|line| line.strip_prefix("syscw: ")).expect("the kernel counts");
    count.parse().expect("a number")
}

/// Sends the head alone, as many libraries, TLS and balancers do.
fn behind_its_head(larder: &Larder, framing: &str, content: impl FnOnce(&mut Client)) -> String {
    let mut client = larder.client();
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n{framing}\r\n\r\n"));
    assert_eq!(client.head().status(), 100);
    content(&mut client);
    client.response().text()
}

fn in_chunks_of(chunk_bytes: usize, larder: &Larder, bytes: usize) -> String {
    behind_its_head(larder, "Transfer-Encoding: chunked", |client| {
        let chunk = format!("{chunk_bytes:x}\r\n{}\r\n", "x".repeat(chunk_bytes));
        client.send(chunk.repeat(bytes / chunk_bytes)).send("0\r\n\r\n");
    })
}

/// A way to send content.
enum Way {
    Length,
    Chunks(usize),
    Curl(&'static str, &'static str),
}

impl Way {
    /// Sends `bytes` bytes, and returns the body of the response.
    fn upload(&self, gateway: &Secured, bytes: usize) -> String {
        match *self {
            Self::Length => behind_its_head(&gateway.larder, &format!("Content-Length: {bytes}"), |client| {
                client.send(vec![b'x'; bytes]);
            }),
            Self::Chunks(chunk_bytes) => in_chunks_of(chunk_bytes, &gateway.larder, bytes),
            Self::Curl(scheme, version) => {
                let file = gateway.larder.folder().join("content");
                fs::write(&file, vec![b'x'; bytes]).expect("a file");
                let content = format!("@{}", file.display());
                let more = ["-H", "Content-Type: application/octet-stream", "--data-binary", &content];
                String::from_utf8(gateway.body((scheme, version), "/", &more)).expect("a number")
            }
        }
    }
}

/// Bodies are forwarded in pieces as large as the bytes that have arrived, regardless of the size of the head, chunks or TLS
/// records.
#[test]
fn uploads_go_on_in_large_pieces() {
    const WRITES_PER_MIB_MAX: u64 = 96;
    let origin = origin();
    let mut gateway = Secured::start(&origin, "", &["a.example"]);
    for (name, way, bytes) in [
        ("with a length", Way::Length, 16 * MIB),
        ("in chunks", Way::Chunks(32 << 10), 16 * MIB),
        ("in small chunks", Way::Chunks(128), 4 * MIB),
        ("TLS", Way::Curl("https", "--http1.1"), 16 * MIB),
        ("HTTP/2", Way::Curl("http", "--http2-prior-knowledge"), 16 * MIB),
        ("HTTP/2 with TLS", Way::Curl("https", "--http2"), 16 * MIB),
    ] {
        let before = writes(&mut gateway.larder);
        assert_eq!(way.upload(&gateway, bytes), bytes.to_string(), "{name}");
        let per_mib = (writes(&mut gateway.larder) - before) / (bytes / MIB) as u64;
        assert!(per_mib <= WRITES_PER_MIB_MAX, "{name}: {per_mib} writes for each MiB");
    }
}

/// Some origins answer chunked content with 411, or ignore it.
#[test]
fn short_content_gets_its_length() {
    let origin = origin();
    let larder = bare(&origin);
    let check = |method: &str, content: &str, framing: (&str, &str), version: &str| {
        let received = origin.last("/");
        let found = (received.field("content-length"), received.field("transfer-encoding"));
        assert_eq!(found, framing, "{method} {content:?} {version}");
        assert_eq!(received.body, content.as_bytes(), "{method} {version}");
    };
    type Framing = (&'static str, &'static str);
    let cases: [(&str, &[&str], &str, Framing); 7] = [
        ("POST", &["hello"], "", ("5", "")),
        ("POST", &["hel", "lo"], "", ("5", "")),
        ("POST", &[], "", ("0", "")),
        ("PATCH", &[], "", ("0", "")),
        ("GET", &[], "", ("", "")),
        ("DELETE", &["x"], "", ("1", "")),
        ("POST", &["hello"], "X-Sum: 1\r\n", ("", "chunked")),
    ];
    for (method, pieces, trailers, framing) in cases {
        let chunks: String = pieces.iter().map(|piece| format!("{:x}\r\n{piece}\r\n", piece.len())).collect();
        let head = "Host: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n";
        let mut client = larder.client();
        client.send(format!("{method} / HTTP/1.1\r\n{head}{chunks}0\r\n{trailers}\r\n"));
        assert_eq!(client.response_to(method).status(), 200);
        let content = pieces.concat();
        check(method, &content, framing, "HTTP/1.1");
        if trailers.is_empty() {
            let usual = ["-sf", "--max-time", "60", "--http2-prior-knowledge", "-X", method];
            let lengthless = ["-H", "Content-Length:", "-H", "Transfer-Encoding: chunked"];
            let rest = ["--data-binary", &content, &larder.url("/")];
            run("curl", [&usual[..], &lengthless, &rest].concat()).succeeded();
            check(method, &content, framing, "HTTP/2");
        }
    }
}

/// Content that is longer than the gateway's buffer, or that arrives too slowly, is sent in chunks.
#[test]
fn long_and_slow_content_goes_on_in_chunks() {
    let origin = origin();
    let larder = bare(&origin);
    assert_eq!(in_chunks_of(32 << 10, &larder, 128 << 10), (128 << 10).to_string());
    assert_eq!(origin.last("/").field("transfer-encoding"), "chunked");
    let mut client = larder.client();
    client.wait_at_most(Duration::from_secs(20));
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
    wait::until_true("the origin has the head", || origin.total() == 2);
    client.send("0\r\n\r\n");
    assert_eq!(client.response().text(), "1");
    assert_eq!(origin.last("/").field("transfer-encoding"), "chunked");
}

/// Answers `/duplex` before it reads the content, and all other targets afterwards.
fn conversing() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        if !exchange.request.target().starts_with("/duplex") {
            let bytes = exchange.read_body().len().to_string();
            exchange.respond("200 OK", "Cache-Control: no-store\r\n", bytes);
            return;
        }
        exchange.chunked_head("Cache-Control: no-store\r\n").chunk("begun");
        let bytes = exchange.read_body().len().to_string();
        exchange.chunk(bytes).last_chunk("");
    })
}

const PATIENT_RULE: &str =
    "[[site.rule]]\npath = { prefix = \"/patient\" }\nbody_read_timeout = \"5m\"\nbody_rate_min = 0\n";

fn with_limits(origin: &ScriptedOrigin, limits: &str, rule: &str) -> Larder {
    with(&format!("[limits]\n{limits}\n@site@{rule}"), origin)
}

/// A client that stops after the beginning of its content.
fn stopped(larder: &Larder, target: &str) -> Client {
    let mut client = larder.client();
    client.send(format!("POST {target} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"));
    client
}

fn cut(larder: &Larder) -> f64 {
    larder.metric("larder_client_errors_total", &["request-body-timeout"])
}

/// Waits for twice the read timeout of a client without a rule, by letting two such clients run into it.
fn wait_until_others_are_cut(larder: &Larder) {
    for _ in 0..2 {
        assert_eq!(stopped(larder, "/other").response().status(), 408);
    }
}

#[test]
fn slow_content_has_the_limits_of_its_rule() {
    for limits in ["body_read_timeout = \"1s\"", "body_rate_min = \"1MiB\"\nbody_read_timeout = \"1s\""] {
        let origin = conversing();
        let larder = with_limits(&origin, limits, PATIENT_RULE);
        let mut patient = stopped(&larder, "/patient");
        let mut http2 = Http2::connect(larder.address());
        http2.request("POST", "/patient").data(b"x");
        wait_until_others_are_cut(&larder);
        patient.send("0\r\n\r\n");
        assert_eq!(patient.response().text(), "1", "{limits}");
        assert_eq!(http2.end().status(), 200, "{limits}");
        assert_eq!(cut(&larder), 2.0, "{limits}");
        let log = larder.stderr();
        assert!(
            log.contains("a request body exceeded its limits") && log.contains("path=\"/other\""),
            "{log}"
        );
    }
}

/// A gRPC stream that waits for the other side is not a slow upload.
#[test]
fn an_upload_may_pause_after_its_answer_has_begun() {
    let origin = conversing();
    let larder = with_limits(&origin, "body_read_timeout = \"1s\"", "");
    let mut client = stopped(&larder, "/duplex");
    assert_eq!((client.head().status(), client.chunk()), (200, b"begun".to_vec()));
    let mut http2 = Http2::connect(larder.address());
    http2.request("POST", "/duplex").data(b"x");
    assert_eq!(http2.status(), 200);
    http2.wait_for_data();
    wait_until_others_are_cut(&larder);
    client.send("2\r\nyz\r\n0\r\n\r\n");
    assert_eq!(client.chunk(), b"3");
    http2.data(b"yz").end().wait_for_data();
    assert_eq!(cut(&larder), 2.0);
}

/// Such an upload ends like an idle tunnel, and the log reports it.
#[test]
fn an_upload_does_not_pause_for_ever_after_its_answer_has_begun() {
    let origin = conversing();
    let larder = with_limits(&origin, "tunnel_idle_timeout = \"1s\"", "");
    let mut client = stopped(&larder, "/duplex");
    assert_eq!(client.head().status(), 200);
    let mut http2 = Http2::connect(larder.address());
    http2.request("POST", "/duplex/2").data(b"x");
    assert_eq!(http2.status(), 200);
    wait::until_true("both are cut", || cut(&larder) == 2.0);
    assert_eq!(client.rest(), b"5\r\nbegun\r\n");
    wait::until_true("its stream is reset", || !http2.is_open());
    let log = larder.stderr();
    assert!(log.contains("path=\"/duplex\"") && log.contains("path=\"/duplex/2\""), "{log}");
}

/// The response says `Connection: close` if the rest of the content is, or may be, too long to be read.
//= RFC 9112 section 9.6: close is said
#[test]
fn early_answers_say_whether_the_connection_ends() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.respond("401 Unauthorized", "WWW-Authenticate: Basic\r\n", "who?").close();
    });
    let rule = "[[site.rule]]\npath = { prefix = \"/denied\" }\ndeny = true\n";
    let larder = with_limits(&origin, "", rule);
    let (length, chunked) = ("Content-Length", "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
    for (target, content, status, connection) in [
        ("/", format!("{length}: 1000000\r\n\r\nx"), 401, "close"),
        ("/", format!("{length}: 1000\r\n\r\nx"), 401, ""),
        ("/", chunked.to_owned(), 401, "close"),
        ("/denied", format!("{length}: 1000000\r\n\r\nx"), 403, "close"),
        ("/denied", format!("{length}: 1000\r\n\r\nx"), 403, ""),
        ("/denied", chunked.to_owned(), 403, "close"),
        ("/denied", format!("{chunked}0\r\n\r\n"), 403, ""),
    ] {
        let mut client = larder.client();
        client.send(format!("POST {target} HTTP/1.1\r\nHost: a\r\n{content}"));
        let response = client.response();
        let found = (response.status(), response.field("connection"));
        assert_eq!(found, (status, connection), "{target} {content}");
    }
}
