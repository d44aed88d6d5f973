//! A response body on its way from the origin, shared by everybody who reads it.
//!
//! A fill has three ends that are never confused: it is filling, complete, or aborted. One writer (the fetch
//! task) appends; any number of readers follow at their own pace and are woken, never polled.
//!
//! While the body may still be stored, all of it is kept (`Retention::Whole`) and readers don't slow the writer.
//! Once it turns out too large, or the memory budget has no room, only a window is kept
//! (`Retention::Window`): the writer then waits for the slowest reader, and stops when nobody is left. A reader that is much slower
//! than the others is cut off, so that it does not set the pace for all.
//!
//! The last bytes of a body that will be stored are shown when it is: who has read a response finds it in the cache.

pub(crate) mod ranges;
mod reader;
mod state;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use origin::Pacing;
use parking_lot::Mutex;
use store::{Budget, Charge, Place};
use tokio::sync::{Notify, SetOnce};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use self::state::{End, Reading, Retention, Room, State};

pub(crate) use self::reader::{Aborted, FillReader};
pub(crate) use self::state::{CompleteBody, FillLimits, INLINE_BODY_BYTES_MAX, NotKept};

/// How long readers may leave the window full where there is no room for one more body that goes at their pace.
const CROWDED_STALL_MAX: Duration = Duration::from_secs(2);

/// A body of which nothing comes for so long is waited for no longer when the client has left that caused it.
const LEFT_PAUSE_MAX: Duration = Duration::from_secs(1);

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
                encoder_charge: None,
                total_bytes: 0,
                withheld_from: u64::MAX,
                uncharged_until: 0,
                moved_at: Instant::now(),
                bytes_since: 0,
                retention,
                end: End::Filling,
                because: None,
                held_up_from: None,
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
        // Others wait for the news, and are not to wait for its readers.
        if retention == Retention::Whole || matches!(written, Written::NoLongerKept(_)) {
            return written;
        }
        self.catch_up(may_wait).await
    }

    /// Waits until the slowest reader of a window has caught up.
    pub(crate) async fn catch_up(&self, may_wait: impl Fn() -> Pacing) -> Written {
        match self.window_has_room(may_wait).await {
            Room::Free | Room::Full => Written::Kept,
            Room::NobodyReads => Written::Abandoned,
            Room::TooSlow => Written::TooSlow,
        }
    }

    fn append(&self, mut data: Bytes) -> (Written, Retention) {
        let mut state = self.state.lock();
        state.note_progress(data.len());
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
            let cuts_off_at = {
                let mut state = self.state.lock();
                match state.room(promised) {
                    Room::Full => state.holds_up(Instant::now()).filter(|_| promised == 0),
                    room => {
                        state.goes_on(Instant::now());
                        return room;
                    }
                }
            };
            match (may_wait(), cuts_off_at) {
                (Pacing::Allowed, None) => read.await,
                (Pacing::Allowed, Some(at)) => {
                    if timeout_at(at, read).await.is_err() {
                        self.state.lock().cut_off_slowest(Instant::now());
                    }
                }
                (Pacing::Exceeded, _) if timeout(CROWDED_STALL_MAX, read).await.is_err() => {
                    return Room::TooSlow;
                }
                (Pacing::Exceeded, _) => {}
            }
        }
    }

    /// Whether nothing of it has come, nor its end.
    pub(crate) fn has_nothing(&self) -> bool {
        let state = self.state.lock();
        matches!(state.end, End::Filling) && state.total_bytes == 0
    }

    /// Whether somebody who has got nothing yet gets this body: it has begun and goes on, or is complete. Not where it has broken off, or has
    /// stood still for `pause_max`; less where all that would read it have got nothing yet, because the client has left that caused it.
    pub(crate) async fn comes(&self, pause_max: Duration) -> bool {
        loop {
            let arrived = self.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            let (has_begun, pause_left) = {
                let state = self.state.lock();
                match state.end {
                    End::Complete(_) => return true,
                    End::Aborted => return false,
                    End::Filling => {
                        let is_left = self.is_left_to_the_promised(&state);
                        let pause_max = if is_left { pause_max.min(LEFT_PAUSE_MAX) } else { pause_max };
                        (state.total_bytes > 0, state.pause_left(pause_max))
                    }
                }
            };
            if has_begun || pause_left.is_zero() {
                return !pause_left.is_zero();
            }
            let _ = timeout(pause_left, arrived).await;
        }
    }

    /// Whether nothing of it has come, and all its readers are requests that were promised it.
    fn is_left_to_the_promised(&self, state: &State) -> bool {
        state.total_bytes == 0 && state.followers().count() <= self.promised.load(Ordering::Acquire)
    }

    /// Resolves when nobody reads it, and it has stood still for `pause_max`, or nothing of it has come while others want its place at the origin.
    pub(crate) async fn deserted(&self, pause_max: Option<Duration>, place_wanted: &SetOnce<()>) {
        let Some(pause_max) = pause_max else { return std::future::pending().await };
        loop {
            let read = self.read.notified();
            tokio::pin!(read);
            read.as_mut().enable();
            let is_wanted = place_wanted.initialized();
            let (is_unread, is_worthless, pause_left) = {
                let state = self.state.lock();
                let is_promised = self.promised.load(Ordering::Acquire) > 0;
                let is_worthless = is_wanted && state.total_bytes == 0 && !is_promised;
                (state.followers().next().is_none(), is_worthless, state.pause_left(pause_max))
            };
            if is_unread && (is_worthless || pause_left.is_zero()) {
                return;
            }
            tokio::select! {
                () = read => {}
                () = sleep(pause_left), if !pause_left.is_zero() => {}
                _ = place_wanted.wait(), if !is_wanted => {}
            }
        }
    }

    /// Resolves when the last reader has left. For bodies that are not stored, or do not go on.
    pub(crate) async fn nobody_reads(&self) {
        loop {
            let read = self.read.notified();
            tokio::pin!(read);
            read.as_mut().enable();
            if self.state.lock().followers().next().is_none() {
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

    /// What it keeps that is not stored, or is no longer, with the encoder that it waits for.
    pub(crate) fn unstored_bytes(&self) -> u64 {
        let state = self.state.lock();
        let pieces = state.pieces.iter().filter(|piece| !piece.data.is_stored());
        let encoder_bytes = state.encoder_charge.as_ref().map_or(0, Charge::bytes);
        pieces.map(|piece| piece.data.len() as u64).sum::<u64>() + (state.tail.len() + encoder_bytes) as u64
    }

    /// Counts the encoder that makes this body: it is there as long as readers keep it waiting.
    pub(crate) fn has_encoder(&self, charge: Charge) {
        self.state.lock().encoder_charge = Some(charge);
    }

    /// The encoder has made all that it will.
    pub(crate) fn encoder_is_gone(&self) {
        self.state.lock().encoder_charge = None;
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
        self.end_early(None);
    }

    /// The same where nobody but its readers learns why, in a word for metrics.
    pub(crate) fn fail(&self, because: &'static str) {
        self.end_early(Some(because));
    }

    fn end_early(&self, because: Option<&'static str>) {
        let mut state = self.state.lock();
        if matches!(state.end, End::Filling) {
            state.end = End::Aborted;
            state.because = because;
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
        state.readers[slot] = Some(Reading::from(start));
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
