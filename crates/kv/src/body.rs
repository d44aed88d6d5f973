//! A long argument on its way: it is read to memory of its own, which becomes that of a value.

use std::ops::Range;

use resp::Begun;

/// An argument that takes less than this part of a read is copied to where it stays: it lies in the caches by then.
const LONG_PART: usize = 4;
/// What is missing is read with what stands behind it, and copied, when it is less.
const MISSING_BYTES_MIN: usize = 16 << 10;
/// Memory is taken for so many reads at once, or for as much again as there is: what a client only announces takes no more.
const READS_AHEAD: usize = 8;

/// One argument of the first request that is unread.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) begun: Begun,
    /// In the end, memory of exactly its length.
    pub(crate) bytes: Vec<u8>,
}

impl Body {
    /// Whether an argument is worth memory of its own.
    pub(crate) fn is_wanted(begun: &Begun, read_bytes_max: usize) -> bool {
        begun.length >= read_bytes_max / LONG_PART
    }

    /// With what is there of it in `request`, and where that is.
    pub(crate) fn begin(begun: Begun, request: &[u8], read_bytes_max: usize) -> (Self, Range<usize>) {
        let there = begun.at..request.len().min(begun.at + begun.length);
        let mut body = Self { begun, bytes: Vec::new() };
        body.grow(there.len() + read_bytes_max * READS_AHEAD);
        body.bytes.extend_from_slice(&request[there.clone()]);
        (body, there)
    }

    pub(crate) fn missing(&self) -> usize {
        self.begun.length - self.bytes.len()
    }

    /// Takes what belongs to it; the rest.
    pub(crate) fn take<'a>(&mut self, input: &'a [u8]) -> &'a [u8] {
        let (own, rest) = input.split_at(input.len().min(self.missing()));
        if self.bytes.capacity() - self.bytes.len() < own.len() {
            self.grow(own.len().max(self.bytes.len()));
        }
        self.bytes.extend_from_slice(own);
        rest
    }

    /// Where to read to, while much is missing: there is capacity to spare, and not for more than this argument.
    pub(crate) fn room(&mut self, read_bytes_max: usize) -> Option<&mut Vec<u8>> {
        if self.missing() < MISSING_BYTES_MIN {
            return None;
        }
        if self.bytes.capacity() - self.bytes.len() < MISSING_BYTES_MIN {
            self.grow(self.bytes.len().max(read_bytes_max * READS_AHEAD));
        }
        (self.bytes.capacity() <= self.begun.length).then_some(&mut self.bytes)
    }

    fn grow(&mut self, bytes: usize) {
        self.bytes.reserve_exact(bytes.min(self.missing()));
    }
}
