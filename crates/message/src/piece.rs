//! How much of a body is taken at once.

use store::Slice;

/// How much of a body is taken at once.
#[derive(Clone, Copy, Debug)]
pub struct PieceMax {
    in_place_bytes: usize,
    in_file_bytes: usize,
}

impl PieceMax {
    /// For a stream that can send files. It bounds what a connection does before it is the others' turn.
    pub const SENT: Self = Self { in_place_bytes: 256 << 10, in_file_bytes: 256 << 10 };
    /// For one that can't: what is in a file is copied, and the copy is not counted as stored. As much as a record of TLS takes.
    pub const COPIED: Self = Self { in_file_bytes: 16 << 10, ..Self::SENT };

    #[inline]
    pub fn bytes(self, slice: &Slice) -> usize {
        let bytes_max = if slice.file().is_some() { self.in_file_bytes } else { self.in_place_bytes };
        bytes_max.min(slice.len())
    }

    /// Shortens a slice to what is taken at once.
    #[inline]
    pub fn limit(self, mut slice: Slice) -> Slice {
        slice.truncate(self.bytes(&slice));
        slice
    }
}
