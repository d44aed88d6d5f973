//! Servers that are killed, suspended or restarted.

use std::sync::Arc;
use std::time::Duration;

use breaker::{Options, Settings};
use bytes::Bytes;
use store::backing::{
    Backing, BackingError, Continuity, CopyStatus, Deadlines, Guarded, TakeOutcome, Tracking,
};
use store::remote::Remote;
use store::{FillId, SegmentId};
use testkit::{Redis, Signal};
use tokio::time::Instant;

use crate::inside::lease;
use crate::kit::{Notes, VERIFICATION, follow, is_unreachable, load, put, remote, settings, told, until};

/// Checks that every operation that needs a server fails.
async fn everything_fails_at_once(tier: &Remote) {
    let begun = Instant::now();
    let id = SegmentId { fill: FillId::next(), index: 0 };
    assert!(is_unreachable(&tier.load(&[b"key"], Tracking::UntilChanged).await));
    assert!(is_unreachable(&tier.remove(b"key").await));
    assert!(is_unreachable(&tier.load_segments(id.fill, &[0]).await));
    assert!(is_unreachable(&tier.put_segment(id, Bytes::from_static(b"x"), VERIFICATION).await));
    assert!(is_unreachable(&tier.take_lease(b"key", crate::inside::LEASE).await));
    assert!(is_unreachable(&tier.wait(b"key", None, VERIFICATION).await));
    assert!(is_unreachable(&tier.append_log(&[Bytes::from_static(b"x")]).await));
    assert!(begun.elapsed() < Duration::from_millis(200), "nothing waits: {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_server_that_was_killed_comes_back_as_another_source() {
    let mut redis = Redis::start("");
    let tier = remote(&redis).await;
    let notes = Notes::of(&tier);
    put(&tier, b"key", b"one").await;
    let copy = follow(&tier, b"key").await;
    let (before, told) = (tier.log_state().await.unwrap(), notes.log_count());
    redis.kill();
    until("all is announced as suspect", async || notes.is_suspect(copy.source)).await;
    assert_ne!(tier.standing(copy.source), CopyStatus::Verified);
    everything_fails_at_once(&tier).await;
    redis.start_again();
    until("it is connected again", async || tier.trouble().is_none()).await;
    assert_eq!(load(&tier, b"key").await, None, "the server has forgotten");
    put(&tier, b"key", b"one").await;
    let again = follow(&tier, b"key").await;
    assert!(again.source.generation > copy.source.generation);
    let standings = [copy.source, again.source].map(|source| tier.standing(source));
    assert_eq!(standings, [CopyStatus::Ended, CopyStatus::Verified], "never again, and anew");
    until("the loss of the log is announced", async || notes.log_count() > told).await;
    assert_eq!(tier.log_state().await.unwrap().continues(&before.cursor()), Continuity::Lost);
}

#[tokio::test]
async fn a_server_may_come_later() {
    let mut redis = Redis::start("");
    redis.kill();
    let tier = Remote::connect(&settings(&redis));
    everything_fails_at_once(&tier).await;
    until("it says why", async || tier.trouble().is_some_and(|why| why.contains("refused"))).await;
    redis.start_again();
    until("it is connected", async || tier.trouble().is_none()).await;
    put(&tier, b"key", b"one").await;
}

/// A stopped server keeps its connections open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stopped_is_doubted_in_time() {
    let redis = Redis::start("");
    let tier = remote(&redis).await;
    let notes = Notes::of(&tier);
    put(&tier, b"key", b"one").await;
    let copy = follow(&tier, b"key").await;
    redis.signal(Signal::STOP);
    let stopped = Instant::now();
    let mut asked = std::pin::pin!(tier.load(&[b"key"], Tracking::Off));
    let early = tokio::time::timeout(VERIFICATION / 4, &mut asked).await;
    assert!(early.is_err(), "the connection is open, but no reply arrives");
    until("copies are no longer verified", async || tier.standing(copy.source) != CopyStatus::Verified).await;
    assert!(stopped.elapsed() <= VERIFICATION + Duration::from_millis(200), "{:?}", stopped.elapsed());
    assert!(is_unreachable(&asked.await), "a waiting request fails when the connection is closed");
    until("all is announced as suspect", async || notes.is_suspect(copy.source)).await;
    everything_fails_at_once(&tier).await;
    redis.signal(Signal::CONT);
    until("it is connected again", async || tier.trouble().is_none()).await;
    assert_eq!(load(&tier, b"key").await.unwrap().bytes, b"one"[..]);
    assert_ne!(tier.standing(copy.source), CopyStatus::Verified, "never again");
}

/// The tier has the deadlines and the circuit breaker of production.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stopped_costs_a_deadline() {
    let redis = Redis::start("");
    let inner = Remote::connect(&settings(&redis));
    until("it is connected", async || inner.trouble().is_none()).await;
    let tier = Guarded::new(Box::new(inner), Deadlines::default(), Settings::default());
    redis.signal(Signal::STOP);
    let begun = Instant::now();
    let answer = tier.remove(b"key").await;
    assert!(matches!(answer, Err(BackingError::TimedOut { .. })), "{answer:?}");
    assert!(begun.elapsed() < VERIFICATION / 2, "{:?}", begun.elapsed());
    until("the breaker opens", async || matches!(tier.remove(b"key").await, Err(BackingError::Open { .. })))
        .await;
    redis.signal(Signal::CONT);
}

/// A circuit breaker lets requests through as soon as the server has returned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_back_is_asked_at_once() {
    let mut redis = Redis::start("");
    let hour_ms = 3_600_000;
    let options = Options { reset_ms: hour_ms, reset_ms_max: hour_ms, ..Options::default() };
    let breaker = Settings::new(options).unwrap();
    let remote = Box::new(Remote::connect(&settings(&redis)));
    let tier = Guarded::new(remote, Deadlines::default(), breaker);
    until("it is connected", async || tier.remove(b"key").await.is_ok()).await;
    let is_open = async || matches!(tier.remove(b"key").await, Err(BackingError::Open { .. }));
    for _ in 0..2 {
        redis.kill();
        until("the breaker opens", is_open).await;
        redis.start_again();
        until("it is queried again", async || tier.remove(b"key").await.is_ok()).await;
    }
    redis.signal(Signal::STOP);
    until("the breaker opens", is_open).await;
    assert!(is_open().await, "the same source has failed before");
    redis.signal(Signal::CONT);
}

#[tokio::test]
async fn a_connection_that_was_killed_ends_its_source() {
    let redis = Redis::start("");
    let (tier, other) = (remote(&redis).await, remote(&redis).await);
    let notes = Notes::of(&tier);
    put(&other, b"key", b"one").await;
    let copy = follow(&tier, b"key").await;
    redis.command("CLIENT KILL TYPE normal SKIPME yes");
    until("all is announced as suspect", async || notes.is_suspect(copy.source)).await;
    for tier in [&tier, &other] {
        until("it is connected again", async || tier.trouble().is_none() && tier.log_state().await.is_ok())
            .await;
    }
    assert_ne!(tier.standing(copy.source), CopyStatus::Verified);
    let again = follow(&tier, b"key").await;
    assert_eq!(again.bytes, b"one"[..]);
    put(&other, b"key", b"two").await;
    until("changes are announced again", async || notes.count(b"key") > 0).await;
}

/// A server may close idle connections; that doesn't affect records.
#[tokio::test]
async fn idle_connections_may_be_closed() {
    let redis = Redis::start("timeout 1");
    let tier = remote(&redis).await;
    put(&tier, b"key", b"one").await;
    let copy = follow(&tier, b"key").await;
    let TakeOutcome::Taken(held) = lease(&tier, b"lease").await else { panic!("it is free") };
    assert_eq!(
        tier.renew_lease(&held, Duration::from_secs(60)).await.unwrap(),
        store::backing::RenewOutcome::Renewed
    );
    let connections =
        || redis.command("CLIENT LIST").lines().filter(|line| line.contains("name=larder")).count();
    assert_eq!(connections(), 3, "control, bulk, exclusive");
    until("idle ones are closed", async || connections() < 3).await;
    let id = SegmentId { fill: FillId::next(), index: 0 };
    until("segments go on", async || {
        tier.put_segment(id, Bytes::from_static(b"x"), VERIFICATION).await.is_ok()
    })
    .await;
    until("leases go on", async || tier.renew_lease(&held, Duration::from_secs(60)).await.is_ok()).await;
    assert_eq!(tier.standing(copy.source), CopyStatus::Verified);
}

/// A demoted master keeps its connections open, and replies.
#[tokio::test]
async fn a_master_that_is_demoted_ends_its_source() {
    let (redis, master) = (Redis::start(""), Redis::start(""));
    let tier = remote(&redis).await;
    let notes = Notes::of(&tier);
    put(&tier, b"key", b"one").await;
    let copy = follow(&tier, b"key").await;
    redis.command(&format!("REPLICAOF {} {}", master.address().ip(), master.address().port()));
    until("all is announced as suspect", async || notes.is_suspect(copy.source)).await;
    until("it says why", async || tier.trouble().is_some_and(|why| why.contains("not a master"))).await;
    redis.command("REPLICAOF NO ONE");
    until("it is connected again", async || tier.trouble().is_none()).await;
    assert_ne!(tier.standing(copy.source), CopyStatus::Verified, "never again");
}

/// A caller that waits for a record gets a result when the connection is lost.
#[tokio::test]
async fn a_wait_ends_with_the_connection() {
    let mut redis = Redis::start("");
    let tier = remote(&redis).await;
    lease(&tier, b"key").await;
    let waiting = {
        let tier = Arc::clone(&tier);
        tokio::spawn(async move { tier.wait(b"key", None, Duration::from_secs(60)).await })
    };
    let looked = || redis.command("INFO commandstats").contains("cmdstat_pttl:calls=3,");
    until("the waiter has read the record, too", async || looked()).await;
    redis.kill();
    let waited = waiting.await.unwrap();
    assert!(is_unreachable(&waited), "{waited:?}");
    assert!(!told(&waited.unwrap_err()).is_empty());
}
