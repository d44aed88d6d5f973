//! Transformation rules: each action in each phase, on a miss, a hit, a 304, HEAD, an error and HTTP/2. Each case has its own path,
//! `/<number>/`, and all run against one process.

use testkit::{Exchange, Larder, Response, ScriptedOrigin, Setup, run};

use crate::LARDER;
use crate::cache::basics::Protocol::Http2;
use crate::cache::basics::{ask_host, ended, filled, get_of, reload, with};

/// Fields of every response of the origin.
const OF_ORIGIN: &str =
    "X-From: origin\r\nX-Twice: a\r\nX-Twice: b\r\nETag: \"1\"\r\nContent-Type: Text/HTML; charset=utf-8\r\n";

/// Sends back the request. The last segment of the path selects the kind of response.
fn script(exchange: &mut Exchange<'_>) {
    let head = exchange.request.head.clone();
    let is_validation = !exchange.request.field("if-none-match").is_empty();
    let (path, query) =
        exchange.request.target().split_once('?').unwrap_or_else(|| (exchange.request.target(), ""));
    let (status, fields) = match path.rsplit('/').next().unwrap_or_default() {
        "error" => ("500 Internal Server Error", "Cache-Control: no-store\r\n".to_owned()),
        "stale" if is_validation => ("304 Not Modified", "Cache-Control: max-age=0\r\n".to_owned()),
        "stale" => ("200 OK", "Cache-Control: max-age=0\r\n".to_owned()),
        "moved" => (
            "302 Found",
            "Cache-Control: no-store\r\nLocation: http://internal.example/there\r\n\
             Content-Location: /elsewhere\r\nSet-Cookie: a=1; Domain=internal.example; Path=/in/x; Secure\r\n\
             Set-Cookie: b=2; HttpOnly\r\n"
                .to_owned(),
        ),
        "vary" => ("200 OK", format!("Cache-Control: max-age=60\r\nVary: {query}\r\n")),
        _ => ("200 OK", "Cache-Control: max-age=60\r\n".to_owned()),
    };
    let lines: String = head.fields.0.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    match status.starts_with("304") {
        true => exchange.respond(status, &format!("ETag: \"1\"\r\n{fields}"), ""),
        false => {
            exchange.respond(status, &format!("{OF_ORIGIN}{fields}"), format!("{}\n{lines}", head.start))
        }
    };
}

fn start(config: &str) -> (ScriptedOrigin, Larder) {
    let origin = ScriptedOrigin::start(script);
    let larder = with(config, &origin);
    (origin, larder)
}

/// A site with one rule for each case, each for its own path; `@` in a rule is the number of the case.
fn site(rules: impl IntoIterator<Item = (&'static str, &'static str)>) -> String {
    let mut config = "@site@".to_owned();
    for (number, (phase, rule)) in rules.into_iter().enumerate() {
        let rule = rule.replace('@', &number.to_string()).replace(" ; ", "\n");
        config += &format!("[[site.transform]]\nname = \"case-{number}\"\nphase = \"{phase}\"\n");
        config += &format!("path = {{ prefix = \"/{number}/\" }}\n{rule}\n");
    }
    config
}

fn ask(larder: &Larder, method: &str, target: &str, lines: &[&str]) -> Response {
    larder.ask(method, target, &ended(lines))
}

const ASKED: &str = "client_request";
const SENT: &str = "origin_request";
const STORED: &str = "origin_response";
const LAID_OVER: &str = "client_response";

/// A rule for responses, a response field, and all its values: in a 200, in a 304 and in a 500; missing ones equal the first. `;` stands
/// for the end of a line. `rewrite::rules` tests all conditions.
const OF_RESPONSES: &str = r#"
origin_response | set = { X-New = "n" } | x-new | n
client_response | set = { X-New = "n" } | x-new | n
origin_response | set = { X-Twice = "c" } | x-twice | c
client_response | set = { x-twice = "c" } | x-twice | c
origin_response | add = { X-Twice = "c" } | x-twice | a, b, c
client_response | add = { X-Twice = "c" } | x-twice | a, b, c
origin_response | remove = ["X-Twice"] | x-twice |
client_response | remove = ["X-TWICE"] | x-twice |
origin_response | copy = { X-To = "X-Twice" } | x-to | a, b
client_response | copy = { X-From = "X-Twice" } | x-from | a, b
client_response | copy = { X-From = "X-None" } | x-from | origin
origin_response | set = { Cache-Control = "max-age=30" } | cache-control | max-age=30
client_response | set = { Cache-Control = "no-cache" } | cache-control | no-cache
origin_response | cache_control = { 200 = "max-age=20", 5xx = "no-cache" } | cache-control | max-age=20 | max-age=20 | no-cache
origin_response | set = { X-New = "{status}{path}" } | x-new | 200/@/page | 200/@/page | 500/@/error
client_response | set = { X-New = "{scheme}://{host}{path}?{query}" } | x-new | http://test.example/@/page?q=1 | http://test.example/@/page?q=1 | http://test.example/@/error?q=1
client_response | set = { X-New = "{status} {header.X-From} {request.header.X-Own} {client.address}" } | x-new | 200 origin own 127.0.0.1 | 304 origin own 127.0.0.1 | 500 origin own 127.0.0.1
client_response | statuses = ["5xx"] ; set = { X-New = "n" } | x-new | | | n
origin_response | statuses = ["200"] ; set = { X-New = "n" } | x-new | n | n |
client_response | content_types = ["text/*"] ; set = { X-New = "n" } | x-new | n
client_response | response_fields = { X-From = "o*n" } ; set = { X-New = "n" } | x-new | n
client_response | request_fields = { X-Own = "*" } ; set = { X-New = "n" } | x-new | n
client_response | methods = ["POST"] ; set = { X-New = "n" } | x-new |
"#;

/// The columns of the rows of a table.
fn rows(table: &'static str) -> Vec<Vec<&'static str>> {
    table.trim().lines().map(|row| row.split('|').map(str::trim).collect()).collect()
}

#[test]
fn responses_are_changed_wherever_they_come_from() {
    let rows = rows(OF_RESPONSES);
    let (_origin, larder) = start(&site(rows.iter().map(|row| (row[0], row[1]))));
    for (number, row) in rows.iter().enumerate() {
        let (phase, rule, field) = (row[0], row[1], row[2]);
        let [in_200, in_304, in_500] = [3, 4, 5].map(|column| row.get(column).copied().unwrap_or(row[3]));
        let own: &[&str] = &["X-Own: own"];
        let conditional: &[&str] = &["X-Own: own", "If-None-Match: \"1\""];
        let range: &[&str] = &["X-Own: own", "Range: bytes=0-3"];
        let [page, error] = ["page", "error"].map(|name| format!("/{number}/{name}?q=1"));
        let in_206 = in_200.replace("200 origin", "206 origin");
        for (situation, answered, status, expected) in [
            ("miss", ask(&larder, "GET", &page, own), 200, in_200),
            ("hit", ask(&larder, "GET", &page, own), 200, in_200),
            ("hit, HEAD", ask(&larder, "HEAD", &page, own), 200, in_200),
            ("hit over HTTP/2", Http2.get(&larder, &page, own), 200, in_200),
            ("hit, 206", ask(&larder, "GET", &page, range), 206, &in_206),
            ("hit, 304", ask(&larder, "GET", &page, conditional), 304, in_304),
            ("hit, 304 over HTTP/2", Http2.get(&larder, &page, conditional), 304, in_304),
            ("error", ask(&larder, "GET", &error, own), 500, in_500),
            ("error over HTTP/2", Http2.get(&larder, &error, own), 500, in_500),
        ] {
            let found = (answered.status(), answered.head.fields.joined(field));
            let expected = (status, expected.replace('@', &number.to_string()));
            assert_eq!(found, expected, "{situation} of {phase}: {rule}");
            let is_expected =
                situation.starts_with("error") || answered.is_hit() == situation.starts_with("hit");
            assert!(is_expected, "{situation} of {phase}: {rule}");
        }
    }
    let applied = |rule: &str| larder.metric("larder_transforms_total", &["site=\"a\"", rule]);
    assert_eq!((applied("rule=\"case-1\""), applied("rule=\"case-22\"")), (9.0, 0.0));
}

/// A stored response keeps the changes that rules have made, even after a validation.
#[test]
fn a_validated_response_keeps_what_rules_have_made_of_it() {
    let rules = [
        (
            STORED,
            "statuses = [\"200\"]\ncontent_types = [\"text/html\"]\ncache_control = { 200 = \"max-age=0, x\" }",
        ),
        (STORED, "add = { X-Twice = \"c\" }\nset = { X-New = \"{header.X-From}\" }"),
        (STORED, "copy = { X-Old = \"X-From\" }\nremove = [\"X-From\"]"),
    ];
    let expected = [("cache-control", "max-age=0, x"), ("x-twice", "a, b, c"), ("x-old", "origin")];
    let (_origin, larder) = start(&site(rules));
    for (number, (field, value)) in expected.into_iter().enumerate() {
        for situation in ["stored", "validated", "validated again"] {
            let answered = ask(&larder, "GET", &format!("/{number}/stale"), &[]);
            let found = (answered.status(), answered.head.fields.joined(field));
            assert_eq!(found, (200, value.to_owned()), "{situation}");
            let is_validated = answered.cache_status().contains("fwd-status=304");
            assert_eq!(is_validated, situation != "stored", "{number} {situation}");
        }
    }
}

#[test]
fn redirections_and_cookies_of_the_origin_are_rewritten() {
    let rules = [
        (STORED, "location = [{ from = \"http://internal.example/\", to = \"https://shop.example/\" }]"),
        (
            LAID_OVER,
            "location = [{ from = \"/elsewhere\", to = \"/somewhere\" }]\ncookie_domain = \"shop.example\"",
        ),
        (LAID_OVER, "cookie_domain = \"none\"\ncookie_paths = [{ from = \"/in/\", to = \"/\" }]"),
    ];
    let (_origin, larder) = start(&site(rules));
    let cases = [
        ("https://shop.example/there", "/elsewhere", "a=1; Domain=internal.example; Path=/in/x; Secure"),
        ("http://internal.example/there", "/somewhere", "a=1; Domain=shop.example; Path=/in/x; Secure"),
        ("http://internal.example/there", "/elsewhere", "a=1; Path=/x; Secure"),
    ];
    for (number, (location, content_location, cookie)) in cases.into_iter().enumerate() {
        let target = format!("/{number}/moved");
        for answered in [ask(&larder, "GET", &target, &[]), Http2.get(&larder, &target, &[])] {
            let found =
                ["location", "content-location", "set-cookie"].map(|name| answered.head.fields.joined(name));
            let cookies = format!("{cookie}, b=2; HttpOnly");
            assert_eq!(found, [location.to_owned(), content_location.to_owned(), cookies], "{number}");
        }
    }
}

/// A rule for requests, the target, lines of the request, and a part of what the origin receives; `-` precedes what it must not receive.
/// `T` ends the method.
const OF_REQUESTS: &str = r#"
client_request | set = { X-New = "n" } | page | | x-new: n
origin_request | set = { X-New = "n" } | page | | x-new: n
client_request | set = { X-Own = "n" } | page | X-Own: 1;X-Own: 2 | -x-own: 1
client_request | set = { X-Hop = "n" } | page | Connection: X-Hop;X-Hop: 1 | x-hop: n
origin_request | set = { X-Own = "n" } | page | X-Own: 1 | x-own: n
client_request | add = { X-Own = "2" } | page | X-Own: 1 | x-own: 2
origin_request | add = { X-Own = "2" } | page | X-Own: 1 | x-own: 1
client_request | remove = ["Cookie"] | page | Cookie: a=1 | -cookie
origin_request | remove = ["Accept-Language"] | page | Accept-Language: de | -accept-language
client_request | copy = { X-To = "X-Own" } ; remove = ["X-Own"] | page | X-Own: 1 | x-to: 1
client_request | copy = { X-To = "X-Own" } ; remove = ["X-Own"] | page | X-Own: 1 | -x-own
origin_request | copy = { X-To = "X-Own" } | page | X-Own: 1 | x-to: 1
origin_request | set = { X-Real-IP = "{client.address}" } | page | X-Real-IP: 1.2.3.4 | x-real-ip: 127.0.0.1
client_request | set = { X-New = "{scheme} {authority} {path} {query} {header.X-Own}" } | page?a=%0d | X-Own: 1 | x-new: http test.example /@/page a=%0d 1
client_request | request_fields = { X-Own = "1" } ; set = { X-New = "n" } | page | X-Own: 2 | -x-new
client_request | rewrite = { strip_prefix = "/@", add_prefix = "/new" } | page?a=b | | T /new/page?a=b HTTP/1.1
client_request | rewrite = { regex = '/item/(\d+)$', to = "/item.php?id=$1" } | item/7?a=b | | T /@/item.php?id=7&a=b HTTP/1.1
client_request | rewrite = { query_ignore = ["utm_*"], query_sort = true } | page?b=1&utm_x=1&a=2 | | T /@/page?a=2&b=1 HTTP/1.1
client_request | rewrite = { query_keep = [] } | page?b=1 | | T /@/page HTTP/1.1
"#;

#[test]
fn requests_are_changed_on_either_protocol() {
    let rows = rows(OF_REQUESTS);
    let (_origin, larder) = start(&site(rows.iter().map(|row| (row[0], row[1]))));
    for (number, row) in rows.iter().enumerate() {
        let [phase, rule, target, lines, expected] = row[..] else { panic!("{row:?}") };
        let lines: &[&str] = &lines.split(';').filter(|line| !line.is_empty()).collect::<Vec<_>>();
        let number = number.to_string();
        let expected = expected.replace('@', &number);
        let check = |situation: &str, body: &str| {
            let part = expected.trim_start_matches('-').to_ascii_lowercase();
            let has = body.to_ascii_lowercase().contains(&part);
            assert_eq!(has, !expected.starts_with('-'), "{situation} {phase} {rule}: {body}");
        };
        let target = format!("/{number}/{target}");
        for (situation, method) in [("a POST", "POST"), ("a miss", "GET"), ("a hit", "GET")] {
            check(situation, &ask(&larder, method, &target, lines).text());
        }
        let head = ask(&larder, "HEAD", &target, lines);
        assert_eq!((head.status(), head.body.len()), (200, 0), "{rule}");
        if !lines.iter().any(|line| line.starts_with("Connection")) {
            check("HTTP/2", &Http2.get(&larder, &target, lines).text());
        }
    }
}

/// Key, `Vary` and origin see the same request: stored responses are told apart by the request as rules have changed it, for the cache
/// or for the origin.
#[test]
fn changed_requests_share_what_is_the_same_and_nothing_else() {
    let rules = [
        ("client_request", "remove = [\"X-Own\"]"),
        ("client_request", "copy = { X-Own = \"X-Other\" }"),
        ("origin_request", "copy = { X-Own = \"X-Other\" }"),
        ("origin_request", "set = { X-Own = \"{client.address}\" }"),
        ("client_request", "rewrite = { query_ignore = [\"utm\"] }"),
        ("client_request", "request_fields = { X-Own = \"*\" }\nrewrite = { add_prefix = \"/other\" }"),
    ];
    let (_origin, larder) = start(&site(rules));
    // Lines in which two requests differ, and whether the second gets the response stored for the first.
    let cases: [(&str, &str, [&[&str]; 2], bool); 7] = [
        ("/0/vary?x-own", "/0/vary?x-own", [&["X-Own: 1"], &["X-Own: 2"]], true),
        ("/1/vary?x-own", "/1/vary?x-own", [&["X-Other: 1"], &["X-Other: 2"]], false),
        ("/2/vary?x-own", "/2/vary?x-own", [&["X-Other: 1"], &["X-Other: 2"]], false),
        ("/2/vary?x-own", "/2/vary?x-own", [&["X-Other: 1"], &["X-Other: 1", "X-Own: 3"]], true),
        ("/3/vary?x-own", "/3/vary?x-own", [&["X-Own: 1"], &["X-Own: 2"]], true),
        ("/4/page?utm=1&a=1", "/4/page?utm=2&a=1", [&[], &[]], true),
        ("/5/page", "/5/page", [&["X-Own: 1"], &[]], false),
    ];
    for (index, (first, second, [before, after], is_shared)) in cases.into_iter().enumerate() {
        ask(&larder, "GET", first, before);
        let answered = ask(&larder, "GET", second, after);
        assert_eq!(answered.is_hit(), is_shared, "{index}: {second}: {}", answered.text());
    }
}

#[test]
fn clients_are_redirected() {
    let config = "@site@\
        [[site.transform]]\nphase = \"client_request\"\npath = { glob = \"/old/**\" }\n\
        redirect = { status = \"301\", to = \"https://{host}{path}?{query}\" }\n\
        [[site.transform]]\nphase = \"client_request\"\npath = { regex = \"^/p/([0-9]+)(/.*)?$\" }\n\
        redirect = { status = 302, to = \"/product/${1}$2\" }\n\
        [[site.transform]]\nphase = \"client_request\"\npath = { prefix = \"/\" }\nrequest_fields = { X-To = \"*\" }\n\
        redirect = { to = \"/{header.X-To}\" }\n\
        [[site.transform]]\nphase = \"client_response\"\nset = { X-Laid-Over = \"yes\" }\n";
    let (_origin, larder) = start(config);
    let cases: [(&str, &[&str], u16, &str); 9] = [
        ("/p/7?a=b", &[], 302, "/product/7"),
        ("/p/7/evil.example", &[], 302, "/product/7/evil.example"),
        ("/old/a?b=c?", &[], 301, "https://test.example/old/a?b=c?"),
        ("/old/a?", &[], 301, "https://test.example/old/a"),
        ("/old/a", &[], 301, "https://test.example/old/a"),
        ("/old/a", &["X-To: first-rule-wins"], 301, "https://test.example/old/a"),
        ("/x", &["X-To: here"], 308, "/here"),
        ("/x", &["X-To: /evil.example/"], 308, "/evil.example/"),
        ("/x", &["X-To: a b\"<\u{e9}"], 308, "/a%20b%22%3C%C3%A9"),
    ];
    for (target, lines, status, location) in cases {
        for answered in [
            ask(&larder, "GET", target, lines),
            ask(&larder, "HEAD", target, lines),
            ask(&larder, "POST", target, lines),
            Http2.get(&larder, target, lines),
        ] {
            let found = (answered.status(), answered.head.fields.joined("location"));
            assert_eq!(found, (status, location.to_owned()), "{target} {lines:?}");
            assert!(answered.cache_status().contains("detail=redirect"));
            assert_eq!(answered.head.fields.joined("x-laid-over"), "yes");
        }
    }
}

/// Nothing that a client sends splits a message or makes it exceed the limits.
#[test]
fn text_of_clients_stays_inside_of_a_value() {
    let copies: String =
        (0..40).map(|number| format!("X-C{number} = \"{{header.X-Long}}\"")).collect::<Vec<_>>().join(", ");
    let config = format!(
        "@site@\
         [[site.transform]]\nphase = \"client_response\"\nset = {{ X-Path = \"{{path}} {{query}} {{request.header.X-Own}}\" }}\n\
         [[site.transform]]\nphase = \"client_request\"\npath = {{ prefix = \"/long\" }}\nset = {{ {copies} }}\n\
         [[site.transform]]\nphase = \"origin_request\"\npath = {{ prefix = \"/inbound\" }}\nset = {{ {copies} }}\n\
         [[site.transform]]\nphase = \"client_response\"\npath = {{ prefix = \"/outbound\" }}\nset = {{ {} }}\n",
        copies.replace("header.", "request.header.")
    );
    let (_origin, larder) = start(&config);
    let answered = ask(&larder, "GET", "/a%0d%0aSet-Cookie:x=1?b%0d%0a", &["X-Own: \u{e9}\tx"]);
    assert_eq!(answered.head.fields.joined("x-path"), "/a%0D%0ASet-Cookie:x=1 b%0D%0A \u{e9}\tx");
    assert_eq!(answered.head.fields.joined("set-cookie"), "");
    let long = format!("X-Long: {}", "x".repeat(6_000));
    for (target, status) in [("/long", 431), ("/inbound", 400), ("/outbound", 500), ("/else", 200)] {
        let answered = ask(&larder, "GET", target, &[&long]);
        assert_eq!(answered.status(), status, "{target}");
        assert_eq!(Http2.get(&larder, target, &[&long]).status(), status, "{target} over HTTP/2");
    }
}

/// `larder explain` shows rules, PURGE reaches rewritten URLs, and a reload changes the rules.
#[test]
fn rules_are_explained_and_reloaded() {
    let origin = ScriptedOrigin::start(script);
    let rules = site([
        (ASKED, "rewrite = { add_prefix = \"/new\" }"),
        (SENT, "set = { X-Secret = \"1\", Authorization = \"Bearer hidden-1\" }"),
        (STORED, "cache_control = { 2xx = \"max-age=50\" }"),
    ]);
    let config = |value: &str| {
        let rest =
            format!("[[site.transform]]\nphase = \"client_response\"\nset = {{ X-New = \"{value}\" }}\n");
        format!("[purge]\ntoken_file = \"token\"\n{rules}{rest}")
    };
    let setup = Setup::config(LARDER, &filled(&config("one"), &origin));
    let mut larder = setup.file("token", "0123456789abcdef").start();
    let admin = larder.admin().to_string();
    let of_client = "a rule changes the request of the client|rule = case-0|rewrite = path and query|\
                     GET http://test.example/new/0/page of site a";
    let of_origin = "a rule changes the request to the origin|set = x-secret: 1|authorization: (hidden)";
    let of_responses = "a rule changes the response of the origin|set = cache-control by status|\
                        a rule changes the response to the client|set = x-new: one";
    for (path, says) in [("/0/page", of_client), ("/1/page", of_origin), ("/2/page", of_responses)] {
        let text = run(LARDER, ["explain", &format!("http://test.example{path}"), "--admin", &admin]).text();
        for says in says.split('|') {
            assert!(text.contains(says) && !text.contains("hidden-1"), "{path}: {says}: {text}");
        }
    }
    assert!(larder.get("/0/page").is_hit());
    let purged = ask(&larder, "PURGE", "/0/page", &["Authorization: Bearer 0123456789abcdef"]);
    assert_eq!(purged.status(), 200, "{}", purged.text());
    assert!(!larder.get("/0/page").is_hit());
    reload(&mut larder, &config("two"), &origin);
    assert_eq!(larder.get("/0/page").field("x-new"), "two");
}

/// A web origin never gets CORS fields made for another one, whether or not the response is from the cache.
#[test]
fn other_web_origins_get_what_the_site_says() {
    let config = "[[site]]\nname = \"one\"\nhosts = [\"test.example\"]\norigin = \"@origin@\"\n\
        [site.cors]\norigins = [\"https://a.example\", \"http://localhost:3000\"]\nmethods = [\"GET\", \"PUT\"]\n\
        headers = [\"X-A\"]\ncredentials = true\nmax_age = \"10m\"\nexposed = [\"X-From\"]\n\
        [[site]]\nname = \"any\"\norigin = \"@origin@\"\n\
        [site.cors]\norigins = [\"*\"]\nheaders = [\"*\"]\n";
    let (origin, larder) = start(config);
    let shown = |answered: &Response| {
        let names = "allow-origin allow-credentials expose-headers allow-methods allow-headers max-age";
        let values =
            names.split(' ').map(|name| answered.head.fields.joined(&format!("access-control-{name}")));
        [answered.head.fields.joined("vary")].into_iter().chain(values).collect::<Vec<_>>().join("|")
    };
    let told = "Origin|https://a.example|true|x-from|||";
    let others = "Origin|http://localhost:3000|true|x-from|||";
    let cases: [(&[&str], &str); 4] = [
        (&["Origin: https://a.example"], told),
        (&["Origin: http://localhost:3000"], others),
        (&["Origin: https://evil.example"], "Origin||||||"),
        (&[], "Origin||||||"),
    ];
    for target in ["/page", "/error", "/x/page"] {
        for (lines, expected) in cases {
            let conditional = [lines, &["If-None-Match: \"1\""]].concat();
            for answered in [
                ask(&larder, "GET", target, lines),
                ask(&larder, "HEAD", target, lines),
                Http2.get(&larder, target, lines),
                ask(&larder, "GET", target, &conditional),
            ] {
                assert_eq!(shown(&answered), expected, "{} {target} {lines:?}", answered.status());
            }
        }
    }
    let before = origin.total();
    let asks = |origin| [origin, "Access-Control-Request-Method: PUT", "Access-Control-Request-Headers: x-a"];
    let vary = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";
    for (asking, expected) in [
        ("Origin: https://a.example", format!("{vary}|https://a.example|true||GET, PUT|x-a|600")),
        ("Origin: https://evil.example", format!("{vary}||||||")),
    ] {
        let answered = ask(&larder, "OPTIONS", "/page", &asks(asking));
        assert_eq!((answered.status(), shown(&answered)), (204, expected), "{asking}");
    }
    assert_eq!(origin.total(), before, "preflights are answered here");
    let plain = ask(&larder, "OPTIONS", "/page", &["Origin: https://a.example"]);
    assert_eq!(plain.status(), 200, "not a preflight");
    let any = |lines: &str| {
        let response = ask_host(&larder, ("GET", "any.example", "/page"), lines);
        (response.field("vary").to_owned(), response.field("access-control-allow-origin").to_owned())
    };
    assert_eq!(any("Origin: https://b.example\r\n"), (String::new(), "*".to_owned()));
    assert_eq!(any(""), (String::new(), "*".to_owned()));
}

/// Like an access list, maintenance admits no client whose address can't be parsed.
#[test]
fn a_site_in_maintenance_has_one_answer_for_all_clients_but_those_it_knows() {
    let site = |name: &str, more: &str| {
        let hosts = format!("hosts = [\"{name}.example\"]\norigin = \"@origin@\"\n");
        format!("[[site]]\nname = \"{name}\"\n{hosts}[site.maintenance]\nenabled = {more}\n")
    };
    let closed = "true\nretry_after = \"2m\"\nbody_file = \"soon.html\"";
    let known = "true\nclients_admitted = [\"127.0.0.0/8\", \"10.0.0.0/8\"]";
    let sites = [site("test", closed), site("off", "false"), site("known", known)].concat();
    let config = format!("trusted_proxies = [\"127.0.0.0/8\"]\n{sites}");
    let origin = ScriptedOrigin::start(script);
    let larder = Setup::config(LARDER, &filled(&config, &origin)).file("soon.html", "<p>soon</p>").start();
    for answered in [ask(&larder, "GET", "/page", &[]), Http2.get(&larder, "/page", &[])] {
        let shown = ["retry-after", "content-type", "cache-control"].map(|name| answered.field(name));
        assert_eq!((answered.status(), answered.text().as_str()), (503, "<p>soon</p>"));
        assert_eq!(shown, ["120", "text/html; charset=utf-8", "no-store"]);
        assert!(answered.cache_status().contains("detail=maintenance"));
    }
    assert_eq!(larder.ask("HEAD", "/page", "").status(), 503);
    assert_eq!(get_of(&larder, "off.example", "/page").status(), 200);
    for (line, status) in [
        ("", 200),
        ("X-Forwarded-For: 10.1.2.3\r\n", 200),
        ("X-Forwarded-For: 192.0.2.1\r\n", 503),
        ("X-Forwarded-For: unknown\r\n", 503),
        ("X-Forwarded-For: 10.1.2.3, _hidden\r\n", 503),
        ("Forwarded: for=unknown\r\n", 503),
    ] {
        assert_eq!(ask_host(&larder, ("GET", "known.example", "/"), line).status(), status, "{line}");
    }
}

#[test]
fn errors_of_larder_have_the_pages_of_the_site() {
    let config = "@site@clients_denied = []\n\
        [[site.error_page]]\nstatuses = [\"502\"]\nbody_file = \"bad.json\"\ncontent_type = \"application/json\"\n\
        [[site.error_page]]\nstatuses = [\"5xx\", \"403\"]\nbody_file = \"any.html\"\n\
        [[site.transform]]\nphase = \"client_response\"\nstatuses = [\"5xx\"]\nset = { X-New = \"n\" }\n";
    let mut origin = ScriptedOrigin::start(script);
    let setup = Setup::config(LARDER, &filled(config, &origin));
    let larder = setup.file("bad.json", "{}").file("any.html", "<p>any</p>").start();
    let of_origin = ask(&larder, "GET", "/error", &[]);
    assert!(of_origin.body.starts_with(b"GET "), "an error of the origin keeps its body");
    let shown = |answered: Response| {
        let [kind, new] = ["content-type", "x-new"].map(|name| answered.head.fields.joined(name));
        (answered.status(), kind, answered.text(), new)
    };
    let expect = |status, kind: &str, body: &str| (status, kind.to_owned(), body.to_owned(), "n".to_owned());
    let unavailable = ask(&larder, "GET", "/never", &["Cache-Control: only-if-cached"]);
    assert_eq!(shown(unavailable), expect(504, "text/html; charset=utf-8", "<p>any</p>"));
    origin.stop();
    for answered in [ask(&larder, "GET", "/gone", &[]), Http2.get(&larder, "/gone", &[])] {
        assert_eq!(shown(answered), expect(502, "application/json", "{}"));
    }
    assert_eq!(larder.ask("HEAD", "/gone", "").body, b"");
}
