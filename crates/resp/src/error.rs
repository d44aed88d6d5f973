//! Errors in messages.

use thiserror::Error;

/// A problem with a message and its position. The connection can't continue, because the start of the next
/// message is unknown.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("byte {at}: {problem}")]
pub struct DecodeError {
    /// Offset from the first byte of the message.
    pub at: usize,
    /// The problem found there.
    pub problem: Problem,
}

/// A problem with a message.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The first byte of a value is not a type of RESP2 or RESP3.
    #[error("no type of value begins with the byte {0:#04x}")]
    UnknownType(u8),
    /// An argument of a request is not a bulk string.
    #[error("an argument of a request has to be a bulk string, which begins with $")]
    NotBulk,
    /// CR without LF, or LF without CR.
    #[error("a line has to end in CR LF, and may contain neither before that")]
    LineEnd,
    /// A bulk string is not followed by CR LF.
    #[error("a bulk string has to end in CR LF")]
    BulkEnd,
    /// A length is not a number.
    #[error("a length has to be plain digits")]
    Length,
    /// A streamed type of RESP3, such as `$?` or `*?`.
    #[error("streamed types are not supported")]
    Streamed,
    /// An integer is not a number, or doesn't fit in 64 bits.
    #[error("an integer has to be a number of 64 bits")]
    Integer,
    /// A double is not a number.
    #[error("a double has to be a number, inf, -inf or nan")]
    Double,
    /// A boolean is neither `t` nor `f`.
    #[error("a boolean has to be t or f")]
    Boolean,
    /// A big number has characters other than digits.
    #[error("a big number has to be digits")]
    BigNumber,
    /// A null is not empty.
    #[error("a null has to be empty")]
    Null,
    /// A verbatim string lacks its format.
    #[error("a verbatim string has to begin with three bytes and a colon")]
    Verbatim,
    /// An inline command has an unbalanced quote.
    #[error("a quote of an inline command does not end, or something follows it")]
    Quote,
    /// Aggregates are nested deeper than [`Limits::depth_max`](crate::Limits::depth_max).
    #[error("aggregates may be nested at most {limit} deep")]
    DepthOverLimit { limit: usize },
    /// A message has more values than [`Limits::elements_max`](crate::Limits::elements_max).
    #[error("a message may have at most {limit} values")]
    ElementsOverLimit { limit: usize },
    /// A bulk string is longer than [`Limits::bulk_bytes_max`](crate::Limits::bulk_bytes_max).
    #[error("a bulk string may have at most {limit} bytes")]
    BulkOverLimit { limit: usize },
    /// A line is longer than [`Limits::line_bytes_max`](crate::Limits::line_bytes_max).
    #[error("a line may have at most {limit} bytes")]
    LineOverLimit { limit: usize },
    /// The bytes that [`Value::parse`](crate::Value::parse) was given are shorter or longer than one value.
    #[error("the bytes are not one whole value")]
    NotWhole,
}

impl Problem {
    pub(crate) fn at(self, at: usize) -> DecodeError {
        DecodeError { at, problem: self }
    }
}
