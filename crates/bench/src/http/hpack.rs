//! As much of HPACK (RFC 7541) as a load needs: blocks of literal fields out, the status in.
//!
//! The dynamic table is set to no size in both directions. A block is then the same bytes on each connection, and a
//! response's status can be read without following the server's table.

use super::exchange::Malformed;
use super::load::Scheme;

/// A header block that is being written. Literals are neither indexed nor Huffman-coded.
#[derive(Debug, Default)]
pub(super) struct Block {
    bytes: Vec<u8>,
}

impl Block {
    pub(super) fn method(&mut self, method: &str) {
        match method {
            "GET" => self.bytes.push(0x82),
            "POST" => self.bytes.push(0x83),
            _ => self.named(2, method),
        }
    }

    pub(super) fn scheme(&mut self, scheme: Scheme) {
        self.bytes.push(match scheme {
            Scheme::Http => 0x86,
            Scheme::Https => 0x87,
        });
    }

    pub(super) fn authority(&mut self, authority: &str) {
        self.named(1, authority);
    }

    pub(super) fn path(&mut self, path: &str) {
        match path {
            "/" => self.bytes.push(0x84),
            _ => self.named(4, path),
        }
    }

    /// A field with its name in lower case.
    pub(super) fn field(&mut self, name: &str, value: &str) {
        self.bytes.push(0x00);
        self.text(name);
        self.text(value);
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Literal without indexing whose name is an entry of the static table.
    fn named(&mut self, entry: u8, value: &str) {
        debug_assert!(entry < 15, "fits the prefix");
        self.bytes.push(entry);
        self.text(value);
    }

    fn text(&mut self, text: &str) {
        self.integer(text.len(), 7);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    //= RFC 7541 section 5.1: integer representation
    fn integer(&mut self, value: usize, prefix_bits: u32) {
        let most = (1_usize << prefix_bits) - 1;
        if value < most {
            self.bytes.push(low_byte(value));
            return;
        }
        self.bytes.push(low_byte(most));
        let mut rest = value - most;
        while rest >= 128 {
            self.bytes.push(low_byte(rest % 128) | 0x80);
            rest /= 128;
        }
        self.bytes.push(low_byte(rest));
    }
}

fn low_byte(value: usize) -> u8 {
    u8::try_from(value).expect("below 256 by the arithmetic above")
}

/// The status that a response's header block begins with; none for a block of trailers.
pub(super) fn status(mut block: &[u8]) -> Result<Option<u16>, Malformed> {
    // Updates of the table's size come first.
    while let [first, rest @ ..] = block
        && first & 0xe0 == 0x20
    {
        if first & 0x1f != 0 {
            return Err(Malformed("a dynamic table that was not allowed"));
        }
        block = rest;
    }
    match block {
        [first @ 0x88..=0x8e, ..] => Ok(Some(STATIC_STATUS[usize::from(first - 0x88)])),
        // A literal named by one of the static table's seven entries for the status, indexed or not.
        [0x48..=0x4e | 0x08..=0x0e | 0x18..=0x1e, rest @ ..] => status_text(rest).map(Some),
        // A name in full, which servers use for fields that are no pseudo-headers.
        [0x00 | 0x10 | 0x40, length, rest @ ..] => status_by_name(*length, rest),
        _ => Ok(None),
    }
}

const STATIC_STATUS: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];

/// `:status`, plain and Huffman-coded.
const STATUS_NAMES: [(u8, &[u8]); 2] = [(7, b":status"), (0x85, &[0xb8, 0x84, 0x8d, 0x36, 0xa3])];

fn status_by_name(length: u8, rest: &[u8]) -> Result<Option<u16>, Malformed> {
    for (name_length, name) in STATUS_NAMES {
        if length == name_length
            && let Some(value) = rest.strip_prefix(name)
        {
            return status_text(value).map(Some);
        }
    }
    Ok(None)
}

fn status_text(value: &[u8]) -> Result<u16, Malformed> {
    let broken = Malformed("no status in a response");
    let digits = match value {
        [3, text @ ..] => text.get(..3).and_then(|text| <[u8; 3]>::try_from(text).ok()),
        [0x82, text @ ..] => text.get(..2).and_then(huffman_digits),
        [0x83, text @ ..] => text.get(..3).and_then(huffman_digits),
        _ => None,
    };
    let digits = digits.ok_or(broken)?;
    let text = std::str::from_utf8(&digits).map_err(|_| broken)?;
    text.parse().ok().filter(|status| (100..1000).contains(status)).ok_or(broken)
}

/// Three digits out of their Huffman codes (RFC 7541 appendix B): five bits for 0 to 2, six for the others.
fn huffman_digits(coded: &[u8]) -> Option<[u8; 3]> {
    let bits = coded.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
    let mut left = u32::try_from(coded.len()).ok()? * 8;
    let mut digits = [0; 3];
    for digit in &mut digits {
        let five = bits >> left.checked_sub(5)? & 0x1f;
        *digit = if five <= 2 {
            left -= 5;
            b'0' + u8::try_from(five).ok()?
        } else {
            left = left.checked_sub(6)?;
            let six = bits >> left & 0x3f;
            b'3' + u8::try_from(six.checked_sub(0x19).filter(|above| *above < 7)?).ok()?
        };
    }
    Some(digits)
}
