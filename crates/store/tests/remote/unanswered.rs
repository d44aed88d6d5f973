//! Leases whose replies come late or never.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use store::Refusal;
use store::backing::{
    Backing, Expected, LeaseMode, LeaseRequest, PutOutcome, RenewOutcome, TakeOutcome, WaitOutcome,
};
use store::remote::{Remote, RemoteSettings};
use testkit::{Fate, Redis, RespProxy, Seen};
use tokio::time::timeout;

use crate::inside::{LEASE, lease};
use crate::kit::{VERIFICATION, connected, load, names, put, remote, until};

/// Returns an instance behind a proxy.
async fn behind(proxy: &RespProxy) -> Arc<Remote> {
    let settings = RemoteSettings::from_url(&format!("redis://{}", proxy.address())).unwrap();
    connected(RemoteSettings { verification: VERIFICATION, ..settings }).await
}

fn is_lease(seen: &Seen<'_>) -> bool {
    seen.name() == "SET" && seen.key().windows(3).any(|part| part == b":l:")
}

/// A lease that may have been granted is released, whether or not there is a record under its key.
#[tokio::test]
async fn a_lease_that_was_given_to_nobody_holds_nobody_up() {
    let redis = Redis::start("");
    let (proxy, other) = (RespProxy::start(redis.address()), remote(&redis).await);
    let tier = behind(&proxy).await;
    put(&other, b"known", b"record").await;
    for key in [&b"new"[..], b"known"] {
        until("it is connected", async || tier.trouble().is_none()).await;
        let seen = load(&other, key).await.map(|there| there.version);
        let is_silent = AtomicBool::new(false);
        proxy.decide(move |seen| {
            if is_lease(seen) {
                is_silent.store(true, Ordering::Relaxed);
            }
            if is_silent.load(Ordering::Relaxed) { Fate::Hold } else { Fate::Pass }
        });
        let taken = timeout(Duration::from_millis(300), tier.take_lease(key, LEASE)).await;
        assert!(!matches!(taken, Ok(Ok(_))), "{taken:?}");
        assert!(matches!(lease(&other, key).await, TakeOutcome::Held { .. }));
        proxy.decide(|_| Fate::Pass);
        proxy.close_connections();
        let waited = other.wait(key, seen, Duration::from_secs(20)).await.unwrap();
        assert!(matches!(waited, WaitOutcome::Told | WaitOutcome::Free), "{waited:?}");
        assert_eq!(load(&other, key).await.map(|there| there.version), seen);
        assert!(matches!(lease(&other, key).await, TakeOutcome::Taken(_)));
    }
}

/// A full server's reply to a release arrives after the lease has expired and another instance has taken it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_refused_late_frees_no_other_lease() {
    let redis = Redis::start("");
    let (proxy, other) = (RespProxy::start(redis.address()), remote(&redis).await);
    let tier = behind(&proxy).await;
    let request = LeaseRequest { ttl: Duration::from_millis(500), note: b"", mode: LeaseMode::IfFree };
    let TakeOutcome::Taken(held) = tier.take_lease(b"key", request).await.unwrap() else {
        panic!("it is free")
    };
    redis.command("CONFIG SET maxmemory 1");
    proxy.decide(|seen| if seen.name() == "EXEC" { Fate::Hold } else { Fate::Pass });
    let releasing =
        tokio::spawn(
            async move { tier.release_lease(&held, crate::kit::write(b"new", Expected::Any)).await },
        );
    until("it is refused", async || proxy.held() == 1).await;
    until("the lease has ended", async || names(&redis, "*:l:*").is_empty()).await;
    redis.command("CONFIG SET maxmemory 0");
    let TakeOutcome::Taken(theirs) = lease(&other, b"key").await else { panic!("it has ended") };
    proxy.decide(|_| Fate::Pass);
    proxy.release();
    assert_eq!(releasing.await.unwrap().unwrap(), PutOutcome::NotStored(Refusal::OverBudget));
    let renewed = other.renew_lease(&theirs, LEASE.ttl).await;
    assert!(matches!(renewed, Ok(RenewOutcome::Renewed)), "{renewed:?}");
}
