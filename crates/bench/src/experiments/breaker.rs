//! An origin in trouble, behind a circuit breaker and beside it without one: what clients and the origin see of it.
//!
//! Two gateways, each with an origin of its own, are under the same load at the same time. Of an open breaker the gateway's metrics tell;
//! what the origin gets meanwhile is counted there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::origin::{Origin, Reply, page, pass};
use crate::progress::Progress;
use crate::result::{Chart, Expectation, Run, Series};

use super::findings::{ExperimentError, Findings};
use super::fleet::{Answer, Asker, latencies_ms, latency_series, percentile, run_of, until, visits};
use super::samples::{Sample, Sampler, rate_series};
use super::stage::{Gateway, Server, Stage, own_origin};

/// What the origin does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Well,
    Slow,
    Resets,
    Errors,
    Stopped,
}

impl Health {
    const ALL: [Self; 5] = [Self::Well, Self::Slow, Self::Resets, Self::Errors, Self::Stopped];

    fn name(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Slow => "slow",
            Self::Resets => "RST",
            Self::Errors => "503",
            Self::Stopped => "stopped",
        }
    }
}

/// What is asked for. Some pages of each, and some clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Fresh,
    MayBeStale,
    NeverStale,
}

impl Page {
    const ALL: [Self; 3] = [Self::Fresh, Self::MayBeStale, Self::NeverStale];

    fn path(self) -> &'static str {
        match self {
            Self::Fresh => "/fresh",
            Self::MayBeStale => "/stale",
            Self::NeverStale => "/strict",
        }
    }

    fn target(self, number: usize) -> String {
        format!("{}/{}", self.path(), number % PAGES)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Fresh => "hits",
            Self::MayBeStale => "stale",
            Self::NeverStale => "strict",
        }
    }

    fn cache_control(self) -> &'static str {
        match self {
            Self::Fresh => "max-age=3600",
            Self::MayBeStale => "max-age=1, stale-if-error=3600",
            Self::NeverStale => "max-age=1, must-revalidate",
        }
    }
}

const SLOW: Duration = Duration::from_secs(2);
const FIRST_BYTE_MAX: Duration = Duration::from_millis(500);
const RESET: Duration = Duration::from_secs(1);
const RESET_MAX: Duration = Duration::from_secs(10);
const BEFORE: Duration = Duration::from_secs(1);
const USUAL_FAULT: Duration = Duration::from_secs(180);
/// With the breaker closed again.
const AFTER: Duration = Duration::from_millis(500);
/// A probe that comes right before the end, the longest reset, and what a busy machine is late.
const RECOVERED_MAX: Duration = Duration::from_secs(12);
/// In less, a percent is so few requests that a busy machine may hold as many up.
const JUDGED_S_MIN: f64 = 30.0;
const PAGES: usize = 8;
/// For each kind of page, at each gateway.
const CLIENTS: usize = 16;
const PACE: Duration = Duration::from_millis(100);

const DESCRIPTION: &str = "An origin is slow (2 s), resets connections, answers 503, or accepts and never answers (stopped). 48 clients ask a gateway \
    with a circuit breaker (on), 10 times a second each, and as many one without (off), in front of an origin of its own: for 8 pages that stay fresh \
    (hits), 8 that are fresh for a second and may be used stale if the origin fails (stale), 8 that may not (strict). A response is waited for \
    500 ms; an open breaker tries again after a second, then less and less often, every 10 s at last. Rows are about the time of the fault.";

/// A gateway, and the origin that is its own.
struct Side {
    gateway: Server,
    origin: Origin,
}

const ON: &str = "on";
const OFF: &str = "off";

/// What all threads look at.
struct Scene {
    sides: [Side; 2],
    /// One of [`Health::ALL`].
    health: Arc<AtomicUsize>,
    begun: Instant,
    is_over: AtomicBool,
}

/// When what happened.
#[derive(Clone, Copy)]
struct Course {
    begin_s: f64,
    /// The breaker is open, as the gateway tells, and no earlier request is on its way.
    open_s: f64,
    end_s: f64,
    is_closed: bool,
    /// Requests at each origin while the breaker was open.
    asked: [u64; 2],
}

/// What one fault led to.
struct Outage {
    fault: Health,
    course: Course,
    /// With the breaker, and without.
    seen: [Seen; 2],
}

#[derive(Default)]
struct Seen {
    answers: Vec<(Page, Answer)>,
    /// Requests at the origin.
    samples: Vec<Sample>,
}

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Findings, ExperimentError> {
    let faults = Health::ALL.into_iter().filter(|health| *health != Health::Well);
    let outages = faults.map(|fault| outage(fault, stage)).collect::<Result<Vec<_>, _>>()?;
    Ok(Findings {
        title: "Circuit breaker",
        description: DESCRIPTION.to_owned(),
        runs: outages.iter().flat_map(Outage::runs).collect(),
        charts: outages.iter().flat_map(|outage| [latencies(outage), origin_load(outage)]).collect(),
        expectations: outages.iter().flat_map(expectations).collect(),
    })
}

fn outage(fault: Health, stage: &mut Stage<'_>) -> Result<Outage, ExperimentError> {
    let health = Arc::new(AtomicUsize::new(Health::Well as usize));
    let sides = [side(ON, &health, stage)?, side(OFF, &health, stage)?];
    let lasts = stage.duration(USUAL_FAULT);
    let progress = Progress::of_time(fault.name(), lasts, stage.settings.progress);
    let scene = Scene { sides, health, begun: Instant::now(), is_over: AtomicBool::new(false) };
    let (course, seen) = thread::scope(|scope| {
        let scene = &scene;
        let loads = [0, 1].map(|side| scope.spawn(move || scene.load(&scene.sides[side])));
        let course = scene.course(fault, lasts);
        scene.is_over.store(true, Ordering::SeqCst);
        (course, loads.map(|load| load.join().unwrap_or_default()))
    });
    progress.finish();
    Ok(Outage { fault, course: course?, seen })
}

fn side(name: &str, health: &Arc<AtomicUsize>, stage: &mut Stage<'_>) -> Result<Side, ExperimentError> {
    let health = Arc::clone(health);
    let origin = own_origin(move |target, _| reply(Health::ALL[health.load(Ordering::SeqCst)], target))?;
    let sites = format!(
        "[[origin]]\nname = \"app\"\nurl = \"http://{}\"\n[origin.breaker]\nenabled = {}\nwindow = \"2s\"\nrequests_min = 5\n\
         reset_time = \"{RESET:?}\"\nreset_time_max = \"{RESET_MAX:?}\"\n[[site]]\nname = \"experiment\"\norigin = \"app\"\n\
         [site.timeouts]\nfirst_byte = \"{FIRST_BYTE_MAX:?}\"\n",
        origin.address,
        name == ON
    );
    // Each client counts once for a breaker, and all have one address here.
    let tables = "trusted_proxies = [\"127.0.0.0/8\"]";
    let gateway = stage.gateway_as(Gateway { tables, sites: &sites, ..Gateway::default() })?;
    let mut asker = Asker::new(&[gateway.address]);
    // All that may be stored is, before anything fails.
    for page in Page::ALL {
        (0..PAGES).for_each(|number| _ = asker.ask(0, &page.target(number), &[]));
    }
    Ok(Side { gateway, origin })
}

fn reply(health: Health, target: &str) -> Reply {
    match health {
        Health::Resets => return Reply::Reset,
        Health::Stopped => return Reply::Silence,
        Health::Slow => pass(SLOW),
        Health::Well | Health::Errors => {}
    }
    let asked = Page::ALL.into_iter().find(|page| target.starts_with(page.path()));
    match asked {
        Some(asked) if health != Health::Errors => page("200 OK", asked.cache_control()),
        _ => page("503 Service Unavailable", "no-store"),
    }
}

impl Scene {
    /// All clients of a gateway, until all is over.
    fn load(&self, side: &Side) -> Seen {
        let origin = side.origin.clone();
        let sampler = Sampler::start(move || Some(origin.requests()));
        let answers = thread::scope(|scope| {
            let clients =
                (0..CLIENTS * Page::ALL.len()).map(|number| scope.spawn(move || self.ask(number, side)));
            let clients: Vec<_> = clients.collect();
            clients.into_iter().flat_map(|client| client.join().unwrap_or_default()).collect()
        });
        Seen { answers, samples: sampler.finish() }
    }

    fn ask(&self, number: usize, side: &Side) -> Vec<(Page, Answer)> {
        let page = Page::ALL[number % Page::ALL.len()];
        let mut asker = Asker::new(&[side.gateway.address]);
        // Not all at the same moment.
        pass(PACE * number as u32 / (CLIENTS * Page::ALL.len()) as u32);
        let client = format!("X-Forwarded-For: 192.0.2.{number}");
        let visit = |turn| asker.ask(0, &page.target(number + turn), &[&client]).0;
        let answers = visits(PACE, self.begun, || self.is_over.load(Ordering::SeqCst), visit);
        answers.into_iter().map(|answer| (page, answer)).collect()
    }

    fn course(&self, fault: Health, lasts: Duration) -> Result<Course, ExperimentError> {
        let now_s = || self.begun.elapsed().as_secs_f64();
        let requests = || self.sides.each_ref().map(|side| side.origin.requests());
        let becomes = |state| {
            let name = format!("larder_origin_breaker{{origin=\"app\",state=\"{state}\"}}");
            until(&self.sides[0].gateway, &name, 1)
        };
        pass(BEFORE);
        self.health.store(fault as usize, Ordering::SeqCst);
        let begin = self.begun.elapsed();
        becomes("open")?;
        // Requests that were sent before may not have arrived.
        until(&self.sides[0].gateway, "larder_origin_exchanges", 0)?;
        let (open_s, before) = (now_s(), requests());
        pass((begin + lasts).saturating_sub(self.begun.elapsed()));
        let (end_s, after) = (now_s(), requests());
        self.health.store(Health::Well as usize, Ordering::SeqCst);
        let is_closed = becomes("closed").is_ok();
        pass(AFTER);
        let asked = [0, 1].map(|side| after[side] - before[side]);
        Ok(Course { begin_s: begin.as_secs_f64(), open_s, end_s, is_closed, asked })
    }
}

impl Seen {
    fn of(&self, page: Page, from_s: f64, to_s: f64) -> impl Iterator<Item = &Answer> {
        let fits =
            move |(asked, answer): &&(Page, Answer)| *asked == page && (from_s..to_s).contains(&answer.at_s);
        self.answers.iter().filter(fits).map(|(_, answer)| answer)
    }

    fn failed(&self, page: Page) -> impl Iterator<Item = &Answer> {
        self.of(page, 0.0, f64::INFINITY).filter(|answer| answer.kind.has_failed())
    }

    fn p99_ms(&self, page: Page, from_s: f64, to_s: f64) -> f64 {
        percentile(&latencies_ms(self.of(page, from_s, to_s)), 99)
    }
}

impl Outage {
    /// Of the time of the fault.
    fn runs(&self) -> Vec<Run> {
        let load = format!("{CLIENTS} clients, a request every {} ms each", PACE.as_millis());
        let Course { begin_s, end_s, .. } = self.course;
        let run = |page: Page, (name, seen): (&str, &Seen)| {
            let since = |answer: &Answer| Answer { at_s: answer.at_s - begin_s, ..*answer };
            let answers: Vec<Answer> = seen.of(page, begin_s, end_s).map(since).collect();
            run_of(&format!("{}, {name}: {}", self.fault.name(), page.name()), &load, answers.iter())
        };
        let [on, off] = [(ON, &self.seen[0]), (OFF, &self.seen[1])];
        vec![
            run(Page::Fresh, on),
            run(Page::MayBeStale, on),
            run(Page::MayBeStale, off),
            run(Page::NeverStale, on),
            run(Page::NeverStale, off),
        ]
    }
}

/// How often a breaker may have tried the origin in that time.
fn probes_max(open: Duration) -> u64 {
    let resets = std::iter::successors(Some(RESET), |reset| Some((*reset * 2).min(RESET_MAX)));
    let times = resets.scan(Duration::ZERO, |at, reset| {
        *at += reset;
        Some(*at)
    });
    times.take_while(|at| *at <= open).count() as u64
}

fn expectations(outage: &Outage) -> [Expectation; 4] {
    let (name, [on, off]) = (outage.fault.name(), &outage.seen);
    let Course { open_s, end_s, is_closed, asked, .. } = outage.course;
    let failed = on.failed(Page::MayBeStale).count();
    let p99_ms = |seen: &Seen, page| seen.p99_ms(page, open_s, end_s);
    let (stale, hits) = (p99_ms(on, Page::MayBeStale), p99_ms(on, Page::Fresh));
    let probes = probes_max(Duration::from_secs_f64(end_s - open_s));
    let last_failed_s = on.failed(Page::NeverStale).map(|answer| answer.at_s).fold(end_s, f64::max);
    let recovered = Duration::from_secs_f64(last_failed_s - end_s);
    [
        Expectation {
            what: format!("{name}: no request fails where stale is allowed"),
            measured: format!(
                "{failed} of {}; without a breaker {}",
                on.of(Page::MayBeStale, 0.0, f64::INFINITY).count(),
                off.failed(Page::MayBeStale).count()
            ),
            holds: failed == 0,
        },
        Expectation {
            what: format!(
                "{name}: with the breaker open, p99 where stale is allowed at most twice that of hits and 2 ms"
            ),
            measured: format!(
                "{stale:.2} ms, hits {hits:.2} ms; without a breaker {:.2} ms",
                p99_ms(off, Page::MayBeStale)
            ),
            holds: stale <= 2.0 * hits + 2.0,
        }
        .judged_from(JUDGED_S_MIN, end_s - open_s),
        Expectation {
            what: format!("{name}: with the breaker open, the origin gets probes alone"),
            measured: format!(
                "{} requests in {:.1} s, at most {probes} probes; without a breaker {}",
                asked[0],
                end_s - open_s,
                asked[1]
            ),
            holds: asked[0] <= probes,
        },
        Expectation {
            what: format!("{name}: every page is answered again within {RECOVERED_MAX:?} of the end"),
            measured: if is_closed {
                format!("{:.2} s", recovered.as_secs_f64())
            } else {
                "not at all".to_owned()
            },
            holds: is_closed && recovered <= RECOVERED_MAX,
        },
    ]
}

fn latencies(outage: &Outage) -> Chart {
    let [on, off] = &outage.seen;
    let all = |seen: &Seen, page, name: &str| latency_series(name, seen.of(page, 0.0, f64::INFINITY), 99);
    let series = vec![
        all(on, Page::Fresh, "hits"),
        all(on, Page::MayBeStale, "stale, breaker on"),
        all(off, Page::MayBeStale, "stale, breaker off"),
    ];
    chart(outage, "latency", "Latency, p99", "Time (ms)", series)
}

fn origin_load(outage: &Outage) -> Chart {
    let [on, off] = &outage.seen;
    let series = vec![rate_series("breaker on", &on.samples), rate_series("breaker off", &off.samples)];
    chart(outage, "origin", "Requests at the origin", "Requests per second", series)
}

fn chart(outage: &Outage, id: &str, title: &str, y: &str, series: Vec<Series>) -> Chart {
    let (name, Course { begin_s, end_s, .. }) = (outage.fault.name(), outage.course);
    let title = format!("{title}, origin {name} from {begin_s:.0} s to {end_s:.0} s");
    Chart::over_time(&format!("{id}-{}", name.to_lowercase()), &title, y, series)
}

#[cfg(test)]
mod tests {
    use super::super::fleet::Kind;
    use super::*;

    const PROBES: u64 = 12;

    fn outage(failed_at_s: f64, failed: Page, stale_ms: u64, asked: u64) -> Outage {
        let answer = |at_s, kind, ms| Answer { at_s, kind, latency: Duration::from_millis(ms) };
        let answers = vec![
            (Page::Fresh, answer(50.0, Kind::Hit, 1)),
            (Page::MayBeStale, answer(50.0, Kind::Forwarded, stale_ms)),
            (failed, answer(failed_at_s, Kind::Refused, 0)),
        ];
        let course = Course { begin_s: 1.0, open_s: 2.0, end_s: 102.0, is_closed: true, asked: [asked, 100] };
        let seen = [Seen { answers, samples: Vec::new() }, Seen::default()];
        Outage { fault: Health::Slow, course, seen }
    }

    #[track_caller]
    fn check(outage: &Outage, holds: [bool; 4]) {
        assert_eq!(expectations(outage).map(|expectation| expectation.holds), holds);
    }

    #[test]
    fn each_expectation_can_fail() {
        check(&outage(114.0, Page::NeverStale, 4, PROBES), [true; 4]);
        check(&outage(1.0, Page::MayBeStale, 4, PROBES), [false, true, true, true]);
        check(&outage(114.0, Page::NeverStale, 5, PROBES), [true, false, true, true]);
        check(&outage(114.0, Page::NeverStale, 4, PROBES + 1), [true, true, false, true]);
        check(&outage(114.1, Page::NeverStale, 4, PROBES), [true, true, true, false]);
        let mut open = outage(1.0, Page::NeverStale, 4, PROBES);
        open.course.is_closed = false;
        check(&open, [true, true, true, false]);
    }

    #[test]
    fn a_short_fault_does_not_judge_the_latency() {
        let mut short = outage(1.0, Page::NeverStale, 5, 0);
        (short.course.open_s, short.course.end_s) = (40.0, 60.0);
        check(&short, [true; 4]);
    }

    #[test]
    fn probes_are_rarer_and_rarer() {
        for (open_s, probes) in
            [(0.9, 0), (1.0, 1), (2.9, 1), (3.0, 2), (7.0, 3), (15.0, 4), (25.0, 5), (100.0, PROBES)]
        {
            assert_eq!(probes_max(Duration::from_secs_f64(open_s)), probes, "{open_s}");
        }
    }
}
