//! Deadlines of an exchange and the progress of its request body.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{Notify, mpsc};
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
        let at = far(Instant::now(), limit);
        match self.total_at {
            Some(total_at) if total_at < at => (total_at, OriginError::TotalTimeout),
            _ => (at, late),
        }
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

/// Waits for a response head, handing interim responses over as they come.
pub(super) struct HeadWait<'a> {
    pub(super) limits: Limits,
    pub(super) on_interim: &'a mut (dyn FnMut(Interim) + Send),
    interims: mpsc::Receiver<Interim>,
    sender: mpsc::Sender<Interim>,
}

impl<'a> HeadWait<'a> {
    pub(super) fn new(limits: Limits, on_interim: &'a mut (dyn FnMut(Interim) + Send)) -> Self {
        let (sender, interims) = mpsc::channel(INTERIM_RESPONSES_MAX);
        Self { limits, on_interim, interims, sender }
    }

    /// Where the protocol puts interim responses, from any thread.
    pub(super) fn interims(&self) -> mpsc::Sender<Interim> {
        self.sender.clone()
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
        let mut sent = progress.is_over();
        let mut frames = progress.frames();
        let (mut at, mut late) = self.limits.deadline(self.limits.first_byte, OriginError::FirstByteTimeout);
        loop {
            tokio::select! {
                biased;
                Some(interim) = self.interims.recv() => (self.on_interim)(interim),
                head = &mut head => {
                    self.drain();
                    return Ok(head);
                }
                () = progress.over(), if !sent => {
                    sent = true;
                    (at, late) = self.limits.deadline(self.limits.first_byte, OriginError::FirstByteTimeout);
                }
                () = sleep_until(at) => {
                    let moving = !sent && (progress.waits_for_client() || progress.frames() != frames);
                    if !moving || late == OriginError::TotalTimeout {
                        return Err(late);
                    }
                    frames = progress.frames();
                    (at, late) = self.limits.deadline(self.limits.first_byte, OriginError::FirstByteTimeout);
                }
            }
        }
    }

    fn drain(&mut self) {
        while let Ok(interim) = self.interims.try_recv() {
            (self.on_interim)(interim);
        }
    }
}

/// How far the request body has come; shared by the connection that sends it and the one who waits for the answer.
#[derive(Debug, Default)]
pub(super) struct UploadProgress {
    state: AtomicU8,
    frames: AtomicU64,
    incomplete: AtomicBool,
    over: Notify,
}

const SENDING: u8 = 0;
const WAITING_FOR_CLIENT: u8 = 1;
const OVER: u8 = 2;

impl UploadProgress {
    /// Whether the client's part ended early, so that the forward had to be broken off.
    pub(super) fn is_incomplete(&self) -> bool {
        self.incomplete.load(Ordering::Acquire)
    }

    fn is_over(&self) -> bool {
        self.state.load(Ordering::Acquire) == OVER
    }

    fn waits_for_client(&self) -> bool {
        self.state.load(Ordering::Acquire) == WAITING_FOR_CLIENT
    }

    fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    async fn over(&self) {
        if !self.is_over() {
            self.over.notified().await;
        }
    }

    fn end(&self) {
        self.state.store(OVER, Ordering::Release);
        self.over.notify_one();
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
            progress.end();
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
