//! Few clients take neither the gateway nor the origin from all: slow, silent and vanished ones, in numbers beyond every
//! limit, while others are answered.

mod frames;

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Client, Gate, Larder, Response, ScriptedOrigin, Setup, wait};

use frames::Http2;

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

/// Places for requests in flight in these tests, and clients that want to have them all.
const PLACES: usize = 4;
const CLIENTS: usize = 12;
const LARGE_BYTES: usize = 24 << 20;
const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";

/// An origin with everything that a client can be slow about.
fn origin(gate: &Gate) -> ScriptedOrigin {
    let gate = gate.clone();
    let large = vec![b'x'; LARGE_BYTES];
    ScriptedOrigin::start(move |exchange| {
        let target = exchange.request.target().to_owned();
        match target.split('/').nth(1) {
            Some("ws") => {
                exchange
                    .send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
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
        "workers = {workers}\n[limits]\n{limits}\n[store]\nmemory = \"16MiB\"\n[[origin]]\nname = \"o\"\nurl = \"{}\"\n\
         pool = {{ requests_in_flight_max = {PLACES}{pool} }}\n\
         [[site]]\nname = \"a\"\norigin = \"o\"\n[site.timeouts]\nfirst_byte = \"600s\"\nbetween_bytes = \"600s\"\n",
        origin.url()
    );
    Setup::config(LARDER, &config).start()
}

/// What a client does to keep a place.
#[derive(Clone, Copy, Debug)]
enum Slow {
    /// Has a tunnel, and says nothing.
    Tunnels,
    /// Sends this and nothing more, and stays.
    Says(&'static str),
    /// The same over HTTP/2: a request of which this much of the content comes.
    Sends2(&'static [u8]),
    /// Asks, and takes nothing of the answer.
    DoesNotRead(&'static str),
    DoesNotRead2(&'static str),
    /// Asks, and is gone before the answer; by FIN, or by RST.
    Leaves(&'static str),
    Resets(&'static str),
}

const SLOW: [(&str, Slow); 11] = [
    ("idle tunnels", Slow::Tunnels),
    ("uploads that stop", Slow::Says("POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx")),
    (
        "uploads in chunks that stop",
        Slow::Says("POST /post HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"),
    ),
    ("uploads over HTTP/2 that stop", Slow::Sends2(b"x")),
    ("responses that are not stored and not read", Slow::DoesNotRead("/large")),
    ("the same over HTTP/2", Slow::DoesNotRead2("/large")),
    ("responses that turn out too large to be stored", Slow::DoesNotRead("/too-large")),
    ("clients that leave", Slow::Leaves("GET /silent/@ HTTP/1.1\r\nHost: a\r\n\r\n")),
    ("clients that reset", Slow::Resets("GET /silent/@ HTTP/1.1\r\nHost: a\r\n\r\n")),
    (
        "clients that leave what is not shared",
        Slow::Leaves("GET /silent/@ HTTP/1.1\r\nHost: a\r\nCache-Control: no-store\r\n\r\n"),
    ),
    (
        "clients that leave after an upload",
        Slow::Leaves("POST /silent/@ HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"),
    ),
];

/// What is to be kept until the end of a case.
enum Kept {
    Http1 {
        _client: Client,
    },
    Http2 {
        _client: Http2,
    },
    /// Until its request is known to have arrived.
    ToReset(Client),
    Nothing,
}

impl Kept {
    fn reset(self) {
        if let Self::ToReset(client) = self {
            client.reset();
        }
    }
}

impl Slow {
    fn begin(self, larder: &Larder, number: usize) -> Kept {
        let target = format!("/{number}");
        match self {
            Self::Says(bytes) => {
                let mut client = larder.client();
                client.send(bytes);
                Kept::Http1 { _client: client }
            }
            Self::Tunnels => {
                let mut client = larder.client();
                assert_eq!(client.send(UPGRADE).head().status(), 101);
                Kept::Http1 { _client: client }
            }
            Self::DoesNotRead(target) => {
                let mut client = larder.client();
                client.send(format!("GET {target}/{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
                assert_eq!(client.head().status(), 200, "{target}");
                Kept::Http1 { _client: client }
            }
            Self::Sends2(content) => {
                let mut client = Http2::connect(larder.address());
                client.request("POST", "/post").data(content);
                Kept::Http2 { _client: client }
            }
            Self::DoesNotRead2(path) => {
                let mut client = Http2::connect(larder.address());
                client.request("GET", &format!("{path}{target}")).end();
                client.wait_for_data();
                Kept::Http2 { _client: client }
            }
            Self::Leaves(request) => {
                let mut client = larder.client();
                client.send(request.replace('@', &number.to_string()));
                client.finish_sending();
                Kept::Nothing
            }
            Self::Resets(request) => {
                let mut client = larder.client();
                client.send(request.replace('@', &number.to_string()));
                Kept::ToReset(client)
            }
        }
    }
}

/// A request that needs the origin.
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

/// More slow clients than there are places, and other requests are answered; once the slow ones have left, nothing is left of
/// them.
#[test]
fn no_slow_client_holds_a_place_that_others_need() {
    for workers in [1, 2] {
        for (what, slow) in SLOW {
            let gate = Gate::new();
            let origin = origin(&gate);
            // Room for all of them to wait, so that none is refused.
            let larder = larder(&origin, workers, "", ", queue_max = 64, queue_timeout = \"20s\"");
            let mut kept: Vec<Kept> = (0..CLIENTS).map(|number| slow.begin(&larder, number)).collect();
            if let Slow::Resets(_) = slow {
                wait::until_true("they have arrived", || {
                    larder.metric("larder_origin_exchanges", &["queued"]) == (CLIENTS - PLACES / 2) as f64
                });
                kept.drain(..).for_each(Kept::reset);
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

/// A client that has closed its sending side is answered where nobody needs its place.
#[test]
fn a_half_closed_client_is_answered_after_a_silence() {
    let gate = Gate::new();
    let origin = origin(&gate);
    let larder = larder(&origin, 1, "", "");
    let mut client = larder.client();
    client.send("GET /silent HTTP/1.1\r\nHost: a\r\n\r\n").finish_sending();
    origin.wait_for("/silent", 1);
    is_answered(&larder, "others");
    assert!(!client.wait_for_bytes(Duration::from_millis(200)));
    gate.open();
    assert_eq!(client.response().text(), "late");
}

/// What somebody has asked for and left is still stored, where nobody needs the place.
#[test]
fn what_nobody_waits_for_is_still_stored() {
    let gate = Gate::new();
    let origin = origin(&gate);
    let larder = larder(&origin, 1, "", "");
    let mut client = larder.client();
    client.send("GET /silent HTTP/1.1\r\nHost: test.example\r\n\r\n");
    origin.wait_for("/silent", 1);
    client.reset();
    is_answered(&larder, "others");
    gate.open();
    wait::until_true("it is stored", || larder.get("/silent").is_hit());
    assert_eq!(origin.count("/silent"), 1);
}

fn ask_from(larder: &Larder, from: &str, target: &str, fields: &str) -> Response {
    let from: IpAddr = from.parse().expect("an address");
    Client::connect_from(from, larder.address()).ask("GET", target, fields)
}

/// One address has its share of the places and of the queue, and the others have the rest.
#[test]
fn a_client_has_its_share() {
    for workers in [1, 2] {
        let gate = Gate::new();
        let origin = origin(&gate);
        let larder = larder(&origin, workers, "", ", queue_max = 4, queue_timeout = \"1s\"");
        let clients: Vec<Client> = (0..CLIENTS)
            .map(|number| {
                let mut client = larder.client();
                client.send(format!("GET /silent/{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
                client
            })
            .collect();
        wait::until_true("half of the places, and then half of the queue, are taken", || {
            let refused = larder.metric("larder_origin_errors_total", &["client-share"]);
            refused >= (CLIENTS - PLACES) as f64
                && larder.metric("larder_origin_exchanges", &["in_flight"]) == (PLACES / 2) as f64
        });
        let other = ask_from(&larder, "127.0.0.2", "/page", "");
        assert_eq!(other.status(), 200, "{:?}", other.head);
        let same = larder.get("/page");
        assert_eq!(same.status(), 503);
        assert!(same.cache_status().contains("client-share"), "{:?}", same.head);
        gate.open();
        drop(clients);
        nothing_is_left(&larder, "shares");
    }
}

/// Behind a trusted proxy the clients are those that it names, and who names none has no share.
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
            "trusted_proxies = {trusted}\n[[origin]]\nname = \"o\"\nurl = \"{}\"\n\
             pool = {{ requests_in_flight_max = 4, client_share_percent = 25, queue_timeout = \"100ms\" }}\n\
             [[site]]\nname = \"a\"\norigin = \"o\"\n",
            origin.url()
        );
        let larder = Setup::config(LARDER, &config).start();
        let mut first = larder.client();
        first.send("GET /silent HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n");
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

/// A byte now and then is progress, but not enough of it.
#[test]
fn uploads_have_a_lowest_rate() {
    let origin = origin(&Gate::new());
    let larder = larder(&origin, 1, "body_read_timeout = \"2s\"\nbody_rate_min = 1000", "");
    let mut client = larder.client();
    client.send("POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    let start = Instant::now();
    while !client.wait_for_bytes(Duration::from_millis(100)) && client.try_send("x").is_ok() {
        assert!(start.elapsed() < Duration::from_secs(20), "it is still read");
    }
    assert_eq!(client.head().status(), 408);
    let mut client = Http2::connect(larder.address());
    client.request("POST", "/post");
    let start = Instant::now();
    while client.data(b"x").is_open() {
        assert!(start.elapsed() < Duration::from_secs(20), "it is still read");
        thread::park_timeout(Duration::from_millis(100));
    }
    nothing_is_left(&larder, "uploads");
}

#[test]
fn responses_have_a_lowest_rate() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", vec![b'x'; LARGE_BYTES / 4]);
    let config = format!(
        "[limits]\nwrite_timeout = \"2s\"\nwrite_rate_min = \"1MiB\"\n[[site]]\nname = \"a\"\norigin = \"{}\"\n",
        origin.url()
    );
    let larder = Setup::config(LARDER, &config).start();
    assert_eq!(larder.get("/").body.len(), LARGE_BYTES / 4);
    // Several answers, which no buffer of the kernel holds.
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

/// When all connections are taken by those that say nothing, or a little, or have said something once, a new client gets in.
#[test]
fn connections_that_wait_make_room() {
    let hit = "GET / HTTP/1.1\r\nHost: test.example\r\n\r\n";
    let beginnings = ["", "GET / HT", hit.trim_end(), hit];
    for workers in [1, 2] {
        for beginning in beginnings {
            let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "ok");
            let config = format!(
                "workers = {workers}\n[limits]\nconnections_max = 8\n[[site]]\nname = \"a\"\norigin = \"{}\"\n",
                origin.url()
            );
            let larder = Setup::config(LARDER, &config).start();
            assert_eq!(larder.get("/").status(), 200);
            let mut slow: Vec<Client> = Vec::new();
            for _ in 0..30 {
                let mut client = larder.client();
                let _ = client.try_send(beginning);
                slow.push(client);
            }
            for _ in 0..5 {
                let mut client =
                    Client::connect_from("127.0.0.2".parse().expect("an address"), larder.address());
                assert!(client.get("/").is_hit(), "{beginning:?}");
                assert!(client.get("/").is_hit(), "{beginning:?}");
            }
            // A worker may have been asleep all the time, with connections in its queue.
            wait::until_true("all others have made room", || {
                larder.metric("larder_connections_evicted_total", &[]) >= 22.0
            });
            assert_eq!(larder.metric("larder_connections_refused_total", &["connections-max"]), 0.0);
            drop(slow);
            wait::until_true("all are gone", || larder.metric("larder_connections", &[]) == 0.0);
        }
    }
}

/// Readers who leave most of it, of bodies that are not stored.
const READERS: usize = 160;
const MEMORY_BYTES: u64 = 16 << 20;

/// What waits for slow readers is counted as memory of the cache, and bounded with it.
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
                // In pieces of a size that fits no buffer.
                for piece in body.chunks(50_001) {
                    exchange.chunk(piece);
                }
                exchange.last_chunk("");
            } else {
                exchange.respond("200 OK", fields, &body);
            }
        });
        let memory = MEMORY_BYTES.to_string();
        let larder = Setup::origin(LARDER, &origin.url()).arguments(&["--memory", &memory]).start();
        let limit = MEMORY_BYTES + MEMORY_BYTES / 10 + (64 << 20);
        let within = |when: &str| {
            let resident = larder.resident_bytes();
            assert!(resident <= limit, "{what}, {when}: {} of {} KiB", resident >> 10, limit >> 10);
            resident
        };
        let mut readers = Vec::new();
        let mut peak = 0;
        for number in 0..READERS {
            let mut client = larder.client();
            client.send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert_eq!(client.head().status(), 200, "{what}");
            readers.push(client);
            peak = peak.max(within("while they come"));
        }
        // Each takes a little, again and again.
        for _ in 0..3 {
            for client in &mut readers {
                client.bytes(100_000);
            }
            peak = peak.max(within("while they read"));
        }
        eprintln!("{what}: {} MiB at most", peak >> 20);
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
