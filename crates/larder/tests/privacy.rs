//! Many users ask for the same pages at the same time, and the origin marks in each response whose it is. Whatever is
//! collapsed, stored, validated or served stale meanwhile: nobody gets what was made for somebody else.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use testkit::{Client, Exchange, Larder, Response, ScriptedOrigin, Setup};

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

#[test]
fn nobody_gets_what_was_made_for_somebody_else() {
    let turns = AtomicU64::new(0);
    let origin =
        ScriptedOrigin::start(move |exchange| answer(exchange, turns.fetch_add(1, Ordering::Relaxed)));
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let collapsed: usize = thread::scope(|scope| {
        let visit = |user: usize| User { name: format!("u{user}"), larder: &larder }.visit();
        let users: Vec<_> = (0..USERS).map(|user| scope.spawn(move || visit(user))).collect();
        users.into_iter().map(|user| user.join().expect("nobody got what is not his")).sum()
    });
    assert!(collapsed > 0, "users met");
    assert!(larder.get("/field").is_hit(), "what is for everybody is stored");
}

/// Sometimes late, so that requests meet; sometimes broken, so that stale responses are used.
fn answer(exchange: &mut Exchange<'_>, turn: u64) {
    let user = exchange.request.field("x-user").to_owned();
    let page =
        PAGES.iter().find(|page| exchange.request.target() == page.path).expect("only pages are asked for");
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

struct User<'a> {
    name: String,
    larder: &'a Larder,
}

impl User<'_> {
    /// Says how often this user waited for another's forward.
    fn visit(&self) -> usize {
        let mut collapsed = 0;
        let mut client = Client::connect(self.larder.address());
        for round in 0..ROUNDS {
            for page in &PAGES {
                let mut fields = format!("X-User: {}\r\n", self.name);
                if page.path.starts_with("/authorization") {
                    fields.push_str(&format!("Authorization: {}\r\n", self.name));
                }
                if round % 7 == 3 {
                    fields.push_str("Cache-Control: no-cache\r\n");
                }
                let response = client.ask(if round % 9 == 5 { "HEAD" } else { "GET" }, page.path, &fields);
                self.judge(page, &response);
                collapsed += usize::from(response.cache_status().contains("collapsed"));
            }
        }
        collapsed
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
