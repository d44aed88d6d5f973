//! Waiting for conditions, and connections with a time limit.

use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit that no working operation reaches, even on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Pause between two checks of a condition, for conditions that can't wake the thread.
const PAUSE: Duration = Duration::from_millis(5);

/// Repeats a check until it returns a value.
///
/// # Panics
/// Panics if the deadline passes.
#[track_caller]
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_within(DEADLINE, what, look)
}

/// Repeats a check until it returns a value, with a separate deadline.
///
/// # Panics
/// Panics if the deadline passes.
#[track_caller]
pub fn until_within<T>(deadline: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + deadline;
    loop {
        if let Some(value) = look() {
            return value;
        }
        assert!(Instant::now() < end, "not within {deadline:?}: {what}");
        thread::park_timeout(PAUSE);
    }
}

/// Repeats a check until the condition holds.
///
/// # Panics
/// Panics if the deadline passes.
#[track_caller]
pub fn until_true(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || holds().then_some(()));
}

/// Opens a connection whose reads and writes have a time limit.
///
/// # Panics
/// Panics if no server listens there.
#[track_caller]
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("a socket option");
    stream.set_read_timeout(Some(DEADLINE)).expect("a time limit");
    stream.set_write_timeout(Some(DEADLINE)).expect("a time limit");
    stream
}
