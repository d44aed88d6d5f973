//! Metrics: requests and fills in progress, evictions, notes, malformed HTTP/2, and counters that alerts need from
//! the start.

use testkit::{Client, KvService, ScriptedOrigin, wait};

use crate::LARDER;
use crate::admin::access_log::logged;
use crate::admin::operator::{check, operate, site, start};
use crate::cache::basics::gates;

/// Field bug: no request ever counted as in flight, and fills counted as waiting while their bodies arrived.
#[test]
fn requests_and_fills_under_way_are_counted() {
    let (gate, steps) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        steps.pass_step(1);
        exchange.head("200 OK", "Content-Length: 4\r\nCache-Control: max-age=60\r\n").send("ab");
        steps.pass_step(2);
        exchange.send("cd");
    });
    let larder = start(&site(&origin, ""));
    let now = || {
        let fills = |state: &str| larder.metric("larder_fills", &[&format!("state=\"{state}\"")]);
        [larder.metric("larder_requests_in_flight", &[]), fills("waiting"), fills("streaming")]
    };
    assert_eq!(now(), [0.0; 3]);
    let mut clients: Vec<Client> = (0..4).map(|_| larder.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    wait::until_true("requests wait for heads", || now() == [4.0, 4.0, 0.0]);
    check(&operate(&larder, &["status"]), 0, "; 4 in flight");
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
    let larder = start(&site(&origin, "[store]\nmemory = \"16MiB\"\n"));
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
    let larder = start(&site(&origin, ""));
    for request in ["/stored de", "/stored en", "/a de", "/b de", "/c de"] {
        let (target, language) = request.split_once(' ').expect("two words");
        larder.ask("GET", target, &format!("Accept-Language: {language}\r\n"));
    }
    let counts = || ["entries", "notes"].map(|what| larder.metric(&format!("larder_store_{what}"), &[]));
    wait::until_true("two variants are stored, and three keys noted", || counts() == [2.0, 3.0]);
    check(&operate(&larder, &["status"]), 0, "\nstore: 2 responses, ");
}

/// Field bug: protocol errors left no trace.
#[test]
fn malformed_http_2_is_counted() {
    let origin = ScriptedOrigin::fixed("", "x");
    let larder = start(&site(&origin, "[log]\naccess = \"stdout\"\n"));
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = b"\0\0\0\x04\0\0\0\0\0";
    let cases: [(&str, &[u8]); 4] = [
        ("DATA on stream 0", b"\0\0\x01\0\0\0\0\0\0x"),
        ("a header block that can't be read", b"\0\0\x02\x01\x05\0\0\0\x01\xff\xff"),
        ("WINDOW_UPDATE of 0 bytes", b"\0\0\x04\x08\0\0\0\0\0\0\0\0\0"),
        ("SETTINGS of a wrong length", b"\0\0\x05\x04\0\0\0\0\0\0\0\0\0\0"),
    ];
    let counted = || larder.metric("larder_client_errors_total", &["reason=\"http2-malformed\""]);
    for (count, (name, frame)) in (1..).zip(cases) {
        larder.client().send([&preface[..], settings, frame].concat()).rest();
        wait::until_true(name, || counted() == f64::from(count));
    }
    assert_eq!(logged(&larder, &[("cache_status", "http2-malformed")])["status"], 400);
}

/// Field bug: an alert didn't fire for the first of these errors, because a rate misses the first event of a new
/// series.
#[test]
fn errors_of_alerts_are_there_before_they_happen() {
    let kv = KvService::start(LARDER, "");
    for code in ["OOM", "WRONGPASS", "NOAUTH"] {
        let series = format!("larder_kv_errors_total{{code=\"{code}\"}}");
        assert_eq!(kv.metric(&series), Some(0.0), "{series}");
    }
}
