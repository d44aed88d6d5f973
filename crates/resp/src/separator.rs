//! The text protocol with messages that end in 0x1F (unit separator).
//!
//! A request is a verb, a space, a key and, for SET, a space and a value. A reply is text. Replies come in
//! the order of the requests; empty messages are skipped. A key contains no space, NUL or 0x1F; a value
//! contains no NUL or 0x1F.
//!
//! | request | reply |
//! |---|---|
//! | `SET key value` | `OK` |
//! | `GET key` | the value, or `(nil)` |
//! | `DEL key` | `OK`, or `ERROR: Key does not exist` |
//! | anything else | `ERROR: ` and the problem |

use thiserror::Error;

/// The byte that ends each message.
pub const SEPARATOR: u8 = 0x1F;

/// The reply to a SET, and to a DEL of an existing key.
pub const OK: &[u8] = b"OK";
/// The reply to a GET of a missing key.
pub const NIL: &[u8] = b"(nil)";
/// The reply to a DEL of a missing key.
pub const NO_KEY: &[u8] = b"ERROR: Key does not exist";
/// The prefix of error replies.
pub const ERROR_PREFIX: &[u8] = b"ERROR: ";

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    Get { key: &'a [u8] },
    Set { key: &'a [u8], value: &'a [u8] },
    Del { key: &'a [u8] },
}

/// An invalid request. The text follows [`ERROR_PREFIX`] in the reply.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RequestError {
    /// The message has no space.
    #[error("Unable to parse request")]
    NoSpace,
    /// The key, or the value of a SET, is missing.
    #[error("Invalid command format")]
    Incomplete,
    /// The verb is not GET, SET or DEL in capital letters.
    #[error("Unknown command")]
    UnknownVerb,
}

/// A key or value that the protocol can't represent.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum EncodeError {
    #[error("a key must not be empty or contain a space, NUL or 0x1F")]
    Key,
    #[error("a value must not contain NUL or 0x1F")]
    Value,
}

/// Returns the length of the message at the beginning of `bytes` without its separator, or `None` if it is
/// incomplete. `seen` is the number of bytes already searched by the previous call.
#[must_use]
pub fn message_length(bytes: &[u8], seen: usize) -> Option<usize> {
    let rest = bytes.get(seen..)?;
    memchr::memchr(SEPARATOR, rest).map(|at| seen + at)
}

impl<'a> Request<'a> {
    /// Parses a message without its separator. Words after the key of GET and DEL are ignored.
    ///
    /// # Errors
    /// If it is not a valid request. The error is the text of the reply.
    pub fn parse(message: &'a [u8]) -> Result<Self, RequestError> {
        let (verb, rest) = split_at_space(message).ok_or(RequestError::NoSpace)?;
        let (key, value) = split_at_space(rest).map_or((rest, None), |(key, value)| (key, Some(value)));
        match (verb, value) {
            (b"GET" | b"SET" | b"DEL", _) if key.is_empty() => Err(RequestError::Incomplete),
            (b"GET", _) => Ok(Self::Get { key }),
            (b"DEL", _) => Ok(Self::Del { key }),
            (b"SET", Some(value)) => Ok(Self::Set { key, value }),
            (b"SET", None) => Err(RequestError::Incomplete),
            _ => Err(RequestError::UnknownVerb),
        }
    }

    /// Appends the message with its separator.
    ///
    /// # Errors
    /// If the protocol can't represent the key or value. Nothing is appended in that case.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (verb, key, value): (&[u8], _, _) = match *self {
            Self::Get { key } => (b"GET ", key, None),
            Self::Set { key, value } => (b"SET ", key, Some(value)),
            Self::Del { key } => (b"DEL ", key, None),
        };
        if key.is_empty() || memchr::memchr3(b' ', 0, SEPARATOR, key).is_some() {
            return Err(EncodeError::Key);
        }
        if value.is_some_and(|value| memchr::memchr2(0, SEPARATOR, value).is_some()) {
            return Err(EncodeError::Value);
        }
        out.extend_from_slice(verb);
        out.extend_from_slice(key);
        if let Some(value) = value {
            out.push(b' ');
            out.extend_from_slice(value);
        }
        out.push(SEPARATOR);
        Ok(())
    }
}

/// Appends a reply with its separator.
///
/// # Errors
/// If the protocol can't represent the text. Nothing is appended in that case.
pub fn encode_reply(out: &mut Vec<u8>, text: &[u8]) -> Result<(), EncodeError> {
    if memchr::memchr2(0, SEPARATOR, text).is_some() {
        return Err(EncodeError::Value);
    }
    out.extend_from_slice(text);
    out.push(SEPARATOR);
    Ok(())
}

fn split_at_space(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = memchr::memchr(b' ', text)?;
    Some((&text[..space], &text[space + 1..]))
}
