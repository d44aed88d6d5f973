//! A response body on its way from the origin, shared by all its readers.
//!
//! A fill is in one of three states that are never confused: filling, complete or aborted. One writer (the fetch task) appends; any
//! number of readers follow at their own pace and are woken, never polled.
//!
//! While the body may still be stored, all of it is kept (`Retention::Whole`) and readers don't slow the writer. If the body turns out too
//! large, or the memory budget is full, only a window is kept (`Retention::Window`): the writer then waits for the slowest reader, and
//! stops when no reader is left. A reader that is much slower than the others is cut off, so that it does not set the pace for all.
//!
//! Readers get the last bytes of a storable body only after it is stored, so a client that has read a response finds it in the cache.

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
use origin::{BodyFrame, OriginBody, Pacing};
use parking_lot::Mutex;
use store::{Budget, Charge, Placement};
use tokio::sync::{Notify, SetOnce};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use self::state::{End, FillState, Reading, Retention, Room};

pub use self::reader::{Aborted, FillRanges, FillReader};
pub use self::state::{CompleteBody, FillLimits, INLINE_BODY_BYTES_MAX, NotKept};

use crate::changed::until;

/// Maximum time for which the window may stay full if too many bodies already wait for their readers.
const CROWDED_STALL_MAX: Duration = Duration::from_secs(2);

/// Maximum wait for the first bytes of a body after the client that caused the forward has left.
const LEFT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// A body in progress.
#[derive(Debug)]
pub struct Fill {
    budget: Arc<Budget>,
    limits: FillLimits,
    expected_bytes: Option<u64>,
    /// Number of requests that were promised this body and have not begun to read it.
    promised: Arc<AtomicUsize>,
    state: Mutex<FillState>,
    arrived: Notify,
    read: Notify,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Continue.
    Kept,
    /// The announced length is reached. Readers get the bytes of this write when [`Fill::release`] is called.
    All,
    /// The announced length is exceeded: stop, and abort.
    TooLong,
    /// Continue, but the body won't be stored.
    NoLongerKept(NotKept),
    /// Stop: the body isn't to be stored and has no readers.
    Abandoned,
    /// Stop: the readers don't keep up, and too many other bodies wait for their readers too.
    TooSlow,
}

impl Fill {
    /// Creates a fill. `promised` counts requests that have not begun to read but will; while it isn't zero, no bytes are released.
    pub fn new(
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
            promised,
            arrived: Notify::new(),
            read: Notify::new(),
            state: Mutex::new(FillState {
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

    /// Creates a fill that keeps only a window, from the beginning.
    pub fn window(budget: Arc<Budget>) -> Arc<Self> {
        let limits = FillLimits {
            body_bytes_max: 0,
            segment_bytes: 1,
            first_segment_bytes: 1,
            place: Placement::Heap,
        };
        Self::new(budget, limits, Some(u64::MAX), Arc::default())
    }

    /// Appends `data` and wakes the readers. In window mode, then waits until the slowest reader has caught up, and calls `may_wait` before
    /// each wait.
    pub async fn write(&self, data: Bytes, may_wait: impl Fn() -> Pacing) -> Written {
        let (written, retention) = self.append(data);
        if !matches!(written, Written::All | Written::TooLong) {
            self.arrived.notify_waiters();
        }
        // Other requests wait for this result, and must not wait for the readers of this body.
        if retention == Retention::Whole || matches!(written, Written::NoLongerKept(_)) {
            return written;
        }
        self.catch_up(may_wait).await
    }

    /// Waits until the slowest reader of a window has caught up.
    pub async fn catch_up(&self, may_wait: impl Fn() -> Pacing) -> Written {
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

    /// Returns whether neither bytes nor an end have arrived.
    pub fn has_nothing(&self) -> bool {
        let state = self.state.lock();
        matches!(state.end, End::Filling) && state.total_bytes == 0
    }

    /// Waits until it is known whether a reader without any bytes will get this body. Returns true once the body has begun or is complete,
    /// and false if it was aborted, or no bytes have arrived for `pause_max`. The pause is shorter if the client that caused the forward
    /// has left and all readers still wait for the first byte.
    pub async fn comes(&self, pause_max: Duration) -> bool {
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

    /// Returns whether no bytes have arrived and only requests that were promised the body wait for it.
    fn is_left_to_the_promised(&self, state: &FillState) -> bool {
        state.total_bytes == 0 && state.followers().count() <= self.promised.load(Ordering::Acquire)
    }

    /// Resolves when the body has no readers, and either no bytes have arrived for `pause_max`, or none have arrived at all and another
    /// request needs this forward's slot at the origin.
    pub async fn deserted(&self, pause_max: Option<Duration>, place_wanted: &SetOnce<()>) {
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

    /// Resolves when the last reader has left. Call this for bodies that are not stored, or that have stopped.
    pub async fn nobody_reads(&self) {
        until(&self.read, || self.state.lock().followers().next().is_none().then_some(())).await;
    }

    /// Returns the body once all its bytes have arrived; `None` if it isn't to be stored.
    pub fn body(&self) -> Option<CompleteBody> {
        self.state.lock().finish(&self.budget, self.limits.place)
    }

    /// Shows the withheld bytes to readers.
    pub fn release(&self) {
        self.state.lock().withheld_from = u64::MAX;
        self.arrived.notify_waiters();
    }

    /// Completes the body.
    //= RFC 9111 section 3.1: trailer fields are stored apart or discarded
    //= RFC 9111 section 3.1: trailer fields never join header fields
    pub fn complete(&self, trailers: Option<HeaderMap>) {
        let mut state = self.state.lock();
        state.end = End::Complete(trailers.map(Arc::new));
        drop(state);
        self.release();
    }

    /// Returns whether the fill began in window mode, because it was known from the start that the body can't be stored.
    pub fn began_in_window(&self) -> bool {
        self.expected_bytes.is_some_and(|bytes| bytes > self.limits.body_bytes_max)
    }

    /// Returns whether the body may still be stored, as far as known.
    pub fn may_be_stored(&self) -> bool {
        let state = self.state.lock();
        state.retention == Retention::Whole && !matches!(state.end, End::Aborted)
    }

    /// Returns why the body isn't stored, if known. A body is too large if its announced length or its arrived bytes exceed the limit;
    /// otherwise the budget had no room.
    pub fn why_not_stored(&self) -> Option<NotKept> {
        let state = self.state.lock();
        let is_too_large = self.expected_bytes.unwrap_or(state.total_bytes) > self.limits.body_bytes_max;
        (state.retention == Retention::Window).then_some(if is_too_large {
            NotKept::TooLarge
        } else {
            NotKept::OverBudget
        })
    }

    /// Returns the number of bytes that have arrived.
    pub fn arrived_bytes(&self) -> u64 {
        self.state.lock().total_bytes
    }

    /// Returns the number of kept bytes that aren't in the store, including the encoder's memory.
    pub fn unstored_bytes(&self) -> u64 {
        let state = self.state.lock();
        let pieces = state.pieces.iter().filter(|piece| !piece.data.is_stored());
        let encoder_bytes = state.encoder_charge.as_ref().map_or(0, Charge::bytes);
        pieces.map(|piece| piece.data.len() as u64).sum::<u64>() + (state.tail.len() + encoder_bytes) as u64
    }

    /// Charges the memory of the encoder that produces this body; `None` once the encoder has finished.
    pub fn count_encoder(&self, charge: Option<Charge>) {
        self.state.lock().encoder_charge = charge;
    }

    /// Returns whether exactly the announced number of bytes has arrived.
    pub fn is_as_announced(&self) -> bool {
        self.expected_bytes.is_none_or(|expected_bytes| expected_bytes == self.arrived_bytes())
    }

    /// Records that a request that was promised this body has begun to read it, or has left.
    pub fn promise_kept(&self) {
        self.read.notify_one();
    }

    /// Aborts the body. `because` is a one-word reason for metrics, or `None` if another part of the code reports it. A complete fill stays
    /// complete.
    pub fn abort(&self, because: Option<&'static str>) {
        let mut state = self.state.lock();
        if matches!(state.end, End::Filling) {
            state.end = End::Aborted;
            state.because = because;
        }
        drop(state);
        self.arrived.notify_waiters();
    }

    /// Creates a reader from `start` to `end` (exclusive; `None`: to the end). `None` if the bytes at `start` are gone.
    pub fn reader(self: &Arc<Self>, start: u64, end: Option<u64>) -> Option<FillReader> {
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

/// Handle of the writer. If it is dropped early, even by a panic, the fill is aborted, so its readers don't wait forever.
pub struct Writer(pub Arc<Fill>);

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.abort(None);
    }
}

/// Reads the rest of a response that isn't stored, in a task that ends when its reader does.
///
/// As long as a client keeps up, it gets each piece when the origin sends it. If it falls behind, the task reads ahead, up to a window.
/// Most responses fit into the window, so the origin can finish them however slow the client is.
pub fn read_ahead(body: OriginBody, budget: &Arc<Budget>) -> Option<FillReader> {
    let fill = Fill::window(Arc::clone(budget));
    let reader = fill.reader(0, None);
    drop(tokio::spawn(pump(body, Writer(fill))));
    reader
}

async fn pump(mut body: OriginBody, writer: Writer) {
    let fill = &writer.0;
    let mut trailers = None;
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = fill.nobody_reads() => return,
        };
        match frame {
            Some(Ok(BodyFrame::Data(data))) => {
                let written = body.pass_on(fill.write(data, || body.wait_for_client())).await;
                if matches!(written, Some(Written::Abandoned | Written::TooSlow)) {
                    return;
                }
            }
            Some(Ok(BodyFrame::Trailers(map))) => trailers = Some(map),
            Some(Err(error)) => return fill.abort(Some(error.reason())),
            None => return fill.complete(trailers),
        }
    }
}
