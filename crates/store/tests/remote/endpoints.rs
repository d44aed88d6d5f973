//! Several addresses of one server.

use std::time::Duration;

use store::backing::Backing;
use store::remote::{Remote, RemoteSettings};
use testkit::{FaultProxy, Faults, Redis, Stall};

use super::kit::{VERIFICATION, connected, load, put, until};

fn settings(addresses: &[String]) -> RemoteSettings {
    let urls: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let settings = RemoteSettings::from_endpoints(&urls).unwrap();
    let return_after = Duration::from_millis(300);
    RemoteSettings { verification: VERIFICATION, connect_timeout: VERIFICATION, return_after, ..settings }
}

fn url(address: std::net::SocketAddr) -> String {
    format!("redis://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nearest_that_works_is_used() {
    let redis = Redis::start("");
    let (near, far) = (FaultProxy::start(redis.address()), FaultProxy::start(redis.address()));
    let tier = connected(settings(&[url(near.address()), url(far.address())])).await;
    tier.log_state().await.unwrap();
    put(&tier, b"key", b"value").await;
    assert_eq!(far.connections(), 0);
    for round in 1..3 {
        let generation = tier.source().generation;
        near.set(Faults { stall: Stall::Yes, ..Faults::default() });
        until("the far one is used", async || {
            tier.source().generation > generation && tier.trouble().is_none() && far.connections() > 0
        })
        .await;
        assert_eq!(load(&tier, b"key").await.unwrap().bytes, b"value"[..], "round {round}");
        let (generation, connections) = (tier.source().generation, near.connections());
        near.set(Faults::default());
        until("the near one is used again", async || {
            tier.source().generation > generation
                && tier.trouble().is_none()
                && near.connections() > connections
        })
        .await;
        assert_eq!(load(&tier, b"key").await.unwrap().bytes, b"value"[..], "round {round}");
    }
}

/// A server that restarts empty is still the same store.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_lost_its_data_is_used_again() {
    let mut redis = Redis::start("");
    let far = FaultProxy::start(redis.address());
    let tier = connected(settings(&[url(redis.address()), url(far.address())])).await;
    let before = tier.log_state().await.unwrap().id;
    redis.kill();
    until("the connection is lost", async || tier.trouble().is_some()).await;
    redis.start_again();
    until("it has a new log", async || tier.log_state().await.is_ok_and(|state| state.id != before)).await;
}

/// Two masters are never one store.
#[tokio::test(flavor = "multi_thread")]
async fn another_server_is_not_an_endpoint() {
    let (mut one, other) = (Redis::start(""), Redis::start(""));
    let tier = connected(settings(&[url(one.address()), url(other.address())])).await;
    tier.log_state().await.unwrap();
    let lonely = Remote::connect(&settings(&[url(other.address()), url(one.address())]));
    until("it has a log", async || lonely.log_state().await.is_ok()).await;
    one.kill();
    until("it says why it isn't used", async || {
        tier.trouble().is_some_and(|why| why.contains("the endpoint has other data"))
    })
    .await;
    assert!(tier.log_state().await.is_err());
}
