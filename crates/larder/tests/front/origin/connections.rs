//! The origin side: connections, TLS, sites, limits and timeouts. Also the PROXY protocol, which names clients of balancers in front of the
//! gateway.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use testkit::{
    Authority, Client, End, FaultProxy, Faults, Fields, Identity, Larder, Port, ScriptedOrigin, Setup, run,
    wait,
};

use crate::LARDER;
use crate::cache::basics::{asking, gates, get_of, with};
use crate::tools::mock_origin::MockOrigin;

fn not_stored() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        let body = exchange.request.target().to_owned();
        exchange.respond("200 OK", "Cache-Control: no-store\r\n", body);
    })
}

/// Configuration with one site, whose origin has these settings.
fn config(url: &str, settings: &str) -> String {
    format!("[[site]]\nname = \"a\"\norigin = \"o\"\n[[origin]]\nname = \"o\"\nurl = \"{url}\"\n{settings}\n")
}

pub(super) fn start(url: &str, settings: &str) -> Larder {
    Setup::config(LARDER, &config(url, settings)).start()
}

fn wait_for_idle(larder: &Larder, count: f64) {
    let idle = || larder.metric("larder_origin_connections", &["idle"]);
    wait::until_true("the origin connections are idle", || (idle() - count).abs() < 0.5);
}

#[test]
fn origins_with_tls_are_verified() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let origin = MockOrigin::with_tls(&authority.identity(&["127.0.0.1", "inner.example"]));
    let ours = format!("ca_file = \"{}\"\n", authority.file().display());
    let other = format!("ca_file = \"{}\"\n", stranger.file().display());
    for (settings, status) in [
        (ours.clone(), 200),
        (format!("{ours}protocol = \"http1\""), 200),
        (format!("{ours}protocol = \"http2\""), 200),
        (format!("{ours}server_name = \"inner.example\""), 200),
        (format!("{ours}server_name = \"outer.example\""), 502),
        (other.clone(), 502),
        (format!("{other}verify = false"), 200),
        (String::new(), 502),
    ] {
        let response = start(&origin.url, &settings).get("/items/1");
        assert_eq!(response.status(), status, "{settings:?}: {:?}", response.head);
    }
}

/// Clients that don't read don't block other clients, although all share one connection to the origin.
#[test]
fn slow_readers_on_one_http_2_connection() {
    let origin = MockOrigin::start();
    for (round, workers) in [1, 4].into_iter().enumerate() {
        let settings = config(&origin.url, "protocol = \"http2\"");
        let larder = Setup::config(LARDER, &format!("workers = {workers}\n{settings}")).start();
        let target = "/items/1?size=40000000&cc=no-store";
        let mut slow: Vec<Client> = (0..20).map(|_| asking(&larder, target, "")).collect();
        slow.iter_mut().for_each(|client| assert_eq!(client.head().status(), 200));
        // Memory stops growing once the origin is held back for all of them.
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
        // A client that reads later still gets the whole body.
        let mut first = slow.swap_remove(0);
        assert_eq!(first.bytes(40_000_000).len(), 40_000_000);
    }
}

/// An origin that treats the content of a request as the next request, and answers that a little later. The path ends with the status.
fn origin_that_reads_no_content() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        let target = exchange.request.target().to_owned();
        exchange.request.head.fields = Fields::default();
        if target.starts_with("/smuggled") {
            // By then, the connection serves the next client.
            exchange.delay_ms(30);
        }
        let status = target.rsplit('/').next().and_then(|status| status.parse().ok()).unwrap_or(200);
        let fields = format!("Content-Length: {}\r\nCache-Control: no-store\r\n", target.len());
        exchange.head(&format!("{status} X"), &fields).send(target);
    })
}

/// Content from one client never becomes a request of the next client, as far as the gateway can detect.
//= RFC 9112 section 6.3: bytes after the response are not its
#[test]
fn an_origin_that_does_not_read_content() {
    let origin = origin_that_reads_no_content();
    for workers in [1, 4] {
        let settings = format!("workers = {workers}\n{}", config(&origin.url(), ""));
        let larder = Setup::config(LARDER, &settings).start();
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

/// Sends one response on each connection, with a body that ends with the connection, with or without close_notify.
fn tls_origin_that_closes(identity: &Identity, is_polite: bool) -> String {
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
            // A failed handshake shows in the gateway's response.
            let _ = tls.read(&mut request);
            let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nConnection: close\r\n\r\nhello";
            let _ = tls.write_all(head.as_bytes());
            if is_polite {
                tls.conn.send_close_notify();
            }
            let _ = tls.flush();
        }
    });
    format!("https://{address}")
}

/// TLS distinguishes the end of a body from a connection cut by an attacker.
//= RFC 9112 section 8: what the close ends is complete if its header section is
//= RFC 9112 section 8: an incomplete response is recorded as incomplete
#[test]
fn a_body_that_ends_without_close_notify_is_incomplete() {
    let authority = Authority::new();
    let identity = authority.identity(&["127.0.0.1"]);
    let settings =
        format!("ca_file = \"{}\"\n[[site.rule]]\nclose_delimited = \"store\"", authority.file().display());
    for (is_polite, end) in [(true, End::Complete), (false, End::Truncated)] {
        let larder = start(&tls_origin_that_closes(&identity, is_polite), &settings);
        for is_second in [false, true] {
            let response = larder.get("/");
            assert_eq!((response.status(), response.end), (200, end), "{is_polite}");
            assert_eq!(response.is_hit(), is_second && is_polite, "{is_polite}");
        }
    }
}

/// The origin of each site has its own path, so that the target identifies the site.
#[test]
fn sites_by_host_and_by_path() {
    let origin = not_stored();
    let site = |name: &str, host: &str, more: &str| {
        format!("[[site]]\nname = \"{name}\"\norigin = \"@origin@/{name}\"\nhosts = [\"{host}\"]\n{more}")
    };
    let sites = [
        site("exact", "shop.example", ""),
        site("wildcard", "*.example", ""),
        site("api", "shop.example", "path_prefix = \"/api\"\nstrip_prefix = true\n"),
        site("all", "shop.example", "path_prefix = \"/kept\"\n"),
    ];
    let larder = with(&sites.concat(), &origin);
    for (host, target, body) in [
        ("shop.example", "/x", "/exact/x"),
        ("SHOP.example:8080", "/x", "/exact/x"),
        ("www.shop.example", "/x", "/wildcard/x"),
        ("other.example", "/api/x", "/wildcard/api/x"),
        ("shop.example", "/api/x?y=/api", "/api/x?y=/api"),
        ("shop.example", "/api", "/api/"),
        ("shop.example", "/apix", "/exact/apix"),
        ("shop.example", "/kept/x", "/all/kept/x"),
    ] {
        assert_eq!(get_of(&larder, host, target).text(), body, "{host} {target}");
    }
    assert_eq!(get_of(&larder, "unknown.test", "/").status(), 421);
}

#[test]
fn settings_of_an_origin_shape_its_requests() {
    let origin = not_stored();
    let settings = "host = \"inner.example\"\nlocal_address = \"127.0.0.2\"\nfields = { X-Fixed = \"1\" }\n\
                    credentials = { basic_file = \"@dir@/secret\" }";
    let hidden = "\nrequest_fields_hidden = [\"Cookie\"]\n[[origin]]";
    let config = config(&origin.url(), settings).replace("\n[[origin]]", hidden);
    let larder = Setup::config(LARDER, &config).file("secret", "user:password\n").start();
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

//= RFC 9110 section 15.6.5: 504
#[test]
fn an_origin_that_says_nothing_is_given_up() {
    let (gate, passed) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        match exchange.request.target() {
            "/silent" => {}
            "/length" => {
                _ = exchange.head("200 OK", "Content-Length: 10\r\nCache-Control: max-age=60\r\n").send("x")
            }
            _ => _ = exchange.chunked_head("Cache-Control: max-age=60\r\n").chunk("hello"),
        }
        passed.pass();
        exchange.close();
    });
    let timeouts = "[site.timeouts]\nfirst_byte = \"300ms\"\nbetween_bytes = \"300ms\"";
    let larder = start(&origin.url(), timeouts);
    assert_eq!(larder.get("/silent").status(), 504);
    for target in ["/length", "/chunked"] {
        let response = larder.get(target);
        assert_eq!((response.status(), response.end), (200, End::Truncated), "{target}");
        assert_eq!(origin.count(target), 1);
    }
    gate.open();
}

/// An origin that never pauses gains no time, whether the client reads everything or nothing.
#[test]
fn an_origin_that_never_stops_sending_is_given_up() {
    const LENGTH: usize = 1 << 30;
    let broken_off = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&broken_off);
    let origin = ScriptedOrigin::start(move |exchange| {
        let lifetime =
            if exchange.request.target().starts_with("/stored") { "max-age=60" } else { "no-store" };
        exchange.head("200 OK", &format!("Content-Length: {LENGTH}\r\nCache-Control: {lifetime}\r\n"));
        let piece = vec![b'x'; 64 << 10];
        let is_cut = (0..LENGTH / piece.len()).any(|_| exchange.send(&piece).is_broken());
        count.fetch_add(usize::from(is_cut), Relaxed);
        exchange.close();
    });
    let larder = start(&origin.url(), "[site.timeouts]\ntotal = \"300ms\"");
    let cut = || larder.metric("larder_fills_aborted_total", &["reason=\"total-timeout\""]);
    for (target, cuts) in [("/private", 1.0), ("/stored", 2.0), ("/private-slow", 0.0), ("/stored-slow", 0.0)]
    {
        let begun = Instant::now();
        let mut client = asking(&larder, target, "");
        if !target.ends_with("slow") {
            assert_eq!(client.response().end, End::Truncated, "{target}");
            wait::until_true("it is counted", || (cut() - cuts).abs() < 0.5);
        }
        wait::until_true("the origin is cut off", || broken_off.swap(0, Relaxed) == 1);
        assert!(begun.elapsed() < Duration::from_secs(5), "{target}: {:?}", begun.elapsed());
    }
}

/// A forward for one client alone ends when that client leaves: immediately after a reset, and after a timeout if the client closed and may
/// still read.
#[test]
fn a_client_that_leaves_ends_its_own_forward() {
    let (told, outcome) = std::sync::mpsc::sync_channel(1);
    let origin = ScriptedOrigin::start(move |exchange| {
        exchange.head("200 OK", "Cache-Control: no-store\r\nContent-Length: 10\r\n").send("hello");
        exchange.wait_for_peer();
        told.send(()).expect("the test waits");
        exchange.close();
    });
    for (limits, leave) in
        [("", Client::reset as fn(Client)), ("[limits]\nwrite_timeout = \"200ms\"", drop::<Client>)]
    {
        let larder = start(&origin.url(), limits);
        let mut client = asking(&larder, "/", "");
        assert_eq!(client.head().status(), 200);
        assert_eq!(client.bytes(5), b"hello");
        leave(client);
        outcome.recv_timeout(wait::DEADLINE / 2).expect("the connection to the origin closes");
    }
}

/// A response cut at any byte of its head or body is never stored and never ends cleanly.
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
        if let Ok(response) = asking(&larder, &target, "").try_response_to("GET") {
            let is_cut = response.status() != 200 || response.end == End::Truncated;
            assert!(is_cut, "after {after}: {:?}", response.head);
        }
        proxy.set(Faults::default());
        let again = larder.get(&target);
        assert_eq!((again.status(), again.body.len(), again.is_hit()), (200, 20, false), "after {after}");
    }
}

/// A version 2 header for TCP over IPv4 from 192.0.2.7, with these extensions.
fn version_2(extensions: &[u8]) -> Vec<u8> {
    let addresses = [192, 0, 2, 7, 192, 0, 2, 1, 0x30, 0x39, 0, 80];
    let length = u8::try_from(addresses.len() + extensions.len()).expect("a short header");
    [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0", &[length][..], &addresses, extensions].concat()
}

/// A gateway that expects the header, with these settings of its listener.
fn behind_a_balancer(origin: &ScriptedOrigin, settings: &str) -> Larder {
    let listen = "trusted_proxies = [\"192.0.2.0/24\"]\n\
        [[listen]]\naddress = \"@listen@\"\nproxy_protocol = true\n";
    Setup::config(LARDER, &format!("{listen}{settings}{}", config(&origin.url(), ""))).start()
}

/// Sends a request behind a header, and returns everything up to the end of the connection.
fn answer_behind(larder: &Larder, header: &[u8]) -> String {
    let mut client = larder.client();
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nX-Real-IP: 192.0.2.9\r\nConnection: close\r\n\r\n";
    let _ = client.try_send([header, request].concat());
    String::from_utf8_lossy(&client.rest()).into_owned()
}

#[test]
fn the_proxy_protocol_names_the_client() {
    let origin = not_stored();
    let larder = behind_a_balancer(&origin, "");
    let told_of_tls = |flags| version_2(&[0x20, 0, 5, flags, 0, 0, 0, 0]);
    for (header, client, scheme) in [
        (b"PROXY TCP4 192.0.2.5 192.0.2.1 12345 80\r\n".to_vec(), "192.0.2.5", "http"),
        (b"PROXY TCP6 2001:db8::5 2001:db8::1 12345 80\r\n".to_vec(), "2001:db8::5", "http"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1", "http"),
        (told_of_tls(0), "192.0.2.7", "http"),
        (told_of_tls(1), "192.0.2.7", "https"),
    ] {
        assert!(answer_behind(&larder, &header).starts_with("HTTP/1.1 200"), "{}", header.escape_ascii());
        let asked = origin.last("/");
        assert_eq!((asked.field("x-forwarded-for"), asked.field("x-forwarded-proto")), (client, scheme));
    }
    let before = origin.total();
    for bad in [&b"PROXY TCP4 192.0.2.5\r\n"[..], &version_2(&[])[..20], &[b'x'; 200]] {
        assert!(!answer_behind(&larder, bad).starts_with("HTTP/1.1 2"), "{}", bad.escape_ascii());
    }
    assert_eq!(origin.total(), before);
}

/// Only listed balancers may name clients: otherwise any peer could claim an address in `trusted_proxies` and be trusted.
#[test]
fn the_proxy_protocol_is_believed_from_listed_peers_only() {
    let origin = not_stored();
    let headers = [b"PROXY TCP4 192.0.2.7 192.0.2.1 12345 80\r\n".to_vec(), version_2(&[])];
    for (from, is_believed) in [
        ("", true),
        ("proxy_protocol_from = [\"127.0.0.1\", \"10.0.0.0/8\"]\n", true),
        ("proxy_protocol_from = [\"10.0.0.0/8\", \"192.0.2.0/24\"]\n", false),
        ("proxy_protocol_from = []\n", false),
    ] {
        let larder = behind_a_balancer(&origin, from);
        let refused = |reason: &str| {
            larder.metric("larder_connections_refused_total", &[&format!("reason=\"{reason}\"")])
        };
        for header in &headers {
            let before = origin.total();
            let answer = answer_behind(&larder, header);
            assert_eq!(answer.starts_with("HTTP/1.1 200"), is_believed, "{from}: {answer}");
            assert_eq!(origin.total() - before, usize::from(is_believed), "{from}");
            assert!(!is_believed || origin.last("/").field("x-real-ip") == "192.0.2.9", "{from}");
        }
        assert_eq!(refused("proxy-peer"), if is_believed { 0.0 } else { 2.0 }, "{from}");
        // A request without a header, as from a balancer that isn't configured to send it.
        assert_eq!(answer_behind(&larder, b""), "", "{from}");
        assert_eq!(refused("proxy-header"), f64::from(u8::from(is_believed)), "{from}");
        let log = format!("{}{}", larder.stdout(), larder.stderr());
        assert_eq!(log.contains("the peer is not in"), !is_believed, "{from}: {log}");
        assert_eq!(log.contains("it has no PROXY protocol header"), is_believed, "{from}: {log}");
    }
    let unexpecting = start(&origin.url(), "");
    assert!(answer_behind(&unexpecting, &headers[0]).starts_with("HTTP/1.1 400"), "it is no request");
}

/// A site whose origin is the gateway itself, through a proxy that the configuration doesn't mention. The first request that comes back
/// ends the loop, whichever client sent it and whatever waits for it.
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
        assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
        assert_eq!(larder.metric("larder_origin_errors_total", &["proxy-loop-detected"]), 21.0);
        assert!(larder.stdout().contains("came back") || larder.stderr().contains("came back"));
    }
}

/// An origin that attributes all requests on a connection to the user who authenticated there, as NTLM does.
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

/// Field bug: a client without credentials was treated as the user whose request used the same connection before.
#[test]
fn a_connection_that_is_one_users_is_nobody_elses() {
    for credentials in ["NTLM alice", "ntlm alice", "Negotiate alice", "Nego2 alice", "Kerberos alice"] {
        for method in ["GET", "POST"] {
            let origin = authenticates_connections();
            let larder = start(&origin.url(), "");
            let fields = format!("Authorization: {credentials}\r\nContent-Length: 0\r\n");
            for _ in 0..2 {
                assert_eq!(larder.ask(method, "/", &fields).text(), "alice", "{credentials}");
                let other = larder.get("/");
                let other = (other.status(), other.text());
                assert_eq!(other, (401, "who?".to_owned()), "{method} after {credentials}");
            }
            // Connections that carried credentials or a challenge aren't reused.
            assert_eq!((origin.total(), origin.connections()), (4, 4), "{credentials}");
        }
    }
    let origin = authenticates_connections();
    let larder = start(&origin.url(), "");
    for _ in 0..2 {
        assert_eq!(larder.ask("GET", "/", "Authorization: Bearer alice\r\n").text(), "alice");
        wait_for_idle(&larder, 1.0);
    }
    assert_eq!(origin.connections(), 1, "credentials for one request don't prevent reuse");
}

/// Over HTTP/2, each such request has its own connection.
#[test]
fn credentials_of_a_connection_share_none_over_http_2() {
    let origin = MockOrigin::start();
    let address = origin.url.strip_prefix("http://").and_then(|address| address.parse().ok());
    let counting = FaultProxy::start(address.expect("an address"));
    let settings = format!("workers = 1\n{}", config(&counting.url(), "protocol = \"http2\""));
    let larder = Setup::config(LARDER, &settings).start();
    let opened = || counting.connections();
    let ask = |fields: &str| assert_eq!(larder.ask("GET", "/items/1?cc=no-store", fields).status(), 200);
    ask("");
    ask("Authorization: Bearer a\r\n");
    assert_eq!(opened(), 1);
    for count in [2, 3] {
        ask("Authorization: Negotiate a\r\n");
        ask("");
        assert_eq!(opened(), count, "one for each such request");
    }
}
