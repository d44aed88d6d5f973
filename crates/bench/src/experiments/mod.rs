//! Whole experiments: each starts the servers that it needs, loads them, stops them, and says what it expected.
//!
//! Every server listens on a free port of the loopback address, has a temporary folder of its own, and ends with the
//! experiment, also when that fails or is interrupted.

mod breaker;
mod cache_aside;
mod coalescing;
mod conditional;
mod edge;
mod findings;
mod fleet;
mod kv;
mod origin;
mod overload;
mod proxy_cache;
mod purge;
mod samples;
mod settings;
mod stage;
mod store_faults;
mod store_room;
mod tiers;

use std::fmt;
use std::str::FromStr;

use crate::result::Report;

pub use findings::ExperimentError;
pub use settings::{Servers, Settings, Suites, Ways};
use stage::Stage;

/// What can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    Coalescing,
    Edge,
    ProxyCache,
    CacheAside,
    Conditional,
    Kv,
    StoreFaults,
    Purge,
    Tiers,
    StoreRoom,
    Breaker,
    Overload,
}

impl Experiment {
    pub const ALL: [Self; 12] = [
        Self::Coalescing,
        Self::Edge,
        Self::ProxyCache,
        Self::CacheAside,
        Self::Conditional,
        Self::Kv,
        Self::StoreFaults,
        Self::Purge,
        Self::Tiers,
        Self::StoreRoom,
        Self::Breaker,
        Self::Overload,
    ];

    /// As it is called on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Coalescing => "coalescing",
            Self::Edge => "edge",
            Self::ProxyCache => "proxy-cache",
            Self::CacheAside => "cache-aside",
            Self::Conditional => "304",
            Self::Kv => "kv",
            Self::StoreFaults => "store-faults",
            Self::Purge => "purge",
            Self::Tiers => "tiers",
            Self::StoreRoom => "store-room",
            Self::Breaker => "breaker",
            Self::Overload => "overload",
        }
    }

    /// One line for a list of experiments.
    #[must_use]
    pub fn summary(self) -> &'static str {
        match self {
            Self::Coalescing => {
                "many clients, one slow URL that expires: requests that reach the origin; several gateways with --instances"
            }
            Self::Edge => "one cached response from Larder, nginx with Lua, nginx and Redis, puma and Node",
            Self::ProxyCache => "an API whose handlers cost CPU, with and without a cache in front",
            Self::CacheAside => {
                "each URL of a slow origin, with and without a cache, at several concurrencies"
            }
            Self::Conditional => "clients that send conditional requests",
            Self::Kv => "the suites of poor-man-s-cache on Larder, in both protocols, and on Redis",
            Self::Purge => "three gateways that share a Redis, during thousands of purges",
            Self::Tiers => {
                "a hit in memory, a hit in the shared store, a miss, and a round trip to the store"
            }
            Self::StoreRoom => {
                "four gateways with little memory and a shared store that fits a tenth of the data, then all of it"
            }
            Self::Breaker => {
                "an origin that is slow, resets, answers 503 or hangs, with and without a circuit breaker"
            }
            Self::Overload => "ten times the requests that an origin can answer, and hits meanwhile",
            Self::StoreFaults => "two gateways whose shared Redis hangs, dies or runs out of memory",
        }
    }
}

impl FromStr for Experiment {
    type Err = UnknownExperiment;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|experiment| experiment.name() == text)
            .ok_or_else(|| UnknownExperiment(text.to_owned()))
    }
}

/// A name that is no experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownExperiment(String);

impl fmt::Display for UnknownExperiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Experiment::ALL.map(Experiment::name).join(", ");
        write!(f, "unknown experiment {:?}; expected one of {names}", self.0)
    }
}

impl std::error::Error for UnknownExperiment {}

/// Runs an experiment.
///
/// # Errors
/// When a server is not installed or does not start, or a load can't be made. What does not come out as expected is no
/// error: it stands in the report.
pub fn run(experiment: Experiment, settings: &Settings) -> Result<Report, ExperimentError> {
    let mut stage = Stage::new(settings)?;
    let findings = match experiment {
        Experiment::Coalescing => coalescing::run(&mut stage),
        Experiment::Edge => edge::run(&mut stage),
        Experiment::ProxyCache => proxy_cache::run(&mut stage),
        Experiment::CacheAside => cache_aside::run(&mut stage),
        Experiment::Conditional => conditional::run(&mut stage),
        Experiment::Kv => kv::run(&mut stage),
        Experiment::StoreFaults => store_faults::run(&mut stage),
        Experiment::Purge => purge::run(&mut stage),
        Experiment::Tiers => tiers::run(&mut stage),
        Experiment::StoreRoom => store_room::run(&mut stage),
        Experiment::Breaker => breaker::run(&mut stage),
        Experiment::Overload => overload::run(&mut stage),
    }?;
    Ok(stage.report(findings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_understood() {
        for experiment in Experiment::ALL {
            assert_eq!(experiment.name().parse(), Ok(experiment));
        }
        let unknown = "other".parse::<Experiment>().expect_err("there is none");
        assert_eq!(
            unknown.to_string(),
            "unknown experiment \"other\"; expected one of coalescing, edge, proxy-cache, cache-aside, 304, kv, store-faults, purge, tiers, store-room, breaker, overload"
        );
    }
}
