//! The suites of poor-man-s-cache: set all keys, get all, delete all, then SET, GET and GET of a missing key in turn, which count as
//! three; one by one, in batches, and with a connection for each request. On Larder in both of its protocols, and on Redis.
//!
//! The published figures stand beside ours: other machines, other clients. Its own test has as many processes as it has connections; here
//! one thread has them all, so that the generator and not the server may be what limits a rate. What the server spends says more.

use std::process::Command;

use crate::resp::{self, Choice, Pace, Preload, Protocol, RespLoad, Reuse, Until, Values, Workload};
use crate::result::{Expectation, Run};
use crate::server::ServerProbe;
use crate::told::Told;

use super::stage::{Server, Stage, free_address, program};
use super::{ExperimentError, Findings, all_answered};

const REQUESTS: u64 = 200_000;
const CONNECTIONS: usize = 96;
const BATCH: usize = 100;
/// A connection costs what a hundred requests cost.
const REQUESTS_PER_CONNECTION: u64 = 20;
/// What poor-man-s-cache is to reach.
const GOAL_PER_S: f64 = 10e6;

/// Who is asked, and how.
#[derive(Clone, Copy)]
enum Contender {
    LarderText,
    LarderResp,
    Redis,
}

/// A part of the suite, and what was published: for poor-man-s-cache and for Redis under the same script.
struct Suite {
    name: &'static str,
    workload: Workload,
    pipeline: usize,
    reuse: Reuse,
    published: &'static str,
}

const ONE_BY_ONE: &str = "above 100,000/s; Redis 120,000/s";

const SUITES: [Suite; 9] = [
    suite("SET", Workload::Set, 1, ONE_BY_ONE),
    suite("GET", Workload::Get, 1, ONE_BY_ONE),
    suite("DEL", Workload::Del, 1, ONE_BY_ONE),
    suite("workflow", Workload::Workflow, 1, ONE_BY_ONE),
    suite("SET in batches", Workload::Set, BATCH, "above 1.0 M/s; Redis 650,000/s"),
    suite("GET in batches", Workload::Get, BATCH, "above 1.5 M/s; Redis 900,000/s"),
    suite("DEL in batches", Workload::Del, BATCH, "above 1.5 M/s; Redis 900,000/s"),
    suite("workflow in batches", Workload::Workflow, BATCH, "3.0 M/s; Redis 1.25 M/s"),
    Suite {
        reuse: Reuse::OnePerBatch,
        ..suite("workflow, a connection each", Workload::Workflow, 1, "none published")
    },
];

const fn suite(name: &'static str, workload: Workload, pipeline: usize, published: &'static str) -> Suite {
    Suite { name, workload, pipeline, reuse: Reuse::KeepOpen, published }
}

const CONTENDERS: [Contender; 3] = [Contender::LarderText, Contender::LarderResp, Contender::Redis];

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Findings, ExperimentError> {
    let servers: Vec<(Contender, Server)> = CONTENDERS
        .into_iter()
        .map(|contender| Ok((contender, contender.start(stage)?)))
        .collect::<Result<_, ExperimentError>>()?;
    let (mut runs, mut expectations) = (Vec::new(), Vec::new());
    for suite in &SUITES {
        let found: Vec<Run> = servers
            .iter()
            .map(|(contender, server)| suite.run(stage, *contender, server))
            .collect::<Result<_, _>>()?;
        expectations.push(suite.beside_published(&found));
        runs.extend(found);
    }
    expectations.extend(runs.iter().map(all_answered));
    expectations
        .extend(runs.iter().filter(|run| run.name.contains("batches")).filter_map(cores_for_the_goal));
    Ok(Findings {
        title: "The suites of poor-man-s-cache",
        description: "Keys and values of key{i} and value{i} size, 96 connections unless told otherwise; rates are the client's, by the \
                      clock, and a workflow counts as three. Published figures are of other machines with 96 processes."
            .to_owned(),
        runs,
        charts: Vec::new(),
        expectations,
    })
}

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Self::LarderText => "Larder, 0x1F",
            Self::LarderResp => "Larder, RESP",
            Self::Redis => "Redis",
        }
    }

    fn start(self, stage: &mut Stage<'_>) -> Result<Server, ExperimentError> {
        let address = free_address()?;
        let mut command = match self {
            Self::LarderText | Self::LarderResp => Command::new(stage.larder()),
            Self::Redis => Command::new(program("redis-server", "redis-server")?),
        };
        let port = address.port().to_string();
        match self {
            Self::LarderResp => {
                command.args([
                    "kv",
                    "--listen",
                    &address.to_string(),
                    "--maxmemory",
                    "4GiB",
                    "--workers",
                    "1",
                ]);
            }
            // As poor-man-s-cache is started.
            Self::LarderText => {
                let metrics = free_address()?.port().to_string();
                let variables =
                    [("SERVER_PORT", &*port), ("METRICS_HOST", "127.0.0.1"), ("METRICS_PORT", &metrics)];
                command.args(["kv", "--maxmemory", "4GiB", "--workers", "1"]).envs(variables);
            }
            Self::Redis => {
                command.args(["--bind", "127.0.0.1", "--port", &port, "--save", ""]);
            }
        }
        stage.start(command, address)
    }
}

impl Suite {
    fn run(&self, stage: &Stage<'_>, contender: Contender, server: &Server) -> Result<Run, ExperimentError> {
        let requests = stage.requests(REQUESTS);
        let per_connection = if self.reuse == Reuse::OnePerBatch { REQUESTS_PER_CONNECTION } else { 1 };
        let load = RespLoad {
            protocol: match contender {
                Contender::LarderText => Protocol::UnitSeparator,
                Contender::LarderResp | Contender::Redis => Protocol::Resp2,
            },
            workload: self.workload,
            key_bytes: 11,
            value_bytes: 13,
            values: Values::OfKey,
            keys: requests,
            choice: Choice::InTurn,
            // What is deleted or asked for was set before; nothing is deleted twice.
            preload: if matches!(self.workload, Workload::Get | Workload::Del) {
                Preload::AllKeys
            } else {
                Preload::Nothing
            },
            connections: stage.connections(CONNECTIONS),
            reuse: self.reuse,
            pipeline: self.pipeline,
            until: Until::Requests((requests / per_connection).max(1)),
            pace: Pace::Closed,
            ..RespLoad::of(server.address)
        };
        resp::prepare(&load)?;
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

    fn beside_published(&self, runs: &[Run]) -> Expectation {
        let rates: Vec<String> = CONTENDERS
            .iter()
            .zip(runs)
            .map(|(contender, run)| format!("{} {:.0}/s", contender.name(), run.requests_per_s))
            .collect();
        Expectation {
            what: format!("{}: poor-man-s-cache {}", self.name, self.published),
            measured: rates.join(", "),
            holds: runs.iter().all(|run| run.errors.total() == 0),
        }
    }
}

/// How many cores the server would need for ten million requests per second, at what each costs it here.
fn cores_for_the_goal(run: &Run) -> Option<Expectation> {
    let us = run.server?.process_cpu_us_per_request?;
    Some(Expectation {
        what: format!("{}: cores for 10 M requests/s", run.name),
        measured: format!("{:.1} cores, at {us:.2} µs each", us * GOAL_PER_S / 1e6),
        holds: true,
    })
}
