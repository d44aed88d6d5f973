//! Deadlines of an exchange and the progress of its request body.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::error::OriginError;
use super::message::{Interim, RequestBody, RequestBodyIncomplete};
use crate::config::OriginTimeouts;

/// Interim responses that wait for the caller; more are dropped.
const INTERIM_RESPONSES_MAX: usize = 32;

/// The time limits of one exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) connect: Duration,
    first_byte: Duration,
    between_bytes: Duration,
    pub(super) total_at: Option<Instant>,
}

impl Limits {
    pub(super) fn new(timeouts: &OriginTimeouts, now: Instant) -> Self {
        Self {
            connect: timeouts.connect,
            first_byte: timeouts.first_byte,
            between_bytes: timeouts.between_bytes,
            total_at: timeouts.total.and_then(|total| now.checked_add(total)),
        }
    }

    /// The earlier of `now + limit` and the end of the whole exchange, and what being late means.
    fn deadline(&self, limit: Duration, late: OriginError) -> (Instant, OriginError) {
        self.deadline_from(Instant::now(), limit, late)
    }

    fn deadline_from(&self, start: Instant, limit: Duration, late: OriginError) -> (Instant, OriginError) {
        let at = far(start, limit);
        match self.total_at {
            Some(total_at) if total_at < at => (total_at, OriginError::TotalTimeout),
            _ => (at, late),
        }
    }

    fn first_byte_from(&self, start: Instant) -> (Instant, OriginError) {
        self.deadline_from(start, self.first_byte, OriginError::FirstByteTimeout)
    }

    pub(super) async fn connected<T>(
        &self,
        connecting: impl Future<Output = Result<T, OriginError>>,
    ) -> Result<T, OriginError> {
        let (at, late) = self.deadline(self.connect, OriginError::ConnectTimeout);
        timeout_at(at, connecting).await.unwrap_or(Err(late))
    }

    pub(super) async fn next_piece<T>(&self, piece: impl Future<Output = T>) -> Result<T, OriginError> {
        let (at, late) = self.deadline(self.between_bytes, OriginError::BetweenBytesTimeout);
        timeout_at(at, piece).await.map_err(|_| late)
    }
}

/// `now + limit`; limits beyond the clock's range mean a year.
fn far(now: Instant, limit: Duration) -> Instant {
    now.checked_add(limit).unwrap_or_else(|| now + Duration::from_secs(365 * 24 * 3600))
}

/// Interim responses on their way to the caller.
#[derive(Debug, Default)]
pub(super) struct Interims(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    arrived: VecDeque<Interim>,
    caller: Option<Waker>,
}

impl Interims {
    /// From any thread. A flood is not kept: the head still comes after it, or the time-out.
    pub(super) fn push(&self, interim: Interim) {
        let mut waiting = self.0.lock();
        if waiting.arrived.len() < INTERIM_RESPONSES_MAX {
            waiting.arrived.push_back(interim);
        }
        let caller = waiting.caller.take();
        drop(waiting);
        if let Some(caller) = caller {
            caller.wake();
        }
    }

    /// What has arrived; the caller is woken when there is more.
    fn take(&self, caller: &Waker) -> VecDeque<Interim> {
        let mut waiting = self.0.lock();
        if !waiting.caller.as_ref().is_some_and(|known| known.will_wake(caller)) {
            waiting.caller = Some(caller.clone());
        }
        std::mem::take(&mut waiting.arrived)
    }
}

/// Waits for a response head, handing interim responses over as they come.
pub(super) struct HeadWait<'a> {
    pub(super) limits: Limits,
    pub(super) on_interim: &'a mut (dyn FnMut(Interim) + Send),
    interims: Arc<Interims>,
}

impl<'a> HeadWait<'a> {
    pub(super) fn new(limits: Limits, on_interim: &'a mut (dyn FnMut(Interim) + Send)) -> Self {
        Self { limits, on_interim, interims: Arc::default() }
    }

    /// Where the protocol puts interim responses.
    pub(super) fn interims(&self) -> Arc<Interims> {
        Arc::clone(&self.interims)
    }

    /// The head, or the time-out. The time to the first byte counts from the end of the request, and anew
    /// while the origin still takes the request body or we wait for the client to send it: the client has its
    /// own time limit.
    pub(super) async fn head<T>(
        &mut self,
        head: impl Future<Output = T>,
        progress: &UploadProgress,
    ) -> Result<T, OriginError> {
        let mut head = pin!(head);
        let mut patience = Patience::begin(self.limits, progress);
        let mut timer = pin!(sleep_until(patience.at));
        poll_fn(|cx| {
            let polled = head.as_mut().poll(cx);
            self.interims.take(cx.waker()).into_iter().for_each(&mut self.on_interim);
            if let Poll::Ready(head) = polled {
                return Poll::Ready(Ok(head));
            }
            while timer.as_mut().poll(cx).is_ready() {
                patience.renew(progress, Instant::now())?;
                timer.as_mut().reset(patience.at);
            }
            Poll::Pending
        })
        .await
    }
}

/// How long the first byte is waited for.
struct Patience {
    limits: Limits,
    at: Instant,
    late: OriginError,
    /// What of the request was sent when it was last looked at.
    frames: u64,
    is_sent: bool,
}

impl Patience {
    fn begin(limits: Limits, progress: &UploadProgress) -> Self {
        let (at, late) = limits.first_byte_from(Instant::now());
        Self { limits, at, late, frames: progress.frames(), is_sent: progress.is_over() }
    }

    /// Waits on, if the request was still on its way.
    fn renew(&mut self, progress: &UploadProgress, now: Instant) -> Result<(), OriginError> {
        if self.is_sent || self.late == OriginError::TotalTimeout {
            return Err(self.late.clone());
        }
        let from = match progress.over_at() {
            Some(over_at) => {
                self.is_sent = true;
                over_at
            }
            None if progress.waits_for_client() || progress.frames() != self.frames => now,
            None => return Err(self.late.clone()),
        };
        self.frames = progress.frames();
        (self.at, self.late) = self.limits.first_byte_from(from);
        if self.at <= now { Err(self.late.clone()) } else { Ok(()) }
    }
}

/// How far the request body has come; shared by the connection that sends it and the one who waits for the answer.
#[derive(Debug, Default)]
pub(super) struct UploadProgress {
    state: AtomicU8,
    frames: AtomicU64,
    incomplete: AtomicBool,
    over_at: OnceLock<Instant>,
}

const SENDING: u8 = 0;
const WAITING_FOR_CLIENT: u8 = 1;
const OVER: u8 = 2;

impl UploadProgress {
    /// Whether the client's part ended early, so that the forward had to be broken off.
    pub(super) fn is_incomplete(&self) -> bool {
        self.incomplete.load(Ordering::Acquire)
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.load(Ordering::Acquire) == OVER
    }

    fn waits_for_client(&self) -> bool {
        self.state.load(Ordering::Acquire) == WAITING_FOR_CLIENT
    }

    fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    fn over_at(&self) -> Option<Instant> {
        self.over_at.get().copied()
    }

    fn end(&self) {
        self.over_at.get_or_init(Instant::now);
        self.state.store(OVER, Ordering::Release);
    }

    fn note(&self, polled: &Poll<Option<Result<Frame<Bytes>, RequestBodyIncomplete>>>) {
        match polled {
            Poll::Pending => self.state.store(WAITING_FOR_CLIENT, Ordering::Release),
            Poll::Ready(Some(Ok(_))) => {
                self.state.store(SENDING, Ordering::Release);
                self.frames.fetch_add(1, Ordering::Relaxed);
            }
            Poll::Ready(Some(Err(_))) => {
                self.incomplete.store(true, Ordering::Release);
                self.end();
            }
            Poll::Ready(None) => self.end(),
        }
    }
}

/// A request body that reports its progress.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) body: RequestBody,
    progress: Arc<UploadProgress>,
}

impl Upload {
    pub(super) fn new(body: RequestBody) -> (Self, Arc<UploadProgress>) {
        let progress = Arc::new(UploadProgress::default());
        if body.is_end_stream() {
            progress.state.store(OVER, Ordering::Release);
        }
        (Self { body, progress: Arc::clone(&progress) }, progress)
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = RequestBodyIncomplete;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyIncomplete>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.progress.note(&polled);
        if self.body.is_end_stream() && !self.progress.is_over() {
            self.progress.end();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
