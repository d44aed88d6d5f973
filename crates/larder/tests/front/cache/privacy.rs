//! Many users ask for the same pages at the same time, and the origin marks in each response whose it is. Whatever is
//! collapsed, stored, validated or served stale meanwhile: nobody gets what was made for somebody else.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use testkit::{Client, Exchange, Gate, Larder, Response, ScriptedOrigin, Setup, run, wait};

use crate::LARDER;
use crate::cache::users::Trial;

/// A kind of page: what the origin says about it, and what that means.
struct Page {
    path: &'static str,
    /// Field lines of the response.
    says: &'static str,
    /// Where the mark of the user may reach others: nowhere, or in the content of a page that is for everybody.
    content: Owner,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The content is the user's alone.
    User,
    /// The content is for everybody; the field `X-User` is for the user alone.
    All,
}

const PAGES: [Page; 12] = [
    Page { path: "/private", says: "Cache-Control: private, max-age=60", content: Owner::User },
    Page {
        path: "/private-validated",
        says: "Cache-Control: private, max-age=0\r\nETag: \"a\"",
        content: Owner::User,
    },
    Page { path: "/no-store", says: "Cache-Control: no-store", content: Owner::User },
    Page { path: "/vary", says: "Cache-Control: max-age=60\r\nVary: X-User", content: Owner::User },
    Page {
        path: "/vary-validated",
        says: "Cache-Control: max-age=0\r\nVary: X-User\r\nETag: \"@\"",
        content: Owner::User,
    },
    Page { path: "/vary-any", says: "Cache-Control: max-age=60\r\nVary: *", content: Owner::User },
    Page { path: "/authorization", says: "Cache-Control: max-age=60", content: Owner::User },
    Page {
        path: "/authorization-validated",
        says: "Cache-Control: max-age=0\r\nETag: \"@\"",
        content: Owner::User,
    },
    Page { path: "/cookie", says: "Cache-Control: max-age=60\r\nSet-Cookie: user=@", content: Owner::User },
    Page { path: "/field", says: "Cache-Control: max-age=60, private=\"x-user\"", content: Owner::All },
    Page {
        path: "/field-validated",
        says: "Cache-Control: max-age=0, private=\"x-user\", stale-if-error=60\r\nETag: \"a\"",
        content: Owner::All,
    },
    Page {
        path: "/field-behind",
        says: "Cache-Control: max-age=0, no-cache=\"x-user\", stale-while-revalidate=60\r\nETag: \"a\"",
        content: Owner::All,
    },
];

const USERS: usize = 8;
const ROUNDS: usize = 30;
const ROUNDS_PER_URI: usize = 5;

#[test]
fn nobody_gets_what_was_made_for_somebody_else() {
    let turns = AtomicU64::new(0);
    let origin =
        ScriptedOrigin::start(move |exchange| answer(exchange, turns.fetch_add(1, Ordering::Relaxed)));
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let mut users: Vec<_> =
        (0..USERS).map(|user| User { name: format!("u{user}"), client: larder.client() }).collect();
    let visits = (0..ROUNDS).flat_map(|round| PAGES.iter().map(move |page| (round, page)));
    let collapsed: usize = visits.map(|(round, page)| visit_together(&mut users, page, round)).sum();
    assert!(collapsed > 0, "users met");
    assert!(larder.get("/field?0").is_hit(), "what is for everybody is stored");
}

/// Sometimes late, so that requests meet; sometimes broken, so that stale responses are used.
fn answer(exchange: &mut Exchange<'_>, turn: u64) {
    let user = exchange.request.field("x-user").to_owned();
    let path = exchange.request.target().split('?').next().expect("there is a path");
    let page = PAGES.iter().find(|page| path == page.path).expect("only pages are asked for");
    exchange.delay_ms(turn % 5);
    let fields = format!("{}\r\nX-User: {user}\r\n", page.says.replace('@', &user));
    if turn.is_multiple_of(11) {
        exchange.respond("503 Service Unavailable", &format!("X-User: {user}\r\n"), &user);
    } else if turn.is_multiple_of(13) {
        exchange.close();
    } else if fields.contains(&format!("ETag: {}\r\n", exchange.request.field("if-none-match"))) {
        exchange.send(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n"));
    } else {
        let content = if page.content == Owner::User { user.as_str() } else { "for everybody" };
        exchange.respond("200 OK", &fields, content.repeat(1 + (turn % 3) as usize * 2000));
    }
}

/// All ask for it at the same time; says how many waited for another's forward.
fn visit_together(users: &mut [User], page: &Page, round: usize) -> usize {
    thread::scope(|scope| {
        let visits: Vec<_> =
            users.iter_mut().map(|user| scope.spawn(move || user.visit(page, round))).collect();
        let collapsed = visits.into_iter().map(|visit| visit.join().expect("nobody got what is not his"));
        collapsed.filter(|collapsed| *collapsed).count()
    })
}

struct User {
    name: String,
    client: Client,
}

impl User {
    /// Says whether this user waited for another's forward.
    fn visit(&mut self, page: &Page, round: usize) -> bool {
        let mut fields = format!("X-User: {}\r\n", self.name);
        if page.path.starts_with("/authorization") {
            fields.push_str(&format!("Authorization: {}\r\n", self.name));
        }
        if round % 7 == 3 {
            fields.push_str("Cache-Control: no-cache\r\n");
        }
        let method = if round % 9 == 5 { "HEAD" } else { "GET" };
        // What a response says is known after the first: only before that, who asks at the same time waits for it.
        let target = format!("{}?{}", page.path, round / ROUNDS_PER_URI);
        let response = self.client.ask(method, &target, &fields);
        self.judge(page, &response);
        response.cache_status().contains("collapsed")
    }

    fn judge(&self, page: &Page, response: &Response) {
        let text = response.text();
        let what = format!("{} asked for {}: {:?}", self.name, page.path, response.head);
        let marks = ["x-user", "set-cookie", "etag"].map(|name| response.field(name));
        for mark in marks {
            let foreign = (0..USERS).map(|user| format!("u{user}")).filter(|user| *user != self.name);
            for user in foreign {
                assert!(!mark.contains(&user), "{what}");
                let is_marked = response.status() == 503 || page.content == Owner::User;
                assert!(!(is_marked && text.contains(&user)), "{what}, {}", &text[..text.len().min(20)]);
            }
        }
    }
}

/// The full trial is in `soak.rs`.
#[test]
fn no_style_of_origin_shares_what_it_did_not_say_is_for_all() {
    let outcome = Trial { users: 120, burst: 60, rounds: 3 }.run("");
    assert_eq!(outcome.foreign.len(), 0, "{outcome:#?}");
    assert_eq!(outcome.responses, 6300);
    assert!(outcome.shared > 0 && outcome.collapsed > 0, "{outcome:#?}");
}

/// Where the operator has it so, as RFC 9111 permits it, the trial finds what is shared: it looks at the right things.
#[test]
fn the_trial_sees_what_is_shared_without_permission() {
    let outcome = Trial { users: 40, burst: 20, rounds: 3 }.run("credentials_stored = \"all\"");
    assert!(outcome.foreign.len() > 5, "{outcome:#?}");
}

/// The second burst does not wait for anybody, while requests without credentials still wait for each other.
#[test]
fn requests_with_credentials_wait_once_for_an_answer_that_is_not_shared() {
    for (credentials, says) in [
        ("Authorization: Bearer @\r\n", "Cache-Control: max-age=60\r\n"),
        ("Cookie: user=@\r\n", "ETag: \"a\"\r\n"),
        ("X-API-Key: @\r\n", ""),
    ] {
        let gate = Gate::new();
        let (opened, says) = (gate.clone(), says.to_owned());
        let origin = ScriptedOrigin::start(move |exchange| {
            let request = &exchange.request;
            let step = request.field("x-step").parse().expect("each request says its step");
            let fields = ["authorization", "cookie", "x-api-key"].map(|name| request.field(name));
            let is_anonymous = fields.iter().all(|value| value.is_empty());
            opened.pass_step(step);
            let fields = if is_anonymous { "Cache-Control: max-age=60\r\n" } else { &says };
            exchange.respond("200 OK", fields, "an answer");
        });
        let larder = Setup::origin(LARDER, &origin.url()).start();
        let ask = |step: usize, user: usize| {
            let fields = if step == 3 { String::new() } else { credentials.replace('@', &user.to_string()) };
            larder.ask("GET", "/a", &format!("{fields}X-Step: {step}\r\n"))
        };
        gate.reach(1);
        ask(1, 0);
        thread::scope(|scope| {
            let burst: Vec<_> = (1..6).map(|user| scope.spawn(move || ask(2, user))).collect();
            // All of them, though nobody is answered yet.
            origin.wait_for("/a", 6);
            gate.reach(2);
            burst.into_iter().for_each(|one| assert_eq!(one.join().expect("answered").text(), "an answer"));
        });
        thread::scope(|scope| {
            let first = scope.spawn(|| ask(3, 0));
            origin.wait_for("/a", 7);
            let others: Vec<_> = (1..6).map(|user| scope.spawn(move || ask(3, user))).collect();
            wait::until_true("they wait", || larder.metric("larder_collapsed_waiters", &[]) >= 5.0);
            gate.reach(3);
            others.into_iter().chain([first]).for_each(|one| drop(one.join().expect("it is answered")));
        });
        assert_eq!(origin.count("/a"), 7, "{credentials}");
    }
}

/// A request that waits for the forward of another user gets neither that user's early hints nor what a 304 forbids to
/// share.
#[test]
fn what_only_the_leader_may_have_reaches_no_waiter() {
    let gate = Gate::new();
    let opened = gate.clone();
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
                exchange.send(format!("HTTP/1.1 304 Not Modified\r\n{says}{owner}\r\n"));
            }
            _ => {
                exchange.send(format!("HTTP/1.1 103 Early Hints\r\n{owner}\r\n"));
                opened.pass();
                exchange.respond("200 OK", &format!("Cache-Control: no-store\r\n{owner}"), "own");
            }
        }
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    larder.get("/validated");
    thread::scope(|scope| {
        let ask = |target, user: &'static str| {
            let credentials = if target == "/hints" { "Cookie: a=b\r\n" } else { "" };
            (user, larder.ask("GET", target, &format!("{credentials}X-User: {user}\r\n")))
        };
        let leaders = [scope.spawn(move || ask("/hints", "a")), scope.spawn(move || ask("/validated", "a"))];
        origin.wait_for("/hints", 1);
        origin.wait_for("/validated", 2);
        let waiters = [scope.spawn(move || ask("/hints", "b")), scope.spawn(move || ask("/validated", "b"))];
        wait::until_true("they wait", || larder.metric("larder_collapsed_waiters", &[]) >= 2.0);
        gate.open();
        for one in leaders.into_iter().chain(waiters) {
            let (user, response) = one.join().expect("it is answered");
            assert_eq!(response.field("x-owner"), user, "{:?}", response.head);
            let hints = response.interim.iter().map(|hint| hint.fields.joined("x-owner"));
            assert!(hints.clone().all(|owner| owner == user), "{:?}", hints.collect::<Vec<_>>());
        }
    });
}

/// Field bug: `Proxy-Authorization` reached the origin server, and what it answered to that user went to others.
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
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let alice = "Proxy-Authorization: Basic YWxpY2U6cHc=\r\n";
    for target in ["/", "/vary"] {
        for method in ["GET", "POST"] {
            let fields = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
            let response = larder.ask(method, target, &format!("{alice}{fields}"));
            assert_eq!(response.text(), "for \"\"", "{method} {target}");
            for name in ["proxy-authenticate", "proxy-authentication-info"] {
                assert!(!response.head.fields.has(name), "{method} {target}: {name}");
            }
        }
    }
    let other = larder.ask("GET", "/", "Cache-Control: max-stale\r\n");
    assert!(!other.is_hit(), "it was stored for one who said who he is: {:?}", other.head);
}

/// Fields that say whose request it is, as proxies, identity providers and APIs have them.
const IDENTITIES: [&str; 61] = [
    "Cookie",
    "Cookie2",
    "Proxy-Authorization",
    "DPoP",
    "X-API-Key",
    "Api-Key",
    "ApiKey",
    "X-ApiKey",
    "X-Authorization",
    "X-Auth",
    "X-Auth-Token",
    "X-Auth-Key",
    "X-Auth-User",
    "X-Auth-Request-User",
    "Access-Token",
    "Auth-Token",
    "Job-Token",
    "X-Gitlab-Token",
    "X-Vault-Token",
    "X-Access-Key",
    "X-Amz-Security-Token",
    "X-Shopify-Access-Token",
    "Ocp-Apim-Subscription-Key",
    "Cf-Access-Jwt-Assertion",
    "X-JWT-Assertion",
    "X-Goog-IAP-JWT-Assertion",
    "X-Goog-Authenticated-User-Email",
    "X-Amzn-Oidc-Data",
    "X-Amzn-Oidc-Identity",
    "X-Amzn-Oidc-Accesstoken",
    "X-MS-Client-Principal-Name",
    "Remote-User",
    "X-Remote-User",
    "X-WEBAUTH-USER",
    "X-SSL-Client-Cert",
    "SSL-Client-DN",
    "X-Pomerium-Jwt-Assertion",
    "X-Endpoint-API-UserInfo",
    "X-Apigateway-Api-Userinfo",
    "X-Consumer-Username",
    "X-Authentik-Username",
    "X-Vouch-User",
    "Tailscale-User-Login",
    "Remote-Email",
    "Remote-Name",
    "Remote-Groups",
    "Impersonate-User",
    "X-Goog-Api-Key",
    "X-Functions-Key",
    "X-Subject-Token",
    "X-Api-Token",
    "Api-Token",
    "Token",
    "X-Id-Token",
    "X-JWT-Token",
    "Circle-Token",
    "X-Plex-Token",
    "X-Redmine-Api-Key",
    "CF-Access-Client-Secret",
    "X-Hasura-Admin-Secret",
    "X-Hasura-User-Id",
];

/// Field bug: an answer to one of these was stored as if it were everybody's.
#[test]
fn identities_of_all_kinds_are_credentials() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.respond("200 OK", "ETag: \"a\"\r\n", "for one");
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    for name in IDENTITIES {
        let response = larder.ask("GET", &format!("/{name}"), &format!("{name}: alice\r\n"));
        assert!(response.cache_status().contains("detail=credentials"), "{name}: {:?}", response.head);
    }
    let anonymous = larder.ask("GET", "/", "X-Request-ID: 1\r\nX-Client-Version: 2\r\nX-CSRF-Token: 3\r\n");
    assert!(anonymous.cache_status().contains("stored"), "{:?}", anonymous.head);
}

/// What one client sent, and what it got for it.
struct Odd {
    fields: &'static str,
    status: &'static str,
    says: &'static str,
    /// What those who come after it send.
    crowd: &'static str,
}

const fn odd(fields: &'static str, status: &'static str, says: &'static str) -> Odd {
    Odd { fields, status, says, crowd: "" }
}

const ODD: [Odd; 14] = [
    odd("Cookie: a=b\r\n", "200 OK", "Cache-Control: no-store\r\n"),
    odd("Cookie: a=b\r\n", "200 OK", "Cache-Control: private\r\n"),
    odd("Cookie: a=b\r\n", "200 OK", "Set-Cookie: a=c\r\nCache-Control: max-age=1\r\n"),
    odd("Authorization: Bearer a\r\n", "200 OK", "Cache-Control: no-store\r\n"),
    odd("X-API-Key: a\r\n", "200 OK", "Vary: *\r\n"),
    odd("", "200 OK", "Cache-Control: no-store\r\n"),
    odd("", "200 OK", "Set-Cookie: a=c\r\nCache-Control: max-age=1\r\n"),
    odd("", "200 OK", "Vary: *\r\n"),
    odd("", "404 Not Found", ""),
    odd("", "400 Bad Request", "Cache-Control: max-age=60\r\n"),
    odd("Cache-Control: no-cache\r\n", "200 OK", "Cache-Control: no-store\r\n"),
    odd("", "200 OK", "Connection: close\r\nTransfer-Encoding: identity\r\n"),
    Odd { crowd: "Cookie: a=c\r\n", ..odd("Cookie: a=b\r\n", "200 OK", "Cache-Control: private\r\n") },
    Odd { crowd: "Cookie: a=c\r\n", ..odd("Cookie: a=b\r\n", "404 Not Found", "") },
];

/// Who is in the crowd.
const VISITORS: usize = 12;

/// When the odd request comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comes {
    /// It is answered before the others are there.
    Before,
    /// They wait for its answer.
    First,
}

/// A page for everybody, and one client that draws an answer for itself: the others wait for each other as before.
//= RFC 9111 section 4: collapsed requests
#[test]
fn one_answer_for_one_client_sends_no_crowd_to_the_origin() {
    let gate = Gate::new();
    let opened = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        let step: usize = exchange.request.field("x-step").parse().expect("each request says its step");
        opened.pass_step(step);
        let (trial, step) = (step / 3, step % 3);
        let odd = &ODD[trial / 2];
        let stale = "Age: 61\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\n";
        match step {
            0 => exchange.respond("200 OK", stale, "for all"),
            1 => exchange.respond(odd.status, odd.says, "for one"),
            _ => exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "for all"),
        };
        // Its end is that of the connection: kept open, the body would end with the patience of the gateway.
        if step == 1 && odd.says.contains("Connection: close") {
            exchange.close();
        }
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    for (number, odd) in ODD.iter().enumerate() {
        OddTrial {
            larder: &larder,
            origin: &origin,
            gate: &gate,
            odd,
            comes: Comes::Before,
            number: 2 * number,
        }
        .run();
        OddTrial {
            larder: &larder,
            origin: &origin,
            gate: &gate,
            odd,
            comes: Comes::First,
            number: 2 * number + 1,
        }
        .run();
    }
}

/// One odd request and its crowd, at a target of their own.
struct OddTrial<'a> {
    larder: &'a Larder,
    origin: &'a ScriptedOrigin,
    gate: &'a Gate,
    odd: &'a Odd,
    comes: Comes,
    number: usize,
}

impl OddTrial<'_> {
    fn ask(&self, step: usize, fields: &str) -> String {
        let (target, step) = (self.target(), 3 * self.number + step);
        self.larder.ask("GET", &target, &format!("{fields}X-Step: {step}\r\n")).text()
    }

    fn target(&self) -> String {
        format!("/{}", self.number)
    }

    fn reach(&self, step: usize) {
        self.gate.reach(3 * self.number + step);
    }

    fn wait_for_waiters(&self, count: usize) {
        let waiting = || self.larder.metric("larder_collapsed_waiters", &[]);
        wait::until_true("they wait", || waiting() >= count as f64);
    }

    fn run(&self) {
        let Self { odd, comes, .. } = self;
        self.reach(0);
        self.ask(0, "");
        if *comes == Comes::Before {
            self.reach(1);
            assert_eq!(self.ask(1, odd.fields), "for one");
        }
        thread::scope(|scope| {
            let first = (*comes == Comes::First).then(|| scope.spawn(|| self.ask(1, odd.fields)));
            self.origin.wait_for(&self.target(), 2);
            let crowd: Vec<_> = (0..VISITORS).map(|_| scope.spawn(|| self.ask(2, odd.crowd))).collect();
            if first.is_some() {
                // With `no-cache` it is forwarded for itself, and one of the others as well.
                self.wait_for_waiters(if odd.fields.starts_with("Cache") { VISITORS - 1 } else { VISITORS });
                self.reach(1);
            }
            self.origin.wait_for(&self.target(), 3);
            self.wait_for_waiters(VISITORS - 1);
            self.reach(2);
            crowd.into_iter().for_each(|one| assert_eq!(one.join().expect("answered"), "for all"));
            first.into_iter().for_each(|one| assert_eq!(one.join().expect("answered"), "for one"));
        });
        let what = format!("{}{} {}", odd.fields, odd.status, odd.says);
        assert_eq!(self.origin.count(&self.target()), 3, "{what}, {comes:?}");
    }
}

/// Field bug: what was stored for one user before a reload named the field that tells users apart went to others after it.
#[test]
fn a_reload_that_names_credentials_reaches_what_is_stored() {
    let origin = ScriptedOrigin::start(|exchange| {
        let user = exchange.request.field("x-user").to_owned();
        let is_public = exchange.request.target() == "/public";
        let says = if is_public { "Cache-Control: max-age=60\r\n" } else { "" };
        exchange.respond("200 OK", &format!("{says}ETag: \"{user}\"\r\n"), user);
    });
    let site = format!("[[site]]\nname = \"a\"\norigin = \"{}\"\n", origin.url());
    let mut larder = Setup::config(LARDER, &site).start();
    for target in ["/", "/public"] {
        let stored = larder.ask("GET", target, "X-User: alice\r\n");
        assert!(stored.cache_status().contains("stored"), "{:?}", stored.head);
    }
    let reload = |larder: &mut Larder, more: &str| {
        larder.write_config(&format!("{site}{more}"));
        assert_eq!(larder.ask_admin("POST", "/reload", "").status(), 200);
    };
    reload(&mut larder, "x_cache = true\n");
    assert!(
        larder.ask("GET", "/", "Cache-Control: max-stale\r\n").is_hit(),
        "nothing about credentials is new"
    );
    reload(&mut larder, "x_cache = true\n[[site.rule]]\ncredential_fields = [\"X-User\"]\n");
    for fields in ["Cache-Control: max-stale\r\n", "", "If-None-Match: \"alice\"\r\n"] {
        let other = larder.ask("GET", "/", fields);
        assert_eq!((other.status(), &other.text()[..]), (200, ""), "{fields}: {:?}", other.head);
    }
    assert_eq!(larder.get("/public").text(), "alice", "its origin said that it is everybody's");
}

/// Field bug: what `heuristic_requests = "all"`, a lifetime of the operator's, or `store_set_cookie` had stored went on to be used
/// after a reload to rules that store nothing of it.
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
    let site = format!("[[site]]\nname = \"a\"\norigin = \"{}\"\n", origin.url());
    let mut larder = Setup::config(LARDER, &site).start();
    let all = "@site[[site.rule]]\ncredentials_stored = \"all\"\nheuristic_requests = \"all\"\n";
    for (loose, target) in [
        (all, "/guess"),
        ("profile = \"rfc9111\"\n@site", "/profile"),
        ("@site[[site.rule]]\nheuristic_requests = \"all\"\n", "/guess2"),
        ("@site[[site.rule]]\nttl_default = { 200 = \"60s\" }\n", "/default"),
        ("@site[[site.rule]]\nttl_override = { 200 = \"60s\" }\n", "/override"),
        ("@site[[site.rule]]\nstore_set_cookie = true\n", "/set"),
    ] {
        let reload = |larder: &mut Larder, more: &str| {
            larder.write_config(&more.replace("@site", &site));
            let answer = larder.ask_admin("POST", "/reload", "");
            assert_eq!(answer.status(), 200, "{}", answer.text());
        };
        reload(&mut larder, loose);
        larder.ask("GET", target, "Cookie: alice\r\n");
        let other = larder.ask("GET", target, "Cookie: bob\r\n");
        assert_eq!((other.is_hit(), &other.text()[..]), (true, "for alice"), "{loose}: {:?}", other.head);
        reload(&mut larder, "@site");
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
            // What this request may have had stored is not the one before.
            larder.ask_admin("POST", "/purge", &format!("{{\"url\": \"http://test.example{target}\"}}"));
            reload(&mut larder, loose);
            larder.ask("GET", target, "Cookie: alice\r\n");
            reload(&mut larder, "@site");
        }
    }
    larder.ask("GET", "/shared", "Cookie: alice\r\n");
    larder.write_config(&all.replace("@site", &site));
    assert_eq!(larder.ask_admin("POST", "/reload", "").status(), 200);
    assert!(larder.get("/shared").is_hit(), "its origin said that it is everybody's");
}

/// By the address of the client: of the peer, or of whom a trusted proxy names. Before anything else, so that nothing stored gets out.
#[test]
fn a_site_answers_only_the_clients_that_it_allows() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.respond("200 OK", "Cache-Control: max-age=600\r\n", "for some");
    });
    let config = |own: &str, trusted: &str| {
        format!(
            "trusted_proxies = [{trusted}]\n[[site]]\nname = \"a\"\norigin = \"{}\"\n{own}\nexpose_errors = true\n",
            origin.url()
        )
    };
    let mut larder = Setup::config(LARDER, &config("", "\"127.0.0.1\"")).start();
    assert!(larder.get("/").cache_status().contains("stored"));
    let reload = |larder: &mut Larder, own: &str, trusted: &str| {
        larder.write_config(&config(own, trusted));
        assert_eq!(larder.ask_admin("POST", "/reload", "").status(), 200);
    };
    #[track_caller]
    fn check(larder: &Larder, fields: &str, is_admitted: bool) {
        for method in ["GET", "HEAD", "POST"] {
            let answer = larder.ask(method, "/", fields);
            let expected = if is_admitted { 200 } else { 403 };
            assert_eq!(answer.status(), expected, "{method} {fields:?}: {}", answer.text());
        }
        let answer = larder.ask("GET", "/", fields);
        if !is_admitted {
            assert!(answer.text().contains("client-denied: this site does not answer"), "{}", answer.text());
            assert!(answer.cache_status().contains("detail=client-denied"), "{}", answer.cache_status());
        }
    }
    let allowed =
        "clients_allowed = [\"192.0.2.0/24\", \"2001:db8::/32\"]\nclients_denied = [\"192.0.2.66\"]";
    reload(&mut larder, allowed, "\"127.0.0.1\"");
    for (fields, is_admitted) in [
        ("X-Forwarded-For: 192.0.2.1\r\n", true),
        ("X-Forwarded-For: ::ffff:192.0.2.1\r\n", true),
        ("X-Forwarded-For: 198.51.100.1, 192.0.2.1\r\n", true),
        ("Forwarded: for=\"[2001:db8::1]\"\r\n", true),
        ("X-Forwarded-For: 192.0.2.66\r\n", false),
        ("X-Forwarded-For: ::ffff:192.0.2.66\r\n", false),
        ("X-Forwarded-For: 192.0.2.1, 198.51.100.1\r\n", false),
        ("X-Forwarded-For: 192.0.2.1, unknown\r\n", false),
        ("Forwarded: for=\"[2001:db9::1]\"\r\n", false),
        // The proxy itself, and nobody else, is known.
        ("", false),
    ] {
        check(&larder, fields, is_admitted);
    }
    // Anybody may have written these.
    reload(&mut larder, allowed, "");
    check(&larder, "X-Forwarded-For: 192.0.2.1\r\n", false);
    reload(&mut larder, "clients_denied = [\"127.0.0.0/8\"]", "");
    check(&larder, "X-Forwarded-For: 192.0.2.1\r\n", false);
    reload(&mut larder, "clients_denied = [\"127.0.0.2\", \"::/0\"]", "");
    check(&larder, "", true);
    // However the networks of IPv4 are written.
    reload(&mut larder, "clients_denied = [\"::ffff:127.0.0.0/120\"]", "");
    check(&larder, "", false);
    // One that is trusted made the request itself, or somebody's words can't be read.
    reload(&mut larder, "clients_denied = [\"127.0.0.66\"]", "\"127.0.0.0/8\"");
    check(&larder, "X-Forwarded-For: 127.0.0.66\r\n", false);
    check(&larder, "X-Forwarded-For: 127.0.0.66, 127.0.0.7\r\n", false);
    check(&larder, "X-Forwarded-For: 127.0.0.7\r\n", true);
    check(&larder, "Forwarded: for=\"192.0.2.1, for=\"127.0.0.66\"\r\n", false);
    assert!(larder.metric("larder_requests_total", &["status=\"403\""]) > 0.0);
    larder.write_config(&config("clients_allowed = [\"192.0.2.0/33\"]", ""));
    let refused = larder.ask_admin("POST", "/reload", "").text();
    assert!(refused.contains("expected an IP address or network, such as `10.0.0.0/8`"), "{refused}");
}

/// Rules and access lists are chosen by the path as it is written, and the origin answers the path that it has decoded.
#[test]
fn respelled_paths_and_hosts_get_no_other_rules() {
    let origin = ScriptedOrigin::start(|exchange| {
        let page = format!("page of {:?}", exchange.request.field("cookie"));
        exchange.respond("200 OK", "ETag: \"1\"\r\n", page);
    });
    let config = format!(
        "[[site]]\nname = \"intranet\"\nhosts = [\"intranet.test\"]\norigin = \"{0}\"\nclients_allowed = [\"192.0.2.1\"]\n\
         [[site]]\nname = \"admin\"\npath_prefix = \"/admin\"\norigin = \"{0}\"\nclients_allowed = [\"192.0.2.1\"]\n\
         [[site]]\nname = \"a\"\norigin = \"{0}\"\n\
         [[site.rule]]\nname = \"account\"\npath = {{ exact = \"/account\" }}\ncache = false\n\
         [[site.rule]]\nname = \"images\"\npath = {{ glob = \"/images/**\" }}\nttl_override = {{ 200 = \"30d\" }}\n",
        origin.url()
    );
    let larder = Setup::config(LARDER, &config).start();
    let ask = |target: &str, host: &str, cookie: &str| {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{cookie}Connection: close\r\n\r\n");
        larder.client().send(request).response()
    };
    // An image is the same for all.
    ask("/images/x.png", "a.test", "Cookie: alice\r\n");
    assert_eq!(ask("/images/x.png", "a.test", "").text(), "page of \"alice\"");
    for target in ["/%61ccount", "/account%3F/images/x", "/account%23"] {
        let first = ask(target, "a.test", "Cookie: alice\r\n");
        assert_eq!(first.text(), "page of \"alice\"", "{target}");
        let second = ask(target, "a.test", "");
        assert_eq!(second.text(), "page of \"\"", "{target}: {}", second.cache_status());
    }
    for target in ["/images/../account", "//account", "//images/account", "/account;/images/x", "/account/./"]
    {
        assert_eq!(ask(target, "a.test", "Cookie: alice\r\n").status(), 400, "{target}");
    }
    for (target, host, status) in [
        ("/", "intranet.test", 403),
        ("/", "intranet.test.", 403),
        ("/", "INTRANET.test.:80", 403),
        ("/admin/x", "a.test", 403),
        ("/administration", "a.test", 200),
        ("//admin/x", "a.test", 400),
        ("/%61dmin/x", "a.test", 403),
        ("/admin%3Fx", "a.test", 400),
        ("/./admin/x", "a.test", 400),
        ("/y/../admin/x", "a.test", 400),
        ("/y;%2fx/..x/admin", "a.test", 400),
        ("//y/admin", "a.test", 400),
        ("/admin%2fpublic", "a.test", 400),
        ("/%2561dmin/public", "a.test", 400),
        ("/admin%5cpublic", "a.test", 400),
        ("/admin;%2fpublic", "a.test", 400),
        ("/y/%2e%2e/admin/x", "a.test", 400),
        ("/y/..;/admin", "a.test", 400),
        ("/admin/..%2fpublic", "a.test", 400),
        ("/admin//x", "a.test", 400),
        ("/admin;x", "a.test", 400),
        ("/;x/admin", "a.test", 400),
        ("/y/../x", "a.test", 400),
        ("/y%3Fx", "a.test", 200),
    ] {
        let answer = ask(target, host, "");
        assert_eq!(answer.status(), status, "{target} {host}");
        assert_eq!(answer.cache_status().contains("ambiguous-path"), status == 400, "{target}");
    }
}

/// What a site says of `/account`, what its origin says of all, and paths that read as `/account` or as what is below `/static/`.
struct Reading {
    rules: &'static str,
    says: &'static str,
    targets: &'static [&'static str],
}

const OF_ACCOUNT: &[&str] = &[
    "/./account",
    "/x/../account",
    "/account;x=1",
    "/acco%75nt%3bx",
    "/account%3Fx",
    "/account%23.css",
    "/account%00.css",
    "/acc%256funt",
];
const OF_STATIC: &[&str] = &[
    "/static%2faccount",
    "/static/../account",
    "/static%5caccount",
    "/static;x/account",
    "/%2573tatic/account",
];

/// What is otherwise refused.
const ALLOWED: &str = "spellings_allowed = [\"encoded-slash\", \"backslash\", \"double-encoding\", \"semicolon\", \"dot-segment\", \"control-character\"]\n";

const READINGS: [Reading; 9] = [
    Reading {
        rules: "[[site.rule]]\nname = \"acc\"\npath = { exact = \"/account\" }\ncredential_fields = [\"X-User\"]\n",
        says: MODIFIED,
        targets: OF_ACCOUNT,
    },
    Reading {
        rules: "[[site.rule]]\nname = \"acc\"\npath = { exact = \"/account\" }\nheuristic_percent = 0\n\
                [[site.rule]]\nname = \"rest\"\n",
        says: MODIFIED,
        targets: OF_ACCOUNT,
    },
    Reading {
        rules: "[[site.rule]]\nname = \"acc\"\npath = { exact = \"/account\" }\nttl_override = { default = \"0s\" }\n",
        says: "Cache-Control: max-age=60\r\n",
        targets: OF_ACCOUNT,
    },
    Reading {
        rules: "[[site.rule]]\nname = \"acc\"\npath = { exact = \"/account\" }\ntargeted_fields = []\n",
        says: "Cache-Control: no-store\r\nCDN-Cache-Control: max-age=60\r\n",
        targets: OF_ACCOUNT,
    },
    Reading {
        rules: "[[site.rule]]\nname = \"static\"\npath = { prefix = \"/static/\" }\nttl_override = { 200 = \"1d\" }\n",
        says: "",
        targets: OF_STATIC,
    },
    Reading {
        rules: "[[site.transform]]\nphase = \"origin_response\"\npath = { prefix = \"/static/\" }\n\
                cache_control = { 200 = \"max-age=86400\" }\n",
        says: "",
        targets: OF_STATIC,
    },
    Reading {
        rules: "[[site.transform]]\nphase = \"origin_response\"\npath = { prefix = \"/static/\" }\n\
                set = { Cache-Control = \"max-age=86400\" }\n",
        says: "",
        targets: OF_STATIC,
    },
    Reading {
        rules: "[[site.transform]]\nphase = \"origin_response\"\npath = { exact = \"/account\" }\n\
                cache_control = { default = \"private\" }\n",
        says: "Cache-Control: max-age=60\r\n",
        targets: OF_ACCOUNT,
    },
    // The rule is for the path that the client sends, and what it makes of it reads in one way only.
    Reading {
        rules: "[[site.transform]]\nphase = \"client_request\"\npath = { prefix = \"/static/\" }\nremove = [\"Cookie\"]\n\
                rewrite = { regex = \"^.*$\", to = \"/account\" }\n[[site.rule]]\nttl_default = { 200 = \"60s\" }\n",
        says: "",
        targets: OF_STATIC,
    },
];

const MODIFIED: &str = "Last-Modified: Mon, 02 Jan 2023 00:00:00 GMT\r\n";

/// Field bug: what one rule forbids of a path was stored under another spelling of it, and what one permits was stored of other paths.
#[test]
fn a_path_with_two_readings_is_never_stored() {
    for Reading { rules, says, targets } in READINGS {
        let origin = ScriptedOrigin::start(move |exchange| {
            let page = format!("page of {:?}", exchange.request.field("x-user"));
            exchange.respond("200 OK", says, page);
        });
        let rules = rules.replace("[[site.rule]]\n", &format!("[[site.rule]]\n{ALLOWED}"));
        let rest = format!("[[site.rule]]\nname = \"others\"\n{ALLOWED}");
        let config = format!("[[site]]\nname = \"a\"\norigin = \"{}\"\n{rules}{rest}", origin.url());
        let larder = Setup::config(LARDER, &config).start();
        for target in targets {
            for user in ["alice", "bob"] {
                let answer = larder.ask("GET", target, &format!("X-User: {user}\r\n"));
                assert_eq!(answer.text(), format!("page of {user:?}"), "{target} by {rules}");
                assert!(answer.cache_status().contains("fwd=bypass"), "{target}: {}", answer.cache_status());
            }
        }
        assert_eq!(origin.total(), 2 * targets.len());
        let admin = larder.admin().to_string();
        let url = format!("http://a{}", targets[0]);
        let told = Command::new(LARDER).args(["explain", &url, "--admin", &admin]).output().expect("it runs");
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.contains("origins may read the path otherwise, with other rules"), "{url}: {told}");
    }
}

/// Ways to read a path by origins of the field, and paths that they take for `/PAGE`, where that stands for the page or what encodes it.
const MISREAD: [(&str, &[&str]); 7] = [
    ("decodes, and keeps dots (WSGI, Java)", &["/PAGE/%2e%2e", "/PAGE%2f..", "/PAGE%2Fx"]),
    (
        "takes `..;` for a name (nginx, Apache, Node)",
        &["/PAGE/..;", "//PAGE/..;", "/static/../PAGE/..;/static/"],
    ),
    ("takes a backslash for a character", &["/PAGE/..\\x", "/PAGE/..%5cx", "/PAGE%5cx"]),
    ("removes dots before it merges slashes (Node)", &["/./PAGE//..", "/x/../PAGE//.."]),
    ("takes the path for a reference to a URL (Node, Java)", &["//x/PAGE", "///x/PAGE", "/\\x/PAGE"]),
    (
        "takes an encoded slash for a character (Apache, Node)",
        &["/a%2fb/../PAGE", "/static/a%2fb/../../PAGE/..%2f..%2fstatic"],
    ),
    (
        "cuts parameters before it decodes (Tomcat)",
        &["/PAGE;%2f..", "/PAGE;x%2f..%2ffoo", "/PAGE;%5c..%5cp", "/PAGE;%2fx", "/PAGE;x%2Fy;z"],
    ),
];

/// Field bug: access lists, rules and limits of a path were passed by paths that few origins read as that one.
#[test]
fn a_path_has_the_limits_of_all_its_readings() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        let page = format!("page of {:?}", exchange.request.field("cookie"));
        exchange.respond("200 OK", "", page);
    });
    let config = format!(
        "[[site]]\nname = \"admin\"\npath_prefix = \"/admin\"\norigin = \"{0}\"\nclients_allowed = [\"192.0.2.1\"]\n\
         [[site]]\nname = \"a\"\norigin = \"{0}\"\n\
         [[site.rule]]\nname = \"account\"\npath = {{ regex = \"^/account(/|$)\" }}\ncache = false\n\
         [[site.rule]]\nname = \"login\"\npath = {{ exact = \"/login\" }}\nrate_limit = {{ requests = 1, window = \"1h\" }}\n\
         [[site.rule]]\nname = \"up\"\npath = {{ exact = \"/up\" }}\nrequest_body_bytes_max = 10\n\
         [[site.rule]]\nname = \"rest\"\nttl_default = {{ 200 = \"60s\" }}\n",
        origin.url()
    );
    let larder = Setup::config(LARDER, &config).start();
    let ask = |method: &str, target: &str, content: &str| {
        let length = content.len();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: a\r\nCookie: alice\r\nContent-Length: {length}\r\n\r\n"
        );
        larder.client().send(head + content).response()
    };
    assert_eq!(ask("GET", "/login", "").status(), 200);
    for (way, targets) in MISREAD {
        for target in targets {
            for first in [0, 1] {
                let of = |page: &str| {
                    let encoded = format!("%{:02x}{}", page.as_bytes()[0], &page[1..]);
                    target.replace("PAGE", if first == 0 { page } else { &encoded })
                };
                let admin = ask("GET", &of("admin"), "");
                assert_eq!(admin.status(), 400, "{} by an origin that {way}", of("admin"));
                assert!(admin.cache_status().contains("detail=ambiguous-path"), "{}", admin.cache_status());
                let account = ask("GET", &of("account"), "");
                let is_kept_out = account.status() == 400 || account.cache_status().contains("fwd=bypass");
                assert!(is_kept_out && !account.cache_status().contains("stored"), "{} {way}", of("account"));
                // Only the path itself is limited, not what is below it.
                let is_exact = !target.ends_with("%2Fx") && !target.ends_with("PAGE%5cx");
                let statuses =
                    [ask("GET", &of("login"), "").status(), ask("POST", &of("up"), "12345678901").status()];
                if is_exact {
                    assert!(
                        matches!(statuses, [400 | 429, 400 | 413]),
                        "{} {way}: {statuses:?}",
                        of("login")
                    );
                }
            }
        }
    }
    for target in ["/static/@a/v1.2", "/%40a/.hidden", "/100%25", "/a%3Fb"] {
        assert_eq!(ask("GET", target, "").status(), 200, "{target} is honest");
    }
    let admin = larder.admin().to_string();
    let explained = run(LARDER, ["explain", "http://a/%61%2f..", "--admin", &admin]).text();
    assert!(
        explained.contains("origins read the path in several ways (encoded-slash, dot-segment)"),
        "{explained}"
    );
}

/// Field bug: anybody can add a query to a path, and so chose a rule for it, or got past one.
#[test]
fn an_expression_sees_the_query_only_if_it_says_so() {
    let origin = ScriptedOrigin::start(|exchange| {
        let page = format!("page of {:?}", exchange.request.field("cookie"));
        exchange.respond("200 OK", "", page);
    });
    let rules = [
        ("account", "^/(account|cart)(/|$)", "cache = false"),
        ("preview", "[?&]preview=", "cache = false"),
        ("assets", "\\\\.(css|js|png)$", "ttl_override = { 200 = \"1d\" }"),
        ("printed", "^/print[^?]*\\\\?as=pdf$", "ttl_override = { 200 = \"1d\" }"),
    ];
    let rules = rules.map(|(name, regex, key)| {
        format!("[[site.rule]]\nname = \"{name}\"\npath = {{ regex = \"{regex}\" }}\n{key}\n")
    });
    let config = format!(
        "[[site]]\nname = \"a\"\norigin = \"{}\"\n{}\n\
         [[site.transform]]\nphase = \"client_request\"\npath = {{ regex = \"^/old$\" }}\n\
         redirect = {{ status = \"301\", to = \"/new\" }}\n",
        origin.url(),
        rules.concat()
    );
    let larder = Setup::config(LARDER, &config).start();
    for (target, first, second) in [
        ("/page?x.css", "fwd=", "fwd="),
        ("/page?a&x=/a.js", "fwd=", "fwd="),
        ("/x.css", "stored", "hit"),
        ("/x.css?v=1", "stored", "hit"),
        ("/account?utm_source=x", "fwd=bypass", "fwd=bypass"),
        ("/cart?", "fwd=bypass", "fwd=bypass"),
        ("/x.css?preview=1", "fwd=bypass", "fwd=bypass"),
        ("/print/1?as=pdf", "stored", "hit"),
        ("/print/1", "fwd=", "fwd="),
    ] {
        for expected in [first, second] {
            let answer = larder.ask("GET", target, "Cookie: a\r\n");
            let status = answer.cache_status();
            assert!(status.contains(expected), "{target}: {status}");
            assert_eq!(status.contains("stored"), expected == "stored", "{target}: {status}");
        }
    }
    assert_eq!(larder.get("/old?a").status(), 301);
}

/// Express, for one, routes without regard to case, to a slash at the end, and of course to the query. What keeps something out holds for
/// all of these, and what only lengthens lifetimes for none.
#[test]
fn what_restricts_holds_in_any_spelling() {
    let origin = ScriptedOrigin::start(|exchange| {
        let page = format!("page of {:?}", exchange.request.field("cookie"));
        exchange.respond("200 OK", "ETag: \"1\"\r\n", page);
    });
    let config = format!(
        "[[site]]\nname = \"admin\"\npath_prefix = \"/admin\"\norigin = \"{0}\"\nclients_allowed = [\"192.0.2.1\"]\n\
         [[site]]\nname = \"plain\"\npath_prefix = \"/plain\"\norigin = \"{0}\"\n\
         [[site]]\nname = \"a\"\norigin = \"{0}\"\n\
         [[site.rule]]\nname = \"personal\"\npath = {{ regex = \"^/(account|cart)(/|$)\" }}\ncache = false\n\
         [[site.rule]]\nname = \"orders\"\npath = {{ glob = \"/orders/*\" }}\ncache = false\n\
         [[site.rule]]\nname = \"login\"\npath = {{ exact = \"/login\" }}\ncache = false\n\
         [[site.rule]]\nname = \"own\"\npath = {{ exact = \"/own\" }}\ncredential_fields = [\"Accept\"]\n\
         [[site.rule]]\nname = \"opted\"\npath = {{ exact = \"/opted\" }}\nstore_only_with = \"X-Store\"\n\
         [[site.rule]]\nname = \"stale\"\npath = {{ prefix = \"/stale\" }}\nttl_override = {{ 200 = \"0s\", 404 = \"0s\" }}\n\
         [[site.rule]]\nname = \"kept\"\npath = {{ regex = \"(?-i)^/kept$\" }}\ncache = false\n\
         [[site.rule]]\nname = \"long\"\npath = {{ prefix = \"/images\" }}\nttl_default = {{ 200 = \"30d\" }}\n\
         [[site.rule]]\nname = \"everything-else\"\nttl_default = {{ 200 = \"60s\" }}\nquery_ignore = [\"utm_*\"]\n",
        origin.url()
    );
    let larder = Setup::config(LARDER, &config).start();
    for target in [
        "/account?utm_source=1",
        "/ACCOUNT",
        "/Account/",
        "/acc%6Funt?x",
        "/%41CCOUNT",
        "/CART/1?utm_source=2",
        "/Orders/1",
        "/orders/1/?x",
        "/LOGIN",
        "/login/",
        "/login/?utm_source=2",
        "/OWN",
        "/own/",
        "/OPTED?x",
        "/opted/",
        "/STALE/1",
    ] {
        assert_eq!(larder.ask("GET", target, "Cookie: alice\r\n").text(), "page of \"alice\"", "{target}");
        let second = larder.ask("GET", target, "Cookie: bob\r\n");
        assert_eq!(second.text(), "page of \"bob\"", "{target}: {}", second.cache_status());
    }
    // As written, or by nothing that restricts.
    for target in ["/KEPT", "/IMAGES/1", "/accounts"] {
        larder.ask("GET", target, "");
        let second = larder.ask("GET", target, "");
        assert!(second.is_hit(), "{target}: {}", second.cache_status());
        let lifetime = second.cache_status().split("ttl=").nth(1).expect("a hit").to_owned();
        assert!(lifetime.starts_with("60") || lifetime.starts_with("59"), "{target}: {lifetime}");
    }
    for (target, status) in [
        ("/admin", 403),
        ("/ADMIN", 403),
        ("/Admin/?x", 403),
        ("/%41dmin/x", 403),
        ("/administration", 200),
        ("/PLAIN", 200),
    ] {
        assert_eq!(larder.ask("GET", target, "").status(), status, "{target}");
    }
    let admin = larder.admin().to_string();
    let explained = run(LARDER, ["explain", "http://a/ACCOUNT", "--admin", &admin]).text();
    assert!(explained.contains("rule = personal"), "{explained}");
    assert!(explained.contains("its path matches in any case"), "{explained}");
}

/// Origins decode names of parameters, and some separate them by semicolons.
#[test]
fn respelled_parameters_are_part_of_the_key() {
    let origin = ScriptedOrigin::start(|exchange| {
        let target = exchange.request.target().to_owned();
        exchange.respond("200 OK", "Cache-Control: max-age=600\r\n", target);
    });
    let config = format!(
        "[[site]]\nname = \"a\"\norigin = \"{}\"\n\
         [[site.rule]]\nname = \"kept\"\npath = {{ prefix = \"/kept\" }}\nquery_keep = [\"w\"]\n\
         [[site.rule]]\nname = \"ignored\"\nquery_ignore = [\"utm_*\"]\n",
        origin.url()
    );
    let larder = Setup::config(LARDER, &config).start();
    for (odd, honest) in [
        ("/kept/1?w=1&%77=2", "/kept/1?w=1"),
        ("/kept/2?%77=2&w=1", "/kept/2?w=1"),
        ("/kept/3?w=1&w[]=2", "/kept/3?w=1"),
        ("/kept/4?w=1&z;w=2", "/kept/4?w=1"),
        ("/5?utm_x=1;q=2", "/5"),
        ("/6?q=1&utm_x=1;q=2", "/6?q=1"),
    ] {
        assert_eq!(larder.get(odd).text(), odd.replace("%77", "w"));
        assert_eq!(larder.get(honest).text(), honest);
    }
    // What they are for.
    assert_eq!(larder.get("/kept/1?w=1&other=3").text(), "/kept/1?w=1");
    assert_eq!(larder.get("/5?utm_x=1").text(), "/5");
}
