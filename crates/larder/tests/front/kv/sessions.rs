//! What clients of `larder kv` learn of each other: messages, transactions, invalidations. Beside Redis, byte by byte.

mod atomic;
mod scenario;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use scenario::Talker;
use testkit::{Kv, Redis, wait};

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

/// `larder kv` with two workers, so that clients of one talk to those of the other.
fn two_workers() -> Kv {
    Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "2"])
}

#[test]
fn a_redirection_to_a_connection_that_is_gone_is_told() {
    let redis = Redis::start("");
    let kv = two_workers();
    for address in [redis.address(), kv.address()] {
        let target = Talker::connect(address);
        let id = target.id.clone();
        let mut tracker = Talker::connect(address).with_resp3();
        tracker.expect(&format!("CLIENT TRACKING ON REDIRECT {id}"), "+OK\r\n");
        tracker.expect("GET key", "_\r\n");
        let mut other = Talker::connect(address);
        drop(target);
        wait::until_true("the connection is gone", || {
            other.ask(&format!("CLIENT KILL ID {id}")) == ":0" && !other.ask("CLIENT NO-EVICT OFF").is_empty()
        });
        other.expect("SET key 1", "+OK\r\n");
        tracker.receive(&format!(">2\r\n$21\r\ntracking-redir-broken\r\n:{id}\r\n"));
        let info = format!(
            "~2\r\n$2\r\non\r\n$15\r\nbroken_redirect\r\n$8\r\nredirect\r\n:{id}\r\n$8\r\nprefixes\r\n*0\r\n"
        );
        tracker.expect("CLIENT TRACKINGINFO", &format!("%3\r\n$5\r\nflags\r\n{info}"));
    }
}

/// Two accounts, and clients of both workers that move money between them: whoever looks at both sees all of it.
#[test]
fn transactions_of_two_workers_are_atomic() {
    let kv = two_workers();
    let mut teller = Talker::connect(kv.address());
    teller.expect("MSET one 500 two 500", "+OK\r\n");
    let kv = &kv;
    thread::scope(|scope| {
        let transfers: Vec<_> = (0..4).map(|number| scope.spawn(move || transfer(kv, number))).collect();
        while transfers.iter().any(|transfer| !transfer.is_finished()) {
            let lines = teller.lines("MULTI\r\nGET one\r\nGET two\r\nEXEC\r\nMGET one two", 3 + 5 + 5);
            let numbers: Vec<i64> = lines.iter().filter_map(|line| line.parse().ok()).collect();
            assert_eq!(numbers.len(), 4, "{lines:?}");
            assert_eq!([numbers[0] + numbers[1], numbers[2] + numbers[3]], [1000, 1000], "{lines:?}");
        }
    });
}

fn transfer(kv: &Kv, number: usize) {
    let mut client = Talker::connect(kv.address());
    let (from, to) = if number.is_multiple_of(2) { ("one", "two") } else { ("two", "one") };
    for _ in 0..500 {
        let lines = client.lines(&format!("MULTI\r\nDECRBY {from} 7\r\nINCRBY {to} 7\r\nEXEC"), 6);
        assert_eq!(lines[3], "*2", "{lines:?}");
    }
}

/// Clients of both workers count with WATCH; no count is lost.
#[test]
fn watched_keys_are_touched_by_clients_of_the_other_worker() {
    let kv = two_workers();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..200).for_each(|_| increment(&kv)));
        }
    });
    assert_eq!(Talker::connect(kv.address()).lines("GET count", 2), ["$3", "800"]);
}

fn increment(kv: &Kv) {
    let mut client = Talker::connect(kv.address());
    loop {
        client.expect("WATCH count", "+OK\r\n");
        let count = match client.lines("GET count", 1)[0].as_str() {
            "$-1" => 0,
            _ => client.lines("", 1)[0].parse::<u64>().expect("a number"),
        };
        let lines = client.lines(&format!("MULTI\r\nSET count {}\r\nEXEC", count + 1), 3);
        if lines[2] == "*1" {
            client.lines("", 1);
            return;
        }
        assert_eq!(lines[2], "*-1");
    }
}

/// Clients of both workers read while another writes. What they then believe to know must be the new value.
#[test]
fn no_invalidation_is_missed_when_reads_and_writes_meet() {
    let kv = two_workers();
    let mut writer = Talker::connect(kv.address());
    let mut readers: Vec<_> = (0..6).map(|_| Talker::connect(kv.address()).with_resp3()).collect();
    readers.iter_mut().for_each(|reader| reader.expect("CLIENT TRACKING ON", "+OK\r\n"));
    for round in 0..500 {
        let (before, behind) = readers.split_at_mut(round % 7);
        before.iter_mut().for_each(|reader| reader.send("GET key"));
        writer.send(&format!("SET key {round:04}"));
        behind.iter_mut().for_each(|reader| reader.send("GET key"));
        writer.receive("+OK\r\n");
        let known: Vec<_> = readers.iter_mut().map(known_after).collect();
        assert!(known.iter().flatten().all(|value| *value == format!("{round:04}")), "{round}: {known:?}");
    }
}

/// What a client believes after a GET, when it has learned of all that happened meanwhile.
fn known_after(reader: &mut Talker) -> Option<String> {
    reader.send("PING");
    let mut known = None;
    loop {
        match reader.lines("", 1)[0].as_str() {
            "+PONG" => return known,
            "$4" => known = Some(reader.lines("", 1).remove(0)),
            ">2" => {
                assert_eq!(reader.lines("", 5), ["$10", "invalidate", "*1", "$3", "key"]);
                known = None;
            }
            "_" => {}
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_subscriber_that_does_not_read_is_closed() {
    for limits in ["pubsub 1mb 0 0", "pubsub 0 100kb 0"] {
        let kv = two_workers();
        let mut publisher = Talker::connect(kv.address());
        publisher.expect(&format!("CONFIG SET client-output-buffer-limit \"{limits}\""), "+OK\r\n");
        let mut subscriber = Talker::connect(kv.address());
        subscriber.expect("SUBSCRIBE news", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
        let message = "m".repeat(50_000);
        let begin = kv.service.resident_bytes();
        wait::until_true("it is closed", || publisher.ask(&format!("PUBLISH news {message}")) == ":0");
        let grown = kv.service.resident_bytes().saturating_sub(begin);
        assert!(grown < 16 << 20, "{grown}");
        let id = subscriber.id.clone();
        publisher.expect(&format!("CLIENT LIST ID {id}"), "$0\r\n\r\n");
    }
}

#[test]
fn a_client_has_a_limit_of_subscriptions() {
    let kv = two_workers();
    let mut client = Talker::connect(kv.address());
    let patterns: String = (0..=1000).map(|number| format!(" {number}")).collect();
    let refused = "-ERR a client can have at most 100000 subscriptions and 1000 patterns\r\n";
    client.expect(&format!("PSUBSCRIBE{patterns}"), refused);
    client.expect("PING", "+PONG\r\n");
}

#[test]
fn keys_that_the_table_has_no_room_for_are_told_as_changed() {
    let kv = two_workers();
    let mut reader = Talker::connect(kv.address()).with_resp3();
    reader.expect("CONFIG SET tracking-table-max-keys 2", "+OK\r\n");
    reader.expect("CLIENT TRACKING ON", "+OK\r\n");
    reader.expect("GET a", "_\r\n");
    reader.expect("GET b", "_\r\n");
    let lines = reader.lines("GET c", 7);
    assert_eq!(lines[..5], ["_", ">2", "$10", "invalidate", "*1"]);
    assert!(["a", "b"].contains(&lines[6].as_str()), "{lines:?}");
    assert!(kv.ask(&["INFO stats"]).contains("tracking_total_keys:2\r\ntracking_total_items:2\r\n"));
    drop(reader);
    wait::until_true("nobody tracks", || kv.ask(&["INFO stats"]).contains("tracking_total_keys:0"));
}

/// What is evicted is told to client-side caches and to subscribers, and touches watched keys.
#[test]
fn eviction_is_told() {
    let kv = Kv::start(LARDER, &["--maxmemory", "4MiB", "--workers", "2"]);
    let mut reader = Talker::connect(kv.address()).with_resp3();
    reader.expect("SET key 1", "+OK\r\n");
    reader.expect("CLIENT TRACKING ON", "+OK\r\n");
    reader.expect("WATCH key", "+OK\r\n");
    reader.expect("GET key", "$1\r\n1\r\n");
    let mut subscriber = Talker::connect(kv.address());
    subscriber.expect("CONFIG SET notify-keyspace-events Ee", "+OK\r\n");
    let channel = "__keyevent@0__:evicted";
    subscriber.expect(
        &format!("SUBSCRIBE {channel}"),
        &format!("*3\r\n$9\r\nsubscribe\r\n$22\r\n{channel}\r\n:1\r\n"),
    );
    let mut writer = Talker::connect(kv.address());
    let value = "v".repeat(1000);
    for number in 0..10_000 {
        writer.expect(&format!("SET other-{number} {value}"), "+OK\r\n");
    }
    writer.expect("EXISTS key", ":0\r\n");
    reader.receive(">2\r\n$10\r\ninvalidate\r\n*1\r\n$3\r\nkey\r\n");
    subscriber.receive(&format!("*3\r\n$7\r\nmessage\r\n$22\r\n{channel}\r\n"));
    reader.expect("MULTI", "+OK\r\n");
    reader.expect("EXEC", "_\r\n");
}

#[test]
fn clients_are_listed_with_what_they_do() {
    let kv = two_workers();
    let mut one = Talker::connect(kv.address());
    one.expect(
        "SUBSCRIBE a b",
        "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n",
    );
    one.expect("PSUBSCRIBE c", "*3\r\n$10\r\npsubscribe\r\n$1\r\nc\r\n:3\r\n");
    let mut two = Talker::connect(kv.address()).with_resp3();
    two.expect("CLIENT SETNAME worker", "+OK\r\n");
    two.expect("CLIENT TRACKING ON BCAST", "+OK\r\n");
    two.expect("SELECT 4", "+OK\r\n");
    two.expect("MULTI", "+OK\r\n");
    two.expect("GET a", "+QUEUED\r\n");
    let list = kv.ask(&["CLIENT LIST"]);
    let line = |id: &str| {
        let begin = format!("id={id} ");
        let line = list.lines().find(|line| line.trim_start().starts_with(&begin));
        line.unwrap_or_else(|| panic!("no {id} in {list}")).to_owned()
    };
    let has = |id: &str, parts: &[&str]| {
        let line = line(id);
        let words: Vec<&str> = line.split(' ').collect();
        assert!(parts.iter().all(|part| words.contains(part)), "{parts:?} in {line}");
    };
    has(
        &one.id,
        &["flags=P", "sub=2", "psub=1", "ssub=0", "multi=-1", "cmd=psubscribe", "resp=2", "redir=-1"],
    );
    has(&two.id, &["name=worker", "flags=xtB", "db=4", "multi=1", "resp=3", "redir=0", "user=default"]);
}

/// CLIENT PAUSE, with commands of many connections of both workers that wait: none goes before its end, and none is forgotten.
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
                client.send(&format!("INCR count\r\nECHO {number:02}\r\nSET {number} 1"));
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

/// As two clients say it, one after the other.
const SHOWN: [&str; 34] = [
    "SET key \"a\\n\\r\\t\\a\\b\\\"\\\\\\x00\\xff end\"",
    "get key",
    "GET",
    "NOSUCH x",
    "INCR key",
    "AUTH secret",
    "auth user secret",
    "HELLO 2 AUTH default secret SETNAME name",
    "hello 2 setname name auth default secret",
    "HELLO 2 AUTH secret",
    "HELLO 4 AUTH default secret",
    "CONFIG GET port",
    "CONFIG SET maxclients 10000",
    "MULTI",
    "GET key",
    "INCR count",
    "EXEC",
    "MULTI",
    "SET key",
    "EXEC",
    "WATCH key",
    "MULTI",
    "DISCARD",
    "SELECT 1",
    "GET key",
    "CLIENT ID",
    "CLIENT KILL ID 999999",
    "SLOWLOG LEN",
    "COMMAND COUNT",
    "OBJECT ENCODING key",
    "SUBSCRIBE channel",
    "UNSUBSCRIBE channel",
    "FLUSHALL",
    "RESET",
];

#[test]
fn monitors_see_what_they_see_with_redis() {
    let redis = Redis::start("");
    let mut expected = seen_by_a_monitor(redis.address());
    // Where HELLO fails, Redis shows what was said to it.
    for line in &mut expected {
        *line = line.replace("\"default\" \"secret\"", "\"(redacted)\" \"(redacted)\"");
        *line = line.replace("\"secret\"", "\"(redacted)\"");
    }
    for workers in ["1", "2"] {
        let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", workers]);
        assert_eq!(seen_by_a_monitor(kv.address()), expected);
    }
}

/// Without times and ports.
fn seen_by_a_monitor(address: SocketAddr) -> Vec<String> {
    let mut monitor = Talker::connect(address);
    monitor.expect("MONITOR", "+OK\r\n");
    for name in ["one", "other"] {
        let commands: String = SHOWN.iter().map(|command| format!("{command}\r\n")).collect();
        let end = format!("ECHO {name}\r\n");
        let replies = testkit::converse(address, (commands + &end).as_bytes(), usize::MAX);
        assert!(replies.ends_with(name.as_bytes()) || !replies.is_empty());
    }
    let mut seen = Vec::new();
    while !seen.iter().any(|line: &String| line.ends_with("\"ECHO\" \"other\"")) {
        let line = monitor.lines("", 1).remove(0);
        let (time, shown) = line.split_once(" [").expect("a time");
        let (origin, command) = shown.split_once("] ").expect("a client");
        assert!(
            time.starts_with('+') && time.split_once('.').is_some_and(|(_, micros)| micros.len() == 6),
            "{line}"
        );
        let database = origin.split_once(" 127.0.0.1:").expect("an address").0;
        seen.push(format!("{database} {command}"));
    }
    seen
}

/// A monitor that does not read is closed, and others are served.
#[test]
fn a_monitor_that_does_not_read_is_closed() {
    let kv = two_workers();
    let mut other = Talker::connect(kv.address());
    other.expect("CONFIG SET client-output-buffer-limit \"pubsub 1mb 0 0\"", "+OK\r\n");
    let mut monitor = Talker::connect(kv.address());
    monitor.expect("MONITOR", "+OK\r\n");
    let sets = [format!("SET key {}", "v".repeat(60_000)), "PING".to_owned()].join("\r\n");
    wait::until_true("the monitor is closed", || {
        assert_eq!(other.lines(&sets, 2), ["+OK", "+PONG"]);
        !kv.ask(&["CLIENT LIST"]).contains("flags=O")
    });
}
