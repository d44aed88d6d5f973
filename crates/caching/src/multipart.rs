//! `multipart/byteranges` (RFC 9110 section 14.6): heads of parts, the end, and the exact total length.

use crate::range::write_content_range;
use crate::{ByteRange, decimal};

//= RFC 9110 section 14.6: multipart/byteranges
/// The framing of a 206 with several ranges. Every part head begins with the line end that closes the previous part; before the first part,
/// this line end is an empty preamble.
#[derive(Clone, Copy, Debug)]
pub struct Multipart<'a> {
    /// The boundary, which must not occur in the body; at most 70 characters that need no quoting.
    pub boundary: &'a [u8],
    /// `Content-Type` of the stored response, for every part.
    pub content_type: Option<&'a [u8]>,
    /// Length of the whole stored body.
    pub complete_bytes: u64,
}

impl Multipart<'_> {
    /// Appends the value of `Content-Type` of the 206.
    pub fn write_content_type(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"multipart/byteranges; boundary=");
        out.extend_from_slice(self.boundary);
    }

    /// Appends the text before the bytes of `range`.
    //= RFC 9110 section 15.3.7.2: Content-Range in each part
    pub fn write_part_head(&self, range: ByteRange, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\r\n--");
        out.extend_from_slice(self.boundary);
        if let Some(content_type) = self.content_type {
            out.extend_from_slice(b"\r\nContent-Type: ");
            out.extend_from_slice(content_type);
        }
        out.extend_from_slice(b"\r\nContent-Range: ");
        write_content_range(range, self.complete_bytes, out);
        out.extend_from_slice(b"\r\n\r\n");
    }

    /// Appends the text after the bytes of the last range.
    pub fn write_end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\r\n--");
        out.extend_from_slice(self.boundary);
        out.extend_from_slice(b"--\r\n");
    }

    /// Returns the length of the whole 206 body.
    pub fn total_bytes(&self, ranges: &[ByteRange]) -> u64 {
        let end_bytes = self.boundary.len() as u64 + END_BYTES;
        ranges.iter().fold(end_bytes, |sum, range| {
            sum.saturating_add(self.part_head_bytes(*range)).saturating_add(range.len_bytes())
        })
    }

    fn part_head_bytes(&self, range: ByteRange) -> u64 {
        let content_type =
            self.content_type.map_or(0, |value| "\r\nContent-Type: ".len() as u64 + value.len() as u64);
        let digits =
            decimal::width(range.first) + decimal::width(range.last) + decimal::width(self.complete_bytes);
        HEAD_BYTES + self.boundary.len() as u64 + content_type + digits
    }
}

const HEAD_BYTES: u64 = "\r\n--\r\nContent-Range: bytes -/\r\n\r\n".len() as u64;
const END_BYTES: u64 = "\r\n----\r\n".len() as u64;

#[cfg(test)]
mod tests {
    use super::*;

    //= RFC 9110 section 14.6: multipart/byteranges
    #[test]
    fn parts_and_their_end() {
        let multipart = Multipart { boundary: b"b", content_type: Some(b"text/plain"), complete_bytes: 9 };
        let mut out = Vec::new();
        multipart.write_part_head(ByteRange { first: 1, last: 2 }, &mut out);
        out.extend_from_slice(b"xy");
        multipart.write_end(&mut out);
        let expected =
            "\r\n--b\r\nContent-Type: text/plain\r\nContent-Range: bytes 1-2/9\r\n\r\nxy\r\n--b--\r\n";
        assert_eq!(std::str::from_utf8(&out).unwrap(), expected);
        assert_eq!(multipart.total_bytes(&[ByteRange { first: 1, last: 2 }]), out.len() as u64);
    }
}
