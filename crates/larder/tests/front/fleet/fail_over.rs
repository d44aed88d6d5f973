//! A fleet whose store is several servers: replicas with sentinels, or a cluster. Its masters end, and slots move.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Larder, RedisCluster, RedisService, RespClient, Setup, Signal, hash_slot, wait};

use crate::LARDER;
use crate::fleet::instances;
use crate::fleet::purge_waits::purge;
use crate::fleet::store_failures::faulty::pages::Pages;
use crate::fleet::store_failures::faulty::{VERIFICATION_MS, config_at};
use crate::fleet::store_failures::load;

/// Maximum time until the sentinels agree on a new master. A master counts as down after half a second.
const FAIL_OVER_MAX: Duration = Duration::from_secs(60);

/// Changes a page and purges it at one gateway. If the purge is complete, no gateway may serve an older version. Returns whether it is.
fn purge_is_kept(pages: &Pages, gateways: &[Larder], at: usize, path: &str) -> bool {
    let version = pages.change(path);
    let purged = purge(&gateways[at], &format!("url=http://{}{path}", pages.host()));
    if !purged.is_complete {
        return false;
    }
    for gateway in gateways {
        let got = pages.get(&mut gateway.client(), path);
        assert!(
            got.version >= version,
            "version {} of {path} after a purge of {version}: {}",
            got.version,
            purged.text
        );
    }
    true
}

/// Ends the master, and stops it the next time. Meanwhile, clients get correct responses and operators purge. `FAIL_OVERS` is the number of
/// rounds.
#[test]
fn a_fleet_follows_its_store_to_another_master() {
    let rounds = std::env::var("FAIL_OVERS").map_or(2, |rounds| rounds.parse().expect("a number"));
    let mut service = RedisService::start("");
    let pages = Arc::new(Pages::of("a.test"));
    let config = config_at(&service.url(), "64MiB", VERIFICATION_MS, &[&pages]);
    let gateways = instances::start(2, |_| Setup::config(LARDER, &config));
    let hot: Vec<String> = [600, 900, 6_000].iter().map(|length| format!("/hot/{length}")).collect();
    let mut slowest = Duration::ZERO;
    for round in 0..rounds {
        let load = load(&format!("round{round}"), &pages, &gateways, &hot);
        load.goes_on(50);
        assert!(purge_is_kept(&pages, &gateways, 0, &hot[0]), "all is well");
        let master = service.master_index();
        let signal = if round % 2 == 0 { Signal::KILL } else { Signal::STOP };
        service.nodes()[master].signal(signal);
        let begun = Instant::now();
        let mut purges = 0;
        while service.master_index() == master {
            assert!(begun.elapsed() < FAIL_OVER_MAX, "the sentinels don't agree");
            purge_is_kept(&pages, &gateways, purges % 2, &hot[purges % hot.len()]);
            purges += 1;
        }
        let announced = Instant::now();
        wait::until_true("the gateways are one cache again", || {
            purges += 1;
            purge_is_kept(&pages, &gateways, purges % 2, &hot[purges % hot.len()])
        });
        slowest = slowest.max(announced.elapsed());
        load.goes_on(50);
        load.stop();
        if signal == Signal::KILL {
            service.nodes()[master].kill();
            service.nodes()[master].start_again();
        } else {
            service.nodes()[master].signal(Signal::CONT);
        }
        service.wait_until_complete();
    }
    eprintln!("one cache again at most {slowest:?} after {rounds} fail-overs");
    // The few rounds of a busy machine say nothing about the time.
    assert!(rounds < 10 || slowest < Duration::from_secs(2), "{slowest:?}");
}

/// Replicas that don't answer keep a purge from being complete, and the answer says why.
#[test]
fn a_purge_that_only_the_master_has_is_not_complete() {
    let mut service = RedisService::start("");
    let pages = Pages::of("a.test");
    let config = config_at(&service.url(), "64MiB", VERIFICATION_MS, &[&pages]);
    let gateways = instances::start(1, |_| Setup::config(LARDER, &config));
    let master = service.master_index();
    let replicas = service.nodes().iter().enumerate().filter(|(index, _)| *index != master);
    replicas.for_each(|(_, replica)| replica.signal(Signal::STOP));
    let purged = purge(&gateways[0], "everything=true");
    assert!(
        !purged.is_complete && purged.text.contains("\"not_replicated\":[\"default\"]"),
        "{}",
        purged.text
    );
    service.nodes()[(master + 1) % 3].signal(Signal::CONT);
    wait::until_true("a replica is back", || purge(&gateways[0], "everything=true").is_complete);
}

/// Moves the slots of up to `count` keys from one node to another, as `redis-cli --cluster reshard` does.
fn reshard(cluster: &RedisCluster, from: usize, to: usize, count: usize) {
    let names = RespClient::connect(cluster.nodes()[from].address()).names("*");
    let slots: BTreeSet<u16> = names.iter().map(|name| hash_slot(name)).collect();
    for slot in slots.into_iter().take(count) {
        cluster.begin_move(slot, from, to);
        cluster.end_move(slot, to);
    }
}

/// Slots move, a node is added, and masters end, with and without the log. Meanwhile, clients get correct responses and operators purge.
#[test]
fn a_fleet_follows_its_store_over_a_cluster() {
    let mut cluster = RedisCluster::with_replicas();
    let pages = Arc::new(Pages::of("a.test"));
    let config = config_at(&cluster.url(), "64MiB", VERIFICATION_MS, &[&pages]);
    let gateways = instances::start(2, |_| Setup::config(LARDER, &config));
    let hot: Vec<String> = (0..12).map(|number| format!("/hot/{number}/{}", 600 + 700 * number)).collect();
    let load = load("cluster", &pages, &gateways, &hot);
    load.goes_on(50);
    let mut purges = 0;
    let mut purge_some = |count: usize| {
        let kept = (0..count).filter(|_| {
            purges += 1;
            purge_is_kept(&pages, &gateways, purges % 2, &hot[purges % hot.len()])
        });
        kept.count()
    };
    assert_eq!(purge_some(12), 12, "all is well");
    // The log is in slot 6,680, on the second node.
    thread::scope(|scope| {
        let moving = scope.spawn(|| (0..6).for_each(|round| reshard(&cluster, round % 2, 1 - round % 2, 8)));
        while !moving.is_finished() {
            purge_some(4);
        }
    });
    cluster.add_node();
    cluster.wait_until_complete();
    let added = cluster.nodes().len() - 1;
    thread::scope(|scope| {
        let moving = scope.spawn(|| (0..3).for_each(|from| reshard(&cluster, from, added, 20)));
        while !moving.is_finished() {
            purge_some(4);
        }
    });
    for (master, what) in [(2, "records"), (1, "the log")] {
        cluster.nodes_mut()[master].signal(Signal::KILL);
        // Without a majority of masters, no replica could take over from the next one.
        thread::scope(|scope| {
            let replaced = scope.spawn(|| cluster.wait_until_replaced(master));
            while !replaced.is_finished() {
                purge_some(4);
            }
        });
        let what = format!("purges are complete without the master of {what}");
        wait::until_true(&what, || purge_some(4) == 4);
    }
    load.goes_on(100);
    load.stop();
}
