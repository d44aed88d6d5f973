//! Whole experiments: each starts its servers, loads them, stops them, and judges the results.
//!
//! Every server listens on a free port of the loopback address, has its own temporary folder, and ends with the experiment, even
//! if the experiment fails or is interrupted.

mod cache_aside;
mod coalescing;
mod edge;
mod findings;
mod kv;
mod proxy_cache;
mod samples;
mod settings;
mod stage;
mod store;
mod suite;

use crate::result::Report;

pub use findings::ExperimentError;
use findings::Findings;
pub use settings::{Settings, Way};
use stage::Stage;

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for a list of experiments.
    pub summary: &'static str,
    run: Script,
}

/// The steps of an experiment.
type Script = fn(&mut Stage<'_>) -> Result<Findings, ExperimentError>;

const fn experiment(name: &'static str, summary: &'static str, run: Script) -> Experiment {
    Experiment { name, summary, run }
}

impl Experiment {
    pub const ALL: [Self; 5] = [
        experiment(
            "coalescing",
            "many clients, one slow URL that expires: requests that reach the origin",
            coalescing::run,
        ),
        experiment(
            "edge",
            "one cached response from Larder, nginx with Lua, nginx and Redis, puma and Node",
            edge::run,
        ),
        experiment(
            "proxy-cache",
            "an API whose handlers cost CPU, with and without a cache in front",
            proxy_cache::run,
        ),
        experiment(
            "cache-aside",
            "each URL of a slow origin, with and without a cache, at several concurrencies",
            cache_aside::run,
        ),
        experiment(
            "kv",
            "the suites of poor-man-s-cache on Larder, in both protocols, and on Redis",
            kv::run,
        ),
    ];

    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|experiment| experiment.name == name)
    }

    /// Runs the experiment.
    ///
    /// # Errors
    /// Returns an error if a server isn't installed or doesn't start, or if a load can't be made. A failed expectation isn't an error: it
    /// is part of the report.
    pub fn run(self, settings: &Settings) -> Result<Report, ExperimentError> {
        let begun = Report::begin();
        let Findings { title, description, runs, charts, expectations } =
            (self.run)(&mut Stage::new(settings)?)?;
        Ok(Report { title: title.to_owned(), description, runs, charts, expectations, ..begun })
    }
}
