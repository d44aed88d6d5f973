//! The output side of a connection. It gathers output while several requests are answered, so that their responses share one write and,
//! with TLS, one record. Otherwise, `h2` would flush each time it is polled for the next request, once per response, and ten concurrent
//! requests would cost ten system calls. It also ends a connection whose client has stopped reading.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::server::deadline::PauseLimit;

/// Maximum number of gathered bytes: the size of a TLS record, so that copying stays cheaper than the saved write.
const HELD_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of parts in a write: `h2` writes a frame's head and its payload.
const PARTS_MAX: usize = 4;

thread_local! {
    /// Buffer for the next connection of this thread that gathers output. A connection keeps a buffer only until its bytes are written,
    /// so idle connections have none.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Switch for gathering the output of a stream.
#[derive(Clone, Default)]
pub(super) struct Cork(Arc<AtomicBool>);

impl Cork {
    /// Defers writes and flushes from now on.
    pub(super) fn push(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Ends the gathering, and returns whether it was active. From now on, flushes take effect.
    pub(super) fn pull(&self) -> bool {
        let was_in = self.is_in();
        self.0.store(false, Ordering::Relaxed);
        was_in
    }

    fn is_in(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A stream with a [`Cork`], whose writes must make progress.
pub(super) struct Corked<S> {
    io: S,
    /// Limit on a write without progress. Streams monitor their own flow-control windows, but can't detect a client that doesn't read
    /// from the socket.
    stall: PauseLimit,
    cork: Cork,
    held: Vec<u8>,
    /// Bytes of `held` already written.
    written: usize,
}

impl<S> Corked<S> {
    /// Creates a corked stream. `stall_max` is the maximum time that a write may wait.
    pub(super) fn new(io: S, stall_max: Duration, cork: Cork) -> Self {
        let mut stall = PauseLimit::new(stall_max);
        stall.stop();
        Self { io, stall, cork, held: Vec::new(), written: 0 }
    }

    /// Fails a write that has made no progress for too long.
    fn watch<T>(&mut self, context: &mut Context<'_>, progress: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.stall.stop();
            return progress;
        }
        self.stall.poll_passed(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn hold(&mut self, parts: &[IoSlice<'_>]) {
        if self.held.capacity() == 0 {
            self.held = SPARE.take();
        }
        parts.iter().for_each(|part| self.held.extend_from_slice(part));
    }

    fn held_bytes(&self) -> usize {
        self.held.len() - self.written
    }

    fn release_held(&mut self) {
        self.held.clear();
        self.written = 0;
        SPARE.set(std::mem::take(&mut self.held));
    }
}

impl<S: AsyncWrite + Unpin> Corked<S> {
    /// Writes the held bytes, followed by as much of `parts` as possible. Returns the number of bytes of `parts` written.
    fn poll_write_through(
        &mut self,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        while self.held_bytes() > 0 {
            let held_bytes = self.held_bytes();
            let mut all = [IoSlice::new(&[]); PARTS_MAX + 1];
            all[0] = IoSlice::new(&self.held[self.written..]);
            all.iter_mut().skip(1).zip(parts).for_each(|(slot, part)| *slot = IoSlice::new(part));
            let used = 1 + parts.len().min(PARTS_MAX);
            let written = Pin::new(&mut self.io).poll_write_vectored(context, &all[..used]);
            let bytes = ready!(self.watch(context, written))?;
            if bytes == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += bytes.min(held_bytes);
            if bytes > held_bytes {
                self.release_held();
                return Poll::Ready(Ok(bytes - held_bytes));
            }
        }
        if self.written > 0 {
            self.release_held();
        }
        if parts.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let written = Pin::new(&mut self.io).poll_write_vectored(context, parts);
        self.watch(context, written)
    }

    fn poll_write_held(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_through(context, &[]).map_ok(|_| ())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Corked<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Corked<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if self.cork.is_in() && self.held_bytes() + bytes <= HELD_BYTES_MAX {
            self.hold(parts);
            return Poll::Ready(Ok(bytes));
        }
        self.poll_write_through(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.cork.is_in() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_write_held(context))?;
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        self.watch(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_held(context))?;
        let shut = Pin::new(&mut self.io).poll_shutdown(context);
        self.watch(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::server::http2::tests::Counted;

    const STALL_MAX: Duration = Duration::from_secs(5);

    /// Gathered pieces, the data after them, the maximum number of bytes per write, and the expected number of writes.
    type Case<'a> = (&'a [Vec<u8>], &'a [u8], usize, usize);

    /// Writes the pieces while gathering, and then `last`. Returns the bytes that arrive and the number of writes.
    async fn sent(pieces: &[Vec<u8>], last: &[u8], bytes_max: usize) -> (Vec<u8>, usize) {
        let (near, mut far) = duplex(1 << 20);
        let cork = Cork::default();
        let counted = Counted::new(near, bytes_max);
        let writes = counted.writes();
        let mut corked = Corked::new(counted, STALL_MAX, cork.clone());
        cork.push();
        for piece in pieces {
            corked.write_all(piece).await.unwrap();
            corked.flush().await.unwrap();
        }
        assert!(cork.pull() && !cork.pull());
        corked.write_all(last).await.unwrap();
        corked.flush().await.unwrap();
        let writes = writes.load(Ordering::Relaxed);
        corked.shutdown().await.unwrap();
        drop(corked);
        let mut all = Vec::new();
        far.read_to_end(&mut all).await.unwrap();
        (all, writes)
    }

    #[tokio::test]
    async fn pieces_share_a_write() {
        let small: Vec<Vec<u8>> = (0..10).map(|byte| vec![byte; 100]).collect();
        let large = [vec![1; 9_000], vec![2; 9_000], vec![3; 9_000]];
        let cases: [Case<'_>; 5] = [
            (&small, b"", usize::MAX, 1),
            (&small, b"end", usize::MAX, 1),
            (&small, b"end", 300, 4),
            (&small, b"end", 250, 5),
            // Data that doesn't fit is written together with the held bytes.
            (&large, b"", usize::MAX, 2),
        ];
        for (pieces, last, bytes_max, writes) in cases {
            let expected = [pieces.concat(), last.to_vec()].concat();
            assert_eq!(sent(pieces, last, bytes_max).await, (expected, writes), "{bytes_max}");
        }
    }

    #[tokio::test]
    async fn a_shutdown_loses_nothing() {
        let (near, mut far) = duplex(64);
        let cork = Cork::default();
        let mut corked = Corked::new(near, STALL_MAX, cork.clone());
        cork.push();
        corked.write_all(b"goodbye").await.unwrap();
        corked.shutdown().await.unwrap();
        let mut all = Vec::new();
        far.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"goodbye");
    }
}
