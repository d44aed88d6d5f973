//! Load generators side by side on one target: ours must agree with the others, and must see the stalls that they miss.
//!
//! Each generator is its own process on the client's core, started as its user would start it. The target runs on the server's core.

mod figures;
mod target;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use bench::programs;
use bench::server::{ServerProbe, Spent};
use serde::Serialize;

use self::figures::Figures;
pub(crate) use self::figures::of_redis_benchmark;
use self::target::Target;
use crate::Effort;
use crate::output;
use crate::plan::What;
use crate::row::{Row, Subject};
use crate::stage::{CLIENT_CORE, SERVER_CORE};

/// A generator, and the kind of load that it makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Generator {
    BenchHttp,
    /// An open loop.
    BenchHttpRate,
    Wrk,
    Ab,
    BenchResp,
    RedisBenchmark,
}

/// Generators that make the same load.
struct Scenario {
    title: &'static str,
    target: Target,
    generators: &'static [Generator],
    /// Pipelined commands on each connection, if the generator supports pipelining.
    pipeline: u32,
    measures: &'static [Measure],
}

/// A figure in the table.
#[derive(Clone, Copy)]
struct Measure {
    name: &'static str,
    unit: &'static str,
    of: fn(&Outcome) -> f64,
}

const fn measure_of(name: &'static str, unit: &'static str, of: fn(&Outcome) -> f64) -> Measure {
    Measure { name, unit, of }
}

const PER_SECOND: Measure = measure_of("requests/s", "", |outcome| outcome.told.per_second);
const MEAN: Measure = measure_of("mean latency", "µs", |outcome| outcome.told.mean_us);
const P50: Measure = measure_of("p50", "µs", |outcome| outcome.told.p50_us);
const P99: Measure = measure_of("p99", "µs", |outcome| outcome.told.p99_us);
const MAX: Measure = measure_of("longest", "µs", |outcome| outcome.told.max_us);

const AGREEMENT: &[Measure] = &[
    PER_SECOND,
    measure_of("server's core time per request", "µs", |outcome| outcome.server_core_us),
    measure_of("generator's core time per request", "µs", |outcome| outcome.generator_core_us),
    MEAN,
    P50,
    P99,
    // Mean number of requests in flight as the generator sees it (Little's law). If it is lower than the concurrency, part of the
    // time is missing from the latencies.
    measure_of("mean latency x rate", "", |outcome| outcome.told.mean_us * outcome.told.per_second / 1e6),
];

const SCENARIOS: [Scenario; 4] = [
    Scenario {
        title: "generators: null server, HTTP/1.1, 64 connections",
        target: Target::NullHttp,
        generators: &[Generator::BenchHttp, Generator::Wrk, Generator::Ab],
        pipeline: 1,
        measures: AGREEMENT,
    },
    Scenario {
        title: "generators: Redis, SET, 50 connections",
        target: Target::Redis,
        generators: &[Generator::BenchResp, Generator::RedisBenchmark],
        pipeline: 1,
        measures: AGREEMENT,
    },
    Scenario {
        title: "generators: Redis, SET, 50 connections, 16 commands at a time",
        target: Target::Redis,
        generators: &[Generator::BenchResp, Generator::RedisBenchmark],
        pipeline: 16,
        measures: AGREEMENT,
    },
    Scenario {
        title: "generators: null server that stands still for 100 ms in each second",
        target: Target::StallingNullHttp,
        generators: &[Generator::BenchHttpRate, Generator::BenchHttp, Generator::Wrk, Generator::Ab],
        pipeline: 1,
        measures: &[P99, MEAN, P50, MAX, PER_SECOND],
    },
];

/// # Errors
/// Returns an error if a target or a generator doesn't run, or a generator's output can't be parsed.
pub(crate) fn measure(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let bench = programs::larder_bench();
    SCENARIOS.iter().map(|scenario| scenario.measure(&bench, effort)).collect()
}

impl Scenario {
    fn measure(&self, bench: &Path, effort: Effort) -> anyhow::Result<Row> {
        let target = self.target.start(bench)?;
        let measures: Vec<_> = self.measures.iter().map(|measure| (measure.name, measure.unit)).collect();
        let mut row = Row::new(What::Generators, self.title, &measures);
        let seconds = effort.seconds_each;
        let ask = Ask { bench, address: target.address, seconds, pipeline: self.pipeline };
        for _ in output::rounds(self.title, effort.rounds) {
            for generator in self.generators {
                let outcome = generator.run(&ask).with_context(|| generator.title())?;
                let figures = self.measures.iter().map(|measure| (measure.of)(&outcome)).collect();
                row.add(Subject::Generator(*generator), figures, outcome.told.errors);
            }
        }
        Ok(row)
    }
}

/// The settings that all generators of a scenario get.
struct Ask<'a> {
    /// Path of `larder-bench`.
    bench: &'a Path,
    address: SocketAddr,
    seconds: u32,
    pipeline: u32,
}

/// The figures that a generator reported, and its cost.
struct Outcome {
    told: Figures,
    server_core_us: f64,
    generator_core_us: f64,
}

/// Rate of the open loop: far below the capacity of the null server.
const RATE: u32 = 5000;
/// More than any server here answers in a run, for generators that require a number beside a duration.
const REQUESTS_MAX: u32 = 5_000_000;
/// For generators that take no duration: about the rate of Redis on one core.
const COMMANDS_PER_SECOND: u32 = 80_000;

/// `redis-benchmark` on a server, with values of the same size as ours and output for programs.
pub(crate) fn redis_benchmark(address: SocketAddr, load: &str) -> Command {
    let (host, port) = (address.ip(), address.port());
    let arguments = format!("-h {host} -p {port} {load} -d 12 -c 50 --precision 3 --csv");
    let mut command = Command::new("redis-benchmark");
    command.args(arguments.split_whitespace());
    command
}

impl Generator {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::BenchHttp => "larder-bench http",
            Self::BenchHttpRate => "larder-bench http --rate 5000",
            Self::Wrk => "wrk",
            Self::Ab => "ab",
            Self::BenchResp => "larder-bench resp",
            Self::RedisBenchmark => "redis-benchmark",
        }
    }

    /// Whether the generator is one of Larder's.
    pub(crate) fn is_own(self) -> bool {
        matches!(self, Self::BenchHttp | Self::BenchHttpRate | Self::BenchResp)
    }

    fn run(self, ask: &Ask<'_>) -> anyhow::Result<Outcome> {
        let server = ServerProbe::new(&[], Some(SERVER_CORE))?.begin()?;
        let own = ServerProbe::new(&[], Some(CLIENT_CORE))?.begin()?;
        let output = self.command(ask).output().context("it can't be started")?;
        let (server, own) = (server.end()?, own.end()?);
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "it ended with {}: {errors}", output.status);
        let text = String::from_utf8_lossy(&output.stdout);
        let told = self.read(&text).with_context(|| format!("its output has an unknown form:\n{text}"))?;
        let requests = self.requests(ask).map_or(told.requests, f64::from);
        ensure!(requests > 0.0, "not one request was answered");
        let per_request = |spent: Spent| spent.core_busy_us.map(|us| us / requests);
        let times = per_request(server).zip(per_request(own));
        let (server_core_us, generator_core_us) = times.context("the cores were watched")?;
        Ok(Outcome { told, server_core_us, generator_core_us })
    }

    fn command(self, ask: &Ask<'_>) -> Command {
        let Ask { bench, address, seconds, pipeline } = ask;
        let (program, arguments) = match self {
            Self::BenchHttp => {
                (*bench, format!("http http://{address}/ -c 64 -d {seconds}s --quiet --json -"))
            }
            Self::BenchHttpRate => {
                (*bench, format!("http http://{address}/ -c 64 --rate {RATE} -d {seconds}s --quiet --json -"))
            }
            Self::Wrk => (Path::new("wrk"), format!("-t 1 -c 64 -d {seconds}s --latency http://{address}/")),
            Self::Ab => (
                Path::new("ab"),
                format!("-k -q -t {seconds} -n {REQUESTS_MAX} -c 64 -e /dev/stdout http://{address}/"),
            ),
            Self::BenchResp => (
                *bench,
                format!(
                    "resp {address} --workload set --keys 10000 -c 50 --pipeline {pipeline} -d {seconds}s --quiet --json -"
                ),
            ),
            Self::RedisBenchmark => {
                let requests = self.requests(ask).unwrap_or_default();
                return redis_benchmark(*address, &format!("-t set -r 10000 -P {pipeline} -n {requests}"));
            }
        };
        let mut command = Command::new(program);
        command.args(arguments.split_whitespace());
        command
    }

    /// Number of requests, for generators that take no duration.
    fn requests(self, ask: &Ask<'_>) -> Option<u32> {
        (self == Self::RedisBenchmark).then_some(ask.seconds * COMMANDS_PER_SECOND * ask.pipeline.min(8))
    }

    fn read(self, text: &str) -> Option<Figures> {
        match self {
            Self::BenchHttp | Self::BenchHttpRate | Self::BenchResp => figures::of_bench(text),
            Self::Wrk => figures::of_wrk(text),
            Self::Ab => figures::of_ab(text),
            Self::RedisBenchmark => of_redis_benchmark(text),
        }
    }
}
