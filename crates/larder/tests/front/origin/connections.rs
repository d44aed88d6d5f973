//! The side of the origin servers: connections, TLS, sites, limits, time-outs; and what stands in front of the
//! gateway and says so with the PROXY protocol.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use testkit::{
    Accept, Authority, Client, Cut, End, FaultProxy, Faults, Gate, Larder, Port, ScriptedOrigin, Service,
    Setup, Stall, run, wait,
};

use crate::LARDER;
use crate::tools::mock_origin::MockOrigin;

fn in_front_of(origin: &ScriptedOrigin) -> Larder {
    Setup::origin(LARDER, &origin.url()).start()
}

fn with(settings: &str, origin: &str) -> Larder {
    Setup::config(LARDER, &settings.replace("@origin@", origin)).start()
}

fn not_stored() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        let body = exchange.request.target().to_owned();
        exchange.respond("200 OK", "Cache-Control: no-store\r\n", body);
    })
}

fn wait_for_idle(larder: &Larder, count: f64) {
    let idle = || larder.metric("larder_origin_connections", &["idle"]);
    wait::until_true("the origin connections are idle", || (idle() - count).abs() < 0.5);
}

/// All cores share the idle connections, whichever opened them.
#[test]
fn sequential_requests_share_one_connection() {
    let origin = not_stored();
    let larder = in_front_of(&origin);
    for _ in 0..50 {
        assert_eq!(larder.get("/").status(), 200);
        wait_for_idle(&larder, 1.0);
    }
    assert_eq!((origin.total(), origin.connections()), (50, 1));
}

#[test]
fn keep_alive_can_be_switched_off() {
    let origin = not_stored();
    let larder = with(
        "[[origin]]\nname = \"o\"\nurl = \"@origin@\"\n[origin.pool]\nkeep_alive = false\n\
         [[site]]\nname = \"a\"\norigin = \"o\"\n",
        &origin.url(),
    );
    for _ in 0..5 {
        assert_eq!(larder.get("/").status(), 200);
    }
    assert_eq!(origin.connections(), 5);
}

/// Answers the first request on each connection; the second finds it dead.
fn dies_when_reused() -> ScriptedOrigin {
    let used = Mutex::new(HashMap::<usize, usize>::new());
    ScriptedOrigin::start(move |exchange| {
        exchange.read_body();
        let mut used = used.lock().expect("no holder panics");
        let count = used.entry(exchange.request.connection).or_default();
        *count += 1;
        let dies = *count > 1;
        drop(used);
        match dies {
            true => exchange.reset(),
            false => exchange.respond("200 OK", "Cache-Control: no-store\r\n", "alive"),
        };
    })
}

//= RFC 9110 section 9.2.2: idempotent methods may be retried, others only when known not to be processed
#[test]
fn a_dead_pooled_connection_is_retried_once_where_that_is_safe() {
    for (method, status, requests) in [
        ("GET", 200, 3),
        ("HEAD", 200, 3),
        ("OPTIONS", 200, 3),
        ("DELETE", 200, 3),
        ("POST", 502, 2),
        ("PATCH", 502, 2),
    ] {
        let origin = dies_when_reused();
        let larder = in_front_of(&origin);
        assert_eq!(larder.get("/").text(), "alive");
        wait_for_idle(&larder, 1.0);
        let fields = if method == "POST" || method == "PATCH" { "Content-Length: 0\r\n" } else { "" };
        let response = larder.ask(method, "/", fields);
        assert_eq!((response.status(), origin.total()), (status, requests), "{method}: {:?}", response.head);
    }
}

/// An idle connection that the origin closed is not used at all.
#[test]
fn a_closed_idle_connection_costs_no_request() {
    let origin = not_stored();
    let larder = in_front_of(&origin);
    for round in 1..=3 {
        let response = larder.ask("POST", "/", "Content-Length: 0\r\n");
        assert_eq!(response.status(), 200, "round {round}");
        origin.close_connections();
        wait_for_idle(&larder, 0.0);
    }
}

#[test]
fn a_fresh_connection_that_dies_is_not_retried() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.reset();
    });
    let larder = in_front_of(&origin);
    assert_eq!((larder.get("/").status(), origin.total()), (502, 1));
}

#[test]
fn origins_on_unix_sockets() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let origin = ScriptedOrigin::start_unix(&folder.path().join("app.sock"), |exchange| {
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "over a socket");
    });
    let larder = in_front_of(&origin);
    for hit in [false, true] {
        let response = larder.get("/");
        assert_eq!((response.text().as_str(), response.is_hit()), ("over a socket", hit));
    }
    assert_eq!(origin.last("/").field("host"), "test.example");
}

/// The mock origin with TLS; gives its address.
fn tls_origin(folder: &Path, identity: &testkit::Identity) -> (Service, String) {
    let mut command = Command::new(LARDER);
    command.args(["origin", "--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0", "--tls-cert"]);
    command.arg(&identity.certificate).arg("--tls-key").arg(&identity.key);
    let mut service = Service::start(&mut command, folder, "origin");
    let url = wait::until("the origin listens", || {
        service.assert_runs();
        let text = service.stdout();
        text.split_whitespace().find(|word| word.starts_with("https://")).map(str::to_owned)
    });
    (service, url)
}

#[test]
fn origins_with_tls_are_verified() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_service, url) = tls_origin(folder.path(), &authority.identity(&["127.0.0.1", "inner.example"]));
    let ask = |settings: &str| {
        let config = format!(
            "[[origin]]\nname = \"o\"\nurl = \"{url}\"\n{settings}[[site]]\nname = \"a\"\norigin = \"o\"\n"
        );
        Setup::config(LARDER, &config).start().get("/items/1")
    };
    let ours = format!("ca_file = \"{}\"\n", authority.file().display());
    let other = format!("ca_file = \"{}\"\n", stranger.file().display());
    for (settings, status) in [
        (ours.clone(), 200),
        (format!("{ours}protocol = \"http1\"\n"), 200),
        (format!("{ours}protocol = \"http2\"\n"), 200),
        (format!("{ours}server_name = \"inner.example\"\n"), 200),
        (format!("{ours}server_name = \"outer.example\"\n"), 502),
        (other.clone(), 502),
        (format!("{other}verify = false\n"), 200),
        (String::new(), 502),
    ] {
        let response = ask(&settings);
        assert_eq!(response.status(), status, "{settings:?}: {:?}", response.head);
    }
}

/// Clients that don't read hold nothing that others need, though all share one connection to the origin.
#[test]
fn slow_readers_on_one_http_2_connection() {
    let origin = MockOrigin::start();
    for (round, workers) in [1, 4].into_iter().enumerate() {
        let settings = format!(
            "workers = {workers}\n[[origin]]\nname = \"o\"\nurl = \"@origin@\"\nprotocol = \"http2\"\n\
             [[site]]\nname = \"a\"\norigin = \"o\"\n"
        );
        let larder = with(&settings, &origin.url);
        let mut slow: Vec<Client> = (0..20).map(|_| larder.client()).collect();
        for client in &mut slow {
            client.send("GET /items/1?size=40000000&cc=no-store HTTP/1.1\r\nHost: test.example\r\n\r\n");
            assert_eq!(client.head().status(), 200);
        }
        // The origin stands still for all of them when nothing more comes in.
        let received = || larder.resident_bytes();
        let mut before = 0;
        wait::until_true("the origin is held back", || {
            thread::park_timeout(Duration::from_millis(300));
            received().abs_diff(std::mem::replace(&mut before, received())) < 100_000
        });
        for _ in 0..5 {
            let mut client = larder.client();
            client.wait_at_most(Duration::from_secs(15));
            let small = client.get("/items/2?cc=no-store");
            assert_eq!((small.status(), small.end), (200, End::Complete), "{workers} workers");
        }
        let output =
            run("curl", ["--silent", "--http2-prior-knowledge", "--max-time", "20", &larder.url("/items/3")]);
        assert!(!output.succeeded().stdout.is_empty());
        assert_eq!(origin.count("/items/2?cc=no-store"), 5 * (round + 1));
        assert!(larder.resident_bytes() < 128 << 20, "{} bytes", larder.resident_bytes());
        // And who reads after all gets everything.
        let mut first = slow.swap_remove(0);
        assert_eq!(first.bytes(40_000_000).len(), 40_000_000);
    }
}

/// An origin that does not read the content of requests, and takes it for the next request. It answers
/// that a little later.
fn origin_that_reads_no_content() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut stream = BufReader::new(stream);
                while let Some(target) = target_of_next(&mut stream) {
                    let status =
                        target.rsplit('/').next().and_then(|status| status.parse().ok()).unwrap_or(200);
                    if target.starts_with("/smuggled") {
                        // When the connection has gone to the next client.
                        thread::park_timeout(Duration::from_millis(30));
                    }
                    let length = target.len();
                    let head = format!(
                        "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nCache-Control: no-store\r\n\r\n"
                    );
                    if stream.get_mut().write_all((head + &target).as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!("http://{address}")
}

/// Reads one head, and tells its target.
fn target_of_next(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut first = String::new();
    stream.read_line(&mut first).ok().filter(|bytes| *bytes > 0)?;
    let mut line = String::new();
    while stream.read_line(&mut line).ok()? > 2 {
        line.clear();
    }
    first.split(' ').nth(1).map(str::to_owned)
}

/// Content of one client never becomes a request of the next one, as far as can be known.
//= RFC 9112 section 6.3: bytes after the response are not its
#[test]
fn an_origin_that_does_not_read_content() {
    let url = origin_that_reads_no_content();
    for workers in [1, 4] {
        let larder =
            with(&format!("workers = {workers}\n[[site]]\nname = \"a\"\norigin = \"@origin@\"\n"), &url);
        let content = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
        let mut foreign = 0;
        for round in 0..10 {
            for (method, target) in [
                ("POST", "/page/404"),
                ("POST", "/page/301"),
                ("PUT", "/page/405"),
                ("POST", "/page/500"),
                ("GET", "/page/200"),
                ("DELETE", "/page/204"),
            ] {
                let mut attacker = larder.client();
                attacker.send(format!(
                    "{method} {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{content}",
                    content.len()
                ));
                attacker.head();
                let victim = format!("/victim-{round}");
                foreign += usize::from(larder.get(&victim).text() != victim);
            }
        }
        assert_eq!(foreign, 0, "of 60 victims with {workers} workers");
    }
}

/// How an origin ends a connection with TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    Farewell,
    Silently,
}

/// Answers each connection once, with a body that only the end of the connection ends.
fn tls_origin_that_closes(identity: &testkit::Identity, leave: Leave) -> String {
    let certificates = CertificateDer::pem_file_iter(&identity.certificate).expect("it is a PEM file");
    let certificates = certificates.collect::<Result<Vec<_>, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_file(&identity.key).expect("a private key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has them all")
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .expect("they belong together");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).expect("a configuration");
            let mut tls = rustls::StreamOwned::new(connection, stream);
            let mut request = [0; 4096];
            // A handshake that fails is a matter of the gateway's, whose answer tells.
            let _ = tls.read(&mut request);
            let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nConnection: close\r\n\r\nhello";
            let _ = tls.write_all(head.as_bytes());
            if leave == Leave::Farewell {
                tls.conn.send_close_notify();
            }
            let _ = tls.flush();
        }
    });
    format!("https://{address}")
}

/// With TLS the end of a body can be told from an end that somebody on the way made.
//= RFC 9112 section 8: what the close ends is complete if its header section is
//= RFC 9112 section 8: an incomplete response is recorded as incomplete
#[test]
fn a_body_that_ends_without_close_notify_is_incomplete() {
    let authority = Authority::new();
    let identity = authority.identity(&["127.0.0.1"]);
    for (leave, end) in [(Leave::Farewell, End::Complete), (Leave::Silently, End::Truncated)] {
        let url = tls_origin_that_closes(&identity, leave);
        let ca_file = authority.file();
        let config = format!(
            "[[origin]]\nname = \"o\"\nurl = \"{url}\"\nca_file = \"{}\"\n[[site]]\nname = \"a\"\norigin = \"o\"\n\
             [[site.rule]]\nclose_delimited = \"store\"\n",
            ca_file.display()
        );
        let larder = Setup::config(LARDER, &config).start();
        for is_second in [false, true] {
            let response = larder.get("/");
            assert_eq!((response.status(), response.end), (200, end), "{leave:?}");
            assert_eq!(response.is_hit(), is_second && leave == Leave::Farewell, "{leave:?}");
        }
    }
}

#[test]
fn sites_by_host_and_by_path() {
    let origins: Vec<ScriptedOrigin> = (0..5)
        .map(|number| {
            ScriptedOrigin::start(move |exchange| {
                let body = format!("{number} {}", exchange.request.target());
                exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", body);
            })
        })
        .collect();
    let site = |number: usize, name: &str, settings: &str| {
        format!("[[site]]\nname = \"{name}\"\norigin = \"{}\"\n{settings}\n", origins[number].url())
    };
    let config = [
        site(0, "exact", "hosts = [\"shop.example\"]"),
        site(1, "wildcard", "hosts = [\"*.example\"]"),
        site(2, "api", "hosts = [\"shop.example\"]\npath_prefix = \"/api\"\nstrip_prefix = true"),
        site(3, "kept", "hosts = [\"shop.example\"]\npath_prefix = \"/kept\""),
        format!(
            "[[site]]\nname = \"based\"\norigin = \"{}/base\"\nhosts = [\"based.test\"]\n",
            origins[4].url()
        ),
    ];
    let larder = Setup::config(LARDER, &config.concat()).start();
    let mut client = larder.client();
    for (host, target, body) in [
        ("shop.example", "/x", "0 /x"),
        ("SHOP.example:8080", "/x", "0 /x"),
        ("www.shop.example", "/x", "1 /x"),
        ("other.example", "/api/x", "1 /api/x"),
        ("shop.example", "/api/x?y=/api", "2 /x?y=/api"),
        ("shop.example", "/api", "2 /"),
        ("shop.example", "/apix", "0 /apix"),
        ("shop.example", "/kept/x", "3 /kept/x"),
        ("based.test", "/x", "4 /base/x"),
    ] {
        for _ in 0..2 {
            client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert_eq!(client.response().text(), body, "{host} {target}");
        }
    }
    client.send("GET / HTTP/1.1\r\nHost: unknown.test\r\n\r\n");
    assert_eq!(client.response().status(), 421);
}

#[test]
fn settings_of_an_origin_shape_its_requests() {
    let origin = not_stored();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "user:password\n").expect("a file in the folder");
    let config = format!(
        "[[origin]]\nname = \"o\"\nurl = \"@origin@\"\nhost = \"inner.example\"\nlocal_address = \"127.0.0.2\"\n\
         fields = {{ X-Fixed = \"1\" }}\ncredentials = {{ basic_file = \"{}\" }}\n\
         [[site]]\nname = \"a\"\norigin = \"o\"\nrequest_fields_hidden = [\"Cookie\"]\n",
        secret.display()
    );
    let larder = with(&config, &origin.url());
    larder.ask("GET", "/", "Cookie: a=b\r\nX-Fixed: 2\r\nAuthorization: Basic xxxx\r\nX-Other: 3\r\n");
    let received = origin.last("/");
    for (name, value) in [
        ("host", "inner.example"),
        ("x-fixed", "1"),
        ("authorization", "Basic dXNlcjpwYXNzd29yZA=="),
        ("x-other", "3"),
    ] {
        assert_eq!(received.head.fields.all(name).collect::<Vec<_>>(), [value], "{name}");
    }
    assert!(!received.head.fields.has("cookie"));
}

/// A `[[site]]` in front of the origin with short limits.
const IMPATIENT: &str = "[[origin]]\nname = \"o\"\nurl = \"@origin@\"\n\
    pool = { requests_in_flight_max = 1, queue_max = 1, queue_timeout = \"100ms\" }\n\
    [[site]]\nname = \"a\"\norigin = \"o\"\ntimeouts = { first_byte = \"300ms\", between_bytes = \"300ms\" }\n";

//= RFC 9110 section 15.6.5: 504
#[test]
fn an_origin_that_says_nothing_is_given_up() {
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        match exchange.request.target() {
            "/silent" => {}
            "/length" => drop(
                exchange.head("200 OK", "Content-Length: 10\r\nCache-Control: max-age=60\r\n").send("hello"),
            ),
            _ => drop(exchange.chunked_head("Cache-Control: max-age=60\r\n").chunk("hello")),
        }
        released.pass();
        exchange.close();
    });
    let larder = with(IMPATIENT, &origin.url());
    assert_eq!(larder.get("/silent").status(), 504);
    for target in ["/length", "/chunked"] {
        let response = larder.get(target);
        assert_eq!((response.status(), response.end), (200, End::Truncated), "{target}");
        assert_eq!(origin.count(target), 1);
    }
    gate.open();
}

/// One that never pauses wins no time by it: neither with interim responses nor with a body.
#[test]
fn an_origin_that_never_stops_sending_is_given_up() {
    const LENGTH: usize = 1 << 30;
    let broken_off = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&broken_off);
    let origin = ScriptedOrigin::start(move |exchange| {
        let piece = match exchange.request.target() {
            "/interim" => b"HTTP/1.1 102 Processing\r\n\r\n".repeat(10),
            target => {
                let lifetime = if target.starts_with("/stored") { "max-age=60" } else { "no-store" };
                exchange
                    .head("200 OK", &format!("Content-Length: {LENGTH}\r\nCache-Control: {lifetime}\r\n"));
                vec![b'x'; 64 << 10]
            }
        };
        for _ in 0..LENGTH / piece.len() {
            if exchange.send(&piece).is_broken() {
                count.fetch_add(1, Relaxed);
                break;
            }
        }
        exchange.close();
    });
    for timeout in ["first_byte", "total"] {
        let settings = format!(
            "[[site]]\nname = \"a\"\norigin = \"@origin@\"\n[site.timeouts]\n{timeout} = \"300ms\"\n"
        );
        let larder = with(&settings, &origin.url());
        let begun = Instant::now();
        let mut client = larder.client();
        client.send("POST /interim HTTP/1.0\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        // More interim responses than any origin needs may be an error of their own.
        assert!([502, 504].contains(&client.response().status()), "{timeout}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{timeout}: {:?}", begun.elapsed());
        wait::until_true("the origin is broken off", || broken_off.swap(0, Relaxed) == 1);
        if timeout == "first_byte" {
            continue;
        }
        let cut = || larder.metric("larder_fills_aborted_total", &["reason=\"total-timeout\""]);
        // Whether its client takes all of it, or nothing.
        for (target, cuts) in
            [("/private", 1.0), ("/stored", 2.0), ("/private-slow", 0.0), ("/stored-slow", 0.0)]
        {
            let begun = Instant::now();
            let mut client = larder.client();
            client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            if !target.ends_with("slow") {
                assert_eq!(client.response().end, End::Truncated, "{target}");
                wait::until_true("it is counted", || (cut() - cuts).abs() < 0.5);
            }
            wait::until_true("the origin is broken off", || broken_off.swap(0, Relaxed) == 1);
            assert!(begun.elapsed() < Duration::from_secs(5), "{target}: {:?}", begun.elapsed());
        }
    }
}

#[test]
fn requests_in_flight_at_an_origin_are_limited() {
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        exchange.head("200 OK", "Content-Length: 2\r\nCache-Control: no-store\r\n").send("o");
        released.pass();
        exchange.send("k");
    });
    let settings = IMPATIENT.replace("between_bytes = \"300ms\"", "between_bytes = \"60s\"");
    let larder = with(&settings, &origin.url());
    let mut first = larder.client();
    first.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(first.head().status(), 200);
    let refused = larder.get("/2");
    assert_eq!(refused.status(), 503, "{:?}", refused.head);
    assert!(refused.head.fields.has("retry-after"));
    gate.open();
    assert_eq!(first.bytes(2), b"ok");
    assert_eq!((larder.get("/3").text().as_str(), origin.count("/2")), ("ok", 0));
}

//= RFC 9110 section 15.6.3: 502
#[test]
fn an_unreachable_origin_is_502_and_errors_stay_inside() {
    let port = Port::reserve();
    let origin = format!("http://{}", port.address());
    for (exposed, shows) in [("false", false), ("true", true)] {
        let larder = with(
            &format!("[[site]]\nname = \"a\"\norigin = \"@origin@\"\nexpose_errors = {exposed}\n"),
            &origin,
        );
        let response = larder.get("/");
        assert_eq!(response.status(), 502);
        assert_eq!(response.text().contains("connect"), shows, "{}", response.text());
    }
}

/// A network that delivers a byte or two at a time, late, changes nothing.
#[test]
fn a_slow_and_choppy_network() {
    let body = testkit::Random::new(3).bytes(3000);
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", body.clone());
    let behind = FaultProxy::start(origin.address());
    behind.set(Faults { piece_bytes_max: 7, ..Faults::default() });
    let larder = Setup::origin(LARDER, &behind.url()).start();
    let before = FaultProxy::start(larder.address());
    before.set(Faults { piece_bytes_max: 3, ..Faults::default() });
    let mut client = Client::connect(before.address());
    for hit in [false, true] {
        let response = client.get("/");
        assert!(response.body == body && response.is_hit() == hit, "{:?}", response.head);
    }
}

#[test]
fn what_a_network_does_to_an_origin() {
    let origin = not_stored();
    let proxy = FaultProxy::start(origin.address());
    let larder = with(IMPATIENT, &proxy.url());
    for (faults, status) in [
        (Faults::default(), 200),
        (Faults { delay_ms: 20, ..Faults::default() }, 200),
        (Faults { accept: Accept::Reset, ..Faults::default() }, 502),
        (Faults { cut_request_after: Some(10), ..Faults::default() }, 502),
        (Faults { cut_request_after: Some(10), cut: Cut::Reset, ..Faults::default() }, 502),
        (Faults { cut_response_after: Some(10), cut: Cut::Reset, ..Faults::default() }, 502),
        (Faults { stall: Stall::Yes, ..Faults::default() }, 504),
        (Faults::default(), 200),
    ] {
        proxy.set(faults);
        proxy.close_connections();
        wait_for_idle(&larder, 0.0);
        let response = larder.get("/");
        assert_eq!(response.status(), status, "{faults:?}: {:?}", response.head);
    }
}

/// A forward for one client alone ends when that client leaves: at once if it resets, after a while if it closed and
/// may still read.
#[test]
fn a_client_that_leaves_ends_its_own_forward() {
    let (told, outcome) = std::sync::mpsc::sync_channel(1);
    let origin = ScriptedOrigin::start(move |exchange| {
        exchange.head("200 OK", "Cache-Control: no-store\r\nContent-Length: 10\r\n").send("hello");
        exchange.wait_for_peer();
        told.send(()).expect("the test waits");
        exchange.close();
    });
    let site = format!("[[site]]\nname = \"a\"\norigin = \"{}\"\n", origin.url());
    for (limits, leave) in
        [("", Client::reset as fn(Client)), ("[limits]\nwrite_timeout = \"200ms\"\n", drop::<Client>)]
    {
        let larder = Setup::config(LARDER, &format!("{limits}{site}")).start();
        let mut client = larder.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.head().status(), 200);
        assert_eq!(client.bytes(5), b"hello");
        leave(client);
        outcome.recv_timeout(wait::DEADLINE / 2).expect("the connection to the origin closes");
    }
}

/// Cut at any byte of head and body, a response is never stored and never ends cleanly.
#[test]
fn a_network_that_breaks_anywhere() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.head("200 OK", "Content-Length: 20\r\nCache-Control: max-age=60\r\n").send("x".repeat(20));
    });
    let proxy = FaultProxy::start(origin.address());
    let larder = Setup::origin(LARDER, &proxy.url()).start();
    let whole = "HTTP/1.1 200 OK\r\nContent-Length: 20\r\nCache-Control: max-age=60\r\n\r\n".len() + 20;
    for after in (1..whole).step_by(3) {
        proxy.set(Faults { cut_response_after: Some(after), ..Faults::default() });
        let target = format!("/{after}");
        let mut client = larder.client();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: test.example\r\n\r\n"));
        if let Ok(response) = client.try_response_to("GET") {
            assert!(
                response.status() != 200 || response.end == End::Truncated,
                "after {after}: {:?}",
                response.head
            );
        }
        proxy.set(Faults::default());
        let again = larder.get(&target);
        assert_eq!((again.status(), again.body.len(), again.is_hit()), (200, 20, false), "after {after}");
    }
}

/// The header of version 2 for TCP over IPv4.
fn version_2(command: u8, addresses: &[u8]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    let length = u16::try_from(addresses.len()).expect("a short header");
    header.extend([0x20 | command, 0x11]);
    header.extend(length.to_be_bytes());
    header.extend(addresses);
    header
}

#[test]
fn the_proxy_protocol_names_the_client() {
    let origin = not_stored();
    let larder = with(
        "[[listen]]\naddress = \"@listen@\"\nproxy_protocol = true\n[[site]]\nname = \"a\"\norigin = \"@origin@\"\n",
        &origin.url(),
    );
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let version_2_address = [192, 0, 2, 7, 192, 0, 2, 1, 0x30, 0x39, 0, 80];
    let told_of_tls = |flags| [&version_2_address[..], &[0x20, 0, 5, flags, 0, 0, 0, 0]].concat();
    for (header, client, scheme) in [
        (b"PROXY TCP4 192.0.2.5 192.0.2.1 12345 80\r\n".to_vec(), "192.0.2.5", "http"),
        (b"PROXY TCP6 2001:db8::5 2001:db8::1 12345 80\r\n".to_vec(), "2001:db8::5", "http"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1", "http"),
        (version_2(1, &version_2_address), "192.0.2.7", "http"),
        (version_2(1, &told_of_tls(0)), "192.0.2.7", "http"),
        (version_2(1, &told_of_tls(1)), "192.0.2.7", "https"),
        (version_2(0, &[]), "127.0.0.1", "http"),
    ] {
        let mut client_side = larder.client();
        client_side.send([&header[..], request].concat());
        assert_eq!(client_side.response().status(), 200, "{:?}", String::from_utf8_lossy(&header));
        let asked = origin.last("/");
        assert_eq!((asked.field("x-forwarded-for"), asked.field("x-forwarded-proto")), (client, scheme));
    }
    let before = origin.total();
    let mut long = version_2(1, &version_2_address);
    long.truncate(20);
    for bad in [
        request.to_vec(),
        b"PROXY TCP4 192.0.2.5\r\n".to_vec(),
        b"PROXY TCP4 999.0.2.5 192.0.2.1 12345 80\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.5 192.0.2.1 12345 80\n".to_vec(),
        version_2(5, &version_2_address),
        [b"PROXY ".to_vec(), vec![b'x'; 200]].concat(),
    ] {
        let mut client_side = larder.client();
        let _ = client_side.try_send([&bad[..], request].concat());
        let answer = client_side.rest();
        assert!(!answer.starts_with(b"HTTP/1.1 2"), "{:?}", String::from_utf8_lossy(&bad));
    }
    assert_eq!(origin.total(), before);
}

/// Only balancers name clients: whoever could name one of `trusted_proxies` would be believed everything.
#[test]
fn the_proxy_protocol_is_believed_from_listed_peers_only() {
    let origin = not_stored();
    let version_2 = version_2(1, &[192, 0, 2, 7, 192, 0, 2, 1, 0x30, 0x39, 0, 80]);
    let headers = [b"PROXY TCP4 192.0.2.7 192.0.2.1 12345 80\r\n".to_vec(), version_2];
    for (from, is_believed) in [
        ("", true),
        ("proxy_protocol_from = [\"127.0.0.1\", \"10.0.0.0/8\"]\n", true),
        ("proxy_protocol_from = [\"10.0.0.0/8\", \"192.0.2.0/24\"]\n", false),
        ("proxy_protocol_from = []\n", false),
    ] {
        let config = format!(
            "trusted_proxies = [\"192.0.2.0/24\"]\n[[listen]]\naddress = \"@listen@\"\nproxy_protocol = true\n\
             {from}[[site]]\nname = \"a\"\norigin = \"@origin@\"\n"
        );
        let larder = with(&config, &origin.url());
        for header in &headers {
            let before = origin.total();
            let mut client = larder.client();
            let request = b"GET / HTTP/1.1\r\nHost: a\r\nX-Real-IP: 192.0.2.9\r\nConnection: close\r\n\r\n";
            let _ = client.try_send([&header[..], request].concat());
            let answer = String::from_utf8_lossy(&client.rest()).into_owned();
            assert_eq!(answer.starts_with("HTTP/1.1 200"), is_believed, "{from}: {answer}");
            assert_eq!(origin.total() - before, usize::from(is_believed), "{from}");
            if is_believed {
                assert_eq!(origin.last("/").field("x-real-ip"), "192.0.2.9", "{from}");
            }
        }
        let refused = larder.metric("larder_connections_refused_total", &["reason=\"proxy-peer\""]);
        assert_eq!(refused, if is_believed { 0.0 } else { 2.0 }, "{from}");
        let log = format!("{}{}", larder.stdout(), larder.stderr());
        assert_eq!(log.contains("the peer is not in"), !is_believed, "{from}: {log}");
        // A balancer that is to be told to send it.
        let mut client = larder.client();
        let _ = client.try_send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.rest(), b"", "{from}");
        let without = || larder.metric("larder_connections_refused_total", &["reason=\"proxy-header\""]);
        assert_eq!(without(), f64::from(u8::from(is_believed)), "{from}");
        assert_eq!(larder.stderr().contains("it has no PROXY protocol header"), is_believed, "{from}");
    }
}

#[test]
fn the_proxy_protocol_is_not_believed_where_it_is_not_expected() {
    let origin = not_stored();
    let larder = in_front_of(&origin);
    let mut client = larder.client();
    client.send("PROXY TCP4 192.0.2.5 192.0.2.1 12345 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status(), 400);
    assert_eq!(origin.total(), 0);
}

/// A site whose origin is the gateway itself, through something that the configuration knows nothing of. The first request
/// that comes back ends it, whoever asked, and whatever waits for it.
//= RFC 9110 section 7.6: no message goes round without end
#[test]
fn a_gateway_in_front_of_itself_ends_the_circle() {
    for (workers, rule) in [(1, "cache = false"), (1, "cache = true"), (4, "cache = true")] {
        let port = Port::reserve();
        let proxy = FaultProxy::start(port.address());
        let config = format!(
            "workers = {workers}\nlisten = [\"@listen@\", \"{}\"]\n[[site]]\nname = \"a\"\norigin = \"{}\"\n\
             request_fields_forwarded = [\"X-Other\"]\n[[site.rule]]\n{rule}\n",
            port.address(),
            proxy.url()
        );
        let larder = Setup::config(LARDER, &config).start();
        let began = Instant::now();
        for round in 0..20 {
            assert_eq!(larder.get(&format!("/{}", round / 2)).status(), 508, "{rule}");
        }
        let output = run("curl", ["--silent", "--http2-prior-knowledge", "--head", &larder.url("/h2")]);
        assert!(output.succeeded().text().starts_with("HTTP/2 508"), "{rule}");
        assert!(began.elapsed() < Duration::from_secs(10), "it takes {:?}", began.elapsed());
        assert_eq!(larder.metric("larder_origin_errors_total", &["proxy-loop-detected"]), 21.0);
        assert!(larder.stdout().contains("came back") || larder.stderr().contains("came back"));
    }
}

/// Gateways of one name in a row are no circle.
#[test]
fn a_chain_of_gateways_of_one_name() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "far");
    let mut chain = vec![in_front_of(&origin)];
    for _ in 0..3 {
        let next = chain.last().expect("there is one").url("");
        chain.push(Setup::origin(LARDER, &next).start());
    }
    let response = chain.last().expect("there are four").get("/");
    assert_eq!((response.status(), response.text().as_str()), (200, "far"));
    let seen = origin.last("/");
    let elements: Vec<&str> = seen.field("cdn-loop").split(", ").collect();
    assert_eq!(elements.len(), 4, "{elements:?}");
    let mut distinct = elements.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 4, "each has a number of its own: {elements:?}");
}

/// Warnings about addresses come before the start.
#[test]
fn an_origin_that_is_this_process_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("larder.toml");
    for (listen, origin, is_own) in [
        ("127.0.0.1:8080", "http://127.0.0.1:8080", true),
        ("0.0.0.0:8080", "http://localhost:8080/base", true),
        ("[::]:8080", "http://127.0.0.1:8080", true),
        // The admin API listens there unless somebody says otherwise: clients could purge and reload.
        ("0.0.0.0:8080", "http://127.0.0.1:8081", true),
        ("0.0.0.0:8080", "http://localhost:8081/base", true),
        ("0.0.0.0:8080", "http://127.0.0.1:8082", false),
        ("127.0.0.1:8080", "http://127.0.0.2:8080", false),
        ("0.0.0.0:80", "http://app.example", false),
    ] {
        let text = format!("listen = [\"{listen}\"]\n[[site]]\nname = \"a\"\norigin = \"{origin}\"\n");
        std::fs::write(&file, text).expect("a file in the folder");
        let output = run(LARDER, ["check", &file.display().to_string()]);
        let said = output.text() + &output.stderr;
        assert_eq!(output.status != 0, is_own, "{listen} {origin}: {said}");
        assert_eq!(said.contains("the origin is this process itself"), is_own, "{listen} {origin}: {said}");
    }
}

/// An origin that takes everything on a connection for the one user who has authenticated there, as NTLM has it.
fn authenticates_connections() -> ScriptedOrigin {
    let users = Mutex::new(HashMap::<usize, String>::new());
    ScriptedOrigin::start(move |exchange| {
        let credentials = exchange.request.field("authorization").to_owned();
        let mut users = users.lock().expect("no holder panics");
        let user = users.entry(exchange.request.connection).or_default();
        if let Some((_, name)) = credentials.split_once(' ') {
            name.clone_into(user);
        }
        let user = user.clone();
        if user.is_empty() {
            let challenges =
                "WWW-Authenticate: Basic realm=\"NTLM\", Negotiate\r\nWWW-Authenticate: NTLM\r\n";
            exchange.respond("401 Unauthorized", challenges, "who?");
        } else {
            exchange.respond("200 OK", "Cache-Control: private\r\n", user);
        }
    })
}

/// Field bug: a stranger was the user whose request went over the same connection before.
#[test]
fn a_connection_that_is_one_users_is_nobody_elses() {
    for credentials in ["NTLM alice", "ntlm alice", "Negotiate alice", "Nego2 alice", "Kerberos alice"] {
        for method in ["GET", "POST"] {
            let origin = authenticates_connections();
            let larder = in_front_of(&origin);
            let fields = format!("Authorization: {credentials}\r\nContent-Length: 0\r\n");
            for _ in 0..2 {
                assert_eq!(larder.ask(method, "/", &fields).text(), "alice", "{credentials}");
                let other = larder.get("/");
                assert_eq!(
                    (other.status(), &other.text()[..]),
                    (401, "who?"),
                    "{method} after {credentials}"
                );
            }
            // Neither what carried credentials nor what was challenged is used again.
            assert_eq!((origin.total(), origin.connections()), (4, 4), "{credentials}");
        }
    }
    let origin = authenticates_connections();
    let larder = in_front_of(&origin);
    for _ in 0..2 {
        assert_eq!(larder.ask("GET", "/", "Authorization: Bearer alice\r\n").text(), "alice");
        wait_for_idle(&larder, 1.0);
    }
    assert_eq!(origin.connections(), 1, "credentials of each request are no reason");
}

/// Over HTTP/2 such requests have a connection each.
#[test]
fn credentials_of_a_connection_share_none_over_http_2() {
    let origin = MockOrigin::start();
    let settings = "workers = 1\n[[origin]]\nname = \"o\"\nurl = \"@origin@\"\nprotocol = \"http2\"\n\
                    [[site]]\nname = \"a\"\norigin = \"o\"\n";
    let address = origin.url.strip_prefix("http://").and_then(|address| address.parse().ok());
    let counting = FaultProxy::start(address.expect("an address"));
    let larder = with(settings, &counting.url());
    let opened = || counting.connections();
    let ask = |fields: &str| assert_eq!(larder.ask("GET", "/items/1?cc=no-store", fields).status(), 200);
    ask("");
    ask("Authorization: Bearer a\r\n");
    assert_eq!(opened(), 1);
    for count in [2, 3] {
        ask("Authorization: Negotiate a\r\n");
        ask("");
        assert_eq!(opened(), count, "one for that request alone");
    }
}

/// An answer that nobody asked for says nothing about the next one: those who wait ask in turn, a few at a time.
#[test]
fn a_crowd_asks_an_origin_that_lies_in_turn() {
    let lies =
        [("304 Not Modified", ""), ("304 Not Modified", "Range: bytes=0-2\r\n"), ("206 Partial Content", "")];
    for (lie, asked) in lies {
        let (gate, at_once) = (Gate::new(), Arc::new(AtMost::default()));
        let (passed, counted) = (gate.clone(), Arc::clone(&at_once));
        let origin = ScriptedOrigin::start(move |exchange| {
            counted.enter();
            passed.pass();
            counted.leave();
            match lie {
                "304 Not Modified" => exchange.head(lie, "ETag: \"a\"\r\n"),
                _ => exchange.respond(lie, "Content-Range: bytes 0-2/10\r\nETag: \"a\"\r\n", "abc"),
            };
        });
        let larder = in_front_of(&origin);
        let mut crowd: Vec<_> = (0..20).map(|_| larder.client()).collect();
        for client in &mut crowd {
            client.send(format!("GET / HTTP/1.1\r\nHost: test.example\r\n{asked}\r\n"));
        }
        wait::until_true("they wait", || larder.metric("larder_collapsed_waiters", &[]) == 19.0);
        gate.open();
        for client in &mut crowd {
            assert_eq!(client.response().status(), 502, "{lie} {asked}");
        }
        assert_eq!(origin.total(), 20, "{lie} {asked}");
        assert!(at_once.most() <= 4, "{} at once: {lie} {asked}", at_once.most());
    }
}

/// How many were there at the same time, at most.
#[derive(Default)]
struct AtMost {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl AtMost {
    fn enter(&self) {
        let now = self.now.fetch_add(1, Relaxed) + 1;
        self.most.fetch_max(now, Relaxed);
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Relaxed);
    }

    fn most(&self) -> usize {
        self.most.load(Relaxed)
    }
}
