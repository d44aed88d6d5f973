//! The response body: a part of a content, sent in chunks, with pauses if the knobs set them.

use std::{
    convert::Infallible,
    ops::Range,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::content::Content;

/// Plan of a body: the bytes to send, their chunks and pauses.
pub(crate) struct BodyPlan {
    pub(crate) content: Content,
    /// The bytes of the content that are sent.
    pub(crate) range: Range<u64>,
    pub(crate) chunk_bytes: usize,
    pub(crate) sleep_between: Duration,
}

/// The body that the HTTP library polls.
pub(crate) struct OriginBody {
    plan: BodyPlan,
    /// The pause before the next chunk, once it has begun.
    pause: Option<Pin<Box<Sleep>>>,
    has_begun: bool,
}

impl OriginBody {
    pub(crate) fn new(plan: BodyPlan) -> Self {
        Self { plan, pause: None, has_begun: false }
    }

    fn rest_bytes(&self) -> u64 {
        self.plan.range.end - self.plan.range.start
    }

    fn pause_is_due(&self) -> bool {
        self.has_begun && !self.plan.sleep_between.is_zero()
    }

    fn take_chunk(&mut self) -> Bytes {
        let count = self.rest_bytes().min(self.plan.chunk_bytes as u64);
        let chunk = self.plan.content.slice(self.plan.range.start, count as usize);
        self.plan.range.start += chunk.len() as u64;
        self.has_begun = true;
        chunk
    }
}

impl Body for OriginBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest_bytes() == 0 {
            return Poll::Ready(None);
        }
        if self.pause_is_due() {
            let length = self.plan.sleep_between;
            ready!(self.pause.get_or_insert_with(|| Box::pin(sleep(length))).as_mut().poll(cx));
            self.pause = None;
        }
        Poll::Ready(Some(Ok(Frame::data(self.take_chunk()))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest_bytes() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest_bytes())
    }
}
