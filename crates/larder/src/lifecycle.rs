//! Signals as events, the runtime for work that isn't a request, and the end that a failed worker brings.

use std::io;
use std::time::{Duration, Instant};

use telemetry::{FLUSH_LIMIT, logging};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

/// What the world asks of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Read the configuration again (SIGHUP).
    Reload,
    /// Open the access log anew (SIGUSR1).
    Reopen,
    /// Start a successor (SIGUSR2).
    Upgrade,
    /// Finish the requests in flight, then stop.
    Stop(Asker),
}

/// Who wants the process to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// Who runs it, by SIGTERM or SIGINT.
    Operator,
    /// A client, by SHUTDOWN.
    Client,
    /// A new process, which serves in its place.
    Successor,
}

/// Wakes [`Signals::next`] when a client has asked for the end.
static ASKED_BY_CLIENT: Notify = Notify::const_new();

/// A client has asked for the end.
pub(crate) fn stop_process() {
    ASKED_BY_CLIENT.notify_one();
}

/// Signals of the process. From [`Signals::listen`] on they are events and no longer end the process.
#[derive(Debug)]
pub(crate) struct Signals {
    hangup: Signal,
    user1: Signal,
    user2: Signal,
    terminate: Signal,
    interrupt: Signal,
}

/// Signals of operators that mean something later do nothing until then, instead of ending the process that begins. Those that stop it stop it.
/// To be called inside a runtime.
///
/// # Errors
/// When the system refuses a handler.
pub(crate) fn ignore_early() -> io::Result<()> {
    // A handler stays when nobody waits for its signal.
    for kind in [SignalKind::hangup(), SignalKind::user_defined1(), SignalKind::user_defined2()] {
        drop(signal(kind)?);
    }
    Ok(())
}

impl Signals {
    /// Takes the signals over.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub(crate) fn listen() -> io::Result<Self> {
        // Whoever writes more than the system lets a file grow to is to get an error. The handler stays when nobody waits for the signal.
        drop(signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The next event. Signals of one kind that come close together count once.
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

    /// Resolves when the process shall stop. Other events wait for [`Signals::next`].
    pub(crate) async fn stopped(&mut self) -> Asker {
        tokio::select! {
            () = self.signalled() => Asker::Operator,
            () = ASKED_BY_CLIENT.notified() => Asker::Client,
        }
    }

    /// Resolves when the operator insists on the stop that `asker` has begun: with a second signal, later than [`SAME_REQUEST`]. A client and a
    /// successor have sent none.
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

    /// Resolves with SIGTERM or SIGINT.
    pub(crate) async fn signalled(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Who runs a process may send one request to stop as several signals: `timeout` and some service managers signal the process and its group, and a
/// terminal the group. Nobody has seen within this time that the first was not enough.
const SAME_REQUEST: Duration = Duration::from_millis(500);

/// Signals that ask the process to stop, as far as they have come.
#[derive(Debug)]
struct StopSignals {
    first: Option<Instant>,
}

/// What one more of them means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    First,
    /// It belongs to the first.
    Again,
    /// The operator does not want to wait for the end.
    Insists,
}

impl StopSignals {
    /// The process has begun to stop at `now`, because `asker` wanted it.
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

/// The background runtime: admin API, signals, name resolution, reloads. Requests have runtimes of their own, so
/// that nothing here can delay them.
///
/// # Errors
/// When the system refuses an event queue.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().thread_name("background").build()
}

/// A worker has ended by an error. Its clients are gone, and what it shares with others may be half-way through a change: whoever runs the
/// process is to start it anew, and nothing of it is saved.
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
