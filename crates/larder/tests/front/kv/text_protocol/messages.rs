//! Messages and their replies, byte by byte.

use std::fs;
use std::net::SocketAddr;

use testkit::{KvService, converse};

use super::UNIT_SEPARATOR;
use crate::LARDER;
use crate::kv::access::locked;
use crate::kv::replies::unescape;

/// Unescapes a line, and adds the separator unless it is in the Redis protocol.
fn framed(line: &str) -> Vec<u8> {
    let mut bytes = unescape(line, true);
    let is_redis = bytes.first().is_some_and(|first| b"*+-:$".contains(first)) && bytes.ends_with(b"\r\n");
    if !is_redis {
        bytes.push(0x1F);
    }
    bytes
}

/// Requests and replies in a file.
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

#[track_caller]
fn check(address: SocketAddr, requests: &[u8], replies: &[u8], piece_bytes: usize) {
    let given = converse(address, requests, piece_bytes);
    let same = given.iter().zip(replies).take_while(|(one, other)| one == other).count();
    let around =
        |bytes: &[u8]| bytes[same.saturating_sub(20)..bytes.len().min(same + 60)].escape_ascii().to_string();
    assert!(given == replies, "in pieces of {piece_bytes}: {} for {}", around(&given), around(replies));
}

#[test]
fn messages_are_answered_however_they_are_split() {
    let (requests, replies) = conversation("unit-separator.messages");
    for piece_bytes in [usize::MAX, 1000, 7, 2, 1] {
        check(KvService::start(LARDER, UNIT_SEPARATOR).address(), &requests, &replies, piece_bytes);
    }
}

/// Replies to messages sent in one batch.
pub(crate) fn ask(kv: &KvService, messages: &[&str]) -> Vec<String> {
    let replies = kv.ask(&messages.iter().map(|message| format!("{message}\x1f")).collect::<String>());
    replies.split_terminator('\x1f').map(str::to_owned).collect()
}

#[test]
fn both_protocols_share_a_server() {
    let kv = KvService::start(LARDER, UNIT_SEPARATOR);
    let inline = ask(&kv, &["PING\r\n", "SET a 1\r\n", "GET a"]);
    assert_eq!(inline, ["ERROR: Unable to parse request", "OK", "1\r\n"], "inline commands belong to RESP");
    let silent = b"*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$3\r\nOFF\r\nSET a 1\x1fGET a\x1f";
    check(kv.address(), silent, b"OK\x1f1\x1f", usize::MAX);
    // Clients authenticate with the Redis protocol.
    let requests = b"SET a 1\x1f*2\r\n$4\r\nAUTH\r\n$3\r\none\r\nSET a 1\x1fGET a\x1f";
    let replies = b"ERROR: NOAUTH Authentication required.\x1f+OK\r\nOK\x1f1\x1f";
    check(locked(UNIT_SEPARATOR).address(), requests, replies, usize::MAX);
}

#[test]
fn a_value_that_does_not_fit_is_told() {
    let kv = KvService::start(LARDER, "text_protocol = \"unit-separator\"\nmaxmemory = \"2MiB\"\n");
    let set = format!("SET big {}", "v".repeat(4 << 20));
    // The server closes the connection instead of reading the rest of a value that it can never store.
    assert_eq!(ask(&kv, &[&set]), ["ERROR: Internal error"]);
    assert_eq!(ask(&kv, &["GET big", "SET small 1", "GET small"]), ["(nil)", "OK", "1"]);
}
