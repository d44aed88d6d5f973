//! Skips a chunked body (RFC 9112 section 7.1), trailer section included.

use crate::drive::Malformed;

/// Maximum size of trailers and chunk extensions of a body. A larger size is treated as an attack.
const EXTRA_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct Chunks {
    at: At,
    extra_bytes: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// Before the first digit of a chunk size.
    #[default]
    Size,
    Digits(u64),
    /// After the digits, until the line feed.
    Extension(u64),
    Data(u64),
    DataReturn,
    DataFeed,
    /// First byte of a trailer line, or of the empty line at the end.
    Line,
    Trailer,
    LastFeed,
}

impl Chunks {
    /// Reads further input. Returns the number of bytes used, and whether they end the body.
    pub(super) fn read(&mut self, input: &[u8]) -> Result<(usize, bool), Malformed> {
        let mut used = 0;
        while let Some(&byte) = input.get(used) {
            if let At::Data(left) = self.at {
                let step = left.min((input.len() - used) as u64);
                used += usize::try_from(step).expect("no more than the length of a slice");
                self.at = if left == step { At::DataReturn } else { At::Data(left - step) };
                continue;
            }
            used += 1;
            if self.at == At::LastFeed && byte == b'\n' {
                return Ok((used, true));
            }
            self.step(byte)?;
        }
        Ok((used, false))
    }

    fn step(&mut self, byte: u8) -> Result<(), Malformed> {
        self.at = match (self.at, byte) {
            (At::Size, _) => At::Digits(digit(byte).ok_or(Malformed("no chunk size"))?),
            (At::Digits(size), b'\r' | b';' | b' ' | b'\t') => At::Extension(size),
            (At::Digits(size), _) => At::Digits(more(size, byte)?),
            (At::Extension(0), b'\n') => At::Line,
            (At::Extension(size), b'\n') => At::Data(size),
            (At::Line, b'\r') => At::LastFeed,
            (At::Line | At::Trailer, b'\n') => At::Line,
            (At::Extension(_) | At::Trailer, _) => self.extra()?,
            (At::Line, _) => At::Trailer,
            (At::DataReturn, b'\r') => At::DataFeed,
            (At::DataFeed, b'\n') => At::Size,
            (At::DataReturn | At::DataFeed, _) => return Err(Malformed("a chunk longer than its size")),
            (At::LastFeed, _) => return Err(Malformed("a stray carriage return")),
            (At::Data(_), _) => unreachable!("stepped over as a whole"),
        };
        Ok(())
    }

    /// Counts a byte that has no meaning in this state, and keeps the state.
    fn extra(&mut self) -> Result<At, Malformed> {
        self.extra_bytes += 1;
        if self.extra_bytes > EXTRA_BYTES_MAX {
            return Err(Malformed("a trailer section without end"));
        }
        Ok(self.at)
    }
}

fn digit(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}

fn more(size: u64, byte: u8) -> Result<u64, Malformed> {
    let digit = digit(byte).ok_or(Malformed("no chunk size"))?;
    let shifted = size.checked_mul(16).ok_or(Malformed("a chunk size out of range"))?;
    Ok(shifted + digit)
}
