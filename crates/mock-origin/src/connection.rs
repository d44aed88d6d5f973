//! A transport that tells when everything written so far has left the process.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
};

/// Wraps the stream of one connection.
pub(crate) struct Watched<S> {
    stream: S,
    flushes: Arc<watch::Sender<u64>>,
}

/// Lets a body wait until its bytes are out. Breaking a connection earlier would lose bytes that the `close`
/// knob promised, since the HTTP library drops what it still buffers.
#[derive(Clone)]
pub(crate) struct Flushes {
    flushes: watch::Receiver<u64>,
}

impl<S> Watched<S> {
    pub(crate) fn new(stream: S) -> (Self, Flushes) {
        let (sender, receiver) = watch::channel(0);
        (Self { stream, flushes: Arc::new(sender) }, Flushes { flushes: receiver })
    }
}

impl Flushes {
    /// Resolves after the next complete flush, or when the connection is gone.
    pub(crate) fn next(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut flushes = self.flushes.clone();
        flushes.mark_unchanged();
        async move {
            // An error means that the connection is gone, and nothing is left to wait for.
            let _ = flushes.changed().await;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.flushes.send_modify(|count| *count += 1);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
