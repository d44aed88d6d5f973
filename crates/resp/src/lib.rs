//! The Redis protocol (RESP2 and RESP3) and the 0x1F text protocol. Pure parsing and encoding, without IO or
//! a clock.
//!
//! The crate finds the end of each reply and request and decodes it. It never interprets commands, and keeps
//! no state from one message to the next.
//!
//! - [`Scanner`] finds the end of a reply in a growing buffer; [`Value::parse`] decodes it and borrows from
//!   the buffer; [`Value::encode`] encodes it.
//! - [`RequestScanner`] finds the arguments of a request, either an array of bulk strings or an inline
//!   command; [`encode_command`] encodes one. [`ShortScanner`] is a fast path for requests such as GET and SET,
//!   which it returns as a [`Short`].
//! - [`separator`] is the text protocol with messages that end in 0x1F.
//! - [`hash_slot`] returns the cluster slot of a key.
//!
//! The references are the Redis serialization protocol specification (<https://redis.io/docs/latest/develop/reference/protocol-spec/>)
//! and the Redis Cluster specification (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>).
//!
//! The result doesn't depend on how the bytes are split into reads: messages and errors are the same. A
//! scanner reads no byte of a bulk string twice, and allocates nothing for bytes that haven't arrived.
//! Everything that a peer can make large has a limit ([`Limits`]), which is checked before the bytes arrive.
//!
//! Parsing is stricter than the specification: each line ends in CRLF, a simple string contains neither CR
//! nor LF, and a length is plain digits (or `-1` for the nulls of RESP2). The streamed types of RESP3, which
//! no server sends, are refused.
//!
//! ```
//! use resp::{Limits, Scanner, Value};
//!
//! let mut scanner = Scanner::new(Limits::default());
//! assert_eq!(scanner.scan(b"*2\r\n:1\r\n$5\r\nhel")?, None);
//! let buffer = b"*2\r\n:1\r\n$5\r\nhello\r\n+OK\r\n";
//! let length = scanner.scan(buffer)?.expect("all of it is here");
//! let value = Value::parse(&buffer[..length], &Limits::default())?;
//! assert_eq!(value, Value::Array(vec![Value::Integer(1), Value::Bulk(b"hello")]));
//! assert_eq!(&buffer[length..], b"+OK\r\n");
//! # Ok::<(), resp::DecodeError>(())
//! ```

mod append;
mod error;
mod line;
mod parse;
mod quick;
mod request;
mod scan;
pub mod separator;
mod slot;
mod value;

pub use append::append_bulk;
pub use error::{DecodeError, Problem};
pub use quick::{Short, ShortScanner};
pub use request::{Arguments, Begun, RequestScanner, encode_command};
pub use scan::Scanner;
pub use slot::{SLOTS, hash_slot};
pub use value::Value;

/// Limits on the messages of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nesting depth of aggregates.
    pub depth_max: usize,
    /// Values in one message, summed over all of its aggregates. For a request, its arguments; inline
    /// commands are limited by `line_bytes_max` instead.
    pub elements_max: usize,
    /// Bytes of one bulk string.
    pub bulk_bytes_max: usize,
    /// Bytes of one simple string, error, number or inline command, without its line end.
    pub line_bytes_max: usize,
}

impl Default for Limits {
    /// 32 levels, 1,048,576 values, bulk strings of 512 MiB and lines of 64 KiB, as in Redis.
    fn default() -> Self {
        Self { depth_max: 32, elements_max: 1 << 20, bulk_bytes_max: 512 << 20, line_bytes_max: 64 << 10 }
    }
}
