//! Several gateways with one store collapse requests: which instance forwards, which ones wait, and how waiters are answered.

mod large_bodies;

use std::net::SocketAddr;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Client, Exchange, Gate, Larder, Redis, Response, ScriptedOrigin, Signal, wait};

use crate::cache::basics::{asking, gates};
use crate::fleet::instances::{is_written, sharing, status};
use crate::fleet::purge_waits::purge;
use crate::fleet::store_servers::on_each_store;

/// Long enough that tests pass on a busy machine.
const PATIENT: &str = "record_timeout = \"10s\"\nlease_wait_max = \"20s\"\nlease_time = \"20s\"";
/// The same for tests that wait until a lease expires.
const SHORT_LEASE: &str = "record_timeout = \"10s\"\nlease_wait_max = \"20s\"\nlease_time = \"2s\"";
/// A lease that doesn't expire during a test.
const LONG_LEASE: &str = "record_timeout = \"10s\"\nlease_wait_max = \"1m\"\nlease_time = \"1m\"";
const SHARED: &str = "[site.collapse_limits]\non_failure = \"share\"";
const FOR_LONG: &str = "Cache-Control: max-age=3600\r\n";

/// Gateways in front of an origin whose first response for each URL waits for a gate.
struct World {
    gateways: Vec<Larder>,
    origin: ScriptedOrigin,
    gate: Gate,
}

impl World {
    fn texts_of_all(&self) -> Vec<String> {
        texts(&mut self.gateways.iter().map(|it| asking(it, "/page", "")).collect::<Vec<_>>())
    }

    fn start(
        (count, store): (usize, SocketAddr),
        settings: &str,
        answer: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static,
    ) -> Self {
        let (gate, passed) = gates();
        let origin = ScriptedOrigin::start(move |exchange| {
            if exchange.request.earlier == 0 {
                passed.pass_step(if exchange.request.target() == "/large" { 2 } else { 1 });
            }
            answer(exchange);
        });
        Self { gateways: sharing(count, store, &origin.url(), settings), origin, gate }
    }

    /// Asks each gateway for a URL, the first one first. Returns the clients once the other gateways wait for the first.
    fn all_want(&self, target: &str) -> Vec<Client> {
        let mut clients = vec![asking(&self.gateways[0], target, "")];
        self.origin.wait_for(target, 1);
        let others = self.gateways[1..].iter();
        let before: Vec<f64> = others.clone().map(|gateway| leases(gateway, "waited")).collect();
        clients.extend(others.clone().map(|gateway| asking(gateway, target, "")));
        others.zip(before).for_each(|(gateway, before)| waits(gateway, before));
        clients
    }
}

/// Waits until a gateway has waited for another instance more than `count` times.
fn waits(gateway: &Larder, count: f64) {
    gateway.wait_for("larder_tier_leases_total", &["event=\"waited\""], |waited| waited > count);
}

fn leases(gateway: &Larder, event: &str) -> f64 {
    gateway.metric("larder_tier_leases_total", &[&format!("event=\"{event}\"")])
}

/// Number of lease events of one kind at all these gateways.
fn of_all(gateways: &[Larder], event: &str) -> f64 {
    gateways.iter().map(|gateway| leases(gateway, event)).sum()
}

fn numbered(exchange: &mut Exchange<'_>) {
    let body = format!("version {}", exchange.request.earlier + 1);
    exchange.respond("200 OK", FOR_LONG, body);
}

fn texts(clients: &mut [Client]) -> Vec<String> {
    clients.iter_mut().map(|client| client.response().text()).collect()
}

/// All instances constantly get requests for eight URLs that are fresh for a second.
#[test]
fn each_expiry_is_one_request_whatever_instance_is_asked() {
    const URLS: usize = 8;
    const EXPIRIES: usize = 4;
    on_each_store(|store| {
        let arrivals: Arc<Mutex<Vec<(String, Instant)>>> = Arc::default();
        let seen = Arc::clone(&arrivals);
        let origin = ScriptedOrigin::start(move |exchange| {
            seen.lock().unwrap().push((exchange.request.target().to_owned(), Instant::now()));
            exchange.respond("200 OK", "Cache-Control: max-age=1\r\n", "hot");
        });
        let fleet = sharing(4, store, &origin.url(), PATIENT);
        let is_enough = || (0..URLS).all(|url| origin.count(&format!("/{url}")) > EXPIRIES);
        thread::scope(|scope| {
            for gateway in fleet.iter().flat_map(|gateway| [gateway; 2]) {
                let is_enough = &is_enough;
                scope.spawn(move || {
                    let mut client = gateway.client();
                    while !is_enough() {
                        (0..URLS).for_each(|url| assert_eq!(client.get(&format!("/{url}")).text(), "hot"));
                    }
                });
            }
        });
        let arrivals = arrivals.lock().unwrap();
        for url in 0..URLS {
            let of_url = arrivals.iter().filter(|(target, _)| *target == format!("/{url}"));
            let times: Vec<Instant> = of_url.map(|(_, at)| *at).collect();
            let gaps = times.windows(2).map(|pair| pair[1].duration_since(pair[0]));
            // The gap is a second by the store's clock, less the error of that clock on a busy machine.
            let early: Vec<_> =
                gaps.enumerate().filter(|(_, gap)| *gap < Duration::from_millis(500)).collect();
            assert!(early.is_empty(), "{store}: asked for again while it was fresh: {early:?}");
        }
        let counted = ["waited", "failed"].map(|event| of_all(&fleet, event));
        assert!(counted[0] >= 1.0 && counted[1] == 0.0, "{counted:?}");
    });
}

//= RFC 9211 section 2.6: collapsed
#[test]
fn who_waits_for_another_instance_gets_what_it_stored() {
    on_each_store(|store| {
        let body = "x".repeat(300_000);
        let world = World::start((4, store), PATIENT, move |exchange| {
            let is_large = exchange.request.target() == "/large";
            exchange.respond("200 OK", FOR_LONG, if is_large { &body } else { "" });
        });
        for (step, target) in [(1, "/small"), (2, "/large")] {
            let mut clients = world.all_want(target);
            world.gate.reach(step);
            let responses: Vec<_> = clients.iter_mut().map(Client::response).collect();
            assert!(responses.iter().all(|response| response.body == responses[0].body));
            for response in &responses[1..] {
                assert!(status(response).contains("fwd=uri-miss; stored; collapsed"), "{}", status(response));
                assert!(status(response).contains("detail=collapse-fleet"), "{}", status(response));
            }
            assert_eq!(world.origin.count(target), 1);
        }
        let waited = world.gateways[1].metric("larder_tier_lease_wait_seconds_total", &[]);
        assert!(waited > 0.0, "{waited}");
    });
}

/// The holder was killed, or stopped for so long that the store refuses its late response.
#[test]
fn a_holder_that_dies_or_comes_back_late_is_followed_by_one_other() {
    on_each_store(|store| {
        for (prefix, signal) in [("killed", Signal::KILL), ("stopped", Signal::STOP)] {
            let world = World::start((4, store), &format!("{SHORT_LEASE}\nprefix = \"{prefix}:\""), numbered);
            let mut clients = world.all_want("/page");
            world.gateways[0].signal(signal);
            assert_eq!(texts(&mut clients[1..]), ["version 2"; 3], "{prefix}");
            assert!(of_all(&world.gateways[1..], "expired") >= 1.0, "{prefix}");
            world.gate.open();
            if signal == Signal::STOP {
                world.gateways[0].signal(Signal::CONT);
                assert_eq!(clients[0].response().text(), "version 1", "its client has waited");
                wait::until_true("it is notified", || leases(&world.gateways[0], "lost") == 1.0);
                is_written(&world.gateways[0]);
                assert_eq!(world.texts_of_all(), ["version 2"; 4]);
            }
            assert_eq!(world.origin.total(), 2, "{prefix}");
        }
    });
}

/// The lease holder's request is forwarded before the reload and answered after it.
#[test]
fn a_reload_answers_those_who_wait_and_is_not_replaced_by_what_they_waited_for() {
    on_each_store(|store| {
        let (gate, released) = gates();
        // The first response is stale: a reload only counts as such if a response is stored.
        let origin = ScriptedOrigin::start(move |exchange| match exchange.request.earlier {
            0 => {
                let stale = "Cache-Control: max-age=1\r\nAge: 5\r\nETag: \"1\"\r\n";
                _ = exchange.respond("200 OK", stale, "version 1");
            }
            earlier => {
                if earlier == 1 {
                    released.pass();
                }
                numbered(exchange);
            }
        });
        let fleet = sharing(4, store, &origin.url(), PATIENT);
        let [holder, waiting @ .., reloading] = &fleet[..] else { panic!("there are four") };
        assert_eq!(reloading.get("/page").text(), "version 1");
        let mut held = asking(holder, "/page", "");
        origin.wait_for("/page", 2);
        let mut waiters: Vec<Client> = waiting.iter().map(|gateway| asking(gateway, "/page", "")).collect();
        waiting.iter().for_each(|gateway| waits(gateway, 0.0));
        assert_eq!(reloading.ask("GET", "/page", "Cache-Control: no-cache\r\n").text(), "version 3");
        assert_eq!(texts(&mut waiters), ["version 3"; 2], "the holder still waits");
        let written = ("larder_tier_writes_total", ["result=\"written\""]);
        let before = holder.metric(written.0, &written.1);
        gate.open();
        assert_eq!(held.response().text(), "version 2", "its client has waited");
        holder.wait_for(written.0, &written.1, |count| count > before);
        for gateway in &fleet {
            assert_eq!(gateway.get("/page").text(), "version 3");
        }
        assert_eq!(origin.total(), 3);
        assert_eq!(of_all(&fleet, "lost"), 0.0, "the holder keeps its lease");
    });
}

/// A full server releases leases, although it accepts no records.
#[test]
fn who_waits_for_what_a_full_server_does_not_take_asks_for_itself() {
    for bytes in [10, 300_000] {
        let redis = Redis::start("maxmemory 64MB\nmaxmemory-policy noeviction");
        let body = "x".repeat(bytes);
        let world = World::start((3, redis.address()), LONG_LEASE, move |exchange| {
            exchange.respond("200 OK", FOR_LONG, &body);
        });
        let mut clients = world.all_want("/page");
        redis.command("CONFIG SET maxmemory 1");
        world.gate.open();
        clients.iter_mut().for_each(|client| assert_eq!(client.response().status(), 200));
        assert_eq!(world.origin.total(), 3);
        redis.command("CONFIG SET maxmemory 64MB");
        for gateway in &world.gateways {
            assert_eq!(gateway.get("/other").status(), 200);
        }
    }
}

/// The waiters are forwarded concurrently: each waits at the origin until all have arrived.
#[test]
fn nobody_waits_for_what_is_not_shared() {
    on_each_store(|store| {
        let together = Barrier::new(3);
        let world = World::start((4, store), PATIENT, move |exchange| {
            if (1..4).contains(&exchange.request.earlier) {
                together.wait();
            }
            exchange.respond("200 OK", "Cache-Control: no-store\r\n", "mine");
        });
        let mut clients = world.all_want("/page");
        world.gate.open();
        assert_eq!(texts(&mut clients), ["mine"; 4]);
        assert_eq!(world.origin.total(), 4);
        let before = of_all(&world.gateways, "taken");
        assert_eq!(world.texts_of_all(), ["mine"; 4]);
        assert_eq!((before, of_all(&world.gateways, "taken")), (1.0, 1.0));
    });
}

const CROWD: usize = 3;

/// Connects `CROWD` clients to each gateway, all of which wait for the first client's forward.
fn crowds_want(world: &World, target: &str) -> Vec<Client> {
    let mut clients = world.all_want(target);
    for gateway in &world.gateways {
        clients.extend((1..CROWD).map(|_| asking(gateway, target, "")));
    }
    for gateway in &world.gateways {
        gateway.wait_for("larder_collapsed_waiters", &[], |waiters| waiters == (CROWD - 1) as f64);
    }
    clients
}

/// An origin whose first response is already stale. Once a gate opens, it answers later requests with `then`.
fn stale_at_once(
    (store, cache_control): (SocketAddr, &'static str),
    then: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static,
) -> World {
    let (gate, released) = gates();
    let origin = ScriptedOrigin::start(move |exchange| match exchange.request.earlier {
        0 => {
            let fields = format!("Cache-Control: {cache_control}\r\nAge: 5\r\nETag: \"1\"\r\n");
            _ = exchange.respond("200 OK", &fields, "stored");
        }
        _ => {
            released.pass();
            then(exchange);
        }
    });
    let gateways = sharing(4, store, &origin.url(), PATIENT);
    assert_eq!(gateways[0].get("/page").text(), "stored");
    is_written(&gateways[0]);
    World { gateways, origin, gate }
}

/// However an origin fails, the waiters of an instance are forwarded in turn, and each gets its own failure. Instances don't share
/// failures, and take the lease one after the other.
#[test]
fn what_fails_is_asked_for_at_each_instance_as_often_as_without_others() {
    let failing = |exchange: &mut Exchange<'_>| {
        _ = exchange.respond("503 Service Unavailable", "", "not now");
    };
    let closing = |exchange: &mut Exchange<'_>| _ = exchange.close();
    type Fails = fn(&mut Exchange<'_>);
    let cases: [(Fails, &str, u16, &str, usize); 3] = [
        (failing, "", 503, "collapse-failed", CROWD),
        (failing, SHARED, 503, "collapse-failed", 1),
        (closing, "", 502, "connection-terminated", CROWD),
    ];
    on_each_store(|store| {
        for (number, (fails, site, code, detail, requests)) in cases.into_iter().enumerate() {
            let settings = format!("{PATIENT}\nprefix = \"case{number}:\"\n{site}");
            let world = World::start((4, store), &settings, fails);
            let clients = crowds_want(&world, "/page");
            world.gate.open();
            all_see(&world, clients, (code, detail, requests));
            // Later requests can't use the failure.
            assert_eq!(world.gateways[1].get("/page").status(), code);
            assert_eq!(world.origin.total(), 4 * requests + 1, "{detail}");
        }
    });
}

/// The origin gets one more request, for all clients but the one whose request was in flight, which is only answered after the others.
#[test]
fn a_purge_while_instances_wait_costs_one_request() {
    on_each_store(|store| {
        for (number, query) in ["everything=true", "everything=true&mode=soft"].into_iter().enumerate() {
            let settings = format!("{PATIENT}\nprefix = \"case{number}:\"");
            let world = World::start((4, store), &settings, numbered);
            let mut clients = world.all_want("/page");
            let purged = purge(&world.gateways[2], query);
            assert!(purged.is_complete, "{query}: {}", purged.text);
            assert_eq!(world.texts_of_all(), ["version 2"; 4], "{query}");
            assert_eq!(texts(&mut clients[1..]), ["version 2"; 3], "{query}");
            world.gate.open();
            assert_eq!(texts(&mut clients[..1]), ["version 1"], "{query}");
            assert_eq!(world.texts_of_all(), ["version 2"; 4], "{query}");
            assert_eq!(world.origin.total(), 2, "{query}");
        }
    });
}

/// Asserts that all clients get this status. Each instance sends `requests` requests.
#[track_caller]
fn all_see(world: &World, mut clients: Vec<Client>, (code, detail, requests): (u16, &str, usize)) {
    let responses: Vec<_> = clients.iter_mut().map(Client::response).collect();
    assert!(responses.iter().all(|response| response.status() == code), "{detail}");
    let shared = |response: &&Response| status(response).contains(&format!("collapsed; detail={detail}"));
    let requests = requests * world.gateways.len();
    assert_eq!(world.origin.total(), requests, "{detail}");
    assert_eq!(responses.iter().filter(shared).count(), responses.len() - requests, "{detail}");
}

impl World {
    /// Asks each gateway for the page as a different user, the first one first. Returns the clients once all others wait or have been
    /// forwarded.
    fn each_user_wants(&self, requests: usize) -> Vec<Client> {
        let as_user = |number: usize| match number % 2 {
            0 => format!("Cookie: user={number}\r\n"),
            _ => format!("Authorization: Bearer {number}\r\n"),
        };
        let mut clients = vec![asking(&self.gateways[0], "/page", &as_user(0))];
        self.origin.wait_for("/page", 2);
        let others = (1..).zip(&self.gateways[1..]);
        clients.extend(others.map(|(number, gateway)| asking(gateway, "/page", &as_user(number))));
        wait::until_true("the others have arrived", || {
            of_all(&self.gateways, "waited") as usize + self.origin.total() == 1 + requests
        });
        clients
    }
}

/// A stored response may be shared with any client, so one of them validates it for all.
#[test]
fn one_request_with_credentials_validates_what_all_may_share() {
    on_each_store(|store| {
        let world = stale_at_once((store, "public, max-age=1"), |exchange| {
            let fields = "Cache-Control: public, max-age=3600\r\nETag: \"1\"\r\n";
            exchange.respond("304 Not Modified", fields, "");
        });
        let mut clients = world.each_user_wants(4);
        world.gate.open();
        let responses: Vec<_> = clients.iter_mut().map(Client::response).collect();
        assert_eq!(responses.iter().map(Response::text).collect::<Vec<_>>(), ["stored"; 4]);
        for response in &responses[1..] {
            assert!(status(response).contains("collapsed; ttl=3"), "{}", status(response));
        }
        assert_eq!(world.origin.total(), 2);
    });
}

/// The origin no longer sends public responses: each response belongs to its user.
#[test]
fn what_a_validation_brings_for_one_user_stays_with_that_user() {
    on_each_store(|store| {
        let world = stale_at_once((store, "public, max-age=1"), |exchange| {
            let user = [exchange.request.field("cookie"), exchange.request.field("authorization")].concat();
            exchange.respond("200 OK", "Cache-Control: private, max-age=3600\r\n", user);
        });
        let mut clients = world.each_user_wants(4);
        world.gate.open();
        assert_eq!(texts(&mut clients), ["user=0", "Bearer 1", "user=2", "Bearer 3"]);
        assert_eq!(world.origin.total(), 5);
        assert_eq!(world.gateways[1].get("/page").text(), "", "a response to a request without credentials");
    });
}

/// A response selected by credentials belongs to one user, and no other user waits for it.
#[test]
fn nobody_waits_for_what_credentials_select() {
    let redis = Redis::start("");
    let (gate, released) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.earlier > 0 {
            released.pass();
        }
        let user = exchange.request.field("cookie").to_owned();
        let fields = "Cache-Control: public, max-age=1\r\nAge: 5\r\nVary: Cookie\r\n";
        exchange.respond("200 OK", fields, user);
    });
    let gateways = sharing(4, redis.address(), &origin.url(), PATIENT);
    let own = "Cookie: user=0\r\n";
    assert_eq!(gateways[0].ask("GET", "/page", own).text(), "user=0");
    is_written(&gateways[0]);
    let taken = leases(&gateways[0], "taken");
    let mut clients: Vec<Client> = gateways.iter().map(|gateway| asking(gateway, "/page", own)).collect();
    origin.wait_for("/page", 5);
    gate.open();
    assert_eq!(texts(&mut clients), ["user=0"; 4]);
    assert_eq!(of_all(&gateways, "taken"), taken);
}

/// While one instance validates, all serve their stale response, and then all have the new one.
#[test]
fn one_validates_behind_all_stale_responses() {
    on_each_store(|store| {
        let (gate, released) = gates();
        let origin = ScriptedOrigin::start(move |exchange| {
            let fields = "ETag: \"1\"\r\nCache-Control: max-age=3, stale-while-revalidate=600\r\n";
            match exchange.request.field("if-none-match") {
                "" => exchange.respond("200 OK", fields, "page"),
                _ => {
                    released.pass();
                    exchange.respond("304 Not Modified", "Cache-Control: max-age=3600\r\n", "")
                }
            };
        });
        let fleet = sharing(4, store, &origin.url(), PATIENT);
        for gateway in &fleet {
            assert_eq!(gateway.get("/page").text(), "page");
            is_written(gateway);
        }
        for gateway in &fleet {
            wait::until_true("it is served stale", || {
                status(&gateway.get("/page")).contains("detail=stale-while-revalidate")
            });
        }
        origin.wait_for("/page", 2);
        for gateway in &fleet {
            assert!(status(&gateway.get("/page")).contains("detail=stale-while-revalidate"));
        }
        gate.open();
        for gateway in &fleet {
            wait::until_true("it is fresh", || status(&gateway.get("/page")).contains("larder; hit; ttl=3"));
        }
        assert_eq!(origin.total(), 2);
    });
}
