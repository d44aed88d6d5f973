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
    /// All of them without.
    pub way: Option<Way>,
    /// Commands in a batch; none for those of the published figures.
    pub batch: Option<usize>,
    /// All of them without.
    pub server: Option<Contender>,
}

/// A server, and how it is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// In the protocol of poor-man-s-cache.
    LarderText,
    /// As clients of Redis speak to it.
    LarderResp,
    Redis,
}

/// How commands are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// On connections that stay.
    OneByOne,
    Batches,
    ConnectionEach,
}
