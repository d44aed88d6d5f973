//! Helpers of the tests for operators: configurations, commands that run beside a server, and checks of their
//! output.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{Client, Gate, Larder, Output, Response, ScriptedOrigin, Setup, Signal, Successor, run};

use crate::LARDER;
use crate::cache::basics::gates;

/// A site whose origin refuses connections.
pub(crate) const SITE: &str = "[[site]]\nname = \"a\"\norigin = \"http://127.0.0.1:1\"\n";
/// A request for `/hit`, after whose answer the connection closes.
pub(crate) const HIT: &str = "GET /hit HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// A site in front of an origin, followed by `more`.
pub(crate) fn site(origin: &ScriptedOrigin, more: &str) -> String {
    SITE.replace("http://127.0.0.1:1", &origin.url()) + more
}

/// The site on a server named `name`, which `Cache-Status` shows.
pub(crate) fn named(origin: &ScriptedOrigin, name: &str) -> String {
    format!("server_name = \"{name}\"\n{}", site(origin, ""))
}

pub(crate) fn start(config: &str) -> Larder {
    Setup::config(LARDER, config).start()
}

/// An origin whose responses stay fresh.
pub(crate) fn lasting() -> ScriptedOrigin {
    ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "body")
}

/// An origin that answers with the target; `/miss` is never stored.
pub(crate) fn echoing() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        let target = exchange.request.target().to_owned();
        let control = if target == "/miss" { "no-store" } else { "max-age=600" };
        exchange.respond("200 OK", &format!("Cache-Control: {control}\r\n"), target);
    })
}

/// An origin that answers requests for targets that begin with `held` when the gate opens, and others
/// immediately.
pub(crate) fn gated(held: &'static str) -> (Gate, ScriptedOrigin) {
    let (gate, released) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.target().starts_with(held) {
            released.pass();
        }
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "body");
    });
    (gate, origin)
}

/// An origin that sends the second half of `helloworld` when the gate opens, except for `/quick`, which it
/// answers completely.
pub(crate) fn halting(control: &'static str) -> (Gate, ScriptedOrigin) {
    let (gate, released) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        let fields = format!("Cache-Control: {control}\r\nContent-Length: 10\r\n");
        exchange.head("200 OK", &fields).send("hello");
        if exchange.request.target() != "/quick" {
            released.pass();
        }
        exchange.send("world");
    });
    (gate, origin)
}

/// Runs a command that uses the admin API of this server.
#[track_caller]
pub(crate) fn operate(larder: &Larder, arguments: &[&str]) -> Output {
    let admin = larder.admin().to_string();
    run(LARDER, [arguments, &["--admin", &admin]].concat())
}

/// Runs a script in which `larder` is the binary.
#[track_caller]
pub(crate) fn shell(script: &str) -> Output {
    run("sh", ["-c", &script.replace("larder ", &format!("{LARDER} "))])
}

pub(crate) fn printed(output: &Output) -> String {
    output.text() + &output.stderr
}

#[track_caller]
pub(crate) fn check(output: &Output, status: i32, part: &str) {
    let text = printed(output);
    assert_eq!(output.status, status, "{text}");
    assert!(text.contains(part), "{part:?} is not in {text:?}");
}

/// Sends a request whose head starts with `head`.
#[track_caller]
pub(crate) fn send_to(address: SocketAddr, head: &str) -> Response {
    let mut client = Client::connect(address);
    client.send(format!("{head}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")).response()
}

#[track_caller]
pub(crate) fn reload(larder: &Larder) {
    let answer = larder.ask_admin("POST", "/reload", "");
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

#[track_caller]
pub(crate) fn upgrade(larder: &Larder) -> Successor {
    let answer = larder.ask_admin("POST", "/upgrade", "");
    assert_eq!(answer.status(), 200, "{}{}", answer.text(), larder.stderr());
    let answer: Value = serde_json::from_str(&answer.text()).expect("JSON");
    Successor::new(answer["process"].as_u64().expect("the id of a process"))
}

#[track_caller]
pub(crate) fn ends(larder: &mut Larder) {
    let status = larder.service().end();
    assert!(status.success(), "{status}: {}", larder.stderr());
}

#[track_caller]
pub(crate) fn stop(larder: &mut Larder) {
    larder.signal(Signal::TERM);
    ends(larder);
}

pub(crate) fn stop_successor(successor: &Successor) {
    successor.signal(Signal::TERM);
    successor.end();
}

/// Far longer than an answer takes, but shorter than the timeouts that would hide a hang.
const SOON: Duration = Duration::from_secs(8);

#[track_caller]
pub(crate) fn soon<T>(what: &str, act: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let outcome = act();
    assert!(began.elapsed() < SOON, "{what}: {:?}", began.elapsed());
    outcome
}

/// Checks that probes, a reload and a stop work.
#[track_caller]
pub(crate) fn assert_operable(larder: &mut Larder) {
    soon("a reload", || reload(larder));
    assert_eq!(soon("a probe", || larder.ask_admin("GET", "/ready", "")).status(), 200);
    soon("the stop", || stop(larder));
}

pub(crate) fn mkfifo(path: &Path) {
    run("mkfifo", [path]).succeeded();
}
