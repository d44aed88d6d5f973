//! The task that drives one connection, on the runtime that opened it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::runtime::{Handle, Id};

use super::stats::{Counters, Gauged};

/// What others can know about a connection's driver.
#[derive(Debug)]
pub(super) struct DriverState {
    home: Id,
    over: AtomicBool,
}

impl DriverState {
    /// The runtime that the connection belongs to.
    pub(super) fn home(&self) -> Id {
        self.home
    }

    /// Whether the connection has ended, or the runtime that drove it.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

struct Driver {
    state: Arc<DriverState>,
    connection: Pin<Box<dyn Future<Output = ()> + Send>>,
    _open: Gauged,
}

/// Runs a connection on the current runtime.
pub(super) fn spawn(
    connection: impl Future<Output = ()> + Send + 'static,
    counters: &Arc<Counters>,
) -> Arc<DriverState> {
    counters.connections_opened.fetch_add(1, Ordering::Relaxed);
    let state = Arc::new(DriverState { home: Handle::current().id(), over: AtomicBool::new(false) });
    tokio::spawn(Driver {
        state: Arc::clone(&state),
        connection: Box::pin(connection),
        _open: Gauged::new(counters, |counters| &counters.connections_open),
    });
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
