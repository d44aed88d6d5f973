//! Announcements of changes to followed keys.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use store::backing::{
    AppendOutcome, Backing, CopyStatus, Expected, LogCursor, Source, Tracking, WaitOutcome, Watcher, Write,
};
use store::remote::{Remote, RemoteSettings};
use testkit::{FaultProxy, Faults, Redis};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::kit::{Notes, connected, follow, load, put, remote, settings, until, write};

/// Checks that a change is announced; `change` modifies a followed key.
async fn check(directives: &str, ttl: Duration, change: impl AsyncFn(&Redis, &str)) {
    let redis = Redis::start(directives);
    let tier = remote(&redis).await;
    let notes = Notes::of(&tier);
    tier.put(b"key", Write { ttl, ..write(b"one", Expected::Any) }).await.unwrap();
    let name = crate::kit::names(&redis, "larder:r:*").pop().unwrap();
    let copy = follow(&tier, b"key").await;
    change(&redis, &name).await;
    until("it is told", async || notes.count(b"key") > 0).await;
    assert_eq!(tier.standing(copy.source), CopyStatus::Verified, "nothing else is suspect");
}

#[tokio::test]
async fn changes_by_others_are_told() {
    let minute = Duration::from_secs(60);
    for command in ["SET @ x", "DEL @", "UNLINK @", "APPEND @ x", "PEXPIRE @ 1", "RENAME @ other", "MOVE @ 1"]
    {
        check("", minute, async |redis, name| {
            redis.command(&command.replace('@', name));
        })
        .await;
    }
}

#[tokio::test]
async fn expiry_is_told_unasked() {
    check("", Duration::from_millis(50), async |_, _| {}).await;
}

#[tokio::test]
async fn eviction_is_told() {
    let limits = "maxmemory-policy allkeys-random";
    check(limits, Duration::from_secs(60), async |redis, _| {
        redis.command("CONFIG SET maxmemory 1");
    })
    .await;
}

/// The server drops followed keys if there are too many, and reports it.
#[tokio::test]
async fn what_the_server_gives_up_is_told() {
    let redis = Redis::start("tracking-table-max-keys 1");
    let tier = remote(&redis).await;
    let notes = Notes::of(&tier);
    for key in [b"one", b"two"] {
        put(&tier, key, b"x").await;
        follow(&tier, key).await;
    }
    until("one is announced", async || notes.count(b"one") + notes.count(b"two") > 0).await;
}

#[tokio::test]
async fn what_is_given_up_here_is_told() {
    let redis = Redis::start("");
    let tier = connected(RemoteSettings { followed_bytes_max: 1000, ..settings(&redis) }).await;
    let notes = Notes::of(&tier);
    let keys: Vec<Vec<u8>> = (0..50u8).map(|number| vec![number; 20]).collect();
    for key in &keys {
        put(&tier, key, b"x").await;
        follow(&tier, key).await;
    }
    let told = keys.iter().filter(|key| notes.count(key) > 0).count();
    assert!((40..50).contains(&told), "{told} of 50 are announced");
    let long = vec![b'k'; 1000];
    put(&tier, &long, b"x").await;
    let found = tier.load(&[&long], Tracking::UntilChanged).await.unwrap().pop().flatten().unwrap();
    assert_eq!(found.tracking, Tracking::Off, "the reply says that the key isn't followed");
}

/// After FLUSHALL, all copies are suspect, the connection stays verified, and the log is a new one.
#[tokio::test]
async fn a_flush_makes_all_suspect() {
    let redis = Redis::start("");
    let tier = remote(&redis).await;
    let notes = Notes::of(&tier);
    put(&tier, b"key", b"one").await;
    let copy = follow(&tier, b"key").await;
    let (before, told) = (tier.log_state().await.unwrap(), notes.log_count());
    redis.command("FLUSHALL");
    until("it is told", async || notes.is_suspect(copy.source)).await;
    assert_eq!(load(&tier, b"key").await, None);
    until("another log is announced", async || notes.log_count() > told).await;
    assert_ne!(tier.log_state().await.unwrap().id, before.id);
    put(&tier, b"key", b"two").await;
    let copy = follow(&tier, b"key").await;
    put(&tier, b"key", b"three").await;
    until("it is announced again", async || notes.count(b"key") > 0).await;
    assert_eq!(tier.standing(copy.source), CopyStatus::Verified);
}

#[tokio::test]
async fn the_log_is_followed() {
    let redis = Redis::start("");
    let (own, other) = (remote(&redis).await, remote(&redis).await);
    let notes = Notes::of(&own);
    for round in 0..10 {
        let told = notes.log_count();
        other.append_log(&[vec![round].into()]).await.unwrap();
        until("an append is announced", async || notes.log_count() > told).await;
        // When the append is announced, the server follows the log again.
        assert_eq!(own.log_state().await.unwrap(), other.log_state().await.unwrap());
    }
    let (floor, told) = (other.log_state().await.unwrap(), notes.log_count());
    other.trim_log(floor.cursor()).await.unwrap();
    until("a trim is announced", async || notes.log_count() > told).await;
}

/// Reader that continues only when a change of the log is announced.
struct LogReader {
    tier: Arc<Remote>,
    told: Notify,
    read: Mutex<LogCursor>,
}

impl LogReader {
    async fn of(tier: &Arc<Remote>) -> Arc<Self> {
        let read = Mutex::new(tier.log_state().await.unwrap().cursor());
        let reader = Arc::new(Self { tier: Arc::clone(tier), told: Notify::new(), read });
        let watcher: Weak<Self> = Arc::downgrade(&reader);
        tier.watch(watcher);
        let reading = Arc::clone(&reader);
        tokio::spawn(async move {
            loop {
                reading.told.notified().await;
                let from = *reading.read.lock();
                let part = reading.tier.read_log(from).await.unwrap();
                *reading.read.lock() = part.state.cursor();
            }
        });
        reader
    }

    async fn reaches(&self, place: LogCursor) {
        until("it is read", async || *self.read.lock() == place).await;
    }
}

impl Watcher for LogReader {
    fn suspect(&self, _keys: &[&[u8]]) {}

    fn all_suspect(&self, _source: Option<Source>) {}

    fn log_changed(&self) {
        self.told.notify_one();
    }
}

async fn append(tier: &Remote, record: Vec<u8>) -> LogCursor {
    match tier.append_log(&[record.into()]).await.unwrap() {
        AppendOutcome::Taken(state) => state.cursor(),
        appended @ AppendOutcome::NotStored(_) => panic!("{appended:?}"),
    }
}

/// The log changes at any moment between announcement, following and reading.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_of_the_log_is_missed() {
    let redis = Redis::start("");
    let (own, other) = (remote(&redis).await, remote(&redis).await);
    let reader = LogReader::of(&own).await;
    for round in 0..200u32 {
        let mut place = append(&other, vec![0; 10]).await;
        for more in 0..round % 5 {
            sleep(Duration::from_micros(u64::from(round * more % 7) * 20)).await;
            place = append(&other, vec![1; 10]).await;
        }
        reader.reaches(place).await;
    }
}

/// A change of the log is read within one round trip after its announcement, without any other request first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_log_is_read_in_one_round_trip() {
    const ONE_WAY: Duration = Duration::from_millis(50);
    let redis = Redis::start("");
    let proxy = FaultProxy::start(redis.address());
    let direct = settings(&redis);
    let far = RemoteSettings::from_url(&format!("redis://{}", proxy.address())).unwrap();
    let own = connected(RemoteSettings { address: far.address, ..direct }).await;
    let (reader, other) = (LogReader::of(&own).await, remote(&redis).await);
    proxy.set(Faults { latency_ms: 50, ..Faults::default() });
    let mut quickest = Duration::MAX;
    for round in 0..5 {
        let begun = Instant::now();
        let place = append(&other, vec![round]).await;
        reader.reaches(place).await;
        quickest = quickest.min(begun.elapsed());
    }
    assert!(quickest < 4 * ONE_WAY, "one way until it is told, and two to read it: {quickest:?}");
}

/// All waiters are woken, whatever the number of waiters and records.
#[tokio::test]
async fn all_who_wait_are_woken() {
    let redis = Redis::start("");
    let (own, other) = (remote(&redis).await, remote(&redis).await);
    let keys: Vec<[u8; 1]> = (0..20u8).map(|number| [number]).collect();
    let waits: Vec<_> = keys
        .iter()
        .flat_map(|key| [*key, *key])
        .map(|key| {
            let own = Arc::clone(&own);
            tokio::spawn(async move {
                crate::inside::lease(&own, &key).await;
                own.wait(&key, None, Duration::from_secs(20)).await.unwrap()
            })
        })
        .collect();
    until("all leases are held", async || crate::kit::names(&redis, "larder:l:*").len() == 20).await;
    for key in &keys {
        put(&other, key, b"there").await;
    }
    for wait in waits {
        let waited = wait.await.unwrap();
        assert!(matches!(waited, WaitOutcome::Told | WaitOutcome::Changed(Some(_))), "{waited:?}");
    }
}
