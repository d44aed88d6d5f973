//! Limits that protect sites and their origins: what one client may ask, how large messages may be, what is not stored for safety, and
//! what clients get instead.

use std::io::Write as _;
use std::process::{Command, Stdio};

use testkit::{End, Exchange, Gate, Larder, ScriptedOrigin, Setup, run, wait};

use crate::LARDER;

/// A slow rate, so that no test is fast enough to see a request become available again.
const SLOW: &str = "requests = 6\nwindow = \"1h\"\n";

fn config(origin: &ScriptedOrigin, top: &str, site: &str) -> String {
    format!("{top}\n[[site]]\nname = \"a\"\norigin = \"{}\"\nexpose_errors = true\n{site}\n", origin.url())
}

/// With a proxy that names the clients.
fn larder(origin: &ScriptedOrigin, site: &str) -> Larder {
    Setup::config(LARDER, &config(origin, "trusted_proxies = [\"127.0.0.1\"]", site)).start()
}

#[track_caller]
fn reload(larder: &mut Larder, config: &str) {
    larder.write_config(config);
    let answer = larder.ask_admin("POST", "/reload", "");
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

fn cacheable(exchange: &mut Exchange<'_>) {
    exchange.read_body();
    let says = match exchange.request.target().starts_with("/private") {
        true => "Cache-Control: no-store\r\n",
        false => "Cache-Control: max-age=600\r\n",
    };
    exchange.respond("200 OK", says, "content");
}

/// As a client behind the proxy.
fn from(client: &str) -> String {
    format!("X-Forwarded-For: {client}\r\n")
}

/// The statuses of so many requests of a client.
fn statuses(larder: &Larder, client: &str, target: &str, count: usize) -> Vec<u16> {
    (0..count).map(|_| larder.ask("GET", target, &from(client)).status()).collect()
}

/// So many requests are answered, and the next one is refused.
#[track_caller]
fn check_left(larder: &Larder, client: &str, target: &str, left: usize) {
    let found = statuses(larder, client, target, left + 1);
    let expected: Vec<_> = std::iter::repeat_n(200, left).chain([429]).collect();
    assert_eq!(found, expected, "{client} asks for {target}");
}

//= RFC 6585 section 4: 429 for too many requests
//= RFC 6585 section 4: 429 with Retry-After
#[test]
fn each_client_has_a_rate_limit() {
    let origin = ScriptedOrigin::start(cacheable);
    let limit = format!("[site.rate_limit]\n{SLOW}burst = 3\nclients_exempt = [\"198.51.100.0/24\"]\n");
    let larder = larder(&origin, &limit);
    check_left(&larder, "192.0.2.1", "/", 3);
    let refused = larder.ask("GET", "/", &from("192.0.2.1"));
    assert_eq!(refused.field("retry-after"), "600", "{:?}", refused.head);
    assert_eq!(refused.field("ratelimit-policy"), "\"default\";q=6;w=3600");
    assert_eq!(refused.field("ratelimit"), "\"default\";r=0;t=600");
    assert_eq!(refused.field("cache-control"), "no-store");
    assert!(refused.cache_status().contains("detail=rate-limited"), "{}", refused.cache_status());
    assert!(refused.text().contains("rate-limited: this client sends more"), "{}", refused.text());
    // Hits count, as do other methods and URLs; others have limits of their own.
    for method in ["GET", "HEAD", "POST", "DELETE"] {
        assert_eq!(larder.ask(method, "/other", &from("192.0.2.1")).status(), 429, "{method}");
    }
    check_left(&larder, "192.0.2.2", "/", 3);
    check_left(&larder, "::ffff:192.0.2.3", "/", 3);
    check_left(&larder, "192.0.2.3", "/", 0);
    check_left(&larder, "2001:db8::1", "/", 3);
    check_left(&larder, "2001:db8::ffff:2", "/", 0);
    check_left(&larder, "2001:db8:0:1::1", "/", 3);
    assert_eq!(statuses(&larder, "198.51.100.7", "/", 9), [200; 9], "exempt");
    // The proxy that names nobody is no client: its own probes, say.
    assert!((0..9).all(|_| larder.get("/").status() == 200));
    let refused = ["site=\"a\"", "rule=\"none\"", "outcome=\"refused\""];
    assert!(larder.metric("larder_rate_limited_total", &refused) >= 9.0);
    assert!(larder.metric("larder_requests_total", &["status=\"429\"", "cache=\"local\""]) >= 9.0);
}

/// What nobody is trusted to say does not count: the peer does.
#[test]
fn a_client_can_not_name_another_one() {
    let origin = ScriptedOrigin::start(cacheable);
    let site = format!("[site.rate_limit]\n{SLOW}");
    let larder = Setup::config(LARDER, &config(&origin, "", &site)).start();
    let statuses: Vec<_> =
        (0..8).map(|client| larder.ask("GET", "/", &from(&format!("192.0.2.{client}"))).status()).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 429, 429]);
}

#[test]
fn only_what_is_forwarded_counts_where_the_limit_says_so() {
    let origin = ScriptedOrigin::start(cacheable);
    let larder = larder(&origin, &format!("[site.rate_limit]\n{SLOW}burst = 3\ncount = \"forwarded\"\n"));
    assert_eq!(statuses(&larder, "192.0.2.1", "/", 20), [200; 20], "one miss, and hits");
    check_left(&larder, "192.0.2.1", "/private", 2);
    assert_eq!(larder.ask("GET", "/new", &from("192.0.2.1")).status(), 429, "a miss");
    assert_eq!(larder.ask("POST", "/", &from("192.0.2.1")).status(), 429);
    assert_eq!(larder.ask("QUERY", "/", &from("192.0.2.1")).status(), 429);
    assert_eq!(statuses(&larder, "192.0.2.1", "/", 20), [200; 20], "what is stored is there for all");
    assert_eq!(larder.ask("GET", "/new", &from("192.0.2.2")).status(), 200);
    assert_eq!(origin.count("/private"), 2);
}

#[test]
fn a_rule_has_a_limit_beside_that_of_its_site() {
    let origin = ScriptedOrigin::start(cacheable);
    let rules = format!(
        "[[site.rule]]\nname = \"login\"\npath = {{ exact = \"/login\" }}\n[site.rule.rate_limit]\n{SLOW}burst = 2\nfields = \"always\"\n\
         [[site.rule]]\nname = \"other\"\n"
    );
    let larder =
        larder(&origin, &format!("[site.rate_limit]\n{SLOW}burst = 5\nfields = \"always\"\n{rules}"));
    let first = larder.ask("GET", "/login", &from("192.0.2.1"));
    assert_eq!(first.field("ratelimit-policy"), "\"default\";q=6;w=3600, \"login\";q=6;w=3600");
    assert_eq!(first.field("ratelimit"), "\"default\";r=4;t=600, \"login\";r=1;t=600");
    check_left(&larder, "192.0.2.1", "/login", 1);
    let refused = larder.ask("GET", "/login", &from("192.0.2.1"));
    assert_eq!(refused.field("ratelimit"), "\"login\";r=0;t=600", "{:?}", refused.head);
    // Refused requests have counted for the site.
    let other = larder.ask("GET", "/other", &from("192.0.2.1"));
    assert_eq!((other.status(), other.field("ratelimit")), (200, "\"default\";r=0;t=3000"));
    assert_eq!(larder.ask("GET", "/other", &from("192.0.2.1")).status(), 429);
    let of_rule = ["site=\"a\"", "rule=\"login\"", "outcome=\"refused\""];
    assert_eq!(larder.metric("larder_rate_limited_total", &of_rule), 2.0);
}

/// Many origins take `/LOGIN` and `/login/` for `/login`.
#[test]
fn limits_hold_in_any_spelling() {
    let origin = ScriptedOrigin::start(cacheable);
    let site = format!(
        "[[site.rule]]\nname = \"login\"\npath = {{ exact = \"/login\" }}\n[site.rule.rate_limit]\n{SLOW}burst = 3\n\
         [[site.rule]]\nname = \"upload\"\npath = {{ glob = \"/up/*\" }}\nrequest_body_bytes_max = 10\n\
         [[site.rule]]\nname = \"report\"\npath = {{ regex = \"^/report$\" }}\nresponse_body_bytes_max = 1\n\
         [[site.rule]]\nname = \"cold\"\npath = {{ prefix = \"/cold\" }}\n[site.rule.miss_budget]\n{SLOW}burst = 1\n"
    );
    let larder = larder(&origin, &site);
    let spellings = ["/login", "/LOGIN?a", "/Login/", "/login/?b"];
    let found = spellings.map(|target| larder.ask("GET", target, &from("192.0.2.1")).status());
    assert_eq!(found, [200, 200, 200, 429]);
    assert_eq!(statuses(&larder, "192.0.2.1", "/logins", 4), [200; 4]);
    for (method, target, content, status) in [
        ("POST", "/up/a", 11, 413),
        ("POST", "/UP/a", 11, 413),
        ("POST", "/up/a/", 11, 413),
        ("POST", "/up/A", 10, 200),
        ("POST", "/upper", 11, 200),
        ("GET", "/report", 0, 502),
        ("GET", "/Report?all", 0, 502),
        ("GET", "/reports", 0, 200),
        ("GET", "/cold/1", 0, 200),
        ("GET", "/COLD/2", 0, 503),
        ("GET", "/warm", 0, 200),
    ] {
        let mut client = larder.client();
        let head = format!("{method} {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {content}\r\n\r\n");
        client.send(head).send(vec![b'x'; content]);
        let answer = client.response();
        assert_eq!(answer.status(), status, "{method} {target}: {:?}", answer.head);
    }
}

/// Before anything that is stored, too.
#[test]
fn a_rule_denies_its_paths_in_any_spelling() {
    let origin = ScriptedOrigin::start(cacheable);
    let rules = "[[site.rule]]\nname = \"hidden\"\nmethods = [\"GET\", \"POST\"]\n\
                 path = { regex = \"^/(\\\\.git|admin)(/|$)\" }\ndeny = true\n\
                 [[site.rule]]\nname = \"rest\"\nttl_override = { 200 = \"1h\" }\n";
    let mut larder = larder(&origin, "");
    assert_eq!(larder.get("/admin").status(), 200);
    assert!(larder.get("/admin").is_hit(), "stored before the rule was there");
    reload(&mut larder, &config(&origin, "trusted_proxies = [\"127.0.0.1\"]", rules));
    let before = origin.total();
    for target in ["/admin", "/admin/x?y=1", "/ADMIN?z", "/admin/", "/%61dmin", "/.git/config", "/%2egit"] {
        let refused = larder.get(target);
        assert_eq!(
            (refused.status(), &refused.cache_status()[..]),
            (403, "larder; detail=rule-denied"),
            "{target}"
        );
    }
    assert_eq!(larder.ask("POST", "/admin", "Content-Length: 0\r\n").status(), 403);
    let over_http2 = curl(&["--http2-prior-knowledge", &larder.url("/admin")], "");
    assert!(over_http2.starts_with("HTTP/2 403"), "{over_http2}");
    assert_eq!(origin.total(), before, "the origin hears nothing of it");
    for target in ["/administrator", "/x?/admin", "/git"] {
        assert_eq!(larder.get(target).status(), 200, "{target}");
    }
    assert_eq!(larder.ask("PUT", "/admin", "Content-Length: 0\r\n").status(), 200, "another method");
    assert!(larder.metric("larder_rule_requests_total", &["rule=\"hidden\"", "cache=\"local\""]) >= 6.0);
}

/// Field bug: a refusal was counted at the rule of the path as it is written, which may have no limit at all.
#[test]
fn a_refusal_counts_at_the_rule_whose_limit_refuses() {
    let origin = ScriptedOrigin::start(cacheable);
    let site = format!(
        "[[site.rule]]\nname = \"login\"\npath = {{ exact = \"/login\" }}\n[site.rule.rate_limit]\n{SLOW}burst = 1\n\
         [[site.rule]]\nname = \"cold\"\npath = {{ exact = \"/cold\" }}\n[site.rule.miss_budget]\n{SLOW}burst = 1\n\
         [[site.rule]]\nname = \"others\"\n"
    );
    let larder = larder(&origin, &site);
    for (target, refused, metric, rule) in [
        ("/login%3Fa", 429, "larder_rate_limited_total", "rule=\"login\""),
        ("/cold%3Fa", 503, "larder_misses_refused_total", "rule=\"cold\""),
    ] {
        assert_eq!(statuses(&larder, "192.0.2.1", target, 2), [200, refused], "{target}");
        assert_eq!((larder.metric(metric, &[rule]), larder.metric(metric, &[])), (1.0, 1.0), "{target}");
    }
}

#[test]
fn a_dry_run_counts_and_refuses_nobody() {
    let origin = ScriptedOrigin::start(cacheable);
    let larder = larder(&origin, &format!("[site.rate_limit]\n{SLOW}dry_run = true\n"));
    assert_eq!(statuses(&larder, "192.0.2.1", "/", 10), [200; 10]);
    assert_eq!(larder.metric("larder_rate_limited_total", &["site=\"a\"", "outcome=\"dry_run\""]), 4.0);
}

/// What a client has used up stays used up, unless the limit is another one.
#[test]
fn counts_survive_a_reload_of_the_same_limit() {
    let origin = ScriptedOrigin::start(cacheable);
    let top = "trusted_proxies = [\"127.0.0.1\"]";
    let limits = |site: &str, rule: &str| {
        config(&origin, top, &format!("[site.rate_limit]\n{SLOW}{site}[[site.rule]]\nname = \"r\"\n{rule}"))
    };
    let rule = format!("[site.rule.rate_limit]\n{SLOW}burst = 4\n");
    let mut larder = Setup::config(LARDER, &limits("", &rule)).start();
    check_left(&larder, "192.0.2.1", "/", 4);
    reload(&mut larder, &limits("clients_exempt = [\"192.0.2.9\"]\n", &rule));
    check_left(&larder, "192.0.2.1", "/", 0);
    // The rule's limit is gone, and the site has counted.
    reload(&mut larder, &limits("", ""));
    check_left(&larder, "192.0.2.1", "/", 0);
    check_left(&larder, "192.0.2.2", "/", 6);
    reload(&mut larder, &limits("burst = 2\n", ""));
    check_left(&larder, "192.0.2.1", "/", 2);
    reload(&mut larder, &config(&origin, top, ""));
    assert_eq!(statuses(&larder, "192.0.2.1", "/", 9), [200; 9]);
}

/// Rules without names have numbers, which change when a rule is put in front of them.
#[test]
fn counts_stay_with_what_a_rule_matches() {
    let origin = ScriptedOrigin::start(cacheable);
    let top = "trusted_proxies = [\"127.0.0.1\"]";
    let rule = |path: &str| {
        format!("[[site.rule]]\npath = {{ exact = \"{path}\" }}\n[site.rule.rate_limit]\n{SLOW}")
    };
    let both = rule("/login") + &rule("/search");
    let mut larder = Setup::config(LARDER, &config(&origin, top, &both)).start();
    check_left(&larder, "192.0.2.1", "/login", 6);
    reload(&mut larder, &config(&origin, top, &(rule("/new") + &both)));
    for (path, left) in [("/login", 0), ("/search", 6), ("/new", 6)] {
        check_left(&larder, "192.0.2.1", path, left);
    }
}

/// A client gets its refusals on the connection that it has, over each protocol.
#[test]
fn refusals_over_each_protocol() {
    let origin = ScriptedOrigin::start(cacheable);
    let larder =
        Setup::config(LARDER, &config(&origin, "", "[site.rate_limit]\nrequests = 1\nwindow = \"1h\"\n"))
            .start();
    assert_eq!(larder.get("/").status(), 200);
    for (protocol, version) in [("--http1.1", "1.1"), ("--http2-prior-knowledge", "2")] {
        let answer = curl(&[protocol, &larder.url("/")], "");
        assert!(answer.starts_with(&format!("HTTP/{version} 429")), "{protocol}: {answer}");
        assert!(answer.contains("retry-after: 3600\r\n"), "{answer}");
    }
    let mut client = larder.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(client.response().status(), 429);
    assert_eq!(client.get("/").status(), 429, "the content of a refused request is read");
}

/// What curl prints, which is given `input`: the response with its head, and what went wrong.
fn curl(arguments: &[&str], input: impl AsRef<[u8]>) -> String {
    let mut curl = Command::new("curl")
        .args(["--silent", "--show-error", "--include", "--max-time", "30"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("curl runs");
    let written = curl.stdin.take().expect("it is piped").write_all(input.as_ref());
    let output = curl.wait_with_output().expect("it ends");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    // Who is refused need not read what comes.
    assert!(written.is_ok() || text[0].contains(" 413"), "{text:?}");
    text.concat()
}

#[test]
fn explain_tells_of_limits() {
    let origin = ScriptedOrigin::start(cacheable);
    let larder = Setup::config(LARDER, &config(&origin, "", &format!("[site.rate_limit]\n{SLOW}"))).start();
    let explain = || {
        let admin = larder.admin().to_string();
        let output = Command::new(LARDER).args(["explain", "http://a/", "--admin", &admin]).output();
        String::from_utf8_lossy(&output.expect("the binary runs").stdout).into_owned()
    };
    let told = explain();
    for part in ["within the rate limit of the client [RFC 6585 section 4]", "policy = default", "left = 5"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!((0..5).filter(|_| larder.get("/").status() == 200).count(), 5);
    assert!(explain().contains("beyond the rate limit of the client: refused"));
}

/// Many connections of one client at a time, on all workers: together they have one limit.
#[test]
fn workers_share_what_they_count() {
    let origin = ScriptedOrigin::start(cacheable);
    let site = "[site.rate_limit]\nrequests = 50\nwindow = \"1h\"\n";
    let larder = Setup::config(LARDER, &config(&origin, "workers = 4", site)).start();
    let admitted: usize = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = larder.client();
                    (0..20).filter(|_| client.get("/").status() == 200).count()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("it is answered")).sum()
    });
    assert_eq!(admitted, 50);
}

/// With `Content-Length`, the origin never hears of a request that is too large.
//= RFC 9110 section 15.5.14: 413
#[test]
fn a_request_with_too_much_content_is_refused() {
    let origin = ScriptedOrigin::start(cacheable);
    let site = "request_body_bytes_max = 1000\n\
        [[site.rule]]\nname = \"upload\"\npath = { prefix = \"/upload\" }\nrequest_body_bytes_max = \"200KiB\"\n\
        [[site.rule]]\nname = \"none\"\npath = { prefix = \"/none\" }\nrequest_body_bytes_max = 0\n";
    let limits = "[limits]\nbody_bytes_max = \"150KiB\"";
    let larder = Setup::config(LARDER, &config(&origin, limits, site)).start();
    let post = |target: &str, bytes: usize| {
        let mut client = larder.client();
        let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n");
        client.send(head).send(vec![b'x'; bytes.min(64 << 10)]);
        client.response()
    };
    for (target, bytes, status) in [
        ("/", 1000, 200),
        ("/", 1001, 413),
        ("/upload", 1001, 200),
        ("/upload", 64 << 10, 200),
        // That of all clients holds for each.
        ("/upload", 160 << 10, 413),
        ("/none", 0, 200),
        ("/none", 1, 413),
    ] {
        let before = origin.total();
        let answer = post(target, bytes);
        assert_eq!(answer.status(), status, "{bytes} bytes to {target}: {:?}", answer.head);
        assert_eq!(origin.total() - before, usize::from(status == 200), "{bytes} bytes to {target}");
    }
    let refused = post("/", 1001);
    assert!(refused.cache_status().contains("detail=request-body-too-large"), "{}", refused.cache_status());
    assert!(refused.text().contains("larger than 1000 bytes"), "{}", refused.text());
    assert_eq!(refused.field("connection"), "", "a short rest is read");
    assert_eq!(post("/", 100_000).field("connection"), "close", "a long one is not");
    assert!(larder.metric("larder_client_errors_total", &["reason=\"request-body-too-large\""]) >= 5.0);
}

/// A client that waits for 100 gets its answer in place of it.
#[test]
fn content_that_is_expected_is_refused_before_it_comes() {
    let origin = ScriptedOrigin::start(cacheable);
    let larder = Setup::config(LARDER, &config(&origin, "", "request_body_bytes_max = 10\n")).start();
    let mut client = larder.client();
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n");
    let refused = client.response();
    assert_eq!((refused.status(), refused.interim.len()), (413, 0), "{:?}", refused.head);
    assert_eq!(refused.field("connection"), "close", "nobody knows whether the content comes");
    assert_eq!(client.rest(), b"");
    assert_eq!(origin.total(), 0);
}

/// Whenever it shows that content is too much, the answer is an error of its site like any other: in the log, the metrics, its page and its fields.
#[test]
fn a_refusal_of_content_is_like_other_errors() {
    let origin = ScriptedOrigin::start(cacheable);
    let config = format!(
        "[log]\naccess = \"stdout\"\n[limits]\nbody_bytes_max = 5000\n[[site]]\nname = \"a\"\norigin = \"{}\"\nx_cache = true\n\
         [site.cors]\norigins = [\"https://a.example\"]\n\
         [[site.error_page]]\nstatuses = [\"413\"]\nbody_file = \"large.html\"\n\
         [[site.transform]]\nphase = \"client_response\"\nset = {{ X-New = \"n\" }}\n\
         [[site.rule]]\nname = \"small\"\npath = {{ prefix = \"/small\" }}\nrequest_body_bytes_max = 1000\n",
        origin.url()
    );
    let larder = Setup::config(LARDER, &config).file("large.html", "<p>too large</p>").start();
    let chunked = "Transfer-Encoding: chunked";
    for (number, (target, protocol, field, bytes)) in [
        ("/small", "--http1.1", "X-A: 1", 1001),
        ("/small", "--http1.1", chunked, 1001),
        ("/small", "--http2-prior-knowledge", "X-A: 1", 1001),
        ("/", "--http1.1", "X-A: 1", 5001),
        ("/", "--http1.1", chunked, 5001),
        ("/", "--http2-prior-knowledge", "X-A: 1", 5001),
    ]
    .into_iter()
    .enumerate()
    {
        let agent = format!("number-{number}");
        let fields =
            [format!("User-Agent: {agent}"), "Origin: https://a.example".to_owned(), field.to_owned()];
        let told = uploaded(&larder, target, (protocol, &fields), bytes);
        let what = format!("{bytes} bytes to {target}, {protocol}, {field}: {told}");
        for part in ["413", "<p>too large</p>", "x-new: n", "access-control-allow-origin: https://a.example"]
        {
            assert!(told.to_lowercase().contains(part), "{part}: {what}");
        }
        assert!(told.to_lowercase().contains("x-cache: local"), "{what}");
        assert!(told.contains("detail=request-body-too-large"), "{what}");
        assert!(!told.contains("bytes\n"), "the limit is not told: {what}");
        let line = logged(&larder, &agent);
        let logged = ["method", "target", "site"].map(|key| line[key].as_str().unwrap_or_default());
        assert_eq!(logged, ["PUT", target, "a"], "{line}");
        assert_eq!(line["status"], 413, "{line}");
        let refused = larder.metric("larder_client_errors_total", &["reason=\"request-body-too-large\""]);
        assert_eq!(refused, (number + 1) as f64, "{what}");
    }
    let requests = |parts: &[&str]| larder.metric("larder_requests_total", parts);
    assert_eq!(requests(&["site=\"a\"", "method=\"PUT\"", "status=\"413\""]), 6.0);
    assert_eq!(requests(&["status=\"413\""]), 6.0);
}

/// What a client is told that sends so much without saying how much. Over HTTP/2 it is nghttp: curl 7.88 takes a response for none if the stream
/// is reset behind it, with NO_ERROR, before it has read it (RFC 9113 section 8.1).
fn uploaded(larder: &Larder, target: &str, (protocol, fields): (&str, &[String]), bytes: usize) -> String {
    let url = larder.url(target);
    let fields: Vec<&str> = fields.iter().flat_map(|field| ["--header", field.as_str()]).collect();
    if protocol == "--http1.1" {
        return curl(&[&fields[..], &[protocol, "--upload-file", "-", &url]].concat(), vec![b'x'; bytes]);
    }
    let file = larder.folder().join("content").display().to_string();
    std::fs::write(&file, vec![b'x'; bytes]).expect("the folder can be written");
    let own = ["--verbose", "--no-content-length", "--data", &file, "--header", ":method: PUT", &url];
    run("nghttp", [&fields[..], &own].concat()).text()
}

/// The line of the access log about the request of this agent.
fn logged(larder: &Larder, agent: &str) -> serde_json::Value {
    wait::until("the line is written", || {
        let text = larder.stdout();
        let mut lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        lines.find(|line| line["user_agent"] == agent)
    })
}

#[test]
fn content_of_unknown_length_is_refused_once_it_is_too_much() {
    let origin = ScriptedOrigin::start(cacheable);
    let larder = Setup::config(LARDER, &config(&origin, "", "request_body_bytes_max = 5000\n")).start();
    let (url, chunked) = (larder.url("/"), "Transfer-Encoding: chunked".to_owned());
    for (protocol, fields) in [("--http1.1", &[chunked][..]), ("--http2-prior-knowledge", &[])] {
        for (bytes, status) in [(5000, " 200"), (5001, " 413")] {
            let answer = uploaded(&larder, "/", (protocol, fields), bytes);
            assert!(answer.contains(status), "{bytes} bytes, {protocol}: {answer}");
        }
    }
    // The rest is not read: the stream ends.
    let large = larder.folder().join("large");
    std::fs::write(&large, vec![b'x'; 300_000]).expect("the folder can be written");
    let data = large.to_string_lossy();
    let arguments = ["--verbose", "--no-content-length", "--data", &data, "--header", ":method: PUT", &url];
    let told = run("nghttp", arguments).text();
    assert!(told.contains(":status: 413") && told.contains("error_code=NO_ERROR"), "{told}");
    let mut client = larder.client();
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1389\r\n");
    client.send(vec![b'x'; 5001]);
    let refused = client.response();
    assert_eq!((refused.status(), refused.field("connection")), (413, "close"), "{:?}", refused.head);
}

/// Answered 502 where the head says that it is too large, and broken off where that is found out later.
#[test]
fn a_response_with_too_much_content_is_not_passed_on() {
    let origin = ScriptedOrigin::start(|exchange| {
        let fields = "Cache-Control: max-age=600, stale-if-error=600\r\nETag: \"1\"\r\n";
        let bytes = match exchange.request.target().split('/').next_back() {
            Some("large") => 1001,
            _ => 1000,
        };
        match exchange.request.target() {
            target if target.starts_with("/chunked") => {
                exchange.chunked_head(fields).chunk(vec![b'x'; 500]).chunk(vec![b'y'; bytes - 500]);
                exchange.last_chunk("");
            }
            _ if exchange.request.method() == "HEAD" => {
                exchange.head("200 OK", &format!("{fields}Content-Length: {bytes}\r\n"));
            }
            _ => _ = exchange.respond("200 OK", fields, vec![b'x'; bytes]),
        }
    });
    let site = "[[site.rule]]\nresponse_body_bytes_max = 1000\n";
    let larder = Setup::config(LARDER, &config(&origin, "", site)).start();
    for target in ["/length", "/chunked"] {
        assert_eq!(larder.get(target).body.len(), 1000, "{target}");
        assert!(larder.get(target).is_hit(), "{target}");
    }
    for (method, target) in [("GET", "/length/large"), ("POST", "/length/large")] {
        let refused = larder.ask(method, target, "");
        assert_eq!(refused.status(), 502, "{method}: {:?}", refused.head);
        assert!(refused.cache_status().contains("detail=http-response-body-size"), "{:?}", refused.head);
        assert!(refused.text().contains("response body larger than 1000 bytes"), "{}", refused.text());
    }
    assert_eq!(larder.ask("HEAD", "/length/large", "").status(), 200, "it has no content");
    for method in ["GET", "POST", "GET"] {
        let before = origin.count("/chunked/large");
        let broken = larder.ask(method, "/chunked/large", "");
        assert_eq!((broken.status(), broken.end), (200, End::Truncated), "{method}: {:?}", broken.head);
        assert_eq!(origin.count("/chunked/large"), before + 1, "{method}: nothing is stored");
    }
    let ranged = larder.ask("GET", "/chunked/large", "Range: bytes=0-9\r\n");
    assert!(!ranged.is_hit(), "nor the beginning: {:?}", ranged.head);
    let broken = curl(&["--http2-prior-knowledge", &larder.url("/chunked/large")], "");
    assert!(broken.contains("INTERNAL_ERROR"), "{broken}");
    let reason = ["reason=\"http-response-body-size\""];
    assert!(larder.metric("larder_origin_errors_total", &reason) >= 2.0);
    assert!(larder.metric("larder_fills_aborted_total", &reason) >= 3.0);
}

/// It is a failure of the origin: what is stored stands in where it may.
#[test]
fn a_stale_response_stands_in_for_one_that_is_too_large() {
    let origin = ScriptedOrigin::start(|exchange| {
        let bytes = if exchange.request.field("if-none-match").is_empty() { 10 } else { 1001 };
        let fields = "Cache-Control: max-age=1, stale-if-error=600\r\nAge: 5\r\nETag: \"1\"\r\n";
        exchange.respond("200 OK", fields, vec![b'x'; bytes]);
    });
    let site = "[[site.rule]]\nresponse_body_bytes_max = 1000\n";
    let larder = Setup::config(LARDER, &config(&origin, "", site)).start();
    assert_eq!(larder.get("/").status(), 200);
    let stale = larder.get("/");
    assert_eq!((stale.status(), stale.body.len()), (200, 10), "{:?}", stale.head);
    assert!(stale.cache_status().contains("detail=http-response-body-size"), "{:?}", stale.head);
}

/// Cache deception: a user is made to open `/account/x.css`, which the origin answers with the page of the account.
#[test]
fn a_page_under_the_url_of_a_file_is_not_stored() {
    let origin = ScriptedOrigin::start(|exchange| {
        let (path, kind) = exchange.request.target().split_once('?').expect("a kind");
        let status = if path.starts_with("/missing") { "404 Not Found" } else { "200 OK" };
        let kind = kind.replace("none", "");
        let kind = if kind.is_empty() { kind } else { format!("Content-Type: {kind}\r\n") };
        match exchange.request.field("range").is_empty() {
            true => exchange.respond(status, &format!("{kind}Cache-Control: max-age=600\r\n"), "content"),
            false => {
                let fields = format!(
                    "{kind}Cache-Control: max-age=600\r\nContent-Range: bytes 0-1/7\r\nETag: \"1\"\r\n"
                );
                exchange.respond("206 Partial Content", &fields, "co")
            }
        };
    });
    let site = "[[site.rule]]\nname = \"all\"\npath = { prefix = \"/all\" }\ntype_mismatch = \"store\"\n\
        [[site.rule]]\nname = \"static\"\npath = { glob = \"/static/**\" }\nttl_override = { 200 = \"1d\" }\n";
    let larder = Setup::config(LARDER, &config(&origin, "", site)).start();
    #[track_caller]
    fn check(larder: &Larder, target: &str, fields: &str, is_stored: bool) {
        let first = larder.ask("GET", target, fields);
        assert_eq!(first.cache_status().contains("stored"), is_stored, "{target}: {}", first.cache_status());
        assert_eq!(first.cache_status().contains("detail=type-mismatch"), !is_stored, "{target}");
        let again = larder.ask("GET", target, fields);
        assert_eq!(
            (again.is_hit(), again.status()),
            (is_stored, first.status()),
            "{target}: {:?}",
            again.head
        );
    }
    // Where no rule has a path, these are not refused.
    let bare = Setup::config(LARDER, &config(&origin, "", "")).start();
    for path in ["/account;x.js", "/account;x%2ecss", "/account%2fx%2ecss", "/account/x%252ecss"] {
        check(&bare, &format!("{path}?text/html"), "", false);
    }
    for (target, is_stored) in [
        ("/account/x.css?text/html", false),
        ("/account/x.JPG?application/json", false),
        ("/static/x.css?text/html", false),
        ("/account/x%2ecss?text/html", false),
        ("/account/x.c%73s?text/html", false),
        ("/account/x.woff%32?text/html", false),
        ("/account/x.css?text/css", true),
        ("/account/y.jpg?image/webp", true),
        ("/account/x.woff2?application/octet-stream", true),
        ("/account/x.pdf?none", true),
        ("/account?text/html", true),
        ("/account/x.html?text/html", true),
        ("/missing.css?text/html", true),
        ("/all/x.css?text/html", true),
    ] {
        check(&larder, target, "", is_stored);
    }
    check(&larder, "/account/part.css?text/html", "Range: bytes=0-1\r\n", false);
    check(&larder, "/account/part.css?text/css", "Range: bytes=0-1\r\n", true);
    assert!(larder.metric("larder_not_stored_total", &["reason=\"type-mismatch\""]) >= 5.0);
    let letter = Setup::config(LARDER, &config(&origin, "profile = \"rfc9111\"", site)).start();
    check(&letter, "/account/x.css?text/html", "", true);
}

/// In profile `safe`: what one client's odd request may have caused, and what says that this origin is not for the host.
#[test]
fn errors_of_one_request_are_not_stored() {
    let origin = ScriptedOrigin::start(|exchange| {
        let status = exchange.request.target()[1..].to_owned();
        exchange.respond(&format!("{status} Error"), "Cache-Control: public, max-age=600\r\n", "error");
    });
    let larder = Setup::config(LARDER, &config(&origin, "", "")).start();
    for status in [400, 421] {
        for _ in 0..2 {
            let answer = larder.get(&format!("/{status}"));
            assert_eq!((answer.status(), answer.is_hit()), (status, false), "{:?}", answer.head);
            assert!(answer.cache_status().contains("status-of-request"), "{}", answer.cache_status());
        }
        assert_eq!(origin.count(&format!("/{status}")), 2);
    }
    assert!(larder.get("/404").cache_status().contains("stored"), "an error of the resource is");
}

/// A cold cache costs the origin no more than so much, however many clients want to have it warm.
#[test]
fn a_miss_budget_spares_the_origin() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        let says = match exchange.request.target().split('?').next() {
            Some("/stale") => "Cache-Control: max-age=1\r\nAge: 5\r\nETag: \"1\"\r\n",
            Some("/private") => "Cache-Control: no-store\r\n",
            _ => "Cache-Control: max-age=600\r\n",
        };
        exchange.respond("200 OK", says, "content");
    });
    let budget = "[[site.rule]]\nname = \"r\"\n[site.rule.miss_budget]\nrequests = 4\nwindow = \"1h\"\n";
    let mut larder = Setup::config(LARDER, &config(&origin, "", budget)).start();
    for target in ["/1", "/2", "/stale", "/private"] {
        assert_eq!(larder.get(target).status(), 200, "{target}");
    }
    for target in ["/3", "/4", "/private", "/3?query"] {
        let refused = larder.get(target);
        assert_eq!(
            (refused.status(), refused.field("retry-after")),
            (503, "900"),
            "{target}: {:?}",
            refused.head
        );
        assert!(refused.cache_status().contains("detail=miss-budget"), "{}", refused.cache_status());
    }
    let stale = larder.get("/stale");
    assert_eq!((stale.status(), &stale.text()[..]), (200, "content"), "{:?}", stale.head);
    assert!(stale.cache_status().contains("detail=miss-budget"), "{}", stale.cache_status());
    assert!(larder.get("/1").is_hit());
    assert_eq!(larder.ask("POST", "/1", "Content-Length: 0\r\n").status(), 200, "it has to reach the origin");
    assert_eq!(origin.total(), 5);
    assert_eq!(larder.metric("larder_misses_refused_total", &["site=\"a\"", "rule=\"r\""]), 5.0);
    for (method, fields) in [
        ("HEAD", ""),
        ("GET", "If-Match: \"1\"\r\n"),
        ("GET", "If-Unmodified-Since: Thu, 01 Jan 2026 00:00:00 GMT\r\n"),
        ("GET", "Connection: upgrade\r\nUpgrade: websocket\r\n"),
        ("QUERY", "Content-Type: text/plain\r\nContent-Length: 0\r\n"),
    ] {
        let refused = larder.ask(method, "/6", fields);
        assert_eq!(refused.status(), 503, "{method} {fields}: {:?}", refused.head);
    }
    let mut client = larder.client();
    client.send("GET /6 HTTP/1.1\r\nHost: test.example\r\nContent-Length: 2\r\n\r\nab");
    assert_eq!(client.response().status(), 503, "a GET with content");
    assert_eq!(origin.total(), 5, "all of them would cost the origin something");
    reload(&mut larder, &config(&origin, "", &format!("{budget}[[site.rule]]\nname = \"s\"\n")));
    assert_eq!(larder.get("/5").status(), 503, "a reload gives nothing back");
    reload(&mut larder, &config(&origin, "", &budget.replace("= 4", "= 5")));
    assert_eq!(larder.get("/5").status(), 200, "another budget does");
}

/// Field bug: `/%6cogin` had no limits of `/login`, though origins take it for that.
#[test]
fn limits_hold_for_each_reading_of_a_path() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        match exchange.request.target().contains("down") {
            true => exchange.close(),
            false => exchange.respond("200 OK", "Cache-Control: max-age=600\r\n", "x".repeat(100)),
        };
    });
    for rest in [
        "",
        "[[site.rule]]\nname = \"rest\"\nrequest_body_bytes_max = 10\nrate_limit = { requests = 7, window = \"1h\" }\n",
    ] {
        let site = format!(
            "[[site.rule]]\nname = \"login\"\npath = {{ exact = \"/login\" }}\nrequest_body_bytes_max = 20\n\
             [site.rule.rate_limit]\n{SLOW}\
             [[site.rule]]\nname = \"api\"\npath = {{ prefix = \"/api/\" }}\nresponse_body_bytes_max = 50\n\
             default_response = {{ status = 203, body = \"later\" }}\n\
             [[site.rule]]\nname = \"shop\"\npath = {{ prefix = \"/shop/\" }}\nmiss_budget = {{ requests = 3, window = \"1h\" }}\n{rest}"
        );
        let larder = larder(&origin, &site);
        let status = |client: &str, method: &str, target: &str, bytes: usize| {
            let fields = format!("{}Content-Length: {bytes}\r\n\r\n{}", from(client), "x".repeat(bytes));
            larder
                .client()
                .send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}"))
                .response()
                .status()
        };
        // Each spelling counts for all.
        for target in ["/login", "/%6cogin", "/LOGIN", "/login/", "/login%3Fx", "/login%23x"] {
            assert_eq!(status("192.0.2.1", "POST", target, 0), 200, "{target} {rest}");
        }
        for target in ["/login", "/%6cogi%6e", "/login%3f", "/%4cOGIN"] {
            assert_eq!(status("192.0.2.1", "POST", target, 0), 429, "{target} {rest}");
        }
        for target in ["/./login", "/login;y", "/;/login", "/login;%2fx", "//login", "//x/login"] {
            assert_eq!(status("192.0.2.1", "POST", target, 0), 400, "{target} {rest}");
        }
        // A client is limited by the other rule too, where that is the stricter one.
        let others = (0..8)
            .map(|_| larder.ask("GET", "/other", &from("192.0.2.2")).status())
            .filter(|status| *status == 200);
        assert_eq!(others.count(), if rest.is_empty() { 8 } else { 7 });
        assert_eq!(status("192.0.2.2", "POST", "/login%3f", 0), if rest.is_empty() { 200 } else { 429 });
        assert_eq!(status("192.0.2.3", "POST", "/login%3f", 21), 413, "{rest}");
        assert_eq!(status("192.0.2.3", "POST", "/login%3f", 15), if rest.is_empty() { 200 } else { 413 });
        for target in ["/api/x", "/%61pi/x"] {
            assert_eq!(larder.ask("GET", target, &from("192.0.2.4")).text(), "later", "{target}: too large");
        }
        assert_eq!(
            larder.ask("GET", "/%61pi/down", &from("192.0.2.4")).status(),
            203,
            "of the path as it is decoded"
        );
        let shop = ["/shop/1", "/%73hop/2", "/shop/3", "/%73hop/4", "/shop/%40", "/shop/6"];
        let answers = shop.map(|target| larder.ask("GET", target, &from("192.0.2.5")).status());
        assert_eq!(answers, [200, 200, 200, 503, 503, 503], "{rest}");
    }
}

/// In place of the failure of an origin, where nothing that is stored may stand in.
#[test]
fn a_rule_has_a_response_for_when_the_origin_fails() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        match exchange.request.target().split('?').next() {
            Some("/stored" | "/page/stored") if exchange.request.field("if-none-match").is_empty() => {
                let says = "Cache-Control: max-age=1\r\nAge: 5\r\nETag: \"1\"\r\n";
                exchange.respond("200 OK", says, "stored")
            }
            Some("/page/500") => exchange.respond("500 Internal Server Error", "", "of the origin"),
            Some("/page/502") => exchange.respond("502 Bad Gateway", "", "of the origin"),
            _ => exchange.close(),
        };
    });
    let site = "[[site.rule]]\nname = \"page\"\npath = { prefix = \"/page\" }\n\
        default_response = { status = 200, file = \"page.html\", statuses = [502], fields = { Content-Type = \"text/html\", X-Default = \"1\" } }\n\
        [[site.rule]]\nname = \"other\"\ndefault_response = { body = \"try later\" }\n";
    let setup = Setup::config(LARDER, &config(&origin, "", site)).file("page.html", "<p>soon</p>");
    let mut larder = setup.start();
    let page = larder.get("/page/1");
    assert_eq!((page.status(), &page.text()[..]), (200, "<p>soon</p>"), "{:?}", page.head);
    assert_eq!((page.field("content-type"), page.field("x-default")), ("text/html", "1"), "{:?}", page.head);
    assert_eq!((page.field("cache-control"), page.field("retry-after")), ("no-store", ""));
    assert_eq!(page.cache_status(), "larder; fwd=uri-miss; detail=default-response");
    assert!(!larder.get("/page/1").is_hit(), "it is not stored");
    let head = larder.ask("HEAD", "/page/1", "");
    assert_eq!((head.status(), head.field("content-length")), (200, "11"), "{:?}", head.head);
    let other = larder.get("/1");
    assert_eq!((other.status(), &other.text()[..]), (503, "try later"), "{:?}", other.head);
    assert_eq!((other.field("content-type"), other.field("retry-after")), ("text/plain; charset=utf-8", "1"));
    // What was to change something has not.
    assert_eq!(larder.ask("POST", "/page/1", "Content-Length: 0\r\n").status(), 502);
    assert_eq!(
        (larder.get("/page/500").status(), &larder.get("/page/500").text()[..]),
        (500, "of the origin")
    );
    assert_eq!(larder.get("/page/502").text(), "<p>soon</p>");
    for target in ["/stored", "/page/stored"] {
        larder.get(target);
        assert_eq!(larder.get(target).text(), "stored", "{target}: what is stored goes before it");
    }
    for (protocol, version) in [("--http1.1", "1.1"), ("--http2-prior-knowledge", "2")] {
        let answer = curl(&[protocol, &larder.url("/page/1")], "");
        assert!(answer.starts_with(&format!("HTTP/{version} 200")), "{protocol}: {answer}");
        assert!(answer.ends_with("\r\n\r\n<p>soon</p>"), "{protocol}: {answer}");
    }
    for (wrong, problem) in [
        ("body = \"a\", file = \"page.html\"", "not together with `body`"),
        ("fields = { Content-Length = \"1\" }", "Larder writes this field itself"),
        ("file = \"none.html\"", "can't be read"),
        ("status = 101", "from 200 to 599"),
        ("statuses = [\"2xx\"]", "expected an error: a status code from 400 to 599, `4xx` or `5xx`"),
    ] {
        let rule = format!("[[site.rule]]\ndefault_response = {{ {wrong} }}\n");
        larder.write_config(&config(&origin, "", &rule));
        let refused = larder.ask_admin("POST", "/reload", "").text();
        assert!(refused.contains(problem), "{wrong}: {refused}");
    }
}

/// Whatever way a response of the origin with such a status takes to its client.
#[test]
fn the_response_of_a_rule_replaces_stored_and_shared_errors_too() {
    let gate = Gate::new();
    let held = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| match exchange.request.target() {
        "/shared" => {
            held.pass();
            exchange.respond("502 Bad Gateway", "", "of the origin");
        }
        "/gone" if exchange.request.field("if-none-match").is_empty() => {
            let says = "Cache-Control: max-age=0\r\nETag: \"1\"\r\n";
            exchange.respond("404 Not Found", says, "of the origin");
        }
        "/gone" => {
            exchange.respond("304 Not Modified", "ETag: \"1\"\r\n", "");
        }
        _ => {
            exchange.respond("502 Bad Gateway", "", "of the origin");
        }
    });
    let site = "[[site.rule]]\nname = \"page\"\nttl_default = { 502 = \"1h\" }\n\
        default_response = { body = \"soon\", statuses = [404, \"5xx\"] }\n";
    let larder = Setup::config(LARDER, &config(&origin, "", site)).start();
    for (target, cache) in [
        ("/stored", "larder; fwd=uri-miss"),
        ("/stored", "larder; hit; detail=default-response"),
        ("/gone", "larder; fwd=uri-miss"),
        ("/gone", "larder; fwd=stale"),
    ] {
        let response = larder.get(target);
        assert_eq!((response.status(), &response.text()[..]), (503, "soon"), "{target}: {:?}", response.head);
        assert!(response.cache_status().starts_with(cache), "{target}: {}", response.cache_status());
        assert!(response.cache_status().ends_with("detail=default-response"), "{}", response.cache_status());
        let entries = if target == "/stored" { 1.0 } else { 2.0 };
        wait::until_true("it is stored", || larder.metric("larder_store_entries", &[]) >= entries);
    }
    let mut clients: Vec<_> = (0..4).map(|_| larder.client()).collect();
    for client in &mut clients {
        client.send("GET /shared HTTP/1.1\r\nHost: test.example\r\n\r\n");
    }
    origin.wait_for("/shared", 1);
    gate.open();
    for mut client in clients {
        assert_eq!(client.response().text(), "soon");
    }
    assert_eq!((origin.count("/stored"), origin.count("/gone")), (1, 2));
}
