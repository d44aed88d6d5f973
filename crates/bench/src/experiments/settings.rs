//! How an experiment is run.

use std::path::PathBuf;
use std::time::Duration;

use crate::progress::Style;

/// How an experiment is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The binary that is measured, and whose mock origin is asked.
    pub larder: PathBuf,
    /// How long each load lasts, where the experiment is a matter of time; none for the time that it needs to show
    /// what it is about.
    pub duration: Option<Duration>,
    /// Requests of each load, where the experiment is a matter of their number.
    pub requests: Option<u64>,
    /// At the same time, where the experiment can have any number.
    pub connections: Option<usize>,
    /// That share a store, beside one alone, where the experiment compares them.
    pub instances: Option<usize>,
    /// Of the experiment `kv`.
    pub suites: Suites,
    pub progress: Style,
}

/// Which of the suites are to run, and on whom.
#[derive(Clone, Copy, Debug, Default)]
pub struct Suites {
    pub ways: Ways,
    /// Commands in a batch; none for those of the published figures.
    pub batch: Option<usize>,
    pub servers: Servers,
}

/// How commands are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ways {
    #[default]
    All,
    /// One by one on connections that stay.
    OneByOne,
    Batches,
}

/// Who is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Servers {
    #[default]
    All,
    /// Larder in the protocol of poor-man-s-cache.
    Text,
    /// Larder as clients of Redis speak to it.
    Resp,
    Redis,
}
