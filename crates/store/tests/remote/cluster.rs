//! A cluster of several masters.

use std::sync::Arc;
use std::time::Duration;

use store::backing::suite;
use store::backing::{Backing, BackingError, LeaseMode, LeaseRequest, TakeOutcome, Tracking, WaitOutcome};
use store::remote::{Remote, RemoteSettings};
use testkit::{RedisCluster, Signal};
use tokio::time::{Instant, sleep};

use super::kit::{Notes, VERIFICATION, bench, connected, follow, load, put, until};

fn settings(cluster: &RedisCluster) -> RemoteSettings {
    RemoteSettings { verification: VERIFICATION, ..RemoteSettings::from_url(&cluster.url()).unwrap() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_is_kept() {
    let cluster = RedisCluster::start();
    suite::check(&bench(&settings(&cluster)).await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_come_to_what_the_vectors_say() {
    let cluster = RedisCluster::start();
    let lines = suite::histories::play(&bench(&settings(&cluster)).await).await.unwrap();
    suite::histories::compare(&lines);
}

/// Moves slots with keys back and forth until it is aborted.
async fn move_slots(cluster: Arc<RedisCluster>) {
    for round in 0usize.. {
        let (from, to) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
        let cluster = Arc::clone(&cluster);
        let moved = tokio::task::spawn_blocking(move || {
            let mut client = testkit::RespClient::connect(cluster.nodes()[from].address());
            let names = client.names("*");
            let slots: std::collections::BTreeSet<u16> =
                names.iter().map(|name| resp::hash_slot(name)).collect();
            for slot in slots.into_iter().take(20) {
                cluster.begin_move(slot, from, to);
                cluster.end_move(slot, to);
            }
        });
        moved.await.unwrap();
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_is_kept_while_slots_move() {
    let cluster = Arc::new(RedisCluster::start());
    let bench = bench(&settings(&cluster)).await;
    let moving = tokio::spawn(move_slots(Arc::clone(&cluster)));
    for seed in 0..4 {
        let checked = suite::check_under_faults(&bench, 150, seed).await;
        checked.unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
    }
    assert!(!moving.is_finished(), "the slots were moved until the end");
    moving.abort();
}

/// Returns the slot of a key's record.
async fn slot_of(tier: &Remote, cluster: &RedisCluster, key: &[u8]) -> u16 {
    put(tier, key, b"x").await;
    let names = |node: &testkit::Redis| testkit::RespClient::connect(node.address()).names("larder:r:*");
    let slot = cluster.nodes().iter().flat_map(names).map(|name| resp::hash_slot(&name)).next().unwrap();
    tier.remove(key).await.unwrap();
    slot
}

fn owner(slot: u16) -> usize {
    usize::from(slot >= 5461) + usize::from(slot >= 10_923)
}

/// A key that doesn't exist causes no message when its slot moves, and the request that waits for it asks nobody meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_for_a_record_that_moves_is_told() {
    let mut cluster = RedisCluster::start();
    cluster.add_node();
    cluster.wait_until_complete();
    let (own, other) = tokio::join!(connected(settings(&cluster)), connected(settings(&cluster)));
    let slot = slot_of(&own, &cluster, b"absent").await;
    let request = LeaseRequest { ttl: Duration::from_secs(30), note: b"", mode: LeaseMode::IfFree };
    let TakeOutcome::Taken(lease) = other.take_lease(b"absent", request).await.unwrap() else { panic!() };
    let waiter = Arc::clone(&own);
    let waiting = tokio::spawn(async move { waiter.wait(b"absent", None, Duration::from_secs(20)).await });
    sleep(Duration::from_millis(100)).await;
    cluster.begin_move(slot, owner(slot), 3);
    cluster.end_move(slot, 3);
    let moved = Instant::now();
    let write = store::backing::Write {
        bytes: b"done".as_slice().into(),
        expected: store::backing::Expected::Any,
        ttl: Duration::from_secs(60),
        lease: None,
    };
    until("the lease is released", async || other.release_lease(&lease, write.clone()).await.is_ok()).await;
    let waited = waiting.await.unwrap().unwrap();
    assert!(
        matches!(&waited, WaitOutcome::Changed(Some(found)) if found.bytes == b"done"[..])
            || matches!(waited, WaitOutcome::Told),
        "{waited:?}"
    );
    assert!(moved.elapsed() < Duration::from_secs(5), "{:?}", moved.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_of_a_slot_that_moves_are_suspect() {
    let cluster = RedisCluster::start();
    let tier = connected(settings(&cluster)).await;
    let notes = Notes::of(&tier);
    let slot = slot_of(&tier, &cluster, b"absent").await;
    assert!(tier.load(&[b"absent"], Tracking::UntilChanged).await.unwrap()[0].is_none());
    let before = notes.count(b"absent");
    let from = owner(slot);
    cluster.begin_move(slot, from, (from + 1) % 3);
    cluster.end_move(slot, (from + 1) % 3);
    until("it is announced", async || notes.count(b"absent") > before).await;
    put(&tier, b"absent", b"there").await;
    assert_eq!(follow(&tier, b"absent").await.bytes, b"there"[..]);
}

/// A master that is gone says nothing about the others, and must not open their circuit breaker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rest_works_without_one_master() {
    let mut cluster = RedisCluster::start();
    let tier = connected(settings(&cluster)).await;
    tier.log_state().await.unwrap();
    // The log is in slot 6,680, on the second node.
    cluster.nodes_mut()[0].signal(Signal::KILL);
    until("the keys of one master are away", async || {
        let mut away = 0;
        for number in 0..30 {
            let key = format!("key-{number}");
            match tier.load(&[key.as_bytes()], Tracking::Off).await {
                Err(error @ BackingError::PartAway(_)) => {
                    assert!(!error.is_of_tier());
                    away += 1;
                }
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        (1..30).contains(&away)
    })
    .await;
    assert!(tier.append_log(&["record".into()]).await.is_ok());
    assert!(tier.trouble().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_takes_over_from_a_master_that_dies() {
    let mut cluster = RedisCluster::with_replicas();
    let tier = connected(settings(&cluster)).await;
    let keys: Vec<String> = (0..30).map(|number| format!("key-{number}")).collect();
    for key in &keys {
        put(&tier, key.as_bytes(), b"old").await;
    }
    for master in [0, 1] {
        cluster.nodes_mut()[master].signal(Signal::KILL);
        until("the tier is complete again", async || tier.trouble().is_some()).await;
        until("the tier is complete again", async || tier.trouble().is_none()).await;
        for key in &keys {
            put(&tier, key.as_bytes(), b"new").await;
            assert_eq!(load(&tier, key.as_bytes()).await.unwrap().bytes, b"new"[..]);
        }
        let state = tier.log_state().await.unwrap();
        assert!(tier.append_log(&["record".into()]).await.is_ok() && state.end >= state.floor);
    }
}
