//! Replies in the client's protocol version.

use std::ops::Range;
use std::sync::Arc;

use engine::{Stored, Value};

use crate::output::Output;
use crate::posted::Posted;
use crate::repeated;

/// The protocol version chosen by HELLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Version {
    #[default]
    Resp2,
    Resp3,
}

impl Version {
    /// The version number in HELLO.
    pub(crate) fn number(self) -> usize {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// Maximum size of an error that quotes the client.
const ERROR_BYTES_MAX: usize = 16 << 10;
/// Shorter parts of values are copied, so that a small part doesn't keep a large value alive.
pub(crate) const SHARED_FROM: usize = 16 << 10;

/// Appends replies to an output.
#[derive(Debug)]
pub(crate) struct Reply<'a> {
    pub(crate) out: &'a mut Output,
    pub(crate) version: Version,
}

impl Reply<'_> {
    pub(crate) fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// Writes an error. `text` begins with the code, such as `ERR`. Line ends become spaces, because they
    /// would begin another reply.
    pub(crate) fn error(&mut self, text: &str) {
        self.out.push(b'-');
        let bytes = repeated::bytes(text)
            .take(ERROR_BYTES_MAX)
            .map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte });
        self.out.bytes_mut().extend(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    pub(crate) fn integer(&mut self, number: i64) {
        self.integer_of(itoa::Buffer::new().format(number).as_bytes());
    }

    /// Writes an integer given as digits.
    pub(crate) fn integer_of(&mut self, digits: &[u8]) {
        self.line(b':', digits);
    }

    pub(crate) fn double(&mut self, number: f64) {
        let text = number.to_string();
        match self.version {
            Version::Resp2 => self.bulk(text.as_bytes()),
            Version::Resp3 => self.line(b',', text.as_bytes()),
        }
    }

    /// Writes a number given as text.
    pub(crate) fn float(&mut self, text: &str) {
        match self.version {
            Version::Resp2 => self.bulk(text.as_bytes()),
            Version::Resp3 => self.line(b',', text.as_bytes()),
        }
    }

    /// Writes a count; no count in memory exceeds 2^63.
    pub(crate) fn count(&mut self, number: usize) {
        self.integer(number as i64);
    }

    #[inline]
    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        if self.out.has_room(bytes.len()) {
            self.short_bulk(bytes);
        }
    }

    /// Writes a bulk string of bounded size, such as a value that is not large.
    #[inline]
    pub(crate) fn short_bulk(&mut self, bytes: &[u8]) {
        resp::append_bulk(self.out.bytes_mut(), bytes);
    }

    /// Writes a value as a bulk string. A large value is neither copied nor decompressed.
    pub(crate) fn value(&mut self, value: &Value<'_>) {
        match value {
            Value::Inline(bytes) => self.short_bulk(bytes),
            Value::Large(stored) => self.part(stored, 0..stored.value_bytes()),
        }
    }

    /// Writes a part of a large value as a bulk string. A large part is not copied, and a compressed one is
    /// decompressed when it is sent, so that no transaction has to wait for it.
    pub(crate) fn part(&mut self, stored: &Stored, range: Range<usize>) {
        match stored {
            Stored::Plain(value) if range.len() < SHARED_FROM => return self.short_bulk(&value[range]),
            Stored::Packed(_) if !self.out.has_room_to_unpack(range.len()) => return,
            _ => {}
        }
        self.length(b'$', range.len());
        self.out.share(stored.clone(), range);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes a bulk string shared with other recipients.
    pub(crate) fn posted(&mut self, message: &Arc<Posted>) {
        self.length(b'$', message.bytes().len());
        self.out.share_message(message);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes a value, or null.
    pub(crate) fn value_or_null(&mut self, value: Option<&Value<'_>>) {
        match value {
            Some(value) => self.value(value),
            None => self.null(),
        }
    }

    /// Inserts the header of an array before its elements, which were written at `begin` before their number
    /// was known.
    pub(crate) fn array_since(&mut self, begin: usize, length: usize) {
        let line = format!("*{length}\r\n");
        self.out.insert(begin, line.as_bytes());
    }

    pub(crate) fn null(&mut self) {
        let bytes: &[u8] = if self.version == Version::Resp3 { b"_\r\n" } else { b"$-1\r\n" };
        self.out.extend_from_slice(bytes);
    }

    pub(crate) fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Writes the null for an array.
    pub(crate) fn null_array(&mut self) {
        let bytes: &[u8] = if self.version == Version::Resp3 { b"_\r\n" } else { b"*-1\r\n" };
        self.out.extend_from_slice(bytes);
    }

    /// Begins a push message of `length` elements.
    pub(crate) fn push(&mut self, length: usize) {
        self.length(if self.version == Version::Resp3 { b'>' } else { b'*' }, length);
    }

    /// Begins an array of `length` elements.
    pub(crate) fn array(&mut self, length: usize) {
        self.length(b'*', length);
    }

    /// Begins a map; keys and values follow.
    pub(crate) fn map(&mut self, pairs: usize) {
        match self.version {
            Version::Resp2 => self.length(b'*', pairs * 2),
            Version::Resp3 => self.length(b'%', pairs),
        }
    }

    /// Begins a set of `length` distinct elements.
    pub(crate) fn set(&mut self, length: usize) {
        self.length(if self.version == Version::Resp3 { b'~' } else { b'*' }, length);
    }

    /// Writes text for people, as a verbatim string if the protocol has them.
    pub(crate) fn text(&mut self, text: &str) {
        match self.version {
            Version::Resp2 => self.bulk(text.as_bytes()),
            Version::Resp3 if self.out.has_room(text.len()) => {
                self.length(b'=', text.len() + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
            Version::Resp3 => {}
        }
    }

    fn length(&mut self, kind: u8, length: usize) {
        self.line(kind, itoa::Buffer::new().format(length).as_bytes());
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::Arc;

    use engine::{Access, Database, Engine, Expiry, Policy, Settings};

    use super::*;

    #[test]
    fn values_stand_where_they_were_asked_for() {
        let engine =
            Engine::new(&Settings { bytes_max: 16 << 20, policy: Policy::default(), seed: 1, threads: 1 });
        engine.set_pack_from_bytes(20_000);
        let long = b"again ".repeat(5_000);
        let mut out = Output::default();
        let mut reply = Reply { out: &mut out, version: Version::Resp3 };
        let values: [Option<&[u8]>; 6] =
            [None, Some(&long), Some(b"one"), Some(&long), Some(&long), Some(b"two")];
        for (number, value) in values.into_iter().enumerate() {
            let name = number.to_string();
            let key = engine.key(Database::default(), name.as_bytes());
            let mut located = engine.lock(&key);
            if let Some(value) = value {
                let stored = engine.pack(Arc::new(value.to_vec()));
                located.set_stored(stored, Expiry::Never, 0).expect("there is room");
            }
            reply.value_or_null(located.get(Access::Use, 0).map(|found| found.value).as_ref());
        }
        assert!(out.own_bytes() < 2_000, "nothing is unpacked yet");
        let (mut told, mut expected) = (Vec::new(), Output::default());
        out.append_to(&mut told);
        let mut reply = Reply { out: &mut expected, version: Version::Resp3 };
        values.into_iter().for_each(|value| reply.bulk_or_null(value));
        assert!(told == expected.bytes());
    }
}
