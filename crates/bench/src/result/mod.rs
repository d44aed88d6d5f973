//! What a bench found, as values: the one form that the table, the JSON file, the HTML report and the comparisons read.
//!
//! Times are microseconds, sizes bytes, rates per second; the unit stands last in each name.

mod chart;
mod failure;
mod latency;
mod machine;
mod timeline;

use std::ops::AddAssign;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use failure::Failure;

pub use chart::{Axis, Chart, Point, Scale, Series};
pub use latency::{Latencies, LatencySummary, Percentile};
pub use timeline::Timeline;

/// The version of this form. Grows when a field changes its meaning or goes away, not when one is added.
pub const SCHEMA: &str = "larder-bench/1";

/// All that one command measured.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    pub title: String,
    /// What was done and why, in a sentence or two for a reader who was not there.
    pub description: String,
    /// Seconds since 1970-01-01T00:00:00Z.
    pub started_at_unix_s: u64,
    pub machine: Machine,
    /// Version and commit of the generator.
    pub larder: String,
    pub runs: Vec<Run>,
    /// Charts that belong to the whole and not to one run.
    pub charts: Vec<Chart>,
    pub expectations: Vec<Expectation>,
}

/// Where it was measured.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_bytes: u64,
    pub kernel: String,
}

/// One load on one target.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Run {
    /// Short, unique in its report: `larder`, `nginx`, `with cache n=10 c=4`.
    pub name: String,
    /// URL, or address and port.
    pub target: String,
    /// The settings of the load, as words: `64 connections, closed loop, 10 s`.
    pub load: String,
    pub elapsed_s: f64,
    /// Requests that were answered, with whatever status; commands, for a Redis-protocol server.
    pub requests: u64,
    pub requests_per_s: f64,
    /// Requests that had no answer, or a wrong one.
    pub errors: Errors,
    /// Requests that were due before the end of an open loop and found no connection: neither answered nor failed.
    #[serde(default)]
    pub unsent: u64,
    /// Connections that were made again after one had ended.
    #[serde(default)]
    pub reconnects: u64,
    /// Status codes of HTTP, or kinds of replies, with their counts, sorted.
    pub outcomes: Vec<Outcome>,
    /// Bytes read from and written to sockets by the generator, TLS excluded.
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Transfer rate: what was read, over the elapsed time.
    #[serde(default)]
    pub read_bytes_per_s: f64,
    pub latency: LatencySummary,
    /// What making a connection took, TLS included; connections that were made before the clock ran count too.
    #[serde(default)]
    pub connect: Option<LatencySummary>,
    /// The part of the latency that had passed when the first byte of the response came.
    #[serde(default)]
    pub first_byte: Option<LatencySummary>,
    /// What happened in each interval, oldest first; at most [`INTERVALS_MAX`].
    pub intervals: Vec<Interval>,
    /// Figures per URL, where they were asked for, in the order of the list.
    pub urls: Vec<UrlFigures>,
    /// What the server spent; none unless asked for.
    pub server: Option<ServerCost>,
    /// CPU time of the generator itself, user and system, per request.
    pub generator_cpu_us_per_request: f64,
}

impl Run {
    /// What a load came to, but for its names and its counts.
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

    /// The same with the bytes that went over the sockets.
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
    pub(crate) fn with_bytes(self, read: u64, written: u64) -> Self {
        let read_bytes_per_s = if self.elapsed_s > 0.0 { read as f64 / self.elapsed_s } else { 0.0 };
        Self { read_bytes: read, written_bytes: written, read_bytes_per_s, ..self }
    }
}

/// A run keeps at most this many intervals; a longer one makes its intervals longer.
pub const INTERVALS_MAX: usize = 1024;

/// Requests without a good answer, by cause.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
pub struct Errors {
    /// The connection was refused, or could not be made in time.
    pub connect: u64,
    /// The connection broke while an answer was due.
    pub broken: u64,
    /// The answer was not HTTP, or not RESP.
    pub malformed: u64,
    /// No answer within the limit.
    pub timeout: u64,
    /// The answer is not the one expected.
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

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// `200`, `+OK`, `nil`.
    pub name: String,
    pub count: u64,
}

/// One interval of a run.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Interval {
    /// Begin of the interval, from the begin of the run.
    pub at_s: f64,
    pub length_s: f64,
    pub requests: u64,
    pub errors: u64,
    pub mean_us: f64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
}

/// What one URL of a list took.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
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

/// What the server's processes and core spent while a run was on.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ServerCost {
    /// User and system time of the process and its descendants, per request.
    pub process_cpu_us_per_request: Option<f64>,
    /// Time that the named core was not idle, soft interrupts included, per request: the figure to trust when the
    /// server has the core for itself.
    pub core_busy_us_per_request: Option<f64>,
    /// Highest sum of resident memory of the processes that was seen.
    pub peak_rss_bytes: Option<u64>,
}

/// What an experiment promises, and whether it held.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Expectation {
    /// `collapsing cuts origin requests by more than 90 %`.
    pub what: String,
    /// What was seen, with its unit.
    pub measured: String,
    /// Also where nothing was judged: `measured` then begins with `not judged`.
    pub holds: bool,
}

/// How a measurement begins that says too little for a verdict.
const NOT_JUDGED: &str = "not judged";

/// What came of an expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Holds,
    Fails,
    NotJudged,
}

impl Expectation {
    /// The same of a measurement that lasted so long: without a verdict, where that is less than one needs.
    pub(crate) fn judged_from(self, least_s: f64, elapsed_s: f64) -> Self {
        if elapsed_s >= least_s {
            return self;
        }
        let measured = format!("{NOT_JUDGED} in less than {least_s} s; {}", self.measured);
        Self { measured, holds: true, ..self }
    }

    /// What to show.
    pub fn verdict(&self) -> Verdict {
        match self.holds {
            true if self.measured.starts_with(NOT_JUDGED) => Verdict::NotJudged,
            true => Verdict::Holds,
            false => Verdict::Fails,
        }
    }
}
