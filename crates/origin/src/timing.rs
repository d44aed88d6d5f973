//! Deadlines of an exchange and the progress of its request body.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use message::fields::PackedFields;
use tokio::task::coop::has_budget_remaining;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::error::OriginError;
use super::request_body::{BodyFrame, RequestBody, RequestBodyIncomplete};
use crate::settings::OriginTimeouts;

/// The time limits of one exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) connect: Duration,
    first_byte: Duration,
    between_bytes: Duration,
    pub(super) total_at: Option<Instant>,
    interim_responses_max: u32,
}

impl Limits {
    pub(super) fn new(timeouts: &OriginTimeouts, interim_responses_max: u32, now: Instant) -> Self {
        Self {
            interim_responses_max,
            connect: timeouts.connect,
            first_byte: timeouts.first_byte,
            between_bytes: timeouts.between_bytes,
            total_at: timeouts.total.and_then(|total| now.checked_add(total)),
        }
    }

    /// Returns whether the time limit of the whole exchange has passed.
    fn is_over(&self) -> bool {
        self.total_at.is_some_and(|total_at| total_at <= Instant::now())
    }

    /// Returns the earlier of `now + limit` and the end of the whole exchange, with the error for missing it.
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
        let mut piece = pin!(piece);
        // Most pieces have already arrived. They need no timer, and no clock unless the whole exchange has a limit.
        let mut timer = pin!(None);
        let mut late = None;
        poll_fn(|cx| {
            if let Poll::Ready(piece) = piece.as_mut().poll(cx) {
                return Poll::Ready(if self.is_over() { Err(OriginError::TotalTimeout) } else { Ok(piece) });
            }
            if late.is_none() {
                let (at, what) = self.deadline(self.between_bytes, OriginError::BetweenBytesTimeout);
                timer.set(Some(sleep_until(at)));
                late = Some(what);
            }
            let elapsed = timer.as_mut().as_pin_mut().map_or(Poll::Pending, |timer| timer.poll(cx));
            elapsed.map(|()| Err(late.take().unwrap_or(OriginError::BetweenBytesTimeout)))
        })
        .await
    }
}

/// Returns `now + limit`; limits beyond the clock's range mean a year.
fn far(now: Instant, limit: Duration) -> Instant {
    now.checked_add(limit).unwrap_or_else(|| now + Duration::from_secs(365 * 24 * 3600))
}

/// An interim (1xx) response other than 101.
#[derive(Clone, Debug)]
pub struct Interim {
    /// 100, or 102 to 199.
    pub status: http::StatusCode,
    /// Fields, without those of the origin's connection.
    pub fields: PackedFields,
}

/// An exchange that waits for its response head.
pub(super) trait Asking {
    /// The final head, or the reason why there is none.
    type Head;

    /// Advances the exchange, and passes interim responses on as they arrive.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        on_interim: &mut (dyn FnMut(Interim) + Send),
    ) -> Poll<Self::Head>;

    /// Progress of the request body.
    fn progress(&self) -> &UploadProgress;
}

/// The side for which a request was waiting when it ended, and that may have caused its failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    Origin,
    /// The request content had not arrived completely, or its arrival used up part of the time limit.
    Client,
}

/// Waits for a response head, and passes interim responses on as they arrive.
pub(super) struct HeadWait<'a> {
    pub(super) limits: Limits,
    /// The awaited side when the last attempt ended.
    pub(super) awaited: Awaited,
    on_interim: &'a mut (dyn FnMut(Interim) + Send),
}

impl<'a> HeadWait<'a> {
    pub(super) fn new(limits: Limits, on_interim: &'a mut (dyn FnMut(Interim) + Send)) -> Self {
        Self { limits, awaited: Awaited::Origin, on_interim }
    }

    /// Returns the head, or a time-out. The limit on the first byte counts from the end of the request. It restarts as long as
    /// the origin reads the request body or the client sends it, because the client has its own time limit. The number of
    /// interim responses is limited: each is passed on, and costs as much as a response.
    pub(super) async fn head<A: Asking>(&mut self, asking: &mut A) -> Result<A::Head, OriginError> {
        let head = self.head_in_time(asking).await;
        let progress = asking.progress();
        let is_for_client = match &head {
            Err(OriginError::TotalTimeout) => progress.has_waited_for_client(),
            Ok(_) | Err(_) => progress.waits_for_client(),
        };
        self.awaited = if is_for_client { Awaited::Client } else { Awaited::Origin };
        head
    }

    async fn head_in_time<A: Asking>(&mut self, asking: &mut A) -> Result<A::Head, OriginError> {
        let Self { limits, on_interim, .. } = self;
        let mut patience = Patience::begin(*limits, asking.progress());
        let mut timer = pin!(sleep_until(patience.at));
        let (max, mut seen) = (limits.interim_responses_max, 0);
        poll_fn(|cx| {
            let seen_before = seen;
            let polled = asking.poll_head(cx, &mut |interim| {
                seen += 1;
                if seen <= max {
                    on_interim(interim);
                }
            });
            if seen > max {
                return Poll::Ready(Err(OriginError::InterimResponses { max }));
            }
            if let Poll::Ready(head) = polled {
                return Poll::Ready(Ok(head));
            }
            // Timers don't fire once a task has used up its budget, so an origin that never pauses would never time out.
            let looks_at_clock = seen > seen_before || !has_budget_remaining();
            while timer.as_mut().poll(cx).is_ready() || (looks_at_clock && patience.at <= Instant::now()) {
                patience.renew(asking.progress(), Instant::now())?;
                timer.as_mut().reset(patience.at);
            }
            Poll::Pending
        })
        .await
    }
}

/// Deadline for the first byte.
struct Patience {
    limits: Limits,
    at: Instant,
    late: OriginError,
    /// Number of request frames sent at the last check.
    frames: u64,
    is_sent: bool,
}

impl Patience {
    fn begin(limits: Limits, progress: &UploadProgress) -> Self {
        let (at, late) = limits.first_byte_from(Instant::now());
        Self { limits, at, late, frames: progress.frames(), is_sent: progress.is_over() }
    }

    /// Extends the deadline if the request was still being sent.
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

/// Progress of the request body, shared by the connection that sends it and the task that waits for the answer.
#[derive(Debug, Default)]
pub(super) struct UploadProgress {
    state: AtomicU8,
    frames: AtomicU64,
    incomplete: AtomicBool,
    /// Whether sending has ever waited for the client.
    has_waited: AtomicBool,
    over_at: OnceLock<Instant>,
}

const SENDING: u8 = 0;
const WAITING_FOR_CLIENT: u8 = 1;
const OVER: u8 = 2;

impl UploadProgress {
    /// Returns whether the client's content ended early, so that the forward had to be aborted.
    pub(super) fn is_incomplete(&self) -> bool {
        self.incomplete.load(Ordering::Acquire)
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.load(Ordering::Acquire) == OVER
    }

    fn waits_for_client(&self) -> bool {
        self.state.load(Ordering::Acquire) == WAITING_FOR_CLIENT
    }

    fn has_waited_for_client(&self) -> bool {
        self.has_waited.load(Ordering::Relaxed)
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

    /// Returns the progress of an unread body.
    pub(super) fn of(body: &RequestBody) -> Self {
        let progress = Self::default();
        if body.is_end_stream() {
            progress.state.store(OVER, Ordering::Release);
        }
        progress
    }

    /// Records a piece read from the body, and whether more is left.
    pub(super) fn note(
        &self,
        polled: &Poll<Option<Result<BodyFrame, RequestBodyIncomplete>>>,
        body: &RequestBody,
    ) {
        match polled {
            Poll::Pending => {
                self.state.store(WAITING_FOR_CLIENT, Ordering::Release);
                self.has_waited.store(true, Ordering::Relaxed);
            }
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
        if body.is_end_stream() && !self.is_over() {
            self.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use tokio::runtime::Builder;
    use tokio::task::coop::consume_budget;

    use super::*;

    /// If a client is slower than its origin, each piece is already there when the gateway wants to send it.
    #[tokio::test(start_paused = true)]
    async fn a_piece_that_is_there_does_not_outlast_the_exchange() {
        let second = Duration::from_secs(1);
        let limits = |total| {
            let timeouts =
                OriginTimeouts { connect: second, first_byte: second, between_bytes: second, total };
            Limits::new(&timeouts, 0, Instant::now())
        };
        let (limited, unlimited) = (limits(Some(second)), limits(None));
        let piece = || std::future::ready(7);
        assert_eq!(limited.next_piece(piece()).await.unwrap(), 7);
        tokio::time::advance(second).await;
        assert!(matches!(limited.next_piece(piece()).await, Err(OriginError::TotalTimeout)));
        assert_eq!(unlimited.next_piece(piece()).await.unwrap(), 7);
    }
    /// An origin that never stops sending. Each read from it uses up the task's budget.
    struct Endless(UploadProgress);

    impl Asking for Endless {
        type Head = ();

        fn poll_head(
            &mut self,
            cx: &mut Context<'_>,
            _on_interim: &mut (dyn FnMut(Interim) + Send),
        ) -> Poll<Self::Head> {
            while pin!(consume_budget()).poll(cx).is_ready() {}
            Poll::Pending
        }

        fn progress(&self) -> &UploadProgress {
            &self.0
        }
    }

    #[test]
    fn who_reads_without_a_pause_sees_the_time() {
        let (told, ended) = mpsc::sync_channel(1);
        // On a separate thread, because a failing test would never end.
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
            let reading = runtime.block_on(runtime.spawn(async {
                let first_byte = Duration::from_millis(20);
                let second = Duration::from_secs(1);
                let timeouts =
                    OriginTimeouts { connect: second, first_byte, between_bytes: second, total: None };
                let limits = Limits::new(&timeouts, 0, Instant::now());
                let mut endless = Endless(UploadProgress::default());
                endless.0.end();
                HeadWait::new(limits, &mut |_| {}).head(&mut endless).await
            }));
            let _ = told.send(matches!(reading, Ok(Err(OriginError::FirstByteTimeout))));
        });
        assert_eq!(ended.recv_timeout(Duration::from_secs(30)), Ok(true));
    }
}
