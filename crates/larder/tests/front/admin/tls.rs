//! TLS as operators see it: sessions across reloads, failed handshakes, expiry of certificates, and memory for clients that don't
//! read.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use testkit::{Authority, Identity, Larder, ScriptedOrigin, run};

use crate::LARDER;
use crate::admin::access_log::logged;
use crate::admin::operator::{SITE, echoing, named, reload, site, start};

pub(crate) fn listener_with(certificates: &[&Identity]) -> String {
    let one = |Identity { certificate, key }: &&Identity| {
        let (certificate, key) = (certificate.display(), key.display());
        format!("[[listen.certificates]]\ncert = \"{certificate}\"\nkey = \"{key}\"\n")
    };
    "[[listen]]\naddress = \"@listen@\"\n".to_owned() + &certificates.iter().map(one).collect::<String>()
}

/// A TLS client that can resume sessions.
pub(crate) fn tls_client(authority: &Authority) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(authority.file()).expect("a certificate");
    roots.add(certificate).expect("a certificate authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has them all")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

fn connect(client: &Arc<ClientConfig>, larder: &Larder) -> StreamOwned<ClientConnection, TcpStream> {
    let name = "a.example".try_into().expect("a server name");
    let connection = ClientConnection::new(Arc::clone(client), name).expect("a configuration");
    StreamOwned::new(connection, TcpStream::connect(larder.address()).expect("it listens"))
}

/// Sends a request on a new connection, and returns whether the connection resumed a session.
fn resumes(client: &Arc<ClientConfig>, larder: &Larder) -> bool {
    let mut tls = connect(client, larder);
    tls.write_all(b"GET /hit HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut response = String::new();
    tls.read_to_string(&mut response).expect("it answers and sends close_notify");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    tls.conn.handshake_kind() == Some(HandshakeKind::Resumed)
}

/// Tickets stay valid as long as the certificates with which they were issued.
#[test]
fn tls_sessions_outlive_a_reload_that_changes_no_certificate() {
    let (origin, authority) = (echoing(), Authority::new());
    let first = authority.identity(&["a.example"]);
    let other = authority.identity(&["*.other.example", "a.example"]);
    for workers in [1, 4] {
        let text = |certificate, name: &str| {
            let text =
                named(&origin, name).replace("[[site]]", &(listener_with(&[certificate]) + "[[site]]"));
            format!("workers = {workers}\n{text}")
        };
        let mut larder = start(&text(&first, "before"));
        let client = tls_client(&authority);
        assert!(!resumes(&client, &larder), "a new client has no ticket");
        assert!(resumes(&client, &larder));
        for round in 0..5 {
            larder.write_config(&text(&first, &format!("round-{round}")));
            reload(&larder);
            assert!(resumes(&client, &larder), "round {round} with {workers} workers");
        }
        larder.write_config(&text(&other, "other"));
        reload(&larder);
        assert!(!resumes(&client, &larder), "the client must see the new certificate");
        assert!(resumes(&client, &larder));
    }
}

/// Opens a connection that has read one response. The returned closure requests a large one, which isn't read.
fn reads_nothing_more(client: &Arc<ClientConfig>, larder: &Larder) -> impl FnMut() + use<> {
    let mut tls = connect(client, larder);
    tls.write_all(b"GET /small HTTP/1.1\r\nHost: a.example\r\n\r\n").expect("it reads");
    assert!(tls.read(&mut [0; 4096]).expect("it answers") > 0);
    move || tls.write_all(b"GET /large HTTP/1.1\r\nHost: a.example\r\n\r\n").expect("it reads")
}

/// Encrypted bytes for a client that doesn't read are a copy outside the budget, so they are limited to one TLS record.
#[test]
fn little_is_encrypted_for_clients_that_do_not_read() {
    const CLIENTS: usize = 200;
    testkit::raise_open_files_limit();
    let large = vec![b'x'; 16 << 20];
    let origin = ScriptedOrigin::start(move |exchange| {
        let body = if exchange.request.target() == "/large" { &large[..] } else { b"small" };
        exchange.respond("200 OK", "Cache-Control: max-age=600\r\n", body);
    });
    let authority = Authority::new();
    let listener = listener_with(&[&authority.identity(&["a.example"])]);
    let larder = start(&format!("workers = 1\n{listener}{}", site(&origin, "")));
    let client = tls_client(&authority);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| reads_nothing_more(&client, &larder)).collect();
    clients[0]();
    larder.wait_for("larder_store_bytes", &["stored"], |stored| stored > f64::from(16 << 20));
    let before = larder.resident_bytes();
    clients[1..].iter_mut().for_each(|ask| ask());
    // With one worker, everything writable has been written before these are answered.
    (0..40).for_each(|_| drop(reads_nothing_more(&client, &larder)));
    let each = larder.resident_bytes().saturating_sub(before) / CLIENTS as u64;
    drop(clients);
    larder.wait_for("larder_requests_total", &["error"], |broken| broken == CLIENTS as f64);
    eprintln!("{} KiB for each", each >> 10);
    // 38 KiB as measured; 63 KiB if four times as much were encrypted at once.
    assert!(each < 48 << 10, "{} KiB for each", each >> 10);
}

/// Field bug: failed handshakes weren't counted, and plain HTTP on a TLS address wasn't logged.
#[test]
fn failed_handshakes_are_counted() {
    let (origin, authority) = (ScriptedOrigin::fixed("", "x"), Authority::new());
    let listener = listener_with(&[&authority.identity(&["a.example"])]);
    let log = "[log]\naccess = \"stdout\"\nlevel = \"debug\"\n";
    let larder = start(&format!("{log}{listener}{}", site(&origin, "")));
    let curl = |more: &[&str]| {
        let port = larder.address().port();
        let resolve = format!("a.example:{port}:127.0.0.1");
        let url = format!("https://a.example:{port}/");
        run("curl", [&["--silent", "--max-time", "30", "--resolve", &resolve, &url], more].concat())
    };
    let trusted = authority.file().display().to_string();
    assert_eq!(curl(&["--cacert", &trusted]).succeeded().text(), "x");
    assert_ne!(curl(&[]).status, 0, "curl doesn't know the authority");
    // Bytes that aren't a TLS record, and a record that is cut short.
    larder.client().send(b"\x16\x09\x09\x00\x05hello").rest();
    let mut cut = larder.client();
    cut.send(b"\x16\x03\x01\x02\x00\x01").finish_sending();
    cut.rest();
    for reason in ["certificate-refused", "not-tls", "client-closed"] {
        larder.wait_for("larder_tls_handshakes_failed_total", &[reason], |failed| failed == 1.0);
    }
    assert!(larder.stderr().contains("TLS handshake failed"), "{}", larder.stderr());
    assert_eq!(larder.get("/").status(), 400);
    let line = logged(&larder, &[("cache_status", "plain-http")]);
    assert!(line["status"] == 400 && line["client"] == "127.0.0.1", "{line}");
}

const DAY: Duration = Duration::from_secs(86_400);

fn expiry(larder: &Larder, host: &str) -> f64 {
    larder.metric("larder_certificate_expiry_timestamp_seconds", &[&format!("{{host=\"{host}\"}}")])
}

/// Field bug: the expiry of a certificate went unnoticed until clients refused it.
#[test]
fn the_end_of_each_certificate_is_told() {
    let (authority, now) = (Authority::new(), SystemTime::now());
    let first = authority.identity_for(&["A.example", "b.example"], now - DAY..now + DAY);
    let second = authority.identity_for(&["*.shop.example"], now - 2 * DAY..now - DAY);
    // The first certificate is used for both of its names.
    let unused = authority.identity_for(&["b.example", "a.example"], now - DAY..now + 9 * DAY);
    let larder = start(&(listener_with(&[&first, &second, &unused]) + SITE));
    let told = || ["a.example", "*.shop.example", "b.example"].map(|host| expiry(&larder, host));
    let seconds = |end: SystemTime| {
        let since = end.duration_since(SystemTime::UNIX_EPOCH).expect("not so old");
        f64::from(u32::try_from(since.as_secs()).expect("this century"))
    };
    // The certificate of `a.example` is also used for `b.example`.
    assert_eq!(told(), [seconds(now + DAY), seconds(now - DAY), 0.0]);
    authority.identity_for(&["A.example", "b.example"], now - DAY..now + 90 * DAY);
    reload(&larder);
    assert_eq!(told(), [seconds(now + 90 * DAY), seconds(now - DAY), 0.0]);
}

/// The unit tests of certificates test other dates.
#[test]
fn certificates_that_clients_refuse_are_told() {
    let (authority, now) = (Authority::new(), SystemTime::now());
    let last_second = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    let check = |valid: [SystemTime; 2], expected: &str| {
        let identity = authority.identity_for(&["a.example"], valid[0]..valid[1]);
        let larder = start(&(listener_with(&[&identity]) + SITE));
        let file = larder.folder().join("larder.toml").display().to_string();
        let expected = expected.replace("FILE", &identity.certificate.display().to_string());
        for said in [run(LARDER, ["check", &file]).succeeded().text(), larder.stderr()] {
            let is_told = said.contains("the certificate in");
            assert!(is_told != expected.is_empty() && said.contains(&expected), "{expected}: {said}");
        }
        let looked = run(LARDER, ["doctor", &file]);
        assert!([0, 1].contains(&looked.status), "{}", looked.stderr);
    };
    let refused = |why: &str, date| {
        format!("clients refuse the certificate in FILE: it {why} {}", httpdate::fmt_http_date(date))
    };
    check([now - DAY, now + DAY], "");
    check([now - DAY, last_second], "");
    check([now - 2 * DAY, now - DAY], &refused("expired on", now - DAY));
    check([now + DAY, now + 2 * DAY], &refused("is not valid before", now + DAY));
}
