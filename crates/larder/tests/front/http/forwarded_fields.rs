//! Forwarding fields and trailers from untrusted senders behind a trusted proxy: they name no client, scheme or host.

use std::fs;

use testkit::{Exchange, Larder, ScriptedOrigin, Setup};

use crate::LARDER;
use crate::cache::basics::{Protocol, ended, with};

/// `X-Judged` contains the client address that the gateway has determined.
const SITE: &str = "@site@\
                    [[site.transform]]\nname = \"judged\"\nphase = \"origin_request\"\nset = { X-Judged = \"{client.address}\" }\n";
const TRUSTING: &str = "trusted_proxies = [\"127.0.0.0/8\", \"10.0.0.0/8\"]\n";

fn reflect(exchange: &mut Exchange<'_>) {
    let head = exchange.request.head.clone();
    let lines: String = head.fields.0.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    exchange.respond("200 OK", "Cache-Control: no-store\r\nVia: 1.1 inner\r\n", lines);
}

fn reflecting(top: &str) -> (ScriptedOrigin, Larder) {
    let origin = ScriptedOrigin::start(reflect);
    let larder = with(&format!("{top}{SITE}"), &origin);
    (origin, larder)
}

fn value<'a>(sent: &'a str, name: &str) -> &'a str {
    let prefix = format!("{name}: ");
    sent.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default()
}

/// The client of a request, and what the gateway forwards about it: `X-Forwarded-For`, and the part of `Forwarded` before host and
/// scheme. `@` stands for host and scheme: `test.example`, http.
struct Case<'a> {
    lines: &'a [&'a str],
    client: &'a str,
    hops: &'a str,
    forwarded: &'a str,
    way: (&'a str, &'a str),
}

const USUAL: (&str, &str) = ("test.example", "http");

fn check(larder: &Larder, case: &Case<'_>) {
    let (host, scheme) = case.way;
    let forwarded = case.forwarded.replace('@', &format!(";host=\"{host}\";proto={scheme}"));
    for protocol in Protocol::BOTH {
        let sent = protocol.get(larder, "/", case.lines).text();
        let what = format!("{:?} {protocol:?}:\n{sent}", case.lines);
        assert_eq!(value(&sent, "x-judged"), case.client, "{what}");
        assert_eq!(value(&sent, "x-forwarded-for"), case.hops, "{what}");
        assert_eq!(value(&sent, "forwarded"), forwarded, "{what}");
        assert_eq!(value(&sent, "x-forwarded-proto"), scheme, "{what}");
        assert_eq!(value(&sent, "x-forwarded-host"), host, "{what}");
    }
}

/// Field bugs: `;` in a quotation was taken for a separator, so that a client behind a trusted proxy chose its address and scheme. If a
/// balancer sent only one of `X-Forwarded-For` and `Forwarded`, the other one named the balancer as the client.
//= RFC 7239 section 4: Forwarded
#[test]
fn both_fields_tell_the_hops_that_proxies_have_named() {
    let (_origin, larder) = reflecting(TRUSTING);
    let judge = |lines: &[&str], client: &str, hops: &str, forwarded: &str, way: (&str, &str)| {
        let (hops, forwarded) = (&format!("{hops}127.0.0.1"), &format!("{forwarded}for=127.0.0.1@"));
        check(&larder, &Case { lines, client, hops, forwarded, way });
    };
    for quoting in [
        &[r#"Forwarded: x="a;for=6.6.6.6;proto=https;host=evil.example;y=";for=192.0.2.7"#][..],
        &[r#"Forwarded: for=6.6.6.6;proto=https;host=evil.example;x=", for=192.0.2.7"#],
        &[r#"Forwarded: for=6.6.6.6;proto=https;x="\, for=192.0.2.7;proto=http"#],
        &["Forwarded: for=6.6.6.6;proto=https;x=\"", "Forwarded: for=192.0.2.7"],
        &["Forwarded: for=6.6.6.6;proto=https, evil, for=192.0.2.7"],
    ] {
        judge(quoting, "192.0.2.7", "192.0.2.7, ", "for=192.0.2.7@, ", USUAL);
    }
    // An element written by the client itself is forwarded as the claim of a hop, but never trusted.
    for claiming in [
        &["Forwarded: for=6.6.6.6;proto=https;host=evil.example, for=192.0.2.7"][..],
        &["X-Forwarded-For: 6.6.6.6, 192.0.2.7", "Forwarded: for=6.6.6.7;proto=https"],
    ] {
        judge(claiming, "192.0.2.7", "6.6.6.6, 192.0.2.7, ", "for=6.6.6.6@, for=192.0.2.7, ", USUAL);
    }
    judge(&[], "127.0.0.1", "", "", USUAL);
    let (long, way) = ("2001:db8::7", "proto=https;host=\"a.example\"");
    let both = [&format!("X-Forwarded-For: {long}, 10.0.0.1"), "Forwarded: for=6.6.6.6;proto=https"];
    judge(&both, long, "2001:db8::7, 10.0.0.1, ", "for=\"[2001:db8::7]\"@, for=10.0.0.1, ", USUAL);
    let hops = "for=\"[2001:db8::7]:4711\";by=_edge";
    let line = format!("Forwarded: {hops};{way}, for=10.0.0.1;proto=http");
    let told = format!("{hops}@, for=10.0.0.1, ");
    judge(&[&line], long, "[2001:db8::7]:4711, 10.0.0.1, ", &told, ("a.example", "https"));
    let told = ["X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https", "X-Forwarded-Host: a.example"];
    judge(&told, "192.0.2.7", "192.0.2.7, ", "for=192.0.2.7@, ", ("a.example", "https"));
    // If the client can't be parsed, no proxy is taken for it.
    for (line, hops, forwarded) in [
        ("X-Forwarded-For: evil, 10.0.0.1", "unknown, 10.0.0.1, ", "for=unknown@, for=10.0.0.1, "),
        ("Forwarded: for=_hidden", "_hidden, ", "for=_hidden@, "),
        ("X-Forwarded-For: 6.6.6.6, unknown", "6.6.6.6, unknown, ", "for=6.6.6.6@, for=unknown, "),
    ] {
        judge(&[line], "127.0.0.1", hops, forwarded, USUAL);
    }
}

//= RFC 9110 section 7.6.3: Via
//= RFC 7239 section 4: Forwarded
//= RFC 9110 section 7.6.3: Via in responses
#[test]
fn a_stranger_does_not_describe_the_way_of_its_request() {
    let (_origin, larder) = reflecting("");
    let lines = [
        "X-Forwarded-For: 6.6.6.6",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: evil.example",
        "Forwarded: for=6.6.6.6",
        "X-Real-IP: 6.6.6.6",
        "Via: 1.1 outer",
    ];
    let (client, hops, forwarded) = ("127.0.0.1", "127.0.0.1", "for=127.0.0.1@");
    check(&larder, &Case { lines: &lines, client, hops, forwarded, way: USUAL });
    let response = larder.ask("GET", "/", &ended(&lines));
    assert_eq!(response.head.fields.joined("via"), "1.1 inner, 1.1 larder");
    let sent = response.text();
    assert_eq!((value(&sent, "via"), value(&sent, "x-real-ip")), ("1.1 outer, 1.1 larder", ""), "{sent}");
}

/// Field bug: each hop repeated the host, so that 8 KB became 1.16 MB at the origin.
#[test]
fn a_limited_number_of_hops_is_read_and_forwarded() {
    for (setting, hops_max) in [("", 32), ("forwarded_hops_max = 3\n", 3)] {
        let (_origin, larder) = reflecting(&format!("{setting}{TRUSTING}"));
        for (name, element) in [("X-Forwarded-For", "6.6.6.6"), ("Forwarded", "for=6.6.6.6")] {
            let stranger = format!("{element},").repeat(8000 / (element.len() + 1));
            let behind = element.replace("6.6.6.6", "192.0.2.7");
            let line = format!("{name}: {stranger}{behind}");
            let host = format!("X-Forwarded-Host: {}.example", "h".repeat(200));
            for protocol in Protocol::BOTH {
                let sent = protocol.get(&larder, "/", &[&line, &host]).text();
                assert_eq!(value(&sent, "x-judged"), "192.0.2.7", "{sent}");
                for field in ["x-forwarded-for", "forwarded"] {
                    let hops = value(&sent, field).split(", ").count();
                    assert_eq!(hops, hops_max + 1, "{name} {field}: {sent}");
                }
                assert!(sent.len() < 3000, "{} bytes: {sent}", sent.len());
            }
        }
        // Behind more proxies than are read, the client is unknown.
        let way = "10.0.0.1, ".repeat(hops_max);
        let sent = larder.ask("GET", "/", &format!("X-Forwarded-For: 192.0.2.7, {way}\r\n")).text();
        assert_eq!(value(&sent, "x-forwarded-for"), format!("unknown, {way}127.0.0.1"));
        assert_eq!(value(&sent, "x-judged"), "127.0.0.1", "{sent}");
    }
}

/// Fields in which content delivery networks, balancers and application hosts name the client, and that no client sends itself.
const OF_NETWORKS: &str = "\
    Akamai-Client-IP Ali-CDN-Real-IP Ali-Real-Client-IP CF-Cert-Issuer-DN CF-Cert-Presented CF-Cert-Verified \
    CF-Client-Cert-Der-Base64 CF-Connecting-IP CF-Connecting-IPv6 CF-Pseudo-IPv4 CF-Visitor CDN-Src-IP Client-Cert \
    Client-Cert-Chain Client-Certificate Client-IP CloudFront-Forwarded-Proto CloudFront-Viewer-Address \
    CloudFront-Viewer-Cert-Pem CloudFront-Viewer-Cert-Subject CloudFront-Viewer-TLS Coming-From DO-Connecting-IP \
    EO-Connecting-IP Fastly-Client-IP Fastly-SSL Fly-Client-IP Fly-Forwarded-Port Fly-Forwarded-Proto Fly-Forwarded-SSL \
    Forwarded-For Front-End-Https Incap-Client-IP Oxy-Connecting-IP Proxy-Client-IP SSL-Client-Cert SSL-Client-Issuer-DN \
    SSL-Client-Subject-DN SSL-Client-Verify True-Client-IP WL-Proxy-Client-Cert WL-Proxy-Client-IP WL-Proxy-SSL \
    X-Accel-Mapping X-Amzn-Mtls-Clientcert X-Amzn-Mtls-Clientcert-Subject X-Appengine-Https X-Appengine-Remote-Addr \
    X-Appengine-User-IP X-ARR-ClientCert X-ARR-SSL X-Azure-ClientIP X-Azure-FDID X-Azure-SocketIP X-BB-IP X-Client-Cert \
    X-Client-Cert-Chain X-Client-Certificate X-Client-CN X-Client-DN X-Client-IP X-Client-Port X-Client-Scheme \
    X-Client-Serial X-Client-Subject X-Client-Verify X-ClientCert X-ClientCert-DN X-ClientIP X-Cluster-Client-IP \
    X-Coming-From X-Envoy-External-Address X-Forward-For X-Forwarded X-Forwarded-Client-Cert X-Forwarded-Port \
    X-Forwarded-Prefix X-Forwarded-Tls-Client-Cert X-Forwarded-Tls-Client-Cert-Info X-Https X-NF-Client-Connection-IP \
    X-Original-Forwarded-For X-Originating-IP X-Real-IP X-Real-Port X-Remote-Addr X-Scheme X-Sendfile-Type X-Source-IP X-SSL \
    X-SSL-Cert X-SSL-Client-Cert X-SSL-Client-S-DN X-SSL-Client-Verify X-Sucuri-ClientIP X-TLS-Client-Cert X-True-Client-IP \
    X-Vercel-Forwarded-For X-Vercel-Proxied-For X-Forward-Host X-Forward-Proto X-Forwarded-Path X-Forwarded-Server \
    X-Forwarded-Uri X-Forwarded-User X-Forwarder-For X-Proto X-ProxyUser-Ip X-Real-Proto X-Remote-IP";

/// Fields that replace host or target and so evade the rules for them.
const OVERRIDES: &str = "\
    Base-Url Request-Uri Script-Name X-Astro-Locals X-Envoy-Original-Path X-Host X-Host-Name X-HTTP-Host-Override \
    X-Middleware-Subrequest X-Ms-Original-Url X-Orig-Host X-Orig-URL X-Original-Host X-Original-URI X-Original-URL \
    X-Override-Host X-Real-Base-URL X-Real-URL X-Rewrite-URL X-SvelteKit-Pathname X-SvelteKit-Search Disguised-Host \
    Fastly-Orig-Host Http-Url Path-Info X-Astro-Path X-Base-Url X-Cdn-Host X-Edge-Host X-Envoy-Original-Host X-Fastly-Host \
    X-Host-Override X-HTTP-Path-Override X-Ingress-Path X-Invoke-Status X-Netlify-Original-Pathname X-Nextjs-Rewrite \
    X-Origin-Host X-Override-URL X-Path-Info X-Prerender-Revalidate X-Real-Host X-Request-URI X-Request-URL X-Script-Name \
    X-Server-Name X-URL X-Waws-Unencoded-Url";

fn names() -> impl Iterator<Item = &'static str> {
    OF_NETWORKS.split_whitespace().chain(OVERRIDES.split_whitespace())
}

fn sent_of(larder: &Larder, method: &str, names: &[String]) -> String {
    let ask = |names: &[String]| {
        let lines: String = names.iter().map(|name| format!("{name}: 6.6.6.6\r\n")).collect();
        larder.ask(method, "/", &format!("{lines}Content-Length: 0\r\n")).text()
    };
    names.chunks(60).map(ask).collect()
}

/// Field bug: some of the fields in which networks name the client reached the origin as an untrusted sender had written them.
/// `caching::unkeyed` classifies every spelling.
#[test]
fn strangers_say_nothing_for_networks() {
    type Spell = fn(&str) -> String;
    let spellings: [Spell; 3] =
        [str::to_owned, str::to_ascii_uppercase, |name| name.replacen('-', "_", 1).to_ascii_lowercase()];
    for underscores in ["", "underscore_fields = \"forward\"\n"] {
        let origin = ScriptedOrigin::start(reflect);
        let site = SITE.replace("@site@", &format!("@site@{underscores}"));
        let larder = with(&site, &origin);
        for method in ["GET", "POST"] {
            for spell in spellings {
                let spelled: Vec<String> = names().map(spell).collect();
                let sent = sent_of(&larder, method, &spelled);
                assert!(!sent.contains("6.6.6.6"), "{method} {underscores}{}: {sent}", spelled[0]);
            }
        }
    }
}

/// The origin gets the fields of a balancer, except those that replace the host or target of a storable page.
#[test]
fn balancers_speak_for_networks() {
    let (_origin, larder) = reflecting(TRUSTING);
    let lower = |names: &str| names.to_ascii_lowercase().split_whitespace().map(str::to_owned).collect();
    let (networks, overrides): (Vec<String>, Vec<String>) = (lower(OF_NETWORKS), lower(OVERRIDES));
    let is_read = ["front-end-https", "x-scheme", "x-forwarded-port"];
    let sent = sent_of(&larder, "GET", &networks) + &sent_of(&larder, "POST", &overrides);
    for name in networks.iter().chain(&overrides).filter(|name| !is_read.contains(&name.as_str())) {
        assert!(sent.contains(&format!("{name}: 6.6.6.6\n")), "{name}: {sent}");
    }
    let got = sent_of(&larder, "GET", &overrides);
    for name in &overrides {
        assert!(!got.contains(name.as_str()), "{name}: {got}");
    }
}

#[test]
fn nginx_is_told_of_every_field() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/nginx/fields-of-strangers.conf");
    let config = fs::read_to_string(file).expect("it is part of the repository").to_ascii_lowercase();
    let is_written = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"];
    for name in names().map(str::to_ascii_lowercase) {
        let line = format!("proxy_set_header {name} \"\";");
        assert!(is_written.contains(&name.as_str()) || config.contains(&line), "{line}");
    }
}

const NO_TRAILERS: &str = "\
    Early-Data Authorization Cache-Control Cache-Tag Cache-Tags CDN-Cache-Control Clear-Site-Data Client-Cert Connection \
    Content-Encoding Content-Length Content-Security-Policy Cookie Forwarded Host Keep-Alive Location Proxy-Authorization \
    Set-Cookie Strict-Transport-Security Surrogate-Key TE Transfer-Encoding True-Client-IP Upgrade Vary Via X-Forwarded-For \
    X-Forwarded-Port X-Forwarded-Proto X-Hidden X-Original-URL X-Real-IP X-SSL-Client-Verify xkey";

const HIDING: &str = "request_fields_hidden = [\"X-Hidden\"]\nresponse_fields_hidden = [\"X-Hidden\"]\n";

/// A gateway in front of the origin, and another in front of that one, which it reaches by HTTP/2.
fn two_in_a_row(origin: &ScriptedOrigin) -> (Larder, Larder) {
    let start = |name: &str, url: &str, more: &str| {
        let site = format!("[[site]]\nname = \"a\"\norigin = \"o\"\n{HIDING}");
        let of_origin = format!("[[origin]]\nname = \"o\"\nurl = \"{url}\"\n{more}");
        Setup::config(LARDER, &format!("server_name = \"{name}\"\n{site}{of_origin}")).start()
    };
    let back = start("back", &origin.url(), "");
    (start("front", back.url("").trim_end_matches('/'), "protocol = \"http2\"\n"), back)
}

/// An origin that sends a checksum and all forbidden fields in its trailers.
fn with_every_trailer() -> ScriptedOrigin {
    let trailers: String = NO_TRAILERS.split_whitespace().map(|name| format!("{name}: evil\r\n")).collect();
    let announced = NO_TRAILERS.split_whitespace().collect::<Vec<_>>().join(", ");
    ScriptedOrigin::start(move |exchange| {
        exchange.read_body();
        let head = format!("Cache-Control: no-store\r\nTrailer: {announced}\r\nTrailer: X-Sum\r\n");
        exchange.chunked_head(&head).chunk("hello").last_chunk(&format!("{trailers}X-Sum: 42\r\n"));
    })
}

/// The origin gets the content, and the checksum as the only trailer.
#[track_caller]
fn check_received(origin: &ScriptedOrigin, target: &str, what: &str) {
    let received = origin.last(target);
    assert_eq!(received.body, b"hi", "{what}");
    let trailers: Vec<_> = received.trailers.0.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!((received.trailers.one("x-sum"), &trailers[..]), (Some("7"), &["7"][..]), "{what}");
}

/// Field bug: trailers carried fields that are forbidden in the header section.
//= RFC 9110 section 6.5.1: limitations on use of trailers
#[test]
fn trailers_say_no_more_than_header_fields() {
    let origin = with_every_trailer();
    let (front, back) = two_in_a_row(&origin);
    for (larder, name) in [&back, &front]
        .into_iter()
        .flat_map(|larder| NO_TRAILERS.split_whitespace().map(move |name| (larder, name)))
    {
        let announced = format!("Trailer: {name}, X-Sum\r\nTE: trailers\r\nConnection: TE\r\n");
        let head = format!("POST /up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n{announced}\r\n");
        let mut client = larder.client();
        client.send(head).send(format!("2\r\nhi\r\n0\r\n{name}: evil\r\nX-Sum: 7\r\n\r\n"));
        let response = client.response_to("POST");
        check_received(&origin, "/up", name);
        let found = (response.text(), response.trailers.one("x-sum"), response.trailers.0.len());
        assert_eq!(found, ("hello".to_owned(), Some("42"), 1), "{name}: {:?}", response.trailers);
        assert_eq!(response.head.fields.joined("trailer"), "X-Sum", "dropped fields are not announced");
    }
}

/// Field bug: `Trailer` announced fields that the site hides, also on a stored response.
//= RFC 9110 section 6.5.1: trailers only to clients that said TE: trailers
//= RFC 9110 section 6.6.2: Trailer names what may come
//= RFC 9110 section 10.1.4: TE: trailers
#[test]
fn trailers_that_are_not_hidden_reach_clients_that_take_them() {
    let origin = ScriptedOrigin::start(|exchange| {
        let announced = match exchange.request.target() {
            "/hidden" => "X-Secret, set-cookie",
            _ => "X-Secret, X-Sum",
        };
        let head = format!("Cache-Control: max-age=60\r\nTrailer: {announced}\r\n");
        exchange.chunked_head(&head).chunk("hello").last_chunk("X-Secret: 1\r\nX-Sum: 42\r\n");
    });
    let larder = with("@site@response_fields_hidden = [\"X-Secret\"]\n", &origin);
    // The first response has trailers; the stored one has none.
    for (announced, trailer) in [("X-Sum", Some("42")), ("", None)] {
        let response = larder.ask("GET", "/", "TE: trailers\r\nConnection: TE\r\n");
        let got = (response.text(), response.field("trailer"), response.trailers.one("x-sum"));
        assert_eq!(got, ("hello".to_owned(), announced, trailer));
        let hidden = larder.ask("GET", "/hidden", "TE: trailers\r\nConnection: TE\r\n");
        assert!(!hidden.head.fields.has("trailer"), "{:?}", hidden.head);
    }
    let other = larder.get("/other");
    assert_eq!((other.text().as_str(), other.field("trailer")), ("hello", "X-Sum"), "{:?}", other.head);
    assert!(!other.trailers.has("x-sum"), "the client takes none: {:?}", other.trailers);
    assert_eq!(origin.total(), 3);
}
