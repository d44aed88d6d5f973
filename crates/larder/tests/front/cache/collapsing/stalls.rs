//! Bodies that stand still because of one client's request, beside others that want the same page.

use std::time::{Duration, Instant};

use testkit::{Client, Gate, Larder, ScriptedOrigin, Setup, wait};

use super::{askers, request};
use crate::LARDER;

const HONEST: usize = 10;
/// Forwards for one key at a time.
const AT_ONCE: usize = 4;
const WAIT_MAX: Duration = Duration::from_secs(1);
const SITE: &str = "
[[origin]]
name = \"o\"
url = \"@origin@\"
pool = { keep_alive = false, client_share_percent = 100 }
[[site]]
name = \"a\"
origin = \"o\"
timeouts = { between_bytes = \"1h\" }
collapse_limits = { wait_max = \"1s\" }
";

/// One whose body stands still behind `sent` for requests with a field that is no part of any key.
fn stalling(sent: &'static str, gate: &Gate) -> ScriptedOrigin {
    let released = gate.clone();
    ScriptedOrigin::start(move |exchange| {
        // Without it, nobody knows which of two forwards side by side is newer.
        let fields = "ETag: \"1\"\r\nCache-Control: max-age=600\r\n";
        if exchange.request.field("x-attack").is_empty() {
            exchange.respond("200 OK", fields, "page");
            return;
        }
        released.pass();
        exchange.head("200 OK", &format!("{fields}Content-Length: 4\r\n")).send(sent).wait_for_peer();
    })
}

fn larder(origin: &ScriptedOrigin) -> Larder {
    Setup::config(LARDER, &SITE.replace("@origin@", &origin.url())).start()
}

/// A client whose request is the first one that reaches the origin.
fn attacker(larder: &Larder, origin: &ScriptedOrigin) -> Client {
    let mut client = larder.client();
    client.send("GET /page HTTP/1.1\r\nHost: test.example\r\nX-Attack: 1\r\n\r\n");
    origin.wait_for("/page", 1);
    client
}

fn all_get_the_page(clients: &mut [Client], larder: &Larder, origin: &ScriptedOrigin) {
    for client in clients {
        let response = client.response();
        assert_eq!((response.status(), response.text().as_str()), (200, "page"), "{:?}", response.head);
    }
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
    let mut honest = askers(&larder, HONEST, "/page");
    wait::until_true("they wait", || larder.metric("larder_collapsed_waiters", &[]) >= HONEST as f64);
    gate.open();
    all_get_the_page(&mut honest, &larder, &origin);
}

/// The good response of a forward beside it is for all, although the head of the one that stalls came first.
#[test]
fn a_body_that_begins_is_for_those_who_wait_for_one_that_does_not() {
    let (gate, late) = (Gate::new(), Gate::new());
    let (fails, begins) = (gate.clone(), late.clone());
    let origin = ScriptedOrigin::start(move |exchange| {
        let fields = "ETag: \"1\"\r\nCache-Control: max-age=600\r\n";
        match exchange.request.field("x-attack") {
            "1" => {
                fails.pass();
                exchange.respond("500 Internal Server Error", "", "");
            }
            "2" => {
                exchange.head("200 OK", &format!("{fields}Content-Length: 4\r\n")).wait_for_peer();
            }
            _ => {
                begins.pass();
                exchange.respond("200 OK", fields, "page");
            }
        }
    });
    let larder = larder(&origin);
    let _fails = attacker(&larder, &origin);
    let mut stalls = larder.client();
    stalls.send("GET /page HTTP/1.1\r\nHost: test.example\r\nX-Attack: 2\r\n\r\n");
    wait::until_true("it waits", || larder.metric("larder_collapsed_waiters", &[]) >= 1.0);
    let mut honest = askers(&larder, HONEST, "/page");
    wait::until_true("they wait", || larder.metric("larder_collapsed_waiters", &[]) > HONEST as f64);
    gate.open();
    assert_eq!(stalls.head().status(), 200);
    late.open();
    for client in &mut honest {
        let response = client.response();
        assert_eq!((response.status(), response.text().as_str()), (200, "page"), "{:?}", response.head);
    }
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
        let end = Instant::now() + WAIT_MAX;
        wait::until_true("it stands still", || Instant::now() > end);
        let mut honest = askers(&larder, HONEST, "/page");
        all_get_the_page(&mut honest, &larder, &origin);
    }
}

/// The origin sees the end of a body that has stood still since its client left.
#[test]
fn a_body_that_stands_still_ends_with_its_last_reader() {
    for sent in ["", "pa"] {
        let ended = Gate::new();
        let told = ended.clone();
        let origin = ScriptedOrigin::start(move |exchange| {
            let fields = "Cache-Control: max-age=600\r\nContent-Length: 4\r\n";
            exchange.head("200 OK", fields).send(sent).wait_for_peer();
            told.open();
        });
        let larder = larder(&origin);
        let mut client = larder.client();
        client.send(request("/page"));
        assert_eq!(client.head().status(), 200);
        client.reset();
        ended.pass();
        wait::until_true("it is told", || larder.metric("larder_fills_aborted_total", &["abandoned"]) == 1.0);
    }
}
