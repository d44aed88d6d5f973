//! What Ctrl-C does to a generator: its load ends early, with what there is; a second time, all ends at once.
//!
//! A server that a generator started has a process group of its own, so that all of it can be ended at once; the price is
//! that Ctrl-C on the terminal does not reach it, and it is ended from here. (`PR_SET_PDEATHSIG` would have to be set between
//! fork and exec, which takes unsafe code.)

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::{io, thread};

use rustix::process::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::observe::Observer;
use crate::result::{Interval, Latencies};
use crate::server::kill_tree;

static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());
/// Whether a load is on that looks at [`REQUESTED`].
static LISTENING: AtomicBool = AtomicBool::new(false);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// While this lives, the first SIGINT, SIGTERM or SIGHUP asks the loads that it watches to end.
#[derive(Debug)]
pub struct Interruptible(());

impl Interruptible {
    /// From now on.
    ///
    /// # Errors
    /// When signals can't be caught.
    pub fn begin() -> io::Result<Self> {
        start()?;
        LISTENING.store(true, Relaxed);
        Ok(Self(()))
    }

    /// The observer, which also ends the load when that was asked for.
    pub fn ending<'a>(&'a self, observer: &'a mut dyn Observer) -> impl Observer + 'a {
        |interval: &Interval, latencies: &Latencies| match observer.observe(interval, latencies) {
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

/// Whether a load was asked to end.
#[must_use]
pub fn is_requested() -> bool {
    REQUESTED.load(Relaxed)
}

/// From now on the server with this process group ends with us.
pub(crate) fn watch(group: Pid) -> io::Result<()> {
    start()?;
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner).push(group);
    Ok(())
}

/// The server with this process group has ended.
pub(crate) fn forget(group: Pid) {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner).retain(|&other| other != group);
}

/// Starts to listen, once in a process.
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
            // As a shell tells it.
            std::process::exit(128 + signal);
        }
    })?;
    Ok(())
}
