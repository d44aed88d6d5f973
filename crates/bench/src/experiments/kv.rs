//! The suites of poor-man-s-cache: set all keys, get all, delete all, then SET, GET and GET of a missing key in turn, which count as
//! three. They run one command at a time and in batches, on Larder with both of its protocols, and on Redis.
//!
//! The published figures are shown next to ours, but come from other machines and other clients. The original test has one process per
//! connection, and pauses between the suites. Here one thread has all connections and never pauses, so the generator rather than the server
//! may limit a rate. The CPU time of the server is therefore more meaningful than the rate.

use super::findings::{ExperimentError, Findings};
use super::stage::{Server, Stage};
use super::store::Store;
use super::suite::{self, SUITES, Suite};

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Findings, ExperimentError> {
    let stores = [Store::LarderText, Store::LarderKv, Store::Redis];
    let start = |store: Store| Ok((store, store.start(stage)?));
    let servers = stores.into_iter().map(start).collect::<Result<Vec<_>, ExperimentError>>()?;
    let mut findings = Findings {
        title: "The suites of poor-man-s-cache",
        description: "Keys and values are as long as key{i} and value{i}. Rates are measured by the client, so they include its own time; a \
                      workflow counts as three requests. The published figures come from other machines with 96 \
                      processes, so they are judged as ratios to Redis on this machine."
            .to_owned(),
        runs: Vec::new(),
        charts: Vec::new(),
        expectations: Vec::new(),
    };
    let wanted = stage.settings.way;
    for suite in SUITES.iter().filter(|suite| wanted.is_none_or(|way| suite.way == way)) {
        play(suite, stage, &servers, &mut findings)?;
    }
    Ok(findings)
}

/// Runs a suite on all servers, one after the other.
fn play(
    suite: &Suite,
    stage: &Stage<'_>,
    servers: &[(Store, Server)],
    findings: &mut Findings,
) -> Result<(), ExperimentError> {
    let mut runs = Vec::new();
    for (store, server) in servers {
        let run = suite.run(stage, *store, server)?;
        findings.expectations.push(suite::told(&run));
        runs.push(run);
    }
    let (redis, larder): (Vec<_>, Vec<_>) =
        servers.iter().zip(&runs).partition(|((store, _), _)| *store == Store::Redis);
    for (_, redis) in redis {
        let beside = larder.iter().map(|(_, larder)| suite::beside_redis(suite, larder, redis));
        findings.expectations.extend(beside);
    }
    findings.runs.extend(runs);
    Ok(())
}
