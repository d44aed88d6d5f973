//! Ten times the requests that an origin can answer: whether its limit holds, what becomes of hits, and of requests that find no place.

use std::thread;
use std::time::{Duration, Instant};

use crate::origin::{page, pass};
use crate::progress::Progress;
use crate::result::{Chart, Expectation, Run};

use super::findings::{ExperimentError, Findings};
use super::fleet::{Answer, Asker, Kind, latencies_ms, latency_series, percentile, run_of, visits};
use super::samples::{Sample, Sampler, rate_series};
use super::stage::{Gateway, Server, Stage, own_origin};

/// Requests at the origin at the same time.
const PLACES: u64 = 4;
const QUEUE: usize = 16;
/// Of the origin for each request.
const TAKES: Duration = Duration::from_millis(50);
const CAPACITY_PER_S: f64 = PLACES as f64 * 1e3 / TAKES.as_millis() as f64;
const PACE: Duration = Duration::from_millis(100);
/// Some of them wait in the queue and ask less often: those who are left still send ten times what the origin can answer.
const CLIENTS: usize = 110;
const HIT_CLIENTS: usize = 20;
const USUAL_DURATION: Duration = Duration::from_secs(300);
/// Hits alone, at most.
const IDLE_MAX: Duration = Duration::from_secs(30);
const RECOVERED_MAX: Duration = Duration::from_secs(5);
const REFUSED_MS_MAX: f64 = 50.0;
const HIT_MS_MORE: f64 = 5.0;

const HIT_PAGES: usize = 8;

const DESCRIPTION: &str = "The origin takes 50 ms for a request, and requests_in_flight_max is 4, so that it can answer 80 requests a second. 110 clients \
    ask for pages that may not be stored, 10 times a second each, unless they wait: 16 of them fit into the queue, the others are refused. 20 \
    more ask for stored pages, 10 times a second each: first alone (idle), then during the overload.";

/// What came of it.
#[derive(Default)]
struct Outcome {
    idle: Vec<Answer>,
    hits: Vec<Answer>,
    /// To requests that no stored response answers.
    others: Vec<Answer>,
    /// Requests at the origin.
    samples: Vec<Sample>,
    /// There at the same time.
    most: u64,
    lasted_s: f64,
    /// After the end of the load, until a request takes no longer than the origin does.
    recovered: Option<Duration>,
}

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Findings, ExperimentError> {
    let outcome = outcome(stage)?;
    Ok(Findings {
        title: "Overload",
        description: DESCRIPTION.to_owned(),
        runs: outcome.runs(),
        charts: charts(&outcome),
        expectations: expectations(&outcome).into(),
    })
}

fn outcome(stage: &mut Stage<'_>) -> Result<Outcome, ExperimentError> {
    let origin = own_origin(|target, _| {
        pass(TAKES);
        page("200 OK", if target.starts_with("/hit") { "max-age=3600" } else { "no-store" })
    })?;
    // All clients have one address here.
    let sites = format!(
        "[[origin]]\nname = \"app\"\nurl = \"http://{}\"\n[origin.pool]\nrequests_in_flight_max = {PLACES}\n\
         queue_max = {QUEUE}\nclient_share_percent = 100\n[[site]]\nname = \"experiment\"\norigin = \"app\"\n",
        origin.address
    );
    let gateway = stage.gateway_as(Gateway { sites: &sites, ..Gateway::default() })?;
    let lasts = stage.duration(USUAL_DURATION);
    let progress = Progress::of_time("overload", lasts, stage.settings.progress);
    let mut asker = Asker::new(&[gateway.address]);
    (0..HIT_PAGES).for_each(|page| _ = asker.ask(0, &hit(page), &[]));
    let (idle, _) = load(&gateway, 0, lasts.min(IDLE_MAX));
    let counted = origin.clone();
    let sampler = Sampler::start(move || Some(counted.requests()));
    let begun = Instant::now();
    let (hits, others) = load(&gateway, CLIENTS, lasts);
    let lasted_s = begun.elapsed().as_secs_f64();
    let recovered = recovered(&mut asker, begun + lasts);
    progress.finish();
    Ok(Outcome { idle, hits, others, samples: sampler.finish(), most: origin.most(), lasted_s, recovered })
}

fn hit(page: usize) -> String {
    format!("/hit/{page}")
}

/// What clients for hits got, and those for pages that are not stored.
fn load(gateway: &Server, others: usize, lasts: Duration) -> (Vec<Answer>, Vec<Answer>) {
    let begun = Instant::now();
    let client = |number: usize, target: fn(usize) -> String| {
        let mut asker = Asker::new(&[gateway.address]);
        // Not all at the same moment.
        pass(PACE * number as u32 / CLIENTS as u32);
        visits(
            PACE,
            begun,
            || begun.elapsed() > lasts,
            |turn| asker.ask(0, &target(number + turn * CLIENTS), &[]).0,
        )
    };
    thread::scope(|scope| {
        let all = |count, target: fn(usize) -> String| {
            (0..count).map(|number| scope.spawn(move || client(number, target))).collect::<Vec<_>>()
        };
        let loads = [all(HIT_CLIENTS, |number| hit(number % HIT_PAGES)), all(others, other)];
        let [hits, others] =
            loads.map(|load| load.into_iter().flat_map(|client| client.join().unwrap_or_default()).collect());
        (hits, others)
    })
}

fn other(number: usize) -> String {
    format!("/other/{number}")
}

fn recovered(asker: &mut Asker, ended: Instant) -> Option<Duration> {
    while ended.elapsed() < 2 * RECOVERED_MAX {
        let asked = Instant::now();
        let (kind, _) = asker.ask(0, &other(0), &[]);
        if kind == Kind::Forwarded && asked.elapsed() < 2 * TAKES {
            return Some(asked.saturating_duration_since(ended));
        }
    }
    None
}

impl Outcome {
    fn of(&self, kind: Kind) -> impl Iterator<Item = &Answer> {
        self.others.iter().filter(move |answer| answer.kind == kind)
    }

    fn runs(&self) -> Vec<Run> {
        let load = |clients| format!("{clients} clients, a request every {} ms each", PACE.as_millis());
        // That they are refused is what is wanted here.
        let refused = self.of(Kind::Refused).map(|answer| Answer { kind: Kind::Forwarded, ..*answer });
        let refused: Vec<Answer> = refused.collect();
        vec![
            run_of("hits, idle", &load(HIT_CLIENTS), self.idle.iter()),
            run_of("hits", &load(HIT_CLIENTS), self.hits.iter()),
            run_of("forwarded", &load(CLIENTS), self.of(Kind::Forwarded)),
            run_of("refused", &load(CLIENTS), refused.iter()),
        ]
    }
}

fn expectations(outcome: &Outcome) -> [Expectation; 7] {
    let p99_ms = |answers: &mut dyn Iterator<Item = &Answer>| percentile(&latencies_ms(answers), 99);
    let (idle, hits) = (p99_ms(&mut outcome.idle.iter()), p99_ms(&mut outcome.hits.iter()));
    let refused_ms = p99_ms(&mut outcome.of(Kind::Refused));
    let per_s = |count: usize| count as f64 / outcome.lasted_s;
    let (all, answered) = (per_s(outcome.others.len()), per_s(outcome.of(Kind::Forwarded).count()));
    let (refused, failed) = (outcome.of(Kind::Refused).count(), outcome.of(Kind::Failed).count());
    let expectation = |what: String, measured: String, holds| Expectation { what, measured, holds };
    [
        expectation(
            "clients ask ten times as often as the origin can answer".to_owned(),
            format!("{all:.0} times a second, the origin can answer {CAPACITY_PER_S:.0}"),
            all >= 10.0 * CAPACITY_PER_S,
        ),
        expectation(
            format!("the origin never has more than {PLACES} requests"),
            format!("{} at most", outcome.most),
            outcome.most == PLACES,
        ),
        expectation(
            "the origin answers at least four fifths of what it can".to_owned(),
            format!("{answered:.0} requests a second"),
            answered >= 0.8 * CAPACITY_PER_S,
        ),
        expectation(
            format!("hits: p99 at most twice that of the idle run and {HIT_MS_MORE} ms"),
            format!("{hits:.2} ms, idle {idle:.2} ms"),
            outcome.hits.iter().all(|answer| answer.kind == Kind::Hit) && hits <= 2.0 * idle + HIT_MS_MORE,
        ),
        expectation(
            "all others get 503 with Retry-After".to_owned(),
            format!("{refused} of {}, {failed} something else", refused + failed),
            failed == 0 && refused > 0,
        ),
        expectation(
            format!("refusals: p99 at most {REFUSED_MS_MAX} ms"),
            format!("{refused_ms:.2} ms"),
            refused_ms <= REFUSED_MS_MAX,
        ),
        expectation(
            format!("within {RECOVERED_MAX:?} of the end a request takes no longer than the origin does"),
            outcome
                .recovered
                .map_or_else(|| "not at all".to_owned(), |after| format!("{:.2} s", after.as_secs_f64())),
            outcome.recovered.is_some_and(|after| after <= RECOVERED_MAX),
        ),
    ]
}

fn charts(outcome: &Outcome) -> Vec<Chart> {
    let latencies = vec![
        latency_series("hits", outcome.hits.iter(), 99),
        latency_series("refused", outcome.of(Kind::Refused), 99),
        latency_series("forwarded", outcome.of(Kind::Forwarded), 99),
    ];
    let origin = vec![rate_series("origin", &outcome.samples)];
    vec![
        Chart::over_time("latency", "Latency under overload, p99", "Time (ms)", latencies),
        Chart::over_time("origin", "Requests at the origin", "Requests per second", origin),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let answers =
            |kind, ms, count| vec![Answer { at_s: 0.0, kind, latency: Duration::from_millis(ms) }; count];
        Outcome {
            idle: answers(Kind::Hit, 1, 10),
            hits: answers(Kind::Hit, 7, 10),
            others: [answers(Kind::Forwarded, 300, 64), answers(Kind::Refused, 50, 736)].concat(),
            most: PLACES,
            lasted_s: 1.0,
            recovered: Some(RECOVERED_MAX),
            ..Outcome::default()
        }
    }

    #[test]
    fn each_expectation_can_fail() {
        #[track_caller]
        fn check(change: impl Fn(&mut Outcome), failing: Option<usize>) {
            let mut outcome = outcome();
            change(&mut outcome);
            let held = expectations(&outcome).map(|expectation| expectation.holds);
            let expected: [bool; 7] = std::array::from_fn(|place| Some(place) != failing);
            assert_eq!(held, expected);
        }
        check(|_| {}, None);
        check(|outcome| _ = outcome.others.pop(), Some(0));
        check(|outcome| outcome.most += 1, Some(1));
        check(|outcome| outcome.others[0].kind = Kind::Refused, Some(2));
        check(|outcome| outcome.hits[0].latency += Duration::from_millis(1), Some(3));
        check(|outcome| outcome.hits[0].kind = Kind::Failed, Some(3));
        check(|outcome| outcome.others[100].kind = Kind::Failed, Some(4));
        check(|outcome| outcome.others[64..].iter_mut().for_each(|answer| answer.latency *= 2), Some(5));
        check(|outcome| outcome.recovered = None, Some(6));
    }
}
