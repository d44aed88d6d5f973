//! An API whose handlers cost CPU: what a cache in front of it is worth.
//!
//! Ten connections ask for 503 URLs of five routes in turn; every handler is busy for a millisecond. Once without a
//! cache, once with Larder's memory tier, after one pass over all URLs.

use std::time::Duration;

use crate::http::{HttpLoad, Until};
use crate::result::{Expectation, Run};

use super::findings::{ExperimentError, Findings, all_answered};
use super::stage::{self, Server, Stage, origin_requests};

/// Connections of the clients, one request at a time each.
const CONNECTIONS: usize = 10;

/// How long each variant is loaded.
const DURATION: Duration = Duration::from_secs(30);

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Findings, ExperimentError> {
    let targets = targets();
    // One thread, as the API of the original has: its handlers block it.
    let origin = stage.origin(&["--workers", "1", "--cpu-ms", "1"])?;
    let none = loaded(stage, "no cache", &targets, &origin)?;
    let gateway = stage.gateway(&origin, "")?;
    warm(stage, &targets, &gateway)?;
    let before = asked(&origin)?;
    let memory = loaded(stage, "memory", &targets, &gateway)?;
    let forwarded = asked(&origin)? - before;
    let mut expectations = vec![all_answered(&none), all_answered(&memory), few_forwards(forwarded, &memory)];
    expectations.extend(gains(&none, &memory));
    Ok(Findings {
        title: "Cache in front of an API",
        description: format!(
            "{CONNECTIONS} connections ask for {} URLs of five routes in turn. Every handler of the API is busy for 1 ms, \
             one at a time. no cache: the API itself; memory: Larder in front of it, after one pass over all URLs.",
            targets.len()
        ),
        runs: vec![none, memory],
        charts: Vec::new(),
        expectations,
    })
}

/// 503 of them: the list, the statistics, five categories, 480 products and 16 users.
fn targets() -> Vec<String> {
    const CATEGORIES: [&str; 5] = ["books", "clothing", "electronics", "home", "toys"];
    let single = ["/api/products", "/api/stats"].map(str::to_owned);
    let categories = CATEGORIES.map(|category| format!("/api/products/category/{category}"));
    let products = (1..=480).map(|id| format!("/api/products/{id}"));
    let users = (1..=16).map(|user| format!("/api/recommendations/{user}"));
    single.into_iter().chain(categories).chain(products).chain(users).collect()
}

fn load(targets: &[String], server: &Server) -> Result<HttpLoad, ExperimentError> {
    let urls: Vec<_> = targets.iter().map(|target| server.url(target)).collect();
    let mut load = HttpLoad::of_urls(&urls)?;
    load.connections = CONNECTIONS;
    load.targets.iter_mut().for_each(|target| target.status = Some(200));
    Ok(load)
}

fn loaded(
    stage: &Stage<'_>,
    name: &str,
    targets: &[String],
    server: &Server,
) -> Result<Run, ExperimentError> {
    let mut load = load(targets, server)?;
    load.until = Until::Elapsed(stage.duration(DURATION));
    stage.load(name, &load, server)
}

/// Asks for every URL once.
fn warm(stage: &Stage<'_>, targets: &[String], server: &Server) -> Result<(), ExperimentError> {
    let mut load = load(targets, server)?;
    load.until = Until::Requests(targets.len() as u64);
    stage.load("warm-up", &load, server).map(drop)
}

fn asked(origin: &Server) -> Result<u64, ExperimentError> {
    origin_requests(origin.address)
        .map_err(|source| stage::io_error("the origin does not tell its counts", source))
}

/// What expires within a run is fetched again; nothing else is.
fn few_forwards(forwarded: u64, memory: &Run) -> Expectation {
    Expectation {
        what: "memory: fewer than 1 % of the requests reach the API".to_owned(),
        measured: format!("{forwarded} of {}", memory.requests),
        holds: forwarded * 100 < memory.requests,
    }
}

fn gains(none: &Run, memory: &Run) -> [Expectation; 2] {
    let throughput = memory.requests_per_s / none.requests_per_s;
    let latency = none.latency.mean_us / memory.latency.mean_us;
    [
        Expectation {
            what: "memory: at least 20 times the requests per second".to_owned(),
            measured: format!("{throughput:.0} times"),
            holds: throughput >= 20.0,
        },
        Expectation {
            what: "memory: at most a twentieth of the mean latency".to_owned(),
            measured: format!("1/{latency:.0} of it"),
            holds: latency >= 20.0,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_503_different_urls() {
        let targets: std::collections::BTreeSet<_> = targets().into_iter().collect();
        assert_eq!(targets.len(), 503);
    }
}
