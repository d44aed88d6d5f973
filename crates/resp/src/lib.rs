//! The Redis protocol (RESP2 and RESP3) and the 0x1F text protocol. Bytes in, values out: no IO, no clock.
//!
//! It decides where each reply and each request ends, and what it says. It never decides what a command means, and
//! keeps nothing from one message to the next.
//!
//! - [`Scanner`] finds the end of a reply in a growing buffer; [`Value::parse`] reads it, borrowed from the buffer, and
//!   [`Value::encode`] writes it.
//! - [`RequestScanner`] finds the arguments of a request, an array of bulk strings or an inline command;
//!   [`encode_command`] writes one. A [`Short`] is a request in the form of GET and SET, found in a fraction of the time.
//! - [`separator`] is the text protocol whose messages end with 0x1F.
//! - [`hash_slot`] tells which slot of a cluster has a key.
//!
//! The references are the Redis serialization protocol specification (<https://redis.io/docs/latest/develop/reference/protocol-spec/>)
//! and the Redis Cluster specification (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>).
//!
//! Bytes that arrive in pieces, however they are split, give the same messages and the same errors. A scanner reads no
//! byte of a bulk string twice, and costs nothing for a message that is not there yet. Everything a peer can make large has a limit
//! ([`Limits`]), which is checked before the bytes are there.
//!
//! Stricter than the specification asks: each line ends in CRLF, a simple string holds neither CR nor LF, a length is
//! plain digits (or `-1` for the nulls of RESP2). The streamed types of RESP3, which no server sends, are refused.
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

/// What a peer may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Aggregates within aggregates.
    pub depth_max: usize,
    /// Values in one message, those of all its aggregates together; arguments of a request, but for an inline command, which is a line.
    pub elements_max: usize,
    /// Bytes of one bulk string.
    pub bulk_bytes_max: usize,
    /// Bytes of one simple string, error, number or inline command, without its line end.
    pub line_bytes_max: usize,
}

impl Default for Limits {
    /// 32 deep, 1,048,576 values, bulk strings of 512 MiB and lines of 64 KiB, as Redis has them.
    fn default() -> Self {
        Self { depth_max: 32, elements_max: 1 << 20, bulk_bytes_max: 512 << 20, line_bytes_max: 64 << 10 }
    }
}
