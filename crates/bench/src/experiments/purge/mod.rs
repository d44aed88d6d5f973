//! Purges in a fleet: does anybody get what was purged, how soon do all gateways know, and what becomes of the hits meanwhile?
//!
//! The origin numbers its responses. A purge notes the number before it begins; once it is acknowledged as complete, every request for
//! what it was about has to bring a later one, whichever gateway it asks. One of the three gateways has a clock that is 30 s ahead. How
//! soon another gateway knows is seen by asking it again and again for a page of which nobody else knows.

mod origin;
mod publish;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::origin::{Origin, pass};
use crate::peers::{self, Client};
use crate::progress::Progress;
use crate::random::SplitMix;
use crate::result::{Chart, Expectation, Latencies, Point, Run, Series};
use crate::server::busy_ticks;

use super::findings::{ExperimentError, Findings, all_answered};
use super::fleet::{Answer, Asker, Kind, Store, are_one, run_of, shared};
use super::stage::{Gateway, Server, Stage, io_error, metric, own_origin};
use origin::DRIPPING;
use publish::Published;

const GATEWAYS: usize = 3;
const SITES: usize = 4;
/// With two pages each, and one that is sent slowly.
const FOLDERS: usize = 3;
const PAGES_OF_SITE: usize = 2 * FOLDERS + 1;
const PAGES: usize = SITES * PAGES_OF_SITE;

const PURGES: u32 = 10_000;
const PURGERS: u32 = 2;
/// Between two purges of one of them.
const PURGE_PACE: Duration = Duration::from_millis(50);
/// Between two purges of the page that is watched, and between two messages.
const WATCH_PACE: Duration = Duration::from_millis(25);
const CLIENTS: usize = 4;

const DESCRIPTION: &str = "Three gateways share a Redis; the clock of one is 30 s ahead. 28 pages of four sites, a seventh of them sent over \
    50 ms, are asked for at all gateways so often that the machine is half busy, and purged by URL, tag, prefix and site, 40 times a \
    second. Beside: a page that is purged at one gateway, until a request begins at another one that does not bring it any more; and \
    PUBLISH on the same server, until each of three connections has the message.";

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Findings, ExperimentError> {
    let fleet = Fleet::start(stage)?;
    let lasts = stage.duration(PURGE_PACE * (PURGES / PURGERS));
    let progress = Progress::of_time("purges", lasts, stage.settings.progress);
    let outcome = play(&fleet, lasts)?;
    progress.finish();
    Ok(Findings {
        title: "Purges in a fleet",
        description: DESCRIPTION.to_owned(),
        runs: outcome.runs(),
        charts: vec![hits_chart(&outcome)],
        expectations: expectations(&outcome),
    })
}

/// All that takes part.
struct Fleet {
    origin: Origin,
    store: Server,
    gateways: Vec<Server>,
}

impl Fleet {
    fn start(stage: &mut Stage<'_>) -> Result<Self, ExperimentError> {
        let origin = own_origin(origin::page)?;
        let store = Store::Redis.start(stage, &[])?;
        let site = |number| {
            format!(
                "[[site]]\nname = \"s{number}\"\npath_prefix = \"/s{number}/\"\norigin = \"http://{}\"\ntags = [\"cache-tag\"]\n",
                origin.address
            )
        };
        let sites: String = (0..=SITES).map(site).collect();
        let library = library()?.display().to_string();
        let ahead = [
            ("LD_PRELOAD", library.as_str()),
            ("FAKETIME", "+30s"),
            // Only what the clock on the wall says, not how time passes.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ];
        let tables = shared(store.address);
        let gateways = (0..GATEWAYS).map(|number| {
            let environment = if number == 0 { &ahead[..] } else { &[] };
            stage.gateway_as(Gateway { tables: &tables, sites: &sites, environment })
        });
        let gateways: Vec<Server> = gateways.collect::<Result<_, _>>()?;
        are_one(&gateways)?;
        // Until a gateway may rely upon its list, it waits with each purge.
        pass(VERIFICATION);
        Ok(Self { origin, store, gateways })
    }

    /// Leases that ended before their holders had said anything: all of them live.
    fn expired_leases(&self) -> io::Result<u64> {
        let admins = self.gateways.iter().filter_map(|gateway| gateway.admin);
        admins.map(|admin| metric(admin, "larder_tier_leases_total{event=\"expired\"}")).sum()
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.gateways.iter().map(|gateway| gateway.address).collect()
    }
}

/// The default.
const VERIFICATION: Duration = Duration::from_secs(2);

/// That gives a process another time.
fn library() -> Result<PathBuf, ExperimentError> {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut files = folders.map(|folder| folder.path().join("faketime/libfaketime.so.1"));
    let missing =
        || ExperimentError::Missing { program: "libfaketime".into(), package: "libfaketime".into() };
    files.find(|file| file.is_file()).ok_or_else(missing)
}

fn path(page: usize) -> String {
    let (site, page) = (page / PAGES_OF_SITE, page % PAGES_OF_SITE);
    match page.checked_sub(1) {
        None => format!("/s{site}/{DRIPPING}/0"),
        Some(page) => format!("/s{site}/g{}/{}", page / 2, page % 2),
    }
}

/// In a site of its own.
const WATCHED: &str = "/s4/watched/0";

/// What one purge says, and which pages it is about.
fn purge(random: &mut SplitMix) -> (String, Vec<usize>) {
    let mut draw = |below: usize| (random.next() % below as u64) as usize;
    let (site, folder) = (draw(SITES), draw(FOLDERS));
    let first = site * PAGES_OF_SITE;
    let in_folder = vec![first + 1 + 2 * folder, first + 2 + 2 * folder];
    match draw(4) {
        0 => {
            let page = draw(PAGES);
            let url = path(page).replace('/', "%2F");
            (format!("url=http%3A%2F%2F{}{url}", super::fleet::HOST), vec![page])
        }
        1 => (format!("tag=g{folder}&site=s{site}"), in_folder),
        2 => (format!("prefix=%2Fs{site}%2Fg{folder}%2F"), in_folder),
        _ => (format!("site=s{site}"), (first..first + PAGES_OF_SITE).collect()),
    }
}

/// What all threads look at.
struct Scene<'a> {
    fleet: &'a Fleet,
    begun: Instant,
    /// The lowest version of each page that a request may bring which begins now.
    lowest: [AtomicU64; PAGES],
    /// Between two requests of a client.
    pace_us: AtomicU64,
    is_over: AtomicBool,
}

/// What was seen.
#[derive(Default)]
struct Outcome {
    answers: Vec<Answer>,
    /// Requests that brought what was purged before they began.
    older: u64,
    /// Until they are acknowledged.
    purges: Latencies,
    /// Until another gateway knows.
    elsewhere: Latencies,
    incomplete: u64,
    expired_leases: u64,
    published: Latencies,
    elapsed_s: f64,
    /// Of all cores.
    busy_share: f64,
}

impl Outcome {
    fn add(&mut self, other: Self) {
        self.answers.extend(other.answers);
        self.older += other.older;
        self.purges.add(&other.purges);
        self.elsewhere.add(&other.elsewhere);
        self.incomplete += other.incomplete;
        self.published.add(&other.published);
    }
}

fn play(fleet: &Fleet, lasts: Duration) -> Result<Outcome, ExperimentError> {
    let scene = Scene {
        fleet,
        begun: Instant::now(),
        lowest: std::array::from_fn(|_| AtomicU64::new(0)),
        pace_us: AtomicU64::new(PACE_US_MAX),
        is_over: AtomicBool::new(false),
    };
    let failed = |source| io_error("a gateway or the store does not answer", source);
    thread::scope(|scope| {
        let scene = &scene;
        let mut parts: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || Ok(scene.ask(number)))).collect();
        parts.extend((0..PURGERS).map(|number| scope.spawn(move || scene.purge(number as usize))));
        parts.push(scope.spawn(|| scene.watch()));
        parts.push(scope.spawn(|| scene.publish()));
        let busy_share = scene.keep_half_busy(lasts);
        scene.is_over.store(true, Ordering::SeqCst);
        let mut outcome =
            Outcome { busy_share, elapsed_s: scene.begun.elapsed().as_secs_f64(), ..Outcome::default() };
        for part in parts {
            outcome.add(
                part.join()
                    .unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))
                    .map_err(failed)?,
            );
        }
        outcome.expired_leases = fleet.expired_leases().map_err(failed)?;
        Ok(outcome)
    })
}

const PACE_US_MAX: u64 = 1_500;
const PACE_US_MIN: u64 = 200;
const LOOK_EACH: Duration = Duration::from_millis(500);
const TICKS_PER_S: f64 = 100.0;

impl Scene<'_> {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Until all is over: each as soon as its time has come.
    fn turns(&self, pace: Duration) -> impl Iterator<Item = u32> {
        (0..).take_while(move |turn| {
            pass((pace * *turn).saturating_sub(self.begun.elapsed()));
            !self.is_over()
        })
    }

    /// One client, until all is over. Pages that are sent slowly are asked for less often.
    fn ask(&self, number: usize) -> Outcome {
        let mut asker = Asker::new(&self.fleet.addresses());
        let mut random = SplitMix::new(number as u64);
        let mut outcome = Outcome::default();
        for turn in number.. {
            if self.is_over() {
                break;
            }
            let begun = Instant::now();
            let page = (random.next() % PAGES as u64) as usize;
            let page =
                if page.is_multiple_of(PAGES_OF_SITE) && !turn.is_multiple_of(4) { page + 1 } else { page };
            self.check(&mut asker, turn % GATEWAYS, page, &mut outcome);
            let pace = Duration::from_micros(self.pace_us.load(Ordering::Relaxed));
            pass(pace.saturating_sub(begun.elapsed()));
        }
        outcome
    }

    /// Asks for a page, and looks whether what comes may come.
    fn check(&self, asker: &mut Asker, gateway: usize, page: usize, outcome: &mut Outcome) {
        let lowest = self.lowest[page].load(Ordering::SeqCst);
        let begun = Instant::now();
        let (kind, answer) = asker.ask(gateway, &path(page), &[]);
        let latency = begun.elapsed();
        let version = answer.as_ref().and_then(version_of);
        outcome.older += u64::from(!kind.has_failed() && version.is_none_or(|version| version < lowest));
        outcome.answers.push(Answer { at_s: (begun - self.begun).as_secs_f64(), kind, latency });
    }

    /// Purges at all gateways in turn, and asks all of them for something of it at once.
    fn purge(&self, number: usize) -> io::Result<Outcome> {
        let admins = self.fleet.gateways.iter().filter_map(|gateway| gateway.admin);
        let mut admins: Vec<Client> = admins.map(Client::connect).collect::<io::Result<_>>()?;
        let mut asker = Asker::new(&self.fleet.addresses());
        let mut random = SplitMix::new(1000 + number as u64);
        let mut outcome = Outcome::default();
        for turn in self.turns(PURGE_PACE) {
            let (query, pages) = purge(&mut random);
            let version = self.fleet.origin.requests();
            let begun = Instant::now();
            let answer = admins[(turn as usize + number) % GATEWAYS].post(&format!("/purge?{query}"))?;
            outcome.purges.record_time(begun.elapsed());
            if !has_reached_all(&answer.body) {
                outcome.incomplete += 1;
                continue;
            }
            pages.iter().for_each(|page| _ = self.lowest[*page].fetch_max(version + 1, Ordering::SeqCst));
            let page = pages[turn as usize % pages.len()];
            (0..GATEWAYS).for_each(|gateway| self.check(&mut asker, gateway, page, &mut outcome));
        }
        Ok(outcome)
    }

    /// Purges a page at one gateway, and asks another one for it until it brings a later one.
    fn watch(&self) -> io::Result<Outcome> {
        let admin = self.fleet.gateways[0].admin.ok_or(io::ErrorKind::NotFound)?;
        let mut admin = Client::connect(admin)?;
        let mut asker = Asker::new(&self.fleet.addresses());
        let mut outcome = Outcome::default();
        for turn in self.turns(WATCH_PACE) {
            let other = 1 + turn as usize % (GATEWAYS - 1);
            // From the store, and into memory.
            (0..2).for_each(|_| _ = asker.ask(other, WATCHED, &[]));
            let version = self.fleet.origin.requests();
            let begun = Instant::now();
            admin.send_post(&format!("/purge?url=http%3A%2F%2F{}{WATCHED}", super::fleet::HOST))?;
            let elsewhere = loop {
                let at = begun.elapsed();
                let (_, answer) = asker.ask(other, WATCHED, &[]);
                if at > PATIENCE
                    || answer.as_ref().and_then(version_of).is_some_and(|brought| brought > version)
                {
                    break at;
                }
            };
            outcome.elsewhere.record_time(elsewhere);
            admin.receive()?;
        }
        Ok(outcome)
    }

    fn publish(&self) -> io::Result<Outcome> {
        let mut published = Published::to(self.fleet.store.address, GATEWAYS)?;
        let mut outcome = Outcome::default();
        for _ in self.turns(WATCH_PACE) {
            published.publish()?.into_iter().for_each(|latency| outcome.published.record_time(latency));
        }
        Ok(outcome)
    }

    /// Lets the clients ask as often as it takes for all cores to be idle half of the time; how busy they were.
    fn keep_half_busy(&self, lasts: Duration) -> f64 {
        let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
        let first = (self.begun, busy_ticks().unwrap_or(0));
        let share = |from: (Instant, u64), to: (Instant, u64)| {
            (to.1 - from.1) as f64 / TICKS_PER_S / (to.0 - from.0).as_secs_f64() / cores
        };
        let mut last = first;
        while self.begun.elapsed() < lasts {
            pass(LOOK_EACH.min(lasts.saturating_sub(self.begun.elapsed())));
            let now = (Instant::now(), busy_ticks().unwrap_or(last.1));
            let pace_us = self.pace_us.load(Ordering::Relaxed) as f64 * (0.5 + share(last, now));
            self.pace_us.store((pace_us as u64).clamp(PACE_US_MIN, PACE_US_MAX), Ordering::Relaxed);
            last = now;
        }
        share(first, last)
    }
}

const PATIENCE: Duration = Duration::from_secs(10);

fn version_of(answer: &peers::Answer) -> Option<u64> {
    answer.field("x-version")?.parse().ok()
}

fn has_reached_all(answer: &[u8]) -> bool {
    let answer: serde_json::Value = serde_json::from_slice(answer).unwrap_or_default();
    let instances = answer["fleet"]["instances"].as_array().map_or(0, Vec::len);
    answer["fleet"]["complete"] == true && instances == GATEWAYS
}

impl Outcome {
    fn runs(&self) -> Vec<Run> {
        let load = format!("{CLIENTS} clients, cores {:.0} % busy", 100.0 * self.busy_share);
        vec![
            run_of("requests", &load, self.answers.iter()),
            self.told("purges", &self.purges, "until all gateways are known to have reached them"),
            self.told("purges elsewhere", &self.elsewhere, "until another gateway has reached them"),
            self.told("PUBLISH", &self.published, "until each of three connections has it"),
        ]
    }

    fn told(&self, name: &str, latencies: &Latencies, load: &str) -> Run {
        Run {
            name: name.to_owned(),
            target: "gateways and their Redis".to_owned(),
            load: load.to_owned(),
            elapsed_s: self.elapsed_s,
            requests: latencies.count(),
            requests_per_s: latencies.count() as f64 / self.elapsed_s.max(0.001),
            latency: latencies.summary(),
            ..Run::default()
        }
    }

    /// Of each ten seconds.
    fn hit_ratios(&self) -> Vec<Point> {
        let mut counts: Vec<(u64, u64)> = Vec::new();
        for answer in &self.answers {
            let place = (answer.at_s / RATIO_EACH_S) as usize;
            counts.resize(counts.len().max(place + 1), (0, 0));
            counts[place].0 += u64::from(answer.kind == Kind::Hit);
            counts[place].1 += 1;
        }
        let point = |(place, (hits, all)): (usize, &(u64, u64))| Point {
            x: (place as f64 + 1.0) * RATIO_EACH_S,
            y: 100.0 * *hits as f64 / (*all).max(1) as f64,
            ribbon: None,
        };
        // The rest of the last ones may be a moment.
        let is_whole = |point: &Point| point.x <= self.elapsed_s.max(RATIO_EACH_S);
        counts.iter().enumerate().map(point).filter(is_whole).collect()
    }
}

const RATIO_EACH_S: f64 = 10.0;

fn expectations(outcome: &Outcome) -> Vec<Expectation> {
    let purges = outcome.purges.count();
    let told = |latencies: &Latencies| {
        let ms = |percent| latencies.percentile_us(percent) as f64 / 1e3;
        format!("p50 {:.2} ms, p99 {:.2} ms", ms(50.0), ms(99.0))
    };
    let hits = outcome.answers.iter().filter(|answer| answer.kind == Kind::Hit).count();
    let lowest = outcome.hit_ratios().iter().map(|point| point.y).fold(100.0, f64::min);
    vec![
        all_answered(&run_of("requests", "", outcome.answers.iter())),
        Expectation {
            what: "no request that begins after a purge brings what it purged".to_owned(),
            measured: format!("{} of {} requests, {purges} purges", outcome.older, outcome.answers.len(),),
            holds: outcome.older == 0 && purges > 0,
        },
        Expectation {
            what: "all gateways reach every purge in time".to_owned(),
            measured: format!("{} of {purges} were not acknowledged by all", outcome.incomplete),
            holds: outcome.incomplete == 0,
        },
        Expectation {
            what: "nobody waits for a gateway until its lease ends".to_owned(),
            measured: format!("{} leases expired", outcome.expired_leases),
            holds: outcome.expired_leases == 0,
        },
        Expectation {
            what: "at least 90 % of the requests of every ten seconds are hits".to_owned(),
            measured: format!(
                "{lowest:.1} %, and {:.1} % of all",
                100.0 * hits as f64 / outcome.answers.len().max(1) as f64
            ),
            holds: lowest >= 90.0,
        },
        Expectation {
            what: "purges elsewhere: p99 at most that of PUBLISH and 2 ms".to_owned(),
            measured: format!("{}; PUBLISH {}", told(&outcome.elsewhere), told(&outcome.published)),
            holds: outcome.elsewhere.percentile_us(99.0) <= outcome.published.percentile_us(99.0) + 2_000,
        },
    ]
}

fn hits_chart(outcome: &Outcome) -> Chart {
    let hits = Series { name: "hits".to_owned(), points: outcome.hit_ratios() };
    Chart::over_time("hits", "Hits while purges go on", "Hits (%)", vec![hits])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(hits: usize, older: u64, incomplete: u64, purge_ms: u64) -> Outcome {
        let answer = |number| Answer {
            at_s: 0.0,
            kind: if number < hits { Kind::Hit } else { Kind::Forwarded },
            latency: Duration::ZERO,
        };
        let mut outcome = Outcome { older, incomplete, elapsed_s: 5.0, ..Outcome::default() };
        outcome.answers = (0..100).map(answer).collect();
        outcome.purges.record(1);
        outcome.elsewhere.record(purge_ms * 1000);
        outcome.published.record(1000);
        outcome
    }

    #[test]
    fn each_expectation_can_fail() {
        #[track_caller]
        fn check(mut outcome: Outcome, failed: Option<Kind>, holds: [bool; 6]) {
            outcome.answers[0].kind = failed.unwrap_or(outcome.answers[0].kind);
            let held: Vec<bool> =
                expectations(&outcome).iter().map(|expectation| expectation.holds).collect();
            assert_eq!(held, holds);
        }
        check(outcome(90, 0, 0, 2), None, [true; 6]);
        check(outcome(91, 0, 0, 2), Some(Kind::Failed), [false, true, true, true, true, true]);
        check(outcome(90, 1, 0, 2), None, [true, false, true, true, true, true]);
        check(outcome(90, 0, 1, 2), None, [true, true, false, true, true, true]);
        let expired = Outcome { expired_leases: 1, ..outcome(90, 0, 0, 2) };
        check(expired, None, [true, true, true, false, true, true]);
        check(outcome(89, 0, 0, 2), None, [true, true, true, true, false, true]);
        check(outcome(90, 0, 0, 4), None, [true, true, true, true, true, false]);
    }

    #[test]
    fn purges_are_about_pages_that_there_are() {
        let mut random = SplitMix::new(1);
        for _ in 0..100 {
            let (query, pages) = purge(&mut random);
            assert!(!pages.is_empty() && pages.iter().all(|page| *page < PAGES), "{query}: {pages:?}");
            let prefix = query.strip_prefix("prefix=").map(|prefix| prefix.replace("%2F", "/"));
            let fits = |page: &usize| prefix.as_ref().is_none_or(|prefix| path(*page).starts_with(prefix));
            assert!(pages.iter().all(fits), "{query}");
        }
    }
}
