//! Contents of the server, and recovery from values that Larder didn't write.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use store::backing::{
    AppendOutcome, Backing, BackingError, Continuity, Expected, LeaseMode, LeaseRequest, LogCursor, LogId,
    LogOffset, LogPart, PutOutcome, RECORD_BYTES_MAX, RenewOutcome, TakeOutcome, WaitOutcome,
};
use store::remote::Remote;
use store::{FillId, Refusal, SegmentId, SegmentPut};
use testkit::Redis;

use crate::kit::{load, names, put, remote, write};

const MINUTE: Duration = Duration::from_secs(60);

pub(crate) const LEASE: LeaseRequest<'static> =
    LeaseRequest { ttl: MINUTE, note: b"me", mode: LeaseMode::IfFree };

/// Tries to take a lease, which another instance may hold.
pub(crate) async fn lease(tier: &Remote, key: &[u8]) -> TakeOutcome {
    tier.take_lease(key, LEASE).await.unwrap()
}

/// Reads all records of the log from a position on.
async fn read_all(tier: &Remote, mut from: LogCursor) -> Vec<Bytes> {
    let mut all = Vec::new();
    loop {
        let part = tier.read_log(from).await.unwrap();
        let Some(last) = part.records.last() else { return all };
        from.offset = last.end;
        all.extend(part.records.into_iter().map(|record| record.bytes));
    }
}

#[tokio::test]
async fn names_hide_keys_and_all_but_the_log_ends() {
    let redis = Redis::start("");
    let tier = remote(&redis).await;
    put(&tier, b"https://example.org/{secret}", b"record").await;
    lease(&tier, b"https://example.org/{secret}").await;
    let id = SegmentId { fill: FillId { process: 1, sequence: 2 }, index: 3 };
    tier.put_segment(id, Bytes::from_static(b"segment"), MINUTE).await.unwrap();
    tier.log_state().await.unwrap();
    let mut all = names(&redis, "*");
    all.sort();
    assert_eq!(all.len(), 4, "{all:?}");
    assert_eq!(all[1], "larder:log");
    assert_eq!(all[3], "larder:s:{00000000000000010000000000000002}:3");
    assert_eq!(all[0].replace(":l:", ":r:"), all[2], "a lease is in the slot of its record");
    assert!(!all.concat().contains("example"));
    for name in all {
        let left: i64 = redis.command(&format!("PTTL {name}"))[1..].parse().unwrap();
        assert_eq!(left > 0, name != "larder:log", "{name} lives for {left} ms");
    }
}

/// A value that isn't a record of Larder counts as missing, and is replaced.
#[tokio::test]
async fn what_is_no_record_gives_way() {
    let redis = Redis::start("");
    let tier = remote(&redis).await;
    put(&tier, b"key", b"record").await;
    let name = names(&redis, "larder:r:*").pop().unwrap();
    let too_long = format!("SETRANGE @ {RECORD_BYTES_MAX} x");
    for garbage in ["LPUSH @ x", "SADD @ x", "SET @ \"\"", &too_long] {
        redis.command(&format!("DEL {name}"));
        redis.command(&garbage.replace('@', &name));
        assert_eq!(load(&tier, b"key").await, None, "{garbage}");
        let stored = tier.put(b"key", write(b"new", Expected::Absent)).await.unwrap();
        assert!(matches!(stored, PutOutcome::Stored(_)), "{garbage}: {stored:?}");
        assert_eq!(load(&tier, b"key").await.unwrap().bytes, b"new"[..]);
    }
    redis.command(&format!("SET {name} whatever"));
    let found = load(&tier, b"key").await.unwrap();
    assert_eq!(found.bytes, b"whatever"[..], "the reader judges it by its key and checksum");
    redis.command(&format!("DEL {name}"));
    redis.command(&format!("HSET {name} a b"));
    let upon = tier.put(b"key", write(b"new", Expected::Is(&found))).await.unwrap();
    assert_eq!(upon, PutOutcome::Conflict(None));
    assert!(tier.remove(b"key").await.unwrap(), "a foreign value is removed too");
}

#[tokio::test]
async fn what_is_no_segment_is_a_hole() {
    let redis = Redis::start("");
    let tier = remote(&redis).await;
    let fill = FillId { process: 1, sequence: 1 };
    redis.command("LPUSH larder:s:{00000000000000010000000000000001}:0 x");
    tier.put_segment(SegmentId { fill, index: 1 }, Bytes::from_static(b"x"), MINUTE).await.unwrap();
    let found = tier.load_segments(fill, &[0, 1]).await.unwrap();
    assert_eq!(found, [None, Some(Bytes::from_static(b"x"))]);
    let put = tier.put_segment(SegmentId { fill, index: 0 }, Bytes::from_static(b"x"), MINUTE).await;
    assert_eq!(put.unwrap(), SegmentPut::AlreadyThere, "as long as there is a value");
    tier.remove_segments(fill, &[0, 1]).await.unwrap();
    assert_eq!(tier.load_segments(fill, &[0, 1]).await.unwrap(), [None, None]);
}

#[tokio::test]
async fn what_is_no_lease_is_overwritten() {
    let redis = Redis::start("");
    let tier = remote(&redis).await;
    let TakeOutcome::Taken(held) = lease(&tier, b"key").await else { panic!("it is free") };
    let name = names(&redis, "larder:l:*").pop().unwrap();
    for garbage in ["SET @ x", "SET @ 0123456789abcdefnote", "LPUSH @ x"] {
        redis.command(&format!("DEL {name}"));
        redis.command(&garbage.replace('@', &name));
        assert_eq!(tier.renew_lease(&held, MINUTE).await.unwrap(), RenewOutcome::Lost, "{garbage}");
        let waited = tier.wait(b"key", None, MINUTE).await.unwrap();
        assert_eq!(waited, WaitOutcome::Free, "{garbage}: a lease without an expiry counts as free");
        assert!(matches!(lease(&tier, b"key").await, TakeOutcome::Taken(_)), "{garbage}");
    }
}

/// Any instance replaces a value that isn't a log, and none mistakes the new log for the one that it had read.
#[tokio::test]
async fn what_is_no_log_is_begun_anew() {
    let redis = Redis::start("");
    let tier = remote(&redis).await;
    let mut ids: Vec<LogId> = Vec::new();
    for garbage in ["DEL larder:log", "SET larder:log x", "LPUSH larder:log x"] {
        for is_appended in [true, false] {
            let before = tier.log_state().await.unwrap();
            ids.push(before.id);
            if !garbage.starts_with("SET") {
                redis.command("DEL larder:log");
            }
            redis.command(garbage);
            if is_appended {
                let appended = tier.append_log(&[Bytes::from_static(b"record")]).await.unwrap();
                let AppendOutcome::Taken(state) = appended else { panic!("{appended:?}") };
                assert!(!ids.contains(&state.id), "{garbage}");
            }
            let part = tier.read_log(before.cursor()).await.unwrap();
            assert!(part.records.is_empty() && !ids.contains(&part.state.id), "{garbage}");
            let all = tier.read_log(LogCursor { offset: part.state.floor, ..part.state.cursor() });
            let all = all.await.unwrap();
            assert_eq!(all.records.len(), usize::from(is_appended), "{garbage}");
        }
    }
}

/// The first reader that finds damage creates a new log, which all instances then use.
#[tokio::test]
async fn a_damaged_log_is_replaced() {
    let redis = Redis::start("");
    let (tier, other) = (remote(&redis).await, remote(&redis).await);
    let texts = |log: LogPart| log.records.into_iter().map(|record| record.bytes).collect::<Vec<_>>();
    let one = [Bytes::from_static(b"one"), Bytes::from_static(b"two")];
    for damage in ["SETRANGE larder:log 51 x", "SETRANGE larder:log 32 xxxx", "APPEND larder:log x"] {
        let from = tier.log_state().await.unwrap().cursor();
        tier.append_log(&one).await.unwrap();
        redis.command(damage);
        let torn = damage.starts_with("APPEND").then_some(other.log_state().await.unwrap().end);
        // A reader that reads the log in parts reaches a torn end only with the last part.
        let at = torn.map_or(from, |end| LogCursor { offset: LogOffset(end.0 - 1), ..from });
        let parts = tokio::join!(tier.read_log(at), other.read_log(at));
        let [part, same] = [parts.0.unwrap(), parts.1.unwrap()];
        assert_eq!(part.state.id, same.state.id, "{damage}");
        for part in [&part, &same] {
            assert_eq!(part.state.continues(&from), Continuity::Lost, "{damage}");
            assert!(part.records.is_empty(), "{damage}");
        }
        let now = tier.log_state().await.unwrap();
        assert_eq!(other.log_state().await.unwrap(), now, "{damage}");
        other.append_log(&one).await.unwrap();
        assert_eq!(texts(tier.read_log(now.cursor()).await.unwrap()), one, "{damage}: it goes on");
        redis.command("DEL larder:log");
    }
}

/// A record begins at the floor, even if the requested floor is inside a record.
#[tokio::test]
async fn a_log_is_trimmed_between_records() {
    let redis = Redis::start("");
    let tier = remote(&redis).await;
    let begun = tier.log_state().await.unwrap();
    let records: Vec<Bytes> = (0..100u8).map(|number| Bytes::from(vec![number; 7_000])).collect();
    for records in records.chunks(9) {
        tier.append_log(records).await.unwrap();
    }
    let mut ends = vec![begun.end];
    ends.extend((1..=100u64).map(|count| LogOffset(begun.end.0 + count * 7_008)));
    for (wanted, first) in [(7_007, 0), (7_008, 1), (50_000, 7), (50_001, 7), (650_000, 92), (700_800, 100)] {
        let floor = LogCursor { id: begun.id, offset: LogOffset(begun.end.0 + wanted) };
        let trimmed = tier.trim_log(floor).await.unwrap();
        assert_eq!((trimmed.floor, trimmed.end), (ends[first], ends[100]), "{wanted}");
        let all = read_all(&tier, begun.cursor()).await;
        assert!(all == records[first..], "{wanted}: {} records", all.len());
    }
}

/// A server without free memory refuses only writes.
#[tokio::test]
async fn a_full_server_refuses() {
    let redis = Redis::start("");
    let tier = remote(&redis).await;
    put(&tier, b"key", b"old").await;
    let TakeOutcome::Taken(held) = lease(&tier, b"key").await else { panic!("it is free") };
    let old = load(&tier, b"key").await.unwrap();
    // The first read creates the log.
    tier.log_state().await.unwrap();
    redis.command("CONFIG SET maxmemory 1");
    let full = PutOutcome::NotStored(Refusal::OverBudget);
    for (key, expected) in
        [(&b"key"[..], Expected::Any), (b"new", Expected::Absent), (b"key", Expected::Is(&old))]
    {
        assert_eq!(tier.put(key, write(b"new", expected)).await.unwrap(), full, "{expected:?}");
    }
    assert_eq!(load(&tier, b"key").await.as_ref(), Some(&old), "the old record stays");
    assert_eq!(tier.release_lease(&held, write(b"new", Expected::Any)).await.unwrap(), full);
    let id = SegmentId { fill: FillId::next(), index: 0 };
    let segment = tier.put_segment(id, Bytes::from_static(b"x"), MINUTE).await.unwrap();
    assert_eq!(segment, SegmentPut::NotStored(Refusal::OverBudget));
    let appended = tier.append_log(&[Bytes::from_static(b"x")]).await.unwrap();
    assert_eq!(appended, AppendOutcome::NotStored(Refusal::OverBudget));
    let other = tier.take_lease(b"other", LEASE).await;
    assert!(matches!(other, Err(BackingError::Full)), "{other:?}");
    assert_eq!(load(&tier, b"key").await, None, "waiters see that the lease has ended");
    let renewed = tier.renew_lease(&held, MINUTE).await;
    assert!(matches!(renewed, Ok(RenewOutcome::Lost)), "{renewed:?}");
    let state = tier.log_state().await.unwrap();
    assert!(tier.read_log(state.cursor()).await.unwrap().records.is_empty());
    assert!(!tier.remove(b"key").await.unwrap());
    redis.command("CONFIG SET maxmemory 0");
    assert!(matches!(
        tier.release_lease(&held, write(b"new", Expected::Any)).await.unwrap(),
        PutOutcome::LeaseLost
    ));
}

/// Two instances count concurrently, each step based on the last value read: no step is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_those_who_race_one_wins() {
    let redis = Redis::start("");
    let tiers = [remote(&redis).await, remote(&redis).await];
    let counting = (0..8).map(|number| tokio::spawn(count(Arc::clone(&tiers[number % 2]), 40)));
    let stored: u32 = {
        let mut sum = 0;
        for task in counting.collect::<Vec<_>>() {
            sum += task.await.unwrap();
        }
        sum
    };
    let counted = load(&tiers[0], b"count").await.unwrap();
    assert_eq!(counted.bytes[..], stored.to_be_bytes(), "each stored step was based on the last one");
    assert!(stored >= 8 * 5, "some steps succeed: {stored}");
    let mut holders = 0;
    let taking = (0..8).map(|number| {
        let tier = Arc::clone(&tiers[number % 2]);
        tokio::spawn(async move { matches!(lease(&tier, b"lease").await, TakeOutcome::Taken(_)) })
    });
    for task in taking.collect::<Vec<_>>() {
        holders += usize::from(task.await.unwrap());
    }
    assert_eq!(holders, 1);
}

/// Returns the number of successful steps among `attempts`.
async fn count(tier: Arc<Remote>, attempts: u32) -> u32 {
    let mut stored = 0;
    for _ in 0..attempts {
        let known = load(&tier, b"count").await;
        let before =
            known.as_ref().map_or(0, |known| u32::from_be_bytes(known.bytes[..].try_into().unwrap()));
        let expected = known.as_ref().map_or(Expected::Absent, Expected::Is);
        match tier.put(b"count", write(&(before + 1).to_be_bytes(), expected)).await {
            Ok(PutOutcome::Stored(_)) => stored += 1,
            Ok(PutOutcome::Conflict(_)) | Err(BackingError::Contended { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    stored
}

/// A future that is dropped midway leaves no connection in a harmful state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_dropped_does_no_harm() {
    let redis = Redis::start("");
    let tier = remote(&redis).await;
    put(&tier, b"key", b"0").await;
    for round in 0..200u64 {
        let known = load(&tier, b"key").await.unwrap();
        let change = tier.put(b"key", write(round.to_string().as_bytes(), Expected::Is(&known)));
        let within = Duration::from_micros(round * 5);
        let dropped = tokio::time::timeout(within, change).await.is_err();
        let other = tier.put(b"other", write(b"x", Expected::Absent)).await.unwrap();
        assert!(matches!(other, PutOutcome::Stored(_)), "round {round}: {dropped} {other:?}");
        let known = load(&tier, b"other").await.unwrap();
        let upon = tier.put(b"other", write(b"y", Expected::Is(&known))).await.unwrap();
        assert!(matches!(upon, PutOutcome::Stored(_)), "round {round}: {dropped} {upon:?}");
        assert!(tier.remove(b"other").await.unwrap());
    }
}
