//! Purges by selectors other than a URL, through every entry point of the running binary.

use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::{Exchange, Gate, Larder, Output, Redis, ScriptedOrigin, Setup, run, wait};

use super::basics::{ask_host, asking, filled, get_of, reload, wait_for_waiters, with};
use crate::LARDER;
use crate::fleet::instances;

const TOKEN: &str = "0123456789abcdef";
const TRUSTING: &str = "trusted_proxies = [\"127.0.0.1\"]\n";
const WITH_TOKEN: &str = "Authorization: Bearer 0123456789abcdef\r\n";

fn operate(larder: &Larder, arguments: &[&str]) -> Output {
    run(LARDER, [&["purge"], arguments, &["--admin", &larder.admin().to_string()]].concat())
}

#[track_caller]
fn check(output: &Output, status: i32, part: &str) {
    let text = format!("{}{}", output.text(), output.stderr);
    assert_eq!(output.status, status, "{text}");
    assert!(text.contains(part), "{part:?} is not in {text:?}");
}

#[track_caller]
fn purge(larder: &Larder, order: &str) -> String {
    let answer = larder.ask_admin("POST", "/purge", order);
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer.text()
}

/// Answers with the tags that follow the last `/` of the target, separated by `+`. A request with the validator gets 304.
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

const SITES: &str = r#"
[[site]]
name = "shop"
origin = "@origin@"
tags = ["surrogate-key"]
[[site]]
name = "other"
hosts = ["other.example"]
origin = "@origin@"
tags = ["surrogate-key"]
"#;

fn start(origin: &ScriptedOrigin) -> Larder {
    with(SITES, origin)
}

fn guarded(head: &str, settings: &str, origin: &ScriptedOrigin) -> Setup {
    let settings = format!("{head}[purge]\ntoken_file = \"token\"\n{settings}");
    Setup::config(LARDER, &filled(&settings, origin)).file("token", TOKEN)
}

#[track_caller]
fn check_taken(larder: &Larder, order: &str, taken: &[(&str, &str, bool)]) {
    for (host, target, _) in taken {
        get_of(larder, host, target);
        assert!(get_of(larder, host, target).is_hit(), "{host}{target} is stored");
    }
    let answer = purge(larder, order);
    assert!(answer.contains("\"uncounted\":true"), "{answer}");
    for (host, target, is_taken) in taken {
        let response = get_of(larder, host, target);
        assert_eq!(!response.is_hit(), *is_taken, "{order}: {host}{target} {}", response.cache_status());
    }
}

#[test]
fn each_form_takes_what_it_says_and_no_more() {
    let origin = origin("");
    let larder = start(&origin);
    let (shop, port, other) = ("a.example", "a.example:8080", "other.example");
    type Purged<'a> = [(&'a str, &'a str, bool)];
    let forms: [(&str, &Purged<'_>); 9] = [
        (
            r#"{"tags":["x"],"site":"shop"}"#,
            &[(shop, "/1/x", true), (shop, "/1/x+y", true), (shop, "/1/y", false), (other, "/1/x", false)],
        ),
        (
            r#"{"tags":["x","y"],"match":"all","site":"shop"}"#,
            &[(shop, "/2/x", false), (shop, "/2/x+y+z", true), (other, "/2/x+y", false)],
        ),
        (
            r#"{"tags":["x","y"],"host":"A.example"}"#,
            &[
                (shop, "/3/x", true),
                (port, "/3/y", true),
                ("b.example", "/3/x", false),
                (shop, "/3/z", false),
            ],
        ),
        (
            r#"{"tags":["x"],"prefix":"a.example/4/p"}"#,
            &[(shop, "/4/p/x", true), (shop, "/4/p/y", false), (shop, "/4/q/x", false)],
        ),
        (
            r#"{"prefix":"http://a.example/%35/"}"#,
            &[(shop, "/5/x?q", true), (shop, "/5x", false), (port, "/5/x", false), (other, "/5/x", false)],
        ),
        (r#"{"prefix":"https://a.example/6/"}"#, &[(shop, "/6/x", false)]),
        (r#"{"host":"a.example:8080"}"#, &[(port, "/7/x", true), (shop, "/7/x", false)]),
        (r#"{"site":"other"}"#, &[(other, "/8/x", true), (shop, "/8/x", false)]),
        (r#"{"everything":true}"#, &[(other, "/9/x", true), (shop, "/9/x", true)]),
    ];
    forms.iter().for_each(|(order, taken)| check_taken(&larder, order, taken));
    let validated = origin.received().iter().filter(|asked| !asked.field("if-none-match").is_empty()).count();
    assert_eq!(validated, 0, "a response that was purged hard is never validated");
    assert_eq!(larder.metric("larder_purge_forms_total", &["form=\"tag\""]), 4.0);
    assert_eq!(larder.metric("larder_purge_forms_total", &["form=\"everything\""]), 1.0);
    for (order, status, part) in [
        (r#"{"tags":["x"]}"#, 400, "\"sites\":[{\"hosts\":[]"),
        (r#"{"site":"none"}"#, 404, "no site is named \\\"none\\\""),
        ("{}", 400, "nothing selected"),
        (r#"{"url":"http://a.example/","site":"shop"}"#, 400, "can't be combined with other selectors"),
        (r#"{"tags":[""],"site":"shop"}"#, 400, "a tag has 0 bytes"),
        (r#"{"host":"a","prefix":"http://b/"}"#, 400, "the prefix already contains a host"),
    ] {
        let answer = larder.ask_admin("POST", "/purge", order);
        assert!(answer.status() == status && answer.text().contains(part), "{order}: {}", answer.text());
    }
}

/// FRiCKLE/ngx_cache_purge#55 and apisix#13523: a purge didn't remove variants.
#[test]
fn variants_keyed_responses_and_queries_are_taken_too() {
    let origin = origin("\r\nVary: Accept-Language");
    let larder = with(&SITES.replacen("tags =", "request_fields_keyed = [\"x-key\"]\ntags =", 1), &origin);
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

/// An origin that delays its first response: before the head, or after half of the body.
fn waiting(gate: &Gate) -> ScriptedOrigin {
    let (gate, round) = (gate.clone(), AtomicUsize::new(0));
    ScriptedOrigin::start(move |exchange| {
        let (number, target) = (round.fetch_add(1, Ordering::AcqRel), exchange.request.target().to_owned());
        if number == 0 && target.starts_with("/head") {
            gate.pass();
        }
        let tag = target.rsplit('/').next().unwrap_or_default();
        let fields = format!("Content-Length: 10\r\nSurrogate-Key: {tag}\r\nCache-Control: max-age=60\r\n");
        exchange.head("200 OK", &fields).send("round");
        if number == 0 && target.starts_with("/body") {
            gate.pass();
        }
        exchange.send(format!("{number:5}"));
    })
}

fn a_purge_wins(target: &str, order: &str) {
    let gate = Gate::new();
    let origin = waiting(&gate);
    let larder = start(&origin);
    let mut client = asking(&larder, target, "");
    origin.wait_for(target, 1);
    let is_begun = target.starts_with("/body");
    if is_begun {
        client.head();
        assert_eq!(client.bytes(5), b"round");
    }
    let answer = purge(&larder, order);
    assert!(answer.contains("\"fills_doomed\":1"), "{answer}");
    let after = larder.get(target).text();
    assert_eq!(after, "round    1", "{target} {order}: a later request gets nothing from before the purge");
    gate.open();
    let rest = if is_begun { client.bytes(5) } else { client.response().body };
    assert!(rest.ends_with(b"    0"), "an earlier request gets it");
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
            &format!("{{\"url\":\"http://test.example{target}\"}}"),
        ] {
            a_purge_wins(target, order);
        }
    }
}

/// All requests from before the purge get the response that was requested before it, and none is forwarded again. The response is stored
/// if it has other tags, which are unknown before its head.
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
        let origin = waiting(&gate);
        let larder = start(&origin);
        let clients: Vec<_> = (0..10).map(|_| asking(&larder, "/head/x", "")).collect();
        wait_for_waiters(&larder, 9);
        purge(&larder, order);
        gate.open();
        for mut client in clients {
            assert_eq!(client.response().text(), "round    0", "{order}");
        }
        assert_eq!(origin.total(), 1, "{order}");
        let is_taken = !order.contains("\"y\"");
        assert_eq!(larder.get("/head/x").text() != "round    0", is_taken, "{order}");
    }
}

#[test]
fn a_dry_run_counts_and_does_nothing() {
    let origin = origin("");
    let larder = start(&origin);
    ["/1/x", "/2/x", "/3/y"].iter().for_each(|target| assert_eq!(larder.get(target).status(), 200));
    let by_tag = ["--tag", "x", "--site", "shop"];
    let dry = |more: &[&str], status, part| {
        check(&operate(&larder, &[more, &["--dry-run"]].concat()), status, part)
    };
    let counted = "would purge tag x, site shop (hard): stored responses 2 (all variants of 2 cache keys), \
                   responses still arriving 0";
    dry(&by_tag, 0, counted);
    dry(&["--everything", "--soft"], 0, "would purge everything (soft): stored responses 3");
    let url = "http://test.example/1/x";
    dry(&[url], 0, "would purge http://test.example/1/x (hard): stored responses 1");
    dry(&["--prefix", "/4"], 3, "stored responses 0");
    assert!(larder.get("/1/x").is_hit() && larder.get("/3/y").is_hit());
    check(&operate(&larder, &by_tag), 0, "purged tag x, site shop (hard)");
    dry(&by_tag, 3, "stored responses 0");
    assert!(larder.get("/3/y").is_hit());
    assert_eq!(larder.metric("larder_purges_total", &["mode=\"hard\""]), 1.0);
}

#[test]
fn purges_by_command() {
    let origin = origin("");
    let larder = start(&origin);
    let purge = |arguments: &[&str], status, part| check(&operate(&larder, arguments), status, part);
    ["/1/x", "/2/x+y"].iter().for_each(|target| assert_eq!(larder.get(target).status(), 200));
    let tags = ["--tag", "x", "--tag", "y", "--all-tags", "--site", "shop"];
    purge(&tags, 0, "purged tags x and y, site shop (hard): responses still arriving 0, purge ");
    assert!(larder.get("/1/x").is_hit() && !larder.get("/2/x+y").is_hit());
    purge(&["--tag", "x"], 1, "site shop: any other host, paths below /");
    purge(&["--everything", "--refresh"], 0, "purged everything (refresh)");
    for wrong in [
        "--everything --site shop",
        "http://a/ --host a",
        "--hard --soft --everything",
        "--all-tags --site a",
    ] {
        purge(&wrong.split(' ').collect::<Vec<_>>(), 2, "Usage: larder purge");
    }
}

#[test]
fn the_method_purge_is_for_those_with_the_token() {
    let origin = origin("");
    let larder = guarded("", SITES, &origin).start();
    let asked = |fields: &str| larder.ask("PURGE", "/x", fields);
    larder.get("/x");
    let missing = asked("");
    assert_eq!((missing.status(), missing.field("www-authenticate")), (401, "Bearer realm=\"larder\""));
    for wrong in ["Bearer 0123456789abcdeF", "Bearer", "Basic 0123456789abcdef", "0123456789abcdef"] {
        assert_eq!(asked(&format!("Authorization: {wrong}\r\n")).status(), 403, "{wrong}");
    }
    assert!(larder.get("/x").is_hit(), "nothing was purged");
    let log = larder.stderr();
    for (reason, count) in [("purge-token-missing", 1), ("purge-token-wrong", 4)] {
        let refused = larder.metric("larder_purges_refused_total", &[&format!("reason=\"{reason}\"")]);
        let line = format!("a PURGE was refused site=shop path=\"/x\" client=127.0.0.1 reason=\"{reason}\"");
        assert_eq!((log.matches(&line).count(), refused), (count, count as f64), "{line}: {log}");
    }
    assert!(!log.contains("0123456789abcde"), "{log}");
    let soft = asked(&format!("{WITH_TOKEN}Fastly-Soft-Purge: 1\r\n"));
    assert!(soft.text().contains("\"responses_purged\":1"), "{}", soft.text());
    assert!(larder.get("/x").cache_status().contains("fwd=stale"));
    assert_eq!(asked(WITH_TOKEN).status(), 200);
    assert!(larder.get("/x").cache_status().contains("fwd=uri-miss"));
    assert!(asked(WITH_TOKEN).text().contains("\"keys_matched\":1"));
    assert!(asked(WITH_TOKEN).text().contains("\"keys_matched\":0"));
    assert!(origin.received().iter().all(|asked| asked.method() != "PURGE"), "never forwarded");
    assert_eq!(larder.ask("PURGE", "/x?secret", WITH_TOKEN).status(), 200);
    let log = larder.stderr();
    let is_told = |line: &&str| line.contains("purged client=127.0.0.1 url=\"http://");
    let told: Vec<_> = log.lines().filter(is_told).collect();
    assert!(told.len() == 5 && told[4].contains("/x?...\"") && told[4].contains(" id="), "{told:?}");
    assert_eq!(larder.metric("larder_purges_total", &["mode=\"hard\""]), 4.0);
}

/// Field bug: a plug-in behind a proxy purged `http://site:8080/x` while visitors used `https://site/x`: it got 200, but the page stayed.
#[test]
fn a_plug_in_inside_purges_what_visitors_see() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "page");
    });
    let larder = guarded(TRUSTING, SITES, &origin).start();
    let ask = |method: &str, host: &str, target: &str, fields: &str| {
        ask_host(&larder, (method, host, target), &format!("Content-Length: 0\r\n{fields}"))
    };
    let listener = format!("shop.example:{}", larder.address().port());
    let https = "X-Forwarded-Proto: https\r\n";
    let visitors = [
        ("shop.example", https),
        ("shop.example:443", https),
        ("shop.example", ""),
        (&listener[..], ""),
        (&listener[..], https),
        ("shop.example:8443", https),
    ];
    let inside = ["shop.example", "SHOP.example:8080", &listener[..], "shop.example.:80"];
    let ways = [("PURGE", "/%d2"), ("PURGE", "/%D2"), ("POST", "/%d2"), ("DELETE", "/%D2")];
    let ways = inside.iter().flat_map(|inside| ways.map(|(method, target)| (inside, method, target)));
    for ((inside, method, target), (host, proto)) in
        ways.flat_map(|way| visitors.map(|visitor| (way, visitor)))
    {
        let get = || ask("GET", host, "/%D2", proto);
        get();
        assert!(get().is_hit(), "{host} {proto}");
        let answer = ask(method, inside, target, if method == "PURGE" { WITH_TOKEN } else { "" });
        assert_eq!(answer.status(), 200, "{}", answer.text());
        // A response for a port that no setting or listener names is purged, but not counted.
        if method == "PURGE" && host != "shop.example:8443" {
            assert_eq!(answer.cache_status(), "larder; detail=purged", "{}", answer.text());
        }
        assert!(!get().is_hit(), "{host} {proto} after {method} {inside}{target}");
    }
    let nothing = ask("PURGE", "shop.example", "/nothing", WITH_TOKEN);
    assert_eq!((nothing.status(), &nothing.cache_status()[..]), (200, "larder; detail=nothing-found"));
    assert!(nothing.text().contains("\"message\":\"nothing found"), "{}", nothing.text());
    // A response whose key contains fields is purged too, but not counted.
    let get = || ask("GET", "shop.example", "/keyed", &format!("{https}X-Forwarded-Port: 8443\r\n")).is_hit();
    assert!(!get() && get());
    let uncounted = ask("PURGE", "shop.example", "/keyed", WITH_TOKEN);
    assert_eq!(uncounted.cache_status(), "larder; detail=purge-uncounted", "{}", uncounted.text());
    assert!(!get());
}

/// Instances that share a store purge responses that another one has stored or that only the store has.
#[test]
fn instances_purge_for_each_other_by_either_scheme() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        let number = exchange.request.earlier.to_string();
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", number);
    });
    let redis = Redis::start("");
    let remote = format!("[store.remote]\nurl = \"redis://{}/0\"\n", redis.address());
    let waits = "record_timeout = \"5s\"\nconnect_timeout = \"10s\"\n";
    let settings = format!("{SITES}{remote}{waits}");
    let larders = instances::start(2, |_| guarded(TRUSTING, &settings, &origin));
    let ask = |larder: &Larder, method: &str, host: &str, fields: &str| {
        ask_host(larder, (method, host, "/%d2"), &format!("Content-Length: 0\r\n{fields}"))
    };
    // Only one instance knows the port of its listener, and none knows that of a proxy in front.
    let hosts = ["shop.example".to_owned(), format!("shop.example:{}", larders[1].address().port())];
    let hosts = hosts.into_iter().chain(["shop.example:8443".to_owned()]);
    let ways = [("PURGE", WITH_TOKEN), ("POST", "")];
    for (host, (method, fields)) in hosts.flat_map(|host| ways.map(|way| (host.clone(), way))) {
        let get = |larder: &Larder| ask(larder, "GET", &host, "X-Forwarded-Proto: https\r\n").text();
        let before = get(&larders[0]);
        instances::is_written(&larders[0]);
        assert_eq!(get(&larders[1]), before, "from the store");
        let answer = ask(&larders[1], method, "shop.example:8080", fields);
        assert_eq!(answer.status(), 200, "{}", answer.text());
        assert!(method == "POST" || answer.text().contains("\"complete\":true"), "{}", answer.text());
        assert_ne!(get(&larders[1]), before, "{method} for {host}");
        let what = format!("the other instance has applied {method} for {host}");
        wait::until_true(&what, || get(&larders[0]) != before);
    }
}

/// A site whose rule rewrites paths to ones that belong to another site, or to none.
fn moved(name: &str, host: &str, more: &str) -> String {
    let rule = "{ phase = \"client_request\", rewrite = { strip_prefix = \"/v1\" } }";
    format!(
        "[[site]]\nname = \"{name}\"\nhosts = [\"{host}\"]\npath_prefix = \"/v1\"\norigin = \"@origin@\"\n{more}transform = [{rule}]\n"
    )
}

fn plain(name: &str) -> String {
    format!("[[site]]\nname = \"{name}\"\nhosts = [\"{name}.example\"]\norigin = \"@origin@\"\n")
}

/// All kinds of purges and invalidations find a response whose path a rule has moved out of its site.
#[test]
fn what_rules_have_moved_out_of_their_site_is_taken() {
    let origin = ScriptedOrigin::start(|exchange| {
        let location = exchange.request.field("x-names");
        let location = if location.is_empty() { String::new() } else { format!("Location: {location}\r\n") };
        exchange.respond("200 OK", &format!("Cache-Control: max-age=60\r\n{location}"), "content");
    });
    let [alone, beside] = [("alone", "alone.example"), ("beside", "main.example")];
    let sites = [moved(alone.0, alone.1, ""), moved(beside.0, beside.1, ""), plain("main")].concat();
    let larder = guarded("", &sites, &origin).start();
    let purge_by_url = |host: &str, mode: &str| {
        let order = |more: &str| format!("{{\"url\": \"http://{host}/x\", \"mode\": \"{mode}\"{more}}}");
        let counted = purge(&larder, &order(", \"dry_run\": true"));
        let text = purge(&larder, &order(""));
        assert!([counted, text].iter().all(|text| text.contains("\"responses_purged\":1")), "{host}");
    };
    let post = |host: &str, target: &str, names: &str| {
        let fields = format!("Content-Length: 0\r\nX-Names: {names}\r\n");
        assert_eq!(ask_host(&larder, ("POST", host, target), &fields).status(), 200);
    };
    let check = |way: &str, take: &dyn Fn(&str)| {
        for host in ["alone.example", "main.example"] {
            let get = || get_of(&larder, host, "/v1/x");
            get();
            assert!(get().is_hit(), "{host}");
            take(host);
            assert!(!get().is_hit(), "{host}: {way}");
        }
    };
    check("PURGE", &|host| {
        let text = ask_host(&larder, ("PURGE", host, "/v1/x"), WITH_TOKEN).text();
        assert!(text.contains("\"responses_purged\":1"), "{host}: {text}");
    });
    check("a purge by URL", &|host| purge_by_url(host, "hard"));
    check("a soft purge by URL", &|host| purge_by_url(host, "soft"));
    check("POST", &|host| post(host, "/v1/x", ""));
    check("Location as clients know it", &|host| post(host, "/v1/y", "/v1/x"));
    check("Location as the origin knows it", &|host| post(host, "/v1/y", "/x"));
}

/// They affect nothing else: neither a response with a different query nor one at another host.
#[test]
fn a_purge_of_what_rules_have_moved_spares_the_rest() {
    let origin = origin("");
    let larder = with(&[moved("alone", "alone.example", ""), plain("plain")].concat(), &origin);
    let pages =
        [("plain.example", "/x?page=1"), ("plain.example", "/x?page=2"), ("alone.example", "/v1/x?page=1")];
    for (purged, stays) in
        [("http://plain.example/x?page=1", [1, 2]), ("http://alone.example/x?page=1", [0, 1])]
    {
        pages.iter().for_each(|(host, target)| drop(get_of(&larder, host, target)));
        let counted = purge(&larder, &format!("{{\"url\": \"{purged}\"}}"));
        assert!(counted.contains("\"responses_purged\":1"), "{counted}");
        for (host, target) in stays.map(|place| pages[place]) {
            assert!(get_of(&larder, host, target).is_hit(), "{purged}: {host}{target}");
        }
    }
    // No client can request it by this URL.
    get_of(&larder, "alone.example", "/v1/x?page=1");
    let refreshed = purge(&larder, "{\"url\": \"http://alone.example/x?page=1\", \"mode\": \"refresh\"}");
    assert!(refreshed.contains("\"responses_purged\":1") && !refreshed.contains("refreshes"), "{refreshed}");
    check(&operate(&larder, &["--prefix", "http://alone.example/x"]), 0, "");
}

/// A reload may remove the rule, and another one restore it: responses purged meanwhile stay purged, even in a site's own store.
#[test]
fn what_a_rule_has_moved_is_purged_after_the_rule_has_gone() {
    let origin = origin("");
    for store in ["", "store = \"apart\"\n"] {
        let rule = ["[stores.apart]\n", &moved("beside", "main.example", store), &plain("main")].concat();
        let without = rule.replace("rewrite = { strip_prefix = \"/v1\" }", "set = { X-Any = \"1\" }");
        let mut larder = with(&rule, &origin);
        let get = |larder: &Larder| get_of(larder, "main.example", "/v1/x").is_hit();
        assert_eq!([get(&larder), get(&larder)], [false, true]);
        reload(&mut larder, &without, &origin);
        purge(&larder, "{\"url\": \"http://main.example/x\"}");
        reload(&mut larder, &rule, &origin);
        assert!(!get(&larder), "{store}");
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
    let larder = with(&SITES.replacen("tags =", "tags_delivered = false\ntags =", 1), &origin);
    assert_eq!(larder.get("/x").field("surrogate-key"), "");
    assert_eq!(get_of(&larder, "other.example", "/x").field("surrogate-key"), "x");
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
    let explain = || larder.ask_admin("POST", "/explain", r#"{"url":"http://test.example/x"}"#).text();
    let told = explain();
    assert!(told.contains("purged: responses stored before the purge are not used"), "{told}");
    assert!(told.contains(r#"{"name":"by","value":"tag x, site shop"}"#), "{told}");
    assert!(!explain().contains("\"purge\""), "the response stored now was not purged");
    purge(&larder, r#"{"prefix":"http://test.example/"}"#);
    larder.ask("GET", "/x", "Cache-Control: only-if-cached\r\n");
    let told = explain();
    assert!(told.contains("host http://test.example") && told.contains("\"at\""), "{told}");
}
