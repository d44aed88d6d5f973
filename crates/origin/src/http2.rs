//! A multiplexed connection, and its stream slots.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::connect::Stream;
use crate::error::{OriginError, cause};
use crate::stats::Counters;

/// Flow-control window of one response body: the bytes that an origin may send ahead of a slow reader. The limit on requests in
/// flight bounds the memory: 256 MiB for 1024 unread responses. At a round trip of 20 ms, each body gets up to 12 MiB/s.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// Flow-control window of a connection: the protocol's maximum. The windows of the streams already bound the memory. Unread
/// responses could exhaust a smaller window, and block all other streams of the connection.
const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;
/// Maximum number of streams on a connection, so that the sum of their windows fits into the connection's window.
const STREAMS_MAX: usize = (CONNECTION_WINDOW_BYTES / STREAM_WINDOW_BYTES) as usize;
/// Maximum size of the header section of a response, counted as in RFC 9113 section 10.5.1.
const FIELD_SECTION_BYTES_MAX: u32 = 128 * 1024;

/// A connection that carries many exchanges.
#[derive(Debug)]
pub(super) struct Http2Connection {
    sender: SendRequest<Bytes>,
    /// Task that drives the connection on the runtime that opened it. It ends when either of them ends.
    driver: JoinHandle<()>,
    active: AtomicUsize,
    /// Set when the peer stops answering, so that a dead connection gets no further requests.
    suspect: AtomicBool,
    pub(super) opened_at: Instant,
    /// The remote address, if it came from a host name.
    pub(super) address: Option<IpAddr>,
    idle_since: Mutex<Instant>,
}

/// A slot for one exchange on a connection; released on drop.
#[derive(Debug)]
pub(super) struct StreamSlot {
    connection: Arc<Http2Connection>,
}

impl Http2Connection {
    /// Starts HTTP/2 on a stream, and waits for the SETTINGS of its peer: until they arrive, the number of streams that it
    /// accepts is unknown, and streams above its limit are refused.
    //= RFC 9113 section 5.1.2: the peer's limit on concurrent streams
    pub(super) async fn open(
        stream: Stream,
        address: Option<IpAddr>,
        counters: &Arc<Counters>,
    ) -> Result<Arc<Self>, OriginError> {
        let (sender, mut connection) = Builder::new()
            .enable_push(false)
            .initial_max_send_streams(0)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(FIELD_SECTION_BYTES_MAX)
            .handshake::<_, Bytes>(stream)
            .await
            .map_err(|error| broken(&error))?;
        poll_fn(|cx| poll_first_place(&sender, &mut connection, cx)).await?;
        let open = counters.opened();
        let driven = async move {
            let _open = open;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "origin connection ended");
            }
        };
        Ok(Arc::new(Self {
            sender,
            driver: tokio::spawn(driven),
            active: AtomicUsize::new(0),
            suspect: AtomicBool::new(false),
            opened_at: Instant::now(),
            address,
            idle_since: Mutex::new(Instant::now()),
        }))
    }

    /// Returns whether new streams may be opened: false after GOAWAY, an error, or a time-out.
    pub(super) fn is_usable(&self) -> bool {
        if self.suspect.load(Ordering::Relaxed) || self.driver.is_finished() {
            return false;
        }
        let mut cx = Context::from_waker(Waker::noop());
        !matches!(self.sender.clone().poll_ready(&mut cx), Poll::Ready(Err(_)))
    }

    /// Reserves a slot within the peer's limit on concurrent streams (RFC 9113 section 5.1.2).
    pub(super) fn reserve(self: &Arc<Self>) -> Option<StreamSlot> {
        let streams_max = self.sender.current_max_send_streams().min(STREAMS_MAX);
        self.active
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |active| {
                (active < streams_max).then_some(active + 1)
            })
            .ok()?;
        Some(StreamSlot { connection: Arc::clone(self) })
    }

    /// Reserves a slot for the exchange that opened the connection. If the peer has lowered its limit to 0 meanwhile, h2 holds
    /// the stream back.
    pub(super) fn reserve_first(self: &Arc<Self>) -> StreamSlot {
        self.active.fetch_add(1, Ordering::AcqRel);
        StreamSlot { connection: Arc::clone(self) }
    }

    pub(super) fn is_idle_for(&self, now: Instant, limit: Duration) -> bool {
        self.active.load(Ordering::Acquire) == 0 && now.duration_since(*self.idle_since.lock()) >= limit
    }
}

impl StreamSlot {
    /// Returns a sender that opens streams as far as the peer allows.
    pub(super) fn sender(&self) -> SendRequest<Bytes> {
        self.connection.sender.clone()
    }

    /// Stops new streams on this connection, because its peer stopped answering.
    pub(super) fn suspect(&self) {
        self.connection.suspect.store(true, Ordering::Relaxed);
    }
}

/// Drives a connection until its peer allows a stream.
fn poll_first_place(
    sender: &SendRequest<Bytes>,
    connection: &mut Connection<Stream, Bytes>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), OriginError>> {
    match Pin::new(connection).poll(cx) {
        Poll::Pending if sender.current_max_send_streams() > 0 => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
        Poll::Ready(Ok(())) => Poll::Ready(Err(OriginError::ClosedBeforeResponse)),
        Poll::Ready(Err(error)) => Poll::Ready(Err(broken(&error))),
    }
}

/// Converts the error that ended a connection.
pub(super) fn broken(error: &h2::Error) -> OriginError {
    if error.is_library() { OriginError::Protocol(cause(error)) } else { OriginError::ClosedBeforeResponse }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        *self.connection.idle_since.lock() = Instant::now();
        self.connection.active.fetch_sub(1, Ordering::AcqRel);
    }
}
