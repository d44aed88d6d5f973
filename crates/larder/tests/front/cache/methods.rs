//! Effects of methods other than GET on stored responses, seen from both sides of the running binary.

use testkit::{Larder, ScriptedOrigin, wait};

use super::basics::{ask_host, bare, gates, with};
use crate::fleet::purge_waits::purge;
use crate::http::slow_clients::frames::Http2;

const STORES_POST: &str = "@site@[[site.rule]]\nstore_post = true\n";

/// Runs `meanwhile` while a request by the second method waits at the origin for a fresh response. The response to the first method, if
/// any, is stored before and stale. Returns the `Cache-Status` of a later `probe`.
fn overtaken((before, method): (&str, &'static str), probe: &str, meanwhile: impl Fn(&Larder)) -> String {
    let (gate, at_origin) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        let is_held = exchange.request.method() == method;
        if is_held {
            at_origin.pass();
        }
        let age = if is_held { 60 } else { 0 };
        let fields = format!("Cache-Control: max-age={age}\r\nContent-Location: /\r\nETag: \"a\"\r\n");
        exchange.respond("200 OK", &fields, "body");
    });
    let larder = with(STORES_POST, &origin);
    if !before.is_empty() {
        larder.ask(before, "/", EMPTY);
    }
    let mut held = larder.client();
    held.send(format!("{method} / HTTP/1.1\r\nHost: test.example\r\n{EMPTY}\r\n"));
    wait::until_true("it is at the origin", || {
        origin.received().iter().any(|asked| asked.method() == method)
    });
    meanwhile(&larder);
    gate.open();
    assert_eq!(held.response_to(method).status(), 200);
    larder.ask(probe, "/", EMPTY).cache_status()
}

const EMPTY: &str = "Content-Type: application/x-q\r\nContent-Length: 0\r\n";

//= RFC 9111 section 4.4: invalidating stored responses
//= RFC 9111 section 4.4: to invalidate is to remove, or to mark as in need of validation
#[test]
fn what_an_invalidation_overtook_is_not_used() {
    let nothing = |_: &Larder| {};
    let put = |larder: &Larder| drop(larder.ask("PUT", "/", EMPTY));
    let soft = |larder: &Larder| drop(purge(larder, "url=http://test.example/&mode=soft"));
    for (methods, probe) in [(("", "POST"), "GET"), (("", "QUERY"), "QUERY"), (("GET", "HEAD"), "GET")] {
        assert!(overtaken(methods, probe, nothing).contains("hit"), "{methods:?}");
        let status = overtaken(methods, probe, put);
        assert!(status.contains("fwd=uri-miss"), "{methods:?}: {status}");
    }
    assert!(
        overtaken(("GET", "HEAD"), "GET", soft).contains("fwd=stale"),
        "a HEAD that a soft purge overtook"
    );
}

/// A client that cancels a POST has still changed the page if the origin already has the request.
#[test]
fn a_post_invalidates_though_its_client_over_http_2_has_left() {
    let (gate, at_origin) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.method() == "POST" {
            at_origin.pass();
        }
        exchange.respond("200 OK", "Cache-Control: max-age=3600\r\n", "page");
    });
    let larder = bare(&origin);
    let get = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        larder.client().send(request).response().is_hit()
    };
    get("/");
    assert!(get("/"));
    let mut client = Http2::connect(larder.address());
    client.request("POST", "/").end();
    origin.wait_for("/", 2);
    client.cancel();
    // The gateway has read the reset once it answers the next request.
    client.get("/other").status();
    assert!(get("/"), "nothing has changed yet");
    gate.open();
    wait::until_true("the page is invalidated", || !get("/"));
}

/// A 404 or 410 to a reload or a HEAD removes the stored page, unless the response is personal or for a different target. A stale page would
/// still be used while it is validated.
#[test]
fn a_reload_that_finds_nothing_removes_the_stored_page() {
    const RELOAD: &str = "Cache-Control: no-cache\r\n";
    const USER: &str = "Cache-Control: no-cache\r\nAuthorization: Bearer a\r\n";
    const OTHER_TARGET: &str = "Cache-Control: no-cache\r\nX-Original-URL: /other\r\n";
    let cases = [
        ("GET", RELOAD, "404 Not Found", "no-cache", false),
        ("GET", RELOAD, "404 Not Found", "no-store", false),
        ("GET", RELOAD, "410 Gone", "no-cache", false),
        ("GET", RELOAD, "403 Forbidden", "no-cache", true),
        ("GET", USER, "404 Not Found", "private", true),
        ("GET", USER, "404 Not Found", "no-store", true),
        ("GET", USER, "404 Not Found", "public, no-cache", false),
        ("GET", OTHER_TARGET, "404 Not Found", "no-store", true),
        ("HEAD", RELOAD, "404 Not Found", "no-store", false),
        ("HEAD", RELOAD, "403 Forbidden", "no-store", true),
        ("HEAD", USER, "404 Not Found", "no-store", true),
    ];
    for (method, fields, status, later, is_used) in cases {
        let origin = ScriptedOrigin::start(move |exchange| {
            let (status, directives) = match exchange.request.earlier {
                0 => ("200 OK", "max-age=60, stale-while-revalidate=60"),
                _ => (status, later),
            };
            let response_fields = format!("Cache-Control: {directives}\r\n");
            match exchange.request.method() {
                "HEAD" => exchange.head(status, &response_fields),
                _ => exchange.respond(status, &response_fields, "page"),
            };
        });
        let larder = with("@site@[[site.rule]]\noverride_fields = \"forward\"\n", &origin);
        larder.get("/");
        let reload = larder.ask(method, "/", fields);
        assert_eq!(reload.status().to_string(), status[..3]);
        let after = larder.get("/");
        assert_eq!(after.is_hit(), is_used, "{method} {fields:?} {status} {later}: {}", after.cache_status());
    }
}

//= RFC 9875 section 3: invalidation of the listed groups
#[test]
fn invalidations_are_counted() {
    let origin = ScriptedOrigin::fixed("Cache-Group-Invalidation: \"a\", \"b\"\r\nLocation: /b\r\n", "done");
    let larder = bare(&origin);
    larder.ask("PUT", "/", EMPTY);
    larder.get("/");
    assert_eq!(larder.metric("larder_invalidations_total", &["what=\"url\""]), 2.0);
    assert_eq!(larder.metric("larder_invalidations_total", &["what=\"group\""]), 2.0);
}

/// A group and its members are found by either scheme and any port, because proxies in front and internal clients use several URLs for
/// one resource.
#[test]
fn a_group_spans_the_schemes_and_ports_of_its_host() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        let fields = match exchange.request.method() {
            "GET" => "Cache-Control: max-age=60\r\nCache-Groups: \"shelf\"\r\n",
            "PUT" => "Cache-Group-Invalidation: \"shelf\"\r\n",
            _ => "",
        };
        exchange.respond("200 OK", fields, "");
    });
    let larder = with(
        "trusted_proxies = [\"127.0.0.1\"]\n@site@[[site.rule]]\ngroups_invalidated = \"shared\"\n",
        &origin,
    );
    let ask = |method: &str, (host, proto): (&str, &str), target: &str| {
        let fields = format!("Content-Length: 0\r\nX-Forwarded-Proto: {proto}\r\n");
        ask_host(&larder, (method, host, target), &fields)
    };
    let asked = [("shop.example", "https"), ("shop.example", "http"), ("shop.example:8443", "https")];
    let elsewhere = ("other.example", "http");
    for (member, changing) in asked.iter().flat_map(|one| asked.map(|other| (*one, other))) {
        // The PUT names the group; the DELETE is for a member.
        for (method, target) in [("PUT", "/form"), ("DELETE", "/page")] {
            // A stored response that the request invalidates names its groups.
            let kept = if method == "DELETE" { "shop.example" } else { member.0 };
            let page = (kept, member.1);
            for (who, path) in [(page, "/page"), (member, "/beside"), (elsewhere, "/beside")] {
                ask("GET", who, path);
                assert!(ask("GET", who, path).is_hit(), "{who:?} {path}");
            }
            assert_eq!(ask(method, changing, target).status(), 200);
            assert!(!ask("GET", member, "/beside").is_hit(), "{member:?} after {method} by {changing:?}");
            assert!(ask("GET", elsewhere, "/beside").is_hit(), "{elsewhere:?} after {method}");
        }
    }
}

const QUERY: &str =
    "QUERY / HTTP/1.1\r\nHost: test.example\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\n";

//= RFC 10008 section 2.7: responses to QUERY are cacheable
#[test]
fn equal_queries_are_one_forward() {
    let (gate, at_origin) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        at_origin.pass();
        let body = exchange.read_body().to_vec();
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", body);
    });
    let larder = bare(&origin);
    let mut clients = [(); 3].map(|()| larder.client());
    clients.iter_mut().for_each(|client| _ = client.send(format!("{QUERY}hello")));
    origin.wait_for("/", 1);
    gate.open();
    assert!(clients.iter_mut().all(|client| client.response().text() == "hello"));
    assert_eq!(origin.total(), 1);
}

#[test]
fn a_query_that_breaks_off_is_not_forwarded() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "answer");
    let larder = bare(&origin);
    let mut client = larder.client();
    client.send(format!("{QUERY}he")).finish_sending();
    let rest = client.rest();
    assert!(!rest.starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&rest));
    assert_eq!(origin.total(), 0);
}

/// A client can't use a 304 or a 206 that it didn't request. One that it did request is passed on. `caching::asked` tests all fields.
//= RFC 9110 section 15.4.5: a 304 to the client's own condition is forwarded
#[test]
fn what_nobody_asked_for_is_a_failure() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        match exchange.request.target() {
            "/304" => exchange.head("304 Not Modified", "ETag: \"a\"\r\n"),
            _ => exchange.respond("206 Partial Content", "Content-Range: bytes 0-2/10\r\n", "abc"),
        };
    });
    let larder = with(STORES_POST, &origin);
    let (condition, range) = ("If-None-Match: \"a\"\r\n", "Range: bytes=0-2\r\n");
    let ask = |method: &str, target: &str, fields: &str| {
        larder.ask(method, target, &format!("{fields}{EMPTY}")).status()
    };
    let mut failures = 0.0;
    for method in ["GET", "HEAD", "QUERY", "OPTIONS", "TRACE-LIKE", "POST", "PUT", "DELETE", "PATCH"] {
        for (target, fields) in [("/304", ""), ("/304", range), ("/206", ""), ("/206", condition)] {
            let got = ask(method, target, fields);
            failures += 1.0;
            let counted = ["larder_origin_errors_total", "larder_origin_server_failures_total"]
                .map(|metric| larder.metric(metric, &["reason=\"http-protocol-error\""]));
            assert_eq!((got, counted), (502, [failures; 2]), "{method} {target} {fields:?}");
        }
    }
    // If nothing is stored, a GET is forwarded without its conditions.
    for method in ["HEAD", "OPTIONS"] {
        assert_eq!([ask(method, "/304", condition), ask(method, "/206", range)], [304, 206], "{method}");
    }
    let log = larder.stderr();
    let told = "error=invalid response: 304 to a request without conditions";
    assert!(log.contains("reason=\"http-protocol-error\"") && log.contains(told), "{log}");
}

/// The response is unusable, but it shows that the origin has performed the request.
//= RFC 9111 section 4.4: invalidating stored responses
#[test]
fn an_unasked_answer_to_an_unsafe_request_invalidates() {
    let origin = ScriptedOrigin::start(|exchange| {
        match exchange.request.method() {
            "PUT" => exchange.head("304 Not Modified", ""),
            _ => exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "body"),
        };
    });
    let larder = bare(&origin);
    larder.get("/");
    assert!(larder.get("/").is_hit());
    assert_eq!(larder.ask("PUT", "/", EMPTY).status(), 502);
    assert!(!larder.get("/").is_hit());
}
