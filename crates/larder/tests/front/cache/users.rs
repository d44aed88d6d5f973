//! Hundreds of users with credentials request the same URLs at once, from origins with 35 styles of header fields:
//! no user gets another's response.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use testkit::{Client, Exchange, Response, ScriptedOrigin, Setup};

#[derive(Clone, Copy)]
pub(crate) struct Trial {
    pub(crate) users: usize,
    /// Number of users who send a request at the same moment.
    pub(crate) burst: usize,
    /// Number of bursts for each style.
    pub(crate) rounds: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) responses: usize,
    /// Responses without an owner: the gateway's own, such as 502.
    pub(crate) own_of_gateway: usize,
    /// Responses made for another user, as the style permits.
    pub(crate) shared: usize,
    pub(crate) collapsed: usize,
    pub(crate) stale: usize,
    /// Number of responses of each style that a user got although they were for another user.
    pub(crate) foreign: BTreeMap<&'static str, usize>,
}

/// The users who may get a response of a style.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Owner,
    /// All users, unless the owner's request had `Authorization` (RFC 9111 section 3.5).
    Lifetime,
    Open,
}
use Reach::{Lifetime, Open, Owner};

/// `@` stands for the user. `{past}` is a date that never changes.
const STYLES: [(Reach, &str); 35] = [
    (Owner, ""),
    (Owner, "ETag: \"same\""),
    (Owner, "ETag: \"@\""),
    (Owner, "ETag: W/\"same\""),
    (Owner, "ETag: W/\"@\""),
    (Owner, "Last-Modified: {past}"),
    (Owner, "Last-Modified: {past}\r\nETag: \"same\""),
    (Owner, "Cache-Control: max-age=0\r\nETag: \"same\""),
    (Owner, "Cache-Control: max-age=0\r\nLast-Modified: {past}"),
    (Owner, "Cache-Control: no-cache\r\nETag: \"same\""),
    (Owner, "Cache-Control: no-cache\r\nLast-Modified: {past}"),
    (Owner, "Cache-Control: max-age=0, must-revalidate\r\nETag: \"same\""),
    (Owner, "Cache-Control: s-maxage=0\r\nETag: \"same\""),
    (Owner, "Cache-Control: s-maxage=0, max-age=60\r\nLast-Modified: {past}"),
    (Owner, "Expires: 0\r\nETag: \"same\""),
    (Owner, "Expires: {past}\r\nLast-Modified: {past}"),
    (Owner, "Pragma: no-cache\r\nETag: \"same\""),
    (Owner, "Cache-Control: max-age=0, stale-while-revalidate=60\r\nETag: \"same\""),
    (Owner, "Cache-Control: max-age=0, stale-if-error=60\r\nLast-Modified: {past}"),
    (Owner, "Cache-Control: stale-while-revalidate=60, stale-if-error=60"),
    (Owner, "Cache-Control: max-age=60, no-cache\r\nETag: \"same\""),
    (Owner, "Cache-Control: max-age=1.5\r\nETag: \"same\""),
    (Owner, "Cache-Control: no-cache=\"x-a\"\r\nETag: \"same\""),
    (Owner, "Cache-Control: immutable\r\nETag: \"same\""),
    (Owner, "Cache-Control: private\r\nETag: \"same\""),
    (Owner, "Cache-Control: private, max-age=60\r\nLast-Modified: {past}"),
    (Owner, "Cache-Control: no-store\r\nETag: \"same\""),
    (Owner, "Vary: Cookie, Authorization, X-API-Key\r\nETag: \"same\""),
    (Owner, "Cache-Control: max-age=1\r\nVary: Cookie, Authorization, X-API-Key\r\nETag: \"@\""),
    (Owner, "Cache-Control: max-age=60\r\nSet-Cookie: user=@"),
    (Owner, "Cache-Control: max-age=60\r\nCDN-Cache-Control: max-age=0\r\nETag: \"same\""),
    (Lifetime, "Cache-Control: max-age=1\r\nETag: \"same\""),
    (Open, "Cache-Control: s-maxage=1\r\nLast-Modified: {past}"),
    (Open, "Cache-Control: public, max-age=1, stale-while-revalidate=60\r\nETag: \"same\""),
    (Open, "Cache-Control: public\r\nETag: \"same\""),
];

/// If the origin is dead, users of one URL learn it one after the other, on a possibly busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

const PAST: &str = "Thu, 01 Oct 2026 00:00:00 GMT";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Health {
    Well,
    Slow,
    Overloaded,
    Dead,
}

const HEALTH: [Health; 6] =
    [Health::Well, Health::Slow, Health::Overloaded, Health::Dead, Health::Well, Health::Overloaded];

const WISHES: [&str; 7] = [
    "",
    "",
    "Cache-Control: max-stale\r\n",
    "",
    "Cache-Control: max-age=0\r\n",
    "Cache-Control: only-if-cached, max-stale\r\n",
    "Cache-Control: no-cache\r\n",
];

/// A user's name begins with the kind of its credentials.
struct User {
    name: String,
    fields: String,
}

impl User {
    fn number(number: usize) -> Self {
        let kind = ["c", "c", "a", "k", "c", "a", "c", "k", "c", "n"][number % 10];
        // Users without credentials count as one.
        let name = if kind == "n" { "n".to_owned() } else { format!("{kind}{number}") };
        let fields = match kind {
            "c" => format!("Cookie: user={name}\r\n"),
            "a" => format!("Authorization: Bearer {name}\r\n"),
            "k" => format!("X-API-Key: {name}\r\n"),
            _ => String::new(),
        };
        Self { name, fields }
    }
}

impl Trial {
    pub(crate) fn run(self, rule: &str) -> Outcome {
        let health = Arc::new(AtomicUsize::new(0));
        let (seen, turns) = (Arc::clone(&health), AtomicU64::new(0));
        let origin = ScriptedOrigin::start(move |exchange| {
            answer(exchange, HEALTH[seen.load(Relaxed)], turns.fetch_add(1, Relaxed));
        });
        let config = format!(
            "[log]\nlevel = \"error\"\n[[site]]\nname = \"a\"\norigin = \"{}\"\n[[site.rule]]\nname = \"all\"\n{rule}\n",
            origin.url()
        );
        let mut larder = Setup::config(env!("CARGO_BIN_EXE_larder"), &config).start();
        let users: Vec<User> = (0..self.users).map(User::number).collect();
        let mut outcome = Outcome::default();
        for round in 0..self.rounds {
            health.store(round % HEALTH.len(), Relaxed);
            for style in 0..STYLES.len() {
                // Not kept between bursts: a connection that was answered early could be idle for longer than
                // `limits.idle_timeout`.
                let mut clients: Vec<Client> = (0..self.burst).map(|_| larder.client()).collect();
                clients.iter_mut().for_each(|client| client.wait_at_most(PATIENCE));
                let users = users.iter().cycle().skip((round + style) * self.burst).take(self.burst);
                let visit = Visit { style, round };
                visit.together(clients.iter_mut().zip(users).collect(), &mut outcome);
            }
        }
        larder.service().assert_runs();
        outcome
    }
}

#[derive(Clone, Copy)]
struct Visit {
    style: usize,
    round: usize,
}

impl Visit {
    fn together(self, visitors: Vec<(&mut Client, &User)>, outcome: &mut Outcome) {
        let seen = thread::scope(|scope| {
            let asked = visitors
                .into_iter()
                .enumerate()
                .map(|(index, (client, user))| scope.spawn(move || (user, self.ask(client, user, index))));
            let asked: Vec<_> = asked.collect();
            asked.into_iter().map(|one| one.join().expect("it is answered")).collect::<Vec<_>>()
        });
        seen.iter().for_each(|(user, response)| self.judge(user, response, outcome));
    }

    fn ask(self, client: &mut Client, user: &User, index: usize) -> Response {
        // The same URL for some rounds: its response is known after the first.
        let target = format!("/{}/{}", self.style, self.round / HEALTH.len());
        let method = if (index + self.round) % 17 == 3 { "HEAD" } else { "GET" };
        let wish = WISHES[(index / 3 + self.round) % WISHES.len()];
        client.ask(method, &target, &format!("{}{wish}", user.fields))
    }

    fn judge(self, user: &User, response: &Response, outcome: &mut Outcome) {
        let ((reach, style), status) = (STYLES[self.style], response.cache_status());
        outcome.responses += 1;
        outcome.collapsed += usize::from(status.contains("collapsed"));
        outcome.stale += usize::from(response.is_hit() && status.contains("ttl=-"));
        let text = response.text();
        let marks = [response.field("x-owner"), text.split_whitespace().next().unwrap_or_default()];
        let marks = marks.into_iter().filter(|mark| !mark.is_empty());
        let owners: Vec<&str> =
            if response.field("x-owner").is_empty() { Vec::new() } else { marks.collect() };
        outcome.own_of_gateway += usize::from(owners.is_empty());
        let others: Vec<&str> = owners.into_iter().filter(|owner| *owner != user.name).collect();
        let is_permitted = |owner: &&str| match reach {
            Owner => false,
            Lifetime => !owner.starts_with('a'),
            Open => true,
        };
        if others.iter().all(is_permitted) {
            outcome.shared += usize::from(!others.is_empty());
        } else {
            *outcome.foreign.entry(style).or_default() += 1;
        }
        // A field that only a 304 has belongs to its user, unless the 304 itself may be shared.
        let mark = response.field("x-validated");
        if !mark.is_empty() && mark != user.name && !is_permitted(&mark) {
            *outcome.foreign.entry(style).or_default() += 1;
        }
    }
}

fn answer(exchange: &mut Exchange<'_>, health: Health, turn: u64) {
    let user = owner_of(exchange);
    let number = exchange.request.target().split('/').nth(1).and_then(|style| style.parse().ok());
    let (_, style): (_, &str) = STYLES[number.unwrap_or(0_usize)];
    let fields = style.replace('@', &user).replace("{past}", PAST);
    let separator = if fields.is_empty() { "" } else { "\r\n" };
    let fields = format!("{fields}{separator}X-Owner: {user}\r\n");
    match health {
        Health::Dead => {
            exchange.close();
            return;
        }
        Health::Overloaded if turn.is_multiple_of(3) => {
            exchange.respond("503 Service Unavailable", &format!("X-Owner: {user}\r\n"), &user);
            return;
        }
        Health::Overloaded | Health::Slow => {
            exchange.delay_ms(5 + turn % 20);
        }
        Health::Well => {}
    }
    let tag = exchange.request.field("if-none-match");
    let is_known = !tag.is_empty() && fields.contains(&format!("ETag: {tag}\r\n"));
    if is_known || (tag.is_empty() && exchange.request.field("if-modified-since") == PAST) {
        exchange.send(format!("HTTP/1.1 304 Not Modified\r\n{fields}X-Validated: {user}\r\n\r\n"));
    } else {
        exchange.respond(
            "200 OK",
            &fields,
            format!("{user} {}", "page ".repeat(1 + turn as usize % 3 * 1000)),
        );
    }
}

fn owner_of(exchange: &Exchange<'_>) -> String {
    let fields = ["cookie", "authorization", "x-api-key"].map(|name| exchange.request.field(name));
    let value = fields.into_iter().find(|value| !value.is_empty()).unwrap_or("n");
    value.trim_start_matches("user=").trim_start_matches("Bearer ").to_owned()
}
