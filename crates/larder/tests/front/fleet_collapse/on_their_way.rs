//! Bodies that one instance fetches and others pass on as they come.

use testkit::{Client, Exchange, Gate, Larder, Redis, ScriptedOrigin, Signal, wait};

use super::{FOR_LONG, PATIENT, SHORT_LEASE, asking, gateways, leases};
use crate::instances::{is_written, status};
use crate::stores::on_each_store;

const PIECES: usize = 8;
const PIECE_BYTES: usize = 1000;
const ETAG: &str = "ETag: \"1\"\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length,
    Chunked,
}

impl Framing {
    fn target(self) -> &'static str {
        match self {
            Self::Length => "/page",
            Self::Chunked => "/chunked",
        }
    }
}

fn piece(number: usize) -> Vec<u8> {
    vec![b'a' + number as u8; PIECE_BYTES]
}

fn whole() -> Vec<u8> {
    (0..PIECES).flat_map(piece).collect()
}

/// Sends each piece when the gate lets it.
fn drip(exchange: &mut Exchange<'_>, gate: &Gate, framing: Framing, fields: &str) {
    match framing {
        Framing::Length => {
            let bytes = PIECES * PIECE_BYTES;
            exchange.head("200 OK", &format!("Content-Length: {bytes}\r\n{FOR_LONG}{fields}"));
        }
        Framing::Chunked => _ = exchange.chunked_head(&format!("{FOR_LONG}{fields}")),
    }
    for number in 0..PIECES {
        gate.pass_step(number + 1);
        match framing {
            Framing::Length => exchange.send(piece(number)),
            Framing::Chunked => exchange.chunk(piece(number)),
        };
    }
    if framing == Framing::Chunked {
        exchange.last_chunk("");
    }
}

/// The rest of the same representation.
fn send_rest(exchange: &mut Exchange<'_>) {
    let range = exchange.request.field("range").to_owned();
    let first = range.trim_start_matches("bytes=").split('-').next().unwrap().parse::<usize>().unwrap();
    let (bytes, last) = (PIECES * PIECE_BYTES, PIECES * PIECE_BYTES - 1);
    let fields = format!("Content-Range: bytes {first}-{last}/{bytes}\r\n{ETAG}{FOR_LONG}");
    exchange.respond("206 Partial Content", &fields, &whole()[first..]);
}

/// A body as it comes.
struct Coming {
    client: Client,
    framing: Framing,
    read: Vec<u8>,
}

impl Coming {
    fn new(mut client: Client, framing: Framing) -> Self {
        let head = client.head();
        assert_eq!((head.status(), !head.fields.has("content-length")), (200, framing == Framing::Chunked));
        Self { client, framing, read: Vec::new() }
    }

    /// Reads until so many bytes of the body are here.
    #[track_caller]
    fn has(&mut self, bytes: usize) {
        while self.read.len() < bytes {
            let data = match self.framing {
                Framing::Length => self.client.bytes(bytes - self.read.len()),
                Framing::Chunked => self.client.chunk(),
            };
            assert!(!data.is_empty(), "the body ends after {} bytes", self.read.len());
            self.read.extend(data);
        }
        assert_eq!(self.read, whole()[..self.read.len()]);
    }

    /// Reads the end of a complete body.
    #[track_caller]
    fn ends(mut self) {
        self.has(PIECES * PIECE_BYTES);
        if self.framing == Framing::Chunked {
            assert!(self.client.chunk().is_empty(), "nothing comes behind the last piece");
        }
    }

    /// Reads a body that breaks off.
    #[track_caller]
    fn breaks_off(mut self) {
        let rest = self.client.rest();
        assert!(!rest.ends_with(b"0\r\n\r\n"), "it must not look complete");
    }
}

/// Gateways of which the first fetches a body, and the others have had the head and the first piece of it.
struct Streams {
    gateways: Vec<Larder>,
    origin: ScriptedOrigin,
    gate: Gate,
    bodies: Vec<Coming>,
}

fn bodies(gateway: &Larder, event: &str) -> f64 {
    gateway.metric("larder_tier_bodies_total", &[&format!("event=\"{event}\"")])
}

impl Streams {
    fn start(
        (count, store): (usize, std::net::SocketAddr),
        settings: &str,
        framing: Framing,
        later: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static,
    ) -> Self {
        let gate = Gate::new();
        let released = gate.clone();
        let origin = ScriptedOrigin::start(move |exchange| match exchange.request.earlier {
            0 => drip(exchange, &released, framing, ETAG),
            _ => later(exchange),
        });
        let gateways = gateways(count, store, &origin.url(), settings);
        let target = framing.target();
        let first = asking(&gateways[0], target, "");
        origin.wait_for(target, 1);
        gate.reach(1);
        let others = gateways[1..].iter().map(|gateway| asking(gateway, target, ""));
        let clients: Vec<Client> = std::iter::once(first).chain(others).collect();
        let bodies = clients.into_iter().map(|client| Coming::new(client, framing)).collect();
        let mut streams = Self { gateways, origin, gate, bodies };
        streams.come_to(1);
        streams
    }

    /// Lets the origin send so many pieces, and waits until all clients have them: before it sends any more.
    #[track_caller]
    fn come_to(&mut self, pieces: usize) {
        self.gate.reach(pieces);
        for body in &mut self.bodies {
            body.has(pieces * PIECE_BYTES);
        }
    }
}

/// The origin sends no byte before all clients have those that came before.
#[test]
fn who_waits_elsewhere_has_each_byte_before_the_next_one_is_sent() {
    on_each_store(|store| {
        for framing in [Framing::Length, Framing::Chunked] {
            let target = framing.target();
            let mut streams = Streams::start((3, store), PATIENT, framing, |exchange| {
                exchange.respond("200 OK", FOR_LONG, "another");
            });
            (2..=PIECES).for_each(|pieces| streams.come_to(pieces));
            streams.bodies.drain(..).for_each(Coming::ends);
            is_written(&streams.gateways[0]);
            for gateway in &streams.gateways {
                let response = gateway.get(target);
                assert!(response.body == whole() && response.is_hit(), "{}", status(&response));
            }
            assert_eq!(streams.origin.total(), 1, "{framing:?}");
            let [first, others @ ..] = &streams.gateways[..] else { panic!("there are three") };
            assert_eq!((bodies(first, "shared"), bodies(first, "followed")), (1.0, 0.0));
            for other in others {
                assert_eq!((bodies(other, "followed"), bodies(other, "lost")), (1.0, 0.0));
                assert_eq!(leases(other, "taken"), 0.0, "it never asks");
            }
        }
    });
}

/// Those who come in the middle get the beginning, too, and share it with all who ask the same instance.
#[test]
fn who_comes_in_the_middle_follows_from_the_beginning() {
    on_each_store(|store| {
        let mut streams = Streams::start((3, store), PATIENT, Framing::Length, |exchange| {
            exchange.respond("200 OK", FOR_LONG, "another");
        });
        streams.come_to(4);
        let late = [1, 2].map(|at| asking(&streams.gateways[at], "/page", ""));
        streams.bodies.extend(late.map(|client| Coming::new(client, Framing::Length)));
        (5..=PIECES).for_each(|pieces| streams.come_to(pieces));
        streams.bodies.drain(..).for_each(Coming::ends);
        assert_eq!(streams.origin.total(), 1);
    });
}

#[test]
fn when_the_other_instance_is_gone_the_rest_comes_from_the_origin() {
    for signal in [Signal::KILL, Signal::STOP] {
        on_each_store(|store| {
            let mut streams = Streams::start((2, store), SHORT_LEASE, Framing::Length, send_rest);
            streams.come_to(3);
            streams.gateways[0].signal(signal);
            streams.bodies.pop().unwrap().ends();
            let rest = streams.origin.last("/page");
            assert_eq!((rest.field("range"), rest.field("if-range")), ("bytes=3000-", "\"1\""));
            assert_eq!(bodies(&streams.gateways[1], "lost"), 1.0);
            streams.gate.open();
            if signal == Signal::STOP {
                streams.gateways[0].signal(Signal::CONT);
                streams.bodies.pop().unwrap().ends();
            }
        });
    }
}

/// Without a length nobody knows what the rest is, and without a validator nobody can ask for it. What the origin has by then may be another
/// version, which is never a part of the same body.
#[test]
fn what_cannot_be_completed_breaks_off() {
    let other_version = |exchange: &mut Exchange<'_>| {
        let fields = format!("{FOR_LONG}ETag: \"2\"\r\n");
        exchange.respond("200 OK", &fields, vec![b'z'; PIECES * PIECE_BYTES]);
    };
    type Ends = fn(&mut Exchange<'_>);
    let cases: [(Framing, Ends); 2] = [(Framing::Chunked, send_rest), (Framing::Length, other_version)];
    for (framing, later) in cases {
        on_each_store(|store| {
            let mut streams = Streams::start((2, store), SHORT_LEASE, framing, later);
            streams.come_to(3);
            streams.gateways[0].signal(Signal::KILL);
            streams.bodies.pop().unwrap().breaks_off();
            streams.gate.open();
        });
    }
}

/// One that stops in an orderly way fetches to the end what another instance follows, whether a client of its own waits for it or not.
#[test]
fn who_stops_gives_others_the_rest_first() {
    for leaves in [false, true] {
        on_each_store(|store| {
            let mut streams = Streams::start((2, store), SHORT_LEASE, Framing::Chunked, send_rest);
            streams.come_to(3);
            streams.gateways[0].signal(Signal::TERM);
            if leaves {
                drop(streams.bodies.remove(0));
            }
            (4..=PIECES).for_each(|pieces| streams.come_to(pieces));
            streams.bodies.drain(..).for_each(Coming::ends);
            assert!(streams.gateways[0].service().end().success());
            assert_eq!(streams.origin.total(), 1);
            assert_eq!(bodies(&streams.gateways[1], "lost"), 0.0);
        });
    }
}

#[test]
fn when_the_origin_breaks_off_so_do_all() {
    on_each_store(|store| {
        let gate = Gate::new();
        let released = gate.clone();
        let origin = ScriptedOrigin::start(move |exchange| {
            exchange.head("200 OK", &format!("Content-Length: 5000\r\n{FOR_LONG}")).send(piece(0));
            released.pass();
            exchange.reset();
        });
        let fleet = gateways(2, store, &origin.url(), SHORT_LEASE);
        let first = asking(&fleet[0], "/page", "");
        origin.wait_for("/page", 1);
        let clients = [first, asking(&fleet[1], "/page", "")];
        let mut coming = clients.map(|client| Coming::new(client, Framing::Length));
        coming.iter_mut().for_each(|body| body.has(PIECE_BYTES));
        gate.open();
        coming.into_iter().for_each(Coming::breaks_off);
    });
}

const FORGET_FRAGMENTS: &str = "EVAL \"local n=0 for _,k in ipairs(redis.call('KEYS','larder:s:*')) do redis.call('DEL',k) n=n+1 end return n\" 0";
const COUNT_FRAGMENTS: &str = "EVAL \"return #redis.call('KEYS','larder:s:*')\" 0";

/// The store forgets pieces before they are read.
#[test]
fn what_the_store_forgets_comes_from_the_origin() {
    let redis = Redis::start("");
    let mut streams = Streams::start((2, redis.address()), PATIENT, Framing::Length, send_rest);
    streams.come_to(2);
    let mut behind = streams.bodies.pop().unwrap();
    streams.gateways[1].signal(Signal::STOP);
    for pieces in [3, 4] {
        streams.come_to(pieces);
        wait::until_true("the store has it", || redis.command(COUNT_FRAGMENTS) == format!(":{pieces}"));
    }
    assert_eq!(redis.command(FORGET_FRAGMENTS), ":4");
    streams.gateways[1].signal(Signal::CONT);
    behind.has(4 * PIECE_BYTES);
    behind.ends();
    assert_eq!(streams.origin.last("/page").field("range"), "bytes=2000-");
    streams.gate.open();
    streams.bodies.pop().unwrap().ends();
}

/// Those who follow get it to the end; nobody gets it who comes after the purge.
#[test]
fn a_purge_in_the_middle_ends_the_sharing_for_those_who_come_later() {
    on_each_store(|store| {
        let mut streams = Streams::start((3, store), PATIENT, Framing::Length, |exchange| {
            exchange.respond("200 OK", FOR_LONG, "version 2");
        });
        streams.come_to(2);
        let purged = streams.gateways[2].ask_admin("POST", "/purge?url=http://test.example/page", "").text();
        assert!(purged.contains("\"complete\":true"), "{purged}");
        for gateway in &streams.gateways {
            assert_eq!(gateway.get("/page").text(), "version 2");
        }
        (3..=PIECES).for_each(|pieces| streams.come_to(pieces));
        streams.bodies.drain(..).for_each(Coming::ends);
        is_written(&streams.gateways[0]);
        for gateway in &streams.gateways {
            assert_eq!(gateway.get("/page").text(), "version 2");
        }
    });
}

/// Bodies that come at once are waited for as ever.
#[test]
fn what_is_complete_soon_is_not_shared_on_its_way() {
    on_each_store(|store| {
        let origin = ScriptedOrigin::start(|exchange| {
            exchange.respond("200 OK", FOR_LONG, "x".repeat(300_000));
        });
        let fleet = gateways(2, store, &origin.url(), PATIENT);
        for gateway in &fleet {
            assert_eq!(gateway.get("/page").body.len(), 300_000);
        }
        let events = ["shared", "followed", "lost"];
        let counted = fleet.iter().flat_map(|gateway| events.map(|event| bodies(gateway, event)));
        assert_eq!(counted.sum::<f64>(), 0.0);
    });
}
