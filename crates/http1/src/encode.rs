//! Writers for response heads, interim responses and the chunked coding.
//!
//! They append to the caller's buffer and allocate nothing else. Bytes that could end a line early are refused, and
//! the buffer then stays unchanged.

use core::num::NonZeroU64;

use crate::fields::{FieldLine, is_field_value, is_token};
use crate::status::reason_phrase;
use crate::trailers::is_forbidden_trailer;

/// The reason why a part of a message is not written. The buffer is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The status code doesn't have three digits, or isn't allowed for this writer.
    #[error("the status code cannot be written here")]
    InvalidStatus,
    /// CR, LF or another control byte in the reason phrase.
    #[error("the reason phrase has an invalid byte")]
    InvalidReason,
    /// The field name is not a token.
    #[error("a field name is not a token")]
    InvalidFieldName,
    /// CR, LF or another control byte in the value.
    #[error("a field value has an invalid byte")]
    InvalidFieldValue,
}

/// The end of the data of each chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// The end of a chunked body without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Appends `HTTP/1.1 200 OK` and a line end. The version is the server's, not the client's. Without a `reason`, writes
/// the registered phrase, or an empty one.
///
/// # Errors
///
/// Returns [`EncodeError::InvalidStatus`] outside of 100 to 999, or [`EncodeError::InvalidReason`].
//= RFC 9112 section 4: status-line = HTTP-version SP status-code SP [ reason-phrase ]
//= RFC 9110 section 2.5: a server sends its own minor version
pub fn write_status_line(out: &mut Vec<u8>, status: u16, reason: Option<&[u8]>) -> Result<(), EncodeError> {
    if !(100..=999).contains(&status) {
        return Err(EncodeError::InvalidStatus);
    }
    if reason.is_some_and(|reason| !is_field_value(reason)) {
        return Err(EncodeError::InvalidReason);
    }
    let reason = reason.unwrap_or_else(|| reason_phrase(status).as_bytes());
    let digit = |number: u16| b'0' + (number % 10) as u8;
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(&[digit(status / 100), digit(status / 10), digit(status), b' ']);
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Appends one field line.
///
/// # Errors
///
/// Returns [`EncodeError::InvalidFieldName`] or [`EncodeError::InvalidFieldValue`].
//= RFC 9112 section 5: field-line = field-name ":" OWS field-value OWS
pub fn write_field(out: &mut Vec<u8>, name: &str, value: &[u8]) -> Result<(), EncodeError> {
    if !is_token(name.as_bytes()) {
        return Err(EncodeError::InvalidFieldName);
    }
    if !is_field_value(value) {
        return Err(EncodeError::InvalidFieldValue);
    }
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Appends a field line with a number: Content-Length, Age. The name is a constant in the code, so it is not checked.
pub fn write_field_number(out: &mut Vec<u8>, name: &'static str, value: u64) {
    debug_assert!(is_token(name.as_bytes()));
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends the empty line that ends a head.
pub fn end_head(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// Appends a whole interim response: any status below 200 except 101, which is a final response for the connection and
/// has its own head.
///
/// # Errors
///
/// Returns [`EncodeError::InvalidStatus`] for 101 and from 200 on, or the error of an invalid line.
//= RFC 9110 section 15.2: a 1xx response ends with its header section
pub fn write_interim<'a>(
    out: &mut Vec<u8>,
    status: u16,
    lines: impl IntoIterator<Item = FieldLine<'a>>,
) -> Result<(), EncodeError> {
    if !(100..200).contains(&status) || status == 101 {
        return Err(EncodeError::InvalidStatus);
    }
    whole_or_nothing(out, |out| {
        write_status_line(out, status, None)?;
        write_lines(out, lines)
    })
}

/// Returns the line before the data of a chunk. [`CHUNK_END`] follows the data. The length is never 0, because that
/// would end the body.
//= RFC 9112 section 7.1: chunked transfer coding
pub fn write_chunk_head(data_bytes: NonZeroU64, out: &mut [u8; 18]) -> &[u8] {
    out[16] = b'\r';
    out[17] = b'\n';
    let mut left = data_bytes.get();
    let mut start = 16;
    while left > 0 {
        start -= 1;
        out[start] = b"0123456789abcdef"[(left & 0xf) as usize];
        left >>= 4;
    }
    &out[start..]
}

/// Appends the last chunk and the trailer section. Leaves out fields that are forbidden in trailers.
///
/// # Errors
///
/// Returns the error of an invalid line.
//= RFC 9112 section 7.1.2: chunked trailer section
pub fn write_last_chunk<'a>(
    out: &mut Vec<u8>,
    trailers: impl IntoIterator<Item = FieldLine<'a>>,
) -> Result<(), EncodeError> {
    whole_or_nothing(out, |out| {
        out.extend_from_slice(b"0\r\n");
        write_lines(out, trailers.into_iter().filter(|line| !is_forbidden_trailer(line.0)))
    })
}

fn write_lines<'a>(
    out: &mut Vec<u8>,
    lines: impl IntoIterator<Item = FieldLine<'a>>,
) -> Result<(), EncodeError> {
    for (name, value) in lines {
        write_field(out, name, value)?;
    }
    end_head(out);
    Ok(())
}

fn whole_or_nothing(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let before = out.len();
    let written = write(out);
    if written.is_err() {
        out.truncate(before);
    }
    written
}
