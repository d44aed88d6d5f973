//! Conversion of a body to and from its layout in a tier's record.

use std::sync::Arc;

use caching::ByteRange;
use store::format::{self, Layout};
use store::{Memory, Record, SEGMENT_BYTES_MAX};

use super::known::Known;
use super::{FRAGMENTS_MAX, Fragment, Segmented};

impl Segmented {
    /// Returns the layout of the known parts of the body, for a record: whole cells, and pieces of incomplete cells. `None` without a tier.
    /// From now on, readers of the record find the groups of this body.
    pub fn layout(&self) -> Option<Layout> {
        let known = self.known.as_ref()?;
        let is_less_than_known = |fragment: &&Fragment| {
            let cell = self.cell_of(fragment.range.first);
            let is_known = self.index_at(fragment.range.first).is_some_and(|index| known.has(index));
            fragment.range != cell && !is_known
        };
        let fragments = self.fragments.iter().filter(is_less_than_known).map(|fragment| format::Fragment {
            first: fragment.range.first,
            bytes: fragment.range.len_bytes() as u32,
            fill: fragment.group.announced(),
        });
        Some(Layout {
            fill: self.group.announced(),
            cell_bytes: u32::try_from(self.segment_bytes).ok()?,
            runs: known.runs.clone(),
            fragments: fragments.collect(),
        })
    }

    /// Returns the body with the layout of a record that was read. Memory may hold all known parts, or none. `None` if the layout is
    /// invalid.
    pub fn restored(
        memory: &Memory<impl Record>,
        layout: &Layout,
        complete_bytes: Option<u64>,
    ) -> Option<Self> {
        let segment_bytes = layout.cell_bytes as usize;
        let is_size = (1..=SEGMENT_BYTES_MAX).contains(&segment_bytes);
        if !is_size || layout.fragments.len() > FRAGMENTS_MAX || !are_in_order(layout) {
            return None;
        }
        let known = Known::of(&layout.runs)?;
        let fragment = |fragment: &format::Fragment| Fragment {
            range: range_of(fragment),
            group: memory.group_of(fragment.fill),
        };
        let group: Arc<_> = memory.group_of(layout.fill);
        let fragments = layout.fragments.iter().map(fragment).collect();
        Some(Self { group, segment_bytes, complete_bytes, fragments, known: Some(Box::new(known)) })
    }
}

/// Returns whether no fragment is empty, overlaps another or crosses the border of a cell.
fn are_in_order(layout: &Layout) -> bool {
    let cell_bytes = u64::from(layout.cell_bytes);
    let is_within = |fragment: &format::Fragment| {
        let end = fragment.first.checked_add(u64::from(fragment.bytes));
        fragment.bytes > 0 && end.is_some_and(|end| fragment.first / cell_bytes == (end - 1) / cell_bytes)
    };
    let is_behind = |pair: &[format::Fragment]| range_of(&pair[0]).last < pair[1].first;
    layout.fragments.iter().all(is_within) && layout.fragments.windows(2).all(is_behind)
}

fn range_of(fragment: &format::Fragment) -> ByteRange {
    ByteRange { first: fragment.first, last: fragment.first + u64::from(fragment.bytes) - 1 }
}
