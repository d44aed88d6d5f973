//! After 101 (Switching Protocols) the connection is a tunnel: bytes in both directions, until one side ends or both have been
//! silent for too long.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional};
use tokio::time::Instant;

use super::deadline::Deadline;

/// What came of a tunnel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried {
    pub(crate) from_client_bytes: u64,
    pub(crate) to_client_bytes: u64,
    pub(crate) end: TunnelEnd,
}

/// How a tunnel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TunnelEnd {
    /// By one of its sides.
    Closed,
    /// Nothing went through it for too long.
    Idle,
}

/// Counts what is read on one side.
struct Counted<'a, S> {
    io: &'a mut S,
    bytes: &'a AtomicU64,
}

/// Copies in both directions until both have ended, one broke, or nothing came from either for `idle_max`. `early` is what the
/// client had already sent.
pub(crate) async fn run<C, O>(client: &mut C, origin: &mut O, early: &[u8], idle_max: Duration) -> Carried
where
    C: AsyncRead + AsyncWrite + Unpin,
    O: AsyncRead + AsyncWrite + Unpin,
{
    let (from_client, to_client) = (AtomicU64::new(0), AtomicU64::new(0));
    let end = {
        let mut client = Counted { io: client, bytes: &from_client };
        let mut origin = Counted { io: origin, bytes: &to_client };
        let mut copying = pin!(async {
            origin.write_all(early).await?;
            from_client.fetch_add(early.len() as u64, Ordering::Relaxed);
            copy_bidirectional(&mut client, &mut origin).await
        });
        let moved = || from_client.load(Ordering::Relaxed) + to_client.load(Ordering::Relaxed);
        let (mut moved_before, mut idle) = (0, Deadline::new(Instant::now() + idle_max));
        poll_fn(|context| {
            // A tunnel that breaks has no better way to say so than to end.
            if copying.as_mut().poll(context).is_ready() {
                return Poll::Ready(TunnelEnd::Closed);
            }
            if std::mem::replace(&mut moved_before, moved()) != moved_before {
                idle.set(Instant::now() + idle_max);
            }
            idle.poll_passed(context).map(|()| TunnelEnd::Idle)
        })
        .await
    };
    Carried { from_client_bytes: from_client.into_inner(), to_client_bytes: to_client.into_inner(), end }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut *self.io).poll_read(context, buffer);
        self.bytes.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_tunnel_ends_and_one_in_use_does_not() {
        const IDLE_MAX: Duration = Duration::from_secs(10);
        let (mut client, mut client_end) = duplex(64);
        let (mut origin, mut origin_end) = duplex(64);
        let start = Instant::now();
        let tunnel =
            tokio::spawn(async move { run(&mut client_end, &mut origin_end, b"early", IDLE_MAX).await });
        let mut read = [0; 5];
        origin.read_exact(&mut read).await.unwrap();
        for _ in 0..3 {
            tokio::time::sleep(IDLE_MAX * 3 / 4).await;
            origin.write_all(b"still").await.unwrap();
            client.read_exact(&mut read).await.unwrap();
        }
        let carried = tunnel.await.unwrap();
        assert_eq!(
            (carried.end, carried.from_client_bytes, carried.to_client_bytes),
            (TunnelEnd::Idle, 5, 15)
        );
        assert_eq!(start.elapsed(), IDLE_MAX * 3 / 4 * 3 + IDLE_MAX);
    }
}
