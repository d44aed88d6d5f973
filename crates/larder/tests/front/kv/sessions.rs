//! Interactions between clients of `larder kv`: messages, transactions, invalidations, pauses and monitors.

pub(crate) mod scenario;
mod talker;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub(crate) use talker::{COMPRESSED, Talker, ask_all, bulk, configured, fact, request, told};
use testkit::{Kv, Redis, converse, wait};

use crate::LARDER;

#[test]
fn scenarios_go_as_with_redis() {
    let redis = Redis::start("");
    for workers in ["1", "2"] {
        let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", workers]);
        for scenario in scenario::all() {
            scenario.play(redis.address(), kv.address());
        }
    }
}

/// Starts `larder kv` with two workers, so that clients of different workers interact.
fn two_workers() -> Kv {
    Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "2"])
}

#[test]
fn a_redirection_to_a_connection_that_is_gone_is_told() {
    let redis = Redis::start("");
    let kv = two_workers();
    for address in [redis.address(), kv.address()] {
        let mut target = Talker::connect(address);
        let id = target.id();
        let mut tracker = Talker::connect(address).with_resp3();
        tracker.expect(&format!("CLIENT TRACKING ON REDIRECT {id}"), "+OK\r\n");
        tracker.expect("GET key", "_\r\n");
        let mut other = Talker::connect(address);
        drop(target);
        wait::until_true("the connection is gone", || {
            other.ask(format!("CLIENT KILL ID {id}")) == ":0" && !other.ask("CLIENT NO-EVICT OFF").is_empty()
        });
        other.expect("SET key 1", "+OK\r\n");
        tracker.receive(format!(">2\r\n$21\r\ntracking-redir-broken\r\n:{id}\r\n"));
        let info = format!(
            "~2\r\n$2\r\non\r\n$15\r\nbroken_redirect\r\n$8\r\nredirect\r\n:{id}\r\n$8\r\nprefixes\r\n*0\r\n"
        );
        tracker.expect("CLIENT TRACKINGINFO", &format!("%3\r\n$5\r\nflags\r\n{info}"));
    }
}

#[test]
fn subscribers_and_monitors_that_do_not_read_are_closed() {
    for (limit, listens) in
        [("1mb 0 0", "SUBSCRIBE news"), ("0 100kb 0", "SUBSCRIBE news"), ("1mb 0 0", "MONITOR")]
    {
        let kv = two_workers();
        let mut publisher = Talker::connect(kv.address());
        publisher.expect(&format!("CONFIG SET client-output-buffer-limit \"pubsub {limit}\""), "+OK\r\n");
        let mut listener = Talker::connect(kv.address());
        let list = format!("CLIENT LIST ID {}", listener.id());
        assert!(!listener.ask(listens).starts_with('-'), "{listens}");
        let message = "m".repeat(50_000);
        let begin = kv.service.resident_bytes();
        wait::until_true(&format!("{listens} with {limit} is closed"), || {
            assert!(publisher.ask(format!("PUBLISH news {message}")).starts_with(':'));
            publisher.expect("PING", "+PONG\r\n");
            kv.ask(&[&list]) == "$0\r\n\r\n"
        });
        let grown = kv.service.resident_bytes().saturating_sub(begin);
        assert!(grown < 16 << 20, "{listens}: {grown}");
    }
}

#[test]
fn keys_that_the_table_has_no_room_for_are_told_as_changed() {
    let kv = two_workers();
    let mut reader = Talker::connect(kv.address()).with_resp3();
    let commands = "CONFIG SET tracking-table-max-keys 2\r\nCLIENT TRACKING ON\r\nGET a\r\nGET b";
    reader.expect(commands, "+OK\r\n+OK\r\n_\r\n_\r\n");
    let lines = reader.lines("GET c\r\n", 7);
    assert_eq!(lines[..5], ["_", ">2", "$10", "invalidate", "*1"]);
    assert!(["a", "b"].contains(&lines[6].as_str()), "{lines:?}");
    assert!(kv.ask(&["INFO stats"]).contains("tracking_total_keys:2\r\ntracking_total_items:2\r\n"));
    drop(reader);
    wait::until_true("no client tracks keys", || kv.ask(&["INFO stats"]).contains("tracking_total_keys:0"));
}

/// Client-side caches and subscribers are notified of evictions, and transactions on watched keys abort.
#[test]
fn eviction_is_told() {
    let kv = Kv::start(LARDER, &["--maxmemory", "4MiB", "--workers", "2"]);
    let mut reader = Talker::connect(kv.address()).with_resp3();
    let commands = "SET key 1\r\nCLIENT TRACKING ON\r\nWATCH key\r\nGET key";
    reader.expect(commands, &format!("{}$1\r\n1\r\n", "+OK\r\n".repeat(3)));
    let mut subscriber = Talker::connect(kv.address());
    subscriber.expect("CONFIG SET notify-keyspace-events Ee", "+OK\r\n");
    let channel = "__keyevent@0__:evicted";
    subscriber.send(format!("SUBSCRIBE {channel}\r\n"));
    subscriber.read_to(":1\r\n");
    let mut writer = Talker::connect(kv.address());
    let value = "v".repeat(1000);
    for number in 0..10_000 {
        writer.expect(&format!("SET other-{number} {value}"), "+OK\r\n");
    }
    writer.expect("EXISTS key", ":0\r\n");
    reader.receive(">2\r\n$10\r\ninvalidate\r\n*1\r\n$3\r\nkey\r\n");
    subscriber.receive(format!("*3\r\n$7\r\nmessage\r\n$22\r\n{channel}\r\n"));
    reader.expect("MULTI\r\nEXEC", "+OK\r\n_\r\n");
}

#[test]
fn clients_are_listed_with_what_they_do() {
    let kv = two_workers();
    let mut one = Talker::connect(kv.address());
    let mut two = Talker::connect(kv.address()).with_resp3();
    let ids = [one.id(), two.id()];
    one.send("SUBSCRIBE a b\r\nPSUBSCRIBE c\r\n");
    one.read_to("psubscribe\r\n$1\r\nc\r\n:3\r\n");
    let commands = "CLIENT SETNAME worker\r\nCLIENT TRACKING ON BCAST\r\nSELECT 4\r\nMULTI\r\nGET a";
    two.expect(commands, &format!("{}+QUEUED\r\n", "+OK\r\n".repeat(4)));
    let list = kv.ask(&["CLIENT LIST"]);
    for (id, parts) in ids.iter().zip([
        "flags=P sub=2 psub=1 ssub=0 multi=-1 cmd=psubscribe resp=2 redir=-1",
        "name=worker flags=xtB db=4 multi=1 resp=3 redir=0 user=default",
    ]) {
        let line = list.lines().find(|line| line.trim_start().starts_with(&format!("id={id} ")));
        let words: Vec<_> = line.unwrap_or_default().split(' ').collect();
        assert!(parts.split(' ').all(|part| words.contains(&part)), "{parts} in {list}");
    }
}

/// CLIENT PAUSE delays commands on many connections of both workers: none runs before the pause ends, and all run afterwards.
#[test]
fn commands_of_many_wait_for_the_end_of_a_pause() {
    let (redis, kv) = (Redis::start(""), two_workers());
    for address in [redis.address(), kv.address()] {
        let mut other = Talker::connect(address);
        let mut waiting: Vec<_> = (0..40).map(|_| Talker::connect(address)).collect();
        for (pause, end) in [("60000 WRITE", Some("CLIENT UNPAUSE")), ("300 WRITE", None), ("300 ALL", None)]
        {
            other.expect("FLUSHALL", "+OK\r\n");
            let begin = Instant::now();
            other.expect(&format!("CLIENT PAUSE {pause}"), "+OK\r\n");
            for (number, client) in waiting.iter_mut().enumerate() {
                client.send(format!("INCR count\r\nECHO {number:02}\r\nSET {number} 1\r\n"));
            }
            if let Some(end) = end {
                other.expect("EXISTS count", ":0\r\n");
                other.expect(end, "+OK\r\n");
            }
            let counts = waiting.iter_mut().enumerate().map(|(number, client)| {
                let lines = client.lines("", 4);
                assert_eq!(lines[1..], ["$2".to_owned(), format!("{number:02}"), "+OK".to_owned()]);
                lines[0].clone()
            });
            let counts: BTreeSet<String> = counts.collect();
            assert_eq!(counts, (1..=40).map(|count| format!(":{count}")).collect(), "{pause}");
            let is_over = end.is_some() || begin.elapsed() >= Duration::from_millis(300);
            assert!(is_over, "{pause}: over after {:?}", begin.elapsed());
        }
    }
}

/// Commands that two clients send, one client after the other.
const SHOWN: &str = r#"SET key "a\n\r\t\a\b\"\\\x00\xff end";get key;GET;NOSUCH x;INCR key;AUTH secret;auth user secret;
HELLO 2 AUTH default secret SETNAME name;hello 2 setname name auth default secret;
HELLO 2 AUTH secret;HELLO 4 AUTH default secret;CONFIG GET port;CONFIG SET maxclients 10000;MULTI;
GET key;INCR count;EXEC;MULTI;SET key;EXEC;WATCH key;MULTI;DISCARD;SELECT 1;GET key;CLIENT ID;
CLIENT KILL ID 999999;SLOWLOG LEN;COMMAND COUNT;OBJECT ENCODING key;SUBSCRIBE channel;
UNSUBSCRIBE channel;FLUSHALL;RESET;"#;

#[test]
fn monitors_see_what_they_see_with_redis() {
    let redis = Redis::start("");
    let mut expected = seen_by_a_monitor(redis.address());
    // If HELLO fails, Redis shows its arguments.
    for line in &mut expected {
        *line = line.replace("\"default\" \"secret\"", "\"(redacted)\" \"(redacted)\"");
        *line = line.replace("\"secret\"", "\"(redacted)\"");
    }
    for workers in ["1", "2"] {
        let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", workers]);
        assert_eq!(seen_by_a_monitor(kv.address()), expected);
    }
}

/// Lines that a monitor sees, without times and ports.
fn seen_by_a_monitor(address: SocketAddr) -> Vec<String> {
    let mut monitor = Talker::connect(address);
    monitor.expect("MONITOR", "+OK\r\n");
    for name in ["one", "other"] {
        let commands = format!("{SHOWN}ECHO {name};").replace('\n', "").replace(';', "\r\n");
        assert!(!converse(address, commands.as_bytes(), usize::MAX).is_empty());
    }
    let mut seen = Vec::new();
    while !seen.iter().any(|line: &String| line.ends_with("\"ECHO\" \"other\"")) {
        let line = monitor.line();
        let (time, shown) = line.split_once(" [").expect("a time");
        let (origin, command) = shown.split_once("] ").expect("a client");
        let micros = time.strip_prefix('+').and_then(|time| time.split_once('.'));
        assert!(micros.is_some_and(|(_, micros)| micros.len() == 6), "{line}");
        let database = origin.split_once(" 127.0.0.1:").expect("an address").0;
        seen.push(format!("{database} {command}"));
    }
    seen
}
