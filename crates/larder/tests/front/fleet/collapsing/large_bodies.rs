//! Bodies that take a while to arrive, and responses to clients of the other instances.

use std::net::SocketAddr;

use testkit::{Client, Exchange, ScriptedOrigin, Signal};

use super::{FOR_LONG, LONG_LEASE, World, numbered, waits};
use crate::cache::basics::{asking, gates};
use crate::fleet::instances::{is_written, sharing, status};
use crate::fleet::purge_waits::purge;
use crate::fleet::store_servers::on_each_store;

const MIB: usize = 1 << 20;

/// A body in which each MiB has a different letter.
fn body(mib: usize) -> Vec<u8> {
    (0..mib).map(|number| vec![b'a' + (number % 26) as u8; MIB]).collect::<Vec<_>>().concat()
}

/// Gateways that share a store, and an origin whose first body pauses after 1 MiB until the gate opens. Returns one client for each
/// gateway, too: the first client's request is forwarded, and the others wait.
fn download(
    (count, store): (usize, SocketAddr),
    settings: &str,
    begin: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static,
    rest: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static,
) -> (World, Vec<Client>) {
    let (gate, released) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        begin(exchange);
        if exchange.request.earlier == 0 {
            released.pass();
        }
        rest(exchange);
    });
    let gateways = sharing(count, store, &origin.url(), settings);
    let mut clients = vec![asking(&gateways[0], "/page", "")];
    origin.wait_for("/page", 1);
    clients.extend(gateways[1..].iter().map(|gateway| asking(gateway, "/page", "")));
    (World { gateways, origin, gate }, clients)
}

fn sends_first(mib: usize, fields: &'static str) -> impl Fn(&mut Exchange<'_>) {
    move |exchange| {
        exchange.head("200 OK", &format!("Content-Length: {}\r\n{fields}", mib * MIB));
        exchange.send(&body(mib)[..MIB]);
    }
}

fn sends_rest(mib: usize) -> impl Fn(&mut Exchange<'_>) {
    move |exchange| _ = exchange.send(&body(mib)[MIB..])
}

/// An instance waits up to `lease_wait_max` for the first byte, and then fetches the body from the origin.
#[test]
fn who_has_waited_long_enough_downloads_for_itself() {
    on_each_store(|store| {
        let settings = "record_timeout = \"10s\"\nlease_wait_max = \"500ms\"\nlease_time = \"20s\"";
        let (world, mut clients) = download((2, store), settings, sends_first(8, FOR_LONG), sends_rest(8));
        let response = clients[1].response();
        assert!(response.body == body(8), "while the first is in progress");
        assert!(!status(&response).contains("collapsed"), "{}", status(&response));
        world.gate.open();
        assert!(clients[0].response().body == body(8));
        assert_eq!(world.origin.total(), 2);
    });
}

/// Memory is too small for the whole body.
#[test]
fn what_memory_has_no_room_for_reaches_all_whole() {
    for mib in [12, 24] {
        on_each_store(|store| {
            let settings = format!("{LONG_LEASE}\n[store]\nmemory = \"16MiB\"");
            let begin = sends_first(mib, FOR_LONG);
            let (world, clients) = download((3, store), &settings, begin, sends_rest(mib));
            world.gate.open();
            for mut client in clients {
                assert!(client.response().body == body(mib), "{mib} MiB");
            }
            assert!(world.origin.total() <= 3, "at most one request per instance");
        });
    }
}

/// The head shows that the response isn't stored, so other instances only wait for the head.
#[test]
fn who_waits_for_what_is_not_stored_waits_for_its_head() {
    const CASES: [(&str, &str); 3] = [
        ("Cache-Control: no-store\r\n", ""),
        ("Cache-Control: private, max-age=60\r\n", ""),
        (FOR_LONG, "[[site.rule]]\nobject_bytes_max = \"4MiB\""),
    ];
    on_each_store(|store| {
        for (number, (fields, rule)) in CASES.into_iter().enumerate() {
            let settings = format!("{LONG_LEASE}\nprefix = \"case{number}:\"\n{rule}");
            let begin = sends_first(8, fields);
            let (world, mut clients) = download((3, store), &settings, begin, sends_rest(8));
            for client in &mut clients[1..] {
                assert!(client.response().body == body(8), "{fields}");
            }
            world.gate.open();
            assert!(clients[0].response().body == body(8), "{fields}");
            assert_eq!(world.origin.total(), 3, "{fields}");
        }
    });
}

/// The same for a body that turns out to be too large as it arrives.
#[test]
fn who_waits_for_what_grows_too_large_waits_no_longer_than_that() {
    on_each_store(|store| {
        let settings = format!("{LONG_LEASE}\n[[site.rule]]\nobject_bytes_max = \"2MiB\"");
        let chunks = |exchange: &mut Exchange<'_>| {
            exchange.chunked_head(FOR_LONG);
            body(4).chunks(MIB).for_each(|data| _ = exchange.chunk(data));
        };
        let (world, mut clients) = download((2, store), &settings, chunks, |end| _ = end.last_chunk(""));
        assert!(clients[1].response().body == body(4), "while the first is in progress");
        world.gate.open();
        assert!(clients[0].response().body == body(4));
    });
}

#[test]
fn what_breaks_off_breaks_off_for_nobody_else() {
    on_each_store(|store| {
        let breaks_off = |exchange: &mut Exchange<'_>| {
            if exchange.request.earlier == 0 {
                exchange.reset();
            } else {
                sends_rest(8)(exchange);
            }
        };
        let (world, mut clients) = download((2, store), LONG_LEASE, sends_first(8, FOR_LONG), breaks_off);
        waits(&world.gateways[1], 0.0);
        assert_eq!(clients[0].head().status(), 200);
        world.gate.open();
        assert!(clients[0].rest().len() < 8 * MIB, "its own reply is cut short");
        assert!(clients[1].response().body == body(8));
        assert_eq!(world.origin.total(), 2);
    });
}

/// An instance that shuts down gracefully still stores the response that its client is receiving.
#[test]
fn who_stops_leaves_to_others_what_it_has_fetched() {
    on_each_store(|store| {
        let (world, mut clients) = download((2, store), LONG_LEASE, sends_first(8, FOR_LONG), sends_rest(8));
        waits(&world.gateways[1], 0.0);
        world.gateways[0].signal(Signal::TERM);
        world.gate.open();
        assert!(clients[0].response().body == body(8) && clients[1].response().body == body(8));
        assert_eq!(world.origin.total(), 1);
    });
}

/// Clients that are already receiving the body get all of it. Requests after the purge don't wait for it.
#[test]
fn a_purge_in_the_middle_holds_up_nobody_who_comes_later() {
    on_each_store(|store| {
        let (gate, released) = gates();
        let origin = ScriptedOrigin::start(move |exchange| match exchange.request.earlier {
            0 => {
                sends_first(8, FOR_LONG)(exchange);
                released.pass();
                sends_rest(8)(exchange);
            }
            _ => numbered(exchange),
        });
        let gateways = sharing(3, store, &origin.url(), LONG_LEASE);
        let mut reading = asking(&gateways[0], "/page", "");
        assert_eq!(reading.head().status(), 200);
        assert!(purge(&gateways[2], "url=http://test.example/page").is_complete);
        for gateway in &gateways {
            assert_eq!(gateway.get("/page").text(), "version 2");
        }
        gate.open();
        assert!(reading.bytes(8 * MIB) == body(8));
        is_written(&gateways[0]);
        for gateway in &gateways {
            let response = gateway.get("/page");
            assert!(response.text() == "version 2" && response.is_hit(), "{}", status(&response));
        }
        assert_eq!(origin.total(), 2);
    });
}
