//! Size limits for pieces of a body.

use store::Slice;

/// Maximum sizes of a piece: in memory, and in a file.
#[derive(Clone, Copy, Debug)]
pub struct PieceMax {
    in_place_bytes: usize,
    in_file_bytes: usize,
}

impl PieceMax {
    /// Limit for a stream that can send files. It bounds the work of a connection before it yields.
    pub const SENT: Self = Self { in_place_bytes: 256 << 10, in_file_bytes: 256 << 10 };
    /// Limit for a stream that can't send files. It has to copy file contents, and the copy isn't counted in the store's
    /// budget. So a piece is at most as large as a TLS record.
    pub const COPIED: Self = Self { in_file_bytes: 16 << 10, ..Self::SENT };

    #[inline]
    pub fn bytes(self, slice: &Slice) -> usize {
        let bytes_max = if slice.file().is_some() { self.in_file_bytes } else { self.in_place_bytes };
        bytes_max.min(slice.len())
    }

    /// Shortens a slice to the limit.
    #[inline]
    pub fn limit(self, mut slice: Slice) -> Slice {
        slice.truncate(self.bytes(&slice));
        slice
    }
}
