//! A request that is being sent: head and body through one queue of bytes.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::{HeaderMap, HeaderName};
use http1::encode::{self, CHUNK_END, LAST_CHUNK};
use tokio::io::AsyncWrite;

use super::super::request::{KeepAlive, RequestFraming, RequestHead};
use super::super::request_body::{BodyFrame, RequestBody};
use super::super::timing::UploadProgress;
use super::connection::KEPT_BYTES_MAX;

thread_local! {
    /// A thread's output buffer for heads: a waiting or idle connection has none.
    static OUTPUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Keeps a buffer for the next writer.
fn give_output(mut output: Vec<u8>) {
    if (1..=KEPT_BYTES_MAX).contains(&output.capacity()) {
        output.clear();
        OUTPUT.set(output);
    }
}

/// Result of sending a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The whole request was written.
    Whole,
    /// The origin no longer reads the rest. It may still answer.
    Broken,
    /// The request body ended early. The origin must not mistake the part that was sent for the whole.
    Incomplete,
}

#[derive(Debug)]
pub(crate) struct Sending {
    /// Encoded lines: the head, the line before a chunk, the end of the body.
    lines: Vec<u8>,
    lines_written: usize,
    /// A piece of the body, sent after `lines`.
    data: Bytes,
    /// Bytes after the piece: the end of a chunk, or of the body.
    behind: &'static [u8],
    body: RequestBody,
    coding: Coding,
    progress: UploadProgress,
    stage: Stage,
    written_bytes: u64,
}

#[derive(Debug)]
enum Coding {
    /// Unencoded, with `Content-Length`.
    Plain,
    /// Chunked, with the names of the announced trailers.
    Chunked(Vec<HeaderName>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The body continues.
    Body,
    /// The whole body is in the queue.
    Last,
    Over(Sent),
}

impl Sending {
    pub(crate) fn new(head: &RequestHead<'_>, body: RequestBody, keep_alive: KeepAlive) -> Self {
        let mut lines = OUTPUT.take();
        head.write_http1(&mut lines, keep_alive);
        let coding = match head.framing {
            RequestFraming::Unknown => Coding::Chunked(head.announced_trailers()),
            RequestFraming::Bodyless | RequestFraming::Length(_) => Coding::Plain,
        };
        Self::of(lines, coding, body)
    }

    /// Creates the queue, with an encoded head in it.
    fn of(lines: Vec<u8>, coding: Coding, body: RequestBody) -> Self {
        let is_over = body.is_end_stream() && matches!(coding, Coding::Plain);
        Self {
            lines,
            lines_written: 0,
            data: Bytes::new(),
            behind: &[],
            progress: UploadProgress::of(&body),
            body,
            coding,
            stage: if is_over { Stage::Last } else { Stage::Body },
            written_bytes: 0,
        }
    }

    pub(crate) fn progress(&self) -> &UploadProgress {
        &self.progress
    }

    /// Returns the result, once sending has ended.
    pub(crate) fn outcome(&self) -> Option<Sent> {
        match self.stage {
            Stage::Over(sent) => Some(sent),
            Stage::Body | Stage::Last => None,
        }
    }

    /// Returns whether no byte can have reached the origin.
    pub(crate) fn is_unsent(&self) -> bool {
        self.written_bytes == 0
    }

    /// Returns the body of a completely unsent request.
    pub(crate) fn into_unsent_body(mut self) -> RequestBody {
        self.body.give_back(std::mem::take(&mut self.data));
        self.body
    }

    /// Writes as much as the origin accepts and the body provides.
    pub(crate) fn poll(&mut self, io: &mut (impl AsyncWrite + Unpin), cx: &mut Context<'_>) -> Poll<Sent> {
        loop {
            let awaits_body = match self.stage {
                Stage::Over(sent) => return Poll::Ready(sent),
                Stage::Body if self.data.is_empty() && self.behind.is_empty() => self.poll_body(cx),
                Stage::Body | Stage::Last => Poll::Ready(()),
            };
            if self.stage == Stage::Over(Sent::Incomplete) {
                return self.end(Sent::Incomplete);
            }
            if self.has_queued() {
                match ready!(self.poll_write(io, cx)) {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => return self.end(Sent::Broken),
                }
            } else if self.stage == Stage::Last {
                let flushed = ready!(Pin::new(io).poll_flush(cx));
                return self.end(if flushed.is_ok() { Sent::Whole } else { Sent::Broken });
            } else if awaits_body.is_pending() {
                let flushed = ready!(Pin::new(&mut *io).poll_flush(cx));
                return if flushed.is_ok() { Poll::Pending } else { self.end(Sent::Broken) };
            }
        }
    }

    fn end(&mut self, sent: Sent) -> Poll<Sent> {
        self.stage = Stage::Over(sent);
        if !self.is_unsent() {
            give_output(std::mem::take(&mut self.lines));
            self.data = Bytes::new();
        }
        Poll::Ready(sent)
    }

    fn has_queued(&self) -> bool {
        self.lines_written < self.lines.len() || !self.data.is_empty() || !self.behind.is_empty()
    }

    /// Puts the next piece of the body into the empty queue. Ready if the state has changed.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let polled = self.body.poll_frame(cx);
        self.progress.note(&polled, &self.body);
        match ready!(polled) {
            Some(Ok(BodyFrame::Data(data))) => self.queue_data(data),
            Some(Ok(BodyFrame::Trailers(trailers))) => self.queue_end(Some(&trailers)),
            Some(Err(_)) => self.stage = Stage::Over(Sent::Incomplete),
            None => self.queue_end(None),
        }
        Poll::Ready(())
    }

    fn queue_data(&mut self, data: Bytes) {
        let is_last = self.body.is_end_stream();
        if let (Coding::Chunked(_), Some(bytes)) = (&self.coding, NonZeroU64::new(data.len() as u64)) {
            self.lines.extend_from_slice(encode::write_chunk_head(bytes, &mut [0; 18]));
            self.behind = if is_last { CHUNK_AND_BODY_END } else { CHUNK_END };
        }
        self.data = data;
        if is_last {
            self.stage = Stage::Last;
        }
    }

    //= RFC 9112 section 7.1.2: chunked trailer section
    fn queue_end(&mut self, trailers: Option<&HeaderMap>) {
        self.stage = Stage::Last;
        let Coding::Chunked(announced) = &self.coding else { return };
        let lines = trailers.into_iter().flat_map(HeaderMap::iter);
        let lines = lines.filter(|(name, _)| announced.contains(name));
        let written = encode::write_last_chunk(
            &mut self.lines,
            lines.map(|(name, value)| (name.as_str(), value.as_bytes())),
        );
        if written.is_err() {
            self.lines.extend_from_slice(LAST_CHUNK);
        }
    }

    fn poll_write(
        &mut self,
        io: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let lines = &self.lines[self.lines_written..];
        let written = if self.data.is_empty() && self.behind.is_empty() {
            ready!(Pin::new(io).poll_write(cx, lines))?
        } else {
            let parts = [IoSlice::new(lines), IoSlice::new(&self.data), IoSlice::new(self.behind)];
            let first = usize::from(lines.is_empty());
            ready!(Pin::new(io).poll_write_vectored(cx, &parts[first..]))?
        };
        self.advance(written);
        Poll::Ready(Ok(written))
    }

    fn advance(&mut self, written: usize) {
        self.written_bytes += written as u64;
        let of_lines = written.min(self.lines.len() - self.lines_written);
        self.lines_written += of_lines;
        if self.lines_written == self.lines.len() {
            self.lines.clear();
            self.lines_written = 0;
        }
        let of_data = (written - of_lines).min(self.data.len());
        self.data.advance(of_data);
        self.behind = &self.behind[written - of_lines - of_data..];
    }
}

/// [`CHUNK_END`] and [`LAST_CHUNK`] together.
const CHUNK_AND_BODY_END: &[u8] = b"\r\n0\r\n\r\n";

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use http::HeaderValue;

    use super::*;

    /// A writer that accepts a few bytes at a time, up to a limit.
    struct Sink {
        taken: Vec<u8>,
        step_bytes: usize,
        bytes_max: usize,
    }

    impl AsyncWrite for Sink {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            if self.taken.len() >= self.bytes_max {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            // Every other call returns `Pending`.
            if self.step_bytes.is_multiple_of(2) {
                self.step_bytes += 1;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let step = bytes.len().min(self.step_bytes);
            self.step_bytes -= 1;
            self.taken.extend_from_slice(&bytes[..step]);
            Poll::Ready(Ok(step))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            parts: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
            self.poll_write(cx, &all)
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    const PIECES: [&str; 3] = ["first", "x", "and the last one"];

    /// Returns a body that arrives completely before it is read.
    async fn pieces(length_bytes: Option<u64>, trailers: Option<HeaderMap>) -> RequestBody {
        let (mut sender, body) = RequestBody::channel(8, length_bytes);
        for piece in PIECES {
            sender.send_data(Bytes::from_static(piece.as_bytes())).await.unwrap();
        }
        sender.finish(trailers).await.unwrap();
        body
    }

    async fn sent(coding: Coding, body: RequestBody, step_bytes: usize) -> (Sent, String) {
        let mut sending = Sending::of(b"HEAD|".to_vec(), coding, body);
        let mut sink = Sink { taken: Vec::new(), step_bytes, bytes_max: usize::MAX };
        let sent = poll_fn(|cx| sending.poll(&mut sink, cx)).await;
        assert_eq!(sending.outcome(), Some(sent));
        (sent, String::from_utf8(sink.taken).unwrap())
    }

    //= RFC 9112 section 7.1: chunked transfer coding
    #[tokio::test]
    async fn all_bytes_are_written_in_steps_of_any_size() {
        let sum = HeaderName::from_static("x-sum");
        let trailers = HeaderMap::from_iter([(sum.clone(), HeaderValue::from_static("1"))]);
        let chunks = "HEAD|5\r\nfirst\r\n1\r\nx\r\n10\r\nand the last one\r\n0\r\n";
        for step_bytes in [2, 4, 6, 8, 20, 200] {
            let plain = sent(Coding::Plain, pieces(Some(22), None).await, step_bytes).await;
            assert_eq!(plain, (Sent::Whole, "HEAD|firstxand the last one".to_owned()), "{step_bytes}");
            let chunked = sent(Coding::Chunked(Vec::new()), pieces(None, None).await, step_bytes).await;
            assert_eq!(chunked, (Sent::Whole, format!("{chunks}\r\n")), "{step_bytes}");
            let body = pieces(None, Some(trailers.clone())).await;
            let with_trailers = sent(Coding::Chunked(vec![sum.clone()]), body, step_bytes).await;
            assert_eq!(with_trailers, (Sent::Whole, format!("{chunks}x-sum: 1\r\n\r\n")), "{step_bytes}");
            let bodyless = sent(Coding::Plain, RequestBody::Empty, step_bytes).await;
            assert_eq!(bodyless, (Sent::Whole, "HEAD|".to_owned()), "{step_bytes}");
        }
    }

    #[tokio::test]
    async fn a_body_of_which_nothing_was_sent_is_given_back() {
        for bytes_max in [0, 1] {
            let mut sending =
                Sending::of(b"HEAD|".to_vec(), Coding::Chunked(Vec::new()), pieces(None, None).await);
            let mut sink = Sink { taken: Vec::new(), step_bytes: 2, bytes_max };
            assert_eq!(poll_fn(|cx| sending.poll(&mut sink, cx)).await, Sent::Broken);
            assert_eq!(sending.is_unsent(), bytes_max == 0);
            if sending.is_unsent() {
                let again = sent(Coding::Plain, sending.into_unsent_body(), 200).await;
                assert_eq!(again, (Sent::Whole, "HEAD|firstxand the last one".to_owned()));
            }
        }
    }
}
