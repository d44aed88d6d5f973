//! A long argument that is still arriving. It is read into its own buffer, which becomes the stored value.

use std::ops::Range;

use resp::Begun;

/// Arguments shorter than this fraction of a read are copied, because their bytes are already in the CPU
/// caches.
const LONG_PART: usize = 4;
/// If fewer bytes than this are missing, they are read together with the bytes that follow, and copied.
const MISSING_BYTES_MIN: usize = 16 << 10;
/// The buffer grows by this many reads at a time, or by its own size. Announcing a length alone takes no
/// memory.
const READS_AHEAD: usize = 8;

/// A long argument of the first unread request.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) begun: Begun,
    /// Once complete, its capacity equals its length.
    pub(crate) bytes: Vec<u8>,
}

impl Body {
    /// Returns whether an argument is long enough for its own buffer.
    pub(crate) fn is_wanted(begun: &Begun, read_bytes_max: usize) -> bool {
        begun.length >= read_bytes_max / LONG_PART
    }

    /// Creates a body with the bytes of the argument in `request`, and returns their range.
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

    /// Takes the bytes that belong to the argument and returns the rest.
    pub(crate) fn take<'a>(&mut self, input: &'a [u8]) -> &'a [u8] {
        let (own, rest) = input.split_at(input.len().min(self.missing()));
        if self.bytes.capacity() - self.bytes.len() < own.len() {
            self.grow(own.len().max(self.bytes.len()));
        }
        self.bytes.extend_from_slice(own);
        rest
    }

    /// The buffer to read into, unless only a few bytes are missing. It has spare capacity, but no more than
    /// this argument needs.
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
