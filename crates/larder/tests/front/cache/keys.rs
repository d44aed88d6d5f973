//! One reading of a request: the cache key, the nominated values and the origin's view agree, so that nothing that one
//! client sends changes what another client gets. The origin reflects all that it was sent. First comes the request of
//! an attacker, then the same without its odd field, from somebody honest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use testkit::{Exchange, Gate, Larder, ScriptedOrigin, Setup, run, wait};

use crate::LARDER;

const TRUSTING: &str = "trusted_proxies = [\"127.0.0.0/8\"]\n";
const SITE: &str = "[[site]]\nname = \"a\"\norigin = \"@origin@\"\n";

/// Sends back what came, storable for a minute. The query of the target, if any, is the value of `Vary`.
fn reflect(exchange: &mut Exchange<'_>) {
    let head = exchange.request.head.clone();
    let lines: String = head.fields.0.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    let vary = exchange.request.target().split_once('?').map_or("", |(_, names)| names);
    let vary = if vary.is_empty() { String::new() } else { format!("Vary: {vary}\r\n") };
    let body = format!("{}\n{lines}", head.start);
    exchange.respond("200 OK", &format!("Cache-Control: max-age=60\r\n{vary}"), body);
}

fn reflecting(config: &str) -> (ScriptedOrigin, Larder) {
    let origin = ScriptedOrigin::start(reflect);
    let larder = Setup::config(LARDER, &config.replace("@origin@", &origin.url())).start();
    (origin, larder)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// The body of a GET with these lines.
fn get(larder: &Larder, protocol: Protocol, target: &str, lines: &[&str]) -> String {
    match protocol {
        Protocol::Http1 => {
            let fields: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
            larder.ask("GET", target, &fields).text()
        }
        Protocol::Http2 => {
            let mut arguments =
                vec!["--silent", "--show-error", "--max-time", "30", "--http2-prior-knowledge"];
            let url = larder.url(target);
            arguments.extend(lines.iter().flat_map(|line| ["--header", line]));
            run("curl", arguments.into_iter().chain(["--header", "Host: test.example", &url]))
                .succeeded()
                .text()
        }
    }
}

/// What a trusted peer may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trusted {
    /// It reaches the origin, and is part of the cache key.
    Keyed,
    /// It reaches the origin: a field about the client's address, which trusted peers write themselves.
    Believed,
    /// No more than anybody else.
    Nothing,
}

/// The published fields, with what they do where a cache overlooks them: another page, another host, another scheme,
/// another method, an error page. Each value holds "evil" or 666.
const UNKEYED: [(&str, Trusted); 118] = [
    ("X-Forwarded-Host: evil.example", Trusted::Keyed),
    ("X-Forwarded-Port: 666", Trusted::Keyed),
    ("X-Forwarded-Prefix: /evil", Trusted::Keyed),
    ("X-Forwarded-Path: /evil", Trusted::Keyed),
    ("X-Forwarded-Uri: /evil", Trusted::Keyed),
    ("X-Forwarded-Server: evil.example", Trusted::Keyed),
    ("X-Forwarded-User: evil", Trusted::Keyed),
    ("Forwarded: for=192.0.2.1;host=evil.example", Trusted::Keyed),
    ("X-Forwarded-Scheme: evil", Trusted::Nothing),
    ("X-Forwarded-Proto: evil", Trusted::Nothing),
    ("X-Forwarded-Protocol: evil", Trusted::Nothing),
    ("X-Forwarded-Ssl: evil", Trusted::Nothing),
    ("X-Url-Scheme: evil", Trusted::Nothing),
    ("Front-End-Https: evil", Trusted::Nothing),
    ("X-Forwarded-For: 66.6.6.6", Trusted::Believed),
    ("X-Forwarded: evil", Trusted::Believed),
    ("Forwarded-For: evil", Trusted::Believed),
    ("X-Real-IP: evil", Trusted::Believed),
    ("True-Client-IP: evil", Trusted::Believed),
    ("CF-Connecting-IP: evil", Trusted::Believed),
    ("Client-IP: evil", Trusted::Believed),
    ("X-Client-IP: evil", Trusted::Believed),
    ("X-Cluster-Client-IP: evil", Trusted::Believed),
    ("X-ProxyUser-Ip: evil", Trusted::Believed),
    ("X-Originating-IP: evil", Trusted::Believed),
    ("X-Remote-IP: evil", Trusted::Believed),
    ("Fastly-Client-IP: evil", Trusted::Believed),
    ("X-Original-URL: /evil", Trusted::Nothing),
    ("X-Original-Uri: /evil", Trusted::Nothing),
    ("X-Original-Host: evil.example", Trusted::Nothing),
    ("X-Original-Method: evil", Trusted::Nothing),
    ("X-Rewrite-URL: /evil", Trusted::Nothing),
    ("X-Host: evil.example", Trusted::Nothing),
    ("X-HTTP-Host-Override: evil.example", Trusted::Nothing),
    ("X-HTTP-Path-Override: /evil", Trusted::Nothing),
    ("X-HTTP-Method: evil", Trusted::Nothing),
    ("X-HTTP-Method-Override: evil", Trusted::Nothing),
    ("X-Method-Override: evil", Trusted::Nothing),
    ("X-Override-URL: /evil", Trusted::Nothing),
    ("X-Invoke-Status: 666", Trusted::Nothing),
    ("X-Middleware-Subrequest: evil", Trusted::Nothing),
    ("Proxy: http://evil.example", Trusted::Nothing),
    ("X_Forwarded_Host: evil.example", Trusted::Nothing),
    ("X_Forwarded-Host: evil.example", Trusted::Nothing),
    ("x_forwarded_for: 66.6.6.6", Trusted::Nothing),
    ("X_HTTP_Method_Override: evil", Trusted::Nothing),
    ("X_Original_URL: /evil", Trusted::Nothing),
    ("X_Anything: evil", Trusted::Nothing),
    ("User_Agent: evil", Trusted::Nothing),
    ("Accept_Language: evil", Trusted::Nothing),
    ("Content_Length: 666", Trusted::Nothing),
    ("Host_: evil", Trusted::Nothing),
    ("X-Forward-For: 66.6.6.6", Trusted::Believed),
    ("X-Forwarder-For: 66.6.6.6", Trusted::Believed),
    ("X-Forward-Host: evil.example", Trusted::Keyed),
    ("X-Forward-Proto: evil", Trusted::Keyed),
    ("X-ForwardedHost: evil.example", Trusted::Keyed),
    ("CloudFront-Forwarded-Proto: evil", Trusted::Keyed),
    ("CF-Visitor: {\"scheme\":\"evil\"}", Trusted::Keyed),
    ("Fastly-SSL: evil", Trusted::Keyed),
    ("X-ARR-SSL: evil", Trusted::Keyed),
    ("X-Client-Scheme: evil", Trusted::Keyed),
    ("X-Proto: evil", Trusted::Keyed),
    ("X-Https: evil", Trusted::Keyed),
    ("X-Real-Proto: evil", Trusted::Keyed),
    ("X-Real-Port: 666", Trusted::Keyed),
    ("X-Real-Host: evil.example", Trusted::Nothing),
    ("X-Origin-Host: evil.example", Trusted::Nothing),
    ("X-Host-Override: evil.example", Trusted::Nothing),
    ("Disguised-Host: evil.example", Trusted::Nothing),
    ("X-Fastly-Host: evil.example", Trusted::Nothing),
    ("X-Server-Name: evil", Trusted::Nothing),
    ("X-Ms-Original-Url: /evil", Trusted::Nothing),
    ("X-Waws-Unencoded-Url: /evil", Trusted::Nothing),
    ("X-Astro-Path: /evil", Trusted::Nothing),
    ("X-Netlify-Original-Pathname: /evil", Trusted::Nothing),
    ("X-Ingress-Path: /evil", Trusted::Nothing),
    ("Script-Name: /evil", Trusted::Nothing),
    ("X-Base-Url: /evil", Trusted::Nothing),
    ("Fastly-Orig-Host: evil.example", Trusted::Nothing),
    ("X-Edge-Host: evil.example", Trusted::Nothing),
    ("X-Cdn-Host: evil.example", Trusted::Nothing),
    ("X-Envoy-Original-Path: /evil", Trusted::Nothing),
    ("X-Envoy-Original-Host: evil.example", Trusted::Nothing),
    ("Base-Url: /evil", Trusted::Nothing),
    ("Request-Uri: /evil", Trusted::Nothing),
    ("Http-Url: /evil", Trusted::Nothing),
    ("X-Request-URI: /evil", Trusted::Nothing),
    ("X-Request-URL: /evil", Trusted::Nothing),
    ("X-URL: /evil", Trusted::Nothing),
    ("X-Path-Info: /evil", Trusted::Nothing),
    ("Path-Info: /evil", Trusted::Nothing),
    ("X-Script-Name: /evil", Trusted::Nothing),
    ("X-React-Router-SPA-Mode: evil", Trusted::Nothing),
    ("X-React-Router-Prerender-Data: evil", Trusted::Nothing),
    ("X-Nextjs-Data: evil", Trusted::Nothing),
    ("X-Nextjs-Rewrite: /evil", Trusted::Nothing),
    ("X-Prerender-Revalidate: evil", Trusted::Nothing),
    ("X-Middleware-Next: evil", Trusted::Nothing),
    ("X.Forwarded.Host: evil.example", Trusted::Nothing),
    ("X~Forwarded~Host: evil.example", Trusted::Nothing),
    ("X-Forwarded.Host: evil.example", Trusted::Nothing),
    ("X!Anything: evil", Trusted::Nothing),
    ("X-Original+URL: /evil", Trusted::Nothing),
    ("Proxy': evil", Trusted::Nothing),
    ("User.Agent: evil", Trusted::Nothing),
    ("X-Sendfile-Type: X-Accel-Redirect-evil", Trusted::Keyed),
    ("X-Accel-Mapping: /=/evil/", Trusted::Keyed),
    ("X-Client-Certificate: evil", Trusted::Keyed),
    ("X-ClientIP: evil", Trusted::Believed),
    ("X-Override-Host: evil.example", Trusted::Nothing),
    ("X-Host-Name: evil.example", Trusted::Nothing),
    ("X-Real-URL: /evil", Trusted::Nothing),
    ("X-Real-Base-URL: /evil", Trusted::Nothing),
    ("Coming-From: evil", Trusted::Believed),
    ("X-Orig-URL: /evil", Trusted::Nothing),
    ("X-Astro-Locals: evil", Trusted::Nothing),
    ("X-SvelteKit-Pathname: /evil", Trusted::Nothing),
];

/// The number of the instance may have any digits.
fn is_evil(text: &str) -> bool {
    let mut said = text.lines().filter(|line| !line.starts_with("cdn-loop: larder; instance="));
    said.any(|line| ["evil", "666", "66.6"].iter().any(|value| line.contains(value)))
}

fn check_unkeyed(trusted: bool, protocol: Protocol) {
    let (_origin, larder) = reflecting(&format!("{}{SITE}", if trusted { TRUSTING } else { "" }));
    for (number, (line, of_trusted)) in UNKEYED.into_iter().enumerate() {
        let reaches = trusted && of_trusted != Trusted::Nothing;
        let target = format!("/{number}");
        let what = format!("{line}, trusted: {trusted}, {protocol:?}");
        let attacked = get(&larder, protocol, &target, &[line]);
        assert_eq!(is_evil(&attacked), reaches, "{what}: {attacked}");
        let honest = get(&larder, protocol, &target, &[]);
        let is_believed = trusted && of_trusted == Trusted::Believed;
        assert!(is_believed || !is_evil(&honest), "{what}: {honest}");
    }
}

#[test]
fn no_unkeyed_input_of_strangers_changes_an_answer() {
    check_unkeyed(false, Protocol::Http1);
    check_unkeyed(false, Protocol::Http2);
}

#[test]
fn what_trusted_peers_say_is_keyed() {
    check_unkeyed(true, Protocol::Http1);
    check_unkeyed(true, Protocol::Http2);
}

/// Field bug: a field that `Connection` names is taken out on its way, but its value was compared as if it had not been.
//= RFC 9110 section 7.6.1: fields named in Connection are removed with it
#[test]
fn a_field_named_in_connection_is_one_that_was_not_sent() {
    let (origin, larder) = reflecting(SITE);
    let named = ["X-Own: evil", "Connection: x-own"];
    let attacked = get(&larder, Protocol::Http1, "/?X-Own", &named);
    assert!(!attacked.contains("x-own"), "{attacked}");
    let honest = get(&larder, Protocol::Http1, "/?X-Own", &["X-Own: evil"]);
    assert!(honest.contains("x-own: evil"), "{honest}");
    // It is the same as a request without the field.
    assert_eq!(get(&larder, Protocol::Http1, "/?X-Own", &named), attacked);
    assert_eq!(get(&larder, Protocol::Http1, "/?X-Own", &[]), attacked);
    assert_eq!(origin.total(), 2);
}

/// Fields that are for the origin or for every recipient are no business of one connection.
//= RFC 9110 section 7.6.1: fields for all recipients are not named
#[test]
fn connection_names_no_end_to_end_field() {
    for config in [SITE.to_owned(), format!("{TRUSTING}{SITE}")] {
        let (origin, larder) = reflecting(&config);
        for name in END_TO_END {
            let response = larder.ask("GET", "/", &format!("Connection: keep-alive, {name}\r\n"));
            assert_eq!(response.status(), 400, "{name}");
        }
        assert_eq!(origin.total(), 0);
        let reason = ["reason=\"end-to-end-field-nominated\""];
        assert_eq!(larder.metric("larder_client_errors_total", &reason), END_TO_END.len() as f64);
        for name in ["Proxy-Authorization", "TE", "X-Own"] {
            assert_eq!(larder.ask("GET", "/", &format!("Connection: {name}\r\n")).status(), 200, "{name}");
        }
    }
}

/// Field bug: a client behind a proxy that forwards `Connection` took out what the proxy had set: a part of the key, a user, what a rule asks for.
//= RFC 9110 section 7.6.1: fields for all recipients are not named
#[test]
fn connection_names_no_field_that_a_site_reads() {
    let more = "request_fields_keyed = [\"X-Variant\"]\n[[site.rule]]\nname = \"b\"\npath = { prefix = \"/b\" }\n\
                credential_fields = [\"X-User\"]\n[[site.transform]]\nname = \"c\"\nphase = \"client_request\"\n\
                request_fields = { X-Bot = \"*\" }\nredirect = { status = 302, to = \"/{header.X-Country}\" }\n\
                [[site.transform]]\nname = \"d\"\nphase = \"client_request\"\ncopy = { X-Kind = \"X-Device\" }\n\
                [[site.transform]]\nname = \"e\"\nphase = \"client_response\"\nset = { X-Told = \"{request.header.X-Asked}\" }\n";
    for trusted in ["", TRUSTING] {
        let (origin, mut larder) = reflecting(&format!("{trusted}{SITE}{more}"));
        for name in
            ["X-Variant", "x-user", "X-BOT", "X_Variant", "X.User", "X-Device", "X-Country", "X-Asked"]
        {
            let lines = format!("X-Variant: 1\r\nX-User: 1\r\nConnection: close, {name}\r\n");
            assert_eq!(larder.ask("GET", "/", &lines).status(), 400, "{name}");
        }
        assert_eq!(origin.total(), 0);
        assert_eq!(larder.ask("GET", "/", "X-Own: 1\r\nConnection: X-Own\r\n").status(), 200);
        // Once no site reads it, it can be a connection's own.
        larder.write_config(&format!("{trusted}{SITE}").replace("@origin@", &origin.url()));
        assert_eq!(larder.ask_admin("POST", "/reload", "").status(), 200);
        assert_eq!(larder.ask("GET", "/", "X-User: 1\r\nConnection: X-User\r\n").status(), 200);
    }
}

/// Those by which a balancer tells of a request are among them: it forwards `Connection` as its client wrote it.
const END_TO_END: [&str; 47] = [
    "Origin",
    "Accept-Encoding",
    "Cookie",
    "Authorization",
    "Cache-Control",
    "Range",
    "Host",
    "Content-Type",
    "Content-Length",
    "If-None-Match",
    "Sec-Fetch-Site",
    "Access-Control-Request-Method",
    "User-Agent",
    "Via",
    "CDN-Loop",
    "Forwarded",
    "X-Forwarded-For",
    "X-Real-IP",
    "X-Forwarded-Proto",
    "X-Scheme",
    "x-url-scheme",
    "Front-End-Https",
    "X-Forward-For",
    "True-Client-IP",
    "CF-Connecting-IP",
    "Client-IP",
    "Client-Cert",
    "Client-Cert-Chain",
    "X-Client-Cert",
    "X-SSL-Client-S-DN",
    "SSL-Client-Verify",
    "X-Client-Verify",
    "X-ARR-SSL",
    "X-Real-Port",
    "CloudFront-Forwarded-Proto",
    "X-Original-URL",
    "X-HTTP-Method-Override",
    "Script-Name",
    "X_Scheme",
    "X-API-Key",
    "Remote-User",
    "X-Auth-Request-User",
    "Tailscale-User-Login",
    "X-Sendfile-Type",
    "Early-Data",
    "Coming-From",
    "X_API_Key",
];

/// Field bug: one client got what was made for the address of another.
//= RFC 9111 section 4.1: all nominated fields match
#[test]
fn nominated_values_are_those_that_were_sent() {
    let (origin, larder) = reflecting(&format!("{TRUSTING}{SITE}"));
    for (name, one, other) in [
        ("X-Forwarded-For", "X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: 192.0.2.2"),
        ("Forwarded", "Forwarded: for=192.0.2.1", "Forwarded: for=192.0.2.2"),
        ("X-Real-IP", "X-Real-IP: 192.0.2.1", "X-Real-IP: 192.0.2.2"),
        ("Via", "Via: 1.1 one", "Via: 1.1 other"),
    ] {
        let (target, before) = (format!("/{name}?{name}"), origin.total());
        let first = get(&larder, Protocol::Http1, &target, &[one]);
        assert_ne!(get(&larder, Protocol::Http1, &target, &[other]), first, "{name}");
        assert_eq!(get(&larder, Protocol::Http1, &target, &[one]), first, "{name}");
        assert_eq!(origin.total(), before + 2, "{name}");
    }
    // What strangers write there is not sent, so it makes no difference.
    let (origin, larder) = reflecting(SITE);
    for name in ["X-Forwarded-For", "Forwarded", "X-Real-IP", "X-Forwarded-Host", "X-Forwarded-Proto"] {
        let (target, before) = (format!("/{name}?{name}"), origin.total());
        for address in ["192.0.2.1", "192.0.2.2"] {
            let answer = get(&larder, Protocol::Http1, &target, &[&format!("{name}: {address}")]);
            assert!(!answer.contains("192.0.2."), "{answer}");
        }
        assert_eq!(origin.total(), before + 1, "{name}");
    }
}

/// Two clients at two addresses, with `Vary: X-Forwarded-For`.
/// What an origin, or a firewall in front of it, answers to requests with odd fields, with a lifetime as for everything else.
const ODD: [(&str, u16); 16] = [
    ("X-Oversized: @8000", 400),
    ("X-Oversized: @8001", 431),
    ("X-Oversized: @8002", 413),
    ("X-Meta: a\tb", 400),
    ("X-HTTP-Method: DELETE", 501),
    ("X-Forbidden: <script>", 403),
    ("User-Agent: scanner", 403),
    ("Authorization: Basic d3Jvbmc=", 401),
    ("Accept: application/unknown", 406),
    ("If-Match: \"none\"", 412),
    ("Content-Type: text/none", 415),
    ("Content-Encoding: none", 415),
    ("Expect: nothing", 417),
    ("X-Forwarded-Host: other.example", 421),
    ("Accept-Language: ;;", 422),
    ("X-Odd: 1", 499),
];

/// Cache-poisoned denial of service: the error that one client causes stays its own.
#[test]
fn errors_of_one_request_are_not_stored() {
    let origin = ScriptedOrigin::start(|exchange| {
        let status = exchange.request.target().trim_matches(|character: char| !character.is_ascii_digit());
        let status = status.split('-').next().unwrap_or_default().to_owned();
        let odd = exchange.request.head.fields.one("x-attack").is_some();
        let start = if odd { format!("{status} Odd") } else { "200 OK".to_owned() };
        exchange.respond(&start, "Cache-Control: public, max-age=60\r\n", "page");
    });
    let larder = Setup::config(LARDER, &SITE.replace("@origin@", &origin.url())).start();
    for protocol in [Protocol::Http1, Protocol::Http2] {
        for (number, (line, status)) in ODD.iter().enumerate() {
            let target = format!("/{status}-{number}-{protocol:?}");
            let line = match line.split_once('@') {
                Some((name, bytes)) => format!("{name}{}", "x".repeat(bytes.parse().expect("a number"))),
                None => (*line).to_owned(),
            };
            get(&larder, protocol, &target, &["X-Attack: 1", &line]);
            let answer = larder.get(&target);
            assert_eq!(answer.status(), 200, "{line:.40} {status}: {:?}", answer.head);
            assert!(larder.get(&target).is_hit(), "{line:.40} {status}");
        }
    }
}

/// Who waits for the forward of somebody odd does not get the error.
#[test]
fn errors_of_one_request_reach_nobody_who_waits() {
    let gate = Gate::new();
    let passed = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        passed.pass();
        let odd = exchange.request.head.fields.one("x-attack").is_some();
        let start = if odd { "400 Bad Request" } else { "200 OK" };
        exchange.respond(start, "Cache-Control: public, max-age=60\r\n", "page");
    });
    let larder = Setup::config(LARDER, &SITE.replace("@origin@", &origin.url())).start();
    let mut odd = larder.client();
    odd.send("GET / HTTP/1.1\r\nHost: test.example\r\nX-Attack: 1\r\n\r\n");
    origin.wait_for("/", 1);
    let mut honest: Vec<_> = (0..4).map(|_| larder.client()).collect();
    for client in &mut honest {
        client.send("GET / HTTP/1.1\r\nHost: test.example\r\n\r\n");
    }
    wait::until_true("all wait", || larder.metric("larder_collapsed_waiters", &[]) == 4.0);
    gate.open();
    assert_eq!(odd.response().status(), 400);
    for client in &mut honest {
        assert_eq!(client.response().status(), 200);
    }
}

#[test]
fn an_answer_for_an_address_is_for_that_address() {
    let (origin, larder) = reflecting(
        "[[listen]]\naddress = \"@listen@\"\nproxy_protocol = true\n[[site]]\nname = \"a\"\norigin = \"@origin@\"\n",
    );
    let ask = |address: &str| {
        let mut client = larder.client();
        client.send(format!("PROXY TCP4 {address} 192.0.2.1 12345 80\r\n"));
        client.ask("GET", "/?X-Forwarded-For", "X-Forwarded-For: 192.0.2.99\r\n").text()
    };
    for _ in 0..2 {
        assert!(ask("192.0.2.5").contains("x-forwarded-for: 192.0.2.5\n"));
        assert!(ask("192.0.2.6").contains("x-forwarded-for: 192.0.2.6\n"));
    }
    assert_eq!(origin.total(), 2);
}

/// The scheme in the key is the one that the origin hears of, in one form.
#[test]
fn the_way_of_a_trusted_peer_is_read_once() {
    let (_origin, larder) = reflecting(&format!("{TRUSTING}{SITE}"));
    for (number, (lines, scheme, host, forwarded)) in [
        (&["X-Forwarded-Proto: https, http"][..], "https", "test.example", ""),
        (&["X-Forwarded-Proto: https", "X-Forwarded-Proto: http"], "https", "test.example", ""),
        (&["X-Forwarded-Proto:  HTTPS "], "https", "test.example", ""),
        (&["X-Forwarded-Proto: http"], "http", "test.example", ""),
        (&["X-Forwarded-Proto: gopher"], "http", "test.example", ""),
        (&["X-Forwarded-Ssl: on"], "https", "test.example", ""),
        (&["Front-End-Https: On"], "https", "test.example", ""),
        (&["X-Forwarded-Scheme: https"], "https", "test.example", ""),
        (&["Forwarded: for=192.0.2.1;proto=https;host=\"B.example:443\""], "https", "b.example", "192.0.2.1"),
        (&["X-Forwarded-Proto: http", "Forwarded: proto=https"], "http", "test.example", ""),
        (&["X-Forwarded-Host: B.example, c.example"], "http", "b.example", ""),
        (&["X-Forwarded-Host: not a host"], "http", "test.example", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = get(&larder, Protocol::Http1, &format!("/{number}"), lines);
        let has = |line: String| assert!(answer.contains(&line), "{lines:?}: {line:?} in {answer}");
        has(format!("\nx-forwarded-proto: {scheme}\n"));
        has(format!("\nx-forwarded-host: {host}\n"));
        has(format!("for=127.0.0.1;host=\"{host}\";proto={scheme}\n"));
        if !forwarded.is_empty() {
            has(format!("\nforwarded: for={forwarded};host=\"{host}\";proto={scheme}, "));
        }
        let is_stored = |url: &str| {
            let purged = larder.ask_admin("POST", &format!("/purge?url={url}"), "").text();
            purged.contains("\"responses_purged\":1")
        };
        // A response for another host than that of the URL lies under the same URL, but is not counted.
        assert!(
            host != "test.example" || is_stored(&format!("{scheme}://test.example/{number}")),
            "{lines:?}"
        );
    }
}

/// What lies under keys with fields in them is taken out of use with its URL.
#[test]
fn keyed_fields_take_part_and_a_purge_reaches_them() {
    let keyed = format!("{SITE}request_fields_keyed = [\"X-Country\", \"Accept\"]\n");
    let (origin, larder) = reflecting(&keyed);
    let ask = |country: &str| larder.ask("GET", "/", &format!("X-Country: {country}\r\n"));
    for country in ["at", "ch"] {
        assert!(ask(country).text().contains(&format!("x-country: {country}")));
        assert!(ask(country).is_hit(), "{country}");
    }
    assert!(!larder.get("/").text().contains("x-country"));
    assert_eq!(origin.total(), 3);
    assert_eq!(larder.ask_admin("POST", "/purge?url=http://test.example/", "").status(), 200);
    for country in ["at", "ch"] {
        assert!(!ask(country).is_hit(), "{country}");
    }
    assert!(ask("at").is_hit());
    // A write to the URL reaches them too.
    larder.ask("PUT", "/", "Content-Length: 0\r\n");
    assert!(!ask("at").is_hit());
}

/// An origin whose bytes change although their validator does not: what a hard purge is for. `letter` is what it sends.
fn keeping_its_tag(exchange: &mut Exchange<'_>, letter: u8) {
    const FIELDS: &str = "Cache-Control: max-age=60\r\nETag: \"1\"\r\n";
    let body = [letter; 1000];
    if !exchange.request.field("if-none-match").is_empty() {
        exchange.head("304 Not Modified", FIELDS);
    } else if exchange.request.field("range") == "bytes=0-499" {
        let fields = format!("{FIELDS}Content-Range: bytes 0-499/1000\r\n");
        exchange.respond("206 Partial Content", &fields, &body[..500]);
    } else if exchange.request.field("range") == "bytes=500-" {
        let fields = format!("{FIELDS}Content-Range: bytes 500-999/1000\r\n");
        exchange.respond("206 Partial Content", &fields, &body[500..]);
    } else {
        exchange.respond("200 OK", FIELDS, body);
    }
}

/// After a hard purge nothing of what was stored comes back: neither by a 304 nor as the other half of a part.
#[test]
fn a_hard_purge_takes_away_what_lies_under_keys_with_fields() {
    let letter = Arc::new(AtomicU8::new(b'A'));
    let sent = Arc::clone(&letter);
    let origin = ScriptedOrigin::start(move |exchange| keeping_its_tag(exchange, sent.load(Relaxed)));
    let config = format!("{SITE}request_fields_keyed = [\"X-Country\"]\n");
    let larder = Setup::config(LARDER, &config.replace("@origin@", &origin.url())).start();
    for (target, keyed, first) in [
        ("/1", "", ""),
        ("/2", "X-Country: at\r\n", ""),
        ("/3", "X-Country: at\r\n", "Range: bytes=0-499\r\n"),
    ] {
        letter.store(b'A', Relaxed);
        let stored = larder.ask("GET", target, &format!("{keyed}{first}")).text();
        assert!(stored.ends_with("AAA"), "{target}");
        let purge = format!("/purge?url=http://test.example{target}");
        assert_eq!(larder.ask_admin("POST", &purge, "").status(), 200, "{target}");
        letter.store(b'B', Relaxed);
        let after = larder.ask("GET", target, keyed);
        assert_eq!(after.text(), "B".repeat(1000), "{target}");
        assert!(larder.ask("GET", target, keyed).is_hit(), "{target}");
    }
}

/// Fields that replace method or target, as the rule says.
#[test]
fn override_fields_are_dropped_keyed_or_forwarded() {
    for (choice, is_sent, is_shared) in [("drop", false, true), ("key", true, false), ("forward", true, true)]
    {
        let (_origin, larder) = reflecting(&format!("{SITE}[[site.rule]]\noverride_fields = \"{choice}\"\n"));
        let line = ["X-HTTP-Method-Override: EVIL"];
        let attacked = get(&larder, Protocol::Http1, "/", &line);
        assert_eq!(attacked.contains("EVIL"), is_sent, "{choice}");
        assert_eq!(get(&larder, Protocol::Http1, "/", &[]) == attacked, is_shared, "{choice}");
        // Nothing is stored for a POST, whose origin may well know them.
        let posted = larder.ask("POST", "/", "X-HTTP-Method-Override: PUT\r\nContent-Length: 0\r\n").text();
        assert!(posted.contains("x-http-method-override: PUT"), "{choice}: {posted}");
    }
}

#[test]
fn names_with_underscores_pass_where_the_site_says_so() {
    let (_origin, larder) = reflecting(&format!("{SITE}underscore_fields = \"forward\"\n"));
    let answer = get(
        &larder,
        Protocol::Http1,
        "/",
        &["app_version: 1", "X_Forwarded_Host: evil.example", "X.Original.URL: /evil"],
    );
    assert!(answer.contains("app_version: 1"), "{answer}");
    assert!(!answer.contains("evil"), "known under either spelling: {answer}");
}

/// Field bug: a field that the site hides, or that every recipient or only a trusted peer knows, reached the origin with `_` in its name.
#[test]
fn names_with_underscores_are_read_as_those_with_hyphens() {
    let forward = "underscore_fields = \"forward\"\nrequest_fields_hidden = [\"X-Secret\", \"x_other\"]\n";
    let lines = [
        "X_Secret: evil",
        "x.secret: evil",
        "X-Other: evil",
        "x~other: evil",
        "X_Real_IP: evil",
        "X_Forwarded_For: evil",
        "X_Forwarded_Prefix: evil",
        "True_Client_IP: evil",
        "Client_Cert: evil",
        "Accept_Encoding: evil",
        "If_None_Match: evil",
        "Content_Length: evil",
        "Content_Type: evil",
        "Transfer_Encoding: evil",
        "Proxy_Authorization: evil",
        "Max_Forwards: evil",
        "Early_Data: evil",
        "CDN_Loop: evil",
        "app_version: 1",
    ];
    for trusted in ["", TRUSTING] {
        let (_origin, larder) = reflecting(&format!("{trusted}{SITE}{forward}"));
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let answer = get(&larder, protocol, &format!("/{protocol:?}"), &lines);
            assert!(answer.contains("app_version: 1") && !answer.contains("evil"), "{protocol:?}: {answer}");
        }
    }
}

/// Field bug: what rules and the origin's own fields overwrite or take out reached it with `_` in its name.
#[test]
fn rules_are_evaded_by_no_spelling() {
    let more = "underscore_fields = \"forward\"\n\
                [[site.transform]]\nname = \"a\"\nphase = \"client_request\"\nrequest_fields = { X-Bot = \"*\" }\n\
                redirect = { status = 302, to = \"/bots\" }\n\
                [[site.transform]]\nname = \"b\"\nphase = \"client_request\"\nset = { X-Geo = \"n\" }\nremove = [\"X-Admin\"]\n\
                [[site.transform]]\nname = \"c\"\nphase = \"origin_request\"\nset = { X-Role = \"guest\", x_own = \"ours\" }\n\
                remove = [\"X-Debug\"]\n";
    let (_origin, larder) = reflecting(&format!("{SITE}{more}"));
    let lines = [
        "X_Bot: evil",
        "X_Geo: evil",
        "x.admin: evil",
        "X_Role: evil",
        "X_Debug: evil",
        "X-Own: evil",
        "X_Own: evil",
        "app_version: 1",
    ];
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let answer = get(&larder, protocol, &format!("/{protocol:?}"), &lines);
        for ours in ["app_version: 1", "x-geo: n", "x-role: guest", "x_own: ours"] {
            assert!(answer.contains(ours), "{protocol:?}: {answer}");
        }
        assert_eq!(answer.matches("evil").count(), 1, "{protocol:?}: X-Own is another field: {answer}");
    }
}

/// Field bug: navigation inside a site of Next.js loaded whole pages, because its requests for data lacked the field that says so.
#[test]
fn next_js_is_asked_for_data_below_its_folder_alone() {
    let (origin, larder) = reflecting(&format!(
        "{SITE}[[site]]\nname = \"docs\"\npath_prefix = \"/docs\"\norigin = \"http://127.0.0.1:1\"\n"
    ));
    let asking = ["X-Nextjs-Data: 1"];
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let data = format!("/_next/data/b/{protocol:?}.json");
        for _ in 0..2 {
            assert!(get(&larder, protocol, &data, &asking).contains("x-nextjs-data: 1"), "{protocol:?}");
            assert!(!get(&larder, protocol, &data, &[]).contains("x-nextjs-data"), "{protocol:?}: keyed");
        }
        let page = format!("/x/_next/data/{protocol:?}");
        for lines in [&asking[..], &[], &["X_Nextjs_Data: 1"]] {
            assert!(!get(&larder, protocol, &page, lines).contains("nextjs"), "{protocol:?}");
        }
    }
    assert_eq!(origin.total(), 6);
}

/// A base path is the prefix of the site.
#[test]
fn next_js_with_a_base_path_is_asked_for_data_below_it() {
    let (origin, larder) = reflecting(&format!("{SITE}path_prefix = \"/docs\"\n"));
    let asking = ["X-Nextjs-Data: 1"];
    let data = "/docs/_next/data/b/page.json";
    for _ in 0..2 {
        assert!(get(&larder, Protocol::Http1, data, &asking).contains("x-nextjs-data: 1"));
        assert!(!get(&larder, Protocol::Http1, data, &[]).contains("x-nextjs-data"), "keyed");
    }
    assert!(!get(&larder, Protocol::Http1, "/docs/page", &asking).contains("x-nextjs-data"));
    assert_eq!(origin.total(), 3);
}

/// An allow list names what the origin gets, letter by letter.
#[test]
fn fields_are_chosen_by_their_exact_names() {
    let lists = "underscore_fields = \"forward\"\nrequest_fields_forwarded = [\"X-Own\", \"x_other\"]\n";
    let (_origin, larder) = reflecting(&format!("{SITE}{lists}"));
    let lines = ["X-Own: 1", "X_Own: evil", "x_other: 2", "X-Other: evil"];
    let answer = get(&larder, Protocol::Http1, "/", &lines);
    assert!(answer.contains("x-own: 1") && answer.contains("x_other: 2"), "{answer}");
    assert!(!answer.contains("evil"), "{answer}");
}

/// Field bug: the key lacked a field that it should have, where the name had `_` in place of `-`.
#[test]
fn keyed_fields_are_keyed_in_every_spelling() {
    let lists = "underscore_fields = \"forward\"\nrequest_fields_keyed = [\"X-Variant\"]\n";
    let (origin, larder) = reflecting(&format!("{SITE}{lists}"));
    for spelled in ["X_Variant", "x.variant", "X-VARIANT"] {
        let line = format!("{spelled}: evil");
        assert!(get(&larder, Protocol::Http1, "/", &[&line]).contains("evil"), "{spelled}");
        assert!(!get(&larder, Protocol::Http1, "/", &[]).contains("evil"), "{spelled}");
    }
    assert_eq!(origin.total(), 4);
}

/// Field bug: a credential with `_` in its name was none, and its answer went to everybody.
#[test]
fn credentials_are_such_in_every_spelling() {
    let origin = ScriptedOrigin::start(|exchange| {
        let lines: String =
            exchange.request.head.fields.0.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        // With a lifetime that is guessed: it is for requests without credentials.
        exchange.respond("200 OK", "Last-Modified: Sat, 21 Nov 2020 12:00:00 GMT\r\n", lines);
    });
    let config = format!(
        "{SITE}underscore_fields = \"forward\"\n[[site.rule]]\n\
         credential_fields = [\"X-User\", \"X_Login\"]\n"
    );
    let larder = Setup::config(LARDER, &config.replace("@origin@", &origin.url())).start();
    for spelled in ["X_API_Key", "x.auth.token", "X_User", "x.user", "X-User", "X-Login", "x_login"] {
        let (target, line) = (format!("/{spelled}"), format!("{spelled}: alice"));
        let own = get(&larder, Protocol::Http1, &target, &[&line]);
        assert!(own.contains("alice"), "{own}");
        let of_others = get(&larder, Protocol::Http1, &target, &[]);
        assert!(!of_others.contains("alice"), "{spelled}: {of_others}");
    }
}

/// Field bug: an allow list without `Max-Forwards` let it through.
//= RFC 9110 section 7.6.2: Max-Forwards of TRACE and OPTIONS
#[test]
fn max_forwards_is_sent_where_the_site_forwards_it() {
    for (list, is_sent) in [
        ("", true),
        ("request_fields_forwarded = [\"Accept\"]\n", false),
        ("request_fields_forwarded = [\"Max-Forwards\"]\n", true),
        ("request_fields_hidden = [\"Max-Forwards\"]\n", false),
    ] {
        let (_origin, larder) = reflecting(&format!("{SITE}{list}"));
        let answer = larder.ask("OPTIONS", "/", "Max-Forwards: 5\r\n").text();
        assert_eq!(answer.contains("max-forwards: 4"), is_sent, "{list}: {answer}");
        assert_eq!(answer.contains("max-forwards"), is_sent, "{list}: {answer}");
        let last = larder.ask("OPTIONS", "/", "Max-Forwards: 0\r\n");
        assert!(!last.text().contains("OPTIONS /"), "{list}: it is read all the same");
    }
}

/// What is hidden from the origin is no part of what it answers to.
#[test]
fn hidden_fields_are_as_if_they_were_not_sent() {
    let (origin, larder) =
        reflecting(&format!("{SITE}request_fields_hidden = [\"Cookie\", \"Accept-Language\"]\n"));
    for language in ["de", "fr"] {
        let lines = [&format!("Accept-Language: {language}")[..], &format!("Cookie: id={language}")];
        let answer = get(&larder, Protocol::Http1, "/?Accept-Language,Cookie", &lines);
        assert!(!answer.contains("language:") && !answer.contains("cookie:"), "{answer}");
    }
    assert_eq!(origin.total(), 1);
}

/// What a balancer says, and what Larder says of it.
const OF_THE_WAY: [&str; 13] = [
    "X-Forwarded-For: 192.0.2.1",
    "X-Forwarded-Proto: https",
    "X-Forwarded-Host: secret.example",
    "X-Forwarded-Port: 8443",
    "X-Forwarded-Prefix: /secret",
    "X-Forwarded-Ssl: on",
    "X-Scheme: https",
    "Front-End-Https: on",
    "X-Real-IP: 192.0.2.1",
    "True-Client-IP: 192.0.2.1",
    "Client-Cert: :c2VjcmV0:",
    "X-SSL-Client-Verify: SUCCESS",
    "X-Real-Port: 4711",
];

fn names_in(answer: &str) -> Vec<&str> {
    answer.lines().skip(1).filter_map(|line| line.split_once(": ")).map(|(name, _)| name).collect()
}

/// Field bug: the lists of the site did not hold for fields of trusted proxies.
#[test]
fn what_a_site_hides_is_hidden_whoever_says_it() {
    for trusting in ["", TRUSTING] {
        let (_origin, larder) = reflecting(&format!("{trusting}{SITE}"));
        for line in ["X-Hidden: 1", "Forwarded: for=192.0.2.1"].iter().chain(&OF_THE_WAY) {
            let name = line.split(':').next().unwrap_or_default();
            let (_origin, hiding) =
                reflecting(&format!("{trusting}{SITE}request_fields_hidden = [\"{name}\"]\n"));
            let answer = get(&hiding, Protocol::Http1, "/", &[line]);
            assert!(
                !names_in(&answer).iter().any(|sent| sent.eq_ignore_ascii_case(name)),
                "{name}: {answer}"
            );
        }
        let before = get(&larder, Protocol::Http1, "/", &OF_THE_WAY);
        assert_eq!(before.contains("client-cert"), !trusting.is_empty(), "{before}");
    }
}

#[test]
fn a_site_that_says_what_is_forwarded_forwards_nothing_else() {
    let list = "request_fields_forwarded = [\"X-Listed\", \"X-Real-IP\"]\n";
    let (_origin, larder) = reflecting(&format!("{TRUSTING}{SITE}{list}"));
    let lines = [&OF_THE_WAY[..], &["X-Listed: 1", "X-Unlisted: 1"]].concat();
    let answer = get(&larder, Protocol::Http1, "/", &lines);
    let mut names = names_in(&answer);
    names.sort_unstable();
    let expected = [
        "cdn-loop",
        "forwarded",
        "host",
        "via",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-listed",
        "x-real-ip",
    ];
    assert_eq!(names, expected, "{answer}");
    assert!(answer.contains("x-forwarded-proto: https\n"), "it is read all the same: {answer}");
}

/// The origin sees the host in the form in which it is in the key.
#[test]
fn host_is_sent_as_it_is_in_the_key() {
    let (origin, larder) = reflecting(SITE);
    for host in
        ["h.test", "H.TEST", "h.test:", "h.test:80", "h.test:00080", "h.tesT:080", "h.test.", "H.Test.:80"]
    {
        let mut client = larder.client();
        client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert!(client.response().text().contains("\nhost: h.test\n"), "{host}");
    }
    assert_eq!(origin.total(), 1);
    for (number, host, sent) in [
        (0, "H.TEST:8080", "h.test:8080"),
        (1, "h.test.:8080", "h.test:8080"),
        (2, "[2001:DB8::1]:80", "[2001:db8::1]"),
    ] {
        let mut client = larder.client();
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let answer = client.response().text();
        assert!(answer.contains(&format!("\nhost: {sent}\n")), "{host}: {answer}");
        assert!(answer.contains(&format!("\nx-forwarded-host: {sent}\n")), "{host}: {answer}");
    }
}

/// An origin that compresses by gzip, whatever else a client accepts, and one that has more.
fn compressing(codings: &'static [&'static str]) -> ScriptedOrigin {
    ScriptedOrigin::start(move |exchange| {
        let accepted = exchange.request.head.fields.joined("accept-encoding");
        let is_accepted = |coding: &&&str| accepted.split(',').any(|member| member.trim() == **coding);
        let coding = codings.iter().find(is_accepted).copied().unwrap_or("identity");
        let fields = "Cache-Control: max-age=60\r\nVary: Accept-Encoding\r\nETag: ";
        exchange.respond(
            "200 OK",
            &format!("{fields}\"{coding}\"\r\nContent-Encoding: {coding}\r\n"),
            coding,
        );
    })
}

/// Field bug: one gzip body was stored for each spelling of what clients accept beside it.
//= RFC 9110 section 12.5.3: Accept-Encoding
//= RFC 9111 section 4.1: preference among several matches
#[test]
fn one_body_is_stored_for_all_that_get_it() {
    let widening = ["gzip", "gzip, deflate", "gzip, deflate, br", "gzip, deflate, br, zstd"];
    let narrowing = ["gzip, deflate, br, zstd", "gzip, deflate, br", "x-gzip", "gzip, foo"];
    for (order, forwards) in [(widening, 3), (narrowing, 1)] {
        let origin = compressing(&["gzip"]);
        let larder = Setup::origin(LARDER, &origin.url()).start();
        let ask = |accepted: &str| larder.ask("GET", "/", &format!("Accept-Encoding: {accepted}\r\n"));
        assert!(order.iter().all(|accepted| ask(accepted).text() == "gzip"), "{order:?}");
        assert_eq!(origin.total(), forwards, "{order:?}");
        assert!(widening.iter().chain(&narrowing).all(|accepted| ask(accepted).is_hit()), "{order:?}");
        let refused = ask("br, gzip;q=0");
        assert!(!refused.is_hit() && refused.text() == "identity", "{:?}", refused.head);
        let purged = larder.ask_admin("POST", "/purge?url=http://test.example/", "").text();
        assert!(purged.contains("\"responses_purged\":2"), "gzip and identity: {purged}");
    }
}

#[test]
fn nobody_loses_a_better_coding() {
    let origin = compressing(&["zstd", "br", "gzip"]);
    let larder = Setup::origin(LARDER, &origin.url()).start();
    for _ in 0..2 {
        for (accepted, expected) in [
            ("gzip", "gzip"),
            ("gzip, deflate, br", "br"),
            ("gzip, deflate, br, zstd", "zstd"),
            ("deflate", "identity"),
        ] {
            let answer = larder.ask("GET", "/", &format!("Accept-Encoding: {accepted}\r\n"));
            assert_eq!(answer.text(), expected, "{accepted}");
        }
    }
    assert_eq!(origin.total(), 4);
    let sent = origin.last("/").head.fields.joined("accept-encoding");
    assert_eq!(sent, "identity", "what the origin has none of is not asked for");
}

/// The status of an HTTP/2 request whose fields are these literals (RFC 7541 section 6.2.2); 0 where the stream is reset.
fn status_of_http2(larder: &Larder, fields: &[(&str, &str)]) -> u16 {
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let length = u16::try_from(payload.len()).expect("it is short").to_be_bytes();
        [&[0, length[0], length[1], kind, flags, 0, 0, 0, stream][..], payload].concat()
    };
    let mut block = Vec::new();
    for text in fields.iter().flat_map(|(name, value)| [name, value]) {
        let is_name = text.starts_with(':');
        block.extend(if is_name { &[0_u8][..] } else { &[] });
        block.push(u8::try_from(text.len()).expect("it is short"));
        block.extend(text.as_bytes());
    }
    let mut client = larder.client();
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").send(frame(4, 0, 0, &[])).send(frame(1, 5, 1, &block));
    loop {
        let head = client.bytes(9);
        let length = head[..3].iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        let payload = client.bytes(length);
        match (head[3], payload.first()) {
            (1, Some(0x88)) => return 200,
            (1, Some(0x8c)) => return 400,
            (3 | 7, _) => return 0,
            (1, first) => panic!("another status: {first:?}"),
            _ => {}
        }
    }
}

//= RFC 9113 section 8.3.1: request pseudo-header fields
#[test]
fn odd_methods_and_schemes_of_http2_are_refused() {
    let (origin, larder) = reflecting(SITE);
    for (scheme, expected) in [("http", 200), ("https", 200), ("ftp", 400), ("", 400), ("x-own", 400)] {
        let fields =
            [(":method", "GET"), (":scheme", scheme), (":path", "/"), (":authority", "test.example")];
        let status = status_of_http2(&larder, &fields);
        assert!(status == expected || (expected == 400 && status == 0), "{scheme:?}: {status}");
    }
    let before = origin.total();
    for (method, status) in [("M".repeat(5000), "501"), ("M".repeat(33), "501"), ("M".repeat(32), "200")] {
        let url = larder.url("/");
        let arguments =
            ["--silent", "--max-time", "30", "--output", "/dev/null", "--write-out", "%{http_code}"];
        for protocol in ["--http2-prior-knowledge", "--http1.1"] {
            let output = run("curl", arguments.into_iter().chain([protocol, "--request", &method, &url]));
            assert_eq!(output.text(), status, "{} bytes, {protocol}", method.len());
        }
    }
    assert_eq!(origin.total(), before + 2);
}

/// A method that nobody knows may change anything, so a 2xx to it invalidates what is stored.
//= RFC 9111 section 4.4: invalidating stored responses
#[test]
fn unknown_methods_invalidate() {
    for (status, is_kept) in
        [("200 OK", false), ("204 No Content", false), ("302 Found", false), ("405 Method Not Allowed", true)]
    {
        let origin = ScriptedOrigin::start(move |exchange| {
            match exchange.request.method() {
                "GET" => exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "stored"),
                _ => exchange.respond(status, "", ""),
            };
        });
        let larder = Setup::origin(LARDER, &origin.url()).start();
        larder.get("/");
        larder.ask("FROBNICATE", "/", "");
        assert_eq!(larder.get("/").is_hit(), is_kept, "{status}");
    }
}

/// Field bug: a target without a path was refused, though it is one with the path `/`.
//= RFC 9110 section 4.2.3: http(s) normalization and comparison
#[test]
fn a_query_without_a_path_is_one_of_the_root() {
    let (origin, larder) = reflecting(SITE);
    let ask = |target: &str| {
        let mut client = larder.client();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: test.example\r\n\r\n"));
        client.response()
    };
    let response = ask("http://test.example?Accept");
    assert_eq!(response.status(), 200, "{:?}", response.head);
    assert!(response.text().starts_with("GET /?Accept HTTP/1.1\n"), "{}", response.text());
    assert!(ask("/?Accept").is_hit() && ask("http://test.example/?Accept").is_hit());
    assert_eq!(origin.total(), 1);
}
