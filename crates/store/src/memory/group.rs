//! The segments of one fill as something that is owned.

use std::fmt;
use std::sync::Weak;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::{FillId, Segment, SegmentId, SegmentPut};

/// The segments of one fill. Every record version, reader and fill that may still need them holds the group behind
/// one `Arc`; the last to drop it removes what eviction has left. So a replaced record's segments serve the readers
/// that are under way, and no segment outlives its use.
pub struct SegmentGroup {
    fill: FillId,
    /// One more than the highest index ever put.
    count: AtomicU32,
    home: Weak<dyn SegmentHome>,
}

pub(super) trait SegmentHome: Send + Sync {
    fn segment(&self, id: SegmentId) -> Option<Segment>;
    fn put_segment(&self, id: SegmentId, segment: Segment) -> SegmentPut;
    fn remove_segments(&self, fill: FillId, count: u32);
}

impl SegmentGroup {
    pub(super) fn new(home: Weak<dyn SegmentHome>) -> Self {
        Self { fill: FillId::next(), count: AtomicU32::new(0), home }
    }

    /// The id under which other tiers know the segments.
    pub fn fill(&self) -> FillId {
        self.fill
    }

    /// One more than the highest index ever put: no segment lies behind it.
    pub fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// The segment at `index`; `None` is a hole.
    pub fn segment(&self, index: u32) -> Option<Segment> {
        self.home.upgrade()?.segment(SegmentId { fill: self.fill, index })
    }

    /// Stores the segment at `index`. The first one stays.
    pub fn put(&self, index: u32, segment: Segment) -> SegmentPut {
        let Some(home) = self.home.upgrade() else {
            return SegmentPut::NotStored(crate::Refusal::OverBudget);
        };
        self.count.fetch_max(index.saturating_add(1), Relaxed);
        home.put_segment(SegmentId { fill: self.fill, index }, segment)
    }
}

impl Drop for SegmentGroup {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            home.remove_segments(self.fill, *self.count.get_mut());
        }
    }
}

impl fmt::Debug for SegmentGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentGroup").field("fill", &self.fill).field("count", &self.count).finish()
    }
}
