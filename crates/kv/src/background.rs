//! Threads that clients must not notice.

use std::io;

use crate::sync::thread::Builder;
pub(crate) use crate::sync::thread::JoinHandle;

/// The least that the system knows: who has something to do for clients comes first.
const NICE: i32 = 19;

/// Does something on a thread of its own, whenever nobody else needs the processor.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).spawn(move || {
        // Where the system refuses, it is a thread like others.
        let _ = rustix::process::setpriority_process(None, NICE);
        work();
    })
}
