//! Clients whose requests make the origin fail, while others want the same page; and origins that fail for all clients.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use testkit::{Client, Exchange, Larder, ScriptedOrigin, Setup};

use super::super::basics::{asking, client_from, gates, wait_for_waiters};
use super::{AT_ONCE, ATTACK, UNKEPT};
use crate::LARDER;

const ATTACKERS: u8 = 12;
const HONEST: usize = 20;

/// Starts a gateway. `answer` limits the time to the first byte and between two bytes; `wait` is `wait_max`.
fn larder(origin: &str, [answer, wait]: [&str; 2]) -> Larder {
    let limits = format!(
        "timeouts = {{ first_byte = \"{answer}\", between_bytes = \"{answer}\" }}\n\
         collapse_limits = {{ wait_max = \"{wait}\" }}\n"
    );
    Setup::config(LARDER, &format!("{UNKEPT}{limits}").replace("@origin@", origin)).start()
}

/// Limits long enough for a busy machine.
const PATIENT: [&str; 2] = ["1s", "20s"];

fn asking_from(larder: &Larder, number: u8, fields: &str) -> Client {
    let mut client = client_from(larder, number);
    client.send(format!("GET /page HTTP/1.1\r\nHost: test.example\r\n{fields}\r\n"));
    client
}

/// Starts the attackers: the request of the first is at the origin, and the others wait for it.
fn attackers(larder: &Larder, origin: &ScriptedOrigin, fields: &str) -> Vec<Client> {
    let fields = format!("{ATTACK}{fields}");
    let mut attackers = vec![asking_from(larder, 1, &fields)];
    origin.wait_for("/page", 1);
    attackers.extend((2..=ATTACKERS).map(|number| asking_from(larder, number, &fields)));
    wait_for_waiters(larder, usize::from(ATTACKERS) - 1);
    attackers
}

/// Starts honest clients, and waits until they and all attackers but the first are waiters.
fn honest(larder: &Larder, fields: &str, address: impl Fn(usize) -> u8) -> Vec<Client> {
    let honest = (0..HONEST).map(|index| asking_from(larder, address(index), fields)).collect();
    wait_for_waiters(larder, usize::from(ATTACKERS) - 1 + HONEST);
    honest
}

type Fails = fn(&mut Exchange<'_>);

const FAILURES: [(&str, Fails); 9] = [
    ("500", |exchange| _ = exchange.respond("500 Internal Server Error", "", "attacked")),
    ("503 that may be stored", |exchange| {
        exchange.respond("503 Service Unavailable", "Cache-Control: no-store\r\n", "attacked");
    }),
    ("closes", |exchange| _ = exchange.close()),
    ("resets", |exchange| _ = exchange.reset()),
    ("no HTTP", |exchange| _ = exchange.send("HTTP/1.1 2x0 OK\r\n\r\n").close()),
    ("no answer in time", |exchange| exchange.wait_for_peer()),
    ("no body in time", |exchange| begun(exchange).wait_for_peer()),
    ("closes before the body", |exchange| _ = begun(exchange).close()),
    ("resets before the body", |exchange| _ = begun(exchange).reset()),
];

/// Begins a public response, of which only the header section is sent.
fn begun<'a, 'b>(exchange: &'a mut Exchange<'b>) -> &'a mut Exchange<'b> {
    exchange.head("200 OK", &format!("{FIELDS}Content-Length: 4\r\n"))
}

const FIELDS: &str = "ETag: \"1\"\r\nVary: Accept-Language\r\nCache-Control: max-age=600\r\n";

const WANTED: [(&str, u16, &str); 3] =
    [("", 200, "page"), ("Range: bytes=0-1\r\n", 206, "pa"), ("Accept-Language: de\r\n", 200, "page")];

fn page(exchange: &mut Exchange<'_>) {
    match exchange.request.field("range") {
        "" => exchange.respond("200 OK", FIELDS, "page"),
        _ => {
            exchange.respond("206 Partial Content", &format!("Content-Range: bytes 0-1/4\r\n{FIELDS}"), "pa")
        }
    };
}

/// Field bug: with 12 such clients, all 272 requests of others for an expired page failed.
#[test]
fn requests_that_make_the_origin_fail_deny_a_page_to_nobody() {
    for failure in FAILURES {
        thread::scope(|scope| {
            [0, 1, 2].map(|number| _ = scope.spawn(move || check_failure(failure, number)))
        });
    }
}

fn check_failure((what, fails): (&str, Fails), number: usize) {
    let (fields, status, text) = WANTED[number];
    let (gate, released) = gates();
    let origin = ScriptedOrigin::start(move |exchange| match exchange.request.field("x-attack") {
        "" => page(exchange),
        _ => {
            released.pass();
            fails(exchange);
        }
    });
    let larder = larder(&origin.url(), PATIENT);
    let _attackers = attackers(&larder, &origin, fields);
    // All clients at one address, or each at its own.
    let honest = honest(&larder, fields, |index| if number == 0 { 100 } else { 100 + index as u8 });
    gate.open();
    for mut client in honest {
        let response = client.response();
        let seen = (response.status(), response.text());
        assert_eq!(seen, (status, text.to_owned()), "{what}, {fields:?}: {:?}", response.head);
    }
    let forwards = origin.total();
    assert!(forwards <= usize::from(ATTACKERS) + AT_ONCE, "{what}: {forwards}");
    assert!(client_from(&larder, 200).ask("GET", "/page", fields).is_hit(), "{what}");
}

type Closing = fn(Client) -> Option<Client>;

/// The beginning of the response to clients whose requests hang, and the way they leave.
const CLOSINGS: [(&str, &str, Closing); 3] = [
    ("", "closes its sending side", |mut client| {
        client.finish_sending();
        Some(client)
    }),
    ("", "leaves", leave),
    ("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\n", "leaves", leave),
];

fn leave(client: Client) -> Option<Client> {
    client.reset();
    None
}

/// The forwards of the closing clients take all places for the key, and more of these clients wait in front of the
/// honest ones.
#[test]
fn clients_that_close_their_connections_hold_up_nobody() {
    for (head, what, closes) in CLOSINGS {
        let (gate, released) = gates();
        let origin = ScriptedOrigin::start(move |exchange| match exchange.request.field("x-attack") {
            "" => page(exchange),
            _ if exchange.request.earlier == 0 => {
                released.pass();
                exchange.respond("500 Internal Server Error", "", "attacked");
            }
            _ => exchange.send(head).wait_for_peer(),
        });
        let larder = larder(&origin.url(), ["1h", "5s"]);
        let closers = attackers(&larder, &origin, "");
        let honest = honest(&larder, "", |_| 100);
        gate.open();
        origin.wait_for("/page", 1 + AT_ONCE);
        let _left: Vec<_> = closers.into_iter().map(closes).collect();
        for mut client in honest {
            let response = client.response();
            let seen = (response.status(), response.text());
            assert_eq!(seen, (200, "page".to_owned()), "{what}: {:?}", response.head);
        }
    }
}

const CROWD: usize = 1000;

/// Counts connections: one attempt for all clients, and one more.
#[test]
fn a_crowd_costs_an_origin_that_takes_no_connections_two_attempts() {
    testkit::raise_open_files_limit();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    let ((gate, released), attempts) = (gates(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&attempts);
    thread::spawn(move || {
        for stream in listener.incoming() {
            counter.fetch_add(1, Ordering::AcqRel);
            released.pass();
            drop(stream);
        }
    });
    let larder = larder(&format!("https://{address}"), PATIENT);
    let crowd: Vec<Client> = (0..CROWD).map(|_| asking(&larder, "/page", "")).collect();
    wait_for_waiters(&larder, CROWD - 1);
    gate.open();
    assert!(crowd.into_iter().all(|mut client| client.response().status() == 502));
    assert_eq!(attempts.load(Ordering::Acquire), 2);
}
