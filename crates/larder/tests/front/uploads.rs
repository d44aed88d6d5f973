//! The content of requests: what it costs on its way to the origin, and how the origin gets it.

use std::fs;
use std::time::Duration;

use testkit::{Authority, Client, Larder, Port, ScriptedOrigin, Setup, run, wait};

use crate::LARDER;

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
