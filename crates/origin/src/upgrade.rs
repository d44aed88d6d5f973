//! The connection after a 101 response.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::admission::Held;
use super::connect::Stream;
use super::stats::Working;

/// Becomes the raw connection to the origin once the 101 response was taken.
#[derive(Debug)]
pub struct UpgradeHandle(OriginTunnel);

/// A raw connection to the origin. Counts as a tunnel while it lives, and not as a request in flight.
pub struct OriginTunnel {
    io: Stream,
    /// Bytes received together with the 101 response.
    early: Bytes,
    _held: (Held, Working),
}

impl UpgradeHandle {
    pub(super) fn new(io: Stream, early: Bytes, held: (Held, Working)) -> Self {
        Self(OriginTunnel { io, early, _held: held })
    }

    /// Returns the raw connection, with the bytes received after its 101 response.
    #[must_use]
    pub fn into_tunnel(self) -> OriginTunnel {
        self.0
    }
}

impl fmt::Debug for OriginTunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OriginTunnel").field("early", &self.early.len()).finish_non_exhaustive()
    }
}

impl AsyncRead for OriginTunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buffer);
        }
        let step = self.early.len().min(buffer.remaining());
        buffer.put_slice(&self.early[..step]);
        self.early.advance(step);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for OriginTunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
