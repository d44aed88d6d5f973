//! Clients of several workers and the same keys: nobody sees half of a command, and what is told of a key has the order in which it happened.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use testkit::Kv;

use super::{LARDER, two_workers};

const ROUNDS: usize = 150;
/// Requests that are sent at once.
const AT_ONCE: usize = 100;
const DEADLINE: Duration = Duration::from_secs(60);

struct Client(TcpStream);

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a time limit");
        Self(stream)
    }

    /// Everything that is replied to these requests.
    fn ask(&mut self, requests: &str) -> String {
        self.0.write_all(format!("{requests}PING\r\n").as_bytes()).expect("the server reads");
        let mut replies = self.read_until(|replies| replies.ends_with("+PONG\r\n"));
        replies.truncate(replies.len() - "+PONG\r\n".len());
        replies
    }

    fn read_until(&mut self, is_enough: impl Fn(&str) -> bool) -> String {
        let (mut read, mut buffer) = (String::new(), vec![0; 1 << 20]);
        while !is_enough(&read) {
            let bytes = self.0.read(&mut buffer).expect("the server replies");
            assert!(bytes > 0, "the server has closed the connection");
            read.push_str(std::str::from_utf8(&buffer[..bytes]).expect("text"));
        }
        read
    }
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

/// Commands that leave keys in one of few states, and what a command that looks at them may reply then.
struct Case {
    setup: &'static str,
    writers: &'static [&'static str],
    reader: &'static str,
    possible: Vec<String>,
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

fn cases() -> Vec<Case> {
    let case = |setup, writers, reader, possible: &[&str]| {
        let possible = possible.iter().map(|reply| format!("{} ", reply).replace(' ', "\r\n")).collect();
        Case { setup, writers, reader, possible }
    };
    vec![
        case("PING", &[SET_ALL, "DEL f e d c b a"], "EXISTS a b c d e f", ALL_OR_NONE),
        case("PING", &[SET_NEW, "UNLINK a c e b d f"], "TOUCH f a e b d c", ALL_OR_NONE),
        case("PING", &[SET_EXPIRING, "DEL a b c d e f"], "EXISTS f e d c b a", ALL_OR_NONE),
        case("PING", &[SET_ALL, "UNLINK f e d c b a"], "MGET a b c d e f", ALL_VALUES),
        case("SET one 0", RENAME, "EXISTS one two", &[":1"]),
        case("SET one 0", RENAME_NEW, "TOUCH two one", &[":1"]),
        case("SET one 0", RENAME, "MGET one two", &["*2 $-1 $1 0", "*2 $1 0 $-1"]),
        case("MSET one 0 two 0", COPY, "MGET one two", SAME_VALUES),
        case(OPPOSITES[0], OPPOSITES, "LCS one two LEN", &[":0"]),
    ]
}

fn run(case: &Case) {
    let kv = two_workers();
    Client::connect(kv.address()).ask(&format!("{}\r\n", case.setup));
    let is_over = &AtomicBool::new(false);
    let (address, writers) = (kv.address(), case.writers);
    let reads = format!("{}\r\n", case.reader).repeat(AT_ONCE);
    let (mut seen, mut half) = (0, 0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                let mut writer = Client::connect(address);
                let writes = format!("{}\r\n", writers.join("\r\n")).repeat(AT_ONCE);
                while !is_over.load(SeqCst) {
                    writer.ask(&writes);
                }
            });
        }
        // One on each worker.
        let readers = [(); 2].map(|()| Client::connect(address));
        for mut reader in readers {
            for _ in 0..ROUNDS {
                let (all, not_whole) = count(&reader.ask(&reads), &case.possible);
                (seen, half) = (seen + all, half + not_whole);
            }
        }
        is_over.store(true, SeqCst);
    });
    assert_eq!((seen, half), (2 * ROUNDS * AT_ONCE, 0), "{:?}: {}", case.writers, case.reader);
}

#[test]
fn nobody_sees_half_of_a_command_with_several_keys() {
    cases().iter().for_each(run);
}

/// Each of these goes through only where the one before it was another's, or its own other half.
const CYCLES: [(&str, &[&[&str]]); 2] = [
    ("SET k 1 NX\r\nDEL k\r\n", &[&["set"], &["del"]]),
    ("SET k 1 NX PX 1\r\nDEL k\r\nGET k\r\n", &[&["set"], &["expire"], &["del", "expired"]]),
];
const WRITERS: usize = 4;

#[test]
fn what_is_told_of_a_key_has_the_order_in_which_it_happened() {
    for (requests, cycle) in CYCLES {
        let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "4"]);
        let address = kv.address();
        let mut subscriber = Client::connect(address);
        subscriber
            .ask("CONFIG SET notify-keyspace-events KA client-output-buffer-limit \"pubsub 0 0 0\"\r\n");
        subscriber.0.write_all(b"SUBSCRIBE __keyspace@0__:k end\r\n").expect("the server reads");
        // Else the first change may come before it.
        subscriber.read_until(|read| read.ends_with(":2\r\n"));
        thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(move || {
                    let mut writer = Client::connect(address);
                    (0..ROUNDS).for_each(|_| drop(writer.ask(&requests.repeat(AT_ONCE))));
                });
            }
        });
        Client::connect(address).ask("PUBLISH end over\r\n");
        let told = subscriber.read_until(|read| read.ends_with("over\r\n"));
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
