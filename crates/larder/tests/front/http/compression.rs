//! Compression on the way out: codings, validators, ranges, purges and metrics. Bodies are decoded with the decoders of clients.

use std::io::{Read as _, Write as _};

use testkit::{Client, End, Exchange, Gate, Larder, Random, Response, ScriptedOrigin, run, wait};

use crate::LARDER;
use crate::cache::basics::{asking, client_from, ended, gates, with};
use crate::fleet::purge_waits::purge;

const TEXT: &str = "It is a truth universally acknowledged, that a page in possession of many words, must be in want of a coding.\n";

fn page(target: &str) -> String {
    format!("{target}\n{}", TEXT.repeat(200))
}

fn noise(bytes: usize) -> Vec<u8> {
    Random::new(1).bytes(bytes)
}

fn decoded(response: &Response) -> String {
    let (body, mut plain) = (&response.body[..], Vec::new());
    assert_eq!(response.end, End::Complete, "{:?}", response.head);
    match response.field("content-encoding") {
        "" => plain.extend_from_slice(body),
        "gzip" => _ = flate2::read::GzDecoder::new(body).read_to_end(&mut plain).unwrap(),
        "br" => _ = brotli::Decompressor::new(body, 4096).read_to_end(&mut plain).unwrap(),
        "zstd" => _ = zstd::stream::read::Decoder::new(body).unwrap().read_to_end(&mut plain).unwrap(),
        other => panic!("unexpected coding: {other}"),
    }
    String::from_utf8(plain).unwrap()
}

/// A storable page with a strong tag. A request with that tag gets 304.
fn stored(exchange: &mut Exchange<'_>) {
    let target = exchange.request.target().to_owned();
    if exchange.request.field("if-none-match").contains("\"v\"") {
        exchange.respond("304 Not Modified", "ETag: \"v\"\r\nCache-Control: max-age=60\r\n", "");
        return;
    }
    let fields =
        "Content-Type: text/html\r\nETag: \"v\"\r\nCache-Control: max-age=60\r\nAccept-Ranges: bytes\r\n";
    exchange.respond("200 OK", fields, page(&target));
}

fn start_with(
    script: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static,
    more: &str,
) -> (ScriptedOrigin, Larder) {
    let origin = ScriptedOrigin::start(script);
    let larder = with(&format!("@site@compress = true\n{more}"), &origin);
    (origin, larder)
}

fn get(larder: &Larder, target: &str, fields: &[&str]) -> Response {
    larder.ask("GET", target, &ended(fields))
}

fn varies(response: &Response) -> bool {
    response.head.fields.lists("vary", "accept-encoding")
}

const GZIP: &str = "Accept-Encoding: gzip";
const BR: &str = "Accept-Encoding: br";
const ZSTD: &str = "Accept-Encoding: zstd";

/// `Accept-Encoding`, if any, and the expected coding. `caching::compression` tests all rules.
const NEGOTIATED: &[(Option<&str>, &str)] = &[
    (None, ""),
    (Some("identity"), ""),
    (Some("x-gzip"), "gzip"),
    (Some("gzip, deflate, br"), "br"),
    (Some("gzip, deflate, br, zstd"), "zstd"),
    (Some("GZIP;q=1.0, br;q=0.9"), "gzip"),
    (Some("identity;q=0"), ""),
    (Some("gzip;level=9"), ""),
];

#[test]
fn clients_get_what_they_accept() {
    let (origin, larder) = start_with(stored, "");
    for (number, (sent, coding)) in NEGOTIATED.iter().enumerate() {
        let (target, fields) = (format!("/{number}"), sent.map(|sent| format!("Accept-Encoding: {sent}")));
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        for turn in ["miss", "hit", "again"] {
            let response = get(&larder, &target, &fields);
            assert_eq!(response.field("content-encoding"), *coding, "{sent:?} {turn}");
            assert!(varies(&response), "{sent:?} {turn}: {:?}", response.head);
            assert_eq!(decoded(&response), page(&target), "{sent:?} {turn}");
            assert_eq!(response.is_hit(), turn != "miss", "{sent:?} {turn}");
            if !coding.is_empty() {
                assert!(response.body.len() < page(&target).len() / 10, "{sent:?} {turn}");
                assert_eq!(response.field("etag"), format!("W/\"v+{coding}\""));
                assert_eq!(response.field("accept-ranges"), "");
            }
        }
        assert_eq!(origin.count(&target), 1, "{sent:?}");
    }
}

/// Concurrent clients share a form as well.
#[test]
fn one_response_has_all_its_forms() {
    let (origin, larder) = start_with(stored, "");
    let metric =
        |name: &str, coding: &str| larder.metric(&format!("larder_compression_{name}_total"), &[coding]);
    for _ in 0..5 {
        for (line, coding) in [(GZIP, "gzip"), (BR, "br"), (ZSTD, "zstd"), ("X-None: 1", "")] {
            let response = get(&larder, "/page", &[line]);
            assert_eq!((response.field("content-encoding"), decoded(&response)), (coding, page("/page")));
        }
    }
    assert_eq!(origin.count("/page"), 1);
    let page_bytes = page("/page").len() as f64;
    for coding in ["gzip", "br", "zstd"] {
        let kept = get(&larder, "/page", &[&format!("Accept-Encoding: {coding}")]);
        assert_eq!(kept.field("content-length"), kept.body.len().to_string(), "a kept form has a length");
        let found = ["input_bytes", "responses", "output_bytes"].map(|name| metric(name, coding));
        assert_eq!(found, [page_bytes, 6.0, kept.body.len() as f64], "{coding} is made once");
    }
    assert_eq!(metric("skipped", "not-accepted"), 5.0);
    std::thread::scope(|scope| {
        for _ in 0..30 {
            scope.spawn(|| assert_eq!(decoded(&get(&larder, "/crowd", &[BR])), page("/crowd")));
        }
    });
    assert_eq!(origin.count("/crowd"), 1);
    let made = metric("input_bytes", "br") - page_bytes;
    assert!(made <= 2.0 * page("/crowd").len() as f64, "once for most of them: {made}");
}

/// Fields of a request, and the status and tag of its response, after the page and all its forms are stored.
const VALIDATED: &[(&[&str], u16, &str)] = &[
    (&[GZIP, "If-None-Match: W/\"v+gzip\""], 304, "W/\"v+gzip\""),
    (&[GZIP, "If-None-Match: \"v+gzip\""], 304, "W/\"v+gzip\""),
    (&[GZIP, "If-None-Match: \"x\", W/\"v+gzip\""], 304, "W/\"v+gzip\""),
    (&[BR, "If-None-Match: W/\"v+br\""], 304, "W/\"v+br\""),
    (&["If-None-Match: \"v\""], 304, "\"v\""),
    (&[GZIP, "If-None-Match: \"v\""], 304, "\"v\""),
    (&[GZIP, "If-None-Match: *"], 304, "\"v\""),
    (&[GZIP, "If-None-Match: W/\"v+br\""], 200, "W/\"v+gzip\""),
    (&["If-None-Match: W/\"v+gzip\""], 200, "\"v\""),
    (&[GZIP, "If-None-Match: \"w+gzip\""], 200, "W/\"v+gzip\""),
];

#[test]
fn each_form_is_validated_by_its_tag() {
    let (origin, larder) = start_with(stored, "");
    for line in [GZIP, BR, ZSTD] {
        get(&larder, "/page", &[line]);
    }
    for (fields, status, tag) in VALIDATED {
        let response = get(&larder, "/page", fields);
        assert_eq!((response.status(), response.field("etag")), (*status, *tag), "{fields:?}");
        assert!(varies(&response), "{fields:?}");
        if *status == 304 {
            assert_eq!(response.field("content-encoding"), "", "{fields:?}");
        } else {
            assert_eq!(decoded(&response), page("/page"), "{fields:?}");
        }
    }
    assert_eq!(origin.count("/page"), 1);
}

/// Field bug: a client that had a form got 304 for it, without `Vary`, although the response was no longer compressed.
#[test]
fn a_form_that_is_lost_is_not_confirmed() {
    // A case, the 304 to the gateway's validation, and the second request.
    for (name, of_304, request) in [
        ("same", "", "X-None: 1"),
        ("no-transform", "no-transform, ", "X-None: 1"),
        ("small", "", "X-None: 1"),
        ("no-gain", "", "X-None: 1"),
        ("personal", "", "Cookie: a=b"),
        ("no-transform", "", "Cache-Control: no-transform"),
    ] {
        let script = move |exchange: &mut Exchange<'_>| {
            let vary = if name == "personal" { "Vary: Cookie\r\n" } else { "" };
            let kind = format!("Content-Type: text/html\r\nETag: \"v\"\r\n{vary}Cache-Control: ");
            if exchange.request.field("if-none-match").contains("\"v\"") {
                exchange.head("304 Not Modified", &format!("{kind}{of_304}max-age=60\r\n"));
                return;
            }
            let fields = format!("{kind}max-age=60\r\n");
            // Only the end of the body shows how small it is.
            match name {
                "small" => exchange.chunked_head(&fields).chunk(TEXT.repeat(2)).last_chunk(""),
                "no-gain" => exchange.chunked_head(&fields).chunk(noise(5000)).last_chunk(""),
                _ => exchange.respond("200 OK", &fields, page("/")),
            };
        };
        let (_origin, larder) = start_with(script, "");
        let first = get(&larder, "/", &[GZIP]);
        assert_eq!(first.field("etag"), "W/\"v+gzip\"", "{name}: {:?}", first.head);
        if !of_304.is_empty() {
            get(&larder, "/", &[GZIP, "Cache-Control: no-cache"]);
        }
        let named = "If-None-Match: W/\"v+gzip\"";
        let ask = |fields: &[&str]| get(&larder, "/", &[&[GZIP, request][..], fields].concat());
        let (plain, validated) = (ask(&[]), ask(&[named]));
        let keeps_form = plain.field("content-encoding") == "gzip";
        assert_eq!(keeps_form, name == "same", "{name}: {:?}", plain.head);
        let expected = if keeps_form { (304, "W/\"v+gzip\"") } else { (200, "\"v\"") };
        assert_eq!((validated.status(), validated.field("etag")), expected, "{name}: {:?}", validated.head);
        assert_eq!(validated.field("vary"), plain.field("vary"), "{name}");
        if !keeps_form {
            assert_eq!(validated.body, plain.body, "{name}");
            assert_eq!(ask(&["If-None-Match: \"v\""]).status(), 304, "{name}: its own tag");
        }
    }
}

#[test]
fn the_origin_gets_its_own_tags() {
    let config = "[[site.rule]]\npath = { prefix = \"/own/\" }\ncache = false\n";
    let (origin, larder) = start_with(stored, config);
    let response = get(&larder, "/own/a", &[GZIP, "If-None-Match: W/\"v+gzip\""]);
    assert_eq!((response.status(), response.field("etag")), (304, "W/\"v+gzip\""));
    assert_eq!(origin.last("/own/a").field("if-none-match"), "W/\"v+gzip\", \"v\"");
    larder.ask("PUT", "/own/b", "If-Match: W/\"v+br\"\r\nContent-Length: 0\r\n");
    assert_eq!(origin.last("/own/b").field("if-match"), "W/\"v+br\", \"v\"");
    get(&larder, "/own/c", &[GZIP, "If-None-Match: W/\"v+br\", \"u-gzip\""]);
    assert_eq!(origin.last("/own/c").field("if-none-match"), "W/\"v+br\", \"u-gzip\"");
}

#[test]
fn head_says_what_get_does() {
    let (_origin, larder) =
        start_with(stored, "[[site.rule]]\npath = { prefix = \"/own/\" }\ncache = false\n");
    for target in ["/stored", "/own/page"] {
        for line in [GZIP, BR, "X-None: 1"] {
            get(&larder, target, &[line]);
            let [head, get] = ["HEAD", "GET"].map(|method| larder.ask(method, target, &ended(&[line])));
            assert_eq!(head.body.len(), 0);
            for name in ["content-encoding", "etag", "vary", "content-type", "accept-ranges"] {
                assert_eq!(head.field(name), get.field(name), "{target} {line} {name}");
            }
            if head.head.fields.has("content-length") {
                assert_eq!(head.field("content-length"), get.body.len().to_string(), "{target} {line}");
            }
        }
    }
}

#[test]
fn ranges_are_cut_from_the_form_of_the_origin() {
    let (_origin, larder) = start_with(stored, "");
    get(&larder, "/page", &[GZIP]);
    get(&larder, "/page", &[GZIP]);
    let whole = page("/page");
    for (fields, status, expected) in [
        (&[GZIP, "Range: bytes=5-9"][..], 206, &whole[5..10]),
        (&[GZIP, "Range: bytes=5-9", "If-Range: \"v\""], 206, &whole[5..10]),
        (&[GZIP, "Range: bytes=5-9", "If-Range: W/\"v+gzip\""], 200, &whole),
        (&[GZIP, "Range: bytes=5-9", "If-Range: \"v+gzip\""], 200, &whole),
    ] {
        let response = get(&larder, "/page", fields);
        assert_eq!((response.status(), response.text().as_str()), (status, expected), "{fields:?}");
        assert_eq!((response.field("content-encoding"), response.field("etag")), ("", "\"v\""), "{fields:?}");
        assert!(varies(&response), "{fields:?}");
    }
}

const HTML: &str = "Content-Type: text/html\r\nCache-Control: max-age=60\r\n";
const PRIVATE: &str = "Content-Type: text/html\r\nCache-Control: no-store\r\n";

/// Additional lines of a response, a line of the request, the reason, and whether the response varies. `caching::compression` tests all
/// reasons.
const ALONE: &[(&str, &str, &str, bool)] = &[
    ("Content-Type: image/png\r\nCache-Control: max-age=60\r\n", "X-None: 1", "content-type", false),
    ("@html@Cache-Control: no-transform\r\n", "X-None: 1", "no-transform", false),
    ("@html@Content-Encoding: deflate\r\n", "X-None: 1", "encoded", false),
    ("@html@Content-Digest: sha-256=:YQ==:\r\n", "X-None: 1", "digest", false),
    ("@html@", "Cache-Control: no-transform", "no-transform", true),
    ("@html@", "Range: bytes=0-9", "range", true),
    ("@private@", "Cookie: a=b", "personal", true),
    ("@private@Set-Cookie: a=b\r\n", "X-None: 1", "personal", true),
    ("@private@Cache-Control: private\r\n", "X-None: 1", "personal", true),
];

#[test]
fn some_responses_go_out_as_they_came() {
    let script = |exchange: &mut Exchange<'_>| {
        let target = exchange.request.target().to_owned();
        let number: usize = target[1..].parse().expect("a number");
        let fields = ALONE[number].0.replace("@html@", HTML).replace("@private@", PRIVATE);
        exchange.respond("200 OK", &fields, page(&target));
    };
    let (_origin, larder) = start_with(script, "");
    for (number, (fields, request, reason, expected)) in ALONE.iter().enumerate() {
        let target = format!("/{number}");
        let skipped = || larder.metric("larder_compression_skipped_total", &[&format!("\"{reason}\"")]);
        for _ in 0..2 {
            let before = skipped();
            let response = get(&larder, &target, &[GZIP, request]);
            assert!(page(&target).starts_with(&response.text()), "{fields}: {}", response.text());
            assert_eq!(varies(&response), *expected, "{fields} {request}");
            assert_eq!(skipped(), before + 1.0, "{fields} {request}: {reason}");
        }
    }
    assert_eq!(larder.metric("larder_compression_responses_total", &[]), 0.0);
}

/// `caching::compression` tests the limits. Noise becomes longer, which shows only while it is compressed.
#[test]
fn small_bodies_and_noise_are_left_alone() {
    let script = |exchange: &mut Exchange<'_>| {
        let target = exchange.request.target().to_owned();
        match target.as_str() {
            "/none" => exchange.head("204 No Content", HTML),
            "/small" => exchange.respond("200 OK", HTML, &TEXT.repeat(10)[..1023]),
            "/noise" => exchange.respond("200 OK", HTML, noise(5000)),
            _ => exchange.respond("404 Not Found", HTML, page(&target)),
        };
    };
    let (_origin, larder) = start_with(script, "");
    for (target, coding, is_varied) in
        [("/none", "", false), ("/small", "", false), ("/missing", "gzip", true), ("/noise", "", true)]
    {
        let [_, response] = [0, 1].map(|_| get(&larder, target, &[GZIP]));
        assert_eq!((response.field("content-encoding"), varies(&response)), (coding, is_varied), "{target}");
    }
    assert_eq!(larder.metric("larder_compression_skipped_total", &["no-gain"]), 1.0);
}

/// Responses for one client, or for clients with certain credentials, are personal: they are compressed only if the configuration
/// says so.
#[test]
fn personal_responses_are_compressed_where_it_is_said() {
    let script = |exchange: &mut Exchange<'_>| {
        let target = exchange.request.target().to_owned();
        let fields = match &target[1..] {
            "own" => format!("{PRIVATE}ETag: \"v\"\r\n"),
            vary => {
                format!("Content-Type: text/html\r\nCache-Control: public, max-age=60\r\nVary: {vary}\r\n")
            }
        };
        exchange.respond("200 OK", &fields, page(&target));
    };
    let (keyed, named) =
        ("request_fields_keyed = [\"Cookie\"]\n", "[[site.rule]]\ncredential_fields = [\"X-User\"]\n");
    type Requests = [(&'static str, &'static str, &'static str)];
    let cases: [(&str, &Requests); 4] = [
        (
            "",
            &[
                ("/own", "X-None: 1", "gzip"),
                ("/own", "Cookie: a=b", ""),
                ("/Cookie", "Cookie: a=b", ""),
                ("/Accept", "Cookie: a=b", "gzip"),
                ("/X-User", "X-User: a", "gzip"),
            ],
        ),
        (keyed, &[("/Accept", "Cookie: a=b", ""), ("/Accept", "X-None: 1", "gzip")]),
        (named, &[("/X-User", "X-User: a", ""), ("/X-User", "X-None: 1", "gzip")]),
        (
            "[site.compression]\npersonal = true\n",
            &[("/own", "Cookie: a=b", "gzip"), ("/Cookie", "Cookie: a=b", "gzip")],
        ),
    ];
    for (more, requests) in cases {
        let (_origin, larder) = start_with(script, more);
        for (target, line, expected) in requests {
            for turn in ["miss", "hit", "again"] {
                let response = get(&larder, target, &[GZIP, line]);
                let what = format!("{more} {target} {line} {turn}");
                assert_eq!(response.is_hit(), turn != "miss" && *target != "/own", "{what}");
                assert_eq!(response.field("content-encoding"), *expected, "{what}");
                assert_eq!(decoded(&response), page(target), "{what}");
                assert!(varies(&response), "{what}");
            }
        }
    }
}

#[test]
fn forms_count_as_stored_and_go_with_their_response() {
    let (_origin, larder) = start_with(stored, "");
    let stored_bytes = || larder.metric("larder_store_bytes", &["class=\"stored\""]);
    let empty = stored_bytes();
    get(&larder, "/page", &[]);
    let plain = stored_bytes();
    for line in [GZIP, BR, ZSTD, GZIP] {
        get(&larder, "/page", &[line]);
    }
    assert!(stored_bytes() > plain + 3.0 * 200.0, "every form is counted: {plain} {}", stored_bytes());
    purge(&larder, "url=http://test.example/page");
    wait::until_true("response and forms are gone", || stored_bytes() < plain);
    assert!(stored_bytes() <= empty + 1000.0, "{empty} {}", stored_bytes());
    assert!(!get(&larder, "/page", &[GZIP]).is_hit());
}

#[test]
fn a_freshened_response_keeps_its_forms() {
    let script = |exchange: &mut Exchange<'_>| {
        let target = exchange.request.target().to_owned();
        let fields = "Content-Type: text/html\r\nETag: \"v\"\r\nCache-Control: max-age=0\r\n";
        match exchange.request.field("if-none-match") {
            "\"v\"" => exchange.respond("304 Not Modified", fields, ""),
            _ => exchange.respond("200 OK", fields, page(&target)),
        };
    };
    let (origin, larder) = start_with(script, "");
    for turn in 1..=4 {
        let response = get(&larder, "/page", &[GZIP]);
        let found = (response.field("content-encoding"), decoded(&response));
        assert_eq!(found, ("gzip", page("/page")), "{turn}");
        assert_eq!(origin.count("/page"), turn);
    }
    let made = larder.metric("larder_compression_input_bytes_total", &["gzip"]);
    assert_eq!(made, page("/page").len() as f64, "once");
    let validated = get(&larder, "/page", &[GZIP, "If-None-Match: W/\"v+gzip\""]);
    assert_eq!((validated.status(), validated.field("etag")), (304, "W/\"v+gzip\""));
}

/// A body that arrives in pieces is sent on in pieces, stored or not. If it is cut short, the client's copy is too.
#[test]
fn a_body_is_compressed_as_it_arrives() {
    let (gate, passing) = gates();
    let script = move |exchange: &mut Exchange<'_>| {
        let target = exchange.request.target().to_owned();
        let control = if target.contains("stored") { "max-age=60" } else { "no-store" };
        exchange.chunked_head(&format!("Content-Type: text/html\r\nCache-Control: {control}\r\n"));
        exchange.chunk("begun");
        passing.pass();
        match target.ends_with("broken") {
            true => exchange.reset(),
            false => exchange.chunk(page(&target)).last_chunk(""),
        };
    };
    let (_origin, larder) = start_with(script, "");
    let begin = |target: &str| {
        let mut client = asking(&larder, target, &ended(&[GZIP]));
        let head = client.head();
        assert_eq!(head.fields.one("content-encoding"), Some("gzip"), "{target}");
        let mut decoder = flate2::write::GzDecoder::new(Vec::new());
        while decoder.get_ref().is_empty() {
            decoder.write_all(&client.chunk()).unwrap();
            decoder.flush().unwrap();
        }
        assert_eq!(decoder.get_ref(), b"begun", "{target}");
        (client, decoder)
    };
    let targets = ["/stored", "/own", "/stored-broken", "/own-broken"];
    let begun = targets.map(begin);
    gate.open();
    for (target, (mut client, mut decoder)) in targets.into_iter().zip(begun) {
        if target.ends_with("broken") {
            let rest = client.rest();
            assert!(!rest.ends_with(b"0\r\n\r\n"), "{target}: the client sees that the body was cut short");
            continue;
        }
        for chunk in std::iter::repeat_with(|| client.chunk()).take_while(|chunk| !chunk.is_empty()) {
            decoder.write_all(&chunk).unwrap();
        }
        assert_eq!(decoder.finish().unwrap(), format!("begun{}", page(target)).into_bytes(), "{target}");
    }
    let stored = get(&larder, "/stored", &[GZIP]);
    assert!(stored.is_hit(), "{}", stored.cache_status());
    assert_eq!(decoded(&stored), format!("begun{}", page("/stored")));
}

/// Answers `/slow` in two parts, the second when the gate opens.
fn held(gate: &Gate) -> impl Fn(&mut Exchange<'_>) + Send + Sync + 'static {
    let gate = gate.clone();
    move |exchange| {
        if exchange.request.target() != "/slow" {
            return stored(exchange);
        }
        exchange.chunked_head(PRIVATE).chunk("begun");
        gate.pass();
        exchange.chunk(page("/slow")).last_chunk("");
    }
}

/// Requests `/slow` from an address, and returns the coding of the response: empty if no place for a compression was free.
fn begin(larder: &Larder, number: u8) -> (Client, String) {
    let mut client = client_from(larder, number);
    client.send(format!("GET /slow HTTP/1.1\r\nHost: test.example\r\n{GZIP}\r\n\r\n"));
    let fields = client.head().fields;
    assert!(fields.lists("vary", "accept-encoding"), "{fields:?}");
    (client, fields.joined("content-encoding"))
}

#[test]
fn compressions_at_a_time_have_a_limit_and_each_client_has_its_share() {
    let gate = Gate::new();
    let (_origin, larder) = start_with(held(&gate), "[limits]\ncompressions_max = 4\n");
    let hosts = [1, 1, 1, 2, 2, 2, 3];
    let (_clients, codings): (Vec<_>, Vec<_>) = hosts.into_iter().map(|host| begin(&larder, host)).unzip();
    assert_eq!(codings, ["gzip", "gzip", "", "gzip", "gzip", "", ""]);
    assert_eq!(larder.metric("larder_compression_skipped_total", &["busy"]), 3.0);
    gate.open();
    wait::until_true("the places are free again", || begin(&larder, 1).1 == "gzip");
}

#[test]
fn slow_readers_of_what_is_compressed_make_room_for_others() {
    const READERS: usize = 6;
    let (slow, medium) = (noise(4 << 20), noise(3 << 20));
    let script = move |exchange: &mut Exchange<'_>| {
        let is_slow = exchange.request.target() == "/slow";
        let (control, body) = if is_slow { ("no-store", &slow) } else { ("max-age=600", &medium) };
        let fields = format!("Content-Type: text/html\r\nCache-Control: {control}\r\n");
        exchange.respond("200 OK", &fields, body);
    };
    let (_origin, larder) = start_with(script, "[store]\nmemory = \"32MiB\"\n");
    let slow = [(); READERS].map(|()| {
        let mut client = asking(&larder, "/slow", &ended(&[ZSTD]));
        client.head();
        client
    });
    let mut attempt = 0;
    wait::until_true("the responses to others are stored", || {
        attempt += 1;
        let mut client = client_from(&larder, 2);
        let target = format!("/medium/{attempt}");
        client.get(&target);
        client.get(&target).is_hit()
    });
    assert!(larder.metric("larder_client_errors_total", &["memory-share"]) >= 1.0);
    drop(slow);
}

#[test]
fn rules_decide_where_they_say_so() {
    let rules = "[site.compression]\ncodings = [\"gzip\"]\nbytes_min = 0\n\
        [[site.rule]]\npath = { prefix = \"/off/\" }\ncompress = false\n\
        [[site.rule]]\npath = { prefix = \"/on/\" }\n";
    let (_origin, larder) = start_with(stored, rules);
    for (target, expected) in [("/off/a", ""), ("/on/a", "gzip"), ("/a", "gzip")] {
        let response = get(&larder, target, &["Accept-Encoding: gzip, br, zstd"]);
        assert_eq!(response.field("content-encoding"), expected, "{target}");
        assert_eq!(varies(&response), !expected.is_empty(), "{target}");
    }
    let origin = ScriptedOrigin::start(stored);
    let larder = with("@site@[[site.rule]]\npath = { prefix = \"/on/\" }\ncompress = true\n", &origin);
    for (target, expected) in [("/on/a", "gzip"), ("/a", "")] {
        assert_eq!(get(&larder, target, &[GZIP]).field("content-encoding"), expected, "{target}");
    }
}

#[test]
fn the_origin_is_asked_as_its_rule_says() {
    let script = |exchange: &mut Exchange<'_>| {
        let target = exchange.request.target().to_owned();
        let fields = format!("{HTML}Vary: Accept-Encoding\r\n");
        if !exchange.request.field("accept-encoding").contains("gzip") {
            exchange.respond("200 OK", &fields, page(&target));
            return;
        }
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(page(&target).as_bytes()).unwrap();
        exchange.respond("200 OK", &format!("{fields}Content-Encoding: gzip\r\n"), encoder.finish().unwrap());
    };
    let rules = "[[site.rule]]\npath = { prefix = \"/plain/\" }\ncodings = [\"identity\"]\n";
    let (origin, larder) = start_with(script, rules);
    for (target, asked, coding, forwards) in
        [("/a", "zstd, br, gzip", "gzip", 1), ("/plain/a", "identity", "zstd", 1)]
    {
        for sent in ["gzip, deflate, br, zstd", "zstd, gzip, br"] {
            let response = get(&larder, target, &[&format!("Accept-Encoding: {sent}")]);
            let found = (response.field("content-encoding"), decoded(&response));
            assert_eq!(found, (coding, page(target)), "{target}");
        }
        assert_eq!(origin.last(target).field("accept-encoding"), asked);
        assert_eq!(origin.count(target), forwards, "{target}");
    }
    for (line, coding) in [(GZIP, "gzip"), (BR, "br"), ("Accept-Encoding: identity", "")] {
        let response = get(&larder, "/plain/a", &[line]);
        assert_eq!((response.field("content-encoding"), response.is_hit()), (coding, true), "{line}");
    }
    assert_eq!(origin.count("/plain/a"), 1);
}

#[test]
fn curl_decodes_what_it_gets() {
    let (_origin, larder) = start_with(stored, "");
    let url = larder.url("/curl");
    let curl = |more: &[&str]| {
        let usual = ["--silent", "--show-error", "--compressed", "--max-time", "30", &url];
        run("curl", [&usual[..], more].concat()).succeeded().text()
    };
    for protocol in ["--http1.1", "--http1.0", "--http2-prior-knowledge"] {
        for turn in 1..=3 {
            assert_eq!(curl(&[protocol]), page("/curl"), "{protocol} {turn}");
        }
        let head = curl(&[protocol, "--head"]).to_lowercase();
        assert!(head.contains("content-encoding: "), "{protocol}: {head}");
    }
}

#[test]
fn compression_is_explained() {
    let (_origin, larder) = start_with(stored, "");
    let (url, admin) = (larder.url("/page"), larder.admin().to_string());
    for (line, parts) in [
        (GZIP, ["in a coding that the client accepts", "gzip"]),
        ("Accept-Encoding: identity", ["sent as received", "prefers `identity`"]),
    ] {
        let told = run(LARDER, ["explain", &url, "--admin", &admin, "-H", line]).text();
        assert!(parts.iter().all(|part| told.contains(part)), "{line}: {told}");
    }
}
