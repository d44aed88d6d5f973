//! Origins over HTTP/2: stream limits of connections, and features that HTTP/2 lacks.

use testkit::{Authority, Larder, Nginx, Port, ScriptedOrigin};

use super::connections::start;

/// nginx in front of an origin, with these parameters of `listen`. It accepts 128 streams per connection and refuses more.
fn nginx(port: &Port, listen: &str, directives: &str, origin: &ScriptedOrigin) -> Nginx {
    let (address, url) = (port.address(), origin.url());
    Nginx::start(&format!(
        "listen {address} {listen};
        {directives}
        location / {{ proxy_pass {url}; }}
        location /ws {{
            proxy_pass {url};
            proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection upgrade;
        }}"
    ))
}

fn larder_before(url: &str, settings: &str) -> Larder {
    start(url, &format!("protocol = \"http2\"\n{settings}"))
}

/// Sends `count` concurrent requests, each on its own connection. Returns the number of responses other than 200.
fn failures_of_crowd(larder: &Larder, method: &str, count: usize) -> usize {
    let mut clients: Vec<_> = (0..count).map(|_| larder.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let content = if method == "POST" { "Content-Length: 4\r\n\r\nbody" } else { "\r\n" };
        client.send(format!("{method} /{number} HTTP/1.1\r\nHost: test.example\r\n{content}"));
    }
    clients.iter_mut().filter_map(|client| (client.response().status() != 200).then_some(())).count()
}

/// Field bug: up to half of 800 concurrent uploads failed, and 1,200 GETs became 2,214 at the origin.
//= RFC 9113 section 8.7: REFUSED_STREAM and streams above GOAWAY's last identifier were not processed
#[test]
fn a_crowd_over_http_2_asks_the_origin_once_each() {
    let port = Port::reserve();
    for (method, crowd, directives) in [
        ("POST", 800, ""),
        ("GET", 1_200, ""),
        // GOAWAY, without RST_STREAM for the streams above its last identifier.
        ("POST", 400, "keepalive_requests 100;"),
        ("POST", 100, "http2_max_concurrent_streams 10;"),
    ] {
        let origin = ScriptedOrigin::start(|exchange| {
            exchange.read_body();
            exchange.delay_ms(20).respond("200 OK", "Cache-Control: no-store\r\n", "ok");
        });
        let _nginx = nginx(&port, "http2", directives, &origin);
        let larder = larder_before(
            &format!("http://{}", port.address()),
            "[origin.pool]\nclient_share_percent = 100\nqueue_timeout = \"30s\"",
        );
        let failures = failures_of_crowd(&larder, method, crowd);
        assert_eq!((failures, origin.total()), (0, crowd), "{method} {directives}");
    }
}

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: test.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fn echoing() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| match exchange.request.target() {
        "/ws" => {
            exchange.send(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            );
            let sent = exchange.read_exact(4).expect("four bytes");
            exchange.send(sent).close();
        }
        _ => _ = exchange.respond("200 OK", "Cache-Control: no-store\r\n", "page"),
    })
}

/// HTTP/2 has no upgrades, so they go over HTTP/1.1.
#[test]
fn a_websocket_in_front_of_an_http_2_origin() {
    let (origin, port, authority) = (echoing(), Port::reserve(), Authority::new());
    let identity = authority.identity(&["127.0.0.1"]);
    let directives = format!(
        "ssl_certificate {}; ssl_certificate_key {}; add_header X-Protocol $server_protocol;",
        identity.certificate.display(),
        identity.key.display()
    );
    let _nginx = nginx(&port, "ssl http2", &directives, &origin);
    let settings = format!("ca_file = \"{}\"", authority.file().display());
    let larder = larder_before(&format!("https://{}", port.address()), &settings);
    assert_eq!(larder.get("/").field("x-protocol"), "HTTP/2.0");
    for _ in 0..2 {
        let mut client = larder.client();
        client.send(UPGRADE);
        assert_eq!(client.head().status(), 101);
        client.send("ping");
        assert_eq!(client.bytes(4), b"ping");
    }
}

/// A failed upgrade at an origin that only speaks HTTP/2 doesn't count against the origin's health.
#[test]
fn a_websocket_where_the_origin_speaks_http_2_alone() {
    let (origin, port) = (echoing(), Port::reserve());
    let _nginx = nginx(&port, "http2", "", &origin);
    let larder = larder_before(&format!("http://{}", port.address()), "[origin.breaker]\nrequests_min = 1");
    for _ in 0..3 {
        let mut client = larder.client();
        client.send(UPGRADE);
        let response = client.response();
        assert_eq!(response.status(), 502, "{:?}", response.head);
        assert!(
            response.cache_status().contains("detail=http-upgrade-failed"),
            "{}",
            response.cache_status()
        );
    }
    assert_eq!(larder.get("/").text(), "page");
    assert!(larder.metric("larder_origin_breaker_opened_total", &[]) < 0.5);
    assert_eq!(larder.metric("larder_origin_errors_total", &["reason=\"http-upgrade-failed\""]), 3.0);
    let (log, url) = (larder.stderr(), format!("http://{}", port.address()));
    assert!(log.contains("an upgrade needs HTTP/1.1") && log.contains(&url), "{log}");
}
