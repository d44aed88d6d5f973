//! What is counted and logged of requests that do not end as most do, and of what goes on now.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::Value;
use testkit::{
    Authority, Client, Gate, Identity, KvService, Larder, ScriptedOrigin, Setup, Signal, Successor, run, wait,
};

use crate::LARDER;

/// An HTTP/2 connection with one request, `GET /http2` of the host `a`: preface, SETTINGS, HEADERS.
const HTTP2_GET: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\
    \0\0\x0d\x01\x05\0\0\0\x01\x82\x86\x04\x06/http2\x01\x01a";
/// CANCEL for its stream.
const HTTP2_CANCEL: &[u8] = b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08";

fn gateway(origin: &ScriptedOrigin, more: &str) -> Larder {
    let config = format!(
        "[log]\naccess = \"stdout\"\n{more}\n[[site]]\nname = \"shop\"\norigin = \"{}\"\n\
         [[site.rule]]\nname = \"all\"\npath = {{ prefix = \"/\" }}\n",
        origin.url()
    );
    Setup::config(LARDER, &config).start()
}

/// The last line of the access log in which a field has this value.
fn logged(larder: &Larder, field: &str, value: &str) -> Value {
    wait::until("a line of the log", || {
        let lines = larder.stdout();
        let mut records = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        records.rfind(|record| record[field] == value)
    })
}

struct Left {
    target: &'static str,
    request: &'static [u8],
    leave: fn(Client),
    reason: &'static str,
}

impl Left {
    fn check(&self, larder: &Larder, origin: &ScriptedOrigin) {
        let &Self { target, reason, .. } = self;
        let [answered, ruled, refused] = counted(larder, reason);
        let mut client = larder.client();
        client.send(self.request);
        origin.wait_for(target, 1);
        (self.leave)(client);
        let line = logged(larder, "target", target);
        let told = (&line["status"], &line["cache"], &line["site"], &line["cache_status"]);
        let detail = format!("larder; detail={reason}");
        assert_eq!(
            told,
            (&Value::from(499), &Value::from("error"), &Value::from("shop"), &Value::from(detail)),
            "{target}: {line}"
        );
        assert!(line["duration_seconds"].as_f64() > Some(0.0), "{line}");
        assert_eq!(counted(larder, reason), [answered + 1.0, ruled + 1.0, refused + 1.0], "{target}");
    }
}

fn counted(larder: &Larder, reason: &str) -> [f64; 3] {
    [
        larder.metric("larder_requests_total", &["site=\"shop\"", "status=\"499\"", "cache=\"error\""]),
        larder.metric("larder_rule_requests_total", &["rule=\"all\"", "cache=\"error\""]),
        larder.metric("larder_client_errors_total", &[&format!("reason=\"{reason}\"")]),
    ]
}

/// Field bug: a request whose client had left before its response began was in no log and no figure.
#[test]
fn clients_that_leave_before_their_response_are_counted() {
    const UPLOAD: &[u8] = b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345";
    let cases = [
        Left {
            target: "/get",
            request: b"GET /get HTTP/1.1\r\nHost: a\r\n\r\n",
            leave: Client::reset,
            reason: "client-closed",
        },
        Left { target: "/upload", request: UPLOAD, leave: drop, reason: "client-closed" },
        Left {
            target: "/http2",
            request: HTTP2_GET,
            leave: |mut client| drop(client.try_send(HTTP2_CANCEL)),
            reason: "client-reset",
        },
    ];
    let gate = Gate::new();
    let held = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        held.pass();
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "x");
    });
    let larder = gateway(&origin, "");
    cases.iter().for_each(|case| case.check(&larder, &origin));
    // One that waits for the forward of another.
    let mut leader = larder.client();
    leader.send("GET /shared HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_for("/shared", 1);
    let mut waiter = larder.client();
    waiter.send("GET /shared HTTP/1.1\r\nHost: a\r\n\r\n");
    wait::until_true("it waits", || larder.metric("larder_collapsed_waiters", &[]) == 1.0);
    waiter.reset();
    assert_eq!(logged(&larder, "target", "/shared")["status"], 499);
    gate.open();
    assert_eq!(leader.response().status(), 200);
}

/// Field bug: nothing was ever in flight, and fills waited while their bodies came.
#[test]
fn what_goes_on_now_is_told() {
    const REQUESTS: usize = 4;
    let gate = Gate::new();
    let steps = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        steps.pass_step(1);
        exchange.head("200 OK", "Content-Length: 4\r\nCache-Control: max-age=60\r\n").send("ab");
        steps.pass_step(2);
        exchange.send("cd");
    });
    let larder = gateway(&origin, "");
    let now = || {
        let fills = |state: &str| larder.metric("larder_fills", &[&format!("state=\"{state}\"")]);
        [larder.metric("larder_requests_in_flight", &[]), fills("waiting"), fills("streaming")]
    };
    assert_eq!(now(), [0.0; 3]);
    let mut clients: Vec<Client> = (0..REQUESTS).map(|_| larder.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    wait::until_true("heads are waited for", || now() == [4.0, 4.0, 0.0]);
    let admin = format!("http://{}", larder.admin());
    let status = run(LARDER, ["status", "--admin", &admin]).succeeded().text();
    assert!(status.contains("; 4 in flight"), "{status}");
    gate.reach(1);
    wait::until_true("bodies are on their way", || now() == [4.0, 0.0, 4.0]);
    gate.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.response().text(), "abcd"));
    wait::until_true("all is over", || now() == [0.0; 3]);
}

/// Field bug: segments counted as stored responses.
#[test]
fn evictions_are_of_responses() {
    const RESPONSES: u32 = 60;
    let body = vec![b'x'; 1 << 20];
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=3600\r\n", body.clone());
    let larder = gateway(&origin, "[store]\nmemory = \"16MiB\"");
    for number in 0..RESPONSES {
        assert_eq!(larder.get(&format!("/{number}")).body.len(), body.len());
    }
    let gone = || larder.metric("larder_store_evictions_total", &[]);
    let here = || larder.metric("larder_store_entries", &[]);
    wait::until_true("the last is stored", || gone() + here() == f64::from(RESPONSES));
    assert!(larder.metric("larder_store_segments_evicted_bytes_total", &[]) > 0.0);
}

/// Field bug: notes that responses for a key aren't stored were counted as stored responses, and variants as one.
#[test]
fn notes_are_no_responses() {
    let origin = ScriptedOrigin::start(|exchange| {
        let is_stored = exchange.request.target().starts_with("/stored");
        let control = if is_stored { "max-age=60" } else { "no-store" };
        exchange.respond("200 OK", &format!("Cache-Control: {control}\r\nVary: Accept-Language\r\n"), "x");
    });
    let larder = gateway(&origin, "");
    for (target, language) in [("/stored", "de"), ("/stored", "en"), ("/a", "de"), ("/b", "de"), ("/c", "de")]
    {
        larder.ask("GET", target, &format!("Accept-Language: {language}\r\n"));
    }
    let counts = || ["entries", "notes"].map(|what| larder.metric(&format!("larder_store_{what}"), &[]));
    wait::until_true("two variants are stored, and three keys noted", || counts() == [2.0, 3.0]);
    let admin = format!("http://{}", larder.admin());
    let status = run(LARDER, ["status", "--admin", &admin]).succeeded().text();
    assert!(status.contains("\nstore: 2 responses, "), "{status}");
}

/// Field bug: failed handshakes were counted nowhere, and HTTP on an address for TLS was in no log.
#[test]
fn failed_handshakes_are_counted() {
    let origin = ScriptedOrigin::fixed("", "x");
    let authority = Authority::new();
    let identity = authority.identity(&["a.example"]);
    let config = format!(
        "[log]\naccess = \"stdout\"\nlevel = \"debug\"\n[[listen]]\naddress = \"@listen@\"\n[[listen.certificates]]\n\
         cert = \"{}\"\nkey = \"{}\"\n[[site]]\nname = \"a\"\norigin = \"{}\"\n",
        identity.certificate.display(),
        identity.key.display(),
        origin.url()
    );
    let larder = Setup::config(LARDER, &config).start();
    let failed = |reason: &str| {
        larder.metric("larder_tls_handshakes_failed_total", &[&format!("reason=\"{reason}\"")])
    };
    let curl = |more: &[&str]| {
        let port = larder.address().port();
        let resolve = format!("a.example:{port}:127.0.0.1");
        let url = format!("https://a.example:{port}/");
        run("curl", [&["--silent", "--max-time", "30", "--resolve", &resolve, &url], more].concat())
    };
    let trusted = authority.file().display().to_string();
    assert_eq!(curl(&["--cacert", &trusted]).succeeded().text(), "x");
    assert_ne!(curl(&[]).status, 0, "nobody else knows the authority");
    // Bytes of no record, and a record that is cut short.
    let mut garbage = larder.client();
    garbage.send(b"\x16\x09\x09\x00\x05hello");
    garbage.rest();
    let mut cut = larder.client();
    cut.send(b"\x16\x03\x01\x02\x00\x01");
    cut.finish_sending();
    cut.rest();
    for reason in ["certificate-refused", "not-tls", "client-closed"] {
        wait::until_true(reason, || failed(reason) == 1.0);
    }
    assert!(larder.stderr().contains("TLS handshake failed"), "{}", larder.stderr());
    let mut plain = larder.client();
    plain.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert_eq!(plain.response().status(), 400);
    let line = logged(&larder, "cache_status", "plain-http");
    assert_eq!((&line["status"], &line["client"]), (&Value::from(400), &Value::from("127.0.0.1")), "{line}");
}

/// A listener with these certificates.
fn listener_with(certificates: &[&Identity]) -> String {
    let of = |Identity { certificate, key }: &&Identity| {
        let (certificate, key) = (certificate.display(), key.display());
        format!("[[listen.certificates]]\ncert = \"{certificate}\"\nkey = \"{key}\"\n")
    };
    "[[listen]]\naddress = \"@listen@\"\n".to_owned() + &certificates.iter().map(of).collect::<String>()
}

const SITE: &str = "[[site]]\nname = \"a\"\norigin = \"http://127.0.0.1:1\"\n";
const DAY: Duration = Duration::from_secs(86_400);

/// Field bug: nobody was told when a certificate ends before clients refused it.
#[test]
fn the_end_of_each_certificate_is_told() {
    let (authority, now) = (Authority::new(), SystemTime::now());
    let first = authority.identity_for(&["A.example", "b.example"], now - DAY..now + DAY);
    let second = authority.identity_for(&["*.shop.example"], now - 2 * DAY..now - DAY);
    // The first one answers both of its names.
    let unused = authority.identity_for(&["b.example", "a.example"], now - DAY..now + 9 * DAY);
    let text = listener_with(&[&first, &second, &unused]) + SITE;
    let larder = Setup::config(LARDER, &text).start();
    let told = |host: &str| {
        let label = format!("{{host=\"{host}\"}}");
        larder.metric("larder_certificate_expiry_timestamp_seconds", &[&label])
    };
    let seconds = |end: SystemTime| end.duration_since(SystemTime::UNIX_EPOCH).expect("not so old").as_secs();
    let expected = |end: SystemTime| f64::from(u32::try_from(seconds(end)).expect("this century"));
    assert_eq!([told("a.example"), told("*.shop.example")], [now + DAY, now - DAY].map(expected));
    assert_eq!(told("b.example"), 0.0, "it answers as `a.example`");
    authority.identity_for(&["A.example", "b.example"], now - DAY..now + 90 * DAY);
    assert_eq!(larder.ask_admin("POST", "/reload", "").status(), 200);
    assert_eq!([told("a.example"), told("*.shop.example")], [now + 90 * DAY, now - DAY].map(expected));
}

/// Makes something else of the end of a certificate, the last second of the year 9999: what no library writes.
fn end_at(certificate: &Path, text: &[u8; 15]) {
    let mut der = CertificateDer::from_pem_file(certificate).expect("it is a PEM file").to_vec();
    let at = der.windows(15).position(|part| part == b"99991231235959Z").expect("it is so long");
    der[at..at + 15].copy_from_slice(text);
    let lines = BASE64_STANDARD.encode(der);
    let pem = format!("-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n");
    fs::write(certificate, pem).expect("it is there");
}

/// The dates of a certificate are those of a stranger: whatever they say, nothing panics.
#[test]
fn certificates_that_clients_refuse_are_told() {
    let (authority, now) = (Authority::new(), SystemTime::now());
    let last_second = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    let date = |time: SystemTime| httpdate::fmt_http_date(time);
    let check = |valid: [SystemTime; 2], end: Option<&[u8; 15]>, expected: &str| {
        let identity = authority.identity_for(&["a.example"], valid[0]..valid[1]);
        end.iter().for_each(|end| end_at(&identity.certificate, end));
        let larder = Setup::config(LARDER, &(listener_with(&[&identity]) + SITE)).start();
        let file = larder.folder().join("larder.toml").display().to_string();
        let expected = expected.replace("FILE", &identity.certificate.display().to_string());
        for said in [run(LARDER, ["check", &file]).succeeded().text(), larder.stderr()] {
            match expected.as_str() {
                "" => assert!(!said.contains("the certificate in"), "{said}"),
                _ => assert!(said.contains(&expected), "{expected} is not in {said}"),
            }
        }
        let looked = run(LARDER, ["doctor", &file]);
        assert!([0, 1].contains(&looked.status), "{}", looked.stderr);
        larder.metric("larder_certificate_expiry_timestamp_seconds", &["host=\"a.example\""])
    };
    check([now - DAY, now + DAY], None, "");
    check([now - DAY, last_second], None, "");
    let expired = format!("clients refuse the certificate in FILE: it expired on {}", date(now - DAY));
    check([now - 2 * DAY, now - DAY], None, &expired);
    let early = format!("clients refuse the certificate in FILE: it is not valid before {}", date(now + DAY));
    check([now + DAY, now + 2 * DAY], None, &early);
    for end in [b"99999999999999Z", b"99991231235960Z", b"99990229000000Z", b"never, I swear!"] {
        let unread = "can't read the validity period of the certificate in FILE is valid";
        assert_eq!(check([now - DAY, last_second], Some(end), unread), 0.0);
    }
}

/// Field bug: nobody could tell from the log which server of a group had failed.
#[test]
fn the_log_names_the_server_that_was_asked() {
    let dead = ScriptedOrigin::start(|exchange| _ = exchange.reset());
    let mut well = ScriptedOrigin::start(|exchange| {
        let lifetime = match exchange.request.target() {
            "/swr" => "max-age=0, stale-while-revalidate=600",
            "/sie" => "max-age=0, stale-if-error=600",
            _ => "max-age=600",
        };
        exchange.respond("200 OK", &format!("Cache-Control: {lifetime}\r\n"), "well");
    });
    let urls = [dead.url(), well.url()];
    let config = format!(
        "[log]\naccess = \"stdout\"\n[[origin]]\nname = \"group\"\nservers = [\"{}\", \"{}\"]\n\
         [[site]]\nname = \"a\"\norigin = \"group\"\n",
        urls[0], urls[1]
    );
    // The client's own words are logged, and other ones go to the origin.
    let rule = "[[site.transform]]\nname = \"b\"\nphase = \"client_request\"\nset = { X-B = \"b\" }\n";
    for more in ["", rule] {
        let larder = Setup::config(LARDER, &(config.clone() + more)).start();
        let line = |target: &str, cache: &str| {
            wait::until("a line of the log", || {
                let lines = larder.stdout();
                let mut records = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
                records.rfind(|record| record["target"] == target && record["cache"] == cache)
            })
        };
        for target in ["/swr", "/sie", "/kept"] {
            assert_eq!(larder.get(target).text(), "well");
            assert_eq!(line(target, "miss")["server"], urls[1], "the other one is dead");
        }
        for (target, cache) in [("/kept", "hit"), ("/swr", "stale")] {
            assert_eq!(larder.get(target).text(), "well");
            assert_eq!(line(target, cache)["server"], Value::Null, "nobody was asked");
        }
        let http2 = ["--silent", "--http2-prior-knowledge", &larder.url("/http2")];
        assert_eq!(run("curl", http2).succeeded().text(), "well");
        assert_eq!(line("/http2", "miss")["server"], urls[1]);
    }
    well.stop();
    well.stop();
    let larder = Setup::config(LARDER, &config).start();
    assert_eq!(larder.get("/new").status(), 502);
    let record = logged(&larder, "target", "/new");
    let server = record["server"].as_str().expect("one was tried last");
    assert!(urls.iter().any(|url| url == server), "{record}");
    let warning = format!("server=\"{server}\" path=\"/new\"");
    wait::until_true(&warning, || larder.stderr().contains(&warning));
}

/// Field bug: what is against the protocol left no trace.
#[test]
fn malformed_http_2_is_counted() {
    let origin = ScriptedOrigin::fixed("", "x");
    let larder = gateway(&origin, "");
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = b"\0\0\0\x04\0\0\0\0\0";
    let cases: [(&str, &[u8]); 4] = [
        ("DATA on stream 0", b"\0\0\x01\0\0\0\0\0\0x"),
        ("a header block that can't be read", b"\0\0\x02\x01\x05\0\0\0\x01\xff\xff"),
        ("WINDOW_UPDATE of 0 bytes", b"\0\0\x04\x08\0\0\0\0\0\0\0\0\0"),
        ("SETTINGS of a wrong length", b"\0\0\x05\x04\0\0\0\0\0\0\0\0\0\0"),
    ];
    for (count, (name, frame)) in (1..).zip(cases) {
        let mut client = larder.client();
        client.send([&preface[..], settings, frame].concat());
        client.rest();
        wait::until_true(name, || {
            larder.metric("larder_client_errors_total", &["reason=\"http2-malformed\""]) == f64::from(count)
        });
    }
    assert_eq!(logged(&larder, "cache_status", "http2-malformed")["status"], 400);
}

/// Field bug: the process that counted was gone when anybody could have looked.
#[test]
fn upgrades_are_counted_by_the_successor() {
    let origin = ScriptedOrigin::fixed("", "x");
    let mut process = gateway(&origin, "");
    assert_eq!(process.metric("larder_upgrades_total", &["took-over"]), 0.0);
    let answer = process.ask_admin("POST", "/upgrade", "");
    assert_eq!(answer.status(), 200, "{}{}", answer.text(), process.stderr());
    let answer: Value = serde_json::from_str(&answer.text()).expect("JSON");
    let successor = Successor::new(answer["process"].as_u64().expect("the id of a process"));
    assert!(process.service().end().success(), "{}", process.stderr());
    wait::until_true("it is told", || process.metric("larder_upgrades_total", &["took-over"]) == 1.0);
    successor.signal(Signal::TERM);
    successor.end();
}

/// Field bug: the first of these errors is what an alert is to see, and a rate misses the first event of a series.
#[test]
fn errors_of_alerts_are_there_before_they_happen() {
    let kv = KvService::start(LARDER, "");
    for code in ["OOM", "WRONGPASS", "NOAUTH"] {
        let series = format!("larder_kv_errors_total{{code=\"{code}\"}}");
        assert_eq!(kv.metric(&series), Some(0.0), "{series}");
    }
}
