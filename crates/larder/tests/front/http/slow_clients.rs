//! Slow, silent and vanished clients, in numbers beyond every limit: other clients are still answered.

pub(crate) mod frames;

use std::any::Any;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Client, Gate, Larder, ScriptedOrigin, Setup, wait};

use frames::{Http2, Windows};
use rustix::net::{AddressFamily, SocketType};

use crate::LARDER;
use crate::cache::basics::{asking, client_from, with};

/// Places for requests in flight in these tests, and the number of clients that compete for them.
const PLACES: usize = 4;
const CLIENTS: usize = 12;
const LARGE_BYTES: usize = 24 << 20;
const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";

/// An origin with a target for every way in which a client can be slow.
fn origin(gate: &Gate) -> ScriptedOrigin {
    let gate = gate.clone();
    let large = vec![b'x'; LARGE_BYTES];
    ScriptedOrigin::start(move |exchange| {
        let target = exchange.request.target().to_owned();
        match target.split('/').nth(1) {
            Some("ws") => {
                exchange.head("101 Switching Protocols", "Connection: upgrade\r\nUpgrade: x\r\n");
                exchange.wait_for_peer();
            }
            Some("silent") => {
                gate.pass();
                exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "late");
            }
            Some("large") => {
                exchange.respond("200 OK", "Cache-Control: no-store\r\n", &large);
            }
            Some("too-large") => {
                exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", &large);
            }
            _ => {
                exchange.read_body();
                exchange.respond("200 OK", "Cache-Control: no-store\r\n", "ok");
            }
        }
    })
}

fn larder(origin: &ScriptedOrigin, workers: usize, limits: &str, pool: &str) -> Larder {
    let config = format!(
        "workers = {workers}\n[limits]\n{limits}\n[store]\nmemory = \"16MiB\"\n[[origin]]\nname = \"o\"\nurl = \"@origin@\"\n\
         pool = {{ requests_in_flight_max = {PLACES}{pool} }}\n\
         [[site]]\nname = \"a\"\norigin = \"o\"\n[site.timeouts]\nfirst_byte = \"600s\"\nbetween_bytes = \"600s\"\n"
    );
    with(&config, origin)
}

/// Ways in which a client can occupy a place.
#[derive(Clone, Copy, Debug)]
enum Slow {
    /// Opens a tunnel, and sends nothing.
    Tunnels,
    /// Sends this and nothing more, and stays connected.
    Says(&'static str),
    /// Sends a little content over HTTP/2, but not its end.
    Uploads2,
    /// Sends a request, and reads nothing of the response.
    DoesNotRead(&'static str),
    DoesNotRead2(&'static str),
    /// Sends a request, and disconnects before the response: by FIN, or by RST.
    Leaves(&'static str),
    Resets(&'static str),
}

const UPLOAD: &str = "POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx";

const SLOW: [(&str, Slow); 11] = [
    ("idle tunnels", Slow::Tunnels),
    ("uploads that stop", Slow::Says(UPLOAD)),
    (
        "uploads in chunks that stop",
        Slow::Says("POST /post HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"),
    ),
    ("uploads over HTTP/2 that stop", Slow::Uploads2),
    ("responses that are not stored and not read", Slow::DoesNotRead("/large")),
    ("responses over HTTP/2 that are not stored and not read", Slow::DoesNotRead2("/large")),
    ("responses that turn out too large to be stored", Slow::DoesNotRead("/too-large")),
    ("clients that leave", Slow::Leaves("GET /silent/@ HTTP/1.1\r\nHost: a\r\n\r\n")),
    ("clients that reset", Slow::Resets("GET /silent/@ HTTP/1.1\r\nHost: a\r\n\r\n")),
    (
        "clients that leave private responses",
        Slow::Leaves("GET /silent/@ HTTP/1.1\r\nHost: a\r\nCache-Control: no-store\r\n\r\n"),
    ),
    (
        "clients that leave after an upload",
        Slow::Leaves("POST /silent/@ HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"),
    ),
];

/// A client that stays until the end of a case.
type Kept = Box<dyn Any>;

impl Slow {
    fn begin(self, larder: &Larder, number: usize) -> Kept {
        if let Self::Uploads2 | Self::DoesNotRead2(_) = self {
            let mut client = Http2::connect(larder.address());
            match self {
                Self::DoesNotRead2(path) => client.get(&format!("{path}/{number}")).wait_for_data(),
                _ => _ = client.request("POST", "/post").data(b"x"),
            }
            return Box::new(client);
        }
        let mut client = larder.client();
        match self {
            Self::Tunnels => assert_eq!(client.send(UPGRADE).head().status(), 101),
            Self::DoesNotRead(target) => {
                let request = format!("GET {target}/{number} HTTP/1.1\r\nHost: a\r\n\r\n");
                assert_eq!(client.send(request).head().status(), 200, "{target}");
            }
            Self::Says(request) | Self::Leaves(request) | Self::Resets(request) => {
                client.send(request.replace('@', &number.to_string()));
            }
            Self::Uploads2 | Self::DoesNotRead2(_) => unreachable!("over HTTP/2"),
        }
        if let Self::Leaves(_) = self {
            client.finish_sending();
            return Box::new(());
        }
        Box::new(client)
    }
}

#[track_caller]
fn is_answered(larder: &Larder, what: &str) {
    let start = Instant::now();
    let answer = larder.get("/page");
    assert_eq!(answer.status(), 200, "{what}: {:?} {}", answer.head, answer.text());
    assert!(start.elapsed() < Duration::from_secs(5), "{what}: after {:?}", start.elapsed());
}

fn nothing_is_left(larder: &Larder, what: &str) {
    for (metric, parts) in [
        ("larder_origin_exchanges", &["origin=\"o\""][..]),
        ("larder_fills", &[]),
        ("larder_store_bytes", &["filling"]),
    ] {
        wait::until_true(&format!("{what}: nothing is left of {metric}"), || {
            larder.metric(metric, parts) == 0.0
        });
    }
}

/// With more slow clients than places, other requests are still answered. Once the slow clients have left, they occupy
/// nothing.
#[test]
fn no_slow_client_holds_a_place_that_others_need() {
    for workers in [1, 2] {
        for (what, slow) in SLOW {
            let gate = Gate::new();
            let origin = origin(&gate);
            // The queue has room for all of them, so none is refused.
            let larder = larder(&origin, workers, "", ", queue_max = 64, queue_timeout = \"20s\"");
            let mut kept: Vec<Kept> = (0..CLIENTS).map(|number| slow.begin(&larder, number)).collect();
            if let Slow::Resets(_) = slow {
                wait::until_true("they have arrived", || {
                    larder.metric("larder_origin_exchanges", &["queued"]) == (CLIENTS - PLACES / 2) as f64
                });
                kept.drain(..).for_each(|kept| kept.downcast::<Client>().expect("a client").reset());
            }
            for _ in 0..3 {
                is_answered(&larder, what);
            }
            drop(kept);
            gate.open();
            nothing_is_left(&larder, what);
            is_answered(&larder, what);
        }
    }
}

/// If no other request needs its place, a client that has closed its sending side is answered, even by a slow origin or from
/// the store.
#[test]
fn a_half_closed_client_is_answered() {
    let gate = Gate::new();
    let origin = origin(&gate);
    let larder = larder(&origin, 1, "", "");
    let ask = || {
        let mut client = asking(&larder, "/silent", "");
        client.finish_sending();
        client
    };
    let mut client = ask();
    origin.wait_for("/silent", 1);
    is_answered(&larder, "others");
    assert!(!client.wait_for_bytes(Duration::from_millis(200)));
    gate.open();
    assert_eq!(client.response().text(), "late");
    let hit = ask().response();
    assert_eq!((hit.text().as_str(), hit.is_hit()), ("late", true));
}

/// The response for a client that has left is still stored, unless another request needs its place.
#[test]
fn a_response_that_nobody_waits_for_is_still_stored() {
    let gate = Gate::new();
    let origin = origin(&gate);
    let larder = larder(&origin, 1, "", "");
    let client = asking(&larder, "/silent", "");
    origin.wait_for("/silent", 1);
    client.reset();
    is_answered(&larder, "others");
    gate.open();
    wait::until_true("it is stored", || larder.get("/silent").is_hit());
    assert_eq!(origin.count("/silent"), 1);
}

#[test]
fn a_client_has_its_share() {
    for workers in [1, 2] {
        let gate = Gate::new();
        let origin = origin(&gate);
        let larder = larder(&origin, workers, "", ", queue_max = 4, queue_timeout = \"1s\"");
        let clients: Vec<Client> =
            (0..CLIENTS).map(|number| asking(&larder, &format!("/silent/{number}"), "")).collect();
        wait::until_true("half of the places, and then half of the queue, are taken", || {
            let refused = larder.metric("larder_origin_errors_total", &["client-share"]);
            refused >= (CLIENTS - PLACES) as f64
                && larder.metric("larder_origin_exchanges", &["in_flight"]) == (PLACES / 2) as f64
        });
        let other = client_from(&larder, 2).get("/page");
        assert_eq!(other.status(), 200, "{:?}", other.head);
        let same = larder.get("/page");
        assert_eq!(same.status(), 503);
        assert!(same.cache_status().contains("client-share"), "{:?}", same.head);
        gate.open();
        drop(clients);
        nothing_is_left(&larder, "shares");
    }
}

/// Behind a trusted proxy, shares belong to the clients that it names; without a name, no share applies.
#[test]
fn a_trusted_proxy_names_the_clients() {
    for (trusted, fields, expected) in [
        ("[\"127.0.0.1\"]", "X-Forwarded-For: 192.0.2.1\r\n", 503),
        ("[\"127.0.0.1\"]", "X-Forwarded-For: 192.0.2.2\r\n", 200),
        ("[\"127.0.0.1\"]", "", 200),
        ("[]", "X-Forwarded-For: 192.0.2.2\r\n", 503),
    ] {
        let gate = Gate::new();
        let origin = origin(&gate);
        let config = format!(
            "trusted_proxies = {trusted}\n[[origin]]\nname = \"o\"\nurl = \"@origin@\"\n\
             pool = {{ requests_in_flight_max = 4, client_share_percent = 25, queue_timeout = \"100ms\" }}\n\
             [[site]]\nname = \"a\"\norigin = \"o\"\n"
        );
        let larder = with(&config, &origin);
        let mut first = asking(&larder, "/silent", "X-Forwarded-For: 192.0.2.1\r\n");
        origin.wait_for("/silent", 1);
        let answer = larder.ask("GET", "/page", fields);
        assert_eq!(answer.status(), expected, "{trusted} {fields:?}: {:?}", answer.head);
        gate.open();
        assert_eq!(first.response().text(), "late");
    }
}

#[test]
fn tunnels_have_a_limit_and_an_idle_time() {
    let origin = origin(&Gate::new());
    let limits = "tunnel_idle_timeout = \"1s\"";
    let larder = larder(&origin, 1, limits, ", tunnels_max = 2, client_share_percent = 100");
    let mut open: Vec<Client> = (0..2).map(|_| larder.client()).collect();
    for client in &mut open {
        assert_eq!(client.send(UPGRADE).head().status(), 101);
    }
    let mut refused = larder.client();
    let answer = refused.send(UPGRADE).response();
    assert_eq!((answer.status(), answer.field("retry-after")), (503, "1"), "{:?}", answer.head);
    assert!(answer.cache_status().contains("tunnels-max"), "{:?}", answer.head);
    for mut client in open {
        assert_eq!(client.rest(), b"", "the tunnel ends");
    }
    wait::until_true("both are counted", || {
        larder.metric("larder_client_errors_total", &["tunnel-idle"]) == 2.0
    });
    nothing_is_left(&larder, "tunnels");
    assert_eq!(refused.send(UPGRADE).head().status(), 101);
}

#[test]
fn responses_have_a_lowest_rate() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", vec![b'x'; LARGE_BYTES / 4]);
    let larder = with("[limits]\nwrite_timeout = \"2s\"\nwrite_rate_min = \"1MiB\"\n@site@", &origin);
    assert_eq!(larder.get("/").body.len(), LARGE_BYTES / 4);
    // Several responses, more than the kernel buffers.
    let mut client = larder.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(8));
    assert_eq!(client.head().status(), 200);
    let start = Instant::now();
    while larder.metric("larder_client_errors_total", &["write-timeout"]) == 0.0 {
        assert!(start.elapsed() < Duration::from_secs(25), "it is still written to");
        client.bytes(1000);
        thread::park_timeout(Duration::from_millis(50));
    }
}

/// A new client is accepted although all connections are taken by clients that have sent nothing, part of a request, or one
/// request.
#[test]
fn connections_that_wait_make_room() {
    let hit = "GET / HTTP/1.1\r\nHost: test.example\r\n\r\n";
    let beginnings = ["", "GET / HT", hit.trim_end(), hit];
    for workers in [1, 2] {
        for beginning in beginnings {
            let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "ok");
            let larder =
                with(&format!("workers = {workers}\n[limits]\nconnections_max = 8\n@site@"), &origin);
            assert_eq!(larder.get("/").status(), 200);
            let mut slow: Vec<Client> = Vec::new();
            for _ in 0..30 {
                let mut client = larder.client();
                let _ = client.try_send(beginning);
                slow.push(client);
            }
            for _ in 0..5 {
                let mut client = client_from(&larder, 2);
                assert!(client.get("/").is_hit(), "{beginning:?}");
                assert!(client.get("/").is_hit(), "{beginning:?}");
            }
            // A worker may have slept all this time, with connections in its queue.
            wait::until_true("all others are evicted", || {
                larder.metric("larder_connections_evicted_total", &[]) >= 22.0
            });
            assert_eq!(larder.metric("larder_connections_refused_total", &["connections-max"]), 0.0);
            drop(slow);
            wait::until_true("all are gone", || larder.metric("larder_connections", &[]) == 0.0);
        }
    }
}

/// Ways to keep a connection in use that cost the client nothing.
const IN_USE: [(&str, Slow); 5] = [
    ("slow misses", Slow::Says("GET /silent/@ HTTP/1.1\r\nHost: a\r\n\r\n")),
    ("uploads that stop", Slow::Says(UPLOAD)),
    ("uploads over HTTP/2 that stop", Slow::Uploads2),
    ("tunnels", Slow::Tunnels),
    ("responses that are not read", Slow::DoesNotRead("/large")),
];

/// An address that uses all connections, and keeps opening more, doesn't take the share of others.
#[test]
fn connections_in_use_above_a_share_make_room() {
    const CONNECTIONS: usize = 8;
    for workers in [1, 2] {
        for (what, slow) in IN_USE {
            let gate = Gate::new();
            let origin = origin(&gate);
            let limits = format!("connections_max = {CONNECTIONS}");
            let pool = ", queue_max = 64, queue_timeout = \"600s\"";
            let larder = larder(&origin, workers, &limits, pool);
            let mut kept: Vec<Kept> = (0..CONNECTIONS).map(|number| slow.begin(&larder, number)).collect();
            wait::until_true("all connections are in use", || {
                larder.metric("larder_origin_exchanges", &[]) == CONNECTIONS as f64
            });
            let mut more: Vec<Client> = (0..CONNECTIONS).map(|_| larder.client()).collect();
            for client in &mut more {
                assert_eq!(client.rest(), b"", "{what}: connections above the share are closed");
            }
            assert_eq!(larder.metric("larder_connections_evicted_total", &[]), 0.0, "{what}");
            let mut clients: Vec<Client> = (0..CONNECTIONS / 2).map(|_| client_from(&larder, 2)).collect();
            for client in &mut clients {
                let answer = client.get("/page");
                assert_eq!(answer.status(), 200, "{what}: {:?}", answer.head);
            }
            // The new clients are idle now, and the first address has no more than its share.
            assert_eq!(larder.metric("larder_connections_evicted_total", &[]), (CONNECTIONS / 2) as f64);
            drop((kept.drain(..), clients));
            gate.open();
            nothing_is_left(&larder, what);
        }
    }
}

/// Clients that read only a little of large bodies, which aren't stored.
const READERS: usize = 160;
const MEMORY_BYTES: u64 = 16 << 20;

/// Bodies that wait for slow readers count toward the memory limit of the cache.
#[test]
fn bodies_that_wait_for_their_readers_stay_within_the_memory() {
    testkit::raise_open_files_limit();
    for (what, fields, chunked) in [
        ("not stored", "Cache-Control: no-store\r\n", false),
        ("not stored, in chunks", "Cache-Control: no-store\r\n", true),
        ("no room to store it", "Cache-Control: max-age=60\r\n", false),
        ("no room to store it, in chunks", "Cache-Control: max-age=60\r\n", true),
    ] {
        let body = vec![b'x'; 7 << 20];
        let origin = ScriptedOrigin::start(move |exchange| {
            if exchange.request.target() == "/page" {
                exchange.respond("200 OK", "Cache-Control: no-store\r\n", "ok");
            } else if chunked {
                exchange.chunked_head(fields);
                // The pieces have a size that doesn't fit any buffer.
                for piece in body.chunks(50_001) {
                    exchange.chunk(piece);
                }
                exchange.last_chunk("");
            } else {
                exchange.respond("200 OK", fields, &body);
            }
        });
        // All readers have one address here: a smaller share would dismiss those above it when memory is full.
        let config =
            format!("[limits]\nclient_share_percent = 100\n[store]\nmemory = {MEMORY_BYTES}\n@site@");
        let larder = with(&config, &origin);
        let limit = MEMORY_BYTES + MEMORY_BYTES / 10 + (64 << 20);
        let within = |when: &str| {
            let resident = larder.resident_bytes();
            assert!(resident <= limit, "{what}, {when}: {} of {} KiB", resident >> 10, limit >> 10);
        };
        let mut readers = Vec::new();
        for number in 0..READERS {
            let mut client = asking(&larder, &format!("/{number}"), "");
            assert_eq!(client.head().status(), 200, "{what}");
            readers.push(client);
            within("while they arrive");
        }
        // Each reads a little, repeatedly.
        for _ in 0..3 {
            for client in &mut readers {
                client.bytes(100_000);
            }
            within("while they read");
        }
        assert_eq!(larder.get("/page").status(), 200, "{what}");
        let held = larder.metric("larder_store_bytes", &[]);
        assert!(held <= MEMORY_BYTES as f64, "{what}: {held} bytes are held");
        drop(readers);
        wait::until_true("all memory is free again", || {
            larder.metric("larder_store_bytes", &["filling"]) == 0.0
                && larder.metric("larder_store_bytes", &["pinned"]) == 0.0
        });
    }
}

/// Bytes of a request body that a client may send before the origin has read any.
const UPLOAD_BYTES: usize = 256 << 10;

/// Behind a balancer, one connection carries the uploads of many clients.
#[test]
fn uploads_that_the_origin_does_not_take_hold_no_others() {
    for workers in [1, 2] {
        let gate = Gate::new();
        let origin = origin(&gate);
        let pool =
            ", transfers_max = 1, client_share_percent = 100, queue_max = 64, queue_timeout = \"600s\"";
        let larder = larder(&origin, workers, "", pool);
        let mut client = Http2::connect(larder.address());
        for number in 0..20 {
            client.request("POST", &format!("/silent/{number}"));
            client.data_within_window(&vec![b'x'; UPLOAD_BYTES]);
        }
        client.request("POST", "/post").data_within_window(b"x").end();
        assert_eq!(client.status(), 200, "it is answered with 200, before all others");
        drop(client);
        gate.open();
        nothing_is_left(&larder, "uploads");
    }
}

/// An origin that sends pieces too small to be counted per reader, and that reads no uploads.
fn origin_in_pieces(gate: &Gate) -> ScriptedOrigin {
    let gate = gate.clone();
    ScriptedOrigin::start(move |exchange| match exchange.request.target().split('/').nth(1) {
        Some("pieces") => {
            exchange.chunked_head("Cache-Control: no-store\r\n");
            for _ in 0..64 {
                exchange.chunk([b'x'; 8 << 10]);
            }
            exchange.last_chunk("");
        }
        Some("silent") => {
            gate.pass();
            exchange.respond("200 OK", "Cache-Control: no-store\r\n", "late");
        }
        _ => {
            exchange.respond("200 OK", "Cache-Control: no-store\r\n", "ok");
        }
    })
}

const SAMPLES_ALIKE: usize = 50;

/// Fills the memory, and returns the clients that hold it.
type Hold = fn(&Larder) -> Vec<Kept>;

/// Ways to make a gateway hold at least 100 MB that are neither stored nor filling.
const HELD: [(&str, Hold); 3] = [
    ("uploads over HTTP/2 that the origin does not take", |larder| {
        let uploads = |client: &mut Http2| {
            for number in 0..100 {
                client.request("POST", &format!("/silent/{number}"));
                client.data_within_window(&vec![b'x'; UPLOAD_BYTES]);
            }
        };
        connections(4, larder, Windows::AsTheyBegin, uploads)
    }),
    ("responses over HTTP/2 whose windows are open and that are not read", |larder| {
        let readers = |client: &mut Http2| {
            for number in 0..100 {
                client.request("GET", &format!("/pieces/{number}")).end();
            }
        };
        connections(8, larder, Windows::Widest, readers)
    }),
    ("content of QUERY that does not end", |larder| {
        let query = |_| -> Kept {
            let mut client = larder.client();
            let fields = "Host: a\r\nContent-Type: text/x\r\nContent-Length: 1000000\r\n\r\n";
            client.send(format!("QUERY /query HTTP/1.1\r\n{fields}")).send(vec![b'x'; 900_000]);
            Box::new(client)
        };
        (0..160).map(query).collect()
    }),
];

fn connections(count: usize, larder: &Larder, windows: Windows, use_: fn(&mut Http2)) -> Vec<Kept> {
    let connection = |_| -> Kept {
        let mut client = Http2::connect_with(larder.address(), windows);
        use_(&mut client);
        Box::new(client)
    };
    (0..count).map(connection).collect()
}

/// Waits until the memory of the process has been constant for a while.
fn settle(larder: &Larder) {
    let (mut last, mut same) = (0, 0);
    wait::until_true("the memory of the process stays the same", || {
        let resident = larder.resident_bytes();
        same = if resident == last { same + 1 } else { 0 };
        last = resident;
        same == SAMPLES_ALIKE
    });
}

#[test]
fn bytes_that_clients_make_the_gateway_hold_stay_within_the_memory() {
    testkit::raise_open_files_limit();
    let limit = MEMORY_BYTES + MEMORY_BYTES / 10 + (64 << 20);
    for (what, hold) in HELD {
        let gate = Gate::new();
        let origin = origin_in_pieces(&gate);
        let config = format!(
            "workers = 2\n[store]\nmemory = {MEMORY_BYTES}\n[[origin]]\nname = \"o\"\nurl = \"@origin@\"\n\
             pool = {{ queue_max = 10000, queue_timeout = \"600s\", client_share_percent = 100 }}\n\
             [[site]]\nname = \"a\"\norigin = \"o\"\n[site.timeouts]\nfirst_byte = \"600s\"\n\
             [[site.rule]]\nname = \"query\"\nquery_content_bytes_max = \"1MiB\"\n"
        );
        let larder = with(&config, &origin);
        let kept = hold(&larder);
        settle(&larder);
        wait::until_true(&format!("{what}: the held bytes are within the memory"), || {
            larder.resident_bytes() <= limit
        });
        let held = larder.metric("larder_store_bytes", &[]);
        assert!(held <= MEMORY_BYTES as f64, "{what}: {held} bytes are held");
        assert_eq!(larder.get("/page").status(), 200, "{what}");
        drop(kept);
        gate.open();
        nothing_is_left(&larder, what);
    }
}

/// Windows of HTTP/2 clients that request large responses.
const HTTP2_READERS: [(&str, Windows); 2] = [
    ("windows that are closed", Windows::Closed),
    ("wide windows, and a socket that is not read", Windows::Widest),
];

/// A body that is stored in a file is not copied for a client that reads none of it.
#[test]
fn stored_bodies_are_not_copied_for_streams_that_take_nothing() {
    const CONNECTIONS: usize = 8;
    const STREAMS: usize = 100;
    /// A stream without content takes about 6 KiB.
    const MORE_BYTES_MAX: u64 = (CONNECTIONS * STREAMS * (10 << 10)) as u64;
    for (what, windows) in HTTP2_READERS {
        let body = vec![b'x'; 1 << 20];
        let origin = ScriptedOrigin::start(move |exchange| {
            let body = if exchange.request.target() == "/a" { &body[..] } else { b"x" };
            exchange.respond("200 OK", "Cache-Control: max-age=600\r\n", body);
        });
        let larder = Setup::origin(LARDER, &origin.url()).arguments(&["--memory", "64MiB"]).start();
        let get = || larder.client().send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n").response();
        get();
        assert!(get().is_hit());
        let before = larder.resident_bytes();
        let mut kept = Vec::new();
        for number in 1..=CONNECTIONS {
            let mut client = Http2::connect_with(larder.address(), windows);
            for _ in 0..STREAMS {
                client.get("/a");
            }
            // Once this request is forwarded, the gateway has handled the earlier ones.
            let last = format!("/last/{number}");
            client.get(&last);
            kept.push(client);
            origin.wait_for(&last, 1);
        }
        assert!(get().is_hit());
        let more = larder.resident_bytes().saturating_sub(before);
        assert!(more < MORE_BYTES_MAX, "{what}: {} MiB more", more >> 20);
        drop(kept);
        wait::until_true("all memory is free again", || {
            larder.metric("larder_store_bytes", &["filling"]) == 0.0
        });
        assert_eq!(get().body.len(), 1 << 20);
    }
}

/// Slow readers at one address, each with a different large response, don't prevent the storing of responses to others.
#[test]
fn slow_readers_of_one_client_do_not_keep_others_from_the_store() {
    const LARGE_BYTES: usize = 12 << 20;
    const ATTEMPTS: usize = 100;
    for protocol in ["HTTP/1", "HTTP/2"] {
        let body = vec![b'x'; LARGE_BYTES];
        let origin = ScriptedOrigin::start(move |exchange| {
            let body = match exchange.request.target().split('/').nth(1) {
                Some("large") => &body[..],
                Some("medium") => &body[..1 << 20],
                _ => b"small",
            };
            exchange.respond("200 OK", "Cache-Control: max-age=600\r\n", body);
        });
        let larder = Setup::origin(LARDER, &origin.url()).arguments(&["--memory", "64MiB"]).start();
        let is_stored = |target: &str| {
            let mut client = client_from(&larder, 2);
            client.get(target);
            client.get(target).is_hit()
        };
        let mut slow = Vec::new();
        for number in 0..12 {
            let target = format!("/large/{number}");
            slow.push(if protocol == "HTTP/1" {
                Slow::DoesNotRead("/large").begin(&larder, number)
            } else {
                let mut client = Http2::connect_with(larder.address(), Windows::Closed);
                client.get(&target);
                Box::new(client)
            });
            origin.wait_for(&target, 1);
            // If memory is full, the gateway makes room for the next responses.
            let is_soon_stored =
                (0..ATTEMPTS).any(|attempt| is_stored(&format!("/small/{number}/{attempt}")));
            assert!(is_soon_stored, "{protocol}: after slow client {number}");
        }
        assert!((0..ATTEMPTS).any(|attempt| is_stored(&format!("/medium/{attempt}"))), "{protocol}");
        let dismissed = larder.metric("larder_client_errors_total", &["memory-share"]);
        assert!(dismissed >= 1.0, "{protocol}: no client was dismissed");
        let held = larder.metric("larder_store_bytes", &[]);
        assert!(held <= (64 << 20) as f64, "{protocol}: {held} bytes are held");
        drop(slow);
    }
}

/// The kernel buffers only a little of a response that the client doesn't read.
#[test]
fn the_kernel_takes_little_of_what_is_not_read() {
    let body = vec![b'x'; 8 << 20];
    let origin = ScriptedOrigin::start(move |exchange| {
        let body = if exchange.request.target() == "/large" { &body[..] } else { b"small" };
        exchange.respond("200 OK", "Cache-Control: max-age=600\r\n", body);
    });
    let larder = larder(&origin, 1, "", "");
    larder.get("/large");
    let mut client = Client::over(with_small_buffer(larder.address()));
    client.send("GET /large HTTP/1.1\r\nHost: test.example\r\n\r\n");
    client.head();
    // With one worker, everything writable has been written once these are answered.
    (0..40).for_each(|_| drop(larder.get("/small")));
    client.reset();
    let broken = |name: &str| larder.metric(name, &["error"]);
    wait::until_true("it is gone", || broken("larder_requests_total") == 1.0);
    let taken = broken("larder_response_bytes_total");
    assert!(taken < f64::from(1 << 20), "{taken} bytes of it were accepted");
}

/// A connection with a small receive buffer.
fn with_small_buffer(address: SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4096).expect("it is not connected yet");
    rustix::net::connect(&socket, &address).expect("somebody listens");
    socket.into()
}
