//! What clients of `larder kv` learn of each other: messages, transactions, invalidations. Beside Redis, byte by byte.

#[path = "kv_talk/scenario.rs"]
mod scenario;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use scenario::Talker;
use testkit::{Kv, Redis, wait};

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

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
    let under_way = AtomicUsize::new(4);
    thread::scope(|scope| {
        for number in 0..4 {
            let (kv, under_way) = (&kv, &under_way);
            scope.spawn(move || {
                transfer(kv, number);
                under_way.fetch_sub(1, Ordering::Relaxed);
            });
        }
        while under_way.load(Ordering::Relaxed) > 0 {
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
