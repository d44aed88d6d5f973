//! The example configurations as published: each with an origin that behaves as in its use case, and requests that show its
//! purpose.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use testkit::{
    Authority, Client, Exchange, Larder, Port, RespClient, Response, ScriptedOrigin, Service, Setup, Signal,
    run, wait,
};

use super::LARDER;

/// An example configuration and its use case.
struct Example {
    file: &'static str,
    /// The host of targets without one.
    host: &'static str,
    origin: fn(&mut Exchange<'_>),
    steps: &'static [Step],
}

/// A request, its field lines, and the expected response: part of `Cache-Status`, and the body.
struct Step(&'static str, &'static str, &'static str, &'static str);

const EXAMPLES: &[Example] = &[
    Example {
        file: "static-site.toml",
        host: "www.example.org",
        origin: |exchange| respond(exchange, "ETag: \"1\"\r\n", &["cookie"]),
        steps: &[
            Step("GET /", "Cookie: a=1\r\n", "stored", "/ []"),
            Step("GET /?utm_source=x&fbclid=y", "", "hit; ttl=", "/ []"),
            Step("GET /app.3f9a2b1c.js", "", "stored", "/app.3f9a2b1c.js []"),
            Step("GET /app.3f9a2b1c.js", "Cookie: b=1\r\n", "hit; ttl=3153", "/app.3f9a2b1c.js []"),
        ],
    },
    Example {
        file: "api.toml",
        host: "api.example.org",
        origin: api,
        steps: &[
            Step("GET /v1/public/items?a=1&b=2", "", "stored", "/v1/public/items?a=1&b=2 [|]"),
            Step("GET /v1/public/items?b=2&a=1", "", "hit", "/v1/public/items?a=1&b=2 [|]"),
            Step("GET /v1/me", "Authorization: Bearer a\r\n", "detail=", "/v1/me [Bearer a|]"),
            Step("GET /v1/me", "Authorization: Bearer b\r\n", "fwd=", "/v1/me [Bearer b|]"),
            Step("GET /v1/public/list", "", "stored", "/v1/public/list [|]"),
            Step("POST /v1/public/list", "Content-Length: 0\r\n", "fwd=bypass", "/v1/public/list [|]"),
            Step("GET /v1/public/list", "", "fwd=", "/v1/public/list [|]"),
            Step("GET /v1/public/own", KEYS[0], "fwd=", "/v1/public/own [|a]"),
            Step("GET /v1/public/own", KEYS[1], "fwd=", "/v1/public/own [|b]"),
        ],
    },
    Example {
        file: "wordpress.toml",
        host: "blog.example.org",
        origin: wordpress,
        steps: &[
            Step("GET /hello/", "", "stored", "/hello/ []"),
            Step("GET /hello/?utm_source=x", "", "hit", "/hello/ []"),
            Step("GET /hello/", LOGIN, "fwd=", "/hello/ [wordpress_logged_in_1=ann]"),
            Step("GET /hello/", LOGIN, "fwd=", "/hello/ [wordpress_logged_in_1=ann]"),
            Step("GET /hello/", "", "hit", "/hello/ []"),
            Step("GET /hello/", "Cookie: _ga=1; utm=2\r\n", "hit", "/hello/ []"),
            Step("GET /hello/", "Cookie: _ga=2\r\nX-Own-Cookie: a=b\r\n", "hit", "/hello/ []"),
            Step("GET /hello/", "Cookie: wordpress_test_cookie=1\r\n", "hit", "/hello/ []"),
            Step("GET /hello/", CART, "fwd=", "/hello/ [_ga=1; woocommerce_cart_hash=7]"),
            Step("GET /hello/", CART, "fwd=", "/hello/ [_ga=1; woocommerce_cart_hash=7]"),
            Step("GET /hello/", COMMENTER, "fwd=", "/hello/ [comment_author_1=bob]"),
            Step("GET /hello/", COMMENTER, "fwd=", "/hello/ [comment_author_1=bob]"),
            Step("POST /hello/", "Cookie: _ga=1\r\n", "fwd=", "/hello/ [_ga=1]"),
            Step("GET /wp-admin/", "", "fwd=bypass", "/wp-admin/ []"),
            Step("GET /?s=larder", "", "fwd=bypass", "/?s=larder []"),
            Step("GET /wp-content/style.css", LOGIN, "stored", "/wp-content/style.css []"),
            Step("GET /wp-content/style.css", "", "hit", "/wp-content/style.css []"),
        ],
    },
    Example {
        file: "nextjs.toml",
        host: "app.example.org",
        origin: nextjs,
        steps: &[
            Step("GET /docs", "", "stored", "/docs []"),
            Step("GET /docs?_rsc=1a", "RSC: 1\r\n", "stored", "/docs?_rsc=1a [1]"),
            Step("GET /docs", "", "hit", "/docs []"),
            Step("GET /docs?_rsc=2b", "RSC: 1\r\n", "hit", "/docs?_rsc=1a [1]"),
            // Its lifetime for caches is over: it is served stale, and fetched again in the background.
            Step("GET /old", "", "stored", "/old []"),
            Step("GET /old", "", "hit; ttl=-", "/old []"),
            Step("GET /dashboard", "", "fwd=", "/dashboard []"),
            Step("GET /dashboard", "", "fwd=", "/dashboard []"),
            Step("GET /_next/image?url=a&w=64&q=75", "", "stored", "/_next/image?url=a&w=64&q=75 []"),
            Step("GET /_next/image?q=75&x=1&w=64&url=a", "", "hit", "/_next/image?url=a&w=64&q=75 []"),
        ],
    },
    Example {
        file: "images.toml",
        host: "img.example.org",
        origin: |exchange| respond(exchange, "Vary: Accept\r\n", &["cookie"]),
        steps: &[
            Step("GET /a.jpg?w=100&h=50", "Cookie: a=1\r\n", "stored", "/a.jpg?w=100&h=50 []"),
            Step("GET /a.jpg?h=50&utm_source=x&w=100", "", "hit; ttl=259", "/a.jpg?w=100&h=50 []"),
            Step("GET /a.jpg?w=200&h=50", "", "stored", "/a.jpg?w=200&h=50 []"),
        ],
    },
    Example {
        file: "multi-site.toml",
        host: "www.blog.example.org",
        origin: |exchange| respond(exchange, "Cache-Control: max-age=60\r\n", &[]),
        steps: &[
            Step("GET /a?fbclid=1", "", "stored", "/a?fbclid=1 []"),
            Step("GET /a", "", "hit", "/a?fbclid=1 []"),
            Step("GET shop.example.org/api/items", "", "stored", "/v1/items []"),
            Step(
                "GET shop.example.org/images/x/a.jpg?w=1&h=2&x=3",
                "",
                "stored",
                "/images/x/a.jpg?w=1&h=2&x=3 []",
            ),
            Step("GET shop.example.org/images/x/a.jpg?h=2&w=1", "", "hit", "/images/x/a.jpg?w=1&h=2&x=3 []"),
        ],
    },
    Example {
        file: "behind-cdn.toml",
        host: "www.example.org",
        origin: cdn,
        steps: &[
            Step("GET /", CDN, "shield; fwd=uri-miss", "/ [203.0.113.9, 127.0.0.1|https]"),
            Step("GET /?utm_source=x", CDN, "hit; ttl=", "/ [203.0.113.9, 127.0.0.1|https]"),
            Step("GET /", CDN_RELOAD, "hit; ttl=", "/ [203.0.113.9, 127.0.0.1|https]"),
            Step("GET /", "", "fwd=uri-miss", "/ [127.0.0.1|http]"),
        ],
    },
];

const KEYS: [&str; 2] = ["X-API-Key: a\r\n", "X-API-Key: b\r\n"];
const CART: &str = "Cookie: _ga=1; woocommerce_cart_hash=7\r\n";
const COMMENTER: &str = "Cookie: comment_author_1=bob\r\n";
const LOGIN: &str = "Cookie: wordpress_logged_in_1=ann\r\n";
const CDN: &str = "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n";
const CDN_RELOAD: &str =
    "X-Forwarded-For: 203.0.113.10\r\nX-Forwarded-Proto: https\r\nCache-Control: no-cache\r\n";

/// Answers with the target and the values of some request fields.
fn respond(exchange: &mut Exchange<'_>, fields: &str, shown: &[&str]) {
    let values: Vec<_> = shown.iter().map(|name| exchange.request.field(name).to_owned()).collect();
    let body = format!("{} [{}]", exchange.request.target(), values.join("|"));
    exchange.respond("200 OK", fields, body);
}

/// Lists are public for a while; personal responses have no `Cache-Control`.
fn api(exchange: &mut Exchange<'_>) {
    let lists = ["/v1/public/items", "/v1/public/list"];
    let is_shared = lists.iter().any(|list| exchange.request.target().starts_with(list));
    let fields = if is_shared { "Cache-Control: public, max-age=5\r\n" } else { "" };
    respond(exchange, fields, &["authorization", "x-api-key"]);
}

/// Visitors get pages without a lifetime; logged-in users get private pages.
fn wordpress(exchange: &mut Exchange<'_>) {
    let is_user = exchange.request.field("cookie").contains("wordpress_logged_in");
    let fields = if is_user { "Cache-Control: no-cache, no-store, private, max-age=0\r\n" } else { "" };
    respond(exchange, fields, &["cookie"]);
}

fn nextjs(exchange: &mut Exchange<'_>) {
    let of_page = "Cache-Control: s-maxage=60, stale-while-revalidate=31535940\r\n\
                   Vary: RSC, Next-Router-State-Tree, Next-Router-Prefetch\r\n";
    let fields = match exchange.request.target() {
        "/dashboard" => "Cache-Control: private, no-cache, no-store, max-age=0, must-revalidate\r\n",
        "/old" => "CDN-Cache-Control: max-age=60, stale-while-revalidate=600\r\nAge: 100\r\n",
        _ => of_page,
    };
    respond(exchange, fields, &["rsc"]);
}

fn cdn(exchange: &mut Exchange<'_>) {
    let fields = "Shield-Cache-Control: max-age=600\r\nCDN-Cache-Control: max-age=10\r\n\
                  Cache-Control: max-age=0\r\nSurrogate-Key: home\r\n";
    respond(exchange, fields, &["x-forwarded-for", "x-forwarded-proto"]);
}

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config"))
}

/// Returns an example with the addresses of this test in place of its own.
fn text(file: &str, origin: &ScriptedOrigin, more: &[(&str, &str)]) -> String {
    let mut text = fs::read_to_string(folder().join(file)).expect(file);
    let url = origin.url();
    let usual =
        [("http://127.0.0.1:3030", &*url), ("127.0.0.1:8080", "@listen@"), ("127.0.0.1:8081", "@admin@")];
    more.iter().chain(&usual).for_each(|(own, ours)| text = text.replace(own, ours));
    text
}

fn ask(larder: &Larder, request: &str, fields: &str) -> Response {
    let (method, url) = request.split_once(' ').expect("a method");
    let (host, path) = url.split_at(url.find('/').expect("a path"));
    let mut client = larder.client();
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"));
    client.response_to(method)
}

/// Examples that promise so never give one user's response to another, although the origin sends no `Cache-Control`.
#[test]
fn examples_keep_users_apart() {
    const CREDENTIALS: [&str; 4] =
        ["Cookie: user=@", "X-API-Key: @", "Authorization: Bearer @", "Authorization: Basic @"];
    for (file, pages) in [
        ("api.toml", ["api.example.org/v1/public/a", "api.example.org/v1/me"]),
        ("static-site.toml", ["www.example.org/", "example.org/app.3f9a2b1c.js"]),
        ("wordpress.toml", ["blog.example.org/hello/", "blog.example.org/cart?a"]),
        ("multi-site.toml", ["www.blog.example.org/a", "blog.example.org/wp-admin/"]),
    ] {
        let origin = ScriptedOrigin::start(|exchange| {
            respond(exchange, "", &["cookie", "x-api-key", "authorization"])
        });
        let larder = start(file, &origin);
        for (page, credentials) in pages.iter().flat_map(|page| CREDENTIALS.map(|field| (page, field))) {
            let get = |fields: &str| ask(&larder, &format!("GET {page}"), fields).text();
            let [first, second] =
                ["alice", "bob"].map(|user| get(&(credentials.replace('@', user) + "\r\n")));
            assert!(!second.contains("alice"), "{file}: {page} with {credentials}: {first}, then {second}");
            let nobody = get("");
            assert!(!nobody.contains("alice") && !nobody.contains("bob"), "{file}: {page}: {nobody}");
        }
    }
}

/// Starts an example with the files that it includes.
fn start(file: &str, origin: &ScriptedOrigin) -> Larder {
    let more = [("http://127.0.0.1:3031", &*origin.url()), ("198.51.100.0/24", "127.0.0.0/8")];
    let mut setup = Setup::config(LARDER, &text(file, origin, &more));
    for site in ["sites.d/blog.toml", "sites.d/shop.toml"] {
        setup = setup.file(site, text(site, origin, &more));
    }
    setup.start()
}

#[test]
fn examples_do_their_jobs() {
    for Example { file, host, origin, steps } in EXAMPLES {
        let origin = ScriptedOrigin::start(*origin);
        let larder = start(file, &origin);
        for Step(request, fields, told, body) in *steps {
            let answer = ask(&larder, &request.replace(" /", &format!(" {host}/")), fields);
            assert!(answer.cache_status().contains(told), "{file}: {request}: {told}: {:?}", answer.head);
            assert_eq!(answer.text(), *body, "{file}: {request}: {:?}", answer.head);
        }
    }
}

#[test]
fn a_group_loses_servers_and_no_request() {
    let server = |name: &'static str| {
        ScriptedOrigin::start(move |exchange| {
            // An expired response is still stored, in case the origin fails.
            let fields = if exchange.request.target() == "/old" { OLD } else { NO_STORE };
            exchange.respond("200 OK", fields, name);
        })
    };
    let mut servers = [server("first"), server("second")];
    let more = [("http://127.0.0.1:3031", &*servers[1].url())];
    let larder = Setup::config(LARDER, &text("origin-group.toml", &servers[0], &more)).start();
    let answered_by_second = || {
        let texts = (0..6).map(|number| ask(&larder, &format!("GET shop.example.org/{number}"), "").text());
        let texts = texts.inspect(|text| assert!(["first", "second"].contains(&&**text), "{text}"));
        texts.filter(|text| text == "second").count()
    };
    assert_eq!(answered_by_second(), 4, "by weight");
    let old = ask(&larder, "GET shop.example.org/old", "").text();
    servers[1].stop();
    assert_eq!(answered_by_second(), 0, "each is sent again");
    servers[0].stop();
    let stale = ask(&larder, "GET shop.example.org/old", "");
    assert_eq!((stale.status(), stale.text()), (200, old), "{:?}", stale.head);
}

const OLD: &str = "Cache-Control: max-age=1\r\nAge: 100\r\n";
const NO_STORE: &str = "Cache-Control: no-store\r\n";

/// Requests for the protection example, the status, and a part of `Cache-Status`. The first one is sent five times.
const PROTECTED: &[(&str, &str, u16, &str)] = &[
    ("POST shop.example.org/login", "Content-Length: 0\r\n", 200, "fwd=bypass"),
    ("POST shop.example.org/login", "Content-Length: 0\r\n", 429, "detail=rate-limited"),
    ("POST shop.example.org/comments", "Content-Length: 65537\r\n", 413, "detail=request-body-too-large"),
    ("POST shop.example.org/uploads/1", "Content-Length: 20971521\r\n", 413, "detail=request-body-too-large"),
    ("GET shop.example.org/", "", 200, "stored"),
    ("GET shop.example.org/fails", "", 503, "detail=default-response"),
    ("GET shop.example.org/large", "", 503, "detail=default-response"),
];

#[test]
fn a_site_is_protected() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        match exchange.request.target() {
            "/fails" => exchange.respond("500 Internal Server Error", "", "a stack trace"),
            "/large" => exchange.head("200 OK", "Content-Length: 8388609\r\n"),
            _ => exchange.respond("200 OK", "", "as ever"),
        };
    });
    let larder = Setup::config(LARDER, &text("protection.toml", &origin, &[])).start();
    let logins = [PROTECTED[0]; 4];
    for (request, fields, status, told) in logins.iter().chain(PROTECTED) {
        let answer = ask(&larder, request, fields);
        assert_eq!(answer.status(), *status, "{request}: {:?}", answer.head);
        assert!(answer.cache_status().contains(told), "{request}: {told}: {:?}", answer.head);
        let is_page = answer.text().contains("We are back in a minute");
        assert_eq!(is_page, told.ends_with("default-response"), "{request}: {}", answer.text());
    }
    let mut client = larder.client();
    let body = "x".repeat(65_537);
    let head = "Host: shop.example.org\r\nContent-Length: 65537\r\n";
    client.send(format!("POST /uploads/1 HTTP/1.1\r\n{head}\r\n{body}"));
    assert_eq!(client.response_to("POST").status(), 200, "larger than elsewhere");
    let get = |target: String| format!("GET {target} HTTP/1.1\r\nHost: shop.example.org\r\n\r\n");
    client.send(get("/".to_owned()).repeat(100));
    assert!((0..100).all(|_| client.response().is_hit()), "hits don't count");
    // The budget grows while requests are answered, so on a busy machine it takes many to use it up.
    client.send((0..200).map(|number| get(format!("/search?q={number}"))).collect::<String>());
    let searches: Vec<_> = (0..200).map(|_| client.response()).collect();
    let refused = searches.iter().find(|answer| answer.status() == 503).expect("more than its budget");
    assert!(refused.cache_status().contains("detail=miss-budget"), "{:?}", refused.head);
    assert_eq!(searches[0].status(), 200);
}

#[test]
fn behind_haproxy_clients_come_from_the_proxy_header() {
    let origin = ScriptedOrigin::start(|exchange| respond(exchange, "", &["x-forwarded-for"]));
    let probes = Port::reserve().address().to_string();
    let more =
        [("0.0.0.0:8080", "@listen@"), ("0.0.0.0:8083", probes.as_str()), ("10.0.0.0/8", "127.0.0.0/8")];
    let larder = Setup::config(LARDER, &text("behind-haproxy.toml", &origin, &more)).start();
    let mut client = larder.client();
    client.send("PROXY TCP4 203.0.113.9 127.0.0.1 4000 8080\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "/ [203.0.113.9]");
    let mut checks = Client::connect(probes.parse().expect("an address"));
    // As HAProxy sends it.
    checks.send("GET /ready HTTP/1.0\r\n\r\n");
    assert_eq!(checks.response().status(), 200);
    let mut stranger = larder.client();
    stranger.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(stranger.try_response_to("GET").is_err(), "a connection without the header is closed");
}

#[test]
fn tls_at_the_edge_has_a_certificate_for_each_name() {
    let origin = ScriptedOrigin::start(|exchange| {
        respond(exchange, "Cache-Control: max-age=60\r\n", &["x-forwarded-proto"]);
    });
    let authority = Authority::new();
    let plain = Port::reserve().address();
    let more = [("0.0.0.0:8443", "@listen@"), ("0.0.0.0:8080", &*plain.to_string())];
    let mut setup = Setup::config(LARDER, &text("tls-edge.toml", &origin, &more));
    for (name, host) in [("example.org", "www.example.org"), ("example.net", "*.example.net")] {
        let identity = authority.identity(&[host]);
        setup = setup
            .file(&format!("{name}.pem"), fs::read(identity.certificate).expect("a certificate"))
            .file(&format!("{name}.key"), fs::read(identity.key).expect("a key"));
    }
    let larder = setup.start();
    let ca = authority.file().display().to_string();
    let curl = |host: &str| {
        let place = format!("{host}:{}", larder.address().port());
        let (url, resolve) = (format!("https://{place}/"), format!("{place}:127.0.0.1"));
        let arguments = ["-s", "--cacert", &ca, "--resolve", &resolve, "-w", " HTTP/%{http_version}", &url];
        run("curl", arguments).succeeded().text()
    };
    for host in ["www.example.org", "shop.example.net"] {
        (0..2).for_each(|_| assert!(curl(host).ends_with("/ [https] HTTP/2"), "{host}"));
    }
    assert_eq!(origin.total(), 2, "the second request for each is a hit");
    let mut client = Client::connect(plain);
    client.send(format!("GET / HTTP/1.1\r\nHost: www.example.org:{}\r\n\r\n", larder.address().port()));
    assert_eq!(client.response().text(), "/ [http]", "the scheme is part of the key");
}

#[test]
fn sessions_outlive_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let (kv, admin) = (Port::reserve(), Port::reserve());
    let example = fs::read_to_string(self::folder().join("kv-sessions.toml")).expect("the example");
    let config = example
        .replace("127.0.0.1:6379", &kv.address().to_string())
        .replace("127.0.0.1:8082", &admin.address().to_string());
    let file = folder.path().join("kv-sessions.toml");
    fs::write(&file, config).expect("a file");
    fs::write(folder.path().join("kv-sessions.password"), "correct horse\n").expect("a file");
    let start = || {
        let mut command = Command::new(LARDER);
        let mut service = Service::start(command.args(["kv", "--config"]).arg(&file), folder.path(), "kv");
        wait::until_true("it listens", || {
            service.assert_runs();
            !service.listening().is_empty()
        });
        (service, RespClient::connect(kv.address()))
    };
    let (mut service, mut client) = start();
    assert!(client.ask(&[b"GET", b"session:1"]).starts_with(b"-NOAUTH"));
    assert_eq!(client.ask(&[b"AUTH", b"correct horse"]), b"+OK\r\n");
    assert_eq!(client.ask(&[b"SET", b"session:1", b"ann", b"EX", b"3600"]), b"+OK\r\n");
    service.signal(Signal::TERM);
    assert!(service.end().success());
    let (_service, mut client) = start();
    client.ask(&[b"AUTH", b"correct horse"]);
    assert_eq!(client.value(b"session:1").as_deref(), Some(&b"ann"[..]));
    assert!(client.ask(&[b"TTL", b"session:1"]) > b":3500\r\n".to_vec());
    assert!(client.ask(&[b"CONFIG", b"GET", b"maxmemory-policy"]).ends_with(b"volatile-ttl\r\n"));
}
