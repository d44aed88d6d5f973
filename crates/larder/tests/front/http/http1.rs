//! HTTP/1.x between client, gateway and origin: framing, persistence, interim responses, upgrades, fields.

use std::time::Duration;

use testkit::{Client, End, Gate, Larder, Response, ScriptedOrigin, Setup, run, wait};

use crate::LARDER;

fn in_front_of(origin: &ScriptedOrigin) -> Larder {
    Setup::origin(LARDER, &origin.url()).start()
}

fn passing_interims(origin: &ScriptedOrigin, word: &str) -> Larder {
    let url = origin.url();
    let config = format!("[[site]]\nname = \"a\"\norigin = \"{url}\"\ninterim_responses = \"{word}\"\n");
    Setup::config(LARDER, &config).start()
}

/// Sends what it got back: method, body and trailers; chunked if the request was.
fn echo() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        let body = exchange.request.body.clone();
        match exchange.request.head.fields.has("transfer-encoding") {
            true => exchange.chunked_head("").chunk(body).last_chunk(""),
            false => exchange.respond("200 OK", "", body),
        };
    })
}

//= RFC 9112 section 9.3: persistence
//= RFC 9112 section 9.3: an HTTP/1.0 client must be told that the connection stays
//= RFC 9112 section 6.1: no Transfer-Encoding to HTTP/1.0
#[test]
fn http_1_0_clients() {
    let origin = ScriptedOrigin::start(|exchange| {
        match exchange.request.target() {
            "/length" => exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "hello"),
            _ => exchange.chunked_head("Cache-Control: no-store\r\n").chunk("hel").chunk("lo").last_chunk(""),
        };
    });
    let larder = in_front_of(&origin);
    let ask = |client: &mut Client, target: &str, fields: &str| {
        client.send(format!("GET {target} HTTP/1.0\r\nHost: a\r\n{fields}\r\n"));
        let response = client.response();
        assert_eq!(response.text(), "hello");
        assert!(
            !response.head.fields.has("transfer-encoding"),
            "HTTP/1.0 has no chunks: {:?}",
            response.head
        );
        response
    };
    for _ in 0..2 {
        let mut client = larder.client();
        ask(&mut client, "/length", "");
        assert_eq!(client.rest(), b"", "it closes without keep-alive");
    }
    let mut client = larder.client();
    for _ in 0..3 {
        let response = ask(&mut client, "/length", "Connection: keep-alive\r\n");
        assert!(response.head.fields.lists("connection", "keep-alive"), "{:?}", response.head);
    }
    let response = ask(&mut client, "/unknown-length", "Connection: keep-alive\r\n");
    assert_eq!(response.end, End::Closed, "only the close can end it: {:?}", response.head);
}

//= RFC 9112 section 6.3: a response ended by the close of the connection
#[test]
fn http_1_0_origins() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.send("HTTP/1.0 200 OK\r\nCache-Control: max-age=60\r\n\r\nhello").close();
    });
    let larder = Setup::origin(LARDER, &origin.url()).arguments(&["--profile", "rfc9111"]).start();
    let mut client = larder.client();
    for hit in [false, true] {
        let response = client.get("/");
        assert_eq!(
            (response.text().as_str(), response.end, response.is_hit()),
            ("hello", End::Complete, hit)
        );
    }
    let via = client.get("/").head.fields.joined("via");
    assert_eq!(via, "1.0 larder", "the version that was received");
}

//= RFC 9112 section 9.6: close is obeyed
//= RFC 9112 section 9.6: close is said
#[test]
fn connection_close_is_obeyed_on_hits_and_misses() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "x");
    let larder = in_front_of(&origin);
    for hit in [false, true] {
        let mut client = larder.client();
        let response = client.ask("GET", "/", "Connection: close\r\n");
        assert_eq!(response.is_hit(), hit);
        assert!(response.head.fields.lists("connection", "close"));
        assert_eq!(client.rest(), b"");
    }
}

/// A client may say that it sends nothing more, and still wants its answer.
#[test]
fn half_closed_clients_get_their_answer() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.delay_ms(50).respond("200 OK", "Cache-Control: max-age=60\r\n", "hello");
    });
    let larder = in_front_of(&origin);
    for hit in [false, true] {
        let mut client = larder.client();
        client.send("GET / HTTP/1.1\r\nHost: test.example\r\n\r\n").finish_sending();
        let response = client.response();
        assert_eq!((response.text().as_str(), response.is_hit()), ("hello", hit));
    }
}

/// The same for a body that comes for this client alone, after the client closed its side.
//= RFC 9112 section 9.6: a client may close its sending side and go on reading
#[test]
fn half_closed_clients_get_the_rest_of_a_private_body() {
    let gate = Gate::new();
    let passed = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        exchange.chunked_head("Cache-Control: no-store\r\n").chunk("before,");
        passed.pass();
        exchange.chunk("after").last_chunk("");
    });
    let larder = in_front_of(&origin);
    let mut client = larder.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status(), 200);
    assert_eq!(client.chunk(), b"before,");
    client.finish_sending();
    // Time for the gateway to see the end of the input before there is more to send.
    assert!(!client.wait_for_bytes(Duration::from_millis(100)), "neither data nor the end of the connection");
    gate.open();
    assert_eq!(client.chunk(), b"after");
    assert_eq!(client.chunk(), b"");
}

//= RFC 9112 section 9.3.2: pipelining
#[test]
fn pipelined_requests_are_answered_in_order() {
    let origin = ScriptedOrigin::start(|exchange| {
        let target = exchange.request.target().to_owned();
        exchange.delay_ms(if target.contains("slow") { 50 } else { 0 });
        let cc = if target.contains("stored") { "max-age=60" } else { "no-store" };
        exchange.respond("200 OK", &format!("Cache-Control: {cc}\r\n"), target);
    });
    let larder = in_front_of(&origin);
    larder.get("/stored");
    let targets = ["/slow/1", "/stored", "/2", "/stored", "/stored", "/slow/3", "/stored"];
    let request = |target: &&str| format!("GET {target} HTTP/1.1\r\nHost: test.example\r\n\r\n");
    let all: String = targets.iter().map(request).collect();
    let mut client = larder.client();
    client.send(&all);
    let bodies: Vec<String> = targets.iter().map(|_| client.response().text()).collect();
    assert_eq!(bodies, targets);

    // The same with a byte at a time: no boundary of a read is a boundary of a message.
    for byte in all.bytes() {
        client.send([byte]);
    }
    let bodies: Vec<String> = targets.iter().map(|_| client.response().text()).collect();
    assert_eq!(bodies, targets);
}

#[test]
fn a_thousand_pipelined_hits() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "x".repeat(1000));
    let larder = in_front_of(&origin);
    larder.get("/");
    let mut client = larder.client();
    client.send("GET / HTTP/1.1\r\nHost: test.example\r\n\r\n".repeat(1000));
    for _ in 0..1000 {
        let response = client.response();
        assert!(response.is_hit() && response.body.len() == 1000);
    }
}

//= RFC 9110 section 10.1.1: Expect
#[test]
fn expect_100_continue() {
    let origin = echo();
    let larder = in_front_of(&origin);
    for framing in ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
        let mut client = larder.client();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n{framing}\r\n"));
        assert_eq!(client.head().status(), 100);
        client.send(if framing.contains("chunked") { "5\r\nhello\r\n0\r\n\r\n" } else { "hello" });
        assert_eq!(client.response().text(), "hello", "{framing}");
    }
    let mut refused = larder.client();
    refused.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        1_u64 << 40
    ));
    let response = refused.response();
    assert_eq!((response.status(), response.interim.len()), (413, 0), "nobody asked for that body");
}

#[test]
fn request_bodies_arrive_unchanged() {
    let origin = echo();
    let larder = in_front_of(&origin);
    let mut random = testkit::Random::new(7);
    let mut client = larder.client();
    for size in [0, 1, 100, 5_000, 70_000, 3_000_000] {
        let body = random.bytes(size);
        let head = "POST / HTTP/1.1\r\nHost: a\r\n";
        client.send(format!("{head}Content-Length: {size}\r\n\r\n")).send(&body);
        let response = client.response();
        assert!(response.body == body, "Content-Length: {size}, status {}", response.status());

        client.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n"));
        for piece in body.chunks(size / 3 + 1) {
            client.send(format!("{:x};x=y\r\n", piece.len())).send(piece).send("\r\n");
        }
        client.send("0\r\n\r\n");
        let response = client.response();
        assert!(response.body == body, "chunked: {size}, status {}", response.status());
    }
}

//= RFC 9110 section 6.5.1: trailers only to clients that said TE: trailers
//= RFC 9111 section 3.1: trailer fields are stored apart or discarded
//= RFC 9110 section 10.1.4: TE: trailers
//= RFC 9110 section 6.5.1: limitations on use of trailers
//= RFC 9112 section 7.1.2: chunked trailer section
#[test]
fn trailers_travel_both_ways() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        let fields = "Cache-Control: max-age=60\r\nTrailer: X-Sum\r\n";
        exchange.chunked_head(fields).chunk("hello").last_chunk("X-Sum: 42\r\n");
    });
    let larder = in_front_of(&origin);
    for (target, trailer) in [("/a", Some("42")), ("/b", None)] {
        let fields = if trailer.is_some() { "TE: trailers\r\nConnection: TE\r\n" } else { "" };
        let mut client = larder.client();
        let response = client.ask("GET", target, fields);
        let got = (response.text(), response.trailers.one("x-sum"));
        assert_eq!(got, ("hello".to_owned(), trailer), "{:?}", response.head);
        assert_eq!(response.field("trailer"), "X-Sum");
        // A cache may leave trailer fields out of what it stores, and announces none then; the body is whole either way.
        let hit = client.ask("GET", target, fields);
        assert_eq!((hit.text().as_str(), hit.head.fields.has("trailer")), ("hello", false), "{:?}", hit.head);
    }
    let mut client = larder.client();
    client.send("POST /up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Up\r\n\r\n");
    client.send("2\r\nhi\r\n0\r\nX-Up: 7\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(client.response().status(), 200);
    let received = origin.last("/up");
    assert_eq!((received.body.as_slice(), received.trailers.one("x-up")), (&b"hi"[..], Some("7")));
    assert!(
        !received.trailers.has("content-length"),
        "a framing field is no trailer: {:?}",
        received.trailers
    );
}

//= RFC 9110 section 7.6.1: fields named in Connection are removed with it
//= RFC 9110 section 7.6.1: known connection-specific fields are removed
//= RFC 9110 section 5.1: unrecognized fields are forwarded
#[test]
fn hop_by_hop_fields_stop_here() {
    const HOP: [&str; 7] = [
        "x-mine",
        "keep-alive",
        "proxy-connection",
        "te",
        "upgrade",
        "proxy-authenticate",
        "transfer-encoding",
    ];
    let origin = ScriptedOrigin::start(|exchange| {
        let fields = "Connection: x-mine\r\nX-Mine: 1\r\nKeep-Alive: timeout=5\r\nX-Kept: 1\r\n\
                      Proxy-Connection: keep-alive\r\nCache-Control: max-age=60\r\n";
        exchange.respond("200 OK", fields, "x");
    });
    let larder = in_front_of(&origin);
    let fields = "Connection: keep-alive, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: timeout=5\r\nTE: gzip\r\n\
                  Proxy-Connection: keep-alive\r\nX-Kept: 1\r\n";
    for _ in 0..2 {
        let response = larder.ask("GET", "/", fields);
        assert_eq!(response.field("x-kept"), "1");
        for name in HOP {
            assert!(!response.head.fields.has(name), "{name} reached the client: {:?}", response.head);
        }
    }
    let received = origin.last("/");
    assert_eq!(received.field("x-kept"), "1");
    for name in HOP {
        assert!(!received.head.fields.has(name), "{name} reached the origin: {:?}", received.head);
    }
}

/// Field bug: a client names an end-to-end field in Connection to keep it from the origin.
#[test]
fn connection_cannot_remove_what_the_gateway_says() {
    let origin = ScriptedOrigin::fixed("Cache-Control: no-store\r\n", "x");
    let larder = in_front_of(&origin);
    for name in ["X-Forwarded-For", "Via", "CDN-Loop", "Forwarded"] {
        let refused = larder.ask("GET", "/", &format!("Connection: close, {name}\r\n"));
        assert_eq!(refused.status(), 400, "{name}");
    }
    larder.ask("GET", "/", "Connection: close, X-Own\r\n");
    let received = origin.last("/");
    for name in ["x-forwarded-for", "via", "host", "forwarded"] {
        assert!(received.head.fields.has(name), "{name}: {:?}", received.head);
    }
}

//= RFC 9110 section 7.6.3: Via
//= RFC 7239 section 4: Forwarded
//= RFC 9110 section 7.6.3: Via in responses
#[test]
fn the_way_of_a_request_is_described_by_those_who_are_trusted() {
    let origin = ScriptedOrigin::fixed("Cache-Control: no-store\r\nVia: 1.1 inner\r\n", "x");
    let claims = "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil.example\r\n\
                  Forwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nVia: 1.1 outer\r\n";
    let larder = in_front_of(&origin);
    let response = larder.ask("GET", "/", claims);
    assert_eq!(response.head.fields.joined("via"), "1.1 inner, 1.1 larder");
    let received = origin.last("/");
    assert_eq!(received.head.fields.joined("x-forwarded-for"), "127.0.0.1");
    assert_eq!(received.head.fields.joined("x-forwarded-proto"), "http");
    assert_eq!(received.head.fields.joined("x-forwarded-host"), "test.example");
    assert_eq!(received.head.fields.joined("via"), "1.1 outer, 1.1 larder");
    let forwarded = received.head.fields.joined("forwarded");
    assert!(forwarded.contains("for=127.0.0.1") && !forwarded.contains("6.6.6.6"), "{forwarded}");
    assert!(!received.head.fields.has("x-real-ip"));

    let trusting = "trusted_proxies = [\"127.0.0.0/8\"]\n[[site]]\nname = \"a\"\norigin = \"@origin@\"\n";
    let larder = Setup::config(LARDER, &trusting.replace("@origin@", &origin.url())).start();
    larder.ask("GET", "/trusted", claims);
    let received = origin.last("/trusted");
    assert_eq!(received.head.fields.joined("x-forwarded-for"), "6.6.6.6, 127.0.0.1");
    assert_eq!(received.head.fields.joined("x-forwarded-proto"), "https");
    assert_eq!(received.head.fields.joined("x-forwarded-host"), "evil.example");
    let forwarded = received.head.fields.joined("forwarded");
    let way = "host=\"evil.example\";proto=https";
    assert_eq!(forwarded, format!("for=6.6.6.6;{way}, for=127.0.0.1;{way}"));
}

//= RFC 9110 section 15.2: informational responses
//= RFC 9110 section 15.2: no 1xx to HTTP/1.0 clients
//= RFC 8297 section 2: 103 says nothing about the final response
//= RFC 8297 section 3: 103 only for clients that know it
#[test]
fn interim_responses_come_before_the_final_one() {
    let gate = Gate::new();
    let seen = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        exchange.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n");
        exchange.send("HTTP/1.1 102 Processing\r\n\r\n");
        seen.pass();
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "final");
    });
    let larder = passing_interims(&origin, "all");
    let mut client = larder.client();
    client.send("GET / HTTP/1.1\r\nHost: test.example\r\n\r\n");
    let early = client.head();
    assert_eq!((early.status(), early.fields.one("link")), (103, Some("</a.css>; rel=preload")));
    assert_eq!(client.head().status(), 102);
    gate.open();
    let response = client.response();
    assert_eq!((response.status(), response.text().as_str()), (200, "final"));
    assert!(client.get("/").is_hit());

    let mut old = larder.client();
    old.send("GET /old HTTP/1.0\r\nHost: test.example\r\n\r\n");
    let response = old.response();
    assert_eq!((response.status(), response.interim.len()), (200, 0), "HTTP/1.0 knows no interim responses");
}

/// Who waits for another request's forward gets its hints, but not its cookies.
#[test]
fn a_cookie_in_an_interim_response_is_for_the_request_that_asked() {
    for (word, leader, waiter) in
        [("all", &[true, false][..], &[false][..]), ("http2", &[], &[]), ("off", &[], &[])]
    {
        check_waiting_for_hints(word, leader, waiter);
    }
}

fn check_waiting_for_hints(word: &str, of_leader: &[bool], of_waiter: &[bool]) {
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        released.pass();
        exchange.send("HTTP/1.1 103 Early Hints\r\nSet-Cookie: user=a\r\n\r\n");
        exchange.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n");
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "final");
    });
    let larder = passing_interims(&origin, word);
    let request = "GET / HTTP/1.1\r\nHost: test.example\r\n\r\n";
    let (mut leader, mut waiter) = (larder.client(), larder.client());
    leader.send(request);
    origin.wait_for("/", 1);
    waiter.send(request);
    wait::until_true("one waits", || larder.metric("larder_collapsed_waiters", &[]) >= 1.0);
    gate.open();
    let early = |response: &Response| {
        let fields = response.interim.iter().map(|head| head.fields.has("set-cookie"));
        fields.collect::<Vec<_>>()
    };
    assert_eq!(early(&leader.response()), of_leader, "{word}");
    assert_eq!(early(&waiter.response()), of_waiter, "{word}");
}

/// Many clients of HTTP/1.1 take the first response for the final one.
//= RFC 8297 section 3: 103 only for clients that know it
#[test]
fn interim_responses_reach_who_can_take_them() {
    let origin = ScriptedOrigin::start(|exchange| {
        for status in ["100 Continue", "102 Processing", "103 Early Hints"] {
            exchange.send(format!("HTTP/1.1 {status}\r\n\r\n"));
        }
        exchange.respond("200 OK", "Cache-Control: no-store\r\n", "final");
    });
    let check = |larder: &Larder, http1: &[u16], http2: &[u16]| {
        let response = larder.get("/");
        let interim: Vec<u16> = response.interim.iter().map(testkit::Head::status).collect();
        assert_eq!((interim.as_slice(), response.text().as_str()), (http1, "final"));
        let text = run("nghttp", ["--verbose", "--no-dep", &larder.url("/")]).succeeded().text();
        let statuses = text.lines().filter_map(|line| line.split_once(":status: ")?.1.trim().parse().ok());
        let statuses: Vec<u16> = statuses.collect();
        assert_eq!(statuses, [http2, &[200]].concat(), "{text}");
    };
    check(&in_front_of(&origin), &[100], &[100, 102, 103]);
    check(&passing_interims(&origin, "http2"), &[100], &[100, 102, 103]);
    check(&passing_interims(&origin, "all"), &[100, 102, 103], &[100, 102, 103]);
    check(&passing_interims(&origin, "off"), &[100], &[100]);
}

/// A head over both protocols.
struct BothWays {
    fields: usize,
    crumbs: usize,
    crumb_bytes: usize,
    status: &'static str,
}

/// What is too much, is so over HTTP/1.1 and HTTP/2 alike: crumbs are one line, and HTTP/2 counts 32 bytes for each.
//= RFC 9113 section 8.2.3: cookie crumbs are joined before they reach anything but HTTP/2
#[test]
fn heads_have_the_same_limits_over_both_protocols() {
    const CASES: [BothWays; 8] = [
        BothWays { fields: 20, crumbs: 90, crumb_bytes: 10, status: "200" },
        BothWays { fields: 99, crumbs: 0, crumb_bytes: 0, status: "200" },
        BothWays { fields: 100, crumbs: 0, crumb_bytes: 0, status: "431" },
        BothWays { fields: 98, crumbs: 300, crumb_bytes: 10, status: "200" },
        BothWays { fields: 99, crumbs: 2, crumb_bytes: 10, status: "431" },
        BothWays { fields: 0, crumbs: 900, crumb_bytes: 12, status: "200" },
        BothWays { fields: 0, crumbs: 300, crumb_bytes: 40, status: "200" },
        BothWays { fields: 0, crumbs: 200, crumb_bytes: 100, status: "431" },
    ];
    let origin = ScriptedOrigin::fixed("Cache-Control: no-store\r\n", "ok");
    let url = origin.url();
    let config =
        format!("[limits]\nhead_bytes_max = \"16KiB\"\n[[site]]\nname = \"a\"\norigin = \"{url}\"\n");
    let larder = Setup::config(LARDER, &config).start();
    for case in CASES {
        let crumbs: Vec<_> =
            (0..case.crumbs).map(|number| format!("{number:0>width$}", width = case.crumb_bytes)).collect();
        let fields = (0..case.fields).map(|number| format!("x-{number}: 1"));
        let joined = (!crumbs.is_empty()).then(|| format!("cookie: {}", crumbs.join("; ")));
        let as_crumbs = crumbs.iter().map(|crumb| format!("cookie: {crumb}"));
        let ways: [(&str, Vec<String>); 2] = [
            ("--http1.1", fields.clone().chain(joined).collect()),
            ("--http2-prior-knowledge", fields.clone().chain(as_crumbs).collect()),
        ];
        for (version, lines) in ways {
            let usual = ["-s", "--max-time", "60", "-o", "/dev/null", "-w", "%{http_code}", version];
            let unsaid = ["-H", "User-Agent:", "-H", "Accept:"];
            let lines: Vec<&str> = lines.iter().flat_map(|line| ["-H", line]).collect();
            let status = run("curl", [&usual[..], &unsaid, &lines, &[&larder.url("/")]].concat()).text();
            let (fields, crumbs) = (case.fields, case.crumbs);
            assert_eq!(status, case.status, "{fields} fields and {crumbs} crumbs by {version}");
        }
        if case.status == "200" {
            assert_eq!(origin.last("/").field("cookie"), crumbs.join("; "));
        }
    }
    let refused = ["too-many-fields", "head-too-large"]
        .map(|reason| larder.metric("larder_client_errors_total", &[reason]));
    assert_eq!(refused, [4.0, 2.0]);
}

/// Many hints: some reach the client, the final response does, and nothing of them is stored.
//= RFC 9110 section 15.2: informational responses
#[test]
fn interim_responses_are_bounded() {
    let origin = ScriptedOrigin::start(|exchange| {
        let cc = if exchange.request.target() == "/stored" { "max-age=60" } else { "no-store" };
        for number in 0..100 {
            exchange.send(format!("HTTP/1.1 103 Early Hints\r\nLink: </{number}>\r\n\r\n"));
        }
        exchange.respond("200 OK", &format!("Cache-Control: {cc}\r\n"), "final");
    });
    let larder = passing_interims(&origin, "all");
    for target in ["/stored", "/private"] {
        let response = larder.get(target);
        assert_eq!((response.status(), response.text().as_str()), (200, "final"), "{target}");
        let first = response.interim.first().and_then(|head| head.fields.one("link"));
        assert_eq!(first, Some("</0>"), "{target}");
        assert!(!response.head.fields.has("link"), "{:?}", response.head);
    }
    let hit = larder.get("/stored");
    assert!(hit.is_hit() && hit.interim.is_empty(), "{:?}", hit.interim);
}

/// Field bug: as long as there was more to read, no time limit ended the request, and nothing was wrong with its server.
#[test]
fn interim_responses_without_end_are_a_failure() {
    let origin = ScriptedOrigin::start(|exchange| {
        let is_late = exchange.request.target() == "/late";
        if is_late {
            exchange.send("HTTP/1.1 103 Early Hints\r\n\r\n".repeat(101));
            exchange.respond("200 OK", "", "final");
        }
        while !is_late && !exchange.is_broken() {
            exchange.send("HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1000));
        }
    });
    let larder = in_front_of(&origin);
    for (target, count) in [("/", 1.0), ("/late", 2.0)] {
        let response = larder.get(target);
        let told = "larder; fwd=uri-miss; detail=interim-responses-max";
        assert_eq!((response.status(), &response.cache_status()[..]), (502, told), "{target}");
        let reason = ["reason=\"interim-responses-max\""];
        assert_eq!(larder.metric("larder_origin_errors_total", &reason), count, "{target}");
    }
}

/// A client that said nothing of it gets the origin's 100, one that expects it gets one of the gateway.
//= RFC 9110 section 15.2: informational responses
//= RFC 9110 section 10.1.1: Expect
#[test]
fn an_unexpected_100_is_passed_on() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.send(
            "HTTP/1.1 100 Continue\r\nX-Odd: 1\r\nContent-Length: 7\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\n",
        );
        exchange.read_body();
        exchange.respond("200 OK", "Cache-Control: no-store\r\n", "final");
    });
    let larder = in_front_of(&origin);
    let response = larder.get("/");
    assert_eq!((response.text().as_str(), response.interim.len()), ("final", 1), "{:?}", response.interim);
    let interim = &response.interim[0];
    assert_eq!((interim.status(), interim.fields.one("x-odd")), (100, Some("1")));
    for name in ["content-length", "connection", "x-hop", "cache-status"] {
        assert!(!interim.fields.has(name), "{name}: {interim:?}");
    }
    let mut client = larder.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.head().status(), 100);
    let response = client.send("hello").response_to("POST");
    assert_eq!((response.text().as_str(), response.interim.len()), ("final", 0), "{:?}", response.interim);
}

/// Clients that wait for one forward: all of them get its interim responses, also who came after they did.
#[test]
fn interim_responses_reach_everybody_who_waits() {
    let gate = Gate::new();
    let passed = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        exchange.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n");
        passed.pass();
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "final");
    });
    let larder = passing_interims(&origin, "all");
    let mut clients: Vec<Client> = (0..3).map(|_| larder.client()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: test.example\r\n\r\n");
        assert_eq!(client.head().status(), 103);
    }
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().text(), "final");
    }
    assert_eq!(origin.total(), 1);
}

/// A WebSocket frame with this text, masked as clients do.
fn masked_frame(text: &str) -> Vec<u8> {
    let mask = [1, 2, 3, 4];
    let length = u8::try_from(text.len()).expect("a short text");
    let mut frame = vec![0x81, 0x80 | length, 1, 2, 3, 4];
    frame.extend(text.bytes().zip(mask.into_iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

//= RFC 9110 section 7.8: Upgrade
//= RFC 9110 section 7.8: a 101 response names the protocol in Upgrade
#[test]
fn a_websocket_echoes_through_the_gateway() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        );
        while let Ok(header) = exchange.read_exact(2) {
            let length = header[1] & 0x7f;
            let (mask, text) = (exchange.read_exact(4), exchange.read_exact(length.into()));
            let (mask, text) = (mask.expect("a mask"), text.expect("a text"));
            exchange.send([0x81, length]);
            exchange.send(
                text.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect::<Vec<_>>(),
            );
        }
    });
    let larder = in_front_of(&origin);
    let mut client = larder.client();
    client.send(UPGRADE);
    let head = client.head();
    assert_eq!(head.status(), 101, "{head:?}");
    assert_eq!(head.fields.one("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert!(
        head.fields.lists("upgrade", "websocket") && head.fields.lists("connection", "upgrade"),
        "{head:?}"
    );
    for text in ["hello", "again", "and a third one"] {
        client.send(masked_frame(text));
        let header = client.bytes(2);
        assert_eq!(header, [0x81, u8::try_from(text.len()).expect("a short text")]);
        assert_eq!(client.bytes(text.len()), text.as_bytes());
    }
    assert_eq!(origin.count("/ws"), 1);
}

/// Bytes that come right behind the 101, or right behind the request, belong to the tunnel.
#[test]
fn a_tunnel_loses_no_early_bytes() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nearly");
        let bytes = exchange.read_exact(5).expect("what the client sent");
        exchange.send(bytes).close();
    });
    let larder = in_front_of(&origin);
    let mut client = larder.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello");
    assert_eq!(client.head().status(), 101);
    assert_eq!(client.bytes(5), b"early");
    assert_eq!(client.rest(), b"hello", "the end of one side ends the tunnel");
}

/// Field bug (upgrade-before-101): the gateway made a tunnel before the origin agreed, so the next request on the
/// connection went to the origin unseen.
#[test]
fn upgrade_before_101() {
    let origin = ScriptedOrigin::start(|exchange| {
        let target = exchange.request.target().to_owned();
        exchange.respond("200 OK", "Cache-Control: no-store\r\n", target);
    });
    let larder = in_front_of(&origin);
    let mut client = larder.client();
    client.send(UPGRADE).send("GET /second HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n");
    let first = client.response();
    assert_eq!((first.status(), first.text().as_str()), (200, "/ws"));
    // It may close instead of reading on; if it reads on, the second request is an ordinary one.
    if let Ok(second) = client.try_response_to("GET") {
        assert_eq!(second.text(), "/second");
        assert_eq!(origin.last("/second").head.fields.joined("x-forwarded-for"), "127.0.0.1");
    }
}

/// A tunnel is for the protocol that the client offered: for another one, client and origin would not mean the same.
//= RFC 9110 section 7.8: a 101 response names the protocol in Upgrade
#[test]
fn a_101_for_a_protocol_that_nobody_offered_is_no_tunnel() {
    for (chosen, expected) in [
        ("Upgrade: WebSocket\r\n", 101),
        ("Upgrade: h2c\r\n", 502),
        ("Upgrade: websocket, x\r\n", 502),
        ("", 502),
    ] {
        let origin = ScriptedOrigin::start(move |exchange| {
            let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n";
            exchange.send(format!("{head}{chosen}\r\n")).close();
        });
        let larder = in_front_of(&origin);
        let mut client = larder.client();
        client.send(UPGRADE);
        assert_eq!(client.head().status(), expected, "{chosen}");
    }
}

/// Field bug (h2c-smuggling): an upgrade to HTTP/2 in clear, passed on to an origin that agrees, makes a tunnel in which
/// every request goes by the gateway unseen. It is ignored: HTTP/2 in clear starts with its preface.
//= RFC 9113 section 3.1: h2c is obsolete
#[test]
fn h2c_smuggling() {
    let origin = ScriptedOrigin::start(|exchange| {
        let upgrade = exchange.request.head.fields.joined("upgrade").to_ascii_lowercase();
        match upgrade.contains("h2c") {
            true => exchange
                .send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"),
            false => exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "plain"),
        };
    });
    let larder = in_front_of(&origin);
    for (fields, forwarded) in [
        (
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n",
            1,
        ),
        ("Connection: Upgrade\r\nUpgrade: H2C\r\n", 1),
        ("Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n", 2),
        ("Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n", 3),
    ] {
        let response = larder.ask("GET", "/", fields);
        assert_eq!((response.status(), response.text().as_str()), (200, "plain"), "{fields:?}");
        assert_eq!(
            origin.total(),
            forwarded,
            "without another protocol it is like any other request: {fields:?}"
        );
    }
    assert!(origin.received().iter().all(|request| !request.head.fields.has("http2-settings")));
}

/// An upgrade that nobody asked for is no tunnel.
//= RFC 9110 section 15.2.2: 101 only answers a request that asked for an upgrade
//= RFC 9110 section 15.6.3: 502
#[test]
fn a_101_without_an_upgrade_request_is_a_bad_response() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange
            .send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
            .close();
    });
    assert_eq!(in_front_of(&origin).get("/").status(), 502);
}

/// Field bug (hit-drains-body): a hit left the request's body on the connection, where it was read as a request.
#[test]
fn hit_drains_body() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "stored");
    let larder = in_front_of(&origin);
    larder.get("/");
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut client = larder.client();
    for body in [
        format!("Content-Length: {}\r\n\r\n{smuggled}", smuggled.len()),
        format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{smuggled}\r\n0\r\n\r\n", smuggled.len()),
    ] {
        client.send(format!("GET / HTTP/1.1\r\nHost: test.example\r\n{body}"));
        assert_eq!(client.response().text(), "stored");
        assert_eq!(client.get("/next").text(), "stored", "the connection goes on with the next request");
    }
    assert_eq!(origin.count("/smuggled"), 0);
}

/// Field bug (second-range-on-keepalive): what a range request left behind changed the next one.
#[test]
fn second_range_on_keepalive() {
    let body: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", body.clone());
    let larder = in_front_of(&origin);
    let mut client = larder.client();
    for (range, first, last) in
        [("0-99", 0, 99), ("50000-59999", 50_000, 59_999), ("0-0", 0, 0), ("-1", 99_999, 99_999)]
    {
        let response = client.ask("GET", "/", &format!("Range: bytes={range}\r\n"));
        assert!(response.body == body[first..=last], "{range}: {:?}", response.head);
        let whole = client.get("/");
        assert!(whole.status() == 200 && whole.body == body, "whole after {range}");
    }
}

/// A body that the origin never ends must not hold the head or the bytes back.
#[test]
fn events_arrive_live() {
    let (gate, steps) = (Gate::new(), 20);
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        exchange.chunked_head("Content-Type: text/event-stream\r\nCache-Control: no-cache\r\n");
        for step in 1..=steps {
            released.pass_step(step);
            exchange.chunk(format!("data: {step}\n\n"));
        }
        exchange.last_chunk("");
    });
    let larder = in_front_of(&origin);
    let mut client = larder.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n");
    let head = client.head();
    assert_eq!(head.fields.one("content-type"), Some("text/event-stream"));
    for step in 1..=steps {
        gate.reach(step);
        assert_eq!(String::from_utf8_lossy(&client.chunk()), format!("data: {step}\n\n"));
    }
    assert_eq!(client.chunk(), b"");
}

/// Any status of three digits, and its reason phrase as it came, from the origin and from the store.
//= RFC 9110 section 15: unrecognized status codes are treated as x00
//= RFC 9112 section 4: the reason phrase means nothing
#[test]
fn statuses_and_reason_phrases_pass_through() {
    const LINES: [&str; 13] = [
        "200 OK",
        "200 Fine, thanks",
        "200 ",
        "299 Odd but good",
        "299 ",
        "413 Payload Too Large",
        "413 Content Too Large",
        "418 I'm a teapot",
        "418 ",
        "499 Client Closed Request",
        "599 Network Connect Timeout Error",
        "999 Request Denied",
        "999 \tTab and  spaces",
    ];
    let origin = ScriptedOrigin::start(|exchange| {
        let number: usize = exchange.request.target()[1..].parse().expect("a number");
        exchange.respond(LINES[number], "Cache-Control: max-age=60\r\n", "body");
    });
    let larder = in_front_of(&origin);
    for (number, line) in LINES.iter().enumerate() {
        for hit in [false, true] {
            let response = larder.get(&format!("/{number}"));
            assert_eq!(response.head.start, format!("HTTP/1.1 {line}"), "{}", response.cache_status());
            // What is said of one request is not stored.
            let hit = hit && !["413", "499"].iter().any(|status| line.starts_with(status));
            assert_eq!((response.is_hit(), response.text().as_str()), (hit, "body"), "{line}");
        }
    }
}

//= RFC 9112 section 6.3: message body length
#[test]
fn statuses_without_content_have_none() {
    let origin = ScriptedOrigin::start(|exchange| {
        match exchange.request.target() {
            "/204" => exchange.head("204 No Content", "Cache-Control: max-age=60\r\n"),
            _ => exchange.head("200 OK", "Content-Length: 0\r\nCache-Control: max-age=60\r\n"),
        };
    });
    let larder = in_front_of(&origin);
    let mut client = larder.client();
    for _ in 0..2 {
        let empty = client.get("/204");
        assert_eq!(empty.status(), 204);
        for name in ["content-length", "transfer-encoding"] {
            assert!(!empty.head.fields.has(name), "{name}: {:?}", empty.head);
        }
        let zero = client.get("/200");
        assert_eq!((zero.status(), zero.field("content-length")), (200, "0"));
    }
}
