//! A response body on its way from the origin, shared by everybody who reads it.
//!
//! A fill has three ends that are never confused: it is filling, complete, or aborted. One writer (the fetch
//! task) appends; any number of readers follow at their own pace and are woken, never polled.
//!
//! While the body may still be stored, all of it is kept (`Retention::Whole`) and readers don't slow the writer.
//! Once it turns out too large, or the memory budget has no room, only a window is kept
//! (`Retention::Window`): the writer then waits for the slowest reader, and stops when nobody is left.
//!
//! The last bytes of a body that will be stored are shown when it is: who has read a response finds it in the cache.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use caching::ByteRange;
use http::HeaderMap;
use parking_lot::Mutex;
use store::{Budget, Charge, Place, Segment, Slice};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::message::piece::PieceMax;
use crate::reason::Reason;
use crate::upstream::{Pacing, UNCHARGED_PIECE_BYTES_MAX};

/// Bytes between the writer and the slowest reader of a body that isn't stored.
const WINDOW_BYTES_MAX: u64 = 512 * 1024;
/// How long readers may leave the window full where there is no room for one more body that goes at their pace.
const CROWDED_STALL_MAX: Duration = Duration::from_secs(2);
/// Copied out of an unfinished segment at once.
const COPY_BYTES_MAX: usize = 64 * 1024;
/// Bodies up to this size are kept inside their metadata record: one look-up, one allocation. Larger ones are cheaper to
/// send from a file, where that is possible.
pub(crate) const INLINE_BODY_BYTES_MAX: usize = 64 * 1024 - 1;

/// A body whose length is not known counts as small up to here.
const SMALL_UNANNOUNCED_BYTES_MAX: u64 = 16 * 1024;

/// Sizes that a fill keeps to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FillLimits {
    /// The largest body that is stored.
    pub(crate) body_bytes_max: u64,
    /// The size of a segment.
    pub(crate) segment_bytes: usize,
    /// The size of the first one: less for a part that does not begin where a segment of the whole would.
    pub(crate) first_segment_bytes: usize,
    /// Where the segments are made.
    pub(crate) place: Place,
}

/// A body in progress.
#[derive(Debug)]
pub(crate) struct Fill {
    budget: Arc<Budget>,
    limits: FillLimits,
    expected_bytes: Option<u64>,
    began_as: Retention,
    /// Requests that were promised this body and have not begun to read.
    promised: Arc<AtomicUsize>,
    state: Mutex<State>,
    arrived: Notify,
    read: Notify,
}

#[derive(Debug)]
struct State {
    /// Finished parts, in order, without gaps; each with its place in the body.
    pieces: VecDeque<Piece>,
    /// The sealed segments; what will be stored.
    segments: Vec<Segment>,
    /// The unfinished segment (only while the whole body is kept), and the right to hold it.
    tail: Vec<u8>,
    tail_charge: Option<Charge>,
    total_bytes: u64,
    /// From here on nothing is shown yet.
    withheld_from: u64,
    /// What comes before is not all charged: readers must pass it before there is more.
    uncharged_until: u64,
    retention: Retention,
    end: End,
    /// Positions of readers; freed places are reused.
    readers: Vec<Option<u64>>,
}

#[derive(Debug)]
struct Piece {
    start: u64,
    data: Slice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retention {
    Whole,
    Window,
}

#[derive(Clone, Debug)]
enum End {
    Filling,
    Complete(Option<Arc<HeaderMap>>),
    Aborted,
}

/// Why a body that was going to be stored will not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotKept {
    /// Larger than the rule or the tier allows.
    TooLarge,
    /// The memory budget has no room.
    OverBudget,
}

impl NotKept {
    /// For `Cache-Status` details and metrics.
    pub(crate) fn reason(self) -> Reason {
        match self {
            Self::TooLarge => Reason::TooLarge,
            Self::OverBudget => Reason::MemoryFull,
        }
    }
}

/// What a writer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Go on.
    Kept,
    /// All that was announced is here. What this write brought is shown when [`Fill::release`] is called.
    All,
    /// More than was announced is here: stop, and abort.
    TooLong,
    /// Go on; this write made the body one that isn't stored.
    NoLongerKept(NotKept),
    /// Stop: the body isn't stored and nobody reads it.
    Abandoned,
    /// Stop: its readers do not keep up, and there are too many like that.
    TooSlow,
}

/// The body broke off: its readers must make that visible to their clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the response body broke off")]
pub(crate) struct Aborted;

/// A whole body, ready to be stored.
#[derive(Debug)]
pub(crate) enum CompleteBody {
    /// Small: travels inside the record.
    Inline(Bytes),
    /// Its segments, in order; all but the first and the last are of [`FillLimits::segment_bytes`].
    Segments(Vec<Segment>),
}

impl Fill {
    /// `promised` counts requests that will read but have not begun; while it isn't zero nothing is let go.
    pub(crate) fn new(
        budget: Arc<Budget>,
        limits: FillLimits,
        expected_bytes: Option<u64>,
        promised: Arc<AtomicUsize>,
    ) -> Arc<Self> {
        let tail_bytes = expected_bytes.unwrap_or(0).min(limits.segment_bytes as u64) as usize;
        let retention = match expected_bytes {
            Some(bytes) if bytes > limits.body_bytes_max => Retention::Window,
            _ => Retention::Whole,
        };
        Arc::new(Self {
            budget,
            limits,
            expected_bytes,
            began_as: retention,
            promised,
            arrived: Notify::new(),
            read: Notify::new(),
            state: Mutex::new(State {
                pieces: VecDeque::new(),
                segments: Vec::new(),
                tail: Vec::with_capacity(tail_bytes),
                tail_charge: None,
                total_bytes: 0,
                withheld_from: u64::MAX,
                uncharged_until: 0,
                retention,
                end: End::Filling,
                readers: Vec::new(),
            }),
        })
    }

    /// A body of which only a window is kept, from the beginning.
    pub(crate) fn window(budget: Arc<Budget>) -> Arc<Self> {
        let limits =
            FillLimits { body_bytes_max: 0, segment_bytes: 1, first_segment_bytes: 1, place: Place::Heap };
        Self::new(budget, limits, Some(u64::MAX), Arc::default())
    }

    /// Appends `data`, wakes the readers, and in window mode waits until the slowest of them has caught up. Before it waits
    /// it asks whether it may.
    pub(crate) async fn write(&self, data: Bytes, may_wait: impl Fn() -> Pacing) -> Written {
        let (written, retention) = self.append(data);
        if !matches!(written, Written::All | Written::TooLong) {
            self.arrived.notify_waiters();
        }
        if retention == Retention::Whole {
            return written;
        }
        match self.window_has_room(may_wait).await {
            Room::Free | Room::Full => written,
            Room::NobodyReads => Written::Abandoned,
            Room::TooSlow => Written::TooSlow,
        }
    }

    fn append(&self, mut data: Bytes) -> (Written, Retention) {
        let mut state = self.state.lock();
        let mut written = Written::Kept;
        if state.retention == Retention::Whole {
            let shown_bytes = state.total_bytes;
            match state.keep(&mut data, &self.budget, self.limits, self.expected_bytes) {
                Ok(()) if self.expected_bytes.is_some_and(|expected| state.total_bytes > expected) => {
                    state.withheld_from = state.withheld_from.min(shown_bytes);
                    return (Written::TooLong, Retention::Whole);
                }
                Ok(()) if self.expected_bytes == Some(state.total_bytes) => {
                    state.withheld_from = state.withheld_from.min(shown_bytes);
                    return (Written::All, Retention::Whole);
                }
                Ok(()) => return (written, Retention::Whole),
                Err(reason) => written = Written::NoLongerKept(reason),
            }
            state.stop_keeping();
        }
        state.pass(data, &self.budget);
        (written, Retention::Window)
    }

    async fn window_has_room(&self, may_wait: impl Fn() -> Pacing) -> Room {
        loop {
            let read = self.read.notified();
            tokio::pin!(read);
            read.as_mut().enable();
            let promised = self.promised.load(Ordering::Acquire);
            match self.state.lock().room(promised) {
                Room::Full => {}
                room => return room,
            }
            match may_wait() {
                Pacing::Allowed => read.await,
                Pacing::Exceeded if timeout(CROWDED_STALL_MAX, read).await.is_err() => return Room::TooSlow,
                Pacing::Exceeded => {}
            }
        }
    }

    /// Resolves when the last reader has left. For bodies that are not stored.
    pub(crate) async fn nobody_reads(&self) {
        loop {
            let read = self.read.notified();
            tokio::pin!(read);
            read.as_mut().enable();
            if self.state.lock().readers.iter().all(Option::is_none) {
                return;
            }
            read.await;
        }
    }

    /// The body, once all of it is here. `None` when it isn't to be stored.
    pub(crate) fn body(&self) -> Option<CompleteBody> {
        self.state.lock().finish(&self.budget, self.limits.place)
    }

    /// Shows what was withheld.
    pub(crate) fn release(&self) {
        self.state.lock().withheld_from = u64::MAX;
        self.arrived.notify_waiters();
    }

    /// Ends the body well.
    //= RFC 9111 section 3.1: trailer fields are stored apart or discarded
    //= RFC 9111 section 3.1: trailer fields never join header fields
    pub(crate) fn complete(&self, trailers: Option<HeaderMap>) {
        let mut state = self.state.lock();
        state.end = End::Complete(trailers.map(Arc::new));
        drop(state);
        self.release();
    }

    /// Whether it was known from the beginning that this is not stored as one body.
    pub(crate) fn began_in_window(&self) -> bool {
        self.began_as == Retention::Window
    }

    /// Whether it still may be stored, as far as is known by now.
    pub(crate) fn may_be_stored(&self) -> bool {
        let state = self.state.lock();
        state.retention == Retention::Whole && !matches!(state.end, End::Aborted)
    }

    /// Why it won't be, where that is known and the body goes on. One that was longer than allowed is so from the beginning, or by what has
    /// arrived; else the budget had no room.
    pub(crate) fn why_not_stored(&self) -> Option<NotKept> {
        let state = self.state.lock();
        let is_too_large = self.expected_bytes.unwrap_or(state.total_bytes) > self.limits.body_bytes_max;
        (state.retention == Retention::Window).then_some(if is_too_large {
            NotKept::TooLarge
        } else {
            NotKept::OverBudget
        })
    }

    /// How many bytes have arrived.
    pub(crate) fn arrived_bytes(&self) -> u64 {
        self.state.lock().total_bytes
    }

    /// What it keeps that is not stored, or is no longer.
    pub(crate) fn unstored_bytes(&self) -> u64 {
        let state = self.state.lock();
        let pieces = state.pieces.iter().filter(|piece| !piece.data.is_stored());
        pieces.map(|piece| piece.data.len() as u64).sum::<u64>() + state.tail.len() as u64
    }

    /// Whether as much has arrived as was announced.
    pub(crate) fn is_as_announced(&self) -> bool {
        self.expected_bytes.is_none_or(|expected_bytes| expected_bytes == self.arrived_bytes())
    }

    /// Somebody who was promised this body began to read or left.
    pub(crate) fn promise_kept(&self) {
        self.read.notify_one();
    }

    /// Ends the body badly. A complete fill stays complete.
    pub(crate) fn abort(&self) {
        let mut state = self.state.lock();
        if matches!(state.end, End::Filling) {
            state.end = End::Aborted;
        }
        drop(state);
        self.arrived.notify_waiters();
    }

    /// A reader from `start` to `end` (exclusive; absent: to the end). `None` when the bytes at `start` are gone.
    pub(crate) fn reader(self: &Arc<Self>, start: u64, end: Option<u64>) -> Option<FillReader> {
        let mut state = self.state.lock();
        if state.first_kept() > start {
            return None;
        }
        let slot = state.readers.iter().position(Option::is_none).unwrap_or_else(|| {
            state.readers.push(None);
            state.readers.len() - 1
        });
        state.readers[slot] = Some(start);
        drop(state);
        Some(FillReader { fill: Arc::clone(self), slot, position: start, end })
    }
}

/// The writer's hold on a fill: a writer that goes away, even by a panic, leaves an aborted fill behind, never one
/// whose readers wait for ever.
pub(crate) struct Writer(pub(crate) Arc<Fill>);

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Whether the window of a body that isn't stored has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Free,
    Full,
    NobodyReads,
    /// Full for too long.
    TooSlow,
}

/// How much of a body is expected, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Small,
    Large,
}

impl Size {
    /// A body whose length is not known may become large, and leaves what it has taken to its readers then.
    fn of(expected_bytes: Option<u64>, arrived_bytes: u64) -> Self {
        let is_small = match expected_bytes {
            Some(bytes) => bytes <= INLINE_BODY_BYTES_MAX as u64,
            None => arrived_bytes <= SMALL_UNANNOUNCED_BYTES_MAX,
        };
        if is_small { Self::Small } else { Self::Large }
    }
}

impl State {
    /// Adds to the body while all of it is kept. On failure `data` is what was not taken.
    fn keep(
        &mut self,
        data: &mut Bytes,
        budget: &Arc<Budget>,
        limits: FillLimits,
        expected_bytes: Option<u64>,
    ) -> Result<(), NotKept> {
        if self.total_bytes + data.len() as u64 > limits.body_bytes_max {
            return Err(NotKept::TooLarge);
        }
        let size = Size::of(expected_bytes, self.total_bytes + data.len() as u64);
        while !data.is_empty() {
            let tail_bytes_max = self.tail_bytes_max(limits);
            let step = data.len().min(tail_bytes_max - self.tail.len());
            self.charge(step, budget, size)?;
            self.tail.extend_from_slice(&data.split_to(step));
            self.total_bytes += step as u64;
            if self.tail.len() == tail_bytes_max {
                self.seal(budget, limits.place)?;
            }
        }
        Ok(())
    }

    fn tail_bytes_max(&self, limits: FillLimits) -> usize {
        if self.segments.is_empty() { limits.first_segment_bytes } else { limits.segment_bytes }
    }

    fn charge(&mut self, bytes: usize, budget: &Arc<Budget>, size: Size) -> Result<(), store::OverBudget> {
        let more = match size {
            Size::Small => budget.reserve_small(bytes)?,
            Size::Large => budget.reserve(bytes)?,
        };
        match &mut self.tail_charge {
            Some(charge) => charge.join(more),
            None => self.tail_charge = Some(more),
        }
        Ok(())
    }

    /// Makes the tail a segment.
    fn seal(&mut self, budget: &Arc<Budget>, place: Place) -> Result<(), store::OverBudget> {
        let segment = Segment::copy(budget, place, &self.tail)?;
        self.pieces.push_back(Piece { start: self.tail_start(), data: segment.slice(0, segment.len()) });
        self.segments.push(segment);
        self.tail.clear();
        self.tail_charge = None;
        Ok(())
    }

    /// Changes to window mode: what was kept for storing is let go as its readers pass.
    fn stop_keeping(&mut self) {
        self.retention = Retention::Window;
        if !self.tail.is_empty() {
            let start = self.tail_start();
            let tail = std::mem::take(&mut self.tail);
            let data = match self.tail_charge.take() {
                Some(charge) => charge.hold(tail),
                None => Bytes::from(tail),
            };
            self.pieces.push_back(Piece { start, data: data.into() });
        }
        self.segments.clear();
        self.tail_charge = None;
        self.withheld_from = u64::MAX;
    }

    /// Adds to a body of which only a window is kept. What the budget has no room for is let through, so that the body goes on
    /// however little memory there is, but one piece at a time. Larger pieces than this are charged by who has read them.
    fn pass(&mut self, data: Bytes, budget: &Arc<Budget>) {
        if data.is_empty() {
            return;
        }
        let start = self.total_bytes;
        self.total_bytes += data.len() as u64;
        let data = match data.len() {
            UNCHARGED_PIECE_BYTES_MAX.. => data,
            bytes => match budget.reserve(bytes) {
                Ok(charge) => charge.hold(data),
                Err(store::OverBudget { .. }) => {
                    self.uncharged_until = self.total_bytes;
                    data
                }
            },
        };
        self.pieces.push_back(Piece { start, data: data.into() });
    }

    fn finish(&mut self, budget: &Arc<Budget>, place: Place) -> Option<CompleteBody> {
        if self.retention == Retention::Window {
            return None;
        }
        if self.segments.is_empty() && self.total_bytes <= INLINE_BODY_BYTES_MAX as u64 {
            return Some(CompleteBody::Inline(Bytes::copy_from_slice(&self.tail)));
        }
        if !self.tail.is_empty() && self.seal(budget, place).is_err() {
            self.stop_keeping();
            return None;
        }
        Some(CompleteBody::Segments(self.segments.clone()))
    }

    fn tail_start(&self) -> u64 {
        self.total_bytes - self.tail.len() as u64
    }

    fn first_kept(&self) -> u64 {
        self.pieces.front().map_or_else(|| self.tail_start(), |piece| piece.start)
    }

    /// Lets go of what every reader has passed, and tells whether the writer may go on.
    fn room(&mut self, promised: usize) -> Room {
        let slowest = match self.readers.iter().flatten().min() {
            _ if promised > 0 => self.first_kept(),
            Some(position) => *position,
            None => return Room::NobodyReads,
        };
        while self.pieces.front().is_some_and(|piece| piece.start + piece.data.len() as u64 <= slowest) {
            self.pieces.pop_front();
        }
        let is_full = self.total_bytes.saturating_sub(slowest) > WINDOW_BYTES_MAX;
        if is_full || slowest < self.uncharged_until { Room::Full } else { Room::Free }
    }

    /// The next bytes from `position`, if they have arrived.
    fn bytes_at(&self, position: u64) -> Option<Slice> {
        let shown_bytes = self.total_bytes.min(self.withheld_from);
        let mut data = self.held_at(position).filter(|_| position < shown_bytes)?;
        data.truncate(usize::try_from(shown_bytes - position).unwrap_or(usize::MAX));
        Some(data)
    }

    fn held_at(&self, position: u64) -> Option<Slice> {
        let tail_start = self.tail_start();
        if position >= tail_start && !self.tail.is_empty() {
            let rest = self.tail.get((position - tail_start) as usize..).filter(|rest| !rest.is_empty())?;
            return Some(Bytes::copy_from_slice(&rest[..rest.len().min(COPY_BYTES_MAX)]).into());
        }
        let after = self.pieces.partition_point(|piece| piece.start <= position);
        let piece = self.pieces.get(after.checked_sub(1)?)?;
        let from = (position - piece.start) as usize;
        (from < piece.data.len()).then(|| {
            let mut rest = piece.data.clone();
            rest.advance(from);
            rest
        })
    }
}

impl From<store::OverBudget> for NotKept {
    fn from(_: store::OverBudget) -> Self {
        Self::OverBudget
    }
}

/// Follows a fill from one position to another.
#[derive(Debug)]
pub(crate) struct FillReader {
    fill: Arc<Fill>,
    slot: usize,
    position: u64,
    end: Option<u64>,
}

impl FillReader {
    /// The next bytes; `None` at the end of the body (or of the range).
    ///
    /// # Errors
    /// When the body broke off before that.
    pub(crate) async fn chunk(&mut self, piece_max: PieceMax) -> Result<Option<Slice>, Aborted> {
        loop {
            if self.end.is_some_and(|end| self.position >= end) {
                return Ok(None);
            }
            let fill = Arc::clone(&self.fill);
            let arrived = fill.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            if let Some(next) = self.poll_next(piece_max) {
                return next;
            }
            arrived.await;
        }
    }

    /// What there is now: bytes, the end, or `None` to wait.
    fn poll_next(&mut self, piece_max: PieceMax) -> Option<Result<Option<Slice>, Aborted>> {
        let mut state = self.fill.state.lock();
        if let Some(mut data) = state.bytes_at(self.position) {
            if let Some(end) = self.end {
                data.truncate((end - self.position).min(data.len() as u64) as usize);
            }
            let data = piece_max.limit(data);
            self.position += data.len() as u64;
            state.readers[self.slot] = Some(self.position);
            let retention = state.retention;
            drop(state);
            if retention == Retention::Window {
                self.fill.read.notify_one();
            }
            return Some(Ok(Some(data)));
        }
        match state.end {
            End::Filling => None,
            // A range that begins or ends behind the end of the body can't be served in full.
            End::Complete(_) if self.end.is_some() => Some(Err(Aborted)),
            End::Complete(_) => Some(Ok(None)),
            End::Aborted => Some(Err(Aborted)),
        }
    }

    /// Goes on with other bytes, none of them before where it is.
    pub(crate) fn skip_to(&mut self, range: ByteRange) {
        debug_assert!(range.first >= self.position, "what is behind may be gone");
        self.position = range.first;
        self.end = Some(range.last + 1);
        self.fill.state.lock().readers[self.slot] = Some(range.first);
        self.fill.read.notify_one();
    }

    /// Whose bytes it reads.
    pub(crate) fn fill(&self) -> &Arc<Fill> {
        &self.fill
    }

    /// Trailers of a complete body.
    pub(crate) fn trailers(&self) -> Option<Arc<HeaderMap>> {
        match &self.fill.state.lock().end {
            End::Complete(trailers) => trailers.clone(),
            End::Filling | End::Aborted => None,
        }
    }
}

impl Drop for FillReader {
    fn drop(&mut self) {
        self.fill.state.lock().readers[self.slot] = None;
        self.fill.read.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use store::{Memory, MemoryConfig};
    use tokio::time::timeout;

    use super::*;
    use crate::cache::record::stored::CacheEntry;

    const LIMITS: FillLimits = FillLimits {
        body_bytes_max: 1 << 20,
        segment_bytes: 100_000,
        first_segment_bytes: 100_000,
        place: Place::File,
    };
    const SOON: Duration = Duration::from_secs(20);

    fn memory(bytes_max: u64) -> Memory<CacheEntry> {
        Memory::new(MemoryConfig::with_bytes_max(bytes_max))
    }

    fn fill(memory: &Memory<CacheEntry>, limits: FillLimits) -> Arc<Fill> {
        Fill::new(Arc::clone(memory.budget()), limits, None, Arc::default())
    }

    fn pattern(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|index| (index * 31 % 251) as u8).collect()
    }

    async fn read_all(mut reader: FillReader) -> Result<Vec<u8>, Aborted> {
        let mut all = Vec::new();
        while let Some(data) = reader.chunk(PieceMax::SENT).await? {
            all.extend_from_slice(&data.into_bytes().unwrap());
        }
        Ok(all)
    }

    async fn next(reader: &mut FillReader) -> Bytes {
        let data = reader.chunk(PieceMax::SENT).await.unwrap().expect("more");
        data.into_bytes().unwrap()
    }

    async fn write_all(fill: &Fill, data: &[u8], piece: usize) -> Vec<Written> {
        let mut written = Vec::new();
        for part in data.chunks(piece) {
            written.push(fill.write(Bytes::copy_from_slice(part), || Pacing::Allowed).await);
        }
        written
    }

    fn complete(fill: &Fill) -> Option<CompleteBody> {
        let body = fill.body();
        fill.complete(None);
        body
    }

    /// A part may end where the first segment does.
    #[tokio::test]
    async fn a_small_body_that_fills_its_segments() {
        let memory = memory(64 << 20);
        for (first_segment_bytes, bytes) in [(10, 10), (10, 110), (10, 11), (100, 300)] {
            let limits = FillLimits { segment_bytes: 100, first_segment_bytes, ..LIMITS };
            let fill = fill(&memory, limits);
            write_all(&fill, &pattern(bytes), 7).await;
            let Some(CompleteBody::Segments(segments)) = complete(&fill) else { panic!("in segments") };
            let stored: Vec<u8> = segments.iter().flat_map(|segment| segment.to_bytes().unwrap()).collect();
            assert_eq!(stored, pattern(bytes), "{first_segment_bytes}, {bytes}");
        }
    }

    #[tokio::test]
    async fn the_last_bytes_are_shown_when_they_are_released() {
        let memory = memory(64 << 20);
        for bytes in [10, 100_000, 250_001] {
            let fill = Fill::new(Arc::clone(memory.budget()), LIMITS, Some(bytes as u64), Arc::default());
            let data = pattern(bytes);
            let (first, last) = data.split_at(bytes - 7);
            let mut reader = fill.reader(0, None).unwrap();
            let mut seen = Vec::new();
            fill.write(Bytes::copy_from_slice(first), || Pacing::Allowed).await;
            assert_eq!(fill.write(Bytes::copy_from_slice(last), || Pacing::Allowed).await, Written::All);
            fill.body().expect("all of it is kept");
            while seen.len() < first.len() {
                seen.extend_from_slice(&next(&mut reader).await);
            }
            assert!(seen == first, "what came before, and no more");
            assert!(
                timeout(Duration::from_millis(5), reader.chunk(PieceMax::SENT)).await.is_err(),
                "withheld"
            );
            fill.release();
            assert_eq!(timeout(SOON, next(&mut reader)).await.unwrap(), last);
        }
    }

    #[tokio::test]
    async fn readers_see_every_byte_whenever_they_begin() {
        let memory = memory(64 << 20);
        for (bytes, piece) in [(0, 1), (10, 3), (100_000, 7_001), (100_001, 50_000), (350_000, 99_999)] {
            let (fill, data) = (fill(&memory, LIMITS), pattern(bytes));
            let early = tokio::spawn(read_all(fill.reader(0, None).unwrap()));
            write_all(&fill, &data, piece).await;
            let late = tokio::spawn(read_all(fill.reader(0, None).unwrap()));
            let body = complete(&fill).expect("all of it is kept");
            let stored_bytes = match &body {
                CompleteBody::Inline(data) => data.len(),
                CompleteBody::Segments(segments) => segments.iter().map(|segment| segment.len()).sum(),
            };
            assert_eq!(stored_bytes, bytes);
            for reader in [early, late, tokio::spawn(read_all(fill.reader(0, None).unwrap()))] {
                let read = timeout(SOON, reader).await.expect("woken").unwrap();
                assert_eq!(read, Ok(data.clone()), "{bytes} bytes in pieces of {piece}");
            }
        }
    }

    #[tokio::test]
    async fn ranges_wait_for_their_bytes_and_end_where_they_should() {
        let memory = memory(64 << 20);
        let (fill, data) = (fill(&memory, LIMITS), pattern(250_000));
        let range = tokio::spawn(read_all(fill.reader(99_000, Some(201_000)).unwrap()));
        let beyond = tokio::spawn(read_all(fill.reader(249_000, Some(260_000)).unwrap()));
        write_all(&fill, &data, 10_000).await;
        complete(&fill);
        assert_eq!(timeout(SOON, range).await.unwrap().unwrap(), Ok(data[99_000..201_000].to_vec()));
        assert_eq!(timeout(SOON, beyond).await.unwrap().unwrap(), Err(Aborted));
    }

    #[tokio::test]
    async fn partial_writer_cancel_is_an_abort_for_every_reader() {
        let memory = memory(64 << 20);
        let fill = fill(&memory, LIMITS);
        let reader = tokio::spawn(read_all(fill.reader(0, None).unwrap()));
        write_all(&fill, &pattern(1_000), 100).await;
        fill.abort();
        assert_eq!(timeout(SOON, reader).await.unwrap().unwrap(), Err(Aborted));
        assert_eq!(read_all(fill.reader(0, None).unwrap()).await, Err(Aborted));
    }

    #[tokio::test]
    async fn leader_cancel_wakes_waiters() {
        let memory = memory(64 << 20);
        let fill = fill(&memory, LIMITS);
        let reader = tokio::spawn(read_all(fill.reader(0, None).unwrap()));
        let writer = Writer(Arc::clone(&fill));
        let task = tokio::spawn(async move {
            writer.0.write(Bytes::from_static(b"half"), || Pacing::Allowed).await;
            std::future::pending::<()>().await;
        });
        tokio::task::yield_now().await;
        task.abort();
        assert_eq!(timeout(SOON, reader).await.expect("woken").unwrap(), Err(Aborted));
    }

    #[tokio::test]
    async fn too_large_bodies_go_on_to_their_reader_within_a_window() {
        let memory = memory(64 << 20);
        let fill = fill(&memory, LIMITS);
        let data = pattern(5 << 20);
        let reader = tokio::spawn(read_all(fill.reader(0, None).unwrap()));
        let written = timeout(SOON, write_all(&fill, &data, 60_000)).await.expect("the reader makes room");
        let not_kept = written.iter().filter(|step| matches!(step, Written::NoLongerKept(_))).count();
        assert_eq!(not_kept, 1);
        assert!(complete(&fill).is_none(), "nothing to store");
        assert_eq!(timeout(SOON, reader).await.unwrap().unwrap().map(|read| read == data), Ok(true));
        assert!(fill.reader(0, None).is_none(), "its beginning is gone");
    }

    #[tokio::test]
    async fn a_body_that_is_not_kept_and_not_read_is_abandoned() {
        let memory = memory(64 << 20);
        let fill = fill(&memory, FillLimits { body_bytes_max: 10, ..LIMITS });
        drop(fill.reader(0, None));
        let data = Bytes::from_static(b"more than ten bytes");
        let written = timeout(SOON, fill.write(data, || Pacing::Allowed)).await.unwrap();
        assert_eq!(written, Written::Abandoned);
    }

    /// A body goes on however little memory there is, piece by piece, and what its readers have in hand counts.
    #[tokio::test]
    async fn without_room_in_the_budget_a_window_is_one_piece() {
        let memory = memory(4 << 20);
        let budget = memory.budget();
        let all = budget.bytes_max();
        let mut taken = Vec::new();
        for bytes in [1 << 20, 1 << 14, 1000, 1] {
            taken.extend(std::iter::from_fn(|| budget.reserve(bytes).ok()).take((all as usize) / bytes));
        }
        let before = budget.live_bytes();
        let fill = Fill::window(Arc::clone(budget));
        let mut reader = fill.reader(0, None).unwrap();
        let piece = || Bytes::from(vec![7; 10_000]);
        for _ in 0..3 {
            let waited = timeout(Duration::from_millis(20), fill.write(piece(), || Pacing::Allowed)).await;
            assert!(waited.is_err(), "until the piece has been taken");
            assert_eq!((next(&mut reader).await.len(), budget.live_bytes()), (10_000, before));
        }
        drop(taken);
        fill.write(piece(), || panic!("there is room")).await;
        let in_hand = next(&mut reader).await;
        drop((reader, fill));
        assert_eq!(budget.live_bytes(), 10_000, "what a reader has taken is still there");
        drop(in_hand);
        assert_eq!(budget.live_bytes(), 0);
    }

    /// Where too many bodies go at the pace of their readers already, one that goes on nevertheless would keep from the
    /// origin those who only wait for it.
    #[tokio::test(start_paused = true)]
    async fn a_reader_that_does_not_keep_up_may_be_one_too_many() {
        let memory = memory(64 << 20);
        let piece = || Bytes::from(vec![7; 100_000]);
        for pacing in [Pacing::Allowed, Pacing::Exceeded] {
            let fill = Fill::window(Arc::clone(memory.budget()));
            let mut reader = fill.reader(0, None).unwrap();
            for _ in 0..5 {
                assert_eq!(fill.write(piece(), || panic!("there is room")).await, Written::Kept);
            }
            let waited = timeout(SOON, fill.write(piece(), || pacing)).await;
            match pacing {
                Pacing::Allowed => assert!(waited.is_err(), "as long as the reader needs"),
                Pacing::Exceeded => assert_eq!(waited, Ok(Written::TooSlow)),
            }
            next(&mut reader).await;
        }
    }

    #[tokio::test]
    async fn rww_slow_writer_does_not_end_its_readers() {
        let memory = memory(64 << 20);
        let fill = fill(&memory, LIMITS);
        let mut reader = fill.reader(0, None).unwrap();
        let waiting = timeout(Duration::from_millis(20), reader.chunk(PieceMax::SENT)).await;
        assert!(waiting.is_err(), "nothing has arrived and nothing has ended");
        write_all(&fill, b"late", 4).await;
        assert_eq!(next(&mut reader).await, b"late".as_slice());
    }

    #[tokio::test]
    async fn without_room_in_the_budget_nothing_is_kept() {
        let memory = memory(4 << 20);
        let fill = fill(&memory, FillLimits { body_bytes_max: 64 << 20, ..LIMITS });
        let data = pattern(8 << 20);
        let reader = tokio::spawn(read_all(fill.reader(0, None).unwrap()));
        let written = timeout(SOON, write_all(&fill, &data, 60_000)).await.unwrap();
        assert!(written.contains(&Written::NoLongerKept(NotKept::OverBudget)));
        assert!(complete(&fill).is_none());
        assert_eq!(timeout(SOON, reader).await.unwrap().unwrap().map(|read| read == data), Ok(true));
    }
}
