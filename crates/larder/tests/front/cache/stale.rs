//! Stale responses where no answer comes from the origin, for reasons that take a setting of their own. Others are in
//! `conformance/caching/stale.json`.

use testkit::{Gate, Larder, ScriptedOrigin, Setup, wait};

use crate::LARDER;

/// Every response is stale on arrival, and has a validator.
const STALE: &str = "ETag: \"a\"\r\nAge: 100\r\nCache-Control: max-age=60";

/// A short queue, and this limit until the first byte.
fn impatient(origin: &str, first_byte: &str) -> Larder {
    let settings = "[[origin]]\nname = \"o\"\nurl = \"@origin@\"\n\
        pool = { requests_in_flight_max = 1, queue_max = 1, queue_timeout = \"100ms\" }\n\
        [[site]]\nname = \"a\"\norigin = \"o\"\n\
        timeouts = { first_byte = \"@first_byte@\", between_bytes = \"60s\", total = \"60s\" }\n";
    Setup::config(LARDER, &settings.replace("@origin@", origin).replace("@first_byte@", first_byte)).start()
}

#[track_caller]
fn check(larder: &Larder, target: &str, status: u16, detail: &str) {
    let response = larder.get(target);
    assert_eq!(response.status(), status, "{target}: {:?}", response.head);
    assert!(response.cache_status().contains(detail), "{target}: {:?}", response.head);
    if status == 200 {
        assert_eq!((response.text().as_str(), response.field("age").len()), ("stale", 3), "{target}");
    }
}

/// `/strict` forbids stale use.
fn fields(target: &str) -> String {
    let extra = if target == "/strict" { ", must-revalidate" } else { "" };
    format!("{STALE}{extra}\r\n")
}

//= RFC 9111 section 4.2.4: serving stale responses
//= RFC 9111 section 2: disconnected
#[test]
fn an_origin_that_does_not_answer_in_time() {
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.earlier > 0 {
            released.pass();
            exchange.close();
            return;
        }
        let target = exchange.request.target().to_owned();
        exchange.respond("200 OK", &fields(&target), "stale");
    });
    let larder = impatient(&origin.url(), "1s");
    for target in ["/page", "/strict"] {
        assert_eq!(larder.get(target).status(), 200);
    }
    check(&larder, "/page", 200, "detail=http-response-timeout");
    check(&larder, "/strict", 504, "fwd=stale");
    gate.open();
}

//= RFC 9111 section 4.2.4: serving stale responses
//= RFC 9111 section 2: disconnected
#[test]
fn no_place_among_the_requests_in_flight() {
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        let target = exchange.request.target().to_owned();
        if target == "/held" {
            exchange.head("200 OK", "Content-Length: 2\r\nCache-Control: no-store\r\n").send("o");
            released.pass();
            exchange.send("k");
            return;
        }
        exchange.respond("200 OK", &fields(&target), "stale");
    });
    let larder = impatient(&origin.url(), "60s");
    for target in ["/page", "/strict"] {
        assert_eq!(larder.get(target).status(), 200);
    }
    let mut holder = larder.client();
    holder.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(holder.head().status(), 200);
    check(&larder, "/page", 200, "detail=queue-timeout");
    check(&larder, "/strict", 503, "fwd=stale");
    assert_eq!(origin.count("/page"), 1);
    gate.open();
    assert_eq!(holder.bytes(2), b"ok");
}

//= RFC 9111 section 4.2.4: serving stale responses
#[test]
fn a_port_where_nobody_listens() {
    let mut origin = ScriptedOrigin::start(|exchange| {
        let target = exchange.request.target().to_owned();
        exchange.respond("200 OK", &fields(&target), "stale");
    });
    let larder = impatient(&origin.url(), "60s");
    for target in ["/page", "/strict"] {
        assert_eq!(larder.get(target).status(), 200);
    }
    origin.stop();
    check(&larder, "/page", 200, "detail=connection-refused");
    check(&larder, "/strict", 504, "fwd=stale");
}

/// Who waits for another request's forward is not bound to what that request would have taken.
//= RFC 5861 section 4: of a request or of a response
#[test]
fn the_permission_of_one_request_is_not_that_of_those_who_wait() {
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.earlier == 0 {
            exchange.respond("200 OK", &format!("{STALE}\r\n"), "stale");
            return;
        }
        released.pass();
        exchange.respond("503 Service Unavailable", "", "broken");
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    larder.get("/");
    let asker = |fields: &str| {
        let mut client = larder.client();
        client.send(format!("GET / HTTP/1.1\r\nHost: test.example\r\n{fields}\r\n"));
        client
    };
    let mut leader = asker("Cache-Control: stale-if-error=600\r\n");
    origin.wait_for("/", 2);
    let mut waiters = [asker("Cache-Control: stale-if-error=500\r\n"), asker("")];
    wait::until_true("two wait", || larder.metric("larder_collapsed_waiters", &[]) >= 2.0);
    gate.open();
    let got: Vec<_> = [&mut leader].into_iter().chain(&mut waiters).map(|client| client.response()).collect();
    let got: Vec<_> = got.iter().map(|response| (response.status(), response.text())).collect();
    let (stale, broken) = ((200, "stale".to_owned()), (503, "broken".to_owned()));
    assert_eq!(got, [stale.clone(), stale, broken]);
}
