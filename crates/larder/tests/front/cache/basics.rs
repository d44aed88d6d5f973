//! Storing and reuse according to settings and the origin's fields; and helpers that the tests of this folder share.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use testkit::{
    Client, End, Fields, Gate, Head, Larder, Received, Response, ScriptedOrigin, Setup, run, wait,
};

use crate::LARDER;

pub(crate) fn bare(origin: &ScriptedOrigin) -> Larder {
    Setup::origin(LARDER, &origin.url()).start()
}

/// A gateway with these settings; see [`filled`].
pub(crate) fn with(settings: &str, origin: &ScriptedOrigin) -> Larder {
    Setup::config(LARDER, &filled(settings, origin)).start()
}

/// Settings in which `@site@` is the beginning of a site's table, and `@origin@` the URL of the origin.
pub(crate) fn filled(settings: &str, origin: &ScriptedOrigin) -> String {
    let site = "[[site]]\nname = \"a\"\norigin = \"@origin@\"\n";
    settings.replace("@site@", site).replace("@origin@", &origin.url())
}

/// Replaces the settings of a running gateway; see [`filled`].
#[track_caller]
pub(crate) fn reload(larder: &mut Larder, settings: &str, origin: &ScriptedOrigin) {
    larder.write_config(&filled(settings, origin));
    let answer = larder.ask_admin("POST", "/reload", "");
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

#[track_caller]
pub(crate) fn ask_host(
    larder: &Larder,
    (method, host, target): (&str, &str, &str),
    fields: &str,
) -> Response {
    let mut client = larder.client();
    client.send(format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"));
    client.response_to(method)
}

#[track_caller]
pub(crate) fn get_of(larder: &Larder, host: &str, target: &str) -> Response {
    ask_host(larder, ("GET", host, target), "")
}

/// A client that has sent its request, but read nothing yet.
pub(crate) fn asking(larder: &Larder, target: &str, fields: &str) -> Client {
    let mut client = larder.client();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: test.example\r\n{fields}\r\n"));
    client
}

/// A client with its own address: limits and shares of clients tell addresses apart.
pub(crate) fn client_from(larder: &Larder, number: u8) -> Client {
    Client::connect_from([127, 0, 1, number].into(), larder.address())
}

#[track_caller]
pub(crate) fn wait_for_waiters(larder: &Larder, count: usize) {
    let waiting = || larder.metric("larder_collapsed_waiters", &[]);
    wait::until_true(&format!("{count} wait"), || waiting() >= count as f64);
}

/// A closed gate, for the test and for its origin.
pub(crate) fn gates() -> (Gate, Gate) {
    let gate = Gate::new();
    (gate.clone(), gate)
}

/// The HTTP version of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    pub(crate) const BOTH: [Self; 2] = [Self::Http1, Self::Http2];

    /// Sends a GET with these field lines; over HTTP/2 by curl.
    #[track_caller]
    pub(crate) fn get(self, larder: &Larder, target: &str, lines: &[&str]) -> Response {
        if self == Self::Http1 {
            return larder.ask("GET", target, &ended(lines));
        }
        let url = larder.url(target);
        let usual =
            "--silent --show-error --include --max-time 30 --path-as-is --globoff --http2-prior-knowledge";
        let lines = ["Host: test.example"].iter().chain(lines).flat_map(|line| ["--header", line]);
        let text = run("curl", usual.split(' ').chain(lines).chain([&url[..]])).succeeded().text();
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let (start, lines) = head.split_once("\r\n").unwrap_or((head, ""));
        let fields = lines.lines().filter_map(|line| line.split_once(": "));
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let head = Head { start: start.to_owned(), fields: Fields(fields) };
        let (interim, trailers) = (Vec::new(), Fields::default());
        Response { interim, head, body: body.into(), trailers, end: End::Complete }
    }
}

/// Field lines with their ends.
pub(crate) fn ended(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("{line}\r\n")).collect()
}

/// Field lines of a table have `\n` between them.
pub(crate) fn lines(fields: &str) -> String {
    fields.lines().map(|line| format!("{line}\r\n")).collect()
}

/// `Cache-Status` names the reason; `conformance/caching` tests what the fields cause.
#[test]
fn a_response_that_is_not_stored_says_why() {
    let cases = [
        ("Cache-Control: no-store, max-age=60", "", "no-store"),
        ("Cache-Control: private, max-age=60", "", "private"),
        ("Cache-Control: max-age=60\nSet-Cookie: a=b", "", "set-cookie"),
        ("Cache-Control: max-age=60\nVary: *", "", "vary-star"),
        ("X-Nothing: here", "", "no-freshness"),
        ("Cache-Control: max-age=60", "Authorization: Basic YTpi", "authorization"),
        ("Cache-Control: max-age=60", "Cache-Control: no-store", "request-no-store"),
        ("ETag: \"a\"", "Cookie: a=b", "credentials"),
    ];
    let origin = ScriptedOrigin::start(move |exchange| {
        let number: usize = exchange.request.target()[1..].parse().expect("targets are numbers");
        exchange.respond("200 OK", &lines(cases[number].0), "");
    });
    let larder = bare(&origin);
    for (number, (says, asks, detail)) in cases.into_iter().enumerate() {
        let told = larder.ask("GET", &format!("/{number}"), &lines(asks)).cache_status();
        assert_eq!(told, format!("larder; fwd=uri-miss; fwd-status=200; detail={detail}"), "{says} {asks}");
    }
}

/// A response with an `Age` keeps it, but the configured lifetime begins with its arrival.
#[test]
fn a_lifetime_of_the_rules_begins_with_the_arrival() {
    for (key, says) in [("ttl_default", ""), ("ttl_override", "Cache-Control: max-age=55\r\n")] {
        let origin = ScriptedOrigin::fixed(&format!("Age: 50\r\n{says}"), "x");
        let larder = with(&format!("@site@[[site.rule]]\n{key} = {{ 200 = \"60s\" }}\n"), &origin);
        let first = larder.get("/").cache_status();
        let begins = ["; stored; ttl=60", "; stored; ttl=59"];
        assert!(begins.iter().any(|end| first.ends_with(end)), "{key}: {first}");
        let hit = larder.get("/");
        let status = hit.cache_status();
        let left = status.strip_prefix("larder; hit; ttl=").and_then(|left| left.parse::<u64>().ok());
        assert!(left.is_some_and(|left| (11..=60).contains(&left)), "{key}: {status}");
        assert!(hit.field("age").parse::<u64>().is_ok_and(|age| age >= 50), "{key}: {:?}", hit.head);
    }
}

/// Field bug: `Cache-Status` of such a response said `stored`, but nothing was stored.
#[test]
fn a_304_that_forbids_storing_does_not_say_that_it_is_stored() {
    for (says, request, detail) in [
        ("private", "", "private"),
        ("no-store", "", "no-store"),
        ("max-age=60", "Cache-Control: no-store\r\n", "request-no-store"),
        ("max-age=60", "", ""),
    ] {
        let origin = ScriptedOrigin::start(move |exchange| {
            match exchange.request.field("if-none-match") {
                "" => exchange.respond("200 OK", "ETag: \"a\"\r\nCache-Control: max-age=0\r\n", "body"),
                _ => exchange.head("304 Not Modified", &format!("ETag: \"a\"\r\nCache-Control: {says}\r\n")),
            };
        });
        let larder = bare(&origin);
        larder.get("/");
        let told = larder.ask("GET", "/", request).cache_status();
        assert!(told.contains("fwd=stale; fwd-status=304") && told.contains(detail), "{says}: {told}");
        let is_stored = detail.is_empty();
        assert_eq!((told.contains("stored"), told.contains("detail=")), (is_stored, !is_stored), "{told}");
        let is_gone = ["private", "no-store"].contains(&says);
        assert_eq!(larder.get("/").cache_status().contains("fwd=uri-miss"), is_gone, "{says}");
    }
}

/// An application can address the cache alone, in fields that a rule names.
//= RFC 9213 section 2.2: the first valid field of the target list counts
#[test]
fn applications_say_what_is_stored_where_a_rule_listens() {
    let config = r#"@site@
[[site.rule]]
path = { prefix = "/asked" }
store_only_with = "X-Cache-Set"
ttl_default = { 200 = "1h" }
[[site.rule]]
path = { prefix = "/surrogate" }
targeted_fields = ["Surrogate-Control", "CDN-Cache-Control"]
[[site.transform]]
phase = "client_response"
remove = ["Surrogate-Control"]
"#;
    let cases = [
        ("/asked/1", "X-Cache-Set: 1", "stored"),
        ("/asked/yes", "X-Cache-Set: yes\nCache-Control: max-age=60", "stored"),
        ("/asked/no", "X-Cache-Set: 0", "detail=not-signalled"),
        ("/asked/not", "Cache-Control: public, max-age=60", "detail=not-signalled"),
        ("/asked/forbidden", "X-Cache-Set: 1\nCache-Control: no-store", "detail=no-store"),
        ("/other", "Cache-Control: max-age=60", "stored"),
        ("/surrogate/1", "Surrogate-Control: max-age=60\nCache-Control: no-store", "stored"),
        ("/unheard", "Surrogate-Control: max-age=60\nCache-Control: no-store", "detail=no-store"),
    ];
    let origin = ScriptedOrigin::start(move |exchange| {
        let says = cases.iter().find(|(target, ..)| *target == exchange.request.target());
        exchange.respond("200 OK", &lines(says.expect("a case").1), "content");
    });
    let larder = with(config, &origin);
    for (target, says, expected) in cases {
        let first = larder.get(target);
        assert!(first.cache_status().contains(expected), "{target}: {says} -> {:?}", first.head);
        assert!(!first.head.fields.has("surrogate-control"), "{target}: {:?}", first.head);
        assert_eq!(larder.get(target).is_hit(), expected.contains("stored"), "{target}: {says}");
    }
}

/// Field bugs: because cache keys were decoded, joined from parts or lacked the host, one URL got the response of
/// another.
//= RFC 9111 section 2: reuse is the default
//= RFC 9111 section 4: the target URIs match
#[test]
fn keys_of_different_urls_never_meet() {
    let origin = ScriptedOrigin::start(|exchange| {
        let url = format!("{}{}", exchange.request.field("host"), exchange.request.target());
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", url);
    });
    let larder = bare(&origin);
    let ask = |host: &str, target: &str| ask_host(&larder, ("GET", host, target), "Content-Length: 0\r\n");
    let targets = "/a?b=c /a%3Fb=c /a?b=c& /a? /a /a/ /A /a%2Fb /a/b /a?b=c%26d /a?b=c&d /a?b=C //a /a;b /a%00b \
                   /a%20b /a+b /a?b=1&b=2 /a?b=2&b=1 /a?x?1 /a?x?2 /a:b /:a/b";
    for is_second in [false, true] {
        for (host, target) in ["a.example", "b.example", "a.example:8080"]
            .into_iter()
            .flat_map(|host| targets.split(' ').map(move |target| (host, target)))
        {
            let response = ask(host, target);
            assert_eq!((response.text(), response.is_hit()), (format!("{host}{target}"), is_second));
        }
    }
    assert!(ask("A.EXAMPLE", "/a").is_hit(), "host names have no case");
}

/// Field bug: the `X-Cache` that a cache in front of the origin sent for one request was repeated on every hit.
#[test]
fn x_cache_of_others_is_not_replayed() {
    let origin = ScriptedOrigin::start(|exchange| {
        let control = if exchange.request.target() == "/own" { "no-store" } else { "max-age=60" };
        let fields = format!("ETag: \"a\"\r\nX-Cache: HIT from elsewhere\r\nCache-Control: {control}\r\n");
        match exchange.request.field("if-none-match") {
            "" => exchange.respond("200 OK", &fields, "page"),
            _ => exchange.head("304 Not Modified", &fields),
        };
    });
    for (settings, [miss, hit, passed]) in [
        ("@site@", ["HIT from elsewhere", "", "HIT from elsewhere"]),
        ("@site@x_cache = true\n", ["MISS", "HIT", "MISS"]),
    ] {
        let larder = with(settings, &origin);
        let told = |target: &str, fields: &str| {
            let response = larder.ask("GET", target, fields);
            response.head.fields.all("x-cache").collect::<Vec<_>>().join(" and ")
        };
        assert_eq!((told("/", ""), told("/", "")), (miss.to_owned(), hit.to_owned()));
        told("/", "Cache-Control: no-cache\r\n");
        assert_eq!(told("/", ""), hit, "nor the X-Cache of a validation");
        told("/own", "");
        assert_eq!(told("/own", ""), passed);
    }
}

#[test]
fn rules_shape_keys_and_lifetimes() {
    let origin = ScriptedOrigin::start(|exchange| {
        let target = exchange.request.target().to_owned();
        let status = if target.starts_with("/404") { "404 Not Found" } else { "200 OK" };
        exchange.respond(status, "X-Nothing: here\r\n", target);
    });
    let config = r#"@site@
x_cache = true
[[site.rule]]
path = { prefix = "/off/" }
cache = false
[[site.rule]]
path = { glob = "/ignored/*" }
query_ignore = ["utm_*"]
ttl_default = { 200 = "1h" }
[[site.rule]]
path = { regex = "^/kept/[a-z]+" }
query_keep = ["id"]
query_sort = true
ttl_override = { 200 = "1h" }
[[site.rule]]
path = { prefix = "/404" }
ttl_default = { 200 = "1h", 404 = "1h" }
[[site.rule]]
path = { exact = "/exact" }
ttl_default = { default = "1h" }
"#;
    let larder = with(config, &origin);
    for (first, second, x_cache) in [
        ("/off/a", "/off/a", "BYPASS"),
        ("/none", "/none", "MISS"),
        ("/ignored/a?x=1&utm_source=a", "/ignored/a?utm_medium=b&x=1", "HIT"),
        ("/ignored/b?x=1", "/ignored/b?x=2", "MISS"),
        ("/kept/a?z=1&id=7", "/kept/a?id=7&y=2", "HIT"),
        ("/kept/b?id=1", "/kept/b?id=2", "MISS"),
        ("/kept/c?id=1&ID=2", "/kept/c?id=1", "MISS"),
        ("/kept/d?id[]=2&id=1", "/kept/d?id=1&id[]=2", "MISS"),
        ("/kept/e?y=1&id=2&id=1", "/kept/e?id=2&id=1", "HIT"),
        // Origins decode parameter names, and some separate parameters by semicolons.
        ("/kept/g?id=1&%69d=2", "/kept/g?id=1", "MISS"),
        ("/kept/i?id=1&z;id=2", "/kept/i?id=1", "MISS"),
        ("/ignored/c?utm_x=1;q=2", "/ignored/c", "MISS"),
        ("/404/a", "/404/a", "HIT"),
        ("/exact", "/exact", "HIT"),
        ("/exact/more", "/exact/more", "MISS"),
    ] {
        larder.get(first);
        let response = larder.get(second);
        assert_eq!(response.field("x-cache"), x_cache, "{second} after {first}: {:?}", response.head);
    }
}

/// At most a note (hit-for-miss) is left.
//= RFC 9111 section 5.2.1.5: no trace in storage
//= RFC 9111 section 5.2.2.5: no trace in storage
#[test]
fn what_is_not_stored_leaves_nothing_behind() {
    const BODY_BYTES: usize = 100_000;
    let origin = ScriptedOrigin::start(|exchange| {
        let control = if exchange.request.target() == "/no-store" { "no-store" } else { "max-age=60" };
        exchange.respond("200 OK", &format!("Cache-Control: {control}\r\n"), "x".repeat(BODY_BYTES));
    });
    let larder = bare(&origin);
    let held = || larder.metric("larder_store_bytes", &[]);
    let empty = held();
    for (target, fields) in [("/no-store", ""), ("/stored", "Cache-Control: no-store\r\n")] {
        assert_eq!(larder.ask("GET", target, fields).body.len(), BODY_BYTES);
        wait::until_true("only a note is left", || held() - empty < 2_000.0);
    }
    larder.get("/stored");
    wait::until_true("the other is stored", || held() - empty > BODY_BYTES as f64);
}

/// Each 304 adds fields. The stored head never exceeds the limit for one response: the response is fetched again instead.
#[test]
fn a_head_does_not_grow_without_end_by_304s() {
    let turns = AtomicUsize::new(0);
    let origin = ScriptedOrigin::start(move |exchange| {
        let turn = turns.fetch_add(1, Relaxed);
        let news: String = (0..20).map(|line| format!("X-{turn}-{line}: {}\r\n", "x".repeat(1000))).collect();
        let fields = format!("Cache-Control: max-age=0\r\nETag: \"a\"\r\n{news}");
        match exchange.request.field("if-none-match") {
            "" => exchange.respond("200 OK", &fields, "the body"),
            _ => exchange.head("304 Not Modified", &fields),
        };
    });
    let larder = bare(&origin);
    for method in ["GET", "HEAD", "GET"].into_iter().flat_map(|method| [method; 25]) {
        let response = larder.ask(method, "/a", "");
        let names = (0..100).filter(|turn| response.head.fields.has(&format!("x-{turn}-0"))).count();
        assert!(names <= 7, "{names} times 20 kB, of 128 KiB at most");
        assert!(method == "HEAD" || response.text() == "the body");
    }
    let is_whole =
        |request: &&Received| request.field("if-none-match").is_empty() && request.method() == "GET";
    let fetched = origin.received().iter().filter(is_whole).count();
    assert!((3..=20).contains(&fetched), "fetched {fetched} times");
}
