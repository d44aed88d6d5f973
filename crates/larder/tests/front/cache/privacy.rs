//! Many users request the same pages at the same time, and no user gets a response made for another.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use testkit::{Client, Exchange, Gate, Larder, ScriptedOrigin, run};

use super::basics::{bare, filled, gates, reload, wait_for_waiters, with};
use crate::LARDER;
use crate::cache::users::Trial;
use crate::fleet::purge_waits::purge;

/// A path; the fields of its response, in which `@` stands for the user; and whether its content is the user's alone. If not, the content
/// is for everybody, and only the field `X-User` is personal.
type Page = (&'static str, &'static str, bool);

const PAGES: [Page; 12] = [
    ("/private", "Cache-Control: private, max-age=60", true),
    ("/private-validated", "Cache-Control: private, max-age=0\r\nETag: \"a\"", true),
    ("/no-store", "Cache-Control: no-store", true),
    ("/vary", "Cache-Control: max-age=60\r\nVary: X-User", true),
    ("/vary-validated", "Cache-Control: max-age=0\r\nVary: X-User\r\nETag: \"@\"", true),
    ("/vary-any", "Cache-Control: max-age=60\r\nVary: *", true),
    ("/authorization", "Cache-Control: max-age=60", true),
    ("/authorization-validated", "Cache-Control: max-age=0\r\nETag: \"@\"", true),
    ("/cookie", "Cache-Control: max-age=60\r\nSet-Cookie: user=@", true),
    ("/field", "Cache-Control: max-age=60, private=\"x-user\"", false),
    ("/field-v", "Cache-Control: max-age=0, private=\"x-user\", stale-if-error=60\r\nETag: \"a\"", false),
    (
        "/field-b",
        "Cache-Control: max-age=0, no-cache=\"x-user\", stale-while-revalidate=60\r\nETag: \"a\"",
        false,
    ),
];

const USERS: usize = 8;
const ROUNDS: usize = 30;
const ROUNDS_PER_URI: usize = 5;

#[test]
fn nobody_gets_what_was_made_for_somebody_else() {
    let turns = AtomicU64::new(0);
    let origin =
        ScriptedOrigin::start(move |exchange| answer(exchange, turns.fetch_add(1, Ordering::Relaxed)));
    let larder = bare(&origin);
    let mut users: Vec<_> = (0..USERS).map(|user| (format!("u{user}"), larder.client())).collect();
    let visits = (0..ROUNDS).flat_map(|round| PAGES.iter().map(move |page| (round, page)));
    let together = |(round, page)| {
        thread::scope(|scope| {
            let visits = users.iter_mut().map(|user| scope.spawn(move || visit(user, page, round)));
            let visits: Vec<_> = visits.collect();
            let waited = visits.into_iter().map(|visit| visit.join().expect("no response of another user"));
            waited.filter(|waited| *waited).count()
        })
    };
    assert!(visits.map(together).sum::<usize>() > 0, "users met");
    assert!(larder.get("/field?0").is_hit(), "public responses are stored");
}

/// Answers sometimes late, so that requests are collapsed, and sometimes with an error, so that stale responses are used.
fn answer(exchange: &mut Exchange<'_>, turn: u64) {
    let user = exchange.request.field("x-user").to_owned();
    let path = exchange.request.target().split('?').next().expect("there is a path");
    let (_, says, is_own) = PAGES.iter().find(|page| path == page.0).expect("only pages are requested");
    exchange.delay_ms(turn % 5);
    let fields = format!("{}\r\nX-User: {user}\r\n", says.replace('@', &user));
    if turn.is_multiple_of(11) {
        exchange.respond("503 Service Unavailable", &format!("X-User: {user}\r\n"), &user);
    } else if turn.is_multiple_of(13) {
        exchange.close();
    } else if fields.contains(&format!("ETag: {}\r\n", exchange.request.field("if-none-match"))) {
        exchange.head("304 Not Modified", &fields);
    } else {
        let content = if *is_own { user.as_str() } else { "for everybody" };
        exchange.respond("200 OK", &fields, content.repeat(1 + (turn % 3) as usize * 2000));
    }
}

/// Requests a page, and returns whether this user waited for another's forward.
fn visit((user, client): &mut (String, Client), (path, _, is_own): &Page, round: usize) -> bool {
    let mut fields = format!("X-User: {user}\r\n");
    if path.starts_with("/authorization") {
        fields.push_str(&format!("Authorization: {user}\r\n"));
    }
    if round % 7 == 3 {
        fields.push_str("Cache-Control: no-cache\r\n");
    }
    let method = if round % 9 == 5 { "HEAD" } else { "GET" };
    // Only requests before the first response of a URI wait for each other; after it, the cache knows whether the response is private.
    let response = client.ask(method, &format!("{path}?{}", round / ROUNDS_PER_URI), &fields);
    let text = response.text();
    let is_marked = response.status() == 503 || *is_own;
    for other in (0..USERS).map(|other| format!("u{other}")).filter(|other| other != user) {
        let fields = ["x-user", "set-cookie", "etag"];
        let is_foreign = fields.iter().any(|name| response.field(name).contains(&other));
        let start = &text[..text.len().min(20)];
        let is_foreign = is_foreign || (is_marked && text.contains(&other));
        assert!(!is_foreign, "{user} asked for {path}: {:?}, {start}", response.head);
    }
    response.cache_status().contains("collapsed")
}

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

#[test]
fn requests_with_credentials_wait_once_for_an_answer_that_is_not_shared() {
    for (credentials, says) in [
        ("Authorization: Bearer @\r\n", "Cache-Control: max-age=60\r\n"),
        ("Cookie: user=@\r\n", "ETag: \"a\"\r\n"),
        ("X-API-Key: @\r\n", ""),
    ] {
        let (gate, opened) = gates();
        let origin = ScriptedOrigin::start(move |exchange| {
            let request = &exchange.request;
            let step = request.field("x-step").parse().expect("each request names its step");
            let fields = ["authorization", "cookie", "x-api-key"].map(|name| request.field(name));
            let is_anonymous = fields.iter().all(|value| value.is_empty());
            opened.pass_step(step);
            let fields = if is_anonymous { "Cache-Control: max-age=60\r\n" } else { says };
            exchange.respond("200 OK", fields, "an answer");
        });
        let larder = bare(&origin);
        let ask = |step: usize, user: usize| {
            let fields = if step == 3 { String::new() } else { credentials.replace('@', &user.to_string()) };
            larder.ask("GET", "/a", &format!("{fields}X-Step: {step}\r\n"))
        };
        gate.reach(1);
        ask(1, 0);
        thread::scope(|scope| {
            let burst: Vec<_> = (1..6).map(|user| scope.spawn(move || ask(2, user))).collect();
            origin.wait_for("/a", 6);
            gate.reach(2);
            burst.into_iter().for_each(|one| assert_eq!(one.join().expect("answered").text(), "an answer"));
        });
        thread::scope(|scope| {
            let first = scope.spawn(|| ask(3, 0));
            origin.wait_for("/a", 7);
            let others: Vec<_> = (1..6).map(|user| scope.spawn(move || ask(3, user))).collect();
            wait_for_waiters(&larder, 5);
            gate.reach(3);
            others.into_iter().chain([first]).for_each(|one| drop(one.join().expect("it is answered")));
        });
        assert_eq!(origin.count("/a"), 7, "{credentials}");
    }
}

/// A request that waits for another user's forward gets neither that user's early hints nor fields that a 304 forbids to share.
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
        let both = |user| ["/hints", "/validated"].map(|target| scope.spawn(move || ask(target, user)));
        let leaders = both("a");
        origin.wait_for("/hints", 1);
        origin.wait_for("/validated", 2);
        let waiters = both("b");
        wait_for_waiters(&larder, 2);
        gate.open();
        for one in leaders.into_iter().chain(waiters) {
            let (user, response) = one.join().expect("it is answered");
            assert_eq!(response.field("x-owner"), user, "{:?}", response.head);
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

/// Some of the fields that identify the user of a request; the tests of `caching::credentials` have more.
const IDENTITIES: &str = "\
    Cookie Proxy-Authorization DPoP X-API-Key X-Auth-Request-User X-Goog-Authenticated-User-Email X-Amzn-Oidc-Data \
    X-Amzn-Oidc-Identity X-Amzn-Oidc-Accesstoken X-MS-Client-Principal-Name X-SSL-Client-Cert SSL-Client-DN Token";

#[test]
fn identities_of_all_kinds_are_credentials() {
    let origin = ScriptedOrigin::fixed("ETag: \"a\"\r\n", "for one");
    let larder = bare(&origin);
    for name in IDENTITIES.split(' ') {
        let response = larder.ask("GET", &format!("/{name}"), &format!("{name}: alice\r\n"));
        assert!(response.cache_status().contains("detail=credentials"), "{name}: {:?}", response.head);
    }
    let anonymous = larder.ask("GET", "/", "X-Request-ID: 1\r\nX-Client-Version: 2\r\nX-CSRF-Token: 3\r\n");
    assert!(anonymous.cache_status().contains("stored"), "{:?}", anonymous.head);
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

/// An origin whose pages name their owner, according to a field of the request.
fn personal(by: &'static str, fields: &'static str) -> ScriptedOrigin {
    ScriptedOrigin::start(move |exchange| {
        exchange.read_body();
        let page = format!("page of {:?}", exchange.request.field(by));
        exchange.respond("200 OK", fields, page);
    })
}

#[track_caller]
fn are_apart(larder: &Larder, by: &str, target: &str, what: &str) -> [String; 2] {
    ["alice", "bob"].map(|user| {
        let answer = larder.ask("GET", target, &format!("{by}: {user}\r\n"));
        let status = answer.cache_status();
        assert_eq!(answer.text(), format!("page of {user:?}"), "{target} {what}: {status}");
        status
    })
}

/// A rule, or a transformation, for `/account` or for `/static/`; the fields of each response; and paths that can be interpreted as
/// `/account` or as something below `/static/`.
type Reading = (&'static str, &'static str, &'static str, &'static str);

const READINGS: [Reading; 9] = [
    (r#"path = { exact = "/account" }, credential_fields = ["X-User"]"#, "", MODIFIED, ACCOUNT),
    (r#"path = { exact = "/account" }, heuristic_percent = 0"#, "", MODIFIED, ACCOUNT),
    (r#"path = { exact = "/account" }, ttl_override = { default = "0s" }"#, "", FRESH, ACCOUNT),
    (r#"path = { exact = "/account" }, targeted_fields = []"#, "", TARGETED, ACCOUNT),
    (r#"path = { prefix = "/static/" }, ttl_override = { 200 = "1d" }"#, "", "", STATIC),
    ("", r#"path = { prefix = "/static/" }, cache_control = { 200 = "max-age=86400" }"#, "", STATIC),
    ("", r#"path = { prefix = "/static/" }, set = { Cache-Control = "max-age=86400" }"#, "", STATIC),
    ("", r#"path = { exact = "/account" }, cache_control = { default = "private" }"#, FRESH, ACCOUNT),
    // The rule matches the path that the client sends, and the rewritten path can be interpreted in only one way.
    (r#"ttl_default = { 200 = "60s" }"#, REWRITE, "", STATIC),
];
const REWRITE: &str =
    r#"path = { prefix = "/static/" }, remove = ["Cookie"], rewrite = { regex = "^.*$", to = "/account" }"#;
const MODIFIED: &str = "Last-Modified: Mon, 02 Jan 2023 00:00:00 GMT\r\n";
const FRESH: &str = "Cache-Control: max-age=60\r\n";
const TARGETED: &str = "Cache-Control: no-store\r\nCDN-Cache-Control: max-age=60\r\n";
const ACCOUNT: &str = "/./account /x/../account /account;x=1 /acco%75nt%3bx /account%3Fx /account%23.css \
                       /account%00.css /acc%256funt";
const STATIC: &str =
    "/static%2faccount /static/../account /static%5caccount /static;x/account /%2573tatic/account";

/// Field bug: a path that a rule forbids to store was stored under another spelling, and a rule that permits storing applied to other
/// paths.
#[test]
fn a_path_with_two_readings_is_never_stored() {
    let allowed = r#"spellings_allowed = ["encoded-slash", "backslash", "double-encoding", "semicolon", "dot-segment", "control-character"]"#;
    for (rule, transform, says, targets) in READINGS {
        let origin = personal("x-user", says);
        let rule = if rule.is_empty() { String::new() } else { format!("{{ {rule}, {allowed} }},") };
        let phase = if transform == REWRITE { "client_request" } else { "origin_response" };
        let transform = if transform.is_empty() {
            String::new()
        } else {
            format!("{{ phase = \"{phase}\", {transform} }}")
        };
        let config = format!("@site@rule = [{rule} {{ {allowed} }}]\ntransform = [{transform}]\n");
        let larder = with(&config, &origin);
        for target in targets.split(' ') {
            for status in are_apart(&larder, "X-User", target, &config) {
                assert!(status.contains("fwd=bypass"), "{target}: {status}");
            }
        }
        assert_eq!(origin.total(), 2 * targets.split(' ').count());
        let told = explained(&larder, &format!("http://a{}", targets.split(' ').next().expect("a target")));
        assert!(told.contains("origins may interpret the path differently, under other rules"), "{told}");
    }
}

fn explained(larder: &Larder, url: &str) -> String {
    run(LARDER, ["explain", url, "--admin", &larder.admin().to_string()]).text()
}

/// Paths that real origins interpret as `/PAGE`, which stands for the page or an encoding of it.
const MISREAD: [&str; 7] = [
    // They decode, but keep dots (WSGI, Java).
    "/PAGE/%2e%2e /PAGE%2f.. /PAGE%2Fx",
    // They treat `..;` as a name (nginx, Apache, Node).
    "/PAGE/..; //PAGE/..; /static/../PAGE/..;/static/",
    // They treat a backslash as an ordinary character.
    "/PAGE/..\\x /PAGE/..%5cx /PAGE%5cx",
    // They remove dots before they merge slashes (Node).
    "/./PAGE//.. /x/../PAGE//..",
    // They parse the path as a URL reference (Node, Java).
    "//x/PAGE ///x/PAGE /\\x/PAGE",
    // They treat an encoded slash as an ordinary character (Apache, Node).
    "/a%2fb/../PAGE /static/a%2fb/../../PAGE/..%2f..%2fstatic",
    // They cut parameters before they decode (Tomcat).
    "/PAGE;%2f.. /PAGE;x%2f..%2ffoo /PAGE;%5c..%5cp /PAGE;%2fx /PAGE;x%2Fy;z",
];

/// Field bug: access lists, rules and limits of a path didn't apply to spellings that only a few origins interpret as that path.
#[test]
fn a_path_has_the_limits_of_all_its_readings() {
    let origin = personal("cookie", "");
    let config = r#"
[[site]]
name = "admin"
path_prefix = "/admin"
origin = "@origin@"
clients_allowed = ["192.0.2.1"]
@site@rule = [
    { path = { regex = "^/account(/|$)" }, cache = false },
    { path = { exact = "/login" }, rate_limit = { requests = 1, window = "1h" } },
    { path = { exact = "/up" }, request_body_bytes_max = 10 },
    { ttl_default = { 200 = "60s" } },
]
"#;
    let larder = with(config, &origin);
    let ask = |method: &str, target: &str, content: &str| {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: a\r\nCookie: alice\r\n");
        larder.client().send(format!("{head}Content-Length: {}\r\n\r\n{content}", content.len())).response()
    };
    assert_eq!(ask("GET", "/login", "").status(), 200);
    let targets = MISREAD.iter().flat_map(|targets| targets.split(' '));
    for (target, is_encoded) in targets.flat_map(|target| [(target, false), (target, true)]) {
        let of = |page: &str| {
            let encoded = format!("%{:02x}{}", page.as_bytes()[0], &page[1..]);
            target.replace("PAGE", if is_encoded { &encoded } else { page })
        };
        let admin = ask("GET", &of("admin"), "");
        assert_eq!(admin.status(), 400, "{}", of("admin"));
        assert!(admin.cache_status().contains("detail=ambiguous-path"), "{}", admin.cache_status());
        let account = ask("GET", &of("account"), "");
        let status = account.cache_status();
        let is_kept_out = account.status() == 400 || status.contains("fwd=bypass");
        assert!(is_kept_out && !status.contains("stored"), "{}", of("account"));
        let [login, up] = [ask("GET", &of("login"), ""), ask("POST", &of("up"), "12345678901")];
        let is_limited = matches!([login.status(), up.status()], [400 | 429, 400 | 413]);
        // Only the path itself is limited, not what is below it.
        let is_below = target.ends_with("%2Fx") || target.ends_with("PAGE%5cx");
        assert!(is_limited || is_below, "{}: {} {}", of("login"), login.status(), up.status());
    }
    for target in ["/static/@a/v1.2", "/%40a/.hidden", "/100%25", "/a%3Fb"] {
        assert_eq!(ask("GET", target, "").status(), 200, "{target} is honest");
    }
    let told = explained(&larder, "http://a/%61%2f..");
    assert!(told.contains("of the path in different ways (encoded-slash, dot-segment)"), "{told}");
}

/// Field bug: a client could select or evade a rule for a path by adding a query.
#[test]
fn an_expression_sees_the_query_only_if_it_says_so() {
    let origin = personal("cookie", "");
    let config = r#"@site@
rule = [
    { path = { regex = "^/(account|cart)(/|$)" }, cache = false },
    { path = { regex = "[?&]preview=" }, cache = false },
    { path = { regex = "\\.(css|js|png)$" }, ttl_override = { 200 = "1d" } },
    { path = { regex = "^/print[^?]*\\?as=pdf$" }, ttl_override = { 200 = "1d" } },
]
transform = [
    { phase = "client_request", path = { regex = "^/old$" }, redirect = { status = "301", to = "/new" } },
]
"#;
    let larder = with(config, &origin);
    for (target, expected) in [
        ("/page?x.css", ["fwd=", "fwd="]),
        ("/page?a&x=/a.js", ["fwd=", "fwd="]),
        ("/x.css", ["stored", "hit"]),
        ("/x.css?v=1", ["stored", "hit"]),
        ("/account?utm_source=x", ["fwd=bypass", "fwd=bypass"]),
        ("/cart?", ["fwd=bypass", "fwd=bypass"]),
        ("/x.css?preview=1", ["fwd=bypass", "fwd=bypass"]),
        ("/print/1?as=pdf", ["stored", "hit"]),
        ("/print/1", ["fwd=", "fwd="]),
    ] {
        for expected in expected {
            let status = larder.ask("GET", target, "Cookie: a\r\n").cache_status();
            assert!(status.contains(expected), "{target}: {status}");
            assert_eq!(status.contains("stored"), expected == "stored", "{target}: {status}");
        }
    }
    assert_eq!(larder.get("/old?a").status(), 301);
}

/// Some origins, such as Express, ignore case, a trailing slash and the query. Rules that only lengthen lifetimes don't.
#[test]
fn what_restricts_holds_in_any_spelling() {
    let origin = personal("cookie", "ETag: \"1\"\r\n");
    let config = r#"
[[site]]
name = "admin"
path_prefix = "/admin"
origin = "@origin@"
clients_allowed = ["192.0.2.1"]
[[site]]
name = "plain"
path_prefix = "/plain"
origin = "@origin@"
@site@rule = [
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
        are_apart(&larder, "Cookie", target, "");
    }
    // These match only as written, or match no rule that restricts.
    for target in ["/KEPT", "/IMAGES/1", "/accounts"] {
        larder.get(target);
        let status = larder.get(target).cache_status();
        let is_right =
            ["larder; hit; ttl=60", "larder; hit; ttl=59"].iter().any(|start| status.starts_with(start));
        assert!(is_right, "{target}: {status}");
    }
    for (target, status) in [
        ("/admin", 403),
        ("/ADMIN", 403),
        ("/Admin/?x", 403),
        ("/%41dmin/x", 403),
        ("/administration", 200),
        ("/PLAIN", 200),
    ] {
        assert_eq!(larder.get(target).status(), status, "{target}");
    }
    let told = explained(&larder, "http://a/ACCOUNT");
    assert!(told.contains("rule = personal") && told.contains("its path matches in any case"), "{told}");
}
