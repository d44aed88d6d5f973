//! The load on the origin if the forward that a crowd waits for fails, is cut short, or takes too long.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use testkit::{Client, End, Exchange, Gate, Larder, ScriptedOrigin, run, wait};

use super::super::basics::{asking, gates, wait_for_waiters, with};
use super::{AT_ONCE, askers};

const CROWD: usize = 60;

/// How the origin handles one request.
#[derive(Clone, Copy, Debug)]
enum Does {
    Close,
    Reset,
    BreakHead,
    /// Answers with this status and these fields.
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

/// A target; what the origin does with each request for it, where the last entry applies to all further ones; the number of forwards; and
/// the numbers of clients that get a complete 2xx, a complete 5xx, and a body that is cut short.
type Case = (&'static str, &'static [Does], RangeInclusive<usize>, [usize; 3]);

const CASES: [Case; 18] = [
    // Each failure answers only the forwarded request: the others take turns, and all get the first response.
    ("/close", &[Close], 60..=60, [0, 60, 0]),
    ("/close-once", &[Close, FRESH], 2..=5, [59, 1, 0]),
    ("/reset", &[Reset], 60..=60, [0, 60, 0]),
    ("/head", &[BreakHead], 60..=60, [0, 60, 0]),
    ("/head-once", &[BreakHead, FRESH], 2..=5, [59, 1, 0]),
    ("/503", &[UNAVAILABLE], 60..=60, [0, 60, 0]),
    ("/503-once", &[UNAVAILABLE, FRESH], 2..=5, [59, 1, 0]),
    ("/500", &[ERROR_NO_STORE], 60..=60, [0, 60, 0]),
    ("/unasked-304", &[Answer("304 Not Modified", "ETag: \"a\"\r\n")], 60..=60, [0, 60, 0]),
    (
        "/unasked-206",
        &[Answer("206 Partial Content", "Content-Range: bytes 0-3/10\r\n")],
        60..=60,
        [0, 60, 0],
    ),
    ("/close-503", &[Close, UNAVAILABLE, FRESH], 3..=6, [58, 2, 0]),
    // Requests that have received nothing when the body is cut short take turns.
    ("/cut", &[CutBody], 1..=60, [0, 0, 60]),
    ("/close-cut", &[Close, CutBody], 2..=60, [0, 1, 59]),
    ("/share/close", &[Close, FRESH], 1..=1, [0, 60, 0]),
    ("/share/503", &[UNAVAILABLE, FRESH], 1..=1, [0, 60, 0]),
    // If a response is late, one more request is forwarded, and the first response answers all.
    ("/late", &[SayNothing, FRESH], 2..=2, [59, 1, 0]),
    // Four at a time, and after the first failure no request waits longer than `wait_max`: on a busy machine, some haven't had a turn by
    // then.
    ("/late/twice", &[SayNothing], 5..=9, [0, 60, 0]),
    ("/late/close", &[SayNothing, Close], 6..=60, [0, 60, 0]),
];

/// No connection is kept, because a request on a dead kept connection is sent, and counted, again.
const SITES: &str = "[[origin]]\nname = \"o\"\nurl = \"@origin@\"\npool = { keep_alive = false }\n\
    [[site]]\nname = \"default\"\norigin = \"o\"\n\
    [[site]]\nname = \"share\"\npath_prefix = \"/share\"\norigin = \"o\"\ncollapse_limits = { on_failure = \"share\" }\n\
    [[site]]\nname = \"late\"\npath_prefix = \"/late\"\norigin = \"o\"\n\
    collapse_limits = { wait_max = \"500ms\" }\ntimeouts = { first_byte = \"3s\" }\n";

#[derive(Default)]
struct Load {
    /// Holds the first request back until the crowd has arrived.
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
            Arc::new(CASES.iter().map(|(target, ..)| (*target, Load::default())).collect());
        let known = Arc::clone(&loads);
        let origin = ScriptedOrigin::start(move |exchange| {
            let case = CASES.iter().find(|(target, ..)| *target == exchange.request.target());
            let (target, does, ..) = case.expect("a case");
            let load = &known[target];
            let now = load.now.fetch_add(1, Ordering::AcqRel) + 1;
            load.most.fetch_max(now, Ordering::AcqRel);
            let number = exchange.request.earlier;
            if number == 0 {
                load.gate.pass();
            }
            does[number.min(does.len() - 1)].run(exchange);
            load.now.fetch_sub(1, Ordering::AcqRel);
        });
        Self { larder: with(&format!("workers = {workers}\n{SITES}"), &origin), origin, loads }
    }

    fn check(&self, (target, _, expected, outcome): &Case, crowd: Crowd) {
        let before = self.larder.metric("larder_collapsed_requests_total", &[]);
        let load = &self.loads[target];
        let seen = thread::scope(|scope| {
            scope.spawn(|| {
                self.origin.wait_for(target, 1);
                let joined = || self.larder.metric("larder_collapsed_requests_total", &[]) - before;
                wait::until_true("the crowd waits", || joined() >= (CROWD - 1) as f64);
                load.gate.open();
            });
            crowd(&self.larder, target)
        });
        assert_eq!(seen, *outcome, "2xx, 5xx and broken of {target}");
        let forwards = self.origin.count(target);
        assert!(expected.contains(&forwards), "{forwards} forwards of {target}");
        let most = load.most.load(Ordering::Acquire);
        // The origin notices the end of a request a little later than the gateway.
        assert!(most <= AT_ONCE + 1, "{most} forwards at a time of {target}");
    }
}

/// Requests a target, and returns the numbers of clients per outcome, as in [`Case`].
type Crowd = fn(&Larder, &str) -> [usize; 3];

fn check(crowd: Crowd) {
    let with_workers = |workers| {
        let trial = Trial::start(workers);
        CASES.iter().for_each(|case| trial.check(case, crowd));
    };
    thread::scope(|scope| [1, 4].map(|workers| _ = scope.spawn(move || with_workers(workers))));
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
        let line = output.lines().find(|found| found.starts_with(line)).expect("h2load prints it");
        let words: Vec<&str> = line.split([' ', ',', ':']).filter(|word| !word.is_empty()).collect();
        let at = words.iter().position(|word| *word == unit).expect("h2load prints it");
        words[at - 1].parse().expect("a number")
    };
    // Everything but a complete 2xx counts as failed.
    let errors = number("status codes:", "5xx");
    [number("requests:", "succeeded"), errors, number("requests:", "failed") - errors]
}

//= RFC 9111 section 4: collapsed requests
#[test]
fn a_crowd_costs_an_origin_in_trouble_few_requests_at_a_time() {
    check(http1_crowd);
}

#[test]
fn a_crowd_on_http_2_costs_no_more() {
    check(http2_crowd);
}

/// An origin that holds back its first request until the gate opens; and a gateway.
fn gated(does: &'static [Does], settings: &str) -> (ScriptedOrigin, Gate, Larder) {
    let (gate, released) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        let number = exchange.request.earlier;
        if number == 0 {
            released.pass();
        }
        does[number.min(does.len() - 1)].run(exchange);
    });
    let larder = with(settings, &origin);
    (origin, gate, larder)
}

fn statuses(clients: Vec<Client>) -> Vec<u16> {
    clients.into_iter().map(|mut client| client.response().status()).collect()
}

#[test]
fn a_crowd_whose_leader_leaves() {
    for (does, forwards, status) in
        [(&[FRESH][..], 1..=1, 200), (&[Close, FRESH], 2..=5, 200), (&[Close], 61..=61, 502)]
    {
        let (origin, gate, larder) = gated(does, "@site@");
        let leader = asking(&larder, "/", "");
        origin.wait_for("/", 1);
        let clients = askers(&larder, CROWD, "/");
        wait_for_waiters(&larder, CROWD);
        leader.reset();
        gate.open();
        assert_eq!(statuses(clients), [status; CROWD], "{does:?}");
        assert!(forwards.contains(&origin.total()), "{does:?}: {}", origin.total());
    }
}

/// Requests above the limit are forwarded by themselves. The waiters take turns, as they do without a limit.
#[test]
fn a_crowd_beyond_the_limit_of_waiters() {
    let (origin, gate, larder) = gated(&[Close], "@site@collapse_limits = { waiters_max = 10 }\n");
    let mut clients = askers(&larder, 1, "/");
    origin.wait_for("/", 1);
    clients.extend(askers(&larder, CROWD - 1, "/"));
    origin.wait_for("/", 50);
    wait_for_waiters(&larder, 10);
    gate.open();
    assert_eq!(statuses(clients), [502; CROWD]);
    assert_eq!(origin.total(), 60, "the leader, the requests above the limit, and the waiters in turn");
}

/// A client that leaves frees its place among the waiters.
#[test]
fn a_crowd_has_room_again_when_clients_leave() {
    let (origin, gate, larder) = gated(&[FRESH], "@site@collapse_limits = { waiters_max = 10 }\n");
    let mut clients = askers(&larder, 1, "/");
    origin.wait_for("/", 1);
    let leaving = askers(&larder, 10, "/");
    wait_for_waiters(&larder, 10);
    leaving.into_iter().for_each(Client::reset);
    larder.wait_for("larder_collapsed_waiters", &[], |waiting| waiting == 0.0);
    clients.extend(askers(&larder, 10, "/"));
    wait_for_waiters(&larder, 10);
    gate.open();
    assert_eq!(statuses(clients), [200; 11]);
    assert_eq!(origin.total(), 1, "nobody is above the limit");
}
