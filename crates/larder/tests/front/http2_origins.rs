//! Origins over HTTP/2: how many streams a connection takes, and what HTTP/2 can't say.

use testkit::{Larder, Nginx, Port, ScriptedOrigin, Setup};

use crate::LARDER;

/// nginx that listens as `listen` says, in front of an origin. It takes 128 streams of a connection, and refuses more.
fn nginx(port: &Port, listen: &str, directives: &str, origin: &ScriptedOrigin) -> Nginx {
    let (address, url) = (port.address(), origin.url());
    Nginx::start(&format!(
        "listen {address} {listen};
        {directives}
        location / {{ proxy_pass {url}; }}"
    ))
}

fn larder_before(url: &str, settings: &str) -> Larder {
    let config = format!(
        "[[origin]]\nname = \"o\"\nurl = \"{url}\"\nprotocol = \"http2\"\n{settings}\n[[site]]\nname = \"a\"\norigin = \"o\"\n"
    );
    Setup::config(LARDER, &config).start()
}

/// So many requests at once, each on a connection of its own; how many were not answered with 200.
fn failures_of_crowd(larder: &Larder, method: &str, count: usize) -> usize {
    let mut clients: Vec<_> = (0..count).map(|_| larder.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let content = if method == "POST" { "Content-Length: 4\r\n\r\nbody" } else { "\r\n" };
        client.send(format!("{method} /{number} HTTP/1.1\r\nHost: test.example\r\n{content}"));
    }
    clients.iter_mut().filter_map(|client| (client.response().status() != 200).then_some(())).count()
}

/// Field bug: of 800 uploads at once up to half failed, and 1,200 GETs were 2,214 at the origin.
//= RFC 9113 section 8.7: REFUSED_STREAM and streams above GOAWAY's last identifier were not processed
#[test]
fn a_crowd_over_http_2_asks_the_origin_once_each() {
    let port = Port::reserve();
    for (method, crowd, directives) in [
        ("POST", 800, ""),
        ("GET", 1_200, ""),
        // GOAWAY, and no word about the streams behind it.
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
