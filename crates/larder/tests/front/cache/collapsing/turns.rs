//! Clients whose requests make the origin fail, beside others that want the same page; and origins that are dead for all.

use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Client, Exchange, Gate, Larder, ScriptedOrigin, Setup, wait};

use super::LARDER;

const ATTACKERS: u8 = 12;
const HONEST: usize = 20;
/// Forwards for one key at a time.
const AT_ONCE: usize = 4;
/// No part of any key, and the origin reads it.
const ATTACK: &str = "X-Attack: 1\r\n";
/// A busy machine is no reason for a test to fail.
const SITE: &str = "
[[origin]]
name = \"o\"
url = \"@origin@\"
pool = { keep_alive = false, client_share_percent = 100 }
[[site]]
name = \"a\"
origin = \"o\"
timeouts = { between_bytes = \"1s\", first_byte = \"1s\" }
collapse_limits = { wait_max = \"20s\" }
";

fn larder(origin: &str) -> Larder {
    Setup::config(LARDER, &SITE.replace("@origin@", origin)).start()
}

fn client(larder: &Larder, number: u8) -> Client {
    Client::connect_from(IpAddr::from([127, 0, 1, number]), larder.address())
}

fn asking(mut client: Client, target: &str, fields: &str) -> Client {
    client.send(format!("GET {target} HTTP/1.1\r\nHost: test.example\r\n{fields}\r\n"));
    client
}

fn waiters(larder: &Larder) -> f64 {
    larder.metric("larder_collapsed_waiters", &[])
}

/// What the origin does with a request of an attacker.
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

/// A response for all, of which no more than the header section comes.
fn begun<'a, 'b>(exchange: &'a mut Exchange<'b>) -> &'a mut Exchange<'b> {
    exchange.head("200 OK", &format!("{FIELDS}Content-Length: 4\r\n"))
}

const FIELDS: &str = "ETag: \"1\"\r\nVary: Accept-Language\r\nCache-Control: max-age=600\r\n";

/// Requests that want the page, or a part of it.
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

/// Field bug: with 12 such clients, 272 of 272 requests of others for an expired page failed.
#[test]
fn requests_that_make_the_origin_fail_deny_a_page_to_nobody() {
    for (what, fails) in FAILURES {
        for (number, (fields, status, text)) in WANTED.into_iter().enumerate() {
            let gate = Gate::new();
            let released = gate.clone();
            let origin = ScriptedOrigin::start(move |exchange| match exchange.request.field("x-attack") {
                "" => page(exchange),
                _ => {
                    released.pass();
                    fails(exchange);
                }
            });
            let larder = larder(&origin.url());
            let attack = format!("{ATTACK}{fields}");
            let mut attackers = vec![asking(client(&larder, 1), "/page", &attack)];
            origin.wait_for("/page", 1);
            attackers.extend((2..=ATTACKERS).map(|number| asking(client(&larder, number), "/page", &attack)));
            wait::until_true("they wait", || waiters(&larder) >= f64::from(ATTACKERS - 1));
            // All of one address, or each of its own.
            let address = |index: usize| if number == 0 { 100 } else { 100 + index as u8 };
            let honest: Vec<Client> =
                (0..HONEST).map(|index| asking(client(&larder, address(index)), "/page", fields)).collect();
            let all = f64::from(ATTACKERS - 1) + HONEST as f64;
            wait::until_true("all wait", || waiters(&larder) >= all);
            gate.open();
            for mut client in honest {
                let response = client.response();
                assert_eq!(response.status(), status, "{what}, {fields:?}: {:?}", response.head);
                assert_eq!(response.text(), text, "{what}");
            }
            let forwards = origin.total();
            assert!(forwards <= usize::from(ATTACKERS) + AT_ONCE, "{what}: {forwards}");
            assert!(client(&larder, 200).ask("GET", "/page", fields).is_hit(), "{what}");
        }
    }
}

/// The page expires again and again, and each time somebody else may be first.
#[test]
fn a_page_that_expires_under_attack_is_there_for_all_others() {
    let origin = ScriptedOrigin::start(|exchange| match exchange.request.field("x-attack") {
        "" => _ = exchange.respond("200 OK", "Cache-Control: max-age=1\r\n", "page"),
        _ => _ = exchange.respond("500 Internal Server Error", "", "attacked"),
    });
    let larder = larder(&origin.url());
    let is_over = AtomicBool::new(false);
    let (asked, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let ask = |number: u8, fields: &str, count: &dyn Fn(u16)| {
        let mut client = client(&larder, number);
        while !is_over.load(Ordering::Relaxed) {
            count(client.ask("GET", "/page", fields).status());
        }
    };
    let count = |status: u16| {
        asked.fetch_add(1, Ordering::Relaxed);
        failed.fetch_add(usize::from(status != 200), Ordering::Relaxed);
    };
    thread::scope(|scope| {
        (1..=ATTACKERS).for_each(|number| _ = scope.spawn(move || ask(number, ATTACK, &|_| {})));
        (100..104).for_each(|number| _ = scope.spawn(move || ask(number, "", &count)));
        let end = Instant::now() + Duration::from_secs(5);
        wait::until_true("it has expired a few times", || Instant::now() > end);
        is_over.store(true, Ordering::Relaxed);
    });
    let (asked, failed) = (asked.into_inner(), failed.into_inner());
    assert!(asked > 100 && failed == 0, "{failed} of {asked} failed");
}

type Closing = fn(Client) -> Option<Client>;

/// What has come of their responses, and how clients leave whose requests hang.
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

/// Their forwards have all the places for the key, and others of them come before those who are there.
#[test]
fn clients_that_close_their_connections_hold_up_nobody() {
    for (head, what, closes) in CLOSINGS {
        let gate = Gate::new();
        let released = gate.clone();
        let origin = ScriptedOrigin::start(move |exchange| match exchange.request.field("x-attack") {
            "" => page(exchange),
            _ if exchange.request.earlier == 0 => {
                released.pass();
                exchange.respond("500 Internal Server Error", "", "attacked");
            }
            _ => exchange.send(head).wait_for_peer(),
        });
        let settings = SITE.replace("\"1s\"", "\"1h\"").replace("\"20s\"", "\"5s\"");
        let larder = Setup::config(LARDER, &settings.replace("@origin@", &origin.url())).start();
        let mut closers = vec![asking(client(&larder, 1), "/page", ATTACK)];
        origin.wait_for("/page", 1);
        closers.extend((2..=ATTACKERS).map(|number| asking(client(&larder, number), "/page", ATTACK)));
        wait::until_true("they wait", || waiters(&larder) >= f64::from(ATTACKERS - 1));
        let honest: Vec<Client> = (0..HONEST).map(|_| asking(client(&larder, 100), "/page", "")).collect();
        let all = f64::from(ATTACKERS - 1) + HONEST as f64;
        wait::until_true("all wait", || waiters(&larder) >= all);
        gate.open();
        origin.wait_for("/page", 1 + AT_ONCE);
        let _left: Vec<_> = closers.into_iter().map(closes).collect();
        for mut client in honest {
            let response = client.response();
            assert_eq!(
                (response.status(), response.text()),
                (200, "page".into()),
                "{what}: {:?}",
                response.head
            );
        }
    }
}

const CROWD: usize = 1000;

fn crowd(larder: &Larder) -> Vec<Client> {
    (0..CROWD).map(|_| asking(larder.client(), "/page", "")).collect()
}

/// Counted are connections. An attempt for all, and one more.
#[test]
fn a_crowd_costs_an_origin_that_takes_no_connections_two_attempts() {
    testkit::raise_open_files_limit();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    let (gate, attempts) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let (released, counter) = (gate.clone(), Arc::clone(&attempts));
    thread::spawn(move || {
        for stream in listener.incoming() {
            counter.fetch_add(1, Ordering::AcqRel);
            released.pass();
            drop(stream);
        }
    });
    let larder = larder(&format!("https://{address}"));
    let crowd = crowd(&larder);
    wait::until_true("all wait", || waiters(&larder) >= (CROWD - 1) as f64);
    gate.open();
    assert!(crowd.into_iter().all(|mut client| client.response().status() == 502));
    assert_eq!(attempts.load(Ordering::Acquire), 2);
}

/// Each forward ends by its time limit, and all others within the longest wait after the first one.
#[test]
fn a_crowd_costs_an_origin_that_hangs_few_requests_at_a_time() {
    const FIRST_BYTE: Duration = Duration::from_secs(3);
    const WAIT_MAX: Duration = Duration::from_secs(1);
    testkit::raise_open_files_limit();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (at_once, peak) = (Arc::clone(&now), Arc::clone(&most));
    let origin = ScriptedOrigin::start(move |exchange| {
        peak.fetch_max(at_once.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
        exchange.wait_for_peer();
        at_once.fetch_sub(1, Ordering::AcqRel);
    });
    let settings = SITE.replace("\"20s\"", "\"1s\"").replace("\"1s\" }\ncollapse", "\"3s\" }\ncollapse");
    let larder = Setup::config(LARDER, &settings.replace("@origin@", &origin.url())).start();
    let start = Instant::now();
    let crowd = crowd(&larder);
    let sent = Instant::now();
    let statuses: Vec<u16> = crowd.into_iter().map(|mut client| client.response().status()).collect();
    assert!(statuses.iter().all(|status| [503, 504].contains(status)), "{statuses:?}");
    let timed_out = statuses.iter().filter(|status| **status == 504).count();
    assert_eq!(timed_out, origin.total(), "a time-out is for the request that was forwarded");
    let rounds = start.elapsed().as_secs() / FIRST_BYTE.as_secs() + 2;
    assert!(origin.total() as u64 <= AT_ONCE as u64 * rounds, "{} in {rounds} rounds", origin.total());
    // The origin learns a little later than the gateway that one has ended.
    assert!(most.load(Ordering::Acquire) <= AT_ONCE + 1, "{most:?} at once");
    let limit = 2 * FIRST_BYTE + WAIT_MAX + Duration::from_secs(5);
    assert!(sent.elapsed() < limit, "{:?}", sent.elapsed());
}
