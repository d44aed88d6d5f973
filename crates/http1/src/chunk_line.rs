//! The line before the data of a chunk: its size and its extensions.

use crate::BodyError;
use crate::fields::{is_token_byte, is_value_byte};

/// Parses one chunk line byte by byte, so that it may be split anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ChunkLine {
    place: Place,
    grammar: Grammar,
    digits: u8,
    size: u64,
}

/// The accepted grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Grammar {
    /// The grammar of RFC 9112.
    #[default]
    Strict,
    /// The grammar of RFC 9112, plus whitespace after the size, and any bytes except line ends in an extension.
    Lenient,
}

/// The meaning of one byte of a chunk line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Framing,
    Extension,
    End { size: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    #[default]
    Size,
    BeforeSemicolon,
    BeforeName,
    Name,
    AfterName,
    BeforeValue,
    Value,
    Quoted,
    QuotedPair,
    AfterQuoted,
    /// In an extension, which is ignored.
    Extension,
    LineFeed,
}

/// Number of digits of the largest 64-bit number. Leading zeros count, because no client needs more.
const SIZE_DIGITS_MAX: u8 = 16;

impl ChunkLine {
    pub(crate) fn lenient() -> Self {
        Self { grammar: Grammar::Lenient, ..Self::default() }
    }

    pub(crate) fn step(&mut self, byte: u8) -> Result<Step, BodyError> {
        match (self.place, byte) {
            (Place::Size, _) if byte.is_ascii_hexdigit() => return self.digit(byte),
            (Place::LineFeed, b'\n') => return Ok(Step::End { size: self.size }),
            (Place::Size | Place::LineFeed, _) if self.digits == 0 => {
                return Err(BodyError::InvalidChunkSize);
            }
            _ => {}
        }
        let fault = match self.place {
            Place::Size | Place::LineFeed => BodyError::InvalidChunkSize,
            _ => BodyError::InvalidChunkExtension,
        };
        let next = match self.grammar {
            Grammar::Strict => self.place.next(byte),
            Grammar::Lenient => self.place.next_of_any(byte),
        };
        self.place = next.ok_or(fault)?;
        Ok(match (self.place, self.grammar) {
            // Padding by servers, which is not limited.
            (Place::BeforeSemicolon, Grammar::Lenient) | (Place::LineFeed, _) => Step::Framing,
            _ => Step::Extension,
        })
    }

    //= RFC 9112 section 7.1: chunk-size = 1*HEXDIG, without overflow
    const fn digit(&mut self, byte: u8) -> Result<Step, BodyError> {
        if self.digits == SIZE_DIGITS_MAX {
            return Err(BodyError::ChunkSizeOverflow);
        }
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            _ => (byte | 0x20) - b'a' + 10,
        };
        self.digits += 1;
        self.size = self.size << 4 | digit as u64;
        Ok(Step::Framing)
    }
}

impl Place {
    /// The grammar allows whitespace only at BWS, so none between the last part and the line end.
    //= RFC 9112 section 7.1.1: chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )
    const fn next(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Quoted, b'"') => Self::AfterQuoted,
            (Self::Quoted, b'\\') => Self::QuotedPair,
            (Self::Quoted | Self::QuotedPair, _) if is_value_byte(byte) => Self::Quoted,
            (Self::Quoted | Self::QuotedPair, _) => return None,
            (Self::Size | Self::Name | Self::Value | Self::AfterQuoted, b'\r') => Self::LineFeed,
            (Self::Size | Self::Value | Self::AfterQuoted | Self::BeforeSemicolon, b' ' | b'\t') => {
                Self::BeforeSemicolon
            }
            (Self::Name | Self::AfterName, b' ' | b'\t') => Self::AfterName,
            (Self::BeforeName | Self::BeforeValue, b' ' | b'\t') => self,
            (Self::BeforeName | Self::BeforeValue | Self::LineFeed, b';') => return None,
            (_, b';') => Self::BeforeName,
            (Self::Name | Self::AfterName, b'=') => Self::BeforeValue,
            (Self::BeforeValue, b'"') => Self::Quoted,
            (Self::BeforeName | Self::Name, _) if is_token_byte(byte) => Self::Name,
            (Self::BeforeValue | Self::Value, _) if is_token_byte(byte) => Self::Value,
            _ => return None,
        })
    }

    //= RFC 9112 section 7.1.1: chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )
    const fn next_of_any(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::LineFeed, _) | (_, b'\n') => return None,
            (_, b'\r') => Self::LineFeed,
            (Self::Extension, _) => Self::Extension,
            (_, b';') => Self::Extension,
            (_, b' ' | b'\t') => Self::BeforeSemicolon,
            _ => return None,
        })
    }
}
