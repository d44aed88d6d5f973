//! An upgrade: the new process takes over without a failed request, or the old one continues unaffected.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{Authority, Client, Larder, ScriptedOrigin, Service, Setup, Signal, Successor, run, wait};

use crate::LARDER;
use crate::admin::operator::{
    HIT, check, echoing, ends, halting, lasting, named, operate, site, soon, start, stop_successor, upgrade,
};
use crate::admin::steady_clients::{Load, Refused, Repeated, Work};
use crate::admin::tls::listener_with;

/// Starts the successor of the last process, and waits until that one ends. `last` is the successor before, if there was one.
#[track_caller]
fn upgrade_again(first: &mut Larder, last: &mut Option<Successor>) {
    match last.replace(upgrade(first)) {
        Some(predecessor) => predecessor.end(),
        None => ends(first),
    }
}

/// Every socket is kept, whether the number of workers stays the same, grows or shrinks.
#[test]
fn upgrades_under_load_fail_no_request() {
    let origin = echoing();
    let text =
        |workers: usize| format!("workers = {workers}\n{}", named(&origin, &format!("with-{workers}")));
    let (mut larder, mut last) = (start(&text(2)), None);
    let load = Load::start(&larder, 16, Refused::Fails);
    for workers in [2, 5, 1, 3] {
        load.wait_for_answers(200);
        larder.write_config(&text(workers));
        upgrade_again(&mut larder, &mut last);
        let by = format!("with-{workers};");
        assert!(larder.get("/hit").cache_status().starts_with(&by), "{by}");
    }
    load.wait_for_answers(200);
    assert_eq!(load.finish(), 0);
    last.iter().for_each(stop_successor);
}

/// Connections like a browser's: over TLS, HTTP/1.1 and HTTP/2, with long responses and POSTs in progress.
#[test]
fn upgrades_under_load_over_tls_fail_no_request() {
    const UPGRADES: u32 = 4;
    let long = vec![b'x'; 200_000];
    let origin = ScriptedOrigin::start(move |exchange| {
        exchange.read_body();
        let target = exchange.request.target().to_owned();
        let control = if target == "/hit" { "max-age=600" } else { "no-store" };
        let body = if target == "/long" { &long[..] } else { target.as_bytes() };
        exchange.respond("200 OK", &format!("Cache-Control: {control}\r\n"), body);
    });
    let authority = Authority::new();
    let listener = listener_with(&[&authority.identity(&["a.example"])]);
    let mut first = start(&format!("workers = 2\n{listener}{}", site(&origin, "")));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/clients/node/kept_connections.mjs");
    let mut command = Command::new("node");
    command.arg(script).arg(format!("https://{}", first.address())).arg(authority.file()).arg("a.example");
    let mut load = Service::start(&mut command, first.folder(), "load");
    let answer = |load: &mut Service, hundreds: usize| {
        wait::until_true("requests are answered", || {
            load.assert_runs();
            load.stdout().lines().count() >= hundreds
        });
    };
    answer(&mut load, 2);
    let mut last = None;
    for _ in 0..UPGRADES {
        upgrade_again(&mut first, &mut last);
        let answered = load.stdout().lines().count();
        answer(&mut load, answered + 2);
    }
    load.signal(Signal::TERM);
    assert!(load.end().success(), "{}", load.stderr());
    let lines = load.stdout();
    let tally: Value = serde_json::from_str(lines.lines().last().expect("a tally")).expect("JSON");
    assert_eq!(tally["failures"], serde_json::json!([]), "{tally}");
    for protocol in ["http1", "http2"] {
        assert!(tally[protocol].as_u64() > Some(100), "{tally}");
    }
    assert!(tally["connections"].as_u64() > Some(u64::from(UPGRADES)), "connections have closed: {tally}");
    last.iter().for_each(stop_successor);
}

/// The old process finishes requests in flight while the new one serves. A purge by the new process is complete once the old one
/// begins no more responses. Field bug: the process that counted upgrades was gone before the metric could be read.
#[test]
fn requests_in_flight_finish_after_an_upgrade() {
    let (gate, origin) = halting("max-age=60");
    let mut larder = Setup::origin(LARDER, &origin.url()).start();
    let upgrades = |larder: &Larder| larder.metric("larder_upgrades_total", &["took-over"]);
    assert_eq!(upgrades(&larder), 0.0);
    let (mut idle, mut busy) = (larder.client(), larder.client());
    let is_stored = |larder: &Larder| larder.get("/quick").cache_status().contains("stored");
    assert!(is_stored(&larder));
    busy.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    busy.head();
    let successor = upgrade(&larder);
    wait::until_true("the new process answers, which has its own memory", || is_stored(&larder));
    assert_eq!(larder.ask_admin("GET", "/ready", "").status(), 200, "the new process answers");
    assert_eq!(larder.ask_admin("POST", "/purge", "{\"everything\":true}").status(), 200);
    // Purges don't reach the old process, so a response from it could be older than the last purge.
    let _ = idle.try_send("GET /quick HTTP/1.1\r\nHost: a\r\n\r\n");
    let rest = idle.rest();
    assert!(rest.is_empty(), "by then, idle connections are closed: {}", String::from_utf8_lossy(&rest));
    larder.service().assert_runs();
    gate.open();
    assert_eq!(busy.bytes(10), b"helloworld");
    ends(&mut larder);
    assert!(is_stored(&larder));
    wait::until_true("it is counted", || upgrades(&larder) == 1.0);
    stop_successor(&successor);
}

/// If a new program or its configuration is broken, clients don't notice.
#[test]
fn an_upgrade_that_fails_changes_nothing() {
    let origin = echoing();
    let mut larder = start(&named(&origin, "good"));
    let load = Load::start(&larder, 4, Refused::Fails);
    let mut refused = |text: &str| {
        larder.write_config(text);
        let output = operate(&larder, &["upgrade"]);
        check(&output, 1, "");
        output.stderr
    };
    let told = refused("unknown_key = 1\n");
    assert!(told.contains("the new process exited with status 1: "), "{told}");
    assert!(told.contains("larder.toml:2:1: error: unknown_key: unknown key"), "{told}");
    // The message stays short even with many problems.
    let told = refused(&(0..1000).map(|number| format!("unknown_{number} = 1\n")).collect::<String>());
    assert!(told.contains("unknown_1: unknown key") && told.len() < 4096, "{}: {told}", told.len());
    // Bidirectional control characters could change the meaning of the text.
    let told = refused("\"un\u{202e}known\" = 1\n\"un\u{2066}known\" = 1\n");
    let file = larder.folder().join("larder.toml").display().to_string();
    for told in [told, run(LARDER, ["check", &file]).text()] {
        assert!(told.contains("known: unknown key"), "{told}");
        assert!(!told.contains(['\u{202e}', '\u{2066}']), "{told}");
    }
    assert!(larder.stderr().contains("unknown_key: unknown key"), "{}", larder.stderr());
    larder.signal(Signal::USR2);
    wait::until_true("the signal is obeyed", || larder.metric("larder_upgrades_total", &["failed"]) == 4.0);
    assert!(larder.get("/hit").cache_status().starts_with("good"));
    load.wait_for_answers(50);
    assert_eq!(load.finish(), 0);
    larder.write_config(&named(&origin, "better"));
    let output = operate(&larder, &["upgrade"]);
    let old = larder.service().id();
    check(&output, 0, &format!("serves; process {old} finishes its requests and ends"));
    let id = output.text().split(' ').nth(1).and_then(|id| id.parse().ok()).expect("the new process");
    let _successor = Successor::new(id);
    let is_new = || larder.get("/hit").cache_status().starts_with("better");
    wait::until_true("the old process accepts no more", is_new);
}

/// Field bug: the name of the socket on which the new process reports was predictable, so another user of the machine could take it.
#[test]
fn nobody_can_take_the_socket_of_an_upgrade_beforehand() {
    let origin = echoing();
    let mut larder = start(&site(&origin, ""));
    let name = format!("larder-upgrade-{}-1", larder.service().id());
    let address = SocketAddr::from_abstract_name(name).expect("a name");
    let _taken = UnixListener::bind_addr(&address).expect("it is free");
    let successor = upgrade(&larder);
    ends(&mut larder);
    stop_successor(&successor);
}

/// As long as the upgrade can fail, connections belong to the old process, even if the new one has more workers with additional
/// sockets.
#[test]
fn an_upgrade_that_fails_late_takes_no_connection() {
    let origin = echoing();
    let mut larder = start(&format!("workers = 1\n{}", site(&origin, "")));
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let probes = taken.local_addr().expect("it is bound");
    let admin = format!("[admin]\nlisten = \"@admin@\"\nprobes_listen = \"{probes}\"\n");
    larder.write_config(&format!("workers = 4\n{admin}{}", site(&origin, "")));
    let address = larder.address();
    let client = |_| -> Work {
        Box::new(move |_| {
            assert_eq!(Client::connect(address).send(HIT).response().text(), "/hit");
            true
        })
    };
    let clients = Repeated::start((0..8).map(client));
    let told = format!("the admin API can't listen on {probes}: address in use by another process");
    for _ in 0..10 {
        let answer = larder.ask_admin("POST", "/upgrade", "");
        assert!(answer.status() == 409 && answer.text().contains(&told), "{}", answer.text());
    }
    clients.stop();
    assert_eq!(larder.stderr().matches(&format!("larder: {told}")).count(), 10, "{}", larder.stderr());
}

/// A gateway whose program may be replaced by a script.
struct Replaceable {
    folder: tempfile::TempDir,
    larder: Larder,
}

impl Replaceable {
    fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("larder");
        fs::copy(LARDER, &program).expect("a copy of the program");
        let larder = Setup::config(&program.display().to_string(), config).start();
        fs::remove_file(program).expect("the copy");
        Self { folder, larder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces the program with a script, starts an upgrade, and returns the script's process.
    #[track_caller]
    fn upgrade_to(&self, script: &str) -> Successor {
        let (program, started) = (self.path("larder"), self.path("started"));
        let script = format!("#!/bin/sh\necho $$ > {}\n{script}\n", started.display());
        fs::write(&program, script).expect("a script");
        fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("it is ours");
        self.larder.signal(Signal::USR2);
        let id = |path: &Path| fs::read_to_string(path).ok()?.trim().parse().ok();
        Successor::new(wait::until("the program runs", || id(&started)))
    }

    #[track_caller]
    fn refuses(&self, told: &str) {
        let refused = soon("an upgrade", || self.larder.ask_admin("POST", "/upgrade", ""));
        assert!(refused.status() == 409 && refused.text().contains(told), "{}", refused.text());
    }
}

/// The process continues if the program is gone or never serves. If it is stopped meanwhile, the new process ends too.
#[test]
fn an_upgrade_under_way_is_the_only_one_and_ends_with_its_process() {
    let origin = echoing();
    let mut old = Replaceable::start(&format!("drain_delay = \"2s\"\n{}", site(&origin, "")));
    old.refuses(&format!("{} can't be started: No such file or directory", old.path("larder").display()));
    assert_eq!(old.larder.get("/hit").status(), 200);
    let never_serves = old.upgrade_to("exec sleep 600");
    assert_eq!(old.larder.get("/hit").status(), 200, "clients do not notice");
    old.refuses("an upgrade is under way");
    old.larder.signal(Signal::TERM);
    let began = Instant::now();
    wait::until_true("the drain begins", || old.larder.ask_admin("GET", "/ready", "").status() == 503);
    old.refuses("the process ends");
    ends(&mut old.larder);
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    never_serves.end();
}

/// A machine or a process may be suspended in the middle of an upgrade: after it resumes, the new process serves.
#[test]
fn an_upgrade_outlives_a_standstill_of_the_old_process() {
    let origin = lasting();
    let mut old = Replaceable::start(&site(&origin, ""));
    let began = Instant::now();
    let go = old.path("go");
    let wait_for_go = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    let successor = old.upgrade_to(&format!("{wait_for_go}\nexec {LARDER} \"$@\""));
    old.larder.signal(Signal::STOP);
    fs::write(&go, "").expect("a file");
    wait::until_true("the new process serves", || old.larder.stderr().matches("listening").count() > 1);
    wait::until_true("the limit for new processes is over", || began.elapsed() > Duration::from_secs(21));
    old.larder.signal(Signal::CONT);
    soon("the end of the old process", || ends(&mut old.larder));
    assert_eq!(old.larder.get("/").status(), 200, "the new process serves");
    stop_successor(&successor);
}

#[test]
fn a_data_set_is_not_handed_over() {
    let origin = echoing();
    let larder = start(&site(&origin, "[kv]\nlisten = [\"127.0.0.1:0\"]\n"));
    let answer = larder.ask_admin("POST", "/upgrade", "");
    assert_eq!(answer.status(), 409);
    assert!(answer.text().contains("serves Redis clients and can't hand over its data"), "{}", answer.text());
}
