//! Clients of several workers and the same keys: nobody sees half of a command, and events of a key have the order of its changes.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use testkit::Kv;

use super::{LARDER, Talker, two_workers};

const ROUNDS: usize = 150;
/// Requests that are sent at once.
const AT_ONCE: usize = 100;

/// Everything that is replied to these requests.
fn ask(client: &mut Talker, requests: &str) -> String {
    client.send(format!("{requests}PING\r\n"));
    let mut replies = client.read_to("+PONG\r\n");
    replies.truncate(replies.len() - "+PONG\r\n".len());
    replies
}

/// How many replies there are, and how many of them are none of those that are possible.
fn count(replies: &str, possible: &[String]) -> (usize, usize) {
    let (mut rest, mut whole, mut half) = (replies, 0, 0);
    while !rest.is_empty() {
        match possible.iter().find_map(|reply| rest.strip_prefix(reply.as_str())) {
            Some(behind) => (whole, rest) = (whole + 1, behind),
            // To the next one that is possible.
            None => {
                half += 1;
                let begins =
                    |at: &usize| possible.iter().any(|reply| rest[*at..].starts_with(reply.as_str()));
                rest = &rest[(1..rest.len()).find(begins).unwrap_or(rest.len())..];
            }
        }
    }
    (whole + half, half)
}

const SET_ALL: &str = "MSET a 1 b 1 c 1 d 1 e 1 f 1";
const SET_NEW: &str = "MSETNX a 1 b 1 c 1 d 1 e 1 f 1";
const SET_EXPIRING: &str = "MSETEX 6 a 1 b 1 c 1 d 1 e 1 f 1 EX 100";
const ALL_OR_NONE: &[&str] = &[":0", ":6"];
const RENAME: &[&str] = &["RENAME one two", "RENAME two one"];
const RENAME_NEW: &[&str] = &["RENAMENX one two", "RENAMENX two one"];
const COPY: &[&str] = &["MSET one 1 two 1", "COPY one two REPLACE", "MSET two 2 one 2"];
const OPPOSITES: &[&str] = &["MSET one xxxx two yyyy", "MSET two xxxx one yyyy"];
const ALL_VALUES: &[&str] = &["*6 $1 1 $1 1 $1 1 $1 1 $1 1 $1 1", "*6 $-1 $-1 $-1 $-1 $-1 $-1"];
const SAME_VALUES: &[&str] = &["*2 $1 0 $1 0", "*2 $1 1 $1 1", "*2 $1 2 $1 2"];

/// A command to begin with, commands that leave keys in one of few states, one that looks at them, and its possible replies.
type Case = (&'static str, &'static [&'static str], &'static str, &'static [&'static str]);

const CASES: [Case; 9] = [
    ("PING", &[SET_ALL, "DEL f e d c b a"], "EXISTS a b c d e f", ALL_OR_NONE),
    ("PING", &[SET_NEW, "UNLINK a c e b d f"], "TOUCH f a e b d c", ALL_OR_NONE),
    ("PING", &[SET_EXPIRING, "DEL a b c d e f"], "EXISTS f e d c b a", ALL_OR_NONE),
    ("PING", &[SET_ALL, "UNLINK f e d c b a"], "MGET a b c d e f", ALL_VALUES),
    ("SET one 0", RENAME, "EXISTS one two", &[":1"]),
    ("SET one 0", RENAME_NEW, "TOUCH two one", &[":1"]),
    ("SET one 0", RENAME, "MGET one two", &["*2 $-1 $1 0", "*2 $1 0 $-1"]),
    ("MSET one 0 two 0", COPY, "MGET one two", SAME_VALUES),
    (OPPOSITES[0], OPPOSITES, "LCS one two LEN", &[":0"]),
];

#[test]
fn nobody_sees_half_of_a_command_with_several_keys() {
    for (setup, writers, reader, possible) in CASES {
        let possible: Vec<_> =
            possible.iter().map(|reply| format!("{reply} ").replace(' ', "\r\n")).collect();
        let kv = two_workers();
        let address = kv.address();
        ask(&mut Talker::connect(address), &format!("{setup}\r\n"));
        let is_over = &AtomicBool::new(false);
        let reads = format!("{reader}\r\n").repeat(AT_ONCE);
        let (mut seen, mut half) = (0, 0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    let mut writer = Talker::connect(address);
                    let writes = format!("{}\r\n", writers.join("\r\n")).repeat(AT_ONCE);
                    while !is_over.load(SeqCst) {
                        ask(&mut writer, &writes);
                    }
                });
            }
            // One on each worker.
            for mut reader in [(); 2].map(|()| Talker::connect(address)) {
                for _ in 0..ROUNDS {
                    let (all, not_whole) = count(&ask(&mut reader, &reads), &possible);
                    (seen, half) = (seen + all, half + not_whole);
                }
            }
            is_over.store(true, SeqCst);
        });
        assert_eq!((seen, half), (2 * ROUNDS * AT_ONCE, 0), "{writers:?}: {reader}");
    }
}

/// Each of these goes through only where the one before it was another's, or its own other half.
const CYCLES: [(&str, &[&[&str]]); 2] = [
    ("SET k 1 NX\r\nDEL k\r\n", &[&["set"], &["del"]]),
    ("SET k 1 NX PX 1\r\nDEL k\r\nGET k\r\n", &[&["set"], &["expire"], &["del", "expired"]]),
];
const WRITERS: usize = 4;

#[test]
fn events_of_a_key_have_the_order_of_its_changes() {
    for (requests, cycle) in CYCLES {
        let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "4"]);
        let address = kv.address();
        let mut subscriber = Talker::connect(address);
        let limit = "notify-keyspace-events KA client-output-buffer-limit \"pubsub 0 0 0\"";
        subscriber.expect(&format!("CONFIG SET {limit}"), "+OK\r\n");
        subscriber.send("SUBSCRIBE __keyspace@0__:k end\r\n");
        // Else the first change may come before it.
        subscriber.read_to(":2\r\n");
        thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(move || {
                    let mut writer = Talker::connect(address);
                    (0..ROUNDS).for_each(|_| drop(ask(&mut writer, &requests.repeat(AT_ONCE))));
                });
            }
        });
        Talker::connect(address).expect("PUBLISH end over", ":1\r\n");
        let told = subscriber.read_to("over\r\n");
        let words = told.lines().filter(|line| ["set", "del", "expire", "expired"].contains(line));
        let (mut count, mut wrong) = (0, 0);
        let mut expected = cycle.iter().cycle();
        for word in words {
            count += 1;
            if !expected.next().is_some_and(|possible| possible.contains(&word)) {
                wrong += 1;
                expected = cycle.iter().cycle();
                expected.find(|possible| possible.contains(&word));
            }
        }
        assert!(count > 1_000, "{count} of {requests}");
        assert_eq!(wrong, 0, "of {count} of {requests}");
    }
}
