//! Field lines: their type, the token grammar, lists, and the error for an invalid line.

use crate::RequestError;

/// One field line: the name as received (compare it ASCII-case-insensitively) and the value without surrounding
/// whitespace.
pub type FieldLine<'a> = (&'a str, &'a [u8]);

/// A line for initialising storage: `[EMPTY_LINE; 100]`.
pub const EMPTY_LINE: FieldLine<'static> = ("", b"");

/// Returns whether the bytes are a token.
//= RFC 9110 section 5.6.2: tokens
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().copied().all(is_token_byte)
}

/// Returns whether a field value may contain these bytes: visible ASCII, space, tab and bytes above 127.
//= RFC 9110 section 5.5: field values
pub fn is_field_value(bytes: &[u8]) -> bool {
    bytes.iter().copied().all(is_value_byte)
}

/// Returns the non-empty elements of a comma-separated list of tokens, without surrounding whitespace. Doesn't support
/// lists with quoted strings.
//= RFC 9110 section 5.6.1.2: recipients parse and ignore empty list elements
pub fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    raw_elements(value).filter(|element| !element.is_empty())
}

/// Returns the elements of a list, including empty ones.
pub(crate) fn raw_elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

pub(crate) const fn is_token_byte(byte: u8) -> bool {
    matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'0'..=b'9' | b'A'..=b'Z' | b'^'..=b'z' | b'|' | b'~')
}

pub(crate) const fn is_value_byte(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

/// Returns the first rule that the field lines break; `section` ends in the empty line. Called only for refused
/// sections, so it may scan every byte again.
pub(crate) fn fault(section: &[u8]) -> RequestError {
    section
        .split_inclusive(|&byte| byte == b'\n')
        .enumerate()
        .find_map(|(index, line)| line_fault(index, line))
        .unwrap_or(RequestError::InvalidFieldValue)
}

fn line_fault(index: usize, line: &[u8]) -> Option<RequestError> {
    let line = line.strip_suffix(b"\r\n").unwrap_or(line);
    if line.is_empty() {
        return None;
    }
    if line.contains(&b'\r') {
        return Some(RequestError::BareCarriageReturn);
    }
    if matches!(line[0], b' ' | b'\t') {
        return Some(leading_whitespace_fault(index));
    }
    let Some(colon) = memchr::memchr(b':', line) else {
        return Some(RequestError::MissingColon);
    };
    name_fault(&line[..colon])
        .or_else(|| (!is_field_value(&line[colon + 1..])).then_some(RequestError::InvalidFieldValue))
}

//= RFC 9112 section 2.2: whitespace between the start line and the first field
//= RFC 9112 section 5.2: obsolete line folding
const fn leading_whitespace_fault(index: usize) -> RequestError {
    match index {
        0 => RequestError::WhitespaceBeforeFirstField,
        _ => RequestError::ObsoleteLineFolding,
    }
}

//= RFC 9112 section 5.1: no whitespace is allowed between the field name and colon
fn name_fault(name: &[u8]) -> Option<RequestError> {
    if is_token(name) {
        return None;
    }
    if is_token(name.trim_ascii_end()) {
        return Some(RequestError::WhitespaceBeforeColon);
    }
    Some(RequestError::InvalidFieldName)
}
