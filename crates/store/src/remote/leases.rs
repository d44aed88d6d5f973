//! Leases, and waiting for who holds one.

use std::time::Duration;

use redis::{Value, pipe};
use tokio::time::{Instant, timeout};

use super::connections::Connections;
use super::names::{Digest, Names};
use super::random;
use super::records::{self, ttl_ms};
use super::reply::{self, Written};
use super::transaction::{ATTEMPTS, Decision, Outcome, TOKEN_BYTES, Watched, contended, transact};
use crate::backing::{
    BackingError, LEASE_NOTE_BYTES_MAX, Lease, LeaseMode, LeaseRequest, RECORD_BYTES_MAX, Renewed, Taken,
    Token, Tracking, Version, Waited,
};

pub(super) async fn take(
    connections: &Connections,
    names: &Names,
    key: &[u8],
    request: LeaseRequest<'_>,
) -> Result<Taken, BackingError> {
    let lease = Lease { key: key.into(), token: Token(random::id()) };
    let note = &request.note[..request.note.len().min(LEASE_NOTE_BYTES_MAX)];
    let value = [&lease.token.0[..], note].concat();
    let name = names.lease(Digest::of(key));
    if request.mode == LeaseMode::Overwrite {
        return overwrite(connections, &name, &value, lease, request.ttl).await;
    }
    for _ in 0..ATTEMPTS {
        let mut question = pipe();
        question.cmd("SET").arg(&name).arg(value.as_slice()).arg("PX").arg(ttl_ms(request.ttl)).arg("NX");
        question.cmd("GETRANGE").arg(&name).arg(TOKEN_BYTES).arg(TOKEN_BYTES + LEASE_NOTE_BYTES_MAX - 1);
        question.cmd("PTTL").arg(&name);
        let [set, note, left] = connections.control.ask_for(&question).await?;
        match (written(set)?, left_of(left)?) {
            (Written::Yes, _) => return Ok(Taken::Taken(lease)),
            (_, Left::For(left)) => {
                let note = reply::part(note, LEASE_NOTE_BYTES_MAX)?.unwrap_or_default();
                return Ok(Taken::Held { note: note[..].into(), left });
            }
            // It ended in between.
            (_, Left::Free) => {}
            // No lease is without an end: this is none.
            (_, Left::Endless) => return overwrite(connections, &name, &value, lease, request.ttl).await,
        }
    }
    Err(contended())
}

pub(super) async fn renew(
    connections: &Connections,
    names: &Names,
    lease: &Lease,
    ttl: Duration,
) -> Result<Renewed, BackingError> {
    let name = names.lease(Digest::of(&lease.key));
    let watched = Watched { record: None, lease: Some(&name) };
    let outcome = transact(connections, watched, |seen| {
        if seen.holder != Some(lease.token) {
            return Decision::End(Renewed::Lost);
        }
        let mut commands = pipe();
        commands.cmd("PEXPIRE").arg(&name).arg(ttl_ms(ttl));
        Decision::Do(commands)
    });
    match outcome.await? {
        Outcome::Done => Ok(Renewed::Renewed),
        Outcome::Ended(renewed) => Ok(renewed),
        Outcome::NoRoom => Err(BackingError::Full),
    }
}

pub(super) async fn wait(
    connections: &Connections,
    names: &Names,
    key: &[u8],
    seen: Option<Version>,
    limit: Duration,
) -> Result<Waited, BackingError> {
    let end = Instant::now() + limit;
    let digest = Digest::of(key);
    let waiter = connections.followed.wait(digest);
    loop {
        // It hears of all changes from here on, so none comes between looking and waiting.
        let woken = waiter.woken.notified();
        let (found, next) = look(connections, names, digest).await?;
        if found.as_ref().map(|found| found.version) != seen {
            return Ok(Waited::Changed(found));
        }
        let Some(next) = next else { return Ok(Waited::Free) };
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Waited::StillHeld);
        }
        // Woken or not, it looks again.
        let _ = timeout(left.min(next), woken).await;
    }
}

/// What lies under a key, and when to look again even if nothing is told: when the lease or the record ends, or never if nobody holds the
/// lease.
async fn look(
    connections: &Connections,
    names: &Names,
    digest: Digest,
) -> Result<(Option<crate::backing::Loaded>, Option<Duration>), BackingError> {
    let name = names.record(digest);
    let mut question = pipe();
    question.cmd("CLIENT").arg("CACHING").arg("YES");
    records::look(&mut question, &name);
    question.cmd("PTTL").arg(&name).cmd("PTTL").arg(names.lease(digest));
    let [caching, record, record_left, lease_left] = connections.control.ask_for(&question).await?;
    reply::done(caching)?;
    let record = reply::part(record, RECORD_BYTES_MAX)?;
    let found = record.map(|bytes| records::loaded(bytes, connections.source, Tracking::Off));
    let next = match (left_of(lease_left)?, left_of(record_left)?) {
        (Left::For(lease), Left::For(record)) => Some(lease.min(record) + TICK),
        (Left::For(lease), Left::Free | Left::Endless) => Some(lease + TICK),
        (Left::Free | Left::Endless, _) => None,
    };
    Ok((found, next))
}

async fn overwrite(
    connections: &Connections,
    name: &str,
    value: &[u8],
    lease: Lease,
    ttl: Duration,
) -> Result<Taken, BackingError> {
    let mut question = pipe();
    question.cmd("SET").arg(name).arg(value).arg("PX").arg(ttl_ms(ttl));
    let [answer] = connections.control.ask_for(&question).await?;
    written(answer)?;
    Ok(Taken::Taken(lease))
}

/// There is no other word for it: who can't have a lease collapses within the process.
fn written(answer: Value) -> Result<Written, BackingError> {
    match reply::written(answer)? {
        Written::NoRoom => Err(BackingError::Full),
        written => Ok(written),
    }
}

/// How long something is there.
enum Left {
    For(Duration),
    /// It is not there.
    Free,
    Endless,
}

fn left_of(pttl: Value) -> Result<Left, BackingError> {
    match reply::of(pttl) {
        Ok(Value::Int(-2)) => Ok(Left::Free),
        Ok(Value::Int(ms)) => {
            Ok(u64::try_from(ms).map_or(Left::Endless, |ms| Left::For(Duration::from_millis(ms))))
        }
        Ok(other) => Err(reply::unexpected(&other)),
        Err(refused) => Err(refused.into()),
    }
}

/// Servers count whole milliseconds.
const TICK: Duration = Duration::from_millis(1);
