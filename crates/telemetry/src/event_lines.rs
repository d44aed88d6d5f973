//! The way of event lines to standard error. Whoever logs writes the line itself where that can't wait, so that lines are there at
//! once and in order; else the line is queued for a thread that may wait as long as it takes, for a pipe whose reader has stopped.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Lines on their way.
#[derive(Debug)]
pub(crate) struct EventLines {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    done: Condvar,
    /// Held by whoever writes.
    writing: Mutex<()>,
    dropped: AtomicU64,
}

/// Lines for the thread.
#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    /// The thread has taken some, and not written them yet.
    is_taken: bool,
}

/// A pipe that says that it can be written takes so many bytes without waiting (`PIPE_BUF`).
const AT_ONCE_BYTES_MAX: usize = 4096;
/// Some thousand lines: the log of a reader that pauses for a second is complete.
const WAITING_BYTES_MAX: usize = 1 << 20;

impl EventLines {
    pub(crate) const fn new() -> Self {
        Self {
            waiting: Mutex::new(Waiting { bytes: Vec::new(), is_taken: false }),
            wake: Condvar::new(),
            done: Condvar::new(),
            writing: Mutex::new(()),
            dropped: AtomicU64::new(0),
        }
    }

    /// Lines dropped since the start.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until nothing waits any more, at most for so long.
    pub(crate) fn flush(&self, limit: Duration) {
        let mut waiting = self.waiting.lock();
        self.done.wait_while_for(&mut waiting, |waiting| !waiting.is_empty(), limit);
    }

    fn add(&self, line: &[u8]) {
        let mut waiting = self.waiting.lock();
        if line.len() <= AT_ONCE_BYTES_MAX
            && waiting.is_empty()
            && let Some(_writing) = self.writing.try_lock()
            && takes_bytes(Duration::ZERO)
        {
            drop(waiting);
            self.write(line);
            return;
        }
        if waiting.bytes.len() + line.len() > WAITING_BYTES_MAX {
            drop(waiting);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.bytes.extend_from_slice(line);
        drop(waiting);
        self.wake.notify_one();
    }

    fn write(&self, bytes: &[u8]) {
        // There is nowhere to tell it but the metric.
        if io::stderr().write_all(bytes).is_err() {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
            self.dropped.fetch_add(lines as u64, Ordering::Relaxed);
        }
    }

    /// What the thread does, without end.
    fn run(&self) {
        let mut batch = Vec::new();
        loop {
            let mut waiting = self.waiting.lock();
            self.wake.wait_while(&mut waiting, |waiting| waiting.bytes.is_empty());
            std::mem::swap(&mut waiting.bytes, &mut batch);
            waiting.is_taken = true;
            drop(waiting);
            let writing = self.writing.lock();
            // Piece by piece: a write that waits would hold the lock that the message of a panic needs.
            for piece in batch.chunks(AT_ONCE_BYTES_MAX) {
                while !takes_bytes(PATIENCE) {}
                self.write(piece);
            }
            drop(writing);
            batch.clear();
            self.waiting.lock().is_taken = false;
            self.done.notify_all();
        }
    }
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.is_taken
    }
}

/// An event is one write. It always succeeds: a failure would be reported on standard error, of all places.
impl Write for &EventLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.add(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts the thread that waits for standard error.
pub(crate) fn start_writer(lines: &'static EventLines) -> io::Result<()> {
    thread::Builder::new().name("event-log".to_owned()).spawn(|| lines.run()).map(drop)
}

/// Whether standard error takes bytes, or fails at once.
fn takes_bytes(limit: Duration) -> bool {
    let stderr = io::stderr();
    let limit = Timespec::try_from(limit).ok();
    let mut polled = [PollFd::new(&stderr, PollFlags::OUT)];
    match poll(&mut polled, limit.as_ref()) {
        Ok(ready) => ready > 0,
        // What can't be polled doesn't wait either.
        Err(error) => error != Errno::INTR,
    }
}

/// Between two looks whether it takes bytes again.
const PATIENCE: Duration = Duration::from_secs(3600);
