//! The suite for all tiers, also over a bad network.

use std::sync::Arc;
use std::time::Duration;

use breaker::{Options, Settings};
use store::backing::suite::{self, Bench};
use store::backing::{Deadlines, Guarded};
use store::remote::{Remote, RemoteSettings};
use testkit::{FaultProxy, Faults, Redis, Stall};
use tokio::time::sleep;

use crate::kit::{VERIFICATION, bench, settings};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_is_kept() {
    let redis = Redis::start("");
    suite::check(&bench(&settings(&redis)).await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_come_to_what_the_vectors_say() {
    let redis = Redis::start("");
    let lines = suite::histories::play(&bench(&settings(&redis)).await).await.unwrap();
    suite::histories::compare(&lines);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_is_kept_on_a_crowded_server() {
    let redis = Redis::start("");
    let bench = bench(&settings(&redis)).await;
    let rounds = (0..3).map(|seed| suite::check_under_faults(&bench, 200, seed));
    let [one, two, three] = rounds.collect::<Vec<_>>().try_into().ok().unwrap();
    let (one, two, three) = tokio::join!(one, two, three);
    one.and(two).and(three).unwrap();
}

/// The server follows at most three keys, so most keys are dropped before they change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_is_kept_by_a_server_that_follows_few_keys() {
    let redis = Redis::start("tracking-table-max-keys 3");
    let settings = RemoteSettings { followed_bytes_max: 2000, ..settings(&redis) };
    suite::check_under_faults(&bench(&settings).await, 200, 1).await.unwrap();
}

/// Connections are repeatedly cut, slowed down, and stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fault_breaks_what_must_hold() {
    let redis = Redis::start("");
    let proxies = Arc::new([(); 2].map(|()| FaultProxy::start(redis.address())));
    let tier = |proxy: &FaultProxy| {
        let settings = RemoteSettings::from_url(&proxy.url().replace("http", "redis")).unwrap();
        let remote = Remote::connect(&RemoteSettings { verification: VERIFICATION, ..settings });
        // The circuit breaker has its own test; here, every request is sent.
        let options = Options { requests_min: 100, error_percent: 100, ..Options::default() };
        let guarded = Guarded::new(Box::new(remote), Deadlines::default(), Settings::new(options).unwrap());
        Arc::new(guarded)
    };
    let bench = Bench { own: tier(&proxies[0]), other: tier(&proxies[1]), verification: VERIFICATION };
    let misbehaving = tokio::spawn(misbehave(Arc::clone(&proxies)));
    for seed in 0..4 {
        let checked = suite::check_under_faults(&bench, 150, seed).await;
        checked.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    misbehaving.abort();
}

async fn misbehave(proxies: Arc<[FaultProxy; 2]>) {
    for round in 0usize.. {
        let proxy = &proxies[round % 2];
        match round % 5 {
            0 | 3 => proxy.close_connections(),
            1 => proxy.set(Faults { stall: Stall::Yes, ..Faults::default() }),
            _ => proxy.set(Faults { delay_ms: 3, piece_bytes_max: 70, ..Faults::default() }),
        }
        sleep(Duration::from_millis(60)).await;
        proxy.set(Faults::default());
        sleep(Duration::from_millis(100)).await;
    }
}
