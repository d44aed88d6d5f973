//! Signals as events, and the runtime for work that isn't a request.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What the world asks of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Read the configuration again (SIGHUP).
    Reload,
    /// Finish the requests in flight, then stop (SIGTERM, SIGINT).
    Stop,
}

/// Signals of the process. From [`Signals::listen`] on they are events and no longer end the process.
#[derive(Debug)]
pub(crate) struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes the signals over.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The next event. Signals of one kind that come close together count once.
    pub(crate) async fn next(&mut self) -> Event {
        tokio::select! {
            _ = self.hangup.recv() => Event::Reload,
            _ = self.terminate.recv() => Event::Stop,
            _ = self.interrupt.recv() => Event::Stop,
        }
    }

    /// Resolves when the process shall stop.
    pub(crate) async fn stopped(&mut self) {
        while self.next().await != Event::Stop {}
    }
}

/// The background runtime: admin API, signals, name resolution, reloads. Requests have runtimes of their own, so
/// that nothing here can delay them.
///
/// # Errors
/// When the system refuses an event queue.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().thread_name("background").build()
}
