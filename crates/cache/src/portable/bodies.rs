//! Bodies in records: inline or in segments.

use bytes::Bytes;
use caching::ByteRange;
use store::format::{Body, BodyState, Content, INLINE_BYTES_MAX, Layout, Run};
use store::{FillId, Memory, Record};

use crate::entry::segmented::{Absent, Segmented};
use crate::entry::stored::StoredBody;
use crate::fill::INLINE_BODY_BYTES_MAX;

/// Cell size in the tier of a body that memory stores inside the record. Such a body is too large for a record in a tier, and takes one
/// segment there.
pub(super) const SMALL_CELL_BYTES: u32 = 64 << 10;

const _: () = assert!(INLINE_BODY_BYTES_MAX <= SMALL_CELL_BYTES as usize);

/// Returns the body for a record, with the id `fill` if the body has no id of its own. `given` are the layouts that the tier has
/// acknowledged. `None` if none of them is the body's, because memory may have lost segments before they were written.
pub(super) fn written<'a>(body: &'a StoredBody, fill: FillId, given: &[Layout]) -> Option<Body<'a>> {
    let content = match body {
        StoredBody::Inline(data) if data.len() <= INLINE_BYTES_MAX => Content::Inline(data),
        StoredBody::Inline(_) => Content::Segments(Layout {
            fill,
            cell_bytes: SMALL_CELL_BYTES,
            runs: vec![Run { first: 0, count: 1 }],
            fragments: Vec::new(),
        }),
        StoredBody::Segments(body) => {
            let own = body.group.fill();
            Content::Segments(given.iter().find(|given| given.fill == own)?.clone())
        }
    };
    let complete_bytes = body.complete_bytes();
    let is_complete = match &content {
        Content::Inline(_) => true,
        Content::Segments(layout) => Some(held_bytes(layout, complete_bytes)) == complete_bytes,
    };
    let state = if is_complete { BodyState::Complete } else { BodyState::Part };
    Some(Body { state, complete_bytes, content })
}

/// Returns the segments of a small body, which memory stores inside the record and the tier in segments.
pub(super) fn small(body: &Body<'_>) -> Option<Absent> {
    let Content::Segments(layout) = &body.content else { return None };
    let bytes = body.complete_bytes.filter(|bytes| *bytes <= INLINE_BODY_BYTES_MAX as u64)?;
    let [Run { first: 0, count }] = layout.runs[..] else { return None };
    if body.state != BodyState::Complete || count > SMALL_CELLS_MAX || !layout.fragments.is_empty() {
        return None;
    }
    let cell_bytes = u64::from(layout.cell_bytes);
    let cell = |index: u32| {
        let first = u64::from(index) * cell_bytes;
        (index, ByteRange { first, last: bytes.min(first + cell_bytes) - 1 })
    };
    Some(Absent { fill: layout.fill, segments: (0..count).map(cell).collect() })
}

/// Maximum number of cells of a small body. A body with more cells, as in a record with smaller cells, stays in segments, any of which may
/// be missing.
const SMALL_CELLS_MAX: u32 = 16;

/// Returns the body of a record; `found` returns the bytes of a small body by its fill. `None` if the body is unusable.
pub(super) fn read(
    body: &Body<'_>,
    memory: &Memory<impl Record>,
    found: impl Fn(FillId) -> Option<Bytes>,
) -> Option<StoredBody> {
    if let Some(Absent { fill, .. }) = small(body) {
        let data = found(fill).filter(|data| Some(data.len() as u64) == body.complete_bytes)?;
        return Some(StoredBody::Inline(data));
    }
    match &body.content {
        // Copies the body, because the bytes of the record are not kept.
        Content::Inline(data) => Some(StoredBody::Inline(Bytes::copy_from_slice(data))),
        Content::Segments(layout) => {
            let body = Segmented::restored(memory, layout, body.complete_bytes)?;
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
