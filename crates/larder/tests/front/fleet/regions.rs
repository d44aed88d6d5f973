//! Regions: a store in each of several places, whose purges apply in all of them.

use std::net::SocketAddr;
use std::sync::Arc;

use testkit::{FaultProxy, Faults, Larder, Random, Redis, Setup, Signal, Stall, wait};

use crate::LARDER;
use crate::fleet::instances;
use crate::fleet::purge_waits::{Purged, purge};
use crate::fleet::store_failures::faulty::pages::Pages;
use crate::fleet::store_failures::faulty::{VERIFICATION_MS, config_at};

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
    _store: Redis,
}

const NAMES: [&str; 3] = ["eu", "us", "asia"];
const ONE_WAY_MS: u64 = 40;
const PATHS: [&str; 4] = ["/news/600", "/news/900", "/shop/700", "/shop/9000"];

impl World {
    #[track_caller]
    fn start(regions: usize, gateways: usize) -> Self {
        let pages = Arc::new(Pages::of("a.test"));
        let stores: Vec<Redis> = (0..regions).map(|_| Redis::start("")).collect();
        let addresses: Vec<SocketAddr> = stores.iter().map(Redis::address).collect();
        let region = |(index, store): (usize, Redis)| {
            let others: Vec<usize> = (0..regions).filter(|other| *other != index).collect();
            let links: Vec<_> = others.iter().map(|other| FaultProxy::start(addresses[*other])).collect();
            let mut config =
                config_at(&format!("redis://{}/0", store.address()), "64MiB", VERIFICATION_MS, &[&pages]);
            config.push_str(&format!("[region]\nname = \"{}\"\n", NAMES[index]));
            for (other, link) in others.iter().zip(&links) {
                link.set(open());
                let (name, address) = (NAMES[*other], link.address());
                config.push_str(&format!(
                    "[[region.peers]]\nname = \"{name}\"\nurl = \"redis://{address}/0\"\n"
                ));
            }
            let gateways = instances::start(gateways, |_| Setup::config(LARDER, &config));
            Region { config, links, gateways, _store: store }
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
