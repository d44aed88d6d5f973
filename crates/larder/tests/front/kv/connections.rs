//! Connections of `larder kv`: clients that read slowly, leave early, wait, or are connected when the server stops.

use std::io::Read as _;
use std::net::Shutdown;
use std::thread;

use testkit::{Kv, RespClient, Signal, converse, wait};

use super::sessions::{Talker, configured, fact};
use crate::LARDER;

fn start(arguments: &[&str]) -> Kv {
    Kv::start(LARDER, &[&["--maxmemory", "64MiB"], arguments].concat())
}

/// Sets `big` to a value of `bytes` bytes, and returns the expected reply to `GET big`.
fn set_big(kv: &Kv, bytes: usize) -> String {
    let value = "v".repeat(bytes);
    assert_eq!(RespClient::connect(kv.address()).ask(&[b"SET", b"big", value.as_bytes()]), b"+OK\r\n");
    format!("${bytes}\r\n{value}\r\n")
}

#[test]
fn slow_readers_wait_and_lose_nothing() {
    let mut kv = start(&["--workers", "1"]);
    let reply = set_big(&kv, 100_000);
    let mut slow: Vec<_> = (0..50).map(|_| Talker::connect(kv.address())).collect();
    let before = kv.service.resident_bytes();
    // 20 MB of replies to each.
    slow.iter_mut().for_each(|client| client.send("GET big\r\nPING\r\n".repeat(200)));
    // These clients leave before their replies arrive.
    (0..10).for_each(|_| Talker::connect(kv.address()).send("GET big\r\n".repeat(20)));
    // Other clients are served meanwhile, and buffers stay small.
    (0..100).for_each(|_| Talker::connect(kv.address()).expect("PING", "+PONG\r\n"));
    let grown = kv.service.resident_bytes().saturating_sub(before);
    assert!(grown < 50 * 400_000, "{grown} bytes for 50 clients that do not read");
    let pair = format!("{reply}+PONG\r\n");
    for client in &mut slow {
        (0..200).for_each(|_| client.receive(&pair));
    }
    kv.service.assert_runs();
}

#[test]
fn an_announced_value_takes_little_memory_and_a_long_one_is_counted() {
    let kv = Kv::start(LARDER, &["--maxmemory", "256MiB", "--workers", "1"]);
    let before = fact(&kv, "total_net_input_bytes");
    set_big(&kv, 3_000_000);
    let more = fact(&kv, "total_net_input_bytes") - before;
    assert!((3_000_000..3_001_000).contains(&more), "{more} bytes");

    let mut client = Talker::connect(kv.address());
    let begin = "CLIENT SETNAME sender\r\n*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$100000000\r\n";
    client.send(format!("{begin}{}", "v".repeat(200_000)));
    client.receive("+OK\r\n");
    let kept = || -> usize {
        let clients = kv.ask(&["CLIENT LIST"]);
        let sender = clients.lines().find(|line| line.contains("name=sender"));
        let kept = sender.and_then(|line| line.split_once("qbuf=")?.1.split(' ').next()?.parse().ok());
        kept.unwrap_or_else(|| panic!("no sender in {clients}"))
    };
    wait::until_true("the received part is kept", || kept() >= 200_000);
    assert!(kept() <= 2 << 20, "{} bytes for 200,000", kept());
}

/// While a command waits, the server delays reading further requests and the end of the connection.
#[test]
fn a_client_that_leaves_while_its_command_waits_is_answered_and_gone() {
    let kv = start(&["--workers", "1"]);
    let mut other = Talker::connect(kv.address());
    other.expect("CLIENT PAUSE 600000 WRITE", "+OK\r\n");
    let mut leaving = Talker::connect(kv.address());
    // The reply shows that the server has read both commands.
    leaving.expect("PING\r\nSET key value", "+PONG\r\n");
    leaving.send("GET key\r\n");
    leaving.0.shutdown(Shutdown::Write).expect("half closed");
    // By the time it answers these, the worker has received that event.
    (0..2).for_each(|_| other.expect("PING", "+PONG\r\n"));
    other.expect("CLIENT UNPAUSE", "+OK\r\n");
    assert_eq!(leaving.rest(), "+OK\r\n$5\r\nvalue\r\n");
}

#[test]
fn every_request_before_a_signal_is_answered() {
    let mut kv = start(&["--workers", "2"]);
    const ASKED: usize = 5_000;
    let mut clients: Vec<_> = (0..8).map(|_| Talker::connect(kv.address())).collect();
    // All requests are in the socket buffers when the call returns, but the server may not have read them.
    clients.iter_mut().for_each(|client| client.send("PING\r\n".repeat(ASKED)));
    kv.service.signal(Signal::TERM);
    let readers = clients.into_iter().map(|mut client| thread::spawn(move || client.rest()));
    for reader in readers.collect::<Vec<_>>() {
        assert_eq!(reader.join().expect("an end without a reset").len(), ASKED * b"+PONG\r\n".len());
    }
    assert!(kv.service.end().success());
    assert!(kv.service.stderr().contains("stopped"), "{}", kv.service.stderr());
}

/// The server doesn't wait for a client that doesn't read its last reply.
#[test]
fn nobody_is_waited_for_without_end() {
    let kv = start(&["--workers", "1"]);
    let sockets = || std::fs::read_dir(format!("/proc/{}/fd", kv.service.id())).expect("it runs").count();
    let before = sockets();
    let mut clients: Vec<_> = (0..20).map(|_| Talker::connect(kv.address())).collect();
    clients.iter_mut().for_each(|client| client.expect("QUIT", "+OK\r\n"));
    wait::until_true("their sockets are closed", || sockets() == before);
}

/// A web page can make a browser send such requests to any address, but always with POST or Host.
#[test]
fn requests_of_http_are_no_commands() {
    let check = |lines: &str, bytes: &str, piece_bytes: usize, expected: &str| {
        let kv = configured(lines, &["--maxmemory", "64MiB", "--workers", "2"]);
        let mut other = RespClient::connect(kv.address());
        assert_eq!(other.ask(&[b"SET", b"key", b"value"]), b"+OK\r\n");
        for _ in 0..2 {
            let told = converse(kv.address(), bytes.as_bytes(), piece_bytes);
            assert_eq!(String::from_utf8_lossy(&told), expected, "{bytes}");
        }
        assert_eq!(other.ask(&[b"GET", b"key"]), b"$5\r\nvalue\r\n", "{bytes}");
        let log = kv.service.stderr();
        assert_eq!(log.matches("it sent an HTTP request").count(), 1, "{log}");
    };
    let body = "Content-Length: 10\r\n\r\nFLUSHALL\r\nDEL key\r\n";
    let post = format!("POST / HTTP/1.1\r\nHost: localhost:6379\r\n{body}");
    check("", &post, usize::MAX, "");
    check("", &post, 1, "");
    check("", &format!("PING\r\npOsT / HTTP/1.1\r\n{body}"), usize::MAX, "+PONG\r\n");
    check("", "*2\r\n$4\r\npost\r\n$1\r\n/\r\n*1\r\n$8\r\nFLUSHALL\r\n", usize::MAX, "");
    check("", &format!("MULTI\r\nPOST /\r\n{body}EXEC\r\n"), usize::MAX, "+OK\r\n");
    let get = format!("GET / HTTP/1.1\r\nhOst: localhost\r\n{body}");
    check("", &get, usize::MAX, "-ERR wrong number of arguments for 'get' command\r\n");
    let text = "text_protocol = \"unit-separator\"";
    check(text, "POST / HTTP/1.1\r\n\r\n\x1fDEL key\x1f*1\r\n$8\r\nFLUSHALL\r\n", usize::MAX, "");
    check(text, "GET none\x1fpost /\x1fDEL key\x1f", 1, "(nil)\x1f");
}

/// As in Redis, where an empty request counts as one.
#[test]
fn a_skipped_request_may_be_empty() {
    let kv = start(&["--workers", "1"]);
    for empty in ["\r\n", "   \r\n", "*0\r\n", "*-1\r\n"] {
        let asked = format!("CLIENT REPLY SKIP\r\n{empty}PING\r\nECHO end");
        assert_eq!(kv.ask(&[&asked]), "+PONG\r\n$3\r\nend\r\n", "{empty:?}");
    }
    assert_eq!(kv.ask(&["CLIENT REPLY OFF", "", "PING", "CLIENT REPLY ON"]), "+OK\r\n");
}

#[test]
fn replies_have_a_limit_where_it_is_set() {
    let limits = ["normal 2mb 0 0", "normal 0 1mb 1"];
    for (limit, is_new) in [false, true].iter().flat_map(|is_new| limits.map(|limit| (limit, *is_new))) {
        let kv = Kv::start(LARDER, &["--maxmemory", "256MiB", "--workers", "2"]);
        let set_limit = || kv.ask(&[&format!("CONFIG SET client-output-buffer-limit \"{limit}\"")]);
        if !is_new {
            assert_eq!(set_limit(), "+OK\r\n");
        }
        let reply = set_big(&kv, 32 << 20);
        let mut slow = Talker::connect(kv.address());
        slow.expect("PING", "+PONG\r\n");
        slow.send("GET big\r\n");
        if is_new {
            wait::until_true("it has unread replies", || kv.ask(&["CLIENT LIST"]).contains("oll=1"));
            assert_eq!(set_limit(), "+OK\r\n");
        }
        wait::until_true("it is closed", || fact(&kv, "connected_clients") == 1);
        let mut told = Vec::new();
        // The kernel has buffered a part.
        let _ = slow.0.read_to_end(&mut told);
        assert!(told.len() < reply.len(), "{limit}");
        assert_eq!(kv.ask(&["STRLEN big"]), format!(":{}\r\n", 32 << 20));
    }
}

/// As in Redis, zero turns a limit off or is refused, and the largest values are accepted.
#[test]
fn limits_can_be_anything_that_they_may_be() {
    let kv = Kv::start(LARDER, &["--maxmemory", "256MiB", "--workers", "2"]);
    let (most, largest) = (i64::MAX, u64::MAX);
    let permitted = format!(
        "maxmemory-clients 0|maxmemory-clients {largest}|client-query-buffer-limit 1mb|client-query-buffer-limit {most}|\
         maxclients 4294967295|timeout 0|timeout 2147483647|tcp-keepalive 0|tcp-keepalive 2147483647|\
         tracking-table-max-keys 0|tracking-table-max-keys {most}|slowlog-max-len 0|slowlog-max-len {most}|\
         slowlog-log-slower-than {most}|latency-monitor-threshold {most}|\
         client-output-buffer-limit \"normal 0 0 0 slave 256mb 64mb 60 pubsub 0 0 0\"|\
         client-output-buffer-limit \"normal {largest} 1 4294967295\"|maxmemory 0|maxmemory {largest}|maxmemory 256mb"
    );
    for setting in permitted.split('|') {
        assert_eq!(kv.ask(&[&format!("CONFIG SET {setting}")]), "+OK\r\n", "{setting}");
        let ticks = fact(&kv, "total_connections_received");
        let reply = set_big(&kv, 500_000);
        let mut client = Talker::connect(kv.address());
        client.expect("GET big", &reply);
        // By then, all workers have the new limits.
        wait::until_true("time has passed", || fact(&kv, "total_connections_received") > ticks + 30);
        let commands = "CLIENT TRACKING ON\r\nGET big\r\nDEL big\r\nCLIENT TRACKING OFF";
        client.expect(commands, &format!("+OK\r\n{reply}:1\r\n+OK\r\n"));
    }
    for (name, value, why) in [
        ("client-query-buffer-limit", "0", "between 1048576 and 9223372036854775807 inclusive"),
        ("client-query-buffer-limit", "1048575", "between 1048576 and 9223372036854775807 inclusive"),
        ("client-query-buffer-limit", "9223372036854775808", "between 1048576"),
        ("maxclients", "0", "between 1 and"),
        ("client-output-buffer-limit", "\"normal -1 0 0\"", "Error in hard, soft or soft_seconds"),
    ] {
        let told = kv.ask(&[&format!("CONFIG SET {name} {value}")]);
        assert!(told.starts_with("-ERR CONFIG SET failed") && told.contains(why), "{name} {value}: {told}");
    }
}

/// Shared state may be partly changed, so the process logs the panic, exits and saves nothing.
#[test]
fn a_worker_that_panics_ends_the_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let saved = folder.path().join("saved");
    let lines = format!("enable_debug_command = \"local\"\nsave_file = {saved:?}");
    let mut kv = configured(&lines, &["--maxmemory", "64MiB", "--workers", "3"]);
    assert_eq!(kv.ask(&["SET key value"]), "+OK\r\n");
    let mut other = Talker::connect(kv.address());
    assert_eq!(kv.ask(&["DEBUG PANIC"]), "");
    assert_eq!(other.line(), "", "other connections are closed");
    assert_eq!(kv.service.end().code(), Some(1));
    let log = kv.service.stderr();
    assert!(log.contains("DEBUG PANIC") && log.contains("a worker failed: the process exits"), "{log}");
    assert!(!saved.exists());
}
