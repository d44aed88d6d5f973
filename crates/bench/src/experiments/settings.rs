//! Settings of an experiment.

use std::path::PathBuf;
use std::time::Duration;

use crate::progress::Style;

/// Settings of an experiment.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The binary to measure, which is also the mock origin.
    pub larder: PathBuf,
    /// Duration of each load, in timed experiments. `None` for the experiment's default.
    pub duration: Option<Duration>,
    /// Requests of each load, in experiments with a fixed number of requests.
    pub requests: Option<u64>,
    /// Concurrent connections, in experiments without a fixed number.
    pub connections: Option<usize>,
    /// The suites of the experiment `kv`. `None` for all.
    pub way: Option<Way>,
    /// Commands per batch of the experiment `kv`. `None` for the size of the published figures.
    pub batch: Option<usize>,
    pub progress: Style,
}

/// The way of sending commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// On persistent connections, without pipelining.
    OneByOne,
    Batches,
}
