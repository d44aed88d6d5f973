//! Servers that must not outlive the generator when a signal ends it.
//!
//! A server has a process group of its own, so that all of it can be ended at once; the price is that Ctrl-C on the
//! terminal does not reach it. (`PR_SET_PDEATHSIG` would have to be set between fork and exec, which takes unsafe code.)

use std::sync::{Mutex, OnceLock, PoisonError};
use std::{io, thread};

use rustix::process::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::command::kill_tree;

static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// From now on the server with this process group ends with us.
pub(super) fn watch(group: Pid) -> io::Result<()> {
    static STARTED: OnceLock<Option<i32>> = OnceLock::new();
    let started = STARTED.get_or_init(|| start().err().map(|error| error.raw_os_error().unwrap_or(0)));
    if let Some(code) = started {
        return Err(io::Error::from_raw_os_error(*code));
    }
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner).push(group);
    Ok(())
}

/// The server with this process group has ended.
pub(super) fn forget(group: Pid) {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner).retain(|&other| other != group);
}

fn start() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::Builder::new().name("interrupt".to_owned()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            RUNNING.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|&group| kill_tree(group));
            // As a shell tells it.
            std::process::exit(128 + signal);
        }
    })?;
    Ok(())
}
