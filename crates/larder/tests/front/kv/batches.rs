//! Batches of GET, SET and DEL: replies in order, with values that are prefetched, sent without a copy, or delayed by a slow reader.

use std::net::{Shutdown, SocketAddr};
use std::thread;

use testkit::{Kv, converse};

use super::sessions::{Talker, bulk, fact, request};
use crate::LARDER;

/// Requests, and their replies.
#[derive(Default)]
struct Script {
    requests: Vec<u8>,
    replies: Vec<u8>,
}

impl Script {
    fn request(&mut self, arguments: &[&[u8]]) {
        self.requests.extend(request(arguments));
    }

    fn say(&mut self, arguments: &[&[u8]], reply: &str) {
        self.request(arguments);
        self.replies.extend(reply.bytes());
    }

    fn say_bulk(&mut self, arguments: &[&[u8]], reply: &[u8]) {
        self.request(arguments);
        bulk(&mut self.replies, reply);
    }

    fn set(&mut self, key: &str, value: &[u8]) {
        self.say(&[b"SET", key.as_bytes(), value], "+OK\r\n");
    }

    fn get(&mut self, key: &str, value: Option<&[u8]>) {
        match value {
            Some(value) => self.say_bulk(&[b"get", key.as_bytes()], value),
            None => self.say(&[b"get", key.as_bytes()], "$-1\r\n"),
        }
    }

    fn del(&mut self, key: &str, removed: usize) {
        self.say(&[b"del", key.as_bytes()], &format!(":{removed}\r\n"));
    }
}

fn value(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at * 7 + number * 13) % 251) as u8).collect()
}

fn start() -> Kv {
    Kv::start(LARDER, &["--workers", "1", "--maxmemory", "256MiB"])
}

/// Writes and reads concurrently, at the pace of the sockets.
fn exchange(address: SocketAddr, requests: &[u8], piece_bytes: usize) -> Vec<u8> {
    let mut client = Talker::connect(address);
    let mut writer = Talker(client.0.try_clone().expect("a second handle"));
    thread::scope(|scope| {
        scope.spawn(move || {
            requests.chunks(piece_bytes).for_each(|piece| writer.send(piece));
            writer.0.shutdown(Shutdown::Write).expect("it is open");
        });
        let mut replies = Vec::new();
        std::io::Read::read_to_end(&mut client.0, &mut replies).expect("the server replies");
        replies
    })
}

#[track_caller]
fn check(found: &[u8], script: &Script) {
    let same = found.iter().zip(&script.replies).take_while(|(one, other)| one == other).count();
    let (found_bytes, bytes) = (found.len(), script.replies.len());
    assert!(found == script.replies, "{found_bytes} bytes of {bytes}; the first {same} are right");
}

#[test]
fn each_request_sees_what_those_before_it_did() {
    let mut script = Script::default();
    for round in 0..40 {
        for number in 0..7 {
            let key = format!("key:{number}");
            // Lengths for all ways of copying a reply, equal to the previous length or not.
            let bytes = (round * 3 + number) % 140;
            script.set(&key, &value(round, bytes));
            script.get(&key, Some(&value(round, bytes)));
            script.get(&format!("none:{round}:{number}"), None);
            if (round + number) % 5 == 0 {
                script.del(&key, 1);
                script.get(&key, None);
                script.del(&key, 0);
            }
        }
        if round % 9 == 0 {
            script.say(&[b"PING"], "+PONG\r\n");
        }
    }
    let kv = start();
    for piece_bytes in [usize::MAX, 1000, 61, 7] {
        check(&converse(kv.address(), &script.requests, piece_bytes), &script);
    }
}

#[test]
fn others_learn_of_each_change_of_a_batch() {
    let kv = start();
    let mut other = Talker::connect(kv.address());
    other.expect("CONFIG SET notify-keyspace-events EA", "+OK\r\n");
    other.send("SUBSCRIBE __keyevent@0__:set __keyevent@0__:del end\r\n");
    other.read_to(":3\r\n");
    let mut script = Script::default();
    script.set("first:key", b"a value");
    script.set("second:key", b"a value");
    script.get("first:key", Some(b"a value"));
    script.del("first:key", 1);
    script.del("first:key", 0);
    script.set("first:key", b"another");
    check(&converse(kv.address(), &script.requests, usize::MAX), &script);
    assert_eq!(kv.ask(&["PUBLISH end end"]), ":1\r\n");
    for (name, key) in
        [("set", "first:key"), ("set", "second:key"), ("del", "first:key"), ("set", "first:key")]
    {
        let event = format!("$18\r\n__keyevent@0__:{name}\r\n${}\r\n{key}\r\n", key.len());
        other.receive(format!("*3\r\n$7\r\nmessage\r\n{event}"));
    }
    other.receive("*3\r\n$7\r\nmessage\r\n$3\r\nend\r\n$3\r\nend\r\n");
}

/// Each command that takes a value, with a value longer than one read, followed by other commands.
fn long_values(script: &mut Script, bytes: usize) {
    let (value, other) = (value(bytes, bytes), value(bytes + 1, bytes));
    script.set("long", &value);
    script.get("long", Some(&value));
    script.say(&[b"SET", b"long", &other, b"EX", b"100"], "+OK\r\n");
    script.say(&[b"SET", b"long", &value, b"NX"], "$-1\r\n");
    script.get("long", Some(&other));
    script.say(&[b"SETEX", b"long", b"100", &value], "+OK\r\n");
    script.say_bulk(&[b"GETSET", b"long", &other], &value);
    script.say(&[b"MSET", b"one", &value, b"two", &other, &value, b"its key is long"], "+OK\r\n");
    script.say(&[b"MGET", b"one", b"two", &value], "*3\r\n");
    for part in [&value, &other, &b"its key is long"[..]] {
        bulk(&mut script.replies, part);
    }
    // Here the key has its own memory, and not the value.
    script.say(&[b"SET", &other, b"this one too"], "+OK\r\n");
    script.say_bulk(&[b"GET", &other], b"this one too");
    script.say(&[b"DEL", &other], ":1\r\n");
    script.say(&[b"MULTI"], "+OK\r\n");
    script.say(&[b"SET", b"long", &value], "+QUEUED\r\n");
    script.say(&[b"APPEND", b"long", &other], "+QUEUED\r\n");
    script.say(&[b"EXEC"], &format!("*2\r\n+OK\r\n:{}\r\n", 2 * bytes));
    script.get("long", Some(&[&value[..], &other].concat()));
    script.say_bulk(&[b"ECHO", &value], &value);
    // The two values have their own memory and share nothing.
    script.say(&[b"COPY", b"one", b"long", b"REPLACE"], ":1\r\n");
    script.say(&[b"SETRANGE", b"one", b"0", b"changed"], &format!(":{bytes}\r\n"));
    script.get("long", Some(&value));
    for key in ["one", "two", "long"] {
        script.del(key, 1);
    }
}

#[test]
fn long_values_are_taken_by_every_command() {
    let mut script = Script::default();
    for bytes in [40_000, 131_072, 200_001, 1_500_000] {
        long_values(&mut script, bytes);
    }
    let kv = start();
    for piece_bytes in [usize::MAX, 200_000, 10_007] {
        check(&exchange(kv.address(), &script.requests, piece_bytes), &script);
    }
    assert_eq!(kv.ask(&["DBSIZE"]), ":4\r\n", "only the long keys are left");
}

/// Each value is sent without a copy. Values requested together share system calls: one call sends 64 KiB.
#[test]
fn values_that_are_asked_for_together_are_sent_together() {
    const COUNT: usize = 64;
    let kv = start();
    let writes = || fact(&kv, "total_writes_processed");
    let mut script = Script::default();
    script.set("k", &value(1, 16 << 10));
    check(&exchange(kv.address(), &script.requests, usize::MAX), &script);
    let mut script = Script::default();
    (0..COUNT).for_each(|_| script.get("k", Some(&value(1, 16 << 10))));
    let before = writes();
    check(&exchange(kv.address(), &script.requests, usize::MAX), &script);
    let more = writes() - before;
    assert!(more < COUNT / 2, "{more} for {COUNT} values");
}
