//! Groups whose fills are named in records of other tiers. A reader of such a record shares the group that is held for its fill: two groups
//! of one fill would remove each other's segments.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::group::{SegmentGroup, SegmentHome};
use crate::FillId;

/// Held groups by fill, without those whose fill no other process knows.
#[derive(Default)]
pub(super) struct Groups {
    listed: Mutex<HashMap<FillId, Weak<SegmentGroup>>>,
}

/// Segments removed under one lock of the list. Most bodies have fewer.
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

    /// Removes the segments 0 to `count` of a group that nobody holds any more. If the fill is asked for meanwhile, the new group takes
    /// over the segments that are left. `remove` is called under the lock, so that it never removes what the new group has put.
    pub(super) fn leave(&self, group: &SegmentGroup, count: u32, remove: impl Fn(Range<u32>)) {
        let mut left = count;
        while let Some(begin) = self.step(group, left, &remove) {
            left = begin;
        }
    }

    /// Removes one step of segments. Returns how many are left; `None` if none of them belongs to this group any more.
    fn step(&self, group: &SegmentGroup, left: u32, remove: impl Fn(Range<u32>)) -> Option<u32> {
        let mut listed = self.listed.lock();
        let found = listed.get(&group.fill());
        let is_own = found.is_some_and(|found| std::ptr::eq(found.as_ptr(), group));
        // Not dropped under the lock: this may be its last reference by then.
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
