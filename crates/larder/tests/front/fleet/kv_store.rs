//! `larder kv` as the tier of gateways, which fulfils the same contract as with Redis.

use std::sync::Arc;
use std::time::Duration;

use store::backing::suite::{self, Bench};
use store::remote::{Remote, RemoteSettings};
use testkit::{Kv, wait};
use tokio::time::{sleep, timeout};

use crate::LARDER;

const VERIFICATION: Duration = Duration::from_millis(800);

async fn connected(kv: &Kv) -> Arc<Remote> {
    let settings = RemoteSettings::from_url(&format!("redis://{}", kv.address())).expect("a good URL");
    let remote = Arc::new(Remote::connect(&RemoteSettings { verification: VERIFICATION, ..settings }));
    let connects = async {
        while remote.trouble().is_some() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(wait::DEADLINE, connects).await.expect("it is connected");
    remote
}

#[tokio::test]
async fn the_contract_is_kept() {
    for arguments in [&["--workers", "1"][..], &["--workers", "2"]] {
        let kv = Kv::start(LARDER, arguments);
        let bench =
            Bench { own: connected(&kv).await, other: connected(&kv).await, verification: VERIFICATION };
        suite::check(&bench).await.unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
        let faults = suite::check_under_faults(&bench, 200, 1).await;
        faults.unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
        suite::histories::compare(&suite::histories::play(&bench).await.expect("it works"));
    }
}
