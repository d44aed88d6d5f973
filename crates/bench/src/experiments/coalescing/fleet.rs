//! The coalescing experiment for several gateways that share a store, and URLs that expire every second.
//!
//! A hundred clients request each URL at all gateways, 500 times a second together. While the origin is busy, each gateway without
//! collapsing forwards every request, each gateway with `process` forwards one, and all gateways with `fleet` forward one together.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::pause::pass;
use crate::progress::Progress;
use crate::random::SplitMix;
use crate::result::{Chart, Expectation, Run, Series};

use super::super::findings::{ExperimentError, Findings, all_answered};
use super::super::fleet::{
    Answer, Asker, Kind, RoundTrips, Store, are_one, latencies_ms, percentile, run_of, shared_patiently,
};
use super::super::samples::{Sample, Sampler, growth, rate_series};
use super::super::stage::{Server, Stage, origin_requests};

/// Gateways, and their `collapse` setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    collapse: &'static str,
    instances: usize,
    store: Option<Store>,
}

/// A load on the gateways of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    setting: Setting,
    urls: usize,
}

impl Case {
    fn name(&self) -> String {
        let Setting { collapse, instances, store } = self.setting;
        let store = if store == Some(Store::LarderKv) { " kv" } else { "" };
        let plural = if self.urls == 1 { "" } else { "s" };
        format!("{collapse} x{instances}{store}, {} URL{plural}", self.urls)
    }

    /// Until 300 responses have expired with `fleet`; shorter for the other settings.
    fn usual_duration(&self) -> Duration {
        let expiries = if self.setting.collapse == "fleet" { EXPIRIES / self.urls } else { 0 };
        Duration::from_millis(CYCLE_MS * expiries as u64).max(Duration::from_secs(30))
    }
}

/// Numbers of concurrent URLs in the loads of each setting.
const URLS: [usize; 2] = [1, 20];
const EXPIRIES: usize = 300;
/// Time between two requests at the origin: a second of freshness, the time until the next request, and the origin's delay.
const CYCLE_MS: u64 = 1_100;
const DELAY_MS: u64 = 150;
const CLIENTS: usize = 100;
/// Interval between the requests of a client: 500 a second for all clients.
const PACE: Duration = Duration::from_millis(200);

fn settings(instances: usize) -> [Setting; 5] {
    let of = |collapse, instances, store| Setting { collapse, instances, store };
    [
        of("off", instances, Some(Store::Redis)),
        of("process", 1, None),
        of("process", instances, Some(Store::Redis)),
        of("fleet", instances, Some(Store::Redis)),
        of("fleet", instances, Some(Store::LarderKv)),
    ]
}

/// An answer, and the URL it belongs to.
#[derive(Clone, Copy)]
struct Told {
    url: usize,
    answer: Answer,
}

/// Result of a case.
struct Outcome {
    case: Case,
    told: Vec<Told>,
    origin: Vec<Sample>,
    /// Median round trip to the store.
    round_trip_ms: f64,
}

pub(super) fn run(instances: usize, stage: &mut Stage<'_>) -> Result<Findings, ExperimentError> {
    let mut outcomes = Vec::new();
    for setting in settings(instances) {
        outcomes.extend(loads(setting, stage)?);
    }
    outcomes.sort_by_key(|outcome| outcome.case.urls);
    Ok(Findings {
        title: "Coalescing in a fleet",
        description: format!(
            "{CLIENTS} clients ask for 1 or 20 URLs at all gateways, 500 times a second. The origin takes {DELAY_MS} ms and allows a \
             second of freshness. off: every request that finds the stored response stale goes to the origin. process: one of each \
             gateway does. fleet: one of all gateways does. They share a Redis, or (kv) a larder kv. Hits, requests that waited for \
             another one, and those that were forwarded."
        ),
        runs: outcomes.iter().flat_map(Outcome::runs).collect(),
        charts: URLS.map(|urls| chart(urls, &outcomes)).into(),
        expectations: expectations(&outcomes),
    })
}

fn loads(setting: Setting, stage: &mut Stage<'_>) -> Result<Vec<Outcome>, ExperimentError> {
    let origin = stage.origin(&[])?;
    // A single gateway has no store, but round trips are measured in any case.
    let store = setting.store.unwrap_or(Store::Redis).start(stage)?;
    let tables = setting.store.map_or(String::new(), |_| shared_patiently(store.address));
    let site = format!("collapse = \"{}\"", setting.collapse);
    let gateways: Vec<Server> = (0..setting.instances)
        .map(|_| stage.gateway_with(&origin, &tables, &site))
        .collect::<Result<_, _>>()?;
    if setting.store.is_some() {
        are_one(&gateways)?;
    }
    let gateways: Vec<SocketAddr> = gateways.iter().map(|gateway| gateway.address).collect();
    URLS.map(|urls| load(Case { setting, urls }, stage, origin.address, store.address, &gateways))
        .into_iter()
        .collect()
}

fn load(
    case: Case,
    stage: &Stage<'_>,
    origin: SocketAddr,
    store: SocketAddr,
    gateways: &[SocketAddr],
) -> Result<Outcome, ExperimentError> {
    let lasts = stage.duration(case.usual_duration());
    let mut round_trips = RoundTrips::to(store)?;
    let progress = Progress::of_time(&case.name(), lasts, stage.settings.progress);
    let sampler = Sampler::start(move || origin_requests(origin).ok());
    let begun = Instant::now();
    let clients = (0..CLIENTS).map(|number| {
        let mut asker = Asker::new(gateways[number / case.urls % gateways.len()]);
        thread::spawn(move || ask(number, case.urls, &mut asker, begun, lasts))
    });
    let clients: Vec<_> = clients.collect();
    while begun.elapsed() < lasts {
        round_trips.ask()?;
        pass(Duration::from_millis(20));
    }
    let told = clients.into_iter().flat_map(|client| client.join().unwrap_or_default()).collect();
    progress.finish();
    Ok(Outcome { case, told, origin: sampler.finish(), round_trip_ms: round_trips.median_ms() })
}

/// Runs one client until the end of the load. The origin sends no `Date`, whose whole seconds could take up to one second off the
/// freshness. Requests of all clients are spread evenly, each with a small offset: in step with the origin, all of them would
/// arrive at the same points of its delay.
fn ask(number: usize, urls: usize, asker: &mut Asker, begun: Instant, lasts: Duration) -> Vec<Told> {
    let url = number % urls;
    let path = format!("/items/{urls}-{url}?delay={DELAY_MS}&cc=max-age=1&date=off");
    let slot = PACE / CLIENTS as u32;
    let mut random = SplitMix::new(number as u64);
    let mut told = Vec::new();
    for turn in 0.. {
        let off = Duration::from_nanos(random.next() % slot.as_nanos() as u64);
        let due = slot * number as u32 + PACE * turn + off;
        if due >= lasts {
            break;
        }
        pass(due.saturating_sub(begun.elapsed()));
        let kind = asker.ask(&path);
        let answer = Answer { at_s: due.as_secs_f64(), kind, latency: begun.elapsed().saturating_sub(due) };
        told.push(Told { url, answer });
    }
    told
}

/// Forwards that are answered closer together than this belong to the same expiry.
const SAME_EXPIRY_S: f64 = 0.5;

impl Outcome {
    fn answers(&self) -> impl Iterator<Item = &Answer> {
        self.told.iter().map(|told| &told.answer)
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &Answer> {
        self.answers().filter(move |answer| answer.kind == kind)
    }

    fn runs(&self) -> Vec<Run> {
        let name = self.case.name();
        let kinds = [("hits", Kind::Hit), ("waiters", Kind::Waited), ("forwarded", Kind::Forwarded)];
        let run = |(what, kind)| run_of(&format!("{name}: {what}"), LOAD, self.of(kind));
        kinds.into_iter().map(run).filter(|run| run.requests > 0).collect()
    }

    /// Median latency of waiters, in milliseconds.
    fn wait_ms(&self) -> f64 {
        percentile(&latencies_ms(self.of(Kind::Waited)), 50)
    }

    /// Number of times that a response was missing or had expired, according to the forwarded requests.
    fn expiries(&self) -> u64 {
        let of_url = |url| {
            let forwarded =
                self.told.iter().filter(|told| told.url == url && told.answer.kind == Kind::Forwarded);
            // Uses the time of the answer: on a busy machine, a client may be seconds late with its request.
            let answered_s = |told: &Told| told.answer.at_s + told.answer.latency.as_secs_f64();
            let mut at: Vec<f64> = forwarded.map(answered_s).collect();
            at.sort_by(f64::total_cmp);
            let gaps = at.windows(2).filter(|pair| pair[1] - pair[0] > SAME_EXPIRY_S).count();
            if at.is_empty() { 0 } else { gaps as u64 + 1 }
        };
        (0..self.case.urls).map(of_url).sum()
    }
}

const LOAD: &str = "100 clients, 500 requests a second";

fn expectations(outcomes: &[Outcome]) -> Vec<Expectation> {
    let whole = |outcome: &Outcome| all_answered(&run_of(&outcome.case.name(), LOAD, outcome.answers()));
    let mut expectations: Vec<_> = outcomes.iter().map(whole).collect();
    expectations.extend(outcomes.iter().filter_map(origin_requests_per_expiry));
    for urls in outcomes.chunk_by(|one, next| one.case.urls == next.case.urls) {
        let Some(alone) = urls.iter().find(|outcome| outcome.case.setting.instances == 1) else { continue };
        let fleets = urls.iter().filter(|outcome| outcome.case.setting.collapse == "fleet");
        expectations.extend(fleets.map(|fleet| waits_as_alone(fleet, alone)));
    }
    expectations
}

/// At most one request of each gateway, or of all together. Without collapsing there is no limit to judge.
fn origin_requests_per_expiry(outcome: &Outcome) -> Option<Expectation> {
    let each = match outcome.case.setting.collapse {
        "off" => return None,
        "process" => outcome.case.setting.instances as u64,
        _ => 1,
    };
    let (requests, expiries) = (growth(&outcome.origin), outcome.expiries());
    let tolerated = expiries.div_ceil(EXPIRIES as u64);
    let most = if each == 1 { "one".to_owned() } else { format!("at most {each}") };
    Some(Expectation {
        what: format!(
            "{}: {most} origin request for each expiry, within 1 of {EXPIRIES}",
            outcome.case.name()
        ),
        measured: format!("{requests} origin requests for {expiries} expiries"),
        holds: expiries > 0 && requests + tolerated >= expiries && requests <= expiries * each + tolerated,
    })
}

fn waits_as_alone(fleet: &Outcome, alone: &Outcome) -> Expectation {
    let (own, others, round_trip) = (fleet.wait_ms(), alone.wait_ms(), fleet.round_trip_ms);
    Expectation {
        what: format!(
            "{}: waiters' p50 at most that of one gateway, 2 round trips and 1 ms",
            fleet.case.name()
        ),
        measured: format!("{own:.2} ms, {others:.2} ms alone, a round trip {round_trip:.2} ms"),
        holds: own > 0.0 && own <= others + 2.0 * round_trip + 1.0,
    }
}

fn chart(urls: usize, outcomes: &[Outcome]) -> Chart {
    let those = outcomes.iter().filter(|outcome| outcome.case.urls == urls);
    let series: Vec<Series> =
        those.map(|outcome| rate_series(&outcome.case.name(), &outcome.origin)).collect();
    Chart::over_time(
        &format!("origin-{urls}"),
        &format!("Requests at the origin, URLs: {urls}"),
        "Requests per second",
        series,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Forwards at these times, this many requests at the origin, and a waiter.
    fn outcome(collapse: &'static str, instances: usize, at_s: &[f64], origin: u64, wait_ms: u64) -> Outcome {
        let case = Case { setting: Setting { collapse, instances, store: None }, urls: 1 };
        let told = |(at_s, kind, ms)| Told {
            url: 0,
            answer: Answer { at_s, kind, latency: Duration::from_millis(ms) },
        };
        let forwards = at_s.iter().map(|at_s| told((*at_s, Kind::Forwarded, 1)));
        let told = forwards.chain([told((0.0, Kind::Waited, wait_ms))]).collect();
        let origin = [0, origin].map(|total| Sample { at_s: 0.0, total }).into();
        Outcome { case, told, origin, round_trip_ms: 0.5 }
    }

    #[track_caller]
    fn check(outcomes: &[Outcome], holds: &[bool]) {
        let held: Vec<bool> = expectations(outcomes).iter().map(|expectation| expectation.holds).collect();
        assert_eq!(held, holds);
    }

    #[test]
    fn each_expectation_can_fail() {
        let alone = || outcome("process", 1, &[0.0, 1.2], 2, 75);
        check(&[alone(), outcome("fleet", 4, &[0.0, 1.2], 2, 77)], &[true; 5]);
        // The waiters are late; the origin has three more requests than there were expiries; one request of a client has failed.
        check(&[alone(), outcome("fleet", 4, &[0.0, 1.2], 2, 78)], &[true, true, true, true, false]);
        check(&[alone(), outcome("fleet", 4, &[0.0, 0.1, 1.2], 5, 77)], &[true, true, true, false, true]);
        check(&[outcome("process", 4, &[0.0, 1.2], 9, 75)], &[true, true]);
        check(&[outcome("process", 4, &[0.0, 1.2], 10, 75)], &[true, false]);
        check(&[outcome("off", 4, &[0.0], 100, 75)], &[true]);
        let mut failed = outcome("off", 4, &[0.0], 100, 75);
        failed.told[0].answer.kind = Kind::Failed;
        check(&[failed], &[false]);
    }
}
