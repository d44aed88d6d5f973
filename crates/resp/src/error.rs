//! Bytes that are no message.

use thiserror::Error;

/// What is wrong with the bytes, and where. The connection can't go on: where the next message begins is unknown.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("byte {at}: {problem}")]
pub struct DecodeError {
    /// Counted from the first byte of the message.
    pub at: usize,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The first byte of a value names no type.
    #[error("no type of value begins with the byte {0:#04x}")]
    UnknownType(u8),
    /// An argument of a request is something else than a bulk string.
    #[error("an argument of a request has to be a bulk string, which begins with $")]
    NotBulk,
    /// CR without LF, or LF without CR.
    #[error("a line has to end in CR LF, and may have neither before")]
    LineEnd,
    /// The bytes after a bulk string.
    #[error("a bulk string has to end in CR LF")]
    BulkEnd,
    /// A length that is no number.
    #[error("a length has to be plain digits")]
    Length,
    /// `$?`, `*?` and their like.
    #[error("streamed types are not supported")]
    Streamed,
    /// An integer that is no number, or not one of 64 bits.
    #[error("an integer has to be one of 64 bits")]
    Integer,
    /// A double that is no number.
    #[error("a double has to be a number, inf, -inf or nan")]
    Double,
    /// A boolean that is neither.
    #[error("a boolean has to be t or f")]
    Boolean,
    /// A big number with something else than digits.
    #[error("a big number has to be digits")]
    BigNumber,
    /// A null with something in it.
    #[error("a null has to be empty")]
    Null,
    /// A verbatim string without its kind.
    #[error("a verbatim string has to begin with three bytes and a colon")]
    Verbatim,
    /// An inline command with a quote that does not end.
    #[error("a quote of an inline command does not end, or something follows it")]
    Quote,
    /// Above [`Limits::depth_max`](crate::Limits::depth_max).
    #[error("aggregates may be at most {limit} deep")]
    DepthOverLimit { limit: usize },
    /// Above [`Limits::elements_max`](crate::Limits::elements_max).
    #[error("a message may have at most {limit} values")]
    ElementsOverLimit { limit: usize },
    /// Above [`Limits::bulk_bytes_max`](crate::Limits::bulk_bytes_max).
    #[error("a bulk string may have at most {limit} bytes")]
    BulkOverLimit { limit: usize },
    /// Above [`Limits::line_bytes_max`](crate::Limits::line_bytes_max).
    #[error("a line may have at most {limit} bytes")]
    LineOverLimit { limit: usize },
    /// Bytes that [`Value::parse`](crate::Value::parse) was given end before the value, or go on after it.
    #[error("the bytes are not one whole value")]
    NotWhole,
}

impl Problem {
    pub(crate) fn at(self, at: usize) -> DecodeError {
        DecodeError { at, problem: self }
    }
}
