//! Promises 11 to 14.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::super::contract::Backing;
use super::super::lease::{LEASE_NOTE_BYTES_MAX, Lease, LeaseMode, LeaseRequest, RenewOutcome, TakeOutcome};
use super::super::record::{Expected, PutOutcome, WaitOutcome, Write};
use super::{Bench, LONG, SHORT, Violation, ensure, eventually, found, load, new_key, put, write};

pub(super) async fn check(bench: &Bench) -> Result<(), Violation> {
    one_holds_it(bench).await?;
    it_ends_with_its_time(bench).await?;
    an_older_fetch_cannot_publish(bench).await?;
    a_release_writes_and_frees(bench).await?;
    a_wait_misses_nothing(bench).await?;
    a_wait_ends_with_the_lease(bench).await
}

const FREE: LeaseRequest<'static> = LeaseRequest { ttl: LONG, note: b"own", mode: LeaseMode::IfFree };

pub(super) async fn take(
    tier: &dyn Backing,
    key: &[u8],
    request: LeaseRequest<'_>,
) -> Result<Lease, Violation> {
    match tier.take_lease(key, request).await? {
        TakeOutcome::Taken(lease) => Ok(lease),
        TakeOutcome::Held { .. } => Err(Violation::BrokenPromise(11, "a free lease can be taken")),
    }
}

fn under<'a>(lease: &'a Lease, bytes: &[u8], expected: Expected<'a>) -> Write<'a> {
    Write { lease: Some(lease), ..write(bytes, expected) }
}

async fn one_holds_it(Bench { own, other, .. }: &Bench) -> Result<(), Violation> {
    let key = new_key("lease");
    let note = [b'n'; LEASE_NOTE_BYTES_MAX + 1];
    take(&**own, &key, LeaseRequest { note: &note, ..FREE }).await?;
    let second = other.take_lease(&key, FREE).await?;
    let TakeOutcome::Held { note: told, left } = second else {
        return Err(Violation::BrokenPromise(11, "a lease has one holder"));
    };
    ensure(*told == note[..LEASE_NOTE_BYTES_MAX], 11, "the holder's note can be read")?;
    ensure(left <= LONG && left > LONG / 2, 11, "the remaining time is reported")?;
    let [one, two] = [own, other].map(|tier| tier.take_lease(&key, FREE));
    let (one, two) = tokio::join!(one, two);
    let taken = [one?, two?].iter().filter(|taken| matches!(taken, TakeOutcome::Taken(_))).count();
    ensure(taken == 0, 11, "a held lease can't be taken")
}

async fn it_ends_with_its_time(Bench { own, other, .. }: &Bench) -> Result<(), Violation> {
    let key = new_key("ends");
    let lease = take(&**own, &key, LeaseRequest { ttl: SHORT, ..FREE }).await?;
    let begun = Instant::now();
    while begun.elapsed() < SHORT * 2 {
        ensure(
            own.renew_lease(&lease, SHORT).await? == RenewOutcome::Renewed,
            12,
            "a held lease is renewed",
        )?;
        sleep(SHORT / 8).await;
    }
    let free = async || Ok(matches!(other.take_lease(&key, FREE).await?, TakeOutcome::Taken(_)));
    eventually(12, "a lease expires", free).await?;
    ensure(own.renew_lease(&lease, LONG).await? == RenewOutcome::Lost, 12, "a lease that ended is lost")
}

async fn an_older_fetch_cannot_publish(Bench { own, other, .. }: &Bench) -> Result<(), Violation> {
    let key = new_key("reload");
    let older = take(&**own, &key, FREE).await?;
    let put = own.put(&key, under(&older, b"filling", Expected::Absent)).await?;
    ensure(matches!(put, PutOutcome::Stored(_)), 12, "a holder can publish")?;
    let newer = take(&**other, &key, LeaseRequest { mode: LeaseMode::Overwrite, ..FREE }).await?;
    let late = own.put(&key, under(&older, b"older", Expected::Any)).await?;
    ensure(late == PutOutcome::LeaseLost, 12, "an overwritten lease publishes nothing")?;
    let released = own.release_lease(&older, write(b"older", Expected::Any)).await?;
    ensure(released == PutOutcome::LeaseLost, 12, "an overwritten lease releases nothing")?;
    ensure(found(&**own, &key).await?.bytes == b"filling"[..], 12, "the record stays")?;
    let elsewhere = new_key("elsewhere");
    let foreign = other.put(&elsewhere, under(&newer, b"x", Expected::Any)).await?;
    ensure(foreign == PutOutcome::LeaseLost, 12, "a lease applies only to its key")?;
    ensure(other.renew_lease(&newer, LONG).await? == RenewOutcome::Renewed, 11, "the newer lease is held")
}

async fn a_release_writes_and_frees(Bench { own, other, .. }: &Bench) -> Result<(), Violation> {
    let key = new_key("release");
    let lease = take(&**own, &key, FREE).await?;
    put(&**other, &key, b"foreign").await?;
    let upon_nothing = own.release_lease(&lease, write(b"done", Expected::Absent)).await?;
    ensure(
        matches!(upon_nothing, PutOutcome::Conflict(Some(_))),
        13,
        "a release with another condition is a conflict",
    )?;
    ensure(own.renew_lease(&lease, LONG).await? == RenewOutcome::Renewed, 13, "a conflict frees nothing")?;
    let current = found(&**own, &key).await?;
    let released = own.release_lease(&lease, write(b"done", Expected::Is(&current))).await?;
    ensure(matches!(released, PutOutcome::Stored(_)), 13, "a release writes")?;
    ensure(found(&**other, &key).await?.bytes == b"done"[..], 13, "the released record can be loaded")?;
    take(&**other, &key, FREE).await.map(drop)
}

async fn a_wait_misses_nothing(Bench { own, other, .. }: &Bench) -> Result<(), Violation> {
    let key = new_key("wait");
    let lease = take(&**own, &key, FREE).await?;
    let patient = other.wait(&key, None, LONG / 2);
    let release = async {
        sleep(Duration::from_millis(20)).await;
        own.release_lease(&lease, write(b"done", Expected::Absent)).await
    };
    let begun = Instant::now();
    let (waited, released) = tokio::join!(patient, release);
    ensure(matches!(released?, PutOutcome::Stored(_)), 13, "a release writes")?;
    let is_done = |waited: &WaitOutcome| matches!(waited, WaitOutcome::Changed(Some(found)) if found.bytes == b"done"[..]);
    let waited = waited?;
    ensure(
        (waited == WaitOutcome::Told || is_done(&waited)) && begun.elapsed() < LONG / 4,
        14,
        "a waiter is woken by the release",
    )?;
    ensure(is_done(&other.wait(&key, None, LONG).await?), 14, "an earlier change ends a wait")?;
    let seen = load(&**other, &key).await?.map(|found| found.version);
    ensure(other.wait(&key, seen, LONG).await? == WaitOutcome::Free, 14, "without a lease, a wait ends")?;
    ensure(begun.elapsed() < LONG / 4, 14, "the wait ends immediately")
}

async fn a_wait_ends_with_the_lease(Bench { own, other, .. }: &Bench) -> Result<(), Violation> {
    let key = new_key("abandoned");
    take(&**own, &key, LeaseRequest { ttl: SHORT, ..FREE }).await?;
    let begun = Instant::now();
    ensure(other.wait(&key, None, SHORT / 8).await? == WaitOutcome::StillHeld, 14, "a wait has a limit")?;
    ensure(other.wait(&key, None, LONG).await? == WaitOutcome::Expired, 14, "a wait ends with the lease")?;
    ensure(begun.elapsed() < LONG / 4, 14, "a wait ends no later than the lease")
}
