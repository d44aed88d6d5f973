//! Bodies: where their bytes lie.

use std::sync::Arc;

use bytes::Bytes;
use store::format::{Body, BodyState, Content, INLINE_BYTES_MAX, Layout, Run};
use store::{FillId, Memory, Record};

use crate::cache::inflight::fill::INLINE_BODY_BYTES_MAX;
use crate::cache::record::segmented::Segmented;
use crate::cache::record::stored::StoredBody;

/// A body that is inside of the record in memory and too large for that elsewhere is one segment, of a cell of this
/// size.
pub(super) const SMALL_CELL_BYTES: u32 = 64 << 10;

const _: () = assert!(INLINE_BODY_BYTES_MAX <= SMALL_CELL_BYTES as usize);

/// What a record says of a body, which is called `fill` if it has no name of its own. `None` where nobody knows what of it
/// a tier may have.
pub(super) fn written(body: &StoredBody, fill: FillId) -> Option<Body<'_>> {
    let content = match body {
        StoredBody::Inline(data) if data.len() <= INLINE_BYTES_MAX => Content::Inline(data),
        StoredBody::Inline(_) => Content::Segments(Layout {
            fill,
            cell_bytes: SMALL_CELL_BYTES,
            runs: vec![Run { first: 0, count: 1 }],
            fragments: Vec::new(),
        }),
        StoredBody::Segments(body) => Content::Segments(layout(body)?),
    };
    let complete_bytes = body.complete_bytes();
    let is_complete = match &content {
        Content::Inline(_) => true,
        Content::Segments(layout) => Some(held_bytes(layout, complete_bytes)) == complete_bytes,
    };
    let state = if is_complete { BodyState::Complete } else { BodyState::Part };
    Some(Body { state, complete_bytes, content })
}

/// The bytes that are written apart from the record, as the one segment of their fill.
pub(super) fn apart(body: &StoredBody) -> Option<&Bytes> {
    match body {
        StoredBody::Inline(data) => (data.len() > INLINE_BYTES_MAX).then_some(data),
        StoredBody::Segments(_) => None,
    }
}

/// A body that is to be inside of the record in memory, and lies in segments: how many there are.
pub(super) fn small(body: &Body<'_>) -> Option<(FillId, u32)> {
    let Content::Segments(layout) = &body.content else { return None };
    let is_small = body.complete_bytes.is_some_and(|bytes| bytes <= INLINE_BODY_BYTES_MAX as u64);
    match layout.runs[..] {
        [Run { first: 0, count }]
            if is_small && body.state == BodyState::Complete && count <= SMALL_CELLS_MAX =>
        {
            layout.fragments.is_empty().then_some((layout.fill, count))
        }
        _ => None,
    }
}

/// A smaller cell than of others' records makes a small body one in segments, of which any may be missing.
const SMALL_CELLS_MAX: u32 = 16;

/// The body that a record tells of; `found` gives the bytes of a small one by its fill. `None` where it is of no use.
pub(super) fn read(
    body: &Body<'_>,
    memory: &Memory<impl Record>,
    found: impl Fn(FillId) -> Option<Bytes>,
) -> Option<StoredBody> {
    // That there will be more is worth nothing without the lease on the key.
    if body.state == BodyState::Filling {
        return None;
    }
    if let Some((fill, _)) = small(body) {
        let data = found(fill).filter(|data| Some(data.len() as u64) == body.complete_bytes)?;
        return Some(StoredBody::Inline(data));
    }
    match &body.content {
        // A copy, since the bytes of the record are not kept.
        Content::Inline(data) => Some(StoredBody::Inline(Bytes::copy_from_slice(data))),
        Content::Segments(layout) => {
            let body = segmented(layout, body.complete_bytes, memory)?;
            Some(StoredBody::Segments(Box::new(body)))
        }
    }
}

fn held_bytes(layout: &Layout, complete_bytes: Option<u64>) -> u64 {
    let cell_bytes = u64::from(layout.cell_bytes);
    let of_run = |run: &Run| {
        let begins = u64::from(run.first) * cell_bytes;
        let ends = begins + u64::from(run.count) * cell_bytes;
        complete_bytes.map_or(ends, |complete| complete.min(ends)).saturating_sub(begins)
    };
    let in_cells = layout.runs.iter().map(of_run).sum::<u64>();
    in_cells + layout.fragments.iter().map(|fragment| u64::from(fragment.bytes)).sum::<u64>()
}

/// What is held of a body now.
fn layout(body: &Segmented) -> Option<Layout> {
    let held = (0..body.group.count()).filter(|index| body.group.segment(*index).is_some());
    let mut runs: Vec<Run> = Vec::new();
    for index in held {
        match runs.last_mut() {
            Some(run) if run.first + run.count == index => run.count += 1,
            _ => runs.push(Run { first: index, count: 1 }),
        }
    }
    let cell_bytes = u32::try_from(body.segment_bytes).ok()?;
    Some(Layout { fill: body.group.fill(), cell_bytes, runs, fragments: Vec::new() })
}

fn segmented(
    layout: &Layout,
    complete_bytes: Option<u64>,
    memory: &Memory<impl Record>,
) -> Option<Segmented> {
    let group = Arc::new(memory.open_group());
    Some(Segmented::new(group, usize::try_from(layout.cell_bytes).ok()?, complete_bytes))
}
