//! The access log: lines are formatted by the worker that served the request, into a queue of
//! that worker, and written by one thread. A full queue drops lines and counts them; a request
//! never waits for the disk.
//!
//! There is a queue per worker and no channel: a channel wakes the writer for every line and
//! shares a cache line between all cores. Here the worker appends to its own buffer, wakes the
//! writer once per round, and the writer exchanges the buffer for an empty one.

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

/// Where the lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessTarget {
    /// Nowhere; recording costs a comparison.
    Off,
    /// Standard output.
    Stdout,
    /// A file, appended to; created if it is not there.
    File(PathBuf),
}

/// How an access log is opened.
#[derive(Debug, Clone)]
pub struct AccessLogOptions {
    /// Where the lines go.
    pub target: AccessTarget,
    /// How a line is written.
    pub format: AccessFormat,
    /// Lines that may wait for the writer, over all workers.
    pub queue_lines_max: usize,
    /// What stays out of targets and referers.
    pub redaction: Redaction,
    /// Number of workers, each with a queue of its own.
    pub workers: usize,
}

/// What can go wrong with the target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessLogError {
    /// The file cannot be opened for appending.
    #[error("the access log {path} cannot be opened: {source}")]
    FileNotOpened {
        /// The path as configured.
        path: PathBuf,
        /// The reason that the system gave.
        source: io::Error,
    },
    /// Nobody reads the pipe, so that opening it would wait without end.
    #[error("the access log {path} cannot be opened: it is a pipe (FIFO) that no process reads")]
    PipeUnread {
        /// The path as configured.
        path: PathBuf,
    },
    /// Standard output cannot be duplicated.
    #[error("the access log cannot be opened on standard output: {0}")]
    StdoutNotOpened(io::Error),
    /// The writer thread cannot be started.
    #[error("the thread of the access log cannot be started: {0}")]
    ThreadNotStarted(io::Error),
}

/// The target took no lines for so long that the rest was left to the writer, or is lost where the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stalled {
    /// Lines that are not written.
    pub lines: u64,
}

/// What came of opening the file anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reopened {
    /// The log is no file.
    NoFile,
    /// The writer continues in the new file.
    InNewFile,
    /// The writer still waits for the old file, and continues in the new one after that.
    AfterStall(Stalled),
}

/// An open access log. Dropping it writes what is queued and ends the writer, unless the target takes nothing for [`FLUSH_LIMIT`].
#[derive(Debug)]
pub struct AccessLog {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

/// Records for one worker. Cheap to clone; each worker should use its own.
#[derive(Debug, Clone)]
pub struct AccessRecorder {
    /// None when the log is off.
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
    /// In the batch that is being written.
    lines_in_writing: AtomicU64,
    orders: Mutex<Orders>,
    wake: Condvar,
    done: Condvar,
}

/// What the writer shall do besides writing.
#[derive(Debug, Default)]
struct Orders {
    /// A file to go on with.
    sink: Option<Sink>,
    /// Flushes asked for and done; a round that began at `flushes_asked` brings `flushes_done` there.
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

/// How long anybody waits for the writer. A pipe whose reader has stopped may never take another byte.
pub const FLUSH_LIMIT: Duration = Duration::from_secs(1);
/// How long the writer lets lines gather after the first one.
const LINGER: Duration = Duration::from_millis(20);
/// Bytes that may be queued for each line that may be: the usual line is half as long.
const LINE_BYTES_PLANNED: usize = 1024;

impl AccessLog {
    /// Opens the target and starts the writer.
    ///
    /// # Errors
    /// When the file cannot be opened, or the thread not started.
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

    /// The recorder of worker `index`, counted from 0.
    pub fn worker(&self, index: usize) -> AccessRecorder {
        let queues = &self.shared.queues;
        let queue = self.writer.is_some().then(|| Arc::clone(&queues[index % queues.len()]));
        AccessRecorder { queue, shared: Arc::clone(&self.shared) }
    }

    /// Opens the file of the same name anew, for log rotation. Lines queued before go to either. Waits for the writer, at most for [`FLUSH_LIMIT`].
    ///
    /// # Errors
    /// When the file cannot be opened; the old one stays in use.
    pub fn reopen(&self) -> Result<Reopened, AccessLogError> {
        let AccessTarget::File(path) = &self.shared.target else { return Ok(Reopened::NoFile) };
        let sink = open_file(path)?;
        self.shared.orders.lock().sink = Some(sink);
        Ok(self.flush().map_or_else(Reopened::AfterStall, |()| Reopened::InNewFile))
    }

    /// Waits until every line recorded before is written, at most for [`FLUSH_LIMIT`].
    ///
    /// # Errors
    /// The target does not take them in time.
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

    /// Lines dropped since the start.
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
        // Whoever flushed before has waited already.
        let limit = if orders.flushes_done == orders.flushes_asked { FLUSH_LIMIT } else { Duration::ZERO };
        orders.closing = Closing::Asked;
        self.shared.wake.notify_one();
        self.shared.done.wait_while_for(&mut orders, |orders| orders.closing != Closing::Done, limit);
        let is_done = orders.closing == Closing::Done;
        drop(orders);
        if is_done {
            // A writer that panicked has reported itself; there is nothing left to write with.
            let _ = writer.join();
        }
    }
}

impl AccessRecorder {
    /// Whether lines go anywhere; lets the caller skip the gathering of fields.
    pub fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// Queues one line, or drops and counts it when the queue is full. Never blocks on the target.
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
        // The read alone is the usual case and leaves the cache line shared.
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

/// Opened without waiting: a pipe without a reader would keep the caller for ever. Writing to it may wait, in the thread of the writer.
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

/// What the last line of a file lacks, where a process that had it before could not write it to its end.
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
    // A log that may be written and not read is taken as it is.
    let is_cut = last_byte().ok().flatten().is_some_and(|byte| byte != b'\n');
    if is_cut { vec![b'\n'] } else { Vec::new() }
}

/// Without the buffer of [`io::stdout`]: after a failure, only the kernel knows how many bytes were written.
fn standard_output() -> io::Result<File> {
    io::stdout().as_fd().try_clone_to_owned().map(File::from)
}

fn start_writer(shared: Arc<Shared>, sink: Sink) -> Result<JoinHandle<()>, AccessLogError> {
    let run = move || Writer { shared, sink, batch: Batch::default(), failing: Failing::No }.run();
    thread::Builder::new().name("access-log".to_owned()).spawn(run).map_err(AccessLogError::ThreadNotStarted)
}

/// Where lines are written.
#[derive(Debug)]
struct Sink {
    file: File,
    /// The end of a line whose beginning is in the file already: the next line may only follow it.
    torn: Vec<u8>,
}

struct Writer {
    shared: Arc<Shared>,
    sink: Sink,
    /// Empty between rounds; exchanged for the full ones.
    batch: Batch,
    failing: Failing,
}
/// Whether the last write failed; a full disk is reported once and not once per round.
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

    /// Waits for lines or orders, lets more lines gather, and takes the orders.
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
                // Half a line has no place in another file.
                shared.dropped_lines.fetch_add(1, Ordering::Relaxed);
            }
            self.sink = sink;
        }
        (orders.flushes_asked, std::mem::take(&mut orders.closing))
    }

    fn round(&mut self) {
        // Before the queues are emptied: a line that comes later sets it again.
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

/// Writes as many bytes as the target takes, and says how many these were.
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

/// What of a batch is not in the file: the end of the line that the write broke off in, and how many lines come after it.
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
