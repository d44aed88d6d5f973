//! The content of requests: what it costs on its way to the origin.

use std::fs;

use testkit::{Authority, Client, Larder, Port, ScriptedOrigin, Setup, run};

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
