//! Strings in Redis' RDB format, which DUMP uses. Pure decoding and encoding, shared by files and DUMP
//! payloads.

use std::io::{self, ErrorKind, Read};

use thiserror::Error;

use crate::command::VALUE_BYTES_MAX;

/// The RDB version written, which is that of Redis 7.0. Later versions encode strings the same way.
const VERSION: u16 = 10;
/// A payload ends with the version and a checksum.
const FOOTER_BYTES: usize = 10;
/// The type byte of a string.
const STRING: u8 = 0;
/// Maximum length of a text that is encoded as a number.
const NUMBER_BYTES_MAX: usize = 11;

/// Errors in an RDB file or payload.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RdbError {
    #[error("not an RDB file of Redis or Valkey")]
    Header,
    #[error("the checksum is wrong")]
    Checksum,
    #[error("the file is truncated")]
    Cut,
    #[error("data follows the end, at byte {0}, such as the commands of an append-only file")]
    GoesOn(u64),
    #[error("the file can't be read")]
    Read(#[source] io::Error),
    #[error("a string is longer than {0} bytes")]
    TooLong(usize),
    #[error("a compressed string is invalid")]
    Compressed,
    #[error("unknown encoding {0:#04x}")]
    Encoding(u8),
    #[error("the value of the key `{key}`, at byte {at}, has an unknown type: {kind}")]
    Type { kind: u8, at: u64, key: String },
}

impl From<io::Error> for RdbError {
    fn from(error: io::Error) -> Self {
        if error.kind() == ErrorKind::UnexpectedEof { Self::Cut } else { Self::Read(error) }
    }
}

/// Decodes a file or a payload.
#[derive(Debug)]
pub(crate) struct Reader<R> {
    pub(crate) input: R,
    string_bytes_max: usize,
}

/// Computes the checksum of a file while it is read. Payloads are checked before decoding.
#[derive(Debug)]
pub(crate) struct Summed<R> {
    input: R,
    pub(crate) read_bytes: u64,
    pub(crate) checksum: u64,
}

impl<R> Summed<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, read_bytes: 0, checksum: 0 }
    }
}

impl<R: Read> Summed<R> {
    /// Fails if more bytes follow.
    pub(crate) fn end(&mut self) -> Result<(), RdbError> {
        let at = self.read_bytes;
        if self.read(&mut [0])? == 0 { Ok(()) } else { Err(RdbError::GoesOn(at)) }
    }
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read_bytes = self.input.read(to)?;
        self.read_bytes += read_bytes as u64;
        self.checksum = checksum(self.checksum, &to[..read_bytes]);
        Ok(read_bytes)
    }
}

/// A length of a string or a number of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Of(u64),
    /// A special encoding follows.
    Encoded(u8),
}

impl<R: Read> Reader<R> {
    pub(crate) fn new(input: R, string_bytes_max: usize) -> Self {
        Self { input, string_bytes_max: string_bytes_max.min(VALUE_BYTES_MAX) }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], RdbError> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads a string in any encoding.
    pub(crate) fn string(&mut self) -> Result<Vec<u8>, RdbError> {
        match self.length()? {
            Length::Of(bytes) => self.bytes(bytes),
            Length::Encoded(0) => Ok(i8::from_le_bytes(self.array()?).to_string().into_bytes()),
            Length::Encoded(1) => Ok(i16::from_le_bytes(self.array()?).to_string().into_bytes()),
            Length::Encoded(2) => Ok(i32::from_le_bytes(self.array()?).to_string().into_bytes()),
            Length::Encoded(3) => {
                let (packed_bytes, bytes) = (self.plain_length()?, self.plain_length()?);
                let packed = self.bytes(packed_bytes)?;
                unpack(&packed, self.string_bytes(bytes)?).ok_or(RdbError::Compressed)
            }
            Length::Encoded(other) => Err(RdbError::Encoding(other)),
        }
    }

    /// Reads a length that must not have a special encoding.
    pub(crate) fn plain_length(&mut self) -> Result<u64, RdbError> {
        match self.length()? {
            Length::Of(length) => Ok(length),
            Length::Encoded(encoding) => Err(RdbError::Encoding(encoding)),
        }
    }

    fn length(&mut self) -> Result<Length, RdbError> {
        let [first] = self.array()?;
        Ok(match first >> 6 {
            0 => Length::Of(u64::from(first)),
            1 => Length::Of(u64::from(u16::from_be_bytes([first & 0x3f, self.array::<1>()?[0]]))),
            2 if first == 0x80 => Length::Of(u64::from(u32::from_be_bytes(self.array()?))),
            2 if first == 0x81 => Length::Of(u64::from_be_bytes(self.array()?)),
            2 => return Err(RdbError::Encoding(first)),
            _ => Length::Encoded(first & 0x3f),
        })
    }

    /// Reads bytes, and allocates memory as they arrive, so that a claimed length alone takes none.
    fn bytes(&mut self, bytes: u64) -> Result<Vec<u8>, RdbError> {
        let (length, mut read) = (self.string_bytes(bytes)?, Vec::new());
        self.input.by_ref().take(bytes).read_to_end(&mut read)?;
        if read.len() < length {
            return Err(RdbError::Cut);
        }
        Ok(read)
    }

    fn string_bytes(&self, bytes: u64) -> Result<usize, RdbError> {
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= self.string_bytes_max);
        bytes.ok_or(RdbError::TooLong(self.string_bytes_max))
    }
}

/// Errors in a DUMP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadPayload {
    /// The payload was altered, or isn't one.
    Checksum,
    /// The value is not a string, or is invalid in spite of its checksum.
    Format,
    /// The value doesn't fit.
    TooLong,
}

/// Encodes a value as DUMP does. The value is not compressed, which Redis' RESTORE accepts, too.
pub(crate) fn dump(value: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(dumped_bytes(value.len()));
    payload.push(STRING);
    match number(value) {
        Some(number) => push_number(&mut payload, number),
        None => {
            push_length(&mut payload, value.len());
            payload.extend_from_slice(value);
        }
    }
    payload.extend_from_slice(&VERSION.to_le_bytes());
    let sum = checksum(0, &payload);
    payload.extend_from_slice(&sum.to_le_bytes());
    payload
}

/// Upper bound of the payload's size for a value of this length.
pub(crate) fn dumped_bytes(value_bytes: usize) -> usize {
    value_bytes + 2 + size_of::<u64>() + FOOTER_BYTES
}

/// The uncompressed length that a payload claims; 0 if it is invalid. Looks at the first bytes only.
pub(crate) fn restored_bytes(payload: &[u8]) -> usize {
    let mut rest = payload;
    let mut reader = Reader::new(&mut rest, VALUE_BYTES_MAX);
    let mut claimed = || {
        reader.array().ok().filter(|kind| *kind == [STRING])?;
        match reader.length().ok()? {
            Length::Of(bytes) => Some(bytes),
            Length::Encoded(3) => reader.plain_length().and_then(|_packed| reader.plain_length()).ok(),
            Length::Encoded(_) => Some(NUMBER_BYTES_MAX as u64),
        }
    };
    claimed().map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Decodes a payload of any version, with a value of at most `bytes_max` bytes.
pub(crate) fn restore(payload: &[u8], bytes_max: usize) -> Result<Vec<u8>, BadPayload> {
    let (summed, sum) = payload.split_last_chunk::<8>().ok_or(BadPayload::Checksum)?;
    let (body, _version) = summed.split_last_chunk::<2>().ok_or(BadPayload::Checksum)?;
    if checksum(0, summed) != u64::from_le_bytes(*sum) {
        return Err(BadPayload::Checksum);
    }
    let mut rest = body;
    let mut reader = Reader::new(&mut rest, bytes_max);
    if !reader.array().is_ok_and(|kind| kind == [STRING]) {
        return Err(BadPayload::Format);
    }
    let value = reader.string().map_err(|error| match error {
        RdbError::TooLong(_) => BadPayload::TooLong,
        _ => BadPayload::Format,
    })?;
    if rest.is_empty() { Ok(value) } else { Err(BadPayload::Format) }
}

/// The integer that a text represents in canonical form.
fn number(value: &[u8]) -> Option<i32> {
    let text = std::str::from_utf8(value).ok().filter(|_| value.len() <= NUMBER_BYTES_MAX)?;
    let number: i32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn push_number(payload: &mut Vec<u8>, number: i32) {
    if let Ok(number) = i8::try_from(number) {
        payload.push(0xc0);
        payload.extend(number.to_le_bytes());
    } else if let Ok(number) = i16::try_from(number) {
        payload.push(0xc1);
        payload.extend(number.to_le_bytes());
    } else {
        payload.push(0xc2);
        payload.extend(number.to_le_bytes());
    }
}

fn push_length(payload: &mut Vec<u8>, length: usize) {
    match length {
        0..=0x3f => payload.push(length as u8),
        0x40..=0x3fff => payload.extend((length as u16 | 0x4000).to_be_bytes()),
        _ if u32::try_from(length).is_ok() => {
            payload.push(0x80);
            payload.extend((length as u32).to_be_bytes());
        }
        _ => {
            payload.push(0x81);
            payload.extend((length as u64).to_be_bytes());
        }
    }
}

/// Decompresses LZF: literal runs and back references.
fn unpack(mut packed: &[u8], bytes: usize) -> Option<Vec<u8>> {
    // Three bytes of input produce at most 264 bytes of output.
    let mut unpacked = Vec::with_capacity(bytes.min(packed.len().saturating_mul(88)));
    let byte = |packed: &mut &[u8]| {
        let (first, rest) = packed.split_first()?;
        *packed = rest;
        Some(usize::from(*first))
    };
    while let Some(control) = byte(&mut packed) {
        if control < 32 {
            let (piece, rest) = packed.split_at_checked(control + 1)?;
            unpacked.extend_from_slice(piece);
            packed = rest;
        } else {
            let length = match control >> 5 {
                7 => 7 + byte(&mut packed)?,
                length => length,
            } + 2;
            let back = ((control & 0x1f) << 8) + byte(&mut packed)? + 1;
            let begin = unpacked.len().checked_sub(back)?;
            let end = unpacked.len() + length;
            while unpacked.len() < end {
                // A back reference may overlap its own output: each round copies twice as much.
                let there = unpacked.len().min(begin + (end - unpacked.len()));
                unpacked.extend_from_within(begin..there);
            }
        }
        if unpacked.len() > bytes {
            return None;
        }
    }
    (unpacked.len() == bytes).then_some(unpacked)
}

/// CRC-64 (Jones), as in Redis.
fn checksum(before: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(before, |sum, word| {
        let word = (sum ^ u64::from_le_bytes(*word)).to_le_bytes();
        word.iter().rev().zip(&CHECKSUMS).fold(0, |sum, (byte, sums)| sum ^ sums[usize::from(*byte)])
    });
    rest.iter().fold(sum, |sum, byte| CHECKSUMS[0][usize::from(sum as u8 ^ byte)] ^ (sum >> 8))
}

/// Lookup tables for slicing-by-8: checksums of each byte followed by 0 to 7 zero bytes. This is four times
/// as fast as single bytes.
static CHECKSUMS: [[u64; 256]; 8] = {
    /// The polynomial with its lowest power first.
    const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
    let (mut sums, mut byte) = ([[0; 256]; 8], 0);
    while byte < 256 {
        let (mut sum, mut bits) = (byte as u64, 0);
        while bits < 8 * sums.len() {
            sum = if sum & 1 == 1 { (sum >> 1) ^ POLYNOMIAL } else { sum >> 1 };
            bits += 1;
            if bits % 8 == 0 {
                sums[bits / 8 - 1][byte] = sum;
            }
        }
        byte += 1;
    }
    sums
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_redis() {
        let bytes = b"123456789".repeat(5);
        assert_eq!(checksum(0, &bytes[..9]), 0xe9c6_d914_c4b8_d9ca);
        let one_by_one = bytes.chunks(1).fold(0, checksum);
        assert_eq!(checksum(0, &bytes), one_by_one, "eight at once");
    }

    #[test]
    fn what_is_dumped_is_restored() {
        let long = vec![b'x'; 70_000];
        let values: [&[u8]; 13] = [
            b"",
            b"foobar",
            b"0",
            b"-128",
            b"128",
            b"-32769",
            b"2147483647",
            b"2147483648",
            b"01",
            b"-0",
            &long[..63],
            &long[..64],
            &long,
        ];
        for value in values {
            assert_eq!(restore(&dump(value), usize::MAX).as_deref(), Ok(value), "{}", value.escape_ascii());
        }
        assert_eq!(dump(b"goobar"), b"\x00\x06goobar\n\x00\x7f\x08S?\xa2\xeef\x96", "as Redis 7.0 does");
    }

    #[test]
    fn what_was_changed_is_refused() {
        let payload = dump(b"value");
        for at in 0..payload.len() {
            let mut changed = payload.clone();
            changed[at] ^= 1;
            assert_eq!(restore(&changed, usize::MAX), Err(BadPayload::Checksum));
            assert_eq!(restore(&payload[..at], usize::MAX), Err(BadPayload::Checksum));
        }
        for body in [&b""[..], b"\x01\x00", b"\x00\x02a", b"\x00\x01ab", b"\x00\xc3\x01\x02\x00", b"\x00\xc4"]
        {
            let mut payload = [body, b"\x0a\x00"].concat();
            payload.extend(checksum(0, &payload).to_le_bytes());
            assert_eq!(restore(&payload, usize::MAX), Err(BadPayload::Format), "{body:?}");
        }
        assert_eq!(restore(&dump(b"value"), 4), Err(BadPayload::TooLong));
    }

    #[test]
    fn compressed_strings_are_unpacked() {
        // "abc" as a literal, then eight bytes copied from three bytes back.
        assert_eq!(unpack(b"\x02abc\xc0\x02", 11).as_deref(), Some(&b"abcabcabcab"[..]));
        assert_eq!(unpack(b"\x00a\xe0\x0a\x00", 20), Some(vec![b'a'; 20]), "a long one");
        assert_eq!(unpack(b"\x03abcd\x20\x03", 7).as_deref(), Some(&b"abcdabc"[..]), "a part of it");
        for broken in [&b"\x02ab"[..], b"\x00a\xc0\x02", b"\x00a\xe0", b"\x00a\xc0"] {
            assert_eq!(unpack(broken, 11), None);
        }
        assert_eq!(unpack(b"\x02abc", 2), None);
        assert_eq!(unpack(b"\x02abc", 4), None);
    }
}
