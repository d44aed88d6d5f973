//! Connection with a limit on the length of replies. If a reply is announced as longer than any requested value, the connection is closed
//! before the reply is read and before memory is allocated for it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream with a limit on the length of replies.
pub(super) struct Bounded<S> {
    stream: S,
    meter: Meter,
}

/// A reply exceeds the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("reply exceeds the limit of {limit_bytes} bytes")]
pub(super) struct TooLong {
    limit_bytes: usize,
}

/// Parses replies as far as needed to find the end of each. Malformed replies are left to the parser.
#[derive(Debug)]
struct Meter {
    limit_bytes: usize,
    /// Bytes of the current reply.
    bytes: usize,
    /// Number of values that the current reply still needs, including nested ones.
    values: usize,
    position: Position,
}

#[derive(Debug, Clone, Copy)]
enum Position {
    /// The next byte is the type of a value.
    Type,
    /// The next bytes belong to the line after a type.
    Line { kind: u8, number: usize, is_null: bool },
    /// The next `left` bytes belong to a string, including its line end.
    Content { left: usize },
}

impl<S> Bounded<S> {
    pub(super) fn new(stream: S, limit_bytes: usize) -> Self {
        Self { stream, meter: Meter { limit_bytes, bytes: 0, values: 1, position: Position::Type } }
    }
}

impl Meter {
    fn take(&mut self, mut bytes: &[u8]) -> Result<(), TooLong> {
        while let Some((&first, rest)) = bytes.split_first() {
            match self.position {
                Position::Content { left } => {
                    let here = left.min(bytes.len());
                    bytes = &bytes[here..];
                    self.position = Position::Content { left: left - here };
                    if left == here {
                        self.value_ends();
                    }
                    continue;
                }
                Position::Type => {
                    self.position = Position::Line { kind: first, number: 0, is_null: false };
                    self.announced(1)?;
                }
                Position::Line { kind, number, is_null } => {
                    self.announced(1)?;
                    self.line(kind, number, is_null, first)?;
                }
            }
            bytes = rest;
        }
        Ok(())
    }

    fn line(&mut self, kind: u8, number: usize, is_null: bool, byte: u8) -> Result<(), TooLong> {
        match byte {
            b'\n' => return self.line_ends(kind, if is_null { None } else { Some(number) }),
            b'-' => self.position = Position::Line { kind, number, is_null: true },
            b'0'..=b'9' => {
                let number = number.saturating_mul(10).saturating_add(usize::from(byte - b'0'));
                self.position = Position::Line { kind, number, is_null };
            }
            _ => {}
        }
        Ok(())
    }

    /// Handles the end of a line; `length` is the number in the line, for types that have one.
    fn line_ends(&mut self, kind: u8, length: Option<usize>) -> Result<(), TooLong> {
        match (kind, length) {
            (b'$' | b'!' | b'=', Some(length)) => {
                let left = length.saturating_add(LINE_END);
                self.announced(left)?;
                self.position = Position::Content { left };
            }
            (b'*' | b'~' | b'>' | b'%' | b'|', Some(count)) => {
                let each = if matches!(kind, b'%' | b'|') { 2 } else { 1 };
                let count = count.saturating_mul(each);
                self.fits(count.saturating_mul(VALUE_BYTES_MIN))?;
                // Attributes precede the value to which they belong.
                self.values += if kind == b'|' { count + 1 } else { count };
                self.value_ends();
            }
            _ => self.value_ends(),
        }
        Ok(())
    }

    fn value_ends(&mut self) {
        self.position = Position::Type;
        self.values -= 1;
        if self.values == 0 {
            (self.bytes, self.values) = (0, 1);
        }
    }

    fn announced(&mut self, bytes: usize) -> Result<(), TooLong> {
        self.fits(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    fn fits(&self, bytes: usize) -> Result<(), TooLong> {
        let Self { limit_bytes, .. } = *self;
        if self.bytes.saturating_add(bytes) > limit_bytes { Err(TooLong { limit_bytes }) } else { Ok(()) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = self.meter.take(&buffer.filled()[before..]);
        Poll::Ready(read.map_err(|error| {
            tracing::warn!(%error, "connection to the remote tier closed");
            io::Error::new(io::ErrorKind::InvalidData, error)
        }))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

const LINE_END: usize = 2;
/// Minimum size of a value: a type and a line end.
const VALUE_BYTES_MIN: usize = 3;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 40;

    /// Reads a text in pieces of every size, and checks each time whether it is within the limit.
    fn check(text: &str, is_short: bool) {
        for piece in 1..=text.len() {
            let mut meter = Bounded::new((), LIMIT).meter;
            let read: Result<Vec<()>, TooLong> =
                text.as_bytes().chunks(piece).map(|piece| meter.take(piece)).collect();
            assert_eq!(read.is_ok(), is_short, "{text:?} in pieces of {piece}");
            let is_whole = meter.bytes == 0 && meter.values == 1;
            assert!(is_whole || !is_short, "{text:?} ends where it ends: {meter:?}");
        }
    }

    #[test]
    fn replies_end_where_they_end() {
        for text in [
            "+OK\r\n",
            "$-1\r\n*-1\r\n_\r\n:-12\r\n#t\r\n",
            "$5\r\nhello\r\n$0\r\n\r\n",
            "*2\r\n$3\r\na\r\n\r\n*2\r\n:1\r\n$1\r\nx\r\n*0\r\n",
            "%1\r\n+key\r\n*2\r\n:1\r\n:2\r\n~0\r\n",
            "|1\r\n+ttl\r\n:3600\r\n$1\r\nx\r\n+OK\r\n",
            ">2\r\n$3\r\ninv\r\n*1\r\n$1\r\nk\r\n-ERR 123456789 99\r\n",
            "=7\r\ntxt:abc\r\n!5\r\nERR x\r\n",
        ] {
            check(text, true);
            check(&text.repeat(20), true);
        }
    }

    #[test]
    fn what_is_longer_is_refused_when_it_is_announced() {
        for text in [
            "$500000000\r\n",
            "$99999999999999999999999999\r\n",
            "*1000000\r\n",
            "%10\r\n",
            ">2\r\n$10\r\ninvalidate\r\n*10\r\n",
            "*2\r\n$20\r\naaaaaaaaaaaaaaaaaaaa\r\n$20\r\n",
            "+a line that is longer than all that fits into forty bytes",
        ] {
            check(text, false);
        }
    }

    proptest! {
        /// Measuring never panics, whatever the input.
        #[test]
        fn any_bytes_are_measured(pieces in prop::collection::vec("[-+:$*%|>0-9a\r\n]{0,12}", 0..20)) {
            let mut meter = Bounded::new((), LIMIT).meter;
            let _: Result<Vec<()>, TooLong> =
                pieces.iter().map(|piece| meter.take(piece.as_bytes())).collect();
        }
    }
}
