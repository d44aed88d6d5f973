//! Bodies: immutable segments and their addresses.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::{Budget, Charge, OverBudget, allocated_bytes};

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

/// Immutable bytes that are counted in a [`Budget`] until the last clone is dropped. Cloning is cheap.
///
/// The bytes are always a copy of exact size: a slice would keep the whole read buffer behind it alive, uncounted.
#[derive(Clone)]
pub struct Segment {
    shared: Arc<Counted>,
}

struct Counted {
    data: Box<[u8]>,
    charge: Charge,
}

impl Segment {
    /// What a segment costs beside its bytes: the counted header in its allocation.
    pub const OVERHEAD_BYTES: usize = size_of::<Counted>() + 2 * size_of::<usize>();

    /// Copies `data`.
    ///
    /// # Errors
    /// When the budget has no room; nothing is allocated then.
    pub fn copy(budget: &Arc<Budget>, data: &[u8]) -> Result<Self, OverBudget> {
        Self::gather(budget, &[data])
    }

    /// Copies `parts`, one behind the other, into one segment.
    ///
    /// # Errors
    /// When the budget has no room; nothing is allocated then.
    pub fn gather(budget: &Arc<Budget>, parts: &[impl AsRef<[u8]>]) -> Result<Self, OverBudget> {
        let len = parts.iter().map(|part| part.as_ref().len()).sum::<usize>();
        let charge = budget.reserve(allocated_bytes(len) + Self::OVERHEAD_BYTES)?;
        let mut data = Vec::with_capacity(len);
        parts.iter().for_each(|part| data.extend_from_slice(part.as_ref()));
        Ok(Self { shared: Arc::new(Counted { data: data.into_boxed_slice(), charge }) })
    }

    /// The same bytes for an interface that takes [`Bytes`]. They stay counted as long as any slice of them lives.
    pub fn to_bytes(&self) -> Bytes {
        Bytes::from_owner(self.clone())
    }

    pub(crate) fn charge(&self) -> &Charge {
        &self.shared.charge
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Deref for Segment {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.shared.data
    }
}

impl AsRef<[u8]> for Segment {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment").field("len", &self.len()).finish()
    }
}
