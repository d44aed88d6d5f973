//! Parts of a body that a tier behind memory may have.

use caching::ByteRange;
use store::format::{Layout, Run};
use store::{FillId, Segment, SegmentId, allocated_bytes};

/// Whole cells that were held, and segments that were loaded for one reply.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Runs in order, separated by gaps, and at most as many as fit in a record.
    pub(super) runs: Vec<Run>,
    loaded: Vec<(SegmentId, Segment)>,
}

/// Position from which known bytes count as present. If a tier turns out to lack some known bytes, the reply fetches them from the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KnownFrom(pub u64);

/// Segments of one fill that are known but not held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Absent {
    pub fill: FillId,
    /// Index and byte range of each segment. The list is consecutive and never empty.
    pub segments: Vec<(u32, ByteRange)>,
}

impl KnownFrom {
    /// All known bytes count as present.
    pub const START: Self = Self(0);
    /// No known bytes count as present.
    pub const NOWHERE: Self = Self(u64::MAX);
}

impl Absent {
    /// Returns the total number of bytes of these segments.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|(_, range)| range.len_bytes()).sum()
    }
}

impl Known {
    /// Returns the known cells of these runs; `None` if the runs are not in order, or too many.
    pub(super) fn of(runs: &[Run]) -> Option<Self> {
        let is_apart = |pair: &[Run]| end(pair[0]) < u64::from(pair[1].first);
        let is_within = runs.last().is_none_or(|last| end(*last) <= u64::from(Layout::CELLS_MAX));
        let are_right = runs.iter().all(|run| run.count > 0) && runs.windows(2).all(is_apart) && is_within;
        (are_right && runs.len() <= Layout::RUNS_MAX)
            .then(|| Self { runs: runs.to_vec(), loaded: Vec::new() })
    }

    pub(super) fn has(&self, index: u32) -> bool {
        let at = self.runs.partition_point(|run| end(*run) <= u64::from(index));
        self.runs.get(at).is_some_and(|run| run.first <= index)
    }

    /// Returns the index after the last cell.
    pub(super) fn end(&self) -> u32 {
        self.runs.last().map_or(0, |run| run.first + run.count)
    }

    /// Adds a cell, unless its index is too high for a record. If there are too many runs, the shortest is dropped.
    pub(super) fn insert(&mut self, index: u32) {
        if index >= Layout::CELLS_MAX || self.has(index) {
            return;
        }
        // The run that ends where this cell begins, or else the first run after it.
        let at = self.runs.partition_point(|run| end(*run) < u64::from(index));
        let ends_here = self.runs.get(at).is_some_and(|run| end(*run) == u64::from(index));
        if !ends_here {
            self.runs.insert(at, Run { first: index, count: 0 });
        }
        self.runs[at].count += 1;
        if let Some(next) = self.runs.get(at + 1).filter(|next| next.first == index + 1).copied() {
            self.runs[at].count += next.count;
            self.runs.remove(at + 1);
        }
        if self.runs.len() > Layout::RUNS_MAX {
            let shortest = (0..self.runs.len()).min_by_key(|at| self.runs[*at].count);
            shortest.map(|at| self.runs.remove(at));
        }
    }

    pub(super) fn hold(&mut self, loaded: impl IntoIterator<Item = (SegmentId, Segment)>) {
        self.loaded.extend(loaded);
    }

    pub(super) fn loaded(&self, id: SegmentId) -> Option<Segment> {
        self.loaded.iter().find(|(held, _)| *held == id).map(|(_, segment)| segment.clone())
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let lists = [
            self.runs.capacity() * size_of::<Run>(),
            self.loaded.capacity() * size_of::<(SegmentId, Segment)>(),
        ];
        let lists = lists.into_iter().filter(|bytes| *bytes > 0).map(allocated_bytes).sum::<usize>();
        allocated_bytes(size_of::<Self>()) + lists
    }
}

fn end(run: Run) -> u64 {
    u64::from(run.first) + u64::from(run.count)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn indexes(known: &Known) -> Vec<u32> {
        known.runs.iter().flat_map(|run| run.first..run.first + run.count).collect()
    }

    proptest! {
        #[test]
        fn what_is_known_is_what_was_put(put in prop::collection::vec(0..40u32, 0..60)) {
            let mut known = Known::default();
            let mut expected = BTreeSet::new();
            for index in put {
                known.insert(index);
                expected.insert(index);
                prop_assert!(Known::of(&known.runs).is_some(), "in order and apart: {:?}", known.runs);
            }
            prop_assert_eq!(indexes(&known), expected.iter().copied().collect::<Vec<_>>());
            prop_assert!((0..41).all(|index| known.has(index) == expected.contains(&index)));
            prop_assert_eq!(known.end(), expected.last().map_or(0, |last| last + 1));
        }
    }

    #[test]
    fn no_more_is_known_than_a_record_can_tell() {
        let mut known = Known::default();
        (0..=Layout::RUNS_MAX as u32).for_each(|run| known.insert(run * 2 + 100));
        assert_eq!(known.runs.len(), Layout::RUNS_MAX, "the shortest is forgotten");
        known.insert(Layout::CELLS_MAX - 1);
        known.insert(Layout::CELLS_MAX);
        assert_eq!(known.end(), Layout::CELLS_MAX);
        assert!(Known::of(&known.runs).is_some());
    }

    #[test]
    fn runs_that_no_record_has_are_not_taken() {
        let run = |first, count| Run { first, count };
        let max = Layout::CELLS_MAX;
        for (runs, is_taken) in [
            (vec![], true),
            (vec![run(0, 1), run(2, 3)], true),
            (vec![run(max - 1, 1)], true),
            (vec![run(0, 0)], false),
            (vec![run(0, 2), run(2, 1)], false),
            (vec![run(5, 1), run(0, 1)], false),
            (vec![run(max - 1, 2)], false),
            (vec![run(u32::MAX, u32::MAX)], false),
            ((0..=256).map(|at| run(at * 2, 1)).collect(), false),
        ] {
            assert_eq!(Known::of(&runs).is_some(), is_taken, "{runs:?}");
        }
    }
}
