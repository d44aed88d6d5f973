//! State of a fill: its bytes, and the positions of its readers. The tasks are elsewhere.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use message::reason::Reason;
use origin::UNCHARGED_PIECE_BYTES_MAX;
use store::{Budget, Charge, Placement, Segment, Slice};
use tokio::time::Instant;

/// Maximum number of bytes between the writer and the slowest reader of a body that isn't stored.
const WINDOW_BYTES_MAX: u64 = 512 * 1024;
/// Maximum number of bytes per copy from an unfinished segment.
const COPY_BYTES_MAX: usize = 64 * 1024;
/// Maximum size of a body inside its metadata record, which costs one look-up and one allocation. Larger bodies are cheaper to send from a
/// file, where possible.
pub const INLINE_BODY_BYTES_MAX: usize = 64 * 1024 - 1;

/// Maximum size of a body of unknown length that counts as small.
const SMALL_UNANNOUNCED_BYTES_MAX: u64 = 16 * 1024;

/// Size limits of a fill.
#[derive(Clone, Copy, Debug)]
pub struct FillLimits {
    /// Maximum size of a stored body.
    pub body_bytes_max: u64,
    /// Size of a segment.
    pub segment_bytes: usize,
    /// Size of the first segment; smaller for a part that doesn't begin at a segment border of the representation.
    pub first_segment_bytes: usize,
    /// Where segments are placed.
    pub place: Placement,
}

#[derive(Debug)]
pub(super) struct FillState {
    /// Finished pieces, in order, without gaps.
    pub(super) pieces: VecDeque<FillPiece>,
    /// Sealed segments, to be stored.
    pub(super) segments: Vec<Segment>,
    /// Unfinished segment, only while the whole body is kept, with the charge for it.
    pub(super) tail: Vec<u8>,
    pub(super) tail_charge: Option<Charge>,
    /// Charge for the encoder of this body.
    pub(super) encoder_charge: Option<Charge>,
    pub(super) total_bytes: u64,
    /// Position from which readers don't get the bytes yet.
    pub(super) withheld_from: u64,
    /// End of the bytes that aren't charged to the budget. The writer reads more only after all readers have passed it.
    pub(super) uncharged_until: u64,
    /// The last time at which the rate was at least `RATE_MIN`, and the number of bytes since then.
    pub(super) moved_at: Instant,
    pub(super) bytes_since: usize,
    pub(super) retention: Retention,
    pub(super) end: End,
    /// Reason for the abort, if the readers have to report it.
    pub(super) because: Option<&'static str>,
    /// Time since which the slowest reader has held up other readers, as far as it isn't in `held_up_ms` yet.
    pub(super) held_up_from: Option<Instant>,
    /// Readers by slot; freed slots are reused.
    pub(super) readers: Vec<Option<Reading>>,
}

/// Progress of a reader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) position: u64,
    /// Time for which this reader has held up other readers, minus the credit for the bytes that it has read since.
    held_up_ms: i64,
    /// Whether it has read all bytes that have arrived, and waits for more.
    pub(super) is_waiting: bool,
    /// Whether it is cut off, so that no bytes are kept for it.
    pub(super) is_cut_off: bool,
}

impl Reading {
    pub(super) fn from(position: u64) -> Self {
        Self { position, held_up_ms: 0, is_waiting: false, is_cut_off: false }
    }
}

#[derive(Debug)]
pub(super) struct FillPiece {
    pub(super) start: u64,
    pub(super) data: Slice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retention {
    Whole,
    Window,
}

#[derive(Clone, Debug)]
pub(super) enum End {
    Filling,
    Complete(Option<Arc<HeaderMap>>),
    Aborted,
}

/// Reason why a storable body won't be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// Larger than the rule or the tier allows.
    TooLarge,
    /// The memory budget has no room.
    OverBudget,
}

impl NotKept {
    /// Returns the reason for `Cache-Status` details and metrics.
    pub fn reason(self) -> Reason {
        match self {
            Self::TooLarge => Reason::TooLarge,
            Self::OverBudget => Reason::MemoryFull,
        }
    }
}

/// A whole body, ready to be stored.
#[derive(Debug)]
pub enum CompleteBody {
    /// Small enough for the record.
    Inline(Bytes),
    /// Segments, in order; all but the first and the last are of [`FillLimits::segment_bytes`].
    Segments(Vec<Segment>),
}

/// Room in the window of a body that isn't stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    Full,
    NobodyReads,
    /// The window has been full for too long.
    TooSlow,
}

/// Returns the reservation for a body. A body of unknown length may still become large; its readers then get the bytes that have arrived.
fn reservation(expected_bytes: Option<u64>, arrived_bytes: u64) -> Reserve {
    let is_small = match expected_bytes {
        Some(bytes) => bytes <= INLINE_BODY_BYTES_MAX as u64,
        None => arrived_bytes <= SMALL_UNANNOUNCED_BYTES_MAX,
    };
    if is_small { Budget::reserve_small } else { Budget::reserve }
}

type Reserve = fn(&Arc<Budget>, usize) -> Result<Charge, store::OverBudget>;

/// Minimum rate of a body, in bytes per second; the same as for clients. Waiters without any bytes treat a slower body as stalled.
/// Otherwise, a request that makes the origin send slowly could block them for a long time.
const RATE_MIN: u128 = 500;

/// Minimum rate, in bytes per second, of a reader that holds up other readers, if the body isn't stored. The bytes that it reads reduce its
/// account at this rate.
const SHARED_RATE_MIN: i64 = 16 * 1024;
/// Total time of holding up others after which a reader is cut off.
const HELD_UP_MS_MAX: i64 = 30_000;
/// Maximum credit of a reader: the time that a whole window takes at the minimum rate.
const CREDIT_MS_MAX: i64 = WINDOW_BYTES_MAX as i64 * 1000 / SHARED_RATE_MIN;

impl FillState {
    /// Records the arrival of bytes.
    pub(super) fn note_progress(&mut self, bytes: usize) {
        self.bytes_since += bytes;
        if self.bytes_since as u128 * 1000 >= self.moved_at.elapsed().as_millis() * RATE_MIN {
            (self.moved_at, self.bytes_since) = (Instant::now(), 0);
        }
    }

    /// Returns the time left until the body has paused for `pause_max`.
    pub(super) fn pause_left(&self, pause_max: Duration) -> Duration {
        pause_max.saturating_sub(self.moved_at.elapsed())
    }

    /// Records the bytes that a reader has read.
    pub(super) fn note_reading(&mut self, slot: usize, bytes: usize) {
        let is_window = self.retention == Retention::Window;
        if is_window {
            self.charge_slowest(Instant::now());
        }
        let Some(Some(reading)) = self.readers.get_mut(slot) else { return };
        reading.position += bytes as u64;
        if is_window {
            let paid_ms = bytes as i64 * 1000 / SHARED_RATE_MIN;
            reading.held_up_ms = (reading.held_up_ms - paid_ms).max(-CREDIT_MS_MAX);
            reading.is_waiting = false;
        }
    }

    /// Records that a reader has no more bytes to read. Returns whether the reader has just begun to wait.
    pub(super) fn begins_to_wait(&mut self, slot: usize) -> bool {
        let is_window = self.retention == Retention::Window;
        let reading = self.readers.get_mut(slot).and_then(Option::as_mut);
        reading.is_some_and(|reading| is_window && !std::mem::replace(&mut reading.is_waiting, true))
    }

    /// Returns the readers for which bytes are kept.
    pub(super) fn followers(&self) -> impl Iterator<Item = &Reading> {
        self.readers.iter().flatten().filter(|reading| !reading.is_cut_off)
    }

    fn slowest(&self) -> Option<u64> {
        self.followers().map(|reading| reading.position).min()
    }

    /// Records that the window is full. Returns the time at which the slowest reader is cut off, if others wait for it.
    pub(super) fn holds_up(&mut self, now: Instant) -> Option<Instant> {
        self.charge_slowest(now);
        let is_any_waiting = self.followers().any(|reading| reading.is_waiting);
        self.held_up_from = is_any_waiting.then_some(now);
        let slowest = self.slowest()?;
        let at_slowest = self.followers().filter(|reading| reading.position == slowest);
        let left_ms = HELD_UP_MS_MAX - at_slowest.map(|reading| reading.held_up_ms).max()?;
        self.held_up_from?.checked_add(Duration::from_millis(left_ms.try_into().unwrap_or_default()))
    }

    /// Records that no reader holds up other readers any more.
    pub(super) fn goes_on(&mut self, now: Instant) {
        self.charge_slowest(now);
        self.held_up_from = None;
    }

    /// Charges the slowest reader for the time for which it has held up others.
    fn charge_slowest(&mut self, now: Instant) {
        let (Some(from), Some(slowest)) = (self.held_up_from, self.slowest()) else { return };
        let ms = now.duration_since(from).as_millis().try_into().unwrap_or(i64::MAX);
        let readers = self.readers.iter_mut().flatten().filter(|reading| reading.position == slowest);
        readers.for_each(|reading| reading.held_up_ms = reading.held_up_ms.saturating_add(ms));
        self.held_up_from = Some(now);
    }

    /// Cuts off readers that have held up others for too long.
    pub(super) fn cut_off_slowest(&mut self, now: Instant) {
        self.charge_slowest(now);
        let readers = self.readers.iter_mut().flatten();
        readers
            .filter(|reading| reading.held_up_ms >= HELD_UP_MS_MAX)
            .for_each(|reading| reading.is_cut_off = true);
    }

    /// Appends to a body that is kept as a whole. After a failure, `data` holds the bytes that were not appended.
    pub(super) fn keep(
        &mut self,
        data: &mut Bytes,
        budget: &Arc<Budget>,
        limits: FillLimits,
        expected_bytes: Option<u64>,
    ) -> Result<(), NotKept> {
        if self.total_bytes + data.len() as u64 > limits.body_bytes_max {
            return Err(NotKept::TooLarge);
        }
        let reserve = reservation(expected_bytes, self.total_bytes + data.len() as u64);
        while !data.is_empty() {
            let tail_bytes_max = self.tail_bytes_max(limits);
            let step = data.len().min(tail_bytes_max - self.tail.len());
            self.charge(reserve(budget, step)?);
            self.tail.extend_from_slice(&data.split_to(step));
            self.total_bytes += step as u64;
            if self.tail.len() == tail_bytes_max {
                self.seal(budget, limits.place)?;
            }
        }
        Ok(())
    }

    pub(super) fn tail_bytes_max(&self, limits: FillLimits) -> usize {
        if self.segments.is_empty() { limits.first_segment_bytes } else { limits.segment_bytes }
    }

    fn charge(&mut self, more: Charge) {
        match &mut self.tail_charge {
            Some(charge) => charge.join(more),
            None => self.tail_charge = Some(more),
        }
    }

    /// Seals the tail as a segment.
    pub(super) fn seal(&mut self, budget: &Arc<Budget>, place: Placement) -> Result<(), store::OverBudget> {
        let segment = Segment::copy(budget, place, &self.tail)?;
        self.pieces.push_back(FillPiece { start: self.tail_start(), data: segment.slice(0, segment.len()) });
        self.segments.push(segment);
        self.tail.clear();
        self.tail_charge = None;
        Ok(())
    }

    /// Changes to window mode: kept bytes are released once all readers have passed them.
    pub(super) fn stop_keeping(&mut self) {
        self.retention = Retention::Window;
        if !self.tail.is_empty() {
            let start = self.tail_start();
            let tail = std::mem::take(&mut self.tail);
            let data = match self.tail_charge.take() {
                Some(charge) => charge.hold(tail),
                None => Bytes::from(tail),
            };
            self.pieces.push_back(FillPiece { start, data: data.into() });
        }
        self.segments.clear();
        self.tail_charge = None;
        self.withheld_from = u64::MAX;
    }

    /// Appends to a body of which only a window is kept. If the budget has no room, one uncharged piece at a time is kept, so that the body
    /// continues however little memory is left. Pieces of at least `UNCHARGED_PIECE_BYTES_MAX` were already charged when they were read.
    pub(super) fn pass(&mut self, data: Bytes, budget: &Arc<Budget>) {
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
        self.pieces.push_back(FillPiece { start, data: data.into() });
    }

    pub(super) fn finish(&mut self, budget: &Arc<Budget>, place: Placement) -> Option<CompleteBody> {
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

    pub(super) fn tail_start(&self) -> u64 {
        self.total_bytes - self.tail.len() as u64
    }

    pub(super) fn first_kept(&self) -> u64 {
        self.pieces.front().map_or_else(|| self.tail_start(), |piece| piece.start)
    }

    /// Releases the bytes that all readers have passed, and returns whether the writer may continue.
    pub(super) fn room(&mut self, promised: usize) -> Room {
        let slowest = match self.followers().map(|reading| reading.position).min() {
            _ if promised > 0 => self.first_kept(),
            Some(position) => position,
            None => return Room::NobodyReads,
        };
        while self.pieces.front().is_some_and(|piece| piece.start + piece.data.len() as u64 <= slowest) {
            self.pieces.pop_front();
        }
        let is_full = self.total_bytes.saturating_sub(slowest) > WINDOW_BYTES_MAX;
        if is_full || slowest < self.uncharged_until { Room::Full } else { Room::Free }
    }

    /// Returns the next bytes from `position`, if they have arrived.
    pub(super) fn bytes_at(&self, position: u64) -> Option<Slice> {
        let shown_bytes = self.total_bytes.min(self.withheld_from);
        let mut data = self.held_at(position).filter(|_| position < shown_bytes)?;
        data.truncate(usize::try_from(shown_bytes - position).unwrap_or(usize::MAX));
        Some(data)
    }

    pub(super) fn held_at(&self, position: u64) -> Option<Slice> {
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
