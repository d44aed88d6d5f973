//! Ctrl-C in a generator: the first ends its load early, with the results so far; the second ends the process immediately.
//!
//! A server that a generator started has its own process group, so that all of its processes can be ended together. Ctrl-C
//! on the terminal therefore doesn't reach it, and this module ends it. (`PR_SET_PDEATHSIG` would have to be set between
//! fork and exec, which requires unsafe code.)

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::{io, thread};

use rustix::process::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::observe::Observer;
use crate::result::Interval;
use crate::server::kill_tree;

static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());
/// Whether a load is running that checks [`REQUESTED`].
static LISTENING: AtomicBool = AtomicBool::new(false);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Until it is dropped, the first SIGINT, SIGTERM or SIGHUP ends the watched loads early.
#[derive(Debug)]
pub struct Interruptible(());

impl Interruptible {
    /// Starts to catch signals.
    ///
    /// # Errors
    /// Returns an error if signals can't be caught.
    pub fn begin() -> io::Result<Self> {
        start()?;
        LISTENING.store(true, Relaxed);
        Ok(Self(()))
    }

    /// Wraps an observer so that it also ends the load on request.
    pub fn ending<'a>(&'a self, observer: &'a mut dyn Observer) -> impl Observer + 'a {
        |interval: &Interval| match observer.observe(interval) {
            ControlFlow::Continue(()) if is_requested() => ControlFlow::Break(()),
            flow => flow,
        }
    }
}

impl Drop for Interruptible {
    fn drop(&mut self) {
        LISTENING.store(false, Relaxed);
    }
}

/// Returns whether the end of the load was requested.
#[must_use]
pub fn is_requested() -> bool {
    REQUESTED.load(Relaxed)
}

/// Registers a server's process group, which ends with this process from now on.
pub(crate) fn watch(group: Pid) -> io::Result<()> {
    start()?;
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner).push(group);
    Ok(())
}

/// Unregisters the process group of a server that has ended.
pub(crate) fn forget(group: Pid) {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner).retain(|&other| other != group);
}

/// Starts the signal thread, once per process.
fn start() -> io::Result<()> {
    static STARTED: OnceLock<Option<i32>> = OnceLock::new();
    let started = STARTED.get_or_init(|| listen().err().map(|error| error.raw_os_error().unwrap_or(0)));
    started.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
}

fn listen() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::Builder::new().name("interrupt".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let is_first = !REQUESTED.swap(true, Relaxed);
            if is_first && LISTENING.load(Relaxed) {
                continue;
            }
            RUNNING.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|&group| kill_tree(group));
            // The exit status that a shell reports for a signal.
            std::process::exit(128 + signal);
        }
    })?;
    Ok(())
}
