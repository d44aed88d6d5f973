//! Bodies: where their bytes lie.

use bytes::Bytes;
use caching::ByteRange;
use store::format::{Body, BodyState, Content, INLINE_BYTES_MAX, Layout, Run};
use store::{FillId, Memory, Record};

use crate::cache::inflight::fill::INLINE_BODY_BYTES_MAX;
use crate::cache::record::segmented::{Absent, Segmented};
use crate::cache::record::stored::StoredBody;

/// A body that is inside of the record in memory and too large for that elsewhere is one segment, of a cell of this
/// size.
pub(super) const SMALL_CELL_BYTES: u32 = 64 << 10;

const _: () = assert!(INLINE_BODY_BYTES_MAX <= SMALL_CELL_BYTES as usize);

/// What a record says of a body, which is called `fill` if it has no name of its own. `given` is what the tier has acknowledged: memory
/// may have lost the rest before it was given. `None` where that is not said.
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

/// The bytes that are written apart from the record, as the one segment of their fill.
pub(super) fn apart(body: &StoredBody) -> Option<&Bytes> {
    match body {
        StoredBody::Inline(data) => (data.len() > INLINE_BYTES_MAX).then_some(data),
        StoredBody::Segments(_) => None,
    }
}

/// The segments of a body that is to be inside of the record in memory, and lies in them elsewhere.
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

/// A smaller cell than of others' records makes a small body one in segments, of which any may be missing.
const SMALL_CELLS_MAX: u32 = 16;

/// The body that a record tells of; `found` gives the bytes of a small one by its fill. `None` where it is of no use.
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
        // A copy, since the bytes of the record are not kept.
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
