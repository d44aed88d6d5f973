//! A client of the Redis protocol, with any bytes as keys and values.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use resp::{Limits, Scanner, Value};

use crate::wait::connect;

/// A connection with one command at a time.
pub struct RespClient {
    stream: TcpStream,
}

impl RespClient {
    /// Connects.
    ///
    /// # Panics
    /// Panics if no server listens.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        Self { stream: connect(address) }
    }

    /// Sends a command and returns the bytes of its reply.
    ///
    /// # Panics
    /// Panics if no reply arrives.
    #[track_caller]
    pub fn ask(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        resp::encode_command(&mut bytes, words);
        self.stream.write_all(&bytes).expect("it reads");
        let (mut scanner, mut reply) = (Scanner::new(Limits::default()), Vec::new());
        let mut piece = [0; 16 << 10];
        while scanner.scan(&reply).expect("a reply").is_none() {
            let count = self.stream.read(&mut piece).expect("it answers");
            assert!(count > 0, "it closed within {}", reply.escape_ascii());
            reply.extend_from_slice(&piece[..count]);
        }
        reply
    }

    /// Returns the string under a key; `None` if there is none.
    #[track_caller]
    pub fn value(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        strings(&self.ask(&[b"GET", key])).pop()
    }

    /// Returns the strings of the reply to a command.
    #[track_caller]
    pub fn strings(&mut self, words: &[&[u8]]) -> Vec<Vec<u8>> {
        strings(&self.ask(words))
    }

    /// Returns the names that match this pattern.
    #[track_caller]
    pub fn names(&mut self, pattern: &str) -> Vec<Vec<u8>> {
        strings(&self.ask(&[b"KEYS", pattern.as_bytes()]))
    }
}

/// Returns the strings in a reply, which is an array of strings or a single string.
fn strings(reply: &[u8]) -> Vec<Vec<u8>> {
    let value = Value::parse(reply, &Limits::default()).expect("the scanner found the end of the reply");
    let parts = match value {
        Value::Array(parts) => parts,
        value => vec![value],
    };
    let string = |part| match part {
        Value::Bulk(bytes) => Some(bytes.to_vec()),
        _ => None,
    };
    parts.into_iter().filter_map(string).collect()
}
