//! A stream that reads ahead while more data is available.
//!
//! A TLS layer reads 4 KiB at a time, and an HTTP/2 layer the start of a frame and then its rest, so a large body costs several
//! system calls per record and frame. So a read that fills its buffer is followed by one with a larger buffer. Connections with
//! little data never need the larger buffer, and an idle connection has no buffer.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum size of one read.
const AHEAD_BYTES: usize = 64 * 1024;

thread_local! {
    /// Buffer for reads. Empty between two polls.
    static ARRIVALS: RefCell<Box<[u8]>> = RefCell::new(vec![0; AHEAD_BYTES].into());
}

pub struct ReadAhead<S> {
    io: S,
    ahead: Vec<u8>,
    given: usize,
    expected: Expected,
}

/// Expected size of the next read, from the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Little,
    Much,
}

impl<S> ReadAhead<S> {
    #[inline]
    pub fn new(io: S) -> Self {
        Self::behind(Vec::new(), io)
    }

    /// Creates a stream that returns `early`, which has already been read, before further data.
    #[inline]
    pub fn behind(early: Vec<u8>, io: S) -> Self {
        Self { io, ahead: early, given: 0, expected: Expected::Little }
    }

    #[inline]
    pub fn io(&self) -> &S {
        &self.io
    }

    #[inline]
    fn give(&mut self, buffer: &mut ReadBuf<'_>) {
        let left = &self.ahead[self.given..];
        let step = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..step]);
        self.given += step;
        if self.given == self.ahead.len() {
            (self.ahead, self.given) = (Vec::new(), 0);
        }
    }
}

impl<S: AsyncRead + Unpin> ReadAhead<S> {
    #[inline]
    fn poll_read_exactly(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        if buffer.remaining() == 0 {
            self.expected = Expected::Much;
        }
        read
    }

    fn poll_read_ahead(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ARRIVALS.with_borrow_mut(|arrivals| {
            let mut read = ReadBuf::new(arrivals);
            ready!(Pin::new(&mut self.io).poll_read(context, &mut read))?;
            let (asked, ahead) = read.filled().split_at(read.filled().len().min(buffer.remaining()));
            buffer.put_slice(asked);
            self.ahead.extend_from_slice(ahead);
            self.expected = if ahead.is_empty() { Expected::Little } else { Expected::Much };
            Poll::Ready(Ok(()))
        })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            self.give(buffer);
            return Poll::Ready(Ok(()));
        }
        match self.expected {
            Expected::Much if buffer.remaining() < AHEAD_BYTES => self.poll_read_ahead(context, buffer),
            Expected::Much | Expected::Little => self.poll_read_exactly(context, buffer),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadAhead<S> {
    #[inline]
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    #[inline]
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, parts)
    }

    #[inline]
    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    #[inline]
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    #[inline]
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    /// Returns all its data, and records the buffer size of each read.
    struct Source {
        left: usize,
        rooms: Vec<usize>,
    }

    impl AsyncRead for Source {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let room = buffer.remaining();
            self.rooms.push(room);
            let step = room.min(self.left);
            buffer.put_slice(&vec![b'x'; step]);
            self.left -= step;
            Poll::Ready(Ok(()))
        }
    }

    async fn rooms(bytes: usize) -> Vec<usize> {
        let mut stream = ReadAhead::new(Source { left: bytes, rooms: Vec::new() });
        let (mut read, mut buffer) = (0, [0; 4096]);
        while read < bytes {
            read += stream.read(&mut buffer).await.unwrap();
        }
        assert!(stream.ahead.capacity() == 0, "a waiting stream has no buffer");
        stream.io.rooms
    }

    #[tokio::test]
    async fn only_what_fills_its_room_is_followed_by_more() {
        assert_eq!(rooms(100).await, [4096]);
        assert_eq!(rooms(4095).await, [4096]);
        assert_eq!(rooms(4096 + AHEAD_BYTES + 1).await, [4096, AHEAD_BYTES, AHEAD_BYTES]);
        assert_eq!(rooms(1 << 20).await.len(), 17);
    }
}
