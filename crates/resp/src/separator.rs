//! The text protocol whose messages end with 0x1F (unit separator).
//!
//! A request is a verb, a space, a key and, for SET, a space and a value. A reply is text. Replies come in the order of
//! the requests; empty messages are skipped. A key has neither space nor NUL nor 0x1F, a value neither NUL nor 0x1F.
//!
//! | request | reply |
//! |---|---|
//! | `SET key value` | `OK` |
//! | `GET key` | the value, or `(nil)` |
//! | `DEL key` | `OK`, or `ERROR: Key does not exist` |
//! | anything else | `ERROR: ` and what is wrong |

use thiserror::Error;

/// Ends each message.
pub const SEPARATOR: u8 = 0x1F;

/// SET was done, or DEL found the key.
pub const OK: &[u8] = b"OK";
/// GET found nothing.
pub const NIL: &[u8] = b"(nil)";
/// DEL found nothing.
pub const NO_KEY: &[u8] = b"ERROR: Key does not exist";
/// Begins each reply that is an error.
pub const ERROR_PREFIX: &[u8] = b"ERROR: ";

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    Get { key: &'a [u8] },
    Set { key: &'a [u8], value: &'a [u8] },
    Del { key: &'a [u8] },
}

/// A request that can't be carried out; the text is that of the reply, after [`ERROR_PREFIX`].
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RequestError {
    /// There is no space in it.
    #[error("Unable to parse request")]
    NoSpace,
    /// There is no key, or a SET without a value.
    #[error("Invalid command format")]
    Incomplete,
    /// Verbs are GET, SET and DEL, in capital letters.
    #[error("Unknown command")]
    UnknownVerb,
}

/// What keeps a key or a value from being sent.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum EncodeError {
    #[error("a key may hold neither a space nor NUL nor 0x1F, and not be empty")]
    Key,
    #[error("a value may hold neither NUL nor 0x1F")]
    Value,
}

/// Bytes of the message with which `bytes` begin, without its separator; none while that is missing. Look from `seen`
/// on, which is how many bytes were there the last time.
#[must_use]
pub fn message_length(bytes: &[u8], seen: usize) -> Option<usize> {
    let rest = bytes.get(seen..)?;
    memchr::memchr(SEPARATOR, rest).map(|at| seen + at)
}

impl<'a> Request<'a> {
    /// Reads a message without its separator. What follows the key of GET and DEL is ignored.
    ///
    /// # Errors
    /// When it is not a request; the error is what to reply.
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
    /// When key or value hold what the protocol has no way to say; nothing is appended then.
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
/// When it holds what the protocol has no way to say; nothing is appended then.
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
