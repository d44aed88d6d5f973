//! Membership of instances, and their known positions in the log.

use super::*;
use crate::backing::double::{Behaviour, DoubleLimits, DoubleServer};
use crate::backing::{LogId, LogOffset, RECORD_BYTES_MAX};

fn cursor(offset: u64) -> LogCursor {
    LogCursor { id: LogId([7; 16]), offset: LogOffset(offset) }
}

fn fleet(server: &DoubleServer, number: u8) -> Fleet {
    let backing = Arc::new(server.connect(Behaviour::default()));
    let name = format!("cache-{number}");
    Fleet::new(backing, InstanceId([number; 16]), &name, Duration::from_secs(2))
}

async fn joined(server: &DoubleServer, number: u8, offset: u64) -> Fleet {
    let fleet = fleet(server, number);
    fleet.beat(cursor(offset)).await.unwrap();
    fleet.enlist().await.unwrap();
    fleet
}

fn names(reached: &Arrivals) -> Vec<(&str, bool)> {
    reached.instances.iter().map(|reach| (&*reach.name, reach.after.is_some())).collect()
}

const LIMIT: Duration = Duration::from_secs(3);

#[tokio::test(start_paused = true)]
async fn all_that_share_a_tier_are_asked() {
    let server = DoubleServer::new(DoubleLimits::default(), 1);
    let one = joined(&server, 1, 10).await;
    let two = joined(&server, 2, 10).await;
    let _three = joined(&server, 3, 9).await;
    let reached = one.reach(cursor(10), LIMIT).await;
    assert!(reached.is_complete);
    assert_eq!(names(&reached), [("cache-1", true), ("cache-2", true), ("cache-3", false)]);
    two.leave().await.unwrap();
    two.beat(cursor(11)).await.unwrap();
    two.enlist().await.unwrap();
    let reached = one.reach(cursor(9), LIMIT).await;
    assert_eq!(names(&reached), [("cache-1", true), ("cache-3", true)], "it has announced its end");
    assert!(reached.is_complete);
    one.enlist().await.unwrap();
    assert!(!one.list().await.unwrap().ids.contains(&two.me));
    tokio::time::sleep(Duration::from_secs(7)).await;
    one.beat(cursor(10)).await.unwrap();
    one.enlist().await.unwrap();
    assert_eq!(names(&one.reach(cursor(10), LIMIT).await), [("cache-1", true)], "the others have left");
}

/// A full server refuses heartbeats. An instance must notice this, because others stop waiting for it once its record has
/// expired.
#[tokio::test(start_paused = true)]
async fn a_record_that_is_refused_is_an_error() {
    let server = DoubleServer::new(DoubleLimits::default(), 1);
    let mut one = fleet(&server, 1);
    one.name = "n".repeat(RECORD_BYTES_MAX).into();
    assert!(matches!(one.beat(cursor(1)).await, Err(BackingError::Full)));
    // The server has another instance's record, and a list that no longer includes this one.
    let _two = joined(&server, 2, 1).await;
    one.read_members().await.unwrap();
    tokio::time::sleep(one.verification).await;
    assert!(!one.reach(cursor(1), LIMIT).await.is_complete);
}

/// Each instance reads the list before the others are added to it.
#[tokio::test(start_paused = true)]
async fn those_that_start_together_are_all_listed() {
    let server = DoubleServer::new(DoubleLimits::default(), 1);
    let one = joined(&server, 1, 10).await;
    let far = async |number| {
        let mut far = fleet(&server, number);
        let slow = Behaviour { latency: Duration::from_millis(20), ..Behaviour::default() };
        far.backing = Arc::new(server.connect(slow));
        far.beat(cursor(10)).await.unwrap();
        far.enlist().await.unwrap();
    };
    tokio::join!(far(2), far(3), far(4));
    assert_eq!(one.list().await.unwrap().ids.len(), 4);
}

/// All records must be loaded in one round trip: a purge waits for them, and the tier may be far away.
#[tokio::test(start_paused = true)]
async fn those_that_are_known_are_asked_with_the_list() {
    let latency = Duration::from_millis(20);
    let server = DoubleServer::new(DoubleLimits::default(), 1);
    let backing = server.connect(Behaviour { latency, ..Behaviour::default() });
    let one = Fleet::new(Arc::new(backing), InstanceId([1; 16]), "a", Duration::from_secs(2));
    let (_two, _three) = (joined(&server, 2, 10).await, joined(&server, 3, 10).await);
    for expected in [2 * latency, latency] {
        let begun = Instant::now();
        assert_eq!(one.said().await.unwrap().len(), 2);
        let took = begun.elapsed();
        assert!((expected..expected + latency / 4).contains(&took), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_log_is_not_reached() {
    let server = DoubleServer::new(DoubleLimits::default(), 1);
    let one = joined(&server, 1, 10).await;
    let place = LogCursor { id: LogId([8; 16]), offset: LogOffset(1) };
    assert_eq!(names(&one.reach(place, LIMIT).await), [("cache-1", false)]);
}

/// A live instance counts, whatever the tier forgets.
#[tokio::test(start_paused = true)]
async fn a_list_that_was_lost_hides_nobody_who_was_seen() {
    for seed in 0..200 {
        let server = DoubleServer::new(DoubleLimits::default(), seed);
        let one = joined(&server, 1, 10).await;
        let _two = joined(&server, 2, 5).await;
        one.enlist().await.unwrap();
        (0..3).for_each(|which| server.evict(seed * 31 + which));
        let reached = one.reach(cursor(6), LIMIT).await;
        assert!(names(&reached).contains(&("cache-2", false)), "{seed}: {reached:?}");
        // The other instances have not returned to the list yet, so a new instance must not consider the list complete.
        let late = joined(&server, 3, 10).await;
        assert!(!late.reach(cursor(6), Duration::from_secs(1)).await.is_complete);
    }
}

#[tokio::test(start_paused = true)]
async fn all_find_their_way_into_the_list_at_once() {
    let server = DoubleServer::new(DoubleLimits::default(), 3);
    let fleets: Vec<_> = (1..=20).map(|number| fleet(&server, number)).collect();
    for fleet in &fleets {
        fleet.beat(cursor(1)).await.unwrap();
    }
    let mut tries = tokio::task::JoinSet::new();
    for fleet in fleets {
        tries.spawn(async move {
            while fleet.enlist().await.is_err() {}
            fleet
        });
    }
    let fleets = tries.join_all().await;
    for fleet in &fleets {
        assert_eq!(fleet.reach(cursor(1), LIMIT).await.instances.len(), 20);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_fails_makes_the_answer_incomplete() {
    let server = DoubleServer::new(DoubleLimits::default(), 1);
    let backing = server.connect(Behaviour { unreachable_permille: 1000, ..Behaviour::default() });
    let alone = Fleet::new(Arc::new(backing), InstanceId([1; 16]), "a", Duration::from_secs(2));
    assert!(alone.beat(cursor(1)).await.is_err());
    let reached = alone.reach(cursor(1), LIMIT).await;
    assert_eq!(reached, Arrivals { instances: Vec::new(), is_complete: false });
}
