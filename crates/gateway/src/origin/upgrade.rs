//! The connection after a 101 response.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::error::OriginError;
use super::exchange::Exchange;

/// Becomes the raw connection to the origin once the 101 response was taken.
#[derive(Debug)]
pub struct UpgradeHandle {
    upgrade: OnUpgrade,
    exchange: Exchange,
}

/// A raw connection to the origin. Counts as a request in flight while it lives.
#[derive(Debug)]
pub struct OriginTunnel {
    io: TokioIo<Upgraded>,
    _exchange: Exchange,
}

impl UpgradeHandle {
    pub(super) fn new(upgrade: OnUpgrade, exchange: Exchange) -> Self {
        Self { upgrade, exchange }
    }

    /// The raw connection, with what the origin sent after its 101 response.
    ///
    /// # Errors
    /// The connection ended before it could be handed over.
    pub async fn into_tunnel(self) -> Result<OriginTunnel, OriginError> {
        let upgraded = self.upgrade.await.map_err(|_| OriginError::ClosedBeforeResponse)?;
        Ok(OriginTunnel { io: TokioIo::new(upgraded), _exchange: self.exchange })
    }
}

impl AsyncRead for OriginTunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
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
