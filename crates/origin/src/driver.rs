//! The task that drives a multiplexed connection, on the runtime that opened it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use super::stats::{Counters, Gauged};

type Connection = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Shared state of the task that drives a connection.
#[derive(Debug)]
pub(super) struct DriverState {
    over: AtomicBool,
}

impl DriverState {
    /// Whether the connection, or the runtime that drove it, has ended.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

struct Driver {
    state: Arc<DriverState>,
    connection: Connection,
    _open: Gauged,
}

/// Counts an opened connection, and keeps it counted as open while the value lives.
pub(super) fn opened(counters: &Arc<Counters>) -> Gauged {
    counters.connections_opened.fetch_add(1, Ordering::Relaxed);
    Gauged::new(counters, |counters| &counters.connections_open)
}

/// Runs a connection on the current runtime.
pub(super) fn spawn(connection: Connection, open: Gauged) -> Arc<DriverState> {
    let state = Arc::new(DriverState { over: AtomicBool::new(false) });
    tokio::spawn(Driver { state: Arc::clone(&state), connection, _open: open });
    state
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.connection.as_mut().poll(cx)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Release);
    }
}
