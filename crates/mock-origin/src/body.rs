//! The response body: a part of a content, sent in chunks, slowly or broken off if the knobs say so.

use std::{
    ops::Range,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::sleep;

use super::{connection::Flushes, content::Content};

/// Plan of a body: the bytes to send, and how.
pub(crate) struct BodyPlan {
    pub(crate) content: Content,
    /// The bytes of the content that are sent.
    pub(crate) range: Range<u64>,
    pub(crate) chunk_bytes: usize,
    pub(crate) sleep_between: Duration,
    pub(crate) break_after_bytes: Option<u64>,
}

/// The body that the HTTP library polls.
pub(crate) struct OriginBody {
    plan: BodyPlan,
    flushes: Flushes,
    sent_bytes: u64,
    next: Next,
    wait: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// The body was broken on purpose; never seen by a client other than as a truncated message.
#[derive(Debug, thiserror::Error)]
#[error("broken by the `close` knob")]
pub(crate) struct Broken;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Chunk,
    /// The pause before the next chunk is over.
    ChunkAfterPause,
    /// Everything before the break has left the process.
    Break,
}

impl OriginBody {
    pub(crate) fn new(mut plan: BodyPlan, flushes: Flushes) -> Self {
        // If every byte that Content-Length promises is sent, nothing is left to break.
        let len_bytes = plan.range.end - plan.range.start;
        plan.break_after_bytes = plan.break_after_bytes.filter(|after| *after < len_bytes);
        Self { plan, flushes, sent_bytes: 0, next: Next::Chunk, wait: None }
    }

    fn rest_bytes(&self) -> u64 {
        self.plan.range.end - self.plan.range.start
    }

    fn break_is_due(&self) -> bool {
        self.plan.break_after_bytes.is_some_and(|after| self.sent_bytes >= after)
    }

    fn pause_is_due(&self) -> bool {
        self.next == Next::Chunk && self.sent_bytes > 0 && !self.plan.sleep_between.is_zero()
    }

    fn take_chunk(&mut self) -> Bytes {
        let until_break = self.plan.break_after_bytes.map_or(u64::MAX, |after| after - self.sent_bytes);
        let count = self.rest_bytes().min(until_break).min(self.plan.chunk_bytes as u64);
        let chunk = self.plan.content.slice(self.plan.range.start, count as usize);
        self.plan.range.start += chunk.len() as u64;
        self.sent_bytes += chunk.len() as u64;
        self.next = Next::Chunk;
        chunk
    }

    fn wait_for(&mut self, wait: impl Future<Output = ()> + Send + 'static, next: Next) {
        self.wait = Some(Box::pin(wait));
        self.next = next;
    }
}

impl Body for OriginBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            if let Some(wait) = &mut self.wait {
                ready!(wait.as_mut().poll(cx));
                self.wait = None;
            }
            if self.next == Next::Break {
                return Poll::Ready(Some(Err(Broken)));
            }
            if self.break_is_due() {
                let flushed = drained(self.flushes.clone());
                self.wait_for(flushed, Next::Break);
                continue;
            }
            if self.rest_bytes() == 0 {
                return Poll::Ready(None);
            }
            if self.pause_is_due() {
                let pause = sleep(self.plan.sleep_between);
                self.wait_for(pause, Next::ChunkAfterPause);
                continue;
            }
            return Poll::Ready(Some(Ok(Frame::data(self.take_chunk()))));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest_bytes() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest_bytes())
    }
}

/// One flush empties an HTTP/1.1 connection. On HTTP/2 the flush may belong to another stream's frames,
/// and no signal tells about ours, hence the grace.
async fn drained(flushes: Flushes) {
    flushes.next().await;
    sleep(BREAK_GRACE).await;
}

const BREAK_GRACE: Duration = Duration::from_millis(5);
