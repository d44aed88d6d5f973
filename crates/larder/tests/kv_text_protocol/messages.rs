//! Messages and their replies, byte by byte.

use std::fs;

use testkit::{KvService, KvSetup, converse};

use crate::{LARDER, UNIT_SEPARATOR};

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
    assert_eq!(ask(&kv, &[&set, "GET big"]), ["ERROR: Internal error", "(nil)"]);
    assert_eq!(ask(&kv, &["SET small 1", "GET small"]), ["OK", "1"]);
}

#[test]
fn replies_of_the_redis_protocol_are_not_silenced_for_text() {
    let kv = KvService::start(LARDER, UNIT_SEPARATOR);
    let requests = b"*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$3\r\nOFF\r\nSET a 1\x1fGET a\x1f";
    assert_eq!(text(&converse(kv.address(), requests, usize::MAX)), text(b"OK\x1f1\x1f"));
}
