//! Turns fuzzer bytes into header sections: lines of `name: value` that a strict parser accepts.

use caching::FieldLine;

/// Returns the lines of a section; names are tokens, and values have no line ends.
pub fn lines(bytes: &[u8]) -> Vec<FieldLine<'_>> {
    bytes.split(|byte| matches!(byte, b'\n' | b'\r' | 0)).filter_map(line).collect()
}

fn line(bytes: &[u8]) -> Option<FieldLine<'_>> {
    let colon = bytes.iter().position(|byte| *byte == b':')?;
    let name = std::str::from_utf8(&bytes[..colon]).ok()?;
    let is_token = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    is_token.then(|| (name, bytes[colon + 1..].trim_ascii()))
}

/// Returns two sections, separated by an empty line.
pub fn two(bytes: &[u8]) -> (Vec<FieldLine<'_>>, Vec<FieldLine<'_>>) {
    let (one, two) = cut(bytes);
    (lines(one), lines(two))
}

/// Splits the bytes at the first empty line.
pub fn cut(bytes: &[u8]) -> (&[u8], &[u8]) {
    let at = bytes.windows(2).position(|pair| pair == b"\n\n").unwrap_or(bytes.len());
    let (one, two) = bytes.split_at(at);
    (one, two.strip_prefix(b"\n\n").unwrap_or(two))
}
