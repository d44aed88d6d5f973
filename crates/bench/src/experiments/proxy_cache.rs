//! An API whose handlers cost CPU time: the value of a cache in front of it.
//!
//! Ten connections request 503 URLs of five routes in turn. Every handler is busy for a millisecond. The load runs without a
//! cache, with Larder's memory tier after one pass over all URLs, and with a shared store that another gateway has filled.

use std::time::Duration;

use crate::http::{HttpLoad, Until};
use crate::result::{Expectation, Run};

use super::findings::{ExperimentError, Findings, all_answered};
use super::stage::{Server, Stage, origin_requests};
use super::store::{self, Store};

/// Connections of the clients, with one request at a time each.
const CONNECTIONS: usize = 10;

/// Duration of each load.
const DURATION: Duration = Duration::from_secs(30);

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Findings, ExperimentError> {
    let targets = targets();
    // One thread, like the original API, whose handlers block it.
    let origin = stage.origin(&["--workers", "1", "--cpu-ms", "1"])?;
    let none = loaded(stage, "no cache", &targets, &origin)?;
    let gateway = stage.gateway(&origin, "")?;
    warm(stage, &targets, &gateway)?;
    let (memory, memory_forwards) = cached(stage, "memory", &targets, &gateway, &origin)?;
    let store = Store::Redis.start(stage)?;
    let tables = store::shared(store.address);
    let gateways = [stage.gateway_with(&origin, &tables, "")?, stage.gateway_with(&origin, &tables, "")?];
    store::are_one(&gateways)?;
    warm(stage, &targets, &gateways[0])?;
    store::is_written(&gateways[0])?;
    let (shared, shared_forwards) = cached(stage, "shared store", &targets, &gateways[1], &origin)?;
    let mut expectations: Vec<_> = [&none, &memory, &shared].map(all_answered).into();
    for (run, forwards) in [(&memory, memory_forwards), (&shared, shared_forwards)] {
        expectations.push(few_forwards(forwards, run));
        expectations.extend(gains(&none, run));
    }
    expectations.push(as_without_store(&memory, &shared));
    Ok(Findings {
        title: "Cache in front of an API",
        description: format!(
            "{CONNECTIONS} connections request {} URLs of five routes in turn. Every handler of the API is busy for 1 ms, \
             one at a time. no cache: the API itself; memory: Larder in front of it, after one pass over all URLs; shared store: \
             Larder that shares a Redis with another Larder, which made that pass.",
            targets.len()
        ),
        runs: vec![none, memory, shared],
        charts: Vec::new(),
        expectations,
    })
}

/// 503 targets: the list, the statistics, five categories, 480 products and 16 users.
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
    for target in &mut load.targets {
        target.status = Some(200);
        // The same host for every server, since it is part of the cache key.
        target.fields.push(("Host".to_owned(), store::HOST.to_owned()));
    }
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

/// Runs the load, and returns it with the number of requests that reached the API.
fn cached(
    stage: &Stage<'_>,
    name: &str,
    targets: &[String],
    gateway: &Server,
    origin: &Server,
) -> Result<(Run, u64), ExperimentError> {
    let before = origin_requests(origin.address)?;
    let run = loaded(stage, name, targets, gateway)?;
    Ok((run, origin_requests(origin.address)? - before))
}

/// Requests every URL once.
fn warm(stage: &Stage<'_>, targets: &[String], server: &Server) -> Result<(), ExperimentError> {
    let mut load = load(targets, server)?;
    load.until = Until::Requests(targets.len() as u64);
    stage.load("warm-up", &load, server).map(drop)
}

/// Only responses that expire within a run are fetched again.
fn few_forwards(forwarded: u64, run: &Run) -> Expectation {
    Expectation {
        what: format!("{}: fewer than 1 % of the requests reach the API", run.name),
        measured: format!("{forwarded} of {}", run.requests),
        holds: forwarded * 100 < run.requests,
    }
}

fn gains(none: &Run, run: &Run) -> [Expectation; 2] {
    let throughput = run.requests_per_s / none.requests_per_s;
    let latency = none.latency.mean_us / run.latency.mean_us;
    let published = match run.name.as_str() {
        "memory" => "48,263 and 555 times",
        _ => "47,885 and 550 times",
    };
    [
        Expectation {
            what: format!("{}: at least 20 times the requests per second", run.name),
            measured: format!("{throughput:.0} times; published, with 87 for the API alone: {published}"),
            holds: throughput >= 20.0,
        },
        Expectation {
            what: format!("{}: at most a twentieth of the mean latency", run.name),
            measured: format!("1/{latency:.0} of it"),
            holds: latency >= 20.0,
        },
    ]
}

/// The expectation that a shared store costs little throughput. The published rates are 47,885 with it and 48,263 without.
fn as_without_store(memory: &Run, shared: &Run) -> Expectation {
    let ratio = shared.requests_per_s / memory.requests_per_s;
    Expectation {
        what: "shared store: at least 0.9 of the requests per second of memory alone".to_owned(),
        measured: format!("{ratio:.2}; published: 0.99"),
        holds: ratio >= 0.9,
    }
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
