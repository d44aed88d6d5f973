//! Background threads with low priority.

use std::io;

use crate::sync::thread::Builder;
pub(crate) use crate::sync::thread::JoinHandle;

/// The lowest priority, so that work for clients comes first.
const NICE: i32 = 19;

/// Runs `work` on its own thread, which runs only when a processor is idle.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).spawn(move || {
        // If the system refuses, the thread runs at normal priority.
        let _ = rustix::process::setpriority_process(None, NICE);
        work();
    })
}
