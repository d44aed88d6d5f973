//! A random history of events.

use std::sync::Arc;
use std::time::Duration;

use store::backing::double::{Behaviour, DoubleLimits, DoubleServer, Saved};
use store::backing::{Backing, LogCursor, LogOffset, Rng};
use store::purge::PurgeMode;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};

use super::book::{Book, Force, Purge, Reach, Served, Violation};
use super::client::{Client, Pace};
use super::link::Link;
use super::origin::Origin;
use super::process::{Links, Process};
use super::urls::{HOST, SITE, URLS, names};
use super::wire::Wire;
use super::{Rule, VERIFICATION};
use crate::purge::{self, PurgeOrder};

/// A history that is being run.
pub(super) struct History {
    chance: Rng,
    shape: Shape,
    servers: Vec<DoubleServer>,
    wires: Vec<Arc<Wire>>,
    links: Vec<Links>,
    clocks_ahead_ms: Vec<i64>,
    processes: Vec<Arc<Process>>,
    origin: Arc<Origin>,
    book: Arc<Book>,
    saved: Vec<Saved>,
    planted: Option<Rule>,
    answers: Arc<parking_lot::Mutex<Answers>>,
}

#[derive(Default)]
struct Answers {
    served: u64,
    violation: Option<Violation>,
}

/// Number of regions, and of instances in each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) regions: usize,
    pub(super) instances: usize,
}

/// Result of a history.
pub(super) struct Ending {
    pub(super) violation: Option<String>,
    pub(super) served: u64,
    pub(super) story: String,
}

const STEPS: usize = 70;
const OUTAGE_MAX: Duration = Duration::from_secs(10);
/// Number of rounds until no instance needs the tier any more. Two instances may validate the same response, one in the first round
/// and one in the second. The other instances read the result in the third.
const ROUNDS: usize = 4;

impl History {
    pub(super) fn play(seed: u64, planted: Option<Rule>, shape: Shape) -> Ending {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut history = Self::begin(seed, planted, shape);
            for _ in 0..STEPS {
                history.step().await;
                if history.answers.lock().violation.is_some() {
                    break;
                }
            }
            history.end().await
        })
    }

    fn begin(seed: u64, planted: Option<Rule>, shape: Shape) -> Self {
        let Shape { regions, instances } = shape;
        let count = regions * instances;
        let mut chance = Rng::new(seed);
        let limits = DoubleLimits { verification: VERIFICATION, ..DoubleLimits::default() };
        let servers: Vec<_> = (0..regions).map(|_| DoubleServer::new(limits, chance.next())).collect();
        let book = Arc::new(Book::new(count, instances));
        let clocks_ahead_ms: Vec<i64> = (0..count).map(|_| (chance.next() % 10_000) as i64 - 5_000).collect();
        let wires: Vec<_> = (0..count)
            .map(|index| {
                let server = &servers[index / instances];
                let double = server.connect(behaviour(&mut chance));
                Wire::new(index, (server, double), &book, (clocks_ahead_ms[index], planted))
            })
            .collect();
        let links: Vec<_> = (0..count).map(|index| links(index / instances, &servers, &mut chance)).collect();
        let start =
            |index: usize| Process::start((&wires[index], &links[index]), clocks_ahead_ms[index], planted);
        Self {
            processes: (0..count).map(start).collect(),
            saved: servers.iter().map(DoubleServer::saved).collect(),
            origin: Arc::new(Origin::new(&book)),
            answers: Arc::default(),
            shape,
            chance,
            servers,
            wires,
            links,
            clocks_ahead_ms,
            book,
            planted,
        }
    }

    fn count(&self) -> usize {
        self.wires.len()
    }

    /// Draws a region; with one region, nothing is drawn.
    fn region(&mut self) -> usize {
        match self.shape.regions {
            1 => 0,
            regions => self.below(regions as u64) as usize,
        }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.chance.next() % end
    }

    fn duration(&mut self, max: Duration) -> Duration {
        let max_ms = u64::try_from(max.as_millis()).unwrap_or(u64::MAX).max(1);
        Duration::from_millis(self.below(max_ms))
    }

    fn instance(&mut self) -> usize {
        self.below(self.count() as u64) as usize
    }

    fn url(&mut self) -> &'static str {
        URLS[self.below(URLS.len() as u64) as usize].0
    }

    fn client(&self, instance: usize) -> Client {
        Client {
            process: Arc::clone(&self.processes[instance]),
            origin: Arc::clone(&self.origin),
            planted: self.planted,
        }
    }

    async fn step(&mut self) {
        match self.below(100) {
            0..56 => self.get(),
            56..64 => {
                let url = self.url();
                self.book.note(format!("the origin changes {url}"));
                self.origin.change(url);
            }
            64..74 => self.purge(),
            74..78 => self.change(),
            78..82 => self.forget(),
            82..84 => {
                let instance = self.chance.next() as usize % self.count();
                self.wires[instance].reconnect();
            }
            84..87 => self.outage(),
            87..90 => self.stop(),
            90..92 => self.start_anew(),
            92..94 => {
                let behaviour = behaviour(&mut self.chance);
                let instance = self.instance();
                self.wires[instance].double.behave(behaviour);
            }
            94..96 => {
                let region = self.region();
                self.saved[region] = self.servers[region].saved();
            }
            _ => self.lose(),
        }
        let pause = match self.below(12) {
            0 => Duration::from_secs(5),
            1..5 => Duration::from_millis(600),
            _ => Duration::from_millis(30),
        };
        sleep(self.duration(pause)).await;
    }

    fn get(&mut self) {
        let (instance, url) = (self.instance(), self.url());
        let slow = if self.below(6) == 0 { Duration::from_secs(4) } else { Duration::from_millis(20) };
        let pace = Pace { answer: self.duration(slow), body: self.duration(slow) };
        self.ask(instance, url, pace);
        // Concurrent requests find the fetch in progress.
        for _ in 0..self.below(3) {
            self.ask(instance, url, pace);
        }
    }

    fn ask(&self, instance: usize, url: &'static str, pace: Pace) {
        let (client, book, answers) =
            (self.client(instance), Arc::clone(&self.book), Arc::clone(&self.answers));
        self.processes[instance].spawn(async move {
            if let Some(served) = client.get(url, pace).await {
                note(&book, &answers, &served);
            }
        });
    }

    /// Purges stored responses as an operator does.
    fn purge(&mut self) {
        let instance = self.instance();
        let (order, urls) = self.order();
        let force = if order.mode == PurgeMode::Hard { Force::Hard } else { Force::Soft };
        let (process, book) = (Arc::clone(&self.processes[instance]), Arc::clone(&self.book));
        self.processes[instance].spawn(async move {
            let begun = Instant::now();
            book.note(format!("{instance} purges {urls:?} {force:?}"));
            let outcome = purge::purge(&process.worker.shared, &order).await.expect("an order");
            let is_complete = outcome.fleet.is_some_and(|fleet| fleet.complete);
            book.note(format!("{instance} has purged {urls:?}, complete: {is_complete}"));
            let reach = if is_complete { Reach::All } else { Reach::One(instance) };
            let holds = Instant::now();
            book.purged(Purge { urls: urls.clone(), force, begun, holds, by: instance, reach });
            book.purged(Purge { urls, force, begun, holds, by: instance, reach: Reach::Finally });
        });
    }

    fn order(&mut self) -> (PurgeOrder, Vec<&'static str>) {
        let mode = if self.below(2) == 0 { PurgeMode::Hard } else { PurgeMode::Soft };
        let all = || URLS.iter().map(|(url, _)| *url).collect::<Vec<_>>();
        let order = PurgeOrder { mode, ..PurgeOrder::default() };
        match self.below(6) {
            0..2 => {
                let url = self.url();
                (PurgeOrder { url: Some(format!("http://{HOST}{url}")), ..order }, vec![url])
            }
            2 => {
                let tagged = URLS.iter().filter(|(_, tags)| tags.contains("\"x\"")).map(|(url, _)| *url);
                (PurgeOrder { tags: vec!["x".to_owned()], ..order }, tagged.collect())
            }
            3 => (PurgeOrder { site: Some(SITE.to_owned()), ..order }, all()),
            4 => {
                let below = URLS.iter().map(|(url, _)| *url).filter(|url| url.starts_with("/b/"));
                (PurgeOrder { prefix: Some("/b/".to_owned()), ..order }, below.collect())
            }
            _ => (PurgeOrder { everything: true, ..order }, all()),
        }
    }

    /// Sends an unsafe request, which changes a URL.
    fn change(&mut self) {
        let (instance, url) = (self.instance(), self.url());
        let group = (self.below(2) == 0).then_some("y");
        let (client, book) = (self.client(instance), Arc::clone(&self.book));
        self.processes[instance].spawn(async move {
            client.origin.change(url);
            let begun = Instant::now();
            book.note(format!("{instance} forwards a change of {url}, and of group {group:?}"));
            client.change(url, group).await;
            let of_group = URLS.iter().filter(|(_, tags)| group.is_some_and(|group| tags.contains(group)));
            let urls: Vec<_> = of_group.map(|(url, _)| *url).collect();
            let now = Instant::now();
            for (urls, force) in [(vec![url], Force::Hard), (urls, Force::Soft)] {
                for reach in [Reach::One(instance), Reach::Settled, Reach::Finally] {
                    book.purged(Purge { urls: urls.clone(), force, begun, holds: now, by: instance, reach });
                }
            }
        });
    }

    /// Removes a record from memory, or evicts one from the store.
    fn forget(&mut self) {
        if self.below(2) == 0 {
            let (instance, url) = (self.instance(), self.url());
            self.book.note(format!("{instance} forgets {url}"));
            self.client(instance).forget(url);
        } else {
            let region = self.region();
            self.servers[region].evict(self.chance.next());
            self.look(region);
            self.book.note("the store forgets something");
        }
    }

    /// Writes the contents of a region's store into the book.
    fn look(&self, region: usize) {
        self.book.look(region * self.shape.instances, &self.servers[region]);
    }

    fn outage(&mut self) {
        if self.shape.regions > 1 && self.below(2) == 0 {
            return self.cut_link();
        }
        let (instance, lasts) = (self.instance(), self.duration(OUTAGE_MAX));
        self.book.note(format!("{instance} is cut off for {lasts:?}"));
        let wire = Arc::clone(&self.wires[instance]);
        wire.cut();
        let book = Arc::clone(&self.book);
        tokio::spawn(async move {
            sleep(lasts).await;
            wire.mend();
            book.note(format!("{instance} is connected"));
        });
    }

    /// Cuts the links of a whole region.
    fn cut_link(&mut self) {
        let (region, lasts) = (self.region(), self.duration(2 * OUTAGE_MAX));
        self.book.note(format!("region {region} is cut off from the others for {lasts:?}"));
        let instances = region * self.shape.instances..(region + 1) * self.shape.instances;
        let of_region = self.links[instances].iter().flat_map(|links| &links.peers);
        let cut: Vec<_> = of_region.map(|(_, link)| Arc::clone(link)).collect();
        cut.iter().for_each(|link| link.cut());
        tokio::spawn(async move {
            sleep(lasts).await;
            cut.iter().for_each(|link| link.mend());
        });
    }

    fn stop(&mut self) {
        let (instance, lasts) = (self.instance(), self.duration(OUTAGE_MAX));
        self.book.note(format!("{instance} stops for {lasts:?}"));
        let process = Arc::clone(&self.processes[instance]);
        process.stop();
        self.book.stopped(instance);
        let book = Arc::clone(&self.book);
        tokio::spawn(async move {
            sleep(lasts).await;
            book.note(format!("{instance} goes on"));
            book.went_on(instance);
            process.go_on();
        });
        // These requests wait until the process continues.
        (0..2).for_each(|_| self.get_from(instance));
    }

    fn get_from(&mut self, instance: usize) {
        let url = self.url();
        self.ask(instance, url, Pace { answer: Duration::ZERO, body: Duration::ZERO });
    }

    fn start_anew(&mut self) {
        let instance = self.instance();
        self.book.note(format!("{instance} starts anew"));
        self.processes[instance].kill();
        self.book.died(instance);
        self.processes[instance] = Process::start(
            (&self.wires[instance], &self.links[instance]),
            self.clocks_ahead_ms[instance],
            self.planted,
        );
        for _ in 0..3 {
            self.get_from(instance);
        }
    }

    /// Lets a store lose its log, a part of it, or recent changes.
    fn lose(&mut self) {
        let region = self.region();
        match self.below(4) {
            0 => {
                self.book.lost();
                self.book.note(format!("store {region} loses its log"));
                self.servers[region].lose_log();
            }
            1 => {
                self.book.lost();
                self.book.note(format!("store {region} is set back"));
                let first = region * self.shape.instances;
                (first..first + self.shape.instances).for_each(|instance| self.book.trouble(instance));
                self.servers[region].set_back(&self.saved[region]);
            }
            2 => {
                self.book.trimmed();
                self.book.note(format!("log {region} is trimmed"));
                let (line, half) = (self.wires[region * self.shape.instances].double.clone(), self.below(2));
                tokio::spawn(async move {
                    let Ok(state) = line.log_state().await else { return };
                    let floor = if half == 0 { state.end.0 } else { (state.floor.0 + state.end.0) / 2 };
                    let _ = line.trim_log(LogCursor { id: state.id, offset: LogOffset(floor) }).await;
                });
            }
            _ => {
                let which = self.below(URLS.len() as u64) as usize;
                let name = names().nth(which).unwrap_or_default();
                self.book.note(format!("{} is set back in store {region}", URLS[which].0));
                self.servers[region].set_record_back(&self.saved[region], &name);
            }
        }
        self.look(region);
    }

    /// Ends the history. After the failures have stopped, all instances must know the contents of the store and no longer have to
    /// read it.
    async fn end(mut self) -> Ending {
        sleep(OUTAGE_MAX).await;
        if self.shape.regions > 1 {
            sleep(OUTAGE_MAX).await;
        }
        for wire in &self.wires {
            wire.mend();
            wire.double.behave(Behaviour::default());
        }
        for (_, link) in self.links.iter().flat_map(|links| &links.peers) {
            link.mend();
            link.double.behave(Behaviour::default());
        }
        self.book.note("all is well");
        sleep(3 * VERIFICATION).await;
        if self.shape.regions > 1 {
            // The purges of one region reach the others.
            sleep(3 * VERIFICATION).await;
            self.book.settled();
        }
        for round in 0..ROUNDS {
            for instance in 0..self.count() {
                for (url, _) in URLS {
                    self.last_look(instance, url, round).await;
                }
            }
            sleep(VERIFICATION).await;
        }
        for process in &self.processes {
            process.kill();
        }
        let mut answers = self.answers.lock();
        Ending {
            violation: answers.violation.take().map(|Violation(violation)| violation),
            served: answers.served,
            story: self.book.story(),
        }
    }

    async fn last_look(&mut self, instance: usize, url: &'static str, round: usize) {
        let pace = Pace { answer: Duration::ZERO, body: Duration::ZERO };
        let client = self.client(instance);
        let served = self.processes[instance].spawn(async move { client.get(url, pace).await }).await;
        match served {
            Ok(Some(served)) => {
                note(&self.book, &self.answers, &served);
                if round == ROUNDS - 1 && served.is_loaded {
                    let says = format!("{served} is a hit that needed the store");
                    self.answers.lock().violation.get_or_insert(Violation(says));
                }
            }
            Ok(None) => {}
            Err(error) => {
                let says = format!("{instance} did not answer: {error}");
                self.answers.lock().violation.get_or_insert(Violation(says));
            }
        }
    }
}

fn note(book: &Book, answers: &parking_lot::Mutex<Answers>, served: &Served) {
    book.note(format!("{} answers {} with {}", served.instance, served.url, served.fetch));
    let mut answers = answers.lock();
    answers.served += 1;
    if let Err(violation) = book.judge(served) {
        answers.violation.get_or_insert(violation);
    }
}

/// Returns the links of an instance of a region.
fn links(region: usize, servers: &[DoubleServer], chance: &mut Rng) -> Links {
    let name = |region: usize| format!("region-{region}");
    let others = servers.iter().enumerate().filter(|(other, _)| *other != region);
    let peers = others.map(|(other, server)| {
        let behaviour =
            Behaviour { latency: Duration::from_millis(chance.next() % 100), ..behaviour(chance) };
        (name(other), Link::new(server.connect(behaviour)))
    });
    Links { name: name(region), peers: peers.collect() }
}

fn behaviour(chance: &mut Rng) -> Behaviour {
    let mut below = |end: u64| chance.next() % end;
    let some = |number: u64| u16::try_from(number).unwrap_or_default();
    Behaviour {
        seed: below(u64::MAX),
        latency: Duration::from_micros(below(20_000)),
        unreachable_permille: if below(4) == 0 { 50 } else { 0 },
        silent_permille: if below(8) == 0 { 20 } else { 0 },
        evicting_permille: if below(4) == 0 { 20 } else { 0 },
        lost_permille: if below(4) == 0 { 50 } else { 0 },
        doubled_permille: some(below(200)),
        late_permille: some(below(500)),
        late_max: Duration::from_millis(below(1_500)),
        ..Behaviour::default()
    }
}
