//! The suite, run on the double.

use breaker::Settings;

use super::super::double::{Behaviour, Double, DoubleLimits, DoubleServer};
use super::super::guard::{Deadlines, Guarded};
use super::super::log::{Continuity, LogCursor};
use super::super::watch::{CopyStatus, Source, Watcher};
use super::*;

const VERIFICATION: Duration = Duration::from_millis(100);

fn server(seed: u64) -> DoubleServer {
    DoubleServer::new(DoubleLimits { verification: VERIFICATION, ..DoubleLimits::default() }, seed)
}

fn guarded(double: Double) -> Arc<dyn Backing> {
    Arc::new(Guarded::new(Box::new(double), Deadlines::default(), Settings::default()))
}

fn bench(server: &DoubleServer, behaviour: Behaviour) -> Bench {
    let [own, other] = [behaviour.seed, behaviour.seed + 1]
        .map(|seed| guarded(server.connect(Behaviour { seed, ..behaviour })));
    Bench { own, other, verification: VERIFICATION }
}

#[tokio::test(start_paused = true)]
async fn the_double_keeps_the_contract() {
    for latency_ms in [0, 5] {
        let latency = Duration::from_millis(latency_ms);
        let bench = bench(&server(1), Behaviour { latency, ..Behaviour::default() });
        check(&bench).await.unwrap();
        check_under_faults(&bench, 300, 1).await.unwrap();
    }
}

/// Late, duplicate and reordered pushes, but no failures.
#[tokio::test(start_paused = true)]
async fn the_double_keeps_the_contract_when_pushes_are_late() {
    let pushes = Behaviour {
        late_permille: 700,
        doubled_permille: 300,
        late_max: VERIFICATION,
        latency: Duration::from_millis(5),
        ..Behaviour::default()
    };
    for seed in 0..5 {
        check(&bench(&server(seed), Behaviour { seed, ..pushes })).await.unwrap();
    }
}

fn faulty(seed: u64) -> Behaviour {
    Behaviour {
        seed,
        latency: Duration::from_millis(seed % 2 * 5),
        unreachable_permille: 100,
        silent_permille: 20,
        evicting_permille: 50,
        lost_permille: 50,
        doubled_permille: 100,
        late_permille: 300,
        late_max: VERIFICATION,
        ..Behaviour::default()
    }
}

#[tokio::test(start_paused = true)]
async fn no_fault_breaks_what_must_hold() {
    for seed in 0..20 {
        let bench = bench(&server(seed), faulty(seed));
        check_under_faults(&bench, 200, seed).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// The suite on real time and several threads, as in production.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_double_keeps_the_contract_under_threads() {
    let server = server(1);
    let tasks = (0..4).map(|seed| {
        let (good, bad) = (bench(&server, Behaviour::default()), bench(&server, faulty(seed)));
        tokio::spawn(async move {
            check_under_faults(&good, 200, seed).await?;
            check_under_faults(&bad, 50, seed).await
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_log_shows() {
    let server = server(1);
    let bench = bench(&server, Behaviour::default());
    bench.own.append_log(&[Bytes::from_static(b"record")]).await.unwrap();
    let read = bench.own.log_state().await.unwrap().cursor();
    server.lose_log();
    bench.other.append_log(&[Bytes::from_static(b"another"), Bytes::new()]).await.unwrap();
    let state = bench.own.log_state().await.unwrap();
    assert_eq!(state.continues(&read), Continuity::Lost);
    assert!(bench.own.read_log(read).await.unwrap().records.is_empty());
    let from = LogCursor { offset: state.floor, ..state.cursor() };
    assert_eq!(bench.own.read_log(from).await.unwrap().records.len(), 2);
}

#[derive(Default)]
struct Sources(parking_lot::Mutex<Vec<Option<Source>>>);

impl Watcher for Sources {
    fn suspect(&self, _keys: &[&[u8]]) {}

    fn all_suspect(&self, source: Option<Source>) {
        self.0.lock().push(source);
    }

    fn log_changed(&self) {}
}

#[tokio::test(start_paused = true)]
async fn a_lost_push_ends_the_source_when_verification_ends() {
    let server = server(1);
    let own = server.connect(Behaviour { lost_permille: 1000, ..Behaviour::default() });
    let other = server.connect(Behaviour::default());
    let told = Arc::new(Sources::default());
    let watcher: std::sync::Weak<Sources> = Arc::downgrade(&told);
    own.watch(watcher);
    put(&other, b"key", b"one").await.unwrap();
    let copy = own.load(&[b"key"], Tracking::UntilChanged).await.unwrap().pop().flatten().unwrap();
    put(&other, b"key", b"two").await.unwrap();
    sleep(VERIFICATION - Duration::from_millis(1)).await;
    assert_eq!(
        (own.standing(copy.source), told.0.lock().len()),
        (CopyStatus::Verified, 0),
        "nobody knows yet"
    );
    sleep(Duration::from_millis(2)).await;
    assert_eq!(own.standing(copy.source), CopyStatus::Ended);
    assert_eq!(*told.0.lock(), [Some(copy.source)]);
    let again = found(&own, b"key").await.unwrap();
    assert_eq!((again.bytes, own.standing(again.source)), (Bytes::from_static(b"two"), CopyStatus::Verified));
    own.reconnect();
    assert_eq!(own.standing(again.source), CopyStatus::Ended);
}
