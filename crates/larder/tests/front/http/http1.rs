//! HTTP/1.x between client, gateway and origin: framing, persistence, interim responses, upgrades, fields.

use std::time::Duration;

use testkit::{Client, End, Larder, ScriptedOrigin, run};

use crate::cache::basics::{asking, bare, gates, wait_for_waiters, with};

fn passing_interims(origin: &ScriptedOrigin, word: &str) -> Larder {
    with(&format!("@site@interim_responses = \"{word}\"\n"), origin)
}

//= RFC 9112 section 9.3: persistence
//= RFC 9112 section 9.3: an HTTP/1.0 client must be told that the connection stays
//= RFC 9112 section 6.1: no Transfer-Encoding to HTTP/1.0
#[test]
fn http_1_0_clients_get_no_chunks() {
    let origin = ScriptedOrigin::start(|exchange| {
        match exchange.request.target() {
            "/length" => exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "hello"),
            _ => exchange.chunked_head("Cache-Control: no-store\r\n").chunk("hel").chunk("lo").last_chunk(""),
        };
    });
    let larder = bare(&origin);
    let ask = |client: &mut Client, target: &str, fields: &str| {
        client.send(format!("GET {target} HTTP/1.0\r\nHost: a\r\n{fields}\r\n"));
        let response = client.response();
        assert_eq!(response.text(), "hello");
        assert!(!response.head.fields.has("transfer-encoding"), "it has no chunks: {:?}", response.head);
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
    assert_eq!(response.end, End::Closed, "only closing the connection can end it: {:?}", response.head);
}

//= RFC 9112 section 9.6: close is obeyed
//= RFC 9112 section 9.6: close is said
#[test]
fn connection_close_is_obeyed_on_hits_and_misses() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "x");
    let larder = bare(&origin);
    for hit in [false, true] {
        let mut client = larder.client();
        let response = client.ask("GET", "/", "Connection: close\r\n");
        assert_eq!(response.is_hit(), hit);
        assert!(response.head.fields.lists("connection", "close"));
        assert_eq!(client.rest(), b"");
    }
}

/// A client may close its sending side while events arrive, each as soon as the origin sends it.
//= RFC 9112 section 9.6: a client may close its sending side and go on reading
#[test]
fn half_closed_clients_get_the_rest_of_a_private_body() {
    let (gate, passed) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        exchange
            .chunked_head("Content-Type: text/event-stream\r\nCache-Control: no-cache\r\n")
            .chunk("before,");
        passed.pass();
        exchange.chunk("after").last_chunk("");
    });
    let larder = bare(&origin);
    let mut client = larder.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status(), 200);
    assert_eq!(client.chunk(), b"before,");
    client.finish_sending();
    // Gives the gateway time to see the end of the input before more output arrives.
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
    let larder = bare(&origin);
    larder.get("/stored");
    let targets = ["/slow/1", "/stored", "/2", "/stored", "/stored", "/slow/3", "/stored"];
    let request = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: test.example\r\n\r\n");
    let all: String = targets.map(request).concat();
    let mut client = larder.client();
    let check = |client: &mut Client| assert_eq!(targets.map(|_| client.response().text()), targets);
    check(client.send(&all));
    // One byte at a time: the boundaries of reads are not those of messages.
    for byte in all.bytes() {
        client.send([byte]);
    }
    check(&mut client);
    client.send(request("/stored").repeat(1000));
    for _ in 0..1000 {
        let response = client.response();
        assert!(response.is_hit() && response.body == b"/stored");
    }
}

/// All requests that wait for one forward get its interim responses before the final one, including requests that arrive later. Cookies
/// are for the request that was forwarded.
#[test]
fn interim_responses_reach_everybody_who_waits() {
    let (gate, passed) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        passed.pass_step(1);
        exchange.send("HTTP/1.1 103 Early Hints\r\nSet-Cookie: user=a\r\n\r\n");
        exchange.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n");
        passed.pass_step(2);
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "final");
    });
    let larder = passing_interims(&origin, "all");
    let mut clients = vec![asking(&larder, "/", "")];
    origin.wait_for("/", 1);
    clients.push(asking(&larder, "/", ""));
    wait_for_waiters(&larder, 1);
    gate.reach(1);
    assert!(clients[0].head().fields.has("set-cookie"));
    clients.push(asking(&larder, "/", ""));
    for client in &mut clients {
        let head = client.head();
        assert_eq!(
            (head.status(), head.fields.one("link")),
            (103, Some("</a.css>; rel=preload")),
            "{head:?}"
        );
    }
    gate.open();
    for client in &mut clients {
        let response = client.response();
        assert_eq!(
            (response.text().as_str(), response.interim.len()),
            ("final", 0),
            "{:?}",
            response.interim
        );
    }
    assert_eq!(origin.total(), 1);
}

/// Many HTTP/1.1 clients mistake an interim response for the final one.
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
    check(&bare(&origin), &[100], &[100, 102, 103]);
    check(&passing_interims(&origin, "http2"), &[100], &[100, 102, 103]);
    check(&passing_interims(&origin, "all"), &[100, 102, 103], &[100, 102, 103]);
    check(&passing_interims(&origin, "off"), &[100], &[100]);
}

/// The size limit of a head is the same over HTTP/1.1 and HTTP/2: cookie crumbs count as one line, although HTTP/2 adds 32
/// bytes for each.
//= RFC 9113 section 8.2.3: cookie crumbs are joined before they reach anything but HTTP/2
#[test]
fn heads_have_the_same_limits_over_both_protocols() {
    let origin = ScriptedOrigin::fixed("Cache-Control: no-store\r\n", "ok");
    let larder = with("[limits]\nhead_bytes_max = \"16KiB\"\n@site@", &origin);
    for (fields, crumbs, crumb_bytes, expected) in [
        (20, 90, 10, "200"),
        (99, 0, 0, "200"),
        (100, 0, 0, "431"),
        (98, 300, 10, "200"),
        (99, 2, 10, "431"),
        (0, 900, 12, "200"),
        (0, 300, 40, "200"),
        (0, 200, 100, "431"),
    ] {
        let crumbs: Vec<_> = (0..crumbs).map(|number| format!("{number:0>crumb_bytes$}")).collect();
        let fields = (0..fields).map(|number| format!("x-{number}: 1"));
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
            assert_eq!(status, expected, "{} fields, {} crumbs by {version}", fields.len(), crumbs.len());
        }
        if expected == "200" {
            assert_eq!(origin.last("/").field("cookie"), crumbs.join("; "));
        }
    }
    let refused = ["too-many-fields", "head-too-large"]
        .map(|reason| larder.metric("larder_client_errors_total", &[reason]));
    assert_eq!(refused, [4.0, 2.0]);
}

/// Up to 100 interim responses are passed on; more are a failure, whether or not a final response follows.
//= RFC 9110 section 15.2: informational responses
#[test]
fn interim_responses_are_bounded() {
    let origin = ScriptedOrigin::start(|exchange| {
        let target = exchange.request.target().to_owned();
        let hint = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n";
        exchange.send(hint.repeat(if target == "/late" { 101 } else { 100 }));
        while target == "/endless" && !exchange.is_broken() {
            exchange.send(hint.repeat(1000));
        }
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "final");
    });
    let larder = passing_interims(&origin, "all");
    let response = larder.get("/");
    assert_eq!((response.status(), response.text().as_str()), (200, "final"));
    assert!(!response.interim.is_empty() && !response.head.fields.has("link"), "{:?}", response.head);
    let hit = larder.get("/");
    assert!(hit.is_hit() && hit.interim.is_empty(), "{:?}", hit.interim);
    for (target, count) in [("/endless", 1.0), ("/late", 2.0)] {
        let response = larder.get(target);
        let told = "larder; fwd=uri-miss; detail=interim-responses-max";
        assert_eq!((response.status(), &response.cache_status()[..]), (502, told), "{target}");
        let reason = ["reason=\"interim-responses-max\""];
        assert_eq!(larder.metric("larder_origin_errors_total", &reason), count, "{target}");
    }
}

/// A client without `Expect` gets the origin's 100; a client with `Expect: 100-continue` gets one from the gateway.
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
    let larder = bare(&origin);
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

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Bytes that directly follow the 101 or the request belong to the tunnel.
//= RFC 9110 section 7.8: Upgrade
//= RFC 9110 section 7.8: a 101 response names the protocol in Upgrade
#[test]
fn a_tunnel_loses_no_early_bytes() {
    let origin = ScriptedOrigin::start(|exchange| {
        let accept = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
        let fields = format!("Connection: Upgrade\r\nUpgrade: websocket\r\n{accept}");
        exchange.head("101 Switching Protocols", &fields).send("early");
        for _ in 0..3 {
            let bytes = exchange.read_exact(5).expect("bytes of the client");
            exchange.send(bytes);
        }
        exchange.close();
    });
    let larder = bare(&origin);
    let mut client = larder.client();
    let head = client.send(format!("{UPGRADE}hello")).head();
    assert_eq!(head.status(), 101, "{head:?}");
    assert_eq!(head.fields.one("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert!(head.fields.lists("upgrade", "websocket"), "{head:?}");
    assert!(head.fields.lists("connection", "upgrade"), "{head:?}");
    assert_eq!(client.bytes(10), b"earlyhello");
    assert_eq!(client.send("again").bytes(5), b"again");
    assert_eq!(client.send("third").rest(), b"third", "the end of one side ends the tunnel");
    assert_eq!(origin.count("/ws"), 1);
}

/// Field bug (upgrade-before-101): the gateway made a tunnel before the origin agreed, so the next request on the
/// connection bypassed the gateway.
#[test]
fn a_tunnel_does_not_begin_before_101() {
    let origin = ScriptedOrigin::start(|exchange| {
        let target = exchange.request.target().to_owned();
        exchange.respond("200 OK", "Cache-Control: no-store\r\n", target);
    });
    let larder = bare(&origin);
    let mut client = larder.client();
    client.send(UPGRADE).send("GET /second HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n");
    let first = client.response();
    assert_eq!((first.status(), first.text().as_str()), (200, "/ws"));
    // The gateway may close instead of reading on; if it reads on, the second request is an ordinary one.
    if let Ok(second) = client.try_response_to("GET") {
        assert_eq!(second.text(), "/second");
        assert_eq!(origin.last("/second").head.fields.joined("x-forwarded-for"), "127.0.0.1");
    }
}

/// A tunnel carries only a protocol that the client offered. Otherwise client and origin would speak different protocols.
//= RFC 9110 section 7.8: a 101 response names the protocol in Upgrade
//= RFC 9110 section 15.2.2: 101 only answers a request that asked for an upgrade
//= RFC 9110 section 15.6.3: 502
#[test]
fn a_101_for_a_protocol_that_nobody_offered_is_no_tunnel() {
    for (request, chosen, expected) in [
        (UPGRADE, "Upgrade: WebSocket\r\n", 101),
        (UPGRADE, "Upgrade: h2c\r\n", 502),
        (UPGRADE, "Upgrade: websocket, x\r\n", 502),
        (UPGRADE, "", 502),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "Upgrade: websocket\r\n", 502),
    ] {
        let origin = ScriptedOrigin::start(move |exchange| {
            let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n";
            exchange.send(format!("{head}{chosen}\r\n")).close();
        });
        let larder = bare(&origin);
        assert_eq!(larder.client().send(request).head().status(), expected, "{chosen}");
    }
}

/// Field bug (h2c-smuggling): an upgrade to cleartext HTTP/2, passed on to an origin that accepts it, makes a tunnel whose
/// requests the gateway never sees. It is ignored: cleartext HTTP/2 starts with its preface.
//= RFC 9113 section 3.1: h2c is obsolete
#[test]
fn an_upgrade_to_h2c_is_no_tunnel() {
    let origin = ScriptedOrigin::start(|exchange| {
        let upgrade = exchange.request.head.fields.joined("upgrade").to_ascii_lowercase();
        let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n";
        match upgrade.contains("h2c") {
            true => exchange.send(switched),
            false => exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "plain"),
        };
    });
    let larder = bare(&origin);
    let settings = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQC\r\n";
    for (fields, forwarded) in [
        (settings, 1),
        ("Connection: Upgrade\r\nUpgrade: H2C\r\n", 1),
        ("Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n", 2),
        ("Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n", 3),
    ] {
        let response = larder.ask("GET", "/", fields);
        assert_eq!((response.status(), response.text().as_str()), (200, "plain"), "{fields:?}");
        assert_eq!(origin.total(), forwarded, "h2c alone is like any other request: {fields:?}");
    }
    assert!(origin.received().iter().all(|request| !request.head.fields.has("http2-settings")));
}

/// Field bug (hit-drains-body): a hit left the body of its request on the connection, where it was read as the next
/// request.
#[test]
fn a_hit_reads_the_body_of_its_request() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "stored");
    let larder = bare(&origin);
    larder.get("/");
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut client = larder.client();
    for body in [
        format!("Content-Length: {}\r\n\r\n{smuggled}", smuggled.len()),
        format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{smuggled}\r\n0\r\n\r\n", smuggled.len()),
    ] {
        client.send(format!("GET / HTTP/1.1\r\nHost: test.example\r\n{body}"));
        assert_eq!(client.response().text(), "stored");
        assert_eq!(client.get("/next").text(), "stored", "the connection serves the next request");
    }
    assert_eq!(origin.count("/smuggled"), 0);
}
