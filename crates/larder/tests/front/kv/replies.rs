//! `larder kv` compared with Redis: the same requests get the same replies, byte by byte.

use std::fs;
use std::net::SocketAddr;

use testkit::{Kv, Redis, converse};

use super::sessions::scenario::files;
use crate::LARDER;

/// A marker echoed after each command of a conversation, so that the replies can be told apart.
fn mark(number: usize) -> String {
    format!("mark-{number}")
}

fn replies(address: SocketAddr, commands: &[&str], piece_bytes: usize) -> Vec<String> {
    let numbered = commands.iter().enumerate();
    let lines: String =
        numbered.map(|(number, command)| format!("{command}\r\nECHO {}\r\n", mark(number))).collect();
    let text = converse(address, format!("FLUSHALL\r\n{lines}QUIT\r\n").as_bytes(), piece_bytes);
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut rest = text.as_str();
    let reply = |number| {
        let mark = mark(number);
        let end = format!("${}\r\n{mark}\r\n", mark.len());
        let (reply, behind) = rest.split_once(&end).unwrap_or_else(|| panic!("no {mark} in {rest:?}"));
        rest = behind;
        reply.to_owned()
    };
    (0..commands.len()).map(reply).collect()
}

#[test]
fn commands_are_answered_as_redis_answers_them() {
    let (redis, kv) = (Redis::start(""), Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "1"]));
    for file in files("commands") {
        let text = fs::read_to_string(&file).expect("the file");
        let commands: Vec<&str> =
            text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        let expected = replies(redis.address(), &commands, usize::MAX);
        for piece_bytes in [usize::MAX, 7, 1] {
            let given = replies(kv.address(), &commands, piece_bytes);
            let different = commands.iter().zip(given.iter().zip(&expected));
            let different: Vec<_> = different.filter(|(_, (given, expected))| given != expected).collect();
            assert!(different.is_empty(), "{}, in pieces of {piece_bytes}: {different:#?}", file.display());
        }
    }
}

/// Replaces `\r`, `\n`, `\\`, and `\xHH` if `is_hex`: otherwise the server unescapes it.
pub(crate) fn unescape(line: &str, is_hex: bool) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), line);
    while let Some(begin) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..begin]);
        let mut length = 2;
        match rest.as_bytes().get(begin + 1) {
            Some(b'r') => bytes.push(b'\r'),
            Some(b'n') => bytes.push(b'\n'),
            Some(b'x') if is_hex => {
                length = 4;
                bytes.push(u8::from_str_radix(&rest[begin + 2..begin + 4], 16).expect("two digits"));
            }
            Some(b'x') => bytes.extend(b"\\x"),
            Some(other) => bytes.push(*other),
            None => length = 1,
        }
        rest = &rest[begin + length..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

#[test]
fn malformed_requests_are_answered_as_redis_answers_them() {
    let (redis, kv) = (Redis::start(""), Kv::start(LARDER, &["--maxmemory", "64MiB"]));
    let files = files("malformed").into_iter().map(|file| fs::read_to_string(file).expect("the file"));
    for line in files.collect::<String>().lines() {
        let request = unescape(line, false);
        let text = |address, piece_bytes| {
            String::from_utf8_lossy(&converse(address, &request, piece_bytes)).into_owned()
        };
        let expected = text(redis.address(), usize::MAX);
        for piece_bytes in [usize::MAX, 7, 1] {
            assert_eq!(text(kv.address(), piece_bytes), expected, "{line}, in pieces of {piece_bytes}");
        }
    }
}
