//! Cache key, nominated values and the origin's view agree, so that no client's request changes the response to another client.

use testkit::{Exchange, Larder, ScriptedOrigin};

use super::basics::Protocol::{self, Http1};
use super::basics::{get_of, reload, with};
use crate::http::slow_clients::frames::Http2;

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

fn get(larder: &Larder, protocol: Protocol, target: &str, lines: &[&str]) -> String {
    protocol.get(larder, target, lines).text()
}

/// Fields of published attacks: origins answer them with a different page, host, scheme or method, or an error page, but a careless cache
/// ignores them. Each value holds `evil` or 666. From trusted peers, these reach the origin and are part of the cache key.
/// `forwarded_fields` and `caching::unkeyed` have all names.
const KEYED: &str = "X-Forwarded-Host: evil.example|X-Forwarded-Port: 666|X-Forwarded-Prefix: /evil|\
    Forwarded: for=192.0.2.1;host=evil.example|CF-Visitor: {\"scheme\":\"evil\"}|X-Sendfile-Type: X-Accel-Redirect-evil";
/// From trusted peers, these reach the origin without being in the key: they describe the client's address, and trusted peers write them
/// themselves.
const BELIEVED: &str = "X-Forwarded-For: 66.6.6.6|X-Forwarded: evil|X-Real-IP: evil|Coming-From: evil";
/// These never reach the origin, regardless of the sender.
const DROPPED: &str = "X-Forwarded-Scheme: evil|X-Forwarded-Ssl: evil|X-Original-URL: /evil|X-Host: evil.example|\
    X-HTTP-Method-Override: evil|X-Method-Override: evil|X-Nextjs-Data: evil|X-React-Router-SPA-Mode: evil|\
    X-React-Router-Prerender-Data: evil|X-Middleware-Next: evil|Proxy: http://evil.example|Proxy': evil|\
    X_Forwarded_Host: evil.example|X_Forwarded-Host: evil.example|x_forwarded_for: 66.6.6.6|X_Anything: evil|\
    Content_Length: 666|Host_: evil|X.Forwarded.Host: evil.example|X~Forwarded~Host: evil.example|X!Anything: evil|\
    X-Original+URL: /evil|User.Agent: evil";

fn is_evil(text: &str) -> bool {
    let mut said = text.lines().filter(|line| !line.starts_with("cdn-loop: larder; instance="));
    said.any(|line| ["evil", "666", "66.6"].iter().any(|value| line.contains(value)))
}

/// Sends each request first from an attacker, then from an honest client without the odd field.
fn check_unkeyed(trusting: &str) {
    for protocol in Protocol::BOTH {
        let (_origin, larder) = reflecting(&format!("{trusting}@site@"));
        let of = |lines: &'static str| lines.split('|').map(move |line| (line, lines));
        for (number, (line, lines)) in [KEYED, BELIEVED, DROPPED].into_iter().flat_map(of).enumerate() {
            let target = format!("/{number}");
            let [attacked, honest] = [&[line][..], &[]].map(|lines| get(&larder, protocol, &target, lines));
            let is_sent = !trusting.is_empty() && lines != DROPPED;
            assert_eq!(is_evil(&attacked), is_sent, "{line}, {trusting}{protocol:?}: {attacked}");
            let is_believed = is_sent && lines == BELIEVED;
            assert_eq!(is_evil(&honest), is_believed, "{line}, {trusting}{protocol:?}: {honest}");
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

/// Field bug: a field that `Connection` names isn't forwarded, but its value still selected the variant. `stored-fields.json` tests the
/// fields of responses.
//= RFC 9110 section 7.6.1: fields named in Connection are removed with it
//= RFC 9110 section 7.6.1: known connection-specific fields are removed
//= RFC 9110 section 5.1: unrecognized fields are forwarded
#[test]
fn a_field_named_in_connection_is_one_that_was_not_sent() {
    let (origin, larder) = reflecting("@site@");
    let ask = |lines: &[&str]| get(&larder, Http1, "/?X-Own", lines);
    let known = ["Keep-Alive: timeout=5", "Proxy-Connection: keep-alive", "TE: gzip"];
    let named = [&["X-Own: evil", "Connection: keep-alive, x-own"], &known[..]].concat();
    let attacked = ask(&named);
    for name in ["x-own", "keep-alive", "proxy-connection", "te"] {
        assert!(!attacked.contains(&format!("\n{name}: ")), "{name}: {attacked}");
    }
    let honest = ask(&["X-Own: evil"]);
    assert!(honest.contains("x-own: evil"), "{honest}");
    assert_eq!([ask(&named), ask(&[])], [&attacked[..]; 2], "the same as a request without the field");
    assert_eq!(origin.total(), 2);
}

/// Includes the fields in which a balancer describes a request, because it forwards `Connection` as its client wrote it. `http1` has the
/// names that HTTP defines.
const END_TO_END: &str = "\
    Cookie Host Sec-Fetch-Site Via Forwarded X-Forwarded-For X-Real-IP X-Scheme Front-End-Https True-Client-IP Client-Cert \
    X-SSL-Client-S-DN X-ARR-SSL X-Original-URL X-HTTP-Method-Override Script-Name X_Scheme X-API-Key X_API_Key Remote-User \
    X-Auth-Request-User Tailscale-User-Login X-Sendfile-Type Early-Data Coming-From";

//= RFC 9110 section 7.6.1: fields for all recipients are not named
#[test]
fn connection_names_no_end_to_end_field() {
    for trusting in ["", TRUSTING] {
        let (origin, larder) = reflecting(&format!("{trusting}@site@"));
        let ask =
            |name: &str| larder.ask("GET", "/", &format!("Connection: keep-alive, {name}\r\n")).status();
        END_TO_END.split(' ').for_each(|name| assert_eq!(ask(name), 400, "{name}"));
        assert_eq!(origin.total(), 0);
        let counted = larder.metric("larder_client_errors_total", &["reason=\"end-to-end-field-nominated\""]);
        assert_eq!(counted, END_TO_END.split(' ').count() as f64);
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

/// Field bug: the key lacked a field whose name had `_` in place of `-`.
#[test]
fn keyed_fields_take_part_in_every_spelling() {
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
    larder.ask("PUT", "/", "Content-Length: 0\r\n");
    assert!(!ask("at").is_hit(), "a write to the URL reaches them too");
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
        for protocol in Protocol::BOTH {
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
    for protocol in Protocol::BOTH {
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
        for protocol in Protocol::BOTH {
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

//= RFC 9113 section 8.3.1: request pseudo-header fields
#[test]
fn odd_schemes_of_http2_are_refused() {
    let (_origin, larder) = reflecting("@site@");
    for (scheme, expected) in [("http", 200), ("https", 200), ("ftp", 400), ("", 400), ("x-own", 400)] {
        let status = Http2::connect(larder.address()).get_by_scheme(scheme).status();
        assert_eq!(status, expected, "{scheme:?}");
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
