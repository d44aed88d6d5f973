//! The whole server, through its sockets.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use clap::Parser;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::{
    OriginOptions, run,
    server::{BoundAddresses, OriginError},
};

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    origin: OriginOptions,
}

/// An origin under test. It stops on a signal, or with the runtime of the test.
struct Origin {
    addresses: BoundAddresses,
    stop: oneshot::Sender<()>,
    end: JoinHandle<Result<(), OriginError>>,
}

impl Origin {
    async fn start() -> Self {
        Self::start_with(&[]).await
    }

    async fn start_with(arguments: &[&str]) -> Self {
        let fixed = ["origin", "--listen", "127.0.0.1:0", "--workers", "1", "--cpu-ms", "0"];
        let options = CommandLine::parse_from(fixed.iter().chain(arguments)).origin;
        let (announce, announced) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let announce = |addresses: &BoundAddresses| announce.send(addresses.clone()).unwrap();
        let end = tokio::spawn(run(options, announce, async move { _ = stopped.await }));
        Self { addresses: announced.await.unwrap(), stop, end }
    }

    fn address(&self) -> SocketAddr {
        self.addresses.plain[0]
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }

    async fn get(&self, target: &str) -> Reply {
        self.ask("GET", target, &[], "").await
    }

    async fn get_with(&self, target: &str, fields: &[&str]) -> Reply {
        self.ask("GET", target, fields, "").await
    }

    async fn ask(&self, method: &str, target: &str, fields: &[&str], body: &str) -> Reply {
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        let length = format!("Content-Length: {}\r\n", body.len());
        let framing = if body.is_empty() { "" } else { &length };
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}{framing}\r\n{body}"
        );
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A reset may follow the bytes if the origin breaks the connection on purpose; only the
        // bytes matter.
        _ = stream.read_to_end(&mut answer).await;
        Reply::of(&answer)
    }
}

/// An answer as received, with the head as one text.
#[derive(Debug)]
struct Reply {
    head: String,
    body: Vec<u8>,
}

impl Reply {
    fn of(answer: &[u8]) -> Self {
        let end =
            answer.windows(4).position(|window| window == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
        Self { head: String::from_utf8(answer[..end].to_vec()).unwrap(), body: answer[end..].to_vec() }
    }

    fn status(&self) -> u16 {
        self.head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default()
    }

    fn all(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }

    fn field(&self, name: &str) -> &str {
        self.all(name).first().copied().unwrap_or_default()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

#[tokio::test]
async fn delays_queue_for_their_slots() {
    let origin = Origin::start_with(&["--delay-slots", "2"]).await;
    let begun = Instant::now();
    let asked = futures_util::future::join_all((0..6).map(|_| origin.get("/items/1?delay=100"))).await;
    assert!(asked.iter().all(|reply| reply.status() == 200));
    // Three pairs, one after the other.
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn items_are_the_same_each_time_and_head_equals_get_without_content() {
    let origin = Origin::start().await;
    let (one, again) = (origin.get("/items/1").await, origin.get("/items/1").await);
    assert_eq!(one.body, again.body);
    assert_eq!(one.field("etag"), again.field("etag"));
    assert_ne!(one.body, origin.get("/items/2").await.body);
    assert_eq!(one.field("cache-control"), "public, max-age=60");
    let head = origin.ask("HEAD", "/items/1", &[], "").await;
    assert_eq!(head.body, b"");
    for name in ["content-length", "etag", "last-modified", "content-type"] {
        assert_eq!(head.field(name), one.field(name), "{name}");
        assert_ne!(head.field(name), "", "{name}");
    }
}

#[tokio::test]
async fn knobs_set_fields_verbatim() {
    let origin = Origin::start().await;
    let reply = origin.get("/items/1?cc=max-age=5&cc=public&etag=abc&date=off").await;
    assert_eq!(reply.all("cache-control"), ["max-age=5", "public"]);
    assert_eq!(reply.all("etag"), ["\"abc\""]);
    assert_eq!(reply.all("date"), [""; 0]);
    assert_eq!(origin.get("/items/1?cc=").await.all("cache-control"), [""; 0]);
    let dated = origin.get("/items/1").await;
    httpdate::parse_http_date(dated.field("date")).unwrap();
}

#[tokio::test]
async fn a_malformed_knob_is_refused_and_named() {
    let origin = Origin::start().await;
    let reply = origin.get("/items/1?delay=soon").await;
    assert_eq!(reply.status(), 400);
    assert!(reply.text().starts_with("knob `delay`: `soon` "), "{}", reply.text());
    assert_eq!(reply.field("cache-control"), "no-store");
}

#[tokio::test]
async fn vary_names_the_values_that_the_body_was_made_for() {
    let origin = Origin::start().await;
    let german = origin.get_with("/items/1?vary=Accept-Language", &["Accept-Language: de"]).await;
    assert_eq!(german.field("vary"), "Accept-Language");
    assert!(german.text().contains("accept-language: de"), "{}", german.text());
    serde_json::from_slice::<serde_json::Value>(&german.body).unwrap();
    let absent = origin.get("/items/1?vary=Accept-Language").await;
    assert!(absent.text().contains("accept-language: (absent)"), "{}", absent.text());
    assert_ne!(german.field("etag"), absent.field("etag"));
    let (one, other) = ("/bytes/100?vary=x-a", ["X-A: 1"]);
    assert_ne!(origin.get(one).await.body, origin.get_with(one, &other).await.body);
}

#[tokio::test]
async fn size_pads_and_json_stays_valid() {
    let origin = Origin::start().await;
    let reply = origin.get("/items/1?size=100000").await;
    assert_eq!((reply.body.len(), reply.field("content-length")), (100_000, "100000"));
    serde_json::from_slice::<serde_json::Value>(&reply.body).unwrap();
}

#[tokio::test]
async fn conditions_and_ranges() {
    let origin = Origin::start().await;
    let full = origin.get("/items/1").await;
    let none_match = format!("If-None-Match: {}", full.field("etag"));
    let since = format!("If-Modified-Since: {}", full.field("last-modified"));
    for condition in [&none_match, &since] {
        let reply = origin.get_with("/items/1", &[condition]).await;
        assert_eq!((reply.status(), reply.body.len()), (304, 0), "{condition}");
        assert_eq!(reply.field("cache-control"), "public, max-age=60");
        assert_eq!(reply.all("content-length"), [""; 0]);
    }
    let part = origin.get_with("/items/1", &["Range: bytes=2-5"]).await;
    assert_eq!((part.status(), &part.body[..]), (206, &full.body[2..6]));
    assert_eq!(part.field("content-range"), format!("bytes 2-5/{}", full.body.len()));
    let outside = origin.get_with("/items/1", &["Range: bytes=9999-"]).await;
    assert_eq!(outside.status(), 416);
    assert_eq!(outside.field("content-range"), format!("bytes */{}", full.body.len()));
    let changed = origin.get_with("/items/1", &["Range: bytes=2-5", "If-Range: \"old\""]).await;
    assert_eq!((changed.status(), changed.body), (200, full.body));
    assert_eq!(origin.get_with("/items/1", &["If-Match: \"old\""]).await.status(), 412);
}

#[tokio::test]
async fn a_part_of_a_terabyte_is_served_without_making_it() {
    let origin = Origin::start().await;
    let reply = origin.get_with("/bytes/1000000000000", &["Range: bytes=-16"]).await;
    assert_eq!((reply.status(), reply.body.len()), (206, 16));
    assert_eq!(reply.field("content-range"), "bytes 999999999984-999999999999/1000000000000");
}

#[tokio::test]
async fn chunks_leave_one_after_another() {
    let origin = Origin::start().await;
    let begun = Instant::now();
    let reply = origin.get("/bytes/50?chunk=10&sleep_between=20").await;
    assert_eq!(reply.body, origin.get("/bytes/50").await.body);
    assert!(begun.elapsed() >= Duration::from_millis(80), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn echo_and_methods() {
    let origin = Origin::start().await;
    let echo = origin.ask("PATCH", "/echo/a?b=c", &["X-A: 1", "X-A: 2"], "hello").await;
    let echo: serde_json::Value = serde_json::from_slice(&echo.body).unwrap();
    assert_eq!(
        (&echo["method"], &echo["target"], &echo["body"]),
        (&"PATCH".into(), &"/echo/a?b=c".into(), &"hello".into())
    );
    let headers = echo["headers"].to_string();
    assert!(headers.contains(r#"["x-a","1"],["x-a","2"]"#), "{headers}");
    let refused = origin.ask("POST", "/counters", &[], "").await;
    assert_eq!((refused.status(), refused.field("allow")), (405, "GET, HEAD"));
    assert_eq!(origin.ask("DELETE", "/items/1", &[], "").await.status(), 200);
    assert_eq!(origin.get("/nothing").await.status(), 404);
}

#[tokio::test]
async fn the_products_api_has_lifetimes_and_tags() {
    let origin = Origin::start().await;
    let cases = [
        ("/api/products", "public, max-age=300", "products"),
        ("/api/products/7", "public, max-age=600", "products, product:7"),
        ("/api/products/category/toys", "public, max-age=300", "products, category:toys"),
        ("/api/recommendations/u1", "public, max-age=60", "recommendations"),
        ("/api/stats", "public, max-age=900", "stats"),
        ("/api/products/502", "no-store", ""),
        ("/health", "", ""),
    ];
    for (target, cache_control, tags) in cases {
        let reply = origin.get(target).await;
        assert_eq!(
            (reply.field("cache-control"), reply.field("cache-tags")),
            (cache_control, tags),
            "{target}"
        );
        assert_eq!(reply.field("vary"), "x-some-header", "{target}");
    }
    assert_eq!(origin.get("/api/products/502").await.status(), 404);
}

#[tokio::test]
async fn counters_and_metrics_tell_what_arrived() {
    let origin = Origin::start().await;
    origin.get("/items/1?x").await;
    origin.get("/items/1?x").await;
    origin.get("/items/2").await;
    assert_eq!(origin.get("/counters?url=/items/1?x").await.text(), "2");
    assert_eq!(origin.get("/counters?url=/items/3").await.text(), "0");
    assert_eq!(origin.get("/counters").await.field("x-counters-overflow"), "0");
    let page = origin.get("/metrics").await.text();
    assert!(
        page.contains("mock_origin_requests_total{route=\"/items/:id\",method=\"GET\",status=\"200\"} 3"),
        "{page}"
    );
    assert_eq!(origin.get("/counters").await.text(), "{\n  \"/items/1?x\": 2,\n  \"/items/2\": 1\n}");
}

#[tokio::test]
async fn every_resource_stands_below_the_prefix_and_nowhere_else() {
    let origin = Origin::start_with(&["--prefix", "/mocks"]).await;
    for path in [
        "/",
        "/style.css",
        "/image.svg",
        "/items/1",
        "/bytes/10",
        "/echo/a",
        "/counters",
        "/metrics",
        "/api/products",
        "/api/products/1",
        "/api/products/category/books",
        "/api/recommendations/1",
        "/api/stats",
        "/health",
    ] {
        assert_eq!(origin.get(&format!("/mocks{path}")).await.status(), 200, "{path}");
        let outside = origin.get(path).await;
        assert_eq!(outside.status(), 404, "{path}");
        assert_eq!(outside.text(), "no such resource; /mocks/ lists the resources\n", "{path}");
    }
    let page = origin.get("/mocks").await.text();
    let links: Vec<_> = page.split("=\"/").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(links.len() > 7 && links.iter().all(|link| link.starts_with("mocks/")), "{links:?}");
    assert_eq!(origin.get("/mocks/counters?url=/mocks/items/1").await.text(), "1");
}

#[tokio::test]
async fn tls_offers_both_versions() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [cert, key] = ["origin.crt", "origin.key"].map(|name| folder.path().join(name));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let [cert, key] = [&cert, &key].map(|path| path.to_str().unwrap());
    let tls = ["--tls-listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key];
    let origin = Origin::start_with(&tls).await;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    for protocol in ["h2", "http/1.1"] {
        config.alpn_protocols = vec![protocol.into()];
        let tcp = TcpStream::connect(origin.addresses.tls[0]).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config.clone())).connect(name, tcp).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
        if protocol == "h2" {
            let (status, body) = Http2::connect(TokioIo::new(stream)).await.get("/items/1").await;
            assert_eq!((status, body.is_ok()), (StatusCode::OK, true));
            continue;
        }
        stream.write_all(b"GET /items/1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert_eq!(Reply::of(&answer).status(), 200);
    }
}

#[tokio::test]
async fn http2_by_prior_knowledge() {
    let origin = Origin::start().await;
    let mut client = Http2::connect(TokioIo::new(origin.connect().await)).await;
    let (status, body) = client.get("/items/1").await;
    assert_eq!((status, body.is_ok()), (StatusCode::OK, true));
}

#[tokio::test]
async fn stopping_lets_a_running_exchange_end() {
    let origin = Origin::start().await;
    let mut stream = origin.connect().await;
    stream.write_all(b"GET /bytes/50?chunk=1&sleep_between=2 HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 20];
    stream.read_exact(&mut answer).await.unwrap();
    origin.stop.send(()).unwrap();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(Reply::of(&answer).body.len(), 50);
    timeout(Duration::from_secs(10), origin.end).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let origin = Origin::start().await;
    let taken = origin.address().to_string();
    let options = CommandLine::parse_from(["origin", "--listen", &taken]).origin;
    let error = run(options, |_| {}, async {}).await.unwrap_err().to_string();
    assert_eq!(error, format!("can't listen on {taken}"));
}

/// A client for one HTTP/2 connection.
struct Http2 {
    sender: hyper::client::conn::http2::SendRequest<Empty<Bytes>>,
}

impl Http2 {
    async fn connect<S>(stream: TokioIo<S>) -> Self
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        Self { sender }
    }

    async fn get(
        &mut self,
        target: &str,
    ) -> (StatusCode, Result<http_body_util::Collected<Bytes>, hyper::Error>) {
        let request = Request::get(format!("http://a{target}")).body(Empty::new()).unwrap();
        let response = self.sender.send_request(request).await.unwrap();
        (response.status(), response.into_body().collect().await)
    }
}
