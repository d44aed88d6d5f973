//! Event lines on standard error. The logging thread writes a line itself if that can't block, so that lines
//! appear immediately and in order. Otherwise the line is queued for a thread that may block, for example on
//! a pipe whose reader has stopped.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Queued lines, and the lock of standard error.
#[derive(Debug)]
pub(crate) struct EventLines {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    done: Condvar,
    /// Lock of standard error, held during a write.
    writing: Mutex<()>,
    dropped: AtomicU64,
}

/// Lines queued for the writer thread.
#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    /// Whether the thread has taken lines that are not written yet.
    is_taken: bool,
}

/// A writable pipe accepts this many bytes without blocking (`PIPE_BUF`).
const AT_ONCE_BYTES_MAX: usize = 4096;
/// Maximum size of the queue: some thousand lines, enough for a reader that pauses for a second.
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

    /// Returns the number of lines dropped since the start.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits up to `limit` until the queue is empty.
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
        // The metric is the only place where this failure can be reported.
        if io::stderr().write_all(bytes).is_err() {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
            self.dropped.fetch_add(lines as u64, Ordering::Relaxed);
        }
    }

    /// Runs the writer thread.
    fn run(&self) {
        let mut batch = Vec::new();
        loop {
            let mut waiting = self.waiting.lock();
            self.wake.wait_while(&mut waiting, |waiting| waiting.bytes.is_empty());
            std::mem::swap(&mut waiting.bytes, &mut batch);
            waiting.is_taken = true;
            drop(waiting);
            let writing = self.writing.lock();
            // Written in pieces, because a blocked write would hold the lock that a panic message needs.
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

/// An event is one write. Writing always succeeds, because `tracing` would report a failure on standard error.
impl Write for &EventLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.add(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts the writer thread.
pub(crate) fn start_writer(lines: &'static EventLines) -> io::Result<()> {
    thread::Builder::new().name("event-log".to_owned()).spawn(|| lines.run()).map(drop)
}

/// Returns whether standard error accepts bytes, or fails at once.
fn takes_bytes(limit: Duration) -> bool {
    let stderr = io::stderr();
    let limit = Timespec::try_from(limit).ok();
    let mut polled = [PollFd::new(&stderr, PollFlags::OUT)];
    match poll(&mut polled, limit.as_ref()) {
        Ok(ready) => ready > 0,
        // A descriptor that can't be polled doesn't block either.
        Err(error) => error != Errno::INTR,
    }
}

/// Maximum time between two checks of whether standard error accepts bytes again.
const PATIENCE: Duration = Duration::from_secs(3600);
