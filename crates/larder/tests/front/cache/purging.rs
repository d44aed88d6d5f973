//! Purges by other than a URL, through every front door of the running binary.

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::{Exchange, Gate, Larder, Redis, Response, ScriptedOrigin, Setup, wait};

use crate::LARDER;
use crate::fleet::instances;

fn operate(larder: &Larder, arguments: &[&str]) -> Output {
    let admin = larder.admin().to_string();
    Command::new(LARDER)
        .arg("purge")
        .args(arguments)
        .args(["--admin", &admin])
        .output()
        .expect("the binary runs")
}

#[track_caller]
fn check(output: &Output, status: i32, part: &str) {
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert!(text.contains(part), "{part:?} is not in {text:?}");
}

#[track_caller]
fn purge(larder: &Larder, order: &str) -> String {
    let answer = larder.ask_admin("POST", "/purge", order);
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer.text()
}

/// What stands behind the last `/` of a target are its tags, with `+` between them. A request with the validator gets 304.
fn tagged(exchange: &mut Exchange<'_>, more: &str) {
    let target = exchange.request.target().to_owned();
    let tags = target.rsplit('/').next().unwrap_or_default().replace('+', " ");
    if exchange.request.field("if-none-match") == "\"v\"" {
        exchange.respond("304 Not Modified", "ETag: \"v\"\r\n", "");
        return;
    }
    let fields = format!("Surrogate-Key: {tags}\r\nETag: \"v\"\r\nCache-Control: max-age=60{more}\r\n");
    exchange.respond("200 OK", &fields, target);
}

fn origin(more: &'static str) -> ScriptedOrigin {
    ScriptedOrigin::start(move |exchange| tagged(exchange, more))
}

fn sites(origin: &ScriptedOrigin, head: &str) -> String {
    let url = origin.url();
    let site = |name: &str, more: &str| {
        format!("[[site]]\nname = \"{name}\"\n{more}origin = \"{url}\"\ntags = [\"surrogate-key\"]\n")
    };
    let shop = site("shop", "");
    format!("{head}{shop}{}", site("other", "hosts = [\"other.example\"]\n"))
}

fn start(origin: &ScriptedOrigin) -> Larder {
    Setup::config(LARDER, &sites(origin, "")).start()
}

fn ask_host(larder: &Larder, host: &str, target: &str) -> Response {
    let mut client = larder.client();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.response()
}

/// Whether a purge has taken what was stored for each target.
#[track_caller]
fn check_taken(larder: &Larder, order: &str, taken: &[(&str, &str, bool)]) {
    for (host, target, _) in taken {
        ask_host(larder, host, target);
        assert!(ask_host(larder, host, target).is_hit(), "{host}{target} is stored");
    }
    let answer = purge(larder, order);
    assert!(answer.contains("\"uncounted\":true"), "{answer}");
    for (host, target, is_taken) in taken {
        let response = ask_host(larder, host, target);
        assert_eq!(!response.is_hit(), *is_taken, "{order}: {host}{target} {}", response.cache_status());
    }
}

#[test]
fn each_form_takes_what_it_says_and_no_more() {
    let origin = origin("");
    let larder = start(&origin);
    let (shop, port, other) = ("a.example", "a.example:8080", "other.example");
    check_taken(
        &larder,
        r#"{"tags":["x"],"site":"shop"}"#,
        &[(shop, "/1/x", true), (shop, "/1/x+y", true), (shop, "/1/y", false), (other, "/1/x", false)],
    );
    check_taken(
        &larder,
        r#"{"tags":["x","y"],"match":"all","site":"shop"}"#,
        &[(shop, "/2/x", false), (shop, "/2/x+y+z", true), (other, "/2/x+y", false)],
    );
    check_taken(
        &larder,
        r#"{"tags":["x","y"],"host":"A.example"}"#,
        &[(shop, "/3/x", true), (port, "/3/y", true), ("b.example", "/3/x", false), (shop, "/3/z", false)],
    );
    check_taken(
        &larder,
        r#"{"tags":["x"],"prefix":"a.example/4/p"}"#,
        &[(shop, "/4/p/x", true), (shop, "/4/p/y", false), (shop, "/4/q/x", false)],
    );
    check_taken(
        &larder,
        r#"{"prefix":"http://a.example/5/"}"#,
        &[(shop, "/5/x?q", true), (shop, "/5x", false), (port, "/5/x", false), (other, "/5/x", false)],
    );
    check_taken(&larder, r#"{"prefix":"https://a.example/6/"}"#, &[(shop, "/6/x", false)]);
    check_taken(&larder, r#"{"host":"a.example:8080"}"#, &[(port, "/7/x", true), (shop, "/7/x", false)]);
    check_taken(&larder, r#"{"site":"other"}"#, &[(other, "/8/x", true), (shop, "/8/x", false)]);
    check_taken(&larder, r#"{"everything":true}"#, &[(other, "/9/x", true), (shop, "/9/x", true)]);
    let validated = origin.received().iter().filter(|asked| !asked.field("if-none-match").is_empty()).count();
    assert_eq!(validated, 0, "what is purged hard is validated with nothing");
    assert_eq!(larder.metric("larder_purge_forms_total", &["form=\"tag\""]), 4.0);
    assert_eq!(larder.metric("larder_purge_forms_total", &["form=\"everything\""]), 1.0);
    for (order, status, part) in [
        (r#"{"tags":["x"]}"#, 400, "\"sites\":[{\"hosts\":[]"),
        (r#"{"site":"none"}"#, 404, "no site is named \\\"none\\\""),
        ("{}", 400, "nothing selected"),
        (r#"{"url":"http://a.example/","site":"shop"}"#, 400, "go with nothing else"),
        (r#"{"tags":[""],"site":"shop"}"#, 400, "a tag has 0 bytes"),
        (r#"{"host":"a","prefix":"http://b/"}"#, 400, "stands in the prefix already"),
    ] {
        let answer = larder.ask_admin("POST", "/purge", order);
        assert!(answer.status() == status && answer.text().contains(part), "{order}: {}", answer.text());
    }
}

/// The older purges are joined, and what they took is taken still.
#[test]
fn more_purges_than_are_told_apart_take_too_much_and_never_too_little() {
    let origin = origin("");
    let larder = start(&origin);
    let paths: Vec<String> = (0..140).map(|number| format!("/p{number}/x")).collect();
    paths.iter().for_each(|path| assert_eq!(larder.get(path).status(), 200));
    let later = "/later/x";
    for path in &paths {
        purge(&larder, &format!("{{\"prefix\":\"{}\"}}", path.trim_end_matches('x')));
    }
    larder.get(later);
    assert!(paths.iter().all(|path| !larder.get(path).is_hit()), "each is taken");
    assert!(larder.get(later).is_hit(), "what came later is not");
    assert!(paths.iter().all(|path| larder.get(path).is_hit()));
}

/// FRiCKLE/ngx_cache_purge#55 and apisix#13523: a purge left variants.
#[test]
fn variants_keyed_responses_and_queries_are_taken_too() {
    let origin = ScriptedOrigin::start(|exchange| tagged(exchange, "\r\nVary: Accept-Language"));
    let config = sites(&origin, "").replacen("tags =", "request_fields_keyed = [\"x-key\"]\ntags =", 1);
    let larder = Setup::config(LARDER, &config).start();
    let ways = [
        ("GET", "Accept-Language: de\r\n"),
        ("GET", "Accept-Language: en\r\n"),
        ("GET", "X-Key: 1\r\n"),
        ("QUERY", "Content-Type: a/b\r\nContent-Length: 0\r\n"),
    ];
    let stored = || ways.map(|(method, fields)| larder.ask(method, "/x", fields).is_hit());
    for order in
        [r#"{"tags":["x"],"site":"shop"}"#, r#"{"prefix":"/x"}"#, r#"{"url":"http://test.example/x"}"#]
    {
        stored();
        assert_eq!(stored(), [true; 4]);
        purge(&larder, order);
        assert_eq!(stored(), [false; 4], "{order}");
    }
}

#[test]
fn a_soft_purge_leaves_what_may_be_stale() {
    let origin = origin("");
    let larder = start(&origin);
    larder.get("/x");
    purge(&larder, r#"{"tags":["x"],"site":"shop","mode":"soft"}"#);
    let validated = larder.get("/x");
    assert!(validated.cache_status().contains("fwd=stale; fwd-status=304"), "{}", validated.cache_status());
    assert!(larder.get("/x").is_hit(), "and is fresh from then on");
    purge(&larder, r#"{"everything":true,"mode":"soft"}"#);
    purge(&larder, r#"{"everything":true}"#);
    assert!(larder.get("/x").cache_status().contains("fwd=uri-miss"), "the harder one counts");
}

#[test]
fn a_refresh_fetches_a_url_at_once_and_others_at_their_next_use() {
    let origin = origin(", stale-while-revalidate=60");
    let larder = start(&origin);
    larder.get("/x");
    let answer = purge(&larder, r#"{"url":"http://test.example/x","mode":"refresh"}"#);
    assert!(answer.contains("\"refreshes\":1"), "{answer}");
    origin.wait_for("/x", 2);
    assert_eq!(origin.last("/x").field("if-none-match"), "\"v\"");
    wait::until_true("it is fresh again", || larder.get("/x").is_hit());
    assert_eq!(origin.count("/x"), 2);
    purge(&larder, r#"{"tags":["x"],"site":"shop","mode":"refresh"}"#);
    let stale = larder.get("/x");
    let is_stale = stale.is_hit() && stale.cache_status().contains("detail=stale-while-revalidate");
    assert!(is_stale, "{}", stale.cache_status());
    origin.wait_for("/x", 3);
}

#[test]
fn only_a_soft_purge_leaves_something_for_an_origin_that_fails() {
    let mut origin = origin(", stale-if-error=600");
    let larder = start(&origin);
    larder.get("/soft/x");
    larder.get("/hard/y");
    purge(&larder, r#"{"tags":["x"],"site":"shop","mode":"soft"}"#);
    purge(&larder, r#"{"tags":["y"],"site":"shop"}"#);
    origin.stop();
    let stale = larder.get("/soft/x");
    assert_eq!((stale.status(), stale.text().as_str()), (200, "/soft/x"), "{}", stale.cache_status());
    assert_eq!(larder.get("/hard/y").status(), 502);
}

/// An origin whose first response to each target waits: before its head, or behind half of its body.
fn waiting(gate: &Gate) -> (ScriptedOrigin, Arc<AtomicUsize>) {
    let (gate, round) = (gate.clone(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&round);
    let origin = ScriptedOrigin::start(move |exchange| {
        let number = count.fetch_add(1, Ordering::AcqRel);
        if number == 0 && exchange.request.target().starts_with("/head") {
            gate.pass();
        }
        let tag = exchange.request.target().rsplit('/').next().unwrap_or_default().to_owned();
        let fields = format!("Content-Length: 10\r\nSurrogate-Key: {tag}\r\nCache-Control: max-age=60\r\n");
        exchange.head("200 OK", &fields).send("round");
        if number == 0 && exchange.request.target().starts_with("/body") {
            gate.pass();
        }
        exchange.send(format!("{number:5}"));
    });
    (origin, round)
}

/// strapi/plugin-rest-cache#164: what was on its way when it was purged came back.
fn a_purge_wins(target: &str, order: &str) {
    let gate = Gate::new();
    let (origin, _) = waiting(&gate);
    let larder = start(&origin);
    let mut client = larder.client();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: test.example\r\n\r\n"));
    origin.wait_for(target, 1);
    if target.starts_with("/body") {
        client.head();
        assert_eq!(client.bytes(5), b"round");
    }
    let answer = purge(&larder, order);
    assert!(answer.contains("\"fills_doomed\":1"), "{answer}");
    let after = larder.get(target);
    assert_eq!(
        after.text(),
        "round    1",
        "{target} {order}: who asks after the purge gets nothing from before it"
    );
    gate.open();
    if target.starts_with("/body") {
        assert_eq!(client.bytes(5), b"    0");
    } else {
        assert_eq!(client.response().text(), "round    0", "who asked before gets it");
    }
    let last = larder.get(target);
    assert_ne!(last.text(), "round    0", "{target} {order}: {}", last.cache_status());
}

#[test]
fn a_purge_wins_against_what_is_on_its_way() {
    for target in ["/head/x", "/body/x"] {
        for order in [
            r#"{"tags":["x"],"site":"shop"}"#,
            r#"{"tags":["x","x"],"match":"all","host":"test.example"}"#,
            r#"{"prefix":"/"}"#,
            r#"{"everything":true}"#,
        ] {
            a_purge_wins(target, order);
        }
    }
}

/// All who came before the purge get what was asked for before it; it sends none of them to the origin.
#[test]
fn who_waits_gets_what_was_asked_for_before_the_purge() {
    for order in [
        r#"{"tags":["x"],"site":"shop"}"#,
        r#"{"tags":["x"],"site":"shop","mode":"soft"}"#,
        r#"{"tags":["y"],"site":"shop"}"#,
        r#"{"prefix":"/"}"#,
        r#"{"url":"http://test.example/head/x"}"#,
        r#"{"everything":true}"#,
    ] {
        let gate = Gate::new();
        let (origin, _) = waiting(&gate);
        let larder = start(&origin);
        let mut clients: Vec<_> = (0..10).map(|_| larder.client()).collect();
        for client in &mut clients {
            client.send("GET /head/x HTTP/1.1\r\nHost: test.example\r\n\r\n");
        }
        wait::until_true("nine wait", || larder.metric("larder_collapsed_waiters", &[]) >= 9.0);
        purge(&larder, order);
        gate.open();
        for client in &mut clients {
            assert_eq!(client.response().text(), "round    0", "{order}");
        }
        assert_eq!(origin.total(), 1, "{order}");
        let is_taken = !order.contains("\"y\"");
        assert_eq!(larder.get("/head/x").text() != "round    0", is_taken, "{order}");
    }
}

/// Of what comes of a forward nobody knows the tags before its head: others don't join it, and it is stored if it has others.
#[test]
fn a_purge_of_another_tag_spares_what_is_on_its_way() {
    let gate = Gate::new();
    let (origin, _) = waiting(&gate);
    let larder = start(&origin);
    let mut client = larder.client();
    client.send("GET /head/x HTTP/1.1\r\nHost: test.example\r\n\r\n");
    origin.wait_for("/head/x", 1);
    purge(&larder, r#"{"tags":["y"],"site":"shop"}"#);
    gate.open();
    assert_eq!(client.response().text(), "round    0");
    wait::until_true("it is stored", || larder.get("/head/x").is_hit());
    assert_eq!(larder.get("/head/x").text(), "round    0");
}

#[test]
fn a_304_makes_nothing_fresh_that_was_purged_meanwhile() {
    let gate = Gate::new();
    let passed = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.field("if-none-match") == "\"v\"" {
            passed.pass();
            exchange.respond("304 Not Modified", "ETag: \"v\"\r\nCache-Control: max-age=60\r\n", "");
            return;
        }
        let fields = "Surrogate-Key: x\r\nETag: \"v\"\r\nCache-Control: max-age=60, must-revalidate\r\n";
        exchange.respond("200 OK", fields, "new");
    });
    let larder = start(&origin);
    larder.get("/");
    purge(&larder, r#"{"tags":["x"],"site":"shop","mode":"soft"}"#);
    let mut client = larder.client();
    client.send("GET / HTTP/1.1\r\nHost: test.example\r\n\r\n");
    origin.wait_for("/", 2);
    purge(&larder, r#"{"tags":["x"],"site":"shop"}"#);
    gate.open();
    assert_eq!(client.response().text(), "new");
    assert_eq!(origin.count("/"), 3, "it was asked for as a whole");
    assert_eq!(origin.last("/").field("if-none-match"), "");
}

#[test]
fn parts_of_what_was_purged_are_completed_by_nothing() {
    let origin = ScriptedOrigin::start(|exchange| {
        let range = exchange.request.field("range").to_owned();
        let fields = "Surrogate-Key: x\r\nETag: \"v\"\r\nCache-Control: max-age=60\r\n";
        match range.as_str() {
            "bytes=0-3" => {
                let fields = format!("{fields}Content-Range: bytes 0-3/8\r\n");
                exchange.respond("206 Partial Content", &fields, "half")
            }
            "" => exchange.respond("200 OK", fields, "complete"),
            _ => exchange.respond(
                "206 Partial Content",
                &format!("{fields}Content-Range: bytes 4-7/8\r\n"),
                "rest",
            ),
        };
    });
    let larder = start(&origin);
    assert_eq!(larder.ask("GET", "/", "Range: bytes=0-3\r\n").status(), 206);
    purge(&larder, r#"{"tags":["x"],"site":"shop"}"#);
    assert_eq!(larder.get("/").text(), "complete");
    assert_eq!(origin.last("/").field("range"), "", "nothing is there that could be completed");
}

#[test]
fn a_dry_run_counts_and_does_nothing() {
    let origin = origin("");
    let larder = start(&origin);
    ["/1/x", "/2/x", "/3/y"].iter().for_each(|target| assert_eq!(larder.get(target).status(), 200));
    let by_tag = ["--tag", "x", "--site", "shop"];
    let dry = |more: &[&str]| operate(&larder, &[more, &["--dry-run"]].concat());
    check(
        &dry(&by_tag),
        0,
        "would purge tag x, site shop (hard): stored responses 2 (all variants of 2 cache keys), responses still arriving 0",
    );
    check(&dry(&["--everything", "--soft"]), 0, "would purge everything (soft): stored responses 3");
    check(
        &dry(&["http://test.example/1/x"]),
        0,
        "would purge http://test.example/1/x (hard): stored responses 1",
    );
    check(&dry(&["--prefix", "/4"]), 3, "stored responses 0");
    assert!(larder.get("/1/x").is_hit() && larder.get("/3/y").is_hit());
    check(&operate(&larder, &by_tag), 0, "purged tag x, site shop (hard)");
    check(&dry(&by_tag), 3, "stored responses 0");
    assert!(larder.get("/3/y").is_hit());
    assert_eq!(larder.metric("larder_purges_total", &["mode=\"hard\""]), 1.0);
}

#[test]
fn purges_by_command() {
    let origin = origin("");
    let larder = start(&origin);
    let run = |arguments: &[&str]| operate(&larder, arguments);
    ["/1/x", "/2/x+y"].iter().for_each(|target| assert_eq!(larder.get(target).status(), 200));
    check(
        &run(&["http://test.example/1/x", "http://test.example/2/x+y"]),
        0,
        "purged http://test.example/2/x+y",
    );
    ["/1/x", "/2/x+y"].iter().for_each(|target| assert!(!larder.get(target).is_hit()));
    check(
        &run(&["--tag", "x", "--tag", "y", "--all-tags", "--site", "shop"]),
        0,
        "purged tags x and y, site shop (hard): responses still arriving 0, purge ",
    );
    assert!(larder.get("/1/x").is_hit() && !larder.get("/2/x+y").is_hit());
    check(&run(&["--tag", "x"]), 1, "site shop: any other host, paths below /");
    check(&run(&["--everything", "--refresh"]), 0, "purged everything (refresh)");
    for wrong in [
        &["--everything", "--site", "shop"][..],
        &["http://a/", "--host", "a"],
        &["--hard", "--soft", "--everything"],
        &["--all-tags", "--site", "shop"],
        &[],
    ] {
        check(&run(wrong), 2, "Usage: larder purge");
    }
}

#[test]
fn the_method_purge_is_for_those_with_the_token() {
    let origin = origin("");
    let config = sites(&origin, "[purge]\ntoken_file = \"token\"\n");
    let token = "0123456789abcdef";
    let larder = Setup::config(LARDER, &config).file("token", token).start();
    let asked = |fields: &str| larder.ask("PURGE", "/x", fields);
    let with_token = format!("Authorization: Bearer {token}\r\n");
    larder.get("/x");
    let missing = asked("");
    assert_eq!((missing.status(), missing.field("www-authenticate")), (401, "Bearer realm=\"larder\""));
    for wrong in ["Bearer 0123456789abcdeF", "Bearer", "Basic 0123456789abcdef", "0123456789abcdef"] {
        assert_eq!(asked(&format!("Authorization: {wrong}\r\n")).status(), 403, "{wrong}");
    }
    assert!(larder.get("/x").is_hit(), "nothing was purged");
    let refused =
        |reason: &str| larder.metric("larder_purges_refused_total", &[&format!("reason=\"{reason}\"")]);
    assert_eq!([refused("purge-token-missing"), refused("purge-token-wrong")], [1.0, 4.0]);
    let log = larder.stderr();
    for (reason, count) in [("purge-token-missing", 1), ("purge-token-wrong", 4)] {
        let line = format!("a PURGE was refused site=shop path=\"/x\" client=127.0.0.1 reason=\"{reason}\"");
        assert_eq!(log.matches(&line).count(), count, "{line}: {log}");
    }
    assert!(!log.contains("0123456789abcde"), "{log}");
    let soft = asked(&format!("{with_token}Fastly-Soft-Purge: 1\r\n"));
    assert!(soft.text().contains("\"responses_purged\":1"), "{}", soft.text());
    assert!(larder.get("/x").cache_status().contains("fwd=stale"));
    assert_eq!(asked(&with_token).status(), 200);
    assert!(larder.get("/x").cache_status().contains("fwd=uri-miss"));
    assert!(asked(&with_token).text().contains("\"keys_matched\":1"));
    assert!(asked(&with_token).text().contains("\"keys_matched\":0"));
    assert!(origin.received().iter().all(|asked| asked.method() != "PURGE"), "never forwarded");
    assert_eq!(larder.ask("PURGE", "/x?secret", &with_token).status(), 200);
    let told = larder.stderr();
    let told = told
        .lines()
        .filter(|line| line.contains("purged client=127.0.0.1 url=\"http://"))
        .collect::<Vec<_>>();
    assert!(told.len() == 5 && told[4].contains("/x?...\"") && told[4].contains(" id="), "{told:?}");
    assert_eq!(larder.metric("larder_purges_total", &["mode=\"hard\""]), 4.0);
}

/// Field bug: a plug-in behind a proxy purged `http://site:8080/x` while visitors had `https://site/x`, was told 200, and the page stayed.
#[test]
fn a_plug_in_inside_purges_what_visitors_see() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "page");
    });
    let config = sites(&origin, "trusted_proxies = [\"127.0.0.1\"]\n[purge]\ntoken_file = \"token\"\n");
    let larder = Setup::config(LARDER, &config).file("token", "0123456789abcdef").start();
    let ask = |method: &str, host: &str, target: &str, fields: &str| {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n{fields}\r\n");
        larder.client().send(head).response()
    };
    let listener = format!("shop.example:{}", larder.address().port());
    let visitors = [
        ("shop.example", "X-Forwarded-Proto: https\r\n"),
        ("shop.example:443", "X-Forwarded-Proto: https\r\n"),
        ("shop.example", ""),
        (&listener[..], ""),
        (&listener[..], "X-Forwarded-Proto: https\r\n"),
        ("shop.example:8443", "X-Forwarded-Proto: https\r\n"),
    ];
    for (host, proto) in visitors {
        for inside in ["shop.example", "SHOP.example:8080", &listener[..], "shop.example.:80"] {
            for (method, target) in
                [("PURGE", "/%d2"), ("PURGE", "/%D2"), ("POST", "/%d2"), ("DELETE", "/%D2")]
            {
                let get = || ask("GET", host, "/%D2", proto);
                get();
                assert!(get().is_hit(), "{host} {proto}");
                let token = if method == "PURGE" { "Authorization: Bearer 0123456789abcdef\r\n" } else { "" };
                let answer = ask(method, inside, target, token);
                assert_eq!(answer.status(), 200, "{}", answer.text());
                // A response for a port that nobody names is purged, and not counted.
                if method == "PURGE" && host != "shop.example:8443" {
                    assert_eq!(answer.cache_status(), "larder; detail=purged", "{}", answer.text());
                }
                assert!(!get().is_hit(), "{host} {proto} after {method} {inside}{target}");
            }
        }
    }
    let nothing = ask("PURGE", "shop.example", "/nothing", "Authorization: Bearer 0123456789abcdef\r\n");
    assert_eq!((nothing.status(), &nothing.cache_status()[..]), (200, "larder; detail=nothing-found"));
    assert!(nothing.text().contains("\"message\":\"nothing found"), "{}", nothing.text());
    // What lies under a key with fields is purged too, and nobody counts it.
    let get =
        || ask("GET", "shop.example", "/keyed", "X-Forwarded-Proto: https\r\nX-Forwarded-Port: 8443\r\n");
    get();
    assert!(get().is_hit());
    let uncounted = ask("PURGE", "shop.example", "/keyed", "Authorization: Bearer 0123456789abcdef\r\n");
    assert_eq!(uncounted.cache_status(), "larder; detail=purge-uncounted", "{}", uncounted.text());
    assert!(!get().is_hit());
}

/// The same where instances share a store, of what another one has stored, and of what only the store has.
#[test]
fn instances_purge_for_each_other_by_either_scheme() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        let number = exchange.request.earlier.to_string();
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", number);
    });
    let redis = Redis::start("");
    let head = "trusted_proxies = [\"127.0.0.1\"]\n[purge]\ntoken_file = \"token\"\n";
    let remote = format!(
        "[store.remote]\nurl = \"redis://{}/0\"\nrecord_timeout = \"5s\"\nconnect_timeout = \"10s\"\n",
        redis.address()
    );
    let config = sites(&origin, head) + &remote;
    let larders = instances::start(2, |_| Setup::config(LARDER, &config).file("token", "0123456789abcdef"));
    let ask = |larder: &Larder, method: &str, host: &str, fields: &str| {
        let head = format!("{method} /%d2 HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n{fields}\r\n");
        larder.client().send(head).response()
    };
    // One instance alone knows the port of its listener, and none that of a proxy in front.
    let hosts = ["shop.example".to_owned(), format!("shop.example:{}", larders[1].address().port())];
    let hosts = hosts.into_iter().chain(["shop.example:8443".to_owned()]);
    let ways = [("PURGE", "Authorization: Bearer 0123456789abcdef\r\n"), ("POST", "")];
    for (host, (method, fields)) in hosts.flat_map(|host| ways.map(|way| (host.clone(), way))) {
        let get = |larder: &Larder| ask(larder, "GET", &host, "X-Forwarded-Proto: https\r\n").text();
        let before = get(&larders[0]);
        instances::is_written(&larders[0]);
        assert_eq!(get(&larders[1]), before, "from the store");
        let answer = ask(&larders[1], method, "shop.example:8080", fields);
        assert_eq!(answer.status(), 200, "{}", answer.text());
        assert!(method == "POST" || answer.text().contains("\"complete\":true"), "{}", answer.text());
        assert_ne!(get(&larders[1]), before, "{method} for {host}");
        wait::until_true(&format!("the other instance has heard of {method} for {host}"), || {
            get(&larders[0]) != before
        });
    }
}

/// A site whose rules write paths that belong to another site, or to none.
fn moved(name: &str, host: &str, more: &str, url: &str) -> String {
    let rule = "[[site.transform]]\nphase = \"client_request\"\nrewrite = { strip_prefix = \"/v1\" }\n";
    format!(
        "[[site]]\nname = \"{name}\"\nhosts = [\"{host}\"]\npath_prefix = \"/v1\"\norigin = \"{url}\"\n{more}{rule}"
    )
}

/// Where rules write paths that belong to another site, or to none: what is stored is found by all who take it out of use.
#[test]
fn what_rules_have_moved_out_of_their_site_is_taken() {
    let origin = ScriptedOrigin::start(|exchange| {
        let location = exchange.request.field("x-names");
        let location = if location.is_empty() { String::new() } else { format!("Location: {location}\r\n") };
        exchange.respond("200 OK", &format!("Cache-Control: max-age=60\r\n{location}"), "content");
    });
    let url = origin.url();
    let config = format!(
        "[purge]\ntoken_file = \"token\"\n{}{}[[site]]\nname = \"main\"\nhosts = [\"main.example\"]\norigin = \"{url}\"\n",
        moved("alone", "alone.example", "", &url),
        moved("beside", "main.example", "", &url),
    );
    let token = "0123456789abcdef";
    let larder = Setup::config(LARDER, &config).file("token", token).start();
    let ask = |host: &str, method: &str, target: &str, fields: &str| {
        let mut client = larder.client();
        client.send(format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"));
        client.response()
    };
    let purge_by_method = |host: &str| {
        let text = ask(host, "PURGE", "/v1/x", &format!("Authorization: Bearer {token}\r\n")).text();
        assert!(text.contains("\"responses_purged\":1"), "{host}: {text}");
    };
    let purge_by_url = |host: &str, mode: &str| {
        let order = |more: &str| format!("{{\"url\": \"http://{host}/x\", \"mode\": \"{mode}\"{more}}}");
        let counted = purge(&larder, &order(", \"dry_run\": true"));
        let text = purge(&larder, &order(""));
        assert!([counted, text].iter().all(|text| text.contains("\"responses_purged\":1")), "{host}");
    };
    let post = |host: &str, target: &str, names: &str| {
        let fields = format!("Content-Length: 0\r\nX-Names: {names}\r\n");
        assert_eq!(ask(host, "POST", target, &fields).status(), 200);
    };
    let check = |way: &str, take: &dyn Fn(&str)| {
        for host in ["alone.example", "main.example"] {
            let get = || ask(host, "GET", "/v1/x", "");
            get();
            assert!(get().is_hit(), "{host}");
            take(host);
            assert!(!get().is_hit(), "{host}: {way}");
        }
    };
    check("PURGE", &purge_by_method);
    check("a purge by URL", &|host| purge_by_url(host, "hard"));
    check("a soft purge by URL", &|host| purge_by_url(host, "soft"));
    check("POST", &|host| post(host, "/v1/x", ""));
    check("Location as clients know it", &|host| post(host, "/v1/y", "/v1/x"));
    check("Location as the origin knows it", &|host| post(host, "/v1/y", "/x"));
}

/// And no more than that: not what lies under another query, nor at another host.
#[test]
fn a_purge_of_what_rules_have_moved_spares_the_rest() {
    let origin = origin("");
    let plain = "[[site]]\nname = \"plain\"\nhosts = [\"plain.example\"]\norigin = \"@origin@\"\n";
    let config =
        moved("alone", "alone.example", "", &origin.url()) + &plain.replace("@origin@", &origin.url());
    let larder = Setup::config(LARDER, &config).start();
    let pages =
        [("plain.example", "/x?page=1"), ("plain.example", "/x?page=2"), ("alone.example", "/v1/x?page=1")];
    for (purged, stays) in
        [("http://plain.example/x?page=1", [1, 2]), ("http://alone.example/x?page=1", [0, 1])]
    {
        for (host, target) in pages {
            ask_host(&larder, host, target);
        }
        let counted = purge(&larder, &format!("{{\"url\": \"{purged}\"}}"));
        assert!(counted.contains("\"responses_purged\":1"), "{counted}");
        for place in stays {
            let (host, target) = pages[place];
            assert!(ask_host(&larder, host, target).is_hit(), "{purged}: {host}{target}");
        }
    }
    // Nobody can ask for it by this URL.
    ask_host(&larder, "alone.example", "/v1/x?page=1");
    let refreshed = purge(&larder, "{\"url\": \"http://alone.example/x?page=1\", \"mode\": \"refresh\"}");
    assert!(refreshed.contains("\"responses_purged\":1") && !refreshed.contains("refreshes"), "{refreshed}");
    check(&operate(&larder, &["--prefix", "http://alone.example/x"]), 0, "");
}

/// A reload may take the rule away, and give it back: what was purged meanwhile is gone, also in a store of its own.
#[test]
fn what_a_rule_has_moved_is_purged_after_the_rule_has_gone() {
    let origin = origin("");
    let main =
        format!("[[site]]\nname = \"main\"\nhosts = [\"main.example\"]\norigin = \"{}\"\n", origin.url());
    for store in ["", "store = \"apart\"\n"] {
        let with = format!("[stores.apart]\n{}{main}", moved("beside", "main.example", store, &origin.url()));
        let without = with.replace("rewrite = { strip_prefix = \"/v1\" }", "set = { X-Any = \"1\" }");
        let mut larder = Setup::config(LARDER, &with).start();
        ask_host(&larder, "main.example", "/v1/x");
        assert!(ask_host(&larder, "main.example", "/v1/x").is_hit());
        for (config, is_purged) in [(&without, true), (&with, false)] {
            larder.write_config(config);
            assert_eq!(larder.ask_admin("POST", "/reload", "").status(), 200);
            if is_purged {
                purge(&larder, "{\"url\": \"http://main.example/x\"}");
            }
        }
        assert!(!ask_host(&larder, "main.example", "/v1/x").is_hit(), "{store}");
    }
}

#[test]
fn without_a_token_the_method_purge_is_the_origins() {
    let origin = origin("");
    let larder = start(&origin);
    assert_eq!(larder.ask("PURGE", "/x", "").status(), 200);
    assert_eq!(origin.last("/x").method(), "PURGE");
}

#[test]
fn tags_reach_clients_only_where_they_may() {
    let origin = origin("");
    let config = sites(&origin, "").replacen("tags =", "tags_delivered = false\ntags =", 1);
    let larder = Setup::config(LARDER, &config).start();
    assert_eq!(larder.get("/x").field("surrogate-key"), "");
    assert_eq!(ask_host(&larder, "other.example", "/x").field("surrogate-key"), "x");
    assert!(larder.get("/x").is_hit());
    purge(&larder, r#"{"tags":["x"],"site":"shop"}"#);
    assert!(!larder.get("/x").is_hit());
}

#[test]
fn explain_tells_of_the_purge() {
    let origin = origin("");
    let larder = start(&origin);
    larder.get("/x");
    purge(&larder, r#"{"tags":["x"],"site":"shop"}"#);
    let explain = || {
        let answer = larder.ask_admin("POST", "/explain", r#"{"url":"http://test.example/x"}"#);
        answer.text()
    };
    let told = explain();
    assert!(told.contains("purged: nothing that was stored before is used"), "{told}");
    assert!(told.contains(r#"{"name":"by","value":"tag x, site shop"}"#), "{told}");
    assert!(!explain().contains("\"purge\""), "what is stored now was not purged");
    purge(&larder, r#"{"prefix":"http://test.example/"}"#);
    larder.ask("GET", "/x", "Cache-Control: only-if-cached\r\n");
    let told = explain();
    assert!(told.contains("host http://test.example") && told.contains("\"at\""), "{told}");
}

/// What is in the tier alone, and what was written there before a purge.
#[cfg(feature = "test-store")]
#[test]
fn purges_reach_the_tier_behind_memory() {
    let origin = origin("");
    let larder =
        Setup::config(LARDER, &sites(&origin, "")).environment("LARDER_TEST_STORE", "latency_ms=0").start();
    for (order, is_hard) in [
        (r#"{"tags":["x"],"site":"shop"}"#, true),
        (r#"{"tags":["x"],"site":"shop","mode":"soft"}"#, false),
        (r#"{"prefix":"/x"}"#, true),
    ] {
        larder.get("/x");
        assert!(larder.get("/x").is_hit() && larder.get("/x").is_hit());
        purge(&larder, order);
        let status = larder.get("/x").cache_status();
        assert_eq!(status.contains("fwd=uri-miss"), is_hard, "{order}: {status}");
        assert_eq!(status.contains("fwd-status=304"), !is_hard, "{order}: {status}");
        assert!(larder.get("/x").is_hit(), "{order}");
    }
}
