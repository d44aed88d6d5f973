//! Regions: a store in each of several places, whose purges apply in all of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use testkit::{FaultProxy, Faults, Larder, Random, Redis, RespClient, Setup, Signal, Stall, wait};

use crate::LARDER;
use crate::fleet::instances;
use crate::fleet::purge_waits::{Purged, purge};
use crate::fleet::store_failures::faulty::pages::Pages;
use crate::fleet::store_failures::faulty::{VERIFICATION_MS, config_at};

/// The user of `docs/operate/regions.md` for the carriers of other regions, with the password `pw`.
const PEER_USER: &str = "user larder-peer on >pw resetkeys %R~larder:log %R~larder:m:* -@all +hello +ping +select \
                         +client|setname +client|tracking +client|caching +role +time +getrange +strlen";

/// Regions, each with a store and gateways. Between two regions, bytes take `ONE_WAY_MS` in each direction.
struct World {
    pages: Arc<Pages>,
    regions: Vec<Region>,
}

struct Region {
    config: String,
    /// Links to the stores of the other regions, in their order.
    links: Vec<FaultProxy>,
    gateways: Vec<Larder>,
    store: Redis,
}

const NAMES: [&str; 3] = ["eu", "us", "asia"];
const ONE_WAY_MS: u64 = 40;
const PATHS: [&str; 4] = ["/news/600", "/news/900", "/shop/700", "/shop/9000"];

impl World {
    #[track_caller]
    fn start(regions: usize, gateways: usize) -> Self {
        Self::start_with(regions, gateways, |config| config)
    }

    #[track_caller]
    fn start_with(regions: usize, gateways: usize, change: fn(String) -> String) -> Self {
        let pages = Arc::new(Pages::of("a.test"));
        let stores: Vec<Redis> = (0..regions).map(|_| Redis::start(PEER_USER)).collect();
        let addresses: Vec<SocketAddr> = stores.iter().map(Redis::address).collect();
        let region = |(index, store): (usize, Redis)| {
            let others: Vec<usize> = (0..regions).filter(|other| *other != index).collect();
            let links: Vec<_> = others.iter().map(|other| FaultProxy::start(addresses[*other])).collect();
            links.iter().for_each(|link| link.set(open()));
            let peers = others.iter().zip(&links).map(|(other, link)| (NAMES[*other], link.address()));
            let peers: Vec<_> = peers.collect();
            let config = change(config(store.address(), NAMES[index], &peers, &pages));
            let gateways = instances::start(gateways, |_| Setup::config(LARDER, &config));
            Region { config, links, gateways, store }
        };
        let regions: Vec<Region> = stores.into_iter().enumerate().map(region).collect();
        let world = Self { pages, regions };
        world.wait_until_one();
        world
    }

    fn gateways(&self) -> impl Iterator<Item = &Larder> {
        self.regions.iter().flat_map(|region| &region.gateways)
    }

    /// Waits until purges of each region are complete in all of them.
    #[track_caller]
    fn wait_until_one(&self) {
        for region in &self.regions {
            wait::until_true("the regions are one", || {
                self.purge(&region.gateways[0], "url=http://a.test/none/1").is_complete
            });
        }
    }

    fn purge(&self, at: &Larder, query: &str) -> Purged {
        purge(at, query)
    }

    /// Loads all pages into all gateways.
    fn warm(&self) {
        for gateway in self.gateways() {
            PATHS.iter().for_each(|path| _ = self.pages.get(&mut gateway.client(), path));
        }
    }

    /// Checks that no gateway serves an older version of these pages than `versions`.
    #[track_caller]
    fn has(&self, paths: &[&str], versions: &[u64], after: &str) {
        for (index, region) in self.regions.iter().enumerate() {
            for (number, gateway) in region.gateways.iter().enumerate() {
                for (path, version) in paths.iter().zip(versions) {
                    let got = self.pages.get(&mut gateway.client(), path).version;
                    assert!(
                        got >= *version,
                        "{} {number} has version {got} of {path}, not {version}, after {after}",
                        NAMES[index]
                    );
                }
            }
        }
    }
}

/// Configuration of an instance of a region, given the names of its peers and the addresses of their stores.
fn config(store: SocketAddr, region: &str, peers: &[(&str, SocketAddr)], pages: &Pages) -> String {
    let of_region = config_at(&format!("redis://{store}/0"), "64MiB", VERIFICATION_MS, &[pages]);
    let peer = |(name, address): &(&str, SocketAddr)| {
        format!("[[region.peers]]\nname = \"{name}\"\nurl = \"redis://larder-peer:pw@{address}/0\"\n")
    };
    let peers: String = peers.iter().map(peer).collect();
    format!("{of_region}[region]\nname = \"{region}\"\n{peers}")
}

fn open() -> Faults {
    Faults { latency_ms: ONE_WAY_MS, ..Faults::default() }
}

/// Forms of purges, with the pages that they select.
const FORMS: [(&str, &[&str]); 5] = [
    ("url=http://a.test/news/600", &["/news/600"]),
    ("host=a.test&mode=soft", &PATHS),
    ("prefix=/shop/", &["/shop/700", "/shop/9000"]),
    ("site=a.test", &PATHS),
    ("everything=true&mode=soft", &PATHS),
];

#[test]
fn a_purge_applies_in_all_regions() {
    let world = World::start(3, 2);
    for (number, (query, paths)) in FORMS.iter().enumerate() {
        world.warm();
        let versions: Vec<u64> = paths.iter().map(|path| world.pages.change(path)).collect();
        let region = &world.regions[number % 3];
        let purged = world.purge(&region.gateways[number % 2], query);
        assert!(purged.is_complete, "{query}: {}", purged.text);
        assert_eq!(purged.text.matches("complete_ms").count(), 2, "{query}: {}", purged.text);
        world.has(paths, &versions, query);
    }
    // One instance of each region carries purges.
    for region in &world.regions {
        let carriers: f64 =
            region.gateways.iter().map(|gateway| gateway.metric("larder_region_carrier", &[])).sum();
        assert_eq!(carriers, 1.0);
    }
    for region in &world.regions {
        let log = RespClient::connect(region.store.address()).ask(&[b"ACL", b"LOG"]);
        assert_eq!(String::from_utf8_lossy(&log), "*0\r\n", "peers only read");
    }
    let purged = world.purge(&world.regions[0].gateways[0], "everything=true&wait=near");
    assert!(purged.is_complete && !purged.text.contains("regions"), "{}", purged.text);
}

/// An unsafe request in one region invalidates what others have stored.
#[test]
fn an_unsafe_request_applies_in_all_regions() {
    let world = World::start(2, 1);
    world.warm();
    let version = world.pages.change(PATHS[0]);
    let [near, far] = [0, 1].map(|region: usize| &world.regions[region].gateways[0]);
    let answer = near
        .client()
        .send(format!("POST {} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n", PATHS[0]))
        .response();
    assert_eq!(answer.status(), 200);
    wait::until_true("the other region has the new version", || {
        world.pages.get(&mut far.client(), PATHS[0]).version >= version
    });
}

/// A peer whose store is that of this region, or belongs to another one, isn't followed, and purges say why.
#[test]
fn a_peer_that_is_another_one_is_refused() {
    let (eu, us) = (Redis::start(PEER_USER), Redis::start(PEER_USER));
    let pages = Pages::of("a.test");
    let start = |store: &Redis, region: &str, peers: &[(&str, SocketAddr)]| {
        let peers: Vec<_> = peers.iter().map(|(name, address)| (*name, *address)).collect();
        Setup::config(LARDER, &config(store.address(), region, &peers, &pages)).start()
    };
    // The address of the proxy hides that the store is the region's own.
    let own = FaultProxy::start(eu.address());
    let empty = Redis::start(PEER_USER);
    let near = start(&eu, "eu", &[("us", own.address()), ("asia", us.address()), ("moon", empty.address())]);
    // This one doesn't name the other.
    let _far = start(&us, "us", &[("asia", empty.address())]);
    for why in [
        "has no purge log with this `prefix`",
        "lead to the store of eu",
        "lead to the store of the region \\\"us\\\"",
    ] {
        wait::until_true(why, || {
            let purged = purge(&near, "everything=true");
            !purged.is_complete && purged.text.contains(why)
        });
    }
    assert!(purge(&near, "everything=true&wait=near").is_complete);
}

/// While purges of a peer may have been unknown for too long, strict instances validate what they have stored.
#[test]
fn strict_instances_validate_while_a_region_is_away() {
    let strict = |config: String| {
        let config = config.replace("[store.remote]\n", "[store.remote]\ncoherence = \"strict\"\n");
        config.replace("[region]\n", "[region]\npurge_lag_max = \"2s\"\n")
    };
    let world = World::start_with(2, 1, strict);
    let region = &world.regions[0];
    let is_hit = || world.pages.get(&mut region.gateways[0].client(), PATHS[0]).response.is_hit();
    wait::until_true("a hit", is_hit);
    region.links[0].set(Faults { stall: Stall::Yes, ..open() });
    wait::until_true("no hit", || !is_hit());
    region.links[0].set(open());
    wait::until_true("a hit again", is_hit);
}

/// The loss of a log has the effect of one soft purge of everything in the other region.
#[test]
fn what_a_peer_has_lost_counts_as_purged() {
    let world = World::start(2, 1);
    let [near, far] = [0, 1].map(|region: usize| &world.regions[region]);
    let losses =
        |gateway: &Larder| gateway.stderr().matches("purges of another region may have been lost").count();
    world.warm();
    let before = losses(&near.gateways[0]);
    near.links[0].set(Faults { stall: Stall::Yes, ..open() });
    let version = world.pages.change(PATHS[0]);
    let purged = purge(&far.gateways[0], "url=http://a.test/news/600");
    assert!(!purged.is_complete && purged.text.contains("\"pending\""), "{}", purged.text);
    far.store.command("DEL larder:log");
    near.links[0].set(open());
    wait::until_true("the loss is noticed", || losses(&near.gateways[0]) == before + 1);
    assert!(world.pages.get(&mut near.gateways[0].client(), PATHS[0]).version >= version);
    world.wait_until_one();
    assert_eq!(losses(&near.gateways[0]), before + 1, "once");
}

/// A store that is restored from yesterday has purged responses, and a log that ends before purges which the other region has applied. No
/// instance remembers them, but the other region does.
#[test]
fn a_region_whose_store_was_restored_serves_nothing_purged() {
    let mut world = World::start(2, 1);
    world.warm();
    instances::is_written(&world.regions[0].gateways[0]);
    assert_eq!(world.regions[0].store.command("SAVE"), "+OK");
    let versions = PATHS.map(|path| world.pages.change(path));
    let purged = purge(&world.regions[0].gateways[0], "site=a.test");
    assert!(purged.is_complete, "{}", purged.text);
    let region = &mut world.regions[0];
    region.gateways[0].signal(Signal::KILL);
    region.gateways.clear();
    region.store.kill();
    region.store.start_again();
    region.gateways.push(Setup::config(LARDER, &region.config).start());
    world.wait_until_one();
    world.has(&PATHS, &versions, "a restored store");
}

/// Each region reports to the other one why it can't be reached. Once it can, neither has a reason any more.
#[test]
fn reasons_end_with_their_cause() {
    let world = World::start(2, 1);
    let reasons = |region: &Region| {
        let log = region.gateways[0].stderr();
        let is_pending =
            |line: &&str| line.contains("purges between this region and another one are pending");
        let is_over = |line: &&str| line.contains("purges apply in this region and in another one");
        let mut lines = log.lines().filter(|line| is_pending(line) || is_over(line));
        (log.lines().filter(is_pending).count(), lines.next_back().is_some_and(|line| is_over(&line)))
    };
    let counts = || [0, 1].map(|region: usize| reasons(&world.regions[region]).0);
    let before = counts();
    world.regions[0].links[0].set(Faults { stall: Stall::Yes, ..open() });
    wait::until_true("both have a reason", || {
        counts().iter().zip(before).all(|(count, before)| *count > before)
    });
    world.regions[0].links[0].set(open());
    wait::until_true("no reason is left", || world.regions.iter().all(|region| reasons(region).1));
    world.wait_until_one();
    assert!(world.regions.iter().all(|region| reasons(region).1), "no reason comes back");
}

/// A server that an active-active database keeps in each of two places: each copies the keys that are written in the other one, late and
/// in any order. A region reads its peer's keys at its own server, and may not write them.
#[test]
fn regions_share_an_active_active_database() {
    const PREFIXES: [&str; 2] = ["eu:", "us:"];
    let acl = |own: &str, other: &str| format!("user larder on >pw ~{own}* %R~{other}* &* +@all");
    let stores = [Redis::start(&acl("eu:", "us:")), Redis::start(&acl("us:", "eu:"))];
    let copying = Copying::start(
        [0, 1].map(|from: usize| (stores[from].address(), stores[1 - from].address(), PREFIXES[from])),
    );
    let pages = Pages::of("a.test");
    let gateway = |at: usize| {
        let url = format!("redis://larder:pw@{}/0", stores[at].address());
        let keys = format!("[store.remote]\nprefix = \"{}\"\n", PREFIXES[at]);
        let config = config_at(&url, "64MiB", VERIFICATION_MS, &[&pages]).replace("[store.remote]\n", &keys);
        let (own, other) = (NAMES[at], NAMES[1 - at]);
        let peer = format!(
            "[[region.peers]]\nname = \"{other}\"\nurl = \"{url}\"\nprefix = \"{}\"\n",
            PREFIXES[1 - at]
        );
        Setup::config(LARDER, &format!("{config}[region]\nname = \"{own}\"\n{peer}")).start()
    };
    let gateways = [gateway(0), gateway(1)];
    for (number, (query, paths)) in FORMS.iter().chain(&FORMS).enumerate() {
        wait::until_true("a complete purge", || {
            gateways.iter().for_each(|gateway| _ = pages.get(&mut gateway.client(), paths[0]));
            let version = pages.change(paths[0]);
            let purged = purge(&gateways[number % 2], query);
            if purged.is_complete {
                for gateway in &gateways {
                    assert!(
                        pages.get(&mut gateway.client(), paths[0]).version >= version,
                        "{query}: {}",
                        purged.text
                    );
                }
            }
            purged.is_complete
        });
    }
    copying.stop();
    for store in &stores {
        let log = RespClient::connect(store.address()).ask(&[b"ACL", b"LOG"]);
        let log = String::from_utf8_lossy(&log);
        assert_eq!(log, "*0\r\n", "no region tried to write what belongs to the other one");
    }
}

/// Copies keys between two servers.
struct Copying {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Copying {
    /// `pairs`: the server of the keys, the server that gets copies, and the prefix of the keys.
    fn start(pairs: [(SocketAddr, SocketAddr, &'static str); 2]) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let copy = |(from, to, prefix)| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                let mut random = Random::new(1);
                while !is_over.load(Ordering::Relaxed) {
                    copy_once(from, to, prefix, &mut random);
                    thread::park_timeout(Duration::from_millis(random.below(60) as u64));
                }
            })
        };
        Self { threads: pairs.into_iter().map(copy).collect(), is_over }
    }

    fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}

fn copy_once(from: SocketAddr, to: SocketAddr, prefix: &str, random: &mut Random) {
    let (mut from, mut to) = (RespClient::connect(from), RespClient::connect(to));
    let mut names = from.names(&format!("{prefix}*"));
    let gone = to.names(&format!("{prefix}*")).into_iter().filter(|name| !names.contains(name));
    let gone: Vec<_> = gone.collect();
    for name in gone {
        to.ask(&[b"DEL", &name]);
    }
    while !names.is_empty() {
        let name = names.swap_remove(random.below(names.len()));
        let Some(value) = from.value(&name) else { continue };
        if to.value(&name).as_ref() != Some(&value) {
            to.ask(&[b"SET", &name, &value]);
        }
    }
}

/// Links break and stall, and carriers end and stop for longer than their lease. `REGION_PURGES` is the number of purges.
#[test]
fn no_purge_is_lost_between_regions() {
    let purges = std::env::var("REGION_PURGES").map_or(60, |purges| purges.parse().expect("a number"));
    let mut world = World::start(2, 2);
    let mut random = Random::new(7);
    let mut complete = 0;
    for number in 0..purges {
        if number % 10 == 5 {
            disturb(&mut world, random.below(5));
        }
        if number % 10 == 9 {
            calm(&mut world);
        }
        let (query, paths) = FORMS[random.below(FORMS.len())];
        world.warm();
        let versions: Vec<u64> = paths.iter().map(|path| world.pages.change(path)).collect();
        let region = &world.regions[random.below(2)];
        let purged = world.purge(&region.gateways[random.below(2)], query);
        if purged.is_complete {
            complete += 1;
            world.has(paths, &versions, &format!("purge {number}, {query}: {}", purged.text));
        }
    }
    calm(&mut world);
    world.wait_until_one();
    let versions = PATHS.map(|path| world.pages.version(path));
    world.has(&PATHS, &versions, "all purges");
    eprintln!("{complete} of {purges} purges were complete in time");
    assert!(complete > purges / 3, "{complete} of {purges} purges were complete in time");
}

/// Begins a fault.
fn disturb(world: &mut World, fault: usize) {
    let region = &mut world.regions[fault % 2];
    match fault {
        0 => region.links[0].set(Faults { stall: Stall::Yes, ..open() }),
        1 => region.links[0].close_connections(),
        2 => region.links[0].set(Faults { latency_ms: 10 * ONE_WAY_MS, ..open() }),
        3 => {
            let carrier = carrier(region);
            region.gateways[carrier].signal(Signal::KILL);
            region.gateways.remove(carrier);
            region.gateways.push(Setup::config(LARDER, &region.config).start());
        }
        _ => {
            let carrier = carrier(region);
            let gateway = &region.gateways[carrier];
            gateway.signal(Signal::STOP);
            // Its lease ends.
            wait::until_true("another carrier", || {
                let others = region.gateways.iter().enumerate().filter(|(index, _)| *index != carrier);
                others.into_iter().any(|(_, other)| other.metric("larder_region_carrier", &[]) == 1.0)
            });
            gateway.signal(Signal::CONT);
        }
    }
}

fn calm(world: &mut World) {
    world.regions.iter().flat_map(|region| &region.links).for_each(|link| link.set(open()));
}

fn carrier(region: &Region) -> usize {
    let is_carrier = |gateway: &Larder| gateway.metric("larder_region_carrier", &[]) == 1.0;
    wait::until("a carrier", || region.gateways.iter().position(is_carrier))
}
