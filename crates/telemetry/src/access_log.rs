//! The access log: lines are formatted by the worker that served the request, into a queue of
//! that worker, and written by one thread. A full queue drops lines and counts them; a request
//! never waits for the disk.
//!
//! There is a queue per worker and no channel: a channel wakes the writer for every line and
//! shares a cache line between all cores. Here the worker appends to its own buffer, wakes the
//! writer once per round, and the writer exchanges the buffer for an empty one.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

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
    /// The writer thread cannot be started.
    #[error("the thread of the access log cannot be started: {0}")]
    ThreadNotStarted(io::Error),
}

/// An open access log. Dropping it writes what is queued and ends the writer.
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
    orders: Mutex<Orders>,
    wake: Condvar,
    done: Condvar,
}

/// What the writer shall do besides writing.
#[derive(Debug, Default)]
struct Orders {
    /// A file to go on with.
    sink: Option<File>,
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
            AccessTarget::File(path) => Sink::File(open_file(path)?),
            AccessTarget::Off | AccessTarget::Stdout => Sink::Stdout(io::stdout()),
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
            orders: Mutex::default(),
            wake: Condvar::new(),
            done: Condvar::new(),
        });
        let writer = match shared.target {
            AccessTarget::Off => None,
            _ => Some(start_writer(Arc::clone(&shared), sink)?),
        };
        Ok(Self { shared, writer })
    }

    /// The recorder of worker `index`, counted from 0.
    pub fn worker(&self, index: usize) -> AccessRecorder {
        let queues = &self.shared.queues;
        let queue = self.writer.is_some().then(|| Arc::clone(&queues[index % queues.len()]));
        AccessRecorder { queue, shared: Arc::clone(&self.shared) }
    }

    /// Opens the file of the same name anew, for log rotation. Lines queued before go to either.
    ///
    /// # Errors
    /// When the file cannot be opened; the old one stays in use.
    pub fn reopen(&self) -> Result<(), AccessLogError> {
        if let AccessTarget::File(path) = &self.shared.target {
            let file = open_file(path)?;
            self.shared.orders.lock().sink = Some(file);
            self.flush();
        }
        Ok(())
    }

    /// Waits until every line recorded before is written.
    pub fn flush(&self) {
        if self.writer.is_none() {
            return;
        }
        let mut orders = self.shared.orders.lock();
        orders.flushes_asked += 1;
        let mine = orders.flushes_asked;
        self.shared.wake.notify_one();
        self.shared.done.wait_while(&mut orders, |orders| orders.flushes_done < mine);
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
        self.shared.orders.lock().closing = Closing::Asked;
        self.shared.wake.notify_one();
        // A writer that panicked has reported itself; there is nothing left to write with.
        let _ = writer.join();
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
}

enum Sink {
    Stdout(io::Stdout),
    File(File),
}

impl Sink {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout(stdout) => {
                let mut stdout = stdout.lock();
                stdout.write_all(bytes)?;
                stdout.flush()
            }
            Self::File(file) => file.write_all(bytes),
        }
    }
}

fn open_file(path: &PathBuf) -> Result<File, AccessLogError> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|source| AccessLogError::FileNotOpened { path: path.clone(), source })
}

fn start_writer(shared: Arc<Shared>, sink: Sink) -> Result<JoinHandle<()>, AccessLogError> {
    let run = move || Writer { shared, sink, batch: Batch::default(), failing: Failing::No }.run();
    thread::Builder::new().name("access-log".to_owned()).spawn(run).map_err(AccessLogError::ThreadNotStarted)
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
            self.shared.done.notify_all();
            drop(orders);
            if closing == Closing::Asked {
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
        if let Some(file) = orders.sink.take() {
            self.sink = Sink::File(file);
        }
        (orders.flushes_asked, std::mem::take(&mut orders.closing))
    }

    fn round(&mut self) {
        // Before the queues are emptied: a line that comes later sets it again.
        self.shared.waiting.store(false, Ordering::Release);
        for queue in &self.shared.queues {
            std::mem::swap(&mut *queue.batch.lock(), &mut self.batch);
            if self.batch.lines > 0 {
                write_batch(&mut self.sink, &self.batch, &mut self.failing, &self.shared.dropped_lines);
                self.batch.bytes.clear();
                self.batch.lines = 0;
            }
        }
    }
}

impl Orders {
    fn is_calm(&self) -> bool {
        self.closing == Closing::No && self.flushes_asked == self.flushes_done
    }
}

fn write_batch(sink: &mut Sink, batch: &Batch, failing: &mut Failing, dropped_lines: &AtomicU64) {
    match sink.write_all(&batch.bytes) {
        Ok(()) => *failing = Failing::No,
        Err(error) => {
            dropped_lines.fetch_add(batch.lines as u64, Ordering::Relaxed);
            if *failing == Failing::No {
                tracing::error!(%error, "the access log cannot be written; lines are dropped");
            }
            *failing = Failing::Yes;
        }
    }
}
