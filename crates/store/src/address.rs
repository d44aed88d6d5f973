//! Addresses of segments, and their size limit.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum size of a segment. One eviction frees, one reader pins and one write copies at most this
/// many bytes.
pub const SEGMENT_BYTES_MAX: usize = 1 << 20;

/// Id of one fill, and therefore of the body that it fetched. No two fills share an id, in this process or another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FillId {
    /// Random number of the process, drawn once.
    pub process: u64,
    /// Number of the fill within the process.
    pub sequence: u64,
}

impl FillId {
    /// Returns an id that has never been used.
    pub fn next() -> Self {
        static PROCESS: OnceLock<u64> = OnceLock::new();
        static SEQUENCE: AtomicU64 = AtomicU64::new(0);
        let process = *PROCESS.get_or_init(|| RandomState::new().hash_one(0));
        Self { process, sequence: SEQUENCE.fetch_add(1, Ordering::Relaxed) }
    }
}

/// Address of a segment: the fill that fetched it, and its position in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId {
    /// The fill.
    pub fill: FillId,
    /// Position in the body, in segments from 0.
    pub index: u32,
}

/// Key of the list of the instances of a fleet. The keys of the gateway begin with other letters.
pub(crate) const LIST: &[u8] = b"m";
/// Start of the key of an instance's record, before the instance's id.
pub(crate) const INSTANCE: &[u8] = b"i";
/// Key of the record of a region, and of the lease of its carrier.
pub const REGION: &[u8] = b"g";
/// Length of the id of an instance.
pub(crate) const INSTANCE_ID_BYTES: usize = 16;

/// Returns whether a key is that of a record of a fleet.
pub(crate) fn is_of_fleet(key: &[u8]) -> bool {
    key == LIST
        || key == REGION
        || (key.len() == INSTANCE.len() + INSTANCE_ID_BYTES && key.starts_with(INSTANCE))
}
