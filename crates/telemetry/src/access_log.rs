//! The access log. The worker that served a request formats its line into its own queue, and one thread
//! writes the lines. A full queue drops and counts lines; a request never waits for the disk.
//!
//! Each worker has its own queue, because a channel would wake the writer for every line and share a cache
//! line between all cores. Here the worker appends to its own buffer and wakes the writer once per round, and
//! the writer exchanges the buffer for an empty one.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::access_format::{AccessFormat, AccessRecord, Redaction};
use crate::declarations::Metric;
use crate::registry::Telemetry;

/// The destination of the lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessTarget {
    /// No log. Recording a line then costs one comparison.
    Off,
    /// Standard output.
    Stdout,
    /// A file, opened for appending and created if it doesn't exist.
    File(PathBuf),
}

/// Options for opening an access log.
#[derive(Debug, Clone)]
pub struct AccessLogOptions {
    /// The destination of the lines.
    pub target: AccessTarget,
    /// The format of a line.
    pub format: AccessFormat,
    /// Maximum number of queued lines, over all workers.
    pub queue_lines_max: usize,
    /// Redaction of targets and referers.
    pub redaction: Redaction,
    /// Number of workers, each with a queue of its own.
    pub workers: usize,
}

/// An error while opening the target of the log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessLogError {
    /// The file can't be opened for appending.
    #[error("the access log {path} cannot be opened: {source}")]
    FileNotOpened {
        /// The path as configured.
        path: PathBuf,
        /// The OS error.
        source: io::Error,
    },
    /// The target is a pipe without a reader, and opening it would block.
    #[error("the access log {path} cannot be opened: it is a pipe (FIFO) that no process reads")]
    PipeUnread {
        /// The path as configured.
        path: PathBuf,
    },
    /// Standard output can't be duplicated.
    #[error("the access log cannot be opened on standard output: {0}")]
    StdoutNotOpened(io::Error),
    /// The writer thread can't be started.
    #[error("the thread of the access log cannot be started: {0}")]
    ThreadNotStarted(io::Error),
}

/// The target did not accept all lines within the limit. The writer keeps the lines until the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stalled {
    /// Number of lines that are not written yet.
    pub lines: u64,
}

/// The result of reopening the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reopened {
    /// The target is not a file.
    NoFile,
    /// The writer continues in the new file.
    InNewFile,
    /// The writer still waits for the old file, and then continues in the new one.
    AfterStall(Stalled),
}

/// An open access log. Dropping it writes the queued lines and ends the writer, unless the target accepts
/// nothing for [`FLUSH_LIMIT`].
#[derive(Debug)]
pub struct AccessLog {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

/// Records lines for one worker. Cheap to clone; each worker should use its own.
#[derive(Debug, Clone)]
pub struct AccessRecorder {
    /// `None` if the log is off.
    queue: Option<Arc<Queue>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: AccessTarget,
    format: AccessFormat,
    redaction: Redaction,
    queues: Vec<Arc<Queue>>,
    queue_lines_max: usize,
    dropped_lines: AtomicU64,
    /// Set by the first line after the writer's round, so that only one line per round pays for the wake-up.
    waiting: AtomicBool,
    /// Lines of the batch that is being written.
    lines_in_writing: AtomicU64,
    orders: Mutex<Orders>,
    wake: Condvar,
    done: Condvar,
}

/// Requests to the writer.
#[derive(Debug, Default)]
struct Orders {
    /// A file to continue with.
    sink: Option<Sink>,
    /// Numbers of requested and of completed flushes; a round sets `flushes_done` to the value that
    /// `flushes_asked` had at its start.
    flushes_asked: u64,
    flushes_done: u64,
    lines: Lines,
    closing: Closing,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Lines {
    #[default]
    None,
    Queued,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Closing {
    #[default]
    No,
    Asked,
    Done,
}

/// Lines of one worker, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Queue {
    batch: Mutex<Batch>,
}

#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    lines: usize,
}

/// Longest wait for the writer. A pipe whose reader has stopped may never accept another byte.
pub const FLUSH_LIMIT: Duration = Duration::from_secs(1);
/// Time for which the writer collects further lines after the first.
const LINGER: Duration = Duration::from_millis(20);
/// Buffer bytes for each line that a queue may hold. A typical line takes half of them.
const LINE_BYTES_PLANNED: usize = 1024;

impl AccessLog {
    /// Opens the target and starts the writer.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be opened or the thread can't be started.
    pub fn open(options: AccessLogOptions) -> Result<Self, AccessLogError> {
        let sink = match &options.target {
            AccessTarget::File(path) => Some(open_file(path)?),
            AccessTarget::Stdout => {
                let file = standard_output().map_err(AccessLogError::StdoutNotOpened)?;
                Some(Sink { file, torn: Vec::new() })
            }
            AccessTarget::Off => None,
        };
        let workers = options.workers.max(1);
        let shared = Arc::new(Shared {
            target: options.target,
            format: options.format,
            redaction: options.redaction,
            queues: (0..workers).map(|_| Arc::default()).collect(),
            queue_lines_max: (options.queue_lines_max / workers).max(1),
            dropped_lines: AtomicU64::new(0),
            waiting: AtomicBool::new(false),
            lines_in_writing: AtomicU64::new(0),
            orders: Mutex::default(),
            wake: Condvar::new(),
            done: Condvar::new(),
        });
        let writer = sink.map(|sink| start_writer(Arc::clone(&shared), sink)).transpose()?;
        Ok(Self { shared, writer })
    }

    /// Returns the recorder of worker `index`, counted from 0.
    pub fn worker(&self, index: usize) -> AccessRecorder {
        let queues = &self.shared.queues;
        let queue = self.writer.is_some().then(|| Arc::clone(&queues[index % queues.len()]));
        AccessRecorder { queue, shared: Arc::clone(&self.shared) }
    }

    /// Reopens the file of the same name, for log rotation. Lines queued before the call go to either file.
    /// Waits up to [`FLUSH_LIMIT`] for the writer.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be opened; the old one stays in use.
    pub fn reopen(&self) -> Result<Reopened, AccessLogError> {
        let AccessTarget::File(path) = &self.shared.target else { return Ok(Reopened::NoFile) };
        let sink = open_file(path)?;
        self.shared.orders.lock().sink = Some(sink);
        Ok(self.flush().map_or_else(Reopened::AfterStall, |()| Reopened::InNewFile))
    }

    /// Waits up to [`FLUSH_LIMIT`] until every line recorded before the call is written.
    ///
    /// # Errors
    ///
    /// Returns an error if the target doesn't accept them in time.
    pub fn flush(&self) -> Result<(), Stalled> {
        if self.writer.is_none() {
            return Ok(());
        }
        let mut orders = self.shared.orders.lock();
        orders.flushes_asked += 1;
        let mine = orders.flushes_asked;
        self.shared.wake.notify_one();
        self.shared.done.wait_while_for(&mut orders, |orders| orders.flushes_done < mine, FLUSH_LIMIT);
        let is_done = orders.flushes_done >= mine;
        drop(orders);
        if is_done { Ok(()) } else { Err(Stalled { lines: self.shared.unwritten_lines() }) }
    }

    /// Returns the number of lines dropped since the start.
    pub fn dropped_lines(&self) -> u64 {
        self.shared.dropped_lines.load(Ordering::Relaxed)
    }

    /// Reports the dropped lines at every scrape.
    pub fn report_to(&self, telemetry: &Telemetry) {
        let shared = Arc::clone(&self.shared);
        telemetry.collect_from(Box::new(move |sample| {
            let dropped_lines = shared.dropped_lines.load(Ordering::Relaxed);
            sample.add(Metric::AccessLogDroppedTotal, &[], dropped_lines);
        }));
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        let mut orders = self.shared.orders.lock();
        // A failed flush has already waited for the limit.
        let limit = if orders.flushes_done == orders.flushes_asked { FLUSH_LIMIT } else { Duration::ZERO };
        orders.closing = Closing::Asked;
        self.shared.wake.notify_one();
        self.shared.done.wait_while_for(&mut orders, |orders| orders.closing != Closing::Done, limit);
        let is_done = orders.closing == Closing::Done;
        drop(orders);
        if is_done {
            // If the writer panicked, that has been reported, and nothing more can be written.
            let _ = writer.join();
        }
    }
}

impl AccessRecorder {
    /// Returns whether lines are written, so that the caller can skip collecting fields.
    pub fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// Queues one line, or drops and counts it if the queue is full. Never blocks on the target.
    pub fn record(&self, record: &AccessRecord<'_>) {
        let Some(queue) = &self.queue else { return };
        let shared = &self.shared;
        {
            let mut batch = queue.batch.lock();
            if batch.is_full(shared.queue_lines_max) {
                drop(batch);
                shared.dropped_lines.fetch_add(1, Ordering::Relaxed);
                return;
            }
            record.write(shared.format, &shared.redaction, &mut batch.bytes);
            batch.lines += 1;
        }
        shared.wake_writer();
    }
}

impl Batch {
    fn is_full(&self, lines_max: usize) -> bool {
        self.lines >= lines_max || self.bytes.len() >= lines_max.saturating_mul(LINE_BYTES_PLANNED)
    }
}

impl Shared {
    fn wake_writer(&self) {
        // Usually a plain read is enough, which leaves the cache line shared.
        if self.waiting.load(Ordering::Relaxed) || self.waiting.swap(true, Ordering::AcqRel) {
            return;
        }
        self.orders.lock().lines = Lines::Queued;
        self.wake.notify_one();
    }

    fn unwritten_lines(&self) -> u64 {
        let queued: usize = self.queues.iter().map(|queue| queue.batch.lock().lines).sum();
        queued as u64 + self.lines_in_writing.load(Ordering::Relaxed)
    }
}

/// Opens the file without blocking: a pipe without a reader would block the caller forever. Writing may block
/// the writer thread.
fn open_file(path: &Path) -> Result<Sink, AccessLogError> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let opened = options.open(path).and_then(|file| {
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
        Ok(Sink { torn: missing_end(path, &file), file })
    });
    opened.map_err(|source| {
        let is_pipe = std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo());
        let is_unread = is_pipe && source.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error());
        let path = path.to_owned();
        if is_unread {
            AccessLogError::PipeUnread { path }
        } else {
            AccessLogError::FileNotOpened { path, source }
        }
    })
}

/// Returns the missing line end if an earlier process could not complete the last line of the file.
fn missing_end(path: &Path, file: &File) -> Vec<u8> {
    let last_byte = || -> io::Result<Option<u8>> {
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() == 0 {
            return Ok(None);
        }
        let mut last = [0];
        File::open(path)?.read_exact_at(&mut last, metadata.len() - 1)?;
        Ok(Some(last[0]))
    };
    // A log that can be written but not read is used as it is.
    let is_cut = last_byte().ok().flatten().is_some_and(|byte| byte != b'\n');
    if is_cut { vec![b'\n'] } else { Vec::new() }
}

/// Returns standard output without the buffer of [`io::stdout`]: after a failure, only the kernel knows how
/// many bytes were written.
fn standard_output() -> io::Result<File> {
    io::stdout().as_fd().try_clone_to_owned().map(File::from)
}

fn start_writer(shared: Arc<Shared>, sink: Sink) -> Result<JoinHandle<()>, AccessLogError> {
    let run = move || Writer { shared, sink, batch: Batch::default(), failing: Failing::No }.run();
    thread::Builder::new().name("access-log".to_owned()).spawn(run).map_err(AccessLogError::ThreadNotStarted)
}

/// An open target.
#[derive(Debug)]
struct Sink {
    file: File,
    /// The rest of a line whose beginning is in the file: it must be written before the next line.
    torn: Vec<u8>,
}

struct Writer {
    shared: Arc<Shared>,
    sink: Sink,
    /// Buffers that are exchanged for the full ones of a queue; empty between rounds.
    batch: Batch,
    failing: Failing,
}
/// Whether the last write failed, so that a full disk is reported once instead of once per round.
#[derive(PartialEq, Eq)]
enum Failing {
    No,
    Yes,
}

impl Writer {
    fn run(mut self) {
        loop {
            let (flush, closing) = self.wait();
            self.round();
            let mut orders = self.shared.orders.lock();
            orders.flushes_done = flush;
            let is_last = closing == Closing::Asked;
            if is_last {
                orders.closing = Closing::Done;
            }
            self.shared.done.notify_all();
            drop(orders);
            if is_last {
                return;
            }
        }
    }

    /// Waits for lines or requests, then up to [`LINGER`] for more lines, and takes the requests.
    fn wait(&mut self) -> (u64, Closing) {
        let shared = Arc::clone(&self.shared);
        let mut orders = shared.orders.lock();
        shared.wake.wait_while(&mut orders, |orders| orders.lines == Lines::None && orders.is_calm());
        if orders.is_calm() {
            shared.wake.wait_while_for(&mut orders, |orders| orders.is_calm(), LINGER);
        }
        orders.lines = Lines::None;
        if let Some(mut sink) = orders.sink.take() {
            let torn = std::mem::take(&mut self.sink.torn);
            if is_same_file(&self.sink.file, &sink.file) {
                sink.torn = torn;
            } else if !torn.is_empty() {
                // The second half of a line is dropped, because the new file lacks its first half.
                shared.dropped_lines.fetch_add(1, Ordering::Relaxed);
            }
            self.sink = sink;
        }
        (orders.flushes_asked, std::mem::take(&mut orders.closing))
    }

    fn round(&mut self) {
        // Reset before the queues are emptied, so that a later line sets it again.
        let shared = Arc::clone(&self.shared);
        shared.waiting.store(false, Ordering::Release);
        for queue in &shared.queues {
            std::mem::swap(&mut *queue.batch.lock(), &mut self.batch);
            if self.batch.lines > 0 {
                self.write_batch();
                self.batch.bytes.clear();
                self.batch.lines = 0;
                shared.lines_in_writing.store(0, Ordering::Relaxed);
            }
        }
    }

    fn write_batch(&mut self) {
        self.shared.lines_in_writing.store(self.batch.lines as u64, Ordering::Relaxed);
        let Sink { file, torn: begun } = &mut self.sink;
        let (written, outcome) = write_some(file, begun);
        begun.drain(..written);
        let (dropped, outcome) = match outcome {
            Ok(()) => {
                let (written, outcome) = write_some(file, &self.batch.bytes);
                let (torn, dropped) = unwritten(&self.batch.bytes, written);
                begun.extend_from_slice(torn);
                (dropped, outcome)
            }
            Err(error) => (self.batch.lines, Err(error)),
        };
        self.shared.dropped_lines.fetch_add(dropped as u64, Ordering::Relaxed);
        match outcome {
            Ok(()) => self.failing = Failing::No,
            Err(error) => {
                if self.failing == Failing::No {
                    tracing::error!(%error, "the access log cannot be written; lines are dropped");
                }
                self.failing = Failing::Yes;
            }
        }
    }
}

fn is_same_file(one: &File, other: &File) -> bool {
    let id = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
    matches!((id(one), id(other)), (Ok(one), Ok(other)) if one == other)
}

/// Writes as many bytes as the target accepts, and returns their number.
fn write_some(sink: &mut File, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match sink.write(&bytes[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

/// Returns the unwritten part of a batch: the rest of the line at which the write stopped, and the number of
/// lines after it.
fn unwritten(batch: &[u8], written: usize) -> (&[u8], usize) {
    let (done, left) = batch.split_at(written);
    let is_torn = done.last().is_some_and(|byte| *byte != b'\n');
    let end = left.iter().position(|byte| *byte == b'\n').map_or(left.len(), |at| at + 1);
    let (torn, lost) = left.split_at(if is_torn { end } else { 0 });
    (torn, lost.iter().filter(|byte| **byte == b'\n').count())
}

impl Orders {
    fn is_calm(&self) -> bool {
        self.closing == Closing::No && self.flushes_asked == self.flushes_done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_is_finished_and_those_after_it_are_lost() {
        let check = |written: usize, torn: &str, lost: usize| {
            assert_eq!(unwritten(b"ab\ncd\nef\n", written), (torn.as_bytes(), lost), "{written}");
        };
        check(0, "", 3);
        check(1, "b\n", 2);
        check(2, "\n", 2);
        check(3, "", 2);
        check(4, "d\n", 1);
        check(8, "\n", 0);
        check(9, "", 0);
    }
}
