//! Bodies in a tier behind memory: their segments by fill and index, loaded when their turn comes and given before the
//! record that names them.
//!
//! The tier has deadlines and a circuit breaker of its own. Whatever it answers, a missing byte is a hole and no error.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use caching::ByteRange;
use store::backing::{Backing, BackingError};
use store::format::{Fragment, Layout, Meaning, Run, SegmentFrame, TagKeys, decode_segment, encode_segment};
use store::{Budget, FillId, OverBudget, Place, Segment, SegmentId, SegmentPut};

use super::counts::{Counts, Event};
use super::together::Together;
use crate::cache::record::segmented::{Absent, Segmented};

/// Asked for at once, if a segment is not larger: it must come within the deadline of one operation.
pub(crate) const LOAD_BYTES_MAX: u64 = 2 << 20;

/// Loaded before the head of a reply is sent, where a reply must have all its bytes by then.
pub(crate) const AHEAD_BYTES_MAX: u64 = 8 << 20;

/// Beside the data of a segment in the tier.
const FRAME_BYTES: usize = store::backing::SEGMENT_FRAME_BYTES_MAX - store::SEGMENT_BYTES_MAX;

/// Segments whose time to live is asked for at once.
const EXTENDED_AT_ONCE: usize = 256;

/// The segments of all bodies.
pub(crate) struct TierSegments {
    backing: Arc<dyn Backing>,
    budget: Arc<Budget>,
    keys: Option<TagKeys>,
    counts: Arc<Counts>,
    loads: Together<(Absent, Place), Option<Vec<Option<Segment>>>>,
    written: AtomicU64,
}

/// Why nothing was loaded or given, whatever the tier has.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unavailable {
    #[error(transparent)]
    Tier(#[from] BackingError),
    #[error(transparent)]
    NoRoom(#[from] OverBudget),
}

impl TierSegments {
    /// `backing` keeps deadlines; `keys` are those of the tags, where tags are required.
    pub(crate) fn new(
        backing: Arc<dyn Backing>,
        budget: Arc<Budget>,
        keys: Option<TagKeys>,
        counts: Arc<Counts>,
    ) -> Self {
        Self { backing, budget, keys, counts, loads: Together::default(), written: AtomicU64::new(0) }
    }

    /// How many the tier has taken.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// What the tier has of what a body lacks, asked for once for all who lack the same at the same time. `None` without an answer. To be
    /// polled without long pauses.
    pub(crate) async fn load_together(&self, absent: &Absent, place: Place) -> Option<Vec<Option<Segment>>> {
        self.loads.get((absent.clone(), place), async { self.load(absent, place).await.ok() }).await
    }

    /// What the tier has of what a body lacks, in its order. It is counted in the budget, and in no group.
    ///
    /// # Errors
    /// When the tier does not answer, or there is no room for what it may answer.
    pub(crate) async fn load(
        &self,
        absent: &Absent,
        place: Place,
    ) -> Result<Vec<Option<Segment>>, Unavailable> {
        let indexes: Vec<u32> = absent.segments.iter().map(|(index, _)| *index).collect();
        let lens = absent.segments.iter().map(|(_, range)| range.len_bytes());
        let cell_bytes = lens.clone().max().unwrap_or(0) as usize;
        let mut loaded = self.load_indexes(absent.fill, &indexes, cell_bytes, place).await?;
        // A segment of another length than the record says is as good as missing.
        for (segment, len) in loaded.iter_mut().zip(lens) {
            segment.take_if(|segment| segment.len() as u64 != len);
        }
        Ok(loaded)
    }

    /// `cell_bytes` is what the largest of them has at most.
    async fn load_indexes(
        &self,
        fill: FillId,
        indexes: &[u32],
        cell_bytes: usize,
        place: Place,
    ) -> Result<Vec<Option<Segment>>, Unavailable> {
        let room = self.budget.reserve(indexes.len() * (cell_bytes + FRAME_BYTES))?;
        let mut answer = self.backing.load_segments(fill, indexes).await?.into_iter();
        let mut unusable = Vec::new();
        let mut loaded = Vec::with_capacity(indexes.len());
        for index in indexes {
            let bytes = answer.next().flatten();
            let decoded = bytes.map(|bytes| self.decode(SegmentId { fill, index: *index }, place, &bytes));
            if matches!(decoded, Some(Err(Unusable::Remove))) {
                unusable.push(*index);
            }
            loaded.push(decoded.and_then(Result::ok));
        }
        drop(room);
        if !unusable.is_empty() {
            // What can't be removed now is found again.
            let _ = self.backing.remove_segments(fill, &unusable).await;
        }
        Ok(loaded)
    }

    fn decode(&self, id: SegmentId, place: Place, bytes: &[u8]) -> Result<Segment, Unusable> {
        let frame = decode_segment(bytes, id, self.keys.as_ref()).map_err(|error| match error.meaning() {
            Meaning::Corrupt => {
                self.counts.add(Event::Corrupt);
                Unusable::Remove
            }
            Meaning::Forged => {
                self.counts.add(Event::Forged);
                Unusable::Remove
            }
            Meaning::Leave | Meaning::Replace => Unusable::Leave,
        })?;
        Segment::copy(&self.budget, place, frame.data).map_err(|_| Unusable::Leave)
    }

    /// The body with all bytes of `ranges`, which it holds as long as it lives. Memory keeps them too, where it has room. `None` where
    /// something is neither held nor to be had, or these are more than [`AHEAD_BYTES_MAX`].
    pub(crate) async fn complete(
        &self,
        body: &Segmented,
        ranges: &[ByteRange],
        place: Place,
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

    /// Gives the tier all segments of a body that it lacks, and lets all of them live for `ttl` from now on. The record that names them
    /// comes afterwards, and says what the tier has acknowledged: this. What it lacks and memory holds no more is not part of it.
    /// `None` for a body that is not followed.
    ///
    /// # Errors
    /// When the tier does not answer, or there is no room for what it is sent.
    pub(crate) async fn store(&self, body: &Segmented, ttl: Duration) -> Result<Option<Layout>, Unavailable> {
        let Some(layout) = body.layout() else { return Ok(None) };
        let cell_bytes = layout.cell_bytes;
        let mut runs = Vec::new();
        let indexes: Vec<u32> = layout.runs.iter().flat_map(|run| run.first..run.first + run.count).collect();
        for some in indexes.chunks(EXTENDED_AT_ONCE) {
            let given = Given { source: Source::Body(body), fill: layout.fill, cell_bytes, ttl };
            self.give(&given, some).await?.into_iter().for_each(|index| append(&mut runs, index));
        }
        let mut fragments: Vec<Fragment> = Vec::new();
        for fragment in layout.fragments {
            let given = Given { source: Source::Body(body), fill: fragment.fill, cell_bytes, ttl };
            if !self.give(&given, &[0]).await?.is_empty() {
                fragments.push(fragment);
            }
        }
        Ok(Some(Layout { runs, fragments, ..layout }))
    }

    /// The same for a small body that is one segment there and none in memory. Says whether it was acknowledged.
    ///
    /// # Errors
    /// As of [`TierSegments::store`].
    pub(crate) async fn store_small(
        &self,
        fill: FillId,
        cell_bytes: u32,
        data: &Bytes,
        ttl: Duration,
    ) -> Result<bool, Unavailable> {
        let given = Given { source: Source::Bytes(data), fill, cell_bytes, ttl };
        Ok(!self.give(&given, &[0]).await?.is_empty())
    }

    /// Says which of the segments the tier has then, in order.
    async fn give(&self, given: &Given<'_>, indexes: &[u32]) -> Result<Vec<u32>, Unavailable> {
        let mut has = indexes.to_vec();
        for index in self.lacking(given, indexes).await? {
            if !self.put(given, index).await? {
                has.retain(|held| *held != index);
            }
        }
        Ok(has)
    }

    /// Lets segments live on, and says which of them the tier lacks. It tells only how many: of a new body it has none, of an old one
    /// all, and in between the halves tell.
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
        let Some(data) = given.source.bytes(id) else { return Ok(false) };
        let _room = self.budget.reserve(data.len() + FRAME_BYTES)?;
        let mut out = Vec::new();
        let frame = SegmentFrame { id, cell_bytes: given.cell_bytes, data: &data };
        if encode_segment(&frame, self.keys.as_ref(), &mut out).is_err() {
            return Ok(false);
        }
        let put = self.backing.put_segment(id, Bytes::from(out), given.ttl).await?;
        self.written.fetch_add(1, Ordering::Relaxed);
        Ok(matches!(put, SegmentPut::Stored | SegmentPut::AlreadyThere))
    }
}

/// Segments of one fill on their way into the tier.
struct Given<'a> {
    source: Source<'a>,
    fill: FillId,
    cell_bytes: u32,
    ttl: Duration,
}

/// Where their bytes are.
enum Source<'a> {
    Body(&'a Segmented),
    /// The bytes of the only one.
    Bytes(&'a Bytes),
}

impl Source<'_> {
    fn bytes(&self, id: SegmentId) -> Option<Bytes> {
        match self {
            Self::Body(body) => body.held(id)?.to_bytes().ok(),
            Self::Bytes(bytes) => Some(Bytes::clone(bytes)),
        }
    }
}

/// What to do about bytes that are not the segment.
enum Unusable {
    Remove,
    Leave,
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
