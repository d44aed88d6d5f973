//! The admin listener over real sockets: routes, access control and limits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use admin::{
    Admin, AdminConfig, AdminError, AdminLimits, Bound, Control, ControlFuture, Inherited, ROUTES, Reach,
    Readiness, Secret,
};
use caching::explain::Finding;
use gateway::{
    ExplainError, Explanation, PurgeError, PurgeHints, PurgeMode, PurgeOrder, PurgeOutcome, Question,
    SiteUrls,
};
use serde_json::{Value, json};
use telemetry::{BuildInfo, Metric, Number, Telemetry};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

const TOKEN: &str = "0123456789abcdef";
const PATIENCE: Duration = Duration::from_secs(20);

struct Scripted {
    readiness: Mutex<Readiness>,
    problems: Mutex<Vec<String>>,
    purged: Mutex<Vec<(String, PurgeMode)>>,
}

fn shop() -> SiteUrls {
    SiteUrls { name: "shop".to_owned(), hosts: vec!["a".to_owned()], path_prefix: "/".to_owned() }
}

impl Control for Scripted {
    fn readiness(&self) -> Readiness {
        *self.readiness.lock().expect("not poisoned")
    }

    fn purge<'a>(&'a self, order: &'a PurgeOrder) -> ControlFuture<'a, Result<PurgeOutcome, PurgeError>> {
        Box::pin(async move {
            let (url, mode) = (order.url.as_deref().unwrap_or_default(), order.mode);
            match url {
                "" => Err(PurgeError::SiteMissing { sites: vec![shop()] }),
                "nonsense" => Err(PurgeError::UrlInvalid { url: url.to_owned() }),
                "http://unknown/" => Err(PurgeError::SiteUnknown { sites: vec![shop()] }),
                "http://nothing/" => {
                    let hints = Some(PurgeHints { sites: vec![shop()] });
                    Ok(PurgeOutcome { hints, ..PurgeOutcome::default() })
                }
                url => {
                    self.purged.lock().expect("not poisoned").push((url.to_owned(), mode));
                    Ok(PurgeOutcome {
                        keys_matched: 1,
                        responses_purged: 2,
                        fills_doomed: 3,
                        ..PurgeOutcome::default()
                    })
                }
            }
        })
    }

    fn explain(&self, question: Question) -> ControlFuture<'_, Result<Explanation, ExplainError>> {
        Box::pin(async move {
            match question.url.to_string().as_str() {
                "/nonsense" => Err(ExplainError::UrlUnusable),
                "http://busy/" => Err(ExplainError::Busy),
                url => {
                    let finding = Finding::new("reuse", "so it is", "").with("url", url, "");
                    let cache_status = "larder; hit".to_owned();
                    Ok(Explanation { status: 200, cache_status, complete: true, findings: vec![finding] })
                }
            }
        })
    }

    fn reload(&self) -> ControlFuture<'_, Result<Vec<String>, Vec<String>>> {
        let problems = self.problems.lock().expect("not poisoned").clone();
        let warnings = vec!["c: stays".to_owned()];
        Box::pin(async move { if problems.is_empty() { Ok(warnings) } else { Err(problems) } })
    }

    fn upgrade(&self) -> ControlFuture<'_, Result<u32, String>> {
        let problems = self.problems.lock().expect("not poisoned").clone();
        Box::pin(async move { problems.first().map_or(Ok(4712), |problem| Err(problem.clone())) })
    }
}

struct Running {
    admin: Admin,
    control: Arc<Scripted>,
    telemetry: Arc<Telemetry>,
    stop: oneshot::Sender<()>,
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn config() -> AdminConfig {
    AdminConfig {
        listen: loopback(),
        reach: Reach::Admin,
        probes_listen: Some(loopback()),
        token: None,
        limits: AdminLimits::default(),
    }
}

fn with_token() -> AdminConfig {
    AdminConfig { token: Some(Secret::new(TOKEN).expect("a token")), ..config() }
}

async fn start(config: AdminConfig) -> Running {
    let control = Arc::new(Scripted {
        readiness: Mutex::new(Readiness::Ready),
        problems: Mutex::default(),
        purged: Mutex::default(),
    });
    let telemetry = Telemetry::with_build(1, BuildInfo { version: "1.2.3", commit: "abc", rustc: "1.90" });
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async move { drop(stopped.await) };
    let bound = Bound::bind(config, Inherited::default()).await.expect("listeners are bound");
    let shared: Arc<dyn Control> = control.clone();
    let admin = bound.serve(&shared, &telemetry, shutdown);
    Running { admin, control, telemetry, stop }
}

impl Running {
    async fn stop(self) {
        drop(self.stop);
        timeout(PATIENCE, self.admin.finished()).await.expect("the listeners end");
    }
}

#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn field(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Sends bytes on a new connection and reads until it is closed.
async fn send(address: SocketAddr, request: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(address).await.expect("connects");
    stream.write_all(request).await.expect("writes");
    let mut bytes = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the connection is closed");
    read.expect("no reset");
    let text = String::from_utf8(bytes).expect("UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Reply { status, head: head.to_owned(), body: body.to_owned() }
}

/// Sends one request with its fields (each with its line end) and its body.
async fn call(address: SocketAddr, line: &str, fields: &str, body: &str) -> Reply {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let host = if fields.contains("Host:") { "" } else { "Host: localhost\r\n" };
    let request = format!("{line} HTTP/1.1\r\n{host}Connection: close\r\n{length}{fields}\r\n{body}");
    send(address, request.as_bytes()).await
}

#[tokio::test]
async fn routes_and_their_answers() {
    let running = start(config()).await;
    let cases: &[(&str, &str, u16, &str)] = &[
        ("GET /live", "", 200, r#"{"live":true}"#),
        ("GET /ready", "", 200, r#"{"ready":true,"reasons":[]}"#),
        ("GET /ready?verbose", "", 200, r#"{"ready":true,"reasons":[]}"#),
        ("HEAD /live", "", 200, ""),
        ("GET /nothing", "", 404, "route_unknown"),
        ("GET /live/", "", 404, "route_unknown"),
        ("POST /live", "", 405, "method_not_allowed"),
        ("GET /purge", "", 405, "method_not_allowed"),
        ("OPTIONS /purge", "", 405, "method_not_allowed"),
        ("POST /purge", "", 400, "nothing to purge"),
        ("POST /purge", r#"{"tags":["a"]}"#, 400, r#""sites":[{"hosts":["a"],"name":"shop""#),
        ("POST /purge", "{", 400, "parameters_unusable"),
        ("POST /purge", "\u{7f}", 400, "parameters_unusable"),
        ("POST /purge", r#"{"url":"http://h/","tag":"a"}"#, 400, "unknown field `tag`"),
        ("POST /purge?url=http://h/&tags=a", "", 400, "`tags` is no parameter"),
        ("POST /purge", r#"{"url":"nonsense"}"#, 400, "url_invalid"),
        ("POST /purge", r#"{"url":"http://unknown/"}"#, 404, "site_unknown"),
        (
            "POST /purge",
            r#"{"url":"http://a/?b=c"}"#,
            200,
            r#"{"keys_matched":1,"responses_purged":2,"fills_doomed":3}"#,
        ),
        (
            "POST /purge?url=http://nothing/",
            "",
            200,
            r#""fills_doomed":0,"sites":[{"name":"shop","hosts":["a"],"path_prefix":"/"}]}"#,
        ),
        ("POST /purge?url=http://unknown/", "", 404, r#""sites":[{"hosts":["a"],"name":"shop""#),
        ("POST /purge?url=http%3A//b/&mode=soft", "", 200, r#""keys_matched":1"#),
        (
            "POST /explain",
            r#"{"url":"http://a/?b"}"#,
            200,
            r#""findings":[{"step":"reuse","says":"so it is","values":[{"name":"url","value":"http://a/?b"}]}]}"#,
        ),
        ("POST /explain", r#"{"url":"/nonsense"}"#, 400, "request_invalid"),
        ("POST /explain", r#"{"url":"no scheme"}"#, 400, "request_invalid"),
        ("POST /explain", r#"{"url":"http://busy/"}"#, 503, "busy"),
        ("POST /explain?url=http://a/", "", 400, "not in the query"),
        ("POST /reload", "", 200, r#"{"reloaded":true,"warnings":["c: stays"]}"#),
        ("POST /upgrade", "", 200, r#","process":4712}"#),
    ];
    for (line, body, status, part) in cases {
        let reply = call(running.admin.address, line, "", body).await;
        assert_eq!(reply.status, *status, "{line}: {reply:?}");
        assert!(reply.body.contains(part), "{line}: {reply:?}");
        assert_eq!(reply.field("cache-control"), Some("no-store"));
    }
    let purged = running.control.purged.lock().expect("not poisoned").clone();
    let want = [("http://a/?b=c".to_owned(), PurgeMode::Hard), ("http://b/".to_owned(), PurgeMode::Soft)];
    assert_eq!(purged, want);
    let sample = running.telemetry.sample();
    assert_eq!(sample.value(Metric::PurgesTotal, &["soft"]), Some(Number::Whole(1)));
    running.stop().await;
}

//= RFC 9110 section 15.5.6: 405 carries Allow
#[tokio::test]
async fn other_methods_are_told_the_allowed_ones() {
    let running = start(config()).await;
    for (line, allow) in [("DELETE /metrics", "GET, HEAD"), ("PUT /reload", "POST")] {
        let reply = call(running.admin.address, line, "", "").await;
        assert_eq!((reply.status, reply.field("allow")), (405, Some(allow)), "{line}");
    }
    running.stop().await;
}

#[tokio::test]
async fn the_index_names_every_route() {
    let running = start(config()).await;
    let index = call(running.admin.address, "GET /", "", "").await.json();
    assert_eq!(index["version"], "1.2.3");
    let listed: Vec<_> =
        index["routes"].as_array().expect("a list").iter().map(|row| row["path"].clone()).collect();
    assert_eq!(listed, ROUTES.iter().map(|route| json!(route.path)).collect::<Vec<_>>());
    running.stop().await;
}

#[tokio::test]
async fn metrics_have_the_type_that_prometheus_expects() {
    let running = start(config()).await;
    let reply = call(running.admin.address, "GET /metrics", "", "").await;
    assert_eq!(reply.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(reply.body.contains("larder_build_info{version=\"1.2.3\",commit=\"abc\",rustc=\"1.90\"} 1\n"));
    running.stop().await;
}

#[tokio::test]
async fn readiness_has_its_reason() {
    let running = start(config()).await;
    let cases = [(Readiness::Starting, 503, "starting"), (Readiness::Draining, 503, "draining")];
    for (readiness, status, reason) in cases {
        *running.control.readiness.lock().expect("not poisoned") = readiness;
        let reply = call(running.admin.address, "GET /ready", "", "").await;
        assert_eq!((reply.status, reply.json()), (status, json!({ "ready": false, "reasons": [reason] })));
        assert_eq!(call(running.admin.address, "GET /live", "", "").await.status, 200);
    }
    running.stop().await;
}

#[tokio::test]
async fn a_refused_reload_lists_every_problem() {
    let running = start(config()).await;
    *running.control.problems.lock().expect("not poisoned") =
        vec!["a: wrong".to_owned(), "b: wrong".to_owned()];
    let reply = call(running.admin.address, "POST /reload", "", "").await;
    assert_eq!(reply.status, 422);
    assert_eq!(reply.json()["problems"], json!(["a: wrong", "b: wrong"]));
    let reply = call(running.admin.address, "POST /upgrade", "", "").await;
    assert_eq!(reply.status, 409);
    assert_eq!(reply.json(), json!({"error": "upgrade_failed", "message": "a: wrong"}));
    running.stop().await;
}

//= RFC 6750 section 3: the WWW-Authenticate response header field
#[tokio::test]
async fn a_token_guards_every_route_of_the_admin_listener() {
    let running = start(with_token()).await;
    let cases = [
        ("", 401, Some("Bearer realm=\"larder\"")),
        ("Authorization: Basic MDEyMzQ1\r\n", 401, Some("Bearer realm=\"larder\"")),
        ("Authorization: Bearer wrong\r\n", 401, Some("Bearer realm=\"larder\", error=\"invalid_token\"")),
        ("Authorization: Bearer 0123456789abcdef\r\n", 200, None),
        ("Authorization: Bearer 0123456789abcdef\r\nOrigin: http://x\r\nHost: a.example\r\n", 200, None),
    ];
    for route in ROUTES {
        let line = format!("{} {}", route.method, route.path);
        let body = if route.parameters.is_empty() { "" } else { r#"{"url":"http://a/"}"# };
        for (fields, status, challenge) in cases {
            let reply = call(running.admin.address, &line, fields, body).await;
            assert_eq!(reply.status, status, "{line} {fields}");
            assert_eq!(reply.field("www-authenticate"), challenge, "{line} {fields}");
        }
    }
    let unknown = call(running.admin.address, "GET /nothing", "", "").await;
    assert_eq!(unknown.status, 401, "without a token, a client learns nothing about routes");
    running.stop().await;
}

#[tokio::test]
async fn the_probes_listener_has_probes_alone_and_no_token() {
    let running = start(with_token()).await;
    let address = running.admin.probes_address.expect("configured");
    assert_ne!(address.port(), 0);
    for route in ROUTES {
        let reply = call(address, &format!("{} {}", route.method, route.path), "", "").await;
        let want = if route.reach == Reach::Probes { 200 } else { 404 };
        assert_eq!(reply.status, want, "{}", route.path);
    }
    running.stop().await;
}

#[tokio::test]
async fn without_a_token_only_loopback_is_bound() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let open = AdminConfig { listen: address.parse().expect("an address"), ..config() };
        let refused = Bound::bind(open, Inherited::default()).await;
        assert!(matches!(refused, Err(AdminError::TokenRequired { .. })), "{address}");
    }
}

#[tokio::test]
async fn a_taken_address_is_a_clear_error() {
    let running = start(config()).await;
    let taken = AdminConfig { listen: running.admin.address, ..config() };
    let error = Bound::bind(taken, Inherited::default()).await.expect_err("taken");
    let told = format!("the admin API can't listen on {}", running.admin.address);
    assert_eq!(error.to_string(), told);
    let cause = std::error::Error::source(&error).expect("the system's reason");
    assert!(cause.to_string().contains("in use"), "{cause}");
    running.stop().await;
}

/// Without an answer, the client couldn't know whether the request was carried out.
#[tokio::test]
async fn a_request_that_comes_with_the_shutdown_is_answered() {
    let running = start(config()).await;
    let mut stream = TcpStream::connect(running.admin.address).await.expect("a listener");
    // Connections are accepted in order.
    call(running.admin.address, "GET /live", "", "").await;
    drop(running.stop);
    // Refused connections show that the shutdown has begun.
    while TcpStream::connect(running.admin.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    stream.write_all(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("an open connection");
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("in time").expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    timeout(PATIENCE, running.admin.finished()).await.expect("the listeners end");
}

#[tokio::test]
async fn what_a_web_page_could_send_is_refused_without_a_token() {
    let running = start(config()).await;
    let cases = [
        ("", 200),
        ("Host: 127.0.0.1:8081\r\n", 200),
        ("Host: [::1]:8081\r\n", 200),
        ("Host: rebound.example\r\n", 403),
        ("Host: 192.0.2.1\r\n", 403),
        ("Host: localhost\r\nHost: localhost\r\n", 403),
        ("Origin: http://evil.example\r\n", 403),
        ("Origin: null\r\n", 403),
        ("Sec-Fetch-Site: cross-site\r\n", 403),
        ("Sec-Fetch-Site: same-origin\r\n", 403),
    ];
    for (fields, status) in cases {
        let reply = call(running.admin.address, "POST /reload", fields, "").await;
        assert_eq!(reply.status, status, "{fields}: {reply:?}");
    }
    let absolute = call(running.admin.address, "POST http://rebound.example/reload", "", "").await;
    assert_eq!(absolute.status, 403);
    let hostless = send(running.admin.address, b"POST /reload HTTP/1.0\r\n\r\n").await;
    assert_eq!(hostless.status, 403);
    let page = call(running.admin.address, "GET /metrics", "Sec-Fetch-Site: none\r\n", "").await;
    assert_eq!(page.status, 200, "a browser may look");
    let hostless = send(running.admin.address, b"GET /metrics HTTP/1.0\r\n\r\n").await;
    assert_eq!(hostless.status, 200);
    let addresses = [running.admin.address, running.admin.probes_address.expect("configured")];
    for (address, fields, status) in addresses.into_iter().flat_map(|address| {
        let hosts = [
            ("Host: rebound.example\r\n", 403),
            ("Host: localhost:8081\r\n", 200),
            ("Host: 192.0.2.1\r\n", 200),
        ];
        hosts.map(|(fields, status)| (address, fields, status))
    }) {
        let reply = call(address, "GET /metrics", fields, "").await;
        assert_eq!(reply.status, status, "a page whose name was rebound: {fields}: {reply:?}");
    }
    running.stop().await;
}

#[tokio::test]
async fn oversize_bodies_are_refused_and_the_refusal_arrives() {
    let running = start(config()).await;
    let address = running.admin.address;
    let limit = AdminLimits::default().body_bytes_max;
    let sized = |bytes: usize| " ".repeat(bytes);
    assert_eq!(call(address, "POST /purge", "", &sized(limit)).await.status, 400, "blanks aren't JSON");
    for bytes in [limit + 1, limit * 8] {
        let reply = call(address, "POST /purge", "", &sized(bytes)).await;
        assert_eq!((reply.status, reply.json()["error"].clone()), (413, json!("body_too_large")));
    }
    let chunked = format!(
        "POST /purge HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
         {:x}\r\n{}\r\n0\r\n\r\n",
        limit + 1,
        sized(limit + 1)
    );
    assert_eq!(send(address, chunked.as_bytes()).await.status, 413);
    let waiting =
        "POST /purge HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n";
    assert_eq!(send(address, waiting.as_bytes()).await.status, 413, "refused without an invitation");
    running.stop().await;
}

#[tokio::test]
async fn slow_heads_are_closed_and_slow_bodies_answered() {
    let limits = AdminLimits { head_timeout_ms: 50, body_timeout_ms: 50, ..AdminLimits::default() };
    let running = start(AdminConfig { limits, ..config() }).await;
    for part in [&b""[..], b"GET /live HTT", b"GET /live HTTP/1.1\r\nHost: localhost\r\n"] {
        let mut stream = TcpStream::connect(running.admin.address).await.expect("connects");
        stream.write_all(part).await.expect("writes");
        let mut bytes = Vec::new();
        let closed = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
        assert!(closed.is_ok(), "{part:?} is still open");
    }
    let slow = b"POST /purge HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 10\r\n\r\n{";
    assert_eq!(send(running.admin.address, slow).await.status, 408);
    running.stop().await;
}

#[tokio::test]
async fn connections_over_the_limit_are_closed_and_the_slot_comes_back() {
    let limits = AdminLimits { connections_max: 1, ..AdminLimits::default() };
    let running = start(AdminConfig { limits, ..config() }).await;
    let request = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut start = [0; 15];
    // A connection with a request in progress stays, and others are closed.
    let mut first = TcpStream::connect(running.admin.address).await.expect("connects");
    let begun =
        b"POST /purge HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    first.write_all(begun).await.expect("writes");
    first.read_exact(&mut start).await.expect("invited to send the body");
    let mut second = TcpStream::connect(running.admin.address).await.expect("connects");
    let closed = timeout(PATIENCE, second.read(&mut start)).await.expect("closed");
    assert!(matches!(closed, Ok(0) | Err(_)));
    drop(first);
    let again = async {
        loop {
            let mut third = TcpStream::connect(running.admin.address).await.expect("connects");
            let sent = third.write_all(request).await;
            if sent.is_ok() && third.read_exact(&mut start).await.is_ok() {
                break;
            }
        }
    };
    timeout(PATIENCE, again).await.expect("the slot is free again");
    running.stop().await;
}

/// Clients that open connections without sending requests can't block the probes.
#[tokio::test]
async fn probes_are_answered_beside_any_number_of_silent_connections() {
    let probes = "127.0.0.1:0".parse().expect("an address");
    let running = start(AdminConfig { probes_listen: Some(probes), ..config() }).await;
    let slow: [&[u8]; 4] = [
        b"",
        b"GET /live HTT",
        b"GET /live HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
    ];
    for address in [running.admin.probes_address.expect("it listens"), running.admin.address] {
        let mut silent = Vec::new();
        for number in 0..200 {
            let mut stream = TcpStream::connect(address).await.expect("connects");
            // The admin address waits for a body, with a time limit of its own.
            let parts = if address == running.admin.address { &slow[..3] } else { &slow[..] };
            let _ = stream.write_all(parts[number % parts.len()]).await;
            silent.push(stream);
        }
        let request = b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let answer = timeout(PATIENCE, send(address, request)).await.expect("answered at once");
        assert_eq!(answer.status, 200, "{address}");
    }
    running.stop().await;
}

#[tokio::test]
async fn shutdown_closes_idle_connections_and_the_listener() {
    let running = start(config()).await;
    let address = running.admin.address;
    let mut idle = TcpStream::connect(address).await.expect("connects");
    idle.write_all(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("writes");
    let mut start = [0; 15];
    idle.read_exact(&mut start).await.expect("answered");
    running.stop().await;
    let mut rest = Vec::new();
    timeout(PATIENCE, idle.read_to_end(&mut rest)).await.expect("closed").expect("in order");
    assert!(TcpStream::connect(address).await.is_err());
}
