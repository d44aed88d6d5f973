//! Crowds whose forward fails, breaks, or takes too long: what they cost the origin.

use std::collections::HashMap;
use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use testkit::{End, Exchange, Gate, Larder, ScriptedOrigin, Setup, run, wait};

use super::{LARDER, askers};

/// Who asks at once.
const CROWD: usize = 60;
/// Forwards for one key at a time.
const AT_ONCE: usize = 4;

/// What the origin does with one request.
#[derive(Clone, Copy, Debug)]
enum Does {
    Close,
    Reset,
    BreakHead,
    /// With this status and these fields.
    Answer(&'static str, &'static str),
    CutBody,
    SayNothing,
}

use Does::{Answer, BreakHead, Close, CutBody, Reset, SayNothing};

const FRESH: Does = Answer("200 OK", "Cache-Control: max-age=60\r\n");
const UNAVAILABLE: Does = Answer("503 Service Unavailable", "");
const ERROR_NO_STORE: Does = Answer("500 Internal Server Error", "Cache-Control: no-store\r\n");

impl Does {
    fn run(self, exchange: &mut Exchange<'_>) {
        match self {
            Close => exchange.close(),
            Reset => exchange.reset(),
            BreakHead => exchange.send("HTTP/1.1 2x0 OK\r\n\r\n").close(),
            Answer(status, fields) => exchange.respond(status, fields, "body"),
            CutBody => exchange
                .head("200 OK", "Content-Length: 10\r\nCache-Control: max-age=60\r\n")
                .send("half")
                .reset(),
            SayNothing => {
                exchange.wait_for_peer();
                exchange.close()
            }
        };
    }
}

/// A crowd and what comes of it.
struct Case {
    /// Its target.
    target: &'static str,
    /// What the origin does with the first request, the second, and so on; the last stands for all that follow.
    does: &'static [Does],
    forwards: RangeInclusive<usize>,
    /// Clients that get a complete 2xx, a complete 5xx, and a body that breaks off.
    outcome: [usize; 3],
}

const fn case(
    target: &'static str,
    does: &'static [Does],
    forwards: RangeInclusive<usize>,
    outcome: [usize; 3],
) -> Case {
    Case { target, does, forwards, outcome }
}

const CASES: [Case; 16] = [
    // Each failure is for the request that was forwarded: the others go in turn, and all get the first answer.
    case("/close", &[Close], 60..=60, [0, 60, 0]),
    case("/close-once", &[Close, FRESH], 2..=5, [59, 1, 0]),
    case("/reset", &[Reset], 60..=60, [0, 60, 0]),
    case("/head", &[BreakHead], 60..=60, [0, 60, 0]),
    case("/head-once", &[BreakHead, FRESH], 2..=5, [59, 1, 0]),
    case("/503", &[UNAVAILABLE], 60..=60, [0, 60, 0]),
    case("/503-once", &[UNAVAILABLE, FRESH], 2..=5, [59, 1, 0]),
    case("/500", &[ERROR_NO_STORE], 60..=60, [0, 60, 0]),
    case("/close-503", &[Close, UNAVAILABLE, FRESH], 3..=6, [58, 2, 0]),
    // Those who have got nothing of it when it breaks off go in turn.
    case("/cut", &[CutBody], 1..=60, [0, 0, 60]),
    case("/close-cut", &[Close, CutBody], 2..=60, [0, 1, 59]),
    case("/share/close", &[Close, FRESH], 1..=1, [0, 60, 0]),
    case("/share/503", &[UNAVAILABLE, FRESH], 1..=1, [0, 60, 0]),
    // What is late is asked for once more, and whoever answers first answers all.
    case("/late", &[SayNothing, FRESH], 2..=2, [59, 1, 0]),
    // Four at a time, and after the first failure nobody waits for longer than `wait_max`: on a busy machine, not all have had their turn by then.
    case("/late/twice", &[SayNothing], 5..=9, [0, 60, 0]),
    case("/late/close", &[SayNothing, Close], 6..=60, [0, 60, 0]),
];

/// No connection is kept: a request that finds its kept connection dead is sent again, and counted again by the origin.
const SITES: &str = "
[[origin]]
name = \"origin\"
url = \"@origin@\"
[origin.pool]
keep_alive = false
[[site]]
name = \"default\"
origin = \"origin\"
[[site]]
name = \"share\"
path_prefix = \"/share\"
origin = \"origin\"
[site.collapse_limits]
on_failure = \"share\"
[[site]]
name = \"late\"
path_prefix = \"/late\"
origin = \"origin\"
[site.collapse_limits]
wait_max = \"500ms\"
[site.timeouts]
first_byte = \"3s\"
";

/// What is known of each target.
#[derive(Default)]
struct Load {
    /// Holds the first request back until the crowd is there.
    gate: Gate,
    now: AtomicUsize,
    most: AtomicUsize,
}

struct Trial {
    origin: ScriptedOrigin,
    larder: Larder,
    loads: Arc<HashMap<&'static str, Load>>,
}

impl Trial {
    fn start(workers: usize) -> Self {
        let loads: Arc<HashMap<_, _>> =
            Arc::new(CASES.iter().map(|case| (case.target, Load::default())).collect());
        let known = Arc::clone(&loads);
        let origin = ScriptedOrigin::start(move |exchange| {
            let case = CASES.iter().find(|case| case.target == exchange.request.target()).expect("a case");
            let load = &known[case.target];
            let now = load.now.fetch_add(1, Ordering::AcqRel) + 1;
            load.most.fetch_max(now, Ordering::AcqRel);
            let number = exchange.request.earlier;
            if number == 0 {
                load.gate.pass();
            }
            case.does[number.min(case.does.len() - 1)].run(exchange);
            load.now.fetch_sub(1, Ordering::AcqRel);
        });
        let config = format!("workers = {workers}\n{}", SITES.replace("@origin@", &origin.url()));
        Self { larder: Setup::config(LARDER, &config).start(), origin, loads }
    }

    fn check(&self, case: &Case, crowd: impl FnOnce() -> [usize; 3]) {
        let before = self.larder.metric("larder_collapsed_requests_total", &[]);
        let load = &self.loads[case.target];
        let outcome = thread::scope(|scope| {
            scope.spawn(|| {
                self.origin.wait_for(case.target, 1);
                let joined = || self.larder.metric("larder_collapsed_requests_total", &[]) - before;
                wait::until_true("the crowd waits", || joined() >= (CROWD - 1) as f64);
                load.gate.open();
            });
            crowd()
        });
        assert_eq!(outcome, case.outcome, "2xx, 5xx and broken of {}", case.target);
        let forwards = self.origin.count(case.target);
        assert!(case.forwards.contains(&forwards), "{forwards} forwards of {}", case.target);
        let most = load.most.load(Ordering::Acquire);
        // The origin learns a little later than the gateway that one has ended.
        assert!(most <= AT_ONCE + 1, "{most} forwards at a time of {}", case.target);
    }
}

fn http1_crowd(larder: &Larder, target: &str) -> [usize; 3] {
    let mut outcome = [0; 3];
    for mut client in askers(larder, CROWD, target) {
        let response = client.response();
        let class = match (response.end, response.status() / 100) {
            (End::Truncated, _) => 2,
            (_, 2) => 0,
            (_, 5) => 1,
            (_, other) => panic!("{other}xx"),
        };
        outcome[class] += 1;
    }
    outcome
}

fn http2_crowd(larder: &Larder, target: &str) -> [usize; 3] {
    let output = run("h2load", ["-n60", "-c6", "-m10", &larder.url(target)]).succeeded().text();
    let number = |line: &str, unit: &str| -> usize {
        let line = output.lines().find(|found| found.starts_with(line)).expect("h2load says so");
        let words: Vec<&str> = line.split([' ', ',', ':']).filter(|word| !word.is_empty()).collect();
        let at = words.iter().position(|word| *word == unit).expect("h2load says so");
        words[at - 1].parse().expect("a number")
    };
    // What did not end in a complete 2xx has failed.
    let errors = number("status codes:", "5xx");
    [number("requests:", "succeeded"), errors, number("requests:", "failed") - errors]
}

/// One forward, and a few at a time where it fails or is late, however many wait.
//= RFC 9111 section 4: collapsed requests
#[test]
fn a_crowd_costs_an_origin_in_trouble_few_requests_at_a_time() {
    for workers in [1, 4] {
        let trial = Trial::start(workers);
        for case in &CASES {
            trial.check(case, || http1_crowd(&trial.larder, case.target));
        }
    }
}

#[test]
fn a_crowd_on_http_2_costs_no_more() {
    for workers in [1, 4] {
        let trial = Trial::start(workers);
        for case in &CASES {
            trial.check(case, || http2_crowd(&trial.larder, case.target));
        }
    }
}

/// A handshake that fails: counted are connections.
#[test]
fn a_crowd_whose_connection_fails() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    let (gate, accepted) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let (released, counter) = (gate.clone(), Arc::clone(&accepted));
    thread::spawn(move || {
        for stream in listener.incoming() {
            if counter.fetch_add(1, Ordering::AcqRel) == 0 {
                released.pass();
            }
            drop(stream);
        }
    });
    let larder = Setup::origin(LARDER, &format!("https://{address}")).start();
    let clients = askers(&larder, CROWD, "/");
    wait::until_true("the crowd waits", || larder.metric("larder_collapsed_waiters", &[]) >= 59.0);
    gate.open();
    for mut client in clients {
        assert_eq!(client.response().status(), 502);
    }
    assert_eq!(accepted.load(Ordering::Acquire), 2);
}

/// The client that caused the forward leaves before there is an answer.
#[test]
fn a_crowd_whose_leader_leaves() {
    for (does, forwards, status) in
        [(&[FRESH][..], 1..=1, 200), (&[Close, FRESH], 2..=5, 200), (&[Close], 61..=61, 502)]
    {
        let (origin, gate) = gated(does);
        let larder = Setup::origin(LARDER, &origin.url()).start();
        let mut leader = larder.client();
        leader.send("GET / HTTP/1.1\r\nHost: test.example\r\n\r\n");
        origin.wait_for("/", 1);
        let clients = askers(&larder, CROWD, "/");
        wait::until_true("the crowd waits", || larder.metric("larder_collapsed_waiters", &[]) >= 60.0);
        leader.reset();
        gate.open();
        assert!(clients.into_iter().all(|mut client| client.response().status() == status), "{does:?}");
        assert!(forwards.contains(&origin.total()), "{does:?}: {}", origin.total());
    }
}

/// Those above the limit ask for themselves, and those who wait are no more a herd than without a limit.
#[test]
fn a_crowd_beyond_the_limit_of_waiters() {
    let (origin, gate) = gated(&[Close]);
    let config = format!(
        "[[site]]\nname = \"a\"\norigin = \"{}\"\n[site.collapse_limits]\nwaiters_max = 10\n",
        origin.url()
    );
    let larder = Setup::config(LARDER, &config).start();
    let mut clients = askers(&larder, 1, "/");
    origin.wait_for("/", 1);
    clients.extend(askers(&larder, CROWD - 1, "/"));
    origin.wait_for("/", 50);
    wait::until_true("ten wait", || larder.metric("larder_collapsed_waiters", &[]) >= 10.0);
    gate.open();
    assert!(clients.into_iter().all(|mut client| client.response().status() == 502));
    assert_eq!(origin.total(), 60, "the leader, those above the limit, and those who waited in turn");
}

/// A purge while all wait: the answer that was asked for before it still answers them, or one that was asked for later does.
#[test]
fn a_crowd_that_a_purge_meets() {
    for (does, forwards) in [(&[FRESH][..], 1..=1), (&[Close, FRESH], 2..=5)] {
        let (origin, gate) = gated(does);
        let larder = Setup::origin(LARDER, &origin.url()).start();
        let clients = askers(&larder, CROWD, "/");
        wait::until_true("the crowd waits", || larder.metric("larder_collapsed_waiters", &[]) >= 59.0);
        let url = "{\"url\":\"http://test.example/\"}";
        assert_eq!(larder.ask_admin("POST", "/purge", url).status(), 200);
        gate.open();
        let statuses: Vec<u16> = clients.into_iter().map(|mut client| client.response().status()).collect();
        let whole = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(whole, CROWD + 1 - does.len(), "{does:?}");
        assert!(forwards.contains(&origin.total()), "{does:?}: {}", origin.total());
        // Only what was asked for after the purge is there. Of several that came side by side it is open which is the newest, so the first use may
        // ask once more.
        let is_hit = larder.get("/").is_hit();
        match does.len() {
            1 => assert!(!is_hit, "{does:?}"),
            _ => assert!(is_hit || larder.get("/").is_hit(), "{does:?}"),
        }
    }
}

/// An error that says `no-store` does not send the next crowd to the origin side by side.
#[test]
fn a_server_error_is_not_remembered_as_uncacheable() {
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.earlier == 1 {
            released.pass();
        }
        ERROR_NO_STORE.run(exchange);
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    assert_eq!(larder.get("/").status(), 500);
    let clients = askers(&larder, CROWD, "/");
    wait::until_true("the crowd waits", || larder.metric("larder_collapsed_waiters", &[]) >= 59.0);
    gate.open();
    assert!(clients.into_iter().all(|mut client| client.response().status() == 500));
    assert_eq!(origin.total(), 1 + CROWD);
}

/// An origin that holds back its first request until the gate opens.
fn gated(does: &'static [Does]) -> (ScriptedOrigin, Gate) {
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        let number = exchange.request.earlier;
        if number == 0 {
            released.pass();
        }
        does[number.min(does.len() - 1)].run(exchange);
    });
    (origin, gate)
}
