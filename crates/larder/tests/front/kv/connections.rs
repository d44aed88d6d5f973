//! Connections of `larder kv`: clients that read slowly, end half-way, or are there when the server ends.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use testkit::{Kv, Signal, wait};

use crate::LARDER;

fn connect(kv: &Kv) -> TcpStream {
    let stream = TcpStream::connect(kv.address()).expect("it listens");
    stream.set_nodelay(true).expect("a socket option");
    stream.set_read_timeout(Some(wait::DEADLINE)).expect("a time limit");
    stream.set_write_timeout(Some(wait::DEADLINE)).expect("a time limit");
    stream
}

fn read_exactly(stream: &mut TcpStream, expected: &[u8]) {
    let mut given = vec![0; expected.len()];
    stream.read_exact(&mut given).expect("a reply");
    assert!(given == expected, "{} instead of {}", text(&given), text(expected));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned()
}

/// `SET big` with a value of so many bytes, and the reply to `GET big`.
fn set_big(kv: &Kv, bytes: usize) -> Vec<u8> {
    let value = "v".repeat(bytes);
    let mut stream = connect(kv);
    stream
        .write_all(format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${bytes}\r\n{value}\r\n").as_bytes())
        .expect("sent");
    read_exactly(&mut stream, b"+OK\r\n");
    format!("${bytes}\r\n{value}\r\n").into_bytes()
}

#[test]
fn those_who_do_not_read_wait_and_lose_nothing() {
    let mut kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "1"]);
    let reply = set_big(&kv, 100_000);
    let mut slow: Vec<_> = (0..50).map(|_| connect(&kv)).collect();
    let before = kv.service.resident_bytes();
    // 20 MB of replies to each.
    for stream in &mut slow {
        stream.write_all("GET big\r\nPING\r\n".repeat(200).as_bytes()).expect("sent");
    }
    // Others are served meanwhile, and what waits stays small.
    for _ in 0..100 {
        let mut other = connect(&kv);
        other.write_all(b"PING\r\n").expect("sent");
        read_exactly(&mut other, b"+PONG\r\n");
    }
    let grown = kv.service.resident_bytes().saturating_sub(before);
    assert!(grown < 50 * 400_000, "{grown} bytes for 50 clients that do not read");
    let pair = [&reply[..], b"+PONG\r\n"].concat();
    for mut stream in slow {
        (0..200).for_each(|_| read_exactly(&mut stream, &pair));
    }
    kv.service.assert_runs();
}

#[test]
fn requests_larger_than_a_read_wait_with_those_behind_them() {
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB"]);
    let reply = set_big(&kv, 3_000_000);
    let mut stream = connect(&kv);
    stream.write_all("GET big\r\nECHO between\r\n".repeat(20).as_bytes()).expect("sent");
    stream.shutdown(Shutdown::Write).expect("half closed");
    let pair = [&reply[..], b"$7\r\nbetween\r\n"].concat();
    (0..20).for_each(|_| read_exactly(&mut stream, &pair));
    assert_eq!(stream.read(&mut [0]).expect("the end"), 0);
}

/// A number of `INFO` or `CLIENT LIST`: what stands behind its name.
fn number(text: &str, name: &str) -> u64 {
    let (_, behind) = text.split_once(name).unwrap_or_else(|| panic!("no {name} in {text}"));
    let digits = behind.split(|other: char| !other.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or_else(|_| panic!("{name} is no number in {text}"))
}

#[test]
fn a_value_that_is_only_announced_takes_little_memory() {
    let kv = Kv::start(LARDER, &["--maxmemory", "256MiB", "--workers", "1"]);
    let mut stream = connect(&kv);
    let begin = "CLIENT SETNAME sender\r\n*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$100000000\r\n";
    stream.write_all(format!("{begin}{}", "v".repeat(200_000)).as_bytes()).expect("sent");
    read_exactly(&mut stream, b"+OK\r\n");
    let kept = || {
        let clients = testkit::converse(kv.address(), b"CLIENT LIST\r\nQUIT\r\n", usize::MAX);
        let clients = String::from_utf8_lossy(&clients).into_owned();
        let sender = clients.lines().find(|line| line.contains("name=sender")).map(str::to_owned);
        number(&sender.expect("it is there"), "qbuf=")
    };
    wait::until_true("what it has sent is kept", || kept() >= 200_000);
    assert!(kept() <= 2 << 20, "{} bytes for 200,000", kept());
}

#[test]
fn bytes_of_long_values_are_counted() {
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "1"]);
    let received = || {
        let stats = testkit::converse(kv.address(), b"INFO stats\r\nQUIT\r\n", usize::MAX);
        number(&String::from_utf8_lossy(&stats), "total_net_input_bytes:")
    };
    let before = received();
    set_big(&kv, 3_000_000);
    let more = received() - before;
    assert!((3_000_000..3_001_000).contains(&more), "{more} bytes");
}

/// What a client sends while its command waits is read later, and with it that there is no more.
#[test]
fn a_client_that_leaves_while_its_command_waits_is_answered_and_gone() {
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "1"]);
    let mut other = connect(&kv);
    let mut ask = |command: &str| {
        other.write_all(format!("{command}\r\n").as_bytes()).expect("sent");
        read_exactly(&mut other, if command == "PING" { b"+PONG\r\n" } else { b"+OK\r\n" });
    };
    ask("CLIENT PAUSE 600000 WRITE");
    let mut leaving = connect(&kv);
    leaving.write_all(b"PING\r\nSET key value\r\n").expect("sent");
    // The reply says that both were read.
    read_exactly(&mut leaving, b"+PONG\r\n");
    leaving.write_all(b"GET key\r\n").expect("sent");
    leaving.shutdown(Shutdown::Write).expect("half closed");
    // Its worker has had the event of that when it answers this.
    (0..2).for_each(|_| ask("PING"));
    ask("CLIENT UNPAUSE");
    read_exactly(&mut leaving, b"+OK\r\n$5\r\nvalue\r\n");
    assert_eq!(leaving.read(&mut [0]).expect("the end"), 0);
}

#[test]
fn what_was_asked_is_answered_when_it_ends() {
    let mut kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "2"]);
    const ASKED: usize = 5_000;
    let streams: Vec<_> = (0..8).map(|_| connect(&kv)).collect();
    for mut stream in &streams {
        // All of it is on its way when the call returns: the server need not have read it.
        stream.write_all("PING\r\n".repeat(ASKED).as_bytes()).expect("sent");
    }
    kv.service.signal(Signal::TERM);
    let readers = streams.into_iter().map(|mut stream| {
        thread::spawn(move || {
            let mut replies = Vec::new();
            stream.read_to_end(&mut replies).map(|_| replies)
        })
    });
    let readers: Vec<_> = readers.collect();
    for reader in readers {
        let replies = reader.join().expect("no panic").expect("an end without a reset");
        assert_eq!(replies.len(), ASKED * b"+PONG\r\n".len());
    }
    assert!(kv.service.end().success());
}

/// What was replied before the end arrives, whatever the client has sent behind what is refused: the kernel would otherwise let it lose the
/// reply with what was not read.
#[test]
fn a_reply_before_the_end_arrives() {
    let check = |kv: &Kv, refused: &str, expected: &str| {
        let mut stream = connect(kv);
        let more = "x".repeat(4 << 20);
        stream.write_all(format!("{refused}{more}").as_bytes()).expect("all of it is read");
        let mut told = String::new();
        stream.read_to_string(&mut told).unwrap_or_else(|error| panic!("{error} after {told:?}"));
        assert_eq!(told, expected);
    };
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("larder.toml");
    std::fs::write(&config, "[kv.limits]\nclients_max = 1\n").expect("a file");
    let config = config.to_str().expect("a path in UTF-8");
    for workers in ["1", "2"] {
        let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", workers]);
        check(&kv, "*1\r\n$999999999999\r\n", "-ERR Protocol error: invalid bulk length\r\n");
        check(&kv, "PING\r\n*x\r\n", "+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n");
        check(&kv, "QUIT\r\n", "+OK\r\n");
        check(&kv, "MULTI\r\nQUIT\r\n", "+OK\r\n+OK\r\n");
        drop(kv);
        let kv = Kv::start(LARDER, &["--config", config, "--workers", workers]);
        let mut only = connect(&kv);
        only.write_all(b"PING\r\n").expect("sent");
        read_exactly(&mut only, b"+PONG\r\n");
        check(&kv, "PING\r\n", "-ERR max number of clients reached\r\n");
    }
}

/// Who does not read the last reply is not waited for.
#[test]
fn nobody_is_waited_for_without_end() {
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "1"]);
    let sockets = || std::fs::read_dir(format!("/proc/{}/fd", kv.service.id())).expect("it runs").count();
    let before = sockets();
    let streams = (0..20).map(|_| {
        let mut stream = connect(&kv);
        stream.write_all(b"QUIT\r\n").expect("it reads");
        read_exactly(&mut stream, b"+OK\r\n");
        stream
    });
    let streams: Vec<_> = streams.collect();
    wait::until_true("their sockets are closed", || sockets() == before);
    drop(streams);
}

/// A page in a browser can let it send this to any address, but not without these words.
#[test]
fn requests_of_http_are_no_commands() {
    let check = |text: &[&str], bytes: &str, piece_bytes: usize, expected: &str| {
        let arguments = [&["--maxmemory", "64MiB", "--workers", "2"], text].concat();
        let kv = Kv::start(LARDER, &arguments);
        let set = "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n";
        assert_eq!(testkit::converse(kv.address(), set.as_bytes(), usize::MAX), b"+OK\r\n");
        for _ in 0..2 {
            let told = testkit::converse(kv.address(), bytes.as_bytes(), piece_bytes);
            assert_eq!(String::from_utf8_lossy(&told), expected, "{bytes}");
        }
        let get = testkit::converse(kv.address(), b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n", usize::MAX);
        assert_eq!(get, b"$5\r\nvalue\r\n", "{bytes}");
        let log = kv.service.stderr();
        assert_eq!(log.matches("it sent an HTTP request").count(), 1, "{log}");
    };
    let body = "Content-Length: 10\r\n\r\nFLUSHALL\r\nDEL key\r\n";
    let post = format!("POST / HTTP/1.1\r\nHost: localhost:6379\r\n{body}");
    check(&[], &post, usize::MAX, "");
    check(&[], &post, 1, "");
    check(&[], &format!("PING\r\npOsT / HTTP/1.1\r\n{body}"), usize::MAX, "+PONG\r\n");
    check(&[], "*2\r\n$4\r\npost\r\n$1\r\n/\r\n*1\r\n$8\r\nFLUSHALL\r\n", usize::MAX, "");
    check(&[], &format!("MULTI\r\nPOST /\r\n{body}EXEC\r\n"), usize::MAX, "+OK\r\n");
    let get = format!("GET / HTTP/1.1\r\nhOst: localhost\r\n{body}");
    check(&[], &get, usize::MAX, "-ERR wrong number of arguments for 'get' command\r\n");
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("larder.toml");
    std::fs::write(&config, "[kv]\ntext_protocol = \"unit-separator\"\n").expect("a file");
    let text = ["--config", config.to_str().expect("a path in UTF-8")];
    check(&text, "POST / HTTP/1.1\r\n\r\n\x1fDEL key\x1f*1\r\n$8\r\nFLUSHALL\r\n", usize::MAX, "");
    check(&text, "GET none\x1fpost /\x1fDEL key\x1f", 1, "(nil)\x1f");
}

/// A number of `INFO`.
fn fact(kv: &Kv, section: &str, name: &str) -> u64 {
    number(&kv.ask(&[&format!("INFO {section}")]), &format!("{name}:"))
}

#[test]
fn clients_that_wait_for_the_end_of_a_pause_are_counted() {
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "2"]);
    assert_eq!(kv.ask(&["CLIENT PAUSE 600000 WRITE"]), "+OK\r\n");
    let mut waiting: Vec<_> = (0..5).map(|_| connect(&kv)).collect();
    waiting.iter_mut().for_each(|stream| stream.write_all(b"SET key value\r\n").expect("sent"));
    wait::until_true("all wait", || fact(&kv, "clients", "blocked_clients") == 5);
    assert_eq!(kv.ask(&["CLIENT UNPAUSE"]), "+OK\r\n");
    waiting.iter_mut().for_each(|stream| read_exactly(stream, b"+OK\r\n"));
    wait::until_true("nobody waits", || fact(&kv, "clients", "blocked_clients") == 0);
}

/// No other message has to come for it.
#[test]
fn a_subscriber_that_does_not_read_for_too_long_is_closed() {
    let kv = Kv::start(LARDER, &["--maxmemory", "256MiB", "--workers", "2"]);
    let limit = "CONFIG SET client-output-buffer-limit \"pubsub 0 1mb 1\"";
    assert_eq!(kv.ask(&[limit]), "+OK\r\n");
    let mut slow = connect(&kv);
    slow.write_all(b"SUBSCRIBE news\r\n").expect("sent");
    read_exactly(&mut slow, b"*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
    let message = "m".repeat(32 << 20);
    let publish = format!("*3\r\n$7\r\nPUBLISH\r\n$4\r\nnews\r\n${}\r\n{message}\r\n", message.len());
    assert_eq!(testkit::converse(kv.address(), publish.as_bytes(), usize::MAX), b":1\r\n");
    wait::until_true("it is closed", || fact(&kv, "stats", "pubsub_channels") == 0);
    wait::until_true("its memory is free", || fact(&kv, "memory", "mem_clients_normal") == 0);
}

/// As in Redis, where an empty request counts as one.
#[test]
fn what_is_skipped_may_be_empty() {
    let kv = Kv::start(LARDER, &["--workers", "1"]);
    for empty in ["\r\n", "   \r\n", "*0\r\n", "*-1\r\n"] {
        let asked = format!("CLIENT REPLY SKIP\r\n{empty}PING\r\nECHO end\r\n");
        let told = testkit::converse(kv.address(), asked.as_bytes(), usize::MAX);
        assert_eq!(text(&told), "+PONG\r\n$3\r\nend\r\n", "{empty:?}");
    }
    let told =
        testkit::converse(kv.address(), b"CLIENT REPLY OFF\r\n\r\nPING\r\nCLIENT REPLY ON\r\n", usize::MAX);
    assert_eq!(text(&told), "+OK\r\n");
}

#[test]
fn replies_have_a_limit_where_it_is_set() {
    for (limit, is_new) in [
        ("normal 2mb 0 0", false),
        ("normal 0 1mb 1", false),
        ("normal 2mb 0 0", true),
        ("normal 0 1mb 1", true),
    ] {
        let kv = Kv::start(LARDER, &["--maxmemory", "256MiB", "--workers", "2"]);
        let set_limit = || kv.ask(&[&format!("CONFIG SET client-output-buffer-limit \"{limit}\"")]);
        if !is_new {
            assert_eq!(set_limit(), "+OK\r\n");
        }
        let reply = set_big(&kv, 32 << 20);
        let mut slow = connect(&kv);
        slow.write_all(b"PING\r\n").expect("sent");
        read_exactly(&mut slow, b"+PONG\r\n");
        slow.write_all(b"GET big\r\n").expect("sent");
        if is_new {
            wait::until_true("it has much to read", || kv.ask(&["CLIENT LIST"]).contains("oll=1"));
            assert_eq!(set_limit(), "+OK\r\n");
        }
        wait::until_true("it is closed", || fact(&kv, "clients", "connected_clients") == 1);
        let mut told = Vec::new();
        // With what the kernel has taken.
        let _ = slow.read_to_end(&mut told);
        assert!(told.len() < reply.len(), "{limit}");
        let mut small = connect(&kv);
        small.write_all(b"STRLEN big\r\n").expect("sent");
        read_exactly(&mut small, format!(":{}\r\n", 32 << 20).as_bytes());
    }
}

/// At zero and at their largest, as Redis has it: a limit is off, or is refused.
#[test]
fn limits_can_be_anything_that_they_may_be() {
    let kv = Kv::start(LARDER, &["--maxmemory", "256MiB", "--workers", "2"]);
    let largest = u64::MAX.to_string();
    let permitted: &[(&str, &str)] = &[
        ("maxmemory-clients", "0"),
        ("maxmemory-clients", &largest),
        ("client-query-buffer-limit", "1mb"),
        ("client-query-buffer-limit", "9223372036854775807"),
        ("maxclients", "4294967295"),
        ("timeout", "0"),
        ("timeout", "2147483647"),
        ("tcp-keepalive", "0"),
        ("tcp-keepalive", "2147483647"),
        ("tracking-table-max-keys", "0"),
        ("tracking-table-max-keys", "9223372036854775807"),
        ("slowlog-max-len", "0"),
        ("slowlog-max-len", "9223372036854775807"),
        ("slowlog-log-slower-than", "9223372036854775807"),
        ("latency-monitor-threshold", "9223372036854775807"),
        ("client-output-buffer-limit", "\"normal 0 0 0 slave 256mb 64mb 60 pubsub 0 0 0\""),
        ("client-output-buffer-limit", "\"normal 18446744073709551615 1 4294967295\""),
        ("maxmemory", "0"),
        ("maxmemory", &largest),
        ("maxmemory", "256mb"),
    ];
    for (name, value) in permitted {
        assert_eq!(kv.ask(&[&format!("CONFIG SET {name} {value}")]), "+OK\r\n", "{name} {value}");
        let ticks = fact(&kv, "stats", "total_connections_received");
        let reply = set_big(&kv, 500_000);
        let mut stream = connect(&kv);
        stream.write_all(b"GET big\r\n").expect("sent");
        read_exactly(&mut stream, &reply);
        // After the limits have reached all workers.
        wait::until_true("time has passed", || fact(&kv, "stats", "total_connections_received") > ticks + 30);
        stream
            .write_all(b"CLIENT TRACKING ON\r\nGET big\r\nDEL big\r\nCLIENT TRACKING OFF\r\n")
            .expect("sent");
        let replies = [b"+OK\r\n", &reply[..], b":1\r\n+OK\r\n"].concat();
        read_exactly(&mut stream, &replies);
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

/// Also where nobody asks for anything.
#[test]
fn what_is_above_a_lowered_limit_goes_at_once() {
    for workers in ["1", "2", "4"] {
        let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", workers]);
        let sets: Vec<String> =
            (0..40_000).map(|key| format!("SET key-{key} {}", "v".repeat(1000))).collect();
        kv.ask(&sets.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(kv.ask(&["CONFIG SET maxmemory 24mb"]), "+OK\r\n");
        wait::until_true("keys have gone", || fact(&kv, "memory", "used_memory") <= 24 << 20);
        assert!(fact(&kv, "stats", "evicted_keys") > 0);

        let mut tracking = connect(&kv);
        let sets: String = (0..100).map(|key| format!("SET t-{key} 1\r\n")).collect();
        let gets: String = (0..100).map(|key| format!("GET t-{key}\r\n")).collect();
        tracking.write_all(format!("{sets}CLIENT TRACKING ON\r\n{gets}").as_bytes()).expect("sent");
        wait::until_true("keys are remembered", || fact(&kv, "stats", "tracking_total_keys") == 100);
        assert_eq!(kv.ask(&["CONFIG SET tracking-table-max-keys 10"]), "+OK\r\n");
        wait::until_true("keys are given up", || fact(&kv, "stats", "tracking_total_keys") == 10);
    }
}

/// What workers share may be half-way through a change: the process ends, says so, and writes nothing of it.
/// As in Redis: what the clients may have is a share of what there is now, not of what there was. One client is enough that goes.
#[test]
fn a_share_of_memory_goes_with_the_memory() {
    let kv = Kv::start(LARDER, &["--maxmemory", "256MiB", "--workers", "2"]);
    let mut known = connect(&kv);
    known.write_all(b"CONFIG SET maxmemory-clients 5%\r\n").expect("it reads");
    read_exactly(&mut known, b"+OK\r\n");
    let half = "v".repeat(4 << 20);
    for evicted in 0..20 {
        let mut large = connect(&kv);
        large.write_all(format!("*2\r\n$4\r\nECHO\r\n$8388608\r\n{half}").as_bytes()).expect("it reads");
        wait::until_true("it counts", || fact(&kv, "memory", "mem_clients_normal") >= 4 << 20);
        known.write_all(b"CONFIG SET maxmemory 512mb\r\nCONFIG GET maxmemory-clients\r\n").expect("it reads");
        read_exactly(&mut known, b"+OK\r\n*2\r\n$17\r\nmaxmemory-clients\r\n$2\r\n5%\r\n");
        assert_eq!(fact(&kv, "stats", "evicted_clients"), evicted, "25.6 MiB are enough for 4");
        known.write_all(b"CONFIG SET maxmemory 32mb\r\n").expect("it reads");
        read_exactly(&mut known, b"+OK\r\n");
        // 1.6 MiB are not enough for 4.
        assert_eq!(large.read(&mut [0]).expect("the end"), 0);
        assert_eq!(fact(&kv, "stats", "evicted_clients"), evicted + 1);
        known.write_all(b"CONFIG SET maxmemory 256mb\r\n").expect("it was not closed instead");
        read_exactly(&mut known, b"+OK\r\n");
    }
}

#[test]
fn a_worker_that_panics_ends_the_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("larder.toml");
    std::fs::write(&config, "[kv]\nenable_debug_command = \"local\"\nsave_file = \"saved\"\n")
        .expect("a file");
    let config = config.to_str().expect("a path in UTF-8");
    let mut kv = Kv::start(LARDER, &["--config", config, "--maxmemory", "64MiB", "--workers", "3"]);
    assert_eq!(kv.ask(&["SET key value"]), "+OK\r\n");
    let mut other = connect(&kv);
    assert_eq!(kv.ask(&["DEBUG PANIC"]), "");
    assert_eq!(other.read(&mut [0]).unwrap_or_default(), 0, "nobody is left alone");
    assert_eq!(kv.service.end().code(), Some(1));
    let log = kv.service.stderr();
    assert!(log.contains("DEBUG PANIC") && log.contains("a worker failed: the process exits"), "{log}");
    assert!(!folder.path().join("saved").exists());
}

#[test]
fn info_tells_each_fact_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let saved = folder.path().join("saved").display().to_string();
    for arguments in [&[][..], &["--save-file", &saved]] {
        let kv = Kv::start(LARDER, &[&["--maxmemory", "64MiB"], arguments].concat());
        let text = kv.ask(&["SET key value", "INFO everything"]);
        let mut names: Vec<_> =
            text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
        names.sort_unstable();
        let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        assert!(twice.is_empty() && names.contains(&"async_loading"), "{twice:?}");
    }
}

#[test]
fn a_save_that_fails_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("place");
    std::fs::create_dir(&place).expect("a folder");
    let saved = place.join("saved").display().to_string();
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--save-file", &saved]);
    std::fs::remove_dir_all(&place).expect("it is gone");
    let told = kv.ask(&["SAVE"]);
    assert!(told.starts_with("-ERR the data set was not saved: "), "{told}");
    assert!(told.contains("No such file or directory"), "{told}");
}
