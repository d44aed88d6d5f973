//! Bodies in a tier behind memory. A segment is identified by its fill and index. A segment is loaded when a reply needs it, and written
//! before the record that refers to it.
//!
//! The tier has its own deadlines and circuit breaker. Missing bytes are a hole and never an error, whatever the tier answers.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cache::entry::segmented::{Absent, Segmented};
use caching::ByteRange;
use store::backing::{Backing, BackingError};
use store::format::{Fragment, Layout, Meaning, Run, SegmentFrame, decode_segment, encode_segment};
use store::{Budget, FillId, OverBudget, Placement, Segment, SegmentId, SegmentPut};

use crate::counts::{Counts, Event};
use crate::single_flight::SingleFlight;

/// Maximum number of bytes that one load requests, because they have to arrive within the deadline of one operation. A larger segment is
/// requested alone.
pub const LOAD_BYTES_MAX: u64 = 2 << 20;

/// Maximum number of bytes to load for a reply that may begin only when all its bytes are in memory.
pub const AHEAD_BYTES_MAX: u64 = 8 << 20;

/// Size of the frame around a segment's data in the tier.
const FRAME_BYTES: usize = store::backing::SEGMENT_FRAME_BYTES_MAX - store::SEGMENT_BYTES_MAX;

/// Number of segments whose lifetime one operation extends.
const EXTENDED_AT_ONCE: usize = 256;

/// Segments of all bodies.
pub struct TierSegments {
    backing: Arc<dyn Backing>,
    budget: Arc<Budget>,
    counts: Arc<Counts>,
    loads: SingleFlight<(Absent, Placement), Option<Vec<Option<Segment>>>>,
    written: AtomicU64,
}

/// Error when loading or writing segments.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    #[error(transparent)]
    Tier(#[from] BackingError),
    #[error(transparent)]
    NoRoom(#[from] OverBudget),
    /// The tier refuses the bytes because it has no memory for them.
    #[error("the tier refuses the bytes")]
    Refused,
}

impl TierSegments {
    /// Creates the segments of a tier. `backing` must enforce its own deadlines.
    pub fn new(backing: Arc<dyn Backing>, budget: Arc<Budget>, counts: Arc<Counts>) -> Self {
        Self { backing, budget, counts, loads: SingleFlight::default(), written: AtomicU64::new(0) }
    }

    /// Returns the number of segments that the tier has accepted.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Loads missing segments of a body, once for all concurrent callers that need the same segments. Returns `None` if the tier doesn't
    /// answer. Poll the future without long pauses.
    pub async fn load_together(&self, absent: &Absent, place: Placement) -> Option<Vec<Option<Segment>>> {
        self.loads.get((absent.clone(), place), async { self.load(absent, place).await.ok() }).await
    }

    /// Loads missing segments of a body, in order. The segments count against the budget, but belong to no group.
    ///
    /// # Errors
    /// If the tier doesn't answer, or the budget has no room for the largest possible answer.
    pub async fn load(&self, absent: &Absent, place: Placement) -> Result<Vec<Option<Segment>>, Unavailable> {
        let indexes: Vec<u32> = absent.segments.iter().map(|(index, _)| *index).collect();
        let lens = absent.segments.iter().map(|(_, range)| range.len_bytes());
        let cell_bytes = lens.clone().max().unwrap_or(0) as usize;
        let mut loaded = self.load_indexes(absent.fill, &indexes, cell_bytes, place).await?;
        // A segment whose length differs from the record's counts as missing.
        for (segment, len) in loaded.iter_mut().zip(lens) {
            segment.take_if(|segment| segment.len() as u64 != len);
        }
        Ok(loaded)
    }

    /// Loads segments of at most `cell_bytes` each.
    async fn load_indexes(
        &self,
        fill: FillId,
        indexes: &[u32],
        cell_bytes: usize,
        place: Placement,
    ) -> Result<Vec<Option<Segment>>, Unavailable> {
        let room = self.budget.reserve(indexes.len() * (cell_bytes + FRAME_BYTES))?;
        let mut answer = self.backing.load_segments(fill, indexes).await?.into_iter();
        let mut unusable = Vec::new();
        let mut loaded = Vec::with_capacity(indexes.len());
        for index in indexes {
            let id = SegmentId { fill, index: *index };
            let bytes = answer.next().flatten();
            loaded.push(bytes.and_then(|bytes| self.decode(id, place, &bytes, &mut unusable)));
        }
        drop(room);
        if !unusable.is_empty() {
            // If a segment can't be removed now, a later load detects it again.
            let _ = self.backing.remove_segments(fill, &unusable).await;
        }
        Ok(loaded)
    }

    /// Decodes a segment. If no instance can use the segment, counts it and adds it to `unusable`.
    fn decode(
        &self,
        id: SegmentId,
        place: Placement,
        bytes: &[u8],
        unusable: &mut Vec<u32>,
    ) -> Option<Segment> {
        let event = match decode_segment(bytes, id, None).map_err(|error| error.meaning()) {
            Ok(frame) => return Segment::copy(&self.budget, place, frame.data).ok(),
            Err(Meaning::Corrupt) => Event::Corrupt,
            Err(Meaning::Forged) => Event::Forged,
            Err(Meaning::Leave | Meaning::Replace) => return None,
        };
        self.counts.add(event);
        unusable.push(id.index);
        None
    }

    /// Loads all bytes of `ranges` and returns a body that holds them as long as it exists. Memory keeps the loaded bytes, too, if it has
    /// room. Returns `None` if bytes are neither in memory nor in the tier, or if there are more than `AHEAD_BYTES_MAX`.
    pub async fn complete(
        &self,
        body: &Segmented,
        ranges: &[ByteRange],
        place: Placement,
    ) -> Option<Segmented> {
        let mut body = body.clone();
        let mut left_bytes = AHEAD_BYTES_MAX;
        for range in ranges {
            let end = range.last + 1;
            while let Some(position) = body.first_not_held(range.first, end) {
                let absent = body.absent_at(position, end, LOAD_BYTES_MAX.min(left_bytes))?;
                left_bytes = left_bytes.checked_sub(absent.bytes())?;
                let loaded = self.load_together(&absent, place).await?;
                body = with_all(body, &absent, loaded)?;
            }
        }
        Some(body)
    }

    /// Writes the segments of a body that the tier lacks, and extends the lifetime of all segments to `ttl` from now. Returns the layout of
    /// the segments that the tier has acknowledged, for the record that is written afterwards. The layout leaves out segments that neither
    /// the tier nor memory has. Returns `None` for a body that isn't followed.
    ///
    /// # Errors
    /// If the tier doesn't answer or refuses a segment, or the budget has no room for a segment while it is sent.
    pub async fn store(&self, body: &Segmented, ttl: Duration) -> Result<Option<Layout>, Unavailable> {
        let Some(layout) = body.layout() else { return Ok(None) };
        let cell_bytes = layout.cell_bytes;
        let bytes = |id| body.held(id)?.to_bytes().ok();
        let mut runs = Vec::new();
        let indexes: Vec<u32> = layout.runs.iter().flat_map(|run| run.first..run.first + run.count).collect();
        for some in indexes.chunks(EXTENDED_AT_ONCE) {
            let given = Given { bytes: &bytes, fill: layout.fill, cell_bytes, ttl };
            self.give(&given, some).await?.into_iter().for_each(|index| append(&mut runs, index));
        }
        let mut fragments: Vec<Fragment> = Vec::new();
        for fragment in layout.fragments {
            let given = Given { bytes: &bytes, fill: fragment.fill, cell_bytes, ttl };
            if !self.give(&given, &[0]).await?.is_empty() {
                fragments.push(fragment);
            }
        }
        Ok(Some(Layout { runs, fragments, ..layout }))
    }

    /// Writes a small body, which is a single segment in the tier, but not in memory. Returns whether the tier acknowledged the body.
    ///
    /// # Errors
    /// Returns the errors of [`TierSegments::store`].
    pub async fn store_small(
        &self,
        fill: FillId,
        cell_bytes: u32,
        data: &Bytes,
        ttl: Duration,
    ) -> Result<bool, Unavailable> {
        let given = Given { bytes: &|_| Some(data.clone()), fill, cell_bytes, ttl };
        Ok(!self.give(&given, &[0]).await?.is_empty())
    }

    /// Writes segments that the tier lacks. Returns the segments that the tier then has, in order.
    async fn give(&self, given: &Given<'_>, indexes: &[u32]) -> Result<Vec<u32>, Unavailable> {
        let mut has = indexes.to_vec();
        for index in self.lacking(given, indexes).await? {
            if !self.put(given, index).await? {
                has.retain(|held| *held != index);
            }
        }
        Ok(has)
    }

    /// Extends the lifetime of segments, and returns those that the tier lacks. The tier only reports how many of the segments it has:
    /// usually none for a new body, or all for an old one. If the tier has only some, each half is queried separately.
    async fn lacking(&self, given: &Given<'_>, indexes: &[u32]) -> Result<Vec<u32>, Unavailable> {
        let mut lacking = Vec::new();
        let mut open = vec![indexes];
        while let Some(some) = open.pop() {
            match self.backing.extend_segments(given.fill, some, given.ttl).await? {
                0 => lacking.extend_from_slice(some),
                count if count >= some.len() => {}
                _ => {
                    let (front, back) = some.split_at(some.len() / 2);
                    open.extend([back, front]);
                }
            }
        }
        Ok(lacking)
    }

    async fn put(&self, given: &Given<'_>, index: u32) -> Result<bool, Unavailable> {
        let id = SegmentId { fill: given.fill, index };
        let Some(data) = (given.bytes)(id) else { return Ok(false) };
        let _room = self.budget.reserve(data.len() + FRAME_BYTES)?;
        let mut out = Vec::new();
        let frame = SegmentFrame { id, cell_bytes: given.cell_bytes, data: &data };
        if encode_segment(&frame, None, &mut out).is_err() {
            return Ok(false);
        }
        if let SegmentPut::NotStored(_) = self.backing.put_segment(id, Bytes::from(out), given.ttl).await? {
            return Err(Unavailable::Refused);
        }
        self.written.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }
}

/// Segments of one fill that are being written.
struct Given<'a> {
    /// Returns the bytes of a segment; `None` if they aren't in memory.
    bytes: &'a (dyn Fn(SegmentId) -> Option<Bytes> + Sync),
    fill: FillId,
    cell_bytes: u32,
    ttl: Duration,
}

fn with_all(body: Segmented, absent: &Absent, loaded: Vec<Option<Segment>>) -> Option<Segmented> {
    let loaded: Option<Vec<Segment>> = loaded.into_iter().collect();
    let ids = absent.segments.iter().map(|(index, _)| SegmentId { fill: absent.fill, index: *index });
    let loaded: Vec<_> = ids.zip(loaded?).collect();
    for (id, segment) in &loaded {
        body.keep(*id, segment.clone());
    }
    Some(body.with_loaded(loaded))
}

fn append(runs: &mut Vec<Run>, index: u32) {
    match runs.last_mut() {
        Some(last) if last.first + last.count == index => last.count += 1,
        _ => runs.push(Run { first: index, count: 1 }),
    }
}
