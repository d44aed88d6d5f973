//! Bodies that stall because of one client's request, while others want the same page.

use std::time::{Duration, Instant};

use testkit::{Client, Gate, Larder, ScriptedOrigin, wait};

use super::super::basics::{asking, gates, wait_for_waiters, with};
use super::{AT_ONCE, ATTACK, UNKEPT, askers};

const HONEST: usize = 10;
/// The tag shows which of two concurrent responses is newer.
const FIELDS: &str = "ETag: \"1\"\r\nCache-Control: max-age=600\r\n";
const CUT: &str = "ETag: \"1\"\r\nCache-Control: max-age=600\r\nContent-Length: 4\r\n";

fn stalling(sent: &'static str, gate: &Gate) -> ScriptedOrigin {
    let released = gate.clone();
    ScriptedOrigin::start(move |exchange| {
        if exchange.request.field("x-attack").is_empty() {
            exchange.respond("200 OK", FIELDS, "page");
            return;
        }
        released.pass();
        exchange.head("200 OK", CUT).send(sent).wait_for_peer();
    })
}

fn larder(origin: &ScriptedOrigin) -> Larder {
    let limits = "timeouts = { between_bytes = \"1h\" }\ncollapse_limits = { wait_max = \"1s\" }\n";
    with(&format!("{UNKEPT}{limits}"), origin)
}

fn attacker(larder: &Larder, origin: &ScriptedOrigin) -> Client {
    let client = asking(larder, "/page", ATTACK);
    origin.wait_for("/page", 1);
    client
}

fn all_get_the_page(clients: Vec<Client>) {
    for mut client in clients {
        let response = client.response();
        assert_eq!((response.status(), response.text().as_str()), (200, "page"), "{:?}", response.head);
    }
}

fn it_is_stored(larder: &Larder, origin: &ScriptedOrigin) {
    let response = larder.get("/page");
    assert!(response.is_hit(), "{:?}", response.head);
    assert!(origin.total() <= AT_ONCE, "{} forwards", origin.total());
}

#[test]
fn those_who_wait_for_a_body_that_does_not_come_go_in_turn() {
    let gate = Gate::new();
    let origin = stalling("", &gate);
    let larder = larder(&origin);
    let _attacker = attacker(&larder, &origin);
    let honest = askers(&larder, HONEST, "/page");
    wait_for_waiters(&larder, HONEST);
    gate.open();
    all_get_the_page(honest);
    it_is_stored(&larder, &origin);
}

/// A good response from a concurrent forward answers all, although the head of the stalled one arrived first.
#[test]
fn a_body_that_begins_is_for_those_who_wait_for_one_that_does_not() {
    let ((gate, fails), (late, begins)) = (gates(), gates());
    let origin = ScriptedOrigin::start(move |exchange| match exchange.request.field("x-attack") {
        "1" => {
            fails.pass();
            exchange.respond("500 Internal Server Error", "", "");
        }
        "2" => exchange.head("200 OK", CUT).wait_for_peer(),
        _ => {
            begins.pass();
            exchange.respond("200 OK", FIELDS, "page");
        }
    });
    let larder = larder(&origin);
    let _fails = attacker(&larder, &origin);
    let mut stalls = asking(&larder, "/page", "X-Attack: 2\r\n");
    wait_for_waiters(&larder, 1);
    let honest = askers(&larder, HONEST, "/page");
    wait_for_waiters(&larder, HONEST + 1);
    gate.open();
    assert_eq!(stalls.head().status(), 200);
    late.open();
    all_get_the_page(honest);
}

#[test]
fn nobody_joins_a_body_that_stands_still() {
    for sent in ["", "pa"] {
        let gate = Gate::new();
        gate.open();
        let origin = stalling(sent, &gate);
        let larder = larder(&origin);
        let mut attacker = attacker(&larder, &origin);
        assert_eq!(attacker.head().status(), 200);
        let end = Instant::now() + Duration::from_secs(1);
        wait::until_true("the body stalls", || Instant::now() > end);
        all_get_the_page(askers(&larder, HONEST, "/page"));
        it_is_stored(&larder, &origin);
    }
}

#[test]
fn a_body_that_stands_still_ends_with_its_last_reader() {
    for sent in ["", "pa"] {
        let (ended, told) = gates();
        let origin = ScriptedOrigin::start(move |exchange| {
            exchange.head("200 OK", CUT).send(sent).wait_for_peer();
            told.open();
        });
        let larder = larder(&origin);
        let mut client = asking(&larder, "/page", "");
        assert_eq!(client.head().status(), 200);
        client.reset();
        ended.pass();
        wait::until_true("it counts", || larder.metric("larder_fills_aborted_total", &["abandoned"]) == 1.0);
    }
}
