//! What operators do: probes, metrics, purge, reload, stop, logs.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustls::HandshakeKind;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::Value;
use testkit::{
    Authority, Client, End, Gate, Identity, Larder, Output, Port, ScriptedOrigin, Service, Setup, Signal,
    Successor, run, wait,
};

use crate::LARDER;

fn in_front_of(origin: &ScriptedOrigin) -> Larder {
    Setup::origin(LARDER, &origin.url()).start()
}

fn stored() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        let body = format!("{} {}", exchange.request.target(), exchange.request.field("accept-language"));
        let fields = "Cache-Control: max-age=60\r\nETag: \"a\"\r\nVary: Accept-Language\r\n";
        exchange.respond("200 OK", fields, body);
    })
}

fn larder(arguments: &[&str]) -> Output {
    run(LARDER, arguments)
}

#[test]
fn admin_endpoints() {
    let origin = stored();
    let larder = in_front_of(&origin);
    larder.get("/");
    for (method, target, status) in [
        ("GET", "/live", 200),
        ("HEAD", "/live", 200),
        ("GET", "/ready", 200),
        ("GET", "/metrics", 200),
        ("GET", "/", 200),
        ("GET", "/nothing", 404),
        ("GET", "/purge", 405),
        ("POST", "/live", 405),
        ("POST", "/purge", 400),
        ("POST", "/reload", 200),
    ] {
        let response = larder.ask_admin(method, target, "");
        assert_eq!(response.status(), status, "{method} {target}: {}", response.text());
    }
    let metrics = larder.ask_admin("GET", "/metrics", "").text();
    for name in [
        "larder_build_info{",
        "larder_requests_total{",
        "larder_response_duration_seconds_bucket{",
        "larder_origin_fetch_duration_seconds_count{",
        "larder_store_entries 1",
        "larder_store_max_bytes ",
        "larder_connections{",
        "process_resident_memory_bytes ",
    ] {
        assert!(metrics.contains(name), "{name} is missing:\n{metrics}");
    }
    assert!(larder.metric("larder_requests_total", &["status=\"200\"", "method=\"GET\""]) >= 1.0);
}

/// As it stands in a browser.
#[test]
fn the_admin_api_may_be_given_as_a_url() {
    let origin = stored();
    let gateway = in_front_of(&origin);
    gateway.get("/");
    for (url, status) in [("http://@/", 0), ("http://@", 3), ("https://@", 2), ("http://@/x", 2)] {
        let url = url.replace('@', &gateway.admin().to_string());
        let purged = larder(&["purge", "http://test.example/", "--admin", &url]);
        assert_eq!(purged.status, status, "{url}: {}", purged.stderr);
    }
}

/// Where nothing can match, nobody is to believe that something was purged.
#[test]
fn a_purge_by_tag_says_that_it_found_nothing() {
    const WARNING: &str = "only `Cache-Groups` is read for tags: set `tags` in the site";
    let tagged = "Cache-Control: max-age=60\r\nCache-Tag: one\r\nCache-Tags: two\r\nSurrogate-Key: three\r\nxkey: four\r\n";
    let origin = ScriptedOrigin::fixed(tagged, "tagged");
    for (tags, is_warned) in [("tags = []\n", true), ("", false), ("tags = [\"cache-tags\"]\n", false)] {
        let config = format!("[[site]]\nname = \"a\"\norigin = \"{}\"\n{tags}", origin.url());
        let gateway = Setup::config(LARDER, &config).start();
        let admin = gateway.admin().to_string();
        let purged = larder(&["purge", "--tag", "news", "--admin", &admin]);
        let told = format!("{}{}", String::from_utf8_lossy(&purged.stdout), purged.stderr);
        assert_eq!((purged.status, told.contains(WARNING)), (3, is_warned), "{told}");
        assert!(told.contains("no stored response for tag news"), "{told}");
        let answer = gateway.ask_admin("POST", "/purge", r#"{"tags":["news"],"dry_run":true}"#).text();
        assert_eq!(answer.contains(WARNING), is_warned, "{answer}");
        let by_host = gateway.ask_admin("POST", "/purge", r#"{"host":"a.example"}"#).text();
        assert!(!by_host.contains("warnings"), "{by_host}");
        for tag in ["one", "two", "three", "four"] {
            gateway.get("/");
            let is_read = !is_warned && (tags.is_empty() || tag == "two");
            assert!(gateway.get("/").is_hit(), "{tag}");
            let purged = larder(&["purge", "--tag", tag, "--admin", &admin]);
            let told = format!("{}{}", String::from_utf8_lossy(&purged.stdout), purged.stderr);
            assert_eq!(purged.status, if is_read { 0 } else { 3 }, "{tag} {tags}: {told}");
            assert_eq!(told.contains(&format!("no stored response for tag {tag}")), !is_read, "{told}");
            assert_eq!(gateway.get("/").is_hit(), !is_read, "{tag} {tags}");
        }
    }
}

/// The same for a host, whatever the sites of other hosts record.
#[test]
fn a_purge_by_tag_of_a_host_is_warned_of_its_own_sites() {
    let origin = stored();
    let site = |name: &str, keys: &str| {
        format!("[[site]]\nname = \"{name}\"\norigin = \"{}\"\n{keys}\n", origin.url())
    };
    let config = [
        site("plain", "hosts = [\"plain.example\"]\ntags = []"),
        site("tagged", "hosts = [\"tagged.example\", \"mixed.example\"]"),
        site("mixed", "hosts = [\"mixed.example\"]\npath_prefix = \"/x\"\ntags = []"),
    ];
    let gateway = Setup::config(LARDER, &config.concat()).start();
    let admin = gateway.admin().to_string();
    for (option, named, expected) in [
        ("--host", "plain.example", Some("plain")),
        ("--host", "PLAIN.example:8080", Some("plain")),
        ("--prefix", "https://plain.example/x", Some("plain")),
        ("--site", "plain", Some("plain")),
        ("--site", "mixed", Some("mixed")),
        ("--host", "tagged.example", None),
        ("--host", "mixed.example", None),
        ("--site", "tagged", None),
    ] {
        let purged = larder(&["purge", "--tag", "news", option, named, "--admin", &admin]);
        let told = format!("{}{}", String::from_utf8_lossy(&purged.stdout), purged.stderr);
        match expected {
            Some(site) => {
                let warning = format!("set `tags` in the site {site}\n");
                assert!(told.contains(&warning), "{option} {named}: {told}");
            }
            None => assert!(!told.contains("Cache-Groups"), "{option} {named}: {told}"),
        }
    }
}

/// A web page must not reach the admin API through a browser of the operator.
#[test]
fn the_admin_api_is_for_its_own_host_only() {
    let origin = stored();
    let larder = in_front_of(&origin);
    let mut client = Client::connect(larder.admin());
    client.send("POST /purge?url=http://a/ HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n");
    let status = client.response().status();
    assert!((400..500).contains(&status), "{status}");
}

/// Field bug: who tried the admin API without its token left no trace, unless by POST.
#[test]
fn refused_admin_requests_are_counted_and_logged() {
    let origin = stored();
    let (open, port) = (in_front_of(&origin), Port::reserve());
    let admin = format!("listen = \"{}\"\nprobes_listen = \"@admin@\"\n", port.address());
    let site = format!("[[site]]\nname = \"a\"\norigin = \"{}\"\n", origin.url());
    let text = format!("[admin]\n{admin}token_file = \"token\"\n{site}");
    let guarded = Setup::config(LARDER, &text).file("token", "s3cret-s3cret-s3cret\n").start();
    let (at_open, at_guarded) = ((&open, open.admin()), (&guarded, port.address()));
    let check = |(larder, address): (&Larder, SocketAddr), request: &str, reason: &str, why: &str| {
        let refused = || larder.metric("larder_admin_refused_total", &[&format!("reason=\"{reason}\"")]);
        let before = refused();
        let mut client = Client::connect(address);
        client.send(format!("{request}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
        let status = client.response().status();
        assert!((400..500).contains(&status), "{request}: {status}");
        assert_eq!(refused(), before + 1.0, "{request}");
        let (method, path) = request.split_once(' ').expect("a request line");
        let path = path.split([' ', '?']).next().unwrap_or_default();
        let line = format!(
            "admin request refused: {why} client=127.0.0.1 method={method} path=\"{path}\" left_out=0"
        );
        wait::until_true(&line, || larder.stderr().contains(&line));
    };
    let foreign = "its host is not this machine";
    check(at_open, "POST /purge?url=http://a/x HTTP/1.1\r\nHost: evil.example", "host_not_loopback", foreign);
    check(at_open, "GET /metrics HTTP/1.1\r\nHost: rebound.example", "host_not_loopback", foreign);
    let page = "POST /reload HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost";
    check(at_open, page, "browser_request", "a web page sent it");
    for request in ["POST / HTTP/1.1\r\nHost: localhost", "GET /reload HTTP/1.1\r\nHost: localhost"] {
        check(at_open, request, "method_not_allowed", "the method is not allowed for the path");
    }
    for request in ["POST / HTTP/1.1\r\nHost: a", "GET /metrics HTTP/1.1\r\nHost: a"] {
        check(at_guarded, request, "token_missing", "it has no token");
        let wrong = format!("{request}\r\nAuthorization: Bearer gue55ed-gue55ed-gue55ed");
        check(at_guarded, &wrong, "token_wrong", "its token is wrong");
    }
    // `larder` looks whether this is an admin API before it shows its token.
    let token = guarded.folder().join("token").display().to_string();
    larder(&["reload", "--admin", &port.address().to_string(), "--token-file", &token]).succeeded();
    assert_eq!(guarded.metric("larder_admin_refused_total", &[]), 4.0);
    let log = open.stderr() + &guarded.stderr();
    assert!(!log.contains("gue55ed") && !log.contains("s3cret-") && !log.contains("a/x"), "{log}");
}

//= RFC 6750 section 3: the WWW-Authenticate response header field
#[test]
fn a_challenge_names_an_error_only_where_a_bearer_token_was_sent() {
    let port = Port::reserve();
    let text = format!(
        "[admin]\nlisten = \"{}\"\nprobes_listen = \"@admin@\"\ntoken_file = \"token\"\n[[site]]\nname = \"a\"\n\
         origin = \"http://127.0.0.1:1\"\n",
        port.address()
    );
    let _larder = Setup::config(LARDER, &text).file("token", "s3cret-s3cret-s3cret\n").start();
    let (missing, wrong) = ("Bearer realm=\"larder\"", "Bearer realm=\"larder\", error=\"invalid_token\"");
    for (authorization, challenge) in [
        ("", missing),
        ("Authorization: Basic YWRtaW46czNjcmV0LXMzY3JldC1zM2NyZXQ=\r\n", missing),
        ("Authorization: s3cret-s3cret-s3cret\r\n", missing),
        ("Authorization: Bearer\r\n", missing),
        ("Authorization: Bearer s3cret-s3cret-s3creT\r\n", wrong),
    ] {
        let mut client = Client::connect(port.address());
        client.send(format!("GET /metrics HTTP/1.1\r\nHost: a\r\n{authorization}Connection: close\r\n\r\n"));
        let response = client.response();
        assert_eq!(
            (response.status(), response.field("www-authenticate")),
            (401, challenge),
            "{authorization}"
        );
    }
}

/// Whoever fills the log hides others, and the disk is not theirs.
#[test]
fn refused_admin_requests_are_logged_within_limits() {
    let larder = in_front_of(&stored());
    let begun = Instant::now();
    let mut client = Client::connect(larder.admin());
    client.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".repeat(300));
    (0..300).for_each(|_| assert_eq!(client.response().status(), 405));
    assert_eq!(larder.metric("larder_admin_refused_total", &["method_not_allowed"]), 300.0);
    let seconds = usize::try_from(begun.elapsed().as_secs()).expect("a short test");
    let lines = larder.stderr().matches("admin request refused").count();
    assert!((10..=10 * (seconds + 2)).contains(&lines), "{lines} lines in {seconds} s");
}

/// Field bug: a line of the log had all that a stranger said, up to 16 KiB of it.
#[test]
fn what_strangers_say_to_the_admin_api_is_cut_in_the_log() {
    let larder = in_front_of(&stored());
    for (method, path, told) in [
        ("POST", "/".to_owned() + &"x".repeat(8000), " ... (7745 more bytes)\""),
        (&"M".repeat(8000), "/".to_owned(), " ... (7744 more bytes) path=\"/\""),
        ("POST", "/".to_owned() + &"y".repeat(255), "yyy\" left_out"),
    ] {
        let mut client = Client::connect(larder.admin());
        let fields = "Host: evil.example\r\nContent-Length: 0\r\nConnection: close\r\n";
        client.send(format!("{method} {path} HTTP/1.1\r\n{fields}\r\n"));
        assert!((400..500).contains(&client.response().status()), "{told}");
        wait::until_true(told, || larder.stderr().contains(told));
    }
    let longest = larder.stderr().lines().map(str::len).max();
    assert!(longest.is_some_and(|bytes| bytes < 512), "{longest:?}");
}

//= RFC 9111 section 7: stored content is sensitive
#[test]
fn a_token_guards_all_but_probes() {
    let origin = stored();
    let config = "[admin]\nlisten = \"@admin@\"\ntoken_file = \"@dir@/token\"\n\
                  [[site]]\nname = \"a\"\norigin = \"@origin@\"\n";
    let probes = Port::reserve();
    let config = config.replace("@origin@", &origin.url());
    let config = config.replace("[[site]]", &format!("probes_listen = \"{}\"\n[[site]]", probes.address()));
    let setup = Setup::config(LARDER, &config).file("token", "s3cret-s3cret-s3cret\n");
    let larder_process = setup.start_when(probes.address());
    let admin = larder_process.admin().to_string();
    let token = larder_process.folder().join("token").display().to_string();
    let refused = larder(&["purge", "http://test.example/", "--admin", &admin]);
    assert_ne!(refused.status, 0, "{}", refused.text());
    let told = "admin request refused: it has no token client=127.0.0.1 method=POST path=\"/purge\"";
    let purged = larder(&["purge", "http://test.example/", "--admin", &admin, "--token-file", &token]);
    let log = larder_process.stderr();
    assert!(log.contains(told) && log.matches("refused").count() == 1, "not of who has the token: {log}");
    assert_eq!(
        (purged.status, purged.text().contains("no stored response for")),
        (3, true),
        "{}",
        purged.stderr
    );
    for (target, status) in [("/live", 200), ("/ready", 200), ("/metrics", 200), ("/purge", 404)] {
        let mut client = Client::connect(probes.address());
        client.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert_eq!(client.response().status(), status, "{target} on the probes listener");
        // A page whose name was made to resolve to this machine.
        let mut client = Client::connect(probes.address());
        assert_eq!(client.get(target).status(), 403, "{target} of another host");
    }
}

//= RFC 9111 section 4.4: to invalidate is to remove, or to mark as in need of validation
#[test]
fn purge_by_command_removes_all_variants() {
    let origin = stored();
    let process = in_front_of(&origin);
    let admin = process.admin().to_string();
    let is_hit = |path: &str, language: &str| {
        process.ask("GET", path, &format!("Accept-Language: {language}\r\n")).is_hit()
    };
    let all = [("/", "de"), ("/", "en"), ("/other", "de")];
    for (mode, hits) in [(None, [false, false, true]), (Some("--soft"), [false, false, true])] {
        for (path, language) in all {
            is_hit(path, language);
            assert!(is_hit(path, language));
        }
        let mut arguments = vec!["purge", "http://test.example/", "--admin", &admin];
        arguments.extend(mode);
        let output = larder(&arguments).succeeded();
        assert!(output.text().contains("stored responses 2"), "{}", output.text());
        let found: Vec<bool> = all.iter().map(|(path, language)| is_hit(path, language)).collect();
        assert_eq!(found, hits, "{mode:?}");
    }
}

/// A soft purge makes stale: the next request validates.
//= RFC 9111 section 4.4: to invalidate is to remove, or to mark as in need of validation
#[test]
fn soft_purge_validates_and_hard_purge_forgets() {
    let origin = ScriptedOrigin::start(|exchange| {
        let fields = "Cache-Control: max-age=60\r\nETag: \"a\"\r\n";
        match exchange.request.field("if-none-match") {
            "\"a\"" => exchange.head("304 Not Modified", fields),
            _ => exchange.respond("200 OK", fields, "body"),
        };
    });
    let larder = in_front_of(&origin);
    larder.get("/");
    for (mode, validator) in [("soft", "\"a\""), ("hard", "")] {
        let body = format!("{{\"url\":\"http://test.example/\",\"mode\":\"{mode}\"}}");
        let purged = larder.ask_admin("POST", "/purge", &body);
        assert_eq!(purged.status(), 200, "{}", purged.text());
        let response = larder.get("/");
        assert_eq!(
            (response.text().as_str(), response.is_hit()),
            ("body", false),
            "{mode}: {:?}",
            response.head
        );
        assert_eq!(origin.last("/").field("if-none-match"), validator, "{mode}");
        assert!(larder.get("/").is_hit());
    }
}

#[test]
fn the_access_log_has_a_json_line_per_request() {
    let mut origin = stored();
    let process = Setup::origin(LARDER, &origin.url()).arguments(&["--access-log", "stdout"]).start();
    let odd = "GET /a?token=secret&b HTTP/1.1\r\nHost: test.example\r\nUser-Agent: \"\\\u{e9}\r\n\r\n";
    process.get("/plain");
    process.get("/plain");
    let mut client = process.client();
    client.send(odd);
    client.response();
    let mut bad = process.client();
    bad.send("GET / HTTP/1.1\n\n");
    bad.response();
    let records = || -> Vec<Value> {
        let text = process.stdout();
        text.lines()
            .filter(|line| line.starts_with('{'))
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    };
    let of = |target: &str, cache: &str| {
        wait::until("the line is written", || {
            records().into_iter().find(|record| record["target"] == target && record["cache"] == cache)
        })
    };
    of("/plain", "miss");
    let hit = of("/plain", "hit");
    assert_eq!((hit["status"].as_u64(), hit["body_bytes"].as_u64()), (Some(200), Some(7)), "{hit}");
    assert_eq!(hit["client"], "127.0.0.1", "{hit}");
    let odd = of("/a?token=REDACTED&b", "miss");
    assert_eq!(odd["user_agent"], "\"\\\u{e9}", "{odd}");
    of("", "local");
    origin.stop();
    process.get("/dead?token=secret");
    of("/dead?token=REDACTED", "error");
    let all = process.stdout() + &process.stderr();
    assert!(!all.contains("secret"), "{all}");
    let lines = process.stdout().lines().filter(|line| line.starts_with('{')).count();
    assert_eq!(lines, records().len(), "every line is JSON:\n{}", process.stdout());
}

/// What a trusted proxy says of the client is logged, and what anybody else says is not.
#[test]
fn the_access_log_names_the_client_of_a_trusted_proxy() {
    let origin = stored();
    for (trusted, format, expected) in [
        ("127.0.0.1", "json", "\"client\":\"192.0.2.1\""),
        ("127.0.0.1", "combined", "192.0.2.1 - - ["),
        ("10.0.0.0/8", "json", "\"client\":\"127.0.0.1\""),
    ] {
        let config = format!(
            "trusted_proxies = [\"{trusted}\"]\n[log]\naccess = \"stdout\"\naccess_format = \"{format}\"\n\
             [[site]]\nname = \"a\"\norigin = \"{}\"\n",
            origin.url()
        );
        let process = Setup::config(LARDER, &config).start();
        process.ask("GET", "/seen", "X-Forwarded-For: 198.51.100.1, 192.0.2.1\r\n");
        let line = wait::until("the line is written", || {
            process.stdout().lines().find(|line| line.contains("/seen")).map(str::to_owned)
        });
        assert!(line.contains(expected), "{trusted}: {line}");
    }
}

/// The page on the access log has the fields that lines have, in their order.
#[test]
fn the_page_on_the_access_log_is_complete() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/access-log.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let told = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let mut told: Vec<_> = told.map(|(name, _)| name.to_owned()).collect();
    told.retain(|name| !["tls", "sni", "trace_id", "span_id"].contains(&name.as_str()));
    let origin = stored();
    let process = Setup::origin(LARDER, &origin.url()).arguments(&["--access-log", "stdout"]).start();
    process.ask("GET", "/", "User-Agent: a\r\nReferer: b\r\n");
    let line = wait::until("the line is written", || {
        process.stdout().lines().find(|line| line.starts_with('{')).map(str::to_owned)
    });
    let names = line.split("\":").filter_map(|part| part.rsplit_once('"'));
    let names: Vec<_> =
        names.map(|(_, name)| name).filter(|name| name.starts_with(char::is_alphabetic)).collect();
    assert_eq!(told, names, "{line}");
}

/// Clients with keep-alive connections that ask without pause until they are told to stop.
struct Load {
    stopped: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    failures: Arc<Mutex<Vec<String>>>,
    cut_off: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

/// What happens to a client when the connection is refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refused {
    Fails,
    Ends,
}

impl Load {
    fn start(process: &Larder, clients: usize, refused: Refused) -> Self {
        let mut load = Self {
            stopped: Arc::default(),
            answered: Arc::default(),
            failures: Arc::default(),
            cut_off: Arc::default(),
            threads: Vec::new(),
        };
        for number in 0..clients {
            let (stopped, answered) = (Arc::clone(&load.stopped), Arc::clone(&load.answered));
            let (failures, cut_off) = (Arc::clone(&load.failures), Arc::clone(&load.cut_off));
            let address = process.address();
            load.threads.push(thread::spawn(move || {
                let mut seeker = Seeker { address, refused, client: None };
                let mut turn = number;
                while !stopped.load(Ordering::Acquire) {
                    turn += 1;
                    match seeker.ask(["/hit", "/miss"][turn % 2]) {
                        Ok(Asked::Answered) => drop(answered.fetch_add(1, Ordering::AcqRel)),
                        Ok(Asked::Refused) => return,
                        Ok(Asked::CutOff) => drop(cut_off.fetch_add(1, Ordering::AcqRel)),
                        Err(text) => return failures.lock().expect("no holder panics").push(text),
                    }
                }
            }));
        }
        load
    }

    fn wait_for_answers(&self, more: usize) {
        let start = self.answered.load(Ordering::Acquire);
        let failures = || self.failures.lock().expect("no holder panics").clone();
        wait::until_true("requests are answered", || {
            assert_eq!(failures(), Vec::<String>::new());
            self.answered.load(Ordering::Acquire) >= start + more
        });
    }

    /// Stops it, and says how many clients were cut off.
    fn finish(self) -> usize {
        self.stopped.store(true, Ordering::Release);
        self.threads.into_iter().for_each(|thread| thread.join().expect("the client does not panic"));
        assert_eq!(*self.failures.lock().expect("no holder panics"), Vec::<String>::new());
        self.cut_off.load(Ordering::Acquire)
    }
}

enum Asked {
    Answered,
    Refused,
    /// Connected, and reset before the first byte of an answer.
    CutOff,
}

/// A client as browsers are: a request on a connection that had been used, and was closed before it got any answer,
/// goes out again on a new one.
struct Seeker {
    address: SocketAddr,
    refused: Refused,
    client: Option<Client>,
}

impl Seeker {
    fn ask(&mut self, target: &str) -> Result<Asked, String> {
        if let Some(client) = &mut self.client {
            match Self::exchange(client, target) {
                Ok(closes) => {
                    self.client.take_if(|_| closes);
                    return Ok(Asked::Answered);
                }
                Err(Broken::BeforeAnswer(_)) => self.client = None,
                Err(Broken::InAnswer(text)) => return Err(text),
            }
        }
        let mut client = match TcpStream::connect(self.address) {
            Ok(stream) => Client::over(stream),
            Err(_) if self.refused == Refused::Ends => return Ok(Asked::Refused),
            Err(error) => return Err(format!("not connected: {error}")),
        };
        match Self::exchange(&mut client, target) {
            Ok(closes) => {
                self.client = (!closes).then_some(client);
                Ok(Asked::Answered)
            }
            Err(Broken::BeforeAnswer(_)) if self.refused == Refused::Ends => Ok(Asked::CutOff),
            Err(Broken::BeforeAnswer(text) | Broken::InAnswer(text)) => {
                Err(format!("new connection: {text}"))
            }
        }
    }

    /// Says whether the connection closes.
    fn exchange(client: &mut Client, target: &str) -> Result<bool, Broken> {
        let request = format!("GET {target} HTTP/1.1\r\nHost: test.example\r\n\r\n");
        client.try_send(request).map_err(|error| Broken::BeforeAnswer(error.to_string()))?;
        let response =
            client.try_response_to("GET").map_err(|error| Broken::BeforeAnswer(error.to_string()))?;
        if response.status() != 200 || response.end != End::Complete || !response.text().starts_with(target) {
            return Err(Broken::InAnswer(format!(
                "{:?} {:?} {}",
                response.head,
                response.end,
                response.text()
            )));
        }
        Ok(response.head.fields.lists("connection", "close"))
    }
}

enum Broken {
    BeforeAnswer(String),
    InAnswer(String),
}

fn mixed() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        let target = exchange.request.target().to_owned();
        let cc = if target == "/miss" { "no-store" } else { "max-age=600" };
        exchange.respond("200 OK", &format!("Cache-Control: {cc}\r\n"), target);
    })
}

/// Large files take long to read: probes and clients don't wait for a reload that does.
#[test]
fn a_reload_that_reads_slowly_blocks_nobody() {
    let origin = mixed();
    let site = |name: &str, host: &str| {
        format!("[[site]]\nname = \"{name}\"\nhosts = [\"{host}\"]\norigin = \"{}\"\n", origin.url())
    };
    let mut larder = Setup::config(LARDER, &site("a", "test.example")).start();
    let more: String =
        (0..5_000).map(|number| site(&number.to_string(), &format!("{number}.example"))).collect();
    larder.write_config(&(site("a", "test.example") + &more));
    let larder = &larder;
    thread::scope(|scope| {
        let reload = scope.spawn(|| larder.ask_admin("POST", "/reload", ""));
        for _ in 0..20 {
            assert_eq!(larder.ask_admin("GET", "/ready", "").status(), 200);
            assert_eq!(larder.get("/miss").status(), 200);
        }
        assert_eq!(reload.join().expect("it does not panic").status(), 200);
    });
}

/// One site on one address with TLS.
fn over_tls(Identity { certificate, key, .. }: &Identity, workers: usize, origin: &ScriptedOrigin) -> String {
    format!(
        "workers = {workers}\n[[listen]]\naddress = \"@listen@\"\n[[listen.certificates]]\ncert = \"{}\"\n\
         key = \"{}\"\n[[site]]\nname = \"a\"\norigin = \"{}\"\n",
        certificate.display(),
        key.display(),
        origin.url()
    )
}

/// A client with TLS that keeps what it needs to resume a session.
fn tls_client(authority: &Authority) -> Arc<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authority.file()).expect("it is a PEM file") {
        roots.add(certificate.expect("a certificate")).expect("a certificate authority");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has them all")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// One request on a new connection; whether the session was resumed.
fn resumes(client: &Arc<rustls::ClientConfig>, larder: &Larder) -> bool {
    let name = "a.example".try_into().expect("a server name");
    let connection = rustls::ClientConnection::new(Arc::clone(client), name).expect("a configuration");
    let stream = TcpStream::connect(larder.address()).expect("it listens");
    let mut tls = rustls::StreamOwned::new(connection, stream);
    tls.write_all(b"GET /hit HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut response = String::new();
    tls.read_to_string(&mut response).expect("it answers, and takes its leave");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    tls.conn.handshake_kind() == Some(HandshakeKind::Resumed)
}

/// Tickets are good as long as the certificates that they were given under.
#[test]
fn tls_sessions_outlive_a_reload_that_changes_no_certificate() {
    let origin = mixed();
    let authority = Authority::new();
    let text = |certificate: &Identity, workers: usize, name: &str| {
        format!("server_name = \"{name}\"\n{}", over_tls(certificate, workers, &origin))
    };
    let first = authority.identity(&["a.example"]);
    let other = authority.identity(&["*.other.example", "a.example"]);
    for workers in [1, 4] {
        let mut larder = Setup::config(LARDER, &text(&first, workers, "before")).start();
        let client = tls_client(&authority);
        assert!(!resumes(&client, &larder), "a new client has no ticket");
        assert!(resumes(&client, &larder));
        for round in 0..5 {
            larder.write_config(&text(&first, workers, &format!("round-{round}")));
            assert_eq!(larder.ask_admin("POST", "/reload", "").status(), 200);
            assert!(resumes(&client, &larder), "round {round} with {workers} workers");
        }
        larder.write_config(&text(&other, workers, "other"));
        assert_eq!(larder.ask_admin("POST", "/reload", "").status(), 200);
        assert!(!resumes(&client, &larder), "another certificate must be seen");
        assert!(resumes(&client, &larder));
    }
}

/// A connection that has one answer, and asks for more than it reads.
fn reads_nothing_more(client: &Arc<rustls::ClientConfig>, larder: &Larder) -> impl FnMut() + use<> {
    let name = "a.example".try_into().expect("a server name");
    let connection = rustls::ClientConnection::new(Arc::clone(client), name).expect("a configuration");
    let stream = TcpStream::connect(larder.address()).expect("it listens");
    let mut tls = rustls::StreamOwned::new(connection, stream);
    tls.write_all(b"GET /small HTTP/1.1\r\nHost: a.example\r\n\r\n").expect("it reads");
    assert!(tls.read(&mut [0; 4096]).expect("it answers") > 0);
    move || tls.write_all(b"GET /large HTTP/1.1\r\nHost: a.example\r\n\r\n").expect("it reads")
}

/// What is encrypted for a client that does not read is a copy in no budget: one record of TLS, no more.
#[test]
fn little_is_encrypted_for_those_who_do_not_read() {
    const CLIENTS: usize = 200;
    testkit::raise_open_files_limit();
    let large = vec![b'x'; 16 << 20];
    let origin = ScriptedOrigin::start(move |exchange| {
        let body = if exchange.request.target() == "/large" { &large[..] } else { b"small" };
        exchange.respond("200 OK", "Cache-Control: max-age=600\r\n", body);
    });
    let authority = Authority::new();
    let config = over_tls(&authority.identity(&["a.example"]), 1, &origin);
    let larder = Setup::config(LARDER, &config).start();
    let client = tls_client(&authority);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| reads_nothing_more(&client, &larder)).collect();
    clients[0]();
    wait::until_true("it is stored", || {
        larder.metric("larder_store_bytes", &["stored"]) > f64::from(16 << 20)
    });
    let before = larder.resident_bytes();
    clients[1..].iter_mut().for_each(|ask| ask());
    // One worker: what it could write before it saw these, it has written.
    (0..40).for_each(|_| drop(reads_nothing_more(&client, &larder)));
    let each = larder.resident_bytes().saturating_sub(before) / CLIENTS as u64;
    drop(clients);
    let broken = || larder.metric("larder_requests_total", &["error"]);
    wait::until_true("all of them had asked", || broken() == CLIENTS as f64);
    eprintln!("{} KiB for each", each >> 10);
    // 38 KiB here, and 63 KiB with four times as much at once.
    assert!(each < 48 << 10, "{} KiB for each", each >> 10);
}

const RELOADED: &str = "server_name = \"@name@\"\n[[site]]\nname = \"a\"\norigin = \"@origin@\"\n";

#[test]
fn reload_under_load_fails_no_request_and_keeps_the_cache() {
    let origin = mixed();
    let text = |name: &str| RELOADED.replace("@origin@", &origin.url()).replace("@name@", name);
    let mut process = Setup::config(LARDER, &text("before")).start();
    let load = Load::start(&process, 8, Refused::Fails);
    for round in 0..10 {
        let name = format!("round-{round}");
        process.write_config(&text(&name));
        process.signal(Signal::HUP);
        wait::until_true("the new name is used", || process.get("/hit").cache_status().starts_with(&name));
        load.wait_for_answers(50);
    }
    load.finish();
    assert_eq!(origin.count("/hit"), 1, "what was stored stayed");
}

#[test]
fn a_broken_file_changes_nothing() {
    let origin = mixed();
    let text = |name: &str| RELOADED.replace("@origin@", &origin.url()).replace("@name@", name);
    let mut process = Setup::config(LARDER, &text("good")).start();
    let load = Load::start(&process, 4, Refused::Fails);
    let admin = process.admin().to_string();
    for (number, broken) in
        ["not = [toml", "unknown_key = 1\n", "", "[[site]]\nname = \"a\"\n"].into_iter().enumerate()
    {
        process.write_config(broken);
        process.signal(Signal::HUP);
        let refused = || process.metric("larder_reloads_total", &["refused"]);
        let count = f64::from(u32::try_from(number).expect("a small number"));
        wait::until_true("the reload is refused", || refused() > count * 2.0);
        let output = larder(&["reload", "--admin", &admin]);
        assert_eq!(output.status, 1, "{}", output.text());
        assert!(output.stderr.contains("larder.toml"), "it names the file: {}", output.stderr);
        assert!(process.get("/hit").cache_status().starts_with("good"));
        load.wait_for_answers(50);
    }
    process.write_config(&text("better"));
    larder(&["reload", "--admin", &admin]).succeeded();
    assert!(process.get("/hit").cache_status().starts_with("better"));
    load.finish();
}

/// The kernel may complete a handshake between the last accept and the close, which no process can prevent: one such
/// client in three stops is chance, more are connections that were left in the queue.
#[test]
fn stop_under_load_fails_no_request() {
    let mut cut_off = 0;
    for _ in 0..3 {
        let origin = mixed();
        let mut process = in_front_of(&origin);
        let load = Load::start(&process, 16, Refused::Ends);
        load.wait_for_answers(200);
        process.signal(Signal::TERM);
        assert!(process.service().end().success());
        cut_off += load.finish();
    }
    assert!(cut_off <= 1, "{cut_off} clients were connected and got no answer");
}

/// Starts its successor, which the admin API names.
#[track_caller]
fn upgrade(process: &Larder) -> Successor {
    let answer = process.ask_admin("POST", "/upgrade", "");
    assert_eq!(answer.status(), 200, "{}{}", answer.text(), process.stderr());
    let answer: Value = serde_json::from_str(&answer.text()).expect("JSON");
    Successor::new(answer["process"].as_u64().expect("the id of a process"))
}

/// With as many workers as before, with more, and with fewer: every socket goes on.
#[test]
fn upgrades_under_load_fail_no_request() {
    let origin = mixed();
    let text =
        |workers: usize| format!("workers = {workers}\n{}", RELOADED.replace("@origin@", &origin.url()));
    let text = |workers: usize| text(workers).replace("@name@", &format!("with-{workers}"));
    let mut process = Setup::config(LARDER, &text(2)).start();
    let load = Load::start(&process, 16, Refused::Fails);
    let mut last: Option<Successor> = None;
    for workers in [2, 5, 1, 3] {
        load.wait_for_answers(200);
        process.write_config(&text(workers));
        let next = upgrade(&process);
        match last.replace(next) {
            Some(predecessor) => predecessor.end(),
            None => assert!(process.service().end().success(), "{}", process.stderr()),
        }
        assert!(process.get("/hit").cache_status().starts_with(&format!("with-{workers};")));
    }
    load.wait_for_answers(200);
    assert_eq!(load.finish(), 0);
    let last = last.expect("there were some");
    last.signal(Signal::TERM);
    last.end();
}

/// What a browser keeps: connections over TLS, HTTP/1.1 and HTTP/2, with long answers and POSTs under way.
#[test]
fn upgrades_under_load_over_tls_fail_no_request() {
    const UPGRADES: u32 = 4;
    let long = vec![b'x'; 200_000];
    let origin = ScriptedOrigin::start(move |exchange| {
        exchange.read_body();
        let target = exchange.request.target().to_owned();
        let cc = if target == "/hit" { "max-age=600" } else { "no-store" };
        let body = if target == "/long" { &long[..] } else { target.as_bytes() };
        exchange.respond("200 OK", &format!("Cache-Control: {cc}\r\n"), body);
    });
    let authority = Authority::new();
    let mut process =
        Setup::config(LARDER, &over_tls(&authority.identity(&["a.example"]), 2, &origin)).start();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/clients/node/kept_connections.mjs");
    let mut command = Command::new("node");
    command.arg(script).arg(format!("https://{}", process.address())).arg(authority.file()).arg("a.example");
    let mut load = Service::start(&mut command, process.folder(), "load");
    let answer = |load: &mut Service, hundreds: usize| {
        wait::until_true("requests are answered", || {
            load.assert_runs();
            load.stdout().lines().count() >= hundreds
        });
    };
    answer(&mut load, 2);
    let mut last: Option<Successor> = None;
    for _ in 0..UPGRADES {
        let next = upgrade(&process);
        match last.replace(next) {
            Some(predecessor) => predecessor.end(),
            None => assert!(process.service().end().success(), "{}", process.stderr()),
        }
        let answered = load.stdout().lines().count();
        answer(&mut load, answered + 2);
    }
    load.signal(Signal::TERM);
    assert!(load.end().success(), "{}", load.stderr());
    let tally = load.stdout().lines().last().map(str::to_owned).expect("it says what became of all requests");
    let tally: Value = serde_json::from_str(&tally).expect("JSON");
    assert_eq!(tally["failures"], serde_json::json!([]), "{tally}");
    for protocol in ["http1", "http2"] {
        assert!(tally[protocol].as_u64() > Some(100), "{tally}");
    }
    assert!(tally["connections"].as_u64() > Some(u64::from(UPGRADES)), "they took their leave: {tally}");
    let last = last.expect("there were some");
    last.signal(Signal::TERM);
    last.end();
}

/// What is under way is finished by the old process, while the new one answers. What it is told to purge is complete when the old one begins
/// nothing any more.
#[test]
fn requests_in_flight_finish_after_an_upgrade() {
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.target() == "/fast" {
            exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "fast");
            return;
        }
        exchange.head("200 OK", "Content-Length: 10\r\n").send("hello");
        released.pass();
        exchange.send("world");
    });
    let mut process = in_front_of(&origin);
    let mut idle = process.client();
    let mut busy = process.client();
    assert!(process.get("/fast").cache_status().contains("stored"));
    busy.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    busy.head();
    let successor = upgrade(&process);
    let is_stored = || process.get("/fast").cache_status().contains("stored");
    wait::until_true("the new process answers, which has a memory of its own", is_stored);
    assert_eq!(process.ask_admin("GET", "/ready", "").status(), 200, "the new process answers");
    assert_eq!(process.ask_admin("POST", "/purge", "{\"everything\":true}").status(), 200);
    // Purges do not reach the old process: what it answered now would be older than the last one.
    let _ = idle.try_send("GET /fast HTTP/1.1\r\nHost: a\r\n\r\n");
    let rest = idle.rest();
    assert!(rest.is_empty(), "by then, idle connections are closed: {}", String::from_utf8_lossy(&rest));
    process.service().assert_runs();
    gate.open();
    assert_eq!(busy.bytes(10), b"helloworld");
    assert!(process.service().end().success());
    assert!(process.get("/fast").cache_status().contains("stored"));
    successor.signal(Signal::TERM);
    successor.end();
}

/// A new program, or its configuration, may be broken: clients do not notice.
#[test]
fn an_upgrade_that_fails_changes_nothing() {
    let origin = mixed();
    let text = |name: &str| RELOADED.replace("@origin@", &origin.url()).replace("@name@", name);
    let mut process = Setup::config(LARDER, &text("good")).start();
    let load = Load::start(&process, 4, Refused::Fails);
    let admin = process.admin().to_string();
    process.write_config("unknown_key = 1\n");
    let output = larder(&["upgrade", "--admin", &admin]);
    assert_eq!(output.status, 1, "{}", output.text());
    let told = "the new process exited with status 1: ";
    assert!(output.stderr.contains(told), "{}", output.stderr);
    assert!(output.stderr.contains("larder.toml:2:1: error: unknown_key: unknown key"), "{}", output.stderr);
    assert!(process.stderr().contains("unknown_key: unknown key"), "{}", process.stderr());
    // However much there is to say.
    process.write_config(&(0..1000).map(|number| format!("unknown_{number} = 1\n")).collect::<String>());
    let output = larder(&["upgrade", "--admin", &admin]);
    let length = output.stderr.len();
    assert!(output.stderr.contains("unknown_1: unknown key") && length < 4096, "{length}: {}", output.stderr);
    // What turns text around would make of it what it doesn't say.
    process.write_config("\"un\u{202e}known\" = 1\n\"un\u{2066}known\" = 1\n");
    let output = larder(&["upgrade", "--admin", &admin]);
    let is_turned = |text: &str| text.contains(['\u{202e}', '\u{2066}']);
    assert!(output.stderr.contains("known: unknown key") && !is_turned(&output.stderr), "{}", output.stderr);
    let checked = larder(&["check", &process.folder().join("larder.toml").display().to_string()]);
    let checked = checked.text();
    assert!(checked.contains("known: unknown key") && !is_turned(&checked), "{checked}");
    process.signal(Signal::USR2);
    wait::until_true("the signal is obeyed", || process.metric("larder_upgrades_total", &["failed"]) == 4.0);
    assert!(process.get("/hit").cache_status().starts_with("good"));
    load.wait_for_answers(50);
    assert_eq!(load.finish(), 0);
    process.write_config(&text("better"));
    let output = larder(&["upgrade", "--admin", &admin]).succeeded();
    let told = format!("serves; process {} finishes its requests and ends", process.service().id());
    let output = output.text();
    assert!(output.contains(&told), "{output}");
    let id = output.split(' ').nth(1).and_then(|id| id.parse().ok()).expect("the new process");
    let _successor = Successor::new(id);
    wait::until_true("the old process accepts no more", || {
        process.get("/hit").cache_status().starts_with("better")
    });
}

/// The name of the socket by which the new process reports was known before: somebody else on the machine could take it.
#[test]
fn nobody_can_take_the_socket_of_an_upgrade_beforehand() {
    let origin = mixed();
    let text = RELOADED.replace("@origin@", &origin.url()).replace("@name@", "larder");
    let mut process = Setup::config(LARDER, &text).start();
    let name = format!("larder-upgrade-{}-1", process.service().id());
    let address = unix::net::SocketAddr::from_abstract_name(name).expect("a name");
    let _taken = unix::net::UnixListener::bind_addr(&address).expect("it is free");
    let successor = upgrade(&process);
    assert!(process.service().end().success());
    successor.signal(Signal::TERM);
    successor.end();
}

/// As long as something can fail, connections are the old process's: with more workers too, which listen beside those that there are.
#[test]
fn an_upgrade_that_fails_late_takes_no_connection() {
    let origin = mixed();
    let text = |more: &str| {
        more.to_owned() + &RELOADED.replace("@origin@", &origin.url()).replace("@name@", "larder")
    };
    let mut process = Setup::config(LARDER, &text("workers = 1\n")).start();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let probes = taken.local_addr().expect("it is bound");
    let admin = format!("workers = 4\n[admin]\nlisten = \"@admin@\"\nprobes_listen = \"{probes}\"\n");
    process.write_config(&text("").replacen("[[site]]", &format!("{admin}[[site]]"), 1));
    let is_over = AtomicBool::new(false);
    let ask = || {
        let mut client = Client::connect(process.address());
        client
            .try_send("GET /hit HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .map_err(|error| error.to_string())?;
        let response = client.try_response_to("GET").map_err(|error| error.to_string())?;
        if response.text() == "/hit" { Ok(()) } else { Err(response.text()) }
    };
    let clients = || -> Vec<String> {
        let asked = std::iter::from_fn(|| (!is_over.load(Ordering::Relaxed)).then(&ask));
        asked.filter_map(Result::err).collect()
    };
    let told = format!("the admin API can't listen on {probes}: address in use by another process");
    let mut answers = Vec::new();
    let failures = thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(clients)).collect();
        for _ in 0..10 {
            let answer = process.ask_admin("POST", "/upgrade", "");
            assert_eq!(answer.status(), 409, "{}", answer.text());
            answers.push(answer.text());
        }
        is_over.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect::<Vec<_>>()
    });
    assert_eq!(failures, Vec::<String>::new());
    assert!(answers.iter().all(|answer| answer.contains(&told)), "{answers:?}");
    assert_eq!(process.stderr().matches(&format!("larder: {told}")).count(), 10, "{}", process.stderr());
}

/// Where the program is gone, or another one that never serves, the process goes on; and if it is stopped meanwhile, nobody goes on.
#[test]
fn an_upgrade_under_way_ends_with_its_process() {
    let origin = mixed();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = folder.path().join("larder");
    std::fs::copy(LARDER, &program).expect("a copy of the program");
    let config = RELOADED.replace("@origin@", &origin.url()).replace("@name@", "larder");
    let mut process = Setup::config(&program.display().to_string(), &config).start();
    std::fs::remove_file(&program).expect("the copy");
    let answer = process.ask_admin("POST", "/upgrade", "");
    assert_eq!(answer.status(), 409);
    let told = format!("{} can't be started: No such file or directory", program.display());
    assert!(answer.text().contains(&told), "{}", answer.text());
    assert_eq!(process.get("/hit").status(), 200);
    let started = folder.path().join("started");
    std::fs::write(&program, format!("#!/bin/sh\necho $$ > {}\nexec sleep 600\n", started.display()))
        .expect("a script");
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("it is ours");
    process.signal(Signal::USR2);
    let id = wait::until("the program runs", || std::fs::read_to_string(&started).ok()?.trim().parse().ok());
    let never_serves = Successor::new(id);
    assert_eq!(process.get("/hit").status(), 200, "clients do not notice");
    process.signal(Signal::TERM);
    assert!(process.service().end().success(), "{}", process.stderr());
    never_serves.end();
}

#[test]
fn a_data_set_is_not_handed_over() {
    let origin = mixed();
    let text = RELOADED.replace("@origin@", &origin.url()).replace("@name@", "both");
    let process = Setup::config(LARDER, &format!("{text}[kv]\nlisten = [\"127.0.0.1:0\"]\n")).start();
    let answer = process.ask_admin("POST", "/upgrade", "");
    assert_eq!(answer.status(), 409);
    assert!(answer.text().contains("serves Redis clients and can't hand over its data"), "{}", answer.text());
}

/// Readiness flips, nobody new gets in, and what is under way is finished: also by a worker that forwards over a connection of another one, whose
/// clients are gone.
#[test]
fn requests_in_flight_finish_after_the_stop() {
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.target() == "/quick" {
            exchange.respond("200 OK", "Cache-Control: no-store\r\n", "quick");
            return;
        }
        exchange.head("200 OK", "Content-Length: 10\r\nCache-Control: max-age=60\r\n").send("hello");
        released.pass();
        exchange.send("world");
    });
    let config = RELOADED.replace("@origin@", &origin.url()).replace("@name@", "larder");
    let config = format!("workers = 4\n{config}[limits]\nhead_read_timeout = \"3s\"\n");
    let mut process = Setup::config(LARDER, &config).start();
    let mut unused = process.client();
    let mut idle = process.client();
    assert_eq!(idle.get("/quick").text(), "quick");
    let mut busy: Vec<_> = (0..3).map(|_| process.client()).collect();
    for (number, busy) in busy.iter_mut().enumerate() {
        busy.send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(busy.head().status(), 200);
    }
    assert_eq!(origin.connections(), busy.len(), "one of them came over the connection that was there");
    let mut slow = process.client();
    slow.send("GET /quick HTTP");
    process.signal(Signal::TERM);
    wait::until_true("it is not ready", || process.ask_admin("GET", "/ready", "").status() == 503);
    wait::until_true("it takes no connections", || TcpStream::connect(process.address()).is_err());
    assert_eq!(process.ask_admin("GET", "/live", "").status(), 200);
    assert_eq!((idle.rest(), unused.rest()), (vec![], vec![]), "idle connections are closed");
    assert!(!slow.wait_for_bytes(Duration::from_millis(1)), "before a request would have had to come");
    // By then a worker without requests could have ended.
    assert!(slow.rest().starts_with(b"HTTP/1.1 408"), "this one has begun, and comes no further");
    process.service().assert_runs();
    gate.open();
    busy.iter_mut().for_each(|busy| assert_eq!(busy.bytes(10), b"helloworld"));
    assert!(process.service().end().success());
}

/// Balancers go on sending until they have seen that it is not ready; on connections that they have, too.
#[test]
fn clients_are_served_until_balancers_know_of_the_stop() {
    let origin = stored();
    let config = "drain_delay = \"1h\"\n[[site]]\nname = \"a\"\norigin = \"@origin@\"\n";
    let mut process = Setup::config(LARDER, &config.replace("@origin@", &origin.url())).start();
    let mut kept = process.client();
    assert_eq!(kept.get("/").status(), 200);
    process.signal(Signal::TERM);
    wait::until_true("it is not ready", || process.ask_admin("GET", "/ready", "").status() == 503);
    assert_eq!(kept.get("/").status(), 200, "on a connection that was there");
    assert_eq!(process.get("/").status(), 200, "on a new one");
    process.service().assert_runs();
    let status = wait::until("a second signal waits for nobody", || {
        // Right after the first it would be the same request.
        process.signal(Signal::TERM);
        process.service().status()
    });
    assert!(status.success(), "{status}");
    assert_eq!(kept.rest(), b"");

    let config = config.replace("1h", "50ms");
    let mut process = Setup::config(LARDER, &config.replace("@origin@", &origin.url())).start();
    process.signal(Signal::TERM);
    assert!(process.service().end().success(), "it ends by itself");
}

/// What Larder refuses is no failure of an origin, whatever its status.
#[test]
fn refusals_are_local() {
    let origin = stored();
    let config = "log = { access = \"@dir@/access\" }\npurge = { token_file = \"token\" }\n\
                  [[site]]\nname = \"a\"\norigin = \"@origin@\"\nx_cache = true\n";
    let setup = Setup::config(LARDER, &config.replace("@origin@", &origin.url()));
    let mut process = setup.file("token", "0123456789abcdef").start();
    let looped = "Via: 1.1 larder, 1.1 larder, 1.1 larder, 1.1 larder, 1.1 larder, 1.1 larder, 1.1 larder, 1.1 larder\r\n";
    let cases = [
        ("GET", "/cached", "Cache-Control: only-if-cached\r\n", 504),
        ("PURGE", "/missing", "", 401),
        ("PURGE", "/wrong", "Authorization: Bearer wrong\r\n", 403),
        ("GET", "/loop", looped, 508),
    ];
    for (method, target, fields, status) in cases {
        let response = process.ask(method, target, fields);
        assert_eq!(
            (response.status(), response.field("x-cache")),
            (status, "LOCAL"),
            "{target}: {:?}",
            response.head
        );
    }
    process.signal(Signal::TERM);
    process.service().end();
    let log = std::fs::read_to_string(process.folder().join("access")).expect("the access log");
    assert_eq!(log.matches("\"cache\":\"local\"").count(), cases.len(), "{log}");
}

/// Each request that the limit cuts off has a line in the access log, and one warning counts them all.
#[test]
fn the_drain_limit_ends_what_does_not_end() {
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.target() != "/silent" {
            let stored = if exchange.request.target() == "/stored" { "max-age=60" } else { "no-store" };
            exchange
                .head("200 OK", &format!("Content-Length: 10\r\nCache-Control: {stored}\r\n"))
                .send("hello");
        }
        released.pass();
    });
    let config = "workers = 2\ndrain_limit = \"200ms\"\nlog = { access = \"@dir@/access\" }\n\
                  [[site]]\nname = \"a\"\norigin = \"@origin@\"\n";
    let mut process = Setup::config(LARDER, &config.replace("@origin@", &origin.url())).start();
    let targets = ["/private", "/stored", "/silent"];
    let mut clients = targets.map(|target| {
        let mut client = process.client();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        origin.wait_for(target, 1);
        if target != "/silent" {
            client.head();
        }
        client
    });
    process.signal(Signal::TERM);
    process.service().end();
    for (target, client) in targets.iter().zip(&mut clients) {
        let expected: &[u8] = if *target == "/silent" { b"" } else { b"hello" };
        assert_eq!(client.rest(), expected, "{target}: cut off, visibly");
    }
    let log = std::fs::read_to_string(process.folder().join("access")).expect("the access log");
    for (target, status, detail) in
        [("/private", 200, ""), ("/stored", 200, ""), ("/silent", 503, "drain-limit")]
    {
        let mut lines = log.lines().filter(|line| line.contains(&format!("\"{target}\"")));
        let line = lines.next().unwrap_or_else(|| panic!("{target}: {log}"));
        assert!(line.contains(&format!("\"status\":{status},")) && line.contains(detail), "{line}");
        assert!(line.contains("\"cache\":\"error\"") && lines.next().is_none(), "{log}");
    }
    let warnings = process.service().stderr();
    assert_eq!(warnings.matches("drain limit reached").count(), 1, "{warnings}");
    gate.open();
}

#[test]
fn a_taken_address_is_said_and_ends_the_start() {
    let origin = stored();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("a bound socket has an address").to_string();
    let admin = Port::reserve().address().to_string();
    let mut command = Command::new(LARDER);
    command.args(["serve", "--origin", &origin.url(), "--listen", &address, "--admin", &admin]);
    let output = command.output().expect("it starts");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(&address), "{text}");
}

#[test]
fn connections_are_limited() {
    let gate = Gate::new();
    let passed = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        passed.pass();
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "");
    });
    let config = "[limits]\nconnections_max = 3\n[[site]]\nname = \"a\"\norigin = \"@origin@\"\n";
    let process = Setup::config(LARDER, &config.replace("@origin@", &origin.url())).start();
    // Connections with a request give way to nobody.
    let mut clients: Vec<Client> = (0..3).map(|_| process.client()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    wait::until_true("all of them have one", || {
        process.metric("larder_collapsed_waiters", &[]) == 2.0 && origin.total() == 1
    });
    let mut refused = process.client();
    let _ = refused.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(!refused.rest().starts_with(b"HTTP/1.1 200"));
    gate.open();
    clients.pop();
    wait::until_true("a place is free again", || {
        let mut client = process.client();
        client.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").is_ok()
            && client.try_response_to("GET").is_ok_and(|response| response.status() == 200)
    });
}

/// A worker that gets a connection does not know yet what another has just seen: that the one before is closed.
#[test]
fn the_place_of_a_closed_connection_is_for_the_next() {
    let origin = stored();
    let config =
        "workers = 4\n[limits]\nconnections_max = 1\n[[site]]\nname = \"a\"\norigin = \"@origin@\"\n";
    let process = Setup::config(LARDER, &config.replace("@origin@", &origin.url())).start();
    for round in 0..300 {
        let mut client = process.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(client.response().status(), 200, "{round}");
    }
    assert_eq!(process.metric("larder_connections_refused_total", &[]), 0.0);
}

#[test]
fn requests_per_connection_are_limited() {
    let origin = stored();
    let config = "[limits]\nrequests_per_connection_max = 2\n[[site]]\nname = \"a\"\norigin = \"@origin@\"\n";
    let process = Setup::config(LARDER, &config.replace("@origin@", &origin.url())).start();
    for _ in 0..2 {
        let mut client = process.client();
        assert!(!client.get("/").head.fields.lists("connection", "close"));
        assert!(client.get("/").head.fields.lists("connection", "close"), "the last one says so");
        assert_eq!(client.rest(), b"");
    }
}
