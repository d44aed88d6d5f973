//! A server with replicas and sentinels.

use std::time::Duration;

use rustix::process::Signal;
use store::backing::{Backing, LogCursor, Replication};
use store::remote::{Remote, RemoteSettings, examine};
use testkit::{Redis, RedisService};

use super::kit::{VERIFICATION, connected, load, put, until};

fn settings(service: &RedisService) -> RemoteSettings {
    RemoteSettings { verification: VERIFICATION, ..RemoteSettings::from_url(&service.url()).unwrap() }
}

/// Waits until a record can be written and read, over a new connection.
async fn works_again(tier: &Remote, generation: u32, key: &[u8]) {
    until("there is a new connection", async || {
        tier.source().generation > generation && tier.trouble().is_none()
    })
    .await;
    put(tier, key, b"new").await;
    assert_eq!(load(tier, key).await.expect("it is there").bytes, b"new"[..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_new_master_is_found() {
    let mut service = RedisService::start("");
    // Heartbeats notice nothing during the test: only the sentinels tell that a stopped master is replaced.
    let verification = Duration::from_secs(600);
    let tier = connected(RemoteSettings { verification, ..settings(&service) }).await;
    put(&tier, b"key", b"old").await;
    for signal in [Signal::KILL, Signal::STOP] {
        let index = service.master_index();
        let generation = tier.source().generation;
        service.nodes()[index].signal(signal);
        until("there is a new master", async || service.master_index() != index).await;
        works_again(&tier, generation, b"key").await;
        match signal {
            Signal::KILL => {
                service.nodes()[index].kill();
                service.nodes()[index].start_again();
            }
            _ => service.nodes()[index].signal(Signal::CONT),
        }
        service.wait_until_complete();
        let examined = examine(&settings(&service)).await.unwrap();
        assert_eq!((examined.is_master, examined.replicas), (Some(true), 2));
    }
}

/// A planned fail-over leaves the old master running, as a replica.
#[tokio::test(flavor = "multi_thread")]
async fn a_planned_fail_over_is_followed() {
    let service = RedisService::start("");
    let tier = connected(settings(&service)).await;
    let (index, generation) = (service.master_index(), tier.source().generation);
    until("there is a new master", async || {
        // Refused while one is in progress. An attempt that a busy machine delays for too long is given up.
        service.sentinels()[2].command("SENTINEL FAILOVER main");
        service.master_index() != index
    })
    .await;
    works_again(&tier, generation, b"key").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn purges_wait_for_most_servers() {
    let mut service = RedisService::start("");
    let tier = connected(settings(&service)).await;
    let append = async || {
        tier.append_log(&["record".into()]).await.unwrap();
        tier.replicate_log(Duration::from_millis(300)).await.unwrap()
    };
    until("the replicas confirm it", async || append().await == Replication::Complete).await;
    let replicas = [1, 2].map(|after| (service.master_index() + after) % 3);
    service.nodes()[replicas[0]].signal(Signal::STOP);
    until("one replica is enough", async || append().await == Replication::Complete).await;
    service.nodes()[replicas[1]].signal(Signal::STOP);
    assert_eq!(append().await, Replication::Incomplete);
    service.nodes()[replicas[0]].signal(Signal::CONT);
    until("a replica is back", async || append().await == Replication::Complete).await;
    service.nodes()[replicas[1]].signal(Signal::CONT);
    let state = tier.log_state().await.unwrap();
    let all = LogCursor { id: state.id, offset: state.floor };
    assert!(tier.read_log(all).await.unwrap().records.len() >= 3, "it was not written anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_sentinels_the_reason_is_told() {
    let lonely = Redis::start("");
    for (url, reason) in [
        (
            "redis+sentinel://127.0.0.1:1/main".to_owned(),
            "no sentinel can be reached: no connection: Connection refused",
        ),
        (format!("redis+sentinel://{}/main", lonely.address()), "a sentinel answers: "),
    ] {
        let settings = RemoteSettings::from_url(&url).unwrap();
        let tier = Remote::connect(&settings);
        until(reason, async || tier.trouble().is_some_and(|why| why.contains(reason))).await;
        let error = examine(&settings).await.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
