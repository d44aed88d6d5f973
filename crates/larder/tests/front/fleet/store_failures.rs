//! A fleet whose store fails: no client request fails, no wrong response is served, and all instances agree again once the store is back.

pub(crate) mod faulty;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use faulty::damage::{self, DAMAGES, KINDS};
use faulty::pages::Pages;
use faulty::store::{FAULTS, Fault, Kind, Store, signs};
use faulty::{VERIFICATION_MS, config};
use testkit::{
    Fate, FaultProxy, Faults, Larder, Random, Redis, RespClient, RespProxy, Setup, Signal, Stall, wait,
};

use crate::LARDER;
use crate::admin::steady_clients::{Repeated, Work};
use crate::fleet::instances;
use crate::fleet::instances::{is_written, status};
use crate::fleet::purge_waits::{doubts, purge};

/// Changes a page, and reloads it at a gateway.
fn change(pages: &Pages, gateway: &Larder, path: &str) -> u64 {
    let version = pages.change(path);
    let got = pages.get_with(&mut gateway.client(), path, "Cache-Control: no-cache\r\n");
    assert_eq!(got.version, version, "a reload");
    version
}

/// Waits until a gateway has a version that another one has fetched.
#[track_caller]
fn has(pages: &Pages, gateway: &Larder, path: &str, version: u64) {
    let mut client = gateway.client();
    let what = format!("{path} has version {version}");
    wait::until_true(&what, || pages.get(&mut client, path).version == version);
}

const CLIENTS: usize = 4;
/// Time between two requests of a client: a flood would be a different fault.
const PACE: Duration = Duration::from_millis(8);
/// Interval between requests for pages that aren't in any memory.
const MISS_EVERY: usize = 5;

/// Starts clients that request new and old pages from all gateways and check every response. `name` is part of the new pages.
pub(crate) fn load(name: &str, pages: &Arc<Pages>, gateways: &[Larder], hot: &[String]) -> Repeated {
    let client = |number: usize| -> Work {
        let (pages, hot, new) = (Arc::clone(pages), hot.to_vec(), format!("/new/{name}/{number}"));
        let mut clients: Vec<_> = gateways.iter().map(Larder::client).collect();
        Box::new(move |turn| {
            let place = turn % clients.len();
            let path = match turn % MISS_EVERY {
                // Each gateway requests it in turn.
                0 => format!("{new}/{}/3000", turn / (2 * MISS_EVERY)),
                other => hot[(other + turn / MISS_EVERY) % hot.len()].clone(),
            };
            pages.get(&mut clients[place], &path);
            thread::park_timeout(PACE);
            true
        })
    };
    Repeated::start((0..CLIENTS).map(client))
}

/// Runs one fault during load. Returns the time from its end until all instances agreed again.
fn outage(
    fault: Fault,
    store: &mut Store,
    pages: &Arc<Pages>,
    gateways: &[Larder],
    hot: &[String],
) -> Duration {
    let before: Vec<f64> = gateways.iter().map(|gateway| signs(fault, gateway)).collect();
    let load = load(&format!("{fault:?}"), pages, gateways, hot);
    load.goes_on(50);
    store.begin(fault);
    store.is_noticed(fault, gateways, &before);
    let during = change(pages, &gateways[0], &hot[0]);
    load.goes_on(100);
    store.end(fault);
    let back = Instant::now() + fault.lingers();
    let afterwards = change(pages, &gateways[0], &hot[1]);
    // If a server without memory refused a response, other instances keep the old one until it expires or changes again.
    if fault != Fault::Full {
        has(pages, &gateways[1], &hot[0], during);
    }
    has(pages, &gateways[1], &hot[1], afterwards);
    let coherent = back.elapsed();
    load.goes_on(50);
    load.stop();
    is_written(&gateways[0]);
    coherent
}

fn outages(kind: Kind) {
    let mut store = Store::start(kind);
    let pages = Arc::new(Pages::of("a.test"));
    let config = config(store.address(), "64MiB", VERIFICATION_MS, &[&pages]);
    let gateways = instances::start(2, |_| Setup::config(LARDER, &config));
    let hot: Vec<String> = [600, 900, 6_000, 100_000].iter().map(|length| format!("/hot/{length}")).collect();
    let limit = Duration::from_millis(VERIFICATION_MS + 1000);
    let late: Vec<_> = FAULTS
        .into_iter()
        .map(|fault| (fault, outage(fault, &mut store, &pages, &gateways, &hot)))
        .filter(|(_, coherent)| *coherent > limit)
        .collect();
    assert!(late.is_empty(), "coherent within {limit:?}: {late:?}");
}

#[test]
fn no_outage_of_redis_is_seen_by_clients() {
    outages(Kind::Redis);
}

#[test]
fn no_outage_of_larder_kv_is_seen_by_clients() {
    outages(Kind::Kv);
}

/// The store doesn't answer when the purge arrives, nor when the process starts to stop.
#[test]
fn a_purge_outlives_its_instance_where_the_store_answers_late() {
    let (redis, pages) = (Redis::start(""), Pages::of("a.test"));
    let path = FaultProxy::start(redis.address());
    let stores = [path.address(), redis.address()];
    let config = |index: usize| config(stores[index], "64MiB", VERIFICATION_MS, &[&pages]);
    let mut gateways = instances::start(2, |index| Setup::config(LARDER, &config(index)));
    let hot = "/hot/600";
    pages.get(&mut gateways[0].client(), hot);
    is_written(&gateways[0]);
    pages.get(&mut gateways[1].client(), hot);
    let version = pages.change(hot);
    path.set(Faults { stall: Stall::Yes, ..Faults::default() });
    assert!(!purge(&gateways[0], "everything=true").is_complete);
    let mut ending = gateways.remove(0);
    ending.signal(Signal::TERM);
    wait::until_true("it starts to stop", || ending.stderr().contains("stopping"));
    let connections = path.connections();
    wait::until_true("it tries the store again", || {
        ending.service().assert_runs();
        path.connections() > connections
    });
    path.set(Faults::default());
    has(&pages, &gateways[0], hot, version);
    assert!(ending.service().end().success());
    assert!(!ending.stderr().contains("panicked"), "{}", ending.stderr());
}

/// Two sites, two instances, and pages for each way of storing a body: in the record, in one segment, in several segments.
struct Damaged {
    store: Store,
    sites: [Pages; 2],
    gateways: Vec<Larder>,
    random: Random,
}

impl Damaged {
    fn start() -> Self {
        let store = Store::start(Kind::Redis);
        let sites = [Pages::of("a.test"), Pages::of("b.test")];
        let config = config(store.address(), "64MiB", 1000, &[&sites[0], &sites[1]]);
        let gateways = instances::start(2, |_| Setup::config(LARDER, &config));
        Self { store, sites, gateways, random: Random::new(7) }
    }

    fn change(&self, paths: &[String]) {
        self.sites.iter().for_each(|site| paths.iter().for_each(|path| _ = site.change(path)));
    }

    /// Requests all pages from a gateway, and asserts that each has the origin's version.
    #[track_caller]
    fn is_current(&self, gateway: usize, paths: &[String], what: &str) {
        let mut client = self.gateways[gateway].client();
        for (site, path) in self.sites.iter().flat_map(|site| paths.iter().map(move |path| (site, path))) {
            let got = site.get(&mut client, path);
            let expected = site.version(path);
            let said = || format!("{what}: {}{path}: {}", site.host(), status(&got.response));
            assert_eq!(got.version, expected, "{} at {gateway}", said());
        }
    }

    /// Purges until a purge is complete: purges still work, whatever was damaged.
    #[track_caller]
    fn purge_is_complete(&self, query: &str, what: &str) {
        let what = format!("{what}: a purge is complete");
        wait::until_true(&what, || purge(&self.gateways[1], query).is_complete);
    }

    /// Damages all keys of one kind, cycling through the kinds of damage from `turn` on.
    fn check(&mut self, number: usize, kind: &str, turn: usize) {
        let what = format!("{kind} {} {number}", DAMAGES[turn]);
        let lengths = if kind == "segment" { [90_000, 1_100_000] } else { [600, 90_000] };
        let paths = lengths.map(|length| format!("/{number}/{length}"));
        let mut client = self.store.client();
        self.is_current(0, &paths, &what);
        is_written(&self.gateways[0]);
        let before = damage::contents(&mut client);
        // The damage below may revert this purge.
        self.change(&paths);
        self.purge_is_complete("everything=true", &what);
        self.is_current(0, &paths, &what);
        is_written(&self.gateways[0]);
        let count = damage::damage(&mut client, kind, turn, &before, &mut self.random);
        assert!(count > 0, "{what}: there is no such key");
        self.is_current(1, &paths, &what);
        self.is_current(0, &paths, &what);
        self.change(&paths);
        let query = ["everything=true", "everything=true&mode=soft"][number % 2];
        let is_complete = purge(&self.gateways[1], query).is_complete;
        self.is_current(1, &paths, &what);
        if is_complete {
            self.is_current(0, &paths, &what);
        }
        self.purge_is_complete("everything=true", &what);
        [0, 1].iter().for_each(|gateway| self.is_current(*gateway, &paths, &what));
        is_written(&self.gateways[0]);
        damage::clear(&mut client);
    }
}

/// Whichever key of the store is damaged, no wrong bytes, responses of another site or purged responses are served, and purges still work.
#[test]
fn whatever_is_damaged_in_the_store_nothing_wrong_is_served() {
    let mut damaged = Damaged::start();
    let all = KINDS.iter().flat_map(|kind| (0..DAMAGES.len()).map(move |turn| (*kind, turn)));
    all.enumerate().for_each(|(number, (kind, turn))| damaged.check(number, kind, turn));
}

/// A server may answer heartbeats and report changes, but fail to return the log. Purges are complete without an instance that can't read
/// the log, and that instance knows that its copies are unverified.
#[test]
fn an_instance_that_cannot_read_the_purge_log_says_so() {
    let redis = Redis::start("");
    for coherence in ["strict", "available"] {
        let replies = RespProxy::start(redis.address());
        let pages = Pages::of("a.test");
        let text = |store| {
            let coherent = format!("coherence = \"{coherence}\"\nrecord_timeout");
            config(store, "64MiB", 500, &[&pages]).replace("record_timeout", &coherent)
        };
        let stores = [replies.address(), redis.address()];
        let gateways = instances::start(2, |index| Setup::config(LARDER, &text(stores[index])));
        let path = format!("/page/{coherence}/1000");
        let before = pages.get(&mut gateways[1].client(), &path).version;
        is_written(&gateways[1]);
        has(&pages, &gateways[0], &path, before);
        assert_eq!(gateways[0].metric("larder_tier_verified", &[]), 1.0, "{coherence}");
        replies.decide(|seen| match &*seen.name() {
            "GETRANGE" | "STRLEN" if seen.key() == b"larder:log" => {
                Fate::Replace(b"-ERR planted\r\n".to_vec())
            }
            _ => Fate::Pass,
        });
        gateways[1].wait_for("larder_tier_instances", &[], |known| known == 1.0);
        gateways[0].wait_for("larder_tier_verified", &[], |verified| verified == 0.0);
        let log = gateways[0].stderr();
        let is_told = log.contains("the purge log of the shared store can't be read");
        assert!(is_told && log.contains("planted"), "{log}");
        let after = pages.change(&path);
        let purged = purge(&gateways[1], &format!("url=http%3A%2F%2Fa.test{}", path.replace('/', "%2F")));
        assert!(purged.is_complete, "{}", purged.text);
        let unverified = doubts(&gateways[0], "unverified");
        let got = pages.get(&mut gateways[0].client(), &path);
        match coherence {
            "strict" => assert_eq!(got.version, after, "its copy is validated"),
            _ => assert!(
                got.version == after || doubts(&gateways[0], "unverified") > unverified,
                "it is counted"
            ),
        }
        replies.decide(|_| Fate::Pass);
        gateways[0].wait_for("larder_tier_verified", &[], |verified| verified == 1.0);
        has(&pages, &gateways[0], &path, after);
    }
}

/// A store with room for a tenth of the responses keeps few of them, but causes no additional requests to the origin and no repeated
/// writes. An instance that reconnects asks the store instead of the origin.
#[test]
fn a_store_that_is_too_small_is_no_burden() {
    let redis = Redis::start("maxmemory 4mb\nmaxmemory-policy volatile-lfu");
    let pages = Pages::of("a.test");
    let config = config(redis.address(), "4MiB", VERIFICATION_MS, &[&pages]);
    let gateways = instances::start(4, |_| Setup::config(LARDER, &config));
    let ask_all = |path: &String| {
        gateways.iter().for_each(|gateway| _ = pages.get(&mut gateway.client(), path));
    };
    let hot: Vec<String> = (0..20).map(|page| format!("/hot/{page}/600")).collect();
    for path in &hot {
        pages.get(&mut gateways[0].client(), path);
        is_written(&gateways[0]);
        ask_all(path);
    }
    assert_eq!(pages.origin.total(), hot.len(), "each was fetched only once");
    redis.command("CLIENT KILL TYPE normal SKIPME yes");
    for round in 0..5 {
        hot.iter().for_each(ask_all);
        assert_eq!(pages.origin.total(), hot.len(), "round {round} after all have lost their connections");
    }
    let written = calls(&redis, "set");
    let set: Vec<String> = (0..100).map(|page| format!("/page/{page}/150000")).collect();
    for _ in 0..2 {
        set.iter().for_each(ask_all);
    }
    gateways.iter().for_each(is_written);
    let (asked, written) = (pages.origin.total() - hot.len(), calls(&redis, "set") - written);
    let requests = 2 * gateways.len() * set.len();
    assert!(asked <= requests, "{asked}");
    // Writes for the lease, for the record, which ends the lease, and for segments.
    assert!(written <= 6 * asked, "{written} writes for {asked} responses");
}

fn calls(redis: &Redis, command: &str) -> usize {
    let statistics = redis.command("INFO commandstats");
    let name = format!("cmdstat_{command}:calls=");
    let line = statistics.lines().find_map(|line| line.strip_prefix(&name));
    line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// The server counts the commands it processes. Heartbeats are rare enough not to interfere.
#[test]
fn a_hit_asks_the_store_for_nothing() {
    for kind in [Kind::Redis, Kind::Kv] {
        let store = Store::start(kind);
        let pages = Pages::of("a.test");
        let config = config(store.address(), "64MiB", 3_600_000, &[&pages]);
        let gateways: Vec<Larder> = (0..2).map(|_| Setup::config(LARDER, &config).start()).collect();
        let paths = [600, 90_000].map(|length| format!("/hot/{length}"));
        let mut clients: Vec<_> = gateways.iter().map(Larder::client).collect();
        for gateway in &gateways {
            paths.iter().for_each(|path| _ = pages.get(&mut gateway.client(), path));
            is_written(gateway);
        }
        let mut client = store.client();
        // At first, the gateways may validate a response requested before they read the log, and follow the keys that they wrote.
        wait::until_true("hits send no commands", || {
            let before = processed(&mut client);
            let mut hits = 0;
            for path in paths.iter().cycle().take(200) {
                for client in &mut clients {
                    hits += usize::from(pages.get(client, path).response.is_hit());
                }
            }
            // The only command is the INFO that counts.
            hits == 400 && processed(&mut client) - before == 1
        });
    }
}

fn processed(client: &mut RespClient) -> usize {
    let reply = client.ask(&[b"INFO", b"stats"]);
    let text = String::from_utf8_lossy(&reply).into_owned();
    let count = text.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    count.and_then(|count| count.trim().parse().ok()).expect("it counts")
}
