//! `larder kv` beside Redis: the same bytes to both give the same bytes from both.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use testkit::{Kv, Redis, Signal, converse};

use crate::LARDER;

fn start(arguments: &[&str]) -> Kv {
    Kv::start(LARDER, arguments)
}

fn conversations(extension: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/resp");
    let files = fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|end| end == extension)).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

/// What stands between the commands of a conversation, so that each reply is known.
fn mark(number: usize) -> String {
    format!("mark-{number}")
}

fn replies(address: SocketAddr, commands: &[&str], piece_bytes: usize) -> Vec<String> {
    let numbered = commands.iter().enumerate();
    let lines = numbered.map(|(number, command)| format!("{command}\r\nECHO {}\r\n", mark(number)));
    let text = converse(
        address,
        format!("FLUSHALL\r\n{}QUIT\r\n", lines.collect::<String>()).as_bytes(),
        piece_bytes,
    );
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut rest = text.as_str();
    let numbers = 0..commands.len();
    numbers
        .map(|number| {
            let mark = mark(number);
            let end = format!("${}\r\n{mark}\r\n", mark.len());
            let (reply, behind) = rest.split_once(&end).unwrap_or_else(|| panic!("no {mark} in {rest:?}"));
            rest = behind;
            reply.to_owned()
        })
        .collect()
}

#[test]
fn commands_are_answered_as_redis_answers_them() {
    let (redis, kv) = (Redis::start(""), start(&["--maxmemory", "64MiB", "--workers", "1"]));
    for file in conversations("commands") {
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

/// `\r`, `\n`, `\\` and `\xHH`.
fn unescape(line: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = line.bytes();
    while let Some(byte) = rest.next() {
        let escaped = if byte == b'\\' { rest.next() } else { None };
        bytes.push(match escaped {
            None => byte,
            Some(b'r') => b'\r',
            Some(b'n') => b'\n',
            Some(other) => other,
        });
        if escaped == Some(b'x') {
            bytes.pop();
            bytes.extend_from_slice(b"\\x");
        }
    }
    bytes
}

#[test]
fn what_is_no_request_is_answered_as_redis_answers_it() {
    let (redis, kv) = (Redis::start(""), start(&["--maxmemory", "64MiB"]));
    for file in conversations("malformed") {
        for line in fs::read_to_string(&file).expect("the file").lines() {
            let request = unescape(line);
            let expected = converse(redis.address(), &request, usize::MAX);
            for piece_bytes in [usize::MAX, 7, 1] {
                let given = converse(kv.address(), &request, piece_bytes);
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                assert_eq!(text(&given), text(&expected), "{line}, in pieces of {piece_bytes}");
            }
        }
    }
}

#[test]
fn it_ends_when_it_is_told() {
    let mut kv = start(&["--workers", "2"]);
    let mut stream = TcpStream::connect(kv.address()).expect("it listens");
    stream.write_all(b"PING\r\n").expect("it reads");
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).expect("it answers");
    assert_eq!(&reply, b"+PONG\r\n");
    kv.service.signal(Signal::TERM);
    assert!(kv.service.end().success());
    assert_eq!(stream.read(&mut reply).expect("the connection ends"), 0);
}

#[test]
fn a_limit_that_is_too_small_is_told() {
    let output = testkit::run(LARDER, ["kv", "--maxmemory", "1MiB"]);
    assert!(output.status != 0 && output.stderr.contains("expected a size from 2MiB"), "{}", output.stderr);
}

#[test]
fn memory_stays_within_its_limit() {
    let kv = start(&["--maxmemory", "32MiB", "--workers", "1"]);
    let value = "v".repeat(1000);
    let commands: String = (0..100_000).map(|number| format!("SET key-{number} {value}\r\n")).collect();
    let begin = kv.service.resident_bytes();
    let replies = converse(kv.address(), commands.as_bytes(), 1 << 16);
    assert_eq!(replies.len(), 100_000 * 5, "every SET is answered with +OK");
    let grown = kv.service.resident_bytes() - begin;
    assert!(grown < 36 << 20, "{grown} bytes for a limit of 32 MiB");
}
