//! A stream of which some bytes have already been read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use message::read_ahead::ReadAhead;
use store::FileRange;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::wire::{Ending, Stream};

/// A stream that returns `early` before it reads on.
pub(crate) struct Prefixed<S> {
    early: Vec<u8>,
    given: usize,
    io: S,
}

impl<S> Prefixed<S> {
    pub(crate) fn new(early: Vec<u8>, io: S) -> Self {
        Self { early, given: 0, io }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let left = &this.early[this.given..];
        if left.is_empty() {
            return Pin::new(&mut this.io).poll_read(context, buffer);
        }
        let step = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..step]);
        this.given += step;
        if this.given == this.early.len() {
            (this.early, this.given) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match parts {
            // A TLS layer hands over one record as a list of one; `send` takes it for less than `writev` does.
            [part] => Pin::new(&mut self.io).poll_write(context, part),
            _ => Pin::new(&mut self.io).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

impl<S: Stream> Stream for ReadAhead<S> {
    const CLOSES_SILENTLY: bool = S::CLOSES_SILENTLY;

    fn end_by(&self, ending: Ending) {
        self.io().end_by(ending);
    }
}

impl<S: Stream> Stream for Prefixed<S> {
    const SENDS_FILES: bool = S::SENDS_FILES;
    const CLOSES_SILENTLY: bool = S::CLOSES_SILENTLY;

    fn end_by(&self, ending: Ending) {
        self.io.end_by(ending);
    }

    fn poll_write_ahead(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.io.poll_write_ahead(context, bytes)
    }

    fn poll_send_file(&mut self, context: &mut Context<'_>, range: FileRange<'_>) -> Poll<io::Result<usize>> {
        self.io.poll_send_file(context, range)
    }
}
