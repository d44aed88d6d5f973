//! Gateways that share a store, and clients with one request at a time.

use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::pause::pass;
use crate::peers::{self, Client};
use crate::resp;
use crate::result::{Errors, Latencies, Run};

use super::findings::ExperimentError;
use super::stage::{Server, Stage, free_address, io_error, metric, program};

/// The same at all gateways, since it is part of the cache key.
pub(super) const HOST: &str = "shop.test";

/// Enough memory for everything that an experiment stores.
pub(super) const KV_MEMORY: [&str; 2] = ["--maxmemory", "4GiB"];

/// The kind of shared store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    Redis,
    LarderKv,
}

impl Store {
    /// Starts the store on a free port.
    pub(super) fn start(self, stage: &mut Stage<'_>) -> Result<Server, ExperimentError> {
        let address = free_address()?;
        let command = match self {
            Self::Redis => {
                let mut command = Command::new(program("redis-server", "redis-server")?);
                let port = address.port().to_string();
                command.args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--dir"]);
                command.arg(stage.new_folder()?);
                command
            }
            Self::LarderKv => {
                let mut command = Command::new(&stage.settings.larder);
                command.args(["kv", "--workers", "1", "--listen", &address.to_string()]).args(KV_MEMORY);
                command
            }
        };
        stage.start(command, address)
    }
}

/// Configuration that shares the store at this address.
pub(super) fn shared(store: SocketAddr) -> String {
    format!("[store]\nremote = \"redis://{store}/0\"")
}

/// Configuration that shares the store, with time limits that a busy machine can keep: a gateway that has given up on a store
/// forwards by itself, as it should.
pub(super) fn shared_patiently(store: SocketAddr) -> String {
    format!("[store.remote]\nurl = \"redis://{store}/0\"\nrecord_timeout = \"5s\"\nconnect_timeout = \"10s\"")
}

/// Waits until all gateways know each other. Until then, each is a cache of its own.
pub(super) fn are_one(gateways: &[Server]) -> Result<(), ExperimentError> {
    let all = gateways.len() as u64;
    gateways.iter().try_for_each(|gateway| until(gateway, "larder_tier_instances", all))
}

/// Waits until a gateway's write-behind queue is flushed.
pub(super) fn is_written(gateway: &Server) -> Result<(), ExperimentError> {
    until(gateway, "larder_tier_pending_keys", 0)
}

/// Waits until a metric of a gateway has this value.
pub(super) fn until(gateway: &Server, name: &str, wanted: u64) -> Result<(), ExperimentError> {
    let begun = Instant::now();
    while gateway.admin.and_then(|admin| metric(admin, name).ok()) != Some(wanted) {
        if begun.elapsed() > PATIENCE {
            let what = format!("{name} of {} is not {wanted}", gateway.address);
            return Err(io_error(&what, io::ErrorKind::TimedOut.into()));
        }
        pass(Duration::from_millis(20));
    }
    Ok(())
}

const PATIENCE: Duration = Duration::from_secs(20);

/// One answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) at_s: f64,
    pub(super) kind: Kind,
    pub(super) latency: Duration,
}

/// Outcome according to `Cache-Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Hit,
    /// Waited for the fetch of another request.
    Waited,
    Forwarded,
    Failed,
}

impl Kind {
    fn of(answer: &peers::Answer) -> Self {
        let said = answer.field("cache-status").unwrap_or_default();
        match answer.status {
            200 if said.contains("; hit") => Self::Hit,
            200 if said.contains("; collapsed") => Self::Waited,
            200 => Self::Forwarded,
            _ => Self::Failed,
        }
    }
}

/// One client of a gateway.
pub(super) struct Asker {
    gateway: SocketAddr,
    client: Option<Client>,
}

impl Asker {
    pub(super) fn new(gateway: SocketAddr) -> Self {
        Self { gateway, client: Client::connect_for(HOST, gateway).ok() }
    }

    pub(super) fn ask(&mut self, path: &str) -> Kind {
        let answer = self.client.as_mut().and_then(|client| client.get(path, &[]).ok());
        if answer.is_none() {
            self.client = Client::connect_for(HOST, self.gateway).ok();
        }
        answer.as_ref().map_or(Kind::Failed, Kind::of)
    }
}

/// A connection to a store, which measures round trips.
pub(super) struct RoundTrips {
    client: resp::Client,
    taken_us: Vec<f64>,
}

impl RoundTrips {
    pub(super) fn to(store: SocketAddr) -> Result<Self, ExperimentError> {
        let client = resp::Client::connect(store).map_err(unanswered)?;
        Ok(Self { client, taken_us: Vec::new() })
    }

    /// Measures one more round trip.
    pub(super) fn ask(&mut self) -> Result<(), ExperimentError> {
        let asked = Instant::now();
        self.client.ask(&[b"PING"]).map_err(unanswered)?;
        self.taken_us.push(asked.elapsed().as_secs_f64() * 1e6);
        Ok(())
    }

    /// The median round trip, in milliseconds.
    pub(super) fn median_ms(mut self) -> f64 {
        self.taken_us.sort_by(f64::total_cmp);
        percentile(&self.taken_us, 50) / 1e3
    }
}

pub(super) fn unanswered(source: io::Error) -> ExperimentError {
    io_error("the store does not answer", source)
}

/// Latencies in milliseconds, in rising order.
pub(super) fn latencies_ms<'a>(answers: impl Iterator<Item = &'a Answer>) -> Vec<f64> {
    let mut latencies: Vec<f64> = answers.map(|answer| answer.latency.as_secs_f64() * 1e3).collect();
    latencies.sort_by(f64::total_cmp);
    latencies
}

/// The value that `percent` of the values don't exceed, as in the latencies of a run.
pub(super) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// Summarises the answers of a load as a run.
pub(super) fn run_of<'a>(name: &str, load: &str, answers: impl Iterator<Item = &'a Answer>) -> Run {
    let (mut latencies, mut failed, mut elapsed_s) = (Latencies::default(), 0, 0.0_f64);
    for answer in answers {
        latencies.record_time(answer.latency);
        failed += u64::from(answer.kind == Kind::Failed);
        elapsed_s = elapsed_s.max(answer.at_s);
    }
    let requests = latencies.count() - failed;
    Run {
        name: name.to_owned(),
        target: "gateways".to_owned(),
        load: load.to_owned(),
        elapsed_s,
        requests,
        requests_per_s: if elapsed_s > 0.0 { requests as f64 / elapsed_s } else { 0.0 },
        errors: Errors { wrong: failed, ..Errors::default() },
        latency: latencies.summary(),
        ..Run::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_run() {
        for count in [1, 2, 3, 100, 101, 1000] {
            let answer = |at| Answer { at_s: 0.0, kind: Kind::Hit, latency: Duration::from_millis(at) };
            let answers: Vec<Answer> = (1..=count).map(answer).collect();
            let (sorted, of_run) = (latencies_ms(answers.iter()), run_of("", "", answers.iter()).latency);
            for (percent, us) in [(50, of_run.p50_us), (90, of_run.p90_us), (99, of_run.p99_us)] {
                let (own_ms, ms) = (percentile(&sorted, percent), us as f64 / 1e3);
                assert!((own_ms - ms).abs() < 0.002 * ms, "p{percent} of {count}: {own_ms} and {ms} ms");
            }
        }
        assert_eq!(percentile(&[], 99), 0.0);
    }
}
