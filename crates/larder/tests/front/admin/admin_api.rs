//! The admin API and the commands that use it: probes, status, tokens, and refusals in metrics and log.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Instant;

use serde_json::Value;
use testkit::{Client, Larder, Port, ScriptedOrigin, Setup, run, wait};

use crate::LARDER;
use crate::admin::operator::{SITE, check, lasting, operate, printed, send_to, start};

#[test]
fn probes_and_routes_answer_and_metrics_are_there() {
    let origin = lasting();
    let larder = Setup::origin(LARDER, &origin.url()).start();
    larder.get("/");
    for (method, target, status) in [
        ("GET", "/live", 200),
        ("HEAD", "/live", 200),
        ("GET", "/ready", 200),
        ("GET", "/metrics", 200),
        ("GET", "/", 200),
        ("GET", "/nothing", 404),
        ("GET", "/purge", 405),
        ("POST", "/live", 405),
        ("POST", "/purge", 400),
        ("POST", "/reload", 200),
    ] {
        let response = larder.ask_admin(method, target, "");
        assert_eq!(response.status(), status, "{method} {target}: {}", response.text());
    }
    let metrics = larder.ask_admin("GET", "/metrics", "").text();
    for name in [
        "larder_build_info{",
        "larder_requests_total{",
        "larder_response_duration_seconds_bucket{",
        "larder_origin_fetch_duration_seconds_count{",
        "larder_store_entries 1",
        "larder_store_max_bytes ",
        "larder_connections{",
        "process_resident_memory_bytes ",
    ] {
        assert!(metrics.contains(name), "{name} is missing:\n{metrics}");
    }
    assert!(larder.metric("larder_requests_total", &["status=\"200\"", "method=\"GET\""]) >= 1.0);
    for (url, status) in [("http://@/", 0), ("http://@", 3), ("https://@", 2), ("http://@/x", 2)] {
        let url = url.replace('@', &larder.admin().to_string());
        let purged = run(LARDER, ["purge", "http://test.example/", "--admin", &url]);
        assert_eq!(purged.status, status, "an address in the form of a browser, {url}: {}", purged.stderr);
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

/// A process may end or hand over after the connection is made and before the request arrives.
#[test]
fn a_command_without_an_answer_asks_once_more() {
    let check_closing = |closed: usize, expected: i32, part: &str| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let admin = listener.local_addr().expect("it is bound").to_string();
        let server = thread::spawn(move || {
            (0..closed).for_each(|_| drop(listener.accept().expect("a connection")));
            let answers = [r#"{"name":"larder","routes":[]}"#, "{}"];
            for body in answers.iter().filter(|_| closed == 1) {
                let (stream, _) = listener.accept().expect("a connection");
                let mut head = BufReader::new(&stream).lines().map_while(Result::ok);
                assert!(head.any(|line| line.is_empty()), "a request");
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                Client::over(stream).send(head + body);
            }
        });
        check(&run(LARDER, ["reload", "--admin", &admin]), expected, part);
        server.join().expect("no panic");
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

/// A flooded log hides other events. Field bug: a line contained everything that an untrusted client had sent, up to 16 KiB.
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

    let larder = start(SITE);
    let begun = Instant::now();
    let mut client = Client::connect(larder.admin());
    client.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".repeat(300));
    (0..300).for_each(|_| assert_eq!(client.response().status(), 405));
    assert_eq!(larder.metric("larder_admin_refused_total", &["method_not_allowed"]), 300.0);
    let seconds = usize::try_from(begun.elapsed().as_secs()).expect("a short test");
    let lines = larder.stderr().matches("admin request refused").count();
    assert!((10..=10 * (seconds + 2)).contains(&lines), "{lines} lines in {seconds} s");
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
    let told = "admin request refused: it has no token client=127.0.0.1 method=POST path=\"/purge\"";
    let log = larder.stderr();
    assert!(log.contains(told) && log.matches("refused").count() == 1, "the one without a token: {log}");
    check(&purge("wrong"), 1, "refused (401 Unauthorized)");
    let at_probes = operate(&larder, &["purge", "http://test.example/"]);
    check(&at_probes, 1, "serves only probes and metrics (`[admin] probes_listen`)");
    let status = operate(&larder, &["status"]);
    assert!(status.status == 0 && printed(&status).contains("ready"), "{}", printed(&status));
    for (target, status) in [("/live", 200), ("/ready", 200), ("/metrics", 200), ("/purge", 404)] {
        for (host, status) in [("localhost", status), ("rebound.example", 403)] {
            let answer = send_to(larder.admin(), &format!("GET {target} HTTP/1.1\r\nHost: {host}"));
            assert_eq!(answer.status(), status, "{target} of {host} on the probes listener");
        }
    }
}
