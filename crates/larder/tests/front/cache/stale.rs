//! Stale responses if the origin doesn't answer, for reasons that need special settings. `conformance/caching/stale.json` tests other
//! reasons.

use testkit::{Exchange, Larder, ScriptedOrigin, wait};

use super::basics::{asking, bare, gates, wait_for_waiters, with};

/// Answers with a response that is stale on arrival, with a validator. `/strict` forbids stale use, and `/over` permits it for too
/// short a time.
fn stale(exchange: &mut Exchange<'_>) {
    let extra = match exchange.request.target() {
        "/strict" => ", must-revalidate, stale-if-error=600",
        "/granted" => ", stale-if-error=600",
        "/over" => ", stale-if-error=10",
        _ => "",
    };
    let fields = format!("ETag: \"a\"\r\nAge: 100\r\nCache-Control: max-age=60{extra}\r\n");
    exchange.respond("200 OK", &fields, "stale");
}

/// A gateway with a short queue, this time limit for the first byte, and these targets stored.
fn impatient(origin: &ScriptedOrigin, first_byte: &str, targets: &[&str]) -> Larder {
    let settings = "[[origin]]\nname = \"o\"\nurl = \"@origin@\"\n\
        pool = { requests_in_flight_max = 1, queue_max = 1, queue_timeout = \"100ms\" }\n\
        [[site]]\nname = \"a\"\norigin = \"o\"\n\
        timeouts = { first_byte = \"@first_byte@\", between_bytes = \"60s\", total = \"60s\" }\n";
    let larder = with(&settings.replace("@first_byte@", first_byte), origin);
    targets.iter().for_each(|target| assert_eq!(larder.get(target).status(), 200, "{target}"));
    larder
}

#[track_caller]
fn check(larder: &Larder, cases: &[(&str, u16, &str)]) {
    for (target, status, detail) in cases {
        let response = larder.get(target);
        assert_eq!(response.status(), *status, "{target}: {:?}", response.head);
        assert!(response.cache_status().contains(detail), "{target}: {:?}", response.head);
        assert_eq!(response.head.fields.has("retry-after"), *status == 503, "{target}: {:?}", response.head);
        let told = response.text();
        assert!(!told.contains("127.0.0.1"), "the cause is not disclosed: {told}");
        if *status == 200 {
            assert_eq!((told.as_str(), response.field("age").len()), ("stale", 3), "{target}");
        }
    }
}

//= RFC 9111 section 4.2.4: serving stale responses
//= RFC 9111 section 2: disconnected
#[test]
fn an_origin_that_does_not_answer_in_time() {
    let (gate, released) = gates();
    let origin = ScriptedOrigin::start(move |exchange| match exchange.request.earlier {
        0 => stale(exchange),
        _ => {
            released.pass();
            exchange.close();
        }
    });
    let larder = impatient(&origin, "1s", &["/page", "/strict"]);
    check(&larder, &[("/page", 200, "detail=http-response-timeout"), ("/strict", 504, "fwd=stale")]);
    gate.open();
}

//= RFC 9111 section 4.2.4: serving stale responses
//= RFC 9111 section 2: disconnected
#[test]
fn no_place_among_the_requests_in_flight() {
    let (gate, released) = gates();
    let origin = ScriptedOrigin::start(move |exchange| match exchange.request.target() {
        "/held" => {
            exchange.head("200 OK", "Content-Length: 2\r\nCache-Control: no-store\r\n").send("o");
            released.pass();
            exchange.send("k");
        }
        _ => stale(exchange),
    });
    let larder = impatient(&origin, "60s", &["/page", "/strict"]);
    let mut holder = asking(&larder, "/held", "");
    assert_eq!(holder.head().status(), 200);
    check(&larder, &[("/page", 200, "detail=queue-timeout"), ("/strict", 503, "fwd=stale")]);
    assert_eq!([origin.count("/page"), origin.count("/strict")], [1; 2]);
    gate.open();
    assert_eq!(holder.bytes(2), b"ok");
}

//= RFC 5861 section 4: stale-if-error
//= RFC 9111 section 4.2.4: serving stale responses
//= RFC 9110 section 15.6.3: 502
#[test]
fn a_port_where_nobody_listens() {
    let mut origin = ScriptedOrigin::start(stale);
    let larder = impatient(&origin, "60s", &["/page", "/granted", "/over", "/strict"]);
    origin.stop();
    let refused = "detail=connection-refused";
    let cases = [("/page", 200), ("/granted", 200), ("/strict", 504), ("/over", 502), ("/new", 502)];
    check(
        &larder,
        &cases.map(|(target, status)| (target, status, if status == 200 { refused } else { "fwd=" })),
    );
    origin.start_again();
    assert_eq!(larder.get("/new").status(), 200);
}

/// The staleness that a leader accepts doesn't apply to its waiters.
//= RFC 5861 section 4: of a request or of a response
#[test]
fn the_permission_of_one_request_is_not_that_of_those_who_wait() {
    let (gate, released) = gates();
    let origin = ScriptedOrigin::start(move |exchange| match exchange.request.earlier {
        0 => stale(exchange),
        _ => {
            released.pass();
            exchange.respond("503 Service Unavailable", "", "broken");
        }
    });
    let larder = bare(&origin);
    larder.get("/");
    let leader = asking(&larder, "/", "Cache-Control: stale-if-error=600\r\n");
    origin.wait_for("/", 2);
    let waiters = [asking(&larder, "/", "Cache-Control: stale-if-error=500\r\n"), asking(&larder, "/", "")];
    wait_for_waiters(&larder, 2);
    gate.open();
    let got = [leader].into_iter().chain(waiters).map(|mut client| client.response());
    let got: Vec<_> = got.map(|response| (response.status(), response.text())).collect();
    let (stale, broken) = ((200, "stale".to_owned()), (503, "broken".to_owned()));
    assert_eq!(got, [stale.clone(), stale, broken]);
}

//= RFC 5861 section 3: stale-while-revalidate
//= RFC 5861 section 3: validation without blocking
//= RFC 5861 section 5: validations follow requests
#[test]
fn stale_while_revalidate_answers_at_once_and_validates_behind() {
    let origin = ScriptedOrigin::start(|exchange| {
        let number = exchange.request.earlier;
        let age = if number == 0 { 100 } else { 0 };
        let fields = format!("Age: {age}\r\nCache-Control: max-age=60, stale-while-revalidate=600\r\n");
        exchange.respond("200 OK", &fields, format!("round {number}"));
    });
    let larder = bare(&origin);
    assert_eq!([larder.get("/").text(), larder.get("/").text()], ["round 0"; 2]);
    wait::until_true("the validation ends", || larder.get("/").text() == "round 1");
    assert_eq!(origin.count("/"), 2);
}
