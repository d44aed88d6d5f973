//! Reading and writing on a client connection, with one movable deadline.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::sendfile;
use rustix::net::{SendFlags, send};
use socket2::SockRef;
use store::FileRange;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::deadline::Deadline;
use crate::pace::{Pace, PaceLimits};

/// A byte stream in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {
    /// Whether the kernel can send file contents on this stream unchanged.
    const SENDS_FILES: bool = false;
    /// Whether the stream can be closed without sending more bytes; TLS announces the end first.
    const CLOSES_SILENTLY: bool = false;

    /// Sets whether the peer sees an orderly end or a reset when the stream is dropped, even if the process is killed.
    fn end_by(&self, _: Ending) {}

    /// Writes some of `bytes`; more data follows immediately.
    fn poll_write_ahead(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self).poll_write(context, bytes)
    }

    /// Sends some bytes from a file; only for [`Stream::SENDS_FILES`].
    fn poll_send_file(&mut self, _: &mut Context<'_>, _: FileRange<'_>) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }
}

impl Stream for TcpStream {
    const SENDS_FILES: bool = true;

    fn end_by(&self, ending: Ending) {
        end_by(self, ending);
    }

    /// Tells the kernel that more data follows, so that the head and the first bytes of a body share a packet.
    fn poll_write_ahead(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        poll_when_writable(self, context, |stream| send(stream, bytes, SendFlags::MORE | SendFlags::NOSIGNAL))
    }

    fn poll_send_file(&mut self, context: &mut Context<'_>, range: FileRange<'_>) -> Poll<io::Result<usize>> {
        let mut offset = range.offset;
        poll_when_writable(self, context, |stream| {
            sendfile(stream, range.file, Some(&mut offset), range.bytes)
        })
    }
}

#[cfg(test)]
impl Stream for tokio::io::DuplexStream {}

/// Sets whether the peer sees an orderly end or a reset of the connection. Fails only if the peer is gone.
pub(super) fn end_by(socket: &impl AsFd, ending: Ending) {
    let linger = match ending {
        Ending::Orderly => None,
        Ending::Reset => Some(Duration::ZERO),
    };
    if let Err(error) = SockRef::from(socket).set_linger(linger) {
        tracing::debug!(%error, "can't set how a connection ends");
    }
}

fn poll_when_writable(
    stream: &TcpStream,
    context: &mut Context<'_>,
    mut call: impl FnMut(&TcpStream) -> rustix::io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(context))?;
        match stream.try_io(Interest::WRITABLE, || call(stream).map_err(io::Error::from)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return Poll::Ready(done),
        }
    }
}

/// End of a connection from the peer's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The end of the stream, after all written bytes.
    Orderly,
    /// A reset. While a body that ends with the stream is incomplete, an orderly end would make it look complete.
    Reset,
}

/// How a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// The client has announced that it sends no more requests, and all received bytes were read.
    AtOnce,
    /// More bytes may be in flight.
    Lingering,
}

/// The reason why a connection can't continue.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error("the deadline passed")]
    TimedOut,
    #[error("the peer closed the connection")]
    Closed,
    #[error("other connections need the memory that the peer keeps in use")]
    Dismissed,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A client connection's stream and its deadline.
pub(crate) struct Wire<S> {
    pub(crate) io: S,
    deadline: Deadline,
    seen: Instant,
    /// Pace of the client in reading responses.
    pace: Pace,
}

impl<S: Stream> Wire<S> {
    pub(crate) fn new(io: S, first: Duration) -> Self {
        let now = Instant::now();
        Self { io, deadline: Deadline::new(now + first), seen: now, pace: Pace::default() }
    }

    /// Returns the time of the last event: bytes arrived, or the peer read bytes for which a write had to wait.
    pub(crate) fn seen(&self) -> Instant {
        self.seen
    }

    /// Records an event that the wire can't observe.
    pub(crate) fn saw(&mut self, now: Instant) {
        self.seen = now;
    }

    /// Moves the deadline of the following reads, relative to the last event, without reading the clock.
    pub(crate) fn allow_since_seen(&mut self, limit: Duration) {
        self.deadline.set(self.seen + limit);
    }

    /// Moves the deadline of the following reads.
    pub(crate) fn allow(&mut self, limit: Duration) {
        self.deadline.set(Instant::now() + limit);
    }

    /// Returns `Ready(TimedOut)` once the deadline has passed.
    pub(crate) fn poll_deadline(&mut self, context: &mut Context<'_>) -> Poll<WireError> {
        self.deadline.poll_passed(context).map(|()| WireError::TimedOut)
    }

    /// Reads at least one byte into `input`; returns `Err(Closed)` at the end of the stream.
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        input: &mut Input,
    ) -> Poll<Result<usize, WireError>> {
        let read = self.poll_read_into(context, input.space());
        if let Poll::Ready(Ok(read)) = read {
            input.end += read;
        }
        read
    }

    /// Reads at least one byte into `space`; returns `Err(Closed)` at the end of the stream.
    pub(crate) fn poll_read_into(
        &mut self,
        context: &mut Context<'_>,
        space: &mut [u8],
    ) -> Poll<Result<usize, WireError>> {
        let mut buffer = ReadBuf::new(space);
        match Pin::new(&mut self.io).poll_read(context, &mut buffer) {
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => Poll::Ready(Err(WireError::Closed)),
            Poll::Ready(Ok(())) => {
                self.seen = Instant::now();
                Poll::Ready(Ok(buffer.filled().len()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Reads at least one byte into `input` before the deadline.
    pub(crate) async fn read(&mut self, input: &mut Input) -> Result<usize, WireError> {
        poll_fn(|context| match self.poll_read(context, input) {
            Poll::Pending => self.poll_deadline(context).map(Err),
            ready => ready,
        })
        .await
    }

    /// Writes all `parts`, at most [`PARTS_MAX`], in as few system calls as the kernel allows. `limits` prevent a client that stops
    /// reading, or nearly so, from holding its response for ever.
    pub(crate) async fn write_all(&mut self, parts: &[&[u8]], limits: PaceLimits) -> Result<(), WireError> {
        let total = parts.iter().map(|part| part.len()).sum();
        let mut slices = [IoSlice::new(&[]); PARTS_MAX];
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        let mut left = &mut slices[..parts.len()];
        self.push(total, limits, |io, context, step_before| {
            // This also skips leading empty parts.
            IoSlice::advance_slices(&mut left, step_before);
            match &*left {
                [only] => Pin::new(io).poll_write(context, only),
                several => Pin::new(io).poll_write_vectored(context, several),
            }
        })
        .await?;
        self.flush().await
    }

    /// Writes `bytes` before a [`Farewell::AtOnce`]. If closing needs no further bytes, they share a packet with the end of the stream.
    pub(crate) async fn write_last(&mut self, bytes: &[u8], limits: PaceLimits) -> Result<(), WireError> {
        if !S::CLOSES_SILENTLY {
            return self.write_all(&[bytes], limits).await;
        }
        let mut written = 0;
        self.push(bytes.len(), limits, |io, context, step_before| {
            written += step_before;
            io.poll_write_ahead(context, &bytes[written..])
        })
        .await
    }

    /// Writes `ahead` and then file contents without copying them. Otherwise like [`Wire::write_all`].
    pub(crate) async fn send_file(
        &mut self,
        ahead: &[u8],
        range: FileRange<'_>,
        limits: PaceLimits,
    ) -> Result<(), WireError> {
        let mut sent = 0;
        self.push(ahead.len() + range.bytes, limits, |io, context, step_before| {
            sent += step_before;
            match ahead.get(sent..).filter(|rest| !rest.is_empty()) {
                Some(rest) => io.poll_write_ahead(context, rest),
                None => io.poll_send_file(context, range.behind(sent - ahead.len())),
            }
        })
        .await
    }

    /// Repeats `step` until it has processed `total` bytes. Each call receives the number of bytes processed by the previous one.
    async fn push(
        &mut self,
        total: usize,
        limits: PaceLimits,
        mut step: impl FnMut(&mut S, &mut Context<'_>, usize) -> Poll<io::Result<usize>>,
    ) -> Result<(), WireError> {
        let (mut left, mut step_before) = (total, 0);
        let mut waiting_since = None;
        let mut has_waited = false;
        poll_fn(|context| {
            while left > 0 {
                match step(&mut self.io, context, std::mem::take(&mut step_before)) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(WireError::Closed)),
                    Poll::Ready(Ok(done)) => {
                        left = left.saturating_sub(done);
                        step_before = done;
                        if let Some(since) = waiting_since.take() {
                            self.pace.waited(Instant::now() - since, done as u64, limits);
                        }
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                    Poll::Pending => {
                        has_waited = true;
                        if waiting_since.is_none() {
                            waiting_since = Some(Instant::now());
                            self.allow(self.pace.patience(limits));
                        }
                        return self.poll_deadline(context).map(Err);
                    }
                }
            }
            Poll::Ready(Ok(()))
        })
        .await?;
        if has_waited {
            self.seen = Instant::now();
        }
        Ok(())
    }

    /// Flushes bytes that a TLS layer may still hold; costs nothing on plain TCP.
    async fn flush(&mut self) -> Result<(), WireError> {
        poll_fn(|context| match Pin::new(&mut self.io).poll_flush(context) {
            Poll::Pending => self.poll_deadline(context).map(Err),
            Poll::Ready(result) => Poll::Ready(result.map_err(WireError::from)),
        })
        .await
    }

    /// Reads at least one byte into `arrivals` before the deadline, and copies it to `input`, which needs no reserved room.
    pub(crate) fn poll_first_read(
        &mut self,
        context: &mut Context<'_>,
        arrivals: &Mutex<Box<[u8]>>,
        input: &mut Input,
    ) -> Poll<Result<usize, WireError>> {
        let mut arrivals = arrivals.lock();
        let Poll::Ready(read) = self.poll_read_into(context, &mut arrivals) else {
            return self.poll_deadline(context).map(Err);
        };
        if let Ok(read) = read {
            input.extend(&arrivals[..read]);
        }
        Poll::Ready(read)
    }

    /// Closes the connection as `farewell` requires, before the stream is dropped.
    pub(crate) async fn close(&mut self, farewell: Farewell) {
        if farewell == Farewell::Lingering || !S::CLOSES_SILENTLY {
            self.close_gently().await;
        }
    }

    /// Ends the write direction, then briefly reads and discards further bytes from the client: if a connection is closed with unread
    /// input, the kernel sends a reset, which can destroy the response in flight (RFC 9112 section 9.6).
    async fn close_gently(&mut self) {
        const LINGER: Duration = Duration::from_secs(2);
        const LINGER_BYTES_MAX: usize = 1 << 20;
        self.allow(LINGER);
        let shut = poll_fn(|context| match Pin::new(&mut self.io).poll_shutdown(context) {
            Poll::Pending => self.poll_deadline(context).map(|_| Ok(())),
            ready => ready,
        })
        .await;
        let mut scratch = Input::with_capacity(4096);
        let mut dropped = 0;
        while shut.is_ok() && dropped < LINGER_BYTES_MAX {
            scratch.clear();
            let Ok(read) = self.read(&mut scratch).await else { return };
            dropped += read;
        }
    }
}

/// Maximum size of the input buffer that an idle connection may keep.
const IDLE_BYTES_MAX: usize = 2 * 1024;

/// Maximum number of parts of a write: the head of a response, and a chunk of its body with its framing.
const PARTS_MAX: usize = 5;

/// Bytes received and not yet used. A plain buffer with two positions, without reference counting per request.
pub(crate) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes], start: 0, end: 0 }
    }

    /// Appends bytes that were read elsewhere.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.truncate(self.end);
        self.bytes.extend_from_slice(bytes);
        self.end = self.bytes.len();
    }

    /// Frees memory that only a large message needed.
    pub(crate) fn shrink(&mut self) {
        if self.bytes.capacity() > IDLE_BYTES_MAX && self.is_empty() {
            self.bytes = Vec::new();
        }
    }

    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Drops the first `bytes` bytes.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
        if self.start == self.end {
            self.clear();
        }
    }

    pub(crate) fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Returns free room of at least one byte at the end: moves or doubles the buffer if it's full. Its owner limits the growth by
    /// refusing heads that are too large.
    fn space(&mut self) -> &mut [u8] {
        if self.end == self.bytes.len() && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.bytes.len() {
            self.bytes.resize((self.bytes.len() * 2).max(1024), 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Takes the remaining bytes, for a tunnel.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let left = self.filled().to_vec();
        self.clear();
        left
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    fn limits(stall_max_s: u64) -> PaceLimits {
        PaceLimits { stall_max: Duration::from_secs(stall_max_s), rate_min: 1000 }
    }

    /// A client that reads a few bytes now and then makes progress, but not enough.
    #[tokio::test(start_paused = true)]
    async fn a_reader_that_dribbles_times_out() {
        let (near, mut far) = duplex(3);
        let reader = tokio::spawn(async move {
            while far.read_u8().await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let mut wire = Wire::new(near, Duration::from_secs(1));
        let start = Instant::now();
        let result = wire.write_all(&[&[b'x'; 1000]], limits(9)).await;
        assert!(matches!(result, Err(WireError::TimedOut)));
        assert_eq!(start.elapsed().as_secs(), 9);
        drop(wire);
        reader.await.unwrap();
    }

    #[tokio::test]
    async fn parts_arrive_in_order_through_a_narrow_pipe() {
        let (near, mut far) = duplex(3);
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            far.read_to_end(&mut all).await.map(|_| all)
        });
        let mut wire = Wire::new(near, Duration::from_secs(5));
        wire.write_all(&[b"", b"head", b"", b"body of some length", b"!"], limits(5)).await.unwrap();
        wire.io.shutdown().await.unwrap();
        assert_eq!(reader.await.unwrap().unwrap(), b"headbody of some length!");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stops_times_out() {
        let (near, _far) = duplex(3);
        let mut wire = Wire::new(near, Duration::from_secs(1));
        let result = wire.write_all(&[b"too long for the pipe"], limits(9)).await;
        assert!(matches!(result, Err(WireError::TimedOut)));
    }

    #[tokio::test]
    async fn input_survives_moves_and_growth() {
        let (near, mut far) = duplex(64);
        let mut wire = Wire::new(near, Duration::from_secs(5));
        let mut input = Input::with_capacity(4);
        far.write_all(b"abcdefgh").await.unwrap();
        while input.filled().len() < 6 {
            wire.read(&mut input).await.unwrap();
            if input.filled().starts_with(b"abcd") {
                input.consume(2);
            }
        }
        assert_eq!(input.filled(), b"cdefgh");
        drop(far);
        assert!(matches!(wire.read(&mut input).await, Err(WireError::Closed)));
    }
}
