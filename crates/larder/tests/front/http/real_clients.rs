//! Clients as they exist: curl, h2load, nghttp, a browser.

use testkit::{Authority, Client, End, Larder, Output, Port, ScriptedOrigin, Setup, run, wait};

use crate::LARDER;
use crate::tools::mock_origin::MockOrigin;

/// What curl writes after the body.
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
struct Secured {
    larder: Larder,
    authority: Authority,
    port: Port,
}

impl Secured {
    fn start(origin: &ScriptedOrigin, names: &[&str]) -> Self {
        let (authority, port) = (Authority::new(), Port::reserve());
        let mut certificates = String::new();
        for name in names {
            let identity = authority.identity(&[name]);
            certificates.push_str(&format!(
                "[[listen.certificates]]\ncert = \"{}\"\nkey = \"{}\"\n",
                identity.certificate.display(),
                identity.key.display()
            ));
        }
        let config = format!(
            "[log]\naccess = \"stdout\"\n[[listen]]\naddress = \"@listen@\"\n[[listen]]\naddress = \"{}\"\n{certificates}\
             [[site]]\nname = \"a\"\norigin = \"{}\"\n",
            port.address(),
            origin.url()
        );
        Self { larder: Setup::config(LARDER, &config).start(), authority, port }
    }

    /// Asks by name, believing our authority alone.
    fn curl(&self, name: &str, more: &[&str]) -> Output {
        let port = self.port.address().port();
        let (authority, url) =
            (self.authority.file().display().to_string(), format!("https://{name}:{port}/"));
        let resolve = format!("{name}:{port}:127.0.0.1");
        curl(&[&["--cacert", &authority, "--resolve", &resolve, &url], more].concat())
    }
}

#[test]
fn curl_speaks_every_version() {
    let origin = hello();
    let larder = Setup::origin(LARDER, &origin.url()).start();
    for (option, version) in
        [("--http1.0", "1.1"), ("--http1.1", "1.1"), ("--http2", "1.1"), ("--http2-prior-knowledge", "2")]
    {
        for _ in 0..2 {
            let output = curl(&[option, &larder.url("/")]).succeeded();
            assert_eq!(output.text(), format!("hello \n{version} 200"), "{option}");
        }
        let body = "x".repeat(100_000);
        let output = curl(&[option, "--data", &body, &larder.url("/post")]).succeeded();
        assert_eq!(output.text(), format!("hello {body}\n{version} 200"), "POST with {option}");
        let query = [option, "--request", "QUERY", "--header", "Content-Type: text/x-q", "--data", &body];
        let output = curl(&[&query[..], &[&larder.url("/post")]].concat()).succeeded();
        assert_eq!(output.text(), format!("hello {body}\n{version} 200"), "large QUERY with {option}");
        let query = [option, "--request", "QUERY", "--header", "Content-Type: text/x-q", "--data", "small"];
        let output = curl(&[&query[..], &[&larder.url("/post")]].concat()).succeeded();
        assert_eq!(output.text(), format!("hello small\n{version} 200"), "QUERY with {option}");
        let output = curl(&[option, "--range", "1-3", &larder.url("/")]).succeeded();
        assert_eq!(output.text(), format!("ell\n{version} 206"), "range with {option}");
        let output = curl(&[option, "--header", "If-None-Match: \"a\"", &larder.url("/")]).succeeded();
        assert_eq!(output.text(), format!("\n{version} 304"), "condition with {option}");
        let output = curl(&[option, "--head", &larder.url("/")]).succeeded();
        assert!(output.text().to_lowercase().contains("content-length: 6"), "{}", output.text());
    }
    assert_eq!(origin.count("/"), 1, "all versions share what is stored");
}

/// The other way round nobody is told anything but that a handshake broke.
#[test]
fn plain_http_on_a_tls_port_is_told_so() {
    let origin = hello();
    let secured = Secured::start(&origin, &["a.example"]);
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
    let secured = Secured::start(&origin, &["a.example"]);
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

/// HTTP/1.0 over TLS: what breaks off does so without a farewell.
#[test]
fn http_1_0_over_tls_sees_that_a_body_broke_off() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.chunked_head("Cache-Control: no-store\r\n").chunk("hello");
        match exchange.request.target() {
            "/whole" => exchange.last_chunk(""),
            _ => exchange.close(),
        };
    });
    let secured = Secured::start(&origin, &["a.example"]);
    let url = |path: &str| format!("https://a.example:{}{path}", secured.port.address().port());
    let ask = |path: &str| {
        let (url, resolve) = (url(path), format!("a.example:{}:127.0.0.1", secured.port.address().port()));
        let authority = secured.authority.file().display().to_string();
        curl(&["--http1.0", "--no-alpn", "--cacert", &authority, "--resolve", &resolve, &url])
    };
    assert_eq!(ask("/whole").succeeded().text(), "hello\n1.1 200");
    for _ in 0..10 {
        let output = ask("/cut");
        assert_ne!(output.status, 0, "{}", output.text());
    }
}

#[test]
fn certificates_are_chosen_by_sni() {
    let origin = hello();
    let secured = Secured::start(&origin, &["a.example", "b.example", "*.wild.example"]);
    for name in ["a.example", "b.example", "x.wild.example"] {
        secured.curl(name, &[]).succeeded();
    }
    // curl says 60 when it does not believe the certificate, 35 when the handshake fails.
    let refused = secured.curl("c.example", &[]);
    assert!([60, 35].contains(&refused.status), "{} {}", refused.status, refused.stderr);
}

#[test]
fn the_access_log_says_what_the_handshake_agreed_on() {
    let origin = hello();
    let secured = Secured::start(&origin, &["a.example"]);
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
    // A name of no certificate, refused by curl, never makes a request; one without a name does.
    let url = format!("https://{}/", secured.port.address());
    curl(&["--insecure", "--user-agent", "nameless", &url]).succeeded();
    let line = logged(&secured.larder, "nameless");
    assert_eq!(line["tls"], "TLSv1.3", "{line}");
    assert!(line.get("sni").is_none_or(serde_json::Value::is_null), "an address is no server name: {line}");
}

/// The line of the access log about the request of this agent.
fn logged(larder: &Larder, agent: &str) -> serde_json::Value {
    wait::until("the line is written", || {
        let text = larder.stdout();
        let mut lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        lines.find(|line| line["user_agent"] == agent)
    })
}

/// HTTP/2 has no last chunk; a body that breaks off ends in a reset of its stream.
#[test]
fn a_broken_body_is_an_error_for_http_2() {
    let origin = ScriptedOrigin::start(|exchange| {
        match exchange.request.target() {
            "/length" => {
                exchange.head("200 OK", "Content-Length: 10\r\nCache-Control: max-age=60\r\n").send("hello")
            }
            _ => exchange.chunked_head("Cache-Control: max-age=60\r\n").chunk("hello"),
        };
        exchange.close();
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    for option in ["--http2-prior-knowledge", "--http1.1"] {
        for target in ["/length", "/chunked"] {
            let output = curl(&[option, &larder.url(target)]);
            assert_ne!(output.status, 0, "{option} {target} ended cleanly: {}", output.text());
        }
    }
}

/// What HTTP/1 refuses with 400 is a malformed request there.
//= RFC 9113 section 8.3.1: :path starts with "/" or is "*" for OPTIONS
#[test]
fn http_2_refuses_targets_that_no_uri_can_be() {
    let origin = hello();
    let larder = Setup::origin(LARDER, &origin.url()).start();
    for target in ["/<a>", "/a?b=<c>", "/a?b=\"c\"", "/`"] {
        let output = curl(&["--http2-prior-knowledge", "--path-as-is", "--globoff", &larder.url(target)]);
        assert!(!output.text().ends_with(" 200"), "{target}: {}", output.text());
    }
    assert_eq!(origin.total(), 0);
    let odd = "/a\"{}|^?b={}[]|^`";
    let output =
        curl(&["--http2-prior-knowledge", "--path-as-is", "--globoff", &larder.url(odd)]).succeeded();
    assert!(output.text().ends_with("\n2 200"), "{}", output.text());
    assert_eq!(origin.count(odd), 1);
}

#[test]
fn interim_responses_and_trailers_reach_http_2_clients() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n");
        exchange.send("HTTP/1.1 102 Processing\r\n\r\n");
        let fields = "Cache-Control: no-store\r\nTrailer: X-Sum\r\n";
        exchange.chunked_head(fields).chunk("hello").last_chunk("X-Sum: 42\r\n");
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let output =
        run("nghttp", ["--verbose", "--no-dep", "--header", "te: trailers", &larder.url("/")]).succeeded();
    let text = output.text();
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} is missing:\n{text}"));
    let places = [":status: 103", "link: </a.css>; rel=preload", ":status: 102", ":status: 200", "x-sum: 42"]
        .map(place);
    assert!(places.is_sorted(), "in this order:\n{text}");
}

#[test]
fn h2load_and_many_streams() {
    let origin = hello();
    let larder = Setup::origin(LARDER, &origin.url()).start();
    for option in [&["--clients=10", "--max-concurrent-streams=20"][..], &["--clients=10", "--h1"]] {
        let (count, url) = ("--requests=3000", larder.url("/"));
        let output = run("h2load", [option, &[count, &url]].concat()).succeeded();
        let text = output.text();
        assert!(text.contains("3000 succeeded, 0 failed, 0 errored, 0 timeout"), "{option:?}:\n{text}");
        assert!(text.contains("status codes: 3000 2xx, 0 3xx, 0 4xx, 0 5xx"), "{option:?}:\n{text}");
    }
    assert_eq!(origin.total(), 1);
}

/// A page with its style sheet and its image.
#[test]
fn a_browser_loads_a_page() {
    let origin = MockOrigin::start();
    let larder = Setup::origin(LARDER, &origin.url).start();
    let dump = || {
        let profile = tempfile::tempdir().expect("a temporary folder");
        let profile = format!("--user-data-dir={}", profile.path().display());
        let url = larder.url("/");
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            &profile,
            "--dump-dom",
            &url,
        ];
        run("chromium", arguments).succeeded().text()
    };
    let first = dump();
    assert!(first.contains("Mock origin</h1>"), "{first}");
    for target in ["/", "/style.css", "/image.svg"] {
        assert_eq!(origin.count(target), 1, "{target}");
    }
    assert_eq!(dump(), first);
    for target in ["/", "/style.css", "/image.svg"] {
        assert_eq!(origin.count(target), 1, "{target} is served from the cache to a browser without one");
    }
}
