//! `larder kv` as the tier of gateways: the promises that it keeps on Redis, it keeps here.

use std::sync::Arc;
use std::time::Duration;

use store::backing::suite::{self, Bench};
use store::backing::{Backing, CopyStatus, Tracking};
use store::remote::{Remote, RemoteSettings};
use testkit::{FaultProxy, Kv, Signal, wait};
use tokio::time::{Instant, sleep};

use crate::LARDER;

const VERIFICATION: Duration = Duration::from_millis(800);

async fn connected(kv: &Kv) -> Arc<Remote> {
    let settings = RemoteSettings::from_url(&format!("redis://{}", kv.address())).expect("a good URL");
    let remote = Arc::new(Remote::connect(&RemoteSettings { verification: VERIFICATION, ..settings }));
    until("it is connected", || remote.trouble().is_none()).await;
    remote
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + wait::DEADLINE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        sleep(Duration::from_millis(2)).await;
    }
}

async fn bench(kv: &Kv) -> Bench {
    Bench { own: connected(kv).await, other: connected(kv).await, verification: VERIFICATION }
}

#[tokio::test]
async fn the_contract_is_kept() {
    for arguments in [&["--workers", "1"][..], &["--workers", "2"]] {
        let kv = Kv::start(LARDER, arguments);
        let bench = bench(&kv).await;
        suite::check(&bench).await.unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
        let faults = suite::check_under_faults(&bench, 200, 1).await;
        faults.unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
        suite::histories::compare(&suite::histories::play(&bench).await.expect("it works"));
    }
}

#[tokio::test]
async fn a_broken_connection_ends_its_source() {
    let kv = Kv::start(LARDER, &[]);
    let proxy = FaultProxy::start(kv.address());
    let settings = RemoteSettings::from_url(&proxy.url().replace("http", "redis")).expect("a good URL");
    let tier = Remote::connect(&RemoteSettings { verification: VERIFICATION, ..settings });
    until("it is connected", || tier.trouble().is_none()).await;
    let other = connected(&kv).await;
    let write = || store::backing::Write {
        bytes: "one".into(),
        expected: store::backing::Expected::Any,
        ttl: Duration::from_secs(60),
        lease: None,
    };
    other.put(b"key", write()).await.expect("it works");
    let find = async || tier.load(&[b"key"], Tracking::UntilChanged).await.ok()?.pop().flatten();
    let copy = find().await.expect("it is there");
    assert_eq!(tier.standing(copy.source), CopyStatus::Verified);
    proxy.close_connections();
    until("it is doubted", || tier.standing(copy.source) == CopyStatus::Unverified).await;
    until("it is connected again", || tier.trouble().is_none()).await;
    let again = find().await.expect("it is there");
    assert!(again.source.generation > copy.source.generation);
    kv.service.signal(Signal::STOP);
    until("it is doubted", || tier.standing(again.source) == CopyStatus::Unverified).await;
    kv.service.signal(Signal::CONT);
}
