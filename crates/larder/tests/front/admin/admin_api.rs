//! The admin API and the commands that use it: probes, status, tokens, and refusals in metrics and log.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use testkit::{Larder, Port, ScriptedOrigin, Setup, run, wait};

use crate::LARDER;
use crate::admin::operator::{SITE, check, lasting, operate, send_to, start};

/// The form of a browser. The tests of the crate `admin` check the routes.
#[test]
fn an_admin_address_may_be_a_url() {
    let larder = start(SITE);
    for (url, status) in [("http://@/", 3), ("http://@", 3), ("https://@", 2), ("http://@/x", 2)] {
        let url = url.replace('@', &larder.admin().to_string());
        check(&run(LARDER, ["purge", "http://test.example/", "--admin", &url]), status, "");
    }
}

#[test]
fn status_says_how_a_server_does() {
    let origin = lasting();
    let larder = Setup::origin(LARDER, &origin.url()).start();
    (0..4).for_each(|_| drop(larder.get("/x")));
    let counts = "requests: 4 answered, 75.0 % of them from the cache; 0 in flight\nstore: 1 response, ";
    check(&operate(&larder, &["status"]), 0, &format!(": ready\n{counts}"));
    let told: Value = serde_json::from_slice(&operate(&larder, &["status", "--json"]).stdout).expect("JSON");
    assert_eq!((&told["ready"], &told["requests"]["from_cache"]), (&true.into(), &3.into()), "{told}");
    assert_eq!((&told["stores"][0]["name"], &told["stores"][0]["responses"]), (&"default".into(), &1.into()));
}

/// The address of the gateway is easily mistaken for that of the admin API, and an origin may answer anything.
#[test]
fn a_wrong_admin_address_is_told_and_gets_no_token() {
    let origin = ScriptedOrigin::fixed("Content-Type: application/json\r\n", "{\"ready\":true}");
    let larder = Setup::origin(LARDER, &origin.url()).file("token", "0123456789abcdef\n").start();
    let (gateway, token) = (larder.address().to_string(), larder.folder().join("token"));
    let tip = format!("{gateway} isn't an admin API of Larder: give the address of `[admin] listen` with");
    for words in ["status", "reload", "upgrade", "purge http://a/", "purge --everything", "explain http://a/"]
    {
        let token = token.display().to_string();
        let arguments = words.split(' ').chain(["--admin", &gateway, "--token-file", &token]);
        check(&run(LARDER, arguments), 1, &tip);
    }
    for request in origin.received() {
        assert_eq!((request.method(), request.field("authorization")), ("GET", ""), "nothing was changed");
    }
}

/// A process may end or hand over after the connection is made.
#[test]
fn a_command_without_an_answer_asks_once_more() {
    let check_closing = |closed: usize, expected: i32, part: &str| {
        let asked = AtomicUsize::new(0);
        let server = ScriptedOrigin::start(move |exchange| {
            if asked.fetch_add(1, Ordering::Relaxed) < closed {
                exchange.close();
                return;
            }
            let is_index = exchange.request.target() == "/";
            exchange.respond("200 OK", "", if is_index { r#"{"name":"larder","routes":[]}"# } else { "{}" });
        });
        check(&run(LARDER, ["reload", "--admin", &server.address().to_string()]), expected, part);
    };
    check_closing(1, 0, "configuration reloaded");
    check_closing(2, 1, "closes connections without an answer");
}

/// A gateway whose admin API requires a token, and the address of that API; probes are at [`Larder::admin`].
fn guarded() -> (Larder, Port) {
    let port = Port::reserve();
    let admin = format!("listen = \"{}\"\nprobes_listen = \"@admin@\"\n", port.address());
    let text = format!("[admin]\n{admin}token_file = \"token\"\n{SITE}");
    let setup = Setup::config(LARDER, &text).file("token", "s3cret-s3cret-s3cret\n");
    (setup.file("wrong", "s3cret-s3cret-s3creT\n").start(), port)
}

/// A web page must not reach the admin API through the operator's browser. Field bug: unauthorized requests to the API left no
/// trace.
#[test]
fn refused_admin_requests_are_counted_and_logged() {
    let origin = lasting();
    let open = Setup::origin(LARDER, &origin.url()).start();
    let (guarded, port) = guarded();
    let (at_open, at_guarded) = ((&open, open.admin()), (&guarded, port.address()));
    let check = |(larder, address): (&Larder, SocketAddr), request: &str, reason: &str, why: &str| {
        let refused = || larder.metric("larder_admin_refused_total", &[&format!("reason=\"{reason}\"")]);
        let before = refused();
        let status = send_to(address, request).status();
        assert!((400..500).contains(&status), "{request}: {status}");
        assert_eq!(refused(), before + 1.0, "{request}");
        let (method, path) = request.split_once(' ').expect("a request line");
        let path = path.split([' ', '?']).next().unwrap_or_default();
        let client = format!("client=127.0.0.1 method={method} path=\"{path}\" left_out=0");
        let line = format!("admin request refused: {why} {client}");
        wait::until_true(&line, || larder.stderr().contains(&line));
    };
    let foreign = "its host is not this machine";
    check(at_open, "POST /purge?url=http://a/x HTTP/1.1\r\nHost: evil.example", "host_not_loopback", foreign);
    check(at_open, "GET /metrics HTTP/1.1\r\nHost: rebound.example", "host_not_loopback", foreign);
    let page = "POST /reload HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost";
    check(at_open, page, "browser_request", "a web page sent it");
    for request in ["POST / HTTP/1.1\r\nHost: localhost", "GET /reload HTTP/1.1\r\nHost: localhost"] {
        check(at_open, request, "method_not_allowed", "the method is not allowed for the path");
    }
    for request in ["POST / HTTP/1.1\r\nHost: a", "GET /metrics HTTP/1.1\r\nHost: a"] {
        check(at_guarded, request, "token_missing", "it has no token");
        let wrong = format!("{request}\r\nAuthorization: Bearer gue55ed-gue55ed-gue55ed");
        check(at_guarded, &wrong, "token_wrong", "its token is wrong");
    }
    // `larder` checks that this is an admin API before it sends its token.
    let token = guarded.folder().join("token").display().to_string();
    run(LARDER, ["reload", "--admin", &port.address().to_string(), "--token-file", &token]).succeeded();
    assert_eq!(guarded.metric("larder_admin_refused_total", &[]), 4.0);
    let log = open.stderr() + &guarded.stderr();
    assert!(!log.contains("gue55ed") && !log.contains("s3cret-") && !log.contains("a/x"), "{log}");
}

/// Field bug: a line contained everything that an untrusted client had sent, up to 16 KiB.
#[test]
fn refused_admin_requests_are_logged_within_limits() {
    let larder = start(SITE);
    for (method, path, told) in [
        ("POST", "/".to_owned() + &"x".repeat(8000), " ... (7745 more bytes)\""),
        (&"M".repeat(8000), "/".to_owned(), " ... (7744 more bytes) path=\"/\""),
        ("POST", "/".to_owned() + &"y".repeat(255), "yyy\" left_out"),
    ] {
        let answer = send_to(larder.admin(), &format!("{method} {path} HTTP/1.1\r\nHost: evil.example"));
        assert!((400..500).contains(&answer.status()), "{told}");
        wait::until_true(told, || larder.stderr().contains(told));
    }
    let longest = larder.stderr().lines().map(str::len).max();
    assert!(longest.is_some_and(|bytes| bytes < 512), "{longest:?}");
}

//= RFC 9111 section 7: stored content is sensitive
#[test]
fn a_token_guards_all_but_probes() {
    let (larder, port) = guarded();
    let admin = port.address().to_string();
    let purge = |token: &str| {
        let file = larder.folder().join(token).display().to_string();
        let token = ["--token-file", &file];
        let token = if file.ends_with('/') { &[][..] } else { &token };
        run(LARDER, [&["purge", "http://test.example/", "--admin", &admin], token].concat())
    };
    check(&purge(""), 1, "the admin API needs a token: give --token-file");
    check(&purge("token"), 3, "no stored response for");
    check(&purge("wrong"), 1, "refused (401 Unauthorized)");
    let at_probes = operate(&larder, &["purge", "http://test.example/"]);
    check(&at_probes, 1, "serves only probes and metrics (`[admin] probes_listen`)");
    check(&operate(&larder, &["status"]), 0, "ready");
}
