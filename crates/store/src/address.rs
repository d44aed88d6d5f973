//! The addresses of segments, and how large one may be.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest segment. It bounds what one eviction frees, what one reader pins and what one write copies.
pub const SEGMENT_BYTES_MAX: usize = 1 << 20;

/// Names one fill, and so the body that it brought: no two fills share an id, in this process or another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FillId {
    /// Drawn once per process.
    pub process: u64,
    /// Counts the fills of the process.
    pub sequence: u64,
}

impl FillId {
    /// An id that was never used before.
    pub fn next() -> Self {
        static PROCESS: OnceLock<u64> = OnceLock::new();
        static SEQUENCE: AtomicU64 = AtomicU64::new(0);
        let process = *PROCESS.get_or_init(|| RandomState::new().hash_one(0));
        Self { process, sequence: SEQUENCE.fetch_add(1, Ordering::Relaxed) }
    }
}

/// The address of a segment: the fill that brought it, and its place in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId {
    /// The fill.
    pub fill: FillId,
    /// Counted from 0.
    pub index: u32,
}
