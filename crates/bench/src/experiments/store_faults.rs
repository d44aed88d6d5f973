//! Two gateways that share a Redis, which stands still, dies, or has no memory for a while: what clients and the origin see of it.
//!
//! Clients ask both gateways for the same pages, which are hits, and every fifth request is for a page that nobody has asked for.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process};

use crate::origin::pass;
use crate::peers::{self, Client};
use crate::resp;
use crate::result::{Chart, Expectation, Run, Series};
use crate::server::ServerError;

use super::findings::{ExperimentError, Findings, all_answered};
use super::fleet::{
    Answer, Asker, HOST, Kind, Store, latencies_ms, latency_series, percentile, run_of, shared, unanswered,
    visits,
};
use super::samples::{Sample, Sampler, rate_series};
use super::stage::{Server, Stage, io_error, origin_requests};

/// What happens to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Stopped,
    Killed,
    Full,
}

const FAULTS: [Fault; 3] = [Fault::Stopped, Fault::Killed, Fault::Full];

/// What one fault led to.
struct Outage {
    fault: Fault,
    answers: Vec<Answer>,
    origin: Vec<Sample>,
    begin_s: f64,
    end_s: f64,
    /// After the end of the fault, until one gateway had what the other one had fetched since.
    coherent: Option<Duration>,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Killed => "killed",
            Self::Full => "full",
        }
    }
}

const DESCRIPTION: &str = "Two gateways share a Redis. Four clients ask both, 400 times a second in all; every fifth request is \
    for a page that nobody has asked for before. stopped: the server stands still, with its connections. killed: it is gone, and \
    comes back empty. full: it has no memory for anything new.";

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Findings, ExperimentError> {
    let outages = FAULTS.into_iter().map(|fault| outage(fault, stage)).collect::<Result<Vec<_>, _>>()?;
    Ok(Findings {
        title: "Faults of the store",
        description: DESCRIPTION.to_owned(),
        runs: outages.iter().map(Outage::run).collect(),
        charts: outages.iter().flat_map(|outage| [latencies(outage), origin_load(outage)]).collect(),
        expectations: outages.iter().flat_map(expectations).collect(),
    })
}

const BEFORE: Duration = Duration::from_secs(4);
const USUAL_OUTAGE: Duration = Duration::from_secs(8);
const AFTER: Duration = Duration::from_secs(6);
const CLIENTS: usize = 4;
/// Between two requests of a client.
const PACE: Duration = Duration::from_millis(10);
const MISS_EVERY: usize = 5;
const HOT_PAGES: usize = 20;
/// The time of verification of a gateway, by default, and a second.
const COHERENT_MAX: Duration = Duration::from_secs(3);

fn outage(fault: Fault, stage: &mut Stage<'_>) -> Result<Outage, ExperimentError> {
    let origin = stage.origin(&[])?;
    let redis = Store::Redis.start(stage, &[])?;
    let address = redis.address;
    let mut redis = Some(redis);
    let store = shared(address);
    let gateways = [stage.gateway_with(&origin, &store, "")?, stage.gateway_with(&origin, &store, "")?];
    let addresses = gateways.each_ref().map(|gateway| gateway.address);
    let lasts = stage.duration(USUAL_OUTAGE);
    let (begun, all) = (Instant::now(), BEFORE + lasts + AFTER);
    let sampler = Sampler::start(move || origin_requests(origin.address).ok());
    let clients = (0..CLIENTS).map(|number| thread::spawn(move || ask(number, addresses, begun, all)));
    let clients: Vec<_> = clients.collect();
    pass(BEFORE);
    begin(fault, &mut redis, address)?;
    let begin_s = begun.elapsed().as_secs_f64();
    pass(lasts);
    end(fault, &mut redis, address, stage)?;
    let end_s = begun.elapsed().as_secs_f64();
    let coherent = coherent(addresses).map_err(|source| io_error("a gateway does not answer", source))?;
    let answers = clients.into_iter().flat_map(|client| client.join().unwrap_or_default()).collect();
    Ok(Outage { fault, answers, origin: sampler.finish(), begin_s, end_s, coherent })
}

fn begin(fault: Fault, redis: &mut Option<Server>, address: SocketAddr) -> Result<(), ExperimentError> {
    match fault {
        Fault::Stopped => signal(redis.as_ref(), Signal::STOP),
        Fault::Killed => {
            *redis = None;
            Ok(())
        }
        Fault::Full => set_memory(address, b"1mb"),
    }
}

fn end(
    fault: Fault,
    running: &mut Option<Server>,
    address: SocketAddr,
    stage: &mut Stage<'_>,
) -> Result<(), ExperimentError> {
    match fault {
        Fault::Stopped => signal(running.as_ref(), Signal::CONT),
        Fault::Killed => {
            *running = Some(Store::Redis.start_at(address, stage, &[])?);
            Ok(())
        }
        Fault::Full => set_memory(address, b"0"),
    }
}

fn signal(redis: Option<&Server>, signal: Signal) -> Result<(), ExperimentError> {
    let pid = redis.map_or(0, |redis| redis.process.pid());
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(ServerError::NoProcess { pid })?;
    kill_process(process, signal).map_err(|_| ServerError::NoProcess { pid })?;
    Ok(())
}

fn set_memory(redis: SocketAddr, limit: &[u8]) -> Result<(), ExperimentError> {
    let told = resp::Client::connect(redis)
        .and_then(|mut client| client.ask(&[b"CONFIG", b"SET", b"maxmemory", limit]));
    told.map(drop).map_err(unanswered)
}

/// One client, until all is over.
fn ask(number: usize, gateways: [SocketAddr; 2], begun: Instant, all: Duration) -> Vec<Answer> {
    let mut asker = Asker::new(&gateways);
    let visit = |turn| {
        let target = match turn % MISS_EVERY {
            0 => format!("new-{number}-{turn}"),
            _ => format!("hot-{}", turn % HOT_PAGES),
        };
        asker.ask(turn % gateways.len(), &path(&target), &[]).0
    };
    visits(PACE, begun, || begun.elapsed() > all, visit)
}

fn path(target: &str) -> String {
    format!("/items/{target}?cc=max-age=3600")
}

/// Reloads a page at one gateway, and waits until the other one has nothing older, as the origin dates it. It may have something newer: where
/// one is connected again before the other, each asks the origin.
fn coherent(gateways: [SocketAddr; 2]) -> io::Result<Option<Duration>> {
    let returned = Instant::now();
    let [mut one, mut other] =
        [Client::connect_for(HOST, gateways[0])?, Client::connect_for(HOST, gateways[1])?];
    let target = path("hot-1");
    let reloaded = one.get(&target, &["Cache-Control: no-cache"])?;
    let dated = date_of(&reloaded)?;
    while returned.elapsed() < AFTER {
        if date_of(&other.get(&target, &[])?)? >= dated {
            return Ok(Some(returned.elapsed()));
        }
        pass(PACE);
    }
    Ok(None)
}

fn date_of(response: &peers::Answer) -> io::Result<SystemTime> {
    let date = response.field("date").and_then(|date| httpdate::parse_http_date(date).ok());
    date.ok_or_else(|| io::Error::other("a response without Date"))
}

impl Outage {
    /// In milliseconds, in rising order.
    fn latencies_ms(&self, kind: Kind, from_s: f64, to_s: f64) -> Vec<f64> {
        let fits = |answer: &&Answer| answer.kind == kind && (from_s..to_s).contains(&answer.at_s);
        latencies_ms(self.answers.iter().filter(fits))
    }

    fn run(&self) -> Run {
        let load = format!("{CLIENTS} clients, a request every {} ms each", PACE.as_millis());
        run_of(self.fault.name(), &load, self.answers.iter())
    }
}

fn expectations(outage: &Outage) -> Vec<Expectation> {
    let Outage { begin_s, end_s, .. } = *outage;
    let misses = |from_s, to_s| outage.latencies_ms(Kind::Forwarded, from_s, to_s);
    let before = misses(1.0, begin_s);
    let added = |when: &[f64], percent| percentile(when, percent) - percentile(&before, percent);
    // The breaker opens after some failures within a second.
    let opening_end_s = (begin_s + 1.0).min(end_s);
    let (opening, open) = (misses(begin_s, opening_end_s), misses(opening_end_s, end_s));
    let name = outage.fault.name();
    let told = |latencies: &[f64]| {
        format!("{:+.1} ms p50, {:+.1} ms p99", added(latencies, 50), added(latencies, 99))
    };
    vec![
        all_answered(&outage.run()),
        Expectation {
            what: format!("{name}: in the first second a miss waits for two deadlines of 50 ms at most"),
            measured: told(&opening),
            holds: added(&opening, 99) < 110.0,
        },
        Expectation {
            what: format!("{name}: afterwards most misses wait for nothing"),
            measured: told(&open),
            holds: added(&open, 50) < 5.0,
        },
        Expectation {
            what: format!("{name}: a change is seen by the other gateway within {COHERENT_MAX:?} of the end"),
            measured: outage.coherent.map_or_else(|| "not at all".to_owned(), |after| format!("{after:.2?}")),
            holds: outage.coherent.is_some_and(|after| after <= COHERENT_MAX),
        },
    ]
}

fn latencies(outage: &Outage) -> Chart {
    let series = |name: &str, kind, percent| {
        let those = outage.answers.iter().filter(|answer| answer.kind == kind);
        latency_series(name, those, percent)
    };
    chart(
        outage,
        "latency",
        "Latency",
        "Time (ms)",
        vec![
            series("hit, p50", Kind::Hit, 50),
            series("miss, p50", Kind::Forwarded, 50),
            series("miss, p99", Kind::Forwarded, 99),
        ],
    )
}

fn origin_load(outage: &Outage) -> Chart {
    chart(
        outage,
        "origin",
        "Requests at the origin",
        "Requests per second",
        vec![rate_series("origin", &outage.origin)],
    )
}

fn chart(outage: &Outage, id: &str, title: &str, y: &str, series: Vec<Series>) -> Chart {
    let Outage { fault, begin_s, end_s, .. } = outage;
    let name = fault.name();
    let title = format!("{title}, store {name} from {begin_s:.0} s to {end_s:.0} s");
    Chart::over_time(&format!("{id}-{name}"), &title, y, series)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outage(latency_ms: [u64; 3], kind: Kind, coherent: Option<Duration>) -> Outage {
        let answer = |(at_s, latency_ms)| Answer { at_s, kind, latency: Duration::from_millis(latency_ms) };
        let answers = [2.0, 4.5, 8.0].into_iter().zip(latency_ms).map(answer).collect();
        Outage { fault: Fault::Stopped, answers, origin: Vec::new(), begin_s: 4.0, end_s: 12.0, coherent }
    }

    #[track_caller]
    fn check(outage: &Outage, holds: [bool; 4]) {
        let held: Vec<bool> = expectations(outage).iter().map(|expectation| expectation.holds).collect();
        assert_eq!(held, holds);
    }

    #[test]
    fn each_expectation_can_fail() {
        let second = Some(Duration::from_secs(1));
        check(&outage([1, 52, 1], Kind::Forwarded, second), [true; 4]);
        check(&outage([1, 200, 1], Kind::Forwarded, second), [true, false, true, true]);
        check(&outage([1, 52, 52], Kind::Forwarded, second), [true, true, false, true]);
        check(&outage([1, 52, 1], Kind::Forwarded, None), [true, true, true, false]);
        check(&outage([1, 52, 1], Kind::Forwarded, Some(Duration::from_secs(4))), [true, true, true, false]);
        check(&outage([1, 52, 1], Kind::Failed, second), [false, true, true, true]);
    }
}
