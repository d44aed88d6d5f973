//! An origin connection that carries one exchange at a time and is owned by its user. It is never polled while it is idle.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use store::{Budget, Charge};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf};
use tokio::runtime::{Handle, Id};
use tokio::task::JoinHandle;

use super::super::connect::Stream;
use super::super::settings::{INPUT_BYTES_MAX, UNCHARGED_PIECE_BYTES_MAX};
use super::super::stats::{Counters, Gauged};
use super::sending::{Sending, Sent};

/// Size of the first read.
const INPUT_BYTES: usize = 16 * 1024;
/// Minimum free room for another read into the same buffer.
const READ_BYTES_MIN: usize = 4 * 1024;
/// Maximum size of a piece that is copied. Larger pieces are split off the buffer. For a smaller piece, this would cost an
/// allocation as well, and the buffer would be lost.
const COPIED_BYTES_MAX: usize = 2 * 1024;

/// Maximum size of a buffer that is kept for the next exchange.
pub(super) const KEPT_BYTES_MAX: usize = 128 * 1024;

thread_local! {
    /// A thread's input buffer for all its exchanges: a waiting or idle connection has none.
    static INPUT: Cell<BytesMut> = Cell::default();
}

/// Returns an empty buffer with this much room.
fn take_input(room: usize) -> BytesMut {
    let mut input = INPUT.take();
    // This reuses the memory of pieces that were split off, unless one of them still exists.
    input.reserve(room);
    input
}

/// Keeps an empty buffer for the next reader.
fn give_input(input: &mut BytesMut) {
    if input.is_empty() {
        let input = std::mem::take(input);
        if (1..=KEPT_BYTES_MAX).contains(&input.capacity()) {
            INPUT.set(input);
        }
    }
}

pub(crate) struct Http1Connection {
    io: Io,
    /// Bytes received but not consumed.
    pub(crate) input: BytesMut,
    /// Size of the next read in bytes.
    room: usize,
    /// Memory charge for a buffer larger than [`INPUT_BYTES`].
    wide: Option<Charge>,
    memory: Option<Arc<Budget>>,
    /// The runtime that delivers the events of the connection.
    pub(crate) home: Id,
    /// The remote address, if it came from a host name.
    pub(crate) address: Option<IpAddr>,
    _open: Gauged,
}

enum Io {
    Whole(Stream),
    /// The request body is still being sent while the response is read.
    Shared {
        read: ReadHalf<Stream>,
        upload: Upload,
    },
    Over,
}

/// The task that writes the rest of a request. It ends with the request body, even if the response is no longer read.
type Upload = JoinHandle<Option<WriteHalf<Stream>>>;

/// Whether a kept connection can carry the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    /// The previous exchange isn't quite over.
    Busy,
    Closed,
}

impl Http1Connection {
    /// Starts HTTP/1.1 on a stream.
    pub(crate) fn open(
        stream: Stream,
        address: Option<IpAddr>,
        memory: Option<Arc<Budget>>,
        counters: &Arc<Counters>,
    ) -> Self {
        Self {
            io: Io::Whole(stream),
            input: BytesMut::new(),
            room: INPUT_BYTES,
            wide: None,
            memory,
            home: Handle::current().id(),
            address,
            _open: counters.opened(),
        }
    }

    /// Returns whether the connection can carry a request, according to the events so far. Bytes that arrive on an idle
    /// connection make it unusable: they are not the next response.
    //= RFC 9112 section 6.3: bytes after the response are not its
    pub(crate) fn readiness(&mut self) -> Readiness {
        if !self.input.is_empty() {
            return Readiness::Closed;
        }
        give_input(&mut self.input);
        self.narrow();
        let mut cx = Context::from_waker(Waker::noop());
        self.rejoin(&mut cx);
        let (io, quiet): (&mut (dyn AsyncRead + Unpin), _) = match &mut self.io {
            Io::Whole(stream) => (stream, Readiness::Ready),
            Io::Shared { read, .. } => (read, Readiness::Busy),
            Io::Over => return Readiness::Closed,
        };
        match Pin::new(io).poll_read(&mut cx, &mut ReadBuf::new(&mut [0])) {
            Poll::Pending => quiet,
            Poll::Ready(_) => Readiness::Closed,
        }
    }

    /// Checks with the OS that no bytes have arrived. A busy worker may not have processed the event for them yet, so an
    /// ordinary read would find nothing.
    //= RFC 9112 section 6.3: bytes after the response are not its
    pub(crate) fn is_quiet(&self) -> bool {
        let Io::Whole(stream) = &self.io else { return false };
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(stream.descriptor(), &mut [0; 1], flags).is_err_and(|error| error == Errno::AGAIN)
    }

    /// Reunites the two halves of the stream when the request body has ended.
    fn rejoin(&mut self, cx: &mut Context<'_>) {
        let Io::Shared { upload, .. } = &mut self.io else { return };
        let Poll::Ready(ended) = Pin::new(upload).poll(cx) else { return };
        let Io::Shared { read, .. } = std::mem::replace(&mut self.io, Io::Over) else { return };
        if let Ok(Some(write)) = ended {
            self.io = Io::Whole(read.unsplit(write));
        }
    }

    /// Spawns a task that writes the rest of a request, so that the response can be read at the reader's pace.
    pub(crate) fn share(&mut self, mut sending: Sending) {
        self.io = match std::mem::replace(&mut self.io, Io::Over) {
            Io::Whole(stream) => {
                let (read, mut write) = tokio::io::split(stream);
                let upload = tokio::spawn(async move {
                    let sent = std::future::poll_fn(|cx| sending.poll(&mut write, cx)).await;
                    if sent == Sent::Whole {
                        return Some(write);
                    }
                    // An orderly end would make the origin mistake this part for the whole request.
                    let _ = write.shutdown().await;
                    None
                });
                Io::Shared { read, upload }
            }
            other => other,
        };
    }

    /// Writes as much of a request as it can.
    pub(crate) fn poll_send(&mut self, sending: &mut Sending, cx: &mut Context<'_>) -> Poll<Sent> {
        match &mut self.io {
            Io::Whole(stream) => sending.poll(stream, cx),
            Io::Shared { .. } | Io::Over => Poll::Ready(Sent::Broken),
        }
    }

    /// Takes the first received bytes as a piece of a body.
    pub(crate) fn take(&mut self, bytes: usize) -> Bytes {
        if bytes > COPIED_BYTES_MAX {
            let piece = self.input.split_to(bytes).freeze();
            return if bytes < UNCHARGED_PIECE_BYTES_MAX { piece } else { self.charged(piece) };
        }
        let piece = Bytes::copy_from_slice(&self.input[..bytes]);
        self.input.advance(bytes);
        piece
    }

    /// Charges a piece to the budget for as long as it lives.
    fn charged(&mut self, piece: Bytes) -> Bytes {
        let Some(budget) = &self.memory else { return piece };
        match budget.reserve(piece.len()) {
            Ok(charge) => charge.hold(piece),
            Err(store::OverBudget { .. }) => {
                self.narrow();
                piece
            }
        }
    }

    /// Reads more; 0 at the end of the stream. While it waits without unconsumed bytes, it has no buffer.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.input.is_empty() && self.room == INPUT_BYTES {
            give_input(&mut self.input);
            self.input = take_input(self.room);
        } else if self.input.capacity() - self.input.len() < READ_BYTES_MIN {
            // In the middle of a large body, this reuses the memory of pieces that have been sent.
            self.input.reserve(self.room);
        }
        let room = self.input.capacity() - self.input.len();
        let polled = match &mut self.io {
            Io::Whole(stream) => pin!(stream.read_buf(&mut self.input)).poll(cx),
            Io::Shared { read, .. } => pin!(read.read_buf(&mut self.input)).poll(cx),
            Io::Over => Poll::Ready(Ok(0)),
        };
        let Poll::Ready(read) = polled else {
            give_input(&mut self.input);
            return Poll::Pending;
        };
        let read = read?;
        if read == room && self.room < INPUT_BYTES_MAX {
            self.widen();
        }
        Poll::Ready(Ok(read))
    }

    /// Makes the next reads larger, if the budget has room.
    fn widen(&mut self) {
        if let Some(budget) = &self.memory {
            self.wide = budget.reserve(INPUT_BYTES_MAX).ok();
            if self.wide.is_none() {
                return;
            }
        }
        self.room = INPUT_BYTES_MAX;
    }

    fn narrow(&mut self) {
        self.room = INPUT_BYTES;
        self.wide = None;
    }

    /// Returns the stream and the bytes received on it, for another protocol. `None` while a request is still being sent.
    pub(crate) fn into_parts(self) -> Option<(Stream, Bytes)> {
        match self.io {
            Io::Whole(stream) => Some((stream, self.input.freeze())),
            Io::Shared { .. } | Io::Over => None,
        }
    }
}

impl fmt::Debug for Http1Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1Connection").field("input", &self.input.len()).finish_non_exhaustive()
    }
}
