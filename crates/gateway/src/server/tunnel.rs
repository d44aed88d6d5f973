//! Tunnels after 101 (Switching Protocols): bytes in both directions, until one side ends or both are idle for too long.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::deadline::Deadline;

/// Result of a tunnel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried {
    pub(crate) from_client_bytes: u64,
    pub(crate) to_client_bytes: u64,
    pub(crate) end: TunnelEnd,
}

/// End of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TunnelEnd {
    /// Closed by one of its sides.
    Closed,
    /// No bytes in either direction for too long.
    Idle,
}

/// Maximum size of a read, and of the data held for a side that doesn't read.
const READ_BYTES_MAX: usize = 16 * 1024;

/// One direction of a tunnel. Reads use a shared buffer, so that an idle tunnel holds no memory.
#[derive(Default)]
struct Way {
    /// Bytes read but not yet written to the other side.
    left: Vec<u8>,
    given: usize,
    carried_bytes: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// Written, but possibly still buffered by a lower layer.
    Unflushed,
    /// This side has ended, but the other hasn't been closed yet.
    Ending,
    Ended,
}

/// Copies in both directions until both have ended, one fails, or neither has sent bytes for `idle_max`. `early` holds bytes that the
/// client and the origin have already sent; `arrivals` is the buffer for reads.
pub(crate) async fn run<C, O>(
    (client, origin): (&mut C, &mut O),
    early: [Vec<u8>; 2],
    idle_max: Duration,
    arrivals: &Mutex<Box<[u8]>>,
) -> Carried
where
    C: AsyncRead + AsyncWrite + Unpin,
    O: AsyncRead + AsyncWrite + Unpin,
{
    let [mut from_client, mut to_client] =
        early.map(|left| Way { carried_bytes: left.len() as u64, left, ..Way::default() });
    let mut idle = Deadline::new(Instant::now() + idle_max);
    let end = poll_fn(|context| {
        let moved_before = from_client.carried_bytes + to_client.carried_bytes;
        let mut arrivals = arrivals.lock();
        let outward = from_client.poll(client, origin, context, &mut arrivals);
        let homeward = to_client.poll(origin, client, context, &mut arrivals);
        match (outward, homeward) {
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(TunnelEnd::Closed),
            // The only way to report a failure within a tunnel is to end the tunnel.
            (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => return Poll::Ready(TunnelEnd::Closed),
            _ => {}
        }
        if from_client.carried_bytes + to_client.carried_bytes != moved_before {
            idle.set(Instant::now() + idle_max);
        }
        idle.poll_passed(context).map(|()| TunnelEnd::Idle)
    })
    .await;
    Carried { from_client_bytes: from_client.carried_bytes, to_client_bytes: to_client.carried_bytes, end }
}

impl Way {
    fn poll<F: AsyncRead + Unpin, T: AsyncWrite + Unpin>(
        &mut self,
        from: &mut F,
        to: &mut T,
        context: &mut Context<'_>,
        arrivals: &mut [u8],
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_write_left(to, context))?;
            match self.stage {
                Stage::Open | Stage::Unflushed => match self.poll_carry(from, to, context, arrivals)? {
                    Poll::Ready(()) => {}
                    Poll::Pending => {
                        self.poll_flush(to, context)?;
                        return Poll::Pending;
                    }
                },
                Stage::Ending => {
                    ready!(Pin::new(&mut *to).poll_shutdown(context))?;
                    self.stage = Stage::Ended;
                }
                Stage::Ended => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Reads once, and writes as much as the other side accepts immediately.
    fn poll_carry<F: AsyncRead + Unpin, T: AsyncWrite + Unpin>(
        &mut self,
        from: &mut F,
        to: &mut T,
        context: &mut Context<'_>,
        arrivals: &mut [u8],
    ) -> Poll<io::Result<()>> {
        let room = arrivals.len().min(READ_BYTES_MAX);
        let mut buffer = ReadBuf::new(&mut arrivals[..room]);
        ready!(Pin::new(from).poll_read(context, &mut buffer))?;
        let read = buffer.filled();
        if read.is_empty() {
            self.stage = Stage::Ending;
            return Poll::Ready(Ok(()));
        }
        self.carried_bytes += read.len() as u64;
        self.stage = Stage::Unflushed;
        let written = match Pin::new(to).poll_write(context, read)? {
            Poll::Ready(written) => written,
            Poll::Pending => 0,
        };
        self.left.extend_from_slice(&read[written..]);
        Poll::Ready(Ok(()))
    }

    fn poll_write_left<T: AsyncWrite + Unpin>(
        &mut self,
        to: &mut T,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.given < self.left.len() {
            match ready!(Pin::new(&mut *to).poll_write(context, &self.left[self.given..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.given += written,
            }
            self.stage = Stage::Unflushed;
        }
        (self.left, self.given) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }

    fn poll_flush<T: AsyncWrite + Unpin>(&mut self, to: &mut T, context: &mut Context<'_>) -> io::Result<()> {
        if self.stage == Stage::Unflushed && Pin::new(to).poll_flush(context)?.is_ready() {
            self.stage = Stage::Open;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_tunnel_ends_and_one_in_use_does_not() {
        const IDLE_MAX: Duration = Duration::from_secs(10);
        let (mut client, mut client_end) = duplex(64);
        let (mut origin, mut origin_end) = duplex(64);
        let start = Instant::now();
        let tunnel = tokio::spawn(async move {
            let arrivals = Mutex::new(vec![0; 64].into());
            let early = [b"early".to_vec(), Vec::new()];
            run((&mut client_end, &mut origin_end), early, IDLE_MAX, &arrivals).await
        });
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
