//! Limits that protect sites and their origins: rates, sizes, miss budgets, denied paths, and the responses to refused requests.

use testkit::{End, Exchange, Larder, ScriptedOrigin, Setup, run, wait};

use super::real_clients::logged;
use crate::LARDER;
use crate::cache::basics::Protocol::Http2;
use crate::cache::basics::{asking, bare, filled, gates, reload, with};

/// A rate so slow that no request becomes available again during a test.
const SLOW: &str = "requests = 6\nwindow = \"1h\"\n";

/// Settings of a site whose clients are behind a proxy, and of one without a proxy.
const PROXIED: &str = "trusted_proxies = [\"127.0.0.1\"]\n@site@expose_errors = true\n";
const DIRECT: &str = "@site@expose_errors = true\n";

fn larder(origin: &ScriptedOrigin, site: &str) -> Larder {
    with(&format!("{PROXIED}{site}"), origin)
}

fn without_proxy(origin: &ScriptedOrigin, site: &str) -> Larder {
    with(&format!("{DIRECT}{site}"), origin)
}

fn cacheable(exchange: &mut Exchange<'_>) {
    exchange.read_body();
    let says = match exchange.request.target().starts_with("/private") {
        true => "Cache-Control: no-store\r\n",
        false => "Cache-Control: max-age=600\r\n",
    };
    exchange.respond("200 OK", says, "content");
}

/// Field line of a client behind the proxy.
fn from(client: &str) -> String {
    format!("X-Forwarded-For: {client}\r\n")
}

fn statuses(larder: &Larder, client: &str, target: &str, count: usize) -> Vec<u16> {
    (0..count).map(|_| larder.ask("GET", target, &from(client)).status()).collect()
}

/// Checks that `left` requests are answered and the next one is refused.
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
    assert!(
        refused.text().contains("rate-limited: this client exceeds its rate limit"),
        "{}",
        refused.text()
    );
    // Hits, other methods and other URLs count too; other clients have their own limits.
    for method in ["GET", "HEAD", "POST", "DELETE"] {
        assert_eq!(larder.ask(method, "/other", &from("192.0.2.1")).status(), 429, "{method}");
    }
    assert_eq!(Http2.get(&larder, "/", &["X-Forwarded-For: 192.0.2.1"]).status(), 429);
    check_left(&larder, "192.0.2.2", "/", 3);
    check_left(&larder, "::ffff:192.0.2.3", "/", 3);
    check_left(&larder, "192.0.2.3", "/", 0);
    check_left(&larder, "2001:db8::1", "/", 3);
    check_left(&larder, "2001:db8::ffff:2", "/", 0);
    check_left(&larder, "2001:db8:0:1::1", "/", 3);
    assert_eq!(statuses(&larder, "198.51.100.7", "/", 9), [200; 9], "exempt");
    // Requests without a named client are the proxy's own, such as its probes: no client's limit applies.
    assert!((0..9).all(|_| larder.get("/").status() == 200));
    let refused = ["site=\"a\"", "rule=\"none\"", "outcome=\"refused\""];
    assert!(larder.metric("larder_rate_limited_total", &refused) >= 9.0);
    assert!(larder.metric("larder_requests_total", &["status=\"429\"", "cache=\"local\""]) >= 9.0);
}

/// A dry run counts but refuses nothing.
#[test]
fn a_client_can_not_name_another_one() {
    let origin = ScriptedOrigin::start(cacheable);
    let larder = without_proxy(&origin, &format!("[site.rate_limit]\n{SLOW}"));
    let ask = |client| larder.ask("GET", "/", &from(&format!("192.0.2.{client}"))).status();
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(ask), [200, 200, 200, 200, 200, 200, 429, 429]);
    let larder = without_proxy(&origin, &format!("[site.rate_limit]\n{SLOW}dry_run = true\n"));
    assert_eq!(statuses(&larder, "192.0.2.1", "/", 10), [200; 10]);
    assert_eq!(larder.metric("larder_rate_limited_total", &["site=\"a\"", "outcome=\"dry_run\""]), 4.0);
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
    assert_eq!(statuses(&larder, "192.0.2.1", "/", 20), [200; 20], "stored responses are not limited");
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
    // Refused requests count toward the limit of the site.
    let other = larder.ask("GET", "/other", &from("192.0.2.1"));
    assert_eq!((other.status(), other.field("ratelimit")), (200, "\"default\";r=0;t=3000"));
    assert_eq!(larder.ask("GET", "/other", &from("192.0.2.1")).status(), 429);
    let of_rule = ["site=\"a\"", "rule=\"login\"", "outcome=\"refused\""];
    assert_eq!(larder.metric("larder_rate_limited_total", &of_rule), 2.0);
}

#[test]
fn a_rule_denies_its_paths_in_any_spelling() {
    let origin = ScriptedOrigin::start(cacheable);
    let rules = "[[site.rule]]\nname = \"hidden\"\nmethods = [\"GET\", \"POST\"]\n\
                 path = { regex = \"^/(\\\\.git|admin)(/|$)\" }\ndeny = true\n\
                 [[site.rule]]\nname = \"rest\"\nttl_override = { 200 = \"1h\" }\n";
    let mut larder = larder(&origin, "");
    assert_eq!(larder.get("/admin").status(), 200);
    assert!(larder.get("/admin").is_hit(), "stored before the rule existed");
    reload(&mut larder, &format!("{PROXIED}{rules}"), &origin);
    let before = origin.total();
    for target in ["/admin", "/admin/x?y=1", "/ADMIN?z", "/admin/", "/%61dmin", "/.git/config", "/%2egit"] {
        let refused = larder.get(target);
        let found = (refused.status(), refused.cache_status());
        assert_eq!(found, (403, "larder; detail=rule-denied".to_owned()), "{target}");
    }
    assert_eq!(larder.ask("POST", "/admin", "Content-Length: 0\r\n").status(), 403);
    assert_eq!(Http2.get(&larder, "/admin", &[]).status(), 403);
    assert_eq!(origin.total(), before, "the request doesn't reach the origin");
    for target in ["/administrator", "/x?/admin", "/git"] {
        assert_eq!(larder.get(target).status(), 200, "{target}");
    }
    assert_eq!(larder.ask("PUT", "/admin", "Content-Length: 0\r\n").status(), 200, "another method");
    assert!(larder.metric("larder_rule_requests_total", &["rule=\"hidden\"", "cache=\"local\""]) >= 6.0);
}

/// Field bug: a refusal was counted for the rule that matches the path as written, which may have no limit.
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

/// A client that has used up its requests gets no more after a reload, unless the limit changes.
#[test]
fn counts_survive_a_reload_of_the_same_limit() {
    let origin = ScriptedOrigin::start(cacheable);
    let limits = |site: &str, rule: &str| {
        format!("{PROXIED}[site.rate_limit]\n{SLOW}{site}[[site.rule]]\nname = \"r\"\n{rule}")
    };
    let rule = format!("[site.rule.rate_limit]\n{SLOW}burst = 4\n");
    let mut larder = with(&limits("", &rule), &origin);
    check_left(&larder, "192.0.2.1", "/", 4);
    reload(&mut larder, &limits("clients_exempt = [\"192.0.2.9\"]\n", &rule), &origin);
    check_left(&larder, "192.0.2.1", "/", 0);
    // The limit of the rule is gone, but the site has counted the requests.
    reload(&mut larder, &limits("", ""), &origin);
    check_left(&larder, "192.0.2.1", "/", 0);
    check_left(&larder, "192.0.2.2", "/", 6);
    reload(&mut larder, &limits("burst = 2\n", ""), &origin);
    check_left(&larder, "192.0.2.1", "/", 2);
    reload(&mut larder, PROXIED, &origin);
    assert_eq!(statuses(&larder, "192.0.2.1", "/", 9), [200; 9]);
}

/// Rules without names have numbers, which change when a rule is inserted before them.
#[test]
fn counts_stay_with_what_a_rule_matches() {
    let origin = ScriptedOrigin::start(cacheable);
    let rule = |path: &str| {
        format!("[[site.rule]]\npath = {{ exact = \"{path}\" }}\n[site.rule.rate_limit]\n{SLOW}")
    };
    let both = rule("/login") + &rule("/search");
    let mut larder = larder(&origin, &both);
    check_left(&larder, "192.0.2.1", "/login", 6);
    reload(&mut larder, &format!("{PROXIED}{}{both}", rule("/new")), &origin);
    for (path, left) in [("/login", 0), ("/search", 6), ("/new", 6)] {
        check_left(&larder, "192.0.2.1", path, left);
    }
}

/// The response with its head as curl receives it, and curl's error message.
fn curl(arguments: &[&str]) -> String {
    let usual = ["--silent", "--show-error", "--include", "--max-time", "30"];
    let output = run("curl", [&usual[..], arguments].concat());
    output.text() + &output.stderr
}

#[test]
fn explain_tells_of_limits() {
    let origin = ScriptedOrigin::start(cacheable);
    let larder = without_proxy(&origin, &format!("[site.rate_limit]\n{SLOW}"));
    let admin = larder.admin().to_string();
    let explain = || run(LARDER, ["explain", "http://a/", "--admin", &admin]).text();
    let told = explain();
    for part in ["within the rate limit of the client [RFC 6585 section 4]", "policy = default", "left = 5"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!((0..5).filter(|_| larder.get("/").status() == 200).count(), 5);
    assert!(explain().contains("beyond the rate limit of the client: refused"));
}

#[test]
fn workers_share_what_they_count() {
    let origin = ScriptedOrigin::start(cacheable);
    let site = "[site.rate_limit]\nrequests = 50\nwindow = \"1h\"\n";
    let larder = with(&format!("workers = 4\n{DIRECT}{site}"), &origin);
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

//= RFC 9110 section 15.5.14: 413
#[test]
fn a_request_with_too_much_content_is_refused() {
    let origin = ScriptedOrigin::start(cacheable);
    let site = "request_body_bytes_max = 1000\n\
        [[site.rule]]\nname = \"upload\"\npath = { prefix = \"/upload\" }\nrequest_body_bytes_max = \"200KiB\"\n\
        [[site.rule]]\nname = \"none\"\npath = { prefix = \"/none\" }\nrequest_body_bytes_max = 0\n";
    let larder = with(&format!("[limits]\nbody_bytes_max = \"150KiB\"\n{DIRECT}{site}"), &origin);
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
        // The limit for all clients also applies to each.
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
    assert_eq!(post("/", 100_000).field("connection"), "close", "a long rest is not");
    let reason = ["reason=\"request-body-too-large\""];
    assert!(larder.metric("larder_client_errors_total", &reason) >= 5.0);
    // A client that waits for 100 gets the final response instead.
    let (mut client, before) = (larder.client(), origin.total());
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n");
    let refused = client.response();
    assert_eq!((refused.status(), refused.interim.len()), (413, 0), "{:?}", refused.head);
    assert_eq!(refused.field("connection"), "close", "the content may or may not follow");
    assert_eq!((client.rest(), origin.total()), (Vec::new(), before));
}

/// Content is too large by its declared length or as it arrives. Either way the refusal is handled like other errors of its site: in
/// log, metrics, page and fields.
#[test]
fn a_refusal_of_content_is_like_other_errors() {
    let origin = ScriptedOrigin::start(cacheable);
    let config = "[log]\naccess = \"stdout\"\n[limits]\nbody_bytes_max = 5000\n@site@x_cache = true\n\
        [site.cors]\norigins = [\"https://a.example\"]\n\
        [[site.error_page]]\nstatuses = [\"413\"]\nbody_file = \"large.html\"\n\
        [[site.transform]]\nphase = \"client_response\"\nset = { X-New = \"n\" }\n\
        [[site.rule]]\nname = \"small\"\npath = { prefix = \"/small\" }\nrequest_body_bytes_max = 1000\n";
    let setup = Setup::config(LARDER, &filled(config, &origin));
    let larder = setup.file("large.html", "<p>too large</p>").start();
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
        assert!(!told.contains("bytes\n"), "the limit is not shown: {what}");
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

/// The output of a client that sends `bytes` without a `Content-Length`. Over HTTP/2 the client is nghttp: curl 7.88 drops a response
/// if the stream is reset with NO_ERROR before curl has read it (RFC 9113 section 8.1).
fn uploaded(larder: &Larder, target: &str, (protocol, fields): (&str, &[String]), bytes: usize) -> String {
    let url = larder.url(target);
    let fields: Vec<&str> = fields.iter().flat_map(|field| ["--header", field.as_str()]).collect();
    let file = larder.folder().join("content").display().to_string();
    std::fs::write(&file, vec![b'x'; bytes]).expect("the folder can be written");
    if protocol == "--http1.1" {
        return curl(
            &[&fields[..], &[protocol, "--request", "PUT", "--data-binary", &format!("@{file}"), &url]]
                .concat(),
        );
    }
    let own = ["--verbose", "--no-content-length", "--data", &file, "--header", ":method: PUT", &url];
    run("nghttp", [&fields[..], &own].concat()).text()
}

/// `a_refusal_of_content_is_like_other_errors` tests both protocols.
#[test]
fn content_of_unknown_length_is_refused_once_it_is_too_much() {
    let origin = ScriptedOrigin::start(cacheable);
    let larder = without_proxy(&origin, "request_body_bytes_max = 5000\n");
    for (protocol, field) in
        [("--http1.1", "Transfer-Encoding: chunked"), ("--http2-prior-knowledge", "X-A: 1")]
    {
        let answer = uploaded(&larder, "/", (protocol, &[field.to_owned()]), 5000);
        assert!(answer.contains(" 200"), "{protocol}: {answer}");
    }
    // The rest is not read: the stream ends.
    let told = uploaded(&larder, "/", ("--http2-prior-knowledge", &[]), 300_000);
    assert!(told.contains(":status: 413") && told.contains("error_code=NO_ERROR"), "{told}");
}

/// The answer is 502 if the head declares too large a body; if the excess shows only later, the body is cut short.
#[test]
fn a_response_with_too_much_content_is_not_passed_on() {
    let origin = ScriptedOrigin::start(|exchange| {
        if exchange.request.target() == "/stale" {
            let bytes = if exchange.request.field("if-none-match").is_empty() { 10 } else { 1001 };
            let fields = "Cache-Control: max-age=1, stale-if-error=600\r\nAge: 5\r\nETag: \"1\"\r\n";
            exchange.respond("200 OK", fields, vec![b'x'; bytes]);
            return;
        }
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
    let larder = without_proxy(&origin, site);
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
    // It is a failure of the origin: a stale response is used if that is allowed.
    assert_eq!(larder.get("/stale").status(), 200);
    let stale = larder.get("/stale");
    assert_eq!((stale.status(), stale.body.len()), (200, 10), "{:?}", stale.head);
    assert!(stale.cache_status().contains("detail=http-response-body-size"), "{:?}", stale.head);
    for method in ["GET", "POST", "GET"] {
        let before = origin.count("/chunked/large");
        let broken = larder.ask(method, "/chunked/large", "");
        assert_eq!((broken.status(), broken.end), (200, End::Truncated), "{method}: {:?}", broken.head);
        assert_eq!(origin.count("/chunked/large"), before + 1, "{method}: nothing is stored");
    }
    let ranged = larder.ask("GET", "/chunked/large", "Range: bytes=0-9\r\n");
    assert!(!ranged.is_hit(), "nor is its beginning stored: {:?}", ranged.head);
    let broken = curl(&["--http2-prior-knowledge", &larder.url("/chunked/large")]);
    assert!(broken.contains("INTERNAL_ERROR"), "{broken}");
    let reason = ["reason=\"http-response-body-size\""];
    assert!(larder.metric("larder_origin_errors_total", &reason) >= 2.0);
    assert!(larder.metric("larder_fills_aborted_total", &reason) >= 3.0);
}

/// Cache deception: an attacker makes a user open `/account/x.css`, which the origin answers with the account page.
/// `caching::file_type` tests all names and types.
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
    let larder = without_proxy(&origin, site);
    #[track_caller]
    fn check(larder: &Larder, target: &str, fields: &str, is_stored: bool) {
        let first = larder.ask("GET", target, fields);
        assert_eq!(first.cache_status().contains("stored"), is_stored, "{target}: {}", first.cache_status());
        assert_eq!(first.cache_status().contains("detail=type-mismatch"), !is_stored, "{target}");
        let again = larder.ask("GET", target, fields);
        let found = (again.is_hit(), again.status());
        assert_eq!(found, (is_stored, first.status()), "{target}: {:?}", again.head);
    }
    // No rule has a path here, so these are not refused.
    let bare = bare(&origin);
    for path in ["/account;x.js", "/account%2fx%2ecss"] {
        check(&bare, &format!("{path}?text/html"), "", false);
    }
    for (target, is_stored) in [
        ("/account/x.css?text/html", false),
        ("/static/x.css?text/html", false),
        ("/account/x.css?text/css", true),
        ("/account/x.pdf?none", true),
        ("/account?text/html", true),
        ("/missing.css?text/html", true),
        ("/all/x.css?text/html", true),
    ] {
        check(&larder, target, "", is_stored);
    }
    check(&larder, "/account/part.css?text/html", "Range: bytes=0-1\r\n", false);
    check(&larder, "/account/part.css?text/css", "Range: bytes=0-1\r\n", true);
    assert!(larder.metric("larder_not_stored_total", &["reason=\"type-mismatch\""]) >= 5.0);
    let letter = with(&format!("profile = \"rfc9111\"\n{DIRECT}{site}"), &origin);
    check(&letter, "/account/x.css?text/html", "", true);
}

/// The budget limits what a cold cache costs the origin, regardless of the number of clients.
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
    let mut larder = without_proxy(&origin, budget);
    for target in ["/1", "/2", "/stale", "/private"] {
        assert_eq!(larder.get(target).status(), 200, "{target}");
    }
    for target in ["/3", "/4", "/private", "/3?query"] {
        let refused = larder.get(target);
        let found = (refused.status(), refused.field("retry-after"));
        assert_eq!(found, (503, "900"), "{target}: {:?}", refused.head);
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
    assert_eq!(origin.total(), 5, "each of them would have reached the origin");
    reload(&mut larder, &format!("{DIRECT}{budget}[[site.rule]]\nname = \"s\"\n"), &origin);
    assert_eq!(larder.get("/5").status(), 503, "a reload doesn't refill the budget");
    reload(&mut larder, &format!("{DIRECT}{}", budget.replace("= 4", "= 5")), &origin);
    assert_eq!(larder.get("/5").status(), 200, "a changed budget is full");
}

/// Field bug: the limits of `/login` didn't apply to `/%6cogin`, which origins treat as the same path.
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
            let head = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}");
            larder.client().send(head).response().status()
        };
        // All spellings share one count.
        for target in ["/login", "/%6cogin", "/LOGIN", "/login/", "/login%3Fx", "/login%23x"] {
            assert_eq!(status("192.0.2.1", "POST", target, 0), 200, "{target} {rest}");
        }
        for target in ["/login", "/%6cogi%6e", "/login%3f", "/%4cOGIN"] {
            assert_eq!(status("192.0.2.1", "POST", target, 0), 429, "{target} {rest}");
        }
        for target in ["/./login", "/login;y", "/;/login", "/login;%2fx", "//login", "//x/login"] {
            assert_eq!(status("192.0.2.1", "POST", target, 0), 400, "{target} {rest}");
        }
        // The other rule limits a client too if it is stricter.
        let others = statuses(&larder, "192.0.2.2", "/other", 8);
        let refused = others.iter().position(|status| *status == 429);
        assert_eq!(refused, (!rest.is_empty()).then_some(7), "{others:?}");
        assert_eq!(status("192.0.2.2", "POST", "/login%3f", 0), if rest.is_empty() { 200 } else { 429 });
        for target in ["/login%3f", "/LOGIN", "/login/"] {
            assert_eq!(status("192.0.2.3", "POST", target, 21), 413, "{target} {rest}");
        }
        assert_eq!(status("192.0.2.3", "POST", "/login%3f", 15), if rest.is_empty() { 200 } else { 413 });
        for target in ["/api/x", "/%61pi/x", "/API/x?y"] {
            assert_eq!(larder.ask("GET", target, &from("192.0.2.4")).text(), "later", "{target}: too large");
        }
        let down = larder.ask("GET", "/%61pi/down", &from("192.0.2.4"));
        assert_eq!(down.status(), 203, "the response for the decoded path");
        let shop = ["/shop/1", "/%73hop/2", "/SHOP/3", "/%73hop/4", "/shop/%40", "/Shop/6"];
        let answers = shop.map(|target| larder.ask("GET", target, &from("192.0.2.5")).status());
        assert_eq!(answers, [200, 200, 200, 503, 503, 503], "{rest}");
    }
}

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
    let setup = Setup::config(LARDER, &filled(&format!("{DIRECT}{site}"), &origin));
    let mut larder = setup.file("page.html", "<p>soon</p>").start();
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
    // The POST hasn't changed anything.
    assert_eq!(larder.ask("POST", "/page/1", "Content-Length: 0\r\n").status(), 502);
    assert_eq!(larder.get("/page/500").text(), "of the origin");
    assert_eq!(larder.get("/page/502").text(), "<p>soon</p>");
    for target in ["/stored", "/page/stored"] {
        larder.get(target);
        assert_eq!(larder.get(target).text(), "stored", "{target}: a stored response takes precedence");
    }
    let over_http2 = Http2.get(&larder, "/page/1", &[]);
    assert_eq!((over_http2.status(), &over_http2.text()[..]), (200, "<p>soon</p>"), "{:?}", over_http2.head);
    for (wrong, problem) in [
        ("body = \"a\", file = \"page.html\"", "can't be combined with `body`"),
        ("fields = { Content-Length = \"1\" }", "Larder writes this field itself"),
        ("file = \"none.html\"", "can't be read"),
        ("status = 101", "from 200 to 599"),
        ("statuses = [\"2xx\"]", "expected an error: a status code from 400 to 599, `4xx` or `5xx`"),
    ] {
        let rule = format!("[[site.rule]]\ndefault_response = {{ {wrong} }}\n");
        larder.write_config(&filled(&format!("{DIRECT}{rule}"), &origin));
        let refused = larder.ask_admin("POST", "/reload", "").text();
        assert!(refused.contains(problem), "{wrong}: {refused}");
    }
}

#[test]
fn the_response_of_a_rule_replaces_stored_and_shared_errors_too() {
    let (gate, held) = gates();
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
    let larder = without_proxy(&origin, site);
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
    let clients = [(); 4].map(|()| asking(&larder, "/shared", ""));
    origin.wait_for("/shared", 1);
    gate.open();
    for mut client in clients {
        assert_eq!(client.response().text(), "soon");
    }
    assert_eq!((origin.count("/stored"), origin.count("/gone")), (1, 2));
}
