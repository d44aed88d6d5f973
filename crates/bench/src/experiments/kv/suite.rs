//! A part of the suite: its load, and what came of it in the words of its own test.

use crate::resp::{self, Choice, Pace, Preload, RespLoad, Reuse, Until, Values, Workload};
use crate::result::{Expectation, Run};
use crate::server::ServerProbe;
use crate::told::Told;

use super::super::ExperimentError;
use super::super::stage::{Server, Stage};
use super::contender::Contender;

/// A part of the suite, and what was published: for poor-man-s-cache and for Redis under the same script.
pub(super) struct Suite {
    pub(super) name: &'static str,
    workload: Workload,
    pub(super) way: Way,
    pub(super) published: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    OneByOne,
    Batches,
    ConnectionEach,
}

const ONE_BY_ONE: &str = "above 100,000/s; Redis 120,000/s";

/// In this order: what is got and deleted was set before, and nothing is deleted twice.
pub(super) const SUITES: [Suite; 9] = [
    suite("SET", Workload::Set, Way::OneByOne, ONE_BY_ONE),
    suite("GET", Workload::Get, Way::OneByOne, ONE_BY_ONE),
    suite("DEL", Workload::Del, Way::OneByOne, ONE_BY_ONE),
    suite("workflow", Workload::Workflow, Way::OneByOne, ONE_BY_ONE),
    suite("SET in batches", Workload::Set, Way::Batches, "above 1.0 M/s; Redis 650,000/s"),
    suite("GET in batches", Workload::Get, Way::Batches, "above 1.5 M/s; Redis 900,000/s"),
    suite("DEL in batches", Workload::Del, Way::Batches, "above 1.5 M/s; Redis 900,000/s"),
    suite("workflow in batches", Workload::Workflow, Way::Batches, "3.0 M/s; Redis 1.25 M/s"),
    suite("workflow, a connection each", Workload::Workflow, Way::ConnectionEach, "none published"),
];

const fn suite(name: &'static str, workload: Workload, way: Way, published: &'static str) -> Suite {
    Suite { name, workload, way, published }
}

const REQUESTS: u64 = 200_000;
const CONNECTIONS: usize = 96;
const BATCH: usize = 100;
/// A connection costs what many requests cost.
const REQUESTS_PER_CONNECTION: u64 = 20;
/// SET, GET, GET of a missing key.
const COMMANDS_OF_WORKFLOW: u64 = 3;
/// What poor-man-s-cache is to reach.
const GOAL_PER_S: f64 = 10e6;

impl Suite {
    pub(super) fn is_workflow(&self) -> bool {
        self.workload == Workload::Workflow
    }

    pub(super) fn run(
        &self,
        stage: &Stage<'_>,
        contender: Contender,
        server: &Server,
    ) -> Result<Run, ExperimentError> {
        let load = self.load(stage, contender, server);
        let name = format!("{}: {}", self.name, contender.name());
        let probe = ServerProbe::new(&[server.process.pid()], None)?.begin()?;
        let told = Told::start(&name, load.until, stage.progress());
        let found = resp::run(&load, &mut told.observer());
        told.finish();
        let mut run = found?.run;
        run.name = name;
        run.server = Some(probe.end()?.per_request(run.requests));
        Ok(run)
    }

    fn load(&self, stage: &Stage<'_>, contender: Contender, server: &Server) -> RespLoad {
        let keys = stage.requests(REQUESTS);
        let commands = if self.is_workflow() { keys * COMMANDS_OF_WORKFLOW } else { keys };
        let (pipeline, reuse, commands) = match self.way {
            Way::OneByOne => (1, Reuse::KeepOpen, commands),
            Way::Batches => (stage.suites().batch.unwrap_or(BATCH), Reuse::KeepOpen, commands),
            Way::ConnectionEach => {
                (1, Reuse::OnePerBatch, (commands / REQUESTS_PER_CONNECTION).max(COMMANDS_OF_WORKFLOW))
            }
        };
        RespLoad {
            protocol: contender.protocol(),
            workload: self.workload,
            key_bytes: 11,
            value_bytes: 13,
            values: Values::OfKey,
            keys,
            choice: Choice::InTurn,
            // By the suite before: a GET has to hit, a DEL has to find its key.
            preload: match self.workload {
                Workload::Get | Workload::Del => Preload::AllKeys,
                Workload::Set | Workload::Workflow => Preload::Nothing,
            },
            connections: stage.connections(CONNECTIONS),
            reuse,
            pipeline,
            until: Until::Requests(commands),
            pace: Pace::Closed,
            ..RespLoad::of(server.address)
        }
    }
}

/// What the test of poor-man-s-cache prints, and how many cores the server would need for its goal, at what each request costs it here.
pub(super) fn told(run: &Run) -> Expectation {
    let errors = run.errors.total();
    let mut measured = format!(
        "{} requests in {:.2} s, {:.0}/s, {errors} failures",
        run.requests, run.elapsed_s, run.requests_per_s
    );
    // Too short a run is less than the kernel's clock tells apart.
    let us = run.server.and_then(|server| server.process_cpu_us_per_request).filter(|us| *us > 0.0);
    if let Some(us) = us {
        let cores = us * GOAL_PER_S / 1e6;
        measured.push_str(&format!("; at {us:.2} µs of the server each, {cores:.1} cores for 10 M/s"));
    }
    Expectation { what: run.name.clone(), measured, holds: errors == 0 && run.requests > 0 }
}
