//! Cache key, nominated values and the origin's view agree, so that no client's request changes the response to another client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use testkit::{Exchange, Larder, ScriptedOrigin, run};

use super::basics::{asking, bare, gates, get_of, reload, wait_for_waiters, with};
use crate::fleet::purge_waits::purge;

const TRUSTING: &str = "trusted_proxies = [\"127.0.0.0/8\"]\n";

/// Sends back the request, storable for a minute. The query of the target, if any, is the value of `Vary`.
fn reflect(exchange: &mut Exchange<'_>) {
    let vary = exchange.request.target().split_once('?').map_or("", |(_, names)| names);
    let vary = if vary.is_empty() { String::new() } else { format!("Vary: {vary}\r\n") };
    let body = all_of(exchange);
    exchange.respond("200 OK", &format!("Cache-Control: max-age=60\r\n{vary}"), body);
}

fn all_of(exchange: &Exchange<'_>) -> String {
    let head = &exchange.request.head;
    let lines: String = head.fields.0.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    format!("{}\n{lines}", head.start)
}

fn reflecting(config: &str) -> (ScriptedOrigin, Larder) {
    let origin = ScriptedOrigin::start(reflect);
    let larder = with(config, &origin);
    (origin, larder)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}
use Protocol::{Http1, Http2};

fn get_all(larder: &Larder, protocol: Protocol, asks: &[(String, &[&str])]) -> Vec<String> {
    if protocol == Http1 {
        let fields = |lines: &[&str]| lines.iter().map(|line| format!("{line}\r\n")).collect::<String>();
        return asks.iter().map(|(target, lines)| larder.ask("GET", target, &fields(lines)).text()).collect();
    }
    const END: &str = "\n== the end ==\n";
    let mut arguments = Vec::new();
    for (number, (target, lines)) in asks.iter().enumerate() {
        let next = ["--next", "--silent", "--show-error", "--max-time", "30", "--http2-prior-knowledge"];
        arguments.extend(next.into_iter().skip(usize::from(number == 0)).map(str::to_owned));
        let lines = ["Host: test.example"].iter().chain(*lines);
        arguments.extend(lines.flat_map(|line| ["--header".to_owned(), (*line).to_owned()]));
        // Each request has its own host name, because this curl can't reuse such a connection.
        let [place, url] = [format!("::{}", larder.address()), format!("http://{number}.test{target}")];
        arguments.extend(["--write-out", END, "--connect-to", &place, &url].map(str::to_owned));
    }
    let mut bodies: Vec<_> =
        run("curl", arguments).succeeded().text().split(END).map(str::to_owned).collect();
    bodies.pop();
    assert_eq!(bodies.len(), asks.len());
    bodies
}

fn get(larder: &Larder, protocol: Protocol, target: &str, lines: &[&str]) -> String {
    get_all(larder, protocol, &[(target.to_owned(), lines)]).remove(0)
}

/// Published attack fields: origins answer them with a different page, host, scheme or method, or an error page, but a careless cache
/// ignores them. Each value holds `evil` or 666; a name alone has the value `evil`. From trusted peers, these reach the origin and are
/// part of the cache key.
const KEYED: &str = "\
    X-Forwarded-Host:evil.example X-Forwarded-Port:666 X-Forwarded-Prefix:/evil X-Forwarded-Path:/evil \
    X-Forwarded-Uri:/evil X-Forwarded-Server:evil.example X-Forwarded-User Forwarded:for=192.0.2.1;host=evil.example \
    X-Forward-Host:evil.example X-Forward-Proto X-ForwardedHost:evil.example CloudFront-Forwarded-Proto \
    CF-Visitor:{\"scheme\":\"evil\"} Fastly-SSL X-ARR-SSL X-Client-Scheme X-Proto X-Https X-Real-Proto \
    X-Real-Port:666 X-Sendfile-Type:X-Accel-Redirect-evil X-Accel-Mapping:/=/evil/ X-Client-Certificate";
/// From trusted peers, these reach the origin without being in the key: they describe the client's address, and trusted peers write them
/// themselves.
const BELIEVED: &str = "\
    X-Forwarded-For:66.6.6.6 X-Forwarded Forwarded-For X-Real-IP True-Client-IP CF-Connecting-IP Client-IP \
    X-Client-IP X-Cluster-Client-IP X-ProxyUser-Ip X-Originating-IP X-Remote-IP Fastly-Client-IP \
    X-Forward-For:66.6.6.6 X-Forwarder-For:66.6.6.6 X-ClientIP Coming-From";
/// These never reach the origin, regardless of the sender.
const DROPPED: &str = "\
    X-Forwarded-Scheme X-Forwarded-Proto X-Forwarded-Protocol X-Forwarded-Ssl X-Url-Scheme Front-End-Https \
    X-Original-URL:/evil X-Original-Uri:/evil X-Original-Host:evil.example X-Original-Method X-Rewrite-URL:/evil \
    X-Host:evil.example X-HTTP-Host-Override:evil.example X-HTTP-Path-Override:/evil X-HTTP-Method \
    X-HTTP-Method-Override X-Method-Override X-Override-URL:/evil X-Invoke-Status:666 X-Middleware-Subrequest \
    Proxy:http://evil.example X_Forwarded_Host:evil.example X_Forwarded-Host:evil.example \
    x_forwarded_for:66.6.6.6 X_HTTP_Method_Override X_Original_URL:/evil X_Anything User_Agent Accept_Language \
    Content_Length:666 Host_ X-Real-Host:evil.example X-Origin-Host:evil.example X-Host-Override:evil.example \
    Disguised-Host:evil.example X-Fastly-Host:evil.example X-Server-Name X-Ms-Original-Url:/evil \
    X-Waws-Unencoded-Url:/evil X-Astro-Path:/evil X-Netlify-Original-Pathname:/evil X-Ingress-Path:/evil \
    Script-Name:/evil X-Base-Url:/evil Fastly-Orig-Host:evil.example X-Edge-Host:evil.example \
    X-Cdn-Host:evil.example X-Envoy-Original-Path:/evil X-Envoy-Original-Host:evil.example Base-Url:/evil \
    Request-Uri:/evil Http-Url:/evil X-Request-URI:/evil X-Request-URL:/evil X-URL:/evil X-Path-Info:/evil \
    Path-Info:/evil X-Script-Name:/evil X-React-Router-SPA-Mode X-React-Router-Prerender-Data X-Nextjs-Data \
    X-Nextjs-Rewrite:/evil X-Prerender-Revalidate X-Middleware-Next X.Forwarded.Host:evil.example \
    X~Forwarded~Host:evil.example X-Forwarded.Host:evil.example X!Anything X-Original+URL:/evil Proxy' User.Agent \
    X-Override-Host:evil.example X-Host-Name:evil.example X-Real-URL:/evil X-Real-Base-URL:/evil X-Orig-URL:/evil \
    X-Astro-Locals X-SvelteKit-Pathname:/evil";

fn is_evil(text: &str) -> bool {
    let mut said = text.lines().filter(|line| !line.starts_with("cdn-loop: larder; instance="));
    said.any(|line| ["evil", "666", "66.6"].iter().any(|value| line.contains(value)))
}

/// Sends each request first from an attacker, then from an honest client without the odd field.
fn check_unkeyed(trusting: &str) {
    let of =
        |names: &'static str| names.split(' ').map(move |name| (name, names == DROPPED, names == BELIEVED));
    let fields: Vec<_> = [KEYED, BELIEVED, DROPPED].into_iter().flat_map(of).collect();
    assert_eq!(fields.len(), 118);
    let lines = fields.iter().map(|(name, ..)| match name.split_once(':') {
        Some((name, value)) => [format!("{name}: {value}")],
        None => [format!("{name}: evil")],
    });
    let lines: Vec<_> = lines.collect();
    let lines: Vec<_> = lines.iter().map(|[line]| [&line[..]]).collect();
    let target = |number: usize| format!("/{number}");
    let attacks: Vec<_> =
        lines.iter().enumerate().map(|(number, line)| (target(number), &line[..])).collect();
    let honest: Vec<_> = (0..lines.len()).map(|number| (target(number), &[][..])).collect();
    for protocol in [Http1, Http2] {
        let (_origin, larder) = reflecting(&format!("{trusting}@site@"));
        let attacked = get_all(&larder, protocol, &attacks);
        let answers = attacked.iter().zip(get_all(&larder, protocol, &honest));
        for ((line, is_dropped, is_believed), (attacked, honest)) in fields.iter().zip(answers) {
            let is_trusted = !trusting.is_empty();
            assert_eq!(
                is_evil(attacked),
                is_trusted && !is_dropped,
                "{line}, {trusting}{protocol:?}: {attacked}"
            );
            let is_believed = is_trusted && *is_believed;
            assert!(is_believed || !is_evil(&honest), "{line}, {trusting}{protocol:?}: {honest}");
        }
    }
}

#[test]
fn no_unkeyed_input_of_strangers_changes_an_answer() {
    check_unkeyed("");
}

#[test]
fn what_trusted_peers_say_is_keyed() {
    check_unkeyed(TRUSTING);
}

/// Field bug: a field that `Connection` names isn't forwarded, but its value still selected the variant.
//= RFC 9110 section 7.6.1: fields named in Connection are removed with it
#[test]
fn a_field_named_in_connection_is_one_that_was_not_sent() {
    let (origin, larder) = reflecting("@site@");
    let ask = |lines: &[&str]| get(&larder, Http1, "/?X-Own", lines);
    let named = ["X-Own: evil", "Connection: x-own"];
    let attacked = ask(&named);
    assert!(!attacked.contains("x-own"), "{attacked}");
    let honest = ask(&["X-Own: evil"]);
    assert!(honest.contains("x-own: evil"), "{honest}");
    assert_eq!([ask(&named), ask(&[])], [&attacked[..]; 2], "the same as a request without the field");
    assert_eq!(origin.total(), 2);
}

/// Includes the fields in which a balancer describes a request, because it forwards `Connection` as its client wrote it.
const END_TO_END: &str = "\
    Origin Accept-Encoding Cookie Authorization Cache-Control Range Host Content-Type Content-Length If-None-Match \
    Sec-Fetch-Site Access-Control-Request-Method User-Agent Via CDN-Loop Forwarded X-Forwarded-For X-Real-IP \
    X-Forwarded-Proto X-Scheme x-url-scheme Front-End-Https X-Forward-For True-Client-IP CF-Connecting-IP Client-IP \
    Client-Cert Client-Cert-Chain X-Client-Cert X-SSL-Client-S-DN SSL-Client-Verify X-Client-Verify X-ARR-SSL \
    X-Real-Port CloudFront-Forwarded-Proto X-Original-URL X-HTTP-Method-Override Script-Name X_Scheme X-API-Key \
    Remote-User X-Auth-Request-User Tailscale-User-Login X-Sendfile-Type Early-Data Coming-From X_API_Key";

//= RFC 9110 section 7.6.1: fields for all recipients are not named
#[test]
fn connection_names_no_end_to_end_field() {
    for trusting in ["", TRUSTING] {
        let (origin, larder) = reflecting(&format!("{trusting}@site@"));
        let ask =
            |name: &str| larder.ask("GET", "/", &format!("Connection: keep-alive, {name}\r\n")).status();
        END_TO_END.split(' ').for_each(|name| assert_eq!(ask(name), 400, "{name}"));
        assert_eq!(origin.total(), 0);
        let reason = ["reason=\"end-to-end-field-nominated\""];
        assert_eq!(larder.metric("larder_client_errors_total", &reason), 47.0);
        ["Proxy-Authorization", "TE", "X-Own"].iter().for_each(|name| assert_eq!(ask(name), 200, "{name}"));
    }
}

/// Field bug: behind a proxy that forwards `Connection`, a client could remove fields that the proxy had set: a part of the key, a user,
/// a condition of a rule.
//= RFC 9110 section 7.6.1: fields for all recipients are not named
#[test]
fn connection_names_no_field_that_a_site_reads() {
    let more = r#"request_fields_keyed = ["X-Variant"]
rule = [{ path = { prefix = "/b" }, credential_fields = ["X-User"] }]
transform = [
    { phase = "client_request", request_fields = { X-Bot = "*" }, redirect = { status = 302, to = "/{header.X-Country}" } },
    { phase = "client_request", copy = { X-Kind = "X-Device" } },
    { phase = "client_response", set = { X-Told = "{request.header.X-Asked}" } },
]
"#;
    for trusting in ["", TRUSTING] {
        let (origin, mut larder) = reflecting(&format!("{trusting}@site@{more}"));
        for name in "X-Variant x-user X-BOT X_Variant X.User X-Device X-Country X-Asked".split(' ') {
            let lines = format!("X-Variant: 1\r\nX-User: 1\r\nConnection: close, {name}\r\n");
            assert_eq!(larder.ask("GET", "/", &lines).status(), 400, "{name}");
        }
        assert_eq!(origin.total(), 0);
        assert_eq!(larder.ask("GET", "/", "X-Own: 1\r\nConnection: X-Own\r\n").status(), 200);
        reload(&mut larder, &format!("{trusting}@site@"), &origin);
        let told = "a field that no site reads can be a connection's own";
        assert_eq!(larder.ask("GET", "/", "X-User: 1\r\nConnection: X-User\r\n").status(), 200, "{told}");
    }
}

/// Field bug: one client got a response made for the address of another.
//= RFC 9111 section 4.1: all nominated fields match
#[test]
fn nominated_values_are_those_that_were_sent() {
    let (origin, larder) = reflecting(&format!("{TRUSTING}@site@"));
    for (name, [one, other]) in [
        ("X-Forwarded-For", ["192.0.2.1", "192.0.2.2"]),
        ("Forwarded", ["for=192.0.2.1", "for=192.0.2.2"]),
        ("X-Real-IP", ["192.0.2.1", "192.0.2.2"]),
        ("Via", ["1.1 one", "1.1 other"]),
    ] {
        let before = origin.total();
        let ask = |value| get(&larder, Http1, &format!("/{name}?{name}"), &[&format!("{name}: {value}")]);
        let first = ask(one);
        assert_ne!(ask(other), first, "{name}");
        assert_eq!(ask(one), first, "{name}");
        assert_eq!(origin.total(), before + 2, "{name}");
    }
    let (origin, larder) = reflecting("@site@");
    for name in ["X-Forwarded-For", "Forwarded", "X-Real-IP", "X-Forwarded-Host", "X-Forwarded-Proto"] {
        let before = origin.total();
        for address in ["192.0.2.1", "192.0.2.2"] {
            let line = format!("{name}: {address}");
            let answer = get(&larder, Http1, &format!("/{name}?{name}"), &[&line]);
            assert!(!answer.contains("192.0.2."), "{answer}");
        }
        assert_eq!(origin.total(), before + 1, "{name}");
    }
}

/// Cache-poisoned denial of service: requests that wait for the forward of an odd request don't get its error, nor do later ones.
#[test]
fn errors_of_one_request_reach_nobody_else() {
    let (gate, passed) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        passed.pass();
        let is_odd = exchange.request.head.fields.has("x-attack");
        let start = if is_odd { "400 Bad Request" } else { "200 OK" };
        exchange.respond(start, "Cache-Control: public, max-age=60\r\n", "page");
    });
    let larder = bare(&origin);
    let mut odd = asking(&larder, "/", "X-Attack: 1\r\n");
    origin.wait_for("/", 1);
    let mut honest: Vec<_> = (0..4).map(|_| asking(&larder, "/", "")).collect();
    wait_for_waiters(&larder, 4);
    gate.open();
    assert_eq!(odd.response().status(), 400);
    assert!(honest.iter_mut().all(|client| client.response().status() == 200));
    assert_eq!(larder.ask("GET", "/later", "X-Attack: 1\r\n").status(), 400);
    assert_eq!(larder.get("/later").status(), 200);
}

#[test]
fn an_answer_for_an_address_is_for_that_address() {
    let (origin, larder) = reflecting("[[listen]]\naddress = \"@listen@\"\nproxy_protocol = true\n@site@");
    for address in ["192.0.2.5", "192.0.2.6"].repeat(2) {
        let mut client = larder.client();
        client.send(format!("PROXY TCP4 {address} 192.0.2.1 12345 80\r\n"));
        let answer = client.ask("GET", "/?X-Forwarded-For", "X-Forwarded-For: 192.0.2.99\r\n").text();
        assert!(answer.contains(&format!("x-forwarded-for: {address}\n")), "{answer}");
    }
    assert_eq!(origin.total(), 2);
}

/// Responses whose keys contain fields are purged and invalidated with their URL. Field bug: the key lacked a field whose name had `_` in
/// place of `-`.
#[test]
fn keyed_fields_take_part_in_every_spelling_and_a_purge_reaches_them() {
    let (origin, larder) = reflecting(
        "@site@underscore_fields = \"forward\"\nrequest_fields_keyed = [\"X-Country\", \"Accept\"]\n",
    );
    let ask = |country: &str| larder.ask("GET", "/", &format!("X-Country: {country}\r\n"));
    for country in ["at", "ch"] {
        assert!(ask(country).text().contains(&format!("x-country: {country}")));
        assert!(ask(country).is_hit(), "{country}");
    }
    assert!(!larder.get("/").text().contains("x-country"));
    assert_eq!(origin.total(), 3);
    for spelled in ["X_Country", "x.country", "X-COUNTRY"] {
        assert!(get(&larder, Http1, "/", &[&format!("{spelled}: evil")]).contains("evil"), "{spelled}");
        assert!(!larder.get("/").text().contains("evil"), "{spelled}");
    }
    assert_eq!(origin.total(), 6);
    purge(&larder, "url=http://test.example/");
    assert!(!ask("at").is_hit() && !ask("ch").is_hit() && ask("at").is_hit());
    larder.ask("PUT", "/", "Content-Length: 0\r\n");
    assert!(!ask("at").is_hit(), "a write to the URL reaches them too");
}

/// Answers with bytes of `letter`, which may change although the validator doesn't: the use case of a hard purge.
fn keeping_its_tag(exchange: &mut Exchange<'_>, letter: u8) {
    const FIELDS: &str = "Cache-Control: max-age=60\r\nETag: \"1\"\r\nSurrogate-Key: x\r\n";
    let part = match exchange.request.field("range") {
        "bytes=0-499" => "Content-Range: bytes 0-499/1000\r\n",
        "bytes=500-" => "Content-Range: bytes 500-999/1000\r\n",
        _ if exchange.request.field("if-none-match").is_empty() => {
            exchange.respond("200 OK", FIELDS, [letter; 1000]);
            return;
        }
        _ => {
            exchange.head("304 Not Modified", FIELDS);
            return;
        }
    };
    exchange.respond("206 Partial Content", &format!("{FIELDS}{part}"), [letter; 500]);
}

/// After a hard purge, no stored bytes come back: neither by a 304 nor as the other half of a part.
#[test]
fn a_hard_purge_takes_away_parts_and_what_lies_under_keys_with_fields() {
    let letter = Arc::new(AtomicU8::new(b'A'));
    let sent = Arc::clone(&letter);
    let origin = ScriptedOrigin::start(move |exchange| keeping_its_tag(exchange, sent.load(Relaxed)));
    let larder = with("@site@request_fields_keyed = [\"X-Country\"]\ntags = [\"surrogate-key\"]\n", &origin);
    let half = "Range: bytes=0-499\r\n";
    for order in ["url=http://test.example", "tag=x&site=a"] {
        for (target, keyed, first) in [
            ("/1", "", ""),
            ("/2", "X-Country: at\r\n", ""),
            ("/3", "X-Country: at\r\n", half),
            ("/4", "", half),
        ] {
            let target = &format!("{target}-{}", &order[..3]);
            letter.store(b'A', Relaxed);
            let stored = larder.ask("GET", target, &format!("{keyed}{first}")).text();
            assert!(stored.ends_with("AAA"), "{target}");
            purge(
                &larder,
                &if order.starts_with("url") { format!("{order}{target}") } else { order.to_owned() },
            );
            letter.store(b'B', Relaxed);
            assert_eq!(larder.ask("GET", target, keyed).text(), "B".repeat(1000), "{target}");
            assert!(larder.ask("GET", target, keyed).is_hit(), "{target}");
        }
    }
}

#[test]
fn override_fields_are_dropped_keyed_or_forwarded() {
    for (choice, is_sent, is_shared) in [("drop", false, true), ("key", true, false), ("forward", true, true)]
    {
        let (_origin, larder) = reflecting(&format!("@site@[[site.rule]]\noverride_fields = \"{choice}\"\n"));
        let attacked = get(&larder, Http1, "/", &["X-HTTP-Method-Override: EVIL"]);
        assert_eq!(attacked.contains("EVIL"), is_sent, "{choice}");
        assert_eq!(get(&larder, Http1, "/", &[]) == attacked, is_shared, "{choice}");
        // A POST isn't stored, and its origin may well use these fields.
        let posted = larder.ask("POST", "/", "X-HTTP-Method-Override: PUT\r\nContent-Length: 0\r\n").text();
        assert!(posted.contains("x-http-method-override: PUT"), "{choice}: {posted}");
    }
}

/// Field bug: with `_` in its name, a field reached the origin although the site hides it, or it is end-to-end or reserved for trusted
/// peers.
#[test]
fn names_with_underscores_pass_where_the_site_says_so_and_are_read_as_those_with_hyphens() {
    let forward = "underscore_fields = \"forward\"\nrequest_fields_hidden = [\"X-Secret\", \"x_other\"]\n";
    let names = "X_Secret x.secret X-Other x~other X_Real_IP X_Forwarded_For X_Forwarded_Prefix True_Client_IP \
                 Client_Cert Accept_Encoding If_None_Match Content_Length Content_Type Transfer_Encoding \
                 Proxy_Authorization Max_Forwards Early_Data CDN_Loop X_Forwarded_Host X.Original.URL";
    let lines: Vec<String> = names.split(' ').map(|name| format!("{name}: evil")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).chain(["app_version: 1"]).collect();
    for trusting in ["", TRUSTING] {
        let (_origin, larder) = reflecting(&format!("{trusting}@site@{forward}"));
        for protocol in [Http1, Http2] {
            let answer = get(&larder, protocol, &format!("/{protocol:?}"), &lines);
            assert!(answer.contains("app_version: 1") && !answer.contains("evil"), "{protocol:?}: {answer}");
        }
    }
}

/// Field bug: with `_` in their names, fields that rules or the origin's settings overwrite or remove reached the origin.
#[test]
fn rules_are_evaded_by_no_spelling() {
    let more = r#"underscore_fields = "forward"
transform = [
    { phase = "client_request", request_fields = { X-Bot = "*" }, redirect = { status = 302, to = "/bots" } },
    { phase = "client_request", set = { X-Geo = "n" }, remove = ["X-Admin"] },
    { phase = "origin_request", set = { X-Role = "guest", x_own = "ours" }, remove = ["X-Debug"] },
]
"#;
    let (_origin, larder) = reflecting(&format!("@site@{more}"));
    let names = ["X_Bot", "X_Geo", "x.admin", "X_Role", "X_Debug", "X-Own", "X_Own"];
    let lines = names.map(|name| format!("{name}: evil"));
    let lines: Vec<&str> = lines.iter().map(String::as_str).chain(["app_version: 1"]).collect();
    for protocol in [Http1, Http2] {
        let answer = get(&larder, protocol, &format!("/{protocol:?}"), &lines);
        for ours in ["app_version: 1", "x-geo: n", "x-role: guest", "x_own: ours"] {
            assert!(answer.contains(ours), "{protocol:?}: {answer}");
        }
        assert_eq!(answer.matches("evil").count(), 1, "{protocol:?}: X-Own is another field: {answer}");
    }
}

/// Field bug: navigation inside a Next.js site loaded whole pages, because the origin didn't get the field that marks a request for data.
/// A base path is the prefix of the site.
#[test]
fn next_js_is_asked_for_data_below_its_folder_alone() {
    const ASKING: &[&str] = &["X-Nextjs-Data: 1"];
    let beside =
        "@site@[[site]]\nname = \"docs\"\npath_prefix = \"/docs\"\norigin = \"http://127.0.0.1:1\"\n";
    for (config, folder, elsewhere) in
        [(beside, "", "/x/_next/data"), ("@site@path_prefix = \"/docs\"\n", "/docs", "/docs/page")]
    {
        let (origin, larder) = reflecting(config);
        for protocol in [Http1, Http2] {
            let data = format!("{folder}/_next/data/b/{protocol:?}.json");
            for _ in 0..2 {
                assert!(get(&larder, protocol, &data, ASKING).contains("x-nextjs-data: 1"), "{protocol:?}");
                assert!(!get(&larder, protocol, &data, &[]).contains("x-nextjs-data"), "{protocol:?}: keyed");
            }
            for lines in [ASKING, &[], &["X_Nextjs_Data: 1"]] {
                let page = get(&larder, protocol, &format!("{elsewhere}/{protocol:?}"), lines);
                assert!(!page.contains("nextjs"), "{protocol:?}: {page}");
            }
        }
        assert_eq!(origin.total(), 6);
    }
}

#[test]
fn fields_are_chosen_by_their_exact_names() {
    let lists = "underscore_fields = \"forward\"\nrequest_fields_forwarded = [\"X-Own\", \"x_other\"]\n";
    let (_origin, larder) = reflecting(&format!("@site@{lists}"));
    let answer = get(&larder, Http1, "/", &["X-Own: 1", "X_Own: evil", "x_other: 2", "X-Other: evil"]);
    assert!(answer.contains("x-own: 1") && answer.contains("x_other: 2"), "{answer}");
    assert!(!answer.contains("evil"), "{answer}");
}

/// Field bug: a credential with `_` in its name was ignored, so all clients got the response.
#[test]
fn credentials_are_such_in_every_spelling() {
    let origin = ScriptedOrigin::start(|exchange| {
        let lines = all_of(exchange);
        // Has a heuristic lifetime, which applies only to requests without credentials.
        exchange.respond("200 OK", "Last-Modified: Sat, 21 Nov 2020 12:00:00 GMT\r\n", lines);
    });
    let rule = "[[site.rule]]\ncredential_fields = [\"X-User\", \"X_Login\"]\n";
    let larder = with(&format!("@site@underscore_fields = \"forward\"\n{rule}"), &origin);
    for spelled in ["X_API_Key", "x.auth.token", "X_User", "x.user", "X-User", "X-Login", "x_login"] {
        let target = format!("/{spelled}");
        let own = get(&larder, Http1, &target, &[&format!("{spelled}: alice")]);
        assert!(own.contains("alice"), "{own}");
        let of_others = get(&larder, Http1, &target, &[]);
        assert!(!of_others.contains("alice"), "{spelled}: {of_others}");
    }
}

/// Field bug: `Max-Forwards` passed an allow list that doesn't contain it.
//= RFC 9110 section 7.6.2: Max-Forwards of TRACE and OPTIONS
#[test]
fn max_forwards_is_sent_where_the_site_forwards_it() {
    for (list, is_sent) in [
        ("", true),
        ("request_fields_forwarded = [\"Accept\"]\n", false),
        ("request_fields_forwarded = [\"Max-Forwards\"]\n", true),
        ("request_fields_hidden = [\"Max-Forwards\"]\n", false),
    ] {
        let (_origin, larder) = reflecting(&format!("@site@{list}"));
        let answer = larder.ask("OPTIONS", "/", "Max-Forwards: 5\r\n").text();
        assert_eq!(answer.contains("max-forwards: 4"), is_sent, "{list}: {answer}");
        assert_eq!(answer.contains("max-forwards"), is_sent, "{list}: {answer}");
        let last = larder.ask("OPTIONS", "/", "Max-Forwards: 0\r\n");
        assert!(!last.text().contains("OPTIONS /"), "{list}: it is still read");
    }
}

#[test]
fn hidden_fields_are_as_if_they_were_not_sent() {
    let (origin, larder) = reflecting("@site@request_fields_hidden = [\"Cookie\", \"Accept-Language\"]\n");
    for language in ["de", "fr"] {
        let lines = [&format!("Accept-Language: {language}")[..], &format!("Cookie: id={language}")];
        let answer = get(&larder, Http1, "/?Accept-Language,Cookie", &lines);
        assert!(!answer.contains("language:") && !answer.contains("cookie:"), "{answer}");
    }
    assert_eq!(origin.total(), 1);
}

/// Fields that a balancer sends about a request, and those that Larder adds.
const OF_THE_WAY: &str = "\
    X-Forwarded-For: 192.0.2.1|X-Forwarded-Proto: https|X-Forwarded-Host: secret.example|X-Forwarded-Port: 8443|\
    X-Forwarded-Prefix: /secret|X-Forwarded-Ssl: on|X-Scheme: https|Front-End-Https: on|X-Real-IP: 192.0.2.1|\
    True-Client-IP: 192.0.2.1|Client-Cert: :c2VjcmV0:|X-SSL-Client-Verify: SUCCESS|X-Real-Port: 4711";

fn names_in(answer: &str) -> Vec<&str> {
    answer.lines().skip(1).filter_map(|line| line.split_once(": ")).map(|(name, _)| name).collect()
}

/// Field bug: the lists of a site didn't apply to fields of trusted proxies.
#[test]
fn what_a_site_hides_is_hidden_whoever_says_it() {
    for trusting in ["", TRUSTING] {
        let (origin, mut hiding) = reflecting(&format!("{trusting}@site@"));
        let lines: Vec<&str> = OF_THE_WAY.split('|').collect();
        let before = get(&hiding, Http1, "/", &lines);
        assert_eq!(before.contains("client-cert"), !trusting.is_empty(), "{before}");
        for line in ["X-Hidden: 1", "Forwarded: for=192.0.2.1"].into_iter().chain(lines) {
            let name = line.split(':').next().unwrap_or_default();
            reload(&mut hiding, &format!("{trusting}@site@request_fields_hidden = [\"{name}\"]\n"), &origin);
            let answer = get(&hiding, Http1, &format!("/{name}"), &[line]);
            let is_sent = names_in(&answer).iter().any(|sent| sent.eq_ignore_ascii_case(name));
            assert!(!is_sent, "{name}: {answer}");
        }
    }
}

#[test]
fn a_site_that_says_what_is_forwarded_forwards_nothing_else() {
    let list = "request_fields_forwarded = [\"X-Listed\", \"X-Real-IP\"]\n";
    let (_origin, larder) = reflecting(&format!("{TRUSTING}@site@{list}"));
    let lines: Vec<&str> = OF_THE_WAY.split('|').chain(["X-Listed: 1", "X-Unlisted: 1"]).collect();
    let answer = get(&larder, Http1, "/", &lines);
    let mut names = names_in(&answer);
    names.sort_unstable();
    let expected =
        "cdn-loop forwarded host via x-forwarded-for x-forwarded-host x-forwarded-proto x-listed x-real-ip";
    assert_eq!(names.join(" "), expected, "{answer}");
    assert!(answer.contains("x-forwarded-proto: https\n"), "it is still read: {answer}");
}

#[test]
fn host_is_sent_as_it_is_in_the_key() {
    let (origin, larder) = reflecting("@site@");
    for host in "h.test H.TEST h.test: h.test:80 h.test:00080 h.tesT:080 h.test. H.Test.:80".split(' ') {
        assert!(get_of(&larder, host, "/").text().contains("\nhost: h.test\n"), "{host}");
    }
    assert_eq!(origin.total(), 1);
    for (target, host, sent) in [
        ("/0", "H.TEST:8080", "h.test:8080"),
        ("/1", "h.test.:8080", "h.test:8080"),
        ("/2", "[2001:DB8::1]:80", "[2001:db8::1]"),
    ] {
        let answer = get_of(&larder, host, target).text();
        for name in ["host", "x-forwarded-host"] {
            assert!(answer.contains(&format!("\n{name}: {sent}\n")), "{host}: {answer}");
        }
    }
}

/// The status of an HTTP/2 request with these literal fields (RFC 7541 section 6.2.2); 0 if the stream is reset.
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
        match (head[3], client.bytes(length).first()) {
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
fn odd_schemes_of_http2_are_refused() {
    let (_origin, larder) = reflecting("@site@");
    for (scheme, expected) in [("http", 200), ("https", 200), ("ftp", 400), ("", 400), ("x-own", 400)] {
        let fields =
            [(":method", "GET"), (":scheme", scheme), (":path", "/"), (":authority", "test.example")];
        let status = status_of_http2(&larder, &fields);
        assert!(status == expected || (expected == 400 && status == 0), "{scheme:?}: {status}");
    }
}

/// Field bug: a target without a path was refused, although it is equivalent to the path `/`.
//= RFC 9110 section 4.2.3: http(s) normalization and comparison
#[test]
fn a_query_without_a_path_is_one_of_the_root() {
    let (origin, larder) = reflecting("@site@");
    let ask = |target: &str| get_of(&larder, "test.example", target);
    let response = ask("http://test.example?Accept");
    assert_eq!(response.status(), 200, "{:?}", response.head);
    assert!(response.text().starts_with("GET /?Accept HTTP/1.1\n"), "{}", response.text());
    assert!(ask("/?Accept").is_hit() && ask("http://test.example/?Accept").is_hit());
    assert_eq!(origin.total(), 1);
}
