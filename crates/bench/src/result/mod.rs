//! Results of a bench as values: the single form that the table, the JSON file, the HTML report and the comparisons read.
//!
//! Times are microseconds, sizes bytes, rates per second. The unit is the last part of each name.

mod chart;
mod failure;
mod latency;
mod machine;
mod timeline;

use std::ops::AddAssign;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

pub(crate) use failure::{Failure, in_words};

pub use chart::{Axis, Chart, Point, Scale, Series};
pub use latency::{Latencies, LatencySummary, Percentile};
pub use timeline::Timeline;

/// Version of this format. It is raised if a field is removed or changes its meaning, not if one is added.
pub const SCHEMA: &str = "larder-bench/1";

/// All measurements of one command.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    pub title: String,
    /// Purpose and set-up of the measurement, in one or two sentences.
    pub description: String,
    /// Seconds since 1970-01-01T00:00:00Z.
    pub started_at_unix_s: u64,
    pub machine: Machine,
    /// Version and commit of the generator.
    pub larder: String,
    pub runs: Vec<Run>,
    /// Charts of the whole report, not of one run.
    pub charts: Vec<Chart>,
    pub expectations: Vec<Expectation>,
}

impl Report {
    /// An empty report of a measurement on this machine that begins now.
    #[must_use]
    pub fn begin() -> Self {
        Self {
            schema: SCHEMA.into(),
            title: String::new(),
            description: String::new(),
            started_at_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            machine: Machine::this(),
            larder: String::new(),
            runs: Vec::new(),
            charts: Vec::new(),
            expectations: Vec::new(),
        }
    }
}

/// The machine of the measurement.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_bytes: u64,
    pub kernel: String,
}

/// One load on one target.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// Short and unique in its report: `larder`, `nginx`, `with cache n=10 c=4`.
    pub name: String,
    /// URL, or address and port.
    pub target: String,
    /// The settings of the load in words: `64 connections, closed loop, 10 s`.
    pub load: String,
    pub elapsed_s: f64,
    /// Requests that were answered, with any status. Commands, for a Redis-protocol server.
    pub requests: u64,
    pub requests_per_s: f64,
    /// Requests without an answer, or with a wrong one.
    pub errors: Errors,
    /// Requests that were due before the end of an open loop but found no free connection: neither answered nor failed.
    pub unsent: u64,
    /// Connections that were opened again after one had ended.
    pub reconnects: u64,
    /// HTTP status codes, or kinds of replies, with their counts, sorted.
    pub outcomes: Vec<Outcome>,
    /// Bytes that the generator read from and wrote to sockets, without the overhead of TLS.
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Transfer rate: bytes read per elapsed time.
    pub read_bytes_per_s: f64,
    pub latency: LatencySummary,
    /// Time to open each connection, TLS included. Connections that were opened before the clock started count too.
    pub connect: Option<LatencySummary>,
    /// The part of the latency until the first byte of the response.
    pub first_byte: Option<LatencySummary>,
    /// The intervals of the run, oldest first. At most [`INTERVALS_MAX`].
    pub intervals: Vec<Interval>,
    /// Figures per URL, if requested, in the order of the list.
    pub urls: Vec<UrlFigures>,
    /// Cost of the server. `None` unless requested.
    pub server: Option<ServerCost>,
    /// CPU time of the generator itself, user and system, per request.
    pub generator_cpu_us_per_request: f64,
}

impl Run {
    /// Creates the result of a load, without its name and without the counts of outcomes.
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
    pub(crate) fn made(latencies: &Latencies, timeline: Timeline, elapsed: Duration, cpu: Duration) -> Self {
        let (requests, elapsed_s) = (latencies.count(), elapsed.as_secs_f64());
        let share = |whole: f64, parts: f64| if parts > 0.0 { whole / parts } else { 0.0 };
        Self {
            elapsed_s,
            requests,
            requests_per_s: share(requests as f64, elapsed_s),
            latency: latencies.summary(),
            intervals: timeline.into_intervals(),
            generator_cpu_us_per_request: share(cpu.as_secs_f64() * 1e6, requests as f64),
            ..Self::default()
        }
    }

    /// Sets the number of bytes that the generator read from and wrote to sockets.
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
    pub(crate) fn with_bytes(self, read: u64, written: u64) -> Self {
        let read_bytes_per_s = if self.elapsed_s > 0.0 { read as f64 / self.elapsed_s } else { 0.0 };
        Self { read_bytes: read, written_bytes: written, read_bytes_per_s, ..self }
    }
}

/// Maximum number of intervals of a run. A longer run has longer intervals.
pub const INTERVALS_MAX: usize = 1024;

/// Requests without a good answer, by cause.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Errors {
    /// The connection was refused, or couldn't be opened in time.
    pub connect: u64,
    /// The connection broke while an answer was due.
    pub broken: u64,
    /// The answer was not HTTP, or not RESP.
    pub malformed: u64,
    /// No answer within the time limit.
    pub timeout: u64,
    /// The answer isn't the expected one.
    pub wrong: u64,
}

impl Errors {
    #[must_use]
    pub fn total(&self) -> u64 {
        self.connect + self.broken + self.malformed + self.timeout + self.wrong
    }
}

impl AddAssign for Errors {
    fn add_assign(&mut self, other: Self) {
        self.connect += other.connect;
        self.broken += other.broken;
        self.malformed += other.malformed;
        self.timeout += other.timeout;
        self.wrong += other.wrong;
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// `200`, `+OK`, `nil`.
    pub name: String,
    pub count: u64,
}

/// One interval of a run.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Interval {
    /// Start of the interval, from the start of the run.
    pub at_s: f64,
    pub length_s: f64,
    pub requests: u64,
    pub errors: u64,
    pub mean_us: f64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
}

/// Figures of one URL of a list.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct UrlFigures {
    pub url: String,
    pub requests: u64,
    pub errors: u64,
    pub mean_us: f64,
    pub sd_us: f64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
}

/// Cost of a run for the server's processes and core.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ServerCost {
    /// User and system time of the process and its descendants, per request.
    pub process_cpu_us_per_request: Option<f64>,
    /// Time that the named core wasn't idle, soft interrupts included, per request: the most reliable figure if the server has the core to
    /// itself.
    pub core_busy_us_per_request: Option<f64>,
    /// Sum of the peak resident memory of each process.
    pub peak_rss_bytes: Option<u64>,
}

/// An expectation of an experiment, and whether it held.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Expectation {
    /// `collapsing cuts origin requests by more than 90 %`.
    pub what: String,
    /// The measurement, with its unit.
    pub measured: String,
    /// True also without a verdict: `measured` then begins with `not judged`.
    pub holds: bool,
}

/// Prefix of a measurement that is too short for a verdict.
const NOT_JUDGED: &str = "not judged";

/// Outcome of an expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Holds,
    Fails,
    NotJudged,
}

impl Expectation {
    /// The expectation, without a verdict if the measurement took less than `least_s`.
    pub(crate) fn judged_from(self, least_s: f64, elapsed_s: f64) -> Self {
        if elapsed_s >= least_s {
            return self;
        }
        let measured = format!("{NOT_JUDGED} in less than {least_s} s; {}", self.measured);
        Self { measured, holds: true, ..self }
    }

    /// The verdict to show.
    pub fn verdict(&self) -> Verdict {
        match self.holds {
            true if self.measured.starts_with(NOT_JUDGED) => Verdict::NotJudged,
            true => Verdict::Holds,
            false => Verdict::Fails,
        }
    }
}
