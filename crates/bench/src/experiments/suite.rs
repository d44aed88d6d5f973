//! A part of the suite: its load, and its result in the terms of the original test.

use crate::resp::{self, Choice, Pace, Preload, RespLoad, Until, Values, Workload};
use crate::result::{Expectation, Run};

use super::findings::ExperimentError;
use super::settings::Way;
use super::stage::{Server, Stage};
use super::store::Store;

/// A part of the suite, and its published figures: for poor-man-s-cache and for Redis under the same script.
pub(super) struct Suite {
    pub(super) name: &'static str,
    workload: Workload,
    pub(super) way: Way,
    published: Published,
}

/// Requests per second of poor-man-s-cache and of Redis on the same machine, but not on this one.
#[derive(Clone, Copy, Debug)]
struct Published {
    per_s: f64,
    redis_per_s: f64,
}

const ONE_BY_ONE: Published = published(100_000.0, 120_000.0);
const GET_IN_BATCHES: Published = published(1.5e6, 900_000.0);

const fn published(per_s: f64, redis_per_s: f64) -> Published {
    Published { per_s, redis_per_s }
}

/// Minimum duration for a verdict: the rate of a shorter run is random.
const JUDGED_FROM_S: f64 = 0.5;

/// The order matters: keys are set before they are read and deleted, and no key is deleted twice.
pub(super) const SUITES: [Suite; 8] = [
    suite("SET", Workload::Set, Way::OneByOne, ONE_BY_ONE),
    suite("GET", Workload::Get, Way::OneByOne, ONE_BY_ONE),
    suite("DEL", Workload::Del, Way::OneByOne, ONE_BY_ONE),
    suite("workflow", Workload::Workflow, Way::OneByOne, ONE_BY_ONE),
    suite("SET in batches", Workload::Set, Way::Batches, published(1e6, 650_000.0)),
    suite("GET in batches", Workload::Get, Way::Batches, GET_IN_BATCHES),
    suite("DEL in batches", Workload::Del, Way::Batches, GET_IN_BATCHES),
    suite("workflow in batches", Workload::Workflow, Way::Batches, published(3e6, 1.25e6)),
];

const fn suite(name: &'static str, workload: Workload, way: Way, published: Published) -> Suite {
    Suite { name, workload, way, published }
}

const REQUESTS: u64 = 200_000;
const CONNECTIONS: usize = 96;
const BATCH: usize = 100;
/// SET, GET, and GET of a missing key.
const COMMANDS_OF_WORKFLOW: u64 = 3;
/// The published goal of poor-man-s-cache.
const GOAL_PER_S: f64 = 10e6;

impl Suite {
    fn is_workflow(&self) -> bool {
        self.workload == Workload::Workflow
    }

    pub(super) fn run(
        &self,
        stage: &Stage<'_>,
        store: Store,
        server: &Server,
    ) -> Result<Run, ExperimentError> {
        let load = self.load(stage, store, server);
        let name = format!("{}: {}", self.name, store.name());
        stage.watch(&name, load.until, server, |observer| Ok(resp::run(&load, observer)?.run))
    }

    fn load(&self, stage: &Stage<'_>, store: Store, server: &Server) -> RespLoad {
        let keys = stage.requests(REQUESTS);
        let commands = if self.is_workflow() { keys * COMMANDS_OF_WORKFLOW } else { keys };
        let pipeline = match self.way {
            Way::OneByOne => 1,
            Way::Batches => stage.settings.batch.unwrap_or(BATCH),
        };
        RespLoad {
            protocol: store.protocol(),
            workload: self.workload,
            key_bytes: 11,
            value_bytes: 13,
            values: Values::OfKey,
            keys,
            choice: Choice::InTurn,
            // The previous suite has set them: a GET must hit, and a DEL must find its key.
            preload: match self.workload {
                Workload::Get | Workload::Del => Preload::AllKeys,
                Workload::Set | Workload::Workflow => Preload::Nothing,
            },
            connections: stage.connections(CONNECTIONS),
            pipeline,
            until: Until::Requests(commands),
            pace: Pace::Closed,
            ..RespLoad::of(server.address)
        }
    }
}

/// Compares Larder's speed relative to Redis with that of poor-man-s-cache on its own machine. The better of two ratios counts: of the
/// rates, or of the server's cost per request. If the generator is slower than the servers, their rates are the same.
pub(super) fn beside_redis(suite: &Suite, larder: &Run, redis: &Run) -> Expectation {
    let rates = format!("{:.0}/s against Redis's {:.0}/s", larder.requests_per_s, redis.requests_per_s);
    let has_failed = larder.errors.total() + redis.errors.total() > 0;
    let Published { per_s, redis_per_s } = suite.published;
    let least = per_s / redis_per_s;
    let what = format!(
        "{}: at least {least:.2} times as fast as Redis (published: {per_s:.0}/s against Redis's {redis_per_s:.0}/s)",
        larder.name
    );
    let by_rate = larder.requests_per_s / redis.requests_per_s;
    let cost =
        |run: &Run| run.server.and_then(|server| server.process_cpu_us_per_request).filter(|us| *us > 0.0);
    let by_cost = cost(redis).zip(cost(larder)).map_or(0.0, |(redis, larder)| redis / larder);
    let measured =
        format!("{rates}: {by_rate:.2} times, {by_cost:.2} times by the server's CPU time per request");
    let expectation = Expectation { what, measured, holds: !has_failed && by_rate.max(by_cost) >= least };
    if has_failed {
        return expectation;
    }
    // `-n` lengthens the run.
    expectation.judged_from(JUDGED_FROM_S, larder.elapsed_s.min(redis.elapsed_s))
}

/// The figures that the test of poor-man-s-cache prints, and the number of cores that the server would need for its goal at the
/// cost per request measured here.
pub(super) fn told(run: &Run) -> Expectation {
    let errors = run.errors.total();
    let mut measured = format!(
        "{} requests in {:.2} s, {:.0}/s, {errors} failures",
        run.requests, run.elapsed_s, run.requests_per_s
    );
    // The cost of a very short run is below the resolution of the kernel's clock.
    let us = run.server.and_then(|server| server.process_cpu_us_per_request).filter(|us| *us > 0.0);
    if let Some(us) = us {
        let cores = us * GOAL_PER_S / 1e6;
        measured.push_str(&format!("; at {us:.2} µs of the server each, 10 M/s need {cores:.1} cores"));
    }
    Expectation { what: run.name.clone(), measured, holds: errors == 0 && run.requests > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Errors, ServerCost};

    fn run(per_s: f64, elapsed_s: f64, cpu_us: f64) -> Run {
        let server = ServerCost { process_cpu_us_per_request: Some(cpu_us), ..ServerCost::default() };
        Run { requests_per_s: per_s, elapsed_s, server: Some(server), requests: 1, ..Run::default() }
    }

    #[test]
    fn figures_of_another_machine_are_judged_beside_redis() {
        let check = |suite: &Suite, larder: Run, redis: Run, expected: bool, words: &str| {
            let told = beside_redis(suite, &larder, &redis);
            assert!(told.holds == expected && told.measured.contains(words), "{told:?}");
        };
        let [one_by_one, .., batches] = &SUITES;
        check(one_by_one, run(71_547.0, 2.0, 8.0), run(80_000.0, 2.0, 8.0), true, "0.89 times");
        check(one_by_one, run(50_000.0, 2.0, 12.0), run(80_000.0, 2.0, 8.0), false, "0.62 times");
        check(
            one_by_one,
            run(50_000.0, 2.0, 4.0),
            run(80_000.0, 2.0, 8.0),
            true,
            "2.00 times by the server's",
        );
        check(one_by_one, run(50_000.0, 0.1, 8.0), run(80_000.0, 2.0, 8.0), true, "not judged");
        check(batches, run(2e6, 2.0, 0.5), run(1e6, 2.0, 1.0), false, "2.00 times");
        let failed = Run { errors: Errors { wrong: 1, ..Errors::default() }, ..run(1e6, 2.0, 0.1) };
        check(one_by_one, failed, run(80_000.0, 2.0, 8.0), false, "12.50 times");
    }
}
