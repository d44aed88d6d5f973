//! State of a fill: the bytes kept and shown, without tasks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use message::reason::Reason;
use origin::UNCHARGED_PIECE_BYTES_MAX;
use store::{Budget, Charge, Placement, Segment, Slice};
use tokio::time::Instant;

/// Most bytes between the writer and the slowest reader of a body that isn't stored.
const WINDOW_BYTES_MAX: u64 = 512 * 1024;
/// Most bytes copied at once out of an unfinished segment.
const COPY_BYTES_MAX: usize = 64 * 1024;
/// Largest body kept inside its metadata record: one look-up, one allocation. Larger ones are cheaper to send from a file, if that is
/// possible.
pub const INLINE_BODY_BYTES_MAX: usize = 64 * 1024 - 1;

/// Largest size up to which a body of unknown length counts as small.
const SMALL_UNANNOUNCED_BYTES_MAX: u64 = 16 * 1024;

/// Size limits of a fill.
#[derive(Clone, Copy, Debug)]
pub struct FillLimits {
    /// Largest body that is stored.
    pub body_bytes_max: u64,
    /// Size of a segment.
    pub segment_bytes: usize,
    /// Size of the first segment: less for a part that doesn't begin at a segment border of the whole.
    pub first_segment_bytes: usize,
    /// Place of the segments.
    pub place: Placement,
}

#[derive(Debug)]
pub(super) struct FillState {
    /// Finished pieces, in order, without gaps.
    pub(super) pieces: VecDeque<FillPiece>,
    /// Sealed segments, to be stored.
    pub(super) segments: Vec<Segment>,
    /// Unfinished segment (only while the whole body is kept), and the charge for it.
    pub(super) tail: Vec<u8>,
    pub(super) tail_charge: Option<Charge>,
    /// Charge for the encoder of this body.
    pub(super) encoder_charge: Option<Charge>,
    pub(super) total_bytes: u64,
    /// Position from which bytes are not shown yet.
    pub(super) withheld_from: u64,
    /// Position before which not all bytes are charged: readers must pass it before more is read.
    pub(super) uncharged_until: u64,
    /// Last time up to which bytes came at `RATE_MIN` or faster, and the bytes since then.
    pub(super) moved_at: Instant,
    pub(super) bytes_since: usize,
    pub(super) retention: Retention,
    pub(super) end: End,
    /// Reason why it broke off, if its readers report it.
    pub(super) because: Option<&'static str>,
    /// Time since which the slowest reader holds up others, not yet added to its account.
    pub(super) held_up_from: Option<Instant>,
    /// Readers by slot; freed slots are reused.
    pub(super) readers: Vec<Option<Reading>>,
}

/// Progress of a reader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) position: u64,
    /// Time for which it has held up others that wait for more, minus the time paid for by bytes read since.
    held_up_ms: i64,
    /// Whether it has read all bytes that have arrived, and waits.
    pub(super) is_waiting: bool,
    /// Whether it is cut off: no bytes are kept for it any more.
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

/// Reason why a body that was to be stored will not be.
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
    /// Full for too long.
    TooSlow,
}

/// Reservation for a body. One of unknown length may still become large; the bytes that it has taken by then are left to its readers.
fn reservation(expected_bytes: Option<u64>, arrived_bytes: u64) -> Reserve {
    let is_small = match expected_bytes {
        Some(bytes) => bytes <= INLINE_BODY_BYTES_MAX as u64,
        None => arrived_bytes <= SMALL_UNANNOUNCED_BYTES_MAX,
    };
    if is_small { Budget::reserve_small } else { Budget::reserve }
}

type Reserve = fn(&Arc<Budget>, usize) -> Result<Charge, store::OverBudget>;

/// Least rate of a body, in bytes a second; the same as the least rate of clients. A slower body counts as standing still for waiters
/// that have none of it: otherwise a request that makes the origin drip would hold them as one that makes it stall does.
const RATE_MIN: u128 = 500;

/// Least rate, in bytes a second, of a reader of a body that isn't stored and that others wait for. Bytes read pay for the waiting time
/// of the others at this rate.
const SHARED_RATE_MIN: i64 = 16 * 1024;
/// Time of holding up others after which a reader is cut off.
const HELD_UP_MS_MAX: i64 = 30_000;
/// Most credit of a reader: a whole window read at once pays for the waiting time that follows.
const CREDIT_MS_MAX: i64 = WINDOW_BYTES_MAX as i64 * 1000 / SHARED_RATE_MIN;

impl FillState {
    /// Notes the arrival of bytes.
    pub(super) fn note_progress(&mut self, bytes: usize) {
        self.bytes_since += bytes;
        if self.bytes_since as u128 * 1000 >= self.moved_at.elapsed().as_millis() * RATE_MIN {
            (self.moved_at, self.bytes_since) = (Instant::now(), 0);
        }
    }

    /// Returns the time left of a pause.
    pub(super) fn pause_left(&self, pause_max: Duration) -> Duration {
        pause_max.saturating_sub(self.moved_at.elapsed())
    }

    /// Notes the bytes that a reader has read.
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

    /// Notes that a reader has no more bytes to read. Returns whether it has just begun to wait.
    pub(super) fn begins_to_wait(&mut self, slot: usize) -> bool {
        let is_window = self.retention == Retention::Window;
        let reading = self.readers.get_mut(slot).and_then(Option::as_mut);
        reading.is_some_and(|reading| is_window && !std::mem::replace(&mut reading.is_waiting, true))
    }

    /// Returns the readers that bytes are kept for.
    pub(super) fn followers(&self) -> impl Iterator<Item = &Reading> {
        self.readers.iter().flatten().filter(|reading| !reading.is_cut_off)
    }

    fn slowest(&self) -> Option<u64> {
        self.followers().map(|reading| reading.position).min()
    }

    /// Notes that the window is full. Returns the time at which the slowest reader is cut off, if others wait for it.
    pub(super) fn holds_up(&mut self, now: Instant) -> Option<Instant> {
        self.charge_slowest(now);
        let is_any_waiting = self.followers().any(|reading| reading.is_waiting);
        self.held_up_from = is_any_waiting.then_some(now);
        let slowest = self.slowest()?;
        let at_slowest = self.followers().filter(|reading| reading.position == slowest);
        let left_ms = HELD_UP_MS_MAX - at_slowest.map(|reading| reading.held_up_ms).max()?;
        self.held_up_from?.checked_add(Duration::from_millis(left_ms.try_into().unwrap_or_default()))
    }

    /// Notes that no reader holds up others.
    pub(super) fn goes_on(&mut self, now: Instant) {
        self.charge_slowest(now);
        self.held_up_from = None;
    }

    /// Adds the time for which the slowest reader has held up others to its account.
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

    /// Adds to a body that is kept as a whole. After a failure, `data` is the rest that was not added.
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

    /// Changes to window mode: bytes kept for storing are let go as the readers pass.
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

    /// Adds to a body of which only a window is kept. Bytes that the budget has no room for are let through one piece at a time, so that
    /// the body goes on however little memory there is. Pieces from `UNCHARGED_PIECE_BYTES_MAX` on are charged by the code that has
    /// read them.
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

    /// Lets go of the bytes that all readers have passed, and tells whether the writer may go on.
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
