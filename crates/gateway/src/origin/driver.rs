//! Who drives a connection: whoever waits for it, or a task on the runtime that opened it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::stats::{Counters, Gauged};

type Connection = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What others can know about a connection's task.
#[derive(Debug)]
pub(super) struct DriverState {
    over: AtomicBool,
}

impl DriverState {
    /// Whether the connection has ended, or the runtime that drove it.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

struct Driver {
    state: Arc<DriverState>,
    connection: Connection,
    _open: Gauged,
}

/// Counts a connection that was opened, and as an open one while the value lives.
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

/// A connection with one exchange at a time, driven by that exchange: a task of its own would be woken, and would wake
/// the exchange, for each step of both. It becomes a task when it has more to do than the exchange waits for.
pub(super) struct Drive(State);

enum State {
    /// Locked by nobody: the lock makes what is only sent between threads a part of what is shared.
    Here(Mutex<Connection>, Gauged),
    Task(Arc<DriverState>),
    Over,
}

impl Drive {
    pub(super) fn new(connection: Connection, open: Gauged) -> Self {
        Self(State::Here(Mutex::new(connection), open))
    }

    /// Polls what the connection brings, and the connection as long as there is none of it.
    pub(super) fn poll_for<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut brought: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if let State::Task(_) = self.0 {
            return brought(cx);
        }
        // What it waits for comes from the connection, which is polled next and whose waker is the real one.
        let mut nobody = Context::from_waker(Waker::noop());
        if let Poll::Ready(brought) = brought(&mut nobody) {
            return Poll::Ready(brought);
        }
        self.turn(cx);
        brought(&mut nobody)
    }

    /// Lets the connection do what it can do now.
    pub(super) fn turn(&mut self, cx: &mut Context<'_>) {
        if let State::Here(connection, _) = &mut self.0
            && connection.get_mut().as_mut().poll(cx).is_ready()
        {
            self.0 = State::Over;
        }
    }

    /// Makes the connection a task, which goes on without this exchange.
    pub(super) fn detach(&mut self) {
        self.0 = match std::mem::replace(&mut self.0, State::Over) {
            State::Here(connection, open) => State::Task(spawn(connection.into_inner(), open)),
            state => state,
        };
    }

    /// Whether the connection has ended, or the runtime that drove it.
    pub(super) fn is_over(&self) -> bool {
        match &self.0 {
            State::Here(..) => false,
            State::Task(state) => state.is_over(),
            State::Over => true,
        }
    }
}

impl fmt::Debug for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match self.0 {
            State::Here(..) => "Here",
            State::Task(_) => "Task",
            State::Over => "Over",
        };
        f.debug_tuple("Drive").field(&who).finish()
    }
}
