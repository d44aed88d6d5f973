//! Real clients: curl, h2load, nghttp, a browser.

use testkit::{Authority, Client, End, Larder, Output, Port, ScriptedOrigin, Setup, run, wait};

use crate::LARDER;
use crate::cache::basics::{bare, filled, with};
use crate::tools::mock_origin::MockOrigin;

/// Text that curl writes after the body.
const REPORT: &str = "\n%{http_version} %{http_code}";

fn curl(arguments: &[&str]) -> Output {
    run(
        "curl",
        [&["--silent", "--show-error", "--max-time", "30", "--write-out", REPORT], arguments].concat(),
    )
}

fn hello() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        let body = format!("hello {}", String::from_utf8_lossy(&exchange.request.body));
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\nETag: \"a\"\r\n", body);
    })
}

/// A gateway with a plain port, and a port with TLS and a certificate for each name.
pub(super) struct Secured {
    pub(super) larder: Larder,
    authority: Authority,
    port: Port,
}

impl Secured {
    /// Starts the gateway with `top` before the listeners in its configuration.
    pub(super) fn start(origin: &ScriptedOrigin, top: &str, names: &[&str]) -> Self {
        let (authority, port) = (Authority::new(), Port::reserve());
        let mut certificates = String::new();
        for name in names {
            let identity = authority.identity(&[name]);
            let [cert, key] = [identity.certificate.display(), identity.key.display()];
            certificates += &format!("[[listen.certificates]]\ncert = \"{cert}\"\nkey = \"{key}\"\n");
        }
        let tls = port.address();
        let listen =
            format!("[[listen]]\naddress = \"@listen@\"\n[[listen]]\naddress = \"{tls}\"\n{certificates}");
        Self { larder: with(&format!("{top}{listen}@site@"), origin), authority, port }
    }

    /// Arguments that make curl use a name and trust only our authority.
    fn arguments(&self, scheme: &str, name: &str, target: &str) -> Vec<String> {
        let port = if scheme == "https" { self.port.address() } else { self.larder.address() }.port();
        let authority = self.authority.file().display().to_string();
        let resolve = format!("{name}:{port}:127.0.0.1");
        let url = format!("{scheme}://{name}:{port}{target}");
        vec!["--cacert".to_owned(), authority, "--resolve".to_owned(), resolve, url]
    }

    fn curl(&self, name: &str, more: &[&str]) -> Output {
        let own = self.arguments("https", name, "/");
        curl(&own.iter().map(String::as_str).chain(more.iter().copied()).collect::<Vec<_>>())
    }

    /// The body that curl receives with a scheme and an HTTP version.
    pub(super) fn body(&self, (scheme, version): (&str, &str), target: &str, more: &[&str]) -> Vec<u8> {
        let own = self.arguments(scheme, "a.example", target);
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        run("curl", [&["-sf", "--max-time", "120", version], more, &own].concat()).succeeded().stdout
    }
}

#[test]
fn curl_speaks_every_version() {
    let origin = hello();
    let larder = bare(&origin);
    let long = "x".repeat(100_000);
    let query = ["--request", "QUERY", "--header", "Content-Type: text/x-q", "--data"];
    for (option, version) in
        [("--http1.0", "1.1"), ("--http1.1", "1.1"), ("--http2", "1.1"), ("--http2-prior-knowledge", "2")]
    {
        for (target, more, expected) in [
            ("/", &[][..], "hello \n@ 200"),
            ("/", &[], "hello \n@ 200"),
            ("/post", &["--data", &long], &format!("hello {long}\n@ 200")),
            ("/post", &[&query[..], &[&long]].concat(), &format!("hello {long}\n@ 200")),
            ("/post", &[&query[..], &["small"]].concat(), "hello small\n@ 200"),
            ("/", &["--range", "1-3"], "ell\n@ 206"),
            ("/", &["--header", "If-None-Match: \"a\""], "\n@ 304"),
        ] {
            let output = curl(&[&[option, &larder.url(target)], more].concat()).succeeded();
            assert_eq!(output.text(), expected.replace('@', version), "{option} {more:?}");
        }
        let output = curl(&[option, "--head", &larder.url("/")]).succeeded();
        assert!(output.text().to_lowercase().contains("content-length: 6"), "{}", output.text());
    }
    assert_eq!(origin.count("/"), 1, "all versions share the stored response");
}

#[test]
fn plain_http_on_a_tls_port_is_told_so() {
    let origin = hello();
    let secured = Secured::start(&origin, "", &["a.example"]);
    for request in ["GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "G"] {
        let mut client = Client::connect(secured.port.address());
        client.send(request);
        let response = client.response();
        assert_eq!((response.status(), response.end), (400, End::Complete), "{request}");
        assert!(response.text().contains("plain HTTP was sent to an HTTPS port"), "{}", response.text());
        assert_eq!(client.rest(), b"", "it is closed");
    }
    secured.curl("a.example", &[]).succeeded();
}

#[test]
fn curl_speaks_tls_with_alpn() {
    let origin = hello();
    let secured = Secured::start(&origin, "", &["a.example"]);
    for (option, version) in
        [("--http2", "2"), ("--http1.1", "1.1"), ("--no-alpn", "1.1"), ("--tlsv1.3", "2"), ("--tls-max", "2")]
    {
        let more: &[&str] = if option == "--tls-max" { &["--tls-max", "1.2"] } else { &[option] };
        let output = secured.curl("a.example", more).succeeded();
        assert_eq!(output.text(), format!("hello \n{version} 200"), "{option}");
    }
    assert_eq!(origin.last("/").field("x-forwarded-proto"), "https");
    let plain = curl(&[&secured.larder.url("/")]).succeeded();
    assert!(plain.text().ends_with("1.1 200"), "{}", plain.text());
    assert_eq!(origin.count("/"), 2, "the scheme is part of the key");
}

/// HTTP/1.0 over TLS: a body that is cut short ends without a `close_notify`.
#[test]
fn http_1_0_over_tls_sees_that_a_body_broke_off() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.chunked_head("Cache-Control: no-store\r\n").chunk("hello");
        match exchange.request.target() {
            "/whole" => exchange.last_chunk(""),
            _ => exchange.close(),
        };
    });
    let secured = Secured::start(&origin, "", &["a.example"]);
    let ask = |path: &str| {
        let own = secured.arguments("https", "a.example", path);
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        curl(&[&["--http1.0", "--no-alpn"], &own[..]].concat())
    };
    assert_eq!(ask("/whole").succeeded().text(), "hello\n1.1 200");
    for _ in 0..10 {
        let output = ask("/cut");
        assert_ne!(output.status, 0, "{}", output.text());
    }
}

#[test]
fn the_access_log_says_what_the_handshake_agreed_on() {
    let origin = hello();
    let secured = Secured::start(&origin, "[log]\naccess = \"stdout\"\n", &["a.example"]);
    for (number, (options, tls)) in [
        (&["--http2"][..], "TLSv1.3"),
        (&["--http1.1"], "TLSv1.3"),
        (&["--http1.1", "--tls-max", "1.2"], "TLSv1.2"),
        (&["--http2", "--request", "TRACE"], "TLSv1.3"),
    ]
    .into_iter()
    .enumerate()
    {
        let agent = format!("number-{number}");
        secured.curl("a.example", &[&["--user-agent", &agent], options].concat()).succeeded();
        let line = logged(&secured.larder, &agent);
        assert_eq!((&line["tls"], &line["sni"]), (&tls.into(), &"a.example".into()), "{options:?}: {line}");
    }
    curl(&["--user-agent", "plain", &secured.larder.url("/")]).succeeded();
    let line = logged(&secured.larder, "plain");
    assert!(line.get("tls").is_none_or(serde_json::Value::is_null), "{line}");
    // curl refuses a name without a certificate before it sends a request; an address without a name is
    // accepted with `--insecure`.
    let url = format!("https://{}/", secured.port.address());
    curl(&["--insecure", "--user-agent", "nameless", &url]).succeeded();
    let line = logged(&secured.larder, "nameless");
    assert_eq!(line["tls"], "TLSv1.3", "{line}");
    assert!(line.get("sni").is_none_or(serde_json::Value::is_null), "an address is no server name: {line}");
}

/// The line of the access log about the request of this agent.
pub(super) fn logged(larder: &Larder, agent: &str) -> serde_json::Value {
    wait::until("the line is written", || {
        let text = larder.stdout();
        let mut lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        lines.find(|line| line["user_agent"] == agent)
    })
}

#[test]
fn h2load_and_many_streams() {
    let origin = hello();
    let larder = bare(&origin);
    for option in [&["--clients=10", "--max-concurrent-streams=20"][..], &["--clients=10", "--h1"]] {
        let (count, url) = ("--requests=3000", larder.url("/"));
        let output = run("h2load", [option, &[count, &url]].concat()).succeeded();
        let text = output.text();
        assert!(text.contains("3000 succeeded, 0 failed, 0 errored, 0 timeout"), "{option:?}:\n{text}");
        assert!(text.contains("status codes: 3000 2xx, 0 3xx, 0 4xx, 0 5xx"), "{option:?}:\n{text}");
    }
    assert_eq!(origin.total(), 1);
}

/// Content is still arriving when each of these requests is answered, so its stream is reset, but the
/// connection stays open.
#[test]
fn refused_uploads_leave_their_connection_open() {
    let origin = hello();
    let config = filled("@site@[site.maintenance]\nenabled = true\n", &origin);
    let larder = Setup::config(LARDER, &config).file("content", "x".repeat(60_000)).start();
    let content = format!("--data={}", larder.folder().join("content").display());
    let load = ["--clients=1", "--max-concurrent-streams=20", "--requests=2000", &content, &larder.url("/")];
    let text = run("h2load", load).succeeded().text();
    assert!(text.contains("2000 done") && text.contains("0 4xx, 2000 5xx"), "{text}");
    assert_eq!(origin.total(), 0);
}

/// A page with its style sheet and its image.
#[test]
fn a_browser_loads_a_page() {
    let origin = MockOrigin::start();
    let larder = Setup::origin(LARDER, &origin.url).start();
    let dump = || {
        let profile = tempfile::tempdir().expect("a temporary folder");
        let (profile, url) = (format!("--user-data-dir={}", profile.path().display()), larder.url("/"));
        let usual = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync \
                     --disable-background-networking --disable-component-update --dump-dom";
        run("chromium", usual.split(' ').chain([&profile[..], &url])).succeeded().text()
    };
    let first = dump();
    assert!(first.contains("Mock origin</h1>"), "{first}");
    assert_eq!(dump(), first);
    for target in ["/", "/style.css", "/image.svg"] {
        assert_eq!(origin.count(target), 1, "{target} is stored, since the browser has no cache");
    }
}
