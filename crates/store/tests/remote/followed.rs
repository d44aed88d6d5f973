//! What is told of changes.

use std::sync::Arc;
use std::time::Duration;

use store::backing::{Backing, Expected, LogState, Standing, Tracking, Waited, Write};
use store::remote::RemoteSettings;
use testkit::Redis;

use crate::kit::{Notes, connected, follow, load, put, remote, settings, until, write};

/// Changes of every kind, by whatever means, are told; `change` makes one of a followed key.
async fn check(directives: &str, ttl: Duration, change: impl AsyncFn(&Redis, &str)) {
    let redis = Redis::start(directives);
    let tier = remote(&redis).await;
    let notes = Notes::of(&tier);
    tier.put(b"key", Write { ttl, ..write(b"one", Expected::Any) }).await.unwrap();
    let name = crate::kit::names(&redis, "larder:r:*").pop().unwrap();
    let copy = follow(&tier, b"key").await;
    change(&redis, &name).await;
    until("it is told", async || notes.count(b"key") > 0).await;
    assert_eq!(tier.standing(copy.source), Standing::Verified, "nothing else is doubted");
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

/// The server gives up keys when it follows too many, and says so.
#[tokio::test]
async fn what_the_server_gives_up_is_told() {
    let redis = Redis::start("tracking-table-max-keys 1");
    let tier = remote(&redis).await;
    let notes = Notes::of(&tier);
    for key in [b"one", b"two"] {
        put(&tier, key, b"x").await;
        follow(&tier, key).await;
    }
    until("one is told", async || notes.count(b"one") + notes.count(b"two") > 0).await;
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
    assert!((40..50).contains(&told), "{told} of 50 are told");
    let long = vec![b'k'; 1000];
    put(&tier, &long, b"x").await;
    let found = tier.load(&[&long], Tracking::UntilChanged).await.unwrap().pop().flatten().unwrap();
    assert_eq!(found.tracking, Tracking::Off, "what can't be followed says so");
}

/// FLUSHALL: everything is suspect, the connection is as good as before, and the log is another one.
#[tokio::test]
async fn a_flush_makes_all_suspect() {
    let redis = Redis::start("");
    let tier = remote(&redis).await;
    let notes = Notes::of(&tier);
    put(&tier, b"key", b"one").await;
    let copy = follow(&tier, b"key").await;
    let before = tier.log_state().await.unwrap();
    redis.command("FLUSHALL");
    until("it is told", async || notes.is_suspect(copy.source)).await;
    assert_eq!(load(&tier, b"key").await, None);
    let is_another = |state: LogState| state.id != before.id;
    until("another log is told", async || notes.log().is_some_and(is_another)).await;
    put(&tier, b"key", b"two").await;
    let copy = follow(&tier, b"key").await;
    put(&tier, b"key", b"three").await;
    until("it is told again", async || notes.count(b"key") > 0).await;
    assert_eq!(tier.standing(copy.source), Standing::Verified);
}

#[tokio::test]
async fn the_log_is_followed() {
    let redis = Redis::start("");
    let (own, other) = (remote(&redis).await, remote(&redis).await);
    let notes = Notes::of(&own);
    for round in 0..10 {
        other.append_log(&[vec![round].into()]).await.unwrap();
        let state = other.log_state().await.unwrap();
        until("an append is told", async || notes.log() == Some(state)).await;
    }
    let floor = other.log_state().await.unwrap();
    other.trim_log(floor.cursor()).await.unwrap();
    until("a trim is told", async || notes.log().is_some_and(|state| state.floor == floor.end)).await;
}

/// Who waits is woken, however many wait for whatever.
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
        assert!(matches!(waited, Waited::Told | Waited::Changed(Some(_))), "{waited:?}");
    }
}
