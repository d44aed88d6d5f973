//! Signals as events, the runtime for background work, and the exit after a worker failed.

use std::io;
use std::time::{Duration, Instant};

use telemetry::{FLUSH_LIMIT, logging};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

/// An external request to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Read the configuration again (SIGHUP).
    Reload,
    /// Reopen the access log (SIGUSR1).
    Reopen,
    /// Start a successor (SIGUSR2).
    Upgrade,
    /// Finish the requests in flight, then stop.
    Stop(Asker),
}

/// The origin of a request to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// An operator or service manager, by SIGTERM or SIGINT.
    Operator,
    /// A client, by SHUTDOWN.
    Client,
    /// A new process that serves in its place.
    Successor,
}

/// Wakes [`Signals::next`] after a client has requested a shutdown.
static ASKED_BY_CLIENT: Notify = Notify::const_new();

/// Requests a shutdown on behalf of a client.
pub(crate) fn stop_process() {
    ASKED_BY_CLIENT.notify_one();
}

/// Signals of the process. After [`Signals::listen`] they are events and no longer end the process.
#[derive(Debug)]
pub(crate) struct Signals {
    hangup: Signal,
    user1: Signal,
    user2: Signal,
    terminate: Signal,
    interrupt: Signal,
}

/// Ignores the signals for reload, reopen and upgrade during the start, instead of ending the process. Signals that
/// stop the process still stop it. Must be called inside a runtime.
///
/// # Errors
///
/// Returns an error if the system refuses a handler.
pub(crate) fn ignore_early() -> io::Result<()> {
    // A handler stays installed after its receiver is dropped.
    for kind in [SignalKind::hangup(), SignalKind::user_defined1(), SignalKind::user_defined2()] {
        drop(signal(kind)?);
    }
    Ok(())
}

impl Signals {
    /// Installs handlers for all signals.
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses a handler.
    pub(crate) fn listen() -> io::Result<Self> {
        // With this handler, a write beyond the file size limit returns an error instead of killing the process. The
        // handler stays installed after its receiver is dropped.
        drop(signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Returns the next event. Several pending signals of one kind count once.
    pub(crate) async fn next(&mut self) -> Event {
        tokio::select! {
            _ = self.hangup.recv() => Event::Reload,
            _ = self.user1.recv() => Event::Reopen,
            _ = self.user2.recv() => Event::Upgrade,
            _ = self.terminate.recv() => Event::Stop(Asker::Operator),
            _ = self.interrupt.recv() => Event::Stop(Asker::Operator),
            () = ASKED_BY_CLIENT.notified() => Event::Stop(Asker::Client),
        }
    }

    /// Resolves when the process is asked to stop. Other events wait for [`Signals::next`].
    pub(crate) async fn stopped(&mut self) -> Asker {
        tokio::select! {
            () = self.signalled() => Asker::Operator,
            () = ASKED_BY_CLIENT.notified() => Asker::Client,
        }
    }

    /// Resolves when the operator repeats the stop signal, so that the process must exit at once. A repeated signal
    /// counts if it arrives later than [`SAME_REQUEST`] after the first. If a client or successor began the stop, the
    /// operator has to send two signals.
    pub(crate) async fn insisted(&mut self, asker: Asker) {
        let mut stop = StopSignals::after(asker, Instant::now());
        loop {
            self.signalled().await;
            match stop.hear(Instant::now()) {
                Heard::First => tracing::info!("already stopping: another signal stops it at once"),
                Heard::Again => tracing::debug!("a signal right after the first is the same request to stop"),
                Heard::Insists => return,
            }
        }
    }

    /// Resolves on SIGTERM or SIGINT.
    pub(crate) async fn signalled(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Time within which several signals count as one request to stop: `timeout` and some service managers signal both the
/// process and its group, and a terminal signals the group. It is too short for an operator to conclude that the first
/// had no effect.
const SAME_REQUEST: Duration = Duration::from_millis(500);

/// Stop signals received so far.
#[derive(Debug)]
struct StopSignals {
    first: Option<Instant>,
}

/// The meaning of a further stop signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    First,
    /// The signal belongs to the first request.
    Again,
    /// The operator insists on an immediate stop.
    Insists,
}

impl StopSignals {
    /// Starts the count at `now`, with the stop that `asker` requested.
    fn after(asker: Asker, now: Instant) -> Self {
        Self { first: (asker == Asker::Operator).then_some(now) }
    }

    fn hear(&mut self, now: Instant) -> Heard {
        match self.first {
            None => {
                self.first = Some(now);
                Heard::First
            }
            Some(first) if now.saturating_duration_since(first) < SAME_REQUEST => Heard::Again,
            Some(_) => Heard::Insists,
        }
    }
}

/// Returns the background runtime: admin API, signals, name resolution and reloads. Requests have runtimes of their
/// own, so background work can't delay them.
///
/// # Errors
///
/// Returns an error if the system refuses an event queue.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().thread_name("background").build()
}

/// Ends the process after a worker has failed. The worker's clients are disconnected, and state that it shares with
/// other workers may be half-way through a change: the service manager should restart the process, and no data is
/// saved.
pub(crate) fn end_process() {
    tracing::error!("a worker failed: the process exits");
    logging::flush(FLUSH_LIMIT);
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_right_after_the_first_does_not_insist() {
        let check = |asker, signals: &[(u64, Heard)]| {
            let begin = Instant::now();
            let mut stop = StopSignals::after(asker, begin);
            for (at_ms, expected) in signals {
                let heard = stop.hear(begin + Duration::from_millis(*at_ms));
                assert_eq!(heard, *expected, "{asker:?} at {at_ms} ms");
            }
        };
        check(Asker::Operator, &[(0, Heard::Again), (499, Heard::Again), (500, Heard::Insists)]);
        check(Asker::Operator, &[(60_000, Heard::Insists)]);
        for asker in [Asker::Client, Asker::Successor] {
            check(asker, &[(0, Heard::First), (1, Heard::Again), (500, Heard::Insists)]);
            check(asker, &[(9_000, Heard::First), (9_499, Heard::Again), (9_500, Heard::Insists)]);
        }
    }
}
