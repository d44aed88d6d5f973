//! The content of requests: what it costs on its way to the origin, how the origin gets it, and how slowly it may come.

use std::fs;
use std::time::Duration;

use testkit::{Authority, Client, Larder, Port, ScriptedOrigin, Setup, run, wait};

use crate::LARDER;
use crate::http::slow_clients::frames::Http2;

const MIB: usize = 1 << 20;

/// An origin that reads all content and says how much it was.
fn origin() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        let bytes = exchange.read_body().len().to_string();
        exchange.respond("200 OK", "Cache-Control: no-store\r\n", bytes);
    })
}

/// Sends content in one way and returns the body of the response.
type Upload = fn(&Larder, &Ways, bytes: usize) -> String;

/// What the ways need beside the gateway.
struct Ways {
    authority: Authority,
    tls: Port,
}

/// What the process has written in calls that the kernel counts: those with several parts, as a piece of a body has with its framing, or to a file.
fn writes(larder: &mut Larder) -> u64 {
    let counts = fs::read_to_string(format!("/proc/{}/io", larder.service().id())).expect("it runs");
    let count = counts.lines().find_map(|line| line.strip_prefix("syscw: ")).expect("the kernel counts");
    count.parse().expect("a number")
}

/// The head comes alone, as with many libraries, with TLS, and behind a balancer.
fn behind_its_head(larder: &Larder, framing: &str, content: impl FnOnce(&mut Client)) -> String {
    let mut client = larder.client();
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n{framing}\r\n\r\n"));
    assert_eq!(client.head().status(), 100);
    content(&mut client);
    client.response().text()
}

fn with_length(larder: &Larder, _: &Ways, bytes: usize) -> String {
    behind_its_head(larder, &format!("Content-Length: {bytes}"), |client| {
        client.send(vec![b'x'; bytes]);
    })
}

fn in_chunks_of(chunk_bytes: usize, larder: &Larder, bytes: usize) -> String {
    behind_its_head(larder, "Transfer-Encoding: chunked", |client| {
        let chunk = format!("{chunk_bytes:x}\r\n{}\r\n", "x".repeat(chunk_bytes));
        client.send(chunk.repeat(bytes / chunk_bytes)).send("0\r\n\r\n");
    })
}

fn in_chunks(larder: &Larder, _: &Ways, bytes: usize) -> String {
    in_chunks_of(32 << 10, larder, bytes)
}

fn in_small_chunks(larder: &Larder, _: &Ways, bytes: usize) -> String {
    in_chunks_of(128, larder, bytes)
}

fn by_curl(larder: &Larder, ways: &Ways, (scheme, version): (&str, &str), bytes: usize) -> String {
    let port = if scheme == "https" { ways.tls.address().port() } else { larder.address().port() };
    let (url, resolve) = (format!("{scheme}://a.example:{port}/"), format!("a.example:{port}:127.0.0.1"));
    let file = larder.folder().join("content");
    fs::write(&file, vec![b'x'; bytes]).expect("a file");
    let (authority, content) = (ways.authority.file(), format!("@{}", file.display()));
    let authority = authority.display().to_string();
    let usual = ["-sf", "--max-time", "120", "--cacert", &authority, "--resolve", &resolve, version];
    let content = ["-H", "Content-Type: application/octet-stream", "--data-binary", &content, &url];
    run("curl", [&usual[..], &content[..]].concat()).succeeded().text()
}

fn by_tls(larder: &Larder, ways: &Ways, bytes: usize) -> String {
    by_curl(larder, ways, ("https", "--http1.1"), bytes)
}

fn by_http2(larder: &Larder, ways: &Ways, bytes: usize) -> String {
    by_curl(larder, ways, ("http", "--http2-prior-knowledge"), bytes)
}

fn by_tls_and_http2(larder: &Larder, ways: &Ways, bytes: usize) -> String {
    by_curl(larder, ways, ("https", "--http2"), bytes)
}

/// Pieces of a body are as large as what arrives, whatever the size of the head, of its chunks or of TLS records.
#[test]
fn uploads_go_on_in_large_pieces() {
    const WRITES_PER_MIB_MAX: u64 = 96;
    const WAYS: [(&str, Upload, usize); 6] = [
        ("with a length", with_length, 16 * MIB),
        ("in chunks", in_chunks, 16 * MIB),
        ("in small chunks", in_small_chunks, 4 * MIB),
        ("TLS", by_tls, 16 * MIB),
        ("HTTP/2", by_http2, 16 * MIB),
        ("HTTP/2 with TLS", by_tls_and_http2, 16 * MIB),
    ];
    let (origin, ways) = (origin(), Ways { authority: Authority::new(), tls: Port::reserve() });
    let identity = ways.authority.identity(&["a.example"]);
    let config = format!(
        "[[listen]]\naddress = \"@listen@\"\n[[listen]]\naddress = \"{}\"\n[[listen.certificates]]\ncert = \"{}\"\nkey = \"{}\"\n\
         [[site]]\nname = \"a\"\norigin = \"{}\"\n",
        ways.tls.address(),
        identity.certificate.display(),
        identity.key.display(),
        origin.url()
    );
    let mut larder = Setup::config(LARDER, &config).start();
    for (name, upload, bytes) in WAYS {
        let before = writes(&mut larder);
        assert_eq!(upload(&larder, &ways, bytes), bytes.to_string(), "{name}");
        let per_mib = (writes(&mut larder) - before) / (bytes / MIB) as u64;
        assert!(per_mib <= WRITES_PER_MIB_MAX, "{name}: {per_mib} writes for each MiB");
    }
}

/// Content whose length the client doesn't say.
struct Unsaid {
    method: &'static str,
    content: &'static [&'static str],
    trailers: &'static str,
    /// What the origin gets: fields of the framing, and content.
    length: &'static str,
    coding: &'static str,
}

const UNSAID: [Unsaid; 7] = [
    Unsaid { method: "POST", content: &["hello"], trailers: "", length: "5", coding: "" },
    Unsaid { method: "POST", content: &["hel", "lo"], trailers: "", length: "5", coding: "" },
    Unsaid { method: "POST", content: &[], trailers: "", length: "0", coding: "" },
    Unsaid { method: "PATCH", content: &[], trailers: "", length: "0", coding: "" },
    Unsaid { method: "GET", content: &[], trailers: "", length: "", coding: "" },
    Unsaid { method: "DELETE", content: &["x"], trailers: "", length: "1", coding: "" },
    Unsaid { method: "POST", content: &["hello"], trailers: "X-Sum: 1\r\n", length: "", coding: "chunked" },
];

/// Some origins answer chunks with 411, or see no content at all.
#[test]
fn short_content_gets_its_length() {
    let origin = origin();
    let larder = Setup::origin(LARDER, &origin.url()).start();
    for case in &UNSAID {
        let chunks: String =
            case.content.iter().map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.len())).collect();
        let mut client = larder.client();
        client.send(format!(
            "{} / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n{chunks}0\r\n{}\r\n",
            case.method, case.trailers
        ));
        assert_eq!(client.response_to(case.method).status(), 200);
        check(&origin, case, "HTTP/1.1");
    }
    let lengthless = |method: &str, content: &str| {
        let fields = ["-H", "Content-Length:", "-H", "Transfer-Encoding: chunked"];
        let usual =
            ["-sf", "--max-time", "60", "--http2-prior-knowledge", "-X", method, "--data-binary", content];
        let url = larder.url("/");
        run("curl", [&usual[..], &fields[..], &[&url]].concat()).succeeded();
    };
    for case in UNSAID.iter().filter(|case| case.trailers.is_empty()) {
        lengthless(case.method, &case.content.concat());
        check(&origin, case, "HTTP/2");
    }
}

fn check(origin: &ScriptedOrigin, case: &Unsaid, version: &str) {
    let received = origin.last("/");
    let found = (received.field("content-length"), received.field("transfer-encoding"));
    let what = format!("{} {:?} {version}", case.method, case.content);
    assert_eq!(found, (case.length, case.coding), "{what}");
    assert_eq!(received.body, case.content.concat().as_bytes(), "{what}");
}

/// What is longer than what is gathered, or not there in time, has no length.
#[test]
fn long_and_slow_content_goes_on_in_chunks() {
    let origin = origin();
    let larder = Setup::origin(LARDER, &origin.url()).start();
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

/// Answers `/duplex` before it reads, and everything else after.
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
    let url = origin.url();
    let config = format!("[limits]\n{limits}\n[[site]]\nname = \"a\"\norigin = \"{url}\"\n{rule}");
    Setup::config(LARDER, &config).start()
}

/// A client that sends no more after the begin of its content.
fn stopped(larder: &Larder, target: &str) -> Client {
    let mut client = larder.client();
    client.send(format!("POST {target} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"));
    client
}

fn cut(larder: &Larder) -> f64 {
    larder.metric("larder_client_errors_total", &["request-body-timeout"])
}

/// Twice as much time as a client has that no rule says anything of, by the answers that such clients get.
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
        assert_eq!(http2.end().response_begins_with(), 0x88, "{limits}");
        assert_eq!(cut(&larder), 2.0, "{limits}");
        let log = larder.stderr();
        assert!(log.contains("a request body was broken off") && log.contains("path=\"/other\""), "{log}");
    }
}

/// A stream of gRPC that waits for its other side is not a slow upload.
#[test]
fn what_is_answered_while_it_is_sent_may_pause() {
    let origin = conversing();
    let larder = with_limits(&origin, "body_read_timeout = \"1s\"", "");
    let mut client = stopped(&larder, "/duplex");
    assert_eq!((client.head().status(), client.chunk()), (200, b"begun".to_vec()));
    let mut http2 = Http2::connect(larder.address());
    http2.request("POST", "/duplex").data(b"x");
    assert_eq!(http2.response_begins_with(), 0x88);
    http2.wait_for_data();
    wait_until_others_are_cut(&larder);
    client.send("2\r\nyz\r\n0\r\n\r\n");
    assert_eq!(client.chunk(), b"3");
    http2.data(b"yz").end().wait_for_data();
    assert_eq!(cut(&larder), 2.0);
}

/// It ends like a tunnel in which nothing moves, and somebody hears of it.
#[test]
fn what_is_answered_while_it_is_sent_does_not_pause_for_ever() {
    let origin = conversing();
    let larder = with_limits(&origin, "tunnel_idle_timeout = \"1s\"", "");
    let mut client = stopped(&larder, "/duplex");
    assert_eq!(client.head().status(), 200);
    let mut http2 = Http2::connect(larder.address());
    http2.request("POST", "/duplex/2").data(b"x");
    assert_eq!(http2.response_begins_with(), 0x88);
    wait::until_true("both are cut", || cut(&larder) == 2.0);
    assert_eq!(client.rest(), b"5\r\nbegun\r\n");
    wait::until_true("its stream is reset", || !http2.is_open());
    let log = larder.stderr();
    assert!(log.contains("path=\"/duplex\"") && log.contains("path=\"/duplex/2\""), "{log}");
}

/// An answer that comes before the end of what it answers.
struct Early {
    target: &'static str,
    framing: &'static str,
    content: &'static str,
    status: u16,
    connection: &'static str,
}

/// Where the rest is too long to be read for the next request, or may be, the answer says that the connection ends.
//= RFC 9112 section 9.6: close is said
#[test]
fn early_answers_say_whether_the_connection_ends() {
    const CASES: [Early; 7] = [
        Early {
            target: "/",
            framing: "Content-Length: 1000000",
            content: "x",
            status: 401,
            connection: "close",
        },
        Early { target: "/", framing: "Content-Length: 1000", content: "x", status: 401, connection: "" },
        Early {
            target: "/",
            framing: "Transfer-Encoding: chunked",
            content: "1\r\nx\r\n",
            status: 401,
            connection: "close",
        },
        Early {
            target: "/denied",
            framing: "Content-Length: 1000000",
            content: "x",
            status: 403,
            connection: "close",
        },
        Early {
            target: "/denied",
            framing: "Content-Length: 1000",
            content: "x",
            status: 403,
            connection: "",
        },
        Early {
            target: "/denied",
            framing: "Transfer-Encoding: chunked",
            content: "1\r\nx\r\n",
            status: 403,
            connection: "close",
        },
        Early {
            target: "/denied",
            framing: "Transfer-Encoding: chunked",
            content: "1\r\nx\r\n0\r\n\r\n",
            status: 403,
            connection: "",
        },
    ];
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.respond("401 Unauthorized", "WWW-Authenticate: Basic\r\n", "who?").close();
    });
    let config = format!(
        "[[site]]\nname = \"a\"\norigin = \"{}\"\n[[site.rule]]\npath = {{ prefix = \"/denied\" }}\ndeny = true\n",
        origin.url()
    );
    let larder = Setup::config(LARDER, &config).start();
    for Early { target, framing, content, status, connection } in CASES {
        let mut client = larder.client();
        client.send(format!("POST {target} HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n{content}"));
        let response = client.response();
        let what = format!("{target} {framing}");
        assert_eq!((response.status(), response.field("connection")), (status, connection), "{what}");
    }
}
