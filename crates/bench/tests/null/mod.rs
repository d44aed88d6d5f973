//! A null server on a thread.

use std::io;
use std::net::SocketAddr;
use std::thread::JoinHandle;

use bench::null::{NullServer, Stop};

/// The thread of a null server. Stopped on drop.
pub(crate) struct NullThread {
    pub(crate) address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl NullThread {
    pub(crate) fn start(bind: impl FnOnce(SocketAddr) -> io::Result<NullServer>) -> Self {
        let server = bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        let (address, stop) = (server.address(), server.stop());
        let thread = std::thread::spawn(move || server.serve().expect("it serves"));
        Self { address, stop, thread: Some(thread) }
    }
}

impl Drop for NullThread {
    fn drop(&mut self) {
        self.stop.stop().expect("a wake-up");
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends well");
        }
    }
}
