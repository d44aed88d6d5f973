//! Messages and their replies, byte by byte.

use std::fs;

use testkit::{KvService, KvSetup, converse};

use super::UNIT_SEPARATOR;
use crate::LARDER;

/// `\r`, `\n`, `\\` and `\xHH`.
fn unescape(line: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = line;
    while let Some(begin) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..begin]);
        let (byte, length) = match rest.as_bytes()[begin + 1] {
            b'r' => (b'\r', 2),
            b'n' => (b'\n', 2),
            b'x' => (u8::from_str_radix(&rest[begin + 2..begin + 4], 16).expect("two digits"), 4),
            other => (other, 2),
        };
        bytes.push(byte);
        rest = &rest[begin + length..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

/// With the separator, where it is not of the Redis protocol.
fn framed(line: &str) -> Vec<u8> {
    let mut bytes = unescape(line);
    let is_redis = bytes.first().is_some_and(|first| b"*+-:$".contains(first)) && bytes.ends_with(b"\r\n");
    if !is_redis {
        bytes.push(0x1F);
    }
    bytes
}

/// All requests of a file, and all replies.
fn conversation(name: &str) -> (Vec<u8>, Vec<u8>) {
    let path = format!("{}/../../conformance/resp/{name}", env!("CARGO_MANIFEST_DIR"));
    let (mut requests, mut replies) = (Vec::new(), Vec::new());
    for line in fs::read_to_string(path).expect("the file").lines() {
        match line.split_at_checked(2) {
            Some(("> ", request)) => requests.extend(framed(request)),
            Some(("< ", reply)) => replies.extend(framed(reply)),
            _ => assert!(line.starts_with('#'), "{line:?} is neither a request nor a reply"),
        }
    }
    (requests, replies)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\x1f', "\u{241f}\n")
}

#[test]
fn messages_are_answered_however_they_are_split() {
    let (requests, replies) = conversation("unit-separator.messages");
    for piece_bytes in [usize::MAX, 1000, 7, 2, 1] {
        let kv = KvService::start(LARDER, UNIT_SEPARATOR);
        let given = converse(kv.address(), &requests, piece_bytes);
        assert_eq!(text(&given), text(&replies), "in pieces of {piece_bytes}");
        assert_eq!(given, replies, "in pieces of {piece_bytes}");
    }
}

/// Replies to messages that are sent in one go.
pub(crate) fn ask(kv: &KvService, messages: &[&str]) -> Vec<String> {
    let requests: String = messages.iter().map(|message| format!("{message}\x1f")).collect();
    let replies = converse(kv.address(), requests.as_bytes(), usize::MAX);
    let replies = String::from_utf8_lossy(&replies).into_owned();
    replies.split_terminator('\x1f').map(str::to_owned).collect()
}

#[test]
fn inline_commands_are_for_the_other_protocol() {
    let kv = KvService::start(LARDER, "");
    assert_eq!(kv.ask("SET a 1\r\n"), "+OK\r\n");
    let kv = KvService::start(LARDER, UNIT_SEPARATOR);
    assert_eq!(
        ask(&kv, &["PING\r\n", "SET a 1\r\n", "GET a"]),
        ["ERROR: Unable to parse request", "OK", "1\r\n"]
    );
}

#[test]
fn a_password_is_given_in_the_redis_protocol() {
    let setup = KvSetup::new(LARDER).file("password", "secret\n");
    let kv = setup.start(&format!("{UNIT_SEPARATOR}password_files = [\"password\"]\n"));
    let requests = b"SET a 1\x1f*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\nSET a 1\x1fGET a\x1f";
    let replies = converse(kv.address(), requests, usize::MAX);
    assert_eq!(text(&replies), text(b"ERROR: NOAUTH Authentication required.\x1f+OK\r\nOK\x1f1\x1f"));
}

#[test]
fn what_does_not_fit_is_told() {
    let kv = KvService::start(LARDER, "text_protocol = \"unit-separator\"\nmaxmemory = \"2MiB\"\n");
    let value = "v".repeat(4 << 20);
    let set = format!("SET big {value}");
    // What is not whole, and can never be stored, is not waited for: the connection ends.
    assert_eq!(ask(&kv, &[&set]), ["ERROR: Internal error"]);
    assert_eq!(ask(&kv, &["GET big", "SET small 1", "GET small"]), ["(nil)", "OK", "1"]);
}

#[test]
fn replies_of_the_redis_protocol_are_not_silenced_for_text() {
    let kv = KvService::start(LARDER, UNIT_SEPARATOR);
    let requests = b"*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$3\r\nOFF\r\nSET a 1\x1fGET a\x1f";
    assert_eq!(text(&converse(kv.address(), requests, usize::MAX)), text(b"OK\x1f1\x1f"));
}

#[test]
fn batches_are_answered_in_order() {
    let large = "v".repeat(20_000);
    let set_odd = "*3\r\n$3\r\nSET\r\n$3\r\nodd\r\n$11\r\nhalf\x1fhalf56\r\n";
    let (mut requests, mut replies) = (String::new(), String::new());
    let mut say = |request: &str, reply: &str| {
        requests.push_str(request);
        replies.push_str(reply);
    };
    for round in 0..50 {
        // As many as are looked at together, and one more or less.
        for number in 0..10 + round % 3 {
            say(&format!("SET key:{number} value {round}\x1f"), "OK\x1f");
            say(&format!("GET key:{number} and more\x1f"), &format!("value {round}\x1f"));
            say(&format!("DEL key:{number}\x1f"), "OK\x1f");
            say(&format!("GET key:{number}\x1f"), "(nil)\x1f");
            say(&format!("DEL key:{number}\x1f\x1f"), "ERROR: Key does not exist\x1f");
        }
        say(&format!("SET large {large}\x1f"), "OK\x1f");
        say("GET large\x1f", &format!("{large}\x1f"));
        say("*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n", &format!("$20000\r\n{large}\r\n"));
        say(set_odd, "+OK\r\n");
        say("GET odd\x1f", "ERROR: Internal error\x1f");
        say("*2\r\n$3\r\nDEL\r\n$3\r\nodd\r\n", ":1\r\n");
        say("GET\x1f", "ERROR: Unable to parse request\x1f");
    }
    let kv = KvService::start(LARDER, UNIT_SEPARATOR);
    for piece_bytes in [usize::MAX, 4096, 97] {
        let given = converse(kv.address(), requests.as_bytes(), piece_bytes);
        let same = given.iter().zip(replies.as_bytes()).take_while(|(one, other)| one == other).count();
        let around = |bytes: &[u8]| text(&bytes[same.saturating_sub(20)..bytes.len().min(same + 40)]);
        assert!(given == replies.as_bytes(), "{} for {}", around(&given), around(replies.as_bytes()));
    }
}
