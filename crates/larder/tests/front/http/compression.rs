//! Compression on the way out, through the binary: who gets which coding, what is left alone, and what becomes of validators,
//! ranges, purges and metrics. Bodies are decoded with the decoders that clients use.

use std::io::Read as _;
use std::process::Command;
use std::sync::Arc;

use testkit::{Client, End, Exchange, Gate, Larder, Response, ScriptedOrigin, Setup, run, wait};

use crate::LARDER;

/// What every page of the origin has, behind the path that it is for.
const TEXT: &str = "It is a truth universally acknowledged, that a page in possession of many words, must be in want of a coding.\n";

fn page(target: &str) -> String {
    format!("{target}\n{}", TEXT.repeat(200))
}

/// Bytes that do not repeat.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

fn decoded(response: &Response) -> String {
    let (body, mut plain) = (&response.body[..], Vec::new());
    assert_eq!(response.end, End::Complete, "{:?}", response.head);
    match response.field("content-encoding") {
        "" => plain.extend_from_slice(body),
        "gzip" => _ = flate2::read::GzDecoder::new(body).read_to_end(&mut plain).unwrap(),
        "br" => _ = brotli::Decompressor::new(body, 4096).read_to_end(&mut plain).unwrap(),
        "zstd" => _ = zstd::stream::read::Decoder::new(body).unwrap().read_to_end(&mut plain).unwrap(),
        other => panic!("a coding that nobody offers: {other}"),
    }
    String::from_utf8(plain).unwrap()
}

/// A page that may be stored, with a strong tag; a request with that tag gets 304.
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
    let config = format!("[[site]]\nname = \"a\"\norigin = \"{}\"\ncompress = true\n{more}", origin.url());
    (origin, Setup::config(LARDER, &config).start())
}

fn get(larder: &Larder, target: &str, fields: &[&str]) -> Response {
    ask(larder, "GET", target, fields)
}

fn ask(larder: &Larder, method: &str, target: &str, fields: &[&str]) -> Response {
    let lines: String = fields.iter().map(|line| format!("{line}\r\n")).collect();
    larder.ask(method, target, &lines)
}

const GZIP: &str = "Accept-Encoding: gzip";
const BR: &str = "Accept-Encoding: br";
const ZSTD: &str = "Accept-Encoding: zstd";

/// The field, absent where there is none, and the coding.
const NEGOTIATED: &[(Option<&str>, &str)] = &[
    (None, ""),
    (Some(""), ""),
    (Some("identity"), ""),
    (Some("deflate"), ""),
    (Some("gzip"), "gzip"),
    (Some("x-gzip"), "gzip"),
    (Some("gzip, deflate"), "gzip"),
    (Some("gzip, deflate, br"), "br"),
    (Some("gzip, deflate, br, zstd"), "zstd"),
    (Some("GZIP;q=1.0, br;q=0.9"), "gzip"),
    (Some("gzip;q=0, *"), "zstd"),
    (Some("gzip;q=0, *;q=0"), ""),
    (Some("*"), "zstd"),
    (Some("identity;q=0"), ""),
    (Some("identity;q=0, gzip;q=0.1"), "gzip"),
    (Some("identity, gzip;q=0.5"), ""),
    (Some("gzip;level=9"), ""),
];

/// On the miss, on the first hit and on a later one: the same coding, the same page, and one request to the origin.
#[test]
fn clients_get_what_they_accept() {
    let (origin, larder) = start_with(stored, "");
    for (number, (sent, coding)) in NEGOTIATED.iter().enumerate() {
        let (target, fields) = (format!("/{number}"), sent.map(|sent| format!("Accept-Encoding: {sent}")));
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        for turn in ["miss", "hit", "again"] {
            let response = get(&larder, &target, &fields);
            assert_eq!(response.field("content-encoding"), *coding, "{sent:?} {turn}");
            assert!(
                response.head.fields.lists("vary", "accept-encoding"),
                "{sent:?} {turn}: {:?}",
                response.head
            );
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

/// Whoever comes first, and in whichever order: one request to the origin, and each form is made once.
#[test]
fn one_response_has_all_its_forms() {
    let (origin, larder) = start_with(stored, "");
    let made = |coding: &str| larder.metric("larder_compression_input_bytes_total", &[coding]);
    let sent = |coding: &str| larder.metric("larder_compression_responses_total", &[coding]);
    for _ in 0..5 {
        for (line, coding) in [(GZIP, "gzip"), (BR, "br"), (ZSTD, "zstd"), ("X-None: 1", "")] {
            let response = get(&larder, "/page", &[line]);
            assert_eq!((response.field("content-encoding"), decoded(&response)), (coding, page("/page")));
        }
    }
    assert_eq!(origin.count("/page"), 1);
    for coding in ["gzip", "br", "zstd"] {
        let kept = get(&larder, "/page", &[&format!("Accept-Encoding: {coding}")]);
        assert_eq!(kept.field("content-length"), kept.body.len().to_string(), "what is kept has a length");
        assert_eq!(made(coding), page("/page").len() as f64, "{coding} is made once");
        assert_eq!(sent(coding), 6.0, "{coding}");
        let output = larder.metric("larder_compression_output_bytes_total", &[coding]);
        assert_eq!(output, kept.body.len() as f64, "{coding}");
    }
    assert_eq!(larder.metric("larder_compression_skipped_total", &["not-accepted"]), 5.0);
}

#[test]
fn a_crowd_shares_one_form() {
    let (origin, larder) = start_with(stored, "");
    std::thread::scope(|scope| {
        for _ in 0..30 {
            scope.spawn(|| assert_eq!(decoded(&get(&larder, "/crowd", &[BR])), page("/crowd")));
        }
    });
    assert_eq!(origin.count("/crowd"), 1);
    let made = larder.metric("larder_compression_input_bytes_total", &["br"]);
    assert!(made <= 2.0 * page("/crowd").len() as f64, "once for most of them: {made}");
}

/// A request, and the status and tag of the answer to it, after the page was stored and each form was made.
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
        assert!(response.head.fields.lists("vary", "accept-encoding"), "{fields:?}");
        if *status == 304 {
            assert_eq!(response.field("content-encoding"), "", "{fields:?}");
        } else {
            assert_eq!(decoded(&response), page("/page"), "{fields:?}");
        }
    }
    assert_eq!(origin.count("/page"), 1);
}

/// A response of which a client has a form, and what has become of it when the client asks again.
struct Lost {
    name: &'static str,
    /// Whether its length is told before its body.
    length: bool,
    /// Of the 304 to the gateway's validation.
    fields_of_304: &'static str,
    /// Of the second request.
    request: &'static str,
}

const LOST: &[Lost] = &[
    Lost { name: "same", length: true, fields_of_304: "", request: "X-None: 1" },
    Lost { name: "no-transform", length: true, fields_of_304: "no-transform, ", request: "X-None: 1" },
    Lost { name: "small", length: false, fields_of_304: "", request: "X-None: 1" },
    Lost { name: "no-gain", length: false, fields_of_304: "", request: "X-None: 1" },
    Lost { name: "personal", length: true, fields_of_304: "", request: "Cookie: a=b" },
    Lost { name: "no-transform", length: true, fields_of_304: "", request: "Cache-Control: no-transform" },
];

/// Field bug: a client that had a form got 304 for it, without `Vary`, although the response went out as it came.
#[test]
fn a_form_that_is_lost_is_not_confirmed() {
    for Lost { name, length, fields_of_304, request } in LOST {
        let script = move |exchange: &mut Exchange<'_>| {
            let vary = if *name == "personal" { "Vary: Cookie\r\n" } else { "" };
            let fields = |control| {
                format!(
                    "Content-Type: text/html\r\nETag: \"v\"\r\n{vary}Cache-Control: {control}max-age=60\r\n"
                )
            };
            if exchange.request.field("if-none-match").contains("\"v\"") {
                exchange.head("304 Not Modified", &fields(*fields_of_304));
                return;
            }
            let body = match *name {
                "small" => TEXT.repeat(2).into_bytes(),
                "no-gain" => noise(5000),
                _ => page("/").into_bytes(),
            };
            match length {
                true => exchange.respond("200 OK", &fields(""), body),
                false => exchange.chunked_head(&fields("")).chunk(body).last_chunk(""),
            };
        };
        let (_origin, larder) = start_with(script, "");
        let first = get(&larder, "/", &[GZIP]);
        assert_eq!(first.field("etag"), "W/\"v+gzip\"", "{name}: {:?}", first.head);
        if !fields_of_304.is_empty() {
            get(&larder, "/", &[GZIP, "Cache-Control: no-cache"]);
        }
        let named = "If-None-Match: W/\"v+gzip\"";
        // Whether it is smaller shows when it is made.
        let ask = |fields: &[&str]| get(&larder, "/", &[&[GZIP, request][..], fields].concat());
        let (plain, validated) = (ask(&[]), ask(&[named]));
        let keeps_form = plain.field("content-encoding") == "gzip";
        assert_eq!(keeps_form, *name == "same", "{name}: {:?}", plain.head);
        let expected = if keeps_form { (304, "W/\"v+gzip\"") } else { (200, "\"v\"") };
        assert_eq!((validated.status(), validated.field("etag")), expected, "{name}: {:?}", validated.head);
        assert_eq!(validated.field("vary"), plain.field("vary"), "{name}");
        if !keeps_form {
            assert_eq!(validated.body, plain.body, "{name}");
            assert_eq!(ask(&["If-None-Match: \"v\""]).status(), 304, "{name}: its own tag");
        }
    }
}

/// The origin knows its own tags: it is told them beside those that clients have got.
#[test]
fn the_origin_gets_its_own_tags() {
    let config = "[[site.rule]]\npath = { prefix = \"/own/\" }\ncache = false\n";
    let (origin, larder) = start_with(stored, config);
    let response = get(&larder, "/own/a", &[GZIP, "If-None-Match: W/\"v+gzip\""]);
    assert_eq!((response.status(), response.field("etag")), (304, "W/\"v+gzip\""));
    assert_eq!(origin.last("/own/a").field("if-none-match"), "W/\"v+gzip\", \"v\"");
    ask(&larder, "PUT", "/own/b", &["If-Match: W/\"v+br\"", "Content-Length: 0"]);
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
            let [head, get] = ["HEAD", "GET"].map(|method| ask(&larder, method, target, &[line]));
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

/// Bytes of one form are never mixed with those of another.
#[test]
fn ranges_are_of_what_the_origin_has() {
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
        assert!(response.head.fields.lists("vary", "accept-encoding"), "{fields:?}");
    }
}

/// Fields of a response, of a request, whether it is compressed, and whether it varies.
struct Alone {
    name: &'static str,
    response: &'static str,
    request: &'static str,
    reason: &'static str,
    varies: bool,
}

const HTML: &str = "Content-Type: text/html\r\nCache-Control: max-age=60\r\n";

const fn alone(name: &'static str, response: &'static str, reason: &'static str) -> Alone {
    Alone { name, response, request: "X-None: 1", reason, varies: false }
}

const ALONE: &[Alone] = &[
    alone("image", "Content-Type: image/png\r\nCache-Control: max-age=60\r\n", "content-type"),
    alone("untyped", "Cache-Control: max-age=60\r\n", "content-type"),
    alone("events", "Content-Type: text/event-stream\r\nCache-Control: no-store\r\n", "content-type"),
    alone(
        "untouched",
        "Content-Type: text/css\r\nCache-Control: max-age=60, no-transform\r\n",
        "no-transform",
    ),
    alone(
        "private-untouched",
        "Content-Type: text/css\r\nCache-Control: no-store, no-transform\r\n",
        "no-transform",
    ),
    alone(
        "encoded",
        "Content-Type: text/html\r\nContent-Encoding: deflate\r\nCache-Control: max-age=60\r\n",
        "encoded",
    ),
    alone(
        "digest",
        "Content-Type: text/html\r\nContent-Digest: sha-256=:YQ==:\r\nCache-Control: max-age=60\r\n",
        "digest",
    ),
    alone(
        "announced",
        "Content-Type: text/html\r\nTrailer: Repr-Digest\r\nCache-Control: no-store\r\n",
        "digest",
    ),
    alone(
        "targeted-untouched",
        "Content-Type: text/html\r\nCache-Control: max-age=60\r\nCDN-Cache-Control: max-age=60, no-transform\r\n",
        "no-transform",
    ),
    Alone {
        varies: true,
        ..alone(
            "targeted-private",
            "Content-Type: text/html\r\nCache-Control: max-age=60\r\nCDN-Cache-Control: private\r\n",
            "personal",
        )
    },
    Alone { request: "Cache-Control: no-transform", varies: true, ..alone("asked", HTML, "no-transform") },
    Alone { request: "Range: bytes=0-9", varies: true, ..alone("range", HTML, "range") },
    Alone {
        request: "Cookie: a=b",
        varies: true,
        ..alone("cookie", "Content-Type: text/html\r\nCache-Control: no-store\r\n", "personal")
    },
    Alone {
        varies: true,
        ..alone(
            "set-cookie",
            "Content-Type: text/html\r\nSet-Cookie: a=b\r\nCache-Control: no-store\r\n",
            "personal",
        )
    },
    Alone {
        varies: true,
        ..alone("private", "Content-Type: text/html\r\nCache-Control: private\r\n", "personal")
    },
];

#[test]
fn some_responses_go_out_as_they_came() {
    let script = |exchange: &mut Exchange<'_>| {
        let target = exchange.request.target().to_owned();
        let case = ALONE.iter().find(|case| target == format!("/{}", case.name));
        exchange.respond("200 OK", case.map_or(HTML, |case| case.response), page(&target));
    };
    let (_origin, larder) = start_with(script, "");
    for Alone { name, request, reason, varies, .. } in ALONE {
        let target = format!("/{name}");
        for turn in 1..=2 {
            let response = get(&larder, &target, &[GZIP, request]);
            assert!(page(&target).starts_with(&response.text()), "{name}: {}", response.text());
            assert_eq!(response.head.fields.lists("vary", "accept-encoding"), *varies, "{name}");
            let skipped = larder.metric("larder_compression_skipped_total", &[&format!("\"{reason}\"")]);
            assert!(skipped >= f64::from(turn), "{name}: {reason}");
        }
    }
    assert_eq!(larder.metric("larder_compression_responses_total", &[]), 0.0);
}

#[test]
fn statuses_without_content_and_small_bodies_are_left_alone() {
    let script = |exchange: &mut Exchange<'_>| {
        let target = exchange.request.target().to_owned();
        match target.as_str() {
            "/none" => exchange.head("204 No Content", HTML),
            "/small" => exchange.respond("200 OK", HTML, &TEXT.repeat(10)[..1023]),
            "/random" => {
                // What does not repeat becomes longer.
                exchange.respond("200 OK", HTML, noise(5000))
            }
            _ => exchange.respond("404 Not Found", HTML, page(&target)),
        };
    };
    let (_origin, larder) = start_with(script, "");
    assert_eq!(get(&larder, "/none", &[GZIP]).field("content-encoding"), "");
    let small = get(&larder, "/small", &[GZIP]);
    assert_eq!((small.body.len(), small.field("content-encoding"), small.field("vary")), (1023, "", ""));
    let missing = get(&larder, "/missing", &[GZIP]);
    assert_eq!((missing.status(), missing.field("content-encoding")), (404, "gzip"));
    assert_eq!(decoded(&missing), page("/missing"));
    get(&larder, "/random", &[GZIP]);
    let random = get(&larder, "/random", &[GZIP]);
    assert_eq!((random.body.len(), random.field("content-encoding")), (5000, ""), "it would be no smaller");
    assert!(random.head.fields.lists("vary", "accept-encoding"));
    assert_eq!(larder.metric("larder_compression_skipped_total", &["no-gain"]), 1.0);
}

/// Responses for one client alone: without a secret by default, others where the operator says so.
#[test]
fn personal_responses_are_compressed_where_it_is_said() {
    let script = |exchange: &mut Exchange<'_>| {
        let target = exchange.request.target().to_owned();
        exchange.respond(
            "200 OK",
            "Content-Type: text/html\r\nETag: \"v\"\r\nCache-Control: no-store\r\n",
            page(&target),
        );
    };
    for (more, cookie) in [("", ""), ("[site.compression]\npersonal = true\n", "gzip")] {
        let (origin, larder) = start_with(script, more);
        for (fields, expected) in [(&[GZIP][..], "gzip"), (&[GZIP, "Cookie: a=b"], cookie)] {
            for turn in 1..=2 {
                let response = get(&larder, "/own", fields);
                assert_eq!(response.field("content-encoding"), expected, "{more} {fields:?} {turn}");
                assert_eq!(decoded(&response), page("/own"));
            }
        }
        assert_eq!(origin.count("/own"), 4);
    }
}

/// What is stored for those who have certain credentials is personal too.
#[test]
fn what_credentials_select_is_personal() {
    let script = |exchange: &mut Exchange<'_>| {
        let target = exchange.request.target().to_owned();
        let vary = target.trim_start_matches('/').split('.').next().unwrap_or_default();
        let fields =
            format!("Content-Type: text/html\r\nCache-Control: public, max-age=60\r\nVary: {vary}\r\n");
        exchange.respond("200 OK", &fields, page(&target));
    };
    let (keyed, named) =
        ("request_fields_keyed = [\"Cookie\"]\n", "[[site.rule]]\ncredential_fields = [\"X-User\"]\n");
    let cases = [
        ("", "/Cookie", "Cookie: a=b", ""),
        ("", "/Cookie", "X-None: 1", "gzip"),
        ("", "/Authorization", "Authorization: Basic YTpi", ""),
        ("", "/Accept", "Cookie: a=b", "gzip"),
        (keyed, "/Accept", "Cookie: a=b", ""),
        (keyed, "/Accept", "X-None: 1", "gzip"),
        (named, "/X-User", "X-User: a", ""),
        (named, "/X-User", "X-None: 1", "gzip"),
        ("", "/X-User", "X-User: a", "gzip"),
        ("[site.compression]\npersonal = true\n", "/Cookie", "Cookie: a=b", "gzip"),
    ];
    for (more, target, line, expected) in cases {
        let (_origin, larder) = start_with(script, more);
        for turn in ["miss", "hit", "again"] {
            let response = get(&larder, target, &[GZIP, line]);
            assert_eq!(response.is_hit(), turn != "miss", "{more} {target} {line} {turn}");
            assert_eq!(response.field("content-encoding"), expected, "{more} {target} {line} {turn}");
            assert_eq!(decoded(&response), page(target));
            assert!(response.head.fields.lists("vary", "accept-encoding"), "{more} {target} {line} {turn}");
        }
    }
}

/// Of what is not stored, a 304 and a part vary as the whole does.
#[test]
fn what_stands_for_a_whole_varies_as_it_does() {
    let script = |exchange: &mut Exchange<'_>| {
        let target = exchange.request.target().to_owned();
        let content_type = if target == "/image" { "image/png" } else { "text/html" };
        let fields = format!("Content-Type: {content_type}\r\nETag: \"v\"\r\nCache-Control: no-store\r\n");
        let body = page(&target);
        if !exchange.request.field("if-none-match").is_empty() {
            exchange.respond("304 Not Modified", "ETag: \"v\"\r\nCache-Control: no-store\r\n", "");
        } else if !exchange.request.field("range").is_empty() {
            let range = format!("{fields}Content-Range: bytes 0-9/{}\r\n", body.len());
            exchange.respond("206 Partial Content", &range, &body[..10]);
        } else {
            exchange.respond("200 OK", &fields, body);
        }
    };
    let (_origin, larder) = start_with(script, "");
    for (method, target, line, status, varies) in [
        ("GET", "/page", "X-None: 1", 200, true),
        ("GET", "/page", "If-None-Match: \"v\"", 304, true),
        ("GET", "/page", "If-None-Match: W/\"v+gzip\"", 304, true),
        ("HEAD", "/page", "If-None-Match: \"v\"", 304, true),
        ("GET", "/page", "Range: bytes=0-9", 206, true),
        ("GET", "/image", "Range: bytes=0-9", 206, false),
    ] {
        for cookie in ["X-Other: 1", "Cookie: a=b"] {
            let response = ask(&larder, method, target, &[GZIP, line, cookie]);
            assert_eq!(response.status(), status, "{method} {target} {line} {cookie}");
            let found = response.head.fields.lists("vary", "accept-encoding");
            assert_eq!(found, varies, "{method} {target} {line} {cookie}: {:?}", response.head);
        }
    }
}

#[test]
fn a_purge_takes_the_forms_too() {
    let script = |exchange: &mut Exchange<'_>| {
        let body = page(&format!("version {}", exchange.request.earlier));
        let fields = format!("{HTML}ETag: \"{}\"\r\nSurrogate-Key: all\r\n", exchange.request.earlier);
        exchange.respond("200 OK", &fields, body);
    };
    let (_origin, larder) = start_with(script, "tags = [\"surrogate-key\"]\n");
    let orders = |url: &str| {
        [
            format!("{{\"url\": \"{url}\"}}"),
            "{\"tags\": [\"all\"]}".to_owned(),
            format!("{{\"prefix\": \"{url}\"}}"),
            "{\"site\": \"a\"}".to_owned(),
        ]
    };
    for (version, order) in orders("http://test.example/page").iter().enumerate() {
        for _ in 0..2 {
            for line in [GZIP, ZSTD, "X-None: 1"] {
                assert_eq!(
                    decoded(&get(&larder, "/page", &[line])),
                    page(&format!("version {version}")),
                    "{order}"
                );
            }
        }
        let answer = larder.ask_admin("POST", "/purge", order);
        assert_eq!(answer.status(), 200, "{order}: {}", answer.text());
    }
    assert_eq!(decoded(&get(&larder, "/page", &[GZIP])), page("version 4"));
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
    assert!(stored_bytes() > plain + 3.0 * 200.0, "each form is counted: {plain} {}", stored_bytes());
    let answer = larder.ask_admin("POST", "/purge", "{\"url\": \"http://test.example/page\"}");
    assert_eq!(answer.status(), 200);
    wait::until_true("response and forms are gone", || stored_bytes() < plain);
    assert!(stored_bytes() <= empty + 1000.0, "{empty} {}", stored_bytes());
}

/// A 304 of the origin freshens the response: its forms stay.
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
        assert_eq!(
            (response.field("content-encoding"), decoded(&response)),
            ("gzip", page("/page")),
            "{turn}"
        );
        assert_eq!(origin.count("/page"), turn);
    }
    let made = larder.metric("larder_compression_input_bytes_total", &["gzip"]);
    assert_eq!(made, page("/page").len() as f64, "once");
    let validated = get(&larder, "/page", &[GZIP, "If-None-Match: W/\"v+gzip\""]);
    assert_eq!((validated.status(), validated.field("etag")), (304, "W/\"v+gzip\""));
}

/// What arrives step by step goes out so, stored or not; and what breaks off is seen to.
#[test]
fn a_body_is_compressed_as_it_arrives() {
    let gate = Arc::new(Gate::new());
    let passing = Arc::clone(&gate);
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
        let mut client = larder.client();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: test.example\r\n{GZIP}\r\n\r\n"));
        let head = client.head();
        assert_eq!(head.fields.one("content-encoding"), Some("gzip"), "{target}");
        let mut decoder = flate2::write::GzDecoder::new(Vec::new());
        while decoder.get_ref().is_empty() {
            std::io::Write::write_all(&mut decoder, &client.chunk()).unwrap();
            std::io::Write::flush(&mut decoder).unwrap();
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
            assert!(!rest.ends_with(b"0\r\n\r\n"), "{target}: the client sees that it broke off");
            continue;
        }
        loop {
            let chunk = client.chunk();
            if chunk.is_empty() {
                break;
            }
            std::io::Write::write_all(&mut decoder, &chunk).unwrap();
        }
        assert_eq!(decoder.finish().unwrap(), format!("begun{}", page(target)).into_bytes(), "{target}");
    }
    let stored = get(&larder, "/stored", &[GZIP]);
    assert!(stored.is_hit(), "{}", stored.cache_status());
    assert_eq!(decoded(&stored), format!("begun{}", page("/stored")));
}

/// Where all places are taken, others get the response as it came, at once.
#[test]
fn there_are_so_many_compressions_at_a_time() {
    let gate = Arc::new(Gate::new());
    let passing = Arc::clone(&gate);
    let script = move |exchange: &mut Exchange<'_>| {
        let target = exchange.request.target().to_owned();
        if target != "/slow" {
            stored(exchange);
            return;
        }
        exchange.chunked_head("Content-Type: text/html\r\nCache-Control: no-store\r\n").chunk("begun");
        passing.pass();
        exchange.chunk(page("/slow")).last_chunk("");
    };
    let (_origin, larder) = start_with(script, "[limits]\ncompressions_max = 1\n");
    let mut slow = larder.client();
    slow.send(format!("GET /slow HTTP/1.1\r\nHost: test.example\r\n{GZIP}\r\n\r\n"));
    assert_eq!(slow.head().fields.one("content-encoding"), Some("gzip"));
    let busy = get(&larder, "/page", &[GZIP]);
    assert_eq!((busy.field("content-encoding"), decoded(&busy)), ("", page("/page")));
    assert!(busy.head.fields.lists("vary", "accept-encoding"));
    assert_eq!(larder.metric("larder_compression_skipped_total", &["busy"]), 1.0);
    gate.open();
    wait::until_true("the place is free again", || {
        get(&larder, "/page", &[GZIP]).field("content-encoding") == "gzip"
    });
}

/// One address that takes places for long leaves others theirs.
#[test]
fn a_client_has_its_share_of_the_places() {
    let gate = Arc::new(Gate::new());
    let passing = Arc::clone(&gate);
    let script = move |exchange: &mut Exchange<'_>| {
        exchange.chunked_head("Content-Type: text/html\r\nCache-Control: no-store\r\n").chunk("begun");
        passing.pass();
        exchange.last_chunk("");
    };
    let (_origin, larder) = start_with(script, "[limits]\ncompressions_max = 4\n");
    let begin = |from: &str| {
        let mut client = Client::connect_from(from.parse().expect("an address"), larder.address());
        client.send(format!("GET / HTTP/1.1\r\nHost: test.example\r\n{GZIP}\r\n\r\n"));
        let coding = client.head().fields.joined("content-encoding");
        (client, coding)
    };
    let addresses =
        ["127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.3"];
    let (_clients, codings): (Vec<_>, Vec<_>) = addresses.map(begin).into_iter().unzip();
    assert_eq!(codings, ["gzip", "gzip", "", "gzip", "gzip", "", ""]);
    gate.open();
    wait::until_true("the places are free again", || begin("127.0.0.1").1 == "gzip");
}

/// What encoders take is counted to those who keep them waiting.
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
        let mut client = larder.client();
        client.send(format!("GET /slow HTTP/1.1\r\nHost: test.example\r\n{ZSTD}\r\n\r\n"));
        client.head();
        client
    });
    let mut attempt = 0;
    wait::until_true("what others ask for is stored", || {
        attempt += 1;
        let other = "127.0.0.2".parse().expect("an address");
        let mut client = Client::connect_from(other, larder.address());
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
        assert_eq!(response.head.fields.lists("vary", "accept-encoding"), !expected.is_empty(), "{target}");
    }
    let origin = ScriptedOrigin::start(stored);
    let config = format!(
        "[[site]]\nname = \"a\"\norigin = \"{}\"\n[[site.rule]]\npath = {{ prefix = \"/on/\" }}\ncompress = true\n",
        origin.url()
    );
    let larder = Setup::config(LARDER, &config).start();
    for (target, expected) in [("/on/a", "gzip"), ("/a", "")] {
        assert_eq!(get(&larder, target, &[GZIP]).field("content-encoding"), expected, "{target}");
    }
}

/// An origin that compresses goes on to do so, unless it is asked not to; either way its responses are not encoded twice.
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
        std::io::Write::write_all(&mut encoder, page(&target).as_bytes()).unwrap();
        exchange.respond("200 OK", &format!("{fields}Content-Encoding: gzip\r\n"), encoder.finish().unwrap());
    };
    let rules = "[[site.rule]]\npath = { prefix = \"/plain/\" }\ncodings = [\"identity\"]\n";
    let (origin, larder) = start_with(script, rules);
    for (target, asked, coding, forwards) in
        [("/a", "zstd, br, gzip", "gzip", 1), ("/plain/a", "identity", "zstd", 1)]
    {
        for sent in ["gzip, deflate, br, zstd", "zstd, gzip, br"] {
            let response = get(&larder, target, &[&format!("Accept-Encoding: {sent}")]);
            assert_eq!(
                (response.field("content-encoding"), decoded(&response)),
                (coding, page(target)),
                "{target}"
            );
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
    for protocol in ["--http1.1", "--http1.0", "--http2-prior-knowledge"] {
        for turn in 1..=3 {
            let url = larder.url("/curl");
            let arguments = ["--silent", "--show-error", "--compressed", protocol, "--max-time", "30", &url];
            assert_eq!(run("curl", arguments).succeeded().text(), page("/curl"), "{protocol} {turn}");
        }
        let url = larder.url("/curl");
        let head = run("curl", ["--silent", "--compressed", "--head", protocol, "--max-time", "30", &url])
            .succeeded();
        assert!(head.text().to_lowercase().contains("content-encoding: "), "{protocol}: {}", head.text());
    }
}

#[test]
fn it_is_explained() {
    let (_origin, larder) = start_with(stored, "");
    let explain = |line: &str| {
        let (url, admin) = (larder.url("/page"), larder.admin().to_string());
        let output =
            Command::new(LARDER).args(["explain", &url, "--admin", &admin, "-H", line]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for (line, parts) in [
        (GZIP, ["in a coding that it accepts", "gzip"]),
        ("Accept-Encoding: identity", ["goes out as it came", "prefers `identity`"]),
    ] {
        let told = explain(line);
        assert!(parts.iter().all(|part| told.contains(part)), "{line}: {told}");
    }
}
