//! Bytes of a body that is being read.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use bytes::Bytes;

use crate::Segment;

/// A part of a segment, or bytes that belong to no segment. Cloning and slicing are cheap; a segment stays counted as long as it has
/// slices.
#[derive(Clone)]
pub struct Slice(Source);

#[derive(Clone)]
enum Source {
    Bytes(Bytes),
    Segment { segment: Segment, start: usize, end: usize },
}

/// Bytes in a file from which the kernel can send.
#[derive(Debug, Clone, Copy)]
pub struct FileRange<'a> {
    /// The file.
    pub file: BorrowedFd<'a>,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: usize,
}

impl FileRange<'_> {
    /// Returns the range without its first `bytes` bytes.
    #[must_use]
    pub fn behind(&self, bytes: usize) -> Self {
        Self { offset: self.offset + bytes as u64, bytes: self.bytes.saturating_sub(bytes), ..*self }
    }
}

impl Segment {
    /// Returns the bytes from `start` to `end`. They stay counted as long as any slice of them exists.
    ///
    /// # Panics
    /// If the range isn't within the segment.
    pub fn slice(&self, start: usize, end: usize) -> Slice {
        assert!(start <= end && end <= self.len(), "within the segment");
        Slice(Source::Segment { segment: self.clone(), start, end })
    }
}

impl Slice {
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Source::Bytes(bytes) => bytes.len(),
            Source::Segment { start, end, .. } => end - start,
        }
    }

    /// Returns `true` if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        match &mut self.0 {
            Source::Bytes(bytes) => bytes.truncate(len),
            Source::Segment { start, end, .. } => *end = (*end).min(start.saturating_add(len)),
        }
    }

    /// Drops the first `len` bytes.
    ///
    /// # Panics
    /// If there are fewer than `len` bytes.
    pub fn advance(&mut self, len: usize) {
        assert!(len <= self.len(), "within the slice");
        match &mut self.0 {
            Source::Bytes(bytes) => drop(bytes.split_to(len)),
            Source::Segment { start, .. } => *start += len,
        }
    }

    /// Splits off the first `len` bytes and returns them.
    ///
    /// # Panics
    /// If there are fewer than `len` bytes.
    #[must_use]
    pub fn split_to(&mut self, len: usize) -> Self {
        let mut first = self.clone();
        first.truncate(len);
        self.advance(len);
        first
    }

    /// Returns whether the bytes belong to a segment that is still in the table, so that eviction can free it.
    pub fn is_stored(&self) -> bool {
        matches!(&self.0, Source::Segment { segment, .. } if segment.charge().is_stored())
    }

    /// Returns a number that all slices of one segment share, as long as one of them exists.
    pub fn identity(&self) -> usize {
        match &self.0 {
            Source::Bytes(bytes) => bytes.as_ptr() as usize,
            Source::Segment { segment, .. } => segment.identity(),
        }
    }

    /// Returns the bytes if they are on the heap, `None` if they are in a file.
    pub fn in_place(&self) -> Option<&[u8]> {
        match &self.0 {
            Source::Bytes(bytes) => Some(bytes),
            Source::Segment { segment, start, end } => Some(&segment.in_place()?[*start..*end]),
        }
    }

    /// Returns the location of the bytes if they are in a file.
    pub fn file(&self) -> Option<FileRange<'_>> {
        let Source::Segment { segment, start, end } = &self.0 else { return None };
        let (file, offset) = segment.file()?;
        Some(FileRange { file, offset: offset + *start as u64, bytes: end - start })
    }

    /// Converts the slice for an interface that takes [`Bytes`]. Bytes in a file are copied and no longer counted, so slice them into small
    /// pieces first.
    ///
    /// # Errors
    /// If the OS can't read swapped-out pages back.
    pub fn into_bytes(self) -> io::Result<Bytes> {
        match self.0 {
            Source::Bytes(bytes) => Ok(bytes),
            Source::Segment { segment, start, end } => segment.bytes(start, end),
        }
    }
}

impl From<Bytes> for Slice {
    fn from(bytes: Bytes) -> Self {
        Self(Source::Bytes(bytes))
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slice").field("len", &self.len()).finish()
    }
}
