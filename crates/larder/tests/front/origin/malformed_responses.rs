//! Origins whose bytes belong to no request, or come too early. `conformance/caching/wire.json` and `http1` test malformed responses.

use testkit::{Client, Larder, Response, ScriptedOrigin, wait};

use crate::cache::basics::bare;

/// Bytes that an origin sends before a request, such as a 408 or an attack, answer no request. A Unix socket delivers them as soon as they
/// are sent.
//= RFC 9112 section 6.3: bytes after the response are not its
#[test]
fn bytes_before_a_request() {
    const POISON: &str = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 6\r\n\r\npoison";
    const FAREWELL: &str = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    for early in [POISON, FAREWELL, "\r\n", "x"] {
        let (told, outcome) = std::sync::mpsc::sync_channel(1);
        let folder = tempfile::tempdir().expect("a folder");
        let origin = ScriptedOrigin::start_unix(&folder.path().join("origin"), move |exchange| {
            let target = exchange.request.target().to_owned();
            exchange.respond("200 OK", "Cache-Control: no-store\r\n", &target);
            if target == "/first" {
                exchange.send(early);
                told.send(()).expect("the test waits");
            }
        });
        let larder = bare(&origin);
        for round in 0..20 {
            assert_eq!(larder.get("/first").text(), "/first");
            outcome.recv_timeout(wait::DEADLINE).expect("the origin continues");
            let next = larder.get("/next");
            assert_eq!((next.status(), next.text().as_str()), (200, "/next"), "{early:?}, round {round}");
        }
    }
}

/// An origin that answers before it has the whole request: the client gets the response, and neither side treats the rest of the body as a
/// request.
//= RFC 9112 section 9.3: persistence
#[test]
fn answers_before_the_request_is_whole() {
    for closes in [false, true] {
        let origin = ScriptedOrigin::start(move |exchange| {
            let target = exchange.request.target().to_owned();
            exchange.respond("200 OK", "Cache-Control: no-store\r\n", &target);
            if exchange.request.method() == "POST" && closes {
                exchange.close();
            }
        });
        let larder = bare(&origin);
        for size in [10_usize, 100_000] {
            let mut client = larder.client();
            client.send(format!("POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n"));
            let response = client.response_to("POST");
            assert_eq!((response.status(), response.text().as_str()), (200, "/early"), "{closes} {size}");
            // The gateway may have closed the connection instead of reading the rest.
            let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n".repeat(size);
            let _ = client.try_send(&smuggled.as_bytes()[..size]);
            assert_eq!(again(&mut client, &larder, "/next").text(), "/next", "{closes} {size}");
            assert_eq!(larder.get("/other").text(), "/other", "{closes} {size}");
        }
        assert_eq!(origin.count("/smuggled"), 0, "{closes}");
    }
}

/// Sends a request on the client's connection if it is still open, or else on a new one.
fn again(client: &mut Client, larder: &Larder, target: &str) -> Response {
    let asked = client.try_send(format!("GET {target} HTTP/1.1\r\nHost: test.example\r\n\r\n"));
    asked.and_then(|()| client.try_response_to("GET")).unwrap_or_else(|_| larder.get(target))
}
