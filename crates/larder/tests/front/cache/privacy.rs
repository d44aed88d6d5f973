//! Many users request the same pages at the same time, and no user gets a response made for another.

use std::thread;

use testkit::{Gate, Larder, ScriptedOrigin, run};

use super::basics::{bare, filled, gates, reload, wait_for_waiters, with};
use crate::LARDER;
use crate::cache::users::Trial;
use crate::fleet::purge_waits::purge;

/// `soak.rs` has the full trial.
#[test]
fn no_style_of_origin_shares_what_it_did_not_say_is_for_all() {
    let outcome = Trial { users: 120, burst: 60, rounds: 3 }.run("");
    assert_eq!(outcome.foreign.len(), 0, "{outcome:#?}");
    assert_eq!(outcome.responses, 6300);
    assert!(outcome.shared > 0 && outcome.collapsed > 0, "{outcome:#?}");
}

/// If the operator permits everything that RFC 9111 permits, the trial finds shared responses, which shows that it can detect them.
#[test]
fn the_trial_sees_what_is_shared_without_permission() {
    let outcome = Trial { users: 40, burst: 20, rounds: 3 }.run("credentials_stored = \"all\"");
    assert!(outcome.foreign.len() > 5, "{outcome:#?}");
}

/// A request that waits for another user's forward gets neither that user's early hints nor fields that a 304 or a 200 forbids to share.
#[test]
fn what_only_the_leader_may_have_reaches_no_waiter() {
    let (gate, opened) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        let owner = format!("X-Owner: {}\r\n", exchange.request.field("x-user"));
        let is_validation = !exchange.request.field("if-none-match").is_empty();
        match (exchange.request.target(), is_validation) {
            ("/validated", false) => {
                exchange.respond("200 OK", "Age: 100\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\n", "all");
            }
            ("/validated", true) => {
                opened.pass();
                let says = "Cache-Control: private, max-age=60\r\nETag: \"a\"\r\n";
                exchange.head("304 Not Modified", &format!("{says}{owner}"));
            }
            ("/public", _) => {
                opened.pass();
                let says = "Cache-Control: max-age=60, private=\"x-owner\"\r\n";
                exchange.respond("200 OK", &format!("{says}{owner}"), "public");
            }
            _ => {
                exchange.send(format!("HTTP/1.1 103 Early Hints\r\n{owner}\r\n"));
                opened.pass();
                exchange.respond("200 OK", &format!("Cache-Control: no-store\r\n{owner}"), "own");
            }
        }
    });
    let larder = bare(&origin);
    larder.get("/validated");
    thread::scope(|scope| {
        let ask = |target, user: &'static str| {
            let credentials = if target == "/hints" { "Cookie: a=b\r\n" } else { "" };
            (user, larder.ask("GET", target, &format!("{credentials}X-User: {user}\r\n")))
        };
        let targets = ["/hints", "/validated", "/public"];
        let all = |user| targets.map(|target| scope.spawn(move || ask(target, user)));
        let leaders = all("a");
        for (target, count) in targets.into_iter().zip([1, 2, 1]) {
            origin.wait_for(target, count);
        }
        let waiters = all("b");
        wait_for_waiters(&larder, 3);
        gate.open();
        for one in leaders.into_iter().chain(waiters) {
            let (user, response) = one.join().expect("it is answered");
            let owner = response.field("x-owner");
            let is_right = owner == user || (owner.is_empty() && response.text() == "public");
            assert!(is_right, "{user}: {:?}", response.head);
            let hints: Vec<_> = response.interim.iter().map(|hint| hint.fields.joined("x-owner")).collect();
            assert!(hints.iter().all(|owner| owner == user), "{hints:?}");
        }
    });
}

/// Field bug: `Proxy-Authorization` reached the origin server, and its response to that user went to others.
//= RFC 9111 section 3.1: fields of a proxy are not stored
#[test]
fn credentials_for_a_proxy_end_here() {
    let origin = ScriptedOrigin::start(|exchange| {
        let user = exchange.request.field("proxy-authorization").to_owned();
        let fields = "ETag: \"a\"\r\nProxy-Authenticate: Basic\r\nProxy-Authentication-Info: a=b\r\n";
        let vary = if exchange.request.target() == "/vary" { "Vary: Proxy-Authorization\r\n" } else { "" };
        exchange.send(format!("HTTP/1.1 103 Early Hints\r\n{fields}\r\n"));
        exchange.respond("200 OK", &format!("{fields}{vary}"), format!("for {user:?}"));
    });
    let larder = bare(&origin);
    let alice = "Proxy-Authorization: Basic YWxpY2U6cHc=\r\n";
    for (method, target) in [("GET", "/"), ("POST", "/"), ("GET", "/vary"), ("POST", "/vary")] {
        let response = larder.ask(method, target, &format!("{alice}Content-Length: 0\r\n"));
        assert_eq!(response.text(), "for \"\"", "{method} {target}");
        for name in ["proxy-authenticate", "proxy-authentication-info"] {
            assert!(!response.head.fields.has(name), "{method} {target}: {name}");
        }
    }
    let other = larder.ask("GET", "/", "Cache-Control: max-stale\r\n");
    assert!(!other.is_hit(), "it was stored for an identified user: {:?}", other.head);
}

/// The fields that one client sends, the status and fields of its response, and the fields that later clients send.
type Odd = (&'static str, &'static str, &'static str, &'static str);

const ODD: [Odd; 14] = [
    ("Cookie: a=b\r\n", "200 OK", "Cache-Control: no-store\r\n", ""),
    ("Cookie: a=b\r\n", "200 OK", "Cache-Control: private\r\n", ""),
    ("Cookie: a=b\r\n", "200 OK", "Set-Cookie: a=c\r\nCache-Control: max-age=1\r\n", ""),
    ("Authorization: Bearer a\r\n", "200 OK", "Cache-Control: no-store\r\n", ""),
    ("X-API-Key: a\r\n", "200 OK", "Vary: *\r\n", ""),
    ("", "200 OK", "Cache-Control: no-store\r\n", ""),
    ("", "200 OK", "Set-Cookie: a=c\r\nCache-Control: max-age=1\r\n", ""),
    ("", "200 OK", "Vary: *\r\n", ""),
    ("", "404 Not Found", "", ""),
    ("", "400 Bad Request", "Cache-Control: max-age=60\r\n", ""),
    ("Cache-Control: no-cache\r\n", "200 OK", "Cache-Control: no-store\r\n", ""),
    ("", "200 OK", "Connection: close\r\nTransfer-Encoding: identity\r\n", ""),
    ("Cookie: a=b\r\n", "200 OK", "Cache-Control: private\r\n", "Cookie: a=c\r\n"),
    ("Cookie: a=b\r\n", "404 Not Found", "", "Cookie: a=c\r\n"),
];

const VISITORS: usize = 12;

/// If one client provokes a response for itself on a public page, the others still wait for each other.
//= RFC 9111 section 4: collapsed requests
#[test]
fn one_answer_for_one_client_sends_no_crowd_to_the_origin() {
    let (gate, opened) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        let step: usize = exchange.request.field("x-step").parse().expect("each request names its step");
        opened.pass_step(step);
        let (trial, step) = (step / 3, step % 3);
        let (_, status, says, _) = ODD[trial / 2];
        let stale = "Age: 61\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\n";
        match step {
            0 => exchange.respond("200 OK", stale, "for all"),
            1 => exchange.respond(status, says, "for one"),
            _ => exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "for all"),
        };
        // Closing the connection ends the body: otherwise it would end only at the gateway's timeout.
        if step == 1 && says.contains("Connection: close") {
            exchange.close();
        }
    });
    let larder = bare(&origin);
    for number in 0..2 * ODD.len() {
        OddTrial { larder: &larder, origin: &origin, gate: &gate, number }.run();
    }
}

/// One odd request and its crowd. If the number is even, it is answered before the others arrive; if odd, they wait for its response.
struct OddTrial<'a> {
    larder: &'a Larder,
    origin: &'a ScriptedOrigin,
    gate: &'a Gate,
    number: usize,
}

impl OddTrial<'_> {
    fn ask(&self, step: usize, fields: &str) -> String {
        let (target, step) = (format!("/{}", self.number), 3 * self.number + step);
        self.larder.ask("GET", &target, &format!("{fields}X-Step: {step}\r\n")).text()
    }

    fn reach(&self, step: usize) {
        self.gate.reach(3 * self.number + step);
    }

    fn run(&self) {
        let (odd, status, says, crowd) = ODD[self.number / 2];
        let (target, is_before) = (format!("/{}", self.number), self.number.is_multiple_of(2));
        self.reach(0);
        self.ask(0, "");
        if is_before {
            self.reach(1);
            assert_eq!(self.ask(1, odd), "for one");
        }
        thread::scope(|scope| {
            let first = (!is_before).then(|| scope.spawn(|| self.ask(1, odd)));
            self.origin.wait_for(&target, 2);
            let crowd: Vec<_> = (0..VISITORS).map(|_| scope.spawn(|| self.ask(2, crowd))).collect();
            if first.is_some() {
                // With `no-cache` it is forwarded by itself, and so is one of the others.
                wait_for_waiters(self.larder, VISITORS - usize::from(odd.starts_with("Cache")));
                self.reach(1);
            }
            self.origin.wait_for(&target, 3);
            wait_for_waiters(self.larder, VISITORS - 1);
            self.reach(2);
            crowd.into_iter().for_each(|one| assert_eq!(one.join().expect("answered"), "for all"));
            first.into_iter().for_each(|one| assert_eq!(one.join().expect("answered"), "for one"));
        });
        assert_eq!(self.origin.count(&target), 3, "{odd}{status} {says}, before: {is_before}");
    }
}

/// Field bug: a response stored for one user still went to others after a reload had added the field that tells users apart.
#[test]
fn a_reload_that_names_credentials_reaches_what_is_stored() {
    let origin = ScriptedOrigin::start(|exchange| {
        let user = exchange.request.field("x-user").to_owned();
        let is_public = exchange.request.target() == "/public";
        let says = if is_public { "Cache-Control: max-age=60\r\n" } else { "" };
        exchange.respond("200 OK", &format!("{says}ETag: \"{user}\"\r\n"), user);
    });
    let mut larder = with("@site@", &origin);
    for target in ["/", "/public"] {
        let stored = larder.ask("GET", target, "X-User: alice\r\n");
        assert!(stored.cache_status().contains("stored"), "{:?}", stored.head);
    }
    reload(&mut larder, "@site@x_cache = true\n", &origin);
    let is_hit = larder.ask("GET", "/", "Cache-Control: max-stale\r\n").is_hit();
    assert!(is_hit, "nothing about credentials is new");
    let named = "@site@x_cache = true\n[[site.rule]]\ncredential_fields = [\"X-User\"]\n";
    reload(&mut larder, named, &origin);
    for fields in ["Cache-Control: max-stale\r\n", "", "If-None-Match: \"alice\"\r\n"] {
        let other = larder.ask("GET", "/", fields);
        assert_eq!((other.status(), &other.text()[..]), (200, ""), "{fields}: {:?}", other.head);
    }
    assert_eq!(larder.get("/public").text(), "alice", "its origin declared it public");
}

/// Field bug: responses stored because of `heuristic_requests = "all"`, a configured lifetime or `store_set_cookie` were still used after a
/// reload to rules that don't store them.
#[test]
fn a_reload_to_stricter_rules_reaches_what_is_stored() {
    let origin = ScriptedOrigin::start(|exchange| {
        let user = exchange.request.field("cookie").to_owned();
        let says = match exchange.request.target() {
            "/set" => "Cache-Control: max-age=60\r\nSet-Cookie: session=1\r\n",
            "/shared" => "Cache-Control: max-age=60\r\n",
            _ => "Last-Modified: Mon, 02 Nov 2020 00:00:00 GMT\r\n",
        };
        exchange.respond("200 OK", &format!("{says}ETag: \"{user}\"\r\n"), format!("for {user}"));
    });
    let mut larder = with("@site@", &origin);
    let all = "@site@[[site.rule]]\ncredentials_stored = \"all\"\nheuristic_requests = \"all\"\n";
    for (loose, target) in [
        (all, "/guess"),
        ("profile = \"rfc9111\"\n@site@", "/profile"),
        ("@site@[[site.rule]]\nheuristic_requests = \"all\"\n", "/guess2"),
        ("@site@[[site.rule]]\nttl_default = { 200 = \"60s\" }\n", "/default"),
        ("@site@[[site.rule]]\nttl_override = { 200 = \"60s\" }\n", "/override"),
        ("@site@[[site.rule]]\nstore_set_cookie = true\n", "/set"),
    ] {
        reload(&mut larder, loose, &origin);
        larder.ask("GET", target, "Cookie: alice\r\n");
        let other = larder.ask("GET", target, "Cookie: bob\r\n");
        assert_eq!((other.is_hit(), &other.text()[..]), (true, "for alice"), "{loose}: {:?}", other.head);
        reload(&mut larder, "@site@", &origin);
        for (fields, own) in [
            ("", "for "),
            ("If-None-Match: \"alice\"\r\n", "for "),
            ("Cookie: bob\r\n", "for bob"),
            ("Cookie: bob\r\nCache-Control: max-stale\r\n", "for bob"),
        ] {
            let other = larder.ask("GET", target, fields);
            assert_eq!((other.is_hit(), &other.text()[..]), (false, own), "{loose}: {:?}", other.head);
            let asked = origin.last(target);
            assert_eq!(asked.field("if-modified-since"), "", "{loose}: it is not named either");
            purge(&larder, &format!("url=http://test.example{target}"));
            reload(&mut larder, loose, &origin);
            larder.ask("GET", target, "Cookie: alice\r\n");
            reload(&mut larder, "@site@", &origin);
        }
    }
    larder.ask("GET", "/shared", "Cookie: alice\r\n");
    reload(&mut larder, all, &origin);
    assert!(larder.get("/shared").is_hit(), "its origin declared it public");
}

/// The client's address decides: the peer's, or the one that a trusted proxy names. It is checked before anything else, so no stored
/// response gets out.
#[test]
fn a_site_answers_only_the_clients_that_it_allows() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=600\r\n", "for some");
    let config = |own: &str, trusted: &str| {
        format!("trusted_proxies = [{trusted}]\n@site@{own}\nexpose_errors = true\n")
    };
    let mut larder = with(&config("", "\"127.0.0.1\""), &origin);
    assert!(larder.get("/").cache_status().contains("stored"));
    let allowed =
        "clients_allowed = [\"192.0.2.0/24\", \"2001:db8::/32\"]\nclients_denied = [\"192.0.2.66\"]";
    let (proxy, proxies) = ("\"127.0.0.1\"", "\"127.0.0.0/8\"");
    // A trusted proxy may have made the request itself.
    let itself = "clients_denied = [\"127.0.0.66\"]";
    for (own, trusted, fields, is_admitted) in [
        (allowed, proxy, "X-Forwarded-For: 192.0.2.1\r\n", true),
        (allowed, proxy, "X-Forwarded-For: ::ffff:192.0.2.1\r\n", true),
        (allowed, proxy, "X-Forwarded-For: 198.51.100.1, 192.0.2.1\r\n", true),
        (allowed, proxy, "Forwarded: for=\"[2001:db8::1]\"\r\n", true),
        (allowed, proxy, "X-Forwarded-For: 192.0.2.66\r\n", false),
        (allowed, proxy, "X-Forwarded-For: ::ffff:192.0.2.66\r\n", false),
        (allowed, proxy, "X-Forwarded-For: 192.0.2.1, 198.51.100.1\r\n", false),
        (allowed, proxy, "X-Forwarded-For: 192.0.2.1, unknown\r\n", false),
        (allowed, proxy, "Forwarded: for=\"[2001:db9::1]\"\r\n", false),
        // Only the proxy itself is known.
        (allowed, proxy, "", false),
        // Any client can write these fields.
        (allowed, "", "X-Forwarded-For: 192.0.2.1\r\n", false),
        ("clients_denied = [\"127.0.0.0/8\"]", "", "X-Forwarded-For: 192.0.2.1\r\n", false),
        ("clients_denied = [\"127.0.0.2\", \"::/0\"]", "", "", true),
        // An IPv4 network may be written as an IPv6 one.
        ("clients_denied = [\"::ffff:127.0.0.0/120\"]", "", "", false),
        (itself, proxies, "X-Forwarded-For: 127.0.0.66\r\n", false),
        (itself, proxies, "X-Forwarded-For: 127.0.0.66, 127.0.0.7\r\n", false),
        (itself, proxies, "X-Forwarded-For: 127.0.0.7\r\n", true),
        // Its fields can't be parsed.
        (itself, proxies, "Forwarded: for=\"192.0.2.1, for=\"127.0.0.66\"\r\n", false),
    ] {
        reload(&mut larder, &config(own, trusted), &origin);
        for method in ["HEAD", "POST", "GET"] {
            let answer = larder.ask(method, "/", fields);
            let expected = if is_admitted { 200 } else { 403 };
            let told = format!("{} {}", answer.text(), answer.cache_status());
            assert_eq!(answer.status(), expected, "{own} {method} {fields:?}: {told}");
            let reasons = ["client-denied: this site does not answer", "detail=client-denied"];
            let is_told = reasons.iter().all(|reason| told.contains(reason));
            assert!(is_admitted || method == "HEAD" || is_told, "{told}");
        }
    }
    assert!(larder.metric("larder_requests_total", &["status=\"403\""]) > 0.0);
    larder.write_config(&filled(&config("clients_allowed = [\"192.0.2.0/33\"]", ""), &origin));
    let refused = larder.ask_admin("POST", "/reload", "").text();
    assert!(refused.contains("expected an IP address or network, such as `10.0.0.0/8`"), "{refused}");
}

/// Some origins, such as Express, ignore case, a trailing slash and the query. Rules that only lengthen lifetimes don't. `routing::sites`
/// tests prefixes of sites.
#[test]
fn what_restricts_holds_in_any_spelling() {
    let origin = ScriptedOrigin::start(|exchange| {
        let page = format!("page of {:?}", exchange.request.field("cookie"));
        exchange.respond("200 OK", "ETag: \"1\"\r\n", page);
    });
    let config = r#"@site@
rule = [
    { name = "personal", path = { regex = "^/(account|cart)(/|$)" }, cache = false },
    { path = { glob = "/orders/*" }, cache = false },
    { path = { exact = "/login" }, cache = false },
    { path = { exact = "/own" }, credential_fields = ["Accept"] },
    { path = { exact = "/opted" }, store_only_with = "X-Store" },
    { path = { prefix = "/stale" }, ttl_override = { 200 = "0s", 404 = "0s" } },
    { path = { regex = "(?-i)^/kept$" }, cache = false },
    { path = { prefix = "/images" }, ttl_default = { 200 = "30d" } },
    { ttl_default = { 200 = "60s" }, query_ignore = ["utm_*"] },
]
"#;
    let larder = with(config, &origin);
    let targets = "/account?utm_source=1 /ACCOUNT /Account/ /acc%6Funt?x /%41CCOUNT /CART/1?utm_source=2 /Orders/1 \
                   /orders/1/?x /LOGIN /login/ /login/?utm_source=2 /OWN /own/ /OPTED?x /opted/ /STALE/1";
    for target in targets.split(' ') {
        for user in ["alice", "bob"] {
            let answer = larder.ask("GET", target, &format!("Cookie: {user}\r\n"));
            assert_eq!(answer.text(), format!("page of {user:?}"), "{target}: {}", answer.cache_status());
        }
    }
    // These match only as written, or match no rule that restricts.
    for target in ["/KEPT", "/IMAGES/1", "/accounts"] {
        larder.get(target);
        let status = larder.get(target).cache_status();
        let is_right =
            ["larder; hit; ttl=60", "larder; hit; ttl=59"].iter().any(|start| status.starts_with(start));
        assert!(is_right, "{target}: {status}");
    }
    let told = run(LARDER, ["explain", "http://a/ACCOUNT", "--admin", &larder.admin().to_string()]).text();
    assert!(told.contains("rule = personal") && told.contains("its path matches in any case"), "{told}");
}
