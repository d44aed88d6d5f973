//! Many users ask for the same pages at the same time, and the origin marks in each response whose it is. Whatever is
//! collapsed, stored, validated or served stale meanwhile: nobody gets what was made for somebody else.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use testkit::{Client, Exchange, Response, ScriptedOrigin, Setup};

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
