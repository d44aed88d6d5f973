//! Ownership of the segments of one fill.
//!
//! If records of other tiers refer to a fill, it has at most one group here at a time: two groups would remove each other's segments.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::{FillId, Segment, SegmentId, SegmentPut};

/// Segments of one fill. Every record version, reader and fill that may still need the segments holds the group in an `Arc`. Dropping the
/// last `Arc` removes the segments that haven't been evicted. The segments of a replaced record therefore still serve the readers in
/// progress, and no segment outlives its use.
#[derive(Debug)]
pub struct SegmentGroup {
    fill: FillId,
    /// Highest index of a stored segment so far, plus one.
    count: AtomicU32,
    /// Whether the group is in the list, so that [`Memory::group_of`](crate::Memory::group_of) may have returned it to other callers.
    is_listed: AtomicBool,
    home: Weak<dyn SegmentHome>,
}

pub(super) trait SegmentHome: Send + Sync {
    fn segment(&self, id: SegmentId) -> Option<Segment>;
    fn put_segment(&self, id: SegmentId, segment: Segment) -> SegmentPut;
    /// Returns the number of segments removed.
    fn remove_segments(&self, fill: FillId, indexes: Range<u32>) -> usize;
    fn groups(&self) -> &Groups;
}

impl SegmentGroup {
    /// Creates the group of a new fill, which is known only to the caller.
    pub(super) fn new(home: Weak<dyn SegmentHome>) -> Self {
        Self { fill: FillId::next(), count: AtomicU32::new(0), is_listed: AtomicBool::new(false), home }
    }

    /// Creates the group of a fill that was read from a record. The caller adds it to the list.
    pub(super) fn listed(fill: FillId, home: Weak<dyn SegmentHome>) -> Self {
        Self { fill, count: AtomicU32::new(0), is_listed: AtomicBool::new(true), home }
    }

    /// Returns the id under which other tiers know the segments.
    pub fn fill(&self) -> FillId {
        self.fill
    }

    /// Adds the group to the list, and returns its fill id for use in a record. Readers of the record get this group as long as it is
    /// held.
    pub fn announced(self: &Arc<Self>) -> FillId {
        if !self.is_listed.load(Relaxed)
            && let Some(home) = self.home.upgrade()
        {
            home.groups().list(self);
            self.is_listed.store(true, Relaxed);
        }
        self.fill
    }

    /// Returns the highest index ever put, plus one.
    pub fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Returns the segment at `index`; `None` is a hole.
    pub fn segment(&self, index: u32) -> Option<Segment> {
        self.home.upgrade()?.segment(SegmentId { fill: self.fill, index })
    }

    /// Stores the segment at `index`. The first segment at an index stays.
    pub fn put(&self, index: u32, segment: Segment) -> SegmentPut {
        let Some(home) = self.home.upgrade() else {
            return SegmentPut::NotStored(crate::Refusal::OverBudget);
        };
        self.take_over(index.saturating_add(1));
        home.put_segment(SegmentId { fill: self.fill, index }, segment)
    }

    /// Takes ownership of the segments 0 to `count`.
    pub(super) fn take_over(&self, count: u32) {
        self.count.fetch_max(count, Relaxed);
    }
}

impl Drop for SegmentGroup {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else { return };
        let count = *self.count.get_mut();
        if *self.is_listed.get_mut() {
            home.groups().leave(self, count, |indexes| _ = home.remove_segments(self.fill, indexes));
        } else {
            home.remove_segments(self.fill, 0..count);
        }
    }
}

/// Held groups by fill, except for fills that no other process knows.
#[derive(Default)]
pub(super) struct Groups {
    listed: Mutex<HashMap<FillId, Weak<SegmentGroup>>>,
}

/// Number of segments that are removed each time the list is locked. Most bodies have fewer.
const STEP: u32 = 64;

impl Groups {
    /// Returns the held group of a fill, or a new one.
    pub(super) fn of(&self, fill: FillId, home: Weak<dyn SegmentHome>) -> Arc<SegmentGroup> {
        let mut listed = self.listed.lock();
        if let Some(group) = listed.get(&fill).and_then(Weak::upgrade) {
            return group;
        }
        let group = Arc::new(SegmentGroup::listed(fill, home));
        listed.insert(fill, Arc::downgrade(&group));
        group
    }

    /// Adds a group to the list.
    pub(super) fn list(&self, group: &Arc<SegmentGroup>) {
        self.listed.lock().entry(group.fill()).or_insert_with(|| Arc::downgrade(group));
    }

    /// Removes the segments 0 to `count` of a group that is no longer held. If the fill is requested meanwhile, the new group takes over
    /// the remaining segments. `remove` is called under the lock, so that it never removes segments that the new group has stored.
    pub(super) fn leave(&self, group: &SegmentGroup, count: u32, remove: impl Fn(Range<u32>)) {
        let mut left = count;
        while let Some(begin) = self.step(group, left, &remove) {
            left = begin;
        }
    }

    /// Removes up to [`STEP`] segments. Returns the number of remaining segments; `None` if none of them belongs to this group any more.
    fn step(&self, group: &SegmentGroup, left: u32, remove: impl Fn(Range<u32>)) -> Option<u32> {
        let mut listed = self.listed.lock();
        let found = listed.get(&group.fill());
        let is_own = found.is_some_and(|found| std::ptr::eq(found.as_ptr(), group));
        // The successor is dropped after the lock, because this may be its last reference by then.
        let successor = found.filter(|_| !is_own).and_then(Weak::upgrade);
        if let Some(successor) = successor {
            drop(listed);
            successor.take_over(left);
            return None;
        }
        if left == 0 {
            if is_own {
                listed.remove(&group.fill());
            }
            return None;
        }
        let begin = left.saturating_sub(STEP);
        remove(begin..left);
        Some(begin)
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.listed.lock().len()
    }
}
