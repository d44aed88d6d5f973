//! Many users ask for the same pages at the same time, and the origin marks in each response whose it is. Whatever is
//! collapsed, stored, validated or served stale meanwhile: nobody gets what was made for somebody else.

mod identity;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use testkit::{Client, Exchange, Gate, Response, ScriptedOrigin, Setup, wait};

use crate::identity::Trial;

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

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
